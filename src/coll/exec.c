/* exec.c -- the reader of schedules that moves bytes. */
#include "coll/exec.h"

#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "coll/reduce.h"

/* With a budget, large views are taken in pieces of this many bytes. */
#define PIECE ((size_t)64 << 10)
#define NARROW_BYTES 2u /* of a value that travels as bf16 */

static void touch(ls_slice *all, ls_slice a)
{
    if (a.buf != LS_BUF_OUT || a.n == 0) return;
    uint32_t end = all->n ? all->first + all->n : 0;
    if (all->n == 0 || a.first < all->first) all->first = a.first;
    if (a.first + a.n > end) end = a.first + a.n;
    all->n = end - all->first;
}

ls_status ls_run_bind(ls_run *r, const ls_sched *s)
{
    size_t nsteps = 0;
    r->sched = s;
    r->touched = (ls_slice){ LS_BUF_OUT, 0, 0 };
    r->writes = false;
    r->out_first = 0;
    r->counts = r->recv_counts = NULL;
    r->tickets = NULL;
    r->nth = NULL;
    r->src = NULL;
    r->share = NULL;
    for (int l = 0; l < s->shape.nlanes; l++) {
        nsteps += s->lane[l].n;
        for (uint32_t i = 0; i < s->lane[l].n; i++) {
            const ls_step *a = &s->lane[l].step[i];
            if (a->kind == LS_STEP_FOLD)
                return ls_fail(LS_UNSUPPORTED, "%s: fold needs memory that all ranks have mapped",
                               ls_coll_name(s->shape.coll));
            touch(&r->touched, a->src);
            touch(&r->touched, a->dst);
            r->writes = r->writes || (a->dst.buf == LS_BUF_OUT && a->dst.n > 0);
        }
    }
    LS_TRY(ls_layout_create(s, &r->layout));
    r->tickets = calloc(nsteps + 1, sizeof *r->tickets);
    r->nth = calloc((size_t)s->shape.nlanes * 2 * (size_t)s->shape.size, sizeof *r->nth);
    r->src = calloc((size_t)s->shape.size, sizeof *r->src);
    r->share = s->cut ? calloc((size_t)s->shape.size, sizeof *r->share) : NULL;
    if (!r->tickets || !r->nth || !r->src || (s->cut && !r->share)) {
        ls_run_free(r);
        return ls_fail(LS_NO_MEMORY, "run of %zu steps", nsteps);
    }
    uint64_t *t = r->tickets;
    for (int l = 0; l < s->shape.nlanes; t += s->lane[l].n, l++) r->lane[l].ticket = t;
    return LS_OK;
}

void ls_run_free(ls_run *r)
{
    if (!r) return;
    ls_layout_free(&r->layout);
    free(r->tickets);
    free(r->nth);
    free(r->src);
    free(r->share);
    r->tickets = NULL;
    r->nth = NULL;
    r->src = NULL;
    r->share = NULL;
    r->sched = NULL;
}

static char *at(const ls_run *r, ls_slice a)
{
    size_t first = ls_layout_first(&r->layout, a);
    return (char *)r->buf[a.buf] + (a.buf == LS_BUF_OUT ? first - r->origin : first) * r->elem;
}
static size_t nbytes(const ls_run *r, ls_slice a) { return ls_layout_count(&r->layout, a) * r->elem; }
static int world_rank(const ls_run *r, int peer) { return r->world_rank ? r->world_rank[peer] : peer; }

/* What is sent stands in a buffer of its own. */
static bool has_in(ls_coll c) { return c == LS_ALL_TO_ALL || c == LS_SENDRECV; }

static void copy_in(ls_run *r)
{
    const ls_shape *s = &r->sched->shape;
    char *out = r->buf[LS_BUF_OUT];
    if (!r->in || r->in == out || has_in(s->coll)) return;
    if ((s->coll == LS_BROADCAST || s->coll == LS_SCATTER) && s->rank != s->root) return;
    if (s->coll == LS_ALL_GATHER || s->coll == LS_GATHER) {
        ls_slice own = { LS_BUF_OUT, (uint32_t)(s->rank * s->segments), (uint32_t)s->segments };
        if (at(r, own) != r->in && nbytes(r, own) > 0) memcpy(at(r, own), r->in, nbytes(r, own));
    } else {
        memcpy(out, r->in, r->count * r->elem);
    }
}

/* LS_AVG as the kernels know it: they scale contributions or nothing. */
static bool scales_first(const ls_run *r) { return r->red.op == LS_AVG && !r->red.divide_last; }

static bool reduces(ls_coll c) { return c == LS_ALL_REDUCE || c == LS_REDUCE_SCATTER || c == LS_REDUCE; }

