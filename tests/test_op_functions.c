/* Elementwise functions: relu, gelu, silu, swiglu, dropout. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "harness_op.h"
#include "lockstep/rng.h"

/* --- relu and gelu ----------------------------------------------------------------------------- */

static double gelu_of(double x) { return 0.5 * x * (1.0 + tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x))); }

static void relu_formula(void)
{
    for (int64_t i = 0; i < p.count; i++) p.y[i] = p.x.d[i] > 0.0 ? p.x.d[i] : 0.0;
}

static void gelu_formula(void)
{
    for (int64_t i = 0; i < p.count; i++) p.y[i] = gelu_of(p.x.d[i]);
}

static ls_tensor *relu(ls_tape *t, ls_tensor *x) { return ls_relu(t, x); }
static ls_tensor *gelu(ls_tape *t, ls_tensor *x) { return ls_gelu(t, x); }

/* relu is exact. gelu: s has a relative error of (|2u| + 6) 2^-24 times (1 - s), |2u| <= 12 where 1 - s and y
 * matter; y and its slope stay below 2^-24 * 18 * 0.5 = 6e-7, so 1e-6. */
static void relu_and_gelu_equal_their_formulas_and_slopes(void **state)
{
    (void)state;
    const part exact[PARTS] = { { &p.x, 0.0, "dx", ACTIVATION } }, near[PARTS] = { { &p.x, 1e-6, "dx", ACTIVATION } };
    for (size_t k = 0; k < COUNT(flat_row); k++) {
        const int64_t n = flat_row[k];
        fill(&p.x, 2.0f, 1, n, 0, 0);
        roll(n, relu_formula);
        assert_op(relu, 0.0, exact);
        assert_same_in_place(relu, exact);
        fill(&p.x, 2.0f, 1, n, 0, 0);
        roll(n, gelu_formula);
        assert_op(gelu, 1e-6, near);
        assert_same_in_place(gelu, near);
    }
}

/* --- silu and swiglu --------------------------------------------------------------------------- */

static double silu_of(double x) { return x / (1.0 + exp(-x)); }

static void silu_formula(void)
{
    for (int64_t i = 0; i < p.count; i++) p.y[i] = silu_of(p.x.d[i]);
}

static void swiglu_formula(void)
{
    for (int64_t i = 0; i < p.count; i++) p.y[i] = silu_of(p.x.d[i]) * p.w.d[i];
}

static void square_formula(void) /* swiglu(x, x) */
{
    for (int64_t i = 0; i < p.count; i++) p.y[i] = silu_of(p.x.d[i]) * p.x.d[i];
}

static ls_tensor *silu(ls_tape *t, ls_tensor *x) { return ls_silu(t, x); }
static ls_tensor *swiglu(ls_tape *t, ls_tensor *x) { return ls_swiglu(t, x, &p.w.t); }
static ls_tensor *swiglu_from_up(ls_tape *t, ls_tensor *x) { return ls_swiglu(t, &p.w.t, x); }
static ls_tensor *square(ls_tape *t, ls_tensor *x) { return ls_swiglu(t, x, x); }

/* |x|, |up| < 2, |dy| < 1: s is off by 6 roundings, and everything is a product or sum of at most
 * 8 numbers of size 4. */
static void silu_and_swiglu_equal_their_formulas_and_slopes(void **state)
{
    (void)state;
    const double tolerance = 4.0 * 16.0 * ULP;
    const part one[PARTS] = { { &p.x, tolerance, "dx", ACTIVATION } };
    const part two[PARTS] = { { &p.x, tolerance, "dgate", ACTIVATION }, { &p.w, tolerance, "dup", ACTIVATION } };
    for (size_t k = 0; k < COUNT(flat_row); k++) {
        const int64_t n = flat_row[k];
        fill(&p.x, 2.0f, 1, n, 0, 0);
        fill(&p.w, 2.0f, 1, n, 0, 0);
        roll(n, silu_formula);
        assert_op(silu, tolerance, one);
        assert_same_in_place(silu, one);
        fill(&p.x, 2.0f, 1, n, 0, 0);
        roll(n, swiglu_formula);
        assert_op(swiglu, tolerance, two);
        assert_same_in_place(swiglu, two);
        assert_same_in_place(swiglu_from_up, two);
        fill(&p.x, 2.0f, 1, n, 0, 0);
        roll(n, square_formula);
        assert_op(square, tolerance, one);
        assert_same_in_place(square, one);
    }
}

static void silu_is_tame_far_out(void **state)
{
    (void)state;
    static const struct { float x, y, slope; } row[] = {
        { 50.0f, 50.0f, 1.0f }, { 1e4f, 1e4f, 1.0f }, { -1e4f, 0.0f, 0.0f }, { 0.0f, 0.0f, 0.5f },
    };
    ls_tape *t = tape();
    fill(&p.x, 1.0f, 1, 4, 0, 0);
    for (int i = 0; i < 4; i++) p.x.value[i] = row[i].x;
    for (int i = 0; i < 4; i++) p.r[i] = 1.0f;
    ls_tensor *y = ls_silu(t, &p.x.t);
    for (int i = 0; i < 4; i++) assert_near((double)((float *)y->data)[i], (double)row[i].y, 1e-30, "y", i);
    assert_int_equal(ls_backward_from(t, y, p.r), LS_OK);
    for (int i = 0; i < 4; i++) assert_near((double)p.x.slope[i], (double)row[i].slope, 1e-30, "dx", i);
    ls_tape_destroy(t);
}

