/* The executor, over a transport that lives here: it copies at send (pushed)
 * or shows the sender's memory until it is read (pulled), in short views, and
 * says LS_AGAIN whenever it likes. All ranks run on one thread, in turns. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/compiler.h"
#include "coll/exec.h"
#include "harness_values.h"

#define MAX_SIZE 8
#define DEPTH 1 /* messages per pair and channel: what the prover allows */

/* --- a transport in memory ------------------------------------------------------------ */

typedef struct box {
    struct { const char *p; char *owned; size_t n, taken; uint64_t sig; } m[DEPTH];
    uint64_t sent, acked;
    char *shown; /* pushed: the part on show, alone in its memory */
    size_t nshown;
} box;

typedef struct wire {
    box box[MAX_SIZE][MAX_SIZE][LS_MAX_LANES]; /* [from][to][channel] */
    bool pulled;
    uint64_t seed;
} wire;

struct ls_transport { wire *w; int rank; };

static uint64_t dice(wire *w)
{
    w->seed = w->seed * 6364136223846793005u + 1442695040888963407u;
    return w->seed >> 33;
}

static ls_status send_test(ls_transport *t, int peer, int channel, const ls_msg *m, uint64_t *ticket)
{
    box *b = &t->w->box[t->rank][peer][channel];
    if (b->sent - b->acked == DEPTH || dice(t->w) % 8 == 0) return LS_AGAIN;
    char *copy = NULL;
    if (!t->w->pulled) {
        copy = malloc(m->n + 1);
        if (m->n) memcpy(copy, m->p, m->n);
    }
    size_t i = b->sent % DEPTH;
    b->m[i].p = copy ? copy : m->p;
    b->m[i].owned = copy;
    b->m[i].n = m->n;
    b->m[i].taken = 0;
    b->m[i].sig = m->sig;
    *ticket = ++b->sent;
    return LS_OK;
}

static uint64_t sent_test(ls_transport *t, int peer, int channel)
{
    const box *b = &t->w->box[t->rank][peer][channel];
    if (!t->w->pulled) return b->sent;
    return dice(t->w) % 4 || b->acked == 0 ? b->acked : b->acked - 1; /* news may be late */
}

static ls_status view_test(ls_transport *t, int peer, int channel, ls_msg *m)
{
    box *b = &t->w->box[peer][t->rank][channel];
    if (b->acked == b->sent || dice(t->w) % 4 == 0) return LS_AGAIN;
    size_t i = b->acked % DEPTH, left = b->m[i].n - b->m[i].taken;
    size_t n = (size_t)16 << dice(t->w) % 16; /* 16 bytes to 512 KiB */
    *m = (ls_msg){ b->m[i].p + b->m[i].taken, n < left ? n : left, b->m[i].sig };
    b->nshown = m->n;
    if (t->w->pulled) return LS_OK;
    free(b->shown);
    b->shown = malloc(m->n + 16);
    memset(b->shown, 0x77, m->n + 16);
    if (m->n) memcpy(b->shown, m->p, m->n);
    m->p = b->shown;
    return LS_OK;
}

static ls_status take_test(ls_transport *t, int peer, int channel, size_t n)
{
    box *b = &t->w->box[peer][t->rank][channel];
    size_t i = b->acked % DEPTH;
    assert_true(b->acked < b->sent);
    assert_true(n <= b->nshown);
    b->m[i].taken += n;
    assert_true(b->m[i].taken <= b->m[i].n);
    assert_true(b->m[i].taken == b->m[i].n || b->m[i].taken % 16 == 0);
    if (b->m[i].taken < b->m[i].n) return LS_OK;
    free(b->m[i].owned);
    b->m[i].owned = NULL;
    b->acked++;
    return LS_OK;
}

static const ls_transport_ops ops_test = {
    .name = "test", .send = send_test, .sent = sent_test, .view = view_test, .take = take_test,
};

static void empty_wire(wire *w)
{
    for (int f = 0; f < MAX_SIZE; f++)
        for (int t = 0; t < MAX_SIZE; t++)
            for (int c = 0; c < LS_MAX_LANES; c++) {
                for (int i = 0; i < DEPTH; i++) free(w->box[f][t][c].m[i].owned);
                free(w->box[f][t][c].shown);
            }
    free(w);
}

/* --- all ranks on one thread ----------------------------------------------------------- */

typedef struct setting {
    const ls_algo *algo;
    ls_coll coll;
    int size, root, segments, nlanes;
    size_t count, elem;
    ls_dtype dtype;
    ls_redop op;
    bool divide_last, pulled, apart; /* apart: IN is another buffer than OUT */
    bool by_counts;                  /* shares by share_of(), not equal */
    size_t budget;
    uint32_t sig[MAX_SIZE];
    size_t other_count; /* of rank 1, if not 0 */
    const int *node;
} setting;

