/* pipe_exec.c -- walks the list of a step: the loop over its micro-batches.
 *
 * Where there are several stages, an action begins when what it needs has arrived, and its result is on its way when it
 * has ended: sends do not wait (pipe_route.c says what is received when, and where). What a forward gives is sent from
 * where it lies; nothing overwrites it before its backward, and by then it has arrived. Gradients are sent from a few
 * buffers in turn.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lockstep/world.h"
#include "parallel/pipe_cut.h"
#include "parallel/pipe_route.h"

#define LABEL 24

struct ls_pipe {
    ls_group *g;         /* borrowed; NULL: this rank alone */
    ls_pipe_program program;
    ls_pipe_route route; /* of several stages */
    int rank, stages;
    bool dry;
    size_t each;         /* bytes of a buffer */
    char *memory;        /* borrowed from the world's arena: route.buffers, then route.sends of them */
    ls_work **arriving;  /* owned: [route.buffers]; NULL among them: nothing is on its way */
    ls_work **leaving;   /* owned: [slots] what a forward gave, then [route.sends] gradients */
};

/* --- before there is one --------------------------------------------------------------------------- */

static ls_status schedule_of(const ls_pipe_config *c, int ranks, const ls_pipe_schedule **s, ls_pipe_shape *shape)
{
    *shape = (ls_pipe_shape){ ranks, c->chunks, c->micro_batches };
    LS_TRY(ls_pipe_schedule_find(c->schedule, s));
    return ls_pipe_shape_check(*s, shape);
}

ls_status ls_pipe_check(const ls_pipe_config *c, int ranks)
{
    const ls_pipe_schedule *s;
    ls_pipe_shape shape;
    LS_TRY(schedule_of(c, ranks, &s, &shape));
    if (ranks > 1 || shape.chunks == 1) return LS_OK;
    return ls_fail(LS_BAD_CONFIG, "%d chunks of the model on the one rank of a pipeline: expected 1, or several ranks", shape.chunks);
}

int ls_pipe_chunks(const ls_pipe_config *c, int ranks)
{
    const ls_pipe_schedule *s;
    ls_pipe_shape shape;
    return schedule_of(c, ranks, &s, &shape) < 0 ? 1 : shape.chunks;
}

static ls_pipe_placement placement_of(const ls_pipe_config *c)
{
    const ls_pipe_schedule *s;
    return ls_pipe_schedule_find(c->schedule, &s) < 0 ? LS_PIPE_LOOP : s->placement;
}

void ls_pipe_stages_of(const ls_pipe_config *c, int ranks, int rank, int *number)
{
    const int chunks = ls_pipe_chunks(c, ranks);
    for (int k = 0; k < chunks; k++) number[k] = ls_pipe_place_stage(placement_of(c), ranks, rank, k);
}

int ls_pipe_rank_of(const ls_pipe_config *c, int ranks, int stage)
{
    return ls_pipe_place_rank(placement_of(c), ranks, stage);
}

bool ls_pipe_splits(const ls_pipe_config *c)
{
    const ls_pipe_schedule *s;
    return ls_pipe_schedule_find(c->schedule, &s) >= 0 && s->splits;
}

/* --- making it ---------------------------------------------------------------------------------------- */

int ls_pipe_slots_of(const ls_pipe *p, int chunk)
{
    return p->stages > 1 ? p->route.tapes[chunk] : p->program.slots[0];
}

int ls_pipe_slots(const ls_pipe *p)
{
    int n = 0;
    for (int c = 0; c < p->program.shape.chunks; c++) n += ls_pipe_slots_of(p, c);
    return n;
}

bool ls_pipe_forwards_first(const ls_pipe *p, int chunk)
{
    return ls_pipe_program_forwards_first(&p->program, p->rank, chunk);
}

/* Buffers, and the works that fill and empty them. */
static ls_status make_room(ls_pipe *p, size_t edge_bytes)
{
    const ls_pipe_route *r = &p->route;
    void *memory = NULL;
    if (p->route.buffers < r->chunks) p->route.buffers = r->chunks; /* for ls_pipe_forward */
    p->each = (edge_bytes + 63) / 64 * 64;
    p->arriving = calloc((size_t)r->buffers + 1, sizeof *p->arriving);
    p->leaving = calloc((size_t)(ls_pipe_slots(p) + r->sends) + 1, sizeof *p->leaving);
    if (!p->arriving || !p->leaving) return ls_fail(LS_NO_MEMORY, "the messages of a pipeline");
    const ls_status st = ls_alloc(ls_group_world(p->g), (size_t)(r->buffers + r->sends) * p->each, LS_MEM_ACT, &memory);
    p->memory = memory;
    return st < 0 ? ls_while(st, "allocating %d buffers between pipeline stages", r->buffers + r->sends) : LS_OK;
}

