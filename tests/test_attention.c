/* Attention and rotary positions: forward and backward against their formulas in
 * double, those against central differences, both against PyTorch.
 *
 * Inputs lie in [-1, 1). A float sum of n terms, in any order, is off by at most
 * about 6 sqrt(n) u times the sum of their sizes, u = 2^-24 (Higham and Mary 2019).
 * From that and from the sizes in the problem at hand:
 *
 *   scores  e = 6 sqrt(D) u max scale sum |q| |k|, and two roundings of the score
 *   p       relative 2 e, an ulp of lse, 2 ulp of the exponential: f
 *   out     f + 6 sqrt(Tk) u
 *   dS      p scale (f |dp - delta| + 12 sqrt(D) u max sum |r| |v|)
 *   dq      sums over keys of dS, where sum p = 1; dk and dv over queries, where sum p is at most S
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#if defined(_OPENMP)
#include <omp.h>
#endif

#include "golden/attention.h"
#include "lockstep/rng.h"
#include "lockstep/tensor.h"
#include "tensor/attention.h"
#include "tensor/gemm_tile.h"
#include "tensor/tape.h"

#define U 0x1p-24
#define SLAB ((size_t)32 << 20)

static uint32_t dice = 1;

static float fraction(void)
{
    dice = dice * 1664525u + 1013904223u;
    return (float)(dice >> 8) * 0x1p-23f - 1.0f;
}

static void *room(size_t n)
{
    void *p = malloc(n);
    assert_non_null(p);
    return p;
}

static ls_tape *tape(size_t slab)
{
    ls_tape *t;
    assert_int_equal(ls_tape_create(slab, NULL, NULL, &t), LS_OK);
    return t;
}

/* --- a problem, and its answer in double ------------------------------------------------ */

enum { Q, K, V, R }; /* R: the gradient of out */

typedef struct problem {
    int64_t B, Tq, Tk, Hq, Hkv, D;
    bool causal;
    float scale;
    int64_t n[4];
    float *x[4], *grad[3];
    double *d[4], *want[3], *out; /* values, gradients and output in double */
    double *mask;    /* [B, Hq, Tq, Tk]: 0 or 1 / (1 - p); NULL: nothing is dropped */
    double most_mask;
    double tolerance_out, tolerance[3];
    double most_sum; /* of the probabilities of a key */
    double delta_size; /* largest sum over d of |dout| |out| */
    ls_tensor t[3], g[3];
} problem;

static problem make(int64_t B, int64_t Tq, int64_t Tk, int64_t Hq, int64_t Hkv, int64_t D, bool causal)
{
    problem p = {
        .B = B, .Tq = Tq, .Tk = Tk, .Hq = Hq, .Hkv = Hkv, .D = D, .causal = causal, .scale = 1.0f / sqrtf((float)D),
        .n = { B * Tq * Hq * D, B * Tk * Hkv * D, B * Tk * Hkv * D, B * Tq * Hq * D }, .most_mask = 1.0,
    };
    for (int i = 0; i < 4; i++) {
        p.x[i] = room((size_t)p.n[i] * sizeof *p.x[i]);
        p.d[i] = room((size_t)p.n[i] * sizeof *p.d[i]);
        for (int64_t j = 0; j < p.n[i]; j++) p.d[i][j] = (double)(p.x[i][j] = fraction());
        if (i == R) break;
        p.grad[i] = room((size_t)p.n[i] * sizeof *p.grad[i]);
        p.want[i] = calloc((size_t)p.n[i], sizeof *p.want[i]);
        assert_non_null(p.want[i]);
        for (int64_t j = 0; j < p.n[i]; j++) p.grad[i][j] = NAN; /* written, not added to */
    }
    p.out = room((size_t)p.n[Q] * sizeof *p.out);
    return p;
}

static void drop(problem *p)
{
    for (int i = 0; i < 4; i++) {
        free(p->x[i]);
        free(p->d[i]);
        if (i == R) break;
        free(p->grad[i]);
        free(p->want[i]);
    }
    free(p->out);
    free(p->mask);
}

/* Of probability j of query i. */
static double kept(const problem *p, int64_t b, int64_t h, int64_t i, int64_t j)
{
    return p->mask ? p->mask[((b * p->Hq + h) * p->Tq + i) * p->Tk + j] : 1.0;
}

static int64_t q_at(const problem *p, int64_t b, int64_t t, int64_t h) { return ((b * p->Tq + t) * p->Hq + h) * p->D; }
static int64_t k_at(const problem *p, int64_t b, int64_t t, int64_t h) { return ((b * p->Tk + t) * p->Hkv + h) * p->D; }
static int64_t keys_of(const problem *p, int64_t i) { return p->causal ? p->Tk - p->Tq + i + 1 : p->Tk; }

static double dot(const double *a, const double *b, int64_t n, double *sizes)
{
    double sum = 0.0, size = 0.0;
    for (int64_t i = 0; i < n; i++) {
        sum += a[i] * b[i];
        size += fabs(a[i] * b[i]);
    }
    if (sizes && size > *sizes) *sizes = size;
    return sum;
}

/* Softmax of query i of head h, over its keys; *lse (may be NULL) and *sizes as they come. */
static void probabilities(const problem *p, int64_t b, int64_t i, int64_t h, double *prob, double *lse, double *sizes)
{
    const int64_t hkv = h / (p->Hq / p->Hkv), n = keys_of(p, i);
    double max = -INFINITY, sum = 0.0;
    for (int64_t j = 0; j < n; j++) {
        prob[j] = (double)p->scale * dot(p->d[Q] + q_at(p, b, i, h), p->d[K] + k_at(p, b, j, hkv), p->D, sizes);
        max = fmax(max, prob[j]);
    }
    for (int64_t j = 0; j < n; j++) sum += exp(prob[j] - max);
    for (int64_t j = 0; j < n; j++) prob[j] = exp(prob[j] - max) / sum;
    if (lse) *lse = max + log(sum);
}

/* L = sum of r out over the heads that read head hkv of sequence b. */
static double loss(const problem *p, int64_t b, int64_t hkv)
{
    const int64_t shared = p->Hq / p->Hkv;
    double *prob = room((size_t)p->Tk * sizeof *prob), sum = 0.0;
    for (int64_t h = hkv * shared; h < (hkv + 1) * shared; h++)
        for (int64_t i = 0; i < p->Tq; i++) {
            probabilities(p, b, i, h, prob, NULL, NULL);
            for (int64_t j = 0; j < keys_of(p, i); j++)
                sum += kept(p, b, h, i, j) * prob[j] *
                       dot(p->d[V] + k_at(p, b, j, hkv), p->d[R] + q_at(p, b, i, h), p->D, NULL);
        }
    free(prob);
    return sum;
}

