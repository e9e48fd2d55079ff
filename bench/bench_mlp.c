/* bench_mlp.c -- one forward and backward of an MLP on one thread.
 *
 * Beside it the time that the floating-point operations alone take at the
 * machine's peak: nothing can beat that. The peak is measured here, by
 * multiply-adds that stay in registers.
 *
 *   OMP_NUM_THREADS=1 build/bench/bench_mlp [steps]
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "lockstep/model.h"
#include "lockstep/rng.h"

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

static double median(double *v, int n)
{
    qsort(v, (size_t)n, sizeof *v, by_value);
    return v[n / 2];
}

typedef struct job {
    int64_t dims[5];
    int ndims;
    int64_t batch;
} job;

static ls_status run(const job *j, int steps, double peak)
{
    const ls_model_config config = {
        .name = "mlp", .dims = j->dims, .ndims = j->ndims, .init = LS_INIT_TORCH, .seed = 1
    };
    ls_model *m = NULL;
    ls_arena *values = NULL, *grads = NULL;
    ls_tape *t = NULL;
    float *x = NULL;
    int64_t *y = NULL;
    double *fwd = NULL, *ce = NULL, *bwd = NULL, *all = NULL, flops = 0.0;
    ls_status st;

    if ((st = ls_model_create(&config, &m)) < 0) goto done;
    const size_t room = ls_params_nbytes(&m->params) + 64 * (size_t)m->params.n + 4096;
    if ((st = ls_arena_create(room, false, NULL, &values)) < 0 || (st = ls_arena_create(room, false, NULL, &grads)) < 0)
        goto done;
    if ((st = ls_params_bind(&m->params, values, grads)) < 0 || (st = ls_model_init(m, &config)) < 0) goto done;
    if ((st = ls_tape_create(ls_model_tape_bytes(m, j->batch), NULL, NULL, &t)) < 0) goto done;

    const int64_t in = j->dims[0], classes = j->dims[j->ndims - 1];
    x = aligned_alloc(64, (size_t)(j->batch * in) * sizeof *x);
    y = malloc((size_t)j->batch * sizeof *y);
    fwd = calloc((size_t)steps, sizeof *fwd);
    ce = calloc((size_t)steps, sizeof *ce);
    bwd = calloc((size_t)steps, sizeof *bwd);
    all = calloc((size_t)steps, sizeof *all);
    if (!x || !y || !fwd || !ce || !bwd || !all) {
        st = ls_fail(LS_NO_MEMORY, "benchmark data");
        goto done;
    }
    ls_philox_uniform(2, 0, 0, (size_t)(j->batch * in), -1.0f, 1.0f, x);
    for (int64_t i = 0; i < j->batch; i++) y[i] = i * 7 % classes;

    for (int s = -50; s < steps; s++) { /* the first 50 warm up */
        const uint64_t t0 = now_ns();
        ls_tape_reset(t);
        ls_params_zero_grad(&m->params);
        ls_tensor *logits = ls_model_forward(m, t, ls_tape_input(t, LS_F32, 2, (int64_t[]){ j->batch, in }, x));
        const uint64_t t1 = now_ns();
        ls_tensor *loss = ls_softmax_cross_entropy(t, logits, ls_tape_input(t, LS_I64, 1, &j->batch, y), NULL, NULL);
        const uint64_t t2 = now_ns();
        if ((st = ls_backward(t, loss)) < 0) goto done;
        const uint64_t t3 = now_ns();
        if (s < 0) continue;
        fwd[s] = (double)(t1 - t0);
        ce[s] = (double)(t2 - t1);
        bwd[s] = (double)(t3 - t2);
        all[s] = (double)(t3 - t0);
        flops = ls_tape_flops(t);
    }
    char name[64];
    int n = 0;
    for (int i = 0; i < j->ndims; i++)
        n += snprintf(name + n, sizeof name - (size_t)n, "%s%lld", i ? "-" : "", (long long)j->dims[i]);
    const double total = median(all, steps);
    printf("%20s %6lld %9.2f %9.2f %9.2f %9.2f %9.2f %9.1f %8.0f%%\n", name, (long long)j->batch,
           1e-3 * median(fwd, steps), 1e-3 * median(ce, steps), 1e-3 * median(bwd, steps), 1e-3 * total,
           1e-3 * flops / peak, flops / total, 100.0 * flops / peak / total);
done:
    free(all);
    free(bwd);
    free(ce);
    free(fwd);
    free(y);
    free(x);
    ls_tape_destroy(t);
    ls_model_destroy(m);
    ls_arena_destroy(grads);
    ls_arena_destroy(values);
    return st;
}

typedef float lanes __attribute__((vector_size(64)));

#ifdef __clang__ /* has no optimize(); the pragma below contracts */
#define OPTIMIZED
#else
#define OPTIMIZED __attribute__((optimize("O3", "fp-contract=fast")))
#endif

/* GFLOP/s of multiply-adds in registers: 12 independent sums of 16 lanes. */
OPTIMIZED __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
static double peak_gflops(lanes *sink)
{
#pragma clang fp contract(fast)
    double best = 0.0;
    for (int r = 0; r < 20; r++) {
        lanes s[12], x = sink[0], y = sink[1];
        for (int i = 0; i < 12; i++) s[i] = x + (float)i; /* all different, or the compiler shares them */
        const uint64_t t0 = now_ns();
        for (int k = 0; k < 20000; k++)
#pragma GCC unroll 12
            for (int i = 0; i < 12; i++) s[i] = s[i] * y + x;
        const uint64_t t1 = now_ns();
        for (int i = 0; i < 12; i++) sink[2] += s[i];
        const double g = 20000.0 * 12.0 * 16.0 * 2.0 / (double)(t1 - t0);
        if (g > best) best = g;
    }
    return best;
}

int main(int argc, char **argv)
{
    const int steps = argc > 1 ? atoi(argv[1]) : 2000;
    static const job jobs[] = {
        { { 64, 128, 10 }, 3, 32 },
        { { 784, 256, 128, 10 }, 4, 64 },
    };
    lanes sink[3] = { 0 };
    const double peak = peak_gflops(sink);
    printf("# one thread, median of %d steps, us; peak %.0f GFLOP/s measured\n", steps, peak);
    printf("%20s %6s %9s %9s %9s %9s %9s %9s %9s\n", "mlp", "batch", "forward", "loss", "backward", "step", "at peak",
           "GFLOP/s", "of peak");
    for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++)
        if (run(&jobs[i], steps > 0 ? steps : 1, peak) < 0) {
            fprintf(stderr, "bench_mlp: %s\n", ls_last_error());
            return 1;
        }
    return 0;
}
