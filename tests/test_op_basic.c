/* The basic set of ops: against their formulas and finite differences in double, against PyTorch's numbers, with any
 * number of threads, with two inputs that are one tensor, with what does not fit. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/team.h"
#include "golden/basic.h"
#include "harness_op.h"
#include "lockstep/rng.h"
#include "tensor/conv.h"

/* --- formulas ------------------------------------------------------------------------- */

static struct {
    int64_t P, M, N, K;          /* products of matrices */
    int64_t outer, R, inner;     /* sums */
    int64_t C, H, W, O, k, stride, padding, Ho, Wo;
} s;

static void mul_formula(void) { for (int64_t i = 0; i < p.count; i++) p.y[i] = p.x.d[i] * p.w.d[i]; }
static void square_formula(void) { for (int64_t i = 0; i < p.count; i++) p.y[i] = p.x.d[i] * p.x.d[i]; }
static void sub_formula(void) { for (int64_t i = 0; i < p.count; i++) p.y[i] = p.x.d[i] - p.w.d[i]; }
static void zero_formula(void) { for (int64_t i = 0; i < p.count; i++) p.y[i] = 0.0; }
static void scale_formula(void) { for (int64_t i = 0; i < p.count; i++) p.y[i] = 0.3f * p.x.d[i]; }
static void tanh_formula(void) { for (int64_t i = 0; i < p.count; i++) p.y[i] = tanh(p.x.d[i]); }
static void sigmoid_formula(void) { for (int64_t i = 0; i < p.count; i++) p.y[i] = 1.0 / (1.0 + exp(-p.x.d[i])); }

static void softmax_formula(void)
{
    for (int64_t n = 0; n < p.N; n++) {
        double sum = 0.0;
        for (int64_t c = 0; c < p.C; c++) sum += exp(p.x.d[n * p.C + c]);
        for (int64_t c = 0; c < p.C; c++) p.y[n * p.C + c] = exp(p.x.d[n * p.C + c]) / sum;
    }
}

static void matmul_formula(void)
{
    for (int64_t i = 0; i < p.count; i++) {
        const int64_t product = i / (s.M * s.N), m = i / s.N % s.M, n = i % s.N;
        p.y[i] = 0.0;
        for (int64_t k = 0; k < s.K; k++)
            p.y[i] += p.x.d[(product * s.M + m) * s.K + k] * p.w.d[(product * s.K + k) * s.N + n];
    }
}

static void sum_formula(void)
{
    for (int64_t i = 0; i < p.count; i++) {
        p.y[i] = 0.0;
        for (int64_t r = 0; r < s.R; r++) p.y[i] += p.x.d[(i / s.inner * s.R + r) * s.inner + i % s.inner];
    }
}

static void mean_formula(void)
{
    sum_formula();
    for (int64_t i = 0; i < p.count; i++) p.y[i] /= (double)s.R;
}

static void transpose_formula(void) /* x [2, 3, 4, 5], dimensions 1 and 3 */
{
    for (int a = 0; a < 2; a++)
        for (int b = 0; b < 3; b++)
            for (int c = 0; c < 4; c++)
                for (int d = 0; d < 5; d++) p.y[((a * 5 + d) * 4 + c) * 3 + b] = p.x.d[((a * 3 + b) * 4 + c) * 5 + d];
}

static void slice_formula(void) /* x [3, 7, 5], 2 to 5 of dimension 1 */
{
    for (int a = 0; a < 3; a++)
        for (int b = 0; b < 3; b++)
            for (int c = 0; c < 5; c++) p.y[(a * 3 + b) * 5 + c] = p.x.d[(a * 7 + b + 2) * 5 + c];
}

static void concat_formula(void) /* x [3, 2, 5], w [3, 4, 5], b [3, 1, 5] */
{
    for (int a = 0; a < 3; a++)
        for (int b = 0; b < 7; b++)
            for (int c = 0; c < 5; c++)
                p.y[(a * 7 + b) * 5 + c] = b < 2   ? p.x.d[(a * 2 + b) * 5 + c]
                                           : b < 6 ? p.w.d[(a * 4 + b - 2) * 5 + c]
                                                   : p.b.d[a * 5 + c];
}

static void conv2d_formula(void)
{
    for (int64_t i = 0; i < p.count; i++) {
        const int64_t n = i / (s.O * s.Ho * s.Wo), o = i / (s.Ho * s.Wo) % s.O;
        const int64_t top = i / s.Wo % s.Ho * s.stride - s.padding, left = i % s.Wo * s.stride - s.padding;
        p.y[i] = p.b.d[o];
        for (int64_t c = 0; c < s.C; c++)
            for (int64_t h = 0; h < s.k; h++)
                for (int64_t w = 0; w < s.k; w++)
                    if (top + h >= 0 && top + h < s.H && left + w >= 0 && left + w < s.W)
                        p.y[i] += p.w.d[((o * s.C + c) * s.k + h) * s.k + w] *
                                  p.x.d[((n * s.C + c) * s.H + top + h) * s.W + left + w];
    }
}

static void max_pool2d_formula(void)
{
    for (int64_t i = 0; i < p.count; i++) {
        const int64_t plane = i / (s.Ho * s.Wo), top = i / s.Wo % s.Ho * s.stride, left = i % s.Wo * s.stride;
        p.y[i] = -INFINITY;
        for (int64_t h = 0; h < s.k; h++)
            for (int64_t w = 0; w < s.k; w++) p.y[i] = fmax(p.y[i], p.x.d[(plane * s.H + top + h) * s.W + left + w]);
    }
}

