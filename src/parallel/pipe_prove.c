/* pipe_prove.c -- the proof that the lists of all ranks are a step.
 *
 * First each list by itself: order, halves, slots. As messages of an edge are then in ascending order at both ends, the
 * second part needs to count them only: it lets each rank go as far as it can, again and again, until all are at the
 * end or none can go on. The order in which ranks are asked changes nothing: a rank that can go on still can after
 * another has, since messages and space for them only come.
 */
#include <stdlib.h>

#include "base/text.h"
#include "parallel/pipe_prove.h"

ls_status ls_pipe_scratch_create(const ls_pipe_shape *most, struct ls_pipe_scratch **out)
{
    const size_t v = (size_t)most->chunks, p = (size_t)most->ranks, alive = v * (size_t)most->micro_batches;
    struct ls_pipe_scratch *s = calloc(1, sizeof *s);
    *out = s;
    if (!s) return ls_fail(LS_NO_MEMORY, "the proof of a pipeline schedule");
    int **const part[] = { &s->forward, &s->input, &s->weight, &s->slot, &s->free, &s->at, &s->sent, &s->received };
    const size_t count[] = { v, v, v, alive, alive, p, 2 * p * v, 2 * p * v };
    for (size_t i = 0; i < sizeof part / sizeof *part; i++)
        if (!(*part[i] = calloc(count[i], sizeof **part[i])))
            return ls_fail(LS_NO_MEMORY, "the proof of a pipeline schedule of %d micro-batches", most->micro_batches);
    return LS_OK;
}

void ls_pipe_scratch_free(struct ls_pipe_scratch *s)
{
    if (!s) return;
    free(s->forward);
    free(s->input);
    free(s->weight);
    free(s->slot);
    free(s->free);
    free(s->at);
    free(s->sent);
    free(s->received);
    free(s);
}

/* --- one list ------------------------------------------------------------------------------------ */

typedef struct one {
    ls_pipe_program *g;
    int rank, i;  /* the action that is looked at */
    int slots;    /* that have been used */
    int nfree;    /* of them free */
    int most_alive;
} one;

/* "rank 1, action 3, the forward of micro-batch 0 (2F0)": how every message begins. */
#define ACTION        "pipeline schedule: rank %d, action %d, the %s of micro-batch %d (%d%c%d)"
#define ACTION_OF(o, a) \
    (o)->rank, (o)->i, ls_pipe_what_name((a)->what), (a)->micro_batch, (a)->stage, ls_pipe_letter((a)->what), \
        (a)->micro_batch

/* It is the turn of `a` in what has gone `gone` times. */
static ls_status prove_order(const one *o, const ls_pipe_action *a, int gone)
{
    const int m = o->g->shape.micro_batches;
    if (gone == m) return ls_fail(LS_INTERNAL, ACTION ": all %d micro-batches have gone that way in stage %d: expected "
                                                 "each once", ACTION_OF(o, a), m, a->stage);
    if (a->micro_batch == gone) return LS_OK;
    return ls_fail(LS_INTERNAL, ACTION ": expected micro-batch %d, since each goes once and in ascending order", ACTION_OF(o, a), gone);
}

static ls_status take_slot(one *o, ls_pipe_action *a)
{
    struct ls_pipe_scratch *s = o->g->scratch;
    const int alive = o->slots - o->nfree;
    if (o->most_alive > 0 && alive == o->most_alive)
        return ls_fail(LS_INTERNAL, ACTION ": %d are alive with it, and there is memory for %d", ACTION_OF(o, a), alive + 1, o->most_alive);
    a->slot = o->nfree > 0 ? s->free[--o->nfree] : o->slots++;
    s->slot[(size_t)a->chunk * (size_t)o->g->most + (size_t)a->micro_batch] = a->slot;
    return LS_OK;
}

static ls_status prove_forward(one *o, ls_pipe_action *a)
{
    int *gone = &o->g->scratch->forward[a->chunk];
    LS_TRY(prove_order(o, a, *gone));
    LS_TRY(take_slot(o, a));
    ++*gone;
    return LS_OK;
}

static ls_status prove_input(const one *o, const ls_pipe_action *a)
{
    struct ls_pipe_scratch *s = o->g->scratch;
    LS_TRY(prove_order(o, a, s->input[a->chunk]));
    if (a->micro_batch >= s->forward[a->chunk])
        return ls_fail(LS_INTERNAL, ACTION ": it has not gone forward there: expected %dF%d first", ACTION_OF(o, a), a->stage, a->micro_batch);
    s->input[a->chunk]++;
    return LS_OK;
}

