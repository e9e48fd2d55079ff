/* gemm_few_x86.c -- kernels of gemm_few.h for AVX-512 and AVX2 with FMA.
 *
 * As in gemm_tile_x86.c: chosen when the program runs, and what is constant of an instance makes its accumulators
 * registers: 6 x 4 and 12 x 2 of AVX-512, 6 x 2 of AVX2.
 */
#include "tensor/gemm_few.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define LINE 16 /* floats */

/* Asks for lines of the weights that come next, LS_FEW_ROWS for every LINE steps of q. */
static inline __attribute__((always_inline)) void fetch(const ls_few_tile *t, int64_t q)
{
    const float *at = t->ahead + q / LINE * t->ahead_step;
    for (int i = 0; i < LS_FEW_ROWS; i++) __builtin_prefetch(at + i * t->ahead_row, 0, 3);
}

/* --- AVX-512 ----------------------------------------------------------------------------------------------------- */

#define LANES512 16
#define VECTORS512 4
#define SUM_ROWS512 12

__attribute__((target("avx512f"), always_inline))
static inline void tile_avx512(const ls_few_tile *t, const int rows, const int nv, const bool across)
{
    const int64_t stride = t->stride, k = t->k;
    const float *w = t->w, *first = t->tokens, *second = t->tokens + t->panel;
    __m512 acc[LS_FEW_ROWS][VECTORS512], x[VECTORS512];

#pragma GCC unroll 6
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int v = 0; v < nv; v++)
            acc[i][v] = t->add ? _mm512_loadu_ps(t->sum + (i * VECTORS512 + v) * LANES512) : _mm512_setzero_ps();

    for (int64_t q = 0; q < k;) {
        const int64_t end = q + LINE < k ? q + LINE : k;
        if (t->ahead) fetch(t, q);
        for (; q < end; q++) {
#pragma GCC unroll 4
            for (int v = 0; v < nv; v++)
                x[v] = _mm512_loadu_ps((v < 2 ? first : second) + (2 * q + v % 2) * LANES512);
#pragma GCC unroll 6
            for (int i = 0; i < rows; i++) {
                const __m512 one = _mm512_set1_ps(across ? w[q * stride + i] : w[i * stride + q]);
#pragma GCC unroll 4
                for (int v = 0; v < nv; v++) acc[i][v] = _mm512_fmadd_ps(one, x[v], acc[i][v]);
            }
        }
    }

#pragma GCC unroll 6
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int v = 0; v < nv; v++) _mm512_storeu_ps(t->sum + (i * VECTORS512 + v) * LANES512, acc[i][v]);
}

__attribute__((target("avx512f"), always_inline))
static inline void vectors_avx512(const ls_few_tile *t, const int rows, const bool across)
{
    switch (t->vectors) {
    case 4: tile_avx512(t, rows, 4, across); break;
    case 3: tile_avx512(t, rows, 3, across); break;
    case 2: tile_avx512(t, rows, 2, across); break;
    default: tile_avx512(t, rows, 1, across); break;
    }
}

__attribute__((target("avx512f"), always_inline))
static inline void rows_avx512(const ls_few_tile *t, const bool across)
{
    switch (t->rows) {
    case 6: vectors_avx512(t, 6, across); break;
    case 4: vectors_avx512(t, 4, across); break;
    case 2: vectors_avx512(t, 2, across); break;
    default: vectors_avx512(t, 1, across); break;
    }
}

__attribute__((target("avx512f"))) static void run_avx512(const ls_few_tile *t)
{
    if (t->across) rows_avx512(t, true);
    else rows_avx512(t, false);
}

/* Rows of C are asked for one after another while q runs. */
__attribute__((target("avx512f"), always_inline))
static inline void sum_avx512(const ls_few_sum *t, const int rows)
{
    const float *a = t->a, *b = t->b;
    __m512 acc[SUM_ROWS512][2];

#pragma GCC unroll 12
    for (int i = 0; i < rows; i++) acc[i][0] = acc[i][1] = _mm512_setzero_ps();

    int64_t q = 0;
    for (int row = 0; row < rows; row++) {
        __builtin_prefetch(t->ahead + row * t->ldc, 1, 3);
        __builtin_prefetch(t->ahead + row * t->ldc + LINE, 1, 3);
        for (const int64_t end = (row + 1) * t->k / rows; q < end; q++, a += rows, b += 2 * LANES512) {
            const __m512 left = _mm512_loadu_ps(b), right = _mm512_loadu_ps(b + LANES512);
#pragma GCC unroll 12
            for (int i = 0; i < rows; i++) {
                const __m512 one = _mm512_set1_ps(a[i]);
                acc[i][0] = _mm512_fmadd_ps(one, left, acc[i][0]);
                acc[i][1] = _mm512_fmadd_ps(one, right, acc[i][1]);
            }
        }
    }

#pragma GCC unroll 12
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 2
        for (int v = 0; v < 2; v++) {
            float *c = t->c + i * t->ldc + v * LANES512;
            _mm512_storeu_ps(c, t->add ? _mm512_add_ps(_mm512_loadu_ps(c), acc[i][v]) : acc[i][v]);
        }
}

__attribute__((target("avx512f"))) static void add_avx512(const ls_few_sum *t)
{
    switch (t->rows) {
    case 12: sum_avx512(t, 12); break;
    case 8: sum_avx512(t, 8); break;
    case 4: sum_avx512(t, 4); break;
    case 2: sum_avx512(t, 2); break;
    default: sum_avx512(t, 1); break;
    }
}

