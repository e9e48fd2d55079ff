/* run.c -- collectives carried out by reading a schedule over the transport.
 *
 * A group runs one schedule at a time, so schedules, their runs and scratch memory are kept per group and reused: a
 * repeated collective allocates nothing. Scratch and pipes are of the rank's arena. A dry world takes them as well, so
 * that they are planned.
 */
#include "group/run.h"

#include <stdlib.h>
#include <string.h>

#include "coll/exec.h"
#include "coll/traffic.h"
#include "group/choice.h"
#include "group/engine.h"
#include "group/form.h"
#include "group/mismatch.h"
#include "group/spans.h"

typedef struct entry {
    const ls_algo *algo;
    ls_shape shape;
    ls_sched sched;
    ls_run run;
    bool connected;        /* there are pipes to all ranks that it sends to */
    const char *from;      /* scratch that holds the caller's result when the run is over, and where it belongs */
    char *to;
    size_t nbytes;
    struct entry *next;
} entry;

struct ls_sched_cache {
    entry *first;          /* owned list: a handful */
    entry *running;        /* of the work that has begun and is not complete */
};

void ls_sched_cache_free(struct ls_sched_cache *c)
{
    if (!c) return;
    while (c->first) {
        entry *e = c->first;
        c->first = e->next;
        ls_run_free(&e->run);
        ls_sched_free(&e->sched);
        free(e);
    }
    free(c);
}

static ls_status find(ls_group *g, const ls_work *k, entry **out)
{
    ls_choice choice;
    LS_TRY(ls_choice_of(k, &choice));
    bool uneven = k->a.coll == LS_ALL_TO_ALL && k->counts;
    bool rooted = k->a.coll == LS_BROADCAST || k->a.coll == LS_REDUCE || k->a.coll == LS_GATHER ||
                  k->a.coll == LS_SCATTER;
    ls_shape shape = { .coll = k->a.coll,
                       .rank = g->rank,
                       .size = g->size,
                       .root = rooted ? k->a.root : 0,
                       .segments = choice.segments,
                       .nlanes = choice.nlanes,
                       .uneven = uneven,
                       .node = g->node };
    *out = NULL;
    if (!g->cache && !(g->cache = calloc(1, sizeof *g->cache)))
        return ls_fail(LS_NO_MEMORY, "schedules of group %s", g->text);
    for (entry *e = g->cache->first; e; e = e->next)
        if (e->algo == choice.algo && e->shape.coll == shape.coll && e->shape.root == shape.root &&
            e->shape.segments == choice.segments && e->shape.nlanes == choice.nlanes && e->shape.uneven == uneven) {
            *out = e;
            return LS_OK;
        }
    entry *e = calloc(1, sizeof *e);
    if (!e) return ls_fail(LS_NO_MEMORY, "a schedule");
    e->algo = choice.algo;
    e->shape = shape;
    ls_status st = ls_sched_emit(choice.algo, &shape, &e->sched);
    if (st == LS_OK && (st = ls_run_bind(&e->run, &e->sched)) < 0) ls_sched_free(&e->sched);
    if (st < 0) {
        free(e);
        return st;
    }
    e->next = g->cache->first;
    g->cache->first = e;
    *out = e;
    return LS_OK;
}

static ls_status grow(ls_group *g, ls_scratch *s, size_t want)
{
    const ls_status st = ls_scratch_grow(g, s, want);
    return st < 0 ? ls_while(st, "finding %zu bytes of scratch for a collective", want) : LS_OK;
}

/* Pipes to all ranks that a schedule sends to, also where a vector is too short for each to get a part: what a rank
 * takes of its arena then depends on the schedules alone. */
static ls_status open_pipes(ls_group *g, entry *e)
{
    const ls_world *w = g->w;
    if (e->connected || !w->tops->reserve) return LS_OK;
    for (int l = 0; l < e->sched.shape.nlanes; l++)
        for (uint32_t i = 0; i < e->sched.lane[l].n; i++) {
            const ls_step *s = &e->sched.lane[l].step[i];
            if (s->kind == LS_STEP_SEND) LS_TRY(w->tops->reserve(w->tp, g->world_rank[s->peer], g->channel + l));
        }
    e->connected = true;
    return LS_OK;
}

static size_t total(const size_t *counts, int n)
{
    size_t sum = 0;
    for (int r = 0; r < n; r++) sum += counts[r];
    return sum;
}

/* Scratch in place of OUT, for shares [first, end), the own share among them. `vector`, the caller's, is copied
 * in at start. */
