/* verify_run.c -- the prover's executor: one step of one lane, and all lanes
 * until they end or none can move. The rules are exec.c's. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/limits.h"
#include "coll/print.h"
#include "coll/verify_impl.h"

static const char *const buf_name[] = { "in", "out", "tmp" };

LS_COLD ls_status ls_prover_red(const prover *p, int rank, int l, uint32_t step, const char *text)
{
    char s[LS_STEP_TEXT];
    ls_step_text(step_of(p, rank, l, step), s, sizeof s);
    return ls_fail(LS_INTERNAL, "%s: rank %d, lane %d, step %u (%s): %s", p->what, rank, l, step, s, text);
}

void ls_prover_value(const prover *p, uint32_t id, char *buf, size_t n)
{
    uint32_t segments = (uint32_t)p->s[0]->shape.segments, block = id / segments;
    if (!has_in(p->coll)) snprintf(buf, n, "chunk %u of the vector", id);
    else
        snprintf(buf, n, "what rank %u has for rank %u (segment %u)", block / (uint32_t)p->size,
                 block % (uint32_t)p->size, id % segments);
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

/* Chunk c of a message from rank `from`. */
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
            return ls_prover_red(p, rank, l, step, text);
        }
    return LS_OK;
}

/* Whether a value is as long as chunk i of the buffer, for any counts. */
static ls_status fits(const prover *p, int rank, int l, uint32_t step, uint32_t i, const value *v)
{
    const ls_slice d = step_of(p, rank, l, step)->dst;
    const ls_shape *s = &p->s[0]->shape;
    uint32_t want = home(p, rank, d.buf, i);
    char text[200], what[80], here[80];
    if (v->id == want) return LS_OK;
    if (has_in(p->coll) && !s->uneven && v->id % (uint32_t)s->segments == want % (uint32_t)s->segments)
        return LS_OK;
    ls_prover_value(p, v->id, what, sizeof what);
    ls_prover_value(p, want, here, sizeof here);
    snprintf(text, sizeof text, "puts %s into %s[%u], which is as long as %s", what, buf_name[d.buf], i, here);
    return ls_prover_red(p, rank, l, step, text);
}

/* sum += v, both with their counts; `sum` is being built up by rank at `step`. */
static ls_status add(const prover *p, int rank, int l, uint32_t step, value *sum, uint8_t *into, const value *v,
                     const uint8_t *count)
{
    char text[160] = "";
    if (!v->defined || !sum->defined) snprintf(text, sizeof text, "adds a chunk that no step has filled");
    else if (v->id != sum->id) snprintf(text, sizeof text, "adds chunk %u of the vector to chunk %u", v->id, sum->id);
    else if (v->finished || sum->finished) snprintf(text, sizeof text, "adds to the complete chunk %u", sum->id);
    if (text[0]) return ls_prover_red(p, rank, l, step, text);
    for (int r = 0; r < p->size; r++) into[r] = (uint8_t)(into[r] + count[r] > 255 ? 255 : into[r] + count[r]);
    sum->order = plus(sum->order, v->order);
    sum->raw = false;
    return LS_OK;
}

static ls_status not_pairwise(const prover *p, int rank, int l, uint32_t step)
{
    if (!p->s[rank]->one_sum) return LS_OK;
    return ls_prover_red(p, rank, l, step, "adds two vectors, but the schedule promises one sum over all ranks (one_sum)");
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
        return ls_prover_red(p, rank, l, step, text);
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
                snprintf(text, sizeof text, "rank %d sends %s[%u], which no step has filled", s->peer,
                         buf_name[m->src.buf], m->src.first + c);
                return ls_prover_red(p, rank, l, step, text);
            }
            LS_TRY(fits(p, rank, l, step, s->dst.first + c, &v));
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
        if (p->v[from].defined) LS_TRY(fits(p, rank, l, step, s->dst.first + c, &p->v[from]));
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
        return ls_prover_red(p, rank, l, step, text);
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
            return ls_prover_red(p, rank, l, step, text);
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
                return ls_prover_red(p, rank, l, step, text);
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

ls_status ls_prover_step(prover *p, int rank, int l)
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
        snprintf(text, sizeof text, "waits for space: rank %d has yet to read the message before", s->peer);
    } else {
        int from = s->peer;
        for (int q = 0; s->kind == LS_STEP_SUM && q < p->size; q++)
            if (q != rank && !peek(p, q, rank, l)) from = q;
        snprintf(text, sizeof text, "waits for a message that rank %d never sends", from);
    }
    size_t n = strlen(text);
    snprintf(text + n, sizeof text - n, "; deadlock, %d lanes are stuck", stuck);
    return ls_prover_red(p, rank, l, ls->pc, text);
}

static bool done(const prover *p, int i)
{
    return p->lane[i].pc >= p->s[i / p->nlanes]->lane[i % p->nlanes].n;
}

ls_status ls_prover_run(prover *p, bool greedy)
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
                st = ls_prover_step(p, order[i] / p->nlanes, order[i] % p->nlanes);
                if (st != LS_OK) break;
                moved = true;
                if (!greedy) break;
            }
    }
    free(order);
    return st < 0 ? st : ls_prover_ended(p);
}

ls_status ls_prover_ended(const prover *p)
{
    const int n = p->size * p->nlanes;
    int stuck = 0, which = -1;
    for (int i = n - 1; i >= 0; i--)
        if (!done(p, i)) stuck++, which = i;
    return stuck ? deadlock(p, which / p->nlanes, which % p->nlanes, stuck) : LS_OK;
}
