/* step_sim.c -- a step as a model of the event engine. */
#include "plan/step_sim.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lockstep/pipe.h"

enum { TRIGGER, DONE, FIRST_EDGE }; /* `via` of messages: to the stream beside, from it, between stages */
enum { NOTHING };                    /* the first of the costs: 0 s */

#define MOST_MASKS 32
#define MOST_EDGES ((int)(LS_DES_MOST_VIA - FIRST_EDGE) / 2)

/* What ranks of a stage do, and which item each operation is of. */
typedef struct program {
    ls_des_op *op; /* owned */
    int *item;     /* owned */
    int n, cap;
} program;

typedef struct builder {
    const ls_step_lists *l;
    const ls_step_sim_opts *o;
    ls_step_result *out;
    program *compute, *beside; /* owned: [stages x eps] */
    int eps;       /* places along ep whose ranks have programs of their own; 1: all have the same */
    ls_mesh_groups groups[MOST_MASKS];
    int ngroups;
    double *cost;  /* owned, as all below */
    uint32_t ncosts, cap;
    const ls_des_op **all;
    uint32_t *base, *place, *group, *members, *core;
    double *pace, *wake;
    ls_step_parts *parts; /* [ranks] */
    double *ends, beside_s;
    int stage, at; /* at hand, and its program of a place along ep, */
    int begun;     /* and how far its items were looked at for those that go on beside */
    double since;  /* bytes that a rank of the stage at hand touches since it waited last */
    ls_step_trace *trace;
} builder;

static int stage_of(const builder *b, int rank)
{
    int stage, stages;
    ls_mesh_place(b->l->size, b->l->order, rank, LS_ALONG(LS_AXIS_PP), &stage, &stages);
    return stage;
}

/* Ranks of a stage and a place along ep do the same. */
static int program_of(const builder *b, int rank)
{
    int place = 0, of;
    if (b->eps > 1) ls_mesh_place(b->l->size, b->l->order, rank, LS_ALONG(LS_AXIS_EP), &place, &of);
    return stage_of(b, rank) * b->eps + place;
}

double ls_step_tail_s(const ls_step_parts *stage, int stages)
{
    double least = stage[0].idle;
    for (int k = 1; k < stages; k++) least = fmin(least, stage[k].idle);
    return least;
}

/* --- programs --------------------------------------------------------------------------------------------- */

static ls_status add_cost(builder *b, double v, uint32_t *out)
{
    if (v == 0) {
        *out = NOTHING;
        return LS_OK;
    }
    if (b->ncosts == b->cap) {
        const uint32_t cap = b->cap ? 2 * b->cap : 1024;
        double *more = cap <= LS_DES_MOST_COSTS ? realloc(b->cost, cap * sizeof *more) : NULL;
        if (!more) return ls_fail(LS_NO_MEMORY, "a step of %u items", cap);
        b->cost = more;
        b->cap = cap;
    }
    b->cost[*out = b->ncosts++] = v;
    return LS_OK;
}

static ls_status put(program *p, int item, ls_des_op op)
{
    if (p->n == p->cap) {
        const int cap = p->cap ? 2 * p->cap : 512;
        ls_des_op *more = realloc(p->op, (size_t)cap * sizeof *more);
        if (more) p->op = more;
        int *items = realloc(p->item, (size_t)cap * sizeof *items);
        if (items) p->item = items;
        if (!more || !items) return ls_fail(LS_NO_MEMORY, "a step of %d items", cap);
        p->cap = cap;
    }
    p->op[p->n] = op;
    p->item[p->n++] = item;
    return LS_OK;
}