/* Where the shares lie: by the caller's counts, by the algorithm's own rule, or evenly. */
static void cut(ls_run *r)
{
    const ls_sched *s = r->sched;
    if (r->counts && s->shape.coll == LS_ALL_TO_ALL) {
        ls_layout_set_counts(&r->layout, r->recv_counts, r->counts);
    } else if (r->counts) {
        ls_layout_set_counts(&r->layout, r->counts, NULL);
    } else if (s->cut) {
        s->cut(r->count, r->elem, s->shape.size, r->share);
        ls_layout_set_counts(&r->layout, r->share, NULL);
    } else {
        ls_layout_set(&r->layout, r->count);
    }
}

ls_status ls_run_start(ls_run *r)
{
    const ls_sched *s = r->sched;
    r->elem = ls_dtype_size(r->red.dtype);
    if (r->elem == 0) return ls_fail(LS_INVALID, "element type %d is unknown", (int)r->red.dtype);
    cut(r);
    r->origin = r->layout.at[LS_BUF_OUT][r->out_first];
    if (has_in(s->shape.coll)) r->buf[LS_BUF_IN] = (void *)(uintptr_t)r->in; /* no step writes there */
    for (int l = 0; l < s->shape.nlanes; l++) r->lane[l].pc = r->lane[l].released = 0, r->lane[l].done = 0;
    memset(r->nth, 0, (size_t)s->shape.nlanes * 2 * (size_t)s->shape.size * sizeof *r->nth);
    r->mismatch_peer = -1;
    if (r->count == 0) return LS_OK;
    copy_in(r);
    if (reduces(s->shape.coll) && !s->one_sum && scales_first(r))
        ls_scale_values(r->buf[LS_BUF_OUT], r->count, r->red.dtype, 1.0 / s->shape.size);
    return LS_OK;
}

/* Whether the lane's sends before step `end` have all been read. */
static ls_status released(ls_run *r, int lane, uint32_t end)
{
    ls_lane_run *lr = &r->lane[lane];
    for (; lr->released < end; lr->released++) {
        const ls_step *s = &r->sched->lane[lane].step[lr->released];
        if (s->kind != LS_STEP_SEND) continue;
        if (r->ops->sent(r->tp, world_rank(r, s->peer), r->channel + lane) < lr->ticket[lr->released]) {
            if (r->ops->progress) LS_TRY(r->ops->progress(r->tp)); /* perhaps it never will be */
            return LS_AGAIN;
        }
    }
    return LS_OK;
}

/* The signature of the n-th message of a lane from one rank to another: the collective's, and above it the number, so
 * that a lost or repeated one shows at the next. The length is part of it where only the two ranks know what it should
 * be. */
static uint64_t signature(const ls_run *r, uint32_t n, size_t bytes)
{
    return (uint64_t)(n + (r->sched->shape.uneven ? (uint32_t)bytes * 0x85ebca6bu : 0)) << 32 | r->sig;
}
static uint32_t *nth_to(const ls_run *r, int lane, int peer) { return &r->nth[2 * lane * r->sched->shape.size + peer]; }
static uint32_t *nth_from(const ls_run *r, int lane, int peer)
{
    return &r->nth[(2 * lane + 1) * r->sched->shape.size + peer];
}

#define FAR 64 /* as many messages may be missing before one in their place counts as another collective's */

LS_COLD static ls_status mismatch(ls_run *r, int peer, uint32_t nth, size_t bytes, uint64_t sig)
{
    for (uint32_t i = nth < FAR ? 0 : nth - FAR; i < nth + FAR; i++)
        if (sig == signature(r, i, bytes))
            return ls_fail(LS_PROTOCOL,
                           "rank %d: %s: message %u of rank %d arrived in place of message %u: one was %s on the way",
                           r->sched->shape.rank, ls_coll_name(r->sched->shape.coll), i, peer, nth,
                           i < nth ? "repeated" : "lost");
    r->mismatch_peer = peer;
    r->mismatch_sig = (uint32_t)sig;
    return ls_fail(LS_COLL_MISMATCH, "rank %d: %s: rank %d called a different collective (signature %08x, expected %08x)",
                   r->sched->shape.rank, ls_coll_name(r->sched->shape.coll), peer, (uint32_t)sig, r->sig);
}

LS_COLD static ls_status wrong_length(const ls_run *r, int peer, size_t got, size_t want)
{
    return ls_fail(LS_PROTOCOL, "rank %d: %s: %zu bytes of rank %d's message, expected %zu more",
                   r->sched->shape.rank, ls_coll_name(r->sched->shape.coll), got, peer, want);
}

/* The next part of peer's message of `bytes`, of which `left` are still expected; a message of none shows once,
 * empty. */
