/* sched.c -- building a schedule, and sealing it: hazards, lanes, last sums.
 *
 * An algorithm says only what moves. Which write has to wait for which send,
 * whether lanes are independent, and where a sum is complete are derived here,
 * by one rule each, so that no algorithm can get them wrong by hand.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "coll/print.h"
#include "coll/put.h"
#include "lockstep/sched.h"

/* LS_INVALID, with the step in words: they cost as much as all else that is done for a step. */
static ls_status LS_PRINTF(3, 4) refuse(const ls_sched *s, const ls_step *step, const char *fmt, ...)
{
    char text[LS_STEP_TEXT], why[128];
    va_list args;
    va_start(args, fmt);
    vsnprintf(why, sizeof why, fmt, args);
    va_end(args);
    ls_step_text(step, text, sizeof text);
    return ls_fail(LS_INVALID, "rank %d: %s: %s", s->shape.rank, text, why);
}

ls_status ls_put_refused(const ls_sched *s, int lane, const ls_step *step)
{
    if (lane < 0 || lane >= s->shape.nlanes || lane >= LS_MAX_LANES)
        return refuse(s, step, "lane %d of %d", lane, s->shape.nlanes);
    if (!ls_put_fits(s, step->src) || !ls_put_fits(s, step->dst))
        return refuse(s, step, "outside the buffers (in %u, out %u, tmp %u chunks)", s->nchunks[LS_BUF_IN],
                      s->nchunks[LS_BUF_OUT], s->nchunks[LS_BUF_TMP]);
    if (step->dst.buf == LS_BUF_IN && step->dst.n > 0) return refuse(s, step, "in is only read");
    if (ls_put_is_local(step->kind) ? step->peer != -1
                             : step->peer < 0 || step->peer >= s->shape.size || step->peer == s->shape.rank)
        return refuse(s, step, "peer %d of %d ranks", step->peer, s->shape.size);
    return refuse(s, step, "%u chunks into %u", step->src.n, step->dst.n);
}

ls_status ls_put_grow(ls_lane *ln)
{
    const uint32_t cap = ln->cap ? 2 * ln->cap : 16;
    ls_step *p = realloc(ln->step, cap * sizeof *p);
    if (!p) return ls_fail(LS_NO_MEMORY, "schedule of %u steps", cap);
    ln->step = p;
    ln->cap = cap;
    return LS_OK;
}

ls_status ls_sched_send(ls_sched *s, int lane, int peer, ls_slice src)
{
    return ls_put(s, lane, LS_STEP_SEND, peer, src, ls_put_nothing);
}

ls_status ls_sched_recv(ls_sched *s, int lane, int peer, ls_slice dst)
{
    return ls_put(s, lane, LS_STEP_RECV, peer, ls_put_nothing, dst);
}

ls_status ls_sched_recv_reduce(ls_sched *s, int lane, int peer, ls_slice dst)
{
    return ls_put(s, lane, LS_STEP_RECV_REDUCE, peer, ls_put_nothing, dst);
}

ls_status ls_sched_copy(ls_sched *s, int lane, ls_slice src, ls_slice dst)
{
    return ls_put(s, lane, LS_STEP_COPY, -1, src, dst);
}

ls_status ls_sched_reduce(ls_sched *s, int lane, ls_slice src, ls_slice dst)
{
    return ls_put(s, lane, LS_STEP_REDUCE, -1, src, dst);
}

ls_status ls_sched_sum(ls_sched *s, int lane, ls_slice dst)
{
    return ls_put(s, lane, LS_STEP_SUM, -1, ls_put_nothing, dst);
}

ls_status ls_sched_fold(ls_sched *s, int lane, ls_slice dst)
{
    return ls_put(s, lane, LS_STEP_FOLD, -1, ls_put_nothing, dst);
}

static ls_status check_shape(const ls_shape *s)
{
    if ((unsigned)s->coll >= LS_COLLS) return ls_fail(LS_INVALID, "collective %d is unknown", (int)s->coll);
    if (s->size < 1 || s->rank < 0 || s->rank >= s->size)
        return ls_fail(LS_INVALID, "%s: rank %d of %d: expected 0 <= rank < size", ls_coll_name(s->coll), s->rank,
                       s->size);
    if (s->root < 0 || s->root >= s->size)
        return ls_fail(LS_INVALID, "%s: root %d of %d ranks", ls_coll_name(s->coll), s->root, s->size);
    if (s->segments < 1 || s->segments > LS_MAX_SEGMENTS)
        return ls_fail(LS_INVALID, "%s: %d segments: expected 1 to %d", ls_coll_name(s->coll), s->segments,
                       LS_MAX_SEGMENTS);
    if (s->nlanes < 1 || s->nlanes > LS_MAX_LANES)
        return ls_fail(LS_INVALID, "%s: %d lanes: expected 1 to %d", ls_coll_name(s->coll), s->nlanes, LS_MAX_LANES);
    return LS_OK;
}

ls_status ls_sched_emit(const ls_algo *a, const ls_shape *s, ls_sched *out)
{
    *out = (ls_sched){ 0 };
    LS_TRY(check_shape(s));
    if (!(a->colls & 1u << s->coll))
        return ls_fail(LS_INVALID, "algorithm '%s' does not do %s", a->name, ls_coll_name(s->coll));
    if (a->fits && !a->fits(s))
        return ls_fail(LS_INVALID, "algorithm '%s' does not fit %s over %d ranks", a->name, ls_coll_name(s->coll),
                       s->size);
    out->shape = *s;
    out->cut = a->cut;
    ls_status st = a->emit(out, s);
    if (st == LS_OK) st = ls_sched_seal(out);
    if (st < 0) ls_sched_free(out);
    return st;
}

