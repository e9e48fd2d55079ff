/* bench_ops.c -- the short ops of a GPT or a Llama on one thread, forward and backward.
 *
 * They move bytes and little else, so each is printed in bytes per second beside memcpy of as
 * many: nothing beats that by much while the data is out of cache. Bytes are what an op must
 * read and write, each array once, as the first comment of its file says; backward is both
 * halves. dropout and the functions with an exponential also compute.
 *
 *   build/bench/bench_ops [rows] [columns]     default: 256, 1024, 4096 rows of 768
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "median.h"
#include "lockstep/rng.h"
#include "lockstep/tensor.h"

#define REPS 15

/* Tensors of a case, with gradients: a, b [N, C], w [V, C], gain and bias [C]. */
typedef struct leaves {
    ls_tensor a, b, w, gain, bias, ids;
    ls_tensor grad[5];
    float *dy;
} leaves;

static ls_tensor *layernorm(ls_tape *t, leaves *l) { return ls_layernorm(t, &l->a, &l->gain, &l->bias, 1e-5f); }
static ls_tensor *rmsnorm(ls_tape *t, leaves *l) { return ls_rmsnorm(t, &l->a, &l->gain, 1e-5f); }
static ls_tensor *gelu(ls_tape *t, leaves *l) { return ls_gelu(t, &l->a); }
static ls_tensor *silu(ls_tape *t, leaves *l) { return ls_silu(t, &l->a); }
static ls_tensor *swiglu(ls_tape *t, leaves *l) { return ls_swiglu(t, &l->a, &l->b); }
static ls_tensor *add(ls_tape *t, leaves *l) { return ls_add(t, &l->a, &l->b); }
static ls_tensor *add_rows(ls_tape *t, leaves *l) { return ls_add_rows(t, &l->a, &l->w); }
static ls_tensor *embedding(ls_tape *t, leaves *l) { return ls_embedding(t, &l->ids, &l->w); }
static ls_tensor *dropout(ls_tape *t, leaves *l) { return ls_dropout(t, &l->a, 0.1f, 1, 1, 0); }

/* Arrays of N C floats that forward and backward move; leaves have gradients of their own here, so a
 * residual is copied, which it is not inside a model. */
static const struct { const char *name; ls_tensor *(*op)(ls_tape *, leaves *); double forward, backward; } ops[] = {
    { "layernorm", layernorm, 2, 5 }, { "rmsnorm", rmsnorm, 2, 5 }, { "gelu", gelu, 2, 3 }, { "silu", silu, 2, 3 },
    { "swiglu", swiglu, 3, 5 },       { "add", add, 3, 4 },         { "add_rows", add_rows, 3, 5 },
    { "embedding", embedding, 2, 3 }, { "dropout", dropout, 2, 2 },
};

static float *numbers(int64_t n)
{
    float *v = aligned_alloc(64, ((size_t)n * sizeof *v + 63) / 64 * 64);
    if (!v) exit(1);
    ls_philox_uniform(1, 0, 0, (size_t)n, -2.0f, 2.0f, v);
    return v;
}

static void make(ls_tensor *x, ls_tensor *grad, int ndim, int64_t N, int64_t C)
{
    *x = (ls_tensor){ .dtype = LS_F32, .ndim = ndim, .dim = { N, C } };
    if (ndim == 1) x->dim[0] = C;
    *grad = *x;
    x->data = numbers(ls_tensor_count(x));
    grad->data = numbers(ls_tensor_count(x));
    x->grad = grad;
}

static void mark(leaves *l, bool ready) /* gradients are there already, as after the first micro-batch, or not */
{
    l->a.grad_ready = l->b.grad_ready = false;
    l->w.grad_ready = l->gain.grad_ready = l->bias.grad_ready = ready;
}

static int bench(int64_t N, int64_t C)
{
    leaves l;
    ls_tape *t;
    const double array = (double)(N * C) * sizeof(float);
    make(&l.a, &l.grad[0], 2, N, C);
    make(&l.b, &l.grad[1], 2, N, C);
    make(&l.w, &l.grad[2], 2, N, C);
    make(&l.gain, &l.grad[3], 1, N, C);
    make(&l.bias, &l.grad[4], 1, N, C);
    l.dy = numbers(N * C);
    int64_t *id = malloc((size_t)N * sizeof *id);
    if (!id || ls_tape_create(2 * (size_t)array + (1 << 16), NULL, NULL, &t) < 0) return 1;
    for (int64_t n = 0; n < N; n++) id[n] = n * 7919 % N;
    l.ids = (ls_tensor){ .dtype = LS_I64, .ndim = 1, .dim = { N }, .data = id };

    printf("\n# %lld rows of %lld: an array is %.1f MiB\n", (long long)N, (long long)C, array / 1048576.0);
    printf("%12s | %10s %8s %8s | %10s %8s %8s\n", "op", "forward us", "GB/s", "memcpy", "backw. us", "GB/s",
           "memcpy");
    for (size_t k = 0; k < sizeof ops / sizeof *ops; k++) {
        double forward[REPS], backward[REPS], copy[REPS];
        for (int r = -2; r < REPS; r++) {
            ls_tape_reset(t);
            mark(&l, true);
            const uint64_t t0 = now_ns();
            ls_tensor *y = ops[k].op(t, &l);
            const uint64_t t1 = now_ns();
            if (ls_backward_from(t, y, l.dy) < 0) return 1;
            const uint64_t t2 = now_ns();
            memcpy(l.b.grad->data, l.a.data, (size_t)array);
            const uint64_t t3 = now_ns();
            if (r < 0) continue;
            forward[r] = (double)(t1 - t0);
            backward[r] = (double)(t2 - t1);
            copy[r] = (double)(t3 - t2);
        }
        const double f = median(forward, REPS), b = median(backward, REPS), c = 2.0 * array / median(copy, REPS);
        printf("%12s | %10.1f %8.1f %8.1f | %10.1f %8.1f %8.1f\n", ops[k].name, 1e-3 * f, ops[k].forward * array / f,
               c, 1e-3 * b, ops[k].backward * array / b, c);
    }
    ls_tape_destroy(t);
    free(id);
    free(l.dy);
    ls_tensor *leaf[] = { &l.a, &l.b, &l.w, &l.gain, &l.bias };
    for (int i = 0; i < 5; i++) {
        free(leaf[i]->data);
        free(leaf[i]->grad->data);
    }
    return 0;
}

int main(int argc, char **argv)
{
    static const int64_t rows[] = { 256, 1024, 4096 };
    const int64_t N = argc > 1 ? atoll(argv[1]) : 0, C = argc > 2 ? atoll(argv[2]) : 768;
    int failed = 0;
    if (N < 0 || C < 1) return 1;
    printf("# one thread, median of %d; GB/s counts what is read and written, memcpy too\n", REPS);
    for (size_t i = 0; i < sizeof rows / sizeof *rows && !failed; i++)
        if (!N || i == 0) failed = bench(N ? N : rows[i], C);
    if (failed) fprintf(stderr, "bench_ops: %s\n", ls_last_error());
    return failed;
}