/* --- AVX2 -------------------------------------------------------------------------------------------------------- */

#define LANES2 8
#define VECTORS2 2
#define SUM_ROWS2 6

__attribute__((target("avx2,fma"), always_inline))
static inline void tile_avx2(const ls_few_tile *t, const int rows, const int nv, const bool across)
{
    const int64_t stride = t->stride, k = t->k;
    const float *w = t->w, *tokens = t->tokens;
    __m256 acc[LS_FEW_ROWS][VECTORS2], x[VECTORS2];

#pragma GCC unroll 6
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 2
        for (int v = 0; v < nv; v++)
            acc[i][v] = t->add ? _mm256_loadu_ps(t->sum + (i * VECTORS2 + v) * LANES2) : _mm256_setzero_ps();

    for (int64_t q = 0; q < k;) {
        const int64_t end = q + LINE < k ? q + LINE : k;
        if (t->ahead) fetch(t, q);
        for (; q < end; q++) {
#pragma GCC unroll 2
            for (int v = 0; v < nv; v++) x[v] = _mm256_loadu_ps(tokens + (2 * q + v) * LANES2);
#pragma GCC unroll 6
            for (int i = 0; i < rows; i++) {
                const __m256 one = _mm256_set1_ps(across ? w[q * stride + i] : w[i * stride + q]);
#pragma GCC unroll 2
                for (int v = 0; v < nv; v++) acc[i][v] = _mm256_fmadd_ps(one, x[v], acc[i][v]);
            }
        }
    }

#pragma GCC unroll 6
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 2
        for (int v = 0; v < nv; v++) _mm256_storeu_ps(t->sum + (i * VECTORS2 + v) * LANES2, acc[i][v]);
}

__attribute__((target("avx2,fma"), always_inline))
static inline void rows_avx2(const ls_few_tile *t, const int nv, const bool across)
{
    switch (t->rows) {
    case 6: tile_avx2(t, 6, nv, across); break;
    case 4: tile_avx2(t, 4, nv, across); break;
    case 2: tile_avx2(t, 2, nv, across); break;
    default: tile_avx2(t, 1, nv, across); break;
    }
}

__attribute__((target("avx2,fma"))) static void run_avx2(const ls_few_tile *t)
{
    if (t->across && t->vectors == 2) rows_avx2(t, 2, true);
    else if (t->across) rows_avx2(t, 1, true);
    else if (t->vectors == 2) rows_avx2(t, 2, false);
    else rows_avx2(t, 1, false);
}

__attribute__((target("avx2,fma"), always_inline))
static inline void sum_avx2(const ls_few_sum *t, const int rows)
{
    const float *a = t->a, *b = t->b;
    __m256 acc[SUM_ROWS2][2];

#pragma GCC unroll 6
    for (int i = 0; i < rows; i++) acc[i][0] = acc[i][1] = _mm256_setzero_ps();

    int64_t q = 0;
    for (int row = 0; row < rows; row++) {
        __builtin_prefetch(t->ahead + row * t->ldc, 1, 3);
        for (const int64_t end = (row + 1) * t->k / rows; q < end; q++, a += rows, b += 2 * LANES2) {
            const __m256 left = _mm256_loadu_ps(b), right = _mm256_loadu_ps(b + LANES2);
#pragma GCC unroll 6
            for (int i = 0; i < rows; i++) {
                const __m256 one = _mm256_set1_ps(a[i]);
                acc[i][0] = _mm256_fmadd_ps(one, left, acc[i][0]);
                acc[i][1] = _mm256_fmadd_ps(one, right, acc[i][1]);
            }
        }
    }

#pragma GCC unroll 6
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 2
        for (int v = 0; v < 2; v++) {
            float *c = t->c + i * t->ldc + v * LANES2;
            _mm256_storeu_ps(c, t->add ? _mm256_add_ps(_mm256_loadu_ps(c), acc[i][v]) : acc[i][v]);
        }
}

__attribute__((target("avx2,fma"))) static void add_avx2(const ls_few_sum *t)
{
    switch (t->rows) {
    case 6: sum_avx2(t, 6); break;
    case 4: sum_avx2(t, 4); break;
    case 2: sum_avx2(t, 2); break;
    default: sum_avx2(t, 1); break;
    }
}

extern const ls_gemm_tile ls_gemm_tile_avx512, ls_gemm_tile_avx2; /* gemm_tile_x86.c */

static const ls_few_kernel avx512 = {
    .tile = &ls_gemm_tile_avx512, .block = VECTORS512 * LANES512, .lanes = LANES512, .most_rows = SUM_ROWS512,
    .panels = 1 << 18, .most_y = 512, .most_dx = 64, .most_dw = 128, .run = run_avx512, .add = add_avx512,
};
static const ls_few_kernel avx2 = {
    .tile = &ls_gemm_tile_avx2, .block = VECTORS2 * LANES2, .lanes = LANES2, .most_rows = SUM_ROWS2,
    .panels = 1 << 16, .most_y = 512, .run = run_avx2, .add = add_avx2,
};
const ls_few_kernel *const ls_few_kernels[] = { &avx512, &avx2, NULL };
#else
const ls_few_kernel *const ls_few_kernels[] = { NULL };
#endif
