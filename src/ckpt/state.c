/* state.c -- what a state consists of, and loading it. */
#include "ckpt/state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- what it consists of ------------------------------------------------------------------ */

ls_status ls_state_create(ls_group *g, ls_state **out)
{
    *out = calloc(1, sizeof **out);
    if (!*out) return ls_fail(LS_NO_MEMORY, "a state");
    (*out)->g = g;
    (*out)->generation = ls_world_generation(ls_group_world(g));
    return LS_OK;
}

void ls_state_destroy(ls_state *s)
{
    if (!s) return;
    ls_state_async_destroy(s);
    free(s->own);
    free(s);
}

int ls_state_culprit(const ls_state *s) { return s->culprit; }

void ls_state_set_meta(ls_state *s, const char *const *meta) { s->meta = meta; }

ls_status ls_state_add_model(ls_state *s, ls_params *ps, ls_optim *o)
{
    if (s->ps) return ls_fail(LS_INVALID, "ls_state_add_model: the state has a model already: one state per model");
    s->ps = ps;
    s->optim = o;
    return LS_OK;
}

static ls_status add(ls_state *s, const char *name, void *p, ls_dtype dtype, int64_t count)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    const size_t n = strlen(name);
    if (n == 0 || n >= LS_NAME_BYTES || strspn(name, letters) != n)
        return ls_fail(LS_INVALID, "ls_state_add: the name '%s' has to have 1 to %d letters, digits, '.', '_' and '-'", name,
                       LS_NAME_BYTES - 1);
    for (int i = 0; i < s->nown; i++)
        if (strcmp(s->own[i].name + sizeof LS_STATE_OWN - 1, name) == 0)
            return ls_fail(LS_INVALID, "ls_state_add: '%s' was added before", name);
    if (!p || count < 1) return ls_fail(LS_INVALID, "ls_state_add: '%s' has no bytes", name);
    ls_state_own *list = realloc(s->own, (size_t)(s->nown + 1) * sizeof *list);
    if (!list) return ls_fail(LS_NO_MEMORY, "a state of %d additions", s->nown + 1);
    s->own = list;
    list[s->nown] = (ls_state_own){ .p = p, .dtype = dtype, .count = count };
    snprintf(list[s->nown].name, sizeof list->name, "%s%s", LS_STATE_OWN, name);
    s->nown++;
    return LS_OK;
}

ls_status ls_state_add(ls_state *s, const char *name, void *p, size_t nbytes)
{
    return add(s, name, p, LS_U8, (int64_t)nbytes);
}

ls_status ls_state_add_i64(ls_state *s, const char *name, int64_t *p) { return add(s, name, p, LS_I64, 1); }
ls_status ls_state_add_f64(ls_state *s, const char *name, double *p) { return add(s, name, p, LS_F64, 1); }

/* --- loading it ------------------------------------------------------------------------------ */

#define STATE_NAME_BYTES (LS_NAME_BYTES + 64)

static void state_name(char out[STATE_NAME_BYTES], const char *state, const char *param)
{
    snprintf(out, STATE_NAME_BYTES, LS_STATE_OPTIM "%.40s.%s", state, param);
}

/* PyTorch's has no number of the optimizer's own steps: it is that of the parameter that has had most. */
static ls_status check_optim(const ls_state *s, ls_checkpoint *from, int64_t *steps)
{
    char name[STATE_NAME_BYTES];
    int64_t dim[LS_MAX_DIMS];
    int64_t updates, most = 0;
    for (int i = 0; i < s->ps->n; i++) {
        const ls_param *p = &s->ps->item[i];
        ls_piece_shape(p, dim);
        state_name(name, "step", p->name);
        LS_TRY(ls_checkpoint_updates(from, name, &updates));
        if (updates > most) most = updates;
        for (int k = 0; k < ls_optim_nstates(s->optim); k++) {
            state_name(name, ls_optim_state_name(s->optim, k), p->name);
            LS_TRY(ls_checkpoint_check(from, name, LS_F32, p->t.ndim, dim));
        }
    }
    *steps = most;
    return ls_checkpoint_is_foreign(from) ? LS_OK : ls_checkpoint_updates(from, LS_STATE_OPTIM "steps", steps);
}

/* Each rank reads what it owns. */
static ls_status load_optim(const ls_state *s, ls_checkpoint *from, int64_t steps)
{
    char name[STATE_NAME_BYTES];
    LS_TRY(ls_optim_set_steps(s->optim, NULL, steps));
    for (int i = 0; i < s->ps->n; i++) {
        const ls_param *p = &s->ps->item[i];
        state_name(name, "step", p->name);
        LS_TRY(ls_checkpoint_updates(from, name, &steps));
        LS_TRY(ls_optim_set_steps(s->optim, p->name, steps));
        for (int k = 0; k < ls_optim_nstates(s->optim) && p->own.count > 0; k++) {
            const char *state = ls_optim_state_name(s->optim, k);
            state_name(name, state, p->name);
            LS_TRY(ls_piece_read(from, name, p, p->own, ls_optim_state(s->optim, p->name, state)));
        }
    }
    return LS_OK;
}

#define SETTINGS LS_STATE_OPTIM "param_groups." /* of PyTorch: a learning rate that is a tensor */

/* A checkpoint with more state than the program asks for was saved by another optimizer or program. */
static ls_status check_no_more(const ls_state *s, const ls_checkpoint *from)
{
    const bool ours = !ls_checkpoint_is_foreign(from);
    size_t expected = ours ? (size_t)s->nown : 0;
    if (s->optim) expected += ours + (size_t)ls_params_total(s->ps) * (size_t)(1 + ls_optim_nstates(s->optim));
    size_t found = 0;
    for (int i = 0; i < ls_checkpoint_count(from); i++) {
        const char *name = ls_checkpoint_at(from, i)->name;
        if (!ours && strncmp(name, SETTINGS, sizeof SETTINGS - 1) == 0) continue;
        found += strncmp(name, LS_STATE_OWN, sizeof LS_STATE_OWN - 1) == 0 ||
                 (s->optim && strncmp(name, LS_STATE_OPTIM, sizeof LS_STATE_OPTIM - 1) == 0);
    }
    if (found == expected) return LS_OK;
    return ls_fail(LS_SHAPE, "%s: has %zu tensors of state, the program has %zu: it was saved with another optimizer or by another "
                   "program (`lockstep ckpt ls` shows what it holds)", ls_checkpoint_folder(from), found, expected);
}

ls_status ls_state_load(ls_state *s, ls_checkpoint *from)
{
    const int nown = ls_checkpoint_is_foreign(from) ? 0 : s->nown;
    int64_t steps = 0;
    for (int i = 0; i < nown; i++) LS_TRY(ls_checkpoint_check(from, s->own[i].name, s->own[i].dtype, 1,
                                                              &s->own[i].count));
    if (s->optim) LS_TRY(check_optim(s, from, &steps));
    LS_TRY(check_no_more(s, from));
    if (s->optim) LS_TRY(load_optim(s, from, steps));
    for (int i = 0; i < nown; i++) LS_TRY(ls_checkpoint_read(from, ls_checkpoint_find(from, s->own[i].name), NULL,
                                                                NULL, s->own[i].p));
    return LS_OK;
}