static ls_status lend(ls_group *g, ls_work *k, entry *e, const void *vector, int first, int end)
{
    size_t elem = ls_dtype_size(k->a.dtype), n = 0;
    for (int r = first; r < end; r++) n += ls_work_share(k, r).count;
    LS_TRY(grow(g, &g->has.out, n * elem));
    e->run.in = vector;
    e->run.buf[LS_BUF_OUT] = g->has.out.p;
    e->run.out_first = (uint32_t)(first * e->shape.segments);
    return LS_OK;
}

/* When the run is over, the own share goes from where `out` of the run has it to the caller. */
static void hand_over(ls_group *g, ls_work *k, entry *e)
{
    size_t elem = ls_dtype_size(k->a.dtype);
    ls_range own = ls_work_share(k, g->rank), first = ls_work_share(k, (int)e->run.out_first / e->shape.segments);
    e->from = (const char *)e->run.buf[LS_BUF_OUT] + (own.first - first.first) * elem;
    e->to = k->a.out;
    e->nbytes = own.count * elem;
}

/* The own share's buffer for a rank that is not the root of a gather or scatter: as it is where the schedule touches
 * (gather: and only reads) nothing else. */
static ls_status place_share(ls_group *g, ls_work *k, entry *e, const void *share, bool gather)
{
    ls_run *r = &e->run;
    const int segments = e->shape.segments;
    int first = g->rank, end = first + 1;
    if (r->touched.n > 0) {
        int low = (int)r->touched.first / segments, high = ((int)(r->touched.first + r->touched.n) - 1) / segments + 1;
        if (low < first) first = low;
        if (high > end) end = high;
    }
    if (end - first > 1 || (gather && r->writes)) {
        LS_TRY(lend(g, k, e, gather ? share : NULL, first, end));
        if (!gather) hand_over(g, k, e);
        return LS_OK;
    }
    r->in = NULL;
    r->buf[LS_BUF_OUT] = (void *)(uintptr_t)share;
    r->out_first = (uint32_t)(first * segments);
    return LS_OK;
}

/* IN and OUT of a run: the caller's, or scratch where that does not hold all that the schedule touches, or may
 * not be written. */
static ls_status place(ls_group *g, ls_work *k, entry *e)
{
    ls_run *r = &e->run;
    const void *vector = k->a.in ? k->a.in : k->a.out;
    const bool at_root = g->rank == k->a.root;
    e->nbytes = 0;
    r->in = k->a.in;
    r->buf[LS_BUF_OUT] = k->a.out;
    r->out_first = 0;
    switch (k->a.coll) {
    case LS_REDUCE_SCATTER:
        if (!k->a.in) return LS_OK;
        LS_TRY(lend(g, k, e, vector, 0, g->size));
        hand_over(g, k, e);
        return LS_OK;
    case LS_REDUCE:
        if (at_root) return LS_OK;
        if (r->writes || (k->a.op == LS_AVG && !e->sched.one_sum)) return lend(g, k, e, vector, 0, g->size);
        r->in = NULL;
        r->buf[LS_BUF_OUT] = (void *)(uintptr_t)vector; /* only read */
        return LS_OK;
    case LS_GATHER: return at_root ? LS_OK : place_share(g, k, e, vector, true);
    case LS_SCATTER:
        if (!at_root) return place_share(g, k, e, k->a.out, false);
        r->in = NULL;
        r->buf[LS_BUF_OUT] = (void *)(uintptr_t)vector;
        if (r->writes) LS_TRY(lend(g, k, e, vector, 0, g->size));
        if (k->a.in && k->a.out) hand_over(g, k, e);
        return LS_OK;
    case LS_ALL_TO_ALL:
        if (k->a.in) return LS_OK;
        LS_TRY(grow(g, &g->has.out, k->nbytes));
        if (k->nbytes > 0 && !g->w->dry) memcpy(g->has.out.p, k->a.out, k->nbytes);
        r->in = g->has.out.p;
        return LS_OK;
    default: return LS_OK;
    }
}

/* Everything that a run needs. */
static ls_status prepare(ls_group *g, ls_work *k, entry *e)
{
    ls_run *r = &e->run;
    size_t elem = ls_dtype_size(k->a.dtype), nout = k->recv_counts ? total(k->recv_counts, g->size) : k->a.count;
    LS_TRY(open_pipes(g, e));
    LS_TRY(grow(g, &g->has.tmp, ls_sched_tmp_bytes(&e->sched, nout, elem)));
    LS_TRY(place(g, k, e));
    r->ops = g->w->tops;
    r->tp = g->w->tp;
    r->world_rank = g->world_rank;
    r->channel = g->channel;
    r->sig = k->sig;
    r->red = (ls_reduction){ .dtype = k->a.dtype, .op = k->a.op };
    r->count = k->a.count;
    r->counts = k->counts;
    r->recv_counts = k->recv_counts;
    r->buf[LS_BUF_TMP] = g->has.tmp.p;
    r->narrow = ls_choice_narrow(k) ? &g->narrow : NULL;
    /* on all members or on none: who is far from one is far from another */
    r->rounds = r->narrow != NULL && k->a.coll == LS_ALL_REDUCE;
    if (r->narrow) LS_TRY(grow(g, &g->has.wire, k->a.count * 2));
    r->wire = g->has.wire.p;
    r->budget = LS_TURN_BYTES;
    r->received = r->sent = 0;
    return LS_OK;
}

