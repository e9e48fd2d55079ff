/* pipe_route.c -- messages and buffers of one rank, from the lists of all. */
#include "parallel/pipe_route.h"

#include <stdlib.h>
#include <string.h>

/* Of a forward, which gives an activation to the next stage, and of a backward, which gives a gradient to the one
 * before. */
enum { ACTIVATION, GRADIENT, KINDS };

/* Scratch memory. Messages are numbered by kind, stage that gives them, and micro-batch. */
struct ls_pipe_mill {
    int most;
    int *made;           /* [KINDS S most]: place of the action that gives it in its rank's list */
    int *used;           /* the same: place of the action that takes it */
    int *arrives;        /* [KINDS S most]: of messages to this rank from another: place in the order of that pair */
    ls_pipe_post *order; /* [p most_messages]: messages from each rank, in its order */
    int *norder, *posted; /* [p] */
    int *holds;          /* [KINDS v most]: buffer of what entered a chunk, of x until its backward is over; -1 */
    int *tape;           /* [v most]: of a micro-batch that is alive */
    bool *busy, *busy_tape; /* [2 v most] buffers and [v most] tapes in use */
    int *at;             /* [p]: actions that a rank has ended */
    int *sent;           /* [p]: gradients that it has sent to other ranks */
    int *sends;          /* [p S most]: per rank, the messages of these, as numbers */
};

/* --- who gives what to whom ---------------------------------------------------------------------- */

static int stages_of(const ls_pipe_program *g) { return g->shape.ranks * g->shape.chunks; }
static int rank_of(const ls_pipe_program *g, int stage)
{
    return ls_pipe_place_rank(g->placement, g->shape.ranks, stage);
}

static bool is_weight(const ls_pipe_action *a) { return a->what == LS_PIPE_BACKWARD_WEIGHT; }
static int kind_of(const ls_pipe_action *a) { return a->what == LS_PIPE_FORWARD ? ACTIVATION : GRADIENT; }

/* Which stage gets the action's result; -1: none. */
static int taker_of(const ls_pipe_program *g, const ls_pipe_action *a)
{
    if (is_weight(a)) return -1;
    if (a->what == LS_PIPE_FORWARD) return a->stage + 1 < stages_of(g) ? a->stage + 1 : -1;
    return a->stage - 1;
}

/* Which stage gives what the action needs; -1: none. */
static int giver_of(const ls_pipe_program *g, const ls_pipe_action *a)
{
    if (is_weight(a)) return -1;
    if (a->what == LS_PIPE_FORWARD) return a->stage - 1;
    return a->stage + 1 < stages_of(g) ? a->stage + 1 : -1;
}

static size_t number(const ls_pipe_program *g, const struct ls_pipe_mill *w, int kind, int giver, int micro_batch)
{
    return ((size_t)kind * (size_t)stages_of(g) + (size_t)giver) * (size_t)w->most + (size_t)micro_batch;
}

/* The edge between two stages is called by the later one. */
static int edge_of(const ls_pipe_action *a, int other) { return other > a->stage ? other : a->stage; }

/* --- memory -------------------------------------------------------------------------------------------- */