/* The axis of MEET that stands for these groups. */
static ls_status groups_of(builder *b, const ls_step_item *i, uint32_t *out)
{
    int k = 0;
    while (k < b->ngroups && !ls_step_same_span(&b->groups[k].span, &i->span)) k++;
    if (k == MOST_MASKS)
        return ls_fail(LS_UNSUPPORTED, "a step whose groups span more than %d sets of axes", MOST_MASKS);
    if (k == b->ngroups) {
        b->groups[k] = (ls_mesh_groups){ .ranks = b->l->ranks, .span = i->span };
        memcpy(b->groups[k].size, b->l->size, sizeof b->l->size);
        memcpy(b->groups[k].order, b->l->order, sizeof b->l->order);
        b->ngroups++;
    }
    *out = (uint32_t)k;
    return LS_OK;
}

static ls_status price_of(builder *b, const ls_step_item *i, uint32_t groups, int calls[LS_STEP_PRICES],
                          double *seconds)
{
    ls_step_result *r = b->out;
    const ls_step_call call = ls_step_call_of(i);
    int k = 0;
    while (k < r->ncalled && !ls_step_same_call(&r->called[k].call, &call)) k++;
    if (k == LS_STEP_PRICES)
        return ls_fail(LS_UNSUPPORTED, "a step with more than %d kinds of collectives", LS_STEP_PRICES);
    ls_step_called *c = &r->called[k];
    if (k == r->ncalled) {
        *c = (ls_step_called){ .call = call };
        const ls_measured_coll *m = ls_colls_find(b->o->colls, &call);
        if (m) c->price = (ls_step_price){ .seconds = m->seconds, .algo = "measured" };
        else LS_TRY(ls_step_price_of(b->o->t, &b->groups[groups], i->coll, i->bytes,
                                     b->o->algo ? b->o->algo[i->coll] : NULL, &c->price));
        r->ncalled++;
    }
    if (++calls[k] > c->calls) c->calls = calls[k];
    *seconds = c->price.seconds;
    return LS_OK;
}

/* How many processes further the rank is that has the other end of an edge. */
static uint32_t to_peer(const builder *b, const ls_step_item *i, int stage)
{
    const ls_pipe_config pipe = { .schedule = b->l->schedule, .chunks = b->l->chunks,
                                  .micro_batches = b->l->micro_batches };
    const bool upper = (i->kind == LS_ITEM_SEND) == i->forward; /* the peer has the stage after the edge */
    const int peer = ls_pipe_rank_of(&pipe, b->l->stages, upper ? i->edge : i->edge - 1);
    const unsigned pp = LS_ALONG(LS_AXIS_PP);
    const int own = ls_mesh_at(b->l->size, b->l->order, 0, pp, stage);
    return (uint32_t)(2 * (ls_mesh_at(b->l->size, b->l->order, 0, pp, peer) - own));
}

/* What it costs a rank to wait, where others use its core meanwhile: `itself`, and what its caches have lost. */
static ls_status put_wait(builder *b, program *own, int k, double itself)
{
    uint32_t cost = NOTHING;
    if (!b->o->waits) return LS_OK;
    LS_TRY(add_cost(b, itself + ls_wait_cost_refill_s(b->o->waits, b->since), &cost));
    b->since = 0;
    return put(own, k, ls_des_op_of(LS_DES_WORK, 0, 0, cost));
}

static double message_s(const builder *b) { return b->o->waits ? b->o->waits->message_s : 0; }
static double coll_s(const builder *b) { return b->o->waits ? b->o->waits->coll_s : 0; }

static bool is_measured(const builder *b, const ls_step_item *i)
{
    const ls_step_call call = ls_step_call_of(i);
    return ls_colls_find(b->o->colls, &call) != NULL;
}

/* Works that go on beside are waited for in the order in which they began. */
static const ls_step_item *next_begun(builder *b)
{
    const ls_step_list *l = &b->l->of[b->stage];
    while (b->begun < l->n && l->item[b->begun].kind != LS_ITEM_BEGIN) b->begun++;
    return b->begun < l->n ? &l->item[b->begun++] : NULL;
}

/* Where ranks share cores, a collective that was measured, with its waits, is a part of a core's time for each of them,
 * whenever it comes; else all take the same time from the moment at which the last one is there. */
