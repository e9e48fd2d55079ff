/* bench_gpt_limit.c -- what a step of training GPT-2 takes at least on this machine: bench_gpt's limit.
 *
 *   limit = sum over the matrices [O, I] of forward, dx and dw   each 2 N O I flops, N = batch * tokens, at its
 *                                                               shape by the quickest way of oneDNN
 *         + L * 6 B C T (T + 1) flops of attention               masked half left out, at those products' mean rate
 *         + P * 32 bytes (bf16: 34) of AdamW, clipping, norm     at the rate of memcpy, read and written bytes
 *
 * with L layers, P parameters and [O, I] = [3C, C], [C, C], [4C, C], [C, 4C] of each layer and [V, C] of the head.
 * The bytes: value and two moments read and written, the gradient read twice; the copy in bf16 written. Norms,
 * activation functions, the embedding and the softmax are not in it, so nothing reaches it.
 *
 *   OMP_NUM_THREADS=2 build/bench/bench_gpt_limit BATCH TOKENS f32|bf16 [LAYERS WIDTH VOCAB]      (12 768 50257)
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "median.h"

#if !defined(LOCKSTEP_GEMM_DNNL)
int main(void)
{
    fprintf(stderr, "bench_gpt_limit: this build has no oneDNN\n");
    return 1;
}
#else
#include <oneapi/dnnl/dnnl.h>

enum { MAX_REPS = 9, MAX_THREADS = 64 };
#define ENOUGH_NS 400000000u /* of one product by one way */
#define NO_WAY 1e9 /* seconds */
#define COPY_BYTES ((size_t)256 << 20)

/* C[m, n] = op(A)[m, k] op(B)[k, n]; op transposes what is stored the other way round. */
typedef struct product {
    int64_t m, n, k;
    bool trans_a, trans_b, bf16, out_f32;
} product;

typedef struct machine {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    void *a, *b, *c;
} machine;

#if DNNL_VERSION_MAJOR >= 3
typedef dnnl_memory_desc_t description;

static bool describe(description *d, int64_t rows, int64_t columns, bool transposed, dnnl_data_type_t type)
{
    const dnnl_dims_t dims = { rows, columns }, strides = { transposed ? 1 : columns, transposed ? rows : 1 };
    return dnnl_memory_desc_create_with_strides(d, 2, dims, type, strides) == dnnl_success;
}

static bool matmul(dnnl_primitive_desc_t *out, const machine *w, description d[3])
{
    return dnnl_matmul_primitive_desc_create(out, w->engine, d[0], d[1], NULL, d[2], NULL) == dnnl_success;
}

static bool weights_gradient(dnnl_primitive_desc_t *out, const machine *w, description d[3])
{
    (void)out;
    (void)w;
    (void)d;
    return false;
}
#define HANDLE(d) (d)
#else
typedef dnnl_memory_desc_t description;

static bool describe(description *d, int64_t rows, int64_t columns, bool transposed, dnnl_data_type_t type)
{
    const dnnl_dims_t dims = { rows, columns }, strides = { transposed ? 1 : columns, transposed ? rows : 1 };
    return dnnl_memory_desc_init_by_strides(d, 2, dims, type, strides) == dnnl_success;
}

static bool matmul(dnnl_primitive_desc_t *out, const machine *w, description d[3])
{
    dnnl_matmul_desc_t how;
    return dnnl_matmul_desc_init(&how, &d[0], &d[1], NULL, &d[2]) == dnnl_success &&
           dnnl_primitive_desc_create(out, &how, NULL, w->engine, NULL) == dnnl_success;
}

/* d: x [N, I], dw [O, I], dy [N, O]. */
static bool weights_gradient(dnnl_primitive_desc_t *out, const machine *w, description d[3])
{
    dnnl_inner_product_desc_t forward, how;
    dnnl_primitive_desc_t hint;
    if (dnnl_inner_product_forward_desc_init(&forward, dnnl_forward_training, &d[0], &d[1], NULL, &d[2]) !=
            dnnl_success ||
        dnnl_primitive_desc_create(&hint, &forward, NULL, w->engine, NULL) != dnnl_success)
        return false;
    const bool made = dnnl_inner_product_backward_weights_desc_init(&how, &d[0], &d[1], NULL, &d[2]) == dnnl_success &&
                      dnnl_primitive_desc_create(out, &how, NULL, w->engine, hint) == dnnl_success;
    dnnl_primitive_desc_destroy(hint);
    return made;
}
#define HANDLE(d) (&(d))
#endif

/* A primitive with its three memories. */
typedef struct way {
    dnnl_primitive_t run;
    dnnl_memory_t memory[3];
    dnnl_exec_arg_t arg[3];
} way;

