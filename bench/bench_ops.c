/* bench_ops.c -- the short ops of a GPT or a Llama, forward and backward, in float and in bf16, on one and on all
 * threads.
 *
 * They move bytes and little else, so each is printed in bytes per second beside memcpy of an
 * array by as many threads: nothing beats that by much while the data is out of cache. Bytes are
 * what an op must read and write, each array once, as the first comment of its file says; backward
 * is both halves. dropout and the functions with an exponential also compute.
 *
 *   build/bench/bench_ops [rows] [columns]     default: 256, 1024, 4096 rows of 768
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "copy.h"
#include "median.h"
#include "lockstep/rng.h"
#include "lockstep/tensor.h"

#define REPS 15

/* Tensors of a case, with gradients: a, b [N, C] and heads [1, N, H, D] are activations; w [V, C], gain and bias [C]
 * parameters. */
typedef struct leaves {
    ls_tensor a, b, heads, w, gain, bias, ids;
    ls_tensor grad[6];
    void *dy;
} leaves;

static ls_tensor *layernorm(ls_tape *t, leaves *l) { return ls_layernorm(t, &l->a, &l->gain, &l->bias, 1e-5f); }
static ls_tensor *rmsnorm(ls_tape *t, leaves *l) { return ls_rmsnorm(t, &l->a, &l->gain, 1e-5f); }
static ls_tensor *relu(ls_tape *t, leaves *l) { return ls_relu(t, &l->a); }
static ls_tensor *gelu(ls_tape *t, leaves *l) { return ls_gelu(t, &l->a); }
static ls_tensor *silu(ls_tape *t, leaves *l) { return ls_silu(t, &l->a); }
static ls_tensor *swiglu(ls_tape *t, leaves *l) { return ls_swiglu(t, &l->a, &l->b); }
static ls_tensor *add(ls_tape *t, leaves *l) { return ls_add(t, &l->a, &l->b); }
static ls_tensor *add_rows(ls_tape *t, leaves *l) { return ls_add_rows(t, &l->a, &l->w); }
static ls_tensor *embedding(ls_tape *t, leaves *l) { return ls_embedding(t, &l->ids, &l->w); }
static ls_tensor *dropout(ls_tape *t, leaves *l) { return ls_dropout(t, &l->a, 0.1f, 1, 1, 0); }
static ls_tensor *rope(ls_tape *t, leaves *l) { return ls_rope(t, &l->heads, 1e4, 0); }

/* Activations and arrays of N C floats, table or its gradient, that forward and backward move; leaves have gradients
 * of their own here, so a residual is copied, which it is not inside a model. */
static const struct {
    const char *name;
    ls_tensor *(*op)(ls_tape *, leaves *);
    double forward, forward_table, backward, backward_table;
} ops[] = {
    { "layernorm", layernorm, 2, 0, 5, 0 }, { "rmsnorm", rmsnorm, 2, 0, 5, 0 }, { "relu", relu, 2, 0, 3, 0 },
    { "gelu", gelu, 2, 0, 3, 0 },           { "silu", silu, 2, 0, 3, 0 },       { "swiglu", swiglu, 3, 0, 5, 0 },
    { "rope", rope, 2, 0, 2, 0 },           { "add", add, 3, 0, 4, 0 },         { "add_rows", add_rows, 2, 1, 3, 2 },
    { "embedding", embedding, 2, 0, 1, 2 }, { "dropout", dropout, 2, 0, 2, 0 },
};

static void *numbers(ls_dtype dtype, int64_t n)
{
    float *v = aligned_alloc(64, ((size_t)n * sizeof *v + 63) / 64 * 64);
    if (!v) exit(1);
    ls_philox_uniform(1, 0, 0, (size_t)n, -2.0f, 2.0f, v);
    if (dtype == LS_F32) return v;
    uint16_t *narrow = aligned_alloc(64, ((size_t)n * sizeof *narrow + 63) / 64 * 64);
    if (!narrow) exit(1);
    for (int64_t i = 0; i < n; i++) narrow[i] = ls_f32_to_bf16(v[i]);
    free(v);
    return narrow;
}