ls_status ls_pipe_route_create(const ls_pipe_program *g, int rank, ls_pipe_route *out)
{
    const size_t p = (size_t)g->shape.ranks, v = (size_t)g->shape.chunks, most = (size_t)g->most, S = p * v;
    size_t room = 1;
    for (size_t r = 0; r < p; r++)
        if ((size_t)g->list[r].room > room) room = (size_t)g->list[r].room;
    *out = (ls_pipe_route){ .rank = rank, .chunks = (int)v };
    struct ls_pipe_mill *w = out->mill = calloc(1, sizeof *w);
    out->step = calloc(room, sizeof *out->step);
    out->post = calloc(2 * v * most, sizeof *out->post);
    out->tapes = calloc(v, sizeof *out->tapes);
    if (w) {
        w->most = g->most;
        w->made = calloc(KINDS * S * most, sizeof *w->made);
        w->used = calloc(KINDS * S * most, sizeof *w->used);
        w->arrives = calloc(KINDS * S * most, sizeof *w->arrives);
        w->order = calloc(p * 2 * v * most, sizeof *w->order);
        w->norder = calloc(p, sizeof *w->norder);
        w->posted = calloc(p, sizeof *w->posted);
        w->holds = calloc(KINDS * v * most, sizeof *w->holds);
        w->tape = calloc(v * most, sizeof *w->tape);
        w->busy = calloc(2 * v * most, sizeof *w->busy);
        w->busy_tape = calloc(v * most, sizeof *w->busy_tape);
        w->at = calloc(p, sizeof *w->at);
        w->sent = calloc(p, sizeof *w->sent);
        w->sends = calloc(p * v * most, sizeof *w->sends);
    }
    if (w && out->step && out->post && out->tapes && w->made && w->used && w->arrives && w->order && w->norder &&
        w->posted && w->holds && w->tape && w->busy && w->busy_tape && w->at && w->sent && w->sends)
        return LS_OK;
    ls_pipe_route_free(out);
    return ls_fail(LS_NO_MEMORY, "messages of %zu stages and %zu micro-batches", S, most);
}

void ls_pipe_route_free(ls_pipe_route *r)
{
    struct ls_pipe_mill *w = r->mill;
    if (w) {
        free(w->made);
        free(w->used);
        free(w->arrives);
        free(w->order);
        free(w->norder);
        free(w->posted);
        free(w->holds);
        free(w->tape);
        free(w->busy);
        free(w->busy_tape);
        free(w->at);
        free(w->sent);
        free(w->sends);
    }
    free(w);
    free(r->step);
    free(r->post);
    free(r->tapes);
    *r = (ls_pipe_route){ 0 };
}

/* --- the messages of all ranks ------------------------------------------------------------------------- */

/* Where each message is made and used, and in which order other ranks send theirs to this one. */
static void number_messages(ls_pipe_route *r, const ls_pipe_program *g)
{
    struct ls_pipe_mill *w = r->mill;
    const size_t each = 2 * (size_t)r->chunks * (size_t)w->most;
    for (int q = 0; q < g->shape.ranks; q++) {
        w->norder[q] = 0;
        for (int i = 0; i < g->list[q].n; i++) {
            const ls_pipe_action *a = &g->list[q].action[i];
            const int giver = giver_of(g, a), taker = taker_of(g, a);
            if (giver >= 0) w->used[number(g, w, kind_of(a), giver, a->micro_batch)] = i;
            if (taker < 0) continue;
            const size_t at = number(g, w, kind_of(a), a->stage, a->micro_batch);
            w->made[at] = i;
            if (q == r->rank || rank_of(g, taker) != r->rank) continue;
            w->arrives[at] = w->norder[q];
            w->order[(size_t)q * each + (size_t)w->norder[q]++] = (ls_pipe_post){
                .from = q, .edge = edge_of(a, taker), .micro_batch = a->micro_batch, .buffer = (int)at };
        }
    }
}

/* --- whether gradients can be sent from so many buffers ---------------------------------------------------- */

/* Whether rank q can begin its next action: what it needs is made, and the buffer from which it sends is free again. A
 * message is on its way out of the buffer when its receiver comes to the action that uses it. */
static bool can_go(const ls_pipe_route *r, const ls_pipe_program *g, int q, int sends)
{
    const struct ls_pipe_mill *w = r->mill;
    const ls_pipe_action *a = &g->list[q].action[w->at[q]];
    const int giver = giver_of(g, a), taker = taker_of(g, a);
    if (giver >= 0 && w->at[rank_of(g, giver)] <= w->made[number(g, w, kind_of(a), giver, a->micro_batch)])
        return false;
    if (a->what == LS_PIPE_FORWARD || taker < 0 || rank_of(g, taker) == q || w->sent[q] < sends) return true;
    const int before = w->sends[(size_t)q * (size_t)r->chunks * (size_t)w->most + (size_t)(w->sent[q] - sends)];
    const int stage = before / w->most; /* that gave it */
    return w->at[rank_of(g, stage - 1)] >= w->used[(size_t)stages_of(g) * (size_t)w->most + (size_t)before];
}

