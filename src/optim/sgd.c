/* sgd.c -- stochastic gradient descent with momentum, as torch.optim.SGD without dampening.
 *
 *   d = grad_scale g + weight_decay p
 *   b = momentum b + d
 *   p = p - lr b
 */
#include <math.h>

#include "base/bf16.h"
#include "optim/optim.h"
#include "tensor/share.h"

#define BYTES 12 /* moved for an element, without momentum */

typedef struct pass {
    ls_update u;
    float *b;
    float momentum, decay, minus_lr;
} pass;

static LS_ALWAYS_INLINE void loop(const pass *whole, int64_t first, int64_t end, bool with_momentum, bool with_copy)
{
    const pass f = *whole;
    float *restrict p = f.u.p, *restrict b = f.b;
    const float *restrict g = f.u.g;
    uint16_t *restrict copy = f.u.bf16;
    LS_INDEPENDENT
    for (int64_t i = first; i < end; i++) {
        float d = g[i] * f.u.grad_scale;
        d = f.decay == 0.0f ? d : fmaf(p[i], f.decay, d);
        if (with_momentum) d = b[i] = f.momentum * b[i] + d;
        const float x = fmaf(d, f.minus_lr, p[i]);
        p[i] = x;
        if (with_copy) copy[i] = ls_to_bf16(x);
    }
}

LS_KERNEL static void update(const void *call, int64_t first, int64_t count)
{
    const pass *f = call;
    const int64_t end = first + count;
    if (f->b && f->u.bf16) loop(f, first, end, true, true);
    else if (f->b) loop(f, first, end, true, false);
    else if (f->u.bf16) loop(f, first, end, false, true);
    else loop(f, first, end, false, false);
}

void ls_sgd_update(const ls_optim_config *c, const ls_update *u, float *buffer)
{
    const pass f = {
        .u = *u,
        .b = buffer,
        .momentum = (float)c->momentum,
        .decay = u->decay ? (float)c->weight_decay : 0.0f,
        .minus_lr = (float)-c->lr,
    };
    ls_share(update, &f, u->n, LS_SHARE_LINE, BYTES * u->n);
}