typedef struct ranks {
    ls_sched sched[MAX_SIZE];
    ls_run run[MAX_SIZE];
    struct ls_transport tp[MAX_SIZE];
    size_t counts[MAX_SIZE][MAX_SIZE], recv_counts[MAX_SIZE][MAX_SIZE];
    char *in[MAX_SIZE], *out[MAX_SIZE], *tmp[MAX_SIZE], *result[MAX_SIZE];
    ls_status st[MAX_SIZE];
    int turns;
} ranks;

#define GUARD 0x5a
#define GUARDS 64

static size_t block_of(const setting *x, int s, int d) { return ls_test_block(x->count, s, d, x->size, x->by_counts); }
static ls_range share_of(const setting *x, int r) { return ls_test_share(x->count, r, x->size, x->by_counts); }

static const char *describe(const setting *s)
{
    static _Thread_local char text[200];
    snprintf(text, sizeof text, "%s by %s, %d ranks, %zu x %s, %s, segments %d, lanes %d, %s%s%s", ls_coll_name(s->coll),
             s->algo->name, s->size, s->count, ls_dtype_name(s->dtype), ls_redop_name(s->op), s->segments, s->nlanes,
             s->pulled ? "pulled" : "pushed", s->apart ? ", out of place" : "",
             s->by_counts ? ", by counts" : "");
    return text;
}

static bool uses_fold(const ls_sched *s)
{
    for (int l = 0; l < s->shape.nlanes; l++)
        for (uint32_t i = 0; i < s->lane[l].n; i++)
            if (s->lane[l].step[i].kind == LS_STEP_FOLD) return true;
    return false;
}

/* Values of all ranks in x[rank], whole vectors; results in r->result[rank].
 * Returns false when the schedule folds. */
static bool run_all(const setting *s, char *const *x, ranks *r)
{
    wire *w = calloc(1, sizeof *w);
    size_t nbytes = s->count * s->elem;
    bool fold = false;
    *r = (ranks){ 0 };
    w->pulled = s->pulled;
    w->seed = s->count * 31 + (uint64_t)s->size + (uint64_t)s->coll * 7 + s->pulled;
    for (int k = 0; k < s->size; k++) {
        ls_shape shape = { s->coll, k, s->size, s->root, s->segments, s->nlanes, s->node, s->by_counts };
        if (ls_sched_emit(s->algo, &shape, &r->sched[k]) != LS_OK) fail_msg("%s: %s", describe(s), ls_last_error());
        fold = fold || uses_fold(&r->sched[k]);
    }
    for (int k = 0; k < s->size && !fold; k++) {
        size_t bytes = (k == 1 && s->other_count ? s->other_count : s->count) * s->elem;
        ls_range own = share_of(s, k);
        const bool all_to_all = s->coll == LS_ALL_TO_ALL;
        if (all_to_all) nbytes = bytes = 2 * s->count * s->elem; /* enough for any counts */
        r->out[k] = malloc(bytes + GUARDS);
        r->tmp[k] = malloc(bytes + GUARDS);
        r->in[k] = malloc(bytes + GUARDS);
        r->result[k] = malloc((s->coll == LS_ALL_TO_ALL ? 2 : 1) * s->count * s->elem + 1);
        memset(r->out[k], GUARD, bytes + GUARDS);
        memset(r->tmp[k], GUARD, bytes + GUARDS);
        r->tp[k] = (struct ls_transport){ w, k };
        ls_run *run = &r->run[k];
        if (ls_run_bind(run, &r->sched[k]) != LS_OK) fail_msg("%s: %s", describe(s), ls_last_error());
        run->ops = &ops_test;
        run->tp = &r->tp[k];
        run->sig = s->sig[k] ? s->sig[k] : 77;
        run->red = (ls_reduction){ s->dtype, s->op, s->divide_last };
        run->count = bytes / s->elem;
        run->buf[LS_BUF_OUT] = r->out[k];
        run->buf[LS_BUF_TMP] = r->tmp[k];
        run->budget = s->budget;
        for (int q = 0; q < s->size; q++) {
            r->counts[k][q] = all_to_all ? block_of(s, k, q) : share_of(s, q).count;
            r->recv_counts[k][q] = block_of(s, q, k);
        }
        if (s->by_counts) run->counts = r->counts[k], run->recv_counts = r->recv_counts[k];
        if (all_to_all) {
            run->count = ls_test_blocks(s->count, k, s->size, s->by_counts, true);
            run->in = r->in[k];
            if (run->count) memcpy(r->in[k], x[k], run->count * s->elem);
        } else if (s->apart || s->coll == LS_SENDRECV) {
            size_t first = s->coll == LS_ALL_GATHER || s->coll == LS_GATHER ? own.first * s->elem : 0;
            if (nbytes) memcpy(r->in[k], x[k] + first, nbytes - first);
            run->in = r->in[k];
        } else if (nbytes) {
            memcpy(r->out[k], x[k], nbytes);
        }
        if (ls_run_start(run) != LS_OK) fail_msg("%s: %s", describe(s), ls_last_error());
        r->st[k] = LS_AGAIN;
    }
    for (int left = fold ? 0 : s->size; left > 0; r->turns++) {
        if (r->turns > 1000000) fail_msg("%s: stuck", describe(s));
        int k = (int)(dice(w) % (uint64_t)s->size);
        if (r->st[k] != LS_AGAIN) continue;
        r->st[k] = ls_run_progress(&r->run[k]);
        if (r->st[k] < 0) break;
        if (r->st[k] == LS_AGAIN) continue;
        left--;
        if (nbytes) memcpy(r->result[k], r->out[k], nbytes);
        for (int g = 0; g < GUARDS; g++)
            if (r->out[k][nbytes + (size_t)g] != GUARD) fail_msg("%s: rank %d wrote past the end", describe(s), k);
        memset(r->out[k], 0xee, nbytes); /* complete: the buffers are ours again, whoever is still at work */
        memset(r->tmp[k], 0xee, nbytes);
    }
    empty_wire(w);
    return !fold;
}