static ls_status start(ls_group *g, ls_work *k, entry *e)
{
    LS_TRY(prepare(g, k, e));
    g->ran_algo = e->algo;
    k->algo = e->algo->name;
    g->ran_segments = e->shape.segments;
    k->pos = 0;
    return ls_run_start(&e->run);
}

ls_status ls_run_take(ls_work *k)
{
    entry *e;
    LS_TRY(find(k->g, k, &e));
    return prepare(k->g, k, e);
}

/* What we have sent so far, and what each lane waits for: whose message is lost may only we know. */
static LS_COLD void show(ls_group *g, const ls_work *k, const ls_run *r)
{
    ls_flow *f = g->flow;
    for (int l = 0; l < LS_PAGE_LANES; l++) {
        ls_run_wait x;
        const bool runs = l < r->sched->shape.nlanes, waits = runs && ls_run_waits(r, l, &x);
        uint64_t word = waits ? ls_flow_wait(g->world_rank[x.peer], x.sends, x.part, x.number) : 0;
        _Atomic uint32_t *sent = ls_page_sent(g->w->page, g->w->rank, (uint32_t)(g->channel / LS_GROUP_CHANNELS), l);
        for (int p = 0; p < g->size; p++)
            atomic_store_explicit(&sent[g->world_rank[p]], runs ? ls_run_sent(r, l, p) : 0, memory_order_relaxed);
        atomic_store_explicit(&f->waits[l], word, memory_order_relaxed);
    }
    atomic_store_explicit(&f->done, 0, memory_order_relaxed);
    atomic_store_explicit(&f->seq, k->desc.seq, memory_order_release); /* what is above is about it */
}

static inline void show_done(ls_group *g, const ls_work *k)
{
    atomic_store_explicit(&g->flow->done, 1, memory_order_relaxed);
    atomic_store_explicit(&g->flow->seq, k->desc.seq, memory_order_release);
}

static ls_status turn(ls_work *k)
{
    ls_group *g = k->g;
    entry *e;
    if (k->phase == 0) {
        if (k->span) ls_spans_pack(k);
        LS_TRY(find(g, k, &e));
        LS_TRY(start(g, k, e));
        g->cache->running = e;
        g->shown = UINT64_MAX;
        k->phase = 1;
    }
    e = g->cache->running;
    ls_run *r = &e->run;
    ls_status st = ls_run_progress(r);
    k->pos = (size_t)(r->received + r->sent); /* shows whether something moved */
    if (st == LS_COLL_MISMATCH && r->mismatch_peer >= 0) return ls_mismatch(g, k, r->mismatch_peer);
    if (st == LS_AGAIN && ls_run_stamp(r) != g->shown) {
        g->shown = ls_run_stamp(r);
        show(g, k, r);
    }
    if (st != LS_OK) return st;
    show_done(g, k);
    if (e->nbytes > 0 && e->to != e->from) memcpy(e->to, e->from, e->nbytes);
    if (k->span) ls_spans_unpack(k);
    /* through shared memory a payload byte is read by its receiver; on a wire its sender sends it */
    ls_count_moved(k, g->mapped ? r->received : r->sent);
    return LS_OK;
}

ls_status ls_run_traffic(const ls_work *k, bool rounds, ls_traffic *out)
{
    ls_group *g = k->g;
    entry *e;
    LS_TRY(find(g, k, &e));
    const size_t *counts = k->recv_counts ? k->recv_counts : k->counts;
    LS_TRY(ls_sched_traffic(&e->sched, k->a.count, counts, k->recv_counts ? k->counts : NULL, ls_dtype_size(k->a.dtype),
                            ls_choice_narrow(k) ? &g->narrow : NULL, out));
    /* through shared memory a payload byte is read by its receiver; on a wire its sender sends it */
    out->counted = g->mapped ? out->read : out->written;
    return rounds ? ls_sched_rounds(e->algo, &e->shape, &out->rounds) : LS_OK;
}

static ls_status traffic(const ls_work *k, ls_traffic *out) { return ls_run_traffic(k, true, out); }

const ls_form ls_form_schedule = { .name = "schedule", .about = "a schedule", .turn = turn, .traffic = traffic };
