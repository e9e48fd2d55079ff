/* element.h -- elements of activations, float or bfloat16, for kernels that are written once for both.
 *
 * A kernel's loop is an always-inline function that takes untyped pointers and, last, `bool bf16`; it reads
 * with ls_get and writes with ls_put. LS_BY_DTYPE calls it with a constant from an LS_KERNEL function, so that
 * each type gets a loop of its own without a question in it:
 *
 *     static LS_ALWAYS_INLINE void twice_of(void *y, const void *x, int64_t n, bool bf16)
 *     {
 *         for (int64_t i = 0; i < n; i++) ls_put(y, i, 2.0f * ls_get(x, i, bf16), bf16);
 *     }
 *
 *     LS_KERNEL static void twice(ls_dtype dtype, void *y, const void *x, int64_t n)
 *     {
 *         LS_BY_DTYPE(dtype, twice_of, y, x, n);
 *     }
 */
#ifndef LS_TENSOR_ELEMENT_H
#define LS_TENSOR_ELEMENT_H
#include <stdbool.h>
#include <stdint.h>

#include "base/bf16.h"
#include "lockstep/dtype.h"

static LS_ALWAYS_INLINE float ls_get(const void *p, int64_t i, bool bf16)
{
    return bf16 ? ls_from_bf16(((const uint16_t *)p)[i]) : ((const float *)p)[i];
}

/* Rounds once. */
static LS_ALWAYS_INLINE void ls_put(void *p, int64_t i, float v, bool bf16)
{
    if (bf16) ((uint16_t *)p)[i] = ls_to_bf16(v);
    else ((float *)p)[i] = v;
}

/* Element i of p. */
static LS_ALWAYS_INLINE void *ls_at(void *p, int64_t i, bool bf16) { return (char *)p + i * (bf16 ? 2 : 4); }
static LS_ALWAYS_INLINE const void *ls_at_const(const void *p, int64_t i, bool bf16)
{
    return (const char *)p + i * (bf16 ? 2 : 4);
}

#define LS_BY_DTYPE(dtype, loop, ...)                        \
    do {                                                     \
        if ((dtype) == LS_BF16) loop(__VA_ARGS__, true);     \
        else loop(__VA_ARGS__, false);                       \
    } while (0)

#endif
