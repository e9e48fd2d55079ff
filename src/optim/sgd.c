/* sgd.c -- stochastic gradient descent with momentum, as torch.optim.SGD without dampening.
 *
 *   d = g + weight_decay p
 *   b = momentum b + d
 *   p = p - lr b
 */
#include <math.h>

#include "base/compiler.h"
#include "optim/optim.h"

LS_KERNEL static void plain(size_t n, float *restrict p, const float *restrict g, float decay, float minus_lr)
{
    for (size_t i = 0; i < n; i++) {
        float d = decay == 0.0f ? g[i] : fmaf(p[i], decay, g[i]);
        p[i] = fmaf(d, minus_lr, p[i]);
    }
}

LS_KERNEL static void with_momentum(size_t n, float *restrict p, const float *restrict g, float *restrict b,
                                    float momentum, float decay, float minus_lr)
{
    for (size_t i = 0; i < n; i++) {
        float d = decay == 0.0f ? g[i] : fmaf(p[i], decay, g[i]);
        b[i] = momentum * b[i] + d;
        p[i] = fmaf(b[i], minus_lr, p[i]);
    }
}

void ls_sgd_update(const ls_optim_config *c, size_t n, float *p, const float *g, float *buffer)
{
    float decay = (float)c->weight_decay, minus_lr = (float)-c->lr;
    if (buffer) with_momentum(n, p, g, buffer, (float)c->momentum, decay, minus_lr);
    else plain(n, p, g, decay, minus_lr);
}
