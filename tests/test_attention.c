/* Attention: forward and backward against their formulas in double, those against central differences, both
 * against PyTorch, rotary positions included. Tolerances: harness_attention.h.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/team.h"
#include "golden/attention.h"
#include "harness_attention.h"

/* --- attention ---------------------------------------------------------------------------- */

static void assert_case(ls_tape *t, int64_t B, int64_t Tq, int64_t Tk, int64_t Hq, int64_t Hkv, int64_t D, bool causal)
{
    problem p = make(B, Tq, Tk, Hq, Hkv, D, causal);
    solve(&p);
    as_tensors(&p);
    ls_tape_reset(t);
    ls_tensor *out = ls_attention(t, &p.t[Q], &p.t[K], &p.t[V], p.scale, causal);
    assert_int_equal(ls_tape_status(t), LS_OK);
    assert_int_equal(out->ndim, 4);
    assert_memory_equal(out->dim, p.t[Q].dim, sizeof out->dim);
    assert_output(&p, out->data);
    assert_int_equal(ls_backward_from(t, out, p.x[R]), LS_OK);
    assert_gradients(&p, 1.0);
    drop(&p);
}

static void equals_its_formula_at_every_length(void **state)
{
    (void)state;
    ls_tape *t = tape(SLAB);
    for (int64_t T = 1; T <= 130; T++) {
        const int64_t shared = (int64_t[]){ 1, 2, 4 }[T % 3];
        assert_case(t, 1, T, T, 4, 4 / shared, 8, true);
        assert_case(t, 1, T, T, shared, 1, 12, false);
    }
    ls_tape_destroy(t);
}

static void equals_its_formula_at_every_width_and_grouping(void **state)
{
    (void)state;
    static const int64_t length[] = { 1, 3, 16, 33, 64, 65, 100, 128, 130 };
    static const int64_t width[] = { 8, 32, 64, 80, 128 };
    ls_tape *t = tape(SLAB);
    for (size_t l = 0; l < sizeof length / sizeof *length; l++)
        for (size_t w = 0; w < sizeof width / sizeof *width; w++)
            for (int64_t shared = 1; shared <= 4; shared *= 2)
                for (int causal = 0; causal < 2; causal++)
                    assert_case(t, shared == 2 ? 2 : 1, length[l], length[l], shared * (shared == 4 ? 1 : 2),
                                shared == 4 ? 1 : 2, width[w], causal);
    ls_tape_destroy(t);
}

static void queries_may_be_the_last_of_more_keys(void **state)
{
    (void)state;
    static const struct { int64_t Tq, Tk; } row[] = { { 1, 2 },   { 2, 66 },  { 5, 64 },   { 5, 70 },   { 17, 130 },
                                                      { 64, 65 }, { 64, 126 }, { 64, 127 },
                                                      { 65, 96 }, { 66, 129 }, { 100, 163 } };
    ls_tape *t = tape(SLAB);
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        for (int causal = 0; causal < 2; causal++) assert_case(t, 2, row[i].Tq, row[i].Tk, 2, 1, 16, causal);
    assert_case(t, 1, 130, 3, 2, 2, 16, false); /* cross attention: fewer keys */
    assert_case(t, 1, 1, 1, 1, 1, 1, true);
    assert_case(t, 1, 70, 70, 1, 1, 256, true);
    ls_tape_destroy(t);
}

