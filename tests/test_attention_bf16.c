/* Attention of bfloat16, by products of floats, of pairs of bfloat16 and of AMX's tiles, against the formula in
 * double. */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/context.h"
#include "base/env.h"
#include "harness_attention.h"
#include "tensor/threads.h"

static void bf16_equals_its_formula(void **state)
{
    (void)state;
    static const struct { int64_t B, Tq, Tk, Hq, Hkv, D; bool causal; } row[] = {
        { 1, 1, 1, 1, 1, 1, true },      { 2, 5, 5, 2, 2, 8, true },     { 1, 64, 64, 4, 2, 16, true },
        { 2, 65, 65, 4, 1, 80, true },   { 1, 130, 130, 2, 2, 64, true }, { 1, 130, 130, 2, 1, 33, false },
        { 1, 17, 130, 2, 1, 20, true },  { 1, 130, 3, 2, 2, 16, false }, { 1, 70, 70, 1, 1, 256, true },
    };
    ls_tape *t = tape(SLAB);
    for (size_t k = 0; k < sizeof row / sizeof *row; k++)
        for (int times = 1; times <= 2; times++) {
            problem p = make(row[k].B, row[k].Tq, row[k].Tk, row[k].Hq, row[k].Hkv, row[k].D, row[k].causal);
            halves h = halve(&p);
            solve(&p);
            halves_as_tensors(&p, &h);
            ls_tensor *out = NULL;
            for (int i = 0; i < times; i++) {
                ls_tape_reset(t);
                out = ls_attention(t, &h.t[Q], &h.t[K], &h.t[V], p.scale, p.causal);
                if (!out) fail_msg("%s", ls_last_error());
                assert_int_equal(out->dtype, LS_BF16);
                if (ls_backward_from(t, out, h.x[R]) < 0) fail_msg("%s", ls_last_error());
            }
            assert_halves(&p, out->data, &h, times, goes_by_pairs(&p));
            ls_tape_reset(t);
            ls_tape_set_grad(t, false);
            const uint16_t *again = ls_attention(t, &h.t[Q], &h.t[K], &h.t[V], p.scale, p.causal)->data;
            assert_halves(&p, again, &h, 0, goes_by_pairs(&p)); /* without gradients */
            ls_tape_set_grad(t, true);
            drop_halves(&h);
            drop(&p);
        }
    ls_tape_destroy(t);
}

/* Scratch of c, full of NaN, and as much behind it as a tile holds: nothing reads what it has not written, or writes
 * beyond. */
static void with_scratch(ls_attention_call *c, bool backward)
{
    enum { BEHIND = 1024 };
    const int threads = ls_team_resize(1); /* scratch of one, so that nothing of it is idle */
    const size_t size = (size_t)ls_attention_scratch(c, backward) * sizeof *c->scratch;
    char *scratch = aligned_alloc(64, (size + BEHIND + 63) / 64 * 64);
    assert_non_null(scratch);
    memset(scratch, 0xff, size + BEHIND);
    c->scratch = (float *)(void *)scratch;
    if (backward) ls_attention_backward(c);
    else ls_attention_forward(c);
    ls_team_resize(threads);
    for (size_t i = size; i < size + BEHIND; i++) assert_int_equal((unsigned char)scratch[i], 0xff);
    free(scratch);
}

/* Forward and backward by `tile`, or by AMX; h->grad is written. */
static void run_by(const problem *p, const halves *h, const ls_gemm_tile *tile, bool amx, const ls_attention_drop *drop,
                   uint16_t *out)
{
    float *lse = room((size_t)(p->B * p->Hq * p->Tq) * sizeof *lse);
    ls_attention_call c = as_call(p, NULL, lse);
    c.dtype = LS_BF16;
    c.q = h->x[Q];
    c.k = h->x[K];
    c.v = h->x[V];
    c.dout = h->x[R];
    c.out = out;
    c.dq = h->grad[Q];
    c.dk = h->grad[K];
    c.dv = h->grad[V];
    c.tile = tile;
    c.amx = amx;
    if (drop) c.drop = *drop;
    with_scratch(&c, false);
    with_scratch(&c, true);
    free(lse);
}

