/* harness_slopes.h -- backward against finite differences in double, for tests of ops.
 *
 * Inputs lie in [-2, 2) and output gradients r in [-1, 1). For the scalar
 * L = sum r y the central difference with h = 1e-5 has an error of about
 * h^2 + 2^-52 / h = 1e-10, far below float's: so what is compared is the float
 * rounding of backward. A sum of K float products of size at most 4, added in
 * any order, is off by at most 4 K (K + 1) 2^-24.
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

/* A leaf with a gradient; `d` are its values in double. */
typedef struct leaf {
    ls_tensor t, grad;
    float value[MOST], slope[MOST];
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
        assert_near((double)l->slope[i], (up - down) / (2.0 * h), tolerance, what, i);
    }
}

static inline double sum_tolerance(int64_t K) { return 4.0 * (double)K * (double)(K + 1) * 0x1p-24; }

#endif
