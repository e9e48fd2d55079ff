/* harness_head.h -- a language model's head for the suites of linear_cross_entropy: its values in float and in double,
 * loss and gradients by the formula in double, and the op with its gradients. */
#ifndef LS_TESTS_HARNESS_HEAD_H
#define LS_TESTS_HARNESS_HEAD_H
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "lockstep/rng.h"
#include "lockstep/tensor.h"
#include "tensor/tape.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

/* A head with its values in float and double, and the gradients that the op left. */
typedef struct head {
    int64_t N, C, V;
    ls_tensor w, dw_t;
    float *x, *wv, *dx, *dw;
    ls_tensor dx_t;
    int64_t *label;
    double *xd, *wd;
} head;

static inline void *room(size_t n)
{
    void *p = calloc(1, n ? n : 1);
    assert_non_null(p);
    return p;
}

static inline head make(int64_t N, int64_t C, int64_t V, uint64_t seed)
{
    head h = { .N = N, .C = C, .V = V };
    ls_mt19937 random;
    h.x = room((size_t)(N * C) * sizeof *h.x);
    h.wv = room((size_t)(V * C) * sizeof *h.wv);
    h.dx = room((size_t)(N * C) * sizeof *h.dx);
    h.dw = room((size_t)(V * C) * sizeof *h.dw);
    h.xd = room((size_t)(N * C) * sizeof *h.xd);
    h.wd = room((size_t)(V * C) * sizeof *h.wd);
    h.label = room((size_t)N * sizeof *h.label);
    ls_mt19937_seed(&random, (uint32_t)seed);
    ls_mt19937_uniform(&random, -2.0f, 2.0f, (size_t)(N * C), h.x);
    ls_mt19937_uniform(&random, -1.0f, 1.0f, (size_t)(V * C), h.wv);
    for (int64_t i = 0; i < N * C; i++) h.xd[i] = (double)h.x[i];
    for (int64_t i = 0; i < V * C; i++) h.wd[i] = (double)h.wv[i];
    for (int64_t n = 0; n < N; n++) {
        float r;
        ls_mt19937_uniform(&random, 0.0f, 1.0f, 1, &r);
        h.label[n] = (int64_t)(r * (float)V) % V;
    }
    h.label[0] = V - 1;
    h.label[N - 1] = 0;
    return h;
}

static inline void drop(head *h)
{
    free(h->x);
    free(h->wv);
    free(h->dx);
    free(h->dw);
    free(h->xd);
    free(h->wd);
    free(h->label);
}

static inline ls_tape *tape(size_t nbytes)
{
    ls_tape *t;
    if (ls_tape_create(nbytes, NULL, NULL, &t) < 0) fail_msg("%s", ls_last_error());
    return t;
}

/* The sum of the losses of rows [first, first + n), in double. */
static inline double formula(const head *h, int64_t first, int64_t n)
{
    double *l = room((size_t)h->V * sizeof *l), loss = 0.0;
    for (int64_t i = first; i < first + n; i++) {
        if (h->label[i] == LS_IGNORE_INDEX) continue;
        double most = -INFINITY, sum = 0.0;
        for (int64_t v = 0; v < h->V; v++) {
            l[v] = 0.0;
            for (int64_t c = 0; c < h->C; c++) l[v] += h->xd[i * h->C + c] * h->wd[v * h->C + c];
            most = l[v] > most ? l[v] : most;
        }
        for (int64_t v = 0; v < h->V; v++) sum += exp(l[v] - most);
        loss += most + log(sum) - l[h->label[i]];
    }
    free(l);
    return loss;
}

