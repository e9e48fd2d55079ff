/* clip.c -- the global gradient norm, and the coefficient that keeps it below a limit.
 *
 *   norm = sqrt(sum over parameters and elements of g^2)
 *   g    = g min(1, max_norm / (norm + 1e-6))      Pascanu, Mikolov and Bengio 2013; torch.nn.utils.clip_grad_norm_
 *
 * The norm is one read of the gradients, 4 bytes an element; the coefficient is applied inside the optimizer's pass.
 */
#include <math.h>

#include "base/compiler.h"
#include "lockstep/optim.h"

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

ls_status ls_grad_norm(const ls_params *ps, double *norm, const ls_param **culprit)
{
    double sum = 0.0;
    if (culprit) *culprit = NULL;
    for (int i = 0; i < ps->n; i++) {
        const ls_param *p = &ps->item[i];
        if (!p->t.grad_ready || !p->grad.data) continue;
        sum += squares(p->grad.data, (size_t)ls_tensor_count(&p->t));
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
