/* verify.c -- the prover: the reader of schedules that moves sets.
 *
 * A chunk holds, instead of numbers, how often each rank's contribution is in
 * it, which chunk of the vector it is, and a hash of the order of additions.
 * All ranks' lanes are stepped by the executor's rules over queues of bounded
 * length, and what is true afterwards is true of every run over bytes:
 *
 *   pushed   payloads are captured at SEND, as a network does
 *   pulled   they are read at RECV from the sender's memory, as shared memory
 *            does; overwriting what a peer has yet to read is an error
 *
 * Whether lanes get stuck does not depend on the order in which they are
 * stepped (each blocks on one queue or one flag at a time); whether a missing
 * hazard is seen does. So lanes are stepped in a seeded random order, and
 * once more, pulled, each as far as it goes before another one moves.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/limits.h"
#include "coll/print.h"
#include "lockstep/sched.h"

/* Unread messages per pair and lane. Transports hold at least as many; a
 * schedule that needs more is refused here. */
#define QUEUE 8
#define MOST_BYTES ((size_t)1 << 30) /* of counts */

typedef struct value {
    uint64_t order;  /* hash of the tree of additions; a + b and b + a are equal, as in IEEE 754 */
    uint32_t id;     /* chunk of the vector */
    bool defined;
    bool raw;        /* a rank's own contribution, nothing added */
    bool finished;   /* a last_reduce has made it */
} value;

typedef struct message {
    ls_slice src;     /* of the sender */
    uint32_t step;    /* of the sender's lane */
    value *v;         /* pushed: owned, [src.n] */
    uint8_t *count;   /* pushed: owned, [src.n][size]; barrier: [size], whom the sender had heard of */
} message;

typedef struct queue { message m[QUEUE]; int head, n; } queue;

typedef struct lane_state {
    uint32_t pc, released;
    bool *read;       /* per step, for sends: the peer has taken it */
} lane_state;

typedef struct prover {
    const ls_sched *const *s; /* [size] */
    int size, nlanes;
    ls_coll coll;
    bool pulled;
    char what[160];           /* starts every sentence */
    uint32_t base[3], nchunks;/* of one rank: IN, OUT and TMP after one another */
    value *v;                 /* [size][nchunks] */
    uint8_t *count;           /* [size][nchunks][size], saturating */
    uint16_t *unread;         /* [size][nchunks]: sends of the chunk that a peer has yet to read */
    uint8_t *heard;           /* [size][size]: barrier */
    lane_state *lane;         /* [size][nlanes] */
    bool *read;               /* all lanes' read flags */
    queue *q;                 /* [from][to][lane] */
    uint64_t seed;
} prover;

static uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static uint64_t leaf(int rank) { return mix((uint64_t)rank + 1); }
static uint64_t plus(uint64_t a, uint64_t b) { return mix((a < b ? a : b) ^ mix(a < b ? b : a)); }

static uint64_t ascending(int size)
{
    uint64_t order = leaf(0);
    for (int r = 1; r < size; r++) order = plus(order, leaf(r));
    return order;
}

static const char *const buf_name[] = { "in", "out", "tmp" };

static size_t slot(const prover *p, int rank, ls_bufid buf, uint32_t i)
{
    return (size_t)rank * p->nchunks + p->base[buf] + i;
}
static uint8_t *counts(const prover *p, size_t at) { return p->count + at * (size_t)p->size; }
static lane_state *lane_of(const prover *p, int rank, int l) { return &p->lane[rank * p->nlanes + l]; }
static queue *queue_of(const prover *p, int from, int to, int l)
{
    return &p->q[((size_t)from * (size_t)p->size + (size_t)to) * (size_t)p->nlanes + (size_t)l];
}
static const ls_step *step_of(const prover *p, int rank, int l, uint32_t i) { return &p->s[rank]->lane[l].step[i]; }

