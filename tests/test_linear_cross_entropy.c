/* linear_cross_entropy: loss and gradients against the formula in double, against finite differences of it, and
 * against the ops it fuses; any split of a batch adds up to the same; the logits are never whole. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/team.h"
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

static void *room(size_t n)
{
    void *p = calloc(1, n ? n : 1);
    assert_non_null(p);
    return p;
}

static head make(int64_t N, int64_t C, int64_t V, uint64_t seed)
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

static void drop(head *h)
{
    free(h->x);
    free(h->wv);
    free(h->dx);
    free(h->dw);
    free(h->xd);
    free(h->wd);
    free(h->label);
}

static ls_tape *tape(size_t nbytes)
{
    ls_tape *t;
    if (ls_tape_create(nbytes, NULL, NULL, &t) < 0) fail_msg("%s", ls_last_error());
    return t;
}

/* The sum of the losses of rows [first, first + n), in double. */
static double formula(const head *h, int64_t first, int64_t n)
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
static void slopes_of(const head *h, double scale, double *dx, double *dw)
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
static ls_tensor *leaf_x(head *h, int64_t first, int64_t n, ls_tensor *out)
{
    h->dx_t = (ls_tensor){ .dtype = LS_F32, .ndim = 2, .dim = { n, h->C }, .data = h->dx + first * h->C };
    *out = h->dx_t;
    out->data = h->x + first * h->C;
    out->grad = &h->dx_t;
    return out;
}