/* Everything by its formula, and what float may lose. */
static void solve(problem *p)
{
    const int64_t shared = p->Hq / p->Hkv, D = p->D;
    const double scale = (double)p->scale;
    double *prob = room((size_t)p->Tk * sizeof *prob), *dp = room((size_t)p->Tk * sizeof *dp);
    double *column = calloc((size_t)(p->B * p->Tk * p->Hkv), sizeof *column);
    assert_non_null(column);
    double score_size = 0.0, dp_size = 0.0, most_ds = 0.0, most_sum = 0.0, most_lse = 1.0;
    memset(p->out, 0, (size_t)p->n[Q] * sizeof *p->out);
    for (int64_t b = 0; b < p->B; b++)
        for (int64_t h = 0; h < p->Hq; h++)
            for (int64_t i = 0; i < p->Tq; i++) {
                const int64_t hkv = h / shared, n = keys_of(p, i), at = q_at(p, b, i, h);
                double delta = 0.0, lse;
                probabilities(p, b, i, h, prob, &lse, &score_size);
                most_lse = fmax(most_lse, fabs(lse));
                for (int64_t j = 0; j < n; j++) {
                    const double *v = p->d[V] + k_at(p, b, j, hkv);
                    const double keep = kept(p, b, h, i, j);
                    for (int64_t d = 0; d < D; d++) p->out[at + d] += keep * prob[j] * v[d];
                    dp[j] = keep * dot(v, p->d[R] + at, D, &dp_size);
                    delta += prob[j] * dp[j];
                }
                double sizes = 0.0;
                (void)dot(p->out + at, p->d[R] + at, D, &sizes);
                p->delta_size = fmax(p->delta_size, sizes);
                for (int64_t j = 0; j < n; j++) {
                    const int64_t key = k_at(p, b, j, hkv);
                    const double ds = scale * prob[j] * (dp[j] - delta);
                    most_ds = fmax(most_ds, fabs(dp[j] - delta));
                    most_sum = fmax(most_sum, column[(b * p->Tk + j) * p->Hkv + hkv] += prob[j]);
                    for (int64_t d = 0; d < D; d++) {
                        p->want[Q][at + d] += ds * p->d[K][key + d];
                        p->want[K][key + d] += ds * p->d[Q][at + d];
                        p->want[V][key + d] += kept(p, b, h, i, j) * prob[j] * p->d[R][at + d];
                    }
                }
            }
    const double root = 6.0 * sqrt((double)D) * U, keys = 6.0 * sqrt((double)p->Tk) * U,
                 queries = 6.0 * sqrt((double)(p->Tq * shared)) * U;
    const double f = 2.0 * (root + 2.0 * U) * scale * score_size + most_lse * 2.0 * U + 4.0 * U;
    const double most = p->most_mask, slope = scale * (f * most_ds + 2.0 * root * most * dp_size);
    p->most_sum = most_sum;
    p->tolerance_out = most * (f + keys);
    p->tolerance[Q] = slope + keys * scale * most_ds;
    p->tolerance[K] = most_sum * (slope + queries * scale * most_ds);
    p->tolerance[V] = most_sum * most * (f + queries);
    free(column);
    free(dp);
    free(prob);
}

static void assert_near(double got, double want, double tolerance, const problem *p, const char *what, int64_t i)
{
    if (!(fabs(got - want) <= tolerance))
        fail_msg("%s[%lld] = %.9g, want %.9g +- %.2g (B %lld, Tq %lld, Tk %lld, H %lld/%lld, D %lld%s)", what,
                 (long long)i, got, want, tolerance, (long long)p->B, (long long)p->Tq, (long long)p->Tk,
                 (long long)p->Hq, (long long)p->Hkv, (long long)p->D, p->causal ? ", causal" : "");
}

static const char *const name_of[] = { "dq", "dk", "dv" };

static void assert_gradients(const problem *p, double times)
{
    for (int i = Q; i <= V; i++)
        for (int64_t j = 0; j < p->n[i]; j++)
            assert_near((double)p->grad[i][j], times * p->want[i][j], times * p->tolerance[i], p, name_of[i], j);
}

static void assert_output(const problem *p, const float *out)
{
    for (int64_t j = 0; j < p->n[Q]; j++) assert_near((double)out[j], p->out[j], p->tolerance_out, p, "out", j);
}

/* Leaves of the tape over the problem's memory. */
static void as_tensors(problem *p)
{
    for (int i = Q; i <= V; i++) {
        p->t[i] = (ls_tensor){ .dtype = LS_F32, .ndim = 4, .data = p->x[i], .grad = &p->g[i],
                               .dim = { p->B, i == Q ? p->Tq : p->Tk, i == Q ? p->Hq : p->Hkv, p->D } };
        p->g[i] = p->t[i];
        p->g[i].data = p->grad[i];
        p->g[i].grad = NULL;
    }
}

/* As a call on plain memory, with room for the rest. */
static ls_attention_call as_call(const problem *p, float *out, float *lse)
{
    const ls_strides q_by = ls_strides_dense(p->Tq, p->Hq, p->D), k_by = ls_strides_dense(p->Tk, p->Hkv, p->D);
    return (ls_attention_call){
        .B = p->B, .Tq = p->Tq, .Tk = p->Tk, .Hq = p->Hq, .Hkv = p->Hkv, .D = p->D, .scale = p->scale,
        .causal = p->causal, .q = p->x[Q], .k = p->x[K], .v = p->x[V], .out = out, .lse = lse, .q_by = q_by,
        .k_by = k_by, .v_by = k_by, .out_by = q_by, .dout = p->x[R], .dq = p->grad[Q], .dk = p->grad[K],
        .dv = p->grad[V],
    };
}

/* --- attention ---------------------------------------------------------------------------- */

static void assert_case(ls_tape *t, int64_t B, int64_t Tq, int64_t Tk, int64_t Hq, int64_t Hkv, int64_t D, bool causal)
{
    problem p = make(B, Tq, Tk, Hq, Hkv, D, causal);
    solve(&p);
    as_tensors(&p);
    ls_tape_reset(t);
    ls_tensor *out = ls_attention(t, &p.t[Q], &p.t[K], &p.t[V], p.scale, causal);
    assert_int_equal(ls_tape_status(t), LS_OK);
    assert_int_equal(out->ndim, 4);
    assert_memory_equal(out->dim, p.t[Q].dim, sizeof out->dim);
    assert_output(&p, out->data);
    assert_int_equal(ls_backward_from(t, out, p.x[R]), LS_OK);
    assert_gradients(&p, 1.0);
    drop(&p);
}

static void equals_its_formula_at_every_length(void **state)
{
    (void)state;
    ls_tape *t = tape(SLAB);
    for (int64_t T = 1; T <= 130; T++) {
        const int64_t shared = (int64_t[]){ 1, 2, 4 }[T % 3];
        assert_case(t, 1, T, T, 4, 4 / shared, 8, true);
        assert_case(t, 1, T, T, shared, 1, 12, false);
    }
    ls_tape_destroy(t);
}

static void equals_its_formula_at_every_width_and_grouping(void **state)
{
    (void)state;
    static const int64_t length[] = { 1, 3, 16, 33, 64, 65, 100, 128, 130 };
    static const int64_t width[] = { 8, 32, 64, 80, 128 };
    ls_tape *t = tape(SLAB);
    for (size_t l = 0; l < sizeof length / sizeof *length; l++)
        for (size_t w = 0; w < sizeof width / sizeof *width; w++)
            for (int64_t shared = 1; shared <= 4; shared *= 2)
                for (int causal = 0; causal < 2; causal++)
                    assert_case(t, shared == 2 ? 2 : 1, length[l], length[l], shared * (shared == 4 ? 1 : 2),
                                shared == 4 ? 1 : 2, width[w], causal);
    ls_tape_destroy(t);
}

