/* The short ops of a GPT or a Llama: embedding, positions, residuals, norms, SwiGLU, dropout.
 *
 * Each one forward against plain loops in double, backward against central differences
 * (harness_slopes.h) and against PyTorch's numbers; in place or not, with a gradient of its
 * own or a shared one, on a real tape or a dry one: the same. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "golden/ops.h"
#include "harness_slopes.h"
#include "lockstep/rng.h"
#include "tensor/tape.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))
#define ULP 0x1p-24 /* one rounding of a number of size 1 */

/* --- one op, applied to x with parameters w and b ------------------------------------------- */

typedef ls_tensor *(*apply)(ls_tape *t, ls_tensor *x);

static struct {
    leaf x, w, b;
    ls_tensor ids;
    int64_t id[MOST];
    int64_t N, C, P;  /* rows; elements of a row; rows of w */
    double eps;
    float r[MOST];    /* gradient of y */
    double y[MOST];
    int64_t count;    /* of y */
    void (*formula)(void);
} p;

static double weighted_y(const void *unused)
{
    (void)unused;
    p.formula();
    double sum = 0.0;
    for (int64_t i = 0; i < p.count; i++) sum += (double)p.r[i] * p.y[i];
    return sum;
}

static void roll(int64_t count, void (*of_all)(void))
{
    p.count = count;
    p.formula = of_all;
    for (int64_t i = 0; i < count; i++) p.r[i] = fraction(1.0f);
}

/* A leaf of the op; its slopes may be off by `tolerance` (0: there is none). */
typedef struct part {
    leaf *l;
    double tolerance;
    const char *name;
} part;

#define PARTS 3

static void run(ls_tape *t, apply op, double tolerance)
{
    ls_tape_reset(t);
    ls_tensor *y = op(t, &p.x.t);
    if (!y) fail_msg("%s", ls_last_error());
    assert_int_equal(ls_tensor_count(y), p.count);
    p.formula();
    for (int64_t i = 0; i < p.count; i++) assert_near((double)((float *)y->data)[i], p.y[i], tolerance, "y", i);
    assert_int_equal(ls_backward_from(t, y, p.r), LS_OK);
}

/* Forward and backward, and both once more, which adds the same again. */
static void assert_op(apply op, double tolerance, const part parts[PARTS])
{
    static float once[PARTS][MOST];
    ls_tape *t = tape();
    run(t, op, tolerance);
    for (int i = 0; i < PARTS && parts[i].l; i++) {
        assert_slopes(parts[i].l, parts[i].l->d, weighted_y, NULL, parts[i].tolerance + 1e-8, parts[i].name);
        memcpy(once[i], parts[i].l->slope, sizeof once[i]);
    }
    run(t, op, tolerance);
    for (int i = 0; i < PARTS && parts[i].l; i++)
        for (int64_t k = 0; k < ls_tensor_count(&parts[i].l->t); k++) /* twice as many roundings, twice the size */
            assert_near((double)parts[i].l->slope[k], 2.0 * (double)once[i][k], 4.0 * parts[i].tolerance + 1e-8,
                        "added", k);
    ls_tape_destroy(t);
}

static void clear(leaf *l)
{
    l->t.grad_ready = false;
    for (int64_t i = 0; i < ls_tensor_count(&l->t); i++) l->slope[i] = NAN;
}

static ls_tensor *of(ls_tensor *t, ls_tensor *grad, const ls_tensor *like, void *data, float *slope)
{
    *grad = (ls_tensor){ .dtype = LS_F32, .ndim = like->ndim, .data = slope };
    memcpy(grad->dim, like->dim, sizeof grad->dim);
    *t = *grad;
    t->data = data;
    t->grad = grad;
    return t;
}

/* silu(op(silu(x))) in one go, where gradients are turned in place, and in three, where each
 * gradient has its own memory: the same bits. */
static void assert_same_in_place(apply op, const part parts[PARTS])
{
    static float h_value[MOST], y_value[MOST], dh[MOST], dy[MOST], whole[PARTS][MOST];
    ls_tensor h, h_grad, y, y_grad;
    ls_tape *t = tape();
    for (int i = 0; i < PARTS && parts[i].l; i++) clear(parts[i].l);
    ls_tensor *made_h = ls_silu(t, &p.x.t), *made_y = op(t, made_h);
    assert_non_null(made_y);
    memcpy(h_value, made_h->data, ls_tensor_nbytes(made_h));
    memcpy(y_value, made_y->data, ls_tensor_nbytes(made_y));
    of(&h, &h_grad, made_h, h_value, dh);
    of(&y, &y_grad, made_y, y_value, dy);
    assert_int_equal(ls_backward_from(t, ls_silu(t, made_y), p.r), LS_OK);
    for (int i = 0; i < PARTS && parts[i].l; i++) memcpy(whole[i], parts[i].l->slope, sizeof whole[i]);

    ls_tape_reset(t);
    for (int i = 0; i < PARTS && parts[i].l; i++) clear(parts[i].l);
    assert_int_equal(ls_backward_from(t, ls_silu(t, &y), p.r), LS_OK);
    assert_int_equal(ls_backward_from(t, op(t, &h), dy), LS_OK);
    assert_int_equal(ls_backward_from(t, ls_silu(t, &p.x.t), dh), LS_OK);
    for (int i = 0; i < PARTS && parts[i].l; i++)
        assert_memory_equal(parts[i].l->slope, whole[i], ls_tensor_nbytes(&parts[i].l->t));
    ls_tape_destroy(t);
}

static void assert_refused(ls_tape *t, const ls_tensor *got, ls_status st, const char *says)
{
    assert_null(got);
    assert_int_equal(ls_tape_status(t), st);
    if (!strstr(ls_last_error(), says)) fail_msg("'%s' does not say '%s'", ls_last_error(), says);
    ls_tape_reset(t);
}

/* --- norms ------------------------------------------------------------------------------------- */

