/* bench_attention.c -- causal attention beside the same done with whole matrices:
 * S = Q K^T, softmax of its rows, S V with ls_gemm_run on T x T matrices, and the
 * five products of backward. GFLOP/s count only what the mask lets through, 4 D
 * (forward) and 10 D (backward) a pair, for both. The first line says what one
 * large matrix product reaches on this machine: nothing here can beat that by
 * much. Of one thread the time is its own, so that a busy machine disturbs little. Then bfloat16, by tiles,
 * by those of AMX where the CPU has them.
 *
 *   OMP_NUM_THREADS=1 build/bench/bench_attention
 */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/compiler.h"
#include "tensor/amx.h"
#include "tensor/attention.h"
#include "tensor/gemm.h"
#include "tensor/threads.h"
#include "tensor/vecmath.h"

#define REPS 11

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(ls_team_size() == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* --- whole matrices: heads lie apart, [B, H, T, D] --------------------------------- */

typedef struct whole {
    ls_gemm *g;
    int64_t B, H, T, D;
    float scale;
    const float *q, *k, *v, *dout;
    float *out, *dq, *dk, *dv, *p, *dp; /* p: [B, H, T, T], kept for backward; dp: [T, T] */
} whole;

LS_KERNEL static void softmax_rows(float *restrict s, int64_t T, float scale)
{
    for (int64_t i = 0; i < T; i++) {
        float *row = s + i * T, max = -INFINITY, part[16] = { 0 }, sum = 0.0f;
        for (int64_t j = 0; j <= i; j++) max = row[j] > max ? row[j] : max;
        for (int64_t j = 0; j <= i; j++) row[j] = ls_expf(scale * (row[j] - max));
        for (int64_t j = i + 1; j < T; j++) row[j] = 0.0f;
        for (int64_t j = 0; j + 16 <= T; j += 16)
            for (int l = 0; l < 16; l++) part[l] += row[j + l];
        for (int l = 0; l < 16; l++) sum += part[l];
        for (int64_t j = 0; j < T; j++) row[j] *= 1.0f / sum;
    }
}

LS_KERNEL static void softmax_slopes(float *restrict dp, const float *restrict p, int64_t T, float scale)
{
    for (int64_t i = 0; i < T; i++) {
        float part[16] = { 0 }, delta = 0.0f;
        for (int64_t j = 0; j + 16 <= T; j += 16)
            for (int l = 0; l < 16; l++) part[l] += dp[i * T + j + l] * p[i * T + j + l];
        for (int l = 0; l < 16; l++) delta += part[l];
        for (int64_t j = 0; j < T; j++) dp[i * T + j] = scale * p[i * T + j] * (dp[i * T + j] - delta);
    }
}

static void multiply(const whole *w, int64_t m, int64_t n, int64_t k, bool ta, bool tb, const float *a, const float *b,
                     float *c)
{
    const ls_gemm_call call = { .m = m, .n = n, .k = k, .trans_a = ta, .trans_b = tb, .a = a, .b = b, .c = c };
    if (ls_gemm_run(w->g, &call) < 0) exit(1);
}

static void whole_forward(const whole *w)
{
    const int64_t T = w->T, D = w->D;
    for (int64_t h = 0; h < w->B * w->H; h++) {
        float *p = w->p + h * T * T;
        multiply(w, T, T, D, false, true, w->q + h * T * D, w->k + h * T * D, p);
        softmax_rows(p, T, w->scale);
        multiply(w, T, D, T, false, false, p, w->v + h * T * D, w->out + h * T * D);
    }
}

static void whole_backward(const whole *w)
{
    const int64_t T = w->T, D = w->D;
    for (int64_t h = 0; h < w->B * w->H; h++) {
        const float *p = w->p + h * T * T, *dout = w->dout + h * T * D;
        multiply(w, T, D, T, true, false, p, dout, w->dv + h * T * D);
        multiply(w, T, T, D, false, true, dout, w->v + h * T * D, w->dp);
        softmax_slopes(w->dp, p, T, w->scale);
        multiply(w, T, D, T, false, false, w->dp, w->k + h * T * D, w->dq + h * T * D);
        multiply(w, T, D, T, true, false, w->dp, w->q + h * T * D, w->dk + h * T * D);
    }
}

/* --- measuring ----------------------------------------------------------------------- */

typedef struct job {
    const ls_attention_call *tiles; /* or */
    const whole *whole;
    const ls_gemm_call *product;    /* or, with whole->g */
    bool backward;
} job;

static void once(const job *j)
{
    if (j->product) {
        if (ls_gemm_run(j->whole->g, j->product) < 0) exit(1);
    } else if (j->whole) {
        if (j->backward) whole_backward(j->whole);
        else whole_forward(j->whole);
    } else {
        if (j->backward) ls_attention_backward(j->tiles);
        else ls_attention_forward(j->tiles);
    }
}

static double median_ns(const job *j)
{
    double ns[REPS];
    for (int r = -1; r < REPS; r++) {
        const uint64_t t0 = now_ns();
        once(j);
        if (r >= 0) ns[r] = (double)(now_ns() - t0);
    }
    qsort(ns, REPS, sizeof *ns, by_value);
    return ns[REPS / 2];
}

static float *vector(int64_t n, uint32_t seed)
{
    float *x = aligned_alloc(64, ((size_t)n * sizeof *x + 63) / 64 * 64);
    if (!x) exit(1);
    for (int64_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        x[i] = (float)(seed >> 8) * 0x1p-23f - 1.0f;
    }
    return x;
}

static uint16_t *rounded(const float *x, int64_t n)
{
    uint16_t *r = aligned_alloc(64, ((size_t)n * sizeof *r + 63) / 64 * 64);
    if (!r) exit(1);
    for (int64_t i = 0; i < n; i++) r[i] = ls_f32_to_bf16(x[i]);
    return r;
}

int main(void)
{
    static const struct { int64_t B, T, H, D; } shape[] = {
        { 4, 64, 12, 64 }, { 4, 256, 12, 64 }, { 4, 1024, 12, 64 }, { 16, 256, 6, 64 }, { 4, 256, 16, 64 },
        { 4, 256, 12, 80 }, { 4, 256, 8, 128 },
        { 1, 4096, 6, 64 },
    };
    whole w = { .scale = 0.125f };
    if (ls_gemm_create(&w.g) < 0) return 1;
    float *a = vector(512 * 512, 1), *b = vector(512 * 512, 2), *c = vector(512 * 512, 3);
    const ls_gemm_call product = { .m = 512, .n = 512, .k = 512, .a = a, .b = b, .c = c };
    const double peak = 2.0 * 512.0 * 512.0 * 512.0 / median_ns(&(job){ .whole = &w, .product = &product });
    printf("# causal, f32, packed q k v; median of %d; times in us, speeds in GFLOP/s; matrix product 512^3: %.0f\n",
           REPS, peak);
    printf("%4s %5s %3s %4s | %9s %7s %9s %7s | %9s %7s %9s %7s | %6s | %9s %7s %9s %7s\n", "B", "T", "H", "D",
           "forward", "speed", "backward", "speed", "whole fwd", "speed", "whole bwd", "speed", "ratio", "bf16 fwd",
           "speed", "bf16 bwd", "speed");
    for (size_t s = 0; s < sizeof shape / sizeof *shape; s++) {
        const int64_t B = w.B = shape[s].B, T = w.T = shape[s].T, H = w.H = shape[s].H, D = w.D = shape[s].D;
        const int64_t C = H * D, n = B * T * C;
        float *qkv = vector(3 * n, 1), *grad = vector(3 * n, 2), *out = vector(n, 3), *dout = vector(n, 4),
              *lse = vector(B * H * T, 5), *p = vector(B * H * T * T, 6), *dp = vector(T * T, 7);
        const bool amx = ls_amx_ready();
        const ls_attention_call sizes = { .Tk = T, .D = D };
        const ls_attention_call half_sizes = { .Tk = T, .D = D, .dtype = LS_BF16, .amx = amx };
        float *scratch = vector(ls_attention_scratch(&sizes, true) + ls_attention_scratch(&half_sizes, true), 8);
        const ls_strides by = { .batch = T * 3 * C, .token = 3 * C, .head = D };
        const ls_attention_call tiles = {
            .B = B, .Tq = T, .Tk = T, .Hq = H, .Hkv = H, .D = D, .scale = w.scale, .causal = true, .q = qkv,
            .k = qkv + C, .v = qkv + 2 * C, .out = out, .lse = lse, .q_by = by, .k_by = by, .v_by = by,
            .out_by = ls_strides_dense(T, H, D), .scratch = scratch, .dout = dout, .dq = grad,
            .dk = grad + C, .dv = grad + 2 * C,
        };
        w.q = qkv;
        w.k = qkv + n;
        w.v = qkv + 2 * n;
        w.dout = dout;
        w.p = p;
        w.dp = dp;
        w.dq = grad;
        w.dk = grad + n;
        w.dv = grad + 2 * n;
        w.out = out;
        uint16_t *qkv16 = rounded(qkv, 3 * n), *grad16 = rounded(grad, 3 * n), *out16 = rounded(out, n),
                 *dout16 = rounded(dout, n);
        ls_attention_call halves = tiles;
        halves.dtype = LS_BF16;
        halves.amx = amx;
        halves.q = qkv16;
        halves.k = qkv16 + C;
        halves.v = qkv16 + 2 * C;
        halves.out = out16;
        halves.dout = dout16;
        halves.dq = grad16;
        halves.dk = grad16 + C;
        halves.dv = grad16 + 2 * C;
        double ns[6];
        for (int i = 0; i < 6; i++) { /* forward before backward, which reads what it leaves */
            const job j = { .tiles = i < 2 ? &tiles : &halves, .whole = i / 2 == 1 ? &w : NULL, .backward = i % 2 };
            ns[i] = median_ns(&j);
        }
        const double flops = ls_attention_flops(&tiles);
        printf("%4lld %5lld %3lld %4lld |", (long long)B, (long long)T, (long long)H, (long long)D);
        for (int i = 0; i < 6; i += 2) {
            printf(" %9.0f %7.1f %9.0f %7.1f |", 1e-3 * ns[i], flops / ns[i], 1e-3 * ns[i + 1],
                   2.5 * flops / ns[i + 1]);
            if (i == 2) printf(" %6.2f |", (ns[2] + ns[3]) / (ns[0] + ns[1]));
        }
        printf("\n");
        fflush(stdout);
        void *all[] = { qkv, grad, out, dout, lse, p, dp, qkv16, grad16, out16, dout16, scratch };
        for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
    }
    free(c);
    free(b);
    free(a);
    ls_gemm_destroy(w.g);
    return 0;
}