static void queries_may_be_the_last_of_more_keys(void **state)
{
    (void)state;
    static const struct { int64_t Tq, Tk; } row[] = { { 1, 2 },   { 2, 66 },  { 5, 64 },   { 5, 70 },   { 17, 130 },
                                                      { 64, 65 }, { 65, 96 }, { 66, 129 }, { 100, 163 } };
    ls_tape *t = tape(SLAB);
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        for (int causal = 0; causal < 2; causal++) assert_case(t, 2, row[i].Tq, row[i].Tk, 2, 1, 16, causal);
    assert_case(t, 1, 130, 3, 2, 2, 16, false); /* cross attention: fewer keys */
    assert_case(t, 1, 1, 1, 1, 1, 1, true);
    assert_case(t, 1, 70, 70, 1, 1, 256, true);
    ls_tape_destroy(t);
}

/* h = 1e-4: the third derivative and the rounding of L in double leave about 1e-7. */
static void gradients_equal_central_differences(void **state)
{
    (void)state;
    static const struct { int64_t B, Tq, Tk, Hq, Hkv, D, every; bool causal; } row[] = {
        { 2, 5, 5, 2, 2, 4, 1, true },       { 1, 9, 9, 4, 1, 8, 1, true },     { 1, 9, 9, 4, 2, 8, 1, false },
        { 1, 6, 11, 2, 1, 8, 1, true },      { 1, 65, 65, 2, 1, 8, 37, true },   { 1, 130, 130, 2, 2, 8, 311, true },
        { 1, 130, 130, 2, 1, 8, 311, false }, { 1, 67, 67, 1, 1, 80, 997, true }, { 1, 33, 33, 1, 1, 128, 797, true },
    };
    ls_tape *t = tape(SLAB);
    for (size_t k = 0; k < sizeof row / sizeof *row; k++) {
        problem p = make(row[k].B, row[k].Tq, row[k].Tk, row[k].Hq, row[k].Hkv, row[k].D, row[k].causal);
        solve(&p);
        as_tensors(&p);
        ls_tape_reset(t);
        ls_tensor *out = ls_attention(t, &p.t[Q], &p.t[K], &p.t[V], p.scale, p.causal);
        assert_int_equal(ls_backward_from(t, out, p.x[R]), LS_OK);
        for (int i = Q; i <= V; i++)
            for (int64_t j = 0; j < p.n[i]; j += row[k].every) {
                const double h = 1e-4, at = p.d[i][j];
                const int64_t head = j / p.D % (i == Q ? p.Hq : p.Hkv), hkv = i == Q ? head / (p.Hq / p.Hkv) : head;
                const int64_t b = j / (p.n[i] / p.B);
                p.d[i][j] = at + h;
                const double up = loss(&p, b, hkv);
                p.d[i][j] = at - h;
                const double slope = (up - loss(&p, b, hkv)) / (2.0 * h);
                p.d[i][j] = at;
                assert_near(p.want[i][j], slope, 1e-7, &p, "the formula's gradient", j);
                assert_near((double)p.grad[i][j], slope, p.tolerance[i] + 1e-7, &p, name_of[i], j);
            }
        drop(&p);
    }
    ls_tape_destroy(t);
}

static void every_inner_kernel_agrees(void **state)
{
    (void)state;
    static const int64_t length[] = { 5, 23, 64, 77, 130 };
    for (int tile = 0; ls_gemm_tiles[tile]; tile++) {
        if (!ls_gemm_tiles[tile]->supported()) continue;
        for (size_t l = 0; l < sizeof length / sizeof *length; l++) {
            problem p = make(1, length[l], length[l] + 3, 2, 1, 20, l % 2 == 0);
            solve(&p);
            float *out = room((size_t)p.n[Q] * sizeof *out),
                  *lse = room((size_t)(p.B * p.Hq * p.Tq) * sizeof *lse);
            ls_attention_call c = as_call(&p, out, lse);
            c.tile = ls_gemm_tiles[tile];
            ls_attention_forward(&c);
            assert_output(&p, out);
            ls_attention_backward(&c);
            assert_gradients(&p, 1.0);
            free(lse);
            free(out);
            drop(&p);
        }
    }
}

static void packed_equals_apart_bit_for_bit(void **state)
{
    (void)state;
    static const int64_t length[] = { 1, 4, 5, 64, 65, 130 };
    ls_tape *t = tape(SLAB);
    for (size_t l = 0; l < sizeof length / sizeof *length; l++)
        for (int causal = 0; causal < 2; causal++) {
            const int64_t B = 2, T = length[l], H = 3, D = 24, C = H * D;
            problem p = make(B, T, T, H, H, D, causal);
            float *qkv = room((size_t)(3 * p.n[Q]) * sizeof *qkv), *grad = room((size_t)(3 * p.n[Q]) * sizeof *grad);
            for (int64_t n = 0; n < B * T; n++)
                for (int i = Q; i <= V; i++)
                    memcpy(qkv + (n * 3 + i) * C, p.x[i] + n * C, (size_t)C * sizeof *qkv);
            ls_tensor g = { .dtype = LS_F32, .ndim = 3, .dim = { B, T, 3 * C }, .data = grad }, x = g;
            x.data = qkv;
            x.grad = &g;
            as_tensors(&p);
            ls_tape_reset(t);
            ls_tensor *apart = ls_attention(t, &p.t[Q], &p.t[K], &p.t[V], p.scale, causal);
            assert_int_equal(ls_backward_from(t, apart, p.x[R]), LS_OK);
            const double flops = ls_tape_flops(t);
            ls_tensor *packed = ls_attention_packed(t, &x, H, p.scale, causal);
            assert_int_equal(ls_tape_status(t), LS_OK);
            assert_int_equal(packed->ndim, 3);
            assert_int_equal(packed->dim[2], C);
            assert_memory_equal(packed->data, apart->data, (size_t)p.n[Q] * sizeof(float));
            assert_int_equal(ls_backward_from(t, packed, p.x[R]), LS_OK);
            for (int64_t n = 0; n < B * T; n++)
                for (int i = Q; i <= V; i++)
                    assert_memory_equal(grad + (n * 3 + i) * C, p.grad[i] + n * C, (size_t)C * sizeof *grad);
            assert_true(ls_tape_flops(t) == 2.0 * flops);
            free(grad);
            free(qkv);
            drop(&p);
        }
    ls_tape_destroy(t);
}

/* A cache that keeps each head's tokens together, with room for more: [B, Hkv, 150, D]. */
static void decoding_from_a_cache_equals_the_last_rows(void **state)
{
    (void)state;
    enum { MOST_T = 150 };
    for (int64_t T = 1; T <= 130; T += T < 8 ? 1 : 61) {
        problem p = make(2, T, T, 4, 2, 64, true);
        float *full = room((size_t)p.n[Q] * sizeof *full), *out = room((size_t)p.n[Q] * sizeof *out);
        float *cache[2];
        for (int i = 0; i < 2; i++) {
            cache[i] = room((size_t)(p.B * p.Hkv * MOST_T * p.D) * sizeof **cache);
            for (int64_t j = 0; j < p.B * p.Hkv * MOST_T * p.D; j++) cache[i][j] = NAN; /* beyond T: not read */
            for (int64_t b = 0; b < p.B; b++)
                for (int64_t j = 0; j < T; j++)
                    for (int64_t h = 0; h < p.Hkv; h++)
                        memcpy(cache[i] + ((b * p.Hkv + h) * MOST_T + j) * p.D, p.x[K + i] + k_at(&p, b, j, h),
                               (size_t)p.D * sizeof **cache);
        }
        ls_attention_call c = as_call(&p, full, NULL);
        ls_attention_forward(&c);
        static const int64_t last[] = { 1, 2, 4, 5, 40 };
        for (size_t l = 0; l < sizeof last / sizeof *last && last[l] <= T; l++) {
            c = as_call(&p, out, NULL);
            c.k = cache[0];
            c.v = cache[1];
            c.k_by = c.v_by = (ls_strides){ .batch = p.Hkv * MOST_T * p.D, .token = p.D, .head = MOST_T * p.D };
            c.Tq = last[l];
            c.q = p.x[Q] + q_at(&p, 0, T - last[l], 0);
            c.out = out + q_at(&p, 0, T - last[l], 0);
            for (int64_t j = 0; j < p.n[Q]; j++) out[j] = NAN;
            ls_attention_forward(&c);
            for (int64_t b = 0; b < p.B; b++)
                for (int64_t j = q_at(&p, b, 0, 0); j < q_at(&p, b + 1, 0, 0); j++) {
                    if (j < q_at(&p, b, T - last[l], 0)) assert_true(isnan(out[j]));
                    else assert_near((double)out[j], (double)full[j], 1e-6, &p, "decoded", j);
                }
        }
        free(cache[1]);
        free(cache[0]);
        free(out);
        free(full);
        drop(&p);
    }
}

