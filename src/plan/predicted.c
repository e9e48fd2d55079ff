/* predicted.c -- a run's step on this machine: plan, simulation, and both in words. */
#include "plan/predicted.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/team.h"
#include "base/wait.h"
#include "coll/cost.h"
#include "group/local_ranks.h"
#include "net/world.h"
#include "train/explain_run.h"
#include "train/memory_stages.h"

typedef unsigned long long num; /* for printf */

#define COLLS_LONG_S 3 /* for timing collectives */

/* --- this machine ---------------------------------------------------------------------------------------- */

static ls_topo_level level_of(const char *name, int count, const ls_link_cost *link, double to_a_core)
{
    ls_topo_level v = { .count = count, .bytes_per_s = 1e9 / (link->beta_ns > 0 ? link->beta_ns : 1) / to_a_core,
                        .latency_s = 1e-9 * link->alpha_ns, .ports = 1,
                        .oversubscription = 1 };
    snprintf(v.name, sizeof v.name, "%s", name);
    snprintf(v.link, sizeof v.link, "%s", name);
    return v;
}

/* A device per rank. Ranks that share cores copy and add one after another: links are as much slower. */
static ls_status join(const ls_train_config *c, const ls_cost *cost, ls_here *h)
{
    const ls_level within = ls_level_within(c->comm.transport);
    const double to_a_core = fmax(1, h->local / h->cores);
    h->topo = (ls_topo){ .name = "this machine", .nlevels = h->ranks > h->local ? 2 : 1 };
    snprintf(h->topo.source, sizeof h->topo.source, "%s", h->cost_from);
    snprintf(h->topo.device.name, sizeof h->topo.device.name, "rank");
    h->topo.level[0] = level_of("node", h->local, &cost->link[within], to_a_core);
    if (h->topo.nlevels > 1)
        h->topo.level[1] = level_of("cluster", h->ranks / h->local, &cost->link[LS_LEVEL_NETWORK], to_a_core);
    return ls_topo_check(&h->topo);
}

static ls_status make_room(ls_here *h, int n)
{
    for (int i = 0; i < h->nmeasured; i++) ls_measured_free(&h->measured[i]);
    free(h->measured);
    h->measured = calloc((size_t)n, sizeof *h->measured);
    h->nmeasured = h->measured ? n : 0;
    return h->measured ? LS_OK : ls_fail(LS_NO_MEMORY, "the times of %d stages", n);
}

/* Mirrors take the memory of all ranks of this machine; one rank alone takes that of the whole model. */
static ls_status time_ranks(const ls_train_config *c, ls_here *h)
{
    LS_TRY(make_room(h, c->parallel.pp > 1 ? (int)c->parallel.pp : 1));
    ls_status st = ls_measure_stages(c, h->ranks, h->local, h->cores, LS_MEASURE_LONG_S, h->measured);
    h->mirrored = st == LS_OK;
    if (st == LS_OK) return LS_OK;
    ls_log(LS_LOG_INFO, "operations are timed on one rank that has the whole model: %s", ls_last_error());
    LS_TRY(make_room(h, 1));
    return ls_measure(c, h->ranks, h->local, LS_MEASURE_LONG_S, h->measured);
}

ls_status ls_here_make(const ls_train_config *c, int ranks, int local, ls_here *out)
{
    ls_cost cost;
    *out = (ls_here){ .ranks = ranks, .local = local, .cores = ls_world_cpus_here() };
    if (local < 1 || ranks % local != 0)
        return ls_fail(LS_UNSUPPORTED, "%d ranks with %d on this node: expected equally many on each node", ranks, local);
    LS_TRY(ls_cost_load(&cost, out->cost_from, sizeof out->cost_from));
    LS_TRY(join(c, &cost, out));
    LS_TRY(time_ranks(c, out));
    const double at_once = out->cores / out->measured->threads;
    out->shared = local > at_once;
    ls_wait_ranks waits = { .ranks = local, .cores = out->cores, .threads = ls_train_as_threads(c),
                            .together = out->mirrored && out->measured->threads == 1 };
    if (out->shared && ls_wait_cost_measure(&waits, &out->waits) < 0) { /* processes may be refused, and threads not */
        ls_log(LS_LOG_INFO, "waits are those of threads: %s", ls_last_error());
        waits.threads = true;
        LS_TRY(ls_wait_cost_measure(&waits, &out->waits));
    }
    out->for_ranks = out->shared ? at_once * ranks / local : 0;
    const bool mapped = ls_level_within(c->comm.transport) == LS_LEVEL_MEMORY;
    out->idle_s = 1e-9 * (mapped ? LS_WAIT_YIELD_NS : LS_WAIT_WIRE_YIELD_NS); /* then ranks that wait sleep */
    if (local > 1 && ls_wait_wake_measure(&waits, &out->wake_s) < 0) /* processes may be refused */
        ls_log(LS_LOG_INFO, "the time to wake from a long wait was not measured, and is taken as 0: %s", ls_last_error());
    return LS_OK;
}

