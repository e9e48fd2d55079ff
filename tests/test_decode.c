/* Generation with a cache: attention against a plain loop, logits against the whole sequence at once, token ids against
 * transformers' generate (tests/golden/generate.py). */
#include <errno.h>
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
#include "golden/generate.h"
#include "lockstep/decode.h"
#include "lockstep/hf.h"
#include "lockstep/rng.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))
#define T 16 /* of the golden models: longest sequence, */
#define V 64 /* vocabulary */
#define assert_done(expr)                                                                        \
    do {                                                                                         \
        if ((expr) != LS_OK) fail_msg("%s: %s", #expr, ls_last_error());                         \
    } while (0)

/* --- counting allocations: the C library's are called through these ---------------------- */

#if defined(__GLIBC__) && !defined(LS_SANITIZED)
static _Atomic int64_t allocations;
void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t m);
void *__libc_realloc(void *p, size_t n);
void *__libc_memalign(size_t a, size_t n);
void *malloc(size_t n) { allocations++; return __libc_malloc(n); }
void *calloc(size_t n, size_t m) { allocations++; return __libc_calloc(n, m); }
void *realloc(void *p, size_t n) { allocations++; return __libc_realloc(p, n); }
void *aligned_alloc(size_t a, size_t n) { allocations++; return __libc_memalign(a, n); }
void *memalign(size_t a, size_t n) { allocations++; return __libc_memalign(a, n); }
int posix_memalign(void **p, size_t a, size_t n) { allocations++; return (*p = __libc_memalign(a, n)) ? 0 : ENOMEM; }
#else /* a sanitizer has them: nothing to count */
static int64_t allocations;
#endif

/* --- attention ------------------------------------------------------------------------------- */

#define MOST_FLOATS (2 * 90 * 6 * 16)

/* Query i of all n tokens, head h of sequence b, in double. */
static void attend(const float *q, const float *k, const float *v, int64_t n, int64_t Hq, int64_t Hkv, int64_t D,
                   int64_t b, int64_t i, int64_t h, double scale, double *out)
{
    const int64_t g = h / (Hq / Hkv);
    double p[128], sum = 0;
    for (int64_t j = 0; j <= i; j++) {
        double s = 0;
        for (int64_t d = 0; d < D; d++)
            s += (double)q[((b * n + i) * Hq + h) * D + d] * (double)k[((b * n + j) * Hkv + g) * D + d];
        sum += p[j] = exp(scale * s); /* scores are small: no maximum needed */
    }
    for (int64_t d = 0; d < D; d++) {
        out[d] = 0;
        for (int64_t j = 0; j <= i; j++) out[d] += p[j] / sum * (double)v[((b * n + j) * Hkv + g) * D + d];
    }
}

