/* slab.h -- where in a tape's memory things are.
 *
 * What forward makes is a stack: it only grows, and whatever comes later ends before
 * it. What lives for a while only (gradients of activations, values that are made again)
 * may be given back in any order, and leaves a hole for the next that fits:
 *
 *     0 [kept] [kept] [hole] [kept] [gradient] [hole] [gradient] used ... size
 *
 * Offsets only, no memory: a dry tape goes through the same without having any. What is
 * where depends on the sequence of calls alone.
 */
#ifndef LS_TENSOR_SLAB_H
#define LS_TENSOR_SLAB_H
#include <stddef.h>

#define LS_SLAB_ALIGN 64u
#define LS_SLAB_HOLES 64   /* what is given back beyond that stays unused until a release */
#define LS_SLAB_FULL ((size_t)-1)

typedef struct ls_slab_hole {
    size_t at, n;
} ls_slab_hole;

typedef struct ls_slab {
    size_t size, used, peak;            /* peak: of used */
    size_t floor;                       /* `used` does not fall below it by giving back */
    ls_slab_hole hole[LS_SLAB_HOLES];   /* ascending, apart from each other, below used */
    int nholes;
} ls_slab;

/* n bytes on top: where they begin, or LS_SLAB_FULL. */
size_t ls_slab_push(ls_slab *s, size_t n);
/* n bytes: in the smallest hole that they fit into, the first of equals; else on top. */
size_t ls_slab_take(ls_slab *s, size_t n);
/* Gives back n bytes at `at`, which one of the two returned for n. */
void ls_slab_give(ls_slab *s, size_t at, size_t n);
/* Bytes that are in use: below `used`, without holes. */
size_t ls_slab_live(const ls_slab *s);
/* Everything above the mark, a former `used`, ends. */
void ls_slab_release(ls_slab *s, size_t mark);

#endif