static ls_status make(ls_pipe *p, const ls_pipe_config *c, int ranks)
{
    const ls_pipe_schedule *s;
    ls_pipe_shape shape;
    LS_TRY(ls_pipe_check(c, ranks));
    LS_TRY(schedule_of(c, ranks, &s, &shape));
    p->stages = shape.ranks * shape.chunks;
    LS_TRY(ls_pipe_program_create(s, &shape, &p->program));
    LS_TRY(ls_pipe_program_make(&p->program, c->micro_batches));
    if (p->stages == 1) return LS_OK;
    LS_TRY(ls_pipe_route_create(&p->program, p->rank, &p->route));
    LS_TRY(ls_pipe_route_make(&p->route, &p->program));
    return make_room(p, c->edge_bytes);
}

ls_status ls_pipe_create(const ls_pipe_config *c, ls_pipe **out)
{
    const int ranks = c->stages ? ls_group_size(c->stages) : 1;
    *out = NULL;
    ls_pipe *p = calloc(1, sizeof *p);
    if (!p) return ls_fail(LS_NO_MEMORY, "a pipe");
    p->g = c->stages;
    p->rank = c->stages ? ls_group_rank(c->stages) : 0;
    p->dry = c->stages && ls_world_is_dry(ls_group_world(c->stages));
    const ls_status st = make(p, c, ranks);
    if (st < 0) ls_pipe_destroy(p);
    else *out = p;
    return st;
}

void ls_pipe_destroy(ls_pipe *p)
{
    if (!p) return;
    ls_pipe_program_free(&p->program);
    ls_pipe_route_free(&p->route);
    free(p->arriving);
    free(p->leaving);
    free(p);
}

/* --- messages ------------------------------------------------------------------------------------------- */

static char *buffer(const ls_pipe *p, int b) { return b < 0 ? NULL : p->memory + (size_t)b * p->each; }
static char *send_buffer(const ls_pipe *p, int b) { return buffer(p, p->route.buffers + b); }

/* Elements across an edge; LS_INVALID unless a buffer has room for them. */
static ls_status size_of(const ls_pipe *p, const ls_pipe_work *work, void *arg, int edge, int micro_batch, ls_p2p *x)
{
    x->count = work->edge(arg, edge, micro_batch, &x->dtype);
    const size_t nbytes = x->count * ls_dtype_size(x->dtype);
    if (nbytes <= p->each) return LS_OK;
    return ls_fail(LS_INVALID, "pipeline: %zu bytes enter stage %d: expected at most %zu (ls_pipe_config.edge_bytes)", nbytes, edge, p->each);
}

/* The stages between which it travels; an event has the micro-batch. */
static void label_of(const char *verb, int edge, char out[LABEL])
{
    snprintf(out, LABEL, "%s %d-%d", verb, edge - 1, edge);
}

static ls_status wait(ls_work **w)
{
    ls_work *work = *w;
    *w = NULL;
    return work ? ls_work_wait(work) : LS_OK;
}

static ls_status receive(ls_pipe *p, const ls_pipe_post *x, const ls_pipe_work *work, void *arg)
{
    char label[LABEL];
    ls_p2p m = { .recv = buffer(p, x->buffer), .peer = x->from };
    LS_TRY(size_of(p, work, arg, x->edge, x->micro_batch, &m));
    label_of("recv", x->edge, label);
    return ls_p2p_start(p->g, &m, label, &p->arriving[x->buffer]);
}

static ls_status send(ls_pipe *p, const ls_pipe_step *s, int micro_batch, const void *from, const ls_pipe_work *work,
                      void *arg, ls_work **w)
{
    char label[LABEL];
    ls_p2p m = { .send = p->dry ? p->memory : from, .peer = s->to }; /* on a dry tape nothing has data */
    LS_TRY(size_of(p, work, arg, s->edge, micro_batch, &m));
    label_of("send", s->edge, label);
    return ls_p2p_start(p->g, &m, label, w);
}

/* --- actions ----------------------------------------------------------------------------------------------- */

static ls_status go_forward(ls_pipe *p, const ls_pipe_action *a, const ls_pipe_step *s, const ls_pipe_work *work,
                            void *arg)
{
    ls_pipe_data data = { .x = buffer(p, s->in) };
    LS_TRY(wait(&p->leaving[s->tape])); /* what the slot's forward before gave has long arrived */
    if (work->feed) LS_TRY(work->feed(arg, a));
    LS_TRY(work->forward(arg, a, &data));
    if (s->to < 0) return LS_OK;
    if (s->to != p->rank) return send(p, s, a->micro_batch, data.y, work, arg, &p->leaving[s->tape]);
    ls_p2p m = { 0 };
    LS_TRY(size_of(p, work, arg, s->edge, a->micro_batch, &m));
    if (!p->dry) memcpy(buffer(p, s->out), data.y, m.count * ls_dtype_size(m.dtype));
    return LS_OK;
}