/* All n tokens in pieces, through the cache; pieces of 1 to 4 tokens and longer ones take different ways. */
static void check_attention(int64_t B, int64_t n, int64_t Hq, int64_t Hkv, int64_t D, bool packed)
{
    static float q[MOST_FLOATS], k[MOST_FLOATS], v[MOST_FLOATS], part[3 * MOST_FLOATS];
    static float kc[3 * MOST_FLOATS], vc[3 * MOST_FLOATS];
    static const int64_t pieces[] = { 7, 1, 4, 1, 30, 2, 1, 1, 64 };
    const int64_t layers = 3, layer = 1, C = Hq * D;
    ls_tape *t;
    assert_done(ls_tape_create((size_t)1 << 20, NULL, NULL, &t));
    ls_philox_normal(1, 0, 0, (size_t)(B * n * Hq * D), 1.0f, q);
    ls_philox_normal(1, 1, 0, (size_t)(B * n * Hkv * D), 1.0f, k);
    ls_philox_normal(1, 2, 0, (size_t)(B * n * Hkv * D), 1.0f, v);
    memset(kc, 0xff, sizeof kc); /* NaN: what is not written must not be read */
    memset(vc, 0xff, sizeof vc);
    ls_kv kv = { .layers = layers, .B = B, .Hkv = Hkv, .D = D, .capacity = n, .k = kc, .v = vc };
    for (size_t piece = 0; kv.n < n; piece++) {
        const int64_t m = pieces[piece] < n - kv.n ? pieces[piece] : n - kv.n;
        const float *from[3] = { q, k, v };
        float *x[3] = { part, part + MOST_FLOATS, part + 2 * MOST_FLOATS };
        for (int64_t b = 0; b < B; b++)
            for (int64_t i = 0; i < m; i++)
                for (int s = 0; s < 3; s++) {
                    const int64_t w = (s ? Hkv : Hq) * D;
                    float *to = packed ? part + ((b * m + i) * 3 + s) * C : x[s] + (b * m + i) * w;
                    memcpy(to, from[s] + (b * n + kv.n + i) * w, (size_t)w * sizeof *to);
                }
        ls_tape_reset(t);
        const float scale = 0.25f;
        ls_tensor *y;
        if (packed) {
            ls_tensor *qkv = ls_tape_input(t, LS_F32, 3, (int64_t[]){ B, m, 3 * C }, part);
            y = ls_attention_packed_cached(t, qkv, Hq, scale, &kv, layer);
        } else {
            ls_tensor *in[3];
            for (int s = 0; s < 3; s++)
                in[s] = ls_tape_input(t, LS_F32, 4, (int64_t[]){ B, m, s ? Hkv : Hq, D }, x[s]);
            y = ls_attention_cached(t, in[0], in[1], in[2], scale, &kv, layer);
        }
        assert_done(ls_tape_status(t));
        assert_int_equal(ls_tensor_count(y), B * m * C);
        for (int64_t b = 0; b < B; b++)
            for (int64_t i = 0; i < m; i++)
                for (int64_t h = 0; h < Hq; h++) {
                    double want[64];
                    attend(q, k, v, n, Hq, Hkv, D, b, kv.n + i, h, (double)scale, want);
                    for (int64_t d = 0; d < D; d++) { /* sums of up to 90 terms, each of a few roundings */
                        const double got = (double)((float *)y->data)[((b * m + i) * Hq + h) * D + d];
                        if (!(fabs(got - want[d]) <= 2e-6))
                            fail_msg("%lld tokens after %lld: [%lld, %lld, %lld, %lld] is %.9g, want %.9g",
                                     (long long)m, (long long)kv.n, (long long)b, (long long)i, (long long)h,
                                     (long long)d, got, want[d]);
                    }
                }
        kv.n += m;
    }
    const int64_t size = B * Hkv * n * D;
    for (int64_t i = 0; i < layers * size; i++) /* no other layer was touched */
        assert_true(isnan(kc[i]) == (i / size != layer) && isnan(vc[i]) == (i / size != layer));
    ls_tape_destroy(t);
}

static void attention_over_a_cache_is_causal_attention(void **state)
{
    (void)state;
    check_attention(1, 90, 4, 4, 16, false);
    check_attention(2, 75, 6, 2, 16, false);
    check_attention(1, 33, 6, 1, 10, false);
    check_attention(2, 90, 6, 6, 12, true);
    check_attention(1, 1, 1, 1, 3, true);
}

static void attention_refuses_another_cache(void **state)
{
    (void)state;
    float x[256] = { 0 }, cache[2][256];
    ls_tape *t;
    assert_done(ls_tape_create(1 << 16, NULL, NULL, &t));
    const ls_kv good = { .layers = 2, .B = 1, .Hkv = 2, .D = 4, .capacity = 8, .n = 5, .k = cache[0], .v = cache[1] };
    const struct { int64_t tokens, heads, kv_heads, layer; ls_kv kv; ls_status status; const char *says; } row[] = {
        { 3, 4, 2, 1, good, LS_OK, "" },
        { 4, 4, 2, 1, good, LS_SHAPE, "4 more tokens after 5; the cache holds 8" },
        { 1, 4, 2, 2, good, LS_SHAPE, "layer 2" },
        { 1, 4, 2, -1, good, LS_SHAPE, "layer -1" },
        { 1, 4, 4, 0, good, LS_SHAPE, "Hkv = 4" },
        { 1, 3, 2, 0, good, LS_SHAPE, "not a multiple of the 2" },
        { 1, 4, 2, 0, { .layers = 2, .B = 1, .Hkv = 2, .D = 4, .capacity = 8 }, LS_INVALID, "no memory" },
        { 1, 4, 2, 0, { .layers = 2, .B = 2, .Hkv = 2, .D = 4, .capacity = 8 }, LS_SHAPE, "of 2, 2, 4" },
    };
    for (size_t r = 0; r < COUNT(row); r++) {
        ls_kv kv = row[r].kv;
        ls_tape_reset(t);
        ls_tensor *q = ls_tape_input(t, LS_F32, 4, (int64_t[]){ 1, row[r].tokens, row[r].heads, 4 }, x);
        ls_tensor *k = ls_tape_input(t, LS_F32, 4, (int64_t[]){ 1, row[r].tokens, row[r].kv_heads, 4 }, x);
        ls_attention_cached(t, q, k, k, 1.0f, &kv, row[r].layer);
        const ls_status st = ls_tape_status(t);
        if (st != row[r].status || (st < 0 && !strstr(ls_last_error(), row[r].says)))
            fail_msg("row %zu: %d: %s", r, st, ls_last_error());
        assert_int_equal(kv.n, row[r].kv.n);
    }
    ls_tape_reset(t);
    ls_kv kv = good;
    ls_tensor grad = { .dtype = LS_F32, .ndim = 3, .dim = { 1, 1, 24 } }, w = grad;
    w.data = x;
    w.grad = &grad;
    ls_attention_packed_cached(t, &w, 2, 1.0f, &kv, 0);
    assert_int_equal(ls_tape_status(t), LS_UNSUPPORTED);
    assert_non_null(strstr(ls_last_error(), "no gradient"));
    ls_tape_destroy(t);
}

