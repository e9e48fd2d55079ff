/* pipe_program.c -- the lists of all ranks, made by a schedule. */
#include <stdlib.h>

#include "parallel/pipe_prove.h"

#define HALVES 3 /* actions per micro-batch and chunk at most: forward and two halves of backward */

static ls_status check_chunks(const ls_pipe_schedule *s, const ls_pipe_shape *shape)
{
    const int least = shape->ranks > 1 ? s->least_chunks : 1, most = s->most_chunks;
    if (shape->chunks >= least && shape->chunks <= most) return LS_OK;
    if (least == most)
        return ls_fail(LS_BAD_CONFIG, "pipeline schedule %s with %d chunks of the model per rank: expected %d", s->name, shape->chunks, least);
    return ls_fail(LS_BAD_CONFIG, "pipeline schedule %s with %d chunks of the model per rank: expected %d to %d", s->name, shape->chunks,
                   least, most);
}

ls_status ls_pipe_shape_check(const ls_pipe_schedule *s, ls_pipe_shape *shape)
{
    if (shape->ranks < 1) return ls_fail(LS_BAD_CONFIG, "a pipeline of %d ranks: expected at least 1", shape->ranks);
    if (shape->micro_batches < 1 || shape->micro_batches > LS_PIPE_MOST_MICRO_BATCHES)
        return ls_fail(LS_BAD_CONFIG, "a step of %d micro-batches: expected 1 to %d", shape->micro_batches, LS_PIPE_MOST_MICRO_BATCHES);
    if (shape->chunks == 0) shape->chunks = shape->ranks > 1 ? s->least_chunks : 1;
    LS_TRY(check_chunks(s, shape));
    const int64_t actions = (int64_t)HALVES * shape->ranks * shape->chunks * shape->micro_batches;
    if (shape->ranks > 1 && actions > LS_PIPE_MOST_ACTIONS)
        return ls_fail(LS_BAD_CONFIG,
                       "a pipeline of %d ranks, %d chunks and %d micro-batches: its lists have %lld actions: expected at most %d micro-batches",
                       shape->ranks, shape->chunks, shape->micro_batches, (long long)actions,
                       LS_PIPE_MOST_ACTIONS / HALVES / shape->ranks / shape->chunks);
    return LS_OK;
}

static ls_status allocate(ls_pipe_program *g, int room)
{
    const size_t p = (size_t)g->shape.ranks;
    g->list = calloc(p, sizeof *g->list);
    g->slots = calloc(p, sizeof *g->slots);
    if (!g->list || !g->slots) return ls_fail(LS_NO_MEMORY, "the lists of %zu ranks", p);
    for (size_t r = 0; r < p; r++) {
        g->list[r].room = room;
        g->list[r].wanted = g->most;
        if (!(g->list[r].action = malloc((size_t)room * sizeof *g->list[r].action)))
            return ls_fail(LS_NO_MEMORY, "a list of %d micro-batches", g->most);
    }
    return ls_pipe_scratch_create(&g->shape, &g->scratch);
}

ls_status ls_pipe_program_create_empty(ls_pipe_placement where, const ls_pipe_shape *shape, int most,
                                       ls_pipe_program *out)
{
    *out = (ls_pipe_program){ .placement = where, .shape = *shape, .most = shape->micro_batches };
    const ls_status st = allocate(out, most);
    if (st < 0) ls_pipe_program_free(out);
    return st;
}

ls_status ls_pipe_program_create(const ls_pipe_schedule *s, const ls_pipe_shape *shape, ls_pipe_program *out)
{
    ls_pipe_shape full = *shape;
    *out = (ls_pipe_program){ 0 };
    LS_TRY(ls_pipe_shape_check(s, &full));
    const int actions = s->splits && full.ranks > 1 ? HALVES : 2;
    LS_TRY(ls_pipe_program_create_empty(s->placement, &full, actions * full.chunks * full.micro_batches, out));
    out->schedule = s;
    out->shape.micro_batches = 0;
    return LS_OK;
}

void ls_pipe_program_free(ls_pipe_program *g)
{
    for (int r = 0; g->list && r < g->shape.ranks; r++) free(g->list[r].action);
    free(g->list);
    free(g->slots);
    ls_pipe_scratch_free(g->scratch);
    *g = (ls_pipe_program){ 0 };
}

/* There is no rank to wait for: each micro-batch goes through all chunks and back as soon as it can. */
static void one_rank(const ls_pipe_shape *s, ls_pipe_list *out)
{
    for (int i = 0; i < s->micro_batches; i++) {
        for (int c = 0; c < s->chunks; c++) ls_pipe_put(out, LS_PIPE_FORWARD, c, i);
        for (int c = s->chunks - 1; c >= 0; c--) ls_pipe_put(out, LS_PIPE_BACKWARD, c, i);
    }
}

ls_status ls_pipe_program_make(ls_pipe_program *g, int micro_batches)
{
    const ls_pipe_schedule *s = g->schedule;
    if (micro_batches < 1 || micro_batches > g->most)
        return ls_fail(LS_INVALID, "a pipeline step of %d micro-batches: expected 1 to %d, for which there is memory", micro_batches, g->most);
    ls_pipe_shape emitted = { g->shape.ranks, g->shape.chunks, g->most };
    if (s->defined_for && emitted.ranks > 1) emitted.micro_batches = s->defined_for(&emitted);
    g->shape.micro_batches = micro_batches;
    for (int r = 0; r < g->shape.ranks; r++) {
        ls_pipe_list *l = &g->list[r];
        l->n = 0;
        l->full = false;
        l->wanted = micro_batches;
        if (g->shape.ranks == 1) one_rank(&g->shape, l);
        else s->emit(&emitted, r, l);
    }
    const ls_status st = ls_pipe_prove(g, 0, 0);
    if (st < 0) g->shape.micro_batches = 0; /* a failure leaves none */
    return st;
}
