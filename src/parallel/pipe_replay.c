/* pipe_replay.c -- when each action of a pipeline schedule begins and ends. */
#include "parallel/pipe_replay.h"

#include <math.h>
#include <stdlib.h>

/* When what a stage gives arrives: of micro-batch i at i; one row per stage and direction, -1 until it is known. */
typedef struct state {
    const ls_pipe_program *g;
    const ls_pipe_times *t;
    ls_pipe_replay *out;
    double *arrives; /* owned, [2, S, m] */
    int *at;         /* owned, [p]: actions that are known */
    double *free;    /* owned, [p]: when the rank's last known action ends */
} state;

static double time_of(const ls_pipe_times *t, const ls_pipe_action *a)
{
    switch (a->what) {
    case LS_PIPE_FORWARD: return t->forward[a->stage];
    case LS_PIPE_BACKWARD: return t->input[a->stage] + t->weight[a->stage];
    case LS_PIPE_BACKWARD_INPUT: return t->input[a->stage];
    default: return t->weight[a->stage];
    }
}

/* Where the arrival of what `stage` gets forward or backward is; NULL: it gets nothing. */
static double *arrival(const state *s, bool forward, int stage, int micro_batch)
{
    const int stages = s->g->shape.ranks * s->g->shape.chunks;
    if (stage < 0 || stage >= stages || (forward ? stage == 0 : stage == stages - 1)) return NULL;
    const size_t row = (size_t)(forward ? 0 : stages) + (size_t)stage;
    return &s->arrives[row * (size_t)s->g->shape.micro_batches + (size_t)micro_batch];
}

/* The next action of the rank; false: what it needs is not known yet, or there is none. */
static bool next(state *s, int rank)
{
    const ls_pipe_list *l = &s->g->list[rank];
    if (s->at[rank] == l->n) return false;
    const ls_pipe_action *a = &l->action[s->at[rank]];
    const bool forward = a->what == LS_PIPE_FORWARD, moves = a->what != LS_PIPE_BACKWARD_WEIGHT;
    const double *needs = moves ? arrival(s, forward, a->stage, a->micro_batch) : NULL;
    if (needs && *needs < 0.0) return false;
    const double begins = needs && *needs > s->free[rank] ? *needs : s->free[rank], ends = begins + time_of(s->t, a);
    const int to = forward ? a->stage + 1 : a->stage - 1;
    double *gives = moves ? arrival(s, forward, to, a->micro_batch) : NULL;
    const bool local = gives && ls_pipe_place_rank(s->g->placement, s->g->shape.ranks, to) == rank;
    if (gives) *gives = ends + (local ? 0.0 : s->t->transfer);
    s->out->action[rank][s->at[rank]++] = (ls_pipe_span){ begins, ends };
    s->out->busy[rank] += ends - begins;
    s->free[rank] = ends;
    return true;
}

static void replay(state *s)
{
    const ls_pipe_program *g = s->g;
    ls_pipe_replay *out = s->out;
    const size_t arrivals = 2 * (size_t)g->shape.ranks * (size_t)g->shape.chunks * (size_t)g->shape.micro_batches;
    for (size_t i = 0; i < arrivals; i++) s->arrives[i] = -1.0;
    for (bool any = true; any;) {
        any = false;
        for (int r = 0; r < g->shape.ranks; r++)
            while (next(s, r)) any = true;
    }
    for (int r = 0; r < g->shape.ranks; r++) {
        out->rank[r] = (ls_pipe_span){ out->action[r][0].begins, out->action[r][g->list[r].n - 1].ends };
        out->step = fmax(out->step, out->rank[r].ends);
        out->span = fmax(out->span, out->rank[r].ends - out->rank[r].begins);
    }
}

