/* gemm_tile_x86.c -- tile kernels for AVX-512 (8 x 32, also of pairs of bfloat16) and AVX2 with FMA (6 x 16).
 *
 * Chosen when the program runs, so the file needs no compiler flag. The row
 * count, the number of vectors and whether the last vector is cut are
 * constants of each instance: then the accumulators are registers. 8 x 2 and
 * 6 x 2 accumulators hide the latency of the multiply-add (4 cycles, 1 or 2 a
 * cycle) and leave room for the row of B and a broadcast.
 */
#include "tensor/gemm_tile.h"

#if defined(__x86_64__)
#include <immintrin.h>

/* --- AVX-512 ----------------------------------------------------------------- */

/* sum + x row, of floats; of pairs the sum of both products, by the instruction's name: the intrinsic asks for a target
 * that the functions around it, which float shares, must not have. */
__attribute__((target("avx512f"), always_inline))
static inline __m512 multiply_add(__m512 x, __m512 row, __m512 sum, const bool pairs)
{
    if (!pairs) return _mm512_fmadd_ps(x, row, sum);
    __asm__("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(x), "v"(row));
    return sum;
}

__attribute__((target("avx512f"), always_inline))
static inline void tile_avx512(const ls_gemm_tile_args *t, const int mr, const int nv, const bool cut, const bool pairs)
{
    const __mmask16 last = (__mmask16)(cut ? (1u << (t->nr - 16 * (nv - 1))) - 1u : 0xffffu);
    const int64_t a_row = t->a_row, a_col = t->a_col, ldb = t->ldb;
    const float *a = t->a, *b = t->b;
    __m512 acc[8][2], row[2];

#pragma GCC unroll 8
    for (int i = 0; i < mr; i++)
#pragma GCC unroll 2
        for (int v = 0; v < nv; v++) acc[i][v] = _mm512_setzero_ps();

    for (int64_t k = t->k; k > 0; k--, a += a_col, b += ldb) {
#pragma GCC unroll 2
        for (int v = 0; v < nv; v++)
            row[v] = cut && v == nv - 1 ? _mm512_maskz_loadu_ps(last, b + 16 * v) : _mm512_loadu_ps(b + 16 * v);
#pragma GCC unroll 8
        for (int i = 0; i < mr; i++) {
            const __m512 x = _mm512_set1_ps(a[i * a_row]);
#pragma GCC unroll 2
            for (int v = 0; v < nv; v++) acc[i][v] = multiply_add(x, row[v], acc[i][v], pairs);
        }
    }

#pragma GCC unroll 2
    for (int v = 0; v < nv; v++) {
        const bool whole = !cut || v < nv - 1;
        const __mmask16 mask = (__mmask16)(whole ? 0xffffu : last);
        const __m512 bias = t->bias ? _mm512_maskz_loadu_ps(mask, t->bias + 16 * v) : _mm512_setzero_ps();
#pragma GCC unroll 8
        for (int i = 0; i < mr; i++) {
            float *c = t->c + i * t->ldc + 16 * v;
            __m512 sum = t->bias ? _mm512_add_ps(acc[i][v], bias) : acc[i][v];
            if (t->add) sum = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, c), sum);
            if (whole) _mm512_storeu_ps(c, sum);
            else _mm512_mask_storeu_ps(c, mask, sum);
        }
    }
}

__attribute__((target("avx512f"), always_inline))
static inline void rows_avx512(const ls_gemm_tile_args *t, const int nv, const bool cut, const bool pairs)
{
    switch (t->mr) {
    case 8: tile_avx512(t, 8, nv, cut, pairs); break;
    case 7: tile_avx512(t, 7, nv, cut, pairs); break;
    case 6: tile_avx512(t, 6, nv, cut, pairs); break;
    case 5: tile_avx512(t, 5, nv, cut, pairs); break;
    case 4: tile_avx512(t, 4, nv, cut, pairs); break;
    case 3: tile_avx512(t, 3, nv, cut, pairs); break;
    case 2: tile_avx512(t, 2, nv, cut, pairs); break;
    default: tile_avx512(t, 1, nv, cut, pairs); break;
    }
}