static ls_status put_coll(builder *b, program *own, int k, uint32_t groups, double seconds)
{
    const ls_step_item *i = &b->l->of[b->stage].item[k];
    const bool beside = i->kind == LS_ITEM_BEGIN, of_a_core = is_measured(b, i) && b->o->waits;
    uint32_t cost;
    LS_TRY(add_cost(b, of_a_core ? seconds * b->o->colls->part : seconds, &cost));
    if (of_a_core && beside) LS_TRY(put(own, k, ls_des_op_of(LS_DES_WORK, 0, 0, cost)));
    else if (of_a_core) LS_TRY(put_wait(b, own, k, seconds * b->o->colls->part));
    else if (!beside) LS_TRY(put_wait(b, own, k, i->coll == LS_SENDRECV ? message_s(b) : coll_s(b)));
    return put(own, k, ls_des_op_of(LS_DES_MEET, groups, 0, of_a_core ? NOTHING : cost));
}

/* To where `recv` receives: those of an edge, one way, are alike. */
static double bytes_sent(const ls_step_lists *l, const ls_step_item *recv)
{
    for (int s = 0; s < l->stages; s++)
        for (int k = 0; k < l->of[s].n; k++) {
            const ls_step_item *i = &l->of[s].item[k];
            if (i->kind == LS_ITEM_SEND && i->edge == recv->edge && i->forward == recv->forward) return i->bytes;
        }
    return 0;
}

/* Between stages, where ranks share cores: half of a message's work is the sender's. 0: it was not timed. */
static double half_message_s(const builder *b, const ls_step_item *i)
{
    if (!b->o->waits || (i->kind != LS_ITEM_SEND && i->kind != LS_ITEM_RECV)) return 0;
    const double bytes = i->kind == LS_ITEM_SEND ? i->bytes : bytes_sent(b->l, i);
    const ls_step_call message = { .span = LS_BETWEEN_STAGES, .coll = LS_SENDRECV, .bytes = bytes };
    const ls_measured_coll *m = ls_colls_find(b->o->colls, &message);
    return m ? 0.5 * m->seconds * b->o->colls->part : 0;
}

/* Of a place along ep: what a router sent there takes as much longer as there is more of it (weights, which are read
 * all the same, are small beside it or in caches). */
static double work_s(const builder *b, const ls_step_item *i, int ep)
{
    const double more = b->eps > 1 && i->routed > 0 ? b->l->uneven[i->layer * b->eps + ep] - 1 : 0;
    return i->seconds + more * i->routed;
}