/* h = 1e-4: the third derivative and the rounding of L in double leave about 1e-7. */
static void gradients_equal_central_differences(void **state)
{
    (void)state;
    static const struct { int64_t B, Tq, Tk, Hq, Hkv, D, every; bool causal; } row[] = {
        { 2, 5, 5, 2, 2, 4, 1, true },       { 1, 9, 9, 4, 1, 8, 1, true },     { 1, 9, 9, 4, 2, 8, 1, false },
        { 1, 6, 11, 2, 1, 8, 1, true },      { 1, 65, 65, 2, 1, 8, 37, true },   { 1, 130, 130, 2, 2, 8, 311, true },
        { 1, 130, 130, 2, 1, 8, 311, false }, { 1, 67, 67, 1, 1, 80, 997, true }, { 1, 33, 33, 1, 1, 128, 797, true },
    };
    ls_tape *t = tape(SLAB);
    for (size_t k = 0; k < sizeof row / sizeof *row; k++) {
        problem p = make(row[k].B, row[k].Tq, row[k].Tk, row[k].Hq, row[k].Hkv, row[k].D, row[k].causal);
        solve(&p);
        as_tensors(&p);
        ls_tape_reset(t);
        ls_tensor *out = ls_attention(t, &p.t[Q], &p.t[K], &p.t[V], p.scale, p.causal);
        assert_int_equal(ls_backward_from(t, out, p.x[R]), LS_OK);
        for (int i = Q; i <= V; i++)
            for (int64_t j = 0; j < p.n[i]; j += row[k].every) {
                const double h = 1e-4, at = p.d[i][j];
                const int64_t head = j / p.D % (i == Q ? p.Hq : p.Hkv), hkv = i == Q ? head / (p.Hq / p.Hkv) : head;
                const int64_t b = j / (p.n[i] / p.B);
                p.d[i][j] = at + h;
                const double up = loss(&p, b, hkv);
                p.d[i][j] = at - h;
                const double slope = (up - loss(&p, b, hkv)) / (2.0 * h);
                p.d[i][j] = at;
                assert_near(p.want[i][j], slope, 1e-7, &p, "the formula's gradient", j);
                assert_near((double)p.grad[i][j], slope, p.tolerance[i] + 1e-7, &p, name_of[i], j);
            }
        drop(&p);
    }
    ls_tape_destroy(t);
}

/* A tile of 64 queries has loops of its own, and one of 40 has not. */
static void a_query_has_the_same_bits_among_fewer_queries(void **state)
{
    (void)state;
    enum { MANY = 64, FEW = 40, KEPT = 130 };
    for (int causal = 0; causal < 2; causal++) {
        problem p = make(1, MANY, KEPT, 1, 1, 20, causal);
        const size_t n = (size_t)p.n[Q];
        float *out[2], *dq[2], lse[2][MANY];
        for (int few = 0; few < 2; few++) {
            out[few] = room(n * sizeof(float));
            dq[few] = room(n * sizeof(float));
            ls_attention_call c = as_call(&p, out[few], lse[few]);
            c.Tq = few ? FEW : MANY;
            c.Tk = few && causal ? KEPT - MANY + FEW : KEPT; /* query i sees as many keys */
            c.dq = dq[few];
            c.scratch = room((size_t)ls_attention_scratch(&c, true) * sizeof *c.scratch);
            ls_attention_forward(&c);
            ls_attention_backward(&c);
            free(c.scratch);
        }
        assert_memory_equal(out[0], out[1], n / MANY * FEW * sizeof(float));
        assert_memory_equal(lse[0], lse[1], FEW * sizeof(float));
        assert_memory_equal(dq[0], dq[1], n / MANY * FEW * sizeof(float));
        for (int few = 0; few < 2; few++) {
            free(out[few]);
            free(dq[few]);
        }
        drop(&p);
    }
}

static void every_inner_kernel_agrees(void **state)
{
    (void)state;
    static const int64_t length[] = { 5, 23, 64, 77, 130 };
    for (int tile = 0; ls_gemm_tiles[tile]; tile++) {
        if (!ls_gemm_tiles[tile]->supported()) continue;
        for (size_t l = 0; l < sizeof length / sizeof *length; l++) {
            problem p = make(1, length[l], length[l] + 3, 2, 1, 20, l % 2 == 0);
            solve(&p);
            float *out = room((size_t)p.n[Q] * sizeof *out),
                  *lse = room((size_t)(p.B * p.Hq * p.Tq) * sizeof *lse);
            ls_attention_call c = as_call(&p, out, lse);
            c.tile = ls_gemm_tiles[tile];
            ls_attention_forward(&c);
            assert_output(&p, out);
            float *by_copies = room((size_t)p.n[Q] * sizeof *by_copies);
            c.scratch = room((size_t)ls_attention_scratch(&c, true) * sizeof *c.scratch);
            c.out = by_copies;
            ls_attention_forward(&c); /* the same bits whether keys and values are copied or not */
            assert_memory_equal(by_copies, out, (size_t)p.n[Q] * sizeof *out);
            ls_attention_backward(&c);
            assert_gradients(&p, 1.0);
            free(c.scratch);
            free(by_copies);
            free(lse);
            free(out);
            drop(&p);
        }
    }
}

