/* step_trace.c -- a simulated step as the runtime's own events, for the same viewers. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "lockstep/trace.h"
#include "plan/step_sim.h"

struct ls_step_trace {
    const ls_step_lists *l;
    int n, *rank_of;      /* owned: [n], which ranks */
    int *number;          /* owned: [ranks]: which of them a rank is; -1 */
    ls_blackbox **box;    /* owned, as all here: [n] */
    ls_event **more;
    ls_tracer **tracer;
    uint32_t *seq;        /* [n][groups]: collectives so far */
};

#define GROUPS (4 << LS_AXES) /* masks of axes, each whole or in parts */

static uint64_t ns_of(double s) { return (uint64_t)llround(s * 1e9) + 1; }

ls_status ls_step_trace_create(const ls_step_lists *l, int traced, ls_step_trace **out)
{
    ls_step_trace *t = *out = calloc(1, sizeof *t);
    if (!t) return ls_fail(LS_NO_MEMORY, "a timeline");
    t->l = l;
    t->n = traced < l->ranks ? traced : l->ranks;
    t->n = t->n < LS_STEP_TRACED ? t->n : LS_STEP_TRACED;
    const size_t n = (size_t)t->n;
    t->rank_of = malloc(n * sizeof *t->rank_of);
    t->number = malloc((size_t)l->ranks * sizeof *t->number);
    t->box = calloc(n, sizeof *t->box);
    t->more = calloc(n, sizeof *t->more);
    t->tracer = calloc(n, sizeof *t->tracer);
    t->seq = calloc(n * GROUPS, sizeof *t->seq);
    if (!t->rank_of || !t->number || !t->box || !t->more || !t->tracer || !t->seq)
        return ls_fail(LS_NO_MEMORY, "the timelines of %zu ranks", n);
    for (int r = 0; r < l->ranks; r++) t->number[r] = -1;
    for (int k = 0; k < t->n; k++) {
        t->rank_of[k] = (int)((int64_t)k * l->ranks / t->n);
        t->number[t->rank_of[k]] = k;
        t->box[k] = aligned_alloc(64, sizeof **t->box);
        t->more[k] = aligned_alloc(64, LS_BLACKBOX_MOST * sizeof **t->more);
        if (!t->box[k] || !t->more[k]) return ls_fail(LS_NO_MEMORY, "the timeline of rank %d", t->rank_of[k]);
        LS_TRY(ls_tracer_create(t->box[k], &t->tracer[k]));
        LS_TRY(ls_tracer_set_capacity(t->tracer[k], t->more[k], LS_BLACKBOX_MOST));
        ls_tracer_at(t->tracer[k], 1, 0);
    }
    return LS_OK;
}

static void add(ls_step_trace *t, int k, ls_ev_kind kind, const ls_step_item *i, const char *label, double from,
                double until)
{
    ls_tracer *tr = t->tracer[k];
    ls_event e = { .t0_ns = ns_of(from), .t1_ns = ns_of(until), .kind = (uint8_t)kind, .peer = -1,
                   .backward = i->backward,
                   .label = ls_tracer_label(tr, label), .dtype = LS_F32, .bytes = kind == LS_EV_OP ? 0
                       : (uint64_t)i->bytes };
    if (kind == LS_EV_OP && until > from) e.gflops = (float)(i->flops / (until - from) * 1e-9);
    if (kind == LS_EV_COLL) {
        char axes[32];
        const ls_step_span *of = &i->span;
        const uint32_t group = of->axes | (of->ends ? 3u : of->sets < 2 ? 0u : of->across ? 2u : 1u) << LS_AXES;
        e.group = (uint16_t)group;
        e.seq = ++t->seq[(size_t)k * GROUPS + group];
        e.group_name = ls_tracer_label(tr, ls_step_span_text(t->l->size, of, axes, sizeof axes));
        e.coll = (uint8_t)ls_tracer_label(tr, ls_coll_name(i->coll));
    }
    ls_tracer_add(tr, &e);
}

void ls_step_trace_add(ls_step_trace *t, int rank, const ls_step_item *i, const ls_des_span *s)
{
    const int k = t->number[rank];
    if (k < 0) return;
    switch (i->kind) {
    case LS_ITEM_WORK: add(t, k, i->part == LS_PART_OPTIMIZER ? LS_EV_OPTIM : LS_EV_OP, i, i->label, s->from_s,
                           s->until_s); break;
    case LS_ITEM_COLL:
    case LS_ITEM_BEGIN:
        if (i->kind == LS_ITEM_COLL && s->ready_s > s->from_s)
            add(t, k, LS_EV_WAIT, i, "wait for the others", s->from_s, s->ready_s);
        add(t, k, LS_EV_COLL, i, i->label, s->ready_s, s->until_s);
        break;
    case LS_ITEM_WAIT:
    case LS_ITEM_RECV:
        if (s->ready_s > s->from_s) add(t, k, LS_EV_WAIT, i, i->label, s->from_s, s->ready_s);
        break;
    case LS_ITEM_SEND: add(t, k, LS_EV_SEND, i, i->label, s->from_s, s->until_s); break;
    }
}

/* Boxes by number of the rank; those that are not traced are left out. */
ls_status ls_step_trace_write(const ls_step_trace *t, const char *path)
{
    ls_trace_box *all = calloc((size_t)t->l->ranks, sizeof *all);
    if (!all) return ls_fail(LS_NO_MEMORY, "the timelines of %d ranks", t->l->ranks);
    for (int k = 0; k < t->n; k++) all[t->rank_of[k]] = (ls_trace_box){ t->box[k], t->more[k] };
    const ls_status st = ls_trace_export(all, t->l->ranks, 0, UINT32_MAX, path);
    free(all);
    return st;
}

void ls_step_trace_free(ls_step_trace *t)
{
    if (!t) return;
    for (int k = 0; t->box && t->more && t->tracer && k < t->n; k++) {
        ls_tracer_destroy(t->tracer[k]);
        free(t->box[k]);
        free(t->more[k]);
    }
    free(t->rank_of);
    free(t->number);
    free(t->box);
    free(t->more);
    free(t->tracer);
    free(t->seq);
    free(t);
}
