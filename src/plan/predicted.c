/* predicted.c -- a run's step on this machine: plan, simulation, and both in words. */
#include "plan/predicted.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/env.h"
#include "coll/cost.h"
#include "plan/step_sim.h"
#include "train/explain_run.h"

typedef unsigned long long num; /* for printf */

/* --- this machine ---------------------------------------------------------------------------------------- */

/* Of this machine: a launcher that binds ranks to cores says how many it has. */
static double cores_here(void)
{
    const ls_env *env = ls_env_get();
    const char *told = env->getenv("LOCKSTEP_CPUS");
    const long n = told ? strtol(told, NULL, 10) : 0;
    return n > 0 ? (double)n : env->cpus();
}

static ls_topo_level level_of(const char *name, int count, const ls_link_cost *link, double crowd, double poke_ns)
{
    ls_topo_level v = { .count = count, .bytes_per_s = 1e9 / (link->beta_ns > 0 ? link->beta_ns : 1) / crowd,
                        .latency_s = 1e-9 * (link->alpha_ns + (crowd > 1 ? crowd * poke_ns : 0)), .ports = 1,
                        .oversubscription = 1 };
    snprintf(v.name, sizeof v.name, "%s", name);
    snprintf(v.link, sizeof v.link, "%s", name);
    return v;
}

/* A device per rank. Ranks that share cores copy and add one after another: links are as much slower, and a message
 * is seen when its rank has its turn. */
static ls_status cluster_of(const ls_train_config *c, const ls_predicted *p, const ls_cost *cost, ls_topo *out)
{
    const char *by = c->comm.transport;
    const ls_level within = !*by || strncmp(by, "shm", 3) == 0 || strncmp(by, "mixed", 5) == 0 ? LS_LEVEL_MEMORY
                                                                                               : LS_LEVEL_LOOPBACK;
    const double crowd = fmax(1, p->local / p->cores);
    *out = (ls_topo){ .name = "this machine", .nlevels = p->ranks > p->local ? 2 : 1 };
    snprintf(out->source, sizeof out->source, "%s", p->cost_from);
    snprintf(out->device.name, sizeof out->device.name, "rank");
    out->level[0] = level_of("node", p->local, &cost->link[within], crowd, cost->poke_ns);
    if (out->nlevels > 1)
        out->level[1] = level_of("cluster", p->ranks / p->local, &cost->link[LS_LEVEL_NETWORK], crowd, cost->poke_ns);
    return ls_topo_check(out);
}

/* --- the prediction -------------------------------------------------------------------------------------- */

/* Stages have equally many ranks. */
static void sum_up(const ls_step_result *r, int stages, ls_predicted_time *out)
{
    *out = (ls_predicted_time){ .step = r->step_s };
    for (int k = 0; k < stages; k++) {
        const ls_step_parts *s = &r->stage[k];
        out->compute += (s->compute - s->optimizer - s->data) / stages;
        out->optimizer += s->optimizer / stages;
        out->data += s->data / stages;
        out->exposed += (s->collectives + s->others + s->beside) / stages;
        out->bubble += (s->stages + s->idle) / stages;
    }
}

static ls_status simulate(const ls_train_config *c, ls_predicted *p)
{
    const ls_algo *algo[LS_COLLS];
    const ls_step_rates rates = { .flops_per_s = 1, .measured = &p->measured };
    ls_step_lists l = { 0 };
    ls_topo t;
    ls_cost cost;
    LS_TRY(ls_cost_load(&cost, p->cost_from, sizeof p->cost_from));
    LS_TRY(cluster_of(c, p, &cost, &t));
    LS_TRY(ls_algo_parse(c->comm.algo ? c->comm.algo : "", algo));
    const double ours = p->cores / p->measured.threads;
    p->shared = p->local > ours;
    const ls_step_sim_opts s = { .t = &t, .algo = algo, .cores = p->shared ? ours * p->ranks / p->local : 0 };
    ls_step_result *r = calloc(1, sizeof *r);
    ls_status st = r ? ls_step_lists_create(c, p->ranks, &rates, &l) : ls_fail(LS_NO_MEMORY, "a simulation");
    if (st == LS_OK) st = ls_step_simulate(&l, &s, r);
    if (st == LS_OK) sum_up(r, l.stages, &p->time);
    ls_step_lists_free(&l);
    free(r);
    return st;
}

static ls_status plan(const ls_train_config *c, ls_predicted *p)
{
    ls_source source = { 0 };
    ls_model_config mc;
    ls_status st = ls_train_model(c, &source, &mc);
    if (st == LS_OK) st = ls_explain_layout_make(c, &mc, p->ranks, p->ranks / p->local, NULL, &p->plan);
    ls_source_free(&source);
    return st;
}

ls_status ls_predict(const ls_train_config *c, int ranks, int local, ls_predicted *out)
{
    *out = (ls_predicted){ .ranks = ranks, .local = local, .cores = cores_here() };
    if (local < 1 || ranks % local != 0)
        return ls_fail(LS_UNSUPPORTED, "--predict: %d ranks with %d on this node: expected equally many on each node", ranks,
                       local);
    LS_TRY(plan(c, out));
    LS_TRY(ls_measure(c, ranks, local, &out->measured));
    return simulate(c, out);
}

void ls_predicted_free(ls_predicted *p)
{
    ls_measured_free(&p->measured);
    ls_explain_layout_free(&p->plan);
    *p = (ls_predicted){ 0 };
}

/* --- in words -------------------------------------------------------------------------------------------- */