static void free_all(ranks *r, int size)
{
    for (int k = 0; k < size; k++) {
        ls_run_free(&r->run[k]);
        ls_sched_free(&r->sched[k]);
        free(r->in[k]);
        free(r->out[k]);
        free(r->tmp[k]);
        free(r->result[k]);
    }
}

/* --- values --------------------------------------------------------------------------- */

/* Small integers: sums of 8 of them, and products, are exact in bfloat16 too. */
static int number(int rank, size_t i, ls_redop op)
{
    uint32_t x = (uint32_t)i * 2654435761u + (uint32_t)rank * 40503u;
    return op == LS_PROD ? (int)(x >> 29 & 1) + 1 : (int)(x >> 20 & 15) - (op == LS_AVG ? 0 : 5);
}

static double expected(const setting *s, int rank, size_t i)
{
    double v = number(0, i, s->op);
    if (s->coll == LS_BROADCAST || s->coll == LS_SCATTER) return number(s->root, i, s->op);
    if (s->coll == LS_SENDRECV) return number((rank + s->size - 1) % s->size, i, s->op);
    if (s->coll == LS_ALL_GATHER || s->coll == LS_GATHER)
        for (int k = 0; k < s->size; k++) {
            ls_range own = share_of(s, k);
            if (i >= own.first && i < own.first + own.count) return number(k, i, s->op);
        }
    if (s->coll == LS_ALL_TO_ALL)
        for (int from = 0;; i -= block_of(s, from++, rank)) {
            if (i >= block_of(s, from, rank)) continue;
            for (int d = 0; d < rank; d++) i += block_of(s, from, d);
            return number(from, i, s->op);
        }
    for (int k = 1; k < s->size; k++) {
        double w = number(k, i, s->op);
        if (s->op == LS_MAX) v = v > w ? v : w;
        else if (s->op == LS_MIN) v = v < w ? v : w;
        else if (s->op == LS_PROD) v *= w;
        else v += w;
    }
    return s->op == LS_AVG ? v / s->size : v;
}

static ls_range results_of(const setting *s, int rank)
{
    ls_range own = { 0, s->count };
    if (s->coll == LS_REDUCE_SCATTER || s->coll == LS_SCATTER) own = share_of(s, rank);
    if (s->coll == LS_ALL_TO_ALL) own.count = ls_test_blocks(s->count, rank, s->size, s->by_counts, false);
    if (s->coll == LS_BARRIER || ((s->coll == LS_REDUCE || s->coll == LS_GATHER) && rank != s->root)) own.count = 0;
    return own;
}

static bool is_result(const setting *s, int rank, size_t i)
{
    const ls_range of = results_of(s, rank);
    return i >= of.first && i < of.first + of.count;
}

/* Runs s with exact values; false when it folds. */
static bool gives_the_right_values(setting s)
{
    char *x[MAX_SIZE] = { 0 };
    ranks r;
    s.elem = ls_dtype_size(s.dtype);
    size_t most = s.coll == LS_ALL_TO_ALL ? 2 * s.count : s.count;
    for (int k = 0; k < s.size; k++) {
        x[k] = malloc(most * s.elem + 1);
        for (size_t i = 0; i < most; i++) ls_test_put(s.dtype, x[k], i, number(k, i, s.op));
    }
    bool ran = run_all(&s, x, &r);
    for (int k = 0; ran && k < s.size; k++) {
        if (r.st[k] != LS_OK) fail_msg("%s: rank %d: %s", describe(&s), k, ls_last_error());
        const ls_range of = results_of(&s, k);
        assert_true(of.first + of.count <= most);
        for (size_t i = of.first; i < of.first + of.count; i++) {
            double got = ls_test_get(s.dtype, r.result[k], i), want = expected(&s, k, i);
            if (got != want) fail_msg("%s: rank %d: x[%zu] = %g, expected %g", describe(&s), k, i, got, want);
        }
    }
    free_all(&r, s.size);
    for (int k = 0; k < s.size; k++) free(x[k]);
    return ran;
}

/* --- tests ------------------------------------------------------------------------------ */

static bool fits(const setting *s)
{
    ls_shape shape = { s->coll, 0, s->size, s->root, s->segments, s->nlanes, s->node, s->by_counts };
    return !s->algo->fits || s->algo->fits(&shape);
}