/* Statistics of a row of x, in double. */
static void statistics(int64_t n, bool centred, double *mean, double *rstd)
{
    const double *x = p.x.d + n * p.C;
    double sum = 0.0, squares = 0.0;
    for (int64_t c = 0; centred && c < p.C; c++) sum += x[c];
    *mean = sum / (double)p.C;
    for (int64_t c = 0; c < p.C; c++) squares += (x[c] - *mean) * (x[c] - *mean);
    *rstd = 1.0 / sqrt(squares / (double)p.C + p.eps);
}

static void norm_formula(bool centred)
{
    double mean, rstd;
    for (int64_t n = 0; n < p.N; n++) {
        statistics(n, centred, &mean, &rstd);
        for (int64_t c = 0; c < p.C; c++)
            p.y[n * p.C + c] = (p.x.d[n * p.C + c] - mean) * rstd * p.w.d[c] + (centred ? p.b.d[c] : 0.0);
    }
}

static void layernorm_formula(void) { norm_formula(true); }
static void rmsnorm_formula(void) { norm_formula(false); }
static ls_tensor *layernorm(ls_tape *t, ls_tensor *x) { return ls_layernorm(t, x, &p.w.t, &p.b.t, (float)p.eps); }
static ls_tensor *rmsnorm(ls_tape *t, ls_tensor *x) { return ls_rmsnorm(t, x, &p.w.t, (float)p.eps); }

/* With R the largest rstd and X the largest |h|: the mean of numbers below 2 has four roundings,
 * rstd too (rows.h), h itself three: it is off by 7 X + 8 R. Of y = h w + b with |w|, |b| < 2 that
 * is twice, and two roundings of up to 2 X + 2. dx = R (g - mean g - h mean (g h)) with |g| < 2:
 * terms of 2, 2 and 2 X^2 with at most 8 roundings each, and the error of h four times times X. */
static void norm_tolerances(bool centred, double *y, double *dx, double *dw, double *db)
{
    double R = 0.0, X = 0.0, mean, rstd;
    for (int64_t n = 0; n < p.N; n++) {
        statistics(n, centred, &mean, &rstd);
        R = fmax(R, rstd);
        for (int64_t c = 0; c < p.C; c++) X = fmax(X, fabs((p.x.d[n * p.C + c] - mean) * rstd));
    }
    const double h = (7.0 * X + 8.0 * R) * ULP, N = (double)p.N;
    *y = 2.0 * h + 2.0 * (2.0 * X + 2.0) * ULP;
    *dx = R * (8.0 * (4.0 + 2.0 * X * X) * ULP + 4.0 * X * h);
    *dw = N * h + N * (N + 1.0) * X * ULP;
    *db = N * (N + 1.0) * ULP;
}

static const struct { int64_t N, C; double eps; } norm_row[] = { /* eps: rstd stays tame where C is small */
    { 1, 1, 0.1 }, { 3, 2, 0.1 }, { 5, 7, 0.1 }, { 2, 15, 1e-5 }, { 4, 16, 1e-5 }, { 3, 17, 1e-5 },
    { 33, 31, 1e-5 }, { 7, 65, 1e-5 }, { 2, 333, 1e-5 },
};

static void make_norm(size_t k, void (*of_all)(void))
{
    p.N = norm_row[k].N;
    p.C = norm_row[k].C;
    p.eps = (double)(float)norm_row[k].eps;
    if (k % 2) fill(&p.x, 2.0f, 2, p.N, p.C, 0);
    else fill(&p.x, 2.0f, 3, 1, p.N, p.C);
    fill(&p.w, 2.0f, 1, p.C, 0, 0);
    fill(&p.b, 2.0f, 1, p.C, 0, 0);
    roll(p.N * p.C, of_all);
}

static void layernorm_equals_its_formula_and_its_slopes(void **state)
{
    (void)state;
    for (size_t k = 0; k < COUNT(norm_row); k++) {
        double y, dx, dw, db;
        make_norm(k, layernorm_formula);
        norm_tolerances(true, &y, &dx, &dw, &db);
        const part parts[PARTS] = { { &p.x, dx, "dx" }, { &p.w, dw, "dw" }, { &p.b, db, "db" } };
        assert_op(layernorm, y, parts);
        assert_same_in_place(layernorm, parts);
    }
}

static void rmsnorm_equals_its_formula_and_its_slopes(void **state)
{
    (void)state;
    for (size_t k = 0; k < COUNT(norm_row); k++) {
        double y, dx, dw, db;
        make_norm(k, rmsnorm_formula);
        norm_tolerances(false, &y, &dx, &dw, &db);
        const part parts[PARTS] = { { &p.x, dx, "dx" }, { &p.w, dw, "dw" } };
        assert_op(rmsnorm, y, parts);
        assert_same_in_place(rmsnorm, parts);
    }
}

/* x = 4096 + k / 256: exact in float. The mean is off by half an ulp of 4096, 2^-12, no more:
 * squares of such numbers in float would be off by more than the variance. */
static void layernorm_is_right_far_from_zero(void **state)
{
    (void)state;
    p.N = 3;
    p.C = 100;
    p.eps = (double)1e-5f;
    fill(&p.x, 1.0f, 2, p.N, p.C, 0);
    fill(&p.w, 1.0f, 1, p.C, 0, 0);
    fill(&p.b, 1.0f, 1, p.C, 0, 0);
    for (int64_t i = 0; i < p.N * p.C; i++) {
        p.x.value[i] = i < p.C ? 0.1f : 4096.0f + (float)(i * 37 % 256) / 256.0f; /* one row is constant: y = b */
        p.x.d[i] = (double)p.x.value[i];
    }
    layernorm_formula();
    ls_tape *t = tape();
    const ls_tensor *y = layernorm(t, &p.x.t);
    assert_non_null(y);
    for (int64_t i = 0; i < p.N * p.C; i++) {
        double mean, rstd;
        statistics(i / p.C, true, &mean, &rstd);
        assert_near((double)((float *)y->data)[i], i < p.C ? p.b.d[i] : p.y[i],
                    i < p.C ? 0.0 : rstd * 0x1p-12 + 1e-5, "y", i);
    }
    ls_tape_destroy(t);
}

