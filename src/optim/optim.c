/* optim.c -- an optimizer over a model's parameters: its settings, groups, state and step. */
#include "nn/note.h"
#include "optim/optim.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/text.h"
#include "tensor/share.h"

#define HASHED      8192 /* elements that are hashed at once, after their update: they are still in the cache */
#define BYTES       12 /* moved per element: p read and written, g read; */
#define STATE_BYTES 8  /* one state read and written */

typedef struct slot {
    float *state[LS_OPTIM_STATES]; /* borrowed from the arena; NULL: not needed */
    int64_t steps;                 /* updates of this parameter: one without a gradient falls behind */
    _Atomic uint32_t hash;         /* of the values that the newest update has written (ls_optim_hash_values) */
    int group;                     /* -1: none */
} slot;

typedef struct rates {
    double lr, weight_decay;
} rates;

struct ls_optim {
    ls_optim_config config;
    const ls_optim_class *cls; /* borrowed */
    int nstates;               /* that the configuration uses */
    bool hashes;               /* slot.hash is wanted */
    bool dry;                  /* state and values have addresses, and no memory */
    ls_params *params;         /* borrowed */
    slot *slot;                /* owned: [params->n] */
    rates *group;              /* owned: [ngroups] */
    int ngroups;
    int64_t steps;
};

/* --- which ------------------------------------------------------------------------------------------ */

static LS_COLD ls_status unknown(const char *name)
{
    ls_text known = { 0 };
    for (int i = 0; ls_optim_classes[i]; i++)
        ls_text_add(&known, "%s%s", i == 0 ? "" : ls_optim_classes[i + 1] ? ", " : " or ", ls_optim_classes[i]->name);
    const ls_status st =
        ls_fail(LS_BAD_CONFIG, "no optimizer is named '%s': expected %s", name ? name : "", ls_text_str(&known));
    ls_text_free(&known);
    return st;
}

static ls_status find_class(const ls_optim_config *c, const ls_optim_class **out)
{
    *out = c->cls ? c->cls : ls_optim_class_find(c->name);
    return *out ? LS_OK : unknown(c->name);
}

ls_status ls_optim_defaults(const char *name, ls_optim_config *out)
{
    const ls_optim_class *cls;
    LS_TRY(find_class(&(ls_optim_config){ .name = name }, &cls));
    *out = cls->defaults;
    out->name = cls->name;
    return LS_OK;
}

static int states_of(const ls_optim_class *cls, const ls_optim_config *c)
{
    return cls->uses ? cls->uses(c) : cls->nstates;
}

/* --- checks ----------------------------------------------------------------------------------------------- */

static ls_status check_rates(const char *name, double lr, double weight_decay)
{
    return ls_optim_check(name, (const ls_optim_rule[]){ { "lr", lr, 0.0 }, { "weight_decay", weight_decay, 0.0 } }, 2);
}

/* A class of a program's own: does it say what it is? */
static ls_status check_class(const ls_optim_class *cls, const ls_optim_config *c)
{
    if (!cls->name || !cls->update)
        return ls_fail(LS_BAD_CONFIG, "optimizer %s: its class has no %s", cls->name ? cls->name : "without a name",
                       cls->name ? "update" : "name");
    if (cls->nstates < 0 || cls->nstates > LS_OPTIM_STATES)
        return ls_fail(LS_BAD_CONFIG, "%s: %d states, expected 0 to %d", cls->name, cls->nstates, LS_OPTIM_STATES);
    for (int s = 0; s < LS_OPTIM_STATES; s++)
        if ((cls->state_name[s] != NULL) != (s < cls->nstates))
            return ls_fail(LS_BAD_CONFIG, "%s: it declares %d states and names %s: expected one name for each", cls->name,
                           cls->nstates, s < cls->nstates ? "fewer" : "more");
    const int uses = states_of(cls, c);
    if (uses < 0 || uses > cls->nstates)
        return ls_fail(LS_BAD_CONFIG, "%s: these settings use %d states, and it declares %d", cls->name, uses, cls->nstates);
    LS_TRY(check_rates(cls->name, c->lr, c->weight_decay));
    return cls->check ? cls->check(c) : LS_OK;
}