static bool has_shares(ls_coll c)
{
    return c == LS_REDUCE_SCATTER || c == LS_ALL_GATHER || c == LS_GATHER || c == LS_SCATTER || c == LS_ALL_TO_ALL;
}

/* All counts and cuts; types and the transport's ways in turn (test_collectives.c has the product). */
static void every_algorithm_is_right_at_every_size_and_count(void **state)
{
    (void)state;
    static const int sizes[] = { 1, 2, 3, 4, 5, 8 };
#ifdef __SANITIZE_THREAD__
    const int nsizes = 3, part = 4; /* one thread does all of it: there is nothing to find, and it takes an hour */
#else
    const int nsizes = 6, part = 1;
#endif
#ifdef LS_SANITIZED
    const int most_ranks = 3; /* of 65537 values: more take half a minute, most of it in the checks of this file */
#else
    const int most_ranks = 8;
#endif
    static const ls_dtype dtypes[] = { LS_F32, LS_BF16, LS_I64 };
    static const int cuts[][2] = { { 1, 1 }, { 3, 2 } }; /* segments, lanes */
    int ran = 0, ran_by_counts = 0, turn = 0;
    for (int a = 0; ls_algos[a]; a++)
        for (int coll = 0; coll < LS_COLLS; coll++)
            for (int n = 0; n < nsizes && ls_algos[a]->colls & 1u << coll; n++)
                for (int c = 0; c < 7; c++)
                    for (int cut = 0; cut < 2; cut++) {
                        const size_t size = (size_t)sizes[n];
                        const size_t counts[] = { 0, 1, size - 1, size, size + 1, 1000, 65537 };
                        if (c == 6 && (cut == 0 || (n != 2 && n != 5) || sizes[n] > most_ranks)) continue; /* time */
                        for (int pulled = 0; pulled < 2; pulled++, turn++) {
                            setting s = { .algo = ls_algos[a], .coll = (ls_coll)coll, .size = sizes[n],
                                          .root = sizes[n] / 2, .segments = cuts[cut][0], .nlanes = cuts[cut][1],
                                          .count = counts[c], .dtype = dtypes[turn / 2 % 3], .op = LS_SUM,
                                          .pulled = pulled, .apart = c % 2 };
                            if (coll == LS_ALL_TO_ALL) s.count = counts[c] / size * size;
                            if (fits(&s)) ran += gives_the_right_values(s);
                            s.by_counts = true;
                            if (has_shares(s.coll) && fits(&s)) ran_by_counts += gives_the_right_values(s);
                        }
                    }
    assert_true(ran > 5000 / part);
    assert_true(ran_by_counts > 2000 / part);
}

/* Recursive doubling through TMP: its sums overwrite what is on offer, so it is
 * wrong unless the executor waits where seal says so. */
static ls_status emit_doubling(ls_sched *o, const ls_shape *s)
{
    uint32_t all = o->nchunks[LS_BUF_OUT] = o->nchunks[LS_BUF_TMP] = (uint32_t)(s->size * s->segments);
    ls_slice out = { LS_BUF_OUT, 0, all }, tmp = { LS_BUF_TMP, 0, all };
    for (int d = 1; d < s->size; d *= 2) {
        LS_TRY(ls_sched_send(o, 0, s->rank ^ d, out));
        LS_TRY(ls_sched_recv(o, 0, s->rank ^ d, tmp));
        LS_TRY(ls_sched_reduce(o, 0, tmp, out));
    }
    return LS_OK;
}

static void waits_where_a_peer_still_reads(void **state)
{
    (void)state;
    static const ls_algo doubling = { .name = "doubling", .colls = 1u << LS_ALL_REDUCE, .emit = emit_doubling };
    for (int size = 2; size <= 8; size *= 2)
        for (size_t count = 100; count < 100000; count *= 9)
            for (int op = LS_SUM; op <= LS_AVG; op++)
                assert_true(gives_the_right_values((setting){
                    .algo = &doubling, .coll = LS_ALL_REDUCE, .size = size, .segments = 1, .nlanes = 1, .count = count,
                    .dtype = LS_F32, .op = (ls_redop)op, .divide_last = count % 2, .pulled = true }));
}

static void every_operator_and_type_is_right(void **state)
{
    (void)state;
    static const char *const names[] = { "ring", "direct", "oneshot" };
    for (int a = 0; a < 3; a++)
        for (int d = 0; d < LS_DTYPES; d++)
            for (int op = 0; op < LS_REDOPS; op++)
                for (int apart = 0; apart < 2; apart++) {
                    bool integer = d == LS_I32 || d == LS_I64 || d == LS_U8;
                    if (op == LS_AVG && integer) continue;
                    if (d == LS_U8 && op != LS_PROD) continue; /* the other values are below zero */
                    setting s = { .algo = ls_algo_find(names[a]), .coll = LS_ALL_REDUCE, .size = 4, .segments = 2,
                                  .nlanes = 2, .count = 1003, .dtype = (ls_dtype)d, .op = (ls_redop)op, .pulled = true,
                                  .apart = apart };
                    assert_true(gives_the_right_values(s));
                    s.divide_last = true;
                    assert_true(gives_the_right_values(s));
                }
}

