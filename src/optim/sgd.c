/* sgd.c -- stochastic gradient descent with momentum, as torch.optim.SGD without dampening.
 *
 *   d = grad_scale g + weight_decay p
 *   b = momentum b + d
 *   p = p - lr b
 */
#include <math.h>

#include "base/compiler.h"
#include "optim/optim.h"

typedef struct factors {
    float grad_scale, momentum, decay, minus_lr;
} factors;

LS_KERNEL static void plain(size_t n, float *restrict p, const float *restrict g, factors f)
{
    for (size_t i = 0; i < n; i++) {
        float d = g[i] * f.grad_scale;
        d = f.decay == 0.0f ? d : fmaf(p[i], f.decay, d);
        p[i] = fmaf(d, f.minus_lr, p[i]);
    }
}

LS_KERNEL static void with_momentum(size_t n, float *restrict p, const float *restrict g, float *restrict b, factors f)
{
    for (size_t i = 0; i < n; i++) {
        float d = g[i] * f.grad_scale;
        d = f.decay == 0.0f ? d : fmaf(p[i], f.decay, d);
        b[i] = f.momentum * b[i] + d;
        p[i] = fmaf(b[i], f.minus_lr, p[i]);
    }
}

void ls_sgd_update(const ls_optim_config *c, const ls_update *u, float *buffer)
{
    const factors f = {
        .grad_scale = u->grad_scale,
        .momentum = (float)c->momentum,
        .decay = u->decay ? (float)c->weight_decay : 0.0f,
        .minus_lr = (float)-c->lr,
    };
    for (size_t at = 0; at < u->n;) {
        const size_t n = ls_update_piece(u, at);
        if (buffer) with_momentum(n, u->p + at, u->g + at, buffer + at, f);
        else plain(n, u->p + at, u->g + at, f);
        ls_update_copy(u, at, n);
        at += n;
    }
}
