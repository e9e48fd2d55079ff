/* pipe_cut.c -- where a model is cut into the stages of a pipeline.
 *
 * Stages of equal cost are often not the best ones. The last rank of 1F1B waits for the first forwards of the others,
 * and they wait for its last backward, so a step can be shorter if the last stage has less to compute than the others.
 * How much less depends on the schedule, so cuts are compared by replaying it: all of them, if there are few. Otherwise
 * the search goes from bound to bound, tries each place between its neighbours, and takes the best; then it tries to
 * move pairs of bounds by one unit, since in a V the two chunks of a rank have to change together.
 */
#include "parallel/pipe_cut.h"

#include <stdlib.h>
#include <string.h>

#include "parallel/pipe_replay.h"

#define MOST_REPLAYED (1 << 22) /* actions: about 0.1 s; 8 stages of 14 units and 16 micro-batches take 0.7 million */
#define SHORTER (1.0 - 1e-9)    /* a step that differs by rounding alone is no better */

typedef struct search {
    ls_pipe_program program;
    const ls_pipe_units *u;
    int stages;
    double *time;      /* owned: [3][stages], and [ranks]: what each rank has to update */
    int *first;        /* borrowed: the best so far */
    int *tried;        /* owned: [stages + 1] */
    double step;       /* of `first` */
    const ls_pipe_memory *memory; /* borrowed; NULL: no limit */
    size_t above;      /* bytes that the rank with most needs above the limit, with `first` */
    bool better;       /* `first` has changed since this was cleared */
    int64_t actions;   /* of a replay */
    int64_t left;      /* actions that may still be replayed */
} search;

static double sum(const double *cost, int first, int end)
{
    double all = 0.0;
    for (int i = first; i < end; i++) all += cost[i];
    return all;
}

/* What the rank with most parameters takes after the replay. */
static double update(const search *s, const int *first)
{
    const int ranks = s->program.shape.ranks;
    double *of = s->time + 3 * s->stages, most = 0.0;
    for (int r = 0; r < ranks; r++) of[r] = 0.0;
    for (int i = 0; i < s->stages; i++)
        of[ls_pipe_place_rank(s->program.placement, ranks, i)] += sum(s->u->update, first[i], first[i + 1]);
    const int begin = ls_pipe_place_rank(s->program.placement, ranks, 0);
    const int end = ls_pipe_place_rank(s->program.placement, ranks, s->stages - 1);
    of[begin] += s->u->root;
    if (end != begin) of[end] += s->u->root;
    for (int r = 0; r < ranks; r++) most = of[r] > most ? of[r] : most;
    return most;
}

static ls_status measure(search *s, const int *first, double *step)
{
    const int n = s->stages;
    for (int i = 0; i < n; i++) {
        s->time[i] = sum(s->u->forward, first[i], first[i + 1]);
        s->time[n + i] = sum(s->u->input, first[i], first[i + 1]);
        s->time[2 * n + i] = sum(s->u->weight, first[i], first[i + 1]);
    }
    const ls_pipe_times times = { .forward = s->time, .input = s->time + n, .weight = s->time + 2 * n };
    ls_pipe_replay r;
    LS_TRY(ls_pipe_replay_create(&s->program, &times, &r));
    *step = r.step + update(s, first);
    ls_pipe_replay_free(&r);
    s->left -= s->actions;
    return LS_OK;
}

/* Bytes above the limit. */
static ls_status over_limit(const search *s, const int *first, size_t *above)
{
    size_t bytes;
    *above = 0;
    if (!s->memory) return LS_OK;
    LS_TRY(s->memory->need(s->memory->arg, first, &bytes));
    if (bytes > s->memory->limit) *above = bytes - s->memory->limit;
    return LS_OK;
}

/* Whether s->tried is a cut, and one that may still be replayed. */
static bool may_try(const search *s)
{
    if (s->left < s->actions) return false;
    for (int i = 0; i < s->stages; i++)
        if (s->tried[i] >= s->tried[i + 1]) return false;
    return true;
}

/* Takes s->tried if it is better: memory first. What it needs is asked only if that can matter. */
static ls_status try_it(search *s)
{
    double step;
    size_t above;
    if (!may_try(s)) return LS_OK;
    LS_TRY(measure(s, s->tried, &step));
    const bool shorter = step < s->step * SHORTER;
    if (s->above == 0 && !shorter) return LS_OK;
    LS_TRY(over_limit(s, s->tried, &above));
    if (above > s->above || (above == s->above && !shorter)) return LS_OK;
    memcpy(s->first, s->tried, ((size_t)s->stages + 1) * sizeof *s->first);
    s->step = step;
    s->above = above;
    s->better = true;
    return LS_OK;
}

static void begin_trial(search *s) { memcpy(s->tried, s->first, ((size_t)s->stages + 1) * sizeof *s->tried); }

/* Every place of bound b between its neighbours. */
static ls_status move_one(search *s, int b)
{
    const int end = s->first[b + 1];
    for (int at = s->first[b - 1] + 1; at < end; at++) {
        begin_trial(s);
        if (s->tried[b] == at) continue;
        s->tried[b] = at;
        LS_TRY(try_it(s));
    }
    return LS_OK;
}

