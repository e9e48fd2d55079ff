/* bench_explain.c -- lockstep bench --explain: how each size would be carried out, and why. */
#include <stdio.h>
#include <string.h>

#include "cli/bench.h"
#include "group/impl.h"
#include "lockstep/lockstep.h"

#define SHOWN 6 /* algorithms of a size */

static const char *form(ls_work_kind kind)
{
    switch (kind) {
    case LS_WORK_LOCAL: return "nothing to do for one rank";
    case LS_WORK_ONESHOT: return "in memory: every rank writes into its slot and reads all slots (short enough for them)";
    case LS_WORK_MAPPED: return "in memory: each rank works on its part of all vectors in place";
    case LS_WORK_ATTACHED: return "in memory: read where private vectors lie";
    case LS_WORK_STAGED: return "in memory: in pieces, through slots";
    case LS_WORK_MAIL: return "in memory: the root's mailboxes (short enough for them)";
    case LS_WORK_ROOTED: return "in memory: straight between the root's vector and the others'";
    case LS_WORK_BACKEND: return "whole, by the library that --backend names";
    case LS_WORK_P2P: return "a message";
    case LS_WORK_EXEC: break;
    }
    return "a schedule";
}

static void title(const ls_bench_opts *o, const ls_group *g)
{
    const ls_terms *t = &g->e->terms;
    printf("# %s over %d rank%s on %d node%s, transport %s; costs from %s%s%s\n", ls_coll_name(o->coll), g->size,
           g->size == 1 ? "" : "s", g->nnodes, g->nnodes == 1 ? "" : "s", g->w->tops->name, t->cost_from,
           *t->algo ? "; asked for: " : "", t->algo);
    for (int h = 0; h < g->nnodes; h++) {
        int ranks = 0;
        for (int r = 0; r < g->size; r++) ranks += g->node[r] == h;
        printf("# node %d: %d rank%s on %d core%s%s\n", h, ranks, ranks == 1 ? "" : "s", g->cores[h],
               g->cores[h] == 1 ? "" : "s", ranks > g->cores[h] ? ", oversubscribed" : "");
    }
}

/* The best cut of each algorithm, fastest first. */
static void candidates(const ls_plan *p, int n)
{
    int shown = 0, left = 0;
    for (int i = 0; i < n; i++) {
        bool better = false;
        for (int j = 0; j < i; j++) better = better || p[j].algo == p[i].algo;
        if (better) continue;
        if (shown == SHOWN) {
            left++;
            continue;
        }
        printf("%12s  %-20s %4d segment%s %12.2f us%s\n", "", p[i].algo->name, p[i].segments,
               p[i].segments == 1 ? " " : "s", p[i].ns / 1e3, shown == 0 ? "  <- chosen" : "");
        shown++;
    }
    if (left) printf("%12s  and %d slower one%s\n", "", left, left == 1 ? "" : "s");
}

static ls_status explain(ls_group *g, const ls_bench_opts *o, size_t nbytes)
{
    int d0, d1, op0, op1, n;
    (void)ls_bench_dtypes(o->dtype, &d0, &d1); /* choices: one of them; of "all" the first */
    (void)ls_bench_ops(o->op, &op0, &op1);
    ls_work k = { .g = g, .nbytes = nbytes, .a = { .coll = o->coll, .dtype = (ls_dtype)d0, .op = (ls_redop)op0,
                  .root = (int)o->root, .count = nbytes / ls_dtype_size((ls_dtype)d0) } };
    ls_plan plan[LS_MAX_PLANS];
    ls_work_kind kind = o->coll == LS_SENDRECV ? LS_WORK_P2P : ls_select(&k);
    if (kind != LS_WORK_EXEC) {
        printf("%12zu  %s\n", nbytes, form(kind));
        return LS_OK;
    }
    printf("%12zu  a schedule; by the costs:\n", nbytes);
    LS_TRY(ls_select_plans(&k, plan, &n));
    candidates(plan, n);
    return LS_OK;
}

ls_status ls_bench_explain(ls_world *w, const ls_bench_opts *o)
{
    ls_group *g = ls_world_group(w);
    ls_status st = LS_OK;
    if (g->rank == 0) title(o, g);
    for (size_t nbytes = o->min_bytes; g->rank == 0 && st == LS_OK && nbytes <= o->max_bytes;) {
        st = explain(g, o, o->coll == LS_BARRIER ? 0 : nbytes);
        size_t next = o->step_factor > 1 ? nbytes * (size_t)o->step_factor : nbytes + o->step_bytes;
        if (next <= nbytes || o->coll == LS_BARRIER) break;
        nbytes = next;
    }
    ls_status met = ls_barrier(g);
    return st < 0 ? st : met;
}