static float noise(int rank, size_t i)
{
    uint64_t x = ((uint64_t)rank << 32 | i) * 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 29) * 0xbf58476d1ce4e5b9u;
    return ldexpf((float)(int32_t)(x >> 32), -30 + (int)(x & 7));
}

typedef enum rounding { PER_STEP, ONCE } rounding;

/* The sum in the order of the given ranks, by the contract's rules. */
static float in_order(const setting *s, const int *order, size_t i, rounding how)
{
    float inv = s->op == LS_AVG && !s->divide_last ? (float)(1.0 / s->size) : 1.0f, v = 0.0f;
    for (int k = 0; k < s->size; k++) {
        float x = noise(order[k], i);
        if (s->dtype == LS_BF16) x = ls_bf16_to_f32(ls_f32_to_bf16(x));
        x *= inv;
        if (s->dtype == LS_BF16 && how == PER_STEP) x = ls_bf16_to_f32(ls_f32_to_bf16(x));
        v = k ? v + x : x;
        if (s->dtype == LS_BF16 && how == PER_STEP) v = ls_bf16_to_f32(ls_f32_to_bf16(v));
    }
    if (s->op == LS_AVG && s->divide_last) {
        if (s->dtype == LS_BF16) v = ls_bf16_to_f32(ls_f32_to_bf16(v)); /* divided when it is stored */
        v /= (float)s->size;
    }
    return s->dtype == LS_BF16 ? ls_bf16_to_f32(ls_f32_to_bf16(v)) : v;
}

static void sums_in_the_order_it_promises_bit_for_bit(void **state)
{
    (void)state;
    static const char *const names[] = { "direct", "oneshot", "ring", "master" };
    for (int a = 0; a < 4; a++)
        for (int size = 2; size <= 5; size++)
            for (int mode = 0; mode < 6; mode++) {
                setting s = { .algo = ls_algo_find(names[a]), .coll = LS_ALL_REDUCE, .size = size, .segments = 1,
                              .nlanes = 1, .count = 777, .dtype = mode % 2 ? LS_BF16 : LS_F32,
                              .op = mode < 2 ? LS_SUM : LS_AVG, .divide_last = mode >= 4, .pulled = true };
                bool ring = a == 2;
                char *x[MAX_SIZE] = { 0 };
                ranks r;
                s.elem = ls_dtype_size(s.dtype);
                for (int k = 0; k < size; k++) {
                    x[k] = malloc(s.count * s.elem);
                    for (size_t i = 0; i < s.count; i++) ls_test_put(s.dtype, x[k], i, (double)noise(k, i));
                }
                assert_true(run_all(&s, x, &r));
                for (int share = 0; share < size; share++) {
                    int order[MAX_SIZE];
                    ls_range part;
                    ls_shard_range(s.count, share, size, &part);
                    for (int k = 0; k < size; k++) order[k] = ring ? (share + 1 + k) % size : k;
                    for (size_t i = part.first; i < part.first + part.count; i++)
                        for (int k = 0; k < size; k++) {
                            double want = (double)in_order(&s, order, i, ring ? PER_STEP : ONCE);
                            if (ls_test_get(s.dtype, r.result[k], i) != want)
                                fail_msg("%s: rank %d, x[%zu] = %a, expected %a", describe(&s), k, i,
                                         ls_test_get(s.dtype, r.result[k], i), want);
                        }
                }
                free_all(&r, size);
                for (int k = 0; k < size; k++) free(x[k]);
            }
}

/* --- orders of additions, from each algorithm's head ------------------------------------------ */

/* Of an element of share `share`, over `size` ranks bringing x. */
typedef float order_fn(const float *x, int size, int share);

static int power_in(int size)
{
    int p = 1;
    while (2 * p <= size) p *= 2;
    return p;
}

/* Pairs at the front speak with one voice; then voices at distance `d`, d/2 ... or d, 2d ... */
static float by_bits(const float *x, int size, int d, bool up, int without)
{
    int p = power_in(size), extra = size - p;
    float w[MAX_SIZE] = { 0 }, sum[MAX_SIZE] = { 0 };
    for (int v = 0; v < p; v++) {
        w[v] = v >= extra ? x[v + extra] : x[2 * v + 1];
        if (v < extra && 2 * v != without) w[v] += x[2 * v];
    }
    for (; d > 0 && d < p; d = up ? 2 * d : d / 2) {
        for (int v = 0; v < p; v++) sum[v] = w[v] + w[v ^ d];
        memcpy(w, sum, sizeof w);
    }
    for (int v = 1; v < p; v++) assert_true(w[v] == w[0]);
    return w[0];
}

static float neighbours_first(const float *x, int size, int share)
{
    (void)share;
    return by_bits(x, size, 1, true, -1);
}

static float farthest_first(const float *x, int size, int share)
{
    (void)share;
    return by_bits(x, size, power_in(size) / 2, false, -1);
}

