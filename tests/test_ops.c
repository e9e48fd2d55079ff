/* Each op, forward against its formula in double, backward against finite differences of
 * that formula in double (harness_slopes.h). Elementwise functions are allowed what their
 * accuracy says. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "harness_slopes.h"
#include "tensor/vecmath.h"

/* --- linear ----------------------------------------------------------------------- */

static struct {
    leaf x, w, b;
    float r[MOST];
    int64_t N, I, O;
    int bias;
} lin;

static double lin_y(int64_t n, int64_t o)
{
    double y = lin.bias ? lin.b.d[o] : 0.0;
    for (int64_t i = 0; i < lin.I; i++) y += lin.x.d[n * lin.I + i] * lin.w.d[o * lin.I + i];
    return y;
}

static double lin_loss(const void *unused)
{
    (void)unused;
    double sum = 0.0;
    for (int64_t n = 0; n < lin.N; n++)
        for (int64_t o = 0; o < lin.O; o++) sum += (double)lin.r[n * lin.O + o] * lin_y(n, o);
    return sum;
}

static void linear_equals_its_formula_and_its_slopes(void **state)
{
    (void)state;
    static const struct { int64_t B, T, I, O; int bias; } row[] = { /* T > 0: three dimensions */
        { 1, 0, 1, 1, 1 },   { 5, 0, 7, 3, 1 }, { 5, 0, 7, 3, 0 },
        { 9, 0, 17, 33, 1 }, { 2, 3, 7, 5, 1 }, { 33, 0, 4, 10, 1 },
    };
    ls_tape *t = tape();
    for (size_t k = 0; k < sizeof row / sizeof *row; k++) {
        ls_tape_reset(t);
        lin.N = row[k].B * (row[k].T ? row[k].T : 1);
        lin.I = row[k].I;
        lin.O = row[k].O;
        lin.bias = row[k].bias;
        ls_tensor *x = row[k].T ? fill(&lin.x, 2.0f, 3, row[k].B, row[k].T, row[k].I)
                                : fill(&lin.x, 2.0f, 2, row[k].B, row[k].I, 0);
        ls_tensor *w = fill(&lin.w, 2.0f, 2, row[k].O, row[k].I, 0), *b = fill(&lin.b, 2.0f, 1, row[k].O, 0, 0);
        for (int64_t i = 0; i < lin.N * lin.O; i++) lin.r[i] = fraction(1.0f);

        ls_tensor *y = ls_linear(t, x, w, row[k].bias ? b : NULL);
        assert_non_null(y);
        assert_int_equal(y->ndim, x->ndim);
        assert_int_equal(y->dim[y->ndim - 1], lin.O);
        for (int64_t n = 0; n < lin.N; n++)
            for (int64_t o = 0; o < lin.O; o++)
                assert_near((double)((float *)y->data)[n * lin.O + o], lin_y(n, o), sum_tolerance(lin.I + 1), "y",
                            n * lin.O + o);
        assert_int_equal(ls_backward_from(t, y, lin.r), LS_OK);
        assert_slopes(&lin.x, lin.x.d, lin_loss, NULL, sum_tolerance(lin.O), "dx");
        assert_slopes(&lin.w, lin.w.d, lin_loss, NULL, sum_tolerance(lin.N), "dw");
        if (lin.bias) assert_slopes(&lin.b, lin.b.d, lin_loss, NULL, sum_tolerance(lin.N), "db");
        assert_true(ls_tape_flops(t) == 6.0 * (double)(lin.N * lin.I * lin.O));
    }
    ls_tape_destroy(t);
}