__attribute__((target("avx512f"), always_inline))
static inline void columns_avx512(const ls_gemm_tile_args *t, const bool pairs)
{
    if (t->nr == 32) rows_avx512(t, 2, false, pairs);
    else if (t->nr > 16) rows_avx512(t, 2, true, pairs);
    else if (t->nr == 16) rows_avx512(t, 1, false, pairs);
    else rows_avx512(t, 1, true, pairs);
}

__attribute__((target("avx512f"))) static void run_avx512(const ls_gemm_tile_args *t) { columns_avx512(t, false); }
__attribute__((target("avx512f"))) static void run_avx512_pairs(const ls_gemm_tile_args *t) { columns_avx512(t, true); }

/* --- AVX2 -------------------------------------------------------------------- */

/* The first n (0 to 8) lanes. */
__attribute__((target("avx2"))) static inline __m256i lanes(int n)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

__attribute__((target("avx2,fma"), always_inline))
static inline void tile_avx2(const ls_gemm_tile_args *t, const int mr, const int nv, const bool cut)
{
    const __m256i last = lanes(t->nr - 8 * (nv - 1));
    const int64_t a_row = t->a_row, a_col = t->a_col, ldb = t->ldb;
    const float *a = t->a, *b = t->b;
    __m256 acc[6][2], row[2];

#pragma GCC unroll 6
    for (int i = 0; i < mr; i++)
#pragma GCC unroll 2
        for (int v = 0; v < nv; v++) acc[i][v] = _mm256_setzero_ps();

    for (int64_t k = t->k; k > 0; k--, a += a_col, b += ldb) {
#pragma GCC unroll 2
        for (int v = 0; v < nv; v++)
            row[v] = cut && v == nv - 1 ? _mm256_maskload_ps(b + 8 * v, last) : _mm256_loadu_ps(b + 8 * v);
#pragma GCC unroll 6
        for (int i = 0; i < mr; i++) {
            const __m256 x = _mm256_set1_ps(a[i * a_row]);
#pragma GCC unroll 2
            for (int v = 0; v < nv; v++) acc[i][v] = _mm256_fmadd_ps(x, row[v], acc[i][v]);
        }
    }

#pragma GCC unroll 2
    for (int v = 0; v < nv; v++) {
        const bool whole = !cut || v < nv - 1;
        const __m256i mask = whole ? _mm256_set1_epi32(-1) : last;
        const __m256 bias = t->bias ? _mm256_maskload_ps(t->bias + 8 * v, mask) : _mm256_setzero_ps();
#pragma GCC unroll 6
        for (int i = 0; i < mr; i++) {
            float *c = t->c + i * t->ldc + 8 * v;
            __m256 sum = t->bias ? _mm256_add_ps(acc[i][v], bias) : acc[i][v];
            if (t->add) sum = _mm256_add_ps(_mm256_maskload_ps(c, mask), sum);
            if (whole) _mm256_storeu_ps(c, sum);
            else _mm256_maskstore_ps(c, mask, sum);
        }
    }
}

__attribute__((target("avx2,fma"), always_inline))
static inline void rows_avx2(const ls_gemm_tile_args *t, const int nv, const bool cut)
{
    switch (t->mr) {
    case 6: tile_avx2(t, 6, nv, cut); break;
    case 5: tile_avx2(t, 5, nv, cut); break;
    case 4: tile_avx2(t, 4, nv, cut); break;
    case 3: tile_avx2(t, 3, nv, cut); break;
    case 2: tile_avx2(t, 2, nv, cut); break;
    default: tile_avx2(t, 1, nv, cut); break;
    }
}

__attribute__((target("avx2,fma"))) static void run_avx2(const ls_gemm_tile_args *t)
{
    if (t->nr == 16) rows_avx2(t, 2, false);
    else if (t->nr > 8) rows_avx2(t, 2, true);
    else if (t->nr == 8) rows_avx2(t, 1, false);
    else rows_avx2(t, 1, true);
}

/* --- packing, for both ---------------------------------------------------------- */