static bool prepare(const machine *w, dnnl_primitive_desc_t pd, description d[3], void *const at[3], const int name[3],
                    way *out)
{
    bool good = dnnl_primitive_create(&out->run, pd) == dnnl_success;
    for (int i = 0; good && i < 3; i++) {
        good = dnnl_memory_create(&out->memory[i], HANDLE(d[i]), w->engine, at[i]) == dnnl_success;
        out->arg[i] = (dnnl_exec_arg_t){ name[i], out->memory[i] };
    }
    dnnl_primitive_desc_destroy(pd);
    return good;
}

static bool by_matmul(const machine *w, const product *p, way *out)
{
    const dnnl_data_type_t in = p->bf16 ? dnnl_bf16 : dnnl_f32;
    description d[3];
    dnnl_primitive_desc_t pd;
    if (!describe(&d[0], p->m, p->k, p->trans_a, in) || !describe(&d[1], p->k, p->n, p->trans_b, in) ||
        !describe(&d[2], p->m, p->n, false, p->out_f32 ? dnnl_f32 : in) || !matmul(&pd, w, d))
        return false;
    return prepare(w, pd, d, (void *const[]){ w->a, w->b, w->c },
                   (const int[]){ DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST }, out);
}

/* dw [O, I] = dy [N, O]^T x [N, I]: m is O, n is I, k is N. */
static bool by_inner_product(const machine *w, const product *p, way *out)
{
    const dnnl_data_type_t in = p->bf16 ? dnnl_bf16 : dnnl_f32;
    description d[3];
    dnnl_primitive_desc_t pd;
    if (!p->trans_a || !describe(&d[0], p->k, p->n, false, in) || !describe(&d[1], p->m, p->n, false, dnnl_f32) ||
        !describe(&d[2], p->k, p->m, false, in) || !weights_gradient(&pd, w, d))
        return false;
    return prepare(w, pd, d, (void *const[]){ w->b, w->c, w->a },
                   (const int[]){ DNNL_ARG_SRC, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_DIFF_DST }, out);
}

static bool run(const machine *w, const product *p, const way *by)
{
    if (by)
        return dnnl_primitive_execute(by->run, w->stream, 3, by->arg) == dnnl_success &&
               dnnl_stream_wait(w->stream) == dnnl_success;
    const int64_t lda = p->trans_a ? p->m : p->k, ldb = p->trans_b ? p->k : p->n;
    return dnnl_sgemm(p->trans_a ? 'T' : 'N', p->trans_b ? 'T' : 'N', p->m, p->n, p->k, 1.0f, w->a, lda, w->b, ldb,
                      0.0f, w->c, p->n) == dnnl_success;
}

static double time_s(const machine *w, const product *p, const way *by)
{
    double s[MAX_REPS];
    int reps = 0;
    const uint64_t began = now_ns();
    if (!run(w, p, by)) return NO_WAY; /* and it is warm now */
    do {
        const uint64_t t0 = now_ns();
        if (!run(w, p, by)) return NO_WAY;
        s[reps++] = 1e-9 * (double)(now_ns() - t0);
    } while (reps < MAX_REPS && (reps < 3 || now_ns() - began < ENOUGH_NS));
    return median(s, reps);
}

static double quickest_s(const machine *w, const product *p)
{
    double best = p->bf16 ? NO_WAY : time_s(w, p, NULL);
    bool (*const ways[])(const machine *, const product *, way *) = { by_matmul, by_inner_product };
    for (int i = 0; i < 2; i++) {
        way by = { 0 };
        const double s = ways[i](w, p, &by) ? time_s(w, p, &by) : NO_WAY;
        if (s < best) best = s;
        for (int k = 0; k < 3; k++)
            if (by.memory[k]) dnnl_memory_destroy(by.memory[k]);
        if (by.run) dnnl_primitive_destroy(by.run);
    }
    return best;
}

/* --- memory ------------------------------------------------------------------------------------ */

typedef struct part {
    char *to, *from;
    size_t n;
} part;

static void *copy(void *arg)
{
    const part *p = arg;
    memcpy(p->to, p->from, p->n);
    return NULL;
}

/* Bytes a second, read and written ones, when as many threads copy a part each. */
static double copy_rate(int threads)
{
    char *from = malloc(COPY_BYTES), *to = malloc(COPY_BYTES);
    double s[MAX_REPS];
    if (!from || !to) return 0;
    memset(from, 1, COPY_BYTES);
    memset(to, 2, COPY_BYTES);
    for (int r = 0; r < MAX_REPS; r++) {
        pthread_t thread[MAX_THREADS];
        part parts[MAX_THREADS];
        const size_t each = COPY_BYTES / (size_t)threads;
        const uint64_t t0 = now_ns();
        for (int i = 0; i < threads; i++) {
            parts[i] = (part){ to + (size_t)i * each, from + (size_t)i * each, each };
            if (pthread_create(&thread[i], NULL, copy, &parts[i]) != 0) return 0;
        }
        for (int i = 0; i < threads; i++) pthread_join(thread[i], NULL);
        s[r] = 1e-9 * (double)(now_ns() - t0);
    }
    free(to);
    free(from);
    return 2.0 * (double)COPY_BYTES / median(s, MAX_REPS);
}

