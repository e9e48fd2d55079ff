/* algo_recursive_doubling.c -- partners at distance 1, 2, 4 ... exchange all they have.
 *
 * After k rounds a rank holds the sum over (or the shares of) the 2^k ranks
 * around it; both partners add the same two vectors. Where size is no power of
 * two, the first size - p ranks of odd number (p: the power below it) each speak
 * for the even one before them, which hands in its vector first and gets the
 * result last.
 *
 *   rounds        log2 p; two more when size is no power of two
 *   bytes sent    all_reduce: log2 p vectors, per rank; all_gather: (size-1)/size
 *                 of the vector
 *   order         a balanced tree over neighbours: (0+1)+(2+3) ...; the same
 *                 bits everywhere because a + b is b + a (of two NaNs either
 *                 may stay)
 *   good for      short vectors on a wire, where rounds are all
 *   source        Thakur, Rabenseifner and Gropp, Int. J. High Perf. Comput.
 *                 Appl. 19 (2005)
 */
#include "coll/algos.h"
#include "coll/core.h"

/* The peer's vector lands in TMP and is added once ours has been read: adding at
 * once would have both wait for the other where memory is read in place. */
static ls_status reduce(ls_sched *o, const ls_shape *s, ls_slice mine, int lane)
{
    ls_core c = ls_core_of(s);
    ls_slice theirs = { LS_BUF_TMP, mine.first, mine.n };
    if (c.v < 0) {
        LS_TRY(ls_sched_send(o, lane, s->rank + 1, mine));
        return ls_sched_recv(o, lane, s->rank + 1, mine);
    }
    if (c.v < c.extra) LS_TRY(ls_sched_recv_reduce(o, lane, s->rank - 1, mine));
    for (int d = 1; d < c.power; d *= 2) {
        int peer = ls_core_rank(&c, c.v ^ d);
        LS_TRY(ls_sched_send(o, lane, peer, mine));
        LS_TRY(ls_sched_recv(o, lane, peer, theirs));
        LS_TRY(ls_sched_reduce(o, lane, theirs, mine));
    }
    return c.v < c.extra ? ls_sched_send(o, lane, s->rank - 1, mine) : LS_OK;
}

static ls_status emit(ls_sched *o, const ls_shape *s)
{
    ls_use_shares(o, s);
    if (s->coll == LS_ALL_GATHER) return ls_core_gather(o, s);
    o->nchunks[LS_BUF_TMP] = o->nchunks[LS_BUF_OUT];
    for (int g = 0; s->size > 1 && g < s->segments; g++)
        LS_TRY(reduce(o, s, ls_run_of(s, LS_BUF_OUT, g), g % s->nlanes));
    return LS_OK;
}

const ls_algo ls_algo_recursive_doubling = {
    .name = "recursive_doubling",
    .colls = 1u << LS_ALL_REDUCE | 1u << LS_ALL_GATHER,
    .source = "Thakur, Rabenseifner and Gropp 2005",
    .emit = emit,
};
