/* rows.h -- sums over one row of C floats or bf16, for norms: call them in an LS_KERNEL function.
 *
 * Four terms are added in float, and those sums in double over LS_LANES sums that are added in
 * a fixed order at the end: they fill vector registers, every instruction set gives the same
 * bits, and the error does not grow with C: at most 3 roundings to float of each term. */
#ifndef LS_TENSOR_ROWS_H
#define LS_TENSOR_ROWS_H
#include <stdint.h>

#include "base/compiler.h"
#include "tensor/element.h"

#define LS_LANES 16

static LS_ALWAYS_INLINE double ls_lanes_sum(double lane[LS_LANES])
{
    for (int half = LS_LANES / 2; half > 0; half /= 2)
        for (int k = 0; k < half; k++) lane[k] += lane[k + half];
    return lane[0];
}

/* Sum of TERM(i) for i in [0, C). */
#define LS_ROW_SUM(TERM)                                                                                    \
    double lane[LS_LANES] = { 0 }, rest = 0.0;                                                              \
    int64_t c = 0;                                                                                          \
    for (; c + 4 * LS_LANES <= C; c += 4 * LS_LANES)                                                        \
        for (int k = 0; k < LS_LANES; k++)                                                                  \
            lane[k] += (double)((TERM(c + k) + TERM(c + LS_LANES + k)) +                                    \
                                (TERM(c + 2 * LS_LANES + k) + TERM(c + 3 * LS_LANES + k)));                 \
    for (; c < C; c++) rest += (double)TERM(c);                                                             \
    return ls_lanes_sum(lane) + rest

/* Each begins at element `at` of x, or of a and x; b [C] is float. */

/* Sum of x[c]. */
static LS_ALWAYS_INLINE double ls_row_sum(const void *x, int64_t at, int64_t C, bool bf16)
{
#define TERM(i) ls_get(x, at + (i), bf16)
    LS_ROW_SUM(TERM);
#undef TERM
}

/* Sum of (x[c] - mean)^2. */
static LS_ALWAYS_INLINE double ls_row_squares(const void *x, int64_t at, float mean, int64_t C, bool bf16)
{
#define TERM(i) ((ls_get(x, at + (i), bf16) - mean) * (ls_get(x, at + (i), bf16) - mean))
    LS_ROW_SUM(TERM);
#undef TERM
}

/* Sum of a[c] b[c]. */
static LS_ALWAYS_INLINE double ls_row_dot(const void *a, int64_t at, const float *b, int64_t C, bool bf16)
{
#define TERM(i) (ls_get(a, at + (i), bf16) * b[i])
    LS_ROW_SUM(TERM);
#undef TERM
}

/* Sum of a[c] b[c] (x[c] - mean) r. */
static LS_ALWAYS_INLINE double ls_row_dot_normed(const void *a, int64_t at, const float *b, const void *x, float mean,
                                                 float r, int64_t C, bool bf16)
{
#define TERM(i) (ls_get(a, at + (i), bf16) * b[i] * ((ls_get(x, at + (i), bf16) - mean) * r))
    LS_ROW_SUM(TERM);
#undef TERM
}

#endif