static float farthest_first_even_own_last(const float *x, int size, int share)
{
    bool even = share % 2 == 0 && share / 2 < size - power_in(size);
    float sum = by_bits(x, size, power_in(size) / 2, false, even ? share : -1);
    return even ? sum + x[share] : sum;
}

/* Ranks in one line behind the root (rank size / 2). */
static float last_first(const float *x, int size, int share)
{
    int root = size / 2;
    float sum = x[(root + size - 1) % size];
    (void)share;
    for (int k = size - 2; k >= 0; k--) sum = x[(root + k) % size] + sum;
    return sum;
}

/* Two hosts, even and odd ranks. */
static const int dealt_out[MAX_SIZE] = { 0, 1, 0, 1, 0, 1, 0, 1 };
static float two_hosts(const float *x, int size, int share)
{
    float sum[2] = { 0, 0 };
    for (int host = 0; host < 2; host++) {
        int n = (size + 1 - host) / 2, own = share * n / size;
        for (int k = 0; k < n; k++) {
            float v = x[2 * ((own + n - k) % n) + host];
            sum[host] = k ? sum[host] + v : v;
        }
    }
    return sum[0] + sum[1];
}

static void adds_in_the_order_its_file_states(void **state)
{
    (void)state;
    static const struct { const char *algo; ls_coll coll; order_fn *order; const int *node; } row[] = {
        { "recursive_doubling", LS_ALL_REDUCE, neighbours_first, NULL },
        { "halving_doubling", LS_ALL_REDUCE, farthest_first, NULL },
        { "halving_doubling", LS_REDUCE_SCATTER, farthest_first_even_own_last, NULL },
        { "chain", LS_REDUCE, last_first, NULL },
        { "hierarchical", LS_ALL_REDUCE, two_hosts, dealt_out },
    };
    for (size_t a = 0; a < sizeof row / sizeof *row; a++)
        for (int size = 2; size <= 8; size++) {
            setting s = { .algo = ls_algo_find(row[a].algo), .coll = row[a].coll, .size = size, .root = size / 2,
                          .segments = 1, .nlanes = 1, .count = 300, .elem = 4, .dtype = LS_F32, .op = LS_SUM,
                          .pulled = true, .node = row[a].node };
            float *x[MAX_SIZE];
            ranks r;
            for (int k = 0; k < size; k++) {
                x[k] = malloc(s.count * sizeof **x);
                for (size_t i = 0; i < s.count; i++) x[k][i] = noise(k, i);
            }
            assert_true(run_all(&s, (char **)x, &r));
            for (int share = 0; share < size; share++) {
                ls_range part;
                ls_shard_range(s.count, share, size, &part);
                for (size_t i = part.first; i < part.first + part.count; i++) {
                    float in[MAX_SIZE];
                    for (int k = 0; k < size; k++) in[k] = noise(k, i);
                    double want = (double)row[a].order(in, size, share);
                    for (int k = 0; k < size; k++)
                        if (is_result(&s, k, i) && ls_test_get(LS_F32, r.result[k], i) != want)
                            fail_msg("%s: rank %d, x[%zu] = %a, expected %a", describe(&s), k, i,
                                     ls_test_get(LS_F32, r.result[k], i), want);
                }
            }
            free_all(&r, size);
            for (int k = 0; k < size; k++) free(x[k]);
        }
}

/* What torch.distributed.all_reduce over Gloo leaves in memory (PyTorch 1.13), as FNV-1a over its bytes. */
static void ring_gloo_has_the_bits_of_gloo(void **state)
{
    (void)state;
    static const struct { int size; size_t count; uint64_t want; } row[] = {
        { 2, 1, 0x1957b10dace9fac7u },      { 2, 7, 0x273c23f5afdea441u },      { 2, 1000, 0x5c19d783df00af79u },
        { 2, 100003, 0x5631479e3748d1a5u }, { 2, 900001, 0x5084db5ad2136e65u }, { 2, 2600003, 0x7bc46f2e89f6eef9u },
        { 3, 1, 0xe9443bfbb4ea65f4u },      { 3, 7, 0x4b8b31098b65bf6au },      { 3, 1000, 0xe9c4606476831e17u },
        { 3, 100003, 0x8a09480bef3c6711u }, { 3, 900001, 0xa8100fa74a824e0fu }, { 3, 2600003, 0x3f3c14cabf831b50u },
        { 4, 1, 0x4d77a41c0fa73e0au },      { 4, 7, 0x0df34454a56783cfu },      { 4, 1000, 0xc75b83193c50e132u },
        { 4, 100003, 0xafb406c4433d6589u }, { 4, 900001, 0xfa04c19f780d2d70u }, { 5, 1, 0x6e4b4aaffd59392au },
        { 5, 7, 0x59b3c763f3c9590eu },      { 5, 1000, 0x5ec70fe9fb259107u },   { 5, 100003, 0x5ef574fc29869681u },
        { 5, 900001, 0xa181fafaa9e1de03u },
    };
    for (size_t a = 0; a < sizeof row / sizeof *row; a++) {
        setting s = { .algo = ls_algo_find("ring-gloo"), .coll = LS_ALL_REDUCE, .size = row[a].size,
                      .segments = 1 + (int)a % 3, .nlanes = 1, .count = row[a].count, .elem = 4, .dtype = LS_F32,
                      .op = LS_SUM };
        float *x[MAX_SIZE];
        ranks r;
        for (int k = 0; k < s.size; k++) {
            x[k] = malloc(s.count * sizeof **x);
            for (size_t i = 0; i < s.count; i++) x[k][i] = noise(k, i);
        }
        assert_true(run_all(&s, (char **)x, &r));
        for (int k = 0; k < s.size; k++) {
            uint64_t h = 0xcbf29ce484222325u;
            for (size_t i = 0; i < s.count * 4; i++) h = (h ^ (uint8_t)r.result[k][i]) * 0x100000001b3u;
            if (h != row[a].want) fail_msg("%s: rank %d has %016jx", describe(&s), k, (uintmax_t)h);
        }
        free_all(&r, s.size);
        for (int k = 0; k < s.size; k++) free(x[k]);
    }
}