void ls_here_free(ls_here *h)
{
    for (int i = 0; i < h->nmeasured; i++) ls_measured_free(&h->measured[i]);
    free(h->measured);
    free(h->core);
    h->measured = NULL;
    h->core = NULL;
    h->nmeasured = 0;
    ls_colls_free(&h->colls);
}

void ls_here_time_colls(ls_here *h, const ls_train_config *c, const ls_step_lists *l)
{
    if (h->local < h->ranks || ls_colls_measure(c, l, h->cores, COLLS_LONG_S, &h->colls) == LS_OK) return;
    ls_log(LS_LOG_INFO, "collectives take what links take: %s", ls_last_error());
    ls_colls_free(&h->colls);
}

ls_status ls_here_place(ls_here *h, ls_step_sim_opts *o)
{
    o->core = NULL;
    if (!h->shared || h->local < h->ranks || h->for_ranks < h->cores) return LS_OK;
    if (!ls_local_is_bound(h->ranks, h->cores)) return LS_OK;
    free(h->core);
    h->core = malloc((size_t)h->ranks * sizeof *h->core);
    if (!h->core) return ls_fail(LS_NO_MEMORY, "the cores of %d ranks", h->ranks);
    for (int r = 0; r < h->ranks; r++) h->core[r] = (uint32_t)ls_local_core(r, h->ranks, h->cores);
    o->core = h->core;
    return LS_OK;
}

void ls_here_rates(const ls_here *h, ls_step_rates *out)
{
    *out = (ls_step_rates){ .flops_per_s = 1, .measured = h->measured, .by_stage = h->mirrored };
}

ls_status ls_here_lists(const ls_here *h, const ls_train_config *c, const ls_step_rates *rates, ls_step_lists *out)
{
    const ls_status st = ls_step_lists_create(c, h->ranks, h->local, rates, out);
    if (st != LS_UNSUPPORTED || h->local == h->ranks) return st;
    ls_log(LS_LOG_INFO, "each rank is taken to be on a node of its own: %s", ls_last_error());
    return ls_step_lists_create(c, h->ranks, 1, rates, out);
}

void ls_here_options(const ls_here *h, ls_step_sim_opts *o)
{
    o->t = &h->topo;
    o->cores = h->for_ranks;
    o->waits = h->shared ? &h->waits : NULL;
    o->colls = &h->colls;
    o->idle_s = h->idle_s;
    o->wake_s = h->wake_s;
}

void ls_here_text(const ls_here *h, ls_text *out)
{
    const ls_measured *m = h->measured;
    ls_text_add(out, "operations timed %sin %d steps of %d micro-batch%s in %.2f s on %d thread%s; links: %s",
                h->mirrored ? "" : "on one rank with the whole model, ", m->steps, m->micro_batches, m->micro_batches == 1 ? "" : "es", m->seconds, m->threads,
                m->threads == 1 ? "" : "s", h->cost_from);
    if (m->routed_after > 0)
        ls_text_add(out, "; routers send tokens to experts as after %d step%s of one rank, up to %.0f %% of them to one",
                    m->routed_after, m->routed_after == 1 ? "" : "s", 100 * m->busiest);
    if (h->colls.n > 0)
        ls_text_add(out, "; %d kind%s of collectives and messages timed with all ranks in %.2f s", h->colls.n,
                    h->colls.n == 1 ? "" : "s", h->colls.seconds);
    if (h->shared)
        ls_text_add(out, "; %d ranks share %g core%s: each wait that was not timed takes %.1f us of a core, each such "
                         "message %.1f us",
                    h->local, h->cores, h->cores == 1 ? "" : "s", 1e6 * h->waits.coll_s, 1e6 * h->waits.message_s);
    if (h->colls.poll > 0)
        ls_text_add(out, "; a rank that waits for another stage takes %.0f %% of what a rank that computes gets of its core",
                    100 * h->colls.poll);
    if (h->wake_s > 0 && (h->core || !h->shared)) /* who is on which core is known (des_cores.h) */
        ls_text_add(out, "; a rank that sleeps in a long wait goes on %.0f us later", 1e6 * h->wake_s);
}

/* --- the prediction -------------------------------------------------------------------------------------- */

/* Stages have equally many ranks. A rank that is ready and has no core, since others have them, is counted as waiting
 * for the others. In a run it is, too: it most often loses its core while it waits. */