static void make(ls_tensor *x, ls_tensor *grad, ls_dtype dtype, int ndim, const int64_t *dim)
{
    *x = (ls_tensor){ .dtype = dtype, .ndim = ndim };
    for (int i = 0; i < ndim; i++) x->dim[i] = dim[i];
    *grad = *x;
    x->data = numbers(dtype, ls_tensor_count(x));
    grad->data = numbers(dtype, ls_tensor_count(x));
    x->grad = grad;
}

static void mark(leaves *l, bool ready) /* gradients are there already, as after the first micro-batch, or not */
{
    l->a.grad_ready = l->b.grad_ready = l->heads.grad_ready = false;
    l->w.grad_ready = l->gain.grad_ready = l->bias.grad_ready = ready;
}

static int bench(ls_dtype dtype, int threads, int64_t N, int64_t C)
{
    leaves l;
    ls_tape *t;
    const double array = (double)(N * C) * (double)ls_dtype_size(dtype), table = (double)(N * C) * sizeof(float);
    make(&l.a, &l.grad[0], dtype, 2, (int64_t[]){ N, C });
    make(&l.b, &l.grad[1], dtype, 2, (int64_t[]){ N, C });
    make(&l.w, &l.grad[2], LS_F32, 2, (int64_t[]){ N, C });
    make(&l.gain, &l.grad[3], LS_F32, 1, (int64_t[]){ C });
    make(&l.bias, &l.grad[4], LS_F32, 1, (int64_t[]){ C });
    make(&l.heads, &l.grad[5], dtype, 4, (int64_t[]){ 1, N, C % 64 ? 1 : C / 64, C % 64 ? C : 64 });
    l.dy = numbers(dtype, N * C);
    l.w.bf16 = l.b.data; /* any numbers will do */
    int64_t *id = malloc((size_t)N * sizeof *id);
    if (!id || ls_tape_create(2 * (size_t)array + (1 << 16), NULL, NULL, &t) < 0) return 1;
    if (ls_tape_set_dtype(t, dtype) < 0) return 1;
    for (int64_t n = 0; n < N; n++) id[n] = n * 7919 % N;
    l.ids = (ls_tensor){ .dtype = LS_I64, .ndim = 1, .dim = { N }, .data = id };

    printf("\n# %lld rows of %lld, %s, %d threads: an array is %.1f MiB\n", (long long)N, (long long)C,
           ls_dtype_name(dtype), threads, array / 1048576.0);
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
            copy_array(l.b.grad->data, l.a.data, (size_t)array, threads);
            const uint64_t t3 = now_ns();
            if (r < 0) continue;
            forward[r] = (double)(t1 - t0);
            backward[r] = (double)(t2 - t1);
            copy[r] = (double)(t3 - t2);
        }
        const double f = median(forward, REPS), b = median(backward, REPS), c = 2.0 * array / median(copy, REPS);
        printf("%12s | %10.1f %8.1f %8.1f | %10.1f %8.1f %8.1f\n", ops[k].name, 1e-3 * f,
               (ops[k].forward * array + ops[k].forward_table * table) / f, c, 1e-3 * b,
               (ops[k].backward * array + ops[k].backward_table * table) / b, c);
    }
    ls_tape_destroy(t);
    free(id);
    free(l.dy);
    ls_tensor *leaf[] = { &l.a, &l.b, &l.w, &l.gain, &l.bias, &l.heads };
    for (int i = 0; i < 6; i++) {
        free(leaf[i]->data);
        free(leaf[i]->grad->data);
    }
    return 0;
}

int main(int argc, char **argv)
{
    static const int64_t rows[] = { 256, 1024, 4096 };
    const int64_t N = argc > 1 ? atoll(argv[1]) : 0, C = argc > 2 ? atoll(argv[2]) : 768;
    const int most = most_threads();
    int failed = 0;
    if (N < 0 || C < 1) return 1;
    printf("# median of %d; GB/s counts what is read and written, memcpy too\n", REPS);
    for (int threads = 1; threads <= most; threads += most > 1 ? most - 1 : 1) {
        use_threads(threads);
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
            for (int narrow = 0; narrow < 2; narrow++)
                if (!failed && (!N || i == 0)) failed = bench(narrow ? LS_BF16 : LS_F32, threads, N ? N : rows[i], C);
    }
    if (failed) fprintf(stderr, "bench_ops: %s\n", ls_last_error());
    return failed;
}