static ls_status put_item(builder *b, int stage, int ep, int k, int calls[LS_STEP_PRICES], int *waited)
{
    const ls_step_item *i = &b->l->of[stage].item[k];
    program *own = &b->compute[b->at], *beside = &b->beside[b->at];
    const uint32_t via = FIRST_EDGE + 2 * (uint32_t)i->edge + (i->forward ? 0 : 1);
    const double half = half_message_s(b, i);
    double seconds = work_s(b, i, ep);
    uint32_t cost = NOTHING, groups = 0;
    if (i->kind == LS_ITEM_COLL || i->kind == LS_ITEM_BEGIN) {
        LS_TRY(groups_of(b, i, &groups));
        LS_TRY(price_of(b, i, groups, calls, &seconds));
    }
    else LS_TRY(add_cost(b, i->kind == LS_ITEM_SEND ? i->bytes : seconds, &cost));
    switch (i->kind) {
    case LS_ITEM_WORK:
        b->since += i->bytes;
        LS_TRY(put(own, k, ls_des_op_of(LS_DES_WORK, 0, 0, cost)));
        if (!(i->asleep > 0)) return LS_OK;
        LS_TRY(add_cost(b, i->asleep, &cost));
        return put(own, k, ls_des_op_of(LS_DES_WORK, 0, LS_DES_ASLEEP, cost));
    case LS_ITEM_COLL: return put_coll(b, own, k, groups, seconds);
    case LS_ITEM_BEGIN:
        LS_TRY(put(own, k, ls_des_op_of(LS_DES_SEND, 1, TRIGGER, NOTHING)));
        LS_TRY(put(beside, k, ls_des_op_of(LS_DES_RECV, UINT32_MAX, TRIGGER, NOTHING)));
        LS_TRY(put_coll(b, beside, k, groups, seconds));
        return put(beside, k, ls_des_op_of(LS_DES_SEND, UINT32_MAX, DONE, NOTHING));
    case LS_ITEM_WAIT:
        for (; *waited < i->count; ++*waited) {
            const ls_step_item *begun = next_begun(b);
            const bool timed = begun && is_measured(b, begun);
            LS_TRY(put(own, k, ls_des_op_of(LS_DES_RECV, 1, DONE, NOTHING)));
            LS_TRY(put_wait(b, own, k, timed ? 0 : coll_s(b)));
        }
        return LS_OK;
    case LS_ITEM_SEND:
        if (half > 0) {
            LS_TRY(add_cost(b, half, &cost));
            LS_TRY(put(own, k, ls_des_op_of(LS_DES_WORK, 0, 0, cost)));
            cost = NOTHING; /* no link has it: it was copied */
        }
        return put(own, k, ls_des_op_of(LS_DES_SEND, to_peer(b, i, stage), via, cost));
    case LS_ITEM_RECV:
        LS_TRY(put(own, k, ls_des_op_of(LS_DES_RECV, to_peer(b, i, stage), via, NOTHING)));
        return put_wait(b, own, k, half > 0 ? half : message_s(b));
    }
    return LS_OK;
}

static ls_status put_program(builder *b, int stage, int ep)
{
    static const ls_des_op end = { .kind = LS_DES_END };
    int calls[LS_STEP_PRICES] = { 0 }, waited = 0;
    if (b->l->stages * b->l->chunks > MOST_EDGES)
        return ls_fail(LS_UNSUPPORTED, "a pipeline of %d stages: at most %d can be simulated",
                       b->l->stages * b->l->chunks, MOST_EDGES);
    b->stage = stage;
    b->at = stage * b->eps + ep;
    b->begun = 0;
    b->since = 0;
    for (int k = 0; k < b->l->of[stage].n; k++) LS_TRY(put_item(b, stage, ep, k, calls, &waited));
    LS_TRY(put(&b->compute[b->at], -1, end));
    return put(&b->beside[b->at], -1, end);
}

static ls_status put_programs(builder *b)
{
    b->eps = b->l->uneven ? b->l->size[LS_AXIS_EP] : 1;
    const size_t n = (size_t)b->l->stages * (size_t)b->eps;
    b->compute = calloc(n, sizeof *b->compute);
    b->beside = calloc(n, sizeof *b->beside);
    if (!b->compute || !b->beside) return ls_fail(LS_NO_MEMORY, "%zu programs", n);
    for (int s = 0; s < b->l->stages; s++)
        for (int ep = 0; ep < b->eps; ep++) LS_TRY(put_program(b, s, ep));
    return LS_OK;
}

/* --- ranks ----------------------------------------------------------------------------------------------------- */