static void sum_up(const ls_step_result *r, int stages, bool shared, ls_predicted_time *out)
{
    const double tail = ls_step_tail_s(r->stage, stages);
    *out = (ls_predicted_time){ .step = r->step_s };
    for (int k = 0; k < stages; k++) {
        const ls_step_parts *s = &r->stage[k];
        const double on = shared && s->compute > 0 ? s->core_s / s->compute : 1;
        out->compute += on * (s->compute - s->optimizer - s->data) / stages;
        out->optimizer += on * s->optimizer / stages;
        out->data += on * s->data / stages;
        out->exposed += ((1 - on) * s->compute + s->collectives + s->others + s->beside + tail) / stages;
        out->bubble += (s->stages + s->idle - tail) / stages;
    }
}

static ls_status simulate(const ls_train_config *c, ls_predicted *p)
{
    const ls_algo *algo[LS_COLLS];
    ls_step_rates rates;
    ls_step_sim_opts s = { .algo = algo };
    ls_here_options(&p->here, &s);
    ls_here_rates(&p->here, &rates);
    ls_step_lists l = { 0 };
    LS_TRY(ls_algo_parse(c->comm.algo ? c->comm.algo : "", algo));
    ls_step_result *r = calloc(1, sizeof *r);
    ls_status st = r ? ls_here_lists(&p->here, c, &rates, &l) : ls_fail(LS_NO_MEMORY, "a simulation");
    if (st == LS_OK) ls_here_time_colls(&p->here, c, &l);
    if (st == LS_OK) st = ls_here_place(&p->here, &s);
    if (st == LS_OK) st = ls_step_simulate(&l, &s, r);
    if (st == LS_OK) sum_up(r, l.stages, p->here.shared, &p->time);
    ls_step_lists_free(&l);
    free(r);
    return st;
}

/* `fitted`: c with the pipeline's stages of the run. */
static ls_status plan(const ls_train_config *c, int ranks, int local, ls_memory_stages *fitted, ls_explain_layout *out)
{
    ls_source source = { 0 };
    ls_model_config mc;
    ls_status st = ls_train_model(c, &source, &mc);
    fitted->c = *c;
    if (st == LS_OK && ranks == local) st = ls_memory_stages_fit(c, &mc, ranks, fitted);
    if (st == LS_OK) st = ls_explain_layout_make(&fitted->c, &mc, ranks, ranks / local, NULL, out);
    ls_source_free(&source);
    return st;
}

ls_status ls_predict(const ls_train_config *c, int ranks, int local, ls_predicted *out)
{
    *out = (ls_predicted){ 0 };
    LS_TRY(ls_here_make(c, ranks, local, &out->here));
    ls_memory_stages fitted;
    LS_TRY(plan(c, ranks, local, &fitted, &out->plan));
    return simulate(&fitted.c, out);
}

void ls_predict_beside(const ls_train_config *c, int ranks, int local)
{
    ls_here h = { .ranks = ranks, .local = local, .cores = ls_world_cpus_here() };
    if (local < 2 || local * ls_team_planned(local) > h.cores) return;
    if (make_room(&h, c->parallel.pp > 1 ? (int)c->parallel.pp : 1) == LS_OK)
        (void)ls_measure_stages(c, ranks, local, h.cores, LS_MEASURE_LONG_S, h.measured);
    ls_here_free(&h);
}

void ls_predicted_free(ls_predicted *p)
{
    ls_here_free(&p->here);
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
    for (int r = 1; r < p->here.ranks; r++)
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
    ls_text_add(out, "prediction: ");
    ls_here_text(&p->here, out);
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
    ls_text_add(out, "{\"world_size\": %d, \"pp\": %d, \"cores\": %g, \"shared_cores\": %s, \"links_from\": ", p->here.ranks,
                p->plan.plan.size[LS_AXIS_PP], p->here.cores, p->here.shared ? "true" : "false");
    ls_json_string(out, p->here.cost_from);
    ls_text_add(out, ",\n \"measured\": {\"steps\": %d, \"micro_batches\": %d, \"threads\": %d, ", p->here.measured->steps,
                p->here.measured->micro_batches, p->here.measured->threads);
    ls_text_add(out, "\"routed_after\": %d, ", p->here.measured->routed_after);
    ls_json_field(out, "busiest", p->here.measured->busiest);
    ls_text_add(out, ", ");
    ls_json_field(out, "seconds", p->here.measured->seconds);
    ls_text_add(out, "},\n \"time\": {");
    for (size_t i = 0; i < sizeof time / sizeof *time; i++) {
        ls_text_add(out, "%s", i ? ", " : "");
        ls_json_field(out, time[i].key, time[i].v);
    }
    ls_text_add(out, "},\n \"ranks\": [");
    for (int r = 0; r < p->here.ranks; r++) json_rank(p, r, out);
    ls_text_add(out, "]}\n");
}
