/* clip.c -- the global gradient norm, and the coefficient that keeps it below a limit.
 *
 *   norm = sqrt(sum over parameters and elements of g^2)
 *   g    = g min(1, max_norm / (norm + 1e-6))      Pascanu, Mikolov and Bengio 2013; torch.nn.utils.clip_grad_norm_
 *
 * The norm is one read of the gradients, 4 bytes an element, by all threads; the coefficient is applied inside the
 * optimizer's pass. A parameter is cut into blocks by its size alone, and their sums are added in ascending order.
 */
#include <math.h>

#include "base/compiler.h"
#include "lockstep/optim.h"
#include "tensor/share.h"

/* Sum of squares in double, in eight interleaved parts: the same bits however wide the vectors are. */
LS_KERNEL static double squares(const float *g, size_t n)
{
    double part[8] = { 0 };
    size_t k = 0;
    for (; k + 8 <= n; k += 8)
        for (size_t j = 0; j < 8; j++) part[j] += (double)g[k + j] * (double)g[k + j];
    for (; k < n; k++) part[k % 8] += (double)g[k] * (double)g[k];
    return ((part[0] + part[1]) + (part[2] + part[3])) + ((part[4] + part[5]) + (part[6] + part[7]));
}

#define MOST_BLOCKS 64
#define BLOCK ((int64_t)64 << 10) /* elements, at least */

typedef struct blocks {
    const float *g;
    int64_t n, size;
    double *sum;
} blocks;

static void sum_blocks(const void *call, int64_t first, int64_t count)
{
    const blocks *b = call;
    for (int64_t k = first; k < first + count; k++) {
        const int64_t at = k * b->size;
        b->sum[k] = squares(b->g + at, (size_t)(b->n - at < b->size ? b->n - at : b->size));
    }
}

static double sum_of_squares(const float *g, int64_t n)
{
    double sum[MOST_BLOCKS], all = 0.0;
    const int64_t even = (n + MOST_BLOCKS - 1) / MOST_BLOCKS, size = even < BLOCK ? BLOCK : (even + 7) / 8 * 8;
    const int64_t count = (n + size - 1) / size;
    ls_share(sum_blocks, &(blocks){ g, n, size, sum }, count, 1, n * (int64_t)sizeof *g);
    for (int64_t k = 0; k < count; k++) all += sum[k];
    return all;
}

ls_status ls_grad_norm(const ls_params *ps, double *norm, const ls_param **culprit)
{
    double sum = 0.0;
    if (culprit) *culprit = NULL;
    for (int i = 0; i < ps->n; i++) {
        const ls_param *p = &ps->item[i];
        if (!p->t.grad_ready || !p->grad.data) continue;
        sum += sum_of_squares(p->grad.data, ls_tensor_count(&p->t));
        if (LS_UNLIKELY(!isfinite(sum))) { /* squares of floats do not overflow a double */
            *norm = sum;
            if (culprit) *culprit = p;
            return ls_fail(LS_NAN, "the gradient of %s is not finite", p->name);
        }
    }
    *norm = sqrt(sum);
    return LS_OK;
}

double ls_clip_scale(double norm, double max_norm)
{
    if (max_norm == 0.0) return 1.0;
    const double scale = max_norm / (norm + 1e-6);
    return scale < 1.0 ? scale : 1.0;
}