static ls_status view(ls_run *r, int lane, int peer, size_t bytes, size_t left, ls_msg *m)
{
    ls_status st = r->ops->view(r->tp, world_rank(r, peer), r->channel + lane, m);
    if (st != LS_OK) return st;
    const uint32_t nth = *nth_from(r, lane, peer);
    if (LS_UNLIKELY(m->sig != signature(r, nth, bytes))) return mismatch(r, peer, nth, bytes, m->sig);
    if (LS_UNLIKELY(m->n > left || (m->n == 0 && left > 0))) return wrong_length(r, peer, m->n, left);
    return LS_OK;
}

static ls_status take(ls_run *r, int lane, int peer, size_t n)
{
    r->received += n;
    return r->ops->take(r->tp, world_rank(r, peer), r->channel + lane, n);
}

/* 16-byte multiples keep elements whole. */
static size_t piece(const ls_run *r, size_t n) { return r->budget && n > PIECE ? PIECE : n; }

static bool spent(const ls_run *r) { return r->budget && r->moved >= r->budget; }

static bool is_narrow(const ls_run *r, int peer)
{
    return LS_UNLIKELY(r->narrow != NULL) && ls_rank_set_has(r->narrow, peer);
}

/* `elements` of a message, into dst or onto it. */
static void put(const ls_run *r, const ls_step *s, char *dst, const void *from, size_t elements)
{
    const bool narrow = is_narrow(r, s->peer);
    if (elements == 0) return;
    if (s->kind == LS_STEP_RECV) {
        if (narrow) ls_widen(dst, from, elements);
        else memcpy(dst, from, elements * r->elem);
    } else {
        if (narrow) ls_reduce_2_narrow(dst, from, elements, r->red.op);
        else ls_reduce_2(dst, from, elements, r->red.dtype, r->red.op);
    }
}

static ls_status receive(ls_run *r, int lane, const ls_step *s)
{
    ls_lane_run *lr = &r->lane[lane];
    const size_t elem = is_narrow(r, s->peer) ? NARROW_BYTES : r->elem;
    const size_t want = ls_layout_count(&r->layout, s->dst) * elem; /* as it travels, like lr->done */
    char *dst = at(r, s->dst);
    do {
        ls_msg m;
        if (spent(r)) return LS_AGAIN;
        ls_status st = view(r, lane, s->peer, want, want - lr->done, &m);
        if (st != LS_OK) return st;
        size_t n = piece(r, m.n);
        put(r, s, dst + lr->done / elem * r->elem, m.p, n / elem);
        LS_TRY(take(r, lane, s->peer, n));
        lr->done += n;
        r->moved += n;
    } while (lr->done < want);
    ++*nth_from(r, lane, s->peer);
    return LS_OK;
}

/* All peers' messages at once, as far as the shortest view reaches. Bytes are counted as of whole elements: a
 * narrow peer's message counts for more than it has. */
static ls_status sum(ls_run *r, int lane, const ls_step *s)
{
    ls_lane_run *lr = &r->lane[lane];
    const ls_shape *shape = &r->sched->shape;
    const size_t want = nbytes(r, s->dst);
    const void **src = r->src;
    const ls_redop op = r->red.op == LS_AVG && !scales_first(r) ? LS_SUM : r->red.op;
    void *dst = at(r, s->dst);
    do {
        size_t n = want - lr->done;
        if (spent(r)) return LS_AGAIN;
        for (int p = 0; p < shape->size; p++) {
            ls_msg m;
            if (p == shape->rank) {
                src[p] = (char *)dst + lr->done;
                continue;
            }
            const size_t part = is_narrow(r, p) ? r->elem / NARROW_BYTES : 1;
            ls_status st = view(r, lane, p, want / part, (want - lr->done) / part, &m);
            lr->awaited = p;
            if (st != LS_OK) return st;
            src[p] = m.p;
            if (m.n * part < n) n = m.n * part;
        }
        n = piece(r, n);
        void *to = (char *)dst + lr->done;
        if (n > 0 && r->narrow) ls_reduce_n_narrow(to, src, shape->size, r->narrow, n / r->elem, op, 1.0 / shape->size);
        else if (n > 0) ls_reduce_n(&to, 1, src, shape->size, n / r->elem, r->red.dtype, op, 1.0 / shape->size);
        for (int p = 0; p < shape->size; p++)
            if (p != shape->rank) LS_TRY(take(r, lane, p, is_narrow(r, p) ? n / (r->elem / NARROW_BYTES) : n));
        lr->done += n;
        r->moved += n * (size_t)(shape->size - 1);
    } while (lr->done < want);
    for (int p = 0; p < shape->size; p++) ++*nth_from(r, lane, p);
    return LS_OK;
}