/* "ring all_reduce ...: rank 2, lane 0, step 3 (send out[1] -> 3): <text>" */
LS_COLD static ls_status red(const prover *p, int rank, int l, uint32_t step, const char *text)
{
    char s[LS_STEP_TEXT];
    ls_step_text(step_of(p, rank, l, step), s, sizeof s);
    return ls_fail(LS_INTERNAL, "%s: rank %d, lane %d, step %u (%s): %s", p->what, rank, l, step, s, text);
}

/* --- messages -------------------------------------------------------------------- */

static ls_status push(prover *p, int rank, int l, const ls_step *s)
{
    queue *q = queue_of(p, rank, s->peer, l);
    if (q->n == QUEUE) return LS_AGAIN;
    message m = { .src = s->src, .step = lane_of(p, rank, l)->pc };
    size_t at = slot(p, rank, s->src.buf, s->src.first), size = (size_t)p->size;
    if (p->coll == LS_BARRIER) {
        m.count = malloc(size);
        if (!m.count) return ls_fail(LS_NO_MEMORY, "prover: message");
        memcpy(m.count, p->heard + (size_t)rank * size, size);
    } else if (!p->pulled && s->src.n > 0) {
        m.v = malloc(s->src.n * sizeof *m.v);
        m.count = malloc(s->src.n * size);
        if (!m.v || !m.count) {
            free(m.v);
            free(m.count);
            return ls_fail(LS_NO_MEMORY, "prover: message of %u chunks", s->src.n);
        }
        memcpy(m.v, p->v + at, s->src.n * sizeof *m.v);
        memcpy(m.count, counts(p, at), s->src.n * size);
    }
    if (p->pulled)
        for (uint32_t c = 0; c < s->src.n; c++) p->unread[at + c]++;
    else lane_of(p, rank, l)->read[m.step] = true;
    q->m[(q->head + q->n++) % QUEUE] = m;
    return LS_OK;
}

static void pop(prover *p, int from, int to, int l)
{
    queue *q = queue_of(p, from, to, l);
    message *m = &q->m[q->head];
    if (p->pulled)
        for (uint32_t c = 0; c < m->src.n; c++) p->unread[slot(p, from, m->src.buf, m->src.first + c)]--;
    lane_of(p, from, l)->read[m->step] = true;
    free(m->v);
    free(m->count);
    q->head = (q->head + 1) % QUEUE;
    q->n--;
}

/* The oldest message, or NULL; its chunk c in *v and *count. */
static const message *peek(const prover *p, int from, int to, int l)
{
    const queue *q = queue_of(p, from, to, l);
    return q->n ? &q->m[q->head] : NULL;
}

static void payload(const prover *p, int from, const message *m, uint32_t c, value *v, const uint8_t **count)
{
    size_t at = slot(p, from, m->src.buf, m->src.first + c);
    *v = m->v ? m->v[c] : p->v[at];
    *count = m->v ? m->count + c * (size_t)p->size : counts(p, at);
}

/* --- one step --------------------------------------------------------------------- */

static ls_status may_write(const prover *p, int rank, int l, uint32_t step)
{
    ls_slice d = step_of(p, rank, l, step)->dst;
    char text[160];
    for (uint32_t c = 0; c < d.n; c++)
        if (p->unread[slot(p, rank, d.buf, d.first + c)] > 0) {
            snprintf(text, sizeof text, "overwrites %s[%u], which rank %d has sent and a peer has yet to read",
                     buf_name[d.buf], d.first + c, rank);
            return red(p, rank, l, step, text);
        }
    return LS_OK;
}

/* sum += v, both with their counts; `sum` is being built up by rank at `step`. */
static ls_status add(const prover *p, int rank, int l, uint32_t step, value *sum, uint8_t *into, const value *v,
                     const uint8_t *count)
{
    char text[160] = "";
    if (!v->defined || !sum->defined) snprintf(text, sizeof text, "adds a chunk that nobody has filled");
    else if (v->id != sum->id) snprintf(text, sizeof text, "adds chunk %u of the vector to chunk %u", v->id, sum->id);
    else if (v->finished || sum->finished) snprintf(text, sizeof text, "adds to the complete chunk %u", sum->id);
    if (text[0]) return red(p, rank, l, step, text);
    for (int r = 0; r < p->size; r++) into[r] = (uint8_t)(into[r] + count[r] > 255 ? 255 : into[r] + count[r]);
    sum->order = plus(sum->order, v->order);
    sum->raw = false;
    return LS_OK;
}

