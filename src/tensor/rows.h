/* rows.h -- sums over one row of C floats, for norms: call them in an LS_KERNEL function.
 *
 * Four terms are added in float, and those sums in double over LS_LANES sums that are added in
 * a fixed order at the end: they fill vector registers, every instruction set gives the same
 * bits, and the error does not grow with C: at most 3 roundings to float of each term. */
#ifndef LS_TENSOR_ROWS_H
#define LS_TENSOR_ROWS_H
#include <stdint.h>

#include "base/compiler.h"

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

/* Sum of x[c]. */
static LS_ALWAYS_INLINE double ls_row_sum(const float *x, int64_t C)
{
#define TERM(i) x[i]
    LS_ROW_SUM(TERM);
#undef TERM
}

/* Sum of (x[c] - mean)^2. */
static LS_ALWAYS_INLINE double ls_row_squares(const float *x, float mean, int64_t C)
{
#define TERM(i) ((x[i] - mean) * (x[i] - mean))
    LS_ROW_SUM(TERM);
#undef TERM
}

/* Sum of a[c] b[c]. */
static LS_ALWAYS_INLINE double ls_row_dot(const float *a, const float *b, int64_t C)
{
#define TERM(i) (a[i] * b[i])
    LS_ROW_SUM(TERM);
#undef TERM
}

/* Sum of a[c] b[c] (x[c] - mean) r. */
static LS_ALWAYS_INLINE double ls_row_dot_normed(const float *a, const float *b, const float *x, float mean, float r,
                                                 int64_t C)
{
#define TERM(i) (a[i] * b[i] * ((x[i] - mean) * r))
    LS_ROW_SUM(TERM);
#undef TERM
}

#endif
