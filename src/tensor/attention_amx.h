/* attention_amx.h -- attention by tiles of bfloat16 (amx.h); private to attention*.c.
 *
 * Everything is of whole tiles, numbers that are not there being 0:
 *
 *   A   along D      rows as they lie, [d / 32] [row / 16]     of keys and values, for S^T and dP^T
 *       transposed   [row / 32] [d / 16]                       of values and keys, for out^T and dQ^T
 *   B   along D      transposed pairs, [row / 16] [d / 32]     of queries and dout, for S^T and dP^T
 *       down         pairs of rows, [d / 16] [row / 32]        of dout and queries, for dV and dK
 */
#ifndef LS_TENSOR_ATTENTION_AMX_H
#define LS_TENSOR_ATTENTION_AMX_H
#include "tensor/attention_impl.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include "tensor/amx.h"

#define AMX_TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")))
#define AMX_INLINE AMX_TARGET __attribute__((always_inline)) static inline

/* Of a block, with KEYS keys. Backward loads and stores dK and dV once for so many queries: of 64 it takes an eighth
 * longer. */
#define AMX_QUERIES (2 * QUERIES)

/* n rows of D bfloat16, of `row` elements each. */
typedef struct ls_amx_rows {
    const uint16_t *x;
    int64_t row, n, D;
} ls_amx_rows;

/* Rows beyond the n-th are 0, up to a multiple of `whole`. `flip` turns the signs. attention_amx_pack.c */
void ls_amx_pack_a_along(uint16_t *to, const ls_amx_rows *from, int whole);
void ls_amx_pack_a_transposed(uint16_t *to, const ls_amx_rows *from, int whole);
void ls_amx_pack_b_along(uint16_t *to, const ls_amx_rows *from, int whole, bool flip);
void ls_amx_pack_b_down(uint16_t *to, const ls_amx_rows *from, int whole);

/* 16 columns of a transposed result, x [D rounded up to 16, 16] floats, times a factor each, as rows to[row[i]], i < n;
 * rounded once. A row of -1 is left out. */
void ls_amx_put_columns(const ls_attention_call *c, uint16_t *to, int64_t to_row, const float *x, const float *factor,
                        const int row[16], bool add);
/* Tiles x [n / 16] [D / 16] as n rows. */
void ls_amx_put_tiles(const ls_attention_call *c, uint16_t *to, int64_t to_row, const float *x, int64_t n, bool add);

/* The square of vectors of 16 words, in place. */
AMX_INLINE void transpose16(__m512i r[16])
{
    __m512i s[16];
#pragma GCC unroll 8
    for (int i = 0; i < 16; i += 2) {
        s[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
        s[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 16; i += 4)
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++) {
            r[i + 2 * h] = _mm512_unpacklo_epi64(s[i + h], s[i + 2 + h]);
            r[i + 2 * h + 1] = _mm512_unpackhi_epi64(s[i + h], s[i + 2 + h]);
        }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) { /* lanes of rows i, i + 4, i + 8, i + 12 */
        s[i] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0x88);
        s[i + 4] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0xdd);
        s[i + 8] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0x88);
        s[i + 12] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0xdd);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        r[i] = _mm512_shuffle_i32x4(s[i], s[i + 8], 0x88);
        r[i + 8] = _mm512_shuffle_i32x4(s[i], s[i + 8], 0xdd);
        r[i + 4] = _mm512_shuffle_i32x4(s[i + 4], s[i + 12], 0x88);
        r[i + 12] = _mm512_shuffle_i32x4(s[i + 4], s[i + 12], 0xdd);
    }
}

/* 2^t to 2.5 ulp: of floor(t) by the exponent, of the rest by a polynomial that is 1 at 0; 0 below 2^-126. */
AMX_INLINE __m512 exp2_of(__m512 t)
{
    const __m512 f = _mm512_reduce_ps(t, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
    __m512 p = _mm512_set1_ps(0x1.e97502p-10f);
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0x1.277854p-7f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0x1.c91ce6p-5f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0x1.ebdb56p-3f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0x1.62e4bap-1f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.0f));
    return _mm512_scalef_ps(p, t);
}

/* Queries 16 c to 16 c + 15 that see key j of the block, a bit each. */
static LS_ALWAYS_INLINE __mmask16 seeing(const block *at, int c, int j)
{
    const int64_t first = j - at->ahead - 16 * c;
    if (j >= at->keys || first >= 16) return 0;
    return (__mmask16)(first <= 0 ? 0xffffu : 0xffffu << first);
}

/* Which probabilities of the block from query i and key j on are kept: ls_attention_draw for more queries. */
static inline void draw(const ls_attention_call *c, int64_t row, int64_t i, int64_t j, uint64_t mask[AMX_QUERIES])
{
    for (int q = 0; q < AMX_QUERIES; q += QUERIES) {
        const block at = block_at(c, i + q, j);
        if (at.queries > 0) ls_attention_draw(c, &at, row + i + q, j, mask + q);
        else for (int l = q; l < q + QUERIES; l++) mask[l] = 0;
    }
}

/* Queries 16 c to 16 c + 15 whose probability of key j is kept. */
AMX_INLINE __mmask16 kept(const uint64_t *mask, int c, int j)
{
    const __m512i bit = _mm512_set1_epi64((long long)(1ull << j));
    const __mmask8 low = _mm512_test_epi64_mask(_mm512_loadu_si512(mask + 16 * c), bit);
    const __mmask8 high = _mm512_test_epi64_mask(_mm512_loadu_si512(mask + 16 * c + 8), bit);
    return (__mmask16)(low | high << 8);
}

/* Keys of the block, in whole 32, that a query of [0, end) sees. */
static LS_ALWAYS_INLINE int keys_up_to(const block *at, int end)
{
    const int seen = keys_seen(at, end - 1);
    return seen <= 0 ? 0 : (seen + 31) / 32 * 32;
}

/* The first keys, an even number of them, that query i and those after it all see. */
static LS_ALWAYS_INLINE int keys_of_all(const block *at, int i)
{
    const int seen = keys_seen(at, i);
    return seen <= 0 ? 0 : seen / 2 * 2;
}

static LS_ALWAYS_INLINE int64_t up(int64_t n, int64_t whole) { return (n + whole - 1) / whole * whole; }
#endif

#endif
