/* algo_pairwise.c -- in every round each rank sends to one rank and receives from one.
 *
 * In round k a rank exchanges with rank ^ k when the size is a power of two,
 * so that pairs talk to each other only; otherwise it sends to rank + k and
 * receives from rank - k. Nothing is forwarded: every byte travels once. A sendrecv
 * is one such round: everyone to the next rank.
 *
 *   rounds        size-1; sendrecv one
 *   bytes sent    (size-1)/size of the vector, per rank
 *   order         (reduce_scatter) own, then the others by round
 *   good for      all_to_all of medium and large blocks; reduce_scatter where
 *                 one wire a rank is the limit
 *   source        Thakur, Rabenseifner and Gropp 2005
 */
#include "coll/algos.h"

static bool power_of_two(int n) { return (n & (n - 1)) == 0; }

static ls_status exchange(ls_sched *o, const ls_shape *s, int k, int seg, int lane)
{
    const bool pairs = power_of_two(s->size);
    int to = pairs ? s->rank ^ k : (s->rank + k) % s->size;
    int from = pairs ? to : (s->rank + s->size - k) % s->size;
    if (s->coll == LS_REDUCE_SCATTER) {
        LS_TRY(ls_sched_send(o, lane, to, ls_share(s, to, seg)));
        return ls_sched_recv_reduce(o, lane, from, ls_share(s, s->rank, seg));
    }
    LS_TRY(ls_sched_send(o, lane, to, ls_block(s, to, seg)));
    return ls_sched_recv(o, lane, from, ls_share(s, from, seg));
}

static ls_status to_the_next(ls_sched *o, const ls_shape *s)
{
    o->nchunks[LS_BUF_IN] = o->nchunks[LS_BUF_OUT] = (uint32_t)s->segments;
    for (int seg = 0; seg < s->segments; seg++) {
        const ls_slice in = { LS_BUF_IN, (uint32_t)seg, 1 }, out = { LS_BUF_OUT, (uint32_t)seg, 1 };
        const int lane = seg % s->nlanes;
        if (s->size == 1) LS_TRY(ls_sched_copy(o, lane, in, out));
        if (s->size == 1) continue;
        LS_TRY(ls_sched_send(o, lane, (s->rank + 1) % s->size, in));
        LS_TRY(ls_sched_recv(o, lane, (s->rank + s->size - 1) % s->size, out));
    }
    return LS_OK;
}

static ls_status emit(ls_sched *o, const ls_shape *s)
{
    if (s->coll == LS_SENDRECV) return to_the_next(o, s);
    ls_use_shares(o, s);
    if (s->coll == LS_ALL_TO_ALL) o->nchunks[LS_BUF_IN] = o->nchunks[LS_BUF_OUT];
    for (int seg = 0; seg < s->segments; seg++) {
        int lane = seg % s->nlanes;
        if (s->coll == LS_ALL_TO_ALL)
            LS_TRY(ls_sched_copy(o, lane, ls_block(s, s->rank, seg), ls_share(s, s->rank, seg)));
        for (int k = 1; k < s->size; k++) LS_TRY(exchange(o, s, k, seg, lane));
    }
    return LS_OK;
}

const ls_algo ls_algo_pairwise = {
    .name = "pairwise",
    .colls = 1u << LS_REDUCE_SCATTER | 1u << LS_ALL_TO_ALL | 1u << LS_SENDRECV,
    .source = "Thakur, Rabenseifner and Gropp 2005",
    .one_owner = true,
    .emit = emit,
};