/* Scores of +-1e9 and more: the largest takes all, nothing overflows. */
static void huge_scores_do_not_overflow(void **state)
{
    (void)state;
    ls_tape *t = tape(SLAB);
    for (int64_t T = 3; T <= 130; T += 127)
        for (int sign = -1; sign <= 1; sign += 2) {
            problem p = make(1, T, T, 1, 1, 16, true);
            for (int64_t i = 0; i < T; i++)
                for (int64_t d = 0; d < 16; d++) { /* score of (i, j): sign * 1e9 (j + 1) */
                    p.x[Q][i * 16 + d] = d == 0 ? (float)sign * 1e9f : 0.0f;
                    p.x[K][i * 16 + d] = d == 0 ? (float)(i + 1) : 0.0f;
                }
            as_tensors(&p);
            ls_tape_reset(t);
            ls_tensor *out = ls_attention(t, &p.t[Q], &p.t[K], &p.t[V], 1.0f, true);
            for (int64_t i = 0; i < T; i++) {
                const float *y = (float *)out->data + i * 16, *v = p.x[V] + (sign > 0 ? i : 0) * 16;
                for (int64_t d = 0; d < 16; d++) assert_near((double)y[d], (double)v[d], 1e-30, &p, "out", i);
            }
            assert_int_equal(ls_backward_from(t, out, p.x[R]), LS_OK);
            for (int i = Q; i <= V; i++)
                for (int64_t j = 0; j < p.n[i]; j++) assert_true(isfinite(p.grad[i][j]));
            for (int64_t j = 0; j < 16 && sign > 0; j++) /* each value has one reader */
                assert_near((double)p.grad[V][j], (double)p.x[R][j], 1e-30, &p, "dv", j);
            drop(&p);
        }
    ls_tape_destroy(t);
}

static void a_nan_stays_in_its_row(void **state)
{
    (void)state;
    ls_tape *t = tape(SLAB);
    problem p = make(1, 70, 70, 2, 2, 16, true);
    as_tensors(&p);
    p.x[Q][q_at(&p, 0, 20, 1) + 3] = NAN;
    const float *out = ls_attention(t, &p.t[Q], &p.t[K], &p.t[V], p.scale, true)->data;
    for (int64_t j = 0; j < p.n[Q]; j++) assert_int_equal(!!isnan(out[j]), j / p.D == 20 * 2 + 1);
    drop(&p);
    ls_tape_destroy(t);
}

/* --- bfloat16 -------------------------------------------------------------------------------- */

/* A problem whose numbers bfloat16 holds; half[i] is x[i], and after backward half_grad[i] what grad[i] would be. */
typedef struct halves {
    uint16_t *x[4], *grad[3];
    ls_tensor t[3], g[3];
} halves;

static halves halve(problem *p)
{
    halves h = { 0 };
    for (int i = 0; i < 4; i++) {
        h.x[i] = room((size_t)p->n[i] * sizeof *h.x[i]);
        for (int64_t j = 0; j < p->n[i]; j++) {
            h.x[i][j] = ls_f32_to_bf16(p->x[i][j]);
            p->d[i][j] = (double)(p->x[i][j] = ls_bf16_to_f32(h.x[i][j]));
        }
        if (i == R) break;
        h.grad[i] = room((size_t)p->n[i] * sizeof *h.grad[i]);
        memset(h.grad[i], 0x7f, (size_t)p->n[i] * sizeof *h.grad[i]);
    }
    return h;
}

static void halves_as_tensors(const problem *p, halves *h)
{
    for (int i = Q; i <= V; i++) {
        h->t[i] = (ls_tensor){ .dtype = LS_BF16, .ndim = 4, .data = h->x[i], .grad = &h->g[i],
                               .dim = { p->B, i == Q ? p->Tq : p->Tk, i == Q ? p->Hq : p->Hkv, p->D } };
        h->g[i] = h->t[i];
        h->g[i].data = h->grad[i];
        h->g[i].grad = NULL;
    }
}

static void drop_halves(halves *h)
{
    for (int i = 0; i < 4; i++) {
        free(h->x[i]);
        if (i < R) free(h->grad[i]);
    }
}

/* Storing rounds by 2^-8; so does the output that backward reads: delta is off by 2^-8 delta_size. `times` the gradient
 * was added, and the sum rounded each time. */
static void assert_halves(const problem *p, const uint16_t *out, const halves *h, int times)
{
    const double u = 0x1p-8, delta = (double)p->scale * u * p->delta_size;
    const double lost[3] = { delta, p->most_sum * delta, 0.0 };
    for (int64_t j = 0; j < p->n[Q]; j++)
        assert_near((double)ls_bf16_to_f32(out[j]), p->out[j],
                    p->tolerance_out + u * (fabs(p->out[j]) + p->tolerance_out), p, "out", j);
    for (int i = Q; i <= V; i++)
        for (int64_t j = 0; j < p->n[i]; j++) {
            const double want = times * p->want[i][j], most = times * (p->tolerance[i] + lost[i]);
            assert_near((double)ls_bf16_to_f32(h->grad[i][j]), want, most + times * u * (fabs(want) + most), p,
                        name_of[i], j);
        }
}

static void bf16_equals_its_formula(void **state)
{
    (void)state;
    static const struct { int64_t B, Tq, Tk, Hq, Hkv, D; bool causal; } row[] = {
        { 1, 1, 1, 1, 1, 1, true },      { 2, 5, 5, 2, 2, 8, true },     { 1, 64, 64, 4, 2, 16, true },
        { 2, 65, 65, 4, 1, 80, true },   { 1, 130, 130, 2, 2, 64, true }, { 1, 130, 130, 2, 1, 33, false },
        { 1, 17, 130, 2, 1, 20, true },  { 1, 130, 3, 2, 2, 16, false }, { 1, 70, 70, 1, 1, 256, true },
    };
    ls_tape *t = tape(SLAB);
    for (size_t k = 0; k < sizeof row / sizeof *row; k++)
        for (int times = 1; times <= 2; times++) {
            problem p = make(row[k].B, row[k].Tq, row[k].Tk, row[k].Hq, row[k].Hkv, row[k].D, row[k].causal);
            halves h = halve(&p);
            solve(&p);
            halves_as_tensors(&p, &h);
            ls_tensor *out = NULL;
            for (int i = 0; i < times; i++) {
                ls_tape_reset(t);
                out = ls_attention(t, &h.t[Q], &h.t[K], &h.t[V], p.scale, p.causal);
                if (!out) fail_msg("%s", ls_last_error());
                assert_int_equal(out->dtype, LS_BF16);
                if (ls_backward_from(t, out, h.x[R]) < 0) fail_msg("%s", ls_last_error());
            }
            assert_halves(&p, out->data, &h, times);
            ls_tape_reset(t);
            ls_tape_set_grad(t, false);
            const uint16_t *again = ls_attention(t, &h.t[Q], &h.t[K], &h.t[V], p.scale, p.causal)->data;
            for (int64_t j = 0; j < p.n[Q]; j++)
                assert_near((double)ls_bf16_to_f32(again[j]), p.out[j],
                            p.tolerance_out + 0x1p-8 * (fabs(p.out[j]) + p.tolerance_out), &p, "out without gradient", j);
            ls_tape_set_grad(t, true);
            drop_halves(&h);
            drop(&p);
        }
    ls_tape_destroy(t);
}

