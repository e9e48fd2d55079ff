/* algo_direct.c -- everyone reads everyone: two phases however many ranks.
 *
 * Share r is summed by rank r straight from its peers' memory; then each rank
 * reads the finished shares. The sum starts at rank 0 whoever computes it, so
 * the bits are those of oneshot and fold. reduce_scatter and all_gather are one
 * phase each; an all_to_all is one in which every peer gets another block.
 *
 *   rounds        2 (all_reduce), else 1
 *   bytes sent    2 (size-1)/size of the vector (all_reduce), else half of it, per
 *                 rank, to size-1 peers
 *   order         ascending ranks
 *   good for      medium and large vectors inside a node, where any rank can
 *                 read any other at once; a rank that is late for its own
 *                 share delays all
 *   source        two-phase exchange: van de Geijn 1991, Rabenseifner 2004
 */
#include "coll/algos.h"

static ls_status scatter_phase(ls_sched *o, const ls_shape *s, int seg, int lane)
{
    for (int k = 1; k < s->size; k++)
        LS_TRY(ls_sched_send(o, lane, (s->rank + k) % s->size, ls_share(s, s->rank + k, seg)));
    return ls_sched_sum(o, lane, ls_share(s, s->rank, seg));
}

/* Starting with the next rank, so that not everybody reads rank 0 first. */
static ls_status gather_phase(ls_sched *o, const ls_shape *s, int seg, int lane)
{
    for (int k = 1; k < s->size; k++)
        LS_TRY(ls_sched_send(o, lane, (s->rank + k) % s->size, ls_share(s, s->rank, seg)));
    for (int k = 1; k < s->size; k++)
        LS_TRY(ls_sched_recv(o, lane, (s->rank + s->size - k) % s->size, ls_share(s, s->rank - k, seg)));
    return LS_OK;
}

static ls_status all_to_all(ls_sched *o, const ls_shape *s, int seg, int lane)
{
    for (int k = 1; k < s->size; k++)
        LS_TRY(ls_sched_send(o, lane, (s->rank + k) % s->size, ls_block(s, s->rank + k, seg)));
    LS_TRY(ls_sched_copy(o, lane, ls_block(s, s->rank, seg), ls_share(s, s->rank, seg)));
    for (int k = 1; k < s->size; k++)
        LS_TRY(ls_sched_recv(o, lane, (s->rank + s->size - k) % s->size, ls_share(s, s->rank - k, seg)));
    return LS_OK;
}

static ls_status emit(ls_sched *o, const ls_shape *s)
{
    ls_use_shares(o, s);
    if (s->coll == LS_ALL_TO_ALL) {
        o->nchunks[LS_BUF_IN] = o->nchunks[LS_BUF_OUT];
        for (int seg = 0; seg < s->segments; seg++) LS_TRY(all_to_all(o, s, seg, seg % s->nlanes));
        return LS_OK;
    }
    o->one_sum = s->coll != LS_ALL_GATHER;
    for (int seg = 0; s->size > 1 && seg < s->segments; seg++) {
        int lane = seg % s->nlanes;
        if (s->coll != LS_ALL_GATHER) LS_TRY(scatter_phase(o, s, seg, lane));
        if (s->coll != LS_REDUCE_SCATTER) LS_TRY(gather_phase(o, s, seg, lane));
    }
    return LS_OK;
}

const ls_algo ls_algo_direct = {
    .name = "direct",
    .colls = 1u << LS_ALL_REDUCE | 1u << LS_REDUCE_SCATTER | 1u << LS_ALL_GATHER | 1u << LS_ALL_TO_ALL,
    .source = "van de Geijn 1991; Rabenseifner 2004",
    .one_owner = true,
    .emit = emit,
};