typedef struct order {
    const ls_tensor *seen[4];
    int n;
} order;

static ls_status note(void *arg, ls_tensor *param)
{
    order *o = arg;
    assert_in_range(o->n, 0, 3);
    o->seen[o->n++] = param;
    return LS_OK;
}

static void a_norm_s_bias_is_ready_before_its_weight_and_either_may_be_frozen(void **state)
{
    (void)state;
    static float both[2][MOST];
    ls_tape *t = tape();
    order o = { 0 };
    make_norm(5, layernorm_formula);
    ls_tape_on_grad_ready(t, note, &o);
    assert_int_equal(ls_backward_from(t, layernorm(t, &p.x.t), p.r), LS_OK);
    assert_int_equal(o.n, 3);
    assert_ptr_equal(o.seen[0], &p.b.t);
    assert_ptr_equal(o.seen[1], &p.w.t);
    assert_ptr_equal(o.seen[2], &p.x.t);
    ls_tape_on_grad_ready(t, NULL, NULL);
    memcpy(both[0], p.w.slope, sizeof both[0]);
    memcpy(both[1], p.b.slope, sizeof both[1]);
    leaf *l[2] = { &p.w, &p.b };
    for (int i = 0; i < 2; i++) {
        ls_tape_reset(t);
        clear(&p.w);
        clear(&p.b);
        l[1 - i]->t.grad = NULL;
        assert_int_equal(ls_backward_from(t, layernorm(t, &p.x.t), p.r), LS_OK);
        assert_memory_equal(l[i]->slope, both[i], ls_tensor_nbytes(&l[i]->t));
        l[1 - i]->t.grad = &l[1 - i]->grad;
    }
    ls_tape_destroy(t);
}

