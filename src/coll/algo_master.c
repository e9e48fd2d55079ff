/* algo_master.c -- everything through one rank: how not to do it.
 *
 * All ranks send their vectors to the root, which adds them and sends the result
 * to each. It is here to be measured: the root moves size-1 times what the others
 * do, so time grows with size, where a ring's does not.
 *
 *   rounds        2 (reduce, broadcast: 1)
 *   bytes sent    all_reduce: size-1 vectors by the root, which receives as many;
 *                 one by every other rank
 *   order         ascending ranks
 *   good for      a lesson; very short vectors over few ranks
 *   source        the parameter server: Li et al., OSDI 2014; the first all_reduce
 *                 of everyone who writes one
 */
#include "coll/algos.h"

static ls_status to_all(ls_sched *o, const ls_shape *s, ls_slice a, int lane)
{
    for (int k = 1; k < s->size; k++) LS_TRY(ls_sched_send(o, lane, (s->root + k) % s->size, a));
    return LS_OK;
}

static ls_status piece(ls_sched *o, const ls_shape *s, ls_slice a, int lane)
{
    bool root = s->rank == s->root;
    if (s->coll != LS_BROADCAST) LS_TRY(root ? ls_sched_sum(o, lane, a) : ls_sched_send(o, lane, s->root, a));
    if (s->coll == LS_REDUCE) return LS_OK;
    return root ? to_all(o, s, a, lane) : ls_sched_recv(o, lane, s->root, a);
}

/* Every share to the root, the whole vector to everyone. */
static ls_status gather(ls_sched *o, const ls_shape *s)
{
    ls_slice all = ls_shares(s, 0, s->size);
    if (s->rank != s->root) {
        LS_TRY(ls_sched_send(o, 0, s->root, ls_shares(s, s->rank, 1)));
        return ls_sched_recv(o, 0, s->root, all);
    }
    for (int k = 1; k < s->size; k++) {
        int from = (s->root + k) % s->size;
        LS_TRY(ls_sched_recv(o, 0, from, ls_shares(s, from, 1)));
    }
    return to_all(o, s, all, 0);
}

static ls_status emit(ls_sched *o, const ls_shape *s)
{
    bool shares = s->coll == LS_ALL_REDUCE || s->coll == LS_ALL_GATHER;
    o->nchunks[LS_BUF_OUT] = (uint32_t)(shares ? s->size * s->segments : s->segments);
    if (s->size == 1) return LS_OK;
    if (s->coll == LS_ALL_GATHER) return gather(o, s);
    o->one_sum = s->coll != LS_BROADCAST;
    for (int seg = 0; seg < s->segments; seg++) {
        ls_slice a = { LS_BUF_OUT, (uint32_t)seg, 1 };
        LS_TRY(piece(o, s, shares ? ls_run_of(s, LS_BUF_OUT, seg) : a, seg % s->nlanes));
    }
    return LS_OK;
}

const ls_algo ls_algo_master = {
    .name = "master",
    .colls = 1u << LS_ALL_REDUCE | 1u << LS_ALL_GATHER | 1u << LS_BROADCAST | 1u << LS_REDUCE,
    .source = "Li et al. 2014",
    .by_name = true,
    .emit = emit,
};