static void mse_formula(void)
{
    p.y[0] = 0.0;
    for (int64_t i = 0; i < s.R; i++) p.y[0] += (p.x.d[i] - p.w.d[i]) * (p.x.d[i] - p.w.d[i]) / (double)s.R;
}

static void bce_formula(void)
{
    p.y[0] = 0.0;
    for (int64_t i = 0; i < s.R; i++)
        p.y[0] -= (p.w.d[i] * log(p.x.d[i]) + (1.0 - p.w.d[i]) * log(1.0 - p.x.d[i])) / (double)s.R;
}

/* --- the ops, applied to x with w and b ---------------------------------------------------- */

static ls_tensor *mul(ls_tape *t, ls_tensor *x) { return ls_mul(t, x, &p.w.t); }
static ls_tensor *square(ls_tape *t, ls_tensor *x) { return ls_mul(t, x, x); }
static ls_tensor *sub(ls_tape *t, ls_tensor *x) { return ls_sub(t, x, &p.w.t); }
static ls_tensor *nothing(ls_tape *t, ls_tensor *x) { return ls_sub(t, x, x); }
static ls_tensor *scale(ls_tape *t, ls_tensor *x) { return ls_scale(t, x, 0.3f); }
static ls_tensor *tanh_(ls_tape *t, ls_tensor *x) { return ls_tanh(t, x); }
static ls_tensor *sigmoid(ls_tape *t, ls_tensor *x) { return ls_sigmoid(t, x); }
static ls_tensor *softmax(ls_tape *t, ls_tensor *x) { return ls_softmax(t, x); }
static ls_tensor *matmul(ls_tape *t, ls_tensor *x) { return ls_matmul(t, x, &p.w.t); }
static ls_tensor *sum_all(ls_tape *t, ls_tensor *x) { return ls_sum(t, x, LS_ALL_DIMS); }
static ls_tensor *sum_0(ls_tape *t, ls_tensor *x) { return ls_sum(t, x, 0); }
static ls_tensor *sum_1(ls_tape *t, ls_tensor *x) { return ls_sum(t, x, 1); }
static ls_tensor *mean_all(ls_tape *t, ls_tensor *x) { return ls_mean(t, x, LS_ALL_DIMS); }
static ls_tensor *mean_2(ls_tape *t, ls_tensor *x) { return ls_mean(t, x, 2); }
static ls_tensor *transpose(ls_tape *t, ls_tensor *x) { return ls_transpose(t, x, 3, 1); }
static ls_tensor *slice(ls_tape *t, ls_tensor *x) { return ls_slice_of(t, x, 1, 2, 3); }
static ls_tensor *concat(ls_tape *t, ls_tensor *x) { return ls_concat(t, (ls_tensor *[]){ x, &p.w.t, &p.b.t }, 3, 1); }
static ls_tensor *conv2d(ls_tape *t, ls_tensor *x) { return ls_conv2d(t, x, &p.w.t, &p.b.t, s.stride, s.padding); }
static ls_tensor *by_columns(ls_tape *t, ls_tensor *x)
{
    return ls_tape_apply(t, &ls_conv2d_by_columns, (ls_tensor *[]){ x, &p.w.t, &p.b.t }, 3,
                         (int64_t[]){ s.stride, s.padding });
}

static ls_tensor *max_pool2d(ls_tape *t, ls_tensor *x) { return ls_max_pool2d(t, x, s.k, s.stride); }
static ls_tensor *mse(ls_tape *t, ls_tensor *x) { return ls_mse_loss(t, x, &p.w.t); }
static ls_tensor *bce(ls_tape *t, ls_tensor *x) { return ls_bce_loss(t, x, &p.w.t); }

static ls_tensor *fill4(leaf *l, float size, int64_t a, int64_t b, int64_t c, int64_t d)
{
    ls_tensor *x = fill(l, size, 3, a, b, c * d);
    x->ndim = l->grad.ndim = 4;
    x->dim[2] = l->grad.dim[2] = c;
    x->dim[3] = l->grad.dim[3] = d;
    return x;
}

/* --- formulas and slopes ----------------------------------------------------------------------- */

/* |x|, |w| < 2, |dy| < 1. mul: one rounding of a number below 4. tanh and sigmoid: 6 roundings of numbers below 1, and
 * in the slope three more. */
static void elementwise_ops_equal_their_formulas_and_slopes(void **state)
{
    (void)state;
    static const struct { apply op; void (*formula)(void); bool two, in_place; double tolerance; } row[] = {
        { mul, mul_formula, true, true, 8 * ULP },       { square, square_formula, false, true, 16 * ULP },
        { sub, sub_formula, true, true, 4 * ULP },       { nothing, zero_formula, false, true, 4 * ULP },
        { scale, scale_formula, false, true, 2 * ULP },  { tanh_, tanh_formula, false, true, 16 * ULP },
        { sigmoid, sigmoid_formula, false, true, 12 * ULP },
    };
    for (size_t r = 0; r < COUNT(row); r++)
        for (size_t k = 0; k < COUNT(flat_row); k++) {
            const part parts[PARTS] = { { &p.x, row[r].tolerance, "dx", ACTIVATION },
                                        { row[r].two ? &p.w : NULL, row[r].tolerance, "dw", ACTIVATION } };
            fill(&p.x, 2.0f, 1, flat_row[k], 0, 0);
            fill(&p.w, 2.0f, 1, flat_row[k], 0, 0);
            roll(flat_row[k], row[r].formula);
            assert_op(row[r].op, row[r].tolerance, parts);
            assert_same_in_place(row[r].op, parts);
        }
}