static ls_status check(const ls_pipe_program *g, const ls_pipe_times *t)
{
    if (!isfinite(t->transfer) || t->transfer < 0.0) return ls_fail(LS_INVALID, "a transfer of %g s: expected 0 or more", t->transfer);
    for (int i = 0; i < g->shape.ranks * g->shape.chunks; i++) {
        const double time[] = { t->forward[i], t->input[i], t->weight[i] };
        for (int k = 0; k < 3; k++)
            if (!isfinite(time[k]) || time[k] < 0.0) return ls_fail(LS_INVALID, "stage %d takes %g s: expected 0 or more", i, time[k]);
    }
    return LS_OK;
}

static ls_status allocate(const ls_pipe_program *g, ls_pipe_replay *out)
{
    const size_t p = (size_t)g->shape.ranks;
    out->ranks = g->shape.ranks;
    out->action = calloc(p, sizeof *out->action);
    out->rank = calloc(p, sizeof *out->rank);
    out->busy = calloc(p, sizeof *out->busy);
    if (!out->action || !out->rank || !out->busy) return ls_fail(LS_NO_MEMORY, "the times of %zu ranks", p);
    for (size_t r = 0; r < p; r++)
        if (!(out->action[r] = calloc((size_t)g->list[r].n, sizeof *out->action[r])))
            return ls_fail(LS_NO_MEMORY, "the times of %d actions", g->list[r].n);
    return LS_OK;
}

ls_status ls_pipe_replay_create(const ls_pipe_program *g, const ls_pipe_times *t, ls_pipe_replay *out)
{
    const size_t p = (size_t)g->shape.ranks, m = (size_t)g->shape.micro_batches;
    state s = { .g = g, .t = t, .out = out };
    *out = (ls_pipe_replay){ 0 };
    LS_TRY(check(g, t));
    ls_status st = allocate(g, out);
    s.arrives = malloc(2 * p * (size_t)g->shape.chunks * m * sizeof *s.arrives);
    s.at = calloc(p, sizeof *s.at);
    s.free = calloc(p, sizeof *s.free);
    if (st == LS_OK && (!s.arrives || !s.at || !s.free))
        st = ls_fail(LS_NO_MEMORY, "the times of %zu micro-batches", m);
    if (st == LS_OK) replay(&s);
    free(s.arrives);
    free(s.at);
    free(s.free);
    if (st < 0) ls_pipe_replay_free(out);
    return st;
}

void ls_pipe_replay_free(ls_pipe_replay *r)
{
    for (int i = 0; r->action && i < r->ranks; i++) free(r->action[i]);
    free(r->action);
    free(r->rank);
    free(r->busy);
    *r = (ls_pipe_replay){ 0 };
}

double ls_pipe_bubble(const ls_pipe_replay *r)
{
    double busy = 0.0;
    for (int i = 0; i < r->ranks; i++) busy += r->busy[i];
    return r->step > 0.0 ? 1.0 - busy / (r->ranks * r->step) : 0.0;
}

void ls_pipe_phases_of(const ls_pipe_program *g, const ls_pipe_replay *r, int rank, ls_pipe_phases *out)
{
    const ls_pipe_list *l = &g->list[rank];
    *out = (ls_pipe_phases){ .steady_begins = r->step };
    for (int i = l->n - 1; i >= 0; i--)
        if (l->action[i].what != LS_PIPE_FORWARD) out->steady_begins = r->action[rank][i].begins;
    for (int i = 0; i < l->n; i++)
        if (l->action[i].what == LS_PIPE_FORWARD) out->cool_down_begins = r->action[rank][i].ends;
    out->cool_down_begins = fmax(out->cool_down_begins, out->steady_begins);
    for (int i = 0; i < l->n; i++) {
        const ls_pipe_span *a = &r->action[rank][i];
        double *in = a->begins < out->steady_begins      ? &out->warm_up
                     : a->begins < out->cool_down_begins ? &out->steady
                                                         : &out->cool_down;
        *in += a->ends - a->begins;
    }
    out->idle = r->step - r->busy[rank];
}
