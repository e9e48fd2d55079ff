/* attention_amx_pack.c -- rows as tiles of bfloat16, and results as rows. */
#include "tensor/attention_amx.h"

#if defined(__x86_64__)

/* Of elements [d, d + most) of a row, those that are there. */
static LS_ALWAYS_INLINE uint32_t there(const ls_amx_rows *from, int64_t d, int most)
{
    const int64_t left = from->D - d;
    const uint32_t all = most == 32 ? UINT32_MAX : 0xffffu;
    return left >= most ? all : left <= 0 ? 0 : (1u << left) - 1u;
}

AMX_TARGET void ls_amx_pack_a_along(uint16_t *to, const ls_amx_rows *from, int whole)
{
    const int64_t n = up(from->n, whole);
    for (int64_t d = 0; d < from->D; d += 32) {
        const __mmask32 mask = there(from, d, 32);
        for (int64_t i = 0; i < from->n; i++, to += 32)
            _mm512_store_si512(to, _mm512_maskz_loadu_epi16(mask, from->x + i * from->row + d));
        for (int64_t i = from->n; i < n; i++, to += 32) _mm512_store_si512(to, _mm512_setzero_si512());
    }
}

/* Words of 16 rows from i on, 32 elements from d on, as columns. */
AMX_TARGET void ls_amx_pack_b_along(uint16_t *to, const ls_amx_rows *from, int whole, bool flip)
{
    const int64_t n = up(from->n, whole);
    const __m512i signs = _mm512_set1_epi32(flip ? (int)0x80008000u : 0);
    for (int64_t i = 0; i < n; i += 16)
        for (int64_t d = 0; d < from->D; d += 32) {
            const __mmask32 mask = there(from, d, 32);
            __m512i r[16];
#pragma GCC unroll 16
            for (int l = 0; l < 16; l++)
                r[l] = i + l < from->n ? _mm512_maskz_loadu_epi16(mask, from->x + (i + l) * from->row + d)
                                       : _mm512_setzero_si512();
            transpose16(r);
#pragma GCC unroll 16
            for (int l = 0; l < 16; l++, to += 32) _mm512_store_si512(to, _mm512_xor_si512(r[l], signs));
        }
}

/* Word d of r[m]: elements d of rows i + 2m and i + 2m + 1. */
AMX_INLINE void pairs_of_rows(__m512i r[16], const ls_amx_rows *from, int64_t i, int64_t d)
{
    const __mmask16 mask = (__mmask16)there(from, d, 16);
#pragma GCC unroll 16
    for (int m = 0; m < 16; m++) {
        const int64_t row = i + 2 * m;
        const uint16_t *x = from->x + row * from->row + d;
        const __m256i low = row < from->n ? _mm256_maskz_loadu_epi16(mask, x) : _mm256_setzero_si256();
        const __m256i high = row + 1 < from->n ? _mm256_maskz_loadu_epi16(mask, x + from->row) : _mm256_setzero_si256();
        r[m] = _mm512_or_si512(_mm512_cvtepu16_epi32(low), _mm512_slli_epi32(_mm512_cvtepu16_epi32(high), 16));
    }
}

AMX_TARGET void ls_amx_pack_a_transposed(uint16_t *to, const ls_amx_rows *from, int whole)
{
    for (int64_t i = 0; i < up(from->n, whole); i += 32)
        for (int64_t d = 0; d < from->D; d += 16) {
            __m512i r[16];
            pairs_of_rows(r, from, i, d);
            transpose16(r);
#pragma GCC unroll 16
            for (int l = 0; l < 16; l++, to += 32) _mm512_store_si512(to, r[l]);
        }
}

AMX_TARGET void ls_amx_pack_b_down(uint16_t *to, const ls_amx_rows *from, int whole)
{
    for (int64_t d = 0; d < from->D; d += 16)
        for (int64_t i = 0; i < up(from->n, whole); i += 32) {
            __m512i r[16];
            pairs_of_rows(r, from, i, d);
#pragma GCC unroll 16
            for (int l = 0; l < 16; l++, to += 32) _mm512_store_si512(to, r[l]);
        }
}

/* --- results ------------------------------------------------------------------------- */

AMX_INLINE void put(uint16_t *to, __m512 x, __mmask16 mask, bool add)
{
    if (add) {
        const __m512i was = _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, to)), 16);
        x = _mm512_add_ps(_mm512_castsi512_ps(was), x);
    }
    _mm256_mask_storeu_epi16(to, mask, (__m256i)_mm512_cvtneps_pbh(x));
}

AMX_TARGET void ls_amx_put_columns(const ls_attention_call *c, uint16_t *to, int64_t to_row, const float *x,
                                   const float *factor, const int row[16], bool add)
{
    const ls_amx_rows all = { .D = c->D };
    const __m512 f = _mm512_loadu_ps(factor);
    for (int64_t d = 0; d < c->D; d += 16, x += 16 * 16) {
        const __mmask16 mask = (__mmask16)there(&all, d, 16);
        __m512i r[16];
#pragma GCC unroll 16
        for (int l = 0; l < 16; l++) r[l] = _mm512_castps_si512(_mm512_mul_ps(_mm512_load_ps(x + 16 * l), f));
        transpose16(r);
#pragma GCC unroll 16
        for (int l = 0; l < 16; l++)
            if (row[l] >= 0) put(to + row[l] * to_row + d, _mm512_castsi512_ps(r[l]), mask, add);
    }
}

AMX_TARGET void ls_amx_put_tiles(const ls_attention_call *c, uint16_t *to, int64_t to_row, const float *x, int64_t n,
                                 bool add)
{
    const ls_amx_rows all = { .D = c->D };
    const int64_t across = up(c->D, 16) * 16; /* floats of the tiles of 16 rows */
    for (int64_t i = 0; i < n; i++)
        for (int64_t d = 0; d < c->D; d += 16)
            put(to + i * to_row + d, _mm512_load_ps(x + i / 16 * across + d * 16 + i % 16 * 16),
                (__mmask16)there(&all, d, 16), add);
}

#else
typedef int ls_attention_amx_pack_empty; /* nothing to compile elsewhere */
#endif