/* Arrays of one element, and what must stay as it is behind each. */
enum { TRIAL_GUARD = 64 };
#define UNTOUCHED 0x1.2345p-99f

typedef struct trial {
    float p[1 + TRIAL_GUARD], state[LS_OPTIM_STATES][1 + TRIAL_GUARD];
} trial;

static bool touched(const float *from, int n)
{
    for (int i = 0; i < n; i++)
        if (memcmp(&from[i], &(float){ UNTOUCHED }, sizeof(float)) != 0) return true;
    return false;
}

static ls_status too_much_state(const ls_optim *o, const ls_param *p, int s)
{
    char which[48] = "a state below 0 or above 30";
    if (s < 31) snprintf(which, sizeof which, "state %d, counted from 0", s);
    return ls_fail(LS_BAD_CONFIG, "%s: the update of parameter %s asks for %s, and the class declares %d: set nstates, and "
                   "name them all", o->cls->name, p->name, which, o->cls->nstates);
}

/* An update of one element that is no parameter's shows which states it asks for, and how far it writes. */
static ls_status try_out(const ls_optim *o, const ls_param *p)
{
    static const float g = 1.0f;
    trial t;
    unsigned asked = 0;
    for (size_t i = 0; i < sizeof t / sizeof(float); i++) ((float *)(void *)&t)[i] = UNTOUCHED;
    t.p[0] = 1.0f;
    ls_update u = { .n = 1, .p = t.p, .g = &g, .grad_scale = 1.0f, .lr = o->config.lr, .step = 1, .asked = &asked,
                    .weight_decay = o->config.weight_decay };
    for (int s = 0; s < o->nstates; s++) t.state[s][0] = 0.0f;
    for (int s = 0; s < LS_OPTIM_STATES; s++) /* declared, and not used with these settings: there is none */
        u.state[s] = s < o->nstates || s >= o->cls->nstates ? t.state[s] : NULL;
    o->cls->update(&o->config, &u);
    for (int s = o->cls->nstates; s < 32; s++)
        if (asked >> s & 1u) return too_much_state(o, p, s);
    for (int s = o->cls->nstates; s < LS_OPTIM_STATES; s++)
        if (touched(t.state[s], 1)) return too_much_state(o, p, s);
    for (int s = 0; s < LS_OPTIM_STATES; s++)
        if (touched(t.state[s] + 1, TRIAL_GUARD))
            return ls_fail(LS_BAD_CONFIG, "%s: the update of parameter %s writes past the end of state %d: it has one float "
                           "per element, u->n of them", o->cls->name, p->name, s);
    if (touched(t.p + 1, TRIAL_GUARD))
        return ls_fail(LS_BAD_CONFIG, "%s: the update of parameter %s writes past the end of its values: they are u->n",
                       o->cls->name, p->name);
    return LS_OK;
}

/* --- groups ------------------------------------------------------------------------------------------------ */

static ls_status add_member(ls_optim *o, int group, const char *name)
{
    const ls_param *p = ls_params_find(o->params, name);
    if (!p)
        return ls_fail(LS_BAD_CONFIG, "%s: group %d has a parameter '%s', which is not in the model", o->cls->name, group,
                       name);
    slot *s = &o->slot[p - o->params->item];
    if (s->group >= 0)
        return ls_fail(LS_BAD_CONFIG, "%s: parameter '%s' is in group %d and %s: expected once", o->cls->name, name, s->group,
                       s->group == group ? "in it again" : "in a later one");
    s->group = group;
    return LS_OK;
}

