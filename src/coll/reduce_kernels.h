/* reduce_kernels.h -- the loops under reduce.c, a table of them per element type. */
#ifndef LS_COLL_REDUCE_KERNELS_H
#define LS_COLL_REDUCE_KERNELS_H
#include <stdbool.h>
#include <stddef.h>
#include "lockstep/dtype.h"

/* Sums of many vectors are made block by block in an accumulator that stays in
 * the first-level cache: float for 16-bit types, else the type itself. */
typedef struct ls_reduce_kernels {
    /* [op], LS_AVG like LS_SUM: dst = dst op src */
    void (*into[LS_REDOPS])(void *dst, const void *src, size_t n);
    /* acc = scale * src; acc = acc op (scale * src). Integers, max, min and prod ignore the scale. */
    void (*load)(void *acc, const void *src, size_t n, double scale);
    void (*combine[LS_REDOPS])(void *acc, const void *src, size_t n, double scale);
    void (*store)(void *dst, const void *acc, size_t n);
    /* on stored values, floats only: v *= factor, v /= divisor */
    void (*scale)(void *v, size_t n, double factor);
    void (*divide)(void *v, size_t n, double divisor);
} ls_reduce_kernels;

extern const ls_reduce_kernels ls_reduce_kernel_table[LS_DTYPES];

/* float sums in one pass over all sources and destinations, for the few counts
 * that have a loop of their own; false: there is none. */
bool ls_reduce_f32_streams(void *const *dst, int ndst, const void *const *src, int nsrc, size_t n, float scale);

/* acc += three sources, left to right. */
void ls_reduce_f32_add3(float *acc, const void *const *src, size_t n, float scale);

#endif