static void packed_equals_apart_bit_for_bit(void **state)
{
    (void)state;
    static const int64_t length[] = { 1, 4, 5, 64, 65, 130 };
    ls_tape *t = tape(SLAB);
    for (size_t l = 0; l < sizeof length / sizeof *length; l++)
        for (int causal = 0; causal < 2; causal++) {
            const int64_t B = 2, T = length[l], H = 3, D = 24, C = H * D;
            problem p = make(B, T, T, H, H, D, causal);
            float *qkv = room((size_t)(3 * p.n[Q]) * sizeof *qkv), *grad = room((size_t)(3 * p.n[Q]) * sizeof *grad);
            for (int64_t n = 0; n < B * T; n++)
                for (int i = Q; i <= V; i++)
                    memcpy(qkv + (n * 3 + i) * C, p.x[i] + n * C, (size_t)C * sizeof *qkv);
            ls_tensor g = { .dtype = LS_F32, .ndim = 3, .dim = { B, T, 3 * C }, .data = grad }, x = g;
            x.data = qkv;
            x.grad = &g;
            as_tensors(&p);
            ls_tape_reset(t);
            ls_tensor *apart = ls_attention(t, &p.t[Q], &p.t[K], &p.t[V], p.scale, causal);
            assert_int_equal(ls_backward_from(t, apart, p.x[R]), LS_OK);
            const double flops = ls_tape_flops(t);
            ls_tensor *packed = ls_attention_packed(t, &x, H, p.scale, causal);
            assert_int_equal(ls_tape_status(t), LS_OK);
            assert_int_equal(packed->ndim, 3);
            assert_int_equal(packed->dim[2], C);
            assert_memory_equal(packed->data, apart->data, (size_t)p.n[Q] * sizeof(float));
            assert_int_equal(ls_backward_from(t, packed, p.x[R]), LS_OK);
            for (int64_t n = 0; n < B * T; n++)
                for (int i = Q; i <= V; i++)
                    assert_memory_equal(grad + (n * 3 + i) * C, p.grad[i] + n * C, (size_t)C * sizeof *grad);
            assert_true(ls_tape_flops(t) == 2.0 * flops);
            free(grad);
            free(qkv);
            drop(&p);
        }
    ls_tape_destroy(t);
}

/* A cache that keeps each head's tokens together, with room for more: [B, Hkv, 150, D]. */
static void decoding_from_a_cache_equals_the_last_rows(void **state)
{
    (void)state;
    enum { MOST_T = 150 };
    for (int64_t T = 1; T <= 130; T += T < 8 ? 1 : 61) {
        problem p = make(2, T, T, 4, 2, 64, true);
        float *full = room((size_t)p.n[Q] * sizeof *full), *out = room((size_t)p.n[Q] * sizeof *out);
        float *cache[2];
        for (int i = 0; i < 2; i++) {
            cache[i] = room((size_t)(p.B * p.Hkv * MOST_T * p.D) * sizeof **cache);
            for (int64_t j = 0; j < p.B * p.Hkv * MOST_T * p.D; j++) cache[i][j] = NAN; /* beyond T: not read */
            for (int64_t b = 0; b < p.B; b++)
                for (int64_t j = 0; j < T; j++)
                    for (int64_t h = 0; h < p.Hkv; h++)
                        memcpy(cache[i] + ((b * p.Hkv + h) * MOST_T + j) * p.D, p.x[K + i] + k_at(&p, b, j, h),
                               (size_t)p.D * sizeof **cache);
        }
        ls_attention_call c = as_call(&p, full, NULL);
        ls_attention_forward(&c);
        static const int64_t last[] = { 1, 2, 4, 5, 40 };
        for (size_t l = 0; l < sizeof last / sizeof *last && last[l] <= T; l++) {
            c = as_call(&p, out, NULL);
            c.k = cache[0];
            c.v = cache[1];
            c.k_by = c.v_by = (ls_strides){ .batch = p.Hkv * MOST_T * p.D, .token = p.D, .head = MOST_T * p.D };
            c.Tq = last[l];
            c.q = p.x[Q] + q_at(&p, 0, T - last[l], 0);
            c.out = out + q_at(&p, 0, T - last[l], 0);
            for (int64_t j = 0; j < p.n[Q]; j++) out[j] = NAN;
            ls_attention_forward(&c);
            for (int64_t b = 0; b < p.B; b++)
                for (int64_t j = q_at(&p, b, 0, 0); j < q_at(&p, b + 1, 0, 0); j++) {
                    if (j < q_at(&p, b, T - last[l], 0)) assert_true(isnan(out[j]));
                    else assert_near((double)out[j], (double)full[j], 1e-6, &p, "decoded", j);
                }
        }
        free(cache[1]);
        free(cache[0]);
        free(out);
        free(full);
        drop(&p);
    }
}