/* --- models ------------------------------------------------------------------------------------ */

typedef struct fixture {
    ls_hf_config c;
    ls_model *m;
    ls_arena *arena;
    ls_decoder *d;
    ls_tape *t; /* of the whole sequence at once */
} fixture;

static const char *const names[] = { "gpt2", "llama" }; /* llama: 4 heads of queries, 2 of keys */

static fixture open_golden(const char *name)
{
    fixture f = { 0 };
    char path[512];
    snprintf(path, sizeof path, "%s/tests/golden/hf/%s", LOCKSTEP_SOURCE, name);
    assert_done(ls_hf_open(path, &f.c, &f.m, &f.arena));
    assert_done(ls_decoder_create(f.m, NULL, &f.d));
    assert_done(ls_tape_create((size_t)1 << 22, NULL, NULL, &f.t));
    ls_tape_set_grad(f.t, false);
    assert_int_equal(ls_decoder_capacity(f.d), T);
    assert_int_equal(ls_decoder_vocab(f.d), V);
    return f;
}

static void drop(fixture *f)
{
    ls_tape_destroy(f->t);
    ls_decoder_destroy(f->d);
    ls_model_destroy(f->m);
    ls_arena_destroy(f->arena);
}

/* Logits [n, V] of all places, by the forward pass of training. */
static const float *whole(fixture *f, const uint32_t *id, size_t n)
{
    static int64_t ids[T];
    for (size_t i = 0; i < n; i++) ids[i] = id[i];
    ls_tape_reset(f->t);
    ls_tensor *y = ls_model_forward(f->m, f->t, ls_tape_input(f->t, LS_I64, 2, (int64_t[]){ 1, (int64_t)n }, ids));
    assert_done(ls_tape_status(f->t));
    return y->data;
}

/* Both have logits up to about 3 and add up 32 to 128 products at a time, in another order: 1e-5 is a few roundings
 * of each of the layers. */
static void assert_logits(const char *name, size_t at, const float *got, const float *want)
{
    for (int i = 0; i < V; i++)
        if (!(fabsf(got[i] - want[i]) <= 1e-5f))
            fail_msg("%s: after %zu tokens logit %d is %.9g, want %.9g", name, at, i, (double)got[i], (double)want[i]);
}

static void logits_are_those_of_the_whole_sequence(void **state)
{
    (void)state;
    static const size_t pieces[][T] = {
        { 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1 }, { 16 }, { 5, 5, 5, 1 }, { 2, 3, 4, 6, 1 }, { 15, 1 }, { 9, 1, 1, 1, 4 },
    };
    uint32_t id[T];
    for (uint32_t i = 0; i < T; i++) id[i] = (37 * i * i + 11 * i + 5) % V;
    for (int k = 0; k < 2; k++) {
        fixture f = open_golden(names[k]);
        for (size_t p = 0; p < COUNT(pieces); p++) {
            const float *want = whole(&f, id, T), *got;
            size_t n = 0;
            assert_done(ls_decoder_rewind(f.d, 0));
            for (int i = 0; n < T; i++) {
                assert_done(ls_decoder_feed(f.d, id + n, pieces[p][i], &got));
                n += pieces[p][i];
                assert_int_equal(ls_decoder_count(f.d), n);
                assert_logits(names[k], n, got, want + (n - 1) * V);
            }
        }
        drop(&f);
    }
}