static void norms_name_what_is_wrong(void **state)
{
    (void)state;
    ls_tape *t = tape();
    make_norm(5, layernorm_formula); /* [3, 17] */
    ls_tensor *x = &p.x.t, *w = &p.w.t, *b = &p.b.t;
    w->dim[0] = 16;
    assert_refused(t, ls_layernorm(t, x, w, b, 1e-5f), LS_SHAPE,
                   "layernorm: input [3, 17], weight [16] and bias [17]: expected [.., C], [C] and [C]");
    assert_refused(t, ls_rmsnorm(t, x, w, 1e-5f), LS_SHAPE, "rmsnorm: input [3, 17] and weight [16]: expected");
    w->dim[0] = 17;
    b->dim[0] = 18;
    assert_refused(t, ls_layernorm(t, x, w, b, 1e-5f), LS_SHAPE, "bias [18]");
    b->dim[0] = 17;
    assert_refused(t, ls_layernorm(t, x, w, b, 0.0f), LS_INVALID, "eps is 0");
    assert_refused(t, ls_layernorm(t, x, w, b, NAN), LS_INVALID, "eps is nan");
    assert_refused(t, ls_rmsnorm(t, x, w, -1.0f), LS_INVALID, "eps is -1");
    x->dtype = LS_BF16;
    assert_refused(t, ls_layernorm(t, x, w, b, 1e-5f), LS_UNSUPPORTED, "layernorm: input is bfloat16");
    assert_refused(t, ls_rmsnorm(t, x, w, 1e-5f), LS_UNSUPPORTED, "rmsnorm: input is bfloat16");
    x->dtype = LS_F32;
    w->data = NULL;
    assert_refused(t, ls_layernorm(t, x, w, b, 1e-5f), LS_INVALID, "layernorm: weight has no memory yet");
    assert_refused(t, ls_rmsnorm(t, NULL, w, 1e-5f), LS_INVALID, "an input is NULL");
    ls_tape_destroy(t);
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

static const int64_t flat_row[] = { 1, 15, 16, 17, 100, 1023, 1025 };

/* |x|, |up| < 2, |dy| < 1: s is off by 6 roundings, and everything is a product or sum of at most
 * 8 numbers of size 4. */
static void silu_and_swiglu_equal_their_formulas_and_slopes(void **state)
{
    (void)state;
    const double tolerance = 4.0 * 16.0 * ULP;
    const part one[PARTS] = { { &p.x, tolerance, "dx" } };
    const part two[PARTS] = { { &p.x, tolerance, "dgate" }, { &p.w, tolerance, "dup" } };
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

/* --- add and add_rows ---------------------------------------------------------------------------- */

static void add_formula(void)
{
    for (int64_t i = 0; i < p.count; i++) p.y[i] = p.x.d[i] + p.w.d[i];
}

static void twice_formula(void)
{
    for (int64_t i = 0; i < p.count; i++) p.y[i] = 2.0 * p.x.d[i];
}

static void add_rows_formula(void)
{
    const int64_t TC = p.x.t.dim[p.x.t.ndim - 2] * p.C;
    for (int64_t i = 0; i < p.count; i++) p.y[i] = p.x.d[i] + p.w.d[i % TC];
}

static ls_tensor *add(ls_tape *t, ls_tensor *x) { return ls_add(t, x, &p.w.t); }
static ls_tensor *add_to_itself(ls_tape *t, ls_tensor *x) { return ls_add(t, x, x); }
static ls_tensor *add_rows(ls_tape *t, ls_tensor *x) { return ls_add_rows(t, x, &p.w.t); }

static void add_equals_its_formula_and_its_slopes(void **state)
{
    (void)state;
    const part both[PARTS] = { { &p.x, 0.0, "da" }, { &p.w, 0.0, "db" } }, one[PARTS] = { { &p.x, 0.0, "da" } };
    for (size_t k = 0; k < COUNT(flat_row); k++) {
        const int64_t n = flat_row[k];
        fill(&p.x, 2.0f, 1, n, 0, 0);
        fill(&p.w, 2.0f, 1, n, 0, 0);
        roll(n, add_formula);
        assert_op(add, 2.0 * ULP, both);
        assert_same_in_place(add, both);
        fill(&p.x, 2.0f, 1, n, 0, 0);
        roll(n, twice_formula);
        assert_op(add_to_itself, 0.0, one);
        assert_same_in_place(add_to_itself, one);
    }
}

static void add_rows_equals_its_formula_and_its_slopes(void **state)
{
    (void)state;
    static const struct { int64_t B, T, C, P; } row[] = { /* B = 0: two dimensions */
        { 0, 1, 1, 1 }, { 0, 3, 7, 5 }, { 1, 3, 7, 3 }, { 4, 5, 17, 9 }, { 9, 2, 16, 2 },
    };
    for (size_t k = 0; k < COUNT(row); k++) {
        const int64_t B = row[k].B ? row[k].B : 1, T = row[k].T, C = p.C = row[k].C;
        if (row[k].B) fill(&p.x, 2.0f, 3, B, T, C);
        else fill(&p.x, 2.0f, 2, T, C, 0);
        fill(&p.w, 2.0f, 2, row[k].P, C, 0);
        roll(B * T * C, add_rows_formula);
        const part parts[PARTS] = { { &p.x, 0.0, "dx" }, { &p.w, (double)(B * (B + 1)) * ULP, "dw" } };
        assert_op(add_rows, 2.0 * ULP, parts);
        assert_same_in_place(add_rows, parts);
        for (int64_t i = T * C; i < row[k].P * C; i++) assert_true(p.w.slope[i] == 0.0f); /* positions not used */
    }
}

static void sums_name_what_is_wrong(void **state)
{
    (void)state;
    ls_tape *t = tape();
    ls_tensor *x = fill(&p.x, 1.0f, 3, 2, 5, 7), *w = fill(&p.w, 1.0f, 3, 2, 5, 6);
    assert_refused(t, ls_add(t, x, w), LS_SHAPE, "add: [2, 5, 7] and [2, 5, 6]: expected equal shapes");
    assert_refused(t, ls_swiglu(t, x, w), LS_SHAPE, "swiglu: gate [2, 5, 7] and up [2, 5, 6]: expected equal shapes");
    w = fill(&p.w, 1.0f, 2, 4, 7, 0);
    assert_refused(t, ls_add(t, x, w), LS_SHAPE, "add: [2, 5, 7] and [4, 7]");
    assert_refused(t, ls_add_rows(t, x, w), LS_SHAPE,
                   "add_rows: T = 5 of input [2, 5, 7] is more than P = 4 of rows [4, 7]");
    w->dim[1] = 6;
    assert_refused(t, ls_add_rows(t, x, w), LS_SHAPE, "[2, 5, 7] and rows [4, 6]: expected [.., T, C] and [P, C]");
    w = fill(&p.w, 1.0f, 3, 2, 5, 7);
    w->dtype = LS_F64;
    assert_refused(t, ls_add(t, x, w), LS_UNSUPPORTED, "add: second input is double; only float is supported");
    assert_refused(t, ls_swiglu(t, x, w), LS_UNSUPPORTED, "swiglu: up is double");
    assert_refused(t, ls_silu(t, w), LS_UNSUPPORTED, "silu: input is double");
    assert_refused(t, ls_dropout(t, w, 0.5f, 1, 1, 0), LS_UNSUPPORTED, "dropout: input is double");
    assert_refused(t, ls_add(t, x, NULL), LS_INVALID, "an input is NULL");
    ls_tape_destroy(t);
}

/* --- gradients that several tensors hold -------------------------------------------------------------- */

/* a + b whose backward copies, always. */
static ls_status copy_backward(ls_tape *t, struct ls_node *n)
{
    for (int i = 0; i < 2; i++) {
        bool more;
        void *out;
        if (!ls_grad_wanted(n->in[i])) continue;
        LS_TRY(ls_grad_begin(t, n->in[i], &more, &out));
        float *d = out;
        const float *dy = n->out->grad->data;
        for (int64_t k = 0; k < ls_tensor_count(n->in[i]); k++) d[k] = more ? d[k] + dy[k] : dy[k];
        LS_TRY(ls_grad_end(t, n->in[i]));
    }
    return LS_OK;
}

static const ls_op copying = { .name = "copying", .napplied = 2, .backward_input = copy_backward };

static ls_tensor *add_copying(ls_tape *t, ls_tensor *a, ls_tensor *b)
{
    if (!ls_op_begin(t, "copying", a && b)) return NULL;
    ls_tensor *y = ls_op_output(t, LS_F32, a->ndim, a->dim);
    if (!y) return NULL;
    for (int64_t i = 0; i < ls_tensor_count(a); i++)
        ((float *)y->data)[i] = ((float *)a->data)[i] + ((float *)b->data)[i];
    return ls_op_end(t, y, &(struct ls_node){ .op = &copying, .in = { a, b } });
}

/* A random graph of 12 ops: of sums, elementwise ops that work in place, and one that does not. */
static ls_tensor *random_graph(ls_tape *t, uint32_t seed, ls_tensor *(*sum)(ls_tape *, ls_tensor *, ls_tensor *))
{
    ls_tensor *made[14] = { &p.x.t, &p.w.t };
    bool used[14] = { false };
    dice = seed;
    for (int i = 2; i < 14; i++) {
        int pick[3];
        for (int k = 0; k < 3; k++) {
            dice = dice * 1664525u + 1013904223u;
            pick[k] = (int)((dice >> 16) % (uint32_t)i);
        }
        if (pick[2] % 2 && i > 6) pick[0] = i - 1; /* deep ones too */
        ls_tensor *a = made[pick[0]], *b = made[pick[1]];
        const int kind = (int)(dice >> 24) % 6;
        if (kind < 3) made[i] = sum(t, a, b);
        else if (kind == 3) made[i] = ls_silu(t, a);
        else if (kind == 4) made[i] = ls_dropout(t, a, 0.25f, seed, (uint64_t)i, 0);
        else made[i] = ls_swiglu(t, a, b);
        used[pick[0]] = true;
        used[pick[1]] = used[pick[1]] || kind < 3 || kind == 5;
    }
    ls_tensor *y = made[13];
    for (int i = 0; i < 13; i++)
        if (!used[i]) y = sum(t, made[i], y);
    return y;
}

static void a_gradient_that_is_held_twice_gives_the_bits_of_copies(void **state)
{
    (void)state;
    static float want[2][40];
    enum { N = 40 };
    ls_tape *t = tape();
    for (uint32_t seed = 0; seed < 2000; seed++) {
        dice = seed;
        leaf *l[2] = { &p.x, &p.w };
        for (int i = 0; i < 2; i++) fill(l[i], 1.0f, 1, N, 0, 0);
        for (int i = 0; i < N; i++) p.r[i] = fraction(1.0f);
        ls_tape_reset(t);
        assert_int_equal(ls_backward_from(t, random_graph(t, seed, add_copying), p.r), LS_OK);
        for (int i = 0; i < 2; i++) memcpy(want[i], l[i]->slope, sizeof want[i]);
        for (int i = 0; i < 2; i++) clear(l[i]);
        ls_tape_reset(t);
        ls_tensor *y = random_graph(t, seed, ls_add);
        const int passes = 1 + (int)(seed % 2); /* backward leaves nothing behind: it may be played again */
        for (int k = 0; k < passes; k++) {
            for (int i = 0; i < 2; i++) clear(l[i]);
            assert_int_equal(ls_backward_from(t, y, p.r), LS_OK);
            for (int i = 0; i < 2; i++)
                if (memcmp(want[i], l[i]->slope, sizeof want[i]) != 0) fail_msg("graph %u, leaf %d", seed, i);
        }
    }
    ls_tape_destroy(t);
}

/* a = silu(x), s = a + silu(linear(a)), y = silu(s): what backward takes of the slab is the header of
 * dy, ds, and the gradient of linear's output; da is ds, and linear adds to it. */
static void a_residual_takes_no_memory_and_no_copy(void **state)
{
    (void)state;
    const int64_t n = 16;
    ls_tensor *x = fill(&p.x, 1.0f, 2, 9, n, 0), *w = fill(&p.w, 1.0f, 2, n, n, 0);
    ls_tape *t = tape();
    ls_tensor *a = ls_silu(t, x), *branch = ls_silu(t, ls_linear(t, a, w, NULL)), *y = ls_silu(t, ls_add(t, a, branch));
    assert_non_null(y);
    const size_t forward = ls_tape_peak(t), header = (sizeof *y + 63) / 64 * 64, data = ls_tensor_nbytes(y);
    assert_int_equal(data % 64, 0);
    for (int i = 0; i < 9 * 16; i++) p.r[i] = 1.0f;
    assert_int_equal(ls_backward_from(t, y, p.r), LS_OK);
    assert_int_equal(ls_tape_peak(t) - forward, header + 2 * (header + data));
    ls_tape_destroy(t);

    /* Here c adds to a while b still needs the gradient: a gets a copy, and then b's is its own again
     * and turned in place. */
    t = tape();
    ls_tensor *b = ls_silu(t, ls_silu(t, w));
    a = ls_silu(t, w);
    ls_tensor *c = ls_silu(t, a), *s = ls_add(t, a, b);
    y = ls_silu(t, ls_add(t, s, c));
    assert_non_null(y);
    const size_t before = ls_tape_peak(t), bytes = ls_tensor_nbytes(y);
    clear(&p.w);
    for (int i = 0; i < 16 * 16; i++) p.r[i] = 1.0f;
    assert_int_equal(ls_backward_from(t, y, p.r), LS_OK);
    assert_int_equal(ls_tape_peak(t) - before, header + 2 * (header + bytes));
    ls_tape_destroy(t);

    t = tape(); /* the same, c before the sum: nothing to copy, but c cannot turn what others hold */
    b = ls_silu(t, ls_silu(t, w));
    a = ls_silu(t, w);
    s = ls_add(t, a, b);
    c = ls_silu(t, a);
    y = ls_silu(t, ls_add(t, s, c));
    clear(&p.w);
    assert_int_equal(ls_backward_from(t, y, p.r), LS_OK);
    assert_int_equal(ls_tape_peak(t) - before, header + 2 * (header + bytes));
    ls_tape_destroy(t);
}

/* --- embedding ---------------------------------------------------------------------------------------- */

static void embedding_formula(void)
{
    for (int64_t i = 0; i < p.count; i++) p.y[i] = p.w.d[p.id[i / p.C] * p.C + i % p.C];
}

static ls_tensor *embedding(ls_tape *t, ls_tensor *unused)
{
    (void)unused;
    return ls_embedding(t, &p.ids, &p.w.t);
}

static void make_ids(int64_t B, int64_t T, int64_t V)
{
    p.ids = (ls_tensor){ .dtype = LS_I64, .ndim = B ? 2 : 1, .dim = { B ? B : T, B ? T : 0 }, .data = p.id };
    for (int64_t i = 0; i < (B ? B : 1) * T; i++) p.id[i] = (i * i * 7 + i) % V;
}

/* A row of w is used at most N times: a sum of that many numbers below 1. */
static void embedding_equals_its_formula_and_its_slopes(void **state)
{
    (void)state;
    static const struct { int64_t B, T, V, C; } row[] = { /* B = 0: one dimension */
        { 0, 1, 1, 1 }, { 0, 9, 3, 7 }, { 2, 5, 11, 17 }, { 3, 4, 100, 16 }, { 4, 16, 2, 33 },
    };
    for (size_t k = 0; k < COUNT(row); k++) {
        const int64_t N = (row[k].B ? row[k].B : 1) * row[k].T;
        p.C = row[k].C;
        make_ids(row[k].B, row[k].T, row[k].V);
        fill(&p.w, 2.0f, 2, row[k].V, p.C, 0);
        roll(N * p.C, embedding_formula);
        const part parts[PARTS] = { { &p.w, (double)(N * (N + 1)) * ULP, "dw" } };
        assert_op(embedding, 0.0, parts);
    }
}

static void embedding_adds_rows_in_ascending_place(void **state)
{
    (void)state;
    ls_tape *t = tape();
    fill(&p.w, 1.0f, 2, 4, 3, 0);
    make_ids(2, 50, 3);
    roll(300, embedding_formula);
    assert_int_equal(ls_backward_from(t, ls_embedding(t, &p.ids, &p.w.t), p.r), LS_OK);
    for (int64_t v = 0; v < 4; v++)
        for (int64_t c = 0; c < 3; c++) {
            float sum = 0.0f;
            for (int64_t n = 0; n < 100; n++)
                if (p.id[n] == v) sum += p.r[n * 3 + c];
            assert_true(p.w.slope[v * 3 + c] == sum); /* row 3 is not used: 0 */
        }
    ls_tape_destroy(t);
}

static void embedding_names_the_id_its_place_and_the_table(void **state)
{
    (void)state;
    ls_tape *t = tape();
    fill(&p.w, 1.0f, 2, 100, 3, 0);
    make_ids(4, 16, 100);
    p.id[1 * 16 + 3] = 100;
    p.id[2 * 16] = -5;
    assert_refused(t, ls_embedding(t, &p.ids, &p.w.t), LS_INVALID,
                   "embedding: id 100 at [1, 3]: expected 0 to 99, the table has 100 rows");
    p.id[1 * 16 + 3] = INT64_MIN;
    assert_refused(t, ls_embedding(t, &p.ids, &p.w.t), LS_INVALID, "id -9223372036854775808 at [1, 3]");
    p.id[1 * 16 + 3] = 0;
    assert_refused(t, ls_embedding(t, &p.ids, &p.w.t), LS_INVALID, "id -5 at [2, 0]");
    p.ids.ndim = 4;
    p.ids.dim[2] = p.ids.dim[3] = 1;
    assert_refused(t, ls_embedding(t, &p.ids, &p.w.t), LS_SHAPE, "ids [4, 16, 1, 1] and table [100, 3]");
    make_ids(4, 16, 100);
    p.ids.dtype = LS_I32;
    assert_refused(t, ls_embedding(t, &p.ids, &p.w.t), LS_UNSUPPORTED, "ids are int32, expected int64");
    p.ids.dtype = LS_I64;
    p.w.t.ndim = 1;
    assert_refused(t, ls_embedding(t, &p.ids, &p.w.t), LS_SHAPE, "table [100]");
    p.w.t.ndim = 2;
    p.w.t.data = NULL;
    assert_refused(t, ls_embedding(t, &p.ids, &p.w.t), LS_INVALID, "embedding: table has no memory yet");
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
            const part parts[PARTS] = { { &p.x, tolerance, "dx" } };
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

/* --- all of them ------------------------------------------------------------------------------------------- */

enum { B = 2, T = 3, C = 4, V = 5, P = 6, H = 7 };

static struct {
    leaf wte, wpe, w1, b1, proj, w2, gate, up, down;
    ls_tensor ids;
    int64_t id[B * T];
    float r[B * T * C];
} m;

static leaf *const block_leaf[] = {
    &m.wte, &m.wpe, &m.w1, &m.b1, &m.proj, &m.w2, &m.gate, &m.up, &m.down,
};

#define EPS 0.5f
#define DROP 0.25f

static void make_block(void)
{
    dice = 42;
    fill(&m.wte, 1.0f, 2, V, C, 0);
    fill(&m.wpe, 1.0f, 2, P, C, 0);
    fill(&m.w1, 1.0f, 1, C, 0, 0);
    fill(&m.b1, 1.0f, 1, C, 0, 0);
    fill(&m.proj, 1.0f, 2, C, C, 0);
    fill(&m.w2, 1.0f, 1, C, 0, 0);
    fill(&m.gate, 1.0f, 2, H, C, 0);
    fill(&m.up, 1.0f, 2, H, C, 0);
    fill(&m.down, 1.0f, 2, C, H, 0);
    m.ids = (ls_tensor){ .dtype = LS_I64, .ndim = 2, .dim = { B, T }, .data = m.id };
    for (int i = 0; i < B * T; i++) m.id[i] = i * 3 % V;
    for (int i = 0; i < B * T * C; i++) m.r[i] = fraction(1.0f);
}

/* Every op once, in the order of a transformer with a linear layer where attention would be. */
static ls_tensor *block(ls_tape *t)
{
    ls_tensor *h = ls_add_rows(t, ls_embedding(t, &m.ids, &m.wte.t), &m.wpe.t);
    h = ls_dropout(t, h, DROP, SEED, 1, 0);
    ls_tensor *branch = ls_linear(t, ls_layernorm(t, h, &m.w1.t, &m.b1.t, EPS), &m.proj.t, NULL);
    h = ls_add(t, h, ls_dropout(t, branch, DROP, SEED, 2, 0));
    branch = ls_rmsnorm(t, h, &m.w2.t, EPS);
    branch = ls_swiglu(t, ls_linear(t, branch, &m.gate.t, NULL), ls_linear(t, branch, &m.up.t, NULL));
    return ls_silu(t, ls_add(t, h, ls_linear(t, branch, &m.down.t, NULL)));
}

static double keep(uint64_t stream, int i)
{
    float u;
    ls_philox_uniform(SEED, stream, (uint64_t)i, 1, 0.0f, 1.0f, &u);
    return u < DROP ? 0.0 : 1.0 / (1.0 - (double)DROP);
}

static double block_loss(const void *unused)
{
    (void)unused;
    double loss = 0.0;
    for (int n = 0; n < B * T; n++) {
        double h[C], x[C], mid[H], mean = 0.0, squares = 0.0;
        for (int c = 0; c < C; c++) h[c] = keep(1, n * C + c) * (m.wte.d[m.id[n] * C + c] + m.wpe.d[n % T * C + c]);
        for (int c = 0; c < C; c++) mean += h[c] / C;
        for (int c = 0; c < C; c++) squares += (h[c] - mean) * (h[c] - mean) / C;
        for (int c = 0; c < C; c++) x[c] = (h[c] - mean) / sqrt(squares + (double)EPS) * m.w1.d[c] + m.b1.d[c];
        for (int c = 0; c < C; c++) {
            double y = 0.0;
            for (int i = 0; i < C; i++) y += x[i] * m.proj.d[c * C + i];
            h[c] += keep(2, n * C + c) * y;
        }
        squares = 0.0;
        for (int c = 0; c < C; c++) squares += h[c] * h[c] / C;
        for (int c = 0; c < C; c++) x[c] = h[c] / sqrt(squares + (double)EPS) * m.w2.d[c];
        for (int k = 0; k < H; k++) {
            double g = 0.0, u = 0.0;
            for (int c = 0; c < C; c++) {
                g += x[c] * m.gate.d[k * C + c];
                u += x[c] * m.up.d[k * C + c];
            }
            mid[k] = silu_of(g) * u;
        }
        for (int c = 0; c < C; c++) {
            for (int k = 0; k < H; k++) h[c] += mid[k] * m.down.d[c * H + k];
            loss += (double)m.r[n * C + c] * silu_of(h[c]);
        }
    }
    return loss;
}

/* Numbers stay below 16 and each has less than 100 roundings behind it. */
static void a_block_of_all_ops_has_the_slopes_of_its_formula(void **state)
{
    (void)state;
    make_block();
    ls_tape *t = tape();
    for (int pass = 0; pass < 2; pass++) { /* with the embedding's gradients there already, or not */
        ls_tape_reset(t);
        for (size_t i = 0; i < COUNT(block_leaf); i++) clear(block_leaf[i]);
        assert_int_equal(ls_backward_from(t, block(t), m.r), LS_OK);
        for (size_t i = 0; i < COUNT(block_leaf); i++)
            assert_slopes(block_leaf[i], block_leaf[i]->d, block_loss, NULL, 1600.0 * ULP, "leaf");
    }
    ls_tape_destroy(t);
}

static void a_dry_tape_counts_the_same_bytes_and_flops(void **state)
{
    (void)state;
    make_block();
    ls_tape *t = tape(), *dry;
    assert_int_equal(ls_tape_create_dry(&dry), LS_OK);
    for (size_t i = 0; i < COUNT(block_leaf); i++) assert_true(isnan(block_leaf[i]->slope[0]));
    assert_int_equal(ls_backward_from(dry, block(dry), m.r), LS_OK);
    for (size_t i = 0; i < COUNT(block_leaf); i++) {
        assert_true(isnan(block_leaf[i]->slope[0])); /* it touches nothing */
        clear(block_leaf[i]);
    }
    assert_int_equal(ls_backward_from(t, block(t), m.r), LS_OK);
    assert_true(ls_tape_peak(dry) == ls_tape_peak(t) && ls_tape_peak(t) > 0);
    assert_true(ls_tape_flops(dry) == ls_tape_flops(t));
    const double N = B * T, linear = 6.0 * N * (C * C + 3 * H * C);
    assert_true(ls_tape_flops(t) == linear + N * C * (1 + 2 + 27 + 17 + 36 + 2 * 2 + 2 * 1) + N * H * 40);
    ls_tape_destroy(dry);
    ls_tape_destroy(t);
}

static void two_runs_have_the_same_bits(void **state)
{
    (void)state;
    static float first[COUNT(block_leaf)][MOST];
    make_block();
    for (int run = 0; run < 2; run++) {
        ls_tape *t = tape();
        for (size_t i = 0; i < COUNT(block_leaf); i++) clear(block_leaf[i]);
        assert_int_equal(ls_backward_from(t, block(t), m.r), LS_OK);
        for (size_t i = 0; i < COUNT(block_leaf); i++) {
            const size_t n = ls_tensor_nbytes(&block_leaf[i]->t);
            if (run == 0) memcpy(first[i], block_leaf[i]->slope, n);
            else assert_memory_equal(first[i], block_leaf[i]->slope, n);
        }
        ls_tape_destroy(t);
    }
}

/* No rows: nothing to compute, and a parameter's gradient is 0, not garbage. */
static void an_empty_batch_gives_gradients_of_zero(void **state)
{
    (void)state;
    ls_tape *t = tape();
    ls_tensor *x = fill(&p.x, 1.0f, 3, 0, 3, 5), *w = fill(&p.w, 1.0f, 1, 5, 0, 0), *b = fill(&p.b, 1.0f, 1, 5, 0, 0);
    ls_tensor *y = ls_layernorm(t, ls_dropout(t, ls_silu(t, ls_add(t, x, x)), 0.5f, 1, 1, 0), w, b, 1e-5f);
    assert_non_null(y);
    assert_int_equal(ls_backward_from(t, ls_swiglu(t, y, y), p.r), LS_OK);
    for (int c = 0; c < 5; c++) assert_true(p.w.slope[c] == 0.0f && p.b.slope[c] == 0.0f);
    ls_tape_reset(t);
    clear(&p.w);
    assert_int_equal(ls_backward_from(t, ls_rmsnorm(t, x, w, 1e-5f), p.r), LS_OK);
    for (int c = 0; c < 5; c++) assert_true(p.w.slope[c] == 0.0f);
    w = fill(&p.w, 1.0f, 2, 4, 5, 0);
    ls_tape_reset(t);
    assert_int_equal(ls_backward_from(t, ls_add_rows(t, x, w), p.r), LS_OK);
    for (int c = 0; c < 20; c++) assert_true(p.w.slope[c] == 0.0f);
    ls_tape_reset(t);
    clear(&p.w);
    p.ids = (ls_tensor){ .dtype = LS_I64, .ndim = 2, .dim = { 0, 3 }, .data = p.id };
    y = ls_embedding(t, &p.ids, w);
    assert_int_equal(y->dim[0], 0);
    assert_int_equal(ls_backward_from(t, y, p.r), LS_OK);
    for (int c = 0; c < 20; c++) assert_true(p.w.slope[c] == 0.0f);
    ls_tape_destroy(t);
}

/* --- against PyTorch ---------------------------------------------------------------------------------------- */

static ls_tensor *golden(leaf *l, int ndim, int64_t rows, int64_t cols, const float *value)
{
    ls_tensor *x = ndim == 1 ? fill(l, 1.0f, 1, cols, 0, 0) : fill(l, 1.0f, 2, rows, cols, 0);
    memcpy(l->value, value, (size_t)ls_tensor_count(x) * sizeof *value);
    return x;
}

/* Both round about 30 times on the way to numbers of that size. */
static void assert_golden(const float *got, const float *want, int64_t n, const char *what)
{
    for (int64_t i = 0; i < n; i++)
        assert_near((double)got[i], (double)want[i], 60.0 * ULP * fmax(4.0, fabs((double)want[i])), what, i);
}

static void gradients_are_pytorch_s(void **state)
{
    (void)state;
    enum { N = GOLDEN_N, K = GOLDEN_C };
    ls_tape *t = tape();
    memcpy(p.r, golden_dy, sizeof golden_dy);
    ls_tensor *w = golden(&p.w, 1, 1, K, golden_w), *b = golden(&p.b, 1, 1, K, golden_b);
    ls_tensor *x = golden(&p.x, 2, N, K, golden_x), *y = ls_layernorm(t, x, w, b, 1e-5f);
    assert_golden(y->data, golden_layernorm_y, N * K, "layernorm y");
    assert_int_equal(ls_backward_from(t, y, p.r), LS_OK);
    assert_golden(p.x.slope, golden_layernorm_dx, N * K, "layernorm dx");
    assert_golden(p.w.slope, golden_layernorm_dw, K, "layernorm dw");
    assert_golden(p.b.slope, golden_layernorm_db, K, "layernorm db");

    ls_tape_reset(t);
    clear(&p.x);
    clear(&p.w);
    y = ls_rmsnorm(t, x, w, 1e-5f);
    assert_golden(y->data, golden_rmsnorm_y, N * K, "rmsnorm y");
    assert_int_equal(ls_backward_from(t, y, p.r), LS_OK);
    assert_golden(p.x.slope, golden_rmsnorm_dx, N * K, "rmsnorm dx");
    assert_golden(p.w.slope, golden_rmsnorm_dw, K, "rmsnorm dw");

    static const struct {
        ls_tensor *(*op)(ls_tape *, ls_tensor *);
        const float *y, *dx;
        const char *name;
    } row[] = {
        { ls_gelu, golden_gelu_y, golden_gelu_dx, "gelu" }, { ls_silu, golden_silu_y, golden_silu_dx, "silu" },
    };
    for (size_t k = 0; k < COUNT(row); k++) {
        ls_tape_reset(t);
        clear(&p.x);
        y = row[k].op(t, x);
        assert_golden(y->data, row[k].y, N * K, row[k].name);
        assert_int_equal(ls_backward_from(t, y, p.r), LS_OK);
        assert_golden(p.x.slope, row[k].dx, N * K, row[k].name);
    }

    ls_tape_reset(t);
    clear(&p.x);
    y = ls_swiglu(t, x, golden(&p.b, 2, N, K, golden_up));
    assert_golden(y->data, golden_swiglu_y, N * K, "swiglu y");
    assert_int_equal(ls_backward_from(t, y, p.r), LS_OK);
    assert_golden(p.x.slope, golden_swiglu_dx, N * K, "swiglu dgate");
    assert_golden(p.b.slope, golden_swiglu_dup, N * K, "swiglu dup");

    ls_tape_reset(t);
    p.ids = (ls_tensor){ .dtype = LS_I64, .ndim = 1, .dim = { N }, .data = p.id };
    memcpy(p.id, golden_ids, sizeof golden_ids);
    y = ls_embedding(t, &p.ids, golden(&p.w, 2, GOLDEN_V, K, golden_table));
    assert_memory_equal(y->data, golden_embedding_y, sizeof golden_embedding_y);
    assert_int_equal(ls_backward_from(t, y, p.r), LS_OK);
    assert_golden(p.w.slope, golden_embedding_dtable, GOLDEN_V * K, "embedding dw");
    ls_tape_destroy(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layernorm_equals_its_formula_and_its_slopes),
        cmocka_unit_test(rmsnorm_equals_its_formula_and_its_slopes),
        cmocka_unit_test(layernorm_is_right_far_from_zero),
        cmocka_unit_test(a_norm_s_bias_is_ready_before_its_weight_and_either_may_be_frozen),
        cmocka_unit_test(norms_name_what_is_wrong),
        cmocka_unit_test(silu_and_swiglu_equal_their_formulas_and_slopes),
        cmocka_unit_test(silu_is_tame_far_out),
        cmocka_unit_test(add_equals_its_formula_and_its_slopes),
        cmocka_unit_test(add_rows_equals_its_formula_and_its_slopes),
        cmocka_unit_test(sums_name_what_is_wrong),
        cmocka_unit_test(a_gradient_that_is_held_twice_gives_the_bits_of_copies),
        cmocka_unit_test(a_residual_takes_no_memory_and_no_copy),
        cmocka_unit_test(embedding_equals_its_formula_and_its_slopes),
        cmocka_unit_test(embedding_adds_rows_in_ascending_place),
        cmocka_unit_test(embedding_names_the_id_its_place_and_the_table),
        cmocka_unit_test(dropout_equals_its_formula_and_its_slopes),
        cmocka_unit_test(dropout_does_not_depend_on_the_shard),
        cmocka_unit_test(dropout_of_nothing_is_the_tensor_itself_and_a_nan_stays),
        cmocka_unit_test(a_block_of_all_ops_has_the_slopes_of_its_formula),
        cmocka_unit_test(a_dry_tape_counts_the_same_bytes_and_flops),
        cmocka_unit_test(two_runs_have_the_same_bits),
        cmocka_unit_test(an_empty_batch_gives_gradients_of_zero),
        cmocka_unit_test(gradients_are_pytorch_s),
    };
    return cmocka_run_group_tests_name("ops_gpt", tests, NULL, NULL);
}