/* Integers: exact. The second backward adds the same again. */
static void linear_adds_to_gradients_that_are_there(void **state)
{
    (void)state;
    ls_tape *t = tape();
    ls_tensor *x = fill(&lin.x, 1.0f, 2, 5, 19, 0), *w = fill(&lin.w, 1.0f, 2, 11, 19, 0),
              *b = fill(&lin.b, 1.0f, 1, 11, 0, 0);
    leaf *all[] = { &lin.x, &lin.w, &lin.b };
    for (int i = 0; i < MOST; i++) lin.x.value[i] = lin.w.value[i] = lin.b.value[i] = lin.r[i] = (float)(i % 5 - 2);
    float once[3][19 * 11];
    for (int pass = 0; pass < 2; pass++) {
        ls_tape_reset(t);
        assert_int_equal(ls_backward_from(t, ls_linear(t, x, w, b), lin.r), LS_OK);
        for (int l = 0; l < 3; l++)
            for (int64_t i = 0; i < ls_tensor_count(&all[l]->t); i++) {
                if (pass == 0) once[l][i] = all[l]->slope[i];
                assert_true(all[l]->slope[i] == once[l][i] * (float)(pass + 1));
            }
    }
    ls_tape_destroy(t);
}

static void linear_names_both_shapes(void **state)
{
    (void)state;
    ls_tape *t = tape();
    ls_tensor *x = fill(&lin.x, 1.0f, 2, 32, 64, 0), *w = fill(&lin.w, 1.0f, 2, 10, 63, 0),
              *b = fill(&lin.b, 1.0f, 1, 9, 0, 0);
    assert_null(ls_linear(t, x, w, NULL));
    assert_int_equal(ls_tape_status(t), LS_SHAPE);
    assert_string_equal(ls_last_error(), "linear: input [32, 64] and weight [10, 63]: expected [..., I] and [O, I]");
    ls_tape_reset(t);
    w->dim[1] = 64;
    assert_null(ls_linear(t, x, w, b));
    assert_int_equal(ls_tape_status(t), LS_SHAPE);
    assert_string_equal(ls_last_error(), "linear: bias [9] and weight [10, 64]: expected [O] and [O, I]");
    ls_tape_reset(t);
    w->data = NULL;
    assert_null(ls_linear(t, x, w, NULL));
    assert_int_equal(ls_tape_status(t), LS_INVALID);
    assert_non_null(strstr(ls_last_error(), "ls_params_bind"));
    ls_tape_destroy(t);
}

/* --- relu and gelu ------------------------------------------------------------------- */

static double relu_of(double x) { return x > 0.0 ? x : 0.0; }
static double gelu_of(double x) { return 0.5 * x * (1.0 + tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x))); }

static struct {
    leaf x;
    float r[MOST];
    double (*of)(double);
} ew;

static double ew_loss(const void *unused)
{
    (void)unused;
    double sum = 0.0;
    for (int64_t i = 0; i < ls_tensor_count(&ew.x.t); i++) sum += (double)ew.r[i] * ew.of(ew.x.d[i]);
    return sum;
}

/* gelu: s has a relative error of (|2u| + 6) 2^-24 times (1 - s), |2u| <= 12 where 1 - s and y
 * matter; y and its slope stay below 2^-24 * 18 * 0.5 = 6e-7, so 1e-6. relu is exact. */
static void elementwise_ops_equal_their_formulas_and_slopes(void **state)
{
    (void)state;
    static const struct { ls_tensor *(*op)(ls_tape *, ls_tensor *); double (*of)(double); double tolerance; } row[] = {
        { ls_relu, relu_of, 1e-9 }, { ls_gelu, gelu_of, 1e-6 },
    };
    static const int64_t count[] = { 1, 15, 16, 17, 100 };
    ls_tape *t = tape();
    for (size_t k = 0; k < 2; k++)
        for (size_t c = 0; c < sizeof count / sizeof *count; c++) {
            ls_tape_reset(t);
            ew.of = row[k].of;
            ls_tensor *x = fill(&ew.x, 2.0f, 1, count[c], 0, 0);
            for (int64_t i = 0; i < count[c]; i++) ew.r[i] = fraction(1.0f);
            ls_tensor *y = row[k].op(t, x);
            for (int64_t i = 0; i < count[c]; i++)
                assert_near((double)((float *)y->data)[i], ew.of(ew.x.d[i]), row[k].tolerance, "y", i);
            assert_int_equal(ls_backward_from(t, y, ew.r), LS_OK);
            /* the difference itself: 1e-10 of a sum of up to 100 */
            assert_slopes(&ew.x, ew.x.d, ew_loss, NULL, row[k].tolerance + 1e-8, "dx");

            /* once more, adding; then through an op before it, in place */
            float before[128];
            memcpy(before, ew.x.slope, (size_t)count[c] * sizeof *before);
            ls_tape_reset(t);
            assert_int_equal(ls_backward_from(t, row[k].op(t, x), ew.r), LS_OK);
            for (int64_t i = 0; i < count[c]; i++) assert_true(ew.x.slope[i] == 2.0f * before[i]);
            ls_tape_reset(t);
            x->grad_ready = false;
            const ls_tensor *inner = row[k].op(t, x);
            assert_int_equal(ls_backward_from(t, row[k].op(t, row[k].op(t, x)), ew.r), LS_OK);
            const float *in = inner->data;
            for (int64_t i = 0; i < count[c]; i++) {
                const double hh = 1e-5, at = (double)in[i], v = ew.x.d[i];
                const double outer = (ew.of(at + hh) - ew.of(at - hh)) / (2.0 * hh),
                             first = (ew.of(v + hh) - ew.of(v - hh)) / (2.0 * hh);
                if (at > 1e-4 || row[k].op == ls_gelu) /* at 0 relu's difference is a half */
                    assert_near((double)ew.x.slope[i], (double)ew.r[i] * outer * first, 2.5 * row[k].tolerance + 1e-6,
                                "dx twice", i);
            }
        }
    ls_tape_destroy(t);
}

