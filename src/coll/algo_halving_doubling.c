/* algo_halving_doubling.c -- Rabenseifner's: halve the vector while summing, double it while gathering.
 *
 * Partners at distance p/2, p/4 ... 1 exchange halves of what they still hold and
 * add them, until each has one block complete; then the same partners in reverse
 * pass finished blocks back. Where size is no power of two, the first size - p
 * ranks of odd number (p: the power below it) each speak for the even one before
 * them, and hold its share beside their own.
 *
 *   rounds        2 log2 p (reduce_scatter, all_gather: log2 p); two more when
 *                 size is no power of two
 *   bytes sent    2 (size-1)/size of the vector (reduce_scatter, all_gather:
 *                 half of it), per rank; where size is no power of two up to two
 *                 vectors more
 *   order         a balanced tree, the farthest partners first:
 *                 ((0+p/2) + (p/4+3p/4)) + ...; in a reduce_scatter the even
 *                 rank of a pair adds its own last
 *   good for      medium and large vectors over powers of two: a ring's bytes in
 *                 fewer rounds
 *   source        Rabenseifner, ICCS 2004
 */
#include "coll/algos.h"
#include "coll/core.h"
#include "coll/put.h"

/* Partners exchange halves of their blocks. Of an all_reduce the last block is one
 * message; else its shares come one by one, because they complete on different
 * ranks. The partner's may be one share more or less. */
static ls_status halve(ls_sched *o, const ls_shape *s, const ls_core *c, int seg, int lane)
{
    for (int d = c->power / 2; d >= 1; d /= 2) {
        int block = c->v & ~(d - 1), other = block ^ d, peer = ls_core_rank(c, c->v ^ d);
        ls_slice mine = ls_core_shares(s, c, block, d, seg), theirs = ls_core_shares(s, c, other, d, seg);
        uint32_t one = s->coll == LS_ALL_REDUCE || d > 1 ? UINT32_MAX : (uint32_t)s->segments;
        while (mine.n > 0 || theirs.n > 0) {
            ls_slice out = { theirs.buf, theirs.first, theirs.n < one ? theirs.n : one };
            ls_slice in = { mine.buf, mine.first, mine.n < one ? mine.n : one };
            if (out.n > 0) LS_TRY(ls_put_send(o, lane, peer, out));
            if (in.n > 0) LS_TRY(ls_put_recv_reduce(o, lane, peer, in));
            theirs.first += out.n, theirs.n -= out.n;
            mine.first += in.n, mine.n -= in.n;
        }
    }
    return LS_OK;
}

static ls_status twice(ls_sched *o, const ls_shape *s, int seg, int lane)
{
    ls_core c = ls_core_of(s);
    ls_slice all = ls_run_of(s, LS_BUF_OUT, seg);
    if (c.v < 0) {
        LS_TRY(ls_sched_send(o, lane, s->rank + 1, all));
        return ls_sched_recv(o, lane, s->rank + 1, all);
    }
    if (c.v < c.extra) LS_TRY(ls_sched_recv_reduce(o, lane, s->rank - 1, all));
    LS_TRY(halve(o, s, &c, seg, lane));
    LS_TRY(ls_core_double(o, s, &c, seg, lane));
    return c.v < c.extra ? ls_sched_send(o, lane, s->rank - 1, all) : LS_OK;
}

/* An even rank hands in all but its own share, to which it adds everybody else's sum itself. */
static ls_status scatter(ls_sched *o, const ls_shape *s)
{
    ls_core c = ls_core_of(s);
    int even = c.v < 0 ? s->rank : s->rank - 1;
    ls_slice before = ls_shares(s, 0, even), own = ls_shares(s, even, 1);
    ls_slice after = ls_shares(s, even + 1, s->size - even - 1);
    if (c.v < 0) {
        if (before.n) LS_TRY(ls_sched_send(o, 0, s->rank + 1, before));
        LS_TRY(ls_sched_send(o, 0, s->rank + 1, after));
        return ls_sched_recv_reduce(o, 0, s->rank + 1, own);
    }
    if (c.v < c.extra) {
        if (before.n) LS_TRY(ls_sched_recv_reduce(o, 0, s->rank - 1, before));
        LS_TRY(ls_sched_recv_reduce(o, 0, s->rank - 1, after));
    }
    LS_TRY(halve(o, s, &c, 0, 0));
    return c.v < c.extra ? ls_sched_send(o, 0, s->rank - 1, own) : LS_OK;
}

static ls_status emit(ls_sched *o, const ls_shape *s)
{
    ls_use_shares(o, s);
    if (s->size == 1) return LS_OK;
    if (s->coll == LS_ALL_GATHER) return ls_core_gather(o, s);
    if (s->coll == LS_REDUCE_SCATTER) return scatter(o, s);
    for (int seg = 0; seg < s->segments; seg++) LS_TRY(twice(o, s, seg, seg % s->nlanes));
    return LS_OK;
}

const ls_algo ls_algo_halving_doubling = {
    .name = "halving_doubling",
    .colls = 1u << LS_ALL_REDUCE | 1u << LS_REDUCE_SCATTER | 1u << LS_ALL_GATHER,
    .source = "Rabenseifner 2004",
    .emit = emit,
};