/* --- dropout -------------------------------------------------------------------------------------------- */

#define SEED 0x123456789abcull
#define STREAM 77ull
#define FIRST 0xfffffffdull /* not a multiple of four, and across a carry */

static float drop_p;
static uint64_t drop_first;

static void dropout_formula(void)
{
    static float uniform[MOST];
    ls_philox_uniform(SEED, STREAM, drop_first, (size_t)p.count, 0.0f, 1.0f, uniform);
    for (int64_t i = 0; i < p.count; i++)
        p.y[i] = uniform[i] < drop_p ? 0.0 : p.x.d[i] / (1.0 - (double)drop_p);
}

static ls_tensor *dropout(ls_tape *t, ls_tensor *x) { return ls_dropout(t, x, drop_p, SEED, STREAM, drop_first); }

/* The scale is rounded, and the product: 2 roundings of a number below 2 / (1 - p), or 1 / (1 - p). */
static void dropout_equals_its_formula_and_its_slopes(void **state)
{
    (void)state;
    const float probability[] = { 0.1f, 0.5f, 0.9f, 1e-9f };
    for (size_t q = 0; q < COUNT(probability); q++)
        for (size_t k = 0; k < COUNT(flat_row); k++) {
            const double tolerance = 4.0 * ULP / (1.0 - (double)probability[q]);
            const part parts[PARTS] = { { &p.x, tolerance, "dx", ACTIVATION } };
            drop_p = probability[q];
            drop_first = k % 2 ? 0 : FIRST;
            fill(&p.x, 2.0f, 1, flat_row[k], 0, 0);
            roll(flat_row[k], dropout_formula);
            assert_op(dropout, tolerance, parts);
            assert_same_in_place(dropout, parts);
        }
}

static void dropout_does_not_depend_on_the_shard(void **state)
{
    (void)state;
    enum { N = 3000 };
    static float whole[N];
    ls_tape *t = tape();
    fill(&p.x, 2.0f, 1, N, 0, 0);
    memcpy(whole, ls_dropout(t, &p.x.t, 0.3f, SEED, STREAM, FIRST)->data, sizeof whole);
    int dropped = 0;
    for (int i = 0; i < N; i++) dropped += whole[i] == 0.0f;
    assert_in_range(dropped, 750, 1050); /* 900 expected; 6 standard deviations */
    for (int64_t piece = 1; piece < N; piece = piece * 3 + 1)
        for (int64_t i = 0; i < N; i += piece) {
            const int64_t n = N - i < piece ? N - i : piece;
            ls_tape_reset(t);
            ls_tensor *x = ls_tape_input(t, LS_F32, 1, &n, p.x.value + i);
            const ls_tensor *y = ls_dropout(t, x, 0.3f, SEED, STREAM, FIRST + (uint64_t)i);
            assert_memory_equal(y->data, whole + i, (size_t)n * sizeof *whole);
        }
    ls_tape_destroy(t);
}

static void dropout_of_nothing_is_the_tensor_itself_and_a_nan_stays(void **state)
{
    (void)state;
    ls_tape *t = tape();
    ls_tensor *x = fill(&p.x, 2.0f, 1, 64, 0, 0);
    assert_ptr_equal(ls_dropout(t, x, 0.0f, 1, 1, 0), x);
    assert_true(ls_tape_flops(t) == 0.0 && ls_tape_peak(t) == 0);
    for (int i = 0; i < 64; i++) p.x.value[i] = NAN;
    const ls_tensor *y = ls_dropout(t, x, 0.9f, 1, 1, 0);
    for (int i = 0; i < 64; i++) assert_true(isnan(((float *)y->data)[i]));
    ls_tape_reset(t);
    assert_refused(t, ls_dropout(t, x, 1.0f, 1, 1, 0), LS_INVALID, "p is 1, expected 0 or more and less than 1");
    assert_refused(t, ls_dropout(t, x, -0.1f, 1, 1, 0), LS_INVALID, "p is -0.1");
    assert_refused(t, ls_dropout(t, x, NAN, 1, 1, 0), LS_INVALID, "p is nan");
    assert_non_null(ls_dropout(t, x, 0x1.fffffep-1f, 1, 1, 0));
    ls_tape_destroy(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(relu_and_gelu_equal_their_formulas_and_slopes),
        cmocka_unit_test(silu_and_swiglu_equal_their_formulas_and_slopes),
        cmocka_unit_test(silu_is_tame_far_out),
        cmocka_unit_test(dropout_equals_its_formula_and_its_slopes),
        cmocka_unit_test(dropout_does_not_depend_on_the_shard),
        cmocka_unit_test(dropout_of_nothing_is_the_tensor_itself_and_a_nan_stays),
    };
    return cmocka_run_group_tests_name("op_functions", tests, NULL, NULL);
}
