/* harness_attention.h -- a problem of attention and its answer, by its formula in double,
 * with what float and bfloat16 may lose, for tests of attention and of rotary positions.
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
 *
 * Of bfloat16 numbers are rounded when they are stored; and P and dS for products of pairs, each by 2^-8 of itself
 * at most: then out, where sum p = 1, dq, dk and dv are off by 2^-8 of the sums of sizes above.
 */
#ifndef LS_TEST_HARNESS_ATTENTION_H
#define LS_TEST_HARNESS_ATTENTION_H
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
#include "tensor/amx.h"
#include "tensor/attention.h"
#include "tensor/gemm_tile.h"
#include "tensor/tape.h"

#define U 0x1p-24
#define SLAB ((size_t)32 << 20)

static uint32_t dice = 1;

static inline float fraction(void)
{
    dice = dice * 1664525u + 1013904223u;
    return (float)(dice >> 8) * 0x1p-23f - 1.0f;
}

static inline void *room(size_t n)
{
    void *p = malloc(n);
    assert_non_null(p);
    return p;
}

static inline ls_tape *tape(size_t slab)
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
    double delta_parts; /* and with the sum over j of p |v| for |out| */
    double slope_size; /* largest scale |dp - delta| */
    ls_tensor t[3], g[3];
} problem;

static inline problem make(int64_t B, int64_t Tq, int64_t Tk, int64_t Hq, int64_t Hkv, int64_t D, bool causal)
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

static inline void drop(problem *p)
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
static inline double kept(const problem *p, int64_t b, int64_t h, int64_t i, int64_t j)
{
    return p->mask ? p->mask[((b * p->Hq + h) * p->Tq + i) * p->Tk + j] : 1.0;
}

static inline int64_t q_at(const problem *p, int64_t b, int64_t t, int64_t h)
{
    return ((b * p->Tq + t) * p->Hq + h) * p->D;
}

static inline int64_t k_at(const problem *p, int64_t b, int64_t t, int64_t h)
{
    return ((b * p->Tk + t) * p->Hkv + h) * p->D;
}

static inline int64_t keys_of(const problem *p, int64_t i) { return p->causal ? p->Tk - p->Tq + i + 1 : p->Tk; }

static inline double dot(const double *a, const double *b, int64_t n, double *sizes)
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
static inline void probabilities(const problem *p, int64_t b, int64_t i, int64_t h, double *prob, double *lse,
                                 double *sizes)
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
static inline double loss(const problem *p, int64_t b, int64_t hkv)
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
static inline void solve(problem *p)
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
                double delta = 0.0, parts = 0.0, lse;
                probabilities(p, b, i, h, prob, &lse, &score_size);
                most_lse = fmax(most_lse, fabs(lse));
                for (int64_t j = 0; j < n; j++) {
                    const double *v = p->d[V] + k_at(p, b, j, hkv);
                    const double keep = kept(p, b, h, i, j);
                    for (int64_t d = 0; d < D; d++) p->out[at + d] += keep * prob[j] * v[d];
                    double size = 0.0;
                    dp[j] = keep * dot(v, p->d[R] + at, D, &size);
                    dp_size = fmax(dp_size, size);
                    delta += prob[j] * dp[j];
                    parts += prob[j] * keep * size;
                }
                p->delta_parts = fmax(p->delta_parts, parts);
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
    p->slope_size = scale * most_ds;
    p->tolerance_out = most * (f + keys);
    p->tolerance[Q] = slope + keys * scale * most_ds;
    p->tolerance[K] = most_sum * (slope + queries * scale * most_ds);
    p->tolerance[V] = most_sum * most * (f + queries);
    free(column);
    free(dp);
    free(prob);
}

static inline void assert_near(double got, double want, double tolerance, const problem *p, const char *what, int64_t i)
{
    if (!(fabs(got - want) <= tolerance))
        fail_msg("%s[%lld] = %.9g, want %.9g +- %.2g (B %lld, Tq %lld, Tk %lld, H %lld/%lld, D %lld%s)", what,
                 (long long)i, got, want, tolerance, (long long)p->B, (long long)p->Tq, (long long)p->Tk,
                 (long long)p->Hq, (long long)p->Hkv, (long long)p->D, p->causal ? ", causal" : "");
}

static const char *const name_of[] = { "dq", "dk", "dv" };

static inline void assert_gradients(const problem *p, double times)
{
    for (int i = Q; i <= V; i++)
        for (int64_t j = 0; j < p->n[i]; j++)
            assert_near((double)p->grad[i][j], times * p->want[i][j], times * p->tolerance[i], p, name_of[i], j);
}

