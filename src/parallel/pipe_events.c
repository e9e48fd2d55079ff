/* pipe_events.c -- from the actions of a pipeline to operations of the event engine. */
#include "parallel/pipe_events.h"

#include <stdlib.h>

enum { BYTES, NOTHING, FIRST_TIME }; /* the costs: bytes of a message, 0 s, then forward, input, weight and backward of
                                      * each stage */

static uint32_t cost_of(const ls_pipe_program *g, const ls_pipe_action *a)
{
    const uint32_t stages = (uint32_t)(g->shape.ranks * g->shape.chunks);
    static const uint32_t row[] = { [LS_PIPE_FORWARD] = 0, [LS_PIPE_BACKWARD_INPUT] = 1, [LS_PIPE_BACKWARD_WEIGHT] = 2,
                                    [LS_PIPE_BACKWARD] = 3 };
    return FIRST_TIME + row[a->what] * stages + (uint32_t)a->stage;
}

/* Messages to a chunk of a rank, forward and backward, are apart from others between the same two ranks. */
static uint32_t via_of(const ls_pipe_program *g, int to_stage, bool forward)
{
    return 2 * (uint32_t)ls_pipe_place_chunk(g->placement, g->shape.ranks, to_stage) + (forward ? 0 : 1);
}

/* The rank of a stage; -1: there is no such stage, or it is this rank. */
static int other_rank(const ls_pipe_program *g, int stage, int rank)
{
    if (stage < 0 || stage >= g->shape.ranks * g->shape.chunks) return -1;
    const int r = ls_pipe_place_rank(g->placement, g->shape.ranks, stage);
    return r == rank ? -1 : r;
}

static ls_des_op *put_list(const ls_pipe_program *g, int rank, ls_des_op *at)
{
    const ls_pipe_list *l = &g->list[rank];
    for (int i = 0; i < l->n; i++) {
        const ls_pipe_action *a = &l->action[i];
        const bool forward = a->what == LS_PIPE_FORWARD, moves = a->what != LS_PIPE_BACKWARD_WEIGHT;
        const int before = forward ? a->stage - 1 : a->stage + 1, after = forward ? a->stage + 1 : a->stage - 1;
        const int from = moves ? other_rank(g, before, rank) : -1, to = moves ? other_rank(g, after, rank) : -1;
        if (from >= 0) *at++ = ls_des_op_of(LS_DES_RECV, (uint32_t)from, via_of(g, a->stage, forward), NOTHING);
        *at++ = ls_des_op_of(LS_DES_WORK, 0, 0, cost_of(g, a));
        if (to >= 0) *at++ = ls_des_op_of(LS_DES_SEND, (uint32_t)to, via_of(g, after, forward), BYTES);
    }
    *at++ = ls_des_op_of(LS_DES_END, 0, 0, 0);
    return at;
}

static ls_status make(const ls_pipe_program *g, const ls_pipe_loads *t, uint32_t copies, ls_pipe_events *out)
{
    const uint32_t p = (uint32_t)g->shape.ranks, stages = p * (uint32_t)g->shape.chunks;
    size_t room = 0;
    if (copies < 1 || (uint64_t)p * copies > LS_DES_MOST_PROCESSES ||
        4 * (uint64_t)stages + FIRST_TIME > LS_DES_MOST_COSTS)
        return ls_fail(LS_UNSUPPORTED,
                       "%u pipelines of %u ranks and %u stages: expected at most %u ranks, and %u stages", copies, p,
                       stages, LS_DES_MOST_PROCESSES, LS_DES_MOST_COSTS / 4 - 1);
    out->n = p * copies;
    out->ncosts = FIRST_TIME + 4 * stages;
    for (uint32_t r = 0; r < p; r++) room += 3 * (size_t)g->list[r].n + 1;
    out->program = malloc(out->n * sizeof *out->program);
    out->base = malloc(out->n * sizeof *out->base);
    out->cost = calloc(out->ncosts, sizeof *out->cost);
    out->memory = malloc(room * sizeof *out->memory);
    if (!out->program || !out->base || !out->cost || !out->memory)
        return ls_fail(LS_NO_MEMORY, "the events of %u pipelines", copies);
    out->cost[BYTES] = t->bytes;
    for (uint32_t s = 0; s < stages; s++) {
        double *row = &out->cost[FIRST_TIME + s];
        row[0] = t->forward[s];
        row[stages] = t->input[s];
        row[2 * stages] = t->weight[s];
        row[3 * stages] = t->input[s] + t->weight[s];
    }
    ls_des_op *at = out->memory;
    for (uint32_t i = 0; i < out->n; i++) {
        out->program[i] = i < p ? at : out->program[i % p];
        out->base[i] = i / p * p;
        if (i < p) at = put_list(g, (int)i, at);
    }
    return LS_OK;
}

ls_status ls_pipe_events_create(const ls_pipe_program *g, const ls_pipe_loads *t, uint32_t copies, ls_pipe_events *out)
{
    *out = (ls_pipe_events){ 0 };
    const ls_status st = make(g, t, copies, out);
    if (st < 0) ls_pipe_events_free(out);
    return st;
}

void ls_pipe_events_free(ls_pipe_events *e)
{
    free(e->program);
    free(e->base);
    free(e->cost);
    free(e->memory);
    *e = (ls_pipe_events){ 0 };
}

void ls_pipe_events_model(const ls_pipe_events *e, ls_des_model *out)
{
    *out = (ls_des_model){ .n = e->n, .program = (const ls_des_op *const *)e->program, .base = e->base,
                           .cost = e->cost, .ncosts = e->ncosts };
}