static ls_status not_pairwise(const prover *p, int rank, int l, uint32_t step)
{
    if (!p->s[rank]->one_sum) return LS_OK;
    return red(p, rank, l, step, "adds two vectors, but the schedule promises one sum over all ranks (one_sum)");
}

static ls_status step_receive(prover *p, int rank, int l, uint32_t step)
{
    const ls_step *s = step_of(p, rank, l, step);
    const message *m = peek(p, s->peer, rank, l);
    char text[160];
    if (!m) return LS_AGAIN;
    if (m->src.n != s->dst.n) {
        snprintf(text, sizeof text, "expects %u chunks, but rank %d's step %u sends %u, from %s[%u]", s->dst.n, s->peer,
                 m->step, m->src.n, buf_name[m->src.buf], m->src.first);
        return red(p, rank, l, step, text);
    }
    if (s->kind == LS_STEP_RECV_REDUCE) LS_TRY(not_pairwise(p, rank, l, step));
    if (p->coll == LS_BARRIER)
        for (int r = 0; r < p->size; r++) p->heard[rank * p->size + r] |= m->count[r];
    for (uint32_t c = 0; c < s->dst.n; c++) {
        size_t at = slot(p, rank, s->dst.buf, s->dst.first + c);
        value v;
        const uint8_t *count;
        payload(p, s->peer, m, c, &v, &count);
        if (s->kind == LS_STEP_RECV_REDUCE) {
            LS_TRY(add(p, rank, l, step, &p->v[at], counts(p, at), &v, count));
        } else {
            if (!v.defined) {
                snprintf(text, sizeof text, "rank %d sends %s[%u], which nobody has filled", s->peer,
                         buf_name[m->src.buf], m->src.first + c);
                return red(p, rank, l, step, text);
            }
            p->v[at] = v;
            memcpy(counts(p, at), count, (size_t)p->size);
        }
    }
    pop(p, s->peer, rank, l);
    return LS_OK;
}

static ls_status step_local(prover *p, int rank, int l, uint32_t step)
{
    const ls_step *s = step_of(p, rank, l, step);
    if (s->kind == LS_STEP_REDUCE) LS_TRY(not_pairwise(p, rank, l, step));
    for (uint32_t c = 0; c < s->dst.n; c++) {
        size_t from = slot(p, rank, s->src.buf, s->src.first + c), to = slot(p, rank, s->dst.buf, s->dst.first + c);
        if (s->kind == LS_STEP_REDUCE) {
            LS_TRY(add(p, rank, l, step, &p->v[to], counts(p, to), &p->v[from], counts(p, from)));
            continue;
        }
        p->v[to] = p->v[from];
        memmove(counts(p, to), counts(p, from), (size_t)p->size);
    }
    return LS_OK;
}

/* What rank q puts into a SUM or FOLD of chunk c by `rank`. */
static ls_status contribution(const prover *p, int rank, int l, uint32_t step, int q, uint32_t c, value *v,
                              const uint8_t **count)
{
    const ls_step *s = step_of(p, rank, l, step);
    char text[160];
    if (s->kind == LS_STEP_FOLD || q == rank) {
        size_t at = slot(p, q, s->dst.buf, s->dst.first + c);
        *v = p->v[at];
        *count = counts(p, at);
    } else {
        payload(p, q, peek(p, q, rank, l), c, v, count);
    }
    if (p->s[rank]->one_sum && !(v->defined && v->raw && (*count)[q] == 1)) {
        snprintf(text, sizeof text, "what rank %d puts into chunk %u is not its own vector alone (one_sum)", q,
                 s->dst.first + c);
        return red(p, rank, l, step, text);
    }
    return LS_OK;
}