static void bf16_packed_equals_apart_bit_for_bit(void **state)
{
    (void)state;
    ls_tape *t = tape(SLAB);
    const int64_t B = 2, T = 70, H = 3, D = 24, C = H * D;
    problem p = make(B, T, T, H, H, D, true);
    halves h = halve(&p);
    halves_as_tensors(&p, &h);
    uint16_t *qkv = room((size_t)(3 * p.n[Q]) * sizeof *qkv), *grad = room((size_t)(3 * p.n[Q]) * sizeof *grad);
    for (int64_t n = 0; n < B * T; n++)
        for (int i = Q; i <= V; i++) memcpy(qkv + (n * 3 + i) * C, h.x[i] + n * C, (size_t)C * sizeof *qkv);
    ls_tensor g = { .dtype = LS_BF16, .ndim = 3, .dim = { B, T, 3 * C }, .data = grad }, x = g;
    x.data = qkv;
    x.grad = &g;
    const ls_attention_dropout dropout = { .p = 0.25f, .seed = 3, .stream = 7, .first = 11 };
    ls_tensor *apart = ls_attention_dropped(t, &h.t[Q], &h.t[K], &h.t[V], p.scale, true, &dropout);
    assert_int_equal(ls_backward_from(t, apart, h.x[R]), LS_OK);
    ls_tensor *packed = ls_attention_packed_dropped(t, &x, H, p.scale, true, &dropout);
    assert_memory_equal(packed->data, apart->data, (size_t)p.n[Q] * sizeof *qkv);
    assert_int_equal(ls_backward_from(t, packed, h.x[R]), LS_OK);
    for (int64_t n = 0; n < B * T; n++)
        for (int i = Q; i <= V; i++)
            assert_memory_equal(grad + (n * 3 + i) * C, h.grad[i] + n * C, (size_t)C * sizeof *grad);
    free(grad);
    free(qkv);
    drop_halves(&h);
    drop(&p);
    ls_tape_destroy(t);
}

/* --- dropout ---------------------------------------------------------------------------------- */

/* The mask written out. */
static void mask_by(problem *p, const ls_attention_dropout *d)
{
    const int64_t n = p->B * p->Hq * p->Tq * p->Tk;
    float *u = room((size_t)n * sizeof *u);
    p->mask = room((size_t)n * sizeof *p->mask);
    p->most_mask = 1.0 / (1.0 - (double)d->p);
    ls_philox_uniform(d->seed, d->stream, d->first, (size_t)n, 0.0f, 1.0f, u);
    for (int64_t i = 0; i < n; i++) p->mask[i] = u[i] < d->p ? 0.0 : p->most_mask;
    free(u);
}

static void dropout_equals_its_formula_and_its_slopes(void **state)
{
    (void)state;
    static const struct { int64_t B, Tq, Tk, Hq, Hkv, D, every; bool causal; float p; } row[] = {
        { 1, 1, 1, 1, 1, 4, 1, true, 0.5f },     { 2, 9, 9, 4, 2, 8, 5, true, 0.3f },
        { 1, 9, 11, 2, 1, 8, 1, true, 0.1f },    { 2, 65, 65, 2, 1, 8, 173, true, 0.2f },
        { 1, 130, 130, 2, 2, 8, 311, true, 0.3f }, { 1, 67, 70, 2, 2, 8, 311, false, 0.9f },
    };
    ls_tape *t = tape(SLAB);
    for (size_t k = 0; k < sizeof row / sizeof *row; k++)
        for (int half = 0; half < 2; half++) {
            problem p = make(row[k].B, row[k].Tq, row[k].Tk, row[k].Hq, row[k].Hkv, row[k].D, row[k].causal);
            const ls_attention_dropout d = { .p = row[k].p, .seed = 5 + k, .stream = 1000 + k, .first = 13 * k };
            halves h = halve(&p);
            mask_by(&p, &d);
            solve(&p);
            as_tensors(&p);
            halves_as_tensors(&p, &h);
            ls_tape_reset(t);
            ls_tensor *x = half ? h.t : p.t, *out = ls_attention_dropped(t, x + Q, x + K, x + V, p.scale, p.causal, &d);
            if (!out) fail_msg("%s", ls_last_error());
            if (ls_backward_from(t, out, half ? (void *)h.x[R] : p.x[R]) < 0) fail_msg("%s", ls_last_error());
            if (half) {
                assert_halves(&p, out->data, &h, 1);
            } else {
                assert_output(&p, out->data);
                assert_gradients(&p, 1.0);
                for (int i = Q; i <= V; i++)
                    for (int64_t j = 0; j < p.n[i]; j += row[k].every) {
                        const double step = 1e-4, at = p.d[i][j];
                        const int64_t head = j / p.D % (i == Q ? p.Hq : p.Hkv), b = j / (p.n[i] / p.B);
                        const int64_t hkv = i == Q ? head / (p.Hq / p.Hkv) : head;
                        p.d[i][j] = at + step;
                        const double up = loss(&p, b, hkv);
                        p.d[i][j] = at - step;
                        const double slope = (up - loss(&p, b, hkv)) / (2.0 * step);
                        p.d[i][j] = at;
                        assert_near((double)p.grad[i][j], slope, p.tolerance[i] + 1e-6, &p, name_of[i], j);
                    }
            }
            drop_halves(&h);
            drop(&p);
        }
    ls_tape_destroy(t);
}

/* No mask for p = 0; and a micro-batch drops what the whole batch does. */
static void dropout_goes_by_the_global_index(void **state)
{
    (void)state;
    ls_tape *t = tape(SLAB);
    problem p = make(2, 70, 70, 2, 2, 16, true);
    as_tensors(&p);
    const size_t nbytes = (size_t)p.n[Q] * sizeof(float);
    ls_attention_dropout d = { .p = 0.0f, .seed = 2, .stream = 3, .first = 100 };
    const void *plain = ls_attention(t, &p.t[Q], &p.t[K], &p.t[V], p.scale, true)->data;
    assert_memory_equal(ls_attention_dropped(t, &p.t[Q], &p.t[K], &p.t[V], p.scale, true, &d)->data, plain, nbytes);
    d.p = 0.4f;
    const char *whole = ls_attention_dropped(t, &p.t[Q], &p.t[K], &p.t[V], p.scale, true, &d)->data;
    assert_memory_not_equal(whole, plain, nbytes);
    for (int i = Q; i <= V; i++) {
        p.t[i].dim[0] = 1;
        p.t[i].data = p.x[i] + p.n[i] / 2;
    }
    d.first += (uint64_t)(p.Hq * p.Tq * p.Tk);
    const void *part = ls_attention_dropped(t, &p.t[Q], &p.t[K], &p.t[V], p.scale, true, &d)->data;
    assert_memory_equal(part, whole + nbytes / 2, nbytes / 2);
    const float wrong[] = { -0.1f, 1.0f, NAN };
    for (size_t i = 0; i < 3; i++) {
        ls_tape_reset(t);
        d.p = wrong[i];
        assert_null(ls_attention_dropped(t, &p.t[Q], &p.t[K], &p.t[V], p.scale, true, &d));
        assert_int_equal(ls_tape_status(t), LS_INVALID);
    }
    drop(&p);
    ls_tape_destroy(t);
}

