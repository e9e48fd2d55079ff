/* algo_linear.c -- the root talks to every other rank itself.
 *
 * One round, however many ranks: the root sends (broadcast, scatter) or
 * receives (gather, reduce) one message for each of the others. A reduce adds
 * all vectors in one pass in rank order, so its bits are those of direct and
 * fold. Off the root nothing but the own vector or share is touched.
 *
 *   rounds        1
 *   bytes sent    root: size-1 vectors (broadcast), (size-1)/size of the vector
 *                 (scatter); others: their vector (reduce) or share (gather)
 *   order         (reduce) ascending ranks
 *   good for      gather and scatter of anything but very short shares on very
 *                 many ranks; broadcast and reduce where the root's memory or
 *                 wire is not the limit
 *   source        the "basic linear" forms of MPI libraries: Thakur, Rabenseifner
 *                 and Gropp 2005
 */
#include "coll/algos.h"

/* The other ranks, starting after the root. */
static int other(const ls_shape *s, int k) { return (s->root + k) % s->size; }

static ls_status whole_vectors(ls_sched *o, const ls_shape *s, int seg, int lane)
{
    const ls_slice a = { LS_BUF_OUT, (uint32_t)seg, 1 };
    const bool root = s->rank == s->root;
    if (s->coll == LS_BROADCAST) {
        if (!root) return ls_sched_recv(o, lane, s->root, a);
        for (int k = 1; k < s->size; k++) LS_TRY(ls_sched_send(o, lane, other(s, k), a));
        return LS_OK;
    }
    return root ? ls_sched_sum(o, lane, a) : ls_sched_send(o, lane, s->root, a);
}

static ls_status shares(ls_sched *o, const ls_shape *s, int seg, int lane)
{
    const ls_slice own = ls_share(s, s->rank, seg);
    if (s->rank != s->root)
        return s->coll == LS_GATHER ? ls_sched_send(o, lane, s->root, own) : ls_sched_recv(o, lane, s->root, own);
    for (int k = 1; k < s->size; k++) {
        int r = other(s, k);
        if (s->coll == LS_GATHER) LS_TRY(ls_sched_recv(o, lane, r, ls_share(s, r, seg)));
        else LS_TRY(ls_sched_send(o, lane, r, ls_share(s, r, seg)));
    }
    return LS_OK;
}

static ls_status emit(ls_sched *o, const ls_shape *s)
{
    const bool whole = s->coll == LS_BROADCAST || s->coll == LS_REDUCE;
    if (whole) o->nchunks[LS_BUF_OUT] = (uint32_t)s->segments;
    else ls_use_shares(o, s);
    o->one_sum = s->coll == LS_REDUCE;
    for (int seg = 0; s->size > 1 && seg < s->segments; seg++)
        LS_TRY((whole ? whole_vectors : shares)(o, s, seg, seg % s->nlanes));
    return LS_OK;
}

const ls_algo ls_algo_linear = {
    .name = "linear",
    .colls = 1u << LS_BROADCAST | 1u << LS_REDUCE | 1u << LS_GATHER | 1u << LS_SCATTER,
    .source = "Thakur, Rabenseifner and Gropp 2005",
    .emit = emit,
};
