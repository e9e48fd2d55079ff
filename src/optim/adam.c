/* adam.c -- Adam (Kingma and Ba 2015) and AdamW (Loshchilov and Hutter 2019), as torch.optim has them.
 *
 *   g = grad_scale g (the clip coefficient, 1 / the loss scale)
 *   adam:  g = g + weight_decay p          adamw: p = p (1 - lr weight_decay)
 *   m = beta1 m + (1 - beta1) g
 *   v = beta2 v + (1 - beta2) g^2
 *   p = p - lr / (1 - beta1^t) m / (sqrt(v) / sqrt(1 - beta2^t) + eps)
 *
 * One pass: p, m, v read and written, g read, 28 bytes an element; 30 with a bf16 copy of p. The factors are worked out
 * in double and rounded once, as Python does.
 */
#include <math.h>

#include "base/bf16.h"
#include "optim/optim.h"
#include "tensor/share.h"

#define BYTES 28 /* moved for an element */

typedef struct pass {
    ls_update u;
    float *m, *v;
    float decay;                /* adam: times p, into g */
    float shrink;               /* adamw: times p */
    float beta1, one_minus_beta1;
    float beta2, one_minus_beta2;
    float root_correction2;     /* sqrt(1 - beta2^t) */
    float eps, minus_step;
} pass;

static LS_ALWAYS_INLINE void loop(const pass *whole, int64_t first, int64_t end, bool with_copy)
{
    const pass f = *whole;
    float *restrict p = f.u.p, *restrict m = f.m, *restrict v = f.v;
    const float *restrict g = f.u.g;
    uint16_t *restrict copy = f.u.bf16;
    LS_INDEPENDENT
    for (int64_t i = first; i < end; i++) {
        float d = g[i] * f.u.grad_scale;
        d = f.decay == 0.0f ? d : fmaf(p[i], f.decay, d);
        float x = p[i] * f.shrink;
        m[i] = fmaf(d, f.one_minus_beta1, m[i] * f.beta1);
        v[i] = fmaf(f.one_minus_beta2 * d, d, v[i] * f.beta2);
        float denom = sqrtf(v[i]) / f.root_correction2 + f.eps;
        x = x + f.minus_step * m[i] / denom;
        p[i] = x;
        if (with_copy) copy[i] = ls_to_bf16(x);
    }
}

LS_KERNEL static void update(const void *call, int64_t first, int64_t count)
{
    const pass *f = call;
    if (f->u.bf16) loop(f, first, first + count, true);
    else loop(f, first, first + count, false);
}

void ls_adam_update(const ls_optim_config *c, bool decoupled, int64_t step, const ls_update *u, float *exp_avg,
                    float *exp_avg_sq)
{
    double correction1 = 1.0 - pow(c->beta1, (double)step), correction2 = 1.0 - pow(c->beta2, (double)step);
    double weight_decay = u->decay ? c->weight_decay : 0.0;
    const pass f = {
        .u = *u,
        .m = exp_avg,
        .v = exp_avg_sq,
        .decay = decoupled ? 0.0f : (float)weight_decay,
        .shrink = decoupled ? (float)(1.0 - c->lr * weight_decay) : 1.0f,
        .beta1 = (float)c->beta1,
        .one_minus_beta1 = (float)(1.0 - c->beta1),
        .beta2 = (float)c->beta2,
        .one_minus_beta2 = (float)(1.0 - c->beta2),
        .root_correction2 = (float)sqrt(correction2),
        .eps = (float)c->eps,
        .minus_step = (float)-(c->lr / correction1),
    };
    ls_share(update, &f, u->n, LS_SHARE_LINE, BYTES * u->n);
}