#if defined(_OPENMP)
static void bits_do_not_depend_on_the_number_of_threads(void **state)
{
    (void)state;
    const int threads = omp_get_max_threads();
    for (int half = 0; half < 2; half++) {
        problem p = make(2, 130, 130, 4, 2, 40, true);
        halves h = halve(&p);
        const ls_attention_dropout d = { .p = 0.2f, .seed = 2, .stream = 3 };
        const size_t size = half ? 2 : 4;
        void *first[4];
        for (int i = 0; i < 4; i++) first[i] = room((size_t)p.n[i] * size);
        for (int n = 1; n <= 3; n++) {
            omp_set_num_threads(n);
            ls_tape *t = tape(SLAB);
            as_tensors(&p);
            halves_as_tensors(&p, &h);
            ls_tensor *x = half ? h.t : p.t, *out = ls_attention_dropped(t, x + Q, x + K, x + V, p.scale, true, &d);
            assert_int_equal(ls_backward_from(t, out, half ? (void *)h.x[R] : p.x[R]), LS_OK);
            for (int i = 0; i < 4; i++) {
                const void *got = i == R ? out->data : half ? (void *)h.grad[i] : p.grad[i];
                if (n == 1) memcpy(first[i], got, (size_t)p.n[i] * size);
                else assert_memory_equal(first[i], got, (size_t)p.n[i] * size);
            }
            ls_tape_destroy(t);
        }
        for (int i = 0; i < 4; i++) free(first[i]);
        drop_halves(&h);
        drop(&p);
    }
    omp_set_num_threads(threads);
}
#endif

/* Also when the slab is full of something else. */
static void two_runs_give_the_same_bits(void **state)
{
    (void)state;
    ls_tape *t = tape(SLAB);
    problem p = make(2, 130, 130, 4, 2, 40, true);
    as_tensors(&p);
    float *first[4];
    for (int i = 0; i < 4; i++) first[i] = room((size_t)p.n[i] * sizeof **first);
    for (int run = 0; run < 2; run++) {
        ls_tape_reset(t);
        for (int i = Q; i <= V; i++) {
            p.t[i].grad_ready = false;
            memset(p.grad[i], 0x7f, (size_t)p.n[i] * sizeof *p.grad[i]);
        }
        ls_tensor *out = ls_attention(t, &p.t[Q], &p.t[K], &p.t[V], p.scale, true);
        assert_int_equal(ls_backward_from(t, out, p.x[R]), LS_OK);
        for (int i = 0; i < 4; i++) {
            const float *got = i < 3 ? p.grad[i] : out->data;
            if (run == 0) memcpy(first[i], got, (size_t)p.n[i] * sizeof **first);
            else assert_memory_equal(first[i], got, (size_t)p.n[i] * sizeof **first);
        }
        ls_tape_reset(t);
        const int64_t all = (int64_t)(SLAB / sizeof(float) / 2);
        memset(ls_op_output(t, LS_F32, 1, &all)->data, 0xff, SLAB / 2);
    }
    for (int i = 0; i < 4; i++) free(first[i]);
    drop(&p);
    ls_tape_destroy(t);
}

static void adds_to_gradients_that_are_there(void **state)
{
    (void)state;
    ls_tape *t = tape(SLAB);
    problem p = make(1, 70, 70, 2, 1, 16, true);
    solve(&p);
    as_tensors(&p);
    for (int pass = 1; pass <= 3; pass++) {
        ls_tape_reset(t);
        ls_tensor *out = ls_attention(t, &p.t[Q], &p.t[K], &p.t[V], p.scale, true);
        assert_int_equal(ls_backward_from(t, out, p.x[R]), LS_OK);
        assert_gradients(&p, pass);
    }
    drop(&p);
    ls_tape_destroy(t);
}

/* softmax(x x^T) x: the gradient of x is the sum of all three. */
static void one_tensor_may_be_all_three(void **state)
{
    (void)state;
    ls_tape *t = tape(SLAB);
    problem p = make(1, 70, 70, 2, 2, 16, true);
    for (int i = K; i <= V; i++) {
        memcpy(p.x[i], p.x[Q], (size_t)p.n[Q] * sizeof(float));
        memcpy(p.d[i], p.d[Q], (size_t)p.n[Q] * sizeof(double));
    }
    solve(&p);
    as_tensors(&p);
    const double tolerance = p.tolerance[Q] + p.tolerance[K] + p.tolerance[V];
    for (int pass = 1; pass <= 2; pass++) {
        ls_tape_reset(t);
        ls_tensor *out = ls_attention(t, &p.t[Q], &p.t[Q], &p.t[Q], p.scale, true);
        assert_int_equal(ls_backward_from(t, out, p.x[R]), LS_OK);
        for (int64_t j = 0; j < p.n[Q]; j++)
            assert_near((double)p.grad[Q][j], pass * (p.want[Q][j] + p.want[K][j] + p.want[V][j]), pass * tolerance, &p,
                        "dx", j);
    }
    drop(&p);
    ls_tape_destroy(t);
}

static void only_wanted_gradients_are_made(void **state)
{
    (void)state;
    ls_tape *t = tape(SLAB);
    for (int only = Q; only <= V; only++) {
        problem p = make(1, 70, 70, 2, 1, 16, true);
        solve(&p);
        as_tensors(&p);
        for (int i = Q; i <= V; i++)
            if (i != only) p.t[i].grad = NULL;
        ls_tape_reset(t);
        ls_tensor *out = ls_attention(t, &p.t[Q], &p.t[K], &p.t[V], p.scale, true);
        assert_int_equal(ls_backward_from(t, out, p.x[R]), LS_OK);
        for (int i = Q; i <= V; i++)
            for (int64_t j = 0; j < p.n[i]; j++) {
                if (i != only) assert_true(isnan(p.grad[i][j]));
                else assert_near((double)p.grad[i][j], p.want[i][j], p.tolerance[i], &p, name_of[i], j);
            }
        drop(&p);
    }
    ls_tape_destroy(t);
}

/* A rope before q and k, so that there are gradients in the slab, too. */
static ls_tensor *record(ls_tape *t, problem *p)
{
    ls_tensor *q = ls_rope(t, &p->t[Q], 1e4, 0), *k = ls_rope(t, &p->t[K], 1e4, 0);
    ls_tensor *out = ls_attention(t, q, k, &p->t[V], p->scale, true);
    assert_int_equal(ls_backward_from(t, out, p->x[R]), LS_OK);
    return out;
}