/* Scores of +-1e9 and more: the largest takes all, nothing overflows. */
static void huge_scores_do_not_overflow(void **state)
{
    (void)state;
    ls_tape *t = tape(SLAB);
    for (int64_t T = 3; T <= 130; T += 127)
        for (int sign = -1; sign <= 1; sign += 2) {
            problem p = make(1, T, T, 1, 1, 16, true);
            for (int64_t i = 0; i < T; i++)
                for (int64_t d = 0; d < 16; d++) { /* score of (i, j): sign * 1e9 (j + 1) */
                    p.x[Q][i * 16 + d] = d == 0 ? (float)sign * 1e9f : 0.0f;
                    p.x[K][i * 16 + d] = d == 0 ? (float)(i + 1) : 0.0f;
                }
            as_tensors(&p);
            ls_tape_reset(t);
            ls_tensor *out = ls_attention(t, &p.t[Q], &p.t[K], &p.t[V], 1.0f, true);
            for (int64_t i = 0; i < T; i++) {
                const float *y = (float *)out->data + i * 16, *v = p.x[V] + (sign > 0 ? i : 0) * 16;
                for (int64_t d = 0; d < 16; d++) assert_near((double)y[d], (double)v[d], 1e-30, &p, "out", i);
            }
            assert_int_equal(ls_backward_from(t, out, p.x[R]), LS_OK);
            for (int i = Q; i <= V; i++)
                for (int64_t j = 0; j < p.n[i]; j++) assert_true(isfinite(p.grad[i][j]));
            for (int64_t j = 0; j < 16 && sign > 0; j++) /* each value has one reader */
                assert_near((double)p.grad[V][j], (double)p.x[R][j], 1e-30, &p, "dv", j);
            drop(&p);
        }
    ls_tape_destroy(t);
}

static void a_nan_stays_in_its_row(void **state)
{
    (void)state;
    ls_tape *t = tape(SLAB);
    problem p = make(1, 70, 70, 2, 2, 16, true);
    as_tensors(&p);
    p.x[Q][q_at(&p, 0, 20, 1) + 3] = NAN;
    const float *out = ls_attention(t, &p.t[Q], &p.t[K], &p.t[V], p.scale, true)->data;
    for (int64_t j = 0; j < p.n[Q]; j++) assert_int_equal(!!isnan(out[j]), j / p.D == 20 * 2 + 1);
    drop(&p);
    ls_tape_destroy(t);
}

static void bits_do_not_depend_on_the_number_of_threads(void **state)
{
    (void)state;
    const int threads = ls_team_size();
    for (int half = 0; half < 2; half++) {
        problem p = make(2, 130, 130, 4, 2, 40, true);
        halves h = halve(&p);
        const ls_attention_dropout d = { .p = 0.2f, .seed = 2, .stream = 3 };
        const size_t size = half ? 2 : 4;
        void *first[4];
        for (int i = 0; i < 4; i++) first[i] = room((size_t)p.n[i] * size);
        for (int n = 1; n <= 3; n++) {
            ls_team_resize(n);
            ls_tape *t = tape(SLAB);
            as_tensors(&p);
            halves_as_tensors(&p, &h);
            ls_tensor *x = half ? h.t : p.t, *out = ls_attention_dropped(t, x + Q, x + K, x + V, p.scale, true, &d);
            assert_int_equal(ls_backward_from(t, out, half ? (void *)h.x[R] : p.x[R]), LS_OK);
            for (int i = 0; i < 4; i++) {
                const void *got = i == R ? out->data : half ? (void *)h.grad[i] : p.grad[i];
                if (n == 1) memcpy(first[i], got, (size_t)p.n[i] * size);
                else assert_memory_equal(first[i], got, (size_t)p.n[i] * size);
            }
            ls_tape_destroy(t);
        }
        for (int i = 0; i < 4; i++) free(first[i]);
        drop_halves(&h);
        drop(&p);
    }
    ls_team_resize(threads);
}