static void run(const problem *p, const halves *h, const ls_gemm_tile *tile, const ls_attention_drop *drop,
                uint16_t *out)
{
    run_by(p, h, tile, false, drop, out);
}

static const struct { int64_t B, Tq, Tk, Hq, Hkv, D; bool causal; } shape[] = {
    { 1, 1, 1, 1, 1, 16, true },    { 1, 2, 2, 2, 1, 64, true },    { 2, 3, 3, 2, 2, 80, true },
    { 1, 63, 63, 2, 1, 16, true },  { 1, 65, 65, 4, 2, 64, true },  { 1, 130, 130, 2, 1, 80, true },
    { 1, 130, 130, 4, 1, 64, true }, { 1, 65, 65, 1, 1, 2, true },  { 1, 67, 67, 2, 2, 256, true },
    { 1, 1, 1, 1, 1, 16, false },   { 1, 3, 5, 2, 1, 64, false },   { 1, 63, 65, 2, 2, 80, false },
    { 1, 65, 63, 4, 2, 16, false }, { 2, 130, 129, 2, 1, 64, false }, { 1, 1, 130, 2, 1, 64, true },
    { 1, 2, 67, 2, 1, 16, true },   { 1, 17, 131, 2, 1, 80, true }, { 1, 65, 66, 2, 1, 34, true },
    { 1, 63, 63, 2, 2, 15, false }, { 1, 65, 129, 2, 1, 20, true },
};

/* The plain tile, the best of floats, and that of pairs, forced; with dropout and without. Of an odd D, too, where that
 * of pairs gives way to floats. */
static void every_way_of_products_equals_the_formula(void **state)
{
    (void)state;
    const ls_gemm_tile *const best = ls_gemm_tile_best(), *const pairs = ls_gemm_tile_of_pairs();
    const ls_gemm_tile *plain = best;
    for (int i = 0; ls_gemm_tiles[i]; i++) plain = ls_gemm_tiles[i];
    const ls_gemm_tile *const way[] = { plain, best, pairs };
    if (!pairs) print_message("not tested: this CPU has no pairs of bfloat16\n");
    for (size_t k = 0; k < sizeof shape / sizeof *shape; k++)
        for (int dropped = 0; dropped < 2; dropped++) {
            problem p = make(shape[k].B, shape[k].Tq, shape[k].Tk, shape[k].Hq, shape[k].Hkv, shape[k].D,
                             shape[k].causal);
            halves h = halve(&p);
            const ls_attention_dropout d = { .p = 0.25f, .seed = 5, .stream = k, .first = 3 };
            const ls_attention_drop drop_by = { .seed = 5, .stream = k, .first = 3, .least = 1u << 22,
                                                .scale = 1.0f / 0.75f };
            if (dropped) mask_by(&p, &d);
            solve(&p);
            uint16_t *out = room((size_t)p.n[Q] * sizeof *out);
            for (int w = 0; w < 3; w++) {
                if (!way[w]) continue;
                run(&p, &h, way[w], dropped ? &drop_by : NULL, out);
                assert_halves(&p, out, &h, 1, way[w]->pairs && p.D % 2 == 0);
            }
            free(out);
            drop_halves(&h);
            drop(&p);
        }
}

/* By itself attention takes pairs where there are any; rounding P shows. It takes floats where D is odd, where a stride
 * is or where the address is that of half a pair. */
