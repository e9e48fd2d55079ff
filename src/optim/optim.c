/* optim.c -- an optimizer over a model's parameters: its settings, state and step. */
#include "optim/optim.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"

typedef enum kind { SGD, ADAM, ADAMW, KINDS } kind;

static const ls_optim_config defaults[KINDS] = {
    [SGD] = { .name = "sgd", .lr = 1e-3 },
    [ADAM] = { .name = "adam", .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8 },
    [ADAMW] = { .name = "adamw", .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.01 },
};

typedef struct slot {
    float *state[2];  /* borrowed from the arena: sgd: buffer; adam: exp_avg, exp_avg_sq; NULL: not needed */
    int64_t steps;    /* updates of this parameter: one without a gradient falls behind */
} slot;

struct ls_optim {
    ls_optim_config config;
    kind kind;
    ls_params *params; /* borrowed */
    slot *slot;        /* owned: [params->n] */
    int64_t steps;
};

static ls_status find_kind(const char *name, kind *out)
{
    for (int k = 0; k < KINDS; k++)
        if (name && strcmp(name, defaults[k].name) == 0) {
            *out = (kind)k;
            return LS_OK;
        }
    return ls_fail(LS_BAD_CONFIG, "no optimizer is named '%s': expected sgd, adam or adamw", name ? name : "");
}

ls_status ls_optim_defaults(const char *name, ls_optim_config *out)
{
    kind k;
    LS_TRY(find_kind(name, &k));
    *out = defaults[k];
    return LS_OK;
}

static int states_of(const ls_optim_config *c, kind k) { return k != SGD ? 2 : c->momentum != 0.0 ? 1 : 0; }

/* What this rank updates of a parameter. */
static ls_range updated(const ls_param *p)
{
    return p->sharded ? p->own : (ls_range){ 0, (size_t)ls_tensor_count(&p->t) };
}

/* One state of it, so that the next begins on a cache line of its own. */
static size_t state_bytes(const ls_param *p) { return (updated(p).count * sizeof(float) + 63) / 64 * 64; }

size_t ls_optim_state_bytes(const ls_optim_config *c, const ls_params *params)
{
    kind k;
    size_t n = 0;
    if (find_kind(c->name, &k) < 0) return 0;
    for (int i = 0; i < params->n; i++) n += state_bytes(&params->item[i]) * (size_t)states_of(c, k);
    return n;
}