/* SUM and FOLD: everybody's chunk in rank order; FOLD stores the sum into all. */
static ls_status step_all(prover *p, int rank, int l, uint32_t step)
{
    const ls_step *s = step_of(p, rank, l, step);
    const bool fold = s->kind == LS_STEP_FOLD;
    uint8_t sums[LS_SCHED_MAX_RANKS];
    char text[160];
    for (int q = 0; q < p->size; q++) {
        const message *m = q == rank || fold ? NULL : peek(p, q, rank, l);
        if (m && m->src.n != s->dst.n) {
            snprintf(text, sizeof text, "expects %u chunks, but rank %d's step %u sends %u", s->dst.n, q, m->step,
                     m->src.n);
            return red(p, rank, l, step, text);
        }
    }
    for (uint32_t c = 0; c < s->dst.n; c++) {
        value sum, v;
        const uint8_t *count;
        LS_TRY(contribution(p, rank, l, step, 0, c, &sum, &count));
        memcpy(sums, count, (size_t)p->size);
        for (int q = 1; q < p->size; q++) {
            LS_TRY(contribution(p, rank, l, step, q, c, &v, &count));
            LS_TRY(add(p, rank, l, step, &sum, sums, &v, count));
        }
        for (int q = 0; q < p->size; q++) {
            if (q != rank && !fold) continue;
            size_t at = slot(p, q, s->dst.buf, s->dst.first + c);
            p->v[at] = sum;
            p->v[at].finished = fold;
            memcpy(counts(p, at), sums, (size_t)p->size);
        }
    }
    for (int q = 0; q < p->size; q++)
        if (q != rank && !fold) pop(p, q, rank, l);
    return LS_OK;
}

static ls_status finish(prover *p, int rank, int l, uint32_t step)
{
    ls_slice d = step_of(p, rank, l, step)->dst;
    char text[160];
    for (uint32_t c = 0; c < d.n; c++) {
        size_t at = slot(p, rank, d.buf, d.first + c);
        for (int r = 0; r < p->size; r++)
            if (counts(p, at)[r] != 1) {
                snprintf(text, sizeof text, "counts as the last addition to %s[%u], but rank %d is in it %u times",
                         buf_name[d.buf], d.first + c, r, counts(p, at)[r]);
                return red(p, rank, l, step, text);
            }
        p->v[at].finished = true;
    }
    return LS_OK;
}

/* The executor's rule: every send up to `end` has been read. */
static bool released(const prover *p, int rank, int l, uint32_t end)
{
    lane_state *ls = lane_of(p, rank, l);
    while (ls->released < end && (step_of(p, rank, l, ls->released)->kind != LS_STEP_SEND || ls->read[ls->released]))
        ls->released++;
    return ls->released >= end;
}

static ls_status try_step(prover *p, int rank, int l)
{
    lane_state *ls = lane_of(p, rank, l);
    const ls_step *s = step_of(p, rank, l, ls->pc);
    ls_status st = LS_OK;
    if (s->after_send >= 0 && !released(p, rank, l, (uint32_t)s->after_send + 1)) return LS_AGAIN;
    switch (s->kind) {
    case LS_STEP_SEND: st = push(p, rank, l, s); break;
    case LS_STEP_RECV:
    case LS_STEP_RECV_REDUCE:
        if (!peek(p, s->peer, rank, l)) return LS_AGAIN;
        LS_TRY(may_write(p, rank, l, ls->pc));
        st = step_receive(p, rank, l, ls->pc);
        break;
    case LS_STEP_SUM:
        for (int q = 0; q < p->size; q++)
            if (q != rank && !peek(p, q, rank, l)) return LS_AGAIN;
        LS_TRY(may_write(p, rank, l, ls->pc));
        st = step_all(p, rank, l, ls->pc);
        break;
    case LS_STEP_FOLD: st = step_all(p, rank, l, ls->pc); break;
    case LS_STEP_COPY:
    case LS_STEP_REDUCE:
        LS_TRY(may_write(p, rank, l, ls->pc));
        st = step_local(p, rank, l, ls->pc);
        break;
    }
    if (st == LS_OK && s->last_reduce) LS_TRY(finish(p, rank, l, ls->pc));
    if (st == LS_OK) ls->pc++;
    return st;
}

