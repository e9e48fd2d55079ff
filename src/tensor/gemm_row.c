/* gemm_row.c -- one row times a transposed matrix: what generation does for each token.
 *
 *   c[n] = sum over k of a[k] b[n, k]      b is read once, 4 N K bytes (2 N K): nothing can be faster
 *
 * Each sum is in LANES interleaved parts, in ascending k: the same bits however wide the vectors are.
 */
#include "base/compiler.h"
#include "tensor/element.h"
#include "tensor/gemm.h"
#include "tensor/threads.h"

#define LANES 64 /* four vectors of 16: enough additions on their way to keep up with memory */
#define ROWS 64  /* of b: one piece of work for a thread */

static LS_ALWAYS_INLINE float dot(const void *restrict a, const void *restrict b, int64_t n, bool bf16)
{
    float part[LANES] = { 0 };
    int64_t k = 0;
    for (; k + LANES <= n; k += LANES)
        for (int j = 0; j < LANES; j++) part[j] += ls_get(a, k + j, bf16) * ls_get(b, k + j, bf16);
    for (int j = 0; k + j < n; j++) part[j] += ls_get(a, k + j, bf16) * ls_get(b, k + j, bf16);
    for (int width = LANES / 2; width > 0; width /= 2)
        for (int j = 0; j < width; j++) part[j] += part[j + width];
    return part[0];
}

/* Elements [first, end) of c. */
static LS_ALWAYS_INLINE void some_of(const ls_gemm_call *p, int64_t first, int64_t end, bool bf16)
{
    float *restrict c = p->c;
    for (int64_t n = first; n < end; n++) {
        const float sum = dot(p->a, ls_at_const(p->b, n * p->k, bf16), p->k, bf16) + (p->bias ? p->bias[n] : 0.0f);
        c[n] = p->add ? c[n] + sum : sum;
    }
}

LS_KERNEL static void some(const ls_gemm_call *p, int64_t first, int64_t end)
{
    LS_BY_DTYPE(p->in, some_of, p, first, end);
}

static void piece(void *call, int64_t i)
{
    const ls_gemm_call *p = *(const ls_gemm_call *const *)call;
    const int64_t end = (i + 1) * ROWS;
    some(p, i * ROWS, end < p->n ? end : p->n);
}

void ls_gemm_row(const ls_gemm_call *p)
{
    const int64_t pieces = (p->n + ROWS - 1) / ROWS, bytes = p->n * p->k * (int64_t)ls_dtype_size(p->in);
    ls_threads_for(ls_threads_pay(bytes), pieces, piece, &p);
}