static void go(const ls_pipe_route *r, const ls_pipe_program *g, int q)
{
    struct ls_pipe_mill *w = r->mill;
    const ls_pipe_action *a = &g->list[q].action[w->at[q]++];
    const int taker = taker_of(g, a);
    if (a->what == LS_PIPE_FORWARD || taker < 0 || rank_of(g, taker) == q) return;
    w->sends[(size_t)q * (size_t)r->chunks * (size_t)w->most + (size_t)w->sent[q]++] =
        a->stage * w->most + a->micro_batch;
}

/* Whether every rank comes to the end of its list. */
static bool suffices(const ls_pipe_route *r, const ls_pipe_program *g, int sends)
{
    struct ls_pipe_mill *w = r->mill;
    for (int q = 0; q < g->shape.ranks; q++) w->at[q] = w->sent[q] = 0;
    for (bool moved = true; moved;) {
        moved = false;
        for (int q = 0; q < g->shape.ranks; q++)
            for (; w->at[q] < g->list[q].n && can_go(r, g, q, sends); moved = true) go(r, g, q);
    }
    for (int q = 0; q < g->shape.ranks; q++)
        if (w->at[q] < g->list[q].n) return false;
    return true;
}

#define LEAST_SENDS 2 /* one is on its way while backward writes the next one */

static ls_status find_sends(ls_pipe_route *r, const ls_pipe_program *g)
{
    const int most = r->chunks * g->shape.micro_batches;
    if (r->sends > 0) {
        if (suffices(r, g, r->sends)) return LS_OK;
        return ls_fail(LS_INTERNAL, "pipeline: with %d buffers for gradients to be sent, some rank waits forever", r->sends);
    }
    for (int n = LEAST_SENDS; n < most; n++)
        if (suffices(r, g, n)) {
            r->sends = n;
            return LS_OK;
        }
    r->sends = most > LEAST_SENDS ? most : LEAST_SENDS;
    return LS_OK;
}

/* --- the buffers of this rank ------------------------------------------------------------------------------------ */

static int take(bool *busy, int *most)
{
    int b = 0;
    while (busy[b]) b++;
    busy[b] = true;
    if (b + 1 > *most) *most = b + 1;
    return b;
}

static int *holder(const ls_pipe_route *r, int kind, int chunk, int micro_batch)
{
    return &r->mill->holds[((size_t)kind * (size_t)r->chunks + (size_t)chunk) * (size_t)r->mill->most +
                           (size_t)micro_batch];
}

static void release(const ls_pipe_route *r, int kind, int chunk, int micro_batch)
{
    int *b = holder(r, kind, chunk, micro_batch);
    if (*b >= 0) r->mill->busy[*b] = false;
    *b = -1;
}

/* Starts the receives that action a needs, in the order in which they are sent. */
static void post(ls_pipe_route *r, const ls_pipe_program *g, const ls_pipe_action *a)
{
    struct ls_pipe_mill *w = r->mill;
    const int giver = giver_of(g, a), q = giver >= 0 ? rank_of(g, giver) : r->rank;
    if (q == r->rank) return;
    const int last = w->arrives[number(g, w, kind_of(a), giver, a->micro_batch)];
    while (w->posted[q] <= last) {
        ls_pipe_post x = w->order[(size_t)q * 2 * (size_t)r->chunks * (size_t)w->most + (size_t)w->posted[q]++];
        const int stages = stages_of(g), kind = x.buffer / w->most / stages, giving = x.buffer / w->most % stages;
        const int taker = kind == ACTIVATION ? giving + 1 : giving - 1;
        x.buffer = take(w->busy, &r->buffers);
        *holder(r, kind, ls_pipe_place_chunk(g->placement, g->shape.ranks, taker), x.micro_batch) = x.buffer;
        r->post[r->nposts++] = x;
    }
}

