/* traffic.c -- the reader of schedules that counts bytes. */
#include "coll/traffic.h"

#include <stdlib.h>

#include "coll/layout.h"
#include "coll/sim.h"

/* Bytes of an element on its way between this rank and a peer. */
static size_t travels(const ls_rank_set *narrow, int peer, size_t elem)
{
    return narrow && ls_rank_set_has(narrow, peer) ? 2 : elem;
}

static void count_step(const ls_layout *l, const ls_step *s, const ls_shape *shape, size_t elem,
                       const ls_rank_set *narrow, ls_traffic *t)
{
    switch (s->kind) {
    case LS_STEP_SEND:
        t->written += ls_layout_count(l, s->src) * travels(narrow, s->peer, elem);
        t->flags++;
        break;
    case LS_STEP_RECV: t->read += ls_layout_count(l, s->dst) * travels(narrow, s->peer, elem); break;
    case LS_STEP_RECV_REDUCE:
        t->read += ls_layout_count(l, s->dst) * travels(narrow, s->peer, elem);
        t->added += ls_layout_count(l, s->dst) * elem;
        break;
    case LS_STEP_SUM:
        for (int p = 0; p < shape->size; p++)
            if (p != shape->rank) t->read += ls_layout_count(l, s->dst) * travels(narrow, p, elem);
        t->added += ((uint64_t)shape->size - 1) * ls_layout_count(l, s->dst) * elem;
        break;
    case LS_STEP_REDUCE: t->added += ls_layout_count(l, s->dst) * elem; break;
    case LS_STEP_COPY:
    case LS_STEP_FOLD: break;
    }
}

ls_status ls_sched_traffic(const ls_sched *s, size_t count, const size_t *counts, const size_t *in, size_t elem,
                           const ls_rank_set *narrow, ls_traffic *out)
{
    ls_layout l;
    *out = (ls_traffic){ 0 };
    LS_TRY(ls_layout_create(s, &l));
    if (!counts && s->cut) {
        size_t *share = calloc((size_t)s->shape.size, sizeof *share);
        if (!share) {
            ls_layout_free(&l);
            return ls_fail(LS_NO_MEMORY, "shares of %d ranks", s->shape.size);
        }
        s->cut(count, elem, s->shape.size, share);
        ls_layout_set_counts(&l, share, NULL);
        free(share);
    } else if (counts) {
        ls_layout_set_counts(&l, counts, in);
    } else {
        ls_layout_set(&l, count);
    }
    for (int lane = 0; lane < s->shape.nlanes; lane++)
        for (uint32_t i = 0; i < s->lane[lane].n; i++)
            count_step(&l, &s->lane[lane].step[i], &s->shape, elem, narrow, out);
    ls_layout_free(&l);
    return LS_OK;
}

double ls_traffic_ns(const ls_cost *c, const ls_traffic *t)
{
    const ls_link_cost *l = &c->link[LS_LEVEL_MEMORY];
    const uint64_t moved = t->read + t->written, added = t->added < moved ? t->added : moved;
    return t->rounds * l->alpha_ns + (double)(moved - added + t->copied) * l->beta_ns + (double)added * c->gamma_ns;
}

ls_status ls_sched_rounds(const ls_algo *algo, const ls_shape *shape, int *out)
{
    static const ls_cost a_round = { .link = { { .alpha_ns = 1 }, { .alpha_ns = 1 }, { .alpha_ns = 1 } } };
    const ls_machine m = { .cost = &a_round, .memory = true };
    const size_t n = (size_t)shape->size;
    double rounds = 0;
    ls_status st = LS_OK;
    ls_sched *s = calloc(n, sizeof *s);
    const ls_sched **all = calloc(n, sizeof *all);
    if (!s || !all) st = ls_fail(LS_NO_MEMORY, "counting the rounds of %s over %d ranks", algo->name, shape->size);
    for (int r = 0; st == LS_OK && r < shape->size; r++) {
        ls_shape of_r = *shape;
        of_r.rank = r;
        st = ls_sched_emit(algo, &of_r, &s[r]);
        all[r] = &s[r];
    }
    if (st == LS_OK) st = ls_sched_time(&m, all, shape->size, 1, &rounds);
    for (int r = 0; s && r < shape->size; r++) ls_sched_free(&s[r]);
    free(s);
    free(all);
    *out = (int)(rounds + 0.5);
    return st;
}