static void memory_is_known_before_and_does_not_grow_with_the_square(void **state)
{
    (void)state;
    size_t last = 0;
    for (int64_t T = 64; T <= 1024; T *= 2) {
        problem p = make(1, T, T, 2, 1, 8, true);
        ls_tape *real = tape(SLAB), *dry;
        assert_int_equal(ls_tape_create_dry(&dry), LS_OK);
        as_tensors(&p);
        record(real, &p);
        as_tensors(&p);
        record(dry, &p);
        assert_int_equal(ls_tape_peak(dry), ls_tape_peak(real));
        assert_true(ls_tape_flops(dry) == ls_tape_flops(real));
        /* 14 D for each pair that the mask lets through, in each of two heads; 6 an element of q and k for rope */
        assert_true(ls_tape_flops(real) == 14.0 * 8.0 * 2.0 * (double)(T * (T + 1) / 2) + 6.0 * (double)(T * 3 * 8));
        if (last) assert_in_range(ls_tape_peak(real), last, 2 * last);
        last = ls_tape_peak(real);
        /* without gradients: the outputs and nothing else, but some bytes a tensor */
        ls_tape_destroy(real);
        real = tape(SLAB);
        ls_tape_set_grad(real, false);
        assert_non_null(ls_attention(real, &p.t[Q], &p.t[K], &p.t[V], p.scale, true));
        assert_in_range(ls_tape_peak(real), (size_t)p.n[Q] * sizeof(float), (size_t)p.n[Q] * sizeof(float) + 256);
        ls_tape_destroy(dry);
        ls_tape_destroy(real);
        drop(&p);
    }
}

static void attention_names_what_is_wrong(void **state)
{
    (void)state;
    ls_tape *t = tape(1 << 16);
    float data[3][4096] = { { 0 } };
    static const struct { int64_t q[4], k[4], v[4]; ls_status st; const char *says; } row[] = {
        { { 1, 4, 2, 8 }, { 1, 4, 2, 9 }, { 1, 4, 2, 9 }, LS_SHAPE, "queries [1, 4, 2, 8], keys [1, 4, 2, 9]" },
        { { 1, 4, 2, 8 }, { 1, 4, 2, 8 }, { 1, 3, 2, 8 }, LS_SHAPE, "values [1, 3, 2, 8]: expected [B, Tq, Hq, D]" },
        { { 1, 4, 3, 8 }, { 1, 4, 2, 8 }, { 1, 4, 2, 8 }, LS_SHAPE, "Hq a multiple of Hkv" },
        { { 2, 4, 2, 8 }, { 1, 4, 2, 8 }, { 1, 4, 2, 8 }, LS_SHAPE, "queries [2, 4, 2, 8]" },
        { { 1, 5, 2, 8 }, { 1, 4, 2, 8 }, { 1, 4, 2, 8 }, LS_SHAPE, "5 queries and 4 keys: a causal mask" },
        { { 1, 4, 1, 257 }, { 1, 4, 1, 257 }, { 1, 4, 1, 257 }, LS_UNSUPPORTED, "heads of 257: at most 256" },
    };
    ls_tensor x[3];
    for (size_t k = 0; k < sizeof row / sizeof *row; k++) {
        const int64_t *dim[3] = { row[k].q, row[k].k, row[k].v };
        for (int i = 0; i < 3; i++) {
            x[i] = (ls_tensor){ .dtype = LS_F32, .ndim = 4, .data = data[i] };
            memcpy(x[i].dim, dim[i], sizeof x[i].dim);
        }
        ls_tape_reset(t);
        assert_null(ls_attention(t, &x[0], &x[1], &x[2], 1.0f, true));
        assert_int_equal(ls_tape_status(t), row[k].st);
        if (!strstr(ls_last_error(), row[k].says)) fail_msg("'%s' does not say '%s'", ls_last_error(), row[k].says);
    }
    x[0] = (ls_tensor){ .dtype = LS_F32, .ndim = 3, .dim = { 1, 4, 25 }, .data = data[0] };
    ls_tape_reset(t);
    assert_null(ls_attention_packed(t, &x[0], 3, 1.0f, true));
    assert_int_equal(ls_tape_status(t), LS_SHAPE);
    assert_string_equal(ls_last_error(), "attention: packed [1, 4, 25] for 3 heads: expected [B, T, 3 C], C a multiple "
                                         "of the heads");
    ls_tape_destroy(t);
}

/* --- rotary positions ----------------------------------------------------------------------- */

/* y[i] of one head at a position, by the formula. */
static double rope_of(const double *x, int64_t D, int64_t i, double theta, int64_t position)
{
    const double a = pow(theta, -2.0 * (double)(i % (D / 2)) / (double)D) * (double)position;
    return i < D / 2 ? x[i] * cos(a) - x[i + D / 2] * sin(a) : x[i] * cos(a) + x[i - D / 2] * sin(a);
}

/* Two products of at most 1, rounded, with a sine and a cosine rounded to float: 6 u. The rotation is linear, so a
 * difference of any width is its slope. */
static void rope_equals_its_formula_and_its_slopes(void **state)
{
    (void)state;
    static const struct { int64_t B, T, H, D, first; double theta; } row[] = {
        { 1, 1, 1, 2, 0, 1e4 },   { 2, 5, 3, 8, 0, 1e4 },      { 1, 130, 1, 6, 7, 1e4 },  { 1, 70, 2, 64, 100000, 5e5 },
        { 1, 3, 1, 160, 5, 1e4 }, { 1, 66, 1, 80, 2047, 1e4 }, { 2, 3, 2, 128, 131071, 5e5 },
    };
    ls_tape *t = tape(SLAB);
    for (size_t k = 0; k < sizeof row / sizeof *row; k++) {
        const int64_t H = row[k].H, D = row[k].D;
        problem p = make(row[k].B, row[k].T, row[k].T, H, H, D, true);
        as_tensors(&p);
        ls_tape_reset(t);
        ls_tensor *y = ls_rope(t, &p.t[Q], row[k].theta, row[k].first);
        assert_non_null(y);
        for (int pass = 1; pass <= 2; pass++) { /* the second adds */
            assert_int_equal(ls_backward_from(t, y, p.x[R]), LS_OK);
            for (int64_t j = 0; j < p.n[Q]; j++) {
                const int64_t i = j % D, low = i % (D / 2), head = j - i, at = row[k].first + j / (H * D) % row[k].T;
                const double want = rope_of(p.d[Q] + head, D, i, row[k].theta, at);
                assert_near((double)((float *)y->data)[j], want, 6.0 * U, &p, "y", j);
                double slope = 0.0;
                for (int64_t o = low; o < D; o += D / 2) {
                    const double was = p.d[Q][j];
                    p.d[Q][j] = was + 0.5;
                    const double up = rope_of(p.d[Q] + head, D, o, row[k].theta, at);
                    p.d[Q][j] = was - 0.5;
                    slope += p.d[R][head + o] * (up - rope_of(p.d[Q] + head, D, o, row[k].theta, at));
                    p.d[Q][j] = was;
                }
                assert_near((double)p.grad[Q][j], pass * slope, pass * 6.0 * U + 1e-12, &p, "dx", j);
            }
        }
        drop(&p);
    }
    ls_tape_destroy(t);
}