/* The chunks of all buffers, in their order; a.n of them from here on. */
static size_t chunk_of(const ls_sched *s, ls_slice a)
{
    size_t at = a.first;
    for (int b = 0; b < (int)a.buf; b++) at += s->nchunks[b];
    return at;
}

/* The single index is enough because the executor waits for every send up to it. sent[chunks]: 1 + the last step that
 * sends a chunk, all 0. */
static void find_hazards(const ls_sched *s, ls_lane *ln, uint32_t *sent)
{
    for (uint32_t i = 0; i < ln->n; i++) {
        ls_step *a = &ln->step[i];
        const uint32_t *to = sent + chunk_of(s, a->dst);
        uint32_t last = 0;
        for (uint32_t c = 0; c < a->dst.n; c++) last = to[c] > last ? to[c] : last;
        a->after_send = (int32_t)last - 1;
        uint32_t *from = sent + chunk_of(s, a->src);
        for (uint32_t c = 0; a->kind == LS_STEP_SEND && c < a->src.n; c++) from[c] = i + 1;
    }
}

static bool is_reducing(ls_step_kind k)
{
    return k == LS_STEP_RECV_REDUCE || k == LS_STEP_REDUCE || k == LS_STEP_SUM || k == LS_STEP_FOLD;
}

/* Whether this rank ends with the finished sum of chunk c of OUT. */
static bool ends_complete(const ls_shape *s, uint32_t c)
{
    if (s->coll == LS_ALL_REDUCE) return true;
    if (s->coll == LS_REDUCE) return s->rank == s->root;
    return s->coll == LS_REDUCE_SCATTER && c / (uint32_t)s->segments == (uint32_t)s->rank;
}

/* A sum in OUT is complete if this rank keeps the chunk and nothing writes it
 * afterwards: what a ring adds to and passes on is overwritten, or not kept. later[chunks]: whether a later step
 * writes a chunk, all 0. */
static void find_last_reduces(const ls_sched *s, ls_lane *ln, uint32_t *later)
{
    for (uint32_t i = ln->n; i-- > 0;) {
        ls_step *a = &ln->step[i];
        uint32_t *to = later + chunk_of(s, a->dst);
        a->last_reduce = is_reducing(a->kind) && a->dst.buf == LS_BUF_OUT && a->dst.n > 0;
        for (uint32_t c = 0; c < a->dst.n; c++) {
            if (to[c] || !ends_complete(&s->shape, a->dst.first + c)) a->last_reduce = false;
            to[c] = 1;
        }
    }
}

/* Who touched a chunk so far: lane + 1, or LANES_MANY when several only read it. */
#define LANES_MANY 0xff
typedef struct touch { uint8_t lane; bool written; } touch;

static ls_status touch_slice(const ls_sched *s, touch *map, ls_slice a, int lane, bool write)
{
    static const char *const name[] = { "in", "out", "tmp" };
    touch *t = map + chunk_of(s, a);
    for (uint32_t c = 0; c < a.n; c++, t++) {
        bool other = t->lane != 0 && t->lane != lane + 1;
        if (other && (write || t->written))
            return ls_fail(LS_INVALID, "rank %d: lane %d %s chunk %u of %s, which another lane %s", s->shape.rank, lane,
                           write ? "writes" : "reads", a.first + c, name[a.buf], t->written ? "writes" : "reads");
        t->lane = other ? LANES_MANY : (uint8_t)(lane + 1);
        t->written = t->written || write;
    }
    return LS_OK;
}

static size_t all_chunks(const ls_sched *s) { return (size_t)s->nchunks[0] + s->nchunks[1] + s->nchunks[2]; }

static ls_status check_lanes(const ls_sched *s)
{
    size_t n = all_chunks(s);
    touch *map = calloc(n + 1, sizeof *map);
    if (!map) return ls_fail(LS_NO_MEMORY, "lane check of %zu chunks", n);
    ls_status st = LS_OK;
    for (int l = 0; st == LS_OK && l < s->shape.nlanes; l++)
        for (uint32_t i = 0; st == LS_OK && i < s->lane[l].n; i++) {
            const ls_step *a = &s->lane[l].step[i];
            st = touch_slice(s, map, a->src, l, false);
            if (st == LS_OK) st = touch_slice(s, map, a->dst, l, true);
        }
    free(map);
    return st;
}

ls_status ls_sched_seal(ls_sched *s)
{
    LS_TRY(check_shape(&s->shape));
    LS_TRY(check_lanes(s));
    const size_t nbytes = (all_chunks(s) + 1) * sizeof(uint32_t);
    uint32_t *chunk = malloc(nbytes);
    if (!chunk) return ls_fail(LS_NO_MEMORY, "hazards of %zu chunks", all_chunks(s));
    for (int l = 0; l < s->shape.nlanes; l++) {
        memset(chunk, 0, nbytes);
        find_hazards(s, &s->lane[l], chunk);
        memset(chunk, 0, nbytes);
        find_last_reduces(s, &s->lane[l], chunk);
    }
    free(chunk);
    return LS_OK;
}

void ls_sched_free(ls_sched *s)
{
    if (!s) return;
    for (int l = 0; l < LS_MAX_LANES; l++) free(s->lane[l].step);
    *s = (ls_sched){ 0 };
}
