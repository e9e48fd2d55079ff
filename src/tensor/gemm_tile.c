/* gemm_tile.c -- the list of tile kernels, and the one that runs everywhere. */
#include "tensor/gemm_tile.h"

#include <stddef.h>
#include <string.h>

#define MR 4
#define NR 8

static bool always(void) { return true; }

static void run(const ls_gemm_tile_args *t)
{
    float acc[MR][NR] = { 0 }, row[NR] = { 0 };
    for (int64_t k = 0; k < t->k; k++) {
        const float *a = t->a + k * t->a_col;
        memcpy(row, t->b + k * t->ldb, (size_t)t->nr * sizeof *row);
        for (int i = 0; i < t->mr; i++)
            for (int j = 0; j < NR; j++) acc[i][j] += a[i * t->a_row] * row[j];
    }
    for (int i = 0; i < t->mr; i++)
        for (int j = 0; j < t->nr; j++) {
            float *c = t->c + i * t->ldc + j, sum = acc[i][j];
            if (t->bias) sum += t->bias[j];
            *c = t->add ? *c + sum : sum;
        }
}

static void pack(float *out, const float *b, int64_t ldb, int columns, int64_t k)
{
    for (int j = 0; j < columns; j++)
        for (int64_t i = 0; i < k; i++) out[i * NR + j] = b[j * ldb + i];
}

static const ls_gemm_tile plain = {
    .name = "plain", .mr = MR, .nr = NR, .most_flops = 1 << 14, .supported = always, .run = run, .pack = pack,
};

#if defined(__x86_64__)
extern const ls_gemm_tile ls_gemm_tile_avx512, ls_gemm_tile_avx2, ls_gemm_tile_avx512_pairs; /* gemm_tile_x86.c */
#endif

const ls_gemm_tile *const ls_gemm_tiles[] = {
#if defined(__x86_64__)
    &ls_gemm_tile_avx512, &ls_gemm_tile_avx2,
#endif
    &plain, NULL,
};

const ls_gemm_tile *ls_gemm_tile_best(void)
{
    int i = 0;
    while (!ls_gemm_tiles[i]->supported()) i++;
    return ls_gemm_tiles[i];
}

bool ls_gemm_tile_pairs_pay(void)
{
#if defined(__x86_64__)
    return !__builtin_cpu_is("intel"); /* not CPUID: a hypervisor's guest pays microseconds for it */
#else
    return true;
#endif
}

const ls_gemm_tile *ls_gemm_tile_of_pairs(void)
{
#if defined(__x86_64__)
    if (ls_gemm_tile_avx512_pairs.supported()) return &ls_gemm_tile_avx512_pairs;
#endif
    return NULL;
}
