/* linear and last_logits on bfloat16, against their formulas in double from the same rounded numbers.
 *
 * A float sum of n terms, in any order, is off by at most about 6 sqrt(n) 2^-24 times the sum of their sizes (Higham
 * and Mary 2019); storing it as bfloat16 by 2^-8 of it. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/team.h"
#include "lockstep/tensor.h"
#include "tensor/tape.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

static uint32_t dice = 1;

static void *room(size_t n)
{
    void *p = calloc(1, n ? n : 1);
    assert_non_null(p);
    return p;
}

/* n numbers in [-1, 1): bfloat16, the same as float, the same as double. */
typedef struct numbers {
    int64_t n;
    uint16_t *half;
    float *one;
    double *two;
} numbers;

static numbers make(int64_t n)
{
    numbers x = { n, room((size_t)n * 2), room((size_t)n * 4), room((size_t)n * 8) };
    for (int64_t i = 0; i < n; i++) {
        dice = dice * 1664525u + 1013904223u;
        x.half[i] = ls_f32_to_bf16((float)(dice >> 8) * 0x1p-23f - 1.0f);
        x.two[i] = (double)(x.one[i] = ls_bf16_to_f32(x.half[i]));
    }
    return x;
}

static void drop(numbers *x)
{
    free(x->half);
    free(x->one);
    free(x->two);
}

static void assert_near(double got, double want, double tolerance, const char *what, int64_t i)
{
    if (!(fabs(got - want) <= tolerance))
        fail_msg("%s[%lld] = %.9g, want %.9g +- %.2g", what, (long long)i, got, want, tolerance);
}

/* Element of a sum of n products of sizes up to 1, in bfloat16 or float; `old` was there before. */
static double within(int64_t n, double want, bool bf16)
{
    const double sum = 6.0 * sqrt((double)n) * 0x1p-24 * (double)n;
    return sum + (bf16 ? 0x1p-8 * (fabs(want) + sum) : 0.0);
}

static const struct { int64_t N, I, O; } shapes[] = { /* the last two go to the library */
    { 1, 1, 1 }, { 5, 7, 3 }, { 16, 64, 32 }, { 33, 20, 100 }, { 128, 256, 192 }, { 96, 1000, 130 },
};

static void linear_equals_its_formula(void **state)
{
    (void)state;
    ls_tape *t;
    assert_int_equal(ls_tape_create((size_t)16 << 20, NULL, NULL, &t), LS_OK);
    for (size_t s = 0; s < COUNT(shapes); s++)
        for (int how = 0; how < 4; how++) {
            const bool bias = how & 1, add = how & 2;
            const int64_t N = shapes[s].N, I = shapes[s].I, O = shapes[s].O;
            numbers x = make(N * I), w = make(O * I), b = make(O), dy = make(N * O), dx = make(N * I), dw = make(O * I),
                    db = make(O);
            for (int64_t i = 0; i < O * I; i++) w.one[i] = NAN; /* the products read the copy */
            ls_tensor gx = { .dtype = LS_BF16, .ndim = 2, .dim = { N, I }, .data = dx.half, .grad_ready = add };
            ls_tensor gw = { .dtype = LS_F32, .ndim = 2, .dim = { O, I }, .data = dw.one, .grad_ready = add };
            ls_tensor gb = { .dtype = LS_F32, .ndim = 1, .dim = { O }, .data = db.one, .grad_ready = add };
            ls_tensor tx = gx, tw = gw, tb = gb;
            tx.data = x.half;
            tx.grad = &gx;
            tw.data = w.one;
            tw.bf16 = w.half;
            tw.grad = &gw;
            tb.data = b.one;
            tb.grad = &gb;
            tx.grad_ready = tw.grad_ready = tb.grad_ready = add;
            ls_tape_reset(t);
            ls_tensor *y = ls_linear(t, &tx, &tw, bias ? &tb : NULL);
            if (!y) fail_msg("%s", ls_last_error());
            assert_int_equal(y->dtype, LS_BF16);
            const uint16_t *got = y->data;
            for (int64_t n = 0; n < N; n++)
                for (int64_t o = 0; o < O; o++) {
                    double want = bias ? b.two[o] : 0.0;
                    for (int64_t i = 0; i < I; i++) want += x.two[n * I + i] * w.two[o * I + i];
                    assert_near((double)ls_bf16_to_f32(got[n * O + o]), want, within(I + 1, want, true), "y",
                                n * O + o);
                }
            if (ls_backward_from(t, y, dy.half) < 0) fail_msg("%s", ls_last_error());
            for (int64_t n = 0; n < N; n++)
                for (int64_t i = 0; i < I; i++) {
                    double want = add ? dx.two[n * I + i] : 0.0;
                    for (int64_t o = 0; o < O; o++) want += dy.two[n * O + o] * w.two[o * I + i];
                    assert_near((double)ls_bf16_to_f32(dx.half[n * I + i]), want, within(O + 1, want, true), "dx",
                                n * I + i);
                }
            for (int64_t o = 0; o < O; o++) {
                double sum = add ? db.two[o] : 0.0;
                for (int64_t n = 0; n < N; n++) sum += dy.two[n * O + o];
                if (bias) assert_near((double)db.one[o], sum, within(N + 1, sum, false), "db", o);
                for (int64_t i = 0; i < I; i++) {
                    double want = add ? dw.two[o * I + i] : 0.0;
                    for (int64_t n = 0; n < N; n++) want += dy.two[n * O + o] * x.two[n * I + i];
                    assert_near((double)dw.one[o * I + i], want, within(N + 1, want, false), "dw", o * I + i);
                }
            }
            numbers *all[] = { &x, &w, &b, &dy, &dx, &dw, &db };
            for (size_t i = 0; i < COUNT(all); i++) drop(all[i]);
        }
    ls_tape_destroy(t);
}

