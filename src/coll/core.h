/* core.h -- the power of two inside any number of ranks, for algorithms that pair ranks by bits.
 *
 * size = power + extra with extra < power. Of the first 2 extra ranks each odd one
 * speaks for the even one before it; the others speak for themselves. So virtual
 * ranks 0 .. power-1 stand for runs of one or two ranks, in order.
 */
#ifndef LS_COLL_CORE_H
#define LS_COLL_CORE_H
#include "coll/algos.h"

typedef struct ls_core {
    int power, extra;
    int v; /* virtual number of this rank; -1: the rank after it speaks for it. v < extra: it speaks for two */
} ls_core;

ls_core ls_core_of(const ls_shape *s);

/* The rank that is, or speaks as, virtual rank v. Inline, since a simulation of 2^20 ranks asks 10^8 times. */
static inline int ls_core_rank(const ls_core *c, int v) { return v < c->extra ? 2 * v + 1 : v + c->extra; }

/* The first of the ranks that virtual rank v stands for; of v = power the number of ranks. */
static inline int ls_core_first(const ls_core *c, int v) { return v < c->extra ? 2 * v : v + c->extra; }

/* Shares of virtual ranks first .. first + n - 1: in run `seg` of OUT for an all_reduce (any cut of it
 * into equal runs does), else in all segments. */
static inline ls_slice ls_core_shares(const ls_shape *s, const ls_core *c, int first, int n, int seg)
{
    const int a = ls_core_first(c, first), b = ls_core_first(c, first + n);
    if (s->coll != LS_ALL_REDUCE) return ls_shares(s, a, b - a);
    return (ls_slice){ LS_BUF_OUT, (uint32_t)(seg * s->size + a), (uint32_t)(b - a) };
}

/* Every virtual rank has its own block; after log2 power exchanges with partners at distance 1, 2, 4 ...
 * each has all blocks. */
ls_status ls_core_double(ls_sched *o, const ls_shape *s, const ls_core *c, int seg, int lane);

/* all_gather by it, in lane 0: extras hand in their share first and get the whole last. */
ls_status ls_core_gather(ls_sched *o, const ls_shape *s);

#endif
