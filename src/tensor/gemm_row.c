/* gemm_row.c -- one row times a transposed matrix: what generation does for each token.
 *
 *   c[n] = sum over k of a[k] b[n, k]      b is read once, 4 N K bytes: nothing can be faster
 *
 * Each sum is in LANES interleaved parts, in ascending k: the same bits however wide the vectors are.
 */
#include "base/compiler.h"
#include "tensor/gemm.h"

#define LANES 64 /* four vectors of 16: enough additions on their way to keep up with memory */

LS_KERNEL static float dot(const float *restrict a, const float *restrict b, int64_t n)
{
    float part[LANES] = { 0 };
    int64_t k = 0;
    for (; k + LANES <= n; k += LANES)
        for (int j = 0; j < LANES; j++) part[j] += a[k + j] * b[k + j];
    for (int j = 0; k + j < n; j++) part[j] += a[k + j] * b[k + j];
    for (int width = LANES / 2; width > 0; width /= 2)
        for (int j = 0; j < width; j++) part[j] += part[j + width];
    return part[0];
}

void ls_gemm_row(const ls_gemm_call *p)
{
    for (int64_t n = 0; n < p->n; n++) {
        const float sum = dot(p->a, p->b + n * p->k, p->k) + (p->bias ? p->bias[n] : 0.0f);
        p->c[n] = p->add ? p->c[n] + sum : sum;
    }
}