/* --- running all lanes -------------------------------------------------------------- */

/* Why a lane does not move, for the sentence. */
LS_COLD static ls_status deadlock(const prover *p, int rank, int l, int stuck)
{
    const lane_state *ls = lane_of(p, rank, l);
    const ls_step *s = step_of(p, rank, l, ls->pc);
    char text[200], sent[LS_STEP_TEXT];
    if (s->after_send >= 0 && ls->released <= (uint32_t)s->after_send) {
        const ls_step *send = step_of(p, rank, l, ls->released);
        ls_step_text(send, sent, sizeof sent);
        snprintf(text, sizeof text, "waits until rank %d has read step %u (%s)", send->peer, ls->released, sent);
    } else if (s->kind == LS_STEP_SEND) {
        snprintf(text, sizeof text, "waits for room: rank %d leaves %d messages unread", s->peer, QUEUE);
    } else {
        int from = s->peer;
        for (int q = 0; s->kind == LS_STEP_SUM && q < p->size; q++)
            if (q != rank && !peek(p, q, rank, l)) from = q;
        snprintf(text, sizeof text, "waits for a message that rank %d never sends", from);
    }
    size_t n = strlen(text);
    snprintf(text + n, sizeof text - n, "; deadlock, %d lanes are stuck", stuck);
    return red(p, rank, l, ls->pc, text);
}

static bool done(const prover *p, int i)
{
    return p->lane[i].pc >= p->s[i / p->nlanes]->lane[i % p->nlanes].n;
}

static ls_status run(prover *p, bool greedy)
{
    int n = p->size * p->nlanes;
    int *order = malloc((size_t)n * sizeof *order);
    if (!order) return ls_fail(LS_NO_MEMORY, "prover: %d lanes", n);
    for (int i = 0; i < n; i++) order[i] = i;

    ls_status st = LS_OK;
    for (bool first = true, moved = true; st >= 0 && moved; first = false) {
        for (int i = n - 1; (first || !greedy) && i > 0; i--) {
            p->seed = mix(p->seed);
            int j = (int)(p->seed % (uint64_t)(i + 1)), swap = order[i];
            order[i] = order[j];
            order[j] = swap;
        }
        moved = false;
        for (int i = 0; i < n && st >= 0 && !(greedy && moved); i++)
            while (!done(p, order[i])) {
                st = try_step(p, order[i] / p->nlanes, order[i] % p->nlanes);
                if (st != LS_OK) break;
                moved = true;
                if (!greedy) break;
            }
    }
    free(order);
    if (st < 0) return st;

    int stuck = 0, which = -1;
    for (int i = n - 1; i >= 0; i--)
        if (!done(p, i)) stuck++, which = i;
    return stuck ? deadlock(p, which / p->nlanes, which % p->nlanes, stuck) : LS_OK;
}

/* --- what is given and what is promised ------------------------------------------------ */

static bool owns(const prover *p, int rank, uint32_t c)
{
    return c / (uint32_t)p->s[0]->shape.segments == (uint32_t)rank;
}

/* Whether `rank` has something of its own in OUT[c] at the start. */
static bool starts_with(const prover *p, int rank, uint32_t c)
{
    switch (p->coll) {
    case LS_ALL_GATHER: return owns(p, rank, c);
    case LS_BROADCAST: return rank == p->s[0]->shape.root;
    default: return true;
    }
}

/* Whether OUT[c] of `rank` is part of the result. */
static bool ends_with(const prover *p, int rank, uint32_t c)
{
    switch (p->coll) {
    case LS_REDUCE_SCATTER: return owns(p, rank, c);
    case LS_REDUCE: return rank == p->s[0]->shape.root;
    default: return true;
    }
}

