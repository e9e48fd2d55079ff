/* bench_optim.c -- one update of a large parameter, on one and on all threads, beside memcpy of as many bytes.
 *
 * All of it is a walk through memory: AdamW reads p, g, m, v and writes p, m, v, 28 bytes an element, and 2 more with
 * a copy in bf16; SGD 12; the gradient norm reads 4. GB/s counts every byte read and every byte written, in memcpy too,
 * which nothing that reads and writes memory can beat by much.
 *
 *   build/bench/bench_optim [elements]
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "copy.h"
#include "median.h"
#include "lockstep/optim.h"

#define REPS 15

static const struct { const char *what, *optim; double momentum, bytes; int copy; } row[] = {
    { "adamw", "adamw", 0.0, 28.0, 0 }, { "adamw, bf16 copy", "adamw", 0.0, 30.0, 1 },
    { "sgd", "sgd", 0.0, 12.0, 0 },     { "sgd, momentum", "sgd", 0.9, 20.0, 0 },
    { "gradient norm", NULL, 0.0, 4.0, 0 },
};

static int bench(size_t i, int threads, ls_params *ps, ls_arena *a, uint16_t *copy)
{
    ls_optim *o = NULL;
    ls_optim_config c;
    double ms[REPS], copy_ms[REPS], norm;
    const size_t array = ls_params_nbytes(ps), mark = ls_arena_mark(a);
    const double moved = (double)array / 4.0 * row[i].bytes;
    ls_param *w = &ps->item[0];
    if (row[i].optim) {
        if (ls_optim_defaults(row[i].optim, &c) < 0) return 1;
        c.momentum = row[i].momentum;
        if (ls_optim_create(&c, ps, a, &o) < 0) return 1;
    }
    w->bf16 = row[i].copy ? copy : NULL;
    for (int r = -2; r < REPS; r++) {
        w->t.grad_ready = true;
        const uint64_t t0 = now_ns();
        if ((o ? ls_optim_step_scaled(o, 0.5) : ls_grad_norm(ps, &norm, NULL)) < 0) return 1;
        const uint64_t t1 = now_ns();
        copy_array(w->grad.data, w->t.data, array, threads);
        const uint64_t t2 = now_ns();
        if (r < 0) continue;
        ms[r] = 1e-6 * (double)(t1 - t0);
        copy_ms[r] = 1e-6 * (double)(t2 - t1);
    }
    const double t = median(ms, REPS);
    printf("%-18s %8d %8.0f %10.2f %10.2f %12.2f\n", row[i].what, threads, row[i].bytes, t, 1e-6 * moved / t,
           2e-6 * (double)array / median(copy_ms, REPS));
    ls_optim_destroy(o);
    ls_arena_reset(a, mark);
    return 0;
}

int main(int argc, char **argv)
{
    const int64_t n = argc > 1 ? strtoll(argv[1], NULL, 0) : (int64_t)16 << 20;
    const size_t slab = ((size_t)n * 4 + 4096) * 6;
    const int most = most_threads();
    int failed = 0;
    ls_arena *a;
    ls_params ps = { 0 };
    uint16_t *copy = malloc((size_t)n * sizeof *copy);
    if (n < 1 || !copy || ls_arena_create(slab, false, NULL, &a) < 0 || ls_params_add(&ps, "w", 1, &n) < 0 ||
        ls_params_bind(&ps, a, a) < 0) {
        fprintf(stderr, "%s\n", ls_last_error());
        return 1;
    }
    memset(copy, 0, (size_t)n * sizeof *copy);
    float *p = ps.item[0].t.data, *g = ps.item[0].grad.data;
    for (int64_t i = 0; i < n; i++) {
        p[i] = (float)(i % 1000) * 1e-3f;
        g[i] = (float)(i % 777) * 1e-3f - 0.4f;
    }
    printf("# %lld elements; median of %d; GB/s counts all bytes read and written\n", (long long)n, REPS);
    printf("%-18s %8s %8s %10s %10s %12s\n", "what", "threads", "bytes", "ms", "GB/s", "memcpy GB/s");
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        for (int threads = 1; threads <= most && !failed; threads += most > 1 ? most - 1 : 1) {
            use_threads(threads);
            failed = bench(i, threads, &ps, a, copy);
        }
    if (failed) fprintf(stderr, "bench_optim: %s\n", ls_last_error());
    ls_params_free(&ps);
    ls_arena_destroy(a);
    free(copy);
    return failed;
}