static ls_status make_groups(ls_optim *o, const ls_optim_group *group, int ngroups)
{
    char name[64];
    for (int i = 0; i < o->params->n; i++) o->slot[i].group = -1;
    o->ngroups = ngroups;
    for (int k = 0; k < ngroups; k++) {
        snprintf(name, sizeof name, "%.40s: group %d", o->cls->name, k);
        LS_TRY(check_rates(name, group[k].lr, group[k].weight_decay));
        o->group[k] = (rates){ group[k].lr, group[k].weight_decay };
        for (const char *const *param = group[k].param; param && *param; param++) LS_TRY(add_member(o, k, *param));
    }
    return LS_OK;
}

static rates rates_of(const ls_optim *o, int i)
{
    if (o->slot[i].group >= 0) return o->group[o->slot[i].group];
    return (rates){ o->config.lr, o->params->item[i].no_decay ? 0.0 : o->config.weight_decay };
}

double ls_optim_flops(const ls_optim *o)
{
    double all = 0;
    for (int i = 0; o->cls->flops && i < o->params->n; i++)
        all += (double)o->params->item[i].own.count * o->cls->flops(&o->config, rates_of(o, i).weight_decay);
    return all;
}

/* --- creation -------------------------------------------------------------------------------------------------- */

/* One state of it, so that the next begins on a cache line of its own. */
static size_t state_bytes(const ls_param *p) { return (p->own.count * sizeof(float) + 63) / 64 * 64; }

static LS_COLD ls_status no_room(const ls_optim *o, ls_status st)
{
    return ls_while(st, "%s: allocating %d floats of state per element of %d parameters, of which %s is the largest",
                    o->cls->name, o->nstates, o->params->n, ls_params_largest(o->params)->name);
}

static ls_status bind_state(ls_optim *o, ls_arena *arena)
{
    void *block = NULL;
    size_t nbytes = 0;
    for (int i = 0; i < o->params->n; i++) nbytes += state_bytes(&o->params->item[i]) * (size_t)o->nstates;
    if (nbytes == 0) return LS_OK;
    const ls_status st = ls_arena_alloc(arena, nbytes, LS_MEM_OPTIM, &block);
    if (st < 0) return no_room(o, st);
    if (!o->dry) memset(block, 0, nbytes);
    char *next = block;
    for (int i = 0; i < o->params->n; i++)
        for (int s = 0; s < o->nstates; s++) {
            const ls_param *p = &o->params->item[i];
            o->slot[i].state[s] = (float *)(void *)next;
            LS_TRY(ls_arena_assign(arena, next, p->own.count * sizeof(float), p->unit));
            next += state_bytes(p);
        }
    return LS_OK;
}

ls_status ls_optim_create_groups(const ls_optim_config *c, ls_params *params, const ls_optim_group *group, int ngroups,
                                 ls_arena *arena, ls_optim **out)
{
    const ls_optim_class *cls;
    *out = NULL;
    LS_TRY(find_class(c, &cls));
    LS_TRY(check_class(cls, c));
    for (int i = 0; i < params->n; i++)
        if (params->item[i].t.dtype != LS_F32)
            return ls_fail(LS_UNSUPPORTED, "%s: parameter %s is %s, expected %s", cls->name, params->item[i].name,
                           ls_dtype_name(params->item[i].t.dtype), ls_dtype_name(LS_F32));

    ls_status st = LS_OK;
    ls_optim *o = calloc(1, sizeof *o);
    if (!o) return ls_fail(LS_NO_MEMORY, "%s over %d parameters", cls->name, params->n);
    o->config = *c;
    o->config.name = cls->name; /* the caller's text may go away */
    o->cls = cls;
    o->nstates = states_of(cls, c);
    o->dry = arena && ls_arena_is_dry(arena);
    o->params = params;
    o->slot = calloc((size_t)params->n + 1, sizeof *o->slot);
    o->group = calloc((size_t)(ngroups > 0 ? ngroups : 0) + 1, sizeof *o->group);
    if (!o->slot || !o->group) st = ls_fail(LS_NO_MEMORY, "%s over %d parameters", cls->name, params->n);
    if (st == LS_OK) st = make_groups(o, group, ngroups);
    if (st == LS_OK && params->n > 0) st = try_out(o, &params->item[0]);
    if (st == LS_OK) st = bind_state(o, arena);
    if (st == LS_OK && !o->dry) ls_params_note("optimizer", params);
    if (st == LS_OK) *out = o;
    else ls_optim_destroy(o);
    return st;
}

