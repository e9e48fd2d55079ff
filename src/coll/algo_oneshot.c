/* algo_oneshot.c -- one round: everyone sends everything, everyone sums.
 *
 * All ranks add the same vectors in the same (rank) order, so they end with
 * the same bits without a second phase. What is on offer is a copy in TMP:
 * the sum goes to OUT while slow peers may still read.
 *
 *   rounds        1
 *   bytes sent    size-1 vectors, per rank
 *   order         ascending ranks
 *   good for      short vectors, where latency is all; up to a few KiB
 *   source        the "all-to-all" algorithm for short vectors: Thakur,
 *                 Rabenseifner and Gropp 2005
 */
#include "coll/algos.h"

static ls_status emit(ls_sched *o, const ls_shape *s)
{
    if (s->coll != LS_ALL_REDUCE) return ls_algo_direct.emit(o, s); /* these are one round there already */

    ls_use_shares(o, s);
    o->nchunks[LS_BUF_TMP] = o->nchunks[LS_BUF_OUT];
    o->one_sum = true;
    for (int g = 0; s->size > 1 && g < s->segments; g++) {
        int lane = g % s->nlanes;
        LS_TRY(ls_sched_copy(o, lane, ls_run_of(s, LS_BUF_OUT, g), ls_run_of(s, LS_BUF_TMP, g)));
        for (int k = 1; k < s->size; k++)
            LS_TRY(ls_sched_send(o, lane, (s->rank + k) % s->size, ls_run_of(s, LS_BUF_TMP, g)));
        LS_TRY(ls_sched_sum(o, lane, ls_run_of(s, LS_BUF_OUT, g)));
    }
    return LS_OK;
}

const ls_algo ls_algo_oneshot = {
    .name = "oneshot",
    .colls = 1u << LS_ALL_REDUCE | 1u << LS_REDUCE_SCATTER | 1u << LS_ALL_GATHER,
    .source = "Thakur, Rabenseifner and Gropp 2005",
    .mapped = true,
    .emit = emit,
};