static void pairs_are_taken_where_they_fit(void **state)
{
    (void)state;
    if (!ls_gemm_tile_of_pairs()) skip();
    for (int64_t D = 63; D <= 64; D++) {
        problem p = make(1, 70, 70, 2, 2, D, true);
        halves h = halve(&p);
        const size_t nbytes = (size_t)p.n[Q] * sizeof(uint16_t);
        uint16_t *by_itself = room(nbytes), *by_pairs = room(nbytes), *by_floats = room(nbytes);
        run(&p, &h, NULL, NULL, by_itself);
        run(&p, &h, ls_gemm_tile_of_pairs(), NULL, by_pairs);
        run(&p, &h, ls_gemm_tile_best(), NULL, by_floats);
        assert_memory_equal(by_itself, ls_gemm_tile_pairs_pay() ? by_pairs : by_floats, nbytes);
        if (D % 2 == 0) assert_memory_not_equal(by_pairs, by_floats, nbytes);
        else assert_memory_equal(by_pairs, by_floats, nbytes);
        free(by_floats);
        free(by_pairs);
        free(by_itself);
        drop_halves(&h);
        drop(&p);
    }
    enum { T = 66, D = 16 };
    problem p = make(1, T, T, 1, 1, D, true);
    halves h = halve(&p);
    uint16_t *moved = room((T * (D + 1) + 1) * sizeof *moved), by_itself[T * D], by_floats[T * D];
    for (int64_t gap = 0; gap < 2; gap++) { /* one element before all; or after each token */
        for (int64_t t = 0; t < T; t++) memcpy(moved + 1 - gap + t * (D + gap), h.x[Q] + t * D, D * sizeof *moved);
        ls_attention_call c = as_call(&p, NULL, NULL);
        c.dtype = LS_BF16;
        c.q = moved + 1 - gap;
        c.q_by.token = D + gap;
        c.k = h.x[K];
        c.v = h.x[V];
        c.dout = NULL;
        c.out = by_itself;
        c.scratch = room((size_t)ls_attention_scratch(&c, false) * sizeof *c.scratch);
        c.tile = ls_gemm_tile_of_pairs(); /* gives way, where there is one */
        ls_attention_forward(&c);
        c.tile = ls_gemm_tile_best();
        c.out = by_floats;
        ls_attention_forward(&c);
        assert_memory_equal(by_itself, by_floats, sizeof by_itself);
        free(c.scratch);
    }
    free(moved);
    drop_halves(&h);
    drop(&p);
}

/* Scores of -1e9 and more, gradients of 1e3: the place beside the last of 67 queries holds lse and delta of the tile
 * before, and what they make of a score of 0, more than float holds, must not meet a product. */
static void huge_scores_stay_finite(void **state)
{
    (void)state;
    enum { T = 67, D = 16 };
    problem p = make(1, T, T, 1, 1, D, true);
    for (int i = 0; i < T * D; i++) {
        p.x[Q][i] = i % D == 0 ? -1e9f : 0.0f;
        p.x[K][i] = i % D == 0 ? 1.0f + (float)(i / D) : 0.0f; /* the first key is the largest score by far */
        p.x[R][i] *= 1024.0f;
    }
    halves h = halve(&p);
    uint16_t out[T * D];
    for (int amx = 0; amx <= ls_amx_ready(); amx++) {
        run_by(&p, &h, NULL, amx, NULL, out);
        for (int i = 0; i < T * D; i++) assert_int_equal(out[i], h.x[V][i % D]);
        for (int i = Q; i <= V; i++)
            for (int64_t j = 0; j < p.n[i]; j++) assert_true(isfinite(ls_bf16_to_f32(h.grad[i][j])));
    }
    drop_halves(&h);
    drop(&p);
}

/* --- by AMX: skipped where there is none ------------------------------------------------- */