static void relu_keeps_nan_and_passes_nothing_at_zero(void **state)
{
    (void)state;
    ls_tape *t = tape();
    ls_tensor *x = fill(&ew.x, 1.0f, 1, 20, 0, 0);
    for (int i = 0; i < 20; i++) ew.x.value[i] = i == 3 ? NAN : (float)(i - 10);
    for (int i = 0; i < 20; i++) ew.r[i] = 1.0f;
    ls_tensor *y = ls_relu(t, x);
    assert_true(isnan(((float *)y->data)[3]));
    assert_int_equal(ls_backward_from(t, y, ew.r), LS_OK);
    for (int i = 0; i < 20; i++) assert_true(ew.x.slope[i] == (i > 10 || i == 3 ? 1.0f : 0.0f));
    ls_tape_reset(t); /* in place, between two gelus, which do have a slope at 0 */
    x->grad_ready = false;
    assert_int_equal(ls_backward_from(t, ls_gelu(t, ls_relu(t, ls_gelu(t, x))), ew.r), LS_OK);
    assert_true(ew.x.slope[10] == 0.0f);
    ls_tape_destroy(t);
}

static void gelu_is_tame_far_out(void **state)
{
    (void)state;
    static const struct { float x, y; } row[] = {
        { 50.0f, 50.0f }, { 1e4f, 1e4f }, { -50.0f, 0.0f }, { -1e4f, 0.0f }, { 0.0f, 0.0f },
    };
    ls_tape *t = tape();
    ls_tensor *x = fill(&ew.x, 1.0f, 1, 5, 0, 0);
    for (int i = 0; i < 5; i++) ew.x.value[i] = row[i].x;
    for (int i = 0; i < 5; i++) ew.r[i] = 1.0f;
    ls_tensor *y = ls_gelu(t, x);
    for (int i = 0; i < 5; i++) assert_near((double)((float *)y->data)[i], (double)row[i].y, 1e-30, "y", i);
    assert_int_equal(ls_backward_from(t, y, ew.r), LS_OK);
    for (int i = 0; i < 5; i++) assert_near((double)ew.x.slope[i], i < 2 ? 1.0 : i == 4 ? 0.5 : 0.0, 1e-24, "dx", i);
    ls_tape_destroy(t);
}

static void the_exponential_is_within_two_ulp(void **state)
{
    (void)state;
    for (uint32_t u = 0; u < 0xffffffffu - 8209u; u += 8209u) {
        float x;
        memcpy(&x, &u, sizeof x);
        if (!(x >= -87.0f && x <= 88.0f)) continue;
        const double want = exp((double)x);
        assert_near((double)ls_expf(x), want, 2.0 * ldexp(1.0, ilogb(want) - 23), "exp of pattern", (int64_t)u);
    }
    assert_true(ls_expf(0.0f) == 1.0f);
    assert_true(isnan(ls_expf(NAN)));
    assert_true(ls_expf(-INFINITY) < 1e-37f && ls_expf(INFINITY) > 1e38f);
}

