/* unit.c -- the list of a model's units, and the one loop over them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lockstep/unit.h"

/* --- describing a model ------------------------------------------------------------------ */

#define LEFT (-1) /* a position for ls_units_add_last */

static ls_unit *newest(const ls_units *us) { return us->n ? &us->item[us->n - 1] : NULL; }

/* Whether the newest unit has all that its forward reads. */
static ls_status check_newest(const ls_units *us)
{
    const ls_unit *u = newest(us);
    if (!u || u->npositions == u->cls->nparams) return LS_OK;
    return ls_fail(LS_INVALID, "unit '%s' has %d parameter%s, but its forward reads %d: add the others, or correct nparams",
                   u->name, u->npositions, u->npositions == 1 ? "" : "s", u->cls->nparams);
}

ls_status ls_units_begin(ls_units *us, const char *name, int number, const ls_unit_class *cls, const void *arg)
{
    LS_TRY(check_newest(us));
    if (!name || !*name || strlen(name) >= LS_UNIT_NAME)
        return ls_fail(LS_INVALID, "unit name '%s': expected 1 to %d bytes", name ? name : "", LS_UNIT_NAME - 1);
    if (strcmp(name, LS_UNIT_ROOT) == 0)
        return ls_fail(LS_INVALID, "the unit name '%s' is reserved for parameters that several units use: choose another name", LS_UNIT_ROOT);
    for (int i = 0; i < us->n; i++)
        if (strcmp(us->item[i].name, name) == 0) return ls_fail(LS_INVALID, "two units are called '%s'", name);
    if (us->n == us->cap) {
        const int cap = us->cap ? 2 * us->cap : 8;
        ls_unit *more = realloc(us->item, (size_t)cap * sizeof *more);
        if (!more) return ls_fail(LS_NO_MEMORY, "list of %d units", cap);
        us->item = more;
        us->cap = cap;
    }
    int *position = cls->nparams > 0 ? calloc((size_t)cls->nparams, sizeof *position) : NULL;
    if (cls->nparams > 0 && !position) return ls_fail(LS_NO_MEMORY, "unit '%s'", name);
    const ls_unit *before = newest(us);
    const int first = before ? before->first + before->nparams : us->nroot;
    ls_unit *u = &us->item[us->n++];
    *u = (ls_unit){ .number = number, .first = first, .position = position, .cls = cls, .arg = arg };
    snprintf(u->name, sizeof u->name, "%s", name);
    return LS_OK;
}

/* Gives parameter `index` the unit's next position. */
static ls_status place(ls_unit *u, int index, const char *name)
{
    if (u->npositions == u->cls->nparams)
        return ls_fail(LS_INVALID, "unit '%s': parameter '%s' is one more than the %d that its forward reads", u->name, name,
                       u->cls->nparams);
    u->position[u->npositions++] = index;
    return LS_OK;
}

ls_status ls_units_add(ls_units *us, ls_params *ps, const char *name, int ndim, const int64_t *dim)
{
    ls_unit *u = newest(us);
    const int index = ps->n;
    if (index != (u ? u->first + u->nparams : us->nroot))
        return ls_fail(LS_INVALID, "unit '%s': parameter '%s' follows %d parameters, of which the units know %d", u ? u->name : LS_UNIT_ROOT,
                       name, index, u ? u->first + u->nparams : us->nroot);
    const ls_status st = ls_params_add(ps, name, ndim, dim);
    if (st < 0) return ls_while(st, "registering the parameters of unit '%s'", u ? u->name : LS_UNIT_ROOT);
    if (!u) {
        us->nroot++;
        return LS_OK;
    }
    u->nparams++;
    ps->item[index].unit = us->n - 1;
    return place(u, index, name);
}

ls_status ls_units_leave(ls_units *us)
{
    ls_unit *u = newest(us);
    if (!u) return ls_fail(LS_INVALID, "a position is to be left in a unit, and there is none yet");
    return place(u, LEFT, "one that comes last");
}

ls_status ls_units_skip(ls_units *us)
{
    ls_unit *u = newest(us);
    if (!u) return ls_fail(LS_INVALID, "a position is to be skipped in a unit, and there is none yet");
    return place(u, LS_UNIT_SKIPPED, "one that is not read");
}

