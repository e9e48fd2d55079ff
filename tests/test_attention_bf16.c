/* Attention of bfloat16, by products of floats and of pairs of bfloat16, against the formula in double. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "harness_attention.h"

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

/* Forward and backward by `tile`; h->grad is written. */
static void run(const problem *p, const halves *h, const ls_gemm_tile *tile, const ls_attention_drop *drop,
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
    if (drop) c.drop = *drop;
    c.scratch = room((size_t)ls_attention_scratch(&c, true) * sizeof *c.scratch);
    ls_attention_forward(&c);
    ls_attention_backward(&c);
    free(c.scratch);
    free(lse);
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
    run(&p, &h, NULL, NULL, out);
    for (int i = 0; i < T * D; i++) assert_int_equal(out[i], h.x[V][i % D]);
    for (int i = Q; i <= V; i++)
        for (int64_t j = 0; j < p.n[i]; j++) assert_true(isfinite(ls_bf16_to_f32(h.grad[i][j])));
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
        cmocka_unit_test(bf16_packed_equals_apart_bit_for_bit),
    };
    return cmocka_run_group_tests_name("attention_bf16", tests, NULL, NULL);
}