/* Tries to move bound a and bound b by one unit each, up or down: four cuts. */
static ls_status move_two(search *s, int a, int b)
{
    for (int way = 0; way < 4; way++) {
        begin_trial(s);
        s->tried[a] += way & 1 ? 1 : -1;
        s->tried[b] += way & 2 ? 1 : -1;
        LS_TRY(try_it(s));
    }
    return LS_OK;
}

static ls_status improve(search *s)
{
    do {
        s->better = false;
        for (int b = 1; b < s->stages; b++) LS_TRY(move_one(s, b));
        for (int a = 1; a < s->stages && !s->better; a++)
            for (int b = a + 1; b < s->stages; b++) LS_TRY(move_two(s, a, b));
    } while (s->better);
    return LS_OK;
}

/* All cuts: those of the bounds from b on. */
static ls_status try_all(search *s, int b)
{
    if (b == s->stages) return try_it(s);
    for (int at = s->tried[b - 1] + 1; at <= s->u->n - (s->stages - b); at++) {
        s->tried[b] = at;
        LS_TRY(try_all(s, b + 1));
    }
    return LS_OK;
}

/* Whether all cuts may be replayed: S - 1 bounds at n - 1 places. */
static bool all_fit(const search *s)
{
    double cuts = 1.0;
    for (int k = 1; k < s->stages; k++) cuts *= (double)(s->u->n - k) / k;
    return cuts * (double)s->actions < (double)s->left;
}

static ls_status shorten(search *s)
{
    if (!all_fit(s)) return improve(s);
    begin_trial(s);
    return try_all(s, 1);
}

/* --- a program to replay --------------------------------------------------------------------------- */

static ls_status make_program(const ls_pipe_config *c, int ranks, ls_pipe_program *out)
{
    const ls_pipe_schedule *schedule;
    const ls_pipe_shape shape = { ranks, c->chunks, c->micro_batches };
    LS_TRY(ls_pipe_schedule_find(c->schedule, &schedule));
    LS_TRY(ls_pipe_program_create(schedule, &shape, out));
    return ls_pipe_program_make(out, c->micro_batches);
}

static ls_status begin(search *s, const ls_pipe_config *c, int ranks, const ls_pipe_units *u)
{
    *s = (search){ .u = u, .left = MOST_REPLAYED };
    LS_TRY(make_program(c, ranks, &s->program));
    s->stages = ranks * s->program.shape.chunks;
    for (int r = 0; r < ranks; r++) s->actions += s->program.list[r].n;
    s->time = calloc(3 * (size_t)s->stages + (size_t)ranks, sizeof *s->time);
    s->tried = calloc((size_t)s->stages + 1, sizeof *s->tried);
    return s->time && s->tried ? LS_OK : ls_fail(LS_NO_MEMORY, "%d pipeline stages", s->stages);
}

static void end(search *s)
{
    ls_pipe_program_free(&s->program);
    free(s->time);
    free(s->tried);
}

ls_status ls_pipe_step_of(const ls_pipe_config *c, int ranks, const ls_pipe_units *u, const int *first, double *step)
{
    search s;
    ls_status st = begin(&s, c, ranks, u);
    if (st == LS_OK) st = measure(&s, first, step);
    end(&s);
    return st;
}

/* From the cut s->first on; the one that was given stays unless the step gets shorter by `least` of it. */
static ls_status search_from(search *s, double least)
{
    const size_t nbytes = ((size_t)s->stages + 1) * sizeof *s->first;
    LS_TRY(measure(s, s->first, &s->step));
    LS_TRY(over_limit(s, s->first, &s->above));
    const double before = s->step;
    const size_t above = s->above;
    int *given = malloc(nbytes);
    if (!given) return ls_fail(LS_NO_MEMORY, "%d pipeline stages", s->stages);
    memcpy(given, s->first, nbytes);
    const ls_status st = shorten(s);
    if (st == LS_OK && s->above == above && s->step >= before * (1.0 - least)) {
        memcpy(s->first, given, nbytes);
        s->step = before;
    }
    free(given);
    return st;
}

ls_status ls_pipe_cut(const ls_pipe_config *c, int ranks, const ls_pipe_units *u, const ls_pipe_memory *memory,
                      double least, int *first, double *step)
{
    search s;
    ls_status st = begin(&s, c, ranks, u);
    s.first = first;
    s.memory = memory;
    if (st == LS_OK) st = search_from(&s, least);
    if (step) *step = s.step;
    end(&s);
    return st;
}

/* --- when the loss is computed ---------------------------------------------------------------------- */

bool ls_pipe_program_forwards_first(const ls_pipe_program *g, int rank, int chunk)
{
    const ls_pipe_list *l = &g->list[rank];
    int forwards = 0, backwards = 0;
    for (int i = 0; i < l->n; i++) {
        if (l->action[i].chunk != chunk) continue;
        if (l->action[i].what != LS_PIPE_FORWARD) backwards++;
        else if (backwards > 0) return false;
        else forwards++;
    }
    return forwards > 1;
}

ls_status ls_pipe_loss_waits(const ls_pipe_config *c, int ranks, bool *waits)
{
    ls_pipe_program g = { 0 };
    const ls_status st = make_program(c, ranks, &g);
    const int last = ranks * g.shape.chunks - 1;
    if (st == LS_OK)
        *waits = ls_pipe_program_forwards_first(&g, ls_pipe_place_rank(g.placement, ranks, last),
                                                ls_pipe_place_chunk(g.placement, ranks, last));
    ls_pipe_program_free(&g);
    return st;
}
