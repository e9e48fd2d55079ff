/* bench_gemm.c -- matrix products of training.
 *
 *   build/bench/bench_gemm            small layers: the project's own tiles beside the library. The row where the
 *                                     library overtakes is where gemm.c's limit belongs
 *   build/bench/bench_gemm gpt [M]    layers of GPT-2 (M tokens; all of 256, 1024, 4096): each way of the library, from
 *                                     which gemm_dnnl.c chooses
 *   build/bench/bench_gemm few [M]    four layers of GPT-2, one after another, so that weights come from memory (M
 *                                     tokens; all of 24 to 1024): the library beside the walks of gemm_few.c. Where the
 *                                     library overtakes is where ls_gemm_few_takes ends. With the name of a kernel
 *                                     (avx2) after M, by that one
 *   build/bench/bench_gemm pages [M]  the same layers (M tokens; 64) in memory that ranks share: each weight in an
 *                                     arena of its own, too small for huge pages, and all in one, which has them
 *
 * with OMP_NUM_THREADS=1 and 2. Figures are comparable within a run only.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "lockstep/mem.h"
#include "tensor/gemm_few.h"
#include "tensor/threads.h"

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

static int small(void)
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

/* --- layers of GPT-2, by each way of the library ------------------------------------------------- */

/* The time of one thread is its own, so that a busy machine disturbs little; that of several is the clock's. */
static uint64_t spent_ns(void)
{
    struct timespec t;
    clock_gettime(ls_team_size() == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* The best of the repetitions: on a busy machine the median says more about the others. */
static double best_gflops(ls_gemm_library *l, const ls_gemm_call *c)
{
    double best = 0.0;
    for (int r = -1; r < 9; r++) {
        const uint64_t t0 = spent_ns();
        if (ls_gemm_library_run(l, c) < 0) return 0.0;
        const double speed = 2.0 * (double)c->m * (double)c->n * (double)c->k / (double)(spent_ns() - t0);
        if (r >= 0 && speed > best) best = speed;
    }
    return best;
}

static void *filled(int64_t n)
{
    float *x = aligned_alloc(64, (size_t)(n + 16) * 4 / 64 * 64);
    if (!x) exit(1);
    for (int64_t i = 0; i < n; i++) x[i] = (float)(i % 7 - 3); /* as bfloat16 the upper half is right, the lower 0 */
    return x;
}

static int gpt(int64_t only)
{
    static const struct { const char *name; int64_t I, O; } layer[] = {
        { "qkv", 768, 2304 }, { "proj", 768, 768 },  { "fc1", 768, 3072 },      { "fc2", 3072, 768 },
        { "head", 768, 3872 }, { "qkv6", 384, 1152 }, { "fc1 6", 384, 1536 },   { "fc2 6", 1536, 384 },
    };
    ls_gemm_library *l;
    if (ls_gemm_library_open(&l) < 0) return 1;
    printf("%6s %6s %6s %-8s %-8s", "M", "I", "O", "layer", "product");
    for (int way = 0; ls_gemm_library_way(way); way++) printf(" %13s", ls_gemm_library_way(way));
    printf("   GFLOP/s; | float | bfloat16\n");
    for (int64_t M = 256; M <= 4096; M *= 4)
        for (size_t i = 0; i < sizeof layer / sizeof *layer && (!only || M == only); i++) {
            const int64_t I = layer[i].I, O = layer[i].O;
            float *x = filled(M * I), *w = filled(O * I), *y = filled(M * O), *bias = filled(O);
            const struct { const char *name; ls_gemm_call c; } product[] = {
                { "forward", { .m = M, .n = O, .k = I, .trans_b = true, .a = x, .b = w, .bias = bias, .c = y } },
                { "no bias", { .m = M, .n = O, .k = I, .trans_b = true, .a = x, .b = w, .c = y } },
                { "dx", { .m = M, .n = I, .k = O, .a = y, .b = w, .c = x } },
                { "dx add", { .m = M, .n = I, .k = O, .a = y, .b = w, .c = x, .add = true } },
                { "dw", { .m = O, .n = I, .k = M, .trans_a = true, .a = y, .b = x, .c = w } },
                { "dw add", { .m = O, .n = I, .k = M, .trans_a = true, .a = y, .b = x, .c = w, .add = true } },
            };
            for (int p = 0; p < 6; p++) {
                printf("%6lld %6lld %6lld %-8s %-8s", (long long)M, (long long)I, (long long)O, layer[i].name,
                       product[p].name);
                for (int half = 0; half < 2; half++) {
                    ls_gemm_call c = product[p].c;
                    if (half) c.in = LS_BF16;
                    if (half && p < 4 && i != 4) c.out = LS_BF16; /* the head's stay float */
                    printf(" |");
                    for (int way = 0; ls_gemm_library_way(way); way++) {
                        ls_gemm_library_force(l, way);
                        if (ls_gemm_library_can(way, &c)) printf(" %6.0f", best_gflops(l, &c));
                        else printf("      -");
                    }
                }
                printf("\n");
                fflush(stdout);
            }
            free(x);
            free(w);
            free(y);
            free(bias);
        }
    ls_gemm_library_close(l);
    return 0;
}

/* --- few tokens ------------------------------------------------------------------------------------ */

enum { LAYERS = 4, WEIGHTS = 4, FEW_TOKENS = 128, FEW_MOST = 1024, FEW_REPS = 3 };
static const struct { int64_t I, O; } weight_of[WEIGHTS] = {
    { 768, 2304 }, { 768, 768 }, { 768, 3072 }, { 3072, 768 },
};
static const char *const few_name[] = { "y", "dx", "dw" };

static ls_gemm_call few_call(int what, int64_t M, int64_t I, int64_t O, float *x, float *w, float *y)
{
    if (what == 0) return (ls_gemm_call){ .m = M, .n = O, .k = I, .trans_b = true, .a = x, .b = w, .c = y };
    if (what == 1) return (ls_gemm_call){ .m = M, .n = I, .k = O, .a = y, .b = w, .c = x };
    return (ls_gemm_call){ .m = O, .n = I, .k = M, .trans_a = true, .add = true, .a = y, .b = x, .c = w };
}

/* All layers in micro-batches of M tokens, at least FEW_TOKENS together. GFLOP/s. */
static double few_gflops(ls_gemm_library *l, ls_gemm_few *f, int what, int64_t M, float *x, float *(*w)[WEIGHTS],
                         float *y)
{
    double flops = 0.0;
    const uint64_t t0 = now_ns();
    for (int64_t at = 0; at < FEW_TOKENS; at += M)
        for (int i = 0; i < LAYERS * WEIGHTS; i++) {
            const int layer = what == 0 ? i / WEIGHTS : LAYERS - 1 - i / WEIGHTS;
            const int64_t I = weight_of[i % WEIGHTS].I, O = weight_of[i % WEIGHTS].O;
            const ls_gemm_call c = few_call(what, M, I, O, x, w[layer][i % WEIGHTS], y);
            if ((f ? ls_gemm_few_run(f, &c) : ls_gemm_library_run(l, &c)) < 0) return 0.0;
            flops += 2.0 * (double)M * (double)I * (double)O;
        }
    return flops / (double)(now_ns() - t0);
}

static int few(int64_t only, const char *kernel)
{
    static const int64_t tokens[] = { 24, 32, 48, 64, 80, 96, 128, 256, 384, 512, FEW_MOST };
    float *x = filled(FEW_MOST * 3072), *y = filled(FEW_MOST * 3072), *w[LAYERS][WEIGHTS];
    ls_gemm_library *l;
    ls_gemm_few *f;
    if (ls_gemm_library_open(&l) < 0 || ls_gemm_few_create(&f) < 0) return 1;
    for (int i = 0; kernel && ls_few_kernels[i]; i++)
        if (strcmp(ls_few_kernels[i]->tile->name, kernel) == 0) ls_gemm_few_use(f, ls_few_kernels[i]);
    for (int i = 0; i < LAYERS * WEIGHTS; i++)
        w[i / WEIGHTS][i % WEIGHTS] = filled(weight_of[i % WEIGHTS].I * weight_of[i % WEIGHTS].O);
    printf("%6s", "M");
    for (int what = 0; what < 3; what++) printf(" | %4s %8s %6s", few_name[what], ls_gemm_library_name(), "few");
    printf("   GFLOP/s, medians of %d\n", FEW_REPS);
    for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++) {
        if (only && tokens[i] != only) continue;
        printf("%6lld", (long long)tokens[i]);
        for (int what = 0; what < 3; what++) {
            double speed[2][FEW_REPS];
            for (int r = -1; r < FEW_REPS; r++)
                for (int own = 0; own < 2; own++) {
                    const double now = few_gflops(l, own ? f : NULL, what, tokens[i], x, w, y);
                    if (r >= 0) speed[own][r] = now;
                }
            for (int own = 0; own < 2; own++) qsort(speed[own], FEW_REPS, sizeof **speed, by_value);
            printf(" |      %8.0f %6.0f", speed[0][FEW_REPS / 2], speed[1][FEW_REPS / 2]);
        }
        printf("\n");
        fflush(stdout);
    }
    for (int i = 0; i < LAYERS * WEIGHTS; i++) free(w[i / WEIGHTS][i % WEIGHTS]);
    free(x);
    free(y);
    ls_gemm_few_destroy(f);
    ls_gemm_library_close(l);
    return 0;
}

/* --- the same in shared memory ----------------------------------------------------------------------- */

enum { PAGES_REPS = 20, PAGES_TIMES = PAGES_REPS * LAYERS };

static size_t weight_bytes(int i) { return (size_t)(weight_of[i].I * weight_of[i].O) * sizeof(float); }

/* All layers, again and again. GFLOP/s if each product took what its fastest tenth takes, which other work on the
 * machine changes little. */
static double pages_gflops(ls_gemm *g, int what, int64_t M, float *x, float *(*w)[WEIGHTS], float *y)
{
    double ns[WEIGHTS][PAGES_TIMES], sum = 0.0, flops = 0.0;
    for (int at = 0; at < PAGES_TIMES; at++)
        for (int i = 0; i < WEIGHTS; i++) {
            const ls_gemm_call c = few_call(what, M, weight_of[i].I, weight_of[i].O, x, w[at % LAYERS][i], y);
            const uint64_t t0 = now_ns();
            if (ls_gemm_run(g, &c) < 0) return 0.0;
            ns[i][at] = (double)(now_ns() - t0);
        }
    for (int i = 0; i < WEIGHTS; i++) {
        qsort(ns[i], PAGES_TIMES, sizeof **ns, by_value);
        sum += ns[i][PAGES_TIMES / 10];
        flops += 2.0 * (double)(M * weight_of[i].I * weight_of[i].O);
    }
    return flops / sum;
}

static int pages(int64_t M)
{
    static const char *const name[2] = { "an arena each", "one arena" };
    float *x = filled(M * 3072), *y = filled(M * 3072), *w[2][LAYERS][WEIGHTS];
    ls_arena *own[LAYERS * WEIGHTS], *one;
    ls_gemm *g;
    size_t all = 0;
    for (int i = 0; i < LAYERS * WEIGHTS; i++) all += weight_bytes(i % WEIGHTS);
    if (ls_gemm_create(&g) < 0 || ls_arena_create(all, true, NULL, &one) < 0) return 1;
    for (int i = 0; i < LAYERS * WEIGHTS; i++)
        for (int in_one = 0; in_one < 2; in_one++) {
            const size_t nbytes = weight_bytes(i % WEIGHTS);
            void *p;
            if (!in_one && ls_arena_create(nbytes, true, NULL, &own[i]) < 0) return 1;
            if (ls_arena_alloc(in_one ? one : own[i], nbytes, LS_MEM_PARAM, &p) < 0) return 1;
            w[in_one][i / WEIGHTS][i % WEIGHTS] = p;
        }
    printf("%-14s %6s %6s %6s   GFLOP/s with %lld tokens, of the fastest tenth of %d times\n", "weights in",
           few_name[0], few_name[1], few_name[2], (long long)M, PAGES_TIMES);
    for (int in_one = 0; in_one < 2; in_one++) {
        printf("%-14s", name[in_one]);
        for (int what = 0; what < 3; what++) printf(" %6.0f", pages_gflops(g, what, M, x, w[in_one], y));
        printf("\n");
    }
    for (int i = 0; i < LAYERS * WEIGHTS; i++) ls_arena_destroy(own[i]);
    ls_arena_destroy(one);
    ls_gemm_destroy(g);
    free(x);
    free(y);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "pages") == 0) return pages(argc > 2 ? atoll(argv[2]) : 64);
    if (argc > 1 && strcmp(argv[1], "few") == 0) return few(argc > 2 ? atoll(argv[2]) : 0, argc > 3 ? argv[3] : NULL);
    if (argc > 1 && strcmp(argv[1], "gpt") == 0) return gpt(argc > 2 ? atoll(argv[2]) : 0);
    return small();
}