static void the_exponential_for_a_softmax_has_the_same_bits_up_to_88(void **state)
{
    (void)state;
    for (uint32_t u = 0; u < 0xffffffffu - 8209u; u += 8209u) {
        float x, y, low;
        memcpy(&x, &u, sizeof x);
        if (x > 88.0f) continue;
        y = ls_expf(x);
        low = ls_expf_low(x);
        if (isnan(x)) assert_true(isnan(low));
        else if (memcmp(&y, &low, sizeof y) != 0) fail_msg("e^%a is %a, and for a softmax %a", (double)x, (double)y, (double)low);
    }
}

/* --- cross-entropy ---------------------------------------------------------------------- */

static struct {
    leaf x;
    int64_t label[MOST], N, C;
    ls_tensor labels;
} ce;

static double ce_sum(const void *unused)
{
    (void)unused;
    double loss = 0.0;
    for (int64_t n = 0; n < ce.N; n++) {
        const double *x = ce.x.d + n * ce.C;
        double max = x[0], sum = 0.0;
        for (int64_t c = 1; c < ce.C; c++) max = fmax(max, x[c]);
        for (int64_t c = 0; c < ce.C; c++) sum += exp(x[c] - max);
        loss += log(sum) + max - x[ce.label[n]];
    }
    return loss;
}

static double ce_mean(const void *unused) { return ce_sum(unused) / (double)ce.N; }

static ls_tensor *make_ce(int64_t N, int64_t C, float scale)
{
    ce.N = N;
    ce.C = C;
    ce.labels = (ls_tensor){ .dtype = LS_I64, .ndim = 1, .dim = { N }, .data = ce.label };
    for (int64_t n = 0; n < N; n++) ce.label[n] = n * 7 % C;
    return fill(&ce.x, scale, 2, N, C, 0);
}

/* Each exponential is off by 2 ulp and x - max by half an ulp of at most 4: 4e-7 relative, so is
 * their sum; the loss of a row by 4e-7 + ulps of its size. dlogits are at most 1/N. */
static void cross_entropy_equals_its_formula_and_its_slopes(void **state)
{
    (void)state;
    static const struct { int64_t N, C; } row[] = { { 1, 1 }, { 1, 10 }, { 32, 10 }, { 3, 17 }, { 7, 333 }, { 33, 2 } };
    ls_tape *t = tape();
    for (size_t k = 0; k < sizeof row / sizeof *row; k++) {
        ls_tape_reset(t);
        ls_tensor *x = make_ce(row[k].N, row[k].C, 2.0f);
        double sum = -1.0;
        int64_t correct = -1, want_correct = 0;
        ls_tensor *loss = ls_softmax_cross_entropy(t, x, &ce.labels, &sum, &correct);
        assert_non_null(loss);
        assert_int_equal(loss->ndim, 0);
        for (int64_t n = 0; n < ce.N; n++) {
            int64_t best = 0;
            for (int64_t c = 1; c < ce.C; c++)
                if (ce.x.d[n * ce.C + c] > ce.x.d[n * ce.C + best]) best = c;
            want_correct += best == ce.label[n];
        }
        assert_near(sum, ce_sum(NULL), 1e-6 * (double)ce.N, "sum", 0);
        assert_true(*(float *)loss->data == (float)(sum / (double)ce.N));
        assert_int_equal(correct, want_correct);
        assert_int_equal(ls_backward(t, loss), LS_OK);
        assert_slopes(&ce.x, ce.x.d, ce_mean, NULL, 1e-6 / (double)ce.N + 1e-9, "dlogits");

        float before[MOST];
        memcpy(before, ce.x.slope, sizeof before);
        ls_tape_reset(t);
        assert_int_equal(ls_backward(t, ls_softmax_cross_entropy(t, x, &ce.labels, NULL, NULL)), LS_OK);
        for (int64_t i = 0; i < ce.N * ce.C; i++) /* p s - s instead of (p - 1) s: an ulp of s */
            assert_near((double)ce.x.slope[i], 2.0 * (double)before[i], 0x1p-22 / (double)ce.N, "added", i);
    }
    ls_tape_destroy(t);
}

