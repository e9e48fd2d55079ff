/* step_price.c -- the groups of a mesh, and the time of a collective that every group calls at once. */
#include "plan/step_price.h"

#include <math.h>
#include <stdlib.h>

#include "coll/program.h"

#define MOST_MESSAGES (1u << 20) /* of a candidate; those with more are left out where another one has a price */
#define MOST_SEGMENTS 64

/* --- groups ----------------------------------------------------------------------------------------------- */

static bool spans(const ls_mesh_groups *g, int axis) { return (g->axes >> axis & 1u) != 0; }

int ls_mesh_groups_members(const ls_mesh_groups *g)
{
    int n = 1;
    for (int a = 0; a < LS_AXES; a++) n *= !spans(g, a) ? 1 : g->ends && a == LS_AXIS_PP ? 2 : g->size[a];
    return n;
}

bool ls_mesh_groups_of(const ls_mesh_groups *g, int rank, int *first, int *place)
{
    int coord[LS_AXES], stride = 1, all = 1, at = 0;
    ls_mesh_coord(g->size, NULL, rank, coord);
    *first = rank;
    for (int a = LS_AXES - 1; a >= 0; all *= g->size[a--]) {
        if (!spans(g, a)) continue;
        const bool ends = g->ends && a == LS_AXIS_PP;
        if (ends && coord[a] != 0 && coord[a] != g->size[a] - 1) return false;
        at += (ends ? coord[a] > 0 : coord[a]) * stride;
        stride *= ends ? 2 : g->size[a];
        *first -= coord[a] * all;
    }
    *place = at;
    return true;
}

/* --- all groups at once ---------------------------------------------------------------------------------- */

typedef struct callers {
    const ls_topo *t;
    int n;             /* ranks that are in groups */
    int members;
    uint32_t *offset;  /* owned, as all here: [members]: from the first member's rank to each one's */
    uint32_t *place;   /* [n]: devices, */
    uint32_t *base;    /* the process of a group's first member, */
    int *member;       /* and which member each is; processes of a group follow one another */
    int *node;         /* [members]: of the first group */
} callers;

static void callers_free(callers *c)
{
    free(c->offset);
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
    out->offset = malloc(k * sizeof *out->offset);
    out->node = malloc(k * sizeof *out->node);
    if (!out->place || !out->base || !out->member || !out->offset || !out->node)
        return ls_fail(LS_NO_MEMORY, "%zu ranks", all);
    int first, at;
    for (int r = 0; r < g->ranks; r++)
        if (ls_mesh_groups_of(g, r, &first, &at) && first == 0) out->offset[at] = (uint32_t)r;
    for (int r = 0; r < g->ranks; r++) {
        if (!ls_mesh_groups_of(g, r, &first, &at) || at != 0) continue;
        for (int m = 0; m < out->members; m++) {
            out->place[out->n + m] = (uint32_t)r + out->offset[m];
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
    if (st == LS_OK && r.end_s < out->seconds) *out = (ls_step_price){ r.end_s, out->algo, r.messages };
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
