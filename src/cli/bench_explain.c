/* bench_explain.c -- lockstep bench --explain: how each size would be carried out, and why. */
#include <stdio.h>
#include <string.h>

#include "cli/bench.h"
#include "group/debug.h"
#include "lockstep/lockstep.h"

#define SHOWN 6 /* algorithms of a size */

static void title(const ls_bench_opts *o, const ls_group *g)
{
    const ls_debug_group d = ls_debug_look(g);
    const int size = ls_group_size(g);
    printf("# %s over %d rank%s on %d node%s, transport %s; costs from %s%s%s\n", ls_coll_name(o->coll), size,
           size == 1 ? "" : "s", d.nnodes, d.nnodes == 1 ? "" : "s", d.transport, d.cost_from,
           *d.asked ? "; asked for: " : "", d.asked);
    for (int h = 0; h < d.nnodes; h++) {
        int ranks = 0;
        for (int r = 0; r < size; r++) ranks += d.node[r] == h;
        printf("# node %d: %d rank%s on %d core%s%s\n", h, ranks, ranks == 1 ? "" : "s", d.cores[h],
               d.cores[h] == 1 ? "" : "s", ranks > d.cores[h] ? ", oversubscribed" : "");
    }
}

/* The best cut of each algorithm, fastest first. */
static void candidates(const ls_choice *p, int n)
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
    const ls_coll_args a = { .coll = o->coll, .dtype = (ls_dtype)d0, .op = (ls_redop)op0, .root = (int)o->root,
                             .count = nbytes / ls_dtype_size((ls_dtype)d0) };
    ls_choice choice[LS_MAX_CHOICES];
    const char *about;
    double ns;
    LS_TRY(ls_debug_explain(g, &a, &about, &ns, choice, &n));
    printf("%12zu  %s", nbytes, about);
    if (ns > 0.0) printf("; %.2f us by the costs", ns / 1e3);
    printf("%s\n", n > 0 ? "; by the costs:" : "");
    candidates(choice, n);
    return LS_OK;
}

ls_status ls_bench_explain(ls_world *w, const ls_bench_opts *o)
{
    ls_group *g = ls_world_group(w);
    ls_status st = LS_OK;
    if (ls_group_rank(g) == 0) title(o, g);
    for (size_t nbytes = o->min_bytes; ls_group_rank(g) == 0 && st == LS_OK && nbytes <= o->max_bytes;) {
        st = explain(g, o, o->coll == LS_BARRIER ? 0 : nbytes);
        size_t next = o->step_factor > 1 ? nbytes * (size_t)o->step_factor : nbytes + o->step_bytes;
        if (next <= nbytes || o->coll == LS_BARRIER) break;
        nbytes = next;
    }
    ls_status met = ls_barrier(g);
    return st < 0 ? st : met;
}