static void amx_equals_the_formula(void **state)
{
    (void)state;
    if (!ls_amx_ready()) skip();
    static const struct { int64_t B, Tq, Tk, Hq, Hkv, D; bool causal; } row[] = {
        { 1, 1, 1, 1, 1, 16, true },     { 1, 2, 2, 2, 1, 64, true },     { 2, 3, 3, 2, 2, 80, true },
        { 1, 15, 15, 2, 1, 8, true },    { 1, 17, 17, 2, 1, 8, false },   { 1, 31, 33, 1, 1, 48, true },
        { 1, 32, 32, 1, 1, 32, true },   { 1, 33, 33, 1, 1, 33, true },   { 2, 48, 48, 2, 1, 40, true },
        { 1, 63, 63, 2, 1, 16, true },   { 1, 64, 64, 2, 2, 64, true },   { 1, 65, 65, 4, 2, 64, true },
        { 1, 67, 67, 2, 2, 256, true },  { 1, 97, 97, 1, 1, 96, true },   { 1, 130, 130, 2, 1, 80, true },
        { 2, 193, 193, 4, 1, 24, true }, { 1, 63, 65, 2, 2, 80, false },  { 1, 65, 63, 4, 2, 16, false },
        { 1, 130, 129, 2, 1, 64, false }, { 1, 1, 130, 2, 1, 64, true },  { 1, 2, 67, 2, 1, 16, true },
        { 1, 17, 131, 2, 1, 80, true },  { 1, 65, 66, 2, 1, 34, true },   { 1, 40, 100, 2, 1, 128, true },
        { 1, 70, 161, 1, 1, 15, true },  { 1, 63, 63, 2, 2, 15, false },  { 1, 65, 129, 2, 1, 1, true },
    };
    for (size_t k = 0; k < sizeof row / sizeof *row; k++)
        for (int dropped = 0; dropped < 2; dropped++) {
            problem p = make(row[k].B, row[k].Tq, row[k].Tk, row[k].Hq, row[k].Hkv, row[k].D, row[k].causal);
            halves h = halve(&p);
            const ls_attention_dropout d = { .p = 0.25f, .seed = 5, .stream = k, .first = 3 };
            const ls_attention_drop drop_by = { .seed = 5, .stream = k, .first = 3, .least = 1u << 22,
                                                .scale = 1.0f / 0.75f };
            if (dropped) mask_by(&p, &d);
            solve(&p);
            uint16_t *out = room((size_t)p.n[Q] * sizeof *out);
            run_by(&p, &h, NULL, true, dropped ? &drop_by : NULL, out);
            assert_halves(&p, out, &h, 1, true);
            free(out);
            drop_halves(&h);
            drop(&p);
        }
}

/* [B, T, H, D] with `gap` elements after each token, and one before all. */
static uint16_t *spread(const uint16_t *x, int64_t tokens, int64_t width, int64_t gap)
{
    uint16_t *to = room((size_t)(1 + tokens * (width + gap)) * sizeof *to);
    memset(to, 0xff, (size_t)(1 + tokens * (width + gap)) * sizeof *to);
    for (int64_t t = 0; t < tokens; t++) memcpy(to + 1 + t * (width + gap), x + t * width, (size_t)width * sizeof *to);
    return to;
}

static void assert_spread(const uint16_t *got, const uint16_t *want, int64_t tokens, int64_t width, int64_t gap)
{
    assert_int_equal(got[0], 0xffff);
    for (int64_t t = 0; t < tokens; t++) {
        const uint16_t *row = got + 1 + t * (width + gap);
        assert_memory_equal(row, want + t * width, (size_t)width * sizeof *row);
        for (int64_t i = width; i < width + gap; i++) assert_int_equal(row[i], 0xffff); /* NaN, read or written never */
    }
}

/* Odd addresses and strides, with NaN between the tokens: the same bits. */
static void amx_reads_and_writes_any_stride(void **state)
{
    (void)state;
    if (!ls_amx_ready()) skip();
    static const int64_t width[] = { 8, 33, 80 };
    for (size_t w = 0; w < sizeof width / sizeof *width; w++)
        for (int64_t gap = 1; gap <= 4; gap += 3) {
            const int64_t B = 2, T = 70, H = 2, D = width[w], C = H * D, each = T * (C + gap);
            problem p = make(B, T, T, H, H, D, true);
            halves h = halve(&p);
            uint16_t *dense = room((size_t)p.n[Q] * sizeof *dense), *x[4], *y[4];
            run_by(&p, &h, NULL, true, NULL, dense);
            for (int i = 0; i < 4; i++) {
                x[i] = spread(h.x[i], B * T, C, gap);
                y[i] = spread(h.x[i], B * T, C, gap); /* overwritten */
            }
            float *lse = room((size_t)(B * H * T) * sizeof *lse);
            ls_attention_call c = as_call(&p, NULL, lse);
            c.dtype = LS_BF16;
            c.amx = true;
            c.q = x[Q] + 1, c.k = x[K] + 1, c.v = x[V] + 1, c.dout = x[R] + 1;
            c.dq = y[Q] + 1, c.dk = y[K] + 1, c.dv = y[V] + 1, c.out = y[R] + 1;
            c.q_by = c.k_by = c.v_by = c.out_by = (ls_strides){ .batch = each, .token = C + gap, .head = D };
            with_scratch(&c, false);
            with_scratch(&c, true);
            assert_spread(y[R], dense, B * T, C, gap);
            for (int i = Q; i <= V; i++) assert_spread(y[i], h.grad[i], B * T, C, gap);
            for (int i = 0; i < 4; i++) {
                free(x[i]);
                free(y[i]);
            }
            free(lse);
            free(dense);
            drop_halves(&h);
            drop(&p);
        }
}