/* What a step sends: its slice where it is, or the slice's place in `wire` with its values narrowed. Two sends of a
 * slice have the same values, or the first is over: a write in between has waited for that. */
static ls_msg message(ls_run *r, const ls_step *s, ls_lane_run *lr)
{
    if (!is_narrow(r, s->peer)) return (ls_msg){ at(r, s->src), nbytes(r, s->src), 0 };
    size_t count = ls_layout_count(&r->layout, s->src);
    char *to = (char *)r->wire + ls_layout_first(&r->layout, s->src) * NARROW_BYTES;
    if (lr->done == 0) ls_narrow(to, at(r, s->src), count); /* once, however often the transport is full */
    lr->done = count;
    return (ls_msg){ to, count * NARROW_BYTES, 0 };
}

static ls_status run_lane(ls_run *r, int lane)
{
    const ls_lane *ln = &r->sched->lane[lane];
    ls_lane_run *lr = &r->lane[lane];

    for (; lr->pc < ln->n; lr->pc++, lr->done = 0) {
        const ls_step *s = &ln->step[lr->pc];
        ls_status st = LS_OK;

        if (s->after_send >= 0 && lr->done == 0) {
            st = released(r, lane, (uint32_t)s->after_send + 1);
            if (st != LS_OK) return st;
        }
        switch (s->kind) {
        case LS_STEP_SEND: {
            uint32_t *nth = nth_to(r, lane, s->peer);
            ls_msg m = message(r, s, lr);
            m.sig = signature(r, *nth, m.n);
            st = r->ops->send(r->tp, world_rank(r, s->peer), r->channel + lane, &m, &lr->ticket[lr->pc]);
            if (st == LS_OK) r->sent += m.n, ++*nth;
            break;
        }
        case LS_STEP_RECV:
        case LS_STEP_RECV_REDUCE: st = receive(r, lane, s); break;
        case LS_STEP_SUM: st = sum(r, lane, s); break;
        case LS_STEP_COPY:
            if (nbytes(r, s->dst)) memcpy(at(r, s->dst), at(r, s->src), nbytes(r, s->dst));
            break;
        case LS_STEP_REDUCE:
            ls_reduce_2(at(r, s->dst), at(r, s->src), ls_layout_count(&r->layout, s->dst), r->red.dtype, r->red.op);
            break;
        case LS_STEP_FOLD: return ls_fail(LS_INTERNAL, "a fold reached the executor");
        }
        if (st != LS_OK) return st;
        if (s->last_reduce && r->red.op == LS_AVG && r->red.divide_last)
            ls_divide(at(r, s->dst), ls_layout_count(&r->layout, s->dst), r->red.dtype, r->sched->shape.size);
        if (s->last_reduce && r->rounds) ls_round_bf16(at(r, s->dst), ls_layout_count(&r->layout, s->dst));
    }
    return released(r, lane, ln->n);
}

bool ls_run_waits(const ls_run *r, int lane, ls_run_wait *out)
{
    const ls_lane *ln = &r->sched->lane[lane];
    const ls_lane_run *lr = &r->lane[lane];
    const bool ends = lr->pc == ln->n;
    const ls_step *s = &ln->step[ends ? 0 : lr->pc];
    const uint32_t until = ends ? ln->n : s->after_send >= 0 && lr->done == 0 ? (uint32_t)s->after_send + 1 : 0;
    if (lr->released < until) { /* its own sends before that step */
        *out = (ls_run_wait){ .peer = ln->step[lr->released].peer, .sends = true };
        return true;
    }
    if (ends) return false;
    const int peer = s->kind == LS_STEP_SUM ? lr->awaited : s->peer;
    *out = (ls_run_wait){ .peer = peer, .sends = s->kind == LS_STEP_SEND, .part = lr->done > 0,
                          .number = *nth_from(r, lane, peer) };
    return true;
}

uint32_t ls_run_sent(const ls_run *r, int lane, int peer) { return *nth_to(r, lane, peer); }

uint64_t ls_run_stamp(const ls_run *r)
{
    uint64_t stamp = r->received + r->sent;
    for (int l = 0; l < r->sched->shape.nlanes; l++) stamp += r->lane[l].pc + r->lane[l].released;
    return stamp;
}

ls_status ls_run_progress(ls_run *r)
{
    ls_status all = LS_OK;
    r->moved = 0;
    for (int l = 0; l < r->sched->shape.nlanes; l++) {
        ls_status st = run_lane(r, l);
        if (st < 0) return st;
        if (st == LS_AGAIN) all = LS_AGAIN;
    }
    return all;
}
