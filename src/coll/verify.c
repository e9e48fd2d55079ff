/* verify.c -- the prover: the reader of schedules that moves sets.
 *
 * A chunk holds, instead of numbers, how often each rank's contribution is in
 * it, which chunk of the vector it is, and a hash of the order of additions.
 * All ranks' lanes are stepped by the executor's rules over queues of one
 * message, and what is true afterwards is true of every run over bytes:
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

#include "base/limits.h"
#include "coll/verify_impl.h"

#define MOST_BYTES ((size_t)1 << 30) /* of counts */

/* --- what is given and what is promised ------------------------------------------------ */

static bool owns(const prover *p, int rank, uint32_t c)
{
    return c / (uint32_t)p->s[0]->shape.segments == (uint32_t)rank;
}

static bool is_root(const prover *p, int rank) { return rank == p->s[0]->shape.root; }

/* Whether `rank` has something of its own in OUT[c] (all_to_all: in IN) at the start. */
static bool starts_with(const prover *p, int rank, uint32_t c)
{
    switch (p->coll) {
    case LS_ALL_GATHER:
    case LS_GATHER: return owns(p, rank, c);
    case LS_BROADCAST:
    case LS_SCATTER: return is_root(p, rank);
    default: return true;
    }
}

/* Whether OUT[c] of `rank` is part of the result. */
static bool ends_with(const prover *p, int rank, uint32_t c)
{
    switch (p->coll) {
    case LS_REDUCE_SCATTER:
    case LS_SCATTER: return owns(p, rank, c);
    case LS_REDUCE:
    case LS_GATHER: return is_root(p, rank);
    default: return true;
    }
}

static bool is_reduction(ls_coll c) { return c == LS_ALL_REDUCE || c == LS_REDUCE_SCATTER || c == LS_REDUCE; }

/* How often rank q's contribution belongs into OUT[c] of `rank`. */
static uint8_t wanted(const prover *p, int rank, int q, uint32_t c)
{
    if (p->coll == LS_ALL_TO_ALL) return owns(p, q, c); /* block c of OUT comes from its owner */
    if (p->coll == LS_SENDRECV) return (q + 1) % p->size == rank;
    return is_reduction(p->coll) || starts_with(p, q, c) ? 1 : 0;
}

static ls_status check_chunk(const prover *p, int rank, uint32_t c)
{
    size_t at = slot(p, rank, LS_BUF_OUT, c), first = slot(p, 0, LS_BUF_OUT, c);
    const value *v = &p->v[at];
    if (!v->defined) return ls_fail(LS_INTERNAL, "%s: out[%u] of rank %d: never filled", p->what, c, rank);
    if (v->id != home(p, rank, LS_BUF_OUT, c)) {
        char what[80];
        ls_prover_value(p, v->id, what, sizeof what);
        return ls_fail(LS_INTERNAL, "%s: out[%u] of rank %d: holds %s", p->what, c, rank, what);
    }
    for (int q = 0; q < p->size; q++)
        if (counts(p, at)[q] != wanted(p, rank, q, c))
            return ls_fail(LS_INTERNAL, "%s: out[%u] of rank %d: rank %d counted %u times, expected %u", p->what, c,
                           rank, q, counts(p, at)[q], wanted(p, rank, q, c));
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
                    return ls_prover_red(p, from, l, peek(p, from, to, l)->step, text);
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
        const ls_bufid buf = has_in(p->coll) ? LS_BUF_IN : LS_BUF_OUT;
        for (uint32_t c = 0; c < p->s[rank]->nchunks[buf]; c++) {
            if (!starts_with(p, rank, c)) continue;
            size_t at = slot(p, rank, buf, c);
            p->v[at] = (value){ .order = leaf(rank), .id = home(p, rank, buf, c), .defined = true, .raw = true };
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
                                st = ls_fail(LS_INTERNAL, "%s: rank %d reduces chunk %u in place of another buffer than out", what,
                                             rank, c);
                            else if (fold && pass == 0 && by[c])
                                st = ls_fail(LS_INTERNAL, "%s: out[%u] is reduced in place by rank %d and by rank %d", what, c,
                                             by[c] - 1, rank);
                            else if (fold && pass == 0) by[c] = rank + 1;
                            else if (!fold && pass == 1 && out && by[c])
                                st = ls_fail(LS_INTERNAL, "%s: rank %d uses out[%u], which rank %d reduces in place", what, rank, c,
                                             by[c] - 1);
                        }
                }
    free(by);
    return st;
}

/* --- one proof ---------------------------------------------------------------------- */

void ls_prover_close(prover *p)
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

ls_status ls_prover_open(prover *out, const ls_sched *const *s, int size, bool pulled, uint64_t seed)
{
    const ls_shape *shape = &s[0]->shape;
    prover p = { .s = s, .size = size, .nlanes = shape->nlanes, .coll = shape->coll, .pulled = pulled, .seed = seed };
    size_t n = (size_t)size, nsteps = 0;
    uint32_t most[3] = { 0 };
    *out = (prover){ 0 };
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
        return ls_fail(LS_UNSUPPORTED, "%s: %u chunks per rank are too many to prove", p.what, p.nchunks);
    p.v = calloc(n * p.nchunks + 1, sizeof *p.v);
    p.count = calloc(n * p.nchunks * n + 1, 1);
    p.unread = calloc(n * p.nchunks + 1, sizeof *p.unread);
    p.heard = calloc(n * n, 1);
    p.lane = calloc(n * (size_t)p.nlanes, sizeof *p.lane);
    p.read = calloc(nsteps + 1, sizeof *p.read);
    p.q = calloc(n * n * (size_t)p.nlanes, sizeof *p.q);
    *out = p;
    if (!p.v || !p.count || !p.unread || !p.heard || !p.lane || !p.read || !p.q)
        return ls_fail(LS_NO_MEMORY, "prover: %zu ranks of %u chunks", n, p.nchunks);
    bool *read = p.read;
    for (int i = 0; i < size * p.nlanes; i++) {
        p.lane[i].read = read;
        read += s[i / p.nlanes]->lane[i % p.nlanes].n;
    }
    start(&p);
    return LS_OK;
}

static ls_status prove(const ls_sched *const *s, int size, bool pulled, bool greedy, uint64_t seed)
{
    prover p;
    ls_status st = ls_prover_open(&p, s, size, pulled, seed);
    if (st == LS_OK) st = ls_prover_run(&p, greedy);
    if (st == LS_OK) st = check_result(&p);
    ls_prover_close(&p);
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
            b->uneven != a->uneven || s[r]->one_sum != s[0]->one_sum ||
            s[r]->nchunks[LS_BUF_OUT] != s[0]->nchunks[LS_BUF_OUT])
            return ls_fail(LS_INVALID, "schedules of ranks 0 and %d differ in collective, root, segments, lanes, chunks, "
                           "one_sum or uneven", r);
        if (has_in(a->coll) && s[r]->nchunks[LS_BUF_IN] != s[r]->nchunks[LS_BUF_OUT])
            return ls_fail(LS_INVALID, "%s, rank %d: %u chunks in in, %u in out", ls_coll_name(a->coll), r, s[r]->nchunks[LS_BUF_IN],
                           s[r]->nchunks[LS_BUF_OUT]);
    }
    bool shared = a->coll != LS_BARRIER;
    bool whole = a->coll == LS_BROADCAST || a->coll == LS_REDUCE || a->coll == LS_SENDRECV;
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