static ls_status prove_weight(one *o, const ls_pipe_action *a)
{
    struct ls_pipe_scratch *s = o->g->scratch;
    LS_TRY(prove_order(o, a, s->weight[a->chunk]));
    if (a->micro_batch >= s->input[a->chunk])
        return ls_fail(LS_INTERNAL, ACTION ": expected the other half first, %dI%d", ACTION_OF(o, a), a->stage, a->micro_batch);
    s->weight[a->chunk]++;
    s->free[o->nfree++] = a->slot;
    return LS_OK;
}

static ls_status prove_action(one *o, ls_pipe_action *a)
{
    const ls_pipe_program *g = o->g;
    if (a->chunk < 0 || a->chunk >= g->shape.chunks)
        return ls_fail(LS_INTERNAL, "pipeline schedule: rank %d, action %d is of chunk %d: expected 0 to %d", o->rank, o->i, a->chunk,
                       g->shape.chunks - 1);
    a->stage = ls_pipe_place_stage(g->placement, g->shape.ranks, o->rank, a->chunk);
    if (a->micro_batch < 0 || a->micro_batch >= g->shape.micro_batches)
        return ls_fail(LS_INTERNAL, ACTION ": expected micro-batches 0 to %d", ACTION_OF(o, a), g->shape.micro_batches - 1);
    a->last = a->micro_batch == g->shape.micro_batches - 1;
    if (a->what == LS_PIPE_FORWARD) return prove_forward(o, a);
    a->slot = g->scratch->slot[(size_t)a->chunk * (size_t)g->most + (size_t)a->micro_batch];
    if (a->what != LS_PIPE_BACKWARD_WEIGHT) LS_TRY(prove_input(o, a));
    return a->what == LS_PIPE_BACKWARD_INPUT ? LS_OK : prove_weight(o, a);
}

/* A list that ends before the step of chunk c does; the first action that is missing is expected. */
static ls_status incomplete(const ls_pipe_program *g, int rank, int c)
{
    const struct ls_pipe_scratch *s = g->scratch;
    const int m = g->shape.micro_batches, stage = ls_pipe_place_stage(g->placement, g->shape.ranks, rank, c);
    const ls_pipe_what what = s->forward[c] < m ? LS_PIPE_FORWARD
                              : s->input[c] < m ? LS_PIPE_BACKWARD : LS_PIPE_BACKWARD_WEIGHT;
    const int next = s->forward[c] < m ? s->forward[c] : s->input[c] < m ? s->input[c] : s->weight[c];
    return ls_fail(LS_INTERNAL,
                   "pipeline schedule: rank %d ends after %d actions: in stage %d, %d of %d micro-batches have gone forward, %d "
                   "backward, and %d have their gradients of weights: expected the %s of micro-batch %d, %d%c%d, as well",
                   rank, g->list[rank].n, stage, s->forward[c], m, s->input[c], s->weight[c],
                   ls_pipe_what_name(what), next, stage, ls_pipe_letter(what), next);
}

static ls_status prove_list(ls_pipe_program *g, int rank, int most_alive)
{
    struct ls_pipe_scratch *s = g->scratch;
    ls_pipe_list *l = &g->list[rank];
    one o = { .g = g, .rank = rank, .most_alive = most_alive };
    for (int c = 0; c < g->shape.chunks; c++) s->forward[c] = s->input[c] = s->weight[c] = 0;
    for (; o.i < l->n; o.i++) LS_TRY(prove_action(&o, &l->action[o.i]));
    g->slots[rank] = o.slots;
    if (l->full)
        return ls_fail(LS_INTERNAL, "pipeline schedule: rank %d has more than the %d actions of a step of %d micro-batches", rank, l->room,
                       g->shape.micro_batches);
    for (int c = 0; c < g->shape.chunks; c++)
        if (s->weight[c] != g->shape.micro_batches) return incomplete(g, rank, c);
    return LS_OK;
}

/* --- all lists ----------------------------------------------------------------------------------- */

/* The edge that an action needs a message of, or gives one to; -1: none. */
static int edge_in(const ls_pipe_program *g, const ls_pipe_action *a)
{
    const int stages = g->shape.ranks * g->shape.chunks;
    if (a->what == LS_PIPE_FORWARD) return a->stage > 0 ? a->stage : -1;
    return a->what != LS_PIPE_BACKWARD_WEIGHT && a->stage < stages - 1 ? stages + a->stage : -1;
}

static int edge_out(const ls_pipe_program *g, const ls_pipe_action *a)
{
    const int stages = g->shape.ranks * g->shape.chunks;
    if (a->what == LS_PIPE_FORWARD) return a->stage < stages - 1 ? a->stage + 1 : -1;
    return a->what != LS_PIPE_BACKWARD_WEIGHT && a->stage > 0 ? stages + a->stage - 1 : -1;
}