ls_status ls_units_add_last(ls_units *us, ls_params *ps, int unit, int position, const char *name, int ndim,
                            const int64_t *dim)
{
    if (unit < 0 || unit >= us->n || position < 0 || position >= us->item[unit].npositions ||
        us->item[unit].position[position] != LEFT)
        return ls_fail(LS_INVALID, "parameter '%s': unit %d has left no position %d", name, unit, position);
    ls_unit *u = &us->item[unit];
    if (u->nlast > 0 && u->first_last + u->nlast != ps->n)
        return ls_fail(LS_INVALID, "parameter '%s': other parameters came after those of unit '%s'", name, u->name);
    const ls_status st = ls_params_add(ps, name, ndim, dim);
    if (st < 0) return ls_while(st, "registering the last parameters of unit '%s'", u->name);
    if (u->nlast++ == 0) u->first_last = ps->n - 1;
    u->position[position] = ps->n - 1;
    ps->item[ps->n - 1].unit = unit;
    return LS_OK;
}

/* Parameters that units know. */
static int known_to(const ls_units *us)
{
    int n = us->nroot;
    for (int i = 0; i < us->n; i++) n += us->item[i].nparams + us->item[i].nlast;
    return n;
}

ls_status ls_units_share(ls_units *us, const ls_params *ps, const char *name)
{
    ls_unit *u = newest(us);
    if (!u) return ls_fail(LS_INVALID, "parameter '%s' is to be shared by a unit, and there is none yet", name);
    for (int i = 0; i < us->nroot; i++)
        if (strcmp(ps->item[i].name, name) == 0) return place(u, i, name);
    return ls_fail(LS_INVALID, "unit '%s' shares parameter '%s', which is not the root's: add it before the first unit", u->name,
                   name);
}

ls_status ls_units_end(const ls_units *us, const ls_params *ps)
{
    const ls_unit *u = newest(us);
    if (!u) return ls_fail(LS_INVALID, "a model of %d parameters has no unit", ps->n);
    LS_TRY(check_newest(us));
    for (int i = 0; i < us->n; i++)
        for (int k = 0; k < us->item[i].npositions; k++)
            if (us->item[i].position[k] == LEFT)
                return ls_fail(LS_INVALID, "unit '%s' has left position %d, and no parameter came last for it", us->item[i].name, k);
    const int known = known_to(us);
    if (known == ps->n) return LS_OK;
    return ls_fail(LS_INVALID, "parameter '%s' belongs to no unit: add it by ls_units_add", ps->item[known].name);
}

void ls_units_free(ls_units *us)
{
    for (int i = 0; i < us->n; i++) free(us->item[i].position);
    free(us->item);
    *us = (ls_units){ 0 };
}

/* --- a part of a model ------------------------------------------------------------------------- */

/* Which parameter of the whole model goes where. */
typedef struct keeping {
    const ls_params *from;
    ls_params to, rest; /* here, and elsewhere */
    ls_param **whole;
    int *index;         /* [from->n] in `to`; -1: elsewhere */
} keeping;

static void take(keeping *k, int i)
{
    if (k->index[i] >= 0) return;
    k->index[i] = k->to.n;
    k->to.item[k->to.n++] = k->from->item[i];
}

/* Of a stage's units: what they read of the root, and then what each has for itself. */
static void take_stage(keeping *k, const ls_units *us, ls_stage_part *s)
{
    const ls_unit *first = us->item + s->units.first, *end = first + s->units.count;
    s->params.first = (size_t)k->to.n;
    for (const ls_unit *u = first; u < end; u++)
        for (int i = 0; i < u->npositions; i++)
            if (u->position[i] >= 0 && u->position[i] < us->nroot) take(k, u->position[i]);
    for (const ls_unit *u = first; u < end; u++)
        for (int i = u->first; i < u->first + u->nparams; i++) take(k, i);
    s->params.count = (size_t)k->to.n - s->params.first;
}