/* The tape of the action's micro-batch; it is free again after the last half of its backward. */
static int tape_of(ls_pipe_route *r, const ls_pipe_action *a)
{
    struct ls_pipe_mill *w = r->mill;
    int *at = &w->tape[(size_t)a->chunk * (size_t)w->most + (size_t)a->micro_batch];
    bool *busy = &w->busy_tape[(size_t)a->chunk * (size_t)w->most];
    if (a->what == LS_PIPE_FORWARD) *at = take(busy, &r->tapes[a->chunk]);
    const int tape = *at;
    if (a->what == LS_PIPE_BACKWARD || is_weight(a)) busy[tape] = false;
    return tape;
}

static void walk_action(ls_pipe_route *r, const ls_pipe_program *g, int i, int *gradients)
{
    struct ls_pipe_mill *w = r->mill;
    const ls_pipe_list *l = &g->list[r->rank];
    const ls_pipe_action *a = &l->action[i];
    const int giver = giver_of(g, a), taker = taker_of(g, a);
    ls_pipe_step *x = &r->step[i];
    *x = (ls_pipe_step){
        .tape = tape_of(r, a), .first = r->nposts, .in = -1, .out = -1, .from = -1, .to = -1, .edge = -1
    };
    post(r, g, a);
    if (i + 1 < l->n) post(r, g, &l->action[i + 1]); /* on its way while this action is computed */
    x->nposts = r->nposts - x->first;
    if (giver >= 0) {
        x->from = rank_of(g, giver);
        x->in = *holder(r, kind_of(a), a->chunk, a->micro_batch);
    }
    if (taker >= 0) {
        x->to = rank_of(g, taker);
        x->edge = edge_of(a, taker);
        const int chunk = ls_pipe_place_chunk(g->placement, g->shape.ranks, taker);
        if (x->to == r->rank) x->out = *holder(r, kind_of(a), chunk, a->micro_batch) = take(w->busy, &r->buffers);
        else if (a->what != LS_PIPE_FORWARD) x->out = (*gradients)++ % r->sends;
    }
    if (a->what == LS_PIPE_BACKWARD || a->what == LS_PIPE_BACKWARD_INPUT)
        release(r, GRADIENT, a->chunk, a->micro_batch);
    if (a->what == LS_PIPE_BACKWARD || is_weight(a)) release(r, ACTIVATION, a->chunk, a->micro_batch);
}

ls_status ls_pipe_route_make(ls_pipe_route *r, const ls_pipe_program *g)
{
    struct ls_pipe_mill *w = r->mill;
    const size_t v = (size_t)r->chunks, most = (size_t)w->most;
    int gradients = 0;
    number_messages(r, g);
    LS_TRY(find_sends(r, g));
    r->nposts = 0;
    for (size_t i = 0; i < KINDS * v * most; i++) w->holds[i] = -1;
    memset(w->busy, 0, 2 * v * most * sizeof *w->busy);
    memset(w->busy_tape, 0, v * most * sizeof *w->busy_tape);
    memset(w->posted, 0, (size_t)g->shape.ranks * sizeof *w->posted);
    for (int i = 0; i < g->list[r->rank].n; i++) walk_action(r, g, i, &gradients);
    int first = 0; /* tapes of chunk 0 come first */
    for (int c = 0; c < r->chunks; first += r->tapes[c++])
        for (int i = 0; i < g->list[r->rank].n; i++)
            if (g->list[r->rank].action[i].chunk == c) r->step[i].tape += first;
    return LS_OK;
}
