/* bench_head.c -- the head of a language model: linear_cross_entropy beside the ops it fuses.
 *
 * Forward and backward, with dx and dw. `fused` computes the logits once and keeps a part of them; `unfused` is
 * ls_linear and ls_softmax_cross_entropy, which keep them whole three times; `products` are the three matrix products
 * alone, on whole logits: nothing can beat that by much. `loss` is the fused op without gradients: what it would cost
 * to know the loss before backward.
 *
 *   build/bench/bench_head [N ...]
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "median.h"
#include "lockstep/tensor.h"
#include "tensor/gemm.h"

#define REPS 5

static float *numbers(int64_t n, float scale)
{
    float *p = aligned_alloc(64, ((size_t)n * sizeof *p + 63) / 64 * 64);
    if (!p) exit(1);
    uint32_t x = 1;
    for (int64_t i = 0; i < n; i++) {
        x = x * 1664525u + 1013904223u;
        p[i] = ((float)(x >> 8) * 0x1p-24f - 0.5f) * scale;
    }
    return p;
}

static void measure(int64_t N, int64_t C, int64_t V)
{
    float *xv = numbers(N * C, 2.0f), *wv = numbers(V * C, 0.1f);
    float *dx = numbers(N * C, 1.0f), *dw = numbers(V * C, 1.0f), *logits = numbers(N * V, 1.0f);
    int64_t *label = malloc((size_t)N * sizeof *label);
    ls_gemm *g;
    ls_tape *tape[2];
    const size_t slab = (size_t)1 << 27; /* fused; for a vocabulary of up to 2^20 */
    if (!label || ls_gemm_create(&g) < 0 || ls_tape_create(slab, NULL, NULL, &tape[0]) < 0 ||
        ls_tape_create((size_t)(3 * N * V) * 4 + slab, NULL, NULL, &tape[1]) < 0) {
        fprintf(stderr, "%s\n", ls_last_error());
        exit(1);
    }
    for (int64_t n = 0; n < N; n++) label[n] = n * 7919 % V;
    ls_tensor dx_t = { .dtype = LS_F32, .ndim = 2, .dim = { N, C }, .data = dx }, x = dx_t;
    ls_tensor dw_t = { .dtype = LS_F32, .ndim = 2, .dim = { V, C }, .data = dw }, w = dw_t;
    x.data = xv;
    x.grad = &dx_t;
    w.data = wv;
    w.grad = &dw_t;
    double ms[4][REPS], sum[2] = { 0 };
    for (int r = -1; r < REPS; r++)
        for (int how = 0; how < 4; how++) {
            ls_tape *t = tape[how == 1];
            ls_tape_reset(t);
            ls_tape_set_grad(t, how != 3);
            x.grad_ready = w.grad_ready = false;
            ls_tensor *y = ls_tape_input(t, LS_I64, 1, &N, label);
            const uint64_t t0 = now_ns();
            ls_status st = LS_OK;
            if (how == 2) {
                const ls_gemm_call c[] = {
                    { .m = N, .n = V, .k = C, .trans_b = true, .a = xv, .b = wv, .c = logits },
                    { .m = N, .n = C, .k = V, .a = logits, .b = wv, .c = dx },
                    { .m = V, .n = C, .k = N, .trans_a = true, .a = logits, .b = xv, .c = dw },
                };
                for (int k = 0; k < 3 && st == LS_OK; k++) st = ls_gemm_run(g, &c[k]);
            } else {
                ls_tensor *loss = how != 1 ? ls_linear_cross_entropy(t, &x, &w, y, 1.0 / (double)N, &sum[0], NULL)
                                           : ls_softmax_cross_entropy(t, ls_linear(t, &x, &w, NULL), y, &sum[1], NULL);
                st = how == 3 ? ls_tape_status(t) : ls_backward(t, loss);
            }
            if (st < 0) {
                fprintf(stderr, "%s\n", ls_last_error());
                exit(1);
            }
            if (r >= 0) ms[how][r] = 1e-6 * (double)(now_ns() - t0);
        }
    const double flops = 6.0 * (double)N * (double)V * (double)C, fused = median(ms[0], REPS);
    printf("%6lld %6lld %6lld %9.1f %9.1f %9.1f %9.1f %9.1f %9.1f %9.1f %9.1e\n", (long long)N, (long long)V,
           (long long)C, fused, median(ms[1], REPS), median(ms[2], REPS), median(ms[3], REPS), 1e-6 * flops / fused,
           (double)ls_tape_peak(tape[0]) / (1 << 20), (double)ls_tape_peak(tape[1]) / (1 << 20),
           (sum[0] - sum[1]) / sum[1]);
    ls_tape_destroy(tape[0]);
    ls_tape_destroy(tape[1]);
    ls_gemm_destroy(g);
    free(label);
    free(logits);
    free(dw);
    free(dx);
    free(wv);
    free(xv);
}

int main(int argc, char **argv)
{
    printf("# ms, median of %d; GFLOP/s of fused; MiB of the slab, fused and unfused; difference of the losses\n", REPS);
    printf("%6s %6s %6s %9s %9s %9s %9s %9s %9s %9s %9s\n", "N", "V", "C", "fused", "unfused", "products", "loss",
           "GFLOP/s", "MiB", "unfused", "differ");
    if (argc > 1) {
        for (int i = 1; i < argc; i++) measure(strtoll(argv[i], NULL, 0), 768, 50257);
        return 0;
    }
    measure(256, 768, 50257);
    measure(1024, 768, 50257);
    measure(4096, 384, 256);
    return 0;
}