/* Also when the slab is full of something else. */
static void two_runs_give_the_same_bits(void **state)
{
    (void)state;
    ls_tape *t = tape(SLAB);
    problem p = make(2, 130, 130, 4, 2, 40, true);
    as_tensors(&p);
    float *first[4];
    for (int i = 0; i < 4; i++) first[i] = room((size_t)p.n[i] * sizeof **first);
    for (int run = 0; run < 2; run++) {
        ls_tape_reset(t);
        for (int i = Q; i <= V; i++) {
            p.t[i].grad_ready = false;
            memset(p.grad[i], 0x7f, (size_t)p.n[i] * sizeof *p.grad[i]);
        }
        ls_tensor *out = ls_attention(t, &p.t[Q], &p.t[K], &p.t[V], p.scale, true);
        assert_int_equal(ls_backward_from(t, out, p.x[R]), LS_OK);
        for (int i = 0; i < 4; i++) {
            const float *got = i < 3 ? p.grad[i] : out->data;
            if (run == 0) memcpy(first[i], got, (size_t)p.n[i] * sizeof **first);
            else assert_memory_equal(first[i], got, (size_t)p.n[i] * sizeof **first);
        }
        ls_tape_reset(t);
        const int64_t all = (int64_t)(SLAB / sizeof(float) / 2);
        memset(ls_op_output(t, LS_F32, 1, &all)->data, 0xff, SLAB / 2);
    }
    for (int i = 0; i < 4; i++) free(first[i]);
    drop(&p);
    ls_tape_destroy(t);
}

static void adds_to_gradients_that_are_there(void **state)
{
    (void)state;
    ls_tape *t = tape(SLAB);
    problem p = make(1, 70, 70, 2, 1, 16, true);
    solve(&p);
    as_tensors(&p);
    for (int pass = 1; pass <= 3; pass++) {
        ls_tape_reset(t);
        ls_tensor *out = ls_attention(t, &p.t[Q], &p.t[K], &p.t[V], p.scale, true);
        assert_int_equal(ls_backward_from(t, out, p.x[R]), LS_OK);
        assert_gradients(&p, pass);
    }
    drop(&p);
    ls_tape_destroy(t);
}

/* softmax(x x^T) x: the gradient of x is the sum of all three. */
static void one_tensor_may_be_all_three(void **state)
{
    (void)state;
    ls_tape *t = tape(SLAB);
    problem p = make(1, 70, 70, 2, 2, 16, true);
    for (int i = K; i <= V; i++) {
        memcpy(p.x[i], p.x[Q], (size_t)p.n[Q] * sizeof(float));
        memcpy(p.d[i], p.d[Q], (size_t)p.n[Q] * sizeof(double));
    }
    solve(&p);
    as_tensors(&p);
    const double tolerance = p.tolerance[Q] + p.tolerance[K] + p.tolerance[V];
    for (int pass = 1; pass <= 2; pass++) {
        ls_tape_reset(t);
        ls_tensor *out = ls_attention(t, &p.t[Q], &p.t[Q], &p.t[Q], p.scale, true);
        assert_int_equal(ls_backward_from(t, out, p.x[R]), LS_OK);
        for (int64_t j = 0; j < p.n[Q]; j++)
            assert_near((double)p.grad[Q][j], pass * (p.want[Q][j] + p.want[K][j] + p.want[V][j]), pass * tolerance, &p,
                        "dx", j);
    }
    drop(&p);
    ls_tape_destroy(t);
}

static void only_wanted_gradients_are_made(void **state)
{
    (void)state;
    ls_tape *t = tape(SLAB);
    for (int only = Q; only <= V; only++) {
        problem p = make(1, 70, 70, 2, 1, 16, true);
        solve(&p);
        as_tensors(&p);
        for (int i = Q; i <= V; i++)
            if (i != only) p.t[i].grad = NULL;
        ls_tape_reset(t);
        ls_tensor *out = ls_attention(t, &p.t[Q], &p.t[K], &p.t[V], p.scale, true);
        assert_int_equal(ls_backward_from(t, out, p.x[R]), LS_OK);
        for (int i = Q; i <= V; i++)
            for (int64_t j = 0; j < p.n[i]; j++) {
                if (i != only) assert_true(isnan(p.grad[i][j]));
                else assert_near((double)p.grad[i][j], p.want[i][j], p.tolerance[i], &p, name_of[i], j);
            }
        drop(&p);
    }
    ls_tape_destroy(t);
}

