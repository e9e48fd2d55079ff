/* bench_gemm.c -- matrix products of training: the project's own tiles beside
 * the library's, and the machine's peak. The row where the library overtakes
 * is where gemm.c's limit between the two belongs.
 *
 *   OMP_NUM_THREADS=1 build/bench/bench_gemm
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "tensor/gemm.h"

#define REPS 15

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double time_ns(ls_gemm *g, ls_gemm_library *l, const ls_gemm_call *c)
{
    double ns[REPS];
    const double flops = 2.0 * (double)c->m * (double)c->n * (double)c->k;
    const int batch = flops < 1e7 ? (int)(1e7 / flops) + 1 : 1;
    for (int r = -2; r < REPS; r++) {
        const uint64_t t0 = now_ns();
        for (int i = 0; i < batch; i++)
            if ((l ? ls_gemm_library_run(l, c) : ls_gemm_run_tiles(g, c)) < 0) return 0.0;
        if (r >= 0) ns[r] = (double)(now_ns() - t0) / batch;
    }
    qsort(ns, REPS, sizeof *ns, by_value);
    return ns[REPS / 2];
}

int main(void)
{
    static const struct { int64_t N, I, O; } layers[] = { /* batch, in, out of a linear layer */
        { 32, 64, 128 },   { 32, 128, 10 },    { 64, 128, 10 },      { 64, 64, 64 },     { 64, 256, 128 },
        { 128, 128, 128 }, { 64, 784, 256 },   { 128, 256, 256 },    { 256, 784, 256 },  { 512, 512, 512 },
        { 256, 768, 768 }, { 256, 768, 3072 }, { 1024, 1024, 1024 }, { 64, 1024, 1024 }, { 1000, 784, 256 },
    };
    ls_gemm *g;
    ls_gemm_library *l;
    if (ls_gemm_create(&g) < 0 || ls_gemm_library_open(&l) < 0) return 1;
    printf("# median of %d; us and GFLOP/s; forward x w^T + b, dx = dy w, dw = dy^T x\n", REPS);
    printf("%6s %6s %6s %8s %9s | %9s %9s | %9s %9s\n", "N", "I", "O", "product", "MFLOP", "tiles us", "GFLOP/s",
           ls_gemm_library_name(), "GFLOP/s");
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) {
        const int64_t N = layers[i].N, I = layers[i].I, O = layers[i].O;
        float *x = aligned_alloc(64, (size_t)(N * I + 16) * 4 / 64 * 64),
              *w = aligned_alloc(64, (size_t)(O * I + 16) * 4 / 64 * 64);
        float *y = aligned_alloc(64, (size_t)(N * O + 16) * 4 / 64 * 64), *bias = calloc((size_t)O, sizeof *bias);
        if (!x || !w || !y || !bias) return 1;
        for (int64_t k = 0; k < N * I; k++) x[k] = (float)(k % 7) - 3.0f;
        for (int64_t k = 0; k < O * I; k++) w[k] = (float)(k % 5) - 2.0f;
        const struct { const char *name; ls_gemm_call c; } product[] = {
            { "forward", { .m = N, .n = O, .k = I, .trans_b = true, .a = x, .b = w, .bias = bias, .c = y } },
            { "dx", { .m = N, .n = I, .k = O, .a = y, .b = w, .c = x } },
            { "dw", { .m = O, .n = I, .k = N, .trans_a = true, .a = y, .b = x, .c = w } },
        };
        for (int p = 0; p < 3; p++) {
            const double flops = 2.0 * (double)N * (double)I * (double)O;
            for (int64_t k = 0; p && k < N * O; k++) y[k] = (float)(k % 3);
            const double own = time_ns(g, NULL, &product[p].c), lib = time_ns(g, l, &product[p].c);
            printf("%6lld %6lld %6lld %8s %9.2f | %9.2f %9.1f | %9.2f %9.1f\n", (long long)N, (long long)I,
                   (long long)O, product[p].name, 1e-6 * flops, 1e-3 * own, flops / own, 1e-3 * lib, flops / lib);
        }
        free(bias);
        free(y);
        free(w);
        free(x);
    }
    ls_gemm_library_close(l);
    ls_gemm_destroy(g);
    return 0;
}
