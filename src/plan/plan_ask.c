/* plan_ask.c -- neighbours of a plan, what more of a resource gives, and plans of other worlds. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/plan_report.h"

/* The best layout of a query with one plan; the reason where there is none. */
static ls_status one(const ls_layout_query *asked, ls_layouts *room, ls_neighbour *o)
{
    ls_layout_query q = *asked;
    q.top = 1;
    q.exhaustive = false;
    const ls_status st = ls_layout_search(&q, room);
    if (st == LS_BAD_CONFIG) {
        o->refused = LS_REFUSE_MICRO; /* degrees are legal, and no layout of them */
        for (int i = 1; i < LS_REFUSE_COUNT; i++)
            if (room->refused[i] > 0) o->refused = (ls_refusal)i;
        return LS_OK;
    }
    LS_TRY(st);
    if (room->n == 0) {
        o->too_large = true;
        q.memory = (double)INFINITY, q.objective = LS_LEAST_MEMORY;
        LS_TRY(ls_layout_search(&q, room));
    }
    o->cost = room->best[0];
    return LS_OK;
}

typedef struct asking {
    const ls_layout_query *q;
    ls_layouts *room;
    ls_neighbour *out;
    int *n;
    ls_status st;
} asking;

static void ask(asking *a, const ls_layout_query *q, const char *name, long long value)
{
    if (a->st != LS_OK || *a->n == LS_NEIGHBOURS) return;
    ls_neighbour *o = &a->out[*a->n];
    *o = (ls_neighbour){ 0 };
    if (value >= 0) snprintf(o->change, sizeof o->change, "%s %lld", name, value);
    else snprintf(o->change, sizeof o->change, "%s", name);
    a->st = one(q, a->room, o);
    *a->n += a->st == LS_OK;
}

/* Twice and half of one degree; dp makes up for it, or, where dp is what changes, pp. */
static void degree(asking *a, const ls_layout *l, const char *name, size_t at)
{
    for (int way = 0; way < 2; way++) {
        ls_layout_query q = *a->q;
        q.fixed = (ls_layout){ .t = l->t, .p = l->p, .c = l->c, .e = l->e, .d = l->d };
        int64_t *field = (int64_t *)((char *)&q.fixed + at), *other = &q.fixed.d;
        if (field == other) other = &q.fixed.p;
        if (way == 0) {
            if (*other % 2 != 0 && field != &q.fixed.e) continue;
            *field *= 2;
            if (field != &q.fixed.e) *other /= 2;
        } else {
            if (*field % 2 != 0) continue;
            *field /= 2;
            if (field != &q.fixed.e) *other *= 2;
        }
        if (q.fixed.d % q.fixed.e != 0) q.fixed.e = q.fixed.d;
        ask(a, &q, name, (long long)*field);
    }
}

ls_status ls_neighbours_of(const ls_layout_query *q, const ls_layout_cost *best, ls_neighbour *out, int *n)
{
    const ls_layout *l = &best->layout;
    asking a = { .q = q, .room = malloc(sizeof *a.room), .out = out, .n = n, .st = LS_OK };
    *n = 0;
    if (!a.room) return ls_fail(LS_NO_MEMORY, "plans");
    degree(&a, l, "tp", offsetof(ls_layout, t));
    degree(&a, l, "pp", offsetof(ls_layout, p));
    degree(&a, l, "cp", offsetof(ls_layout, c));
    if (q->model.experts) degree(&a, l, "ep", offsetof(ls_layout, e));
    ls_layout_query same = *q;
    same.fixed = (ls_layout){ .t = l->t, .p = l->p, .c = l->c, .e = l->e, .d = l->d };
    for (int way = 0; way < 2; way++) {
        if (way == 1 && l->micro % 2 != 0) continue;
        ls_layout_query m = same;
        m.fixed.micro = way == 0 ? 2 * l->micro : l->micro / 2;
        ask(&a, &m, "micro-batch", (long long)m.fixed.micro);
    }
    for (int z = 0; z <= 3; z++) {
        ls_layout_query m = same;
        m.zeros = 1u << z;
        if (z != l->zero) ask(&a, &m, "ZeRO", z);
    }
    for (int k = LS_KEEP_ALL; k <= LS_KEEP_INPUTS; k++) {
        ls_layout_query m = same;
        m.kept = 1u << k;
        const bool one_kernel = q->topo->device.name[0] != 'A' && q->topo->device.name[0] != 'V';
        if (k == (int)l->kept || (k == LS_KEEP_SELECTIVE && one_kernel)) continue;
        char name[48];
        snprintf(name, sizeof name, "recompute %s", ls_kept_name((ls_recompute_kind)k));
        ask(&a, &m, name, -1);
    }
    for (int f = LS_PIPE_GPIPE; f <= LS_PIPE_ZB_H2 && l->p > 1; f++) {
        ls_layout_query m = same;
        m.schedules = 1u << f;
        if (f != (int)l->form) ask(&a, &m, ls_pipe_form_name((ls_pipe_form)f), -1);
    }
    free(a.room);
    return a.st;
}