static inline void assert_output(const problem *p, const float *out)
{
    for (int64_t j = 0; j < p->n[Q]; j++) assert_near((double)out[j], p->out[j], p->tolerance_out, p, "out", j);
}

/* Leaves of the tape over the problem's memory. */
static inline void as_tensors(problem *p)
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
static inline ls_attention_call as_call(const problem *p, float *out, float *lse)
{
    const ls_strides q_by = ls_strides_dense(p->Tq, p->Hq, p->D), k_by = ls_strides_dense(p->Tk, p->Hkv, p->D);
    return (ls_attention_call){
        .B = p->B, .Tq = p->Tq, .Tk = p->Tk, .Hq = p->Hq, .Hkv = p->Hkv, .D = p->D, .scale = p->scale,
        .causal = p->causal, .q = p->x[Q], .k = p->x[K], .v = p->x[V], .out = out, .lse = lse, .q_by = q_by,
        .k_by = k_by, .v_by = k_by, .out_by = q_by, .dout = p->x[R], .dq = p->grad[Q], .dk = p->grad[K],
        .dv = p->grad[V],
    };
}

/* --- bfloat16 -------------------------------------------------------------------------------- */

/* A problem whose numbers bfloat16 holds; half[i] is x[i], and after backward half_grad[i] what grad[i] would be. */
typedef struct halves {
    uint16_t *x[4], *grad[3];
    ls_tensor t[3], g[3];
} halves;

static inline halves halve(problem *p)
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

static inline void halves_as_tensors(const problem *p, halves *h)
{
    for (int i = Q; i <= V; i++) {
        h->t[i] = (ls_tensor){ .dtype = LS_BF16, .ndim = 4, .data = h->x[i], .grad = &h->g[i],
                               .dim = { p->B, i == Q ? p->Tq : p->Tk, i == Q ? p->Hq : p->Hkv, p->D } };
        h->g[i] = h->t[i];
        h->g[i].data = h->grad[i];
        h->g[i].grad = NULL;
    }
}

static inline void drop_halves(halves *h)
{
    for (int i = 0; i < 4; i++) {
        free(h->x[i]);
        if (i < R) free(h->grad[i]);
    }
}

/* Storing rounds by 2^-8; so does the output that backward reads: delta is off by 2^-8 delta_size. `times` the
 * gradient was added, and the sum rounded each time. With products of pairs P and dS are rounded, too, by r = 2^-8:
 * out is off by r sum p |v|, delta by r delta_parts, and the gradients by r times the sums of |p| and |dS|, themselves
 * as far off as they may be. */
static inline void assert_halves(const problem *p, const uint16_t *out, const halves *h, int times, bool pairs)
{
    const double u = 0x1p-8, r = pairs ? 0x1p-8 : 0.0;
    const double delta = (double)p->scale * (u * p->delta_size + r * p->delta_parts);
    const double slope = r * (p->slope_size + p->tolerance[Q] + delta);
    const double most_out = p->tolerance_out + r * (p->most_mask + p->tolerance_out);
    const double lost[3] = { delta + slope, p->most_sum * (delta + slope),
                             r * (p->most_sum * p->most_mask + p->tolerance[V]) };
    for (int64_t j = 0; j < p->n[Q]; j++)
        assert_near((double)ls_bf16_to_f32(out[j]), p->out[j], most_out + u * (fabs(p->out[j]) + most_out), p, "out",
                    j);
    for (int i = Q; i <= V && times > 0; i++)
        for (int64_t j = 0; j < p->n[i]; j++) {
            const double want = times * p->want[i][j], most = times * (p->tolerance[i] + lost[i]);
            assert_near((double)ls_bf16_to_f32(h->grad[i][j]), want, most + times * u * (fabs(want) + most), p,
                        name_of[i], j);
        }
}

/* Whether attention rounds P and dS by itself: for tiles of bfloat16, or for pairs. */
static inline bool goes_by_pairs(const problem *p)
{
    if (ls_amx_ready() && p->Tk >= LS_ATTENTION_AMX_KEYS) return true;
    return ls_gemm_tile_of_pairs() && ls_gemm_tile_pairs_pay() && p->D % 2 == 0;
}

/* The mask written out. */
static inline void mask_by(problem *p, const ls_attention_dropout *d)
{
    const int64_t n = p->B * p->Hq * p->Tq * p->Tk;
    float *u = room((size_t)n * sizeof *u);
    p->mask = room((size_t)n * sizeof *p->mask);
    p->most_mask = 1.0 / (1.0 - (double)d->p);
    ls_philox_uniform(d->seed, d->stream, d->first, (size_t)n, 0.0f, 1.0f, u);
    for (int64_t i = 0; i < n; i++) p->mask[i] = u[i] < d->p ? 0.0 : p->most_mask;
    free(u);
}

#endif