/* A rope before q and k, so that there are gradients in the slab, too. */
static ls_tensor *record(ls_tape *t, problem *p)
{
    ls_tensor *q = ls_rope(t, &p->t[Q], 1e4, 0), *k = ls_rope(t, &p->t[K], 1e4, 0);
    ls_tensor *out = ls_attention(t, q, k, &p->t[V], p->scale, true);
    assert_int_equal(ls_backward_from(t, out, p->x[R]), LS_OK);
    return out;
}

static void memory_is_known_before_and_does_not_grow_with_the_square(void **state)
{
    (void)state;
    size_t last = 0;
    for (int64_t T = 64; T <= 1024; T *= 2) {
        problem p = make(1, T, T, 2, 1, 8, true);
        ls_tape *real = tape(SLAB), *dry;
        assert_int_equal(ls_tape_create_dry(&dry), LS_OK);
        as_tensors(&p);
        record(real, &p);
        as_tensors(&p);
        record(dry, &p);
        assert_int_equal(ls_tape_peak(dry), ls_tape_peak(real));
        assert_true(ls_tape_flops(dry) == ls_tape_flops(real));
        /* 14 D for each pair that the mask lets through, in each of two heads; 6 an element of q and k for rope */
        assert_true(ls_tape_flops(real) == 14.0 * 8.0 * 2.0 * (double)(T * (T + 1) / 2) + 6.0 * (double)(T * 3 * 8));
        if (last) assert_in_range(ls_tape_peak(real), last, 2 * last);
        last = ls_tape_peak(real);
        /* without gradients: the outputs, each thread's copies of a head, and some bytes a tensor */
        const ls_attention_call sizes = { .Tk = T, .D = 8 };
        const size_t outputs = (size_t)p.n[Q] * sizeof(float);
        const size_t copies = (size_t)ls_attention_scratch(&sizes, false) * sizeof(float);
        ls_tape_destroy(real);
        real = tape(SLAB);
        ls_tape_set_grad(real, false);
        assert_non_null(ls_attention(real, &p.t[Q], &p.t[K], &p.t[V], p.scale, true));
        assert_in_range(ls_tape_peak(real), outputs + copies, outputs + copies + 256);
        ls_tape_destroy(dry);
        ls_tape_destroy(real);
        drop(&p);
    }
}

static void attention_names_what_is_wrong(void **state)
{
    (void)state;
    ls_tape *t = tape(1 << 16);
    float data[3][4096] = { { 0 } };
    static const struct { int64_t q[4], k[4], v[4]; ls_status st; const char *says; } row[] = {
        { { 1, 4, 2, 8 }, { 1, 4, 2, 9 }, { 1, 4, 2, 9 }, LS_SHAPE, "queries [1, 4, 2, 8], keys [1, 4, 2, 9]" },
        { { 1, 4, 2, 8 }, { 1, 4, 2, 8 }, { 1, 3, 2, 8 }, LS_SHAPE, "values [1, 3, 2, 8]: expected [B, Tq, Hq, D]" },
        { { 1, 4, 3, 8 }, { 1, 4, 2, 8 }, { 1, 4, 2, 8 }, LS_SHAPE, "Hq a multiple of Hkv" },
        { { 2, 4, 2, 8 }, { 1, 4, 2, 8 }, { 1, 4, 2, 8 }, LS_SHAPE, "queries [2, 4, 2, 8]" },
        { { 1, 5, 2, 8 }, { 1, 4, 2, 8 }, { 1, 4, 2, 8 }, LS_SHAPE, "5 queries and 4 keys: a causal mask" },
        { { 1, 4, 1, 257 }, { 1, 4, 1, 257 }, { 1, 4, 1, 257 }, LS_UNSUPPORTED, "heads of 257: at most 256" },
    };
    ls_tensor x[3];
    for (size_t k = 0; k < sizeof row / sizeof *row; k++) {
        const int64_t *dim[3] = { row[k].q, row[k].k, row[k].v };
        for (int i = 0; i < 3; i++) {
            x[i] = (ls_tensor){ .dtype = LS_F32, .ndim = 4, .data = data[i] };
            memcpy(x[i].dim, dim[i], sizeof x[i].dim);
        }
        ls_tape_reset(t);
        assert_null(ls_attention(t, &x[0], &x[1], &x[2], 1.0f, true));
        assert_int_equal(ls_tape_status(t), row[k].st);
        if (!strstr(ls_last_error(), row[k].says)) fail_msg("'%s' does not say '%s'", ls_last_error(), row[k].says);
    }
    x[0] = (ls_tensor){ .dtype = LS_F32, .ndim = 3, .dim = { 1, 4, 25 }, .data = data[0] };
    ls_tape_reset(t);
    assert_null(ls_attention_packed(t, &x[0], 3, 1.0f, true));
    assert_int_equal(ls_tape_status(t), LS_SHAPE);
    assert_string_equal(ls_last_error(), "attention: packed [1, 4, 25] for 3 heads: expected [B, T, 3 C], C a multiple "
                                         "of the heads");
    ls_tape_destroy(t);
}