static bool is_reduction(ls_coll c) { return c == LS_ALL_REDUCE || c == LS_REDUCE_SCATTER || c == LS_REDUCE; }

/* How often rank q's contribution belongs into OUT[c]. */
static uint8_t wanted(const prover *p, int q, uint32_t c)
{
    return is_reduction(p->coll) || starts_with(p, q, c) ? 1 : 0;
}

static ls_status check_chunk(const prover *p, int rank, uint32_t c)
{
    size_t at = slot(p, rank, LS_BUF_OUT, c), first = slot(p, 0, LS_BUF_OUT, c);
    const value *v = &p->v[at];
    if (!v->defined) return ls_fail(LS_INTERNAL, "%s: out[%u] of rank %d: never filled", p->what, c, rank);
    if (v->id != c)
        return ls_fail(LS_INTERNAL, "%s: out[%u] of rank %d: holds chunk %u of the vector", p->what, c, rank, v->id);
    for (int q = 0; q < p->size; q++)
        if (counts(p, at)[q] != wanted(p, q, c))
            return ls_fail(LS_INTERNAL, "%s: out[%u] of rank %d: rank %d counted %u times, expected %u", p->what, c,
                           rank, q, counts(p, at)[q], wanted(p, q, c));
    if (p->size == 1) return LS_OK;
    if (is_reduction(p->coll) && !v->finished)
        return ls_fail(LS_INTERNAL, "%s: out[%u] of rank %d: no step counts as its last addition", p->what, c, rank);
    if (p->coll == LS_ALL_REDUCE && v->order != p->v[first].order)
        return ls_fail(LS_INTERNAL, "%s: out[%u]: ranks 0 and %d add in different orders", p->what, c, rank);
    if (is_reduction(p->coll) && p->s[rank]->one_sum && v->order != ascending(p->size))
        return ls_fail(LS_INTERNAL, "%s: out[%u] of rank %d: not added in rank order", p->what, c, rank);
    return LS_OK;
}

static ls_status check_result(const prover *p)
{
    for (int from = 0; from < p->size; from++)
        for (int to = 0; to < p->size; to++)
            for (int l = 0; l < p->nlanes; l++)
                if (queue_of(p, from, to, l)->n > 0) {
                    char text[120];
                    snprintf(text, sizeof text, "a message that rank %d never receives", to);
                    return red(p, from, l, peek(p, from, to, l)->step, text);
                }
    for (int rank = 0; rank < p->size; rank++) {
        for (int q = 0; p->coll == LS_BARRIER && q < p->size; q++)
            if (!p->heard[rank * p->size + q])
                return ls_fail(LS_INTERNAL, "%s: rank %d leaves before rank %d has arrived", p->what, rank, q);
        for (uint32_t c = 0; p->coll != LS_BARRIER && c < p->s[rank]->nchunks[LS_BUF_OUT]; c++)
            if (ends_with(p, rank, c)) LS_TRY(check_chunk(p, rank, c));
    }
    return LS_OK;
}

static void start(prover *p)
{
    for (int rank = 0; rank < p->size; rank++) {
        p->heard[rank * p->size + rank] = 1;
        for (uint32_t c = 0; c < p->s[rank]->nchunks[LS_BUF_OUT]; c++) {
            if (!starts_with(p, rank, c)) continue;
            size_t at = slot(p, rank, LS_BUF_OUT, c);
            p->v[at] = (value){ .order = leaf(rank), .id = c, .defined = true, .raw = true };
            counts(p, at)[rank] = 1;
        }
    }
}