static void tanh_and_softmax_are_tame_far_out_and_exact_near_zero(void **state)
{
    (void)state;
    ls_tape *t = tape();
    ls_tensor *x = fill(&p.x, 1.0f, 1, 8, 0, 0);
    const float far[8] = { 1e-20f, -1e-6f, 0.349f, -0.351f, 60.0f, -1e30f, INFINITY, NAN };
    memcpy(p.x.value, far, sizeof far);
    const float *y = ls_tanh(t, x)->data;
    for (int i = 0; i < 7; i++) /* relative */
        assert_near((double)y[i], tanh((double)far[i]), 4 * ULP * fabs(tanh((double)far[i])), "tanh", i);
    assert_true(isnan(y[7]));
    ls_tape_reset(t);
    const float masked[8] = { 3.0f, -INFINITY, 2.0f, -INFINITY, 100.0f, -100.0f, 0.0f, 1.0f };
    memcpy(p.x.value, masked, sizeof masked);
    y = ls_softmax(t, x)->data;
    assert_true(y[1] == 0.0f && y[3] == 0.0f && y[5] == 0.0f && y[4] == 1.0f);
    ls_tape_destroy(t);
}

static void softmax_equals_its_formula_and_its_slopes(void **state)
{
    (void)state;
    static const int64_t C[] = { 1, 2, 15, 64, 65, 200 };
    for (size_t k = 0; k < COUNT(C); k++) {
        const part parts[PARTS] = { { &p.x, 24 * ULP, "dx", ACTIVATION } };
        p.N = 6;
        p.C = C[k];
        fill(&p.x, 2.0f, 3, 2, 3, p.C);
        roll(p.N * p.C, softmax_formula);
        assert_op(softmax, 24 * ULP, parts);
        assert_same_in_place(softmax, parts);
    }
}

static void matmul_equals_its_formula_and_its_slopes(void **state)
{
    (void)state;
    static const int64_t size[][4] = { { 1, 1, 1, 1 }, { 3, 4, 5, 7 }, { 2, 17, 1, 9 }, { 1, 12, 30, 20 } };
    for (size_t k = 0; k < COUNT(size); k++) {
        s.P = size[k][0], s.M = size[k][1], s.N = size[k][2], s.K = size[k][3];
        const part parts[PARTS] = { { &p.x, sum_tolerance(s.N), "da", ACTIVATION },
                                    { &p.w, sum_tolerance(s.M), "db", ACTIVATION } };
        fill(&p.x, 2.0f, 3, s.P, s.M, s.K);
        fill(&p.w, 2.0f, 3, s.P, s.K, s.N);
        roll(s.P * s.M * s.N, matmul_formula);
        assert_op(matmul, sum_tolerance(s.K), parts);
    }
}

static void sums_and_means_equal_their_formulas_and_slopes(void **state)
{
    (void)state;
    static const struct { apply op; void (*formula)(void); int64_t outer, R, inner; } row[] = {
        { sum_all, sum_formula, 1, 60, 1 }, { sum_0, sum_formula, 1, 3, 20 },   { sum_1, sum_formula, 3, 4, 5 },
        { mean_all, mean_formula, 1, 60, 1 }, { mean_2, mean_formula, 12, 5, 1 },
    };
    const part parts[PARTS] = { { &p.x, 2 * ULP, "dx", ACTIVATION } };
    for (size_t r = 0; r < COUNT(row); r++) {
        s.outer = row[r].outer, s.R = row[r].R, s.inner = row[r].inner;
        fill(&p.x, 2.0f, 3, 3, 4, 5);
        roll(s.outer * s.inner, row[r].formula);
        assert_op_in(LS_F32, row[r].op, 128 * ULP, parts); /* one rounding of a sum below 128 */
    }
}

/* So many that they are added in blocks; in float exact. */
static void a_sum_of_blocks_has_all_of_them(void **state)
{
    (void)state;
    enum { MANY = 500001 };
    float *x = malloc(MANY * sizeof *x);
    ls_tape *t;
    assert_non_null(x);
    for (int i = 0; i < MANY; i++) x[i] = (float)(i % 3 - 1); /* -1 0 1, and so on: all add up to 0 */
    x[MANY - 1] = 5.0f;
    assert_int_equal(ls_tape_create(1 << 16, NULL, NULL, &t), LS_OK);
    const ls_tensor *y = ls_sum(t, ls_tape_input(t, LS_F32, 1, (int64_t[]){ MANY }, x), LS_ALL_DIMS);
    if (!y) fail_msg("%s", ls_last_error());
    assert_true(*(const float *)y->data == 4.0f);
    ls_tape_destroy(t);
    free(x);
}