/* --- PyTorch ------------------------------------------------------------------------------------ */

static void sixteenths(float *x, int64_t n, int64_t factor, int64_t modulus)
{
    for (int64_t i = 0; i < n; i++) x[i] = (float)(i * factor % modulus - modulus / 2) / 16.0f;
}

/* Values up to 1.5 and sums of at most 8 of them: 1e-5 is far above what float loses. */
static void equals_pytorch(void **state)
{
    (void)state;
    ls_tape *t = tape(SLAB);
    problem p = make(GOLDEN_B, GOLDEN_T, GOLDEN_T, GOLDEN_HQ, GOLDEN_HKV, GOLDEN_D, true);
    static const int64_t number[4][2] = { { 37, 41 }, { 29, 43 }, { 31, 47 }, { 23, 37 } };
    for (int i = 0; i < 4; i++) sixteenths(p.x[i], p.n[i], number[i][0], number[i][1]);
    as_tensors(&p);
    ls_tensor *q = ls_rope(t, &p.t[Q], GOLDEN_THETA, GOLDEN_FIRST),
              *k = ls_rope(t, &p.t[K], GOLDEN_THETA, GOLDEN_FIRST);
    ls_tensor *out = ls_attention(t, q, k, &p.t[V], p.scale, true);
    assert_int_equal(ls_backward_from(t, out, p.x[R]), LS_OK);
    for (int64_t j = 0; j < p.n[Q]; j++) {
        assert_near((double)((float *)q->data)[j], golden_rope_q[j], 1e-6, &p, "rope", j);
        assert_near((double)((float *)out->data)[j], golden_out[j], 1e-5, &p, "out", j);
        assert_near((double)p.grad[Q][j], golden_dq[j], 1e-5, &p, "dq", j);
    }
    for (int64_t j = 0; j < p.n[K]; j++) {
        assert_near((double)p.grad[K][j], golden_dk[j], 1e-5, &p, "dk", j);
        assert_near((double)p.grad[V][j], golden_dv[j], 1e-5, &p, "dv", j);
    }
    drop(&p);
    ls_tape_destroy(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_its_formula_at_every_length),
        cmocka_unit_test(equals_its_formula_at_every_width_and_grouping),
        cmocka_unit_test(queries_may_be_the_last_of_more_keys),
        cmocka_unit_test(gradients_equal_central_differences),
        cmocka_unit_test(a_query_has_the_same_bits_among_fewer_queries),
        cmocka_unit_test(every_inner_kernel_agrees),
        cmocka_unit_test(packed_equals_apart_bit_for_bit),
        cmocka_unit_test(decoding_from_a_cache_equals_the_last_rows),
        cmocka_unit_test(huge_scores_do_not_overflow),
        cmocka_unit_test(bits_do_not_depend_on_the_number_of_threads),
        cmocka_unit_test(a_nan_stays_in_its_row),
        cmocka_unit_test(two_runs_give_the_same_bits),
        cmocka_unit_test(adds_to_gradients_that_are_there),
        cmocka_unit_test(one_tensor_may_be_all_three),
        cmocka_unit_test(only_wanted_gradients_are_made),
        cmocka_unit_test(memory_is_known_before_and_does_not_grow_with_the_square),
        cmocka_unit_test(attention_names_what_is_wrong),
        cmocka_unit_test(equals_pytorch),
    };
    return cmocka_run_group_tests_name("attention", tests, NULL, NULL);
}