static ls_tensor *leaf_w(head *h)
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
static float fused(ls_tape *t, head *h, int64_t first, int64_t n, double scale, bool gradient, double *sum,
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

static void assert_near(double got, double want, double tolerance, const char *what, int64_t i)
{
    if (!(fabs(got - want) <= tolerance))
        fail_msg("%s[%lld] = %.9g, want %.9g +- %.2g", what, (long long)i, got, want, tolerance);
}

/* A logit is a sum of C products of at most 2: off by at most 2 C (C + 1) 2^-24, and a loss by twice that and the
 * exponential's 2 ulp. A gradient of a logit is off by as much, relatively, and a sum of K of them by K 2^-24 more. */
static double tolerance(const head *h, double scale, int64_t terms)
{
    const double logit = 2.0 * (double)h->C * (double)(h->C + 1) * 0x1p-24;
    return scale * 2.0 * (2.0 * logit + 4.0 * 0x1p-24 + (double)terms * 0x1p-24);
}

/* Vocabularies below, at and above a block, and no multiple of 16; rows below, at and above 16. */
static const struct { int64_t N, C, V; } shapes[] = {
    { 1, 1, 1 }, { 1, 3, 2 }, { 5, 7, 15 }, { 17, 4, 16 }, { 16, 9, 100 }, { 33, 8, 257 }, { 3, 5, 4097 }, { 9, 6, 9001 },
};

static void equals_its_formula_in_double(void **state)
{
    (void)state;
    for (size_t s = 0; s < COUNT(shapes); s++)
        for (int ignored = 0; ignored < 2; ignored++) {
            head h = make(shapes[s].N, shapes[s].C, shapes[s].V, s + 1);
            if (ignored)
                for (int64_t n = 0; n < h.N; n += 3) h.label[n] = LS_IGNORE_INDEX;
            ls_tape *t = tape(16 << 20);
            const double scale = 0.25;
            double *dx = room((size_t)(h.N * h.C) * sizeof *dx), *dw = room((size_t)(h.V * h.C) * sizeof *dw);
            double sum, again;
            int64_t counted;
            leaf_w(&h);
            const float loss = fused(t, &h, 0, h.N, scale, true, &sum, &counted);
            slopes_of(&h, scale, dx, dw);
            assert_int_equal(counted, ignored ? h.N - (h.N + 2) / 3 : h.N);
            assert_near(sum, formula(&h, 0, h.N), tolerance(&h, (double)h.N, 0), "sum", 0);
            assert_true(loss == (float)(scale * sum));
            for (int64_t i = 0; i < h.N * h.C; i++)
                assert_near((double)h.dx[i], dx[i], tolerance(&h, scale, h.V), "dx", i);
            for (int64_t i = 0; i < h.V * h.C; i++)
                assert_near((double)h.dw[i], dw[i], 2.0 * tolerance(&h, scale, h.N), "dw", i);
            (void)fused(t, &h, 0, h.N, scale, false, &again, &counted);
            assert_near(again, sum, 1e-6 * sum, "sum without gradients", 0);
            ls_tape_destroy(t);
            free(dx);
            free(dw);
            drop(&h);
        }
}

/* --- bfloat16 ------------------------------------------------------------------------ */

/* Values that bfloat16 holds, so that the formula in double is of the same numbers. */
static uint16_t *round_all(float *x, double *xd, int64_t n)
{
    uint16_t *half = room((size_t)n * sizeof *half);
    for (int64_t i = 0; i < n; i++) {
        half[i] = ls_f32_to_bf16(x[i]);
        xd[i] = (double)(x[i] = ls_bf16_to_f32(half[i]));
    }
    return half;
}

/* |dl[n, v]| summed over the rows. */
static double slope_sizes(const head *h, const double *lse, int64_t v, double scale)
{
    double sum = 0.0;
    for (int64_t i = 0; i < h->N; i++) {
        if (h->label[i] == LS_IGNORE_INDEX) continue;
        double l = 0.0;
        for (int64_t c = 0; c < h->C; c++) l += h->xd[i * h->C + c] * h->wd[v * h->C + c];
        sum += fabs(exp(l - lse[i]) - (v == h->label[i] ? 1.0 : 0.0)) * scale;
    }
    return sum;
}

static double lse_of(const head *h, int64_t i)
{
    double most = -INFINITY, sum = 0.0;
    for (int pass = 0; pass < 2; pass++)
        for (int64_t v = 0; v < h->V; v++) {
            double l = 0.0;
            for (int64_t c = 0; c < h->C; c++) l += h->xd[i * h->C + c] * h->wd[v * h->C + c];
            if (pass == 0) most = l > most ? l : most;
            else sum += exp(l - most);
        }
    return most + log(sum);
}

/* Gradients of the logits are rounded: by 2^-8 of each, |dl| summing to less than 2 scale in a row; then dx is. */
static void bf16_equals_its_formula_in_double(void **state)
{
    (void)state;
    for (size_t s = 0; s < COUNT(shapes); s++)
        for (int again = 0; again < 2; again++) { /* the second time it adds */
            head h = make(shapes[s].N, shapes[s].C, shapes[s].V, s + 21);
            h.label[h.N / 2] = LS_IGNORE_INDEX;
            uint16_t *x = round_all(h.x, h.xd, h.N * h.C), *w = round_all(h.wv, h.wd, h.V * h.C);
            uint16_t *dx16 = room((size_t)(h.N * h.C) * sizeof *dx16);
            double *dx = room((size_t)(h.N * h.C) * sizeof *dx), *dw = room((size_t)(h.V * h.C) * sizeof *dw);
            ls_tape *t = tape(16 << 20);
            const double scale = 0.25;
            double sum, without;
            leaf_w(&h);
            h.w.bf16 = w;
            for (int64_t i = 0; i < h.V * h.C; i++) h.wv[i] = NAN; /* not read */
            ls_tensor gx = { .dtype = LS_BF16, .ndim = 2, .dim = { h.N, h.C }, .data = dx16 }, tx = gx;
            tx.data = x;
            tx.grad = &gx;
            ls_tensor *y = NULL, *loss = NULL;
            for (int i = 0; i <= again; i++) {
                ls_tape_reset(t);
                y = ls_tape_input(t, LS_I64, 1, &h.N, h.label);
                loss = ls_linear_cross_entropy(t, &tx, &h.w, y, scale, &sum, NULL);
                if (!loss) fail_msg("%s", ls_last_error());
                assert_int_equal(loss->dtype, LS_F32);
                if (ls_backward(t, loss) < 0) fail_msg("%s", ls_last_error());
            }
            slopes_of(&h, scale, dx, dw);
            double *lse = room((size_t)h.N * sizeof *lse);
            for (int64_t i = 0; i < h.N; i++) lse[i] = lse_of(&h, i);
            assert_near(sum, formula(&h, 0, h.N), tolerance(&h, (double)h.N, 0), "sum", 0);
            const double times = 1.0 + again;
            for (int64_t i = 0; i < h.N * h.C; i++)
                assert_near((double)ls_bf16_to_f32(dx16[i]), times * dx[i], times * tolerance(&h, scale, h.V) +
                            times * 0x1p-8 * (2.0 * scale + fabs(times * dx[i])), "dx", i);
            for (int64_t v = 0; v < h.V; v++) { /* |x| <= 2 */
                const double lost = 0x1p-8 * 2.0 * slope_sizes(&h, lse, v, scale);
                for (int64_t c = 0; c < h.C; c++)
                    assert_near((double)h.dw[v * h.C + c], times * dw[v * h.C + c],
                                times * (2.0 * tolerance(&h, scale, h.N) + lost), "dw", v * h.C + c);
            }
            ls_tape_set_grad(t, false);
            ls_tape_reset(t);
            y = ls_tape_input(t, LS_I64, 1, &h.N, h.label);
            (void)ls_linear_cross_entropy(t, &tx, &h.w, y, scale, &without, NULL);
            assert_near(without, sum, 1e-6 * sum, "sum without gradients", 0);
            ls_tape_reset(t);
            h.w.bf16 = NULL;
            y = ls_tape_input(t, LS_I64, 1, &h.N, h.label);
            assert_null(ls_linear_cross_entropy(t, &tx, &h.w, y, scale, &without, NULL));
            assert_int_equal(ls_tape_status(t), LS_UNSUPPORTED);
            ls_tape_destroy(t);
            free(dx);
            free(dw);
            free(dx16);
            free(lse);
            free(x);
            free(w);
            drop(&h);
        }
}

/* 64 rows of a block of 4096: enough for threads. */
static void bits_do_not_depend_on_the_number_of_threads(void **state)
{
    (void)state;
    const int threads = ls_team_size();
    head h = make(80, 24, 9001, 4);
    const size_t nx = (size_t)(h.N * h.C) * sizeof(float), nw = (size_t)(h.V * h.C) * sizeof(float);
    float *dx = room(nx), *dw = room(nw);
    double sum[4];
    for (int n = 1; n <= 3; n++) {
        ls_team_resize(n);
        ls_tape *t = tape(16 << 20);
        leaf_w(&h);
        (void)fused(t, &h, 0, h.N, 0.5, true, &sum[n], NULL);
        if (n == 1) {
            memcpy(dx, h.dx, nx);
            memcpy(dw, h.dw, nw);
        }
        assert_true(sum[n] == sum[1]);
        assert_memory_equal(h.dx, dx, nx);
        assert_memory_equal(h.dw, dw, nw);
        ls_tape_destroy(t);
    }
    ls_team_resize(threads);
    free(dx);
    free(dw);
    drop(&h);
}

/* The central difference with h = 1e-5 is off by about h^2 + 2^-52 V / h = 1e-9. */
static void has_the_slopes_of_its_formula(void **state)
{
    (void)state;
    const double step = 1e-5, scale = 0.5;
    head h = make(6, 5, 41, 11);
    h.label[2] = LS_IGNORE_INDEX;
    ls_tape *t = tape(16 << 20);
    double sum;
    leaf_w(&h);
    (void)fused(t, &h, 0, h.N, scale, true, &sum, NULL);
    const struct { double *d; const float *slope; int64_t n; const char *what; } row[] = {
        { h.xd, h.dx, h.N * h.C, "dx" }, { h.wd, h.dw, h.V * h.C, "dw" },
    };
    for (size_t k = 0; k < COUNT(row); k++)
        for (int64_t i = 0; i < row[k].n; i++) {
            const double at = row[k].d[i];
            row[k].d[i] = at + step;
            const double up = formula(&h, 0, h.N);
            row[k].d[i] = at - step;
            const double down = formula(&h, 0, h.N);
            row[k].d[i] = at;
            assert_near((double)row[k].slope[i], scale * (up - down) / (2.0 * step), tolerance(&h, scale, h.V) + 1e-8,
                        row[k].what, i);
        }
    ls_tape_destroy(t);
    drop(&h);
}

static void equals_the_ops_it_fuses(void **state)
{
    (void)state;
    head h = make(48, 24, 5003, 5);
    ls_tape *t = tape(16 << 20);
    const size_t nx = (size_t)(h.N * h.C), nw = (size_t)(h.V * h.C);
    float *dx = room(nx * sizeof *dx), *dw = room(nw * sizeof *dw);
    double sum, unfused;
    ls_tensor x;
    leaf_w(&h);
    (void)fused(t, &h, 0, h.N, 1.0 / (double)h.N, true, &sum, NULL);
    memcpy(dx, h.dx, nx * sizeof *dx);
    memcpy(dw, h.dw, nw * sizeof *dw);
    leaf_w(&h);
    leaf_x(&h, 0, h.N, &x);
    ls_tape_reset(t);
    ls_tensor *y = ls_tape_input(t, LS_I64, 1, &h.N, h.label);
    ls_tensor *loss = ls_softmax_cross_entropy(t, ls_linear(t, &x, &h.w, NULL), y, &unfused, NULL);
    if (ls_backward(t, loss) < 0) fail_msg("%s", ls_last_error());
    assert_near(sum, unfused, 1e-6 * unfused, "sum", 0);
    for (size_t i = 0; i < nx; i++) assert_near((double)dx[i], (double)h.dx[i], 1e-6, "dx", (int64_t)i);
    for (size_t i = 0; i < nw; i++) assert_near((double)dw[i], (double)h.dw[i], 1e-6, "dw", (int64_t)i);
    ls_tape_destroy(t);
    free(dx);
    free(dw);
    drop(&h);
}

/* Micro-batches of unequal sizes, some of them without a counted row, add to one gradient. */
static void adds_up_to_the_same_however_a_batch_is_split(void **state)
{
    (void)state;
    static const int64_t splits[][6] = { { 40 }, { 1, 39 }, { 16, 8, 16 }, { 7, 3, 10, 10, 10 } };
    head h = make(40, 12, 300, 9);
    for (int64_t n = 0; n < h.N; n++)
        if (n % 4 == 1 || (n >= 20 && n < 30)) h.label[n] = LS_IGNORE_INDEX;
    ls_tape *t = tape(16 << 20);
    const size_t nx = (size_t)(h.N * h.C), nw = (size_t)(h.V * h.C);
    float *dx = room(nx * sizeof *dx), *dw = room(nw * sizeof *dw);
    double whole = 0.0;
    for (size_t s = 0; s < COUNT(splits); s++) {
        double loss = 0.0, scale = 1.0 / 23.0, sum;
        int64_t counted = 0, some;
        leaf_w(&h);
        for (int64_t i = 0, first = 0; i < 6 && splits[s][i] > 0; first += splits[s][i++]) {
            loss += (double)fused(t, &h, first, splits[s][i], scale, true, &sum, &some);
            counted += some;
        }
        assert_int_equal(counted, 23);
        if (s == 0) {
            whole = loss;
            memcpy(dx, h.dx, nx * sizeof *dx);
            memcpy(dw, h.dw, nw * sizeof *dw);
            assert_near(loss, formula(&h, 0, h.N) / 23.0, 1e-6 * loss, "loss", 0);
        }
        assert_near(loss, whole, 1e-6 * whole, "loss of a split", (int64_t)s);
        for (size_t i = 0; i < nx; i++) assert_near((double)h.dx[i], (double)dx[i], 1e-6, "dx", (int64_t)i);
        for (size_t i = 0; i < nw; i++) assert_near((double)h.dw[i], (double)dw[i], 1e-6, "dw", (int64_t)i);
    }
    ls_tape_destroy(t);
    free(dx);
    free(dw);
    drop(&h);
}

static void counts_none_or_one(void **state)
{
    (void)state;
    head h = make(20, 6, 70, 3);
    ls_tape *t = tape(16 << 20);
    double sum = -1.0;
    int64_t counted = -1;
    const int64_t kept = h.label[13];
    for (int64_t n = 0; n < h.N; n++) h.label[n] = LS_IGNORE_INDEX;
    leaf_w(&h);
    assert_true(fused(t, &h, 0, h.N, 1.0, true, &sum, &counted) == 0.0f);
    assert_true(sum == 0.0 && counted == 0);
    for (int64_t i = 0; i < h.N * h.C; i++) assert_true(h.dx[i] == 0.0f);
    for (int64_t i = 0; i < h.V * h.C; i++) assert_true(h.dw[i] == 0.0f);

    h.label[13] = kept;
    leaf_w(&h);
    (void)fused(t, &h, 0, h.N, 1.0, true, &sum, &counted);
    assert_int_equal(counted, 1);
    assert_near(sum, formula(&h, 13, 1), tolerance(&h, 1.0, 0), "sum", 0);
    for (int64_t i = 0; i < h.N * h.C; i++) assert_true((h.dx[i] != 0.0f) == (i / h.C == 13));
    ls_tape_destroy(t);
    drop(&h);
}

/* A tensor of the tape as x, and a weight that another op uses, too: what is there is added to. */
static void adds_to_gradients_that_are_there(void **state)
{
    (void)state;
    head h = make(5, 8, 8, 21); /* square: w is used twice */
    ls_tape *t = tape(16 << 20);
    const size_t n = (size_t)(h.V * h.C);
    float *whole = room(n * sizeof *whole);
    for (int fuse = 0; fuse < 2; fuse++) {
        ls_tensor x;
        double sum;
        leaf_w(&h);
        leaf_x(&h, 0, h.N, &x);
        ls_tape_reset(t);
        ls_tensor *y = ls_tape_input(t, LS_I64, 1, &h.N, h.label), *z = ls_gelu(t, ls_linear(t, &x, &h.w, NULL));
        ls_tensor *loss = fuse ? ls_linear_cross_entropy(t, z, &h.w, y, 0.2, &sum, NULL)
                               : ls_softmax_cross_entropy(t, ls_linear(t, z, &h.w, NULL), y, &sum, NULL);
        if (ls_backward(t, loss) < 0) fail_msg("%s", ls_last_error());
        for (size_t i = 0; fuse && i < n; i++)
            assert_near((double)h.dw[i], (double)whole[i], 1e-6, "dw of a weight used twice", (int64_t)i);
        memcpy(whole, h.dw, n * sizeof *whole);
    }
    ls_tape_destroy(t);
    free(whole);
    drop(&h);
}

static void adds_a_second_backward_to_the_first(void **state)
{
    (void)state;
    head h = make(5, 6, 5000, 23); /* two blocks */
    ls_tape *t = tape(16 << 20);
    const size_t nx = (size_t)(h.N * h.C), nw = (size_t)(h.V * h.C);
    float *dx = room(nx * sizeof *dx), *dw = room(nw * sizeof *dw);
    ls_tensor x;
    leaf_w(&h);
    leaf_x(&h, 0, h.N, &x);
    for (int k = 0; k < 2; k++) {
        ls_tape_reset(t);
        ls_tensor *y = ls_tape_input(t, LS_I64, 1, &h.N, h.label);
        if (ls_backward(t, ls_linear_cross_entropy(t, &x, &h.w, y, 0.2, NULL, NULL)) < 0) fail_msg("%s", ls_last_error());
        if (k > 0) break;
        memcpy(dx, h.dx, nx * sizeof *dx);
        memcpy(dw, h.dw, nw * sizeof *dw);
    }
    for (size_t i = 0; i < nx; i++) assert_near((double)h.dx[i], 2.0 * (double)dx[i], 1e-6, "dx", (int64_t)i);
    for (size_t i = 0; i < nw; i++) assert_near((double)h.dw[i], 2.0 * (double)dw[i], 1e-6, "dw", (int64_t)i);
    ls_tape_destroy(t);
    free(dx);
    free(dw);
    drop(&h);
}

static void multiplies_by_the_gradient_it_is_given(void **state)
{
    (void)state;
    head h = make(7, 4, 30, 31);
    ls_tape *t = tape(16 << 20);
    const size_t n = (size_t)(h.V * h.C);
    float *one = room(n * sizeof *one), g = 4.0f;
    double sum;
    ls_tensor x;
    leaf_w(&h);
    (void)fused(t, &h, 0, h.N, 0.5, true, &sum, NULL);
    memcpy(one, h.dw, n * sizeof *one);
    leaf_w(&h);
    leaf_x(&h, 0, h.N, &x);
    ls_tape_reset(t);
    ls_tensor *y = ls_tape_input(t, LS_I64, 1, &h.N, h.label);
    ls_tensor *loss = ls_linear_cross_entropy(t, &x, &h.w, y, 0.5, NULL, NULL);
    assert_int_equal(ls_backward_from(t, loss, &g), LS_OK);
    for (size_t i = 0; i < n; i++) assert_true(h.dw[i] == 4.0f * one[i]); /* a power of two */
    ls_tape_destroy(t);
    free(one);
    drop(&h);
}

static void gives_the_same_bits_twice(void **state)
{
    (void)state;
    head h = make(70, 32, 5000, 2);
    const size_t n = (size_t)(h.V * h.C);
    float *first = room(n * sizeof *first);
    double sum[2];
    for (int k = 0; k < 2; k++) {
        ls_tape *t = tape(16 << 20);
        leaf_w(&h);
        (void)fused(t, &h, 0, h.N, 0.1, true, &sum[k], NULL);
        if (k == 0) memcpy(first, h.dw, n * sizeof *first);
        ls_tape_destroy(t);
    }
    assert_memory_equal(&sum[0], &sum[1], sizeof sum[0]);
    assert_memory_equal(first, h.dw, n * sizeof *first);
    free(first);
    drop(&h);
}

/* Logits in forward, or in backward: loss and gradients have the same bits. */
static void gives_the_same_bits_with_logits_in_forward(void **state)
{
    (void)state;
    static const int64_t rows[] = { 1, 16, 37, 70 };
    for (int i = 0; i < 4; i++) {
        head h = make(rows[i], 32, 5000, 2);
        const size_t n = (size_t)(h.V * h.C), nx = (size_t)(h.N * h.C);
        float *dw = room(n * sizeof *dw), *dx = room(nx * sizeof *dx);
        double sum[2] = { 0 };
        for (int k = 0; k < 2; k++) {
            ls_tape *t = tape(16 << 20);
            leaf_w(&h);
            ls_tape_logits_in_forward(t, k == 1);
            (void)fused(t, &h, 0, h.N, 0.1, true, &sum[k], NULL);
            if (k == 0) memcpy(dw, h.dw, n * sizeof *dw);
            if (k == 0) memcpy(dx, h.dx, nx * sizeof *dx);
            ls_tape_destroy(t);
        }
        assert_memory_equal(&sum[0], &sum[1], sizeof sum[0]);
        assert_memory_equal(dw, h.dw, n * sizeof *dw);
        assert_memory_equal(dx, h.dx, nx * sizeof *dx);
        free(dw);
        free(dx);
        drop(&h);
    }
}

/* The loss is there before backward, and forward's operations are those of the logits: a third of the products. */
static void has_its_loss_after_forward_with_logits_in_forward(void **state)
{
    (void)state;
    head h = make(33, 16, 600, 2);
    double early = 0, late = 0;
    for (int k = 0; k < 2; k++) {
        ls_tape *t = tape(16 << 20);
        leaf_w(&h);
        ls_tape_logits_in_forward(t, k == 1);
        ls_tensor x, *y = ls_tape_input(t, LS_I64, 1, &h.N, h.label);
        double *const sum = k ? &early : &late;
        ls_tensor *loss = ls_linear_cross_entropy(t, leaf_x(&h, 0, h.N, &x), &h.w, y, 1.0, sum, NULL);
        if (!loss) fail_msg("%s", ls_last_error());
        assert_true(k == 1 ? isfinite(early) && early > 0 : isnan(late));
        const double forward = ls_tape_flops(t), before = k ? early : 0;
        assert_true(k == 1 ? forward >= 2.0 * 33 * 16 * 600 : forward == 0);
        assert_int_equal(ls_backward(t, loss), LS_OK);
        if (k == 1) assert_memory_equal(&before, &early, sizeof before);
        ls_tape_destroy(t);
    }
    assert_memory_equal(&early, &late, sizeof early);
    drop(&h);
}

/* --- in halves -------------------------------------------------------------------------------------- */

/* Two micro-batches of the same rows, and where their gradients go. */
typedef struct halves {
    head h;
    ls_dtype dtype;
    bool early;                /* logits in forward */
    uint16_t *x16, *w16;       /* of bfloat16 */
    ls_tensor x[2], dx[2];     /* one per micro-batch; */
    ls_tape *t[2];
    ls_tensor *loss[2];
    double sum[2];
} halves;

static halves make_halves(int64_t N, int64_t V, ls_dtype dtype, bool early)
{
    halves f = { .h = make(N, 24, V, 5), .dtype = dtype, .early = early };
    if (N > 2) f.h.label[N / 2] = LS_IGNORE_INDEX;
    f.x16 = round_all(f.h.x, f.h.xd, N * f.h.C);
    f.w16 = round_all(f.h.wv, f.h.wd, V * f.h.C);
    return f;
}

static void leaf_halves(halves *f)
{
    leaf_w(&f->h);
    f->h.w.bf16 = f->w16;
    for (int k = 0; k < 2; k++) {
        f->dx[k] = (ls_tensor){ .dtype = f->dtype, .ndim = 2, .dim = { f->h.N, f->h.C } };
        f->dx[k].data = room((size_t)(f->h.N * f->h.C) * sizeof(float));
        f->x[k] = f->dx[k];
        f->x[k].data = f->dtype == LS_BF16 ? (void *)f->x16 : f->h.x;
        f->x[k].grad = &f->dx[k];
    }
}

/* F forward, B backward, W weights, each of tape 0 or 1. */
static void play_halves(halves *f, const char *schedule)
{
    for (const char *s = schedule; *s; s += 2) {
        const int k = s[1] - '0';
        ls_tape *t = f->t[k];
        if (*s == 'F') {
            ls_tape_reset(t);
            ls_tape_logits_in_forward(t, f->early);
            ls_tensor *y = ls_tape_input(t, LS_I64, 1, &f->h.N, f->h.label);
            f->loss[k] = ls_linear_cross_entropy(t, &f->x[k], &f->h.w, y, 0.25, &f->sum[k], NULL);
            if (!f->loss[k]) fail_msg("%s", ls_last_error());
        } else if ((*s == 'B' ? ls_backward(t, f->loss[k]) : ls_backward_weights(t)) < 0) {
            fail_msg("%s", ls_last_error());
        }
    }
}

static void drop_halves(halves *f)
{
    for (int k = 0; k < 2; k++) {
        ls_tape_destroy(f->t[k]);
        free(f->dx[k].data);
    }
    free(f->x16);
    free(f->w16);
    drop(&f->h);
}

/* A weight half of its own, however late, changes no bit of loss and gradients. */
static void gives_the_same_bits_in_halves(void **state)
{
    (void)state;
    static const char *const schedules[] = { "F0B0W0F1B1W1", "F0B0F1B1W0W1", "F0F1B0B1W0W1" };
    static const struct { int64_t N, V; } sizes[] = { { 1, 1 }, { 5, 15 }, { 17, 257 }, { 37, 4097 }, { 70, 9001 } };
    for (size_t i = 0; i < COUNT(sizes); i++)
        for (int how = 0; how < 4; how++) {
            const ls_dtype dtype = how & 1 ? LS_BF16 : LS_F32;
            halves want = make_halves(sizes[i].N, sizes[i].V, dtype, (how & 2) != 0);
            const size_t nw = (size_t)(want.h.V * want.h.C) * sizeof(float);
            for (int k = 0; k < 2; k++) want.t[k] = tape(16 << 20);
            leaf_halves(&want);
            play_halves(&want, "F0B0F1B1");
            for (size_t s = 0; s < COUNT(schedules); s++) {
                halves got = make_halves(sizes[i].N, sizes[i].V, dtype, (how & 2) != 0);
                ls_tape_scratch *scratch;
                assert_int_equal(ls_tape_scratch_create(16 << 20, NULL, &scratch), LS_OK);
                for (int k = 0; k < 2; k++) {
                    assert_int_equal(ls_tape_create_shared(scratch, 16 << 20, NULL, NULL, &got.t[k]), LS_OK);
                    assert_int_equal(ls_tape_defer_weights(got.t[k], true), LS_OK);
                }
                leaf_halves(&got);
                play_halves(&got, schedules[s]);
                for (int k = 0; k < 2; k++) {
                    assert_memory_equal(&got.sum[k], &want.sum[k], sizeof(double));
                    assert_memory_equal(got.dx[k].data, want.dx[k].data, ls_tensor_nbytes(&want.dx[k]));
                    assert_true(ls_tape_flops(got.t[k]) == ls_tape_flops(want.t[k]));
                }
                assert_memory_equal(got.h.dw, want.h.dw, nw);
                drop_halves(&got);
                ls_tape_scratch_destroy(scratch);
            }
            drop_halves(&want);
        }
}

/* The half of the input is two products of three, and leaves 4 bytes per logit (of bfloat16 2) in the tape; logits of
 * more than 64 MiB are not stored, so both gradients come at once. */
static void stores_slopes_of_logits_until_the_weight_half(void **state)
{
    (void)state;
    static const struct { int64_t N; bool halves; } sizes[] = { { 64, true }, { 320, true }, { 512, false } };
    const int64_t C = 768, V = 50257;
    for (size_t i = 0; i < COUNT(sizes); i++)
        for (int bf16 = 0; bf16 < 2; bf16++) {
            const int64_t N = sizes[i].N;
            ls_tape_scratch *scratch;
            ls_tape *t;
            ls_tensor dw = { .dtype = LS_F32, .ndim = 2, .dim = { V, C } }, w = dw;
            ls_tensor dx = { .dtype = bf16 ? LS_BF16 : LS_F32, .ndim = 2, .dim = { N, C } }, x = dx;
            w.grad = &dw;
            x.grad = &dx;
            assert_int_equal(ls_tape_scratch_create_dry(&scratch), LS_OK);
            assert_int_equal(ls_tape_create_shared(scratch, 0, NULL, NULL, &t), LS_OK);
            assert_int_equal(ls_tape_defer_weights(t, true), LS_OK);
            ls_tensor *y = ls_tape_input(t, LS_I64, 1, &N, NULL);
            ls_tensor *loss = ls_linear_cross_entropy(t, &x, &w, y, 1.0, NULL, NULL);
            assert_int_equal(ls_backward(t, loss), LS_OK);
            const double product = 2.0 * (double)(N * V * C), first = ls_tape_flops(t);
            assert_true(first > (sizes[i].halves ? 2 : 3) * product && first < (sizes[i].halves ? 2.1 : 3.1) * product);
            assert_int_equal(ls_tape_pending(t), sizes[i].halves);
            assert_int_equal(w.grad_ready, !sizes[i].halves);
            assert_int_equal(ls_backward_weights(t), LS_OK);
            assert_true(ls_tape_flops(t) - first == (sizes[i].halves ? product : 0.0));
            assert_true(w.grad_ready);
            const size_t slopes = sizes[i].halves ? (size_t)(N * V) * (bf16 ? 2 : 4) : 0, own = ls_tape_peak(t);
            assert_true(own >= slopes && own < slopes + slopes / 200 + 4096); /* blocks of the vocabulary are alike */
            ls_tape_destroy(t);
            ls_tape_scratch_destroy(scratch);
        }
}

/* --- memory ----------------------------------------------------------------------------------------- */

/* Bytes that a head over N rows takes of the slab, on a dry tape: x is a leaf, so dx is not among them. */
static size_t peak(int64_t N, int64_t C, int64_t V, bool gradient)
{
    ls_tape *t;
    assert_int_equal(ls_tape_create_dry(&t), LS_OK);
    ls_tensor grad = { .dtype = LS_F32, .ndim = 2, .dim = { V, C } }, w = grad;
    w.grad = &grad;
    ls_tape_set_grad(t, gradient);
    ls_tensor *x = ls_tape_input(t, LS_F32, 2, (const int64_t[]){ N, C }, NULL);
    ls_tensor *y = ls_tape_input(t, LS_I64, 1, &N, NULL);
    ls_tensor *loss = ls_linear_cross_entropy(t, x, &w, y, 1.0, NULL, NULL);
    if (!loss) fail_msg("%s", ls_last_error());
    if (gradient && ls_backward(t, loss) < 0) fail_msg("%s", ls_last_error());
    const size_t n = ls_tape_peak(t);
    ls_tape_destroy(t);
    return n;
}

static void takes_memory_for_a_part_of_the_logits_only(void **state)
{
    (void)state;
    enum { MIB = 1 << 20 };
    /* GPT-2's vocabulary: 64 MiB and a little, where the logits of 64 Ki rows are 13 GB; 4 MiB without gradients */
    const size_t one = peak(1024, 768, 50257, true), many = peak(65536, 768, 50257, true);
    assert_true(one < 65 * MIB && many < 65 * MIB);
    assert_true(peak(1024, 768, 50257, false) < 5 * MIB && peak(65536, 768, 50257, false) < 5 * MIB);
    /* a larger vocabulary: fewer rows at a time, 16 at least */
    assert_true(peak(65536, 64, 1 << 20, true) < 65 * MIB);
    assert_true(peak(65536, 64, 1 << 21, true) < 129 * MIB);
    /* and no more than the logits where these are small */
    assert_true(peak(64, 384, 256, true) < 64 * 256 * 4 + 64 * 32 + 4096);
}

/* Rows in several parts: the budget is met with a vocabulary of 2^20 and 16 rows at a time. */
static void cuts_rows_when_the_vocabulary_is_large(void **state)
{
    (void)state;
    head h = make(40, 2, 1 << 20, 13);
    ls_tape *t = tape((size_t)80 << 20);
    double sum, got[2];
    h.label[20] = LS_IGNORE_INDEX;
    leaf_w(&h);
    (void)fused(t, &h, 0, h.N, 1.0, true, &sum, NULL);
    assert_near(sum, formula(&h, 0, h.N), tolerance(&h, (double)h.N, 0), "sum", 0);
    double total[2] = { 0 }, want[2] = { 0 };
    for (int64_t v = 0; v < h.V; v++) /* rows of dl sum to nothing: so do the columns of dw */
        for (int64_t c = 0; c < h.C; c++) total[c] += (double)h.dw[v * h.C + c];
    for (int64_t c = 0; c < h.C; c++) assert_near(total[c], 0.0, 1e-3, "sum of dw", c);
    for (int k = 0; k < 2; k++) { /* the first and last label's rows of dw, by finite differences */
        const int64_t at = h.label[k ? 39 : 0] * h.C;
        const double step = 1e-4, w = h.wd[at];
        h.wd[at] = w + step;
        got[0] = formula(&h, 0, h.N);
        h.wd[at] = w - step;
        got[1] = formula(&h, 0, h.N);
        h.wd[at] = w;
        want[k] = (got[0] - got[1]) / (2.0 * step);
        assert_near((double)h.dw[at], want[k], 1e-5, "dw", at);
    }
    ls_tape_destroy(t);
    drop(&h);
}

/* --- the last row ----------------------------------------------------------------------------------- */

static void gives_the_logits_after_the_last_token(void **state)
{
    (void)state;
    head h = make(12, 10, 37, 17); /* 3 sequences of 4 */
    ls_tape *t = tape(1 << 20);
    ls_tape_set_grad(t, false);
    leaf_w(&h);
    for (int sequences = 1; sequences <= 3; sequences += 2) {
        const int64_t dim[3] = { sequences, h.N / sequences, h.C };
        ls_tape_reset(t);
        const int flat = sequences == 1; /* [T, C] */
        ls_tensor *x = ls_tape_input(t, LS_F32, 3 - flat, dim + flat, h.x);
        ls_tensor *y = ls_last_logits(t, x, &h.w);
        if (!y) fail_msg("%s", ls_last_error());
        assert_int_equal(y->ndim, 2);
        assert_int_equal(y->dim[0], sequences);
        assert_int_equal(y->dim[1], h.V);
        for (int64_t b = 0; b < sequences; b++)
            for (int64_t v = 0; v < h.V; v++) {
                const double *last = h.xd + ((b + 1) * dim[1] - 1) * h.C;
                double want = 0.0;
                for (int64_t c = 0; c < h.C; c++) want += last[c] * h.wd[v * h.C + c];
                assert_near((double)((float *)y->data)[b * h.V + v], want, tolerance(&h, 1.0, 0), "logit", v);
            }
    }
    ls_tape_reset(t);
    ls_tape_set_grad(t, true);
    ls_tensor x;
    assert_null(ls_last_logits(t, leaf_x(&h, 0, h.N, &x), &h.w));
    assert_int_equal(ls_tape_status(t), LS_UNSUPPORTED);
    ls_tape_destroy(t);
    drop(&h);
}

/* --- failures --------------------------------------------------------------------------------------- */

static void names_what_does_not_fit(void **state)
{
    (void)state;
    head h = make(4, 3, 10, 1);
    ls_tape *t = tape(1 << 20);
    ls_tensor x;
    leaf_w(&h);
    static const struct { int64_t label; const char *says; } row[] = {
        { 10, "label 10 of row 2: expected 0 to 9, the vocabulary of 10, or -100: not counted" },
        { -1, "label -1 of row 2" },
        { -101, "label -101 of row 2" },
        { INT64_MAX, "label 9223372036854775807 of row 2" },
    };
    for (size_t i = 0; i < COUNT(row); i++) {
        ls_tape_reset(t);
        h.label[2] = row[i].label;
        ls_tensor *y = ls_tape_input(t, LS_I64, 1, &h.N, h.label);
        assert_null(ls_linear_cross_entropy(t, leaf_x(&h, 0, h.N, &x), &h.w, y, 1.0, NULL, NULL));
        assert_int_equal(ls_tape_status(t), LS_INVALID);
        if (!strstr(ls_last_error(), row[i].says)) fail_msg("expected \"%s\" in \"%s\"", row[i].says, ls_last_error());
    }
    h.label[2] = 0;
    ls_tape_reset(t);
    ls_tensor *y = ls_tape_input(t, LS_I64, 1, (const int64_t[]){ 3 }, h.label);
    assert_null(ls_linear_cross_entropy(t, leaf_x(&h, 0, h.N, &x), &h.w, y, 1.0, NULL, NULL));
    assert_int_equal(ls_tape_status(t), LS_SHAPE);
    assert_non_null(strstr(ls_last_error(), "input [4, 3], weight [10, 3], labels [3]"));
    ls_tape_reset(t);
    y = ls_tape_input(t, LS_F32, 1, &h.N, h.x);
    assert_null(ls_linear_cross_entropy(t, leaf_x(&h, 0, h.N, &x), &h.w, y, 1.0, NULL, NULL));
    assert_int_equal(ls_tape_status(t), LS_UNSUPPORTED);
    ls_tape_destroy(t);
    drop(&h);
}

static void says_when_the_slab_is_too_small(void **state)
{
    (void)state;
    head h = make(64, 3, 1000, 1);
    ls_tape *t = tape(64 << 10); /* the logits of 64 rows take 256 KiB */
    for (int gradient = 0; gradient < 2; gradient++) {
        ls_tensor x;
        leaf_w(&h);
        leaf_x(&h, 0, h.N, &x);
        ls_tape_reset(t);
        ls_tape_set_grad(t, gradient);
        ls_tensor *y = ls_tape_input(t, LS_I64, 1, &h.N, h.label);
        ls_tensor *loss = ls_linear_cross_entropy(t, &x, &h.w, y, 1.0, NULL, NULL);
        if (gradient) assert_int_equal(ls_backward(t, loss), LS_NO_MEMORY);
        else assert_null(loss);
        assert_int_equal(ls_tape_status(t), LS_NO_MEMORY);
        assert_true(!x.grad_ready && !h.w.grad_ready);
    }
    ls_tape_destroy(t);
    drop(&h);
}

static void counts_its_work(void **state)
{
    (void)state;
    head h = make(32, 16, 100, 1);
    ls_tape *t = tape(1 << 20);
    const double product = 2.0 * 32.0 * 16.0 * 100.0, elements = 32.0 * 100.0;
    double sum;
    leaf_w(&h);
    (void)fused(t, &h, 0, h.N, 1.0, true, &sum, NULL);
    assert_true(ls_tape_flops(t) >= 3.0 * product && ls_tape_flops(t) <= 3.0 * product + 20.0 * elements);
    (void)fused(t, &h, 0, h.N, 1.0, false, &sum, NULL);
    assert_true(ls_tape_flops(t) >= product && ls_tape_flops(t) <= product + 20.0 * elements);
    ls_tape_destroy(t);
    drop(&h);
}

static void lets_a_value_that_is_not_finite_be_seen(void **state)
{
    (void)state;
    static const float bad[] = { NAN, INFINITY, -INFINITY };
    for (size_t k = 0; k < COUNT(bad); k++) {
        head h = make(6, 3, 40, 1);
        ls_tape *t = tape(1 << 20);
        double sum;
        leaf_w(&h);
        h.x[4] = bad[k];
        (void)fused(t, &h, 0, h.N, 1.0, true, &sum, NULL);
        assert_true(!isfinite(sum));
        ls_tape_destroy(t);
        drop(&h);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_its_formula_in_double),
        cmocka_unit_test(bf16_equals_its_formula_in_double),
        cmocka_unit_test(bits_do_not_depend_on_the_number_of_threads),
        cmocka_unit_test(has_the_slopes_of_its_formula),
        cmocka_unit_test(equals_the_ops_it_fuses),
        cmocka_unit_test(adds_up_to_the_same_however_a_batch_is_split),
        cmocka_unit_test(counts_none_or_one),
        cmocka_unit_test(adds_to_gradients_that_are_there),
        cmocka_unit_test(adds_a_second_backward_to_the_first),
        cmocka_unit_test(multiplies_by_the_gradient_it_is_given),
        cmocka_unit_test(gives_the_same_bits_twice),
        cmocka_unit_test(gives_the_same_bits_with_logits_in_forward),
        cmocka_unit_test(has_its_loss_after_forward_with_logits_in_forward),
        cmocka_unit_test(gives_the_same_bits_in_halves),
        cmocka_unit_test(stores_slopes_of_logits_until_the_weight_half),
        cmocka_unit_test(takes_memory_for_a_part_of_the_logits_only),
        cmocka_unit_test(cuts_rows_when_the_vocabulary_is_large),
        cmocka_unit_test(gives_the_logits_after_the_last_token),
        cmocka_unit_test(names_what_does_not_fit),
        cmocka_unit_test(says_when_the_slab_is_too_small),
        cmocka_unit_test(counts_its_work),
        cmocka_unit_test(lets_a_value_that_is_not_finite_be_seen),
    };
    return cmocka_run_group_tests_name("linear_cross_entropy", tests, NULL, NULL);
}