/* In the slab the gradient is turned where it lies. */
static void rope_of_rope_turns_twice(void **state)
{
    (void)state;
    ls_tape *t = tape(SLAB);
    problem p = make(1, 9, 9, 2, 2, 12, true);
    as_tensors(&p);
    ls_tensor *y = ls_rope(t, ls_rope(t, ls_rope(t, &p.t[Q], 100.0, 4), 100.0, 4), 100.0, 4);
    assert_int_equal(ls_backward_from(t, y, p.x[R]), LS_OK);
    for (int64_t j = 0; j < p.n[Q]; j++) {
        const int64_t i = j % 12, at = 3 * (4 + j / 24);
        assert_near((double)((float *)y->data)[j], rope_of(p.d[Q] + j - i, 12, i, 100.0, at), 18.0 * U, &p, "y", j);
        assert_near((double)p.grad[Q][j], rope_of(p.d[R] + j - i, 12, i, 100.0, -at), 18.0 * U, &p, "dx", j);
    }
    drop(&p);
    ls_tape_destroy(t);
}

/* A token's rotation is the same bits, whichever chunk of the sequence it comes in, where chunks begin at multiples
 * of 64; else it may differ by a rounding. */
static void rope_goes_on_from_any_position(void **state)
{
    (void)state;
    enum { T = 200, D = 32 };
    problem p = make(1, T, T, 1, 1, D, true);
    float *whole = room(sizeof(float) * T * D), *part = room(sizeof(float) * T * D);
    ls_rope_turn(&(ls_rope_call){ .B = 1, .T = T, .H = 1, .D = D, .theta = 1e4, .x = p.x[Q], .y = whole });
    for (int64_t t = 0; t < T; t++)
        ls_rope_turn(&(ls_rope_call){ .B = 1, .T = 1, .H = 1, .D = D, .theta = 1e4, .first_position = t,
                                      .x = p.x[Q] + t * D, .y = part + t * D });
    for (int64_t j = 0; j < T * D; j++) assert_near((double)part[j], (double)whole[j], 2.0 * U, &p, "y", j);
    for (int64_t t = 0; t < T; t += 64) assert_memory_equal(part + t * D, whole + t * D, D * sizeof(float));
    ls_rope_turn(&(ls_rope_call){ .B = 1, .T = T - 128, .H = 1, .D = D, .theta = 1e4, .first_position = 128,
                                  .x = p.x[Q] + 128 * D, .y = part + 128 * D });
    assert_memory_equal(part + 128 * D, whole + 128 * D, (T - 128) * D * sizeof(float));
    free(part);
    free(whole);
    drop(&p);
}

static void rope_names_what_is_wrong(void **state)
{
    (void)state;
    static const struct { int ndim; int64_t D; double theta; int64_t first; ls_status st; const char *says; } row[] = {
        { 4, 7, 1e4, 0, LS_SHAPE, "rope: input [1, 2, 3, 7]: expected [B, T, H, D] with an even D" },
        { 3, 8, 1e4, 0, LS_SHAPE, "rope: input [1, 2, 3]" },
        { 4, 8, 0.0, 0, LS_INVALID, "theta 0, first position 0" },
        { 4, 8, 1e4, -1, LS_INVALID, "first position -1" },
        { 4, 8, NAN, 0, LS_INVALID, "theta nan" },
    };
    ls_tape *t = tape(1 << 16);
    float data[64] = { 0 };
    for (size_t k = 0; k < sizeof row / sizeof *row; k++) {
        ls_tensor x = { .dtype = LS_F32, .ndim = row[k].ndim, .dim = { 1, 2, 3, row[k].D }, .data = data };
        ls_tape_reset(t);
        assert_null(ls_rope(t, &x, row[k].theta, row[k].first));
        assert_int_equal(ls_tape_status(t), row[k].st);
        if (!strstr(ls_last_error(), row[k].says)) fail_msg("'%s' does not say '%s'", ls_last_error(), row[k].says);
    }
    ls_tape_destroy(t);
}

/* --- PyTorch ------------------------------------------------------------------------------------ */

static void sixteenths(float *x, int64_t n, int64_t factor, int64_t modulus)
{
    for (int64_t i = 0; i < n; i++) x[i] = (float)(i * factor % modulus - modulus / 2) / 16.0f;
}

/* Values up to 1.5 and sums of at most 8 of them: 1e-5 is far above what float loses. */
static void equals_pytorch(void **state)
{
    (void)state;
    ls_tape *t = tape(SLAB);
    problem p = make(GOLDEN_B, GOLDEN_T, GOLDEN_T, GOLDEN_HQ, GOLDEN_HKV, GOLDEN_D, true);
    static const int64_t number[4][2] = { { 37, 41 }, { 29, 43 }, { 31, 47 }, { 23, 37 } };
    for (int i = 0; i < 4; i++) sixteenths(p.x[i], p.n[i], number[i][0], number[i][1]);
    as_tensors(&p);
    ls_tensor *q = ls_rope(t, &p.t[Q], GOLDEN_THETA, GOLDEN_FIRST),
              *k = ls_rope(t, &p.t[K], GOLDEN_THETA, GOLDEN_FIRST);
    ls_tensor *out = ls_attention(t, q, k, &p.t[V], p.scale, true);
    assert_int_equal(ls_backward_from(t, out, p.x[R]), LS_OK);
    for (int64_t j = 0; j < p.n[Q]; j++) {
        assert_near((double)((float *)q->data)[j], golden_rope_q[j], 1e-6, &p, "rope", j);
        assert_near((double)((float *)out->data)[j], golden_out[j], 1e-5, &p, "out", j);
        assert_near((double)p.grad[Q][j], golden_dq[j], 1e-5, &p, "dq", j);
    }
    for (int64_t j = 0; j < p.n[K]; j++) {
        assert_near((double)p.grad[K][j], golden_dk[j], 1e-5, &p, "dk", j);
        assert_near((double)p.grad[V][j], golden_dv[j], 1e-5, &p, "dv", j);
    }
    drop(&p);
    ls_tape_destroy(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_its_formula_at_every_length),
        cmocka_unit_test(equals_its_formula_at_every_width_and_grouping),
        cmocka_unit_test(queries_may_be_the_last_of_more_keys),
        cmocka_unit_test(gradients_equal_central_differences),
        cmocka_unit_test(every_inner_kernel_agrees),
        cmocka_unit_test(packed_equals_apart_bit_for_bit),
        cmocka_unit_test(decoding_from_a_cache_equals_the_last_rows),
        cmocka_unit_test(huge_scores_do_not_overflow),
        cmocka_unit_test(bf16_equals_its_formula),
        cmocka_unit_test(bf16_packed_equals_apart_bit_for_bit),
        cmocka_unit_test(dropout_equals_its_formula_and_its_slopes),
        cmocka_unit_test(dropout_goes_by_the_global_index),
#if defined(_OPENMP)
        cmocka_unit_test(bits_do_not_depend_on_the_number_of_threads),
#endif
        cmocka_unit_test(a_nan_stays_in_its_row),
        cmocka_unit_test(two_runs_give_the_same_bits),
        cmocka_unit_test(adds_to_gradients_that_are_there),
        cmocka_unit_test(one_tensor_may_be_all_three),
        cmocka_unit_test(only_wanted_gradients_are_made),
        cmocka_unit_test(memory_is_known_before_and_does_not_grow_with_the_square),
        cmocka_unit_test(attention_names_what_is_wrong),
        cmocka_unit_test(rope_equals_its_formula_and_its_slopes),
        cmocka_unit_test(rope_of_rope_turns_twice),
        cmocka_unit_test(rope_goes_on_from_any_position),
        cmocka_unit_test(rope_names_what_is_wrong),
        cmocka_unit_test(equals_pytorch),
    };
    return cmocka_run_group_tests_name("attention", tests, NULL, NULL);
}