static void copies_are_exact_and_so_are_their_slopes(void **state)
{
    (void)state;
    const part one[PARTS] = { { &p.x, 0.0, "dx", ACTIVATION } };
    const part three[PARTS] = { { &p.x, 0.0, "dx", ACTIVATION }, { &p.w, 0.0, "dw", ACTIVATION },
                                { &p.b, 0.0, "db", ACTIVATION } };
    fill4(&p.x, 2.0f, 2, 3, 4, 5);
    roll(120, transpose_formula);
    assert_op(transpose, 0.0, one);
    fill(&p.x, 2.0f, 3, 3, 7, 5);
    roll(45, slice_formula);
    assert_op(slice, 0.0, one);
    fill(&p.x, 2.0f, 3, 3, 2, 5);
    fill(&p.w, 2.0f, 3, 3, 4, 5);
    fill(&p.b, 2.0f, 3, 3, 1, 5);
    roll(105, concat_formula);
    assert_op(concat, 0.0, three);
}

static void conv2d_equals_its_formula_and_its_slopes(void **state)
{
    (void)state;
    static const int64_t row[][8] = { /* N C H W O k stride padding */
        { 1, 1, 1, 1, 1, 1, 1, 0 }, { 2, 3, 7, 6, 4, 3, 1, 1 }, { 2, 3, 7, 6, 4, 3, 2, 0 }, { 3, 2, 5, 9, 2, 2, 3, 1 },
        { 1, 4, 4, 4, 5, 4, 1, 3 },
    };
    for (size_t k = 0; k < COUNT(row); k++) {
        const int64_t N = row[k][0];
        s.C = row[k][1], s.H = row[k][2], s.W = row[k][3], s.O = row[k][4], s.k = row[k][5], s.stride = row[k][6];
        s.padding = row[k][7];
        s.Ho = (s.H + 2 * s.padding - s.k) / s.stride + 1;
        s.Wo = (s.W + 2 * s.padding - s.k) / s.stride + 1;
        const int64_t pixels = N * s.Ho * s.Wo;
        const part parts[PARTS] = { { &p.x, sum_tolerance(s.O * s.k * s.k), "dx", ACTIVATION },
                                    { &p.w, sum_tolerance(pixels), "dw", PARAMETER },
                                    { &p.b, sum_tolerance(pixels), "db", PARAMETER } };
        fill4(&p.x, 2.0f, N, s.C, s.H, s.W);
        fill4(&p.w, 2.0f, s.O, s.C, s.k, s.k);
        fill(&p.b, 2.0f, 1, s.O, 0, 0);
        roll(N * s.O * s.Ho * s.Wo, conv2d_formula);
        assert_op_in(LS_F32, conv2d, sum_tolerance(s.C * s.k * s.k + 1), parts);
        assert_op_in(LS_F32, by_columns, sum_tolerance(s.C * s.k * s.k + 1), parts);
    }
}

static void max_pool2d_equals_its_formula_and_its_slopes(void **state)
{
    (void)state;
    static const int64_t row[][4] = { { 4, 4, 2, 2 }, { 7, 5, 3, 2 }, { 6, 9, 2, 3 }, { 3, 3, 1, 1 }, { 3, 3, 3, 1 } };
    const part parts[PARTS] = { { &p.x, 8 * ULP, "dx", ACTIVATION } };
    for (size_t k = 0; k < COUNT(row); k++) {
        s.H = row[k][0], s.W = row[k][1], s.k = row[k][2], s.stride = row[k][3];
        s.Ho = (s.H - s.k) / s.stride + 1;
        s.Wo = (s.W - s.k) / s.stride + 1;
        fill4(&p.x, 2.0f, 2, 3, s.H, s.W);
        roll(6 * s.Ho * s.Wo, max_pool2d_formula);
        assert_op_in(LS_F32, max_pool2d, 0.0, parts);
    }
    ls_tape *t = tape(); /* the first of equal values; a NaN wins */
    ls_tensor *x = fill4(&p.x, 2.0f, 1, 2, 2, 2);
    const float value[8] = { 1.0f, 3.0f, 3.0f, 3.0f, 1.0f, NAN, 9.0f, 0.0f };
    memcpy(p.x.value, value, sizeof value);
    const ls_tensor *y = ls_max_pool2d(t, x, 2, 2);
    assert_true(((const float *)y->data)[0] == 3.0f && isnan(((const float *)y->data)[1]));
    assert_int_equal(ls_backward_from(t, (ls_tensor *)(uintptr_t)y, (float[]){ 5.0f, 7.0f }), LS_OK);
    const float want[8] = { 0.0f, 5.0f, 0.0f, 0.0f, 0.0f, 7.0f, 0.0f, 0.0f };
    assert_memory_equal(p.x.slope, want, sizeof want);
    ls_tape_destroy(t);
}

static void losses_equal_their_formulas_and_slopes(void **state)
{
    (void)state;
    const part both[PARTS] = { { &p.x, 16 * ULP, "dx", ACTIVATION }, { &p.w, 16 * ULP, "dtarget", ACTIVATION } };
    for (size_t k = 0; k < COUNT(flat_row); k++) {
        s.R = flat_row[k];
        fill(&p.x, 2.0f, 1, s.R, 0, 0);
        fill(&p.w, 2.0f, 1, s.R, 0, 0);
        roll(1, mse_formula);
        assert_op_in(LS_F32, mse, 16 * ULP, both);
        fill(&p.x, 0.4f, 1, s.R, 0, 0);
        fill(&p.w, 0.5f, 1, s.R, 0, 0);
        for (int64_t i = 0; i < s.R; i++) p.x.value[i] += 0.5f, p.w.value[i] += 0.5f;
        for (int64_t i = 0; i < s.R; i++) p.x.d[i] = (double)p.x.value[i], p.w.d[i] = (double)p.w.value[i];
        p.w.t.grad = NULL;
        roll(1, bce_formula);
        assert_op_in(LS_F32, bce, 16 * ULP, (const part[PARTS]){ { &p.x, 64 * ULP, "dx", ACTIVATION } });
    }
}

