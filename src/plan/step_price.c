/* step_price.c -- the groups of a mesh, and the time of a collective that every group calls at once. */
#include "plan/step_price.h"

#include <math.h>
#include <stdlib.h>

#include "coll/program.h"

#define MOST_MESSAGES (1u << 20) /* of a candidate; those with more are left out where another one has a price */
#define MOST_SEGMENTS 64

/* --- groups ----------------------------------------------------------------------------------------------- */

/* Ranks along the axes of a group: its members, or more. */
static int ranks_along(const ls_mesh_groups *g)
{
    int place, n;
    ls_mesh_place(g->size, g->order, 0, g->span.axes, &place, &n);
    return n;
}

int ls_mesh_groups_members(const ls_mesh_groups *g)
{
    const int all = ranks_along(g);
    if (g->span.ends) return 2;
    return g->span.sets < 2 ? all : g->span.across ? g->span.sets : all / g->span.sets;
}

/* Where the member at a place of a group is among all ranks along its axes, of which `at` is one member's place. */
static int place_along(const ls_mesh_groups *g, int at, int place)
{
    const int all = ranks_along(g), each = g->span.sets > 1 ? all / g->span.sets : all;
    if (g->span.ends) return place ? all - 1 : 0;
    if (g->span.sets > 1 && g->span.across) return at % each + place * each;
    return at / each * each + place;
}

int ls_mesh_groups_at(const ls_mesh_groups *g, int rank, int place)
{
    int at, all;
    ls_mesh_place(g->size, g->order, rank, g->span.axes, &at, &all);
    return ls_mesh_at(g->size, g->order, rank, g->span.axes, place_along(g, at, place));
}

bool ls_mesh_groups_of(const ls_mesh_groups *g, int rank, int *first, int *place)
{
    int at, all;
    ls_mesh_place(g->size, g->order, rank, g->span.axes, &at, &all);
    if (g->span.ends && at != 0 && at != all - 1) return false;
    const int each = g->span.sets > 1 ? all / g->span.sets : all;
    *first = ls_mesh_groups_at(g, rank, 0);
    *place = g->span.ends ? at > 0 : g->span.sets > 1 && g->span.across ? at / each : at % each;
    return true;
}

/* --- all groups at once ---------------------------------------------------------------------------------- */

typedef struct callers {
    const ls_topo *t;
    int n;             /* ranks that are in groups */
    int members, level;
    uint32_t *place;   /* owned, as all here: [n]: devices, */
    uint32_t *base;    /* the process of a group's first member, */
    int *member;       /* and which member each is; processes of a group follow one another */
    int *node;         /* [members]: of the first group */
} callers;

static void callers_free(callers *c)
{
    free(c->place);
    free(c->base);
    free(c->member);
    free(c->node);
}

static ls_status callers_create(const ls_topo *t, const ls_mesh_groups *g, callers *out)
{
    const size_t all = (size_t)g->ranks, k = (size_t)ls_mesh_groups_members(g);
    *out = (callers){ .t = t, .members = (int)k };
    out->place = malloc(all * sizeof *out->place);
    out->base = malloc(all * sizeof *out->base);
    out->member = malloc(all * sizeof *out->member);
    out->node = malloc(k * sizeof *out->node);
    if (!out->place || !out->base || !out->member || !out->node)
        return ls_fail(LS_NO_MEMORY, "%zu ranks", all);
    int first, at;
    for (int r = 0; r < g->ranks; r++) {
        if (!ls_mesh_groups_of(g, r, &first, &at) || at != 0) continue;
        for (int m = 0; m < out->members; m++) {
            const int member = ls_mesh_groups_at(g, r, m), meet = ls_topo_meet(t, r, member);
            out->level = meet > out->level ? meet : out->level;
            out->place[out->n + m] = (uint32_t)member;
            out->base[out->n + m] = (uint32_t)out->n;
            out->member[out->n + m] = m;
        }
        out->n += out->members;
    }
    const int64_t each = ls_topo_unit_devices(t, t->nlevels > 1 ? 1 : 0);
    int nodes = 0;
    for (int m = 0; m < out->members; m++) { /* numbered by first appearance */
        int like = 0;
        while (like < m && out->place[like] / (uint64_t)each != out->place[m] / (uint64_t)each) like++;
        out->node[m] = like < m ? out->node[like] : nodes++;
    }
    return LS_OK;
}

static ls_status run(const callers *c, const ls_coll_program *p, ls_step_price *out)
{
    ls_des_model m;
    ls_des_result r = { 0 };
    const ls_des_op **program = malloc((size_t)c->n * sizeof *program);
    if (!program) return ls_fail(LS_NO_MEMORY, "%d ranks", c->n);
    for (int i = 0; i < c->n; i++) program[i] = p->program[c->member[i]];
    ls_coll_program_model(p, &m);
    m.n = (uint32_t)c->n;
    m.program = program;
    m.base = c->base; /* a multiple of the members: flipped bits stay in the group, too */
    m.place = c->place;
    m.net = (ls_des_net){ .topo = c->t, .gap = 1, .sharing = LS_DES_FIFO };
    const ls_status st = ls_des_run(&m, &r);
    if (st == LS_OK && r.end_s < out->seconds) *out = (ls_step_price){ r.end_s, out->algo, r.messages, c->level };
    free(program);
    return st;
}

/* An algorithm in 1, 4, 16 ... segments, as long as that helps. */
static ls_status consider(const callers *c, const ls_algo *a, ls_coll coll, double bytes, ls_step_price *best)
{
    for (int segments = 1; segments <= (a->pipelined ? MOST_SEGMENTS : 1); segments *= 4) {
        const ls_shape any = { .coll = coll, .size = c->members, .segments = segments, .nlanes = 1, .node = c->node };
        ls_step_price mine = { .seconds = (double)INFINITY, .algo = a->name };
        ls_coll_program p;
        if (!(a->colls >> coll & 1u) || a->mapped || (a->fits && !a->fits(&any))) return LS_OK;
        ls_status st = ls_coll_program_create(a, &any, (size_t)bytes, 0, &p);
        if (st == LS_UNSUPPORTED || st == LS_INVALID) return LS_OK; /* too many ranks for it */
        LS_TRY(st);
        const bool affordable = p.messages * (uint64_t)(c->n / c->members) <= MOST_MESSAGES || !isfinite(best->seconds);
        if (affordable) st = run(c, &p, &mine);
        ls_coll_program_free(&p);
        LS_TRY(st);
        if (!(mine.seconds < best->seconds)) return LS_OK;
        *best = mine;
    }
    return LS_OK;
}

ls_status ls_step_price_of(const ls_topo *t, const ls_mesh_groups *g, ls_coll coll, double bytes, const ls_algo *only,
                           ls_step_price *out)
{
    callers c;
    *out = (ls_step_price){ .seconds = (double)INFINITY };
    ls_status st = callers_create(t, g, &c);
    for (int i = 0; st == LS_OK && ls_algos[i]; i++)
        if (only ? ls_algos[i] == only : !ls_algos[i]->by_name) st = consider(&c, ls_algos[i], coll, bytes, out);
    callers_free(&c);
    if (st == LS_OK && !isfinite(out->seconds))
        st = ls_fail(LS_UNSUPPORTED, "%s: no algorithm%s%s sends messages for it", ls_coll_name(coll), only
                     ? " by the name of " : "", only ? only->name : "");
    return st;
}
