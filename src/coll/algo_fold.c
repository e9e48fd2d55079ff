/* algo_fold.c -- one pass over memory that all ranks have mapped.
 *
 * Share r is read by rank r alone, in all ranks' buffers, so it may be
 * overwritten as soon as it is summed: rank r stores the sum into all of them.
 * Nothing is read twice and nothing is copied.
 *
 *   rounds        1, between two looks at a flag per peer
 *   bytes moved   (size-1)/size of the vector read from peers and as much
 *                 written to them, per rank
 *   order         ascending ranks
 *   good for      medium and large registered vectors inside a node
 *   source        direct reduction in shared address space, as in Sistare,
 *                 vandeVaart and Loh, SC 1999
 */
#include "coll/algos.h"

static ls_status emit(ls_sched *o, const ls_shape *s)
{
    ls_use_shares(o, s);
    o->one_sum = true;
    for (int seg = 0; s->size > 1 && seg < s->segments; seg++)
        LS_TRY(ls_sched_fold(o, seg % s->nlanes, ls_share(s, s->rank, seg)));
    return LS_OK;
}

const ls_algo ls_algo_fold = {
    .name = "fold",
    .colls = 1u << LS_ALL_REDUCE | 1u << LS_REDUCE_SCATTER,
    .source = "Sistare, vandeVaart and Loh 1999",
    .mapped = true,
    .emit = emit,
};