/* Gloo counts segments of 1 MiB, at least two per rank; so late ranks may have nothing. */
static void ring_gloo_cuts_as_gloo_does(void **state)
{
    (void)state;
    static const struct { size_t count, elem; int size; size_t share[5]; } row[] = {
        { 0, 4, 3, { 0, 0, 0 } },
        { 1, 4, 3, { 1, 0, 0 } },              /* 6 segments of one float */
        { 7, 4, 3, { 4, 3, 0 } },              /* 28 bytes in 6: 5, so 8 */
        { 1000, 4, 4, { 250, 250, 250, 250 } },
        { 1001, 4, 4, { 252, 252, 252, 245 } }, /* 4004 bytes in 8: 501, so 504 */
        { 2600003, 4, 2, { 1300005, 1299998 } },/* 10 segments of 260001 floats */
        { 5, 2, 5, { 2, 2, 1, 0, 0 } },
    };
    for (size_t a = 0; a < sizeof row / sizeof *row; a++) {
        size_t share[5];
        ls_algo_find("ring-gloo")->cut(row[a].count, row[a].elem, row[a].size, share);
        for (int r = 0; r < row[a].size; r++) assert_int_equal(share[r], row[a].share[r]);
    }
}

static void counts_the_payload_it_moves(void **state)
{
    (void)state;
    setting s = { .algo = ls_algo_find("ring"), .coll = LS_ALL_REDUCE, .size = 4, .segments = 1, .nlanes = 1,
                  .count = 4000, .elem = 4, .dtype = LS_F32, .op = LS_SUM, .pulled = true };
    char *x[MAX_SIZE];
    ranks r;
    for (int k = 0; k < 4; k++) x[k] = calloc(4000, 4);
    assert_true(run_all(&s, x, &r));
    for (int k = 0; k < 4; k++) { /* 2 (size-1)/size of 16,000 bytes */
        assert_int_equal(r.run[k].sent, 24000);
        assert_int_equal(r.run[k].received, 24000);
    }
    free_all(&r, 4);
    for (int k = 0; k < 4; k++) free(x[k]);
}

static void a_bound_run_can_be_started_again(void **state)
{
    (void)state;
    wire *w = calloc(1, sizeof *w);
    float x[2][64];
    ls_sched sched[2];
    ls_run run[2] = { { 0 }, { 0 } };
    struct ls_transport tp[2] = { { w, 0 }, { w, 1 } };
    w->pulled = true;
    for (int k = 0; k < 2; k++) {
        ls_shape shape = { LS_ALL_REDUCE, k, 2, 0, 2, 1, NULL, false };
        assert_int_equal(ls_sched_emit(ls_algo_find("ring"), &shape, &sched[k]), LS_OK);
        assert_int_equal(ls_run_bind(&run[k], &sched[k]), LS_OK);
    }
    for (size_t count = 0; count < 64; count += 3) {
        ls_status st[2] = { LS_AGAIN, LS_AGAIN };
        for (int k = 0; k < 2; k++) {
            for (size_t i = 0; i < count; i++) x[k][i] = (float)(k + 1) * (float)i;
            run[k].ops = &ops_test;
            run[k].tp = &tp[k];
            run[k].red = (ls_reduction){ LS_F32, LS_SUM, false };
            run[k].count = count;
            run[k].buf[LS_BUF_OUT] = x[k];
            assert_int_equal(ls_run_start(&run[k]), LS_OK);
        }
        while (st[0] == LS_AGAIN || st[1] == LS_AGAIN)
            for (int k = 0; k < 2; k++)
                if (st[k] == LS_AGAIN) st[k] = ls_run_progress(&run[k]);
        for (int k = 0; k < 2; k++)
            for (size_t i = 0; i < count; i++) assert_true(x[k][i] == 3.0f * (float)i);
    }
    for (int k = 0; k < 2; k++) {
        ls_run_free(&run[k]);
        ls_sched_free(&sched[k]);
    }
    empty_wire(w);
}