/* A gradient is the same whether the others are wanted or not; what is not wanted stays as it was. */
static void amx_makes_the_wanted_gradients(void **state)
{
    (void)state;
    if (!ls_amx_ready()) skip();
    problem p = make(1, 70, 70, 2, 1, 40, true);
    halves h = halve(&p);
    uint16_t *out = room((size_t)p.n[Q] * sizeof *out), *grad[3];
    float *lse = room((size_t)(p.Hq * p.Tq) * sizeof *lse);
    run_by(&p, &h, NULL, true, NULL, out);
    for (int i = Q; i <= V; i++) grad[i] = room((size_t)p.n[i] * sizeof *grad[i]);
    ls_attention_call c = as_call(&p, NULL, lse);
    c.dtype = LS_BF16;
    c.amx = true;
    c.q = h.x[Q], c.k = h.x[K], c.v = h.x[V], c.dout = h.x[R], c.out = out;
    with_scratch(&c, false);
    for (int wanted = 0; wanted < 8; wanted++) {
        c.dq = wanted & 1 ? grad[Q] : NULL, c.dk = wanted & 2 ? grad[K] : NULL, c.dv = wanted & 4 ? grad[V] : NULL;
        for (int i = Q; i <= V; i++) memset(grad[i], 0x11, (size_t)p.n[i] * sizeof *grad[i]);
        with_scratch(&c, true);
        for (int i = Q; i <= V; i++) {
            const size_t nbytes = (size_t)p.n[i] * sizeof *grad[i];
            if (wanted >> i & 1) assert_memory_equal(grad[i], h.grad[i], nbytes);
            else for (int64_t j = 0; j < p.n[i]; j++) assert_int_equal(grad[i][j], 0x1111);
        }
    }
    for (int i = Q; i <= V; i++) free(grad[i]);
    free(lse);
    free(out);
    drop_halves(&h);
    drop(&p);
}

/* -scale is scale with q turned round: the same bits, and dq turned round. */
static void amx_scales_by_negative_numbers(void **state)
{
    (void)state;
    if (!ls_amx_ready()) skip();
    problem p = make(1, 70, 70, 2, 1, 40, true);
    halves h = halve(&p);
    uint16_t *out[2], *grad[3];
    for (int i = 0; i < 2; i++) out[i] = room((size_t)p.n[Q] * sizeof *out[i]);
    run_by(&p, &h, NULL, true, NULL, out[0]);
    for (int i = Q; i <= V; i++) {
        grad[i] = room((size_t)p.n[i] * sizeof *grad[i]);
        memcpy(grad[i], h.grad[i], (size_t)p.n[i] * sizeof *grad[i]);
    }
    p.scale = -p.scale;
    for (int64_t j = 0; j < p.n[Q]; j++) h.x[Q][j] ^= 0x8000u;
    run_by(&p, &h, NULL, true, NULL, out[1]);
    assert_memory_equal(out[0], out[1], (size_t)p.n[Q] * sizeof *out[0]);
    for (int64_t j = 0; j < p.n[Q]; j++)
        assert_true(ls_bf16_to_f32(grad[Q][j]) == -ls_bf16_to_f32(h.grad[Q][j]));
    for (int i = K; i <= V; i++) assert_memory_equal(grad[i], h.grad[i], (size_t)p.n[i] * sizeof *grad[i]);
    for (int i = Q; i <= V; i++) free(grad[i]);
    for (int i = 0; i < 2; i++) free(out[i]);
    drop_halves(&h);
    drop(&p);
}

static int refuse(void) { return -EPERM; }