/* And what comes after all units. */
static void take_last(keeping *k, const ls_units *us, ls_stage_part *s)
{
    const ls_unit *first = us->item + s->units.first, *end = first + s->units.count;
    s->experts.first = (size_t)k->to.n;
    for (const ls_unit *u = first; u < end; u++)
        for (int i = u->first_last; i < u->first_last + u->nlast; i++) take(k, i);
    s->experts.count = (size_t)k->to.n - s->experts.first;
}

static void take_rest(keeping *k)
{
    for (int i = 0; i < k->from->n; i++) {
        if (k->index[i] < 0) {
            ls_param *p = &k->rest.item[k->rest.n++];
            *p = k->from->item[i];
            p->elsewhere = true;
            p->own = p->keeps = (ls_range){ 0, 0 };
            k->whole[i] = p;
        } else {
            k->whole[i] = &k->to.item[k->index[i]];
        }
        k->whole[i]->t.name = k->whole[i]->name;
    }
}

/* Where the unit's parameters are now. */
static void point_unit(const keeping *k, ls_unit *u, bool here)
{
    u->elsewhere = !here;
    if (!here) {
        u->nparams = u->nlast = 0;
        return;
    }
    if (u->nparams > 0) u->first = k->index[u->first];
    if (u->nlast > 0) u->first_last = k->index[u->first_last];
    for (int i = 0; i < u->npositions; i++)
        if (u->position[i] >= 0) u->position[i] = k->index[u->position[i]];
}

static bool is_here(const ls_stage_part *stage, int n, int unit)
{
    for (int s = 0; s < n; s++)
        if ((size_t)unit >= stage[s].units.first && (size_t)unit < stage[s].units.first + stage[s].units.count)
            return true;
    return false;
}

ls_status ls_units_keep(ls_units *us, ls_params *ps, ls_stage_part *stage, int n)
{
    const size_t most = (size_t)ps->n;
    keeping k = { .from = ps, .whole = calloc(most + 1, sizeof *k.whole), .index = calloc(most + 1, sizeof *k.index) };
    k.to.item = calloc(most + 1, sizeof *k.to.item);
    k.rest.item = calloc(most + 1, sizeof *k.rest.item);
    k.to.elsewhere = calloc(1, sizeof *k.to.elsewhere);
    if (!k.whole || !k.index || !k.to.item || !k.rest.item || !k.to.elsewhere) {
        free(k.whole);
        free(k.index);
        free(k.to.item);
        free(k.rest.item);
        free(k.to.elsewhere);
        return ls_fail(LS_NO_MEMORY, "a stage of a model of %d parameters", ps->n);
    }
    for (size_t i = 0; i < most; i++) k.index[i] = -1;
    for (int s = 0; s < n; s++) take_stage(&k, us, &stage[s]);
    const int dense = k.to.n;
    for (int s = 0; s < n; s++) take_last(&k, us, &stage[s]);
    take_rest(&k);
    k.to.experts = k.to.n > dense ? dense : 0;
    k.to.cap = k.rest.cap = (int)most + 1;
    for (int i = 0; i < us->n; i++) point_unit(&k, &us->item[i], is_here(stage, n, i));
    free(k.index);
    *k.to.elsewhere = k.rest;
    k.to.whole = k.whole;
    free(ps->item);
    *ps = k.to;
    return LS_OK;
}

/* --- computing --------------------------------------------------------------------------- */

/* What a block is computed from: the tape keeps a copy of it until backward is over. */
typedef struct call {
    const ls_unit *u;
    ls_pass pass;
} call;

static ls_tensor *compute(ls_tape *t, ls_tensor *x, const void *arg)
{
    const call *c = arg;
    return c->u->cls->forward(c->u, t, x, &c->pass);
}

ls_tensor *ls_units_forward(const ls_units *us, int first, int count, ls_tape *t, ls_tensor *x, const ls_pass *pass)
{
    for (const ls_unit *u = us->item + first; count-- > 0; u++) {
        const call c = { .u = u, .pass = *pass };
        ls_tape_unit_begin(t, u);
        x = u->cls->recompute ? ls_block(t, x, compute, &c, sizeof c) : compute(t, x, &c);
        ls_tape_unit_end(t);
    }
    return x;
}