/* Rewound, it has forgotten what came after; the same pieces give the same bits. */
static void rewinding_forgets(void **state)
{
    (void)state;
    const uint32_t id[] = { 1, 2, 3, 4, 5, 6 }, other[] = { 60, 61, 62 };
    for (int k = 0; k < 2; k++) {
        fixture f = open_golden(names[k]);
        float first[V];
        const float *got;
        assert_done(ls_decoder_feed(f.d, id, 6, NULL));
        assert_done(ls_decoder_rewind(f.d, 3));
        assert_done(ls_decoder_feed(f.d, id + 3, 3, &got));
        memcpy(first, got, sizeof first);
        assert_done(ls_decoder_rewind(f.d, 3));
        assert_done(ls_decoder_feed(f.d, other, 3, NULL));
        assert_done(ls_decoder_rewind(f.d, 3));
        assert_done(ls_decoder_feed(f.d, id + 3, 3, &got));
        assert_memory_equal(first, got, sizeof first);
        assert_int_equal(ls_decoder_rewind(f.d, 7), LS_INVALID);
        drop(&f);
    }
}

/* --- generation ----------------------------------------------------------------------------------- */

typedef struct list {
    uint32_t id[64];
    size_t n;
} list;

static ls_status keep(void *arg, uint32_t id)
{
    list *l = arg;
    if (l->n == COUNT(l->id)) return ls_fail(LS_IO, "the list is full");
    l->id[l->n++] = id;
    return LS_OK;
}

static const ls_generate_opts greedy = { .sample = { .top_p = 1 }, .stop = -1 };

static void greedy_ids_are_transformers(void **state)
{
    (void)state;
    assert_true(golden_gap > 1e-3);
    for (size_t g = 0; g < COUNT(golden_text); g++) {
        fixture f = open_golden(golden_text[g].model);
        list made = { 0 };
        ls_generated out;
        ls_generate_opts o = greedy;
        const size_t given = (size_t)golden_text[g].given;
        o.tokens = (int64_t)(T - given);
        assert_done(ls_generate(f.d, golden_text[g].id, given, &o, keep, &made, &out));
        assert_int_equal(made.n, T - given);
        for (size_t i = 0; i < made.n; i++)
            if (made.id[i] != golden_text[g].id[given + i])
                fail_msg("text %zu: token %zu is %u, want %u", g, given + i, made.id[i], golden_text[g].id[given + i]);
        assert_true(out.prompt == (int64_t)given && out.made == o.tokens && !out.stopped && out.slides == 0);
        drop(&f);
    }
}

/* Against the rule by hand, without a cache: when all 16 places are taken, the last 8 tokens stay, with the newest. */
static void a_full_context_goes_on_from_its_last_half(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        fixture f = open_golden(names[k]);
        const uint32_t prompt[] = { 9, 3, 27 };
        list made = { 0 };
        ls_generated out;
        ls_generate_opts o = greedy;
        o.tokens = 40;
        assert_done(ls_generate(f.d, prompt, 3, &o, keep, &made, &out));
        assert_int_equal(made.n, 40);
        uint32_t have[T + 1];
        size_t n = 3;
        memcpy(have, prompt, sizeof prompt);
        int slides = 0;
        for (size_t i = 0; i < made.n; i++) {
            const float *y = whole(&f, have, n) + (n - 1) * V;
            uint32_t best = 0;
            for (uint32_t j = 0; j < V; j++)
                if (y[j] > y[best]) best = j;
            if (made.id[i] != best) fail_msg("%s: token %zu is %u, want %u", names[k], i, made.id[i], best);
            have[n++] = best;
            if (n > T && i + 1 < made.n) {
                memmove(have, have + n - T / 2, T / 2 * sizeof *have);
                n = T / 2;
                slides++;
            }
        }
        assert_int_equal(out.slides, slides);
        assert_true(slides == 3);
        drop(&f);
    }
}