/* Whether the stages of an edge are on one rank: what is handed over there lies in a slot and needs no buffer. */
static bool is_local(const ls_pipe_program *g, int edge)
{
    const int p = g->shape.ranks, stages = p * g->shape.chunks, to = edge % stages;
    const int from = edge < stages ? to - 1 : to + 1;
    return ls_pipe_place_rank(g->placement, p, from) == ls_pipe_place_rank(g->placement, p, to);
}

typedef enum { GOES, NEEDS_MESSAGE, NEEDS_SPACE, AT_END } standing;

/* Each action is two events: it consumes its message, computes, and then gives its own away. */
static standing go_on(const ls_pipe_program *g, int rank, int buffers)
{
    struct ls_pipe_scratch *s = g->scratch;
    const ls_pipe_list *l = &g->list[rank];
    if (s->at[rank] == 2 * l->n) return AT_END;
    const ls_pipe_action *a = &l->action[s->at[rank] / 2];
    const bool begins = s->at[rank] % 2 == 0;
    const int edge = begins ? edge_in(g, a) : edge_out(g, a);
    if (edge >= 0) {
        const int stored = s->sent[edge] - s->received[edge];
        if (begins && stored == 0) return NEEDS_MESSAGE;
        if (!begins && stored >= buffers && !is_local(g, edge)) return NEEDS_SPACE;
        ++*(begins ? &s->received[edge] : &s->sent[edge]);
    }
    s->at[rank]++;
    return GOES;
}

/* Whether all come to their ends. */
static bool comes_to_an_end(const ls_pipe_program *g, int buffers)
{
    struct ls_pipe_scratch *s = g->scratch;
    const int p = g->shape.ranks, edges = 2 * p * g->shape.chunks;
    for (int r = 0; r < p; r++) s->at[r] = 0;
    for (int e = 0; e < edges; e++) s->sent[e] = s->received[e] = 0;
    for (bool any = true; any;) {
        any = false;
        for (int r = 0; r < p; r++)
            while (go_on(g, r, buffers) == GOES) any = true;
    }
    for (int r = 0; r < p; r++)
        if (s->at[r] < 2 * g->list[r].n) return false;
    return true;
}

static void add_waiting(const ls_pipe_program *g, int rank, int buffers, ls_text *out)
{
    const int i = g->scratch->at[rank] / 2, p = g->shape.ranks, stages = p * g->shape.chunks;
    const standing now = go_on(g, rank, buffers); /* changes nothing, since none can go on */
    if (now == AT_END) return;
    const ls_pipe_action *a = &g->list[rank].action[i];
    const int edge = now == NEEDS_MESSAGE ? edge_in(g, a) : edge_out(g, a), to = edge % stages;
    ls_text_add(out, "%s rank %d, action %d (%d%c%d),", out->n ? ";" : "", rank, i, a->stage, ls_pipe_letter(a->what), a->micro_batch);
    if (now == NEEDS_SPACE)
        ls_text_add(out, " has no space to send to stage %d on rank %d", to, ls_pipe_place_rank(g->placement, p, to));
    else
        ls_text_add(out, " waits for %d%c%d of rank %d", edge < stages ? to - 1 : to + 1, edge < stages ? 'F' : 'B', a->micro_batch,
                    ls_pipe_place_rank(g->placement, p, edge < stages ? to - 1 : to + 1));
}

#define NAMED_RANKS 4 /* a message has 495 bytes */

static ls_status fail_deadlock(const ls_pipe_program *g, int buffers)
{
    ls_text who = { 0 };
    int waiting = 0;
    (void)comes_to_an_end(g, buffers);
    for (int r = 0; r < g->shape.ranks; r++) {
        if (g->scratch->at[r] == 2 * g->list[r].n) continue;
        if (waiting++ < NAMED_RANKS) add_waiting(g, r, buffers, &who);
    }
    if (waiting > NAMED_RANKS) ls_text_add(&who, "; and %d more", waiting - NAMED_RANKS);
    const ls_status st = ls_fail(LS_INTERNAL, "pipeline schedule: deadlock, with %d messages stored per edge:%s", buffers, ls_text_str(&who));
    ls_text_free(&who);
    return st;
}

ls_status ls_pipe_prove(ls_pipe_program *g, int most_alive, int most_buffers)
{
    const int m = g->shape.micro_batches, most = most_buffers > 0 && most_buffers < m ? most_buffers : m;
    for (int r = 0; r < g->shape.ranks; r++) LS_TRY(prove_list(g, r, most_alive));
    if (!comes_to_an_end(g, most)) return fail_deadlock(g, most);
    g->buffers = 1;
    while (!comes_to_an_end(g, g->buffers)) g->buffers++;
    return LS_OK;
}
