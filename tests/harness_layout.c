/* harness_layout.c -- a layout against one rank: the runs. */
#include "harness_layout.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"
#include "train/trainer.h"

#define STEPS 4

typedef struct job {
    ls_train_config c;
    ls_opts *o;              /* owned: c's texts are in it */
    ls_layout_outcome *out;
    const int *node;
} job;

/* --- one rank -------------------------------------------------------------------------------------------- */

/* Of the global tensors, which every rank helps to put together; to NULL: for others. */
static ls_status copy_params(const ls_params *from, const ls_values *values, ls_params *to)
{
    for (int i = 0; i < ls_params_total(from); i++) {
        const ls_param *p = ls_params_at(from, i);
        int64_t dim[LS_MAX_DIMS];
        const float *whole;
        LS_TRY(values->whole(values->arg, p, &whole));
        if (!to) continue;
        ls_part_shape(&p->part, &p->t, dim);
        LS_TRY(ls_params_add(to, p->name, p->t.ndim, dim));
        to->item[i].f32 = p->f32;
        const size_t nbytes = ls_tensor_nbytes(&to->item[i].t);
        if (!(to->item[i].t.data = malloc(nbytes))) return ls_fail(LS_NO_MEMORY, "a copy of %s", p->name);
        memcpy(to->item[i].t.data, whole, nbytes);
    }
    return LS_OK;
}

/* All steps; of the last one what it counts, group by group. */
static ls_status take_steps(ls_trainer *t, int steps, ls_layout_rank *out)
{
    ls_group *group[LS_LAYOUT_GROUPS];
    ls_comm_stats before[LS_LAYOUT_GROUPS] = { { 0 } }, now;
    ls_step_stats s = { 0 };
    const int n = ls_comm_groups(&t->par, group);
    for (int i = 0; i < steps; i++) {
        for (int k = 0; k < n; k++) ls_group_stats_read(group[k], &before[k]);
        LS_TRY(ls_train_step(t, &s));
        out->loss[i] = s.loss;
        out->norm[i] = s.grad_norm;
    }
    for (int k = 0; k < n; k++) {
        ls_group_stats_read(group[k], &now);
        ls_comm_stats_since(&before[k], &now);
        for (ls_coll c = 0; c < LS_COLLS; c++) {
            out->group[k].real[c].ops = now.of[c].ops;
            out->group[k].real[c].moved = now.of[c].bytes;
        }
    }
    out->ops = s.comm.ops;
    out->moved = s.comm.bytes;
    return LS_OK;
}

static ls_status train(ls_trainer *t, ls_layout_outcome *all, ls_layout_rank *out)
{
    ls_eval e;
    LS_TRY(take_steps(t, all->steps, out));
    LS_TRY(ls_train_evaluate(t, &e));
    const ls_values values = ls_parallel_values(&t->par);
    LS_TRY(ls_params_digest_of(&t->par.model->params, &values, out->digest));
    LS_TRY(ls_barrier(ls_world_group(t->w)));
    memcpy(out->peak, ls_world_ledger(t->w)->peak, sizeof out->peak);
    memcpy(out->planned, t->plan.bytes, sizeof out->planned); /* for this rank and its number of threads */
    return copy_params(&t->par.model->params, &values, t->par.mesh.speaks ? &all->params : NULL);
}

static ls_status one_rank(ls_world *w, void *arg)
{
    job *j = arg;
    ls_trainer *t;
    LS_TRY(ls_trainer_create_in(&j->c, w, NULL, &t));
    const ls_status st = train(t, j->out, &j->out->rank[ls_world_rank(w)]);
    if (st < 0) (void)ls_world_abort(w, st);
    ls_trainer_destroy(t);
    return st;
}

/* --- all of them ------------------------------------------------------------------------------------------- */

static ls_status set_all(ls_opts *o, const char *const *flags)
{
    for (; flags && *flags; flags += 2) LS_TRY(ls_opts_set(o, flags[0], flags[1], "flag"));
    return LS_OK;
}