/* --- PyTorch ------------------------------------------------------------------------------------------ */

static void near_golden(const char *name, const float *got, const float *want, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        assert_near((double)got[i], (double)want[i], 2e-6 * (1.0 + fabs((double)want[i])), name, i);
}

#define GOLDEN(name, op)                                                                 \
    do {                                                                                 \
        memcpy(p.x.value, name##_x0, sizeof name##_x0);                                  \
        ls_tape_reset(t);                                                                \
        ls_tensor *y = op(t, &p.x.t);                                                    \
        if (!y) fail_msg("%s: %s", #name, ls_last_error());                              \
        assert_int_equal(ls_tensor_count(y), COUNT(name##_y));                           \
        near_golden(#name, y->data, name##_y, COUNT(name##_y));                          \
        assert_int_equal(ls_backward_from(t, y, name##_dy), LS_OK);                      \
        near_golden(#name " dx", p.x.slope, name##_d0, COUNT(name##_d0));                \
        clear(&p.x);                                                                     \
    } while (0)

#define SECOND(l, name, k) memcpy((l).value, name##_x##k, sizeof name##_x##k)
#define SECOND_SLOPE(l, name, k) near_golden(#name " d" #k, (l).slope, name##_d##k, COUNT(name##_d##k))

static ls_tensor *scale_golden(ls_tape *t, ls_tensor *x) { return ls_scale(t, x, 1.75f); }
static ls_tensor *transpose_golden(ls_tape *t, ls_tensor *x) { return ls_transpose(t, x, 0, 2); }
static ls_tensor *slice_golden(ls_tape *t, ls_tensor *x) { return ls_slice_of(t, x, 1, 1, 2); }

static void ops_agree_with_pytorch(void **state)
{
    (void)state;
    ls_tape *t = tape();
    fill(&p.x, 1.0f, 3, 3, 4, 5);
    fill(&p.w, 1.0f, 3, 3, 4, 5);
    SECOND(p.w, mul, 1);
    GOLDEN(mul, mul);
    SECOND_SLOPE(p.w, mul, 1);
    clear(&p.w);
    SECOND(p.w, sub, 1);
    GOLDEN(sub, sub);
    SECOND_SLOPE(p.w, sub, 1);
    GOLDEN(scale, scale_golden);
    GOLDEN(tanh, tanh_);
    GOLDEN(sigmoid, sigmoid);
    GOLDEN(softmax, softmax);
    GOLDEN(sum_all, sum_all);
    GOLDEN(sum_1, sum_1);
    GOLDEN(mean_all, mean_all);
    GOLDEN(mean_2, mean_2);
    GOLDEN(transpose, transpose_golden);
    GOLDEN(slice, slice_golden);
    clear(&p.w);
    SECOND(p.w, mse_loss, 1);
    GOLDEN(mse_loss, mse);
    SECOND_SLOPE(p.w, mse_loss, 1);
    p.w.t.grad = NULL;
    SECOND(p.w, bce_loss, 1);
    GOLDEN(bce_loss, bce);
    fill(&p.w, 1.0f, 3, 3, 5, 2);
    SECOND(p.w, matmul, 1);
    GOLDEN(matmul, matmul);
    SECOND_SLOPE(p.w, matmul, 1);
    fill(&p.w, 1.0f, 3, 3, 1, 5);
    fill(&p.b, 1.0f, 3, 3, 2, 5);
    SECOND(p.w, concat, 1);
    SECOND(p.b, concat, 2);
    GOLDEN(concat, concat);
    SECOND_SLOPE(p.w, concat, 1);
    SECOND_SLOPE(p.b, concat, 2);
    ls_tape_destroy(t);
}

static void convolutions_agree_with_pytorch(void **state)
{
    (void)state;
    ls_tape *t = tape();
    fill4(&p.x, 1.0f, 2, 3, 7, 6);
    fill4(&p.w, 1.0f, 4, 3, 3, 3);
    fill(&p.b, 1.0f, 1, 4, 0, 0);
    SECOND(p.w, conv2d, 1);
    SECOND(p.b, conv2d, 2);
    s.stride = s.padding = 1;
    GOLDEN(conv2d, conv2d);
    SECOND_SLOPE(p.w, conv2d, 1);
    SECOND_SLOPE(p.b, conv2d, 2);
    clear(&p.w);
    clear(&p.b);
    s.stride = 2;
    s.padding = 0;
    GOLDEN(conv2d_far, conv2d);
    SECOND_SLOPE(p.w, conv2d_far, 1);
    SECOND_SLOPE(p.b, conv2d_far, 2);
    s.k = s.stride = 2;
    GOLDEN(max_pool2d, max_pool2d);
    s.k = 3;
    GOLDEN(max_pool2d_close, max_pool2d);
    ls_tape_destroy(t);
}

/* --- what does not fit ------------------------------------------------------------------------------------- */

static void bad_shapes_are_refused_with_the_shapes(void **state)
{
    (void)state;
    ls_tape *t = tape();
    ls_tensor *x = fill(&p.x, 1.0f, 3, 2, 5, 7), *w = fill(&p.w, 1.0f, 3, 2, 5, 6);
    assert_refused(t, ls_mul(t, x, w), LS_SHAPE, "mul: [2, 5, 7] and [2, 5, 6]: expected equal shapes");
    assert_refused(t, ls_sub(t, x, w), LS_SHAPE, "sub: [2, 5, 7] and [2, 5, 6]: expected equal shapes");
    assert_refused(t, ls_mse_loss(t, x, w), LS_SHAPE, "mse_loss: [2, 5, 7] and target [2, 5, 6]: expected equal");
    assert_refused(t, ls_matmul(t, x, w), LS_SHAPE, "matmul: [2, 5, 7] and [2, 5, 6]: expected [.., M, K] and [.., K, N]");
    assert_refused(t, ls_sum(t, x, 3), LS_SHAPE, "sum: dimension 3 of [2, 5, 7]: expected 0 to 2, or LS_ALL_DIMS");
    assert_refused(t, ls_mean(t, x, -2), LS_SHAPE, "mean: dimension -2 of [2, 5, 7]");
    assert_refused(t, ls_transpose(t, x, 1, 1), LS_SHAPE, "transpose: dimensions 1 and 1 of [2, 5, 7]: expected two of 0 to 2");
    assert_refused(t, ls_transpose(t, x, 0, 3), LS_SHAPE, "transpose: dimensions 0 and 3 of [2, 5, 7]");
    assert_refused(t, ls_slice_of(t, x, 3, 0, 1), LS_SHAPE, "slice: dimension 3 of [2, 5, 7]: expected 0 to 2");
    assert_refused(t, ls_slice_of(t, x, 1, 3, 3), LS_SHAPE, "slice: 3 from 3 on in dimension 1 of [2, 5, 7]");
    assert_refused(t, ls_slice_of(t, x, 1, -1, 3), LS_SHAPE, "slice: 3 from -1 on");
    assert_refused(t, ls_slice_of(t, x, 1, 0, 0), LS_SHAPE, "expected at least 1, and within it");
    assert_refused(t, ls_concat(t, (ls_tensor *[]){ x, w }, 2, 1), LS_SHAPE,
                   "concat: [2, 5, 7] and [2, 5, 6]: expected equal dimensions except dimension 1");
    assert_refused(t, ls_concat(t, (ls_tensor *[]){ x, w }, 2, 3), LS_SHAPE, "concat: dimension 3 of [2, 5, 7]");
    assert_refused(t, ls_concat(t, &x, 0, 0), LS_INVALID, "concat: 0 inputs, expected 1 to 8");
    assert_refused(t, ls_max_pool2d(t, x, 2, 2), LS_SHAPE, "max_pool2d: [2, 5, 7]: expected [N, C, H, W]");
    x = fill4(&p.x, 1.0f, 2, 3, 4, 5), w = fill4(&p.w, 1.0f, 6, 2, 3, 3);
    ls_tensor *b = fill(&p.b, 1.0f, 1, 5, 0, 0);
    assert_refused(t, ls_max_pool2d(t, x, 5, 1), LS_SHAPE, "max_pool2d: a window of 5, 1 apart, in [2, 3, 4, 5]");
    assert_refused(t, ls_max_pool2d(t, x, 2, 0), LS_SHAPE, "a window of 2, 0 apart");
    assert_refused(t, ls_conv2d(t, x, w, NULL, 1, 1), LS_SHAPE,
                   "conv2d: input [2, 3, 4, 5], weight [6, 2, 3, 3], bias none: expected [N, C, H, W], [O, C, k, k]");
    w->dim[1] = 3;
    assert_refused(t, ls_conv2d(t, x, w, b, 1, 1), LS_SHAPE, "weight [6, 3, 3, 3], bias [5]");
    assert_refused(t, ls_conv2d(t, x, w, NULL, 0, 1), LS_SHAPE, "conv2d: stride 0 and padding 1 with a kernel of 3");
    assert_refused(t, ls_conv2d(t, x, w, NULL, 1, 3), LS_SHAPE, "padding 3 with a kernel of 3");
    w->dim[2] = w->dim[3] = 5;
    assert_refused(t, ls_conv2d(t, x, w, NULL, 1, 0), LS_SHAPE, "a kernel of 5 does not fit into input [2, 3, 4, 5]");
    w = fill4(&p.w, 1.0f, 2, 3, 4, 5);
    w->dtype = LS_BF16;
    assert_refused(t, ls_mul(t, x, w), LS_UNSUPPORTED, "mul: inputs are float and bfloat16, expected the same");
    assert_refused(t, ls_sum(t, w, 0), LS_UNSUPPORTED, "sum: an input is bfloat16; expected float");
    w->dtype = LS_I64;
    assert_refused(t, ls_tanh(t, w), LS_UNSUPPORTED, "tanh: an input is int64; expected float or bfloat16");
    w->dtype = LS_F32;
    assert_refused(t, ls_bce_loss(t, x, w), LS_UNSUPPORTED, "bce_loss: a gradient of input 1 (not a parameter) is wanted");
    w->grad = NULL;
    p.x.value[7] = 1.5f;
    for (int i = 0; i < 7; i++) p.x.value[i] = 0.5f;
    assert_refused(t, ls_bce_loss(t, x, w), LS_INVALID, "bce_loss: element 7 is 1.5; expected a probability");
    assert_refused(t, ls_mul(t, x, NULL), LS_INVALID, "mul: an input is NULL");
    ls_tape_destroy(t);
}

/* --- threads -------------------------------------------------------------------------------------------------- */

enum { SIDE = 40, IMAGES = 7, CHANNELS = 8, VALUES = IMAGES * CHANNELS * SIDE * SIDE }; /* 350 KiB */

static float big[3][VALUES], slope[3][VALUES], dy[VALUES];

static ls_tensor *big_leaf(ls_tensor *x, ls_tensor *grad, int k, int ndim, const int64_t *dim)
{
    *grad = (ls_tensor){ .dtype = LS_F32, .ndim = ndim, .data = slope[k] };
    memcpy(grad->dim, dim, (size_t)ndim * sizeof *dim);
    *x = *grad;
    x->data = big[k];
    x->grad = grad;
    return x;
}

/* All f32 kernels, and those of bf16, which differ in loads and stores alone. */
static ls_tensor *big_op(ls_tape *t, int op, ls_tensor *x, ls_tensor *z, ls_tensor *w)
{
    switch (op) {
    case 0: return ls_mul(t, x, z);
    case 1: return ls_sub(t, ls_scale(t, x, 3.0f), z);
    case 2: return ls_tanh(t, x);
    case 3: return ls_sigmoid(t, x);
    case 4: return ls_softmax(t, x);
    case 5: return ls_matmul(t, x, z);
    case 6: return ls_sum(t, x, 1);
    case 7: return ls_mean(t, x, LS_ALL_DIMS);
    case 8: return ls_transpose(t, x, 1, 3);
    case 9: return ls_slice_of(t, x, 2, 1, SIDE - 2);
    case 10: return ls_concat(t, (ls_tensor *[]){ x, z }, 2, 1);
    case 11: return ls_conv2d(t, x, w, NULL, 1, 1);
    case 12: return ls_max_pool2d(t, x, 2, 2);
    case 13: return ls_mse_loss(t, x, z);
    case 14:
        return ls_tape_apply(t, &ls_conv2d_by_columns, (ls_tensor *[]){ x, w }, 2, (int64_t[]){ 1, 1 });
    default: return ls_bce_loss(t, ls_sigmoid(t, x), ls_tape_input(t, LS_F32, 4, z->dim, z->data));
    }
}

static void no_bit_depends_on_the_number_of_threads(void **state)
{
    (void)state;
    static float y[2][2 * VALUES], first[3][VALUES];
    const int64_t image[4] = { IMAGES, CHANNELS, SIDE, SIDE }, kernel[4] = { CHANNELS, CHANNELS, 3, 3 };
    const int before = ls_team_size();
    ls_tensor x, z, w, grad[3];
    ls_tape *t;
    for (int k = 0; k < 3; k++) ls_philox_uniform(7, (uint64_t)k, 0, VALUES, 0.0f, 1.0f, big[k]);
    ls_philox_uniform(7, 3, 0, VALUES, -1.0f, 1.0f, dy);
    assert_int_equal(ls_tape_create((size_t)32 << 20, NULL, NULL, &t), LS_OK);
    for (int op = 0; op < 16; op++) {
        static const int threads[] = { 1, 2, 3, 5 };
        for (size_t n = 0; n < COUNT(threads); n++) {
            ls_team_resize(threads[n]);
            memset(slope, 0, sizeof slope);
            big_leaf(&x, &grad[0], 0, 4, image);
            big_leaf(&z, &grad[1], 1, 4, image);
            big_leaf(&w, &grad[2], 2, 4, kernel);
            for (int pass = 0; pass < 2; pass++) { /* written, and added to */
                ls_tape_reset(t);
                ls_tensor *out = big_op(t, op, &x, &z, &w);
                if (!out) fail_msg("%d: %s", op, ls_last_error());
                memcpy(y[n > 0], out->data, ls_tensor_nbytes(out));
                if (op == 10) out = ls_slice_of(t, out, 1, 3, CHANNELS);
                assert_int_equal(ls_backward_from(t, out, dy), LS_OK);
            }
            if (n == 0) memcpy(first, slope, sizeof first);
            if (memcmp(y[0], y[n > 0], sizeof y[0]) != 0 || memcmp(first, slope, sizeof first) != 0)
                fail_msg("op %d: %d threads give other bits", op, threads[n]);
        }
    }
    ls_team_resize(before);
    ls_tape_destroy(t);
}

/* Many images are several pieces in both ways. */
static void convolutions_of_both_ways_agree(void **state)
{
    (void)state;
    static float y[2][VALUES], got[2][3][VALUES];
    const int64_t image[4] = { IMAGES, CHANNELS, SIDE, SIDE }, kernel[4] = { CHANNELS, CHANNELS, 3, 3 };
    const int64_t bias = CHANNELS;
    ls_tensor x, w, b, grad[3];
    ls_tape *t;
    if (!ls_conv_library_has()) skip(); /* one way alone: it would agree with itself */
    for (int k = 0; k < 3; k++) ls_philox_uniform(9, (uint64_t)k, 0, VALUES, -1.0f, 1.0f, big[k]);
    ls_philox_uniform(9, 3, 0, VALUES, -1.0f, 1.0f, dy);
    assert_int_equal(ls_tape_create((size_t)32 << 20, NULL, NULL, &t), LS_OK);
    for (int way = 0; way < 2; way++) {
        ls_tensor *in[3] = { big_leaf(&x, &grad[0], 0, 4, image), big_leaf(&w, &grad[1], 1, 4, kernel),
                             big_leaf(&b, &grad[2], 2, 1, &bias) };
        for (int pass = 0; pass < 2; pass++) { /* written, and added to */
            ls_tape_reset(t);
            ls_tensor *out = way ? ls_tape_apply(t, &ls_conv2d_by_columns, in, 3, (int64_t[]){ 1, 1 })
                                 : ls_conv2d(t, in[0], in[1], in[2], 1, 1);
            if (!out) fail_msg("%s", ls_last_error());
            memcpy(y[way], out->data, sizeof y[way]);
            assert_int_equal(ls_backward_from(t, out, dy), LS_OK);
        }
        memcpy(got[way], slope, sizeof got[way]);
    }
    /* Sums of K numbers below 1 in another order: K roundings of what they come to, which is about the root of K. */
    for (int64_t i = 0; i < VALUES; i++) assert_near((double)y[0][i], (double)y[1][i], 1e-4, "y", i);
    for (int64_t i = 0; i < VALUES; i++) assert_near((double)got[0][0][i], (double)got[1][0][i], 2e-4, "dx", i);
    for (int64_t i = 0; i < 9 * CHANNELS * CHANNELS; i++)
        assert_near((double)got[0][1][i], (double)got[1][1][i], 1e-2, "dw", i);
    for (int64_t i = 0; i < CHANNELS; i++) assert_near((double)got[0][2][i], (double)got[1][2][i], 1e-2, "db", i);
    ls_tape_destroy(t);
}

/* --- memory, and the rest of the tape ---------------------------------------------------------------------------- */

static ls_tensor *all(ls_tape *t, ls_tensor *x)
{
    ls_tensor *y = ls_max_pool2d(t, ls_tanh(t, ls_conv2d(t, x, &p.w.t, &p.b.t, 1, 1)), 2, 2);
    y = ls_transpose(t, ls_sigmoid(t, ls_scale(t, y, 2.0f)), 1, 3);
    y = ls_concat(t, (ls_tensor *[]){ y, ls_slice_of(t, y, 1, 0, 2), y }, 3, 1);
    y = ls_matmul(t, ls_softmax(t, y), ls_transpose(t, y, 2, 3));
    return ls_mean(t, ls_sub(t, ls_mul(t, y, y), y), LS_ALL_DIMS);
}

static void a_dry_tape_knows_memory_and_flops_of_the_basic_set(void **state)
{
    (void)state;
    for (int how = LS_RECOMPUTE_NONE; how <= LS_RECOMPUTE_FULL; how++) {
        ls_tape *t[2] = { tape(), NULL };
        assert_int_equal(ls_tape_create_dry(&t[1]), LS_OK);
        fill4(&p.x, 1.0f, 2, 3, 8, 6);
        fill4(&p.w, 1.0f, 4, 3, 3, 3);
        fill(&p.b, 1.0f, 1, 4, 0, 0);
        for (int dry = 0; dry < 2; dry++) {
            clear(&p.x), clear(&p.w), clear(&p.b);
            assert_int_equal(ls_backward(t[dry], all(t[dry], &p.x.t)), LS_OK);
        }
        assert_int_equal(ls_tape_peak(t[0]), ls_tape_peak(t[1]));
        const double flops = ls_tape_flops(t[0]), convolution = 2.0 * 27.0 * 2 * 4 * 8 * 6;
        assert_true(flops == ls_tape_flops(t[1]) && flops > 3.0 * convolution);
        for (int i = 0; i < 2; i++) ls_tape_destroy(t[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(elementwise_ops_equal_their_formulas_and_slopes),
        cmocka_unit_test(tanh_and_softmax_are_tame_far_out_and_exact_near_zero),
        cmocka_unit_test(softmax_equals_its_formula_and_its_slopes),
        cmocka_unit_test(matmul_equals_its_formula_and_its_slopes),
        cmocka_unit_test(sums_and_means_equal_their_formulas_and_slopes),
        cmocka_unit_test(a_sum_of_blocks_has_all_of_them),
        cmocka_unit_test(copies_are_exact_and_so_are_their_slopes),
        cmocka_unit_test(conv2d_equals_its_formula_and_its_slopes),
        cmocka_unit_test(max_pool2d_equals_its_formula_and_its_slopes),
        cmocka_unit_test(losses_equal_their_formulas_and_slopes),
        cmocka_unit_test(ops_agree_with_pytorch),
        cmocka_unit_test(convolutions_agree_with_pytorch),
        cmocka_unit_test(bad_shapes_are_refused_with_the_shapes),
        cmocka_unit_test(no_bit_depends_on_the_number_of_threads),
        cmocka_unit_test(convolutions_of_both_ways_agree),
        cmocka_unit_test(a_dry_tape_knows_memory_and_flops_of_the_basic_set),
    };
    return cmocka_run_group_tests_name("op_basic", tests, NULL, NULL);
}