static void the_same_seed_gives_the_same_text(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        fixture f = open_golden(names[k]);
        const uint32_t prompt[] = { 9, 3, 27 };
        list made[4] = { 0 };
        ls_generate_opts o = greedy;
        o.tokens = 40;
        o.sample.temperature = 1;
        for (int i = 0; i < 4; i++) {
            o.sample.seed = (uint64_t)(i / 2); /* 0 0 1 1 */
            assert_done(ls_generate(f.d, prompt, 3, &o, keep, &made[i], NULL));
        }
        assert_memory_equal(&made[0], &made[1], sizeof made[0]);
        assert_memory_equal(&made[2], &made[3], sizeof made[0]);
        assert_memory_not_equal(&made[0], &made[2], sizeof made[0]);
        drop(&f);
    }
}

/* 60 tokens, with prompts in pieces and full contexts: after the first text nothing is allocated. */
static void tokens_take_no_memory(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        fixture f = open_golden(names[k]);
        const uint32_t prompt[] = { 9, 3, 27 };
        ls_generate_opts o = { .sample = { .temperature = 1, .top_k = 20, .top_p = 0.9 }, .tokens = 60, .stop = -1 };
        int64_t before = 0;
        for (int i = 0; i < 3; i++) {
            list made = { 0 };
            if (i == 1) before = allocations;
            assert_done(ls_generate(f.d, prompt, 3, &o, keep, &made, NULL));
            assert_int_equal(made.n, 60);
        }
        assert_int_equal(allocations - before, 0);
        drop(&f);
    }
}

static void stops_where_it_is_told_to(void **state)
{
    (void)state;
    const struct golden_text *g = &golden_text[0];
    fixture f = open_golden(g->model);
    ls_generate_opts o = greedy;
    ls_generated out;
    list made = { 0 };
    size_t first = 1; /* where the token that stands fourth comes first */
    o.stop = g->id[4];
    while (g->id[first] != g->id[4]) first++;
    o.tokens = 15;
    assert_done(ls_generate(f.d, g->id, 1, &o, keep, &made, &out));
    assert_true(out.stopped && out.made == (int64_t)first - 1);
    assert_int_equal(made.n, first - 1); /* without it */

    made.n = COUNT(made.id); /* a listener's failure ends it */
    o.stop = -1;
    assert_int_equal(ls_generate(f.d, g->id, 1, &o, keep, &made, &out), LS_IO);
    o.tokens = 0;
    made.n = 0;
    assert_done(ls_generate(f.d, g->id, 1, &o, keep, &made, &out));
    assert_true(made.n == 0 && out.made == 0);
    drop(&f);
}

static void refuses_prompts_that_do_not_fit(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        fixture f = open_golden(names[k]);
        uint32_t id[T + 1] = { 0 };
        list made = { 0 };
        ls_generate_opts o = greedy, hot = greedy;
        o.tokens = hot.tokens = 3;
        hot.sample.temperature = -1;
        assert_int_equal(ls_generate(f.d, id, 0, &o, keep, &made, NULL), LS_INVALID);
        assert_non_null(strstr(ls_last_error(), "empty prompt"));
        assert_int_equal(ls_generate(f.d, id, T + 1, &o, keep, &made, NULL), LS_INVALID);
        assert_non_null(strstr(ls_last_error(), "has 17 tokens, the model's longest sequence is 16"));
        assert_int_equal(ls_generate(f.d, id, 1, &hot, keep, &made, NULL), LS_INVALID);
        assert_done(ls_generate(f.d, id, T, &o, keep, &made, NULL)); /* as long as it may be */
        assert_int_equal(made.n, 3);

        assert_done(ls_decoder_rewind(f.d, 0));
        assert_done(ls_decoder_feed(f.d, id, 10, NULL));
        id[2] = V;
        assert_int_equal(ls_decoder_feed(f.d, id, 3, NULL), LS_INVALID);
        assert_non_null(strstr(ls_last_error(), "token 2 is 64; the model's vocabulary is 0 to 63"));
        assert_int_equal(ls_decoder_feed(f.d, id, 7, NULL), LS_SHAPE);
        assert_non_null(strstr(ls_last_error(), "7 more tokens after 10"));
        assert_int_equal(ls_decoder_feed(f.d, id, 0, NULL), LS_INVALID);
        assert_int_equal(ls_decoder_count(f.d), 10); /* as it was */
        drop(&f);
    }
    const int64_t dims[] = { 4, 3 };
    const ls_model_config mlp = { .name = "mlp", .dims = dims, .ndims = 2 };
    ls_model *m;
    ls_decoder *d;
    assert_done(ls_model_create(&mlp, &m));
    assert_int_equal(ls_decoder_create(m, NULL, &d), LS_UNSUPPORTED);
    assert_non_null(strstr(ls_last_error(), "'mlp' is not one of language"));
    ls_model_destroy(m);
}

