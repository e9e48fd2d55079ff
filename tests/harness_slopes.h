/* harness_slopes.h -- backward against finite differences in double, for tests of ops.
 *
 * Inputs lie in [-2, 2) and output gradients r in [-1, 1). For the scalar
 * L = sum r y the central difference with h = 1e-5 has an error of about
 * h^2 + 2^-52 / h = 1e-10, far below float's: so what is compared is the float
 * rounding of backward. A sum of K float products of size at most 4, added in
 * any order, is off by at most 4 K (K + 1) 2^-24.
 *
 * bf16 has 8 bits of significand: a number that is rounded to it once, to the
 * nearest, is off by at most half an ulp, 2^-8 of itself. What an op computes in
 * float from bf16 inputs, which are exact, and stores in bf16 is off by as much as
 * in float, and then by that.
 */
#ifndef LS_TEST_HARNESS_SLOPES_H
#define LS_TEST_HARNESS_SLOPES_H
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "lockstep/tensor.h"

#define MOST 4096 /* elements of any tensor here */

static uint32_t dice = 1;

static inline float fraction(float scale)
{
    dice = dice * 1664525u + 1013904223u;
    return ((float)(dice >> 8) * 0x1p-24f - 0.5f) * 2.0f * scale;
}

/* A leaf with a gradient; `d` are its values in double. In bf16 value16 and slope16 are what counts. */
typedef struct leaf {
    ls_tensor t, grad;
    float value[MOST], slope[MOST];
    uint16_t value16[MOST], slope16[MOST];
    double d[MOST];
} leaf;

static inline ls_tensor *fill(leaf *l, float scale, int ndim, int64_t a, int64_t b, int64_t c)
{
    l->t = (ls_tensor){ .dtype = LS_F32, .ndim = ndim, .dim = { a, b, c }, .data = l->value, .grad = &l->grad };
    l->grad = (ls_tensor){ .dtype = LS_F32, .ndim = ndim, .dim = { a, b, c }, .data = l->slope };
    const int64_t n = ls_tensor_count(&l->t);
    assert_in_range(n, 0, MOST);
    for (int64_t i = 0; i < n; i++) {
        l->value[i] = fraction(scale);
        l->slope[i] = NAN; /* written, not added to */
        l->d[i] = (double)l->value[i];
    }
    return &l->t;
}

/* As filled, in float; or rounded to bf16, its values with it. */
static inline void leaf_to(leaf *l, ls_dtype dtype)
{
    const bool narrow = dtype == LS_BF16;
    l->t.dtype = l->grad.dtype = dtype;
    l->t.data = narrow ? (void *)l->value16 : l->value;
    l->grad.data = narrow ? (void *)l->slope16 : l->slope;
    for (int64_t i = 0; i < ls_tensor_count(&l->t); i++) {
        l->value16[i] = ls_f32_to_bf16(l->value[i]);
        l->d[i] = (double)(narrow ? ls_bf16_to_f32(l->value16[i]) : l->value[i]);
    }
}

/* Its gradient is to be written, not added to. */
static inline void clear(leaf *l)
{
    l->t.grad_ready = false;
    for (int64_t i = 0; i < ls_tensor_count(&l->t); i++) {
        l->slope[i] = NAN;
        l->slope16[i] = 0x7fff;
    }
}

/* Element i of a tensor of float or bf16. */
static inline double element(const ls_tensor *x, int64_t i)
{
    if (x->dtype == LS_BF16) return (double)ls_bf16_to_f32(((const uint16_t *)x->data)[i]);
    return (double)((const float *)x->data)[i];
}

#define HALF_ULP_BF16 0x1p-8

/* How far from `want` what was off by `tolerance` in float may be. */
static inline double allowed(ls_dtype dtype, double want, double tolerance)
{
    return dtype == LS_BF16 ? tolerance + HALF_ULP_BF16 * (fabs(want) + tolerance) : tolerance;
}

static inline ls_tape *tape(void)
{
    ls_tape *t;
    assert_int_equal(ls_tape_create(1 << 20, NULL, NULL, &t), LS_OK);
    return t;
}

static inline void assert_near(double got, double want, double tolerance, const char *what, int64_t i)
{
    if (!(fabs(got - want) <= tolerance))
        fail_msg("%s[%lld] = %.9g, want %.9g +- %.2g", what, (long long)i, got, want, tolerance);
}

/* The formula as a function of everything the case holds. */
typedef double (*formula)(const void *problem);

static inline void assert_slopes(const leaf *l, double *d, formula f, const void *problem, double tolerance,
                                 const char *what)
{
    const double h = 1e-5;
    for (int64_t i = 0; i < ls_tensor_count(&l->t); i++) {
        const double at = d[i];
        d[i] = at + h;
        const double up = f(problem);
        d[i] = at - h;
        const double down = f(problem);
        d[i] = at;
        const double want = (up - down) / (2.0 * h);
        assert_near(element(&l->grad, i), want, allowed(l->grad.dtype, want, tolerance), what, i);
    }
}

static inline double sum_tolerance(int64_t K) { return 4.0 * (double)K * (double)(K + 1) * 0x1p-24; }

#endif