/* Peers write into a folded chunk at any time, so nothing else may touch it. */
static ls_status check_folds(const ls_sched *const *s, int size, const char *what)
{
    uint32_t n = s[0]->nchunks[LS_BUF_OUT];
    int *by = calloc(n + 1, sizeof *by); /* 1 + the rank that folds the chunk */
    ls_status st = by ? LS_OK : ls_fail(LS_NO_MEMORY, "prover: %u chunks", n);
    for (int pass = 0; pass < 2; pass++)
        for (int rank = 0; st == LS_OK && rank < size; rank++)
            for (int l = 0; st == LS_OK && l < s[rank]->shape.nlanes; l++)
                for (uint32_t i = 0; st == LS_OK && i < s[rank]->lane[l].n; i++) {
                    const ls_step *a = &s[rank]->lane[l].step[i];
                    bool fold = a->kind == LS_STEP_FOLD;
                    const ls_slice both[2] = { a->src, a->dst };
                    for (int k = 0; k < 2; k++)
                        for (uint32_t c = both[k].first; st == LS_OK && c < both[k].first + both[k].n; c++) {
                            bool out = both[k].buf == LS_BUF_OUT;
                            if (fold && !out)
                                st = ls_fail(LS_INTERNAL, "%s: rank %d folds chunk %u of another buffer than out", what,
                                             rank, c);
                            else if (fold && pass == 0 && by[c])
                                st = ls_fail(LS_INTERNAL, "%s: out[%u] is folded by rank %d and by rank %d", what, c,
                                             by[c] - 1, rank);
                            else if (fold && pass == 0) by[c] = rank + 1;
                            else if (!fold && pass == 1 && out && by[c])
                                st = ls_fail(LS_INTERNAL, "%s: rank %d uses out[%u], which rank %d folds", what, rank, c,
                                             by[c] - 1);
                        }
                }
    free(by);
    return st;
}

/* --- one proof ---------------------------------------------------------------------- */

static void drop(prover *p)
{
    size_t n = p->q ? (size_t)p->size * (size_t)p->size * (size_t)p->nlanes : 0;
    for (size_t i = 0; i < n; i++)
        for (queue *q = &p->q[i]; q->n > 0; q->head = (q->head + 1) % QUEUE, q->n--) {
            free(q->m[q->head].v);
            free(q->m[q->head].count);
        }
    free(p->v);
    free(p->count);
    free(p->unread);
    free(p->heard);
    free(p->lane);
    free(p->read);
    free(p->q);
}

static ls_status prove(const ls_sched *const *s, int size, bool pulled, bool greedy, uint64_t seed)
{
    const ls_shape *shape = &s[0]->shape;
    prover p = { .s = s, .size = size, .nlanes = shape->nlanes, .coll = shape->coll, .pulled = pulled, .seed = seed };
    ls_status st = LS_OK;
    size_t n = (size_t)size, nsteps = 0;
    uint32_t most[3] = { 0 };
    snprintf(p.what, sizeof p.what, "%s over %d ranks, segments %d, lanes %d, %s", ls_coll_name(p.coll), size,
             shape->segments, shape->nlanes, pulled ? "pulled" : "pushed");
    for (int r = 0; r < size; r++) {
        for (int b = 0; b < 3; b++)
            if (s[r]->nchunks[b] > most[b]) most[b] = s[r]->nchunks[b];
        for (int l = 0; l < p.nlanes; l++) nsteps += s[r]->lane[l].n;
    }
    p.base[LS_BUF_OUT] = most[LS_BUF_IN];
    p.base[LS_BUF_TMP] = most[LS_BUF_IN] + most[LS_BUF_OUT];
    p.nchunks = p.base[LS_BUF_TMP] + most[LS_BUF_TMP];

    if (n * n > MOST_BYTES / (p.nchunks + 1))
        return ls_fail(LS_UNSUPPORTED, "%s: %u chunks a rank are too many to prove", p.what, p.nchunks);
    p.v = calloc(n * p.nchunks + 1, sizeof *p.v);
    p.count = calloc(n * p.nchunks * n + 1, 1);
    p.unread = calloc(n * p.nchunks + 1, sizeof *p.unread);
    p.heard = calloc(n * n, 1);
    p.lane = calloc(n * (size_t)p.nlanes, sizeof *p.lane);
    p.read = calloc(nsteps + 1, sizeof *p.read);
    p.q = calloc(n * n * (size_t)p.nlanes, sizeof *p.q);
    if (!p.v || !p.count || !p.unread || !p.heard || !p.lane || !p.read || !p.q) {
        st = ls_fail(LS_NO_MEMORY, "prover: %zu ranks of %u chunks", n, p.nchunks);
        goto done;
    }
    bool *read = p.read;
    for (int i = 0; i < size * p.nlanes; i++) {
        p.lane[i].read = read;
        read += s[i / p.nlanes]->lane[i % p.nlanes].n;
    }
    start(&p);
    st = run(&p, greedy);
    if (st == LS_OK) st = check_result(&p);
done:
    drop(&p);
    return st;
}