/* Small numbers, right in f32 and in bf16. */
static void *operand(size_t n)
{
    uint32_t *p = aligned_alloc(64, (4 * n + 63) / 64 * 64);
    for (size_t i = 0; p && i < n; i++) p[i] = i % 3 ? 0x3f803f80u : 0xbf00bf00u;
    return p;
}

int main(int argc, char **argv)
{
    if (argc != 4 && argc != 7) {
        fprintf(stderr, "usage: bench_gpt_limit BATCH TOKENS f32|bf16 [LAYERS WIDTH VOCAB]\n");
        return 64;
    }
    const int64_t B = atoll(argv[1]), T = atoll(argv[2]), N = B * T;
    const bool bf16 = strcmp(argv[3], "bf16") == 0;
    const int64_t L = argc > 4 ? atoll(argv[4]) : 12, C = argc > 4 ? atoll(argv[5]) : 768;
    const int64_t V = argc > 4 ? atoll(argv[6]) : 50257;
    const int64_t most = V > 4 * C ? V : 4 * C;
    const char *set = getenv("OMP_NUM_THREADS");
    const int threads = set && atoi(set) > 0 && atoi(set) <= MAX_THREADS ? atoi(set) : 1;
    machine w = { .a = operand((size_t)(most * (N > C ? N : C))), .b = operand((size_t)(most * (N > C ? N : C))) };
    w.c = operand((size_t)(most * (N > C ? N : C)));
    if (!w.a || !w.b || !w.c || dnnl_engine_create(&w.engine, dnnl_cpu, 0) != dnnl_success ||
        dnnl_stream_create(&w.stream, w.engine, dnnl_stream_default_flags) != dnnl_success) {
        fprintf(stderr, "bench_gpt_limit: no memory, or no oneDNN\n");
        return 1;
    }
    const struct { int64_t O, I, times; } matrix[] = { { 3 * C, C, L }, { C, C, L }, { 4 * C, C, L }, { C, 4 * C, L },
                                                       { V, C, 1 } };
    double gemm_s = 0, flops = 0;
    printf("# ms of one product and its GFLOP/s, quickest way of oneDNN, %d threads\n", threads);
    for (int i = 0; i < 5; i++) {
        const int64_t O = matrix[i].O, I = matrix[i].I;
        const product one[3] = { { .m = N, .n = O, .k = I, .trans_b = true, .bf16 = bf16 },
                                 { .m = N, .n = I, .k = O, .bf16 = bf16 },
                                 { .m = O, .n = I, .k = N, .trans_a = true, .bf16 = bf16, .out_f32 = true } };
        const double each = 2.0 * (double)N * (double)O * (double)I;
        printf("# [%lld, %lld] x %lld:", (long long)O, (long long)I, (long long)matrix[i].times);
        for (int p = 0; p < 3; p++) {
            const double s = quickest_s(&w, &one[p]);
            if (s >= NO_WAY) {
                fprintf(stderr, "bench_gpt_limit: oneDNN has no product in %s on this processor\n", argv[3]);
                return 1;
            }
            gemm_s += s * (double)matrix[i].times;
            flops += each * (double)matrix[i].times;
            printf(" %s %.3f %.0f", p == 0 ? "forward" : p == 1 ? "dx" : "dw", 1e3 * s, 1e-9 * each / s);
        }
        printf("\n");
    }
    const double rate = flops / gemm_s, copied = copy_rate(threads);
    const double attention = 6.0 * (double)(L * B * C) * (double)T * (double)(T + 1);
    const double parameters = (double)(L * (12 * C * C + 13 * C) + (V + 1024 + 2) * C);
    const double attention_s = attention / rate, traffic_s = parameters * (bf16 ? 34 : 32) / copied;
    printf("limit_ms,gemm_ms,attention_ms,traffic_ms,gflops,gbytes_s\n%.3f,%.3f,%.3f,%.3f,%.1f,%.1f\n",
           1e3 * (gemm_s + attention_s + traffic_s), 1e3 * gemm_s, 1e3 * attention_s, 1e3 * traffic_s, 1e-9 * rate,
           1e-9 * copied);
    dnnl_stream_destroy(w.stream);
    dnnl_engine_destroy(w.engine);
    free(w.a);
    free(w.b);
    free(w.c);
    return 0;
}
#endif