static void add_part(const char *name, double s, double step, ls_text *out)
{
    ls_text_add(out, "\n    %-22s %11.3f ms %5.1f %%", name, 1e3 * s, step > 0 ? 100 * s / step : 0);
}

static void add_memory(const ls_predicted *p, ls_text *out)
{
    char a[32];
    int most = 0;
    for (int r = 1; r < p->ranks; r++)
        if (p->plan.rank[r].plan.total > p->plan.rank[most].plan.total) most = r;
    ls_text_add(out, "\n  memory of rank 0");
    const ls_memory_plan *m = &p->plan.rank[0].plan;
    const char *comma = ": ";
    for (int k = 0; k < LS_MEM_KINDS; k++, comma = ", ")
        if (m->bytes[k]) ls_text_add(out, "%s%s %zu", comma, ls_mem_kind_name((ls_mem_kind)k), m->bytes[k]);
    ls_text_add(out, "; total %zu bytes", m->total);
    if (p->plan.rank[most].plan.total > m->total)
        ls_text_add(out, "; most has rank %d: %s", most,
                    ls_bytes_text((double)p->plan.rank[most].plan.total, a, sizeof a));
}

static void add_traffic(const ls_predicted *p, ls_text *out)
{
    bool most;
    num calls = 0;
    const num bytes = ls_explain_moved(&p->plan, 0, &most);
    for (int i = 0; i < p->plan.rank[0].ncalls; i++) calls += p->plan.rank[0].calls[i].calls;
    ls_text_add(out, "\n  communication of rank 0 per step: %llu calls, %s%llu bytes", calls, most ? "at most " : "", bytes);
}

void ls_predicted_text(const ls_predicted *p, ls_text *out)
{
    const ls_predicted_time *t = &p->time;
    const ls_measured *m = &p->measured;
    ls_text_add(out, "prediction: operations timed in %d steps of %d micro-batch%s in %.2f s on %d thread%s; links: %s",
                m->steps, m->micro_batches, m->micro_batches == 1 ? "" : "es", m->seconds, m->threads,
                m->threads == 1 ? "" : "s", p->cost_from);
    if (p->shared) ls_text_add(out, "; %d ranks share %g core%s", p->local, p->cores, p->cores == 1 ? "" : "s");
    ls_text_add(out, "\n  %-24s %11.3f ms, the mean over all ranks", "step", 1e3 * t->step);
    add_part("compute", t->compute, t->step, out);
    add_part("optimizer", t->optimizer, t->step, out);
    add_part("data", t->data, t->step, out);
    add_part("exposed communication", t->exposed, t->step, out);
    if (p->plan.plan.size[LS_AXIS_PP] > 1) add_part("pipeline bubble", t->bubble, t->step, out);
    add_memory(p, out);
    add_traffic(p, out);
}

/* --- as JSON --------------------------------------------------------------------------------------------- */

static void json_rank(const ls_predicted *p, int r, ls_text *out)
{
    const ls_explain_rank *x = &p->plan.rank[r];
    ls_text_add(out, "%s\n  {\"rank\": %d, \"memory\": {", r ? "," : "", r);
    for (int k = 0; k < LS_MEM_KINDS; k++)
        ls_text_add(out, "\"%s\": %zu, ", ls_mem_kind_name((ls_mem_kind)k), x->plan.bytes[k]);
    ls_text_add(out, "\"total\": %zu}, \"comm\": {", x->plan.total);
    const char *comma = "";
    for (ls_coll c = 0; c < LS_COLLS; c++) {
        num calls = 0, bytes = 0;
        for (int k = 0; k < x->ngroups; k++) calls += x->group[k].dry[c].calls, bytes += x->group[k].dry[c].moved;
        if (!calls) continue;
        ls_text_add(out, "%s\"%s\": {\"calls\": %llu, \"bytes\": %llu, \"at_most\": %s}", comma, ls_coll_name(c), calls,
                    bytes, ls_explain_varies(&p->plan, c) ? "true" : "false");
        comma = ", ";
    }
    ls_text_add(out, "}}");
}

void ls_predicted_json(const ls_predicted *p, ls_text *out)
{
    const ls_predicted_time *t = &p->time;
    const struct { const char *key; double v; } time[] = { { "step_s", t->step }, { "compute_s", t->compute },
                                                           { "optimizer_s", t->optimizer }, { "data_s", t->data },
                                                           { "exposed_s", t->exposed }, { "bubble_s", t->bubble } };
    ls_text_add(out, "{\"world_size\": %d, \"pp\": %d, \"cores\": %g, \"shared_cores\": %s, \"links_from\": ", p->ranks,
                p->plan.plan.size[LS_AXIS_PP], p->cores, p->shared ? "true" : "false");
    ls_json_string(out, p->cost_from);
    ls_text_add(out, ",\n \"measured\": {\"steps\": %d, \"micro_batches\": %d, \"threads\": %d, ", p->measured.steps,
                p->measured.micro_batches, p->measured.threads);
    ls_json_field(out, "seconds", p->measured.seconds);
    ls_text_add(out, "},\n \"time\": {");
    for (size_t i = 0; i < sizeof time / sizeof *time; i++) {
        ls_text_add(out, "%s", i ? ", " : "");
        ls_json_field(out, time[i].key, time[i].v);
    }
    ls_text_add(out, "},\n \"ranks\": [");
    for (int r = 0; r < p->ranks; r++) json_rank(p, r, out);
    ls_text_add(out, "]}\n");
}