static ls_status put_ranks(builder *b)
{
    const size_t ranks = (size_t)b->l->ranks, n = 2 * ranks, axes = (size_t)b->ngroups;
    b->all = malloc(n * sizeof *b->all);
    b->base = malloc(n * sizeof *b->base);
    b->place = malloc(n * sizeof *b->place);
    b->group = calloc(axes * n + 1, sizeof *b->group);
    b->members = malloc((2 * axes * ranks + 1) * sizeof *b->members);
    b->pace = malloc(n * sizeof *b->pace);
    b->core = b->o->core ? malloc(n * sizeof *b->core) : NULL;
    b->wake = b->o->wake_s > 0 ? calloc(n, sizeof *b->wake) : NULL;
    b->parts = calloc(ranks, sizeof *b->parts);
    b->ends = malloc(n * sizeof *b->ends);
    if (!b->all || !b->base || !b->place || !b->group || !b->members || !b->pace || !b->parts || !b->ends ||
        (b->o->core && !b->core) || (b->o->wake_s > 0 && !b->wake))
        return ls_fail(LS_NO_MEMORY, "%zu ranks", ranks);
    for (uint32_t p = 0; p < n; p++) {
        const int of = program_of(b, (int)(p / 2));
        b->all[p] = p % 2 ? b->beside[of].op : b->compute[of].op;
        b->base[p] = p;
        b->place[p] = p / 2;
        b->pace[p] = 1;
        if (b->core) b->core[p] = b->o->core[p / 2];
        if (b->wake && p % 2 == 0) b->wake[p] = b->o->wake_s; /* beside has no thread (inline) */
        for (size_t a = 0; a < axes; a++) {
            int first, place;
            if (ls_mesh_groups_of(&b->groups[a], (int)(p / 2), &first, &place))
                b->group[a * n + p] = (uint32_t)((2 * a + p % 2) * ranks) + (uint32_t)first;
        }
    }
    for (size_t g = 0; g < 2 * axes * ranks; g++) /* streams beside have groups of their own */
        b->members[g] = (uint32_t)ls_mesh_groups_members(&b->groups[g / (2 * ranks)]);
    for (int i = 0; i < b->o->nstragglers; i++) {
        const ls_step_straggler *s = &b->o->straggler[i];
        if (s->rank < 0 || s->rank >= b->l->ranks || !(s->pace > 0) || !isfinite(s->pace))
            return ls_fail(LS_BAD_CONFIG,
                           "rank %d takes %g times as long: expected a rank from 0 to %d, and a number above 0",
                           s->rank, s->pace, b->l->ranks - 1);
        b->pace[2 * s->rank] = s->pace;
    }
    return LS_OK;
}

/* --- what it says ----------------------------------------------------------------------------------------------- */

static void on_span(void *arg, const ls_des_op *op, const ls_des_span *s)
{
    builder *b = arg;
    const int rank = (int)(s->process / 2), of = program_of(b, rank);
    const bool beside = s->process % 2 == 1;
    const program *p = beside ? &b->beside[of] : &b->compute[of];
    const ls_step_item *i = &b->l->of[of / b->eps].item[p->item[s->at]];
    ls_step_parts *to = &b->parts[rank];
    if (beside && op->kind == LS_DES_MEET) b->beside_s += s->until_s - s->ready_s;
    if (beside && op->kind == LS_DES_WORK) b->beside_s += s->until_s - s->from_s;
    const bool waits = !beside && op->kind == LS_DES_WORK && i->kind != LS_ITEM_WORK;
    const bool stages = i->kind == LS_ITEM_SEND || i->kind == LS_ITEM_RECV || (i->span.axes >> LS_AXIS_PP & 1u);
    if (waits) *(stages ? &to->stages : &to->collectives) += s->until_s - s->from_s;
    if (!beside && op->kind == LS_DES_WORK && !waits) {
        to->compute += s->until_s - s->from_s;
        to->core_s += fmin(s->until_s - s->from_s, b->cost[op->cost] * b->pace[s->process]);
        if (i->part == LS_PART_OPTIMIZER) to->optimizer += s->until_s - s->from_s;
        if (i->part == LS_PART_DATA) to->data += s->until_s - s->from_s;
    }
    if (!beside && op->kind == LS_DES_MEET) {
        to->collectives += s->until_s - s->ready_s;
        *(i->span.axes >> LS_AXIS_PP & 1u ? &to->stages : &to->others) += s->ready_s - s->from_s;
    }
    if (!beside && op->kind == LS_DES_RECV) *(i->kind == LS_ITEM_WAIT ? &to->beside : &to->stages)
        += s->ready_s - s->from_s;
    const bool seen = beside ? op->kind == LS_DES_MEET || op->kind == LS_DES_WORK
                             : !waits && (op->kind != LS_DES_SEND || i->kind == LS_ITEM_SEND);
    if (b->trace && seen) ls_step_trace_add(b->trace, rank, i, s);
}