static void last_logits_equal_their_formula(void **state)
{
    (void)state;
    static const struct { int64_t B, T, C, V; } row[] = { { 1, 3, 5, 7 }, { 3, 2, 16, 40 }, { 1, 2, 500, 700 } };
    ls_tape *t;
    assert_int_equal(ls_tape_create((size_t)16 << 20, NULL, NULL, &t), LS_OK);
    for (size_t s = 0; s < COUNT(row); s++) {
        const int64_t B = row[s].B, T = row[s].T, C = row[s].C, V = row[s].V;
        numbers x = make(B * T * C), w = make(V * C);
        ls_tensor tx = { .dtype = LS_BF16, .ndim = 3, .dim = { B, T, C }, .data = x.half };
        ls_tensor tw = { .dtype = LS_F32, .ndim = 2, .dim = { V, C }, .data = w.one, .bf16 = w.half };
        ls_tape_reset(t);
        ls_tensor *y = ls_last_logits(t, &tx, &tw);
        if (!y) fail_msg("%s", ls_last_error());
        assert_int_equal(y->dtype, LS_F32);
        for (int64_t b = 0; b < B; b++)
            for (int64_t v = 0; v < V; v++) {
                double want = 0.0;
                for (int64_t c = 0; c < C; c++) want += x.two[(b * T + T - 1) * C + c] * w.two[v * C + c];
                assert_near((double)((float *)y->data)[b * V + v], want, within(C, want, false), "logit", b * V + v);
            }
        drop(&x);
        drop(&w);
    }
    ls_tape_destroy(t);
}

static void a_weight_without_a_copy_is_refused(void **state)
{
    (void)state;
    ls_tape *t;
    assert_int_equal(ls_tape_create((size_t)1 << 20, NULL, NULL, &t), LS_OK);
    numbers x = make(6), w = make(8);
    ls_tensor tx = { .dtype = LS_BF16, .ndim = 2, .dim = { 3, 2 }, .data = x.half };
    ls_tensor tw = { .dtype = LS_F32, .ndim = 2, .dim = { 4, 2 }, .data = w.one };
    assert_null(ls_linear(t, &tx, &tw, NULL));
    assert_int_equal(ls_tape_status(t), LS_UNSUPPORTED);
    assert_string_equal(ls_last_error(), "linear: the input is bfloat16, and the weight has no copy in bfloat16");
    ls_tape_reset(t);
    assert_null(ls_last_logits(t, &tx, &tw));
    assert_int_equal(ls_tape_status(t), LS_UNSUPPORTED);
    ls_tape_reset(t);
    tx.dtype = LS_F16;
    assert_null(ls_linear(t, &tx, &tw, NULL));
    assert_int_equal(ls_tape_status(t), LS_UNSUPPORTED);
    drop(&x);
    drop(&w);
    ls_tape_destroy(t);
}

/* Large enough for threads: 256 KiB of dy. */
static void the_gradient_of_the_bias_does_not_depend_on_threads(void **state)
{
    (void)state;
    enum { N = 96, I = 3, O = 1500 };
    const int threads = ls_team_size();
    numbers x = make(N * I), w = make(O * I), dy = make(N * O);
    for (int half = 0; half < 2; half++) {
        float *db[4] = { NULL };
        for (int n = 1; n <= 3; n++) {
            ls_tape *t;
            ls_team_resize(n);
            assert_int_equal(ls_tape_create((size_t)4 << 20, NULL, NULL, &t), LS_OK);
            db[n] = room(O * sizeof *db[n]);
            ls_tensor gb = { .dtype = LS_F32, .ndim = 1, .dim = { O }, .data = db[n] }, tb = gb;
            tb.data = w.one;
            tb.grad = &gb;
            ls_tensor tx = { .dtype = half ? LS_BF16 : LS_F32, .ndim = 2, .dim = { N, I } };
            tx.data = half ? (void *)x.half : x.one;
            ls_tensor tw = { .dtype = LS_F32, .ndim = 2, .dim = { O, I }, .data = w.one, .bf16 = w.half };
            ls_tensor *y = ls_linear(t, &tx, &tw, &tb);
            assert_int_equal(ls_backward_from(t, y, half ? (void *)dy.half : dy.one), LS_OK);
            if (n > 1) assert_memory_equal(db[n], db[1], O * sizeof *db[1]);
            ls_tape_destroy(t);
        }
        for (int n = 1; n <= 3; n++) free(db[n]);
    }
    ls_team_resize(threads);
    drop(&x);
    drop(&w);
    drop(&dy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(linear_equals_its_formula),
        cmocka_unit_test(last_logits_equal_their_formula),
        cmocka_unit_test(a_weight_without_a_copy_is_refused),
        cmocka_unit_test(the_gradient_of_the_bias_does_not_depend_on_threads),
    };
    return cmocka_run_group_tests_name("op_linear", tests, NULL, NULL);
}
