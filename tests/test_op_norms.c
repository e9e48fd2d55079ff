/* Norms over the last dimension: layernorm and rmsnorm. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "harness_op.h"

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
        const part parts[PARTS] = { { &p.x, dx, "dx", ACTIVATION }, { &p.w, dw, "dw", PARAMETER }, { &p.b, db, "db", PARAMETER } };
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
        const part parts[PARTS] = { { &p.x, dx, "dx", ACTIVATION }, { &p.w, dw, "dw", PARAMETER } };
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
    assert_int_equal(ls_tape_listen(t, &(ls_tape_events){ .grad_ready = note }, &o), LS_OK);
    assert_int_equal(ls_backward_from(t, layernorm(t, &p.x.t), p.r), LS_OK);
    assert_int_equal(o.n, 3);
    assert_ptr_equal(o.seen[0], &p.b.t);
    assert_ptr_equal(o.seen[1], &p.w.t);
    assert_ptr_equal(o.seen[2], &p.x.t);
    ls_tape_unlisten(t, &o);
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
    x->dtype = LS_F16;
    assert_refused(t, ls_layernorm(t, x, w, b, 1e-5f), LS_UNSUPPORTED, "layernorm: input is half; expected float or");
    assert_refused(t, ls_rmsnorm(t, x, w, 1e-5f), LS_UNSUPPORTED, "rmsnorm: input is half");
    x->dtype = LS_F32;
    w->dtype = LS_BF16;
    assert_refused(t, ls_layernorm(t, x, w, b, 1e-5f), LS_UNSUPPORTED, "weight is bfloat16; only float is supported");
    assert_refused(t, ls_rmsnorm(t, x, w, 1e-5f), LS_UNSUPPORTED, "weight is bfloat16");
    w->dtype = LS_F32;
    w->data = NULL;
    assert_refused(t, ls_layernorm(t, x, w, b, 1e-5f), LS_INVALID, "layernorm: weight has no memory yet");
    assert_refused(t, ls_rmsnorm(t, NULL, w, 1e-5f), LS_INVALID, "an input is NULL");
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
    };
    return cmocka_run_group_tests_name("op_norms", tests, NULL, NULL);
}
