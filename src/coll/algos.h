/* algos.h -- the slices that algorithms share. Each algorithm is a file; registry.c lists them. */
#ifndef LS_COLL_ALGOS_H
#define LS_COLL_ALGOS_H
#include "lockstep/sched.h"

extern const ls_algo ls_algo_direct; /* the others are registry.c's alone */

/* Segment `segment` of the share that rank `owner` (taken modulo size, and
 * above -size) has of OUT. */
static inline ls_slice ls_share(const ls_shape *s, int owner, int segment)
{
    int i = (owner + s->size) % s->size;
    return (ls_slice){ LS_BUF_OUT, (uint32_t)(i * s->segments + segment), 1 };
}

/* All segments of the shares of ranks first .. first + n - 1. */
static inline ls_slice ls_shares(const ls_shape *s, int first, int n)
{
    return (ls_slice){ LS_BUF_OUT, (uint32_t)(first * s->segments), (uint32_t)(n * s->segments) };
}

/* Run g of the whole vector: for an all_reduce any cut of the chunks into `segments` equal runs does. */
static inline ls_slice ls_run_of(const ls_shape *s, ls_bufid buf, int g)
{
    return (ls_slice){ buf, (uint32_t)(g * s->size), (uint32_t)s->size };
}

/* all_to_all: the same of IN, what is for rank `peer`. */
static inline ls_slice ls_block(const ls_shape *s, int peer, int segment)
{
    return (ls_slice){ LS_BUF_IN, ls_share(s, peer, segment).first, 1 };
}

/* OUT as size * segments chunks. */
static inline void ls_use_shares(ls_sched *o, const ls_shape *s)
{
    o->nchunks[LS_BUF_OUT] = (uint32_t)(s->size * s->segments);
}

/* n ranks in a line (NULL: 0 .. n-1), this rank at position `me`, the root at `head`; and a binomial tree
 * over them (algo_tree.c). */
typedef struct ls_line_up { const int *rank; int n, head, me; } ls_line_up;
ls_status ls_binomial_broadcast(ls_sched *o, int lane, const ls_line_up *l, ls_slice a);
ls_status ls_binomial_reduce(ls_sched *o, int lane, const ls_line_up *l, ls_slice a);

#endif