/* out[i * nr + j] = b[j * ldb + i] for an 8 x 8 block. */
__attribute__((target("avx"), always_inline))
static inline void transpose8(float *out, int nr, const float *b, int64_t ldb)
{
    __m256 r[8], s[8];
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) { /* lanes: rows j and j + 4, left and right half */
        const __m256 low = _mm256_castps128_ps256(_mm_loadu_ps(b + j * ldb));
        const __m256 high = _mm256_castps128_ps256(_mm_loadu_ps(b + j * ldb + 4));
        r[j] = _mm256_insertf128_ps(low, _mm_loadu_ps(b + (j + 4) * ldb), 1);
        r[j + 4] = _mm256_insertf128_ps(high, _mm_loadu_ps(b + (j + 4) * ldb + 4), 1);
    }
#pragma GCC unroll 2
    for (int h = 0; h < 8; h += 4) { /* a 4 x 4 transpose in each lane */
        s[h] = _mm256_unpacklo_ps(r[h], r[h + 1]);
        s[h + 1] = _mm256_unpackhi_ps(r[h], r[h + 1]);
        s[h + 2] = _mm256_unpacklo_ps(r[h + 2], r[h + 3]);
        s[h + 3] = _mm256_unpackhi_ps(r[h + 2], r[h + 3]);
        r[h] = _mm256_shuffle_ps(s[h], s[h + 2], _MM_SHUFFLE(1, 0, 1, 0));
        r[h + 1] = _mm256_shuffle_ps(s[h], s[h + 2], _MM_SHUFFLE(3, 2, 3, 2));
        r[h + 2] = _mm256_shuffle_ps(s[h + 1], s[h + 3], _MM_SHUFFLE(1, 0, 1, 0));
        r[h + 3] = _mm256_shuffle_ps(s[h + 1], s[h + 3], _MM_SHUFFLE(3, 2, 3, 2));
    }
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) _mm256_storeu_ps(out + i * nr, r[i]);
}

__attribute__((target("avx"), always_inline))
static inline void pack(float *out, const float *b, int64_t ldb, int columns, int64_t k, const int nr)
{
    int j = 0;
    for (; j + 8 <= columns; j += 8) {
        int64_t i = 0;
        for (; i + 8 <= k; i += 8) transpose8(out + i * nr + j, nr, b + j * ldb + i, ldb);
        for (; i < k; i++)
            for (int l = j; l < j + 8; l++) out[i * nr + l] = b[l * ldb + i];
    }
    for (; j < columns; j++)
        for (int64_t i = 0; i < k; i++) out[i * nr + j] = b[j * ldb + i];
}

__attribute__((target("avx"))) static void pack32(float *out, const float *b, int64_t ldb, int columns, int64_t k)
{
    pack(out, b, ldb, columns, k, 32);
}

__attribute__((target("avx"))) static void pack16(float *out, const float *b, int64_t ldb, int columns, int64_t k)
{
    pack(out, b, ldb, columns, k, 16);
}

static bool has_avx512(void) { return __builtin_cpu_supports("avx512f"); }
static bool has_avx512_bf16(void) { return has_avx512() && __builtin_cpu_supports("avx512bf16"); }
static bool has_avx2(void) { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }

extern const ls_gemm_tile ls_gemm_tile_avx512, ls_gemm_tile_avx2, ls_gemm_tile_avx512_pairs; /* for gemm_tile.c */

const ls_gemm_tile ls_gemm_tile_avx512 = {
    .name = "avx512", .mr = 8, .nr = 32, .most_flops = 1 << 23,
    .supported = has_avx512, .run = run_avx512, .pack = pack32,
};
const ls_gemm_tile ls_gemm_tile_avx2 = {
    .name = "avx2", .mr = 6, .nr = 16, .most_flops = 1 << 23,
    .supported = has_avx2, .run = run_avx2, .pack = pack16,
};
const ls_gemm_tile ls_gemm_tile_avx512_pairs = {
    .name = "avx512 pairs", .mr = 8, .nr = 32, .pairs = true,
    .supported = has_avx512_bf16, .run = run_avx512_pairs, .pack = pack32,
};
#else
typedef int ls_gemm_tile_x86_empty; /* nothing to compile elsewhere */
#endif