/* The prompt is longer than one piece (256 tokens), and what the ledger says is what was taken. */
static void a_long_prompt_goes_through_in_pieces(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        enum { LONG = 600, WIDE = 24 };
        const ls_model_config c = { .name = names[k], .init = LS_INIT_PHILOX, .seed = 3,
                                    .lm = { .vocab_size = 40, .seq_len = LONG, .n_layer = 2, .n_head = 4,
                                            .n_kv_head = k ? 2 : 4, .d_model = WIDE, .tied = true } };
        ls_model *m;
        ls_arena *arena;
        ls_decoder *d;
        ls_tape *t;
        ls_ledger ledger = { 0 };
        uint32_t id[LONG];
        int64_t ids[LONG];
        const float *got;
        assert_done(ls_model_create(&c, &m));
        assert_done(ls_arena_create(2 * ls_params_nbytes(&m->params) + 8192, false, NULL, &arena));
        assert_done(ls_params_bind(&m->params, arena, NULL));
        assert_done(ls_model_init(m, &c));
        for (int i = 0; i < m->params.n; i++) /* larger than first values are: positions must matter */
            for (int64_t j = 0; j < ls_tensor_count(&m->params.item[i].t); j++)
                if (m->params.item[i].t.ndim == 2) ((float *)m->params.item[i].t.data)[j] *= 10;
        assert_done(ls_decoder_create(m, &ledger, &d));
        assert_true(ledger.now[LS_MEM_ACT] > sizeof(float) * 2 * 2 * LONG * WIDE / (k ? 2 : 1));
        assert_done(ls_tape_create((size_t)1 << 23, NULL, NULL, &t));
        ls_tape_set_grad(t, false);
        for (int i = 0; i < LONG; i++) ids[i] = id[i] = (uint32_t)(i * i + 7 * i) % 40;
        ls_tensor *y = ls_model_forward(m, t, ls_tape_input(t, LS_I64, 2, (int64_t[]){ 1, LONG }, ids));
        assert_done(ls_tape_status(t));
        assert_done(ls_decoder_feed(d, id, LONG, &got));
        const float *want = (float *)y->data + (LONG - 1) * 40;
        float most = 0;
        for (int i = 0; i < 40; i++) most = fmaxf(most, fabsf(want[i]));
        for (int i = 0; i < 40; i++) /* as in assert_logits */
            if (!(fabsf(got[i] - want[i]) <= 1e-5f * fmaxf(most, 1)))
                fail_msg("%s: logit %d is %.9g, want %.9g", names[k], i, (double)got[i], (double)want[i]);
        ls_tape_destroy(t);
        ls_decoder_destroy(d);
        for (int i = 0; i < LS_MEM_KINDS; i++) assert_int_equal(ledger.now[i], 0);
        ls_model_destroy(m);
        ls_arena_destroy(arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_over_a_cache_is_causal_attention),
        cmocka_unit_test(attention_refuses_another_cache),
        cmocka_unit_test(logits_are_those_of_the_whole_sequence),
        cmocka_unit_test(rewinding_forgets),
        cmocka_unit_test(greedy_ids_are_transformers),
        cmocka_unit_test(a_full_context_goes_on_from_its_last_half),
        cmocka_unit_test(the_same_seed_gives_the_same_text),
        cmocka_unit_test(tokens_take_no_memory),
        cmocka_unit_test(stops_where_it_is_told_to),
        cmocka_unit_test(refuses_prompts_that_do_not_fit),
        cmocka_unit_test(a_long_prompt_goes_through_in_pieces),
    };
    return cmocka_run_group_tests_name("decode", tests, NULL, NULL);
}