static void sum_up(builder *b)
{
    ls_step_result *r = b->out;
    const int each = b->l->ranks / b->l->stages;
    double waits = 0;
    for (int rank = 0; rank < b->l->ranks; rank++) {
        ls_step_parts *p = &b->parts[rank], *to = &r->stage[stage_of(b, rank)];
        p->idle = r->step_s - b->ends[2 * rank];
        to->compute += p->compute / each;
        to->core_s += p->core_s / each;
        to->optimizer += p->optimizer / each;
        to->data += p->data / each;
        to->collectives += p->collectives / each;
        to->others += p->others / each;
        to->beside += p->beside / each;
        to->stages += p->stages / each;
        to->idle += p->idle / each;
        waits += p->stages + p->idle;
        r->exposed_s += (p->collectives + p->beside) / b->l->ranks;
    }
    r->beside_s = b->beside_s / b->l->ranks;
    r->bubble = r->step_s > 0 ? waits / (r->step_s * b->l->ranks) : 0;
}

static ls_status run(builder *b)
{
    LS_TRY(ls_topo_check_ranks(b->o->t, b->l->ranks));
    LS_TRY(add_cost(b, -1, &(uint32_t){ 0 })); /* the place of NOTHING */
    b->cost[NOTHING] = 0;
    LS_TRY(put_programs(b));
    LS_TRY(put_ranks(b));
    if (b->o->trace) LS_TRY(ls_step_trace_create(b->l, b->o->traced, &b->trace));
    const ls_des_model m = {
        .n = 2 * (uint32_t)b->l->ranks, .program = b->all, .base = b->base, .place = b->place, .cost = b->cost,
            .ncosts = b->ncosts,
        .axes = (uint32_t)b->ngroups, .ngroups = (uint32_t)(2 * b->ngroups * b->l->ranks), .group = b->group,
            .members = b->members,
        .net = { .topo = b->o->t, .gap = 1, .sharing = LS_DES_FIFO, .failure = b->o->failure,
                 .nfailures = b->o->nfailures },
        .cores = b->o->cores, .core = b->core, .idle_s = b->o->idle_s, .wake_s = b->wake,
        .poll = b->core && b->o->colls ? b->o->colls->poll : 0, .poll_via = FIRST_EDGE,
        .pace = b->pace,
        .jitter = b->o->jitter, .seed = b->o->seed,
        .told = on_span, .arg = b,
    };
    ls_des_result r = { .ends_s = b->ends };
    LS_TRY(ls_des_run(&m, &r));
    b->out->step_s = r.end_s;
    b->out->events = r.events;
    sum_up(b);
    return b->trace ? ls_step_trace_write(b->trace, b->o->trace) : LS_OK;
}

ls_status ls_step_simulate(const ls_step_lists *l, const ls_step_sim_opts *o, ls_step_result *out)
{
    builder b = { .l = l, .o = o, .out = out };
    *out = (ls_step_result){ 0 };
    const ls_status st = run(&b);
    for (int k = 0; b.compute && b.beside && k < l->stages * b.eps; k++) {
        free(b.compute[k].op);
        free(b.compute[k].item);
        free(b.beside[k].op);
        free(b.beside[k].item);
    }
    free(b.compute);
    free(b.beside);
    free(b.cost);
    free(b.all);
    free(b.base);
    free(b.place);
    free(b.group);
    free(b.members);
    free(b.pace);
    free(b.wake);
    free(b.core);
    free(b.parts);
    free(b.ends);
    ls_step_trace_free(b.trace);
    return st;
}
