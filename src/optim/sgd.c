/* sgd.c -- stochastic gradient descent with momentum, as torch.optim.SGD without dampening.
 *
 *   d = grad_scale g + weight_decay p
 *   b = momentum b + d
 *   p = p - lr b
 */
#include <math.h>

#include "base/bf16.h"
#include "base/compiler.h"
#include "optim/optim.h"

typedef struct pass {
    float *b;
    float momentum, decay, minus_lr;
} pass;

static LS_ALWAYS_INLINE void loop(const ls_update *u, const pass *with, bool with_momentum, bool with_copy,
                                  bool with_hash)
{
    const pass f = *with;
    uint32_t hash = 0;
    const float scale = u->grad_scale;
    float *restrict p = u->p, *restrict b = f.b;
    const float *restrict g = u->g;
    uint16_t *restrict copy = u->bf16;
    LS_INDEPENDENT
    for (int64_t i = 0; i < u->n; i++) {
        float d = g[i] * scale;
        d = f.decay == 0.0f ? d : fmaf(p[i], f.decay, d);
        if (with_momentum) d = b[i] = f.momentum * b[i] + d;
        const float x = fmaf(d, f.minus_lr, p[i]);
        p[i] = x;
        if (with_copy) copy[i] = ls_to_bf16(x);
        if (with_hash) hash += ls_update_hash(u, i, x);
    }
    if (with_hash) *u->hash += hash;
}

static LS_ALWAYS_INLINE void choose(const ls_update *u, const pass *f, bool with_hash)
{
    if (f->b && u->bf16) loop(u, f, true, true, with_hash);
    else if (f->b) loop(u, f, true, false, with_hash);
    else if (u->bf16) loop(u, f, false, true, with_hash);
    else loop(u, f, false, false, with_hash);
}

LS_KERNEL static void run(const ls_update *u, const pass *f)
{
    if (u->hash) choose(u, f, true);
    else choose(u, f, false);
}

static void update(const ls_optim_config *c, const ls_update *u)
{
    const pass f = {
        .b = ls_update_state(u, 0),
        .momentum = (float)c->momentum,
        .decay = (float)u->weight_decay,
        .minus_lr = (float)-u->lr,
    };
    run(u, &f);
}

static int uses(const ls_optim_config *c) { return c->momentum != 0.0 ? 1 : 0; }

/* The scale of g, decay 2, momentum 2 and the step 2. */
static int flops(const ls_optim_config *c, double weight_decay)
{
    return 3 + (weight_decay != 0.0 ? 2 : 0) + (c->momentum != 0.0 ? 2 : 0);
}

static ls_status check(const ls_optim_config *c)
{
    return ls_optim_check(c->name, &(ls_optim_rule){ "momentum", c->momentum, 0.0 }, 1);
}

static const char *const keys[] = { "optim.momentum", NULL };

const ls_optim_class ls_optim_sgd = {
    .name = "sgd", .defaults = { .lr = 1e-3 }, .nstates = 1, .state_name = { "momentum_buffer" },
    .uses = uses, .keys = keys, .check = check, .hashes = true, .update = update, .flops = flops,
};
