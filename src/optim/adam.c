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
#include "base/compiler.h"
#include "optim/optim.h"
#include "tensor/ahead.h"

typedef struct pass {
    float *m, *v;
    float decay;                /* adam: times p, into g */
    float shrink;               /* adamw: times p */
    float beta1, one_minus_beta1;
    float beta2, one_minus_beta2;
    float root_correction2;     /* sqrt(1 - beta2^t) */
    float eps, minus_step;
} pass;

#define AHEAD 256 /* elements */

/* Elements [first, end). */
static LS_ALWAYS_INLINE void some(const ls_update *u, const pass *with, int64_t first, int64_t end, bool with_copy,
                                  bool with_hash)
{
    const pass f = *with;
    uint32_t hash = 0;
    const float scale = u->grad_scale;
    float *restrict p = u->p, *restrict m = f.m, *restrict v = f.v;
    const float *restrict g = u->g;
    uint16_t *restrict copy = u->bf16;
    LS_INDEPENDENT
    for (int64_t i = first; i < end; i++) {
        float d = g[i] * scale;
        d = f.decay == 0.0f ? d : fmaf(p[i], f.decay, d);
        float x = p[i] * f.shrink;
        m[i] = fmaf(d, f.one_minus_beta1, m[i] * f.beta1);
        v[i] = fmaf(f.one_minus_beta2 * d, d, v[i] * f.beta2);
        float denom = sqrtf(v[i]) / f.root_correction2 + f.eps;
        x = x + f.minus_step * m[i] / denom;
        p[i] = x;
        if (with_copy) copy[i] = ls_to_bf16(x);
        if (with_hash) hash += ls_update_hash(u, i, x);
    }
    if (with_hash) *u->hash += hash;
}

static LS_ALWAYS_INLINE void loop(const ls_update *u, const pass *f, bool with_copy, bool with_hash)
{
    int64_t i = 0;
    for (; i + AHEAD + LS_STRIP <= u->n; i += LS_STRIP) {
        ls_ask_strip(u->p, i + AHEAD, false, true);
        ls_ask_strip(f->m, i + AHEAD, false, true);
        ls_ask_strip(f->v, i + AHEAD, false, true);
        ls_ask_strip(u->g, i + AHEAD, false, false);
        some(u, f, i, i + LS_STRIP, with_copy, with_hash);
    }
    some(u, f, i, u->n, with_copy, with_hash);
}

LS_KERNEL static void run(const ls_update *u, const pass *f)
{
    if (u->bf16 && u->hash) loop(u, f, true, true);
    else if (u->bf16) loop(u, f, true, false);
    else if (u->hash) loop(u, f, false, true);
    else loop(u, f, false, false);
}

static void adam(const ls_optim_config *c, bool decoupled, const ls_update *u)
{
    double correction1 = 1.0 - pow(c->beta1, (double)u->step), correction2 = 1.0 - pow(c->beta2, (double)u->step);
    const pass f = {
        .m = ls_update_state(u, 0),
        .v = ls_update_state(u, 1),
        .decay = decoupled ? 0.0f : (float)u->weight_decay,
        .shrink = decoupled ? (float)(1.0 - u->lr * u->weight_decay) : 1.0f,
        .beta1 = (float)c->beta1,
        .one_minus_beta1 = (float)(1.0 - c->beta1),
        .beta2 = (float)c->beta2,
        .one_minus_beta2 = (float)(1.0 - c->beta2),
        .root_correction2 = (float)sqrt(correction2),
        .eps = (float)c->eps,
        .minus_step = (float)-(u->lr / correction1),
    };
    run(u, &f);
}

static void update(const ls_optim_config *c, const ls_update *u) { adam(c, false, u); }
static void update_decoupled(const ls_optim_config *c, const ls_update *u) { adam(c, true, u); }

static ls_status check(const ls_optim_config *c)
{
    const ls_optim_rule rule[] = { { "beta1", c->beta1, 1.0 }, { "beta2", c->beta2, 1.0 }, { "eps", c->eps, 0.0 } };
    return ls_optim_check(c->name, rule, 3);
}

/* The scale of g; p times shrink; m 3 and v 4, sqrt(v) / root + eps 3, and the step 3. */
static int flops_decoupled(const ls_optim_config *c, double weight_decay)
{
    (void)c, (void)weight_decay;
    return 15;
}

static int flops(const ls_optim_config *c, double weight_decay)
{
    return flops_decoupled(c, 0) + (weight_decay != 0.0 ? 2 : 0);
}

static const char *const keys[] = { "optim.betas", "optim.eps", NULL };

#define STATES .nstates = 2, .state_name = { "exp_avg", "exp_avg_sq" }, .keys = keys

const ls_optim_class ls_optim_adam = {
    .name = "adam", .defaults = { .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8 },
    STATES, .check = check, .hashes = true, .update = update, .flops = flops,
};
const ls_optim_class ls_optim_adamw = {
    .name = "adamw", .defaults = { .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.01 },
    STATES, .check = check, .hashes = true, .update = update_decoupled, .flops = flops_decoupled,
};
