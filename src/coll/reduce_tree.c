/* reduce_tree.c -- LS_SUM_TREE: many vectors, added pairwise over neighbours.
 *
 * A block of each source is added to partial sums as a binary counter counts: source i completes as many pairs as i has
 * trailing one bits. So log2(nsrc) partial sums of a block suffice, and they fit the first-level cache.
 */
#include <string.h>

#include "coll/reduce.h"
#include "coll/reduce_kernels.h"

#define BLOCK  128
#define LEVELS 16 /* of up to 65,536 sources */

/* `level`: the partial sums of one block, as they are accumulated; at bit b the sum of 2^b sources. */
typedef struct counter {
    double level[LEVELS][BLOCK]; /* the widest type's alignment and size */
} counter;

/* Of 16-bit types the accumulator is float: two of them are added as floats are. */
static const ls_reduce_kernels *of_accumulator(ls_dtype dtype)
{
    return &ls_reduce_kernel_table[dtype == LS_BF16 || dtype == LS_F16 ? LS_F32 : dtype];
}

/* x = pair + x, where `pair` came first: a + b is b + a. */
static void add(ls_dtype dtype, void *x, const void *pair, size_t n)
{
    of_accumulator(dtype)->combine[LS_SUM](x, pair, n, 1.0);
}

/* The sum of a block of `n` elements at byte `at` of each source; where it is. */
static const void *sum_block(counter *c, const void *const *src, int nsrc, size_t at, size_t n, ls_dtype dtype)
{
    const ls_reduce_kernels *k = &ls_reduce_kernel_table[dtype];
    const int last = nsrc - 1;
    int b = 0;
    for (int i = 0; i < nsrc; i++) {
        double *x = c->level[LEVELS - 1]; /* completes at bit b, where it moves to */
        for (b = 0; i >> b & 1; b++) continue;
        if (i < last) x = c->level[b];
        k->load(x, (const char *)src[i] + at, n, 1.0);
        for (int j = 0; j < b; j++) add(dtype, x, c->level[j], n);
    }
    for (int j = b + 1; j < LEVELS - 1; j++) /* what is left where nsrc is no power of two */
        if (last >> j & 1) add(dtype, c->level[LEVELS - 1], c->level[j], n);
    return c->level[LEVELS - 1];
}

void ls_reduce_tree(void *const *dst, int ndst, const void *const *src, int nsrc, size_t count, ls_dtype dtype)
{
    const size_t elem = ls_dtype_size(dtype);
    counter c;
    for (size_t first = 0; first < count; first += BLOCK) {
        const size_t n = count - first < BLOCK ? count - first : BLOCK, at = first * elem;
        const void *sum = sum_block(&c, src, nsrc, at, n, dtype);
        ls_reduce_kernel_table[dtype].store((char *)dst[0] + at, sum, n);
        for (int j = 1; j < ndst; j++) memcpy((char *)dst[j] + at, (char *)dst[0] + at, n * elem);
    }
}