/* The gradients of scale times the formula, in double: dl = (softmax - [label]) scale, dx = dl w, dw = dl^T x. */
static inline void slopes_of(const head *h, double scale, double *dx, double *dw)
{
    double *l = room((size_t)h->V * sizeof *l);
    for (int64_t i = 0; i < h->N; i++) {
        if (h->label[i] == LS_IGNORE_INDEX) continue;
        double most = -INFINITY, sum = 0.0;
        for (int64_t v = 0; v < h->V; v++) {
            l[v] = 0.0;
            for (int64_t c = 0; c < h->C; c++) l[v] += h->xd[i * h->C + c] * h->wd[v * h->C + c];
            most = l[v] > most ? l[v] : most;
        }
        for (int64_t v = 0; v < h->V; v++) sum += exp(l[v] - most);
        for (int64_t v = 0; v < h->V; v++) {
            const double d = (exp(l[v] - most) / sum - (v == h->label[i] ? 1.0 : 0.0)) * scale;
            for (int64_t c = 0; c < h->C; c++) {
                dx[i * h->C + c] += d * h->wd[v * h->C + c];
                dw[v * h->C + c] += d * h->xd[i * h->C + c];
            }
        }
    }
    free(l);
}

/* Leaves of rows [first, first + n); gradients start as NAN, to be written and not added to. */
static inline ls_tensor *leaf_x(head *h, int64_t first, int64_t n, ls_tensor *out)
{
    h->dx_t = (ls_tensor){ .dtype = LS_F32, .ndim = 2, .dim = { n, h->C }, .data = h->dx + first * h->C };
    *out = h->dx_t;
    out->data = h->x + first * h->C;
    out->grad = &h->dx_t;
    return out;
}

static inline ls_tensor *leaf_w(head *h)
{
    h->dw_t = (ls_tensor){ .dtype = LS_F32, .ndim = 2, .dim = { h->V, h->C }, .data = h->dw };
    h->w = h->dw_t;
    h->w.data = h->wv;
    h->w.grad = &h->dw_t;
    for (int64_t i = 0; i < h->V * h->C; i++) h->dw[i] = NAN;
    for (int64_t i = 0; i < h->N * h->C; i++) h->dx[i] = NAN;
    return &h->w;
}

/* Loss, and gradients when `gradient`; the caller's w must have been made by leaf_w. Returns the scaled loss. */
static inline float fused(ls_tape *t, head *h, int64_t first, int64_t n, double scale, bool gradient, double *sum,
                   int64_t *counted)
{
    ls_tensor x;
    leaf_x(h, first, n, &x);
    ls_tape_reset(t);
    ls_tape_set_grad(t, gradient);
    ls_tensor *y = ls_tape_input(t, LS_I64, 1, &n, h->label + first);
    ls_tensor *loss = ls_linear_cross_entropy(t, &x, &h->w, y, scale, sum, counted);
    if (!loss) fail_msg("%s", ls_last_error());
    if (gradient) {
        const bool none_yet = ls_tape_flops(t) == 0; /* logits */
        assert_true(isnan(*(float *)loss->data) == none_yet);
        assert_true(isnan(*sum) == none_yet);
        if (ls_backward(t, loss) < 0) fail_msg("%s", ls_last_error());
    }
    return *(float *)loss->data;
}

static inline void assert_near(double got, double want, double tolerance, const char *what, int64_t i)
{
    if (!(fabs(got - want) <= tolerance))
        fail_msg("%s[%lld] = %.9g, want %.9g +- %.2g", what, (long long)i, got, want, tolerance);
}

/* A logit is a sum of C products of at most 2: off by at most 2 C (C + 1) 2^-24, and a loss by twice that and the
 * exponential's 2 ulp. A gradient of a logit is off by as much, relatively, and a sum of K of them by K 2^-24 more. */
static inline double tolerance(const head *h, double scale, int64_t terms)
{
    const double logit = 2.0 * (double)h->C * (double)(h->C + 1) * 0x1p-24;
    return scale * 2.0 * (2.0 * logit + 4.0 * 0x1p-24 + (double)terms * 0x1p-24);
}

/* Values that bfloat16 holds, so that the formula in double is of the same numbers. */
static inline uint16_t *round_all(float *x, double *xd, int64_t n)
{
    uint16_t *half = room((size_t)n * sizeof *half);
    for (int64_t i = 0; i < n; i++) {
        half[i] = ls_f32_to_bf16(x[i]);
        xd[i] = (double)(x[i] = ls_bf16_to_f32(half[i]));
    }
    return half;
}

#endif
