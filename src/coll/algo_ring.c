/* algo_ring.c -- ring all_reduce, reduce_scatter and all_gather.
 *
 * Every rank talks to its two neighbours only. The vector is cut into `size`
 * shares; in each of size-1 rounds a rank passes one share to the right and
 * adds the one from the left, until share r is complete on rank r. The second
 * lap passes the finished shares round.
 *
 *   rounds        2 (size-1)
 *   bytes sent    2 (size-1)/size of the vector, per rank
 *   order         share r: rank r+1 first, then r+2, ..., rank r last
 *   good for      large vectors; latency grows with size
 *   source        Patarasuk and Yuan, J. Parallel Distrib. Comput. 69 (2009)
 */
#include "coll/algos.h"

static ls_status reduce_lap(ls_sched *o, const ls_shape *s, int seg, int lane)
{
    int right = (s->rank + 1) % s->size, left = (s->rank + s->size - 1) % s->size;
    for (int k = 1; k < s->size; k++) {
        LS_TRY(ls_sched_send(o, lane, right, ls_share(s, s->rank - k, seg)));
        LS_TRY(ls_sched_recv_reduce(o, lane, left, ls_share(s, s->rank - k - 1, seg)));
    }
    return LS_OK;
}

static ls_status gather_lap(ls_sched *o, const ls_shape *s, int seg, int lane)
{
    int right = (s->rank + 1) % s->size, left = (s->rank + s->size - 1) % s->size;
    for (int k = 0; k < s->size - 1; k++) {
        LS_TRY(ls_sched_send(o, lane, right, ls_share(s, s->rank - k, seg)));
        LS_TRY(ls_sched_recv(o, lane, left, ls_share(s, s->rank - k - 1, seg)));
    }
    return LS_OK;
}

static ls_status emit(ls_sched *o, const ls_shape *s)
{
    ls_use_shares(o, s);
    for (int seg = 0; seg < s->segments; seg++) {
        int lane = seg % s->nlanes;
        if (s->coll != LS_ALL_GATHER) LS_TRY(reduce_lap(o, s, seg, lane));
        if (s->coll != LS_REDUCE_SCATTER) LS_TRY(gather_lap(o, s, seg, lane));
    }
    return LS_OK;
}

const ls_algo ls_algo_ring = {
    .name = "ring",
    .colls = 1u << LS_ALL_REDUCE | 1u << LS_REDUCE_SCATTER | 1u << LS_ALL_GATHER,
    .source = "Patarasuk and Yuan 2009",
    .one_owner = true,
    .emit = emit,
};