static void a_budget_ends_a_turn_early(void **state)
{
    (void)state;
    setting s = { .algo = ls_algo_find("direct"), .coll = LS_ALL_REDUCE, .size = 2, .segments = 1, .nlanes = 1,
                  .count = (size_t)1 << 20, .elem = 4, .dtype = LS_F32, .op = LS_SUM, .pulled = true };
    int turns[2];
    for (int limited = 0; limited < 2; limited++) {
        char *x[MAX_SIZE] = { calloc(s.count, 4), calloc(s.count, 4) };
        ranks r;
        s.budget = limited ? 65536 : 0;
        assert_true(run_all(&s, x, &r));
        turns[limited] = r.turns;
        assert_int_equal(r.st[0], LS_OK);
        free_all(&r, 2);
        free(x[0]);
        free(x[1]);
    }
    assert_true(turns[1] >= 64); /* 4 MiB received by each of two ranks, 64 KiB a turn */
}

static void a_different_collective_is_found_at_the_first_message(void **state)
{
    (void)state;
    static const char *const names[] = { "ring", "direct", "oneshot" };
    for (int a = 0; a < 3; a++)
        for (int pulled = 0; pulled < 2; pulled++) {
            setting s = { .algo = ls_algo_find(names[a]), .coll = LS_ALL_REDUCE, .size = 3, .segments = 1, .nlanes = 1,
                          .count = 100, .elem = 4, .dtype = LS_F32, .op = LS_SUM, .pulled = pulled,
                          .sig = { 5, 6, 5 } };
            char *x[MAX_SIZE] = { calloc(100, 4), calloc(100, 4), calloc(100, 4) };
            ranks r;
            int found = 0;
            assert_true(run_all(&s, x, &r));
            for (int k = 0; k < 3; k++) {
                if (r.st[k] != LS_COLL_MISMATCH) continue;
                found++;
                assert_true(k == 1 ? r.run[k].mismatch_peer != 1 : r.run[k].mismatch_peer == 1);
                assert_int_equal(r.run[k].mismatch_sig, k == 1 ? 5 : 6);
                assert_non_null(strstr(ls_last_error(), "called a different collective"));
            }
            assert_int_equal(found, 1); /* run_all stops at the first */
            free_all(&r, 3);
            for (int k = 0; k < 3; k++) free(x[k]);
        }
}

static void a_message_of_the_wrong_length_is_refused(void **state)
{
    (void)state;
    setting s = { .algo = ls_algo_find("direct"), .coll = LS_ALL_REDUCE, .size = 2, .segments = 1, .nlanes = 1,
                  .count = 100, .other_count = 90, .elem = 4, .dtype = LS_F32, .op = LS_SUM };
    char *x[MAX_SIZE] = { calloc(100, 4), calloc(100, 4) };
    ranks r;
    setting fits = s;
    fits.other_count = 0;
    s.count = 90;
    s.other_count = 100;
    assert_true(run_all(&s, x, &r));
    assert_true(r.st[0] == LS_PROTOCOL || r.st[1] == LS_PROTOCOL);
    assert_non_null(strstr(ls_last_error(), "bytes of rank"));
    free_all(&r, 2);
    assert_true(run_all(&fits, x, &r)); /* nothing is left over in the next run */
    assert_int_equal(r.st[0], LS_OK);
    free_all(&r, 2);
    free(x[0]);
    free(x[1]);
}

static void folds_are_for_mapped_memory(void **state)
{
    (void)state;
    ls_sched s;
    ls_run r = { 0 };
    ls_shape shape = { LS_ALL_REDUCE, 0, 2, 0, 1, 1, NULL, false };
    assert_int_equal(ls_sched_emit(ls_algo_find("fold"), &shape, &s), LS_OK);
    assert_int_equal(ls_run_bind(&r, &s), LS_UNSUPPORTED);
    assert_non_null(strstr(ls_last_error(), "mapped"));
    ls_run_free(&r);
    ls_sched_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_algorithm_is_right_at_every_size_and_count),
        cmocka_unit_test(waits_where_a_peer_still_reads),
        cmocka_unit_test(every_operator_and_type_is_right),
        cmocka_unit_test(sums_in_the_order_it_promises_bit_for_bit),
        cmocka_unit_test(adds_in_the_order_its_file_states),
        cmocka_unit_test(ring_gloo_has_the_bits_of_gloo),
        cmocka_unit_test(ring_gloo_cuts_as_gloo_does),
        cmocka_unit_test(counts_the_payload_it_moves),
        cmocka_unit_test(a_bound_run_can_be_started_again),
        cmocka_unit_test(a_budget_ends_a_turn_early),
        cmocka_unit_test(a_different_collective_is_found_at_the_first_message),
        cmocka_unit_test(a_message_of_the_wrong_length_is_refused),
        cmocka_unit_test(folds_are_for_mapped_memory),
    };
    return cmocka_run_group_tests_name("exec", tests, NULL, NULL);
}
