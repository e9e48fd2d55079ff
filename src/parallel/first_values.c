/* first_values.c -- initial values of parameters for which a rank has no memory to store all of them. */
#include "parallel/first_values.h"

#include <stdlib.h>
#include <string.h>

#include "parallel/strategy.h"

typedef struct first_values {
    ls_sink sink; /* first: it is the pointer that parameters have */
    ls_group *g;
    ls_group *copies; /* between the first ranks of all sets of shards (ls_ddp_config.copies); NULL: not one of them */
    ls_group *column; /* between the first ranks of all nodes of a set (ls_ddp_config.column); NULL: not one of them */
    bool leads;       /* rank 0 of those that share a copy: writes the values that all of them read */
    ls_arena *arena; /* owned; NULL: no parameter needs room */
    float *room;     /* buffer for the largest parameter */
    bool one_copy;
} first_values;

/* A mirror computes, and no other rank sends it values. If they stayed zero, the first updates would make them tiny,
 * and products of tiny numbers are denormal, with which processors compute several times more slowly. */
static bool is_mirror(const first_values *f)
{
    const ls_world *w = ls_group_world(f->g);
    return ls_world_is_alone(w) && !ls_world_is_dry(w);
}

static bool writes(const first_values *f) { return ls_group_rank(f->g) == 0 || is_mirror(f); }

static ls_status open_one(ls_sink *s, ls_param *p, float **out)
{
    const first_values *f = (const first_values *)(void *)s;
    *out = !writes(f) ? NULL : p->master ? f->room : p->t.data;
    return LS_OK;
}

/* Stores this rank's part of the values in `room`: the rounded copy, and the f32 values of its own rows. */
static void keep(const first_values *f, ls_param *p)
{
    p->t.data = f->room;
    if (!f->one_copy || f->leads || is_mirror(f)) ls_param_round(p);
    p->t.data = NULL;
    memcpy(p->master, f->room + p->own.first, p->own.count * sizeof(float));
}

static ls_status close_one(ls_sink *s, ls_param *p)
{
    const first_values *f = (const first_values *)(void *)s;
    const size_t count = (size_t)ls_tensor_count(&p->t);
    if (p->master) LS_TRY(ls_broadcast(f->g, f->room, count, LS_F32, 0));
    if (!p->master && f->copies) LS_TRY(ls_broadcast(f->copies, p->t.data, count, LS_F32, 0));
    if (!p->master && f->column) LS_TRY(ls_broadcast(f->column, p->t.data, count, LS_F32, 0));
    if (p->master && !ls_world_is_dry(ls_group_world(f->g))) keep(f, p);
    p->settled = true;
    p->sink = NULL;
    return LS_OK;
}

static void destroy(ls_sink *s)
{
    first_values *f = (first_values *)(void *)s;
    ls_arena_destroy(f->arena);
    free(f);
}

static ls_status make_room(first_values *f, const ls_params *ps)
{
    ls_world *w = ls_group_world(f->g);
    size_t most = 0;
    void *p;
    for (int i = 0; i < ps->n; i++)
        if (ps->item[i].master && ls_tensor_nbytes(&ps->item[i].t) > most) most = ls_tensor_nbytes(&ps->item[i].t);
    if (most == 0) return LS_OK;
    LS_TRY(ls_world_is_dry(w) ? ls_arena_create_dry(ls_world_ledger(w), &f->arena)
                              : ls_arena_create(most, false, ls_world_ledger(w), &f->arena));
    LS_TRY(ls_arena_alloc(f->arena, most, LS_MEM_ACT, &p));
    f->room = p;
    return LS_OK;
}

ls_status ls_first_values_create(ls_group *g, ls_params *ps, const ls_ddp_config *c, bool one_copy)
{
    LS_TRY(ls_dp_same_model(g, ps));
    first_values *f = calloc(1, sizeof *f);
    if (!f) return ls_fail(LS_NO_MEMORY, "first values");
    const bool leads_set = ls_group_rank(ls_dp_shards(g, c)) == 0, leads = ls_group_rank(ls_dp_node(g, c)) == 0;
    *f = (first_values){ .sink = { open_one, close_one, destroy }, .g = g, .copies = c && leads_set ? c->copies : NULL,
                         .column = c && leads ? c->column : NULL, .leads = leads, .one_copy = one_copy };
    ls_params_take_sink(ps, &f->sink);
    for (int i = 0; i < ps->n; i++)
        if (ps->item[i].master || one_copy) ps->item[i].sink = &f->sink;
    return make_room(f, ps);
}

ls_status ls_first_values_end(ls_group *g, ls_params *ps)
{
    float *room;
    for (int i = 0; i < ps->n; i++) {
        ls_param *p = &ps->item[i];
        if (!p->sink) continue;
        if (!ls_world_is_dry(ls_group_world(g)))
            return ls_fail(LS_INVALID, "parameter %s has no initial values: call ls_model_init, or load a checkpoint, between "
                           "ls_ddp_bind and ls_ddp_create", p->name);
        LS_TRY(ls_param_open(p, &room));
        LS_TRY(ls_param_close(p));
    }
    ls_params_take_sink(ps, NULL);
    return LS_OK;
}