ls_status ls_optim_create(const ls_optim_config *c, ls_params *params, ls_arena *arena, ls_optim **out)
{
    return ls_optim_create_groups(c, params, NULL, 0, arena, out);
}

void ls_optim_destroy(ls_optim *o)
{
    if (!o) return;
    free(o->slot);
    free(o->group);
    free(o); /* the state goes with the arena */
}

/* --- a step ------------------------------------------------------------------------------------------------------- */

static bool several(const ls_param *p) { return p->replicas && ls_group_size(p->replicas) > 1; }

/* Whether a backward has written a gradient, wherever it is now. */
static bool written(const ls_param *p) { return p->t.grad_ready || ls_param_has_gradient(p); }

/* Of a bucket that was never full, a parameter that no loss has reached. */
static const ls_param *without_gradient(const ls_params *ps)
{
    for (int i = 0; i < ps->n; i++)
        if (several(&ps->item[i]) && !written(&ps->item[i])) return &ps->item[i];
    return NULL;
}

static LS_COLD ls_status not_reduced(const ls_optim *o, const ls_param *p)
{
    const ls_param *absent = without_gradient(o->params);
    return ls_fail(LS_INVALID,
                   "%s: step %lld on rank %d: the gradient of %s is this rank's own, not the mean over %d ranks; no weight "
                   "was changed: %s%s%scall ls_ddp_begin_forward(ddp, tape, true) before the last forward of every step",
                   o->config.name, (long long)o->steps + 1, ls_group_rank(p->replicas), p->name,
                   ls_group_size(p->replicas), absent ? "parameter " : "",
                   absent ? absent->name : "",
                   absent ? " has no gradient, and without find_unused every parameter must take part in the loss; else " : "");
}

/* Replicas whose gradients differ part for good, and nothing else would tell. */
static ls_status check_reduced(const ls_optim *o)
{
    for (int i = 0; i < o->params->n; i++) {
        const ls_param *p = &o->params->item[i];
        if (several(p) && written(p) && !p->t.grad_reduced) return not_reduced(o, p);
    }
    return LS_OK;
}

typedef struct pass {
    const ls_optim *o;
    const ls_update *u;
    _Atomic uint32_t *hash; /* NULL: none is wanted */
} pass;

static ls_update some_of(const pass *f, int64_t first, int64_t count, uint32_t *hash)
{
    ls_update u = *f->u;
    u.n = count;
    u.first = first;
    u.hash = hash;
    u.p += first;
    u.g += first;
    if (u.bf16) u.bf16 += first;
    for (int s = 0; s < f->o->nstates; s++) u.state[s] += first;
    return u;
}

/* Of a class that does not hash by itself. */
LS_KERNEL static uint32_t hash_of(const ls_update *u)
{
    uint32_t sum = 0;
    for (int64_t i = 0; i < u->n; i++) sum += ls_update_hash(u, i, u->p[i]);
    return sum;
}

static void update_piece(const void *call, int64_t first, int64_t count)
{
    const pass *f = call;
    uint32_t hash = 0;
    const bool hashes = f->o->cls->hashes;
    const int64_t most = f->hash && !hashes ? HASHED : count; /* hashed while they are in the cache */
    for (int64_t at = first, n; at < first + count; at += n) {
        n = first + count - at < most ? first + count - at : most;
        const ls_update u = some_of(f, at, n, hashes && f->hash ? &hash : NULL);
        f->o->cls->update(&f->o->config, &u);
        if (f->hash && !hashes) hash += hash_of(&u);
    }
    if (f->hash) atomic_fetch_add_explicit(f->hash, hash, memory_order_relaxed);
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
        if (!ls_param_has_gradient(p) || !ls_param_gradients(p)) continue;
        s->steps++;
        const rates with = rates_of(o, i);
        ls_update u = {
            .n = (int64_t)p->own.count, .p = ls_param_values(p), .g = ls_param_gradients(p),
            .bf16 = p->bf16 ? (uint16_t *)p->bf16 + p->own.first : NULL, .grad_scale = (float)grad_scale,
            .lr = with.lr, .weight_decay = with.weight_decay, .step = s->steps,
        };
        memcpy(u.state, s->state, sizeof u.state);
        const int64_t bytes = (BYTES + STATE_BYTES * o->nstates) * u.n;
        atomic_store_explicit(&s->hash, 0, memory_order_relaxed);
        const pass f = { o, &u, o->hashes ? &s->hash : NULL };
        if (!o->dry) ls_parallel_for(update_piece, &f, u.n, LS_SHARE_LINE, bytes);
        p->t.grad_ready = p->t.grad_reduced = p->dmaster_ready = false;
    }
    o->steps++;
    return LS_OK;
}