static ls_status configure(const ls_layout *l, bool alone, job *j)
{
    const int ranks = j->out->ranks;
    LS_TRY(ls_opts_create(ls_train_opts, ls_train_nopts, &j->c, &j->o));
    LS_TRY(ls_opts_set(j->o, "comm.timeout", "20", "default"));
    LS_TRY(set_all(j->o, l->run));
    if (!alone) LS_TRY(set_all(j->o, l->layout));
    LS_TRY(ls_train_config_resolve(j->o, &j->c));
    LS_TRY(ls_train_config_check(&j->c, ranks));
    return ls_trainer_check(&j->c, ranks);
}

/* The ranks, and then each of them in a dry world. */
static ls_status run(job *j, const ls_model_config *mc)
{
    ls_layout_outcome *out = j->out;
    ls_memory_plan p;
    LS_TRY(ls_memory_plan_on(&j->c, mc, 0, out->ranks, j->node, &p));
    ls_world_opts wo = ls_train_world_opts(&j->c, &p);
    wo.node = j->node;
    LS_TRY(ls_world_threads(out->ranks, &wo, one_rank, j));
    for (int r = 0; r < out->ranks; r++) LS_TRY(ls_layout_dry(&j->c, mc, r, out->ranks, j->node, &wo, &out->rank[r]));
    return LS_OK;
}

ls_status ls_layout_train(const ls_layout *l, bool alone, ls_layout_outcome *out)
{
    job j = { .out = out, .node = alone ? NULL : l->node };
    ls_source source = { 0 };
    ls_model_config mc;
    memset(out, 0, sizeof *out);
    out->ranks = alone ? 1 : l->ranks;
    out->steps = l->steps ? l->steps : STEPS;
    if (out->ranks < 1 || out->ranks > LS_LAYOUT_RANKS || out->steps < 1 || out->steps > LS_LAYOUT_STEPS)
        return ls_fail(LS_INVALID, "a layout of %d ranks and %d steps: expected 1 to %d and 1 to %d", out->ranks,
                       out->steps, LS_LAYOUT_RANKS, LS_LAYOUT_STEPS);
    ls_status st = configure(l, alone, &j);
    if (st == LS_OK) st = ls_train_model(&j.c, &source, &mc);
    if (st == LS_OK) st = run(&j, &mc);
    ls_source_free(&source);
    ls_opts_destroy(j.o);
    return st;
}

void ls_layout_outcome_free(ls_layout_outcome *o)
{
    for (int i = 0; i < o->params.n; i++) free(o->params.item[i].t.data);
    ls_params_free(&o->params);
}

/* --- what tests call ------------------------------------------------------------------------------------------ */

size_t ls_layout_name(const ls_layout *l, char *buf, size_t n)
{
    size_t at = (size_t)snprintf(buf, n, "%d rank%s", l->ranks, l->ranks == 1 ? "" : "s");
    for (const char *const *f = l->layout; f && *f && at < n; f += 2)
        at += (size_t)snprintf(buf + at, n - at, ", %s %s", f[0], f[1]);
    return at < n ? at : n - 1;
}

bool ls_layout_holds(const ls_layout *l, double tolerance, char *why, size_t n)
{
    ls_layout_outcome *o = calloc(2, sizeof *o); /* alone, and in the layout */
    bool ok = o && ls_layout_train(l, true, &o[0]) == LS_OK;
    const bool alone = ok;
    ok = ok && ls_layout_train(l, false, &o[1]) == LS_OK;
    if (ok) {
        ok = ls_layout_verdict(l, tolerance, &o[1], &o[0], why, n);
    } else {
        const size_t at = ls_layout_name(l, why, n);
        const char *cause = o ? ls_last_error() : "no memory for what is found";
        snprintf(why + at, n - at, ": %s%s", alone ? "" : "one rank alone: ", cause);
    }
    for (int i = 0; o && i < 2; i++) ls_layout_outcome_free(&o[i]);
    free(o);
    return ok;
}

void assert_layout(const ls_layout *l, double tolerance)
{
    char why[1024];
    if (!ls_layout_holds(l, tolerance, why, sizeof why)) fail_msg("%s", why);
}