static ls_status check(const ls_optim_config *c, kind k)
{
    const struct { bool bad; const char *what, *rule; double value; } row[] = {
        { !(c->lr >= 0.0 && isfinite(c->lr)), "lr", ">= 0", c->lr },
        { !(c->weight_decay >= 0.0 && isfinite(c->weight_decay)), "weight_decay", ">= 0", c->weight_decay },
        { k == SGD && !(c->momentum >= 0.0 && isfinite(c->momentum)), "momentum", ">= 0", c->momentum },
        { k != SGD && !(c->beta1 >= 0.0 && c->beta1 < 1.0), "beta1", "in [0, 1)", c->beta1 },
        { k != SGD && !(c->beta2 >= 0.0 && c->beta2 < 1.0), "beta2", "in [0, 1)", c->beta2 },
        { k != SGD && !(c->eps >= 0.0 && isfinite(c->eps)), "eps", ">= 0", c->eps },
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        if (row[i].bad)
            return ls_fail(LS_BAD_CONFIG, "%s: %s is %g, expected %s", c->name, row[i].what, row[i].value, row[i].rule);
    return LS_OK;
}

ls_status ls_optim_create(const ls_optim_config *c, ls_params *params, ls_arena *arena, ls_optim **out)
{
    kind k;
    void *block = NULL;
    *out = NULL;
    LS_TRY(find_kind(c->name, &k));
    LS_TRY(check(c, k));
    for (int i = 0; i < params->n; i++)
        if (params->item[i].t.dtype != LS_F32)
            return ls_fail(LS_UNSUPPORTED, "%s: parameter %s is %s, expected %s", c->name, params->item[i].name,
                           ls_dtype_name(params->item[i].t.dtype), ls_dtype_name(LS_F32));
    size_t nbytes = ls_optim_state_bytes(c, params);
    if (nbytes > 0) {
        LS_TRY(ls_arena_alloc(arena, nbytes, LS_MEM_OPTIM, &block));
        memset(block, 0, nbytes);
    }

    ls_optim *o = calloc(1, sizeof *o);
    if (!o || !(o->slot = calloc(params->n ? (size_t)params->n : 1, sizeof *o->slot))) {
        free(o);
        return ls_fail(LS_NO_MEMORY, "%s over %d parameters", c->name, params->n);
    }
    o->config = *c;
    o->config.name = defaults[k].name; /* the caller's text may go away */
    o->kind = k;
    o->params = params;
    char *next = block;
    for (int i = 0; i < params->n; i++)
        for (int s = 0; s < states_of(c, k); s++) {
            o->slot[i].state[s] = (float *)(void *)next;
            next += state_bytes(&params->item[i]);
        }
    *out = o;
    return LS_OK;
}

void ls_optim_destroy(ls_optim *o)
{
    if (!o) return;
    free(o->slot);
    free(o); /* the state goes with the arena */
}

/* Of a bucket that was never full, a parameter that no loss has reached. */
static const ls_param *without_gradient(const ls_params *ps)
{
    for (int i = 0; i < ps->n; i++)
        if (ps->item[i].ranks > 1 && !ps->item[i].t.grad_ready) return &ps->item[i];
    return NULL;
}

static LS_COLD ls_status not_reduced(const ls_optim *o, const ls_param *p)
{
    const ls_param *absent = without_gradient(o->params);
    return ls_fail(LS_INVALID,
                   "%s: step %lld on rank %d: the gradient of %s is this rank's own, not the mean over %d ranks; no weight "
                   "was changed: %s%s%scall ls_ddp_begin_forward(ddp, tape, true) before the last forward of every step",
                   o->config.name, (long long)o->steps + 1, p->rank, p->name, p->ranks, absent ? "parameter " : "",
                   absent ? absent->name : "",
                   absent ? " has no gradient, and every parameter must take part in the loss; else " : "");
}

/* Replicas whose gradients differ part for good, and nothing else would tell. */
static ls_status check_reduced(const ls_optim *o)
{
    for (int i = 0; i < o->params->n; i++) {
        const ls_param *p = &o->params->item[i];
        if (p->ranks > 1 && p->t.grad_ready && !p->t.grad_reduced) return not_reduced(o, p);
    }
    return LS_OK;
}

ls_status ls_optim_step_scaled(ls_optim *o, double grad_scale)
{
    if (!isfinite(grad_scale) || grad_scale < 0.0)
        return ls_fail(LS_INVALID, "%s: gradients times %g: expected a finite factor >= 0; no weight was changed",
                       o->config.name, grad_scale);
    LS_TRY(check_reduced(o));
    for (int i = 0; i < o->params->n; i++) {
        ls_param *p = &o->params->item[i];
        slot *s = &o->slot[i];
        if (!p->t.grad_ready || !p->grad.data) continue;
        s->steps++;
        const ls_range own = updated(p);
        const ls_update u = {
            .n = (int64_t)own.count, .p = (float *)p->t.data + own.first, .g = (const float *)p->grad.data + own.first,
            .bf16 = p->bf16 ? (uint16_t *)p->bf16 + own.first : NULL,
            .grad_scale = (float)grad_scale, .decay = !p->no_decay,
        };
        if (o->kind == SGD) ls_sgd_update(&o->config, &u, s->state[0]);
        else ls_adam_update(&o->config, o->kind == ADAMW, s->steps, &u, s->state[0], s->state[1]);
        p->t.grad_ready = p->t.grad_reduced = false;
    }
    o->steps++;
    return LS_OK;
}

ls_status ls_optim_step(ls_optim *o) { return ls_optim_step_scaled(o, 1.0); }

void ls_optim_set_lr(ls_optim *o, double lr) { o->config.lr = lr; }
int64_t ls_optim_steps(const ls_optim *o) { return o->steps; }