ls_status ls_optim_step(ls_optim *o) { return ls_optim_step_scaled(o, 1.0); }

void ls_optim_set_lr(ls_optim *o, double lr) { o->config.lr = lr; }

ls_status ls_optim_set_group_lr(ls_optim *o, int group, double lr)
{
    if (group < 0 || group >= o->ngroups)
        return ls_fail(LS_INVALID, "%s: the rate of group %d: there are %d", o->config.name, group, o->ngroups);
    if (!(lr >= 0.0 && isfinite(lr)))
        return ls_fail(LS_INVALID, "%s: group %d: lr is %g, expected >= 0", o->config.name, group, lr);
    o->group[group].lr = lr;
    return LS_OK;
}

int64_t ls_optim_steps(const ls_optim *o) { return o->steps; }
int ls_optim_nstates(const ls_optim *o) { return o->nstates; }

const char *ls_optim_state_name(const ls_optim *o, int i) { return o->cls->state_name[i]; }

const ls_params *ls_optim_params(const ls_optim *o) { return o->params; }

ls_status ls_optim_hash_values(ls_optim *o)
{
    if (o->steps > 0) return ls_fail(LS_INVALID, "%s: ls_optim_hash_values after %lld updates: call it before the first one",
                                     o->config.name, (long long)o->steps);
    o->hashes = true;
    return LS_OK;
}

uint32_t ls_optim_hash_of(const ls_optim *o, int i)
{
    return atomic_load_explicit(&o->slot[i].hash, memory_order_relaxed);
}

uint64_t ls_optim_hash_some(const ls_optim *o, const ls_params *some)
{
    uint64_t h = 0;
    for (int i = 0; i < some->n && o->hashes; i++) {
        h = (h ^ ls_optim_hash_of(o, some->before + i)) * 0x9e3779b97f4a7c15ull;
        h ^= h >> 32;
    }
    return h >> 16;
}

uint64_t ls_optim_hash(const ls_optim *o) { return ls_optim_hash_some(o, o->params); }

int64_t ls_optim_steps_of(const ls_optim *o, const char *param)
{
    const ls_param *p = ls_params_find(o->params, param);
    return p ? o->slot[p - o->params->item].steps : -1;
}

ls_status ls_optim_set_steps(ls_optim *o, const char *param, int64_t steps)
{
    const ls_param *p = param ? ls_params_find(o->params, param) : NULL;
    if (steps < 0 || (param && !p))
        return ls_fail(LS_INVALID, "%s: %lld updates%s%s: %s", o->config.name, (long long)steps, param ? " of " : "",
                       param ? param : "", steps < 0 ? "expected 0 or more" : "there is no such parameter");
    if (p) o->slot[p - o->params->item].steps = steps;
    else o->steps = steps;
    return LS_OK;
}

float *ls_optim_state(const ls_optim *o, const char *param, const char *state)
{
    const ls_param *p = ls_params_find(o->params, param);
    for (int s = 0; p && s < o->nstates; s++)
        if (strcmp(o->cls->state_name[s], state) == 0) return o->slot[p - o->params->item].state[s];
    return NULL;
}