static ls_status go_backward(ls_pipe *p, const ls_pipe_action *a, const ls_pipe_step *s, const ls_pipe_work *work,
                             void *arg)
{
    const bool sends = s->to >= 0 && s->to != p->rank;
    ls_work **w = sends ? &p->leaving[ls_pipe_slots(p) + s->out] : NULL;
    ls_pipe_data data = { .dy = buffer(p, s->in), .dx = sends ? send_buffer(p, s->out) : buffer(p, s->out) };
    if (sends) LS_TRY(wait(w));
    LS_TRY(work->backward(arg, a, &data));
    return sends ? send(p, s, a->micro_batch, data.dx, work, arg, w) : LS_OK;
}

static ls_status act(ls_pipe *p, const ls_pipe_action *action, const ls_pipe_step *s, const ls_pipe_work *work,
                     void *arg)
{
    ls_pipe_action a = *action;
    a.slot = s->tape;
    for (int i = s->first; i < s->first + s->nposts; i++) LS_TRY(receive(p, &p->route.post[i], work, arg));
    if (s->in >= 0) LS_TRY(wait(&p->arriving[s->in]));
    return a.what == LS_PIPE_FORWARD ? go_forward(p, &a, s, work, arg) : go_backward(p, &a, s, work, arg);
}

static ls_status act_alone(const ls_pipe_action *a, const ls_pipe_work *work, void *arg)
{
    if (a->what != LS_PIPE_FORWARD) return work->backward(arg, a, NULL);
    if (work->feed) LS_TRY(work->feed(arg, a));
    return work->forward(arg, a, NULL);
}

/* What was sent has been received. */
static ls_status settle(ls_pipe *p)
{
    const int n = ls_pipe_slots(p) + p->route.sends;
    for (int i = 0; i < n; i++) LS_TRY(wait(&p->leaving[i]));
    return LS_OK;
}

ls_status ls_pipe_run(ls_pipe *p, int micro_batches, const ls_pipe_work *work, void *arg)
{
    ls_pipe_program *g = &p->program;
    if (micro_batches < 1 || micro_batches > g->most)
        return ls_fail(LS_INVALID, "ls_pipe_run: %d micro-batches: expected 1 to %d, for which the pipe was created",
                       micro_batches, g->most);
    if (micro_batches != g->shape.micro_batches) {
        LS_TRY(ls_pipe_program_make(g, micro_batches));
        if (p->stages > 1) LS_TRY(ls_pipe_route_make(&p->route, g));
    }
    const ls_pipe_list *l = &g->list[p->rank];
    for (int i = 0; i < l->n; i++)
        LS_TRY(p->stages == 1 ? act_alone(&l->action[i], work, arg)
                              : act(p, &l->action[i], &p->route.step[i], work, arg));
    return p->stages > 1 ? settle(p) : LS_OK;
}

/* --- forwards alone ---------------------------------------------------------------------------------------- */

static ls_status forward_chunk(ls_pipe *p, int chunk, int slot, int micro_batch, const ls_pipe_work *work, void *arg)
{
    const ls_pipe_placement where = p->program.placement;
    const int ranks = p->program.shape.ranks, stage = ls_pipe_place_stage(where, ranks, p->rank, chunk);
    const ls_pipe_action a = {
        .what = LS_PIPE_FORWARD, .chunk = chunk, .stage = stage, .micro_batch = micro_batch, .slot = slot
    };
    ls_pipe_step s = {
        .tape = slot, .in = stage > 0 ? chunk : -1, .from = -1, .to = -1, .edge = stage + 1, .out = chunk + 1
    };
    if (stage > 0) s.from = ls_pipe_place_rank(where, ranks, stage - 1);
    if (stage < p->stages - 1) s.to = ls_pipe_place_rank(where, ranks, stage + 1);
    if (s.from >= 0 && s.from != p->rank) {
        const ls_pipe_post x = { .from = s.from, .edge = stage, .micro_batch = micro_batch, .buffer = chunk };
        LS_TRY(receive(p, &x, work, arg));
        LS_TRY(wait(&p->arriving[chunk]));
    }
    return go_forward(p, &a, &s, work, arg);
}

ls_status ls_pipe_forward(ls_pipe *p, int micro_batches, const ls_pipe_work *work, void *arg)
{
    for (int m = 0; m < micro_batches; m++) {
        int slot = 0;
        for (int c = 0; c < p->program.shape.chunks; slot += ls_pipe_slots_of(p, c++)) {
            const ls_pipe_action a = { .what = LS_PIPE_FORWARD, .micro_batch = m };
            LS_TRY(p->stages == 1 ? act_alone(&a, work, arg) : forward_chunk(p, c, slot, m, work, arg));
        }
    }
    return p->stages > 1 ? settle(p) : LS_OK;
}