/* Attention of a tape goes by AMX where the kernel allows it, and as without where it does not. */
static void a_kernel_may_refuse_tiles(void **state)
{
    (void)state;
    problem p = make(1, 70, 70, 2, 2, 64, true);
    halves h = halve(&p);
    const size_t nbytes = (size_t)p.n[Q] * sizeof(uint16_t);
    uint16_t *without = room(nbytes), *with = room(nbytes);
    const bool amx = ls_amx_ready();
    run_by(&p, &h, NULL, false, NULL, without);
    if (amx) run_by(&p, &h, NULL, true, NULL, with);
    ls_env env = *ls_env_get();
    env.use_tiles = refuse;
    for (int refused = 0; refused < 2; refused++) {
        ls_context c = { .env = &env }, *before = refused ? ls_context_swap(&c) : NULL;
        if (refused) assert_false(ls_amx_ready());
        ls_tape *t = tape(SLAB);
        if (refused) ls_context_swap(before);
        halves_as_tensors(&p, &h);
        const ls_tensor *out = ls_attention(t, &h.t[Q], &h.t[K], &h.t[V], p.scale, true);
        assert_memory_equal(out->data, amx && !refused ? with : without, nbytes);
        ls_tape_destroy(t);
    }
    if (amx && !ls_gemm_tile_pairs_pay()) assert_memory_not_equal(with, without, nbytes); /* rounding P shows */
    free(with);
    free(without);
    drop_halves(&h);
    drop(&p);
}

static void bf16_packed_equals_apart_bit_for_bit(void **state)
{
    (void)state;
    ls_tape *t = tape(SLAB);
    const int64_t B = 2, T = 70, H = 3, D = 24, C = H * D;
    problem p = make(B, T, T, H, H, D, true);
    halves h = halve(&p);
    halves_as_tensors(&p, &h);
    uint16_t *qkv = room((size_t)(3 * p.n[Q]) * sizeof *qkv), *grad = room((size_t)(3 * p.n[Q]) * sizeof *grad);
    for (int64_t n = 0; n < B * T; n++)
        for (int i = Q; i <= V; i++) memcpy(qkv + (n * 3 + i) * C, h.x[i] + n * C, (size_t)C * sizeof *qkv);
    ls_tensor g = { .dtype = LS_BF16, .ndim = 3, .dim = { B, T, 3 * C }, .data = grad }, x = g;
    x.data = qkv;
    x.grad = &g;
    const ls_attention_dropout dropout = { .p = 0.25f, .seed = 3, .stream = 7, .first = 11 };
    ls_tensor *apart = ls_attention_dropped(t, &h.t[Q], &h.t[K], &h.t[V], p.scale, true, &dropout);
    assert_int_equal(ls_backward_from(t, apart, h.x[R]), LS_OK);
    ls_tensor *packed = ls_attention_packed_dropped(t, &x, H, p.scale, true, &dropout);
    assert_memory_equal(packed->data, apart->data, (size_t)p.n[Q] * sizeof *qkv);
    assert_int_equal(ls_backward_from(t, packed, h.x[R]), LS_OK);
    for (int64_t n = 0; n < B * T; n++)
        for (int i = Q; i <= V; i++)
            assert_memory_equal(grad + (n * 3 + i) * C, h.grad[i] + n * C, (size_t)C * sizeof *grad);
    free(grad);
    free(qkv);
    drop_halves(&h);
    drop(&p);
    ls_tape_destroy(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bf16_equals_its_formula),
        cmocka_unit_test(every_way_of_products_equals_the_formula),
        cmocka_unit_test(pairs_are_taken_where_they_fit),
        cmocka_unit_test(huge_scores_stay_finite),
        cmocka_unit_test(amx_equals_the_formula),
        cmocka_unit_test(amx_reads_and_writes_any_stride),
        cmocka_unit_test(amx_makes_the_wanted_gradients),
        cmocka_unit_test(amx_scales_by_negative_numbers),
        cmocka_unit_test(a_kernel_may_refuse_tiles),
        cmocka_unit_test(bf16_packed_equals_apart_bit_for_bit),
    };
    return cmocka_run_group_tests_name("attention_bf16", tests, NULL, NULL);
}