ls_status ls_sensitivity_of(const ls_layout_query *q, const ls_layout_cost *best, ls_sensitivity out[LS_SENSITIVITIES])
{
    static const char *const name[LS_SENSITIVITIES] = {
        [LS_RES_FLOPS] = "peak of products", [LS_RES_MEMORY_RATE] = "memory bandwidth", [LS_RES_LINKS] =
            "bandwidth in nodes",
        [LS_RES_ADAPTERS] = "adapter (NIC) bandwidth", [LS_RES_LATENCY] = "less latency of links",
        [LS_RES_LAUNCH] = "less time to launch", [LS_RES_COUNT] = "memory",
    };
    ls_layouts *room = malloc(sizeof *room);
    ls_status st = room ? LS_OK : ls_fail(LS_NO_MEMORY, "plans");
    for (int i = 0; st == LS_OK && i < LS_SENSITIVITIES; i++) {
        ls_layout_query more = *q;
        ls_layout_cost same;
        more.top = 1, more.exhaustive = false;
        if (i == LS_RES_COUNT) more.memory = 1.1 * (q->memory > 0 ? q->memory : q->topo->device.memory_bytes);
        else more.scale[i] = (q->scale[i] > 0 ? q->scale[i] : 1) * (i == LS_RES_LATENCY || i == LS_RES_LAUNCH ?
            1 / 1.1 : 1.1);
        st = ls_layout_evaluate(&more, &best->layout, &same, NULL);
        if (st == LS_OK) st = ls_layout_search(&more, room);
        if (st != LS_OK) break;
        const bool found = room->n > 0;
        out[i] = (ls_sensitivity){ name[i], same.cost.total, found ? room->best[0].cost.total : same.cost.total,
                                   found && memcmp(&room->best[0].layout, &best->layout, sizeof best->layout) != 0 };
    }
    free(room);
    return st;
}

ls_status ls_by_flops_of(const ls_layout_query *q, ls_by_flops *out)
{
    static const double free_of_cost = 1e9; /* so many times the rate */
    ls_layouts *room = malloc(sizeof *room);
    if (!room) return ls_fail(LS_NO_MEMORY, "plans");
    ls_layout_query only = *q;
    only.top = 1, only.exhaustive = false, only.objective = LS_LEAST_TIME;
    only.scale[LS_RES_LINKS] = only.scale[LS_RES_ADAPTERS] = only.scale[LS_RES_MEMORY_RATE] = free_of_cost;
    only.scale[LS_RES_LATENCY] = only.scale[LS_RES_LAUNCH] = 1 / free_of_cost;
    ls_status st = ls_layout_search(&only, room);
    if (st == LS_OK && room->n == 0) st = ls_fail(LS_BAD_CONFIG, "no layout fits, whatever links cost");
    if (st == LS_OK) {
        out->ranked = room->best[0].cost.total;
        st = ls_layout_evaluate(q, &room->best[0].layout, &out->real, NULL);
    }
    free(room);
    return st;
}

/* 1, 2, 3, 4, 6, 8, 12 ... */
static int64_t next_count(int64_t n) { return n < 2 ? n + 1 : n % 3 == 0 ? n / 3 * 4 : n / 2 * 3; }

ls_status ls_worlds_of(const ls_layout_query *q, ls_world_plan out[LS_WORLDS], int *n)
{
    const int64_t each = q->topo->level[0].count, most = q->world;
    ls_layouts *room = malloc(sizeof *room);
    int64_t largest = 0; /* world without a legal layout */
    ls_status st = room ? LS_OK : ls_fail(LS_NO_MEMORY, "plans");
    *n = 0;
    for (int64_t k = 1; st == LS_OK && k < each && *n < LS_WORLDS; k *= 2) { /* parts of a node */
        ls_layout_query w = *q;
        w.world = k, w.top = 1;
        if (each % k != 0 || k > most) break;
        const ls_status one_st = ls_layout_search(&w, room);
        if (one_st != LS_OK && one_st != LS_BAD_CONFIG) st = one_st;
        if (one_st == LS_BAD_CONFIG) largest = k;
        if (one_st == LS_OK) out[(*n)++] = (ls_world_plan){ k, room->n > 0, room->best[0] };
    }
    for (int64_t k = 1; st == LS_OK && k * each <= most && *n < LS_WORLDS; k = next_count(k)) {
        ls_layout_query w = *q;
        w.world = k * each, w.top = 1;
        const ls_status one_st = ls_layout_search(&w, room);
        if (one_st == LS_BAD_CONFIG) { /* no legal layout of this world */
            largest = w.world;
            continue;
        }
        st = one_st;
        if (st == LS_OK) out[(*n)++] = (ls_world_plan){ w.world, room->n > 0, room->best[0] };
    }
    if (st == LS_OK && *n == 0 && largest > 0) {
        ls_layout_query w = *q;
        w.world = largest, w.top = 1;
        st = ls_layout_search(&w, room); /* for its message */
        if (st < 0) st = ls_while(st, "searching worlds up to %lld ranks, none of which has a legal layout; of the largest",
                                  (long long)most);
    }
    free(room);
    return st;
}

int ls_world_asked(const ls_plan_report *r)
{
    int found = -1;
    double least = (double)INFINITY;
    for (int i = 0; i < r->nworlds; i++) {
        const ls_world_plan *w = &r->worlds[i];
        ls_layout_query q = *r->q;
        q.world = w->world;
        if (!w->fits) continue;
        if (r->want_mfu > 0 && ls_layout_mfu(&q, w->best.cost.total, LS_FLOPS_FULL) < r->want_mfu) continue;
        if (r->want_s > 0 && w->best.cost.total > r->want_s) continue;
        const double value = r->cheapest ? w->best.cost.total * (double)w->world : (double)w->world;
        if (value >= least) continue;
        least = value;
        found = i;
    }
    return found;
}