static void cross_entropy_survives_large_logits(void **state)
{
    (void)state;
    ls_tape *t = tape();
    ls_tensor *x = make_ce(2, 3, 1.0f);
    const float v[6] = { 1e4f, 0.0f, -1e4f, -3e38f, 1e4f, 3e38f };
    memcpy(ce.x.value, v, sizeof v);
    ce.label[0] = 0; /* certain and right: loss 0, no slope */
    ce.label[1] = 1; /* certain and wrong: loss 3e38 */
    double sum;
    int64_t correct;
    ls_tensor *loss = ls_softmax_cross_entropy(t, x, &ce.labels, &sum, &correct);
    assert_near(sum, 3e38, 1e33, "sum", 0);
    assert_int_equal(correct, 1);
    assert_int_equal(ls_backward(t, loss), LS_OK);
    const double want[6] = { 0.0, 0.0, 0.0, 0.0, -0.5, 0.5 };
    for (int i = 0; i < 6; i++) assert_near((double)ce.x.slope[i], want[i], 1e-30, "dlogits", i);
    ls_tape_destroy(t);
}

static void a_tie_counts_for_the_first(void **state)
{
    (void)state;
    ls_tape *t = tape();
    ls_tensor *x = make_ce(2, 4, 1.0f);
    for (int i = 0; i < 8; i++) ce.x.value[i] = 1.0f;
    ce.label[0] = 0;
    ce.label[1] = 1;
    int64_t correct;
    double sum;
    assert_non_null(ls_softmax_cross_entropy(t, x, &ce.labels, &sum, &correct));
    assert_int_equal(correct, 1);
    assert_near(sum, 2.0 * log(4.0), 1e-15, "sum", 0); /* e^0 is exact */
    ls_tape_destroy(t);
}

static void cross_entropy_names_what_is_wrong(void **state)
{
    (void)state;
    static const struct { int64_t label, labels; ls_dtype dtype; ls_status st; const char *says; } row[] = {
        { 10, 3, LS_I64, LS_INVALID, "label 10 of row 2: expected 0 to 9" },
        { -1, 3, LS_I64, LS_INVALID, "label -1 of row 2: expected 0 to 9" },
        { 0, 4, LS_I64, LS_SHAPE, "logits [3, 10] and labels [4]" },
        { 0, 3, LS_I32, LS_UNSUPPORTED, "labels int32" },
    };
    ls_tape *t = tape();
    for (size_t k = 0; k < sizeof row / sizeof *row; k++) {
        ls_tape_reset(t);
        ls_tensor *x = make_ce(3, 10, 1.0f);
        ce.label[2] = row[k].label;
        ce.labels.dim[0] = row[k].labels;
        ce.labels.dtype = row[k].dtype;
        assert_null(ls_softmax_cross_entropy(t, x, &ce.labels, NULL, NULL));
        assert_int_equal(ls_tape_status(t), row[k].st);
        if (!strstr(ls_last_error(), row[k].says)) fail_msg("'%s' does not say '%s'", ls_last_error(), row[k].says);
    }
    ls_tape_destroy(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(linear_equals_its_formula_and_its_slopes),
        cmocka_unit_test(linear_adds_to_gradients_that_are_there),
        cmocka_unit_test(linear_names_both_shapes),
        cmocka_unit_test(elementwise_ops_equal_their_formulas_and_slopes),
        cmocka_unit_test(relu_keeps_nan_and_passes_nothing_at_zero),
        cmocka_unit_test(gelu_is_tame_far_out),
        cmocka_unit_test(the_exponential_is_within_two_ulp),
        cmocka_unit_test(the_exponential_for_a_softmax_has_the_same_bits_up_to_88),
        cmocka_unit_test(cross_entropy_equals_its_formula_and_its_slopes),
        cmocka_unit_test(cross_entropy_survives_large_logits),
        cmocka_unit_test(a_tie_counts_for_the_first),
        cmocka_unit_test(cross_entropy_names_what_is_wrong),
    };
    return cmocka_run_group_tests_name("ops", tests, NULL, NULL);
}