static ls_status check_shapes(const ls_sched *const *s, int size)
{
    if (size < 1 || size > LS_SCHED_MAX_RANKS)
        return ls_fail(LS_INVALID, "cannot prove %d schedules: expected 1 to %d", size, LS_SCHED_MAX_RANKS);
    const ls_shape *a = &s[0]->shape;
    for (int r = 0; r < size; r++) {
        const ls_shape *b = &s[r]->shape;
        if (b->rank != r || b->size != size)
            return ls_fail(LS_INVALID, "schedule %d of %d is for rank %d of %d", r, size, b->rank, b->size);
        if (b->coll != a->coll || b->root != a->root || b->segments != a->segments || b->nlanes != a->nlanes ||
            s[r]->one_sum != s[0]->one_sum || s[r]->nchunks[LS_BUF_OUT] != s[0]->nchunks[LS_BUF_OUT])
            return ls_fail(LS_INVALID, "schedules of ranks 0 and %d differ in collective, root, segments, lanes, chunks or "
                           "one_sum", r);
    }
    bool shared = is_reduction(a->coll) || a->coll == LS_ALL_GATHER || a->coll == LS_BROADCAST;
    if (!shared && a->coll != LS_BARRIER)
        return ls_fail(LS_UNSUPPORTED, "the prover does not know what %s promises", ls_coll_name(a->coll));
    bool whole = a->coll == LS_BROADCAST || a->coll == LS_REDUCE;
    uint32_t want = (uint32_t)(whole ? a->segments : size * a->segments);
    if (shared && s[0]->nchunks[LS_BUF_OUT] != want)
        return ls_fail(LS_INVALID, "%s over %d ranks in %d segments has %u chunks in out, expected %u",
                       ls_coll_name(a->coll), size, a->segments, s[0]->nchunks[LS_BUF_OUT], want);
    return LS_OK;
}

ls_status ls_sched_verify_all(const ls_sched *const *per_rank, int size)
{
    LS_TRY(check_shapes(per_rank, size));
    LS_TRY(check_folds(per_rank, size, ls_coll_name(per_rank[0]->shape.coll)));
    LS_TRY(prove(per_rank, size, false, false, 1));
    LS_TRY(prove(per_rank, size, true, false, 2));
    return prove(per_rank, size, true, true, 3);
}

ls_status ls_sched_verify(const ls_algo *a, const ls_shape *any_rank)
{
    int size = any_rank->size;
    if (size < 1 || size > LS_SCHED_MAX_RANKS)
        return ls_fail(LS_INVALID, "cannot prove %d ranks: expected 1 to %d", size, LS_SCHED_MAX_RANKS);
    ls_status st = LS_OK;
    ls_sched *s = calloc((size_t)size, sizeof *s);
    const ls_sched **p = calloc((size_t)size, sizeof *p);
    if (!s || !p) st = ls_fail(LS_NO_MEMORY, "prover: %d schedules", size);
    for (int r = 0; st == LS_OK && r < size; r++) {
        ls_shape shape = *any_rank;
        shape.rank = r;
        st = ls_sched_emit(a, &shape, &s[r]);
        p[r] = &s[r];
    }
    if (st == LS_OK && (st = ls_sched_verify_all(p, size)) < 0) st = ls_while(st, "proving %s", a->name);
    for (int r = 0; s && r < size; r++) ls_sched_free(&s[r]);
    free(s);
    free(p);
    return st;
}
