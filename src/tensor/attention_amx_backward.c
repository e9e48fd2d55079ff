/* attention_amx_backward.c -- backward of one head of keys by tiles of bfloat16:
 *
 *   S^T = K Q^T      dP^T = V dO^T              [keys, queries], in columns of 16 queries
 *   dV += P^T dO     dK += dS^T Q               rows of P^T and dS^T, of 32 queries
 *   dQ^T += K^T dS^T                            pairs of such rows
 *
 * Two rows of 32 queries are interleaved within each quarter of a vector: so a column of pairs, and of dQ^T, has
 * the queries 0-3, 8-11, 16-19 and 24-27 of them, and the next one the others.
 */
#include "tensor/attention_amx.h"

#if defined(__x86_64__)
#include <math.h>
#include <string.h>

/* What turns scores into dS. */
typedef struct slope {
    const block *at;
    const float *lse, *delta;
    float size, scale;    /* |scale|, and it */
    const uint64_t *mask; /* of keys that are kept, for each query; NULL: all */
    float kept_scale;
} slope;

/* P and dS of 16 queries and one key; 0 where `see` is not set. */
AMX_INLINE void one(const slope *how, int c, int j, const float *s, const float *dp, __mmask16 see, __m512 *p,
                    __m512 *ds)
{
    const __m512 lse = _mm512_load_ps(how->lse + 16 * c), delta = _mm512_load_ps(how->delta + 16 * c);
    const __m512 x = _mm512_sub_ps(_mm512_mul_ps(_mm512_load_ps(s), _mm512_set1_ps(how->size)), lse);
    __m512 y = _mm512_load_ps(dp), e = exp2_of(_mm512_mul_ps(x, _mm512_set1_ps(0x1.715476p0f)));
    __mmask16 keep = 0xffff;
    if (how->mask) {
        keep = kept(how->mask, c, j);
        y = _mm512_maskz_mul_ps(keep, y, _mm512_set1_ps(how->kept_scale));
    }
    *ds = _mm512_maskz_mul_ps(see, _mm512_mul_ps(e, _mm512_sub_ps(y, delta)), _mm512_set1_ps(how->scale));
    if (how->mask) *p = _mm512_maskz_mul_ps(see & keep, e, _mm512_set1_ps(how->kept_scale));
    else *p = _mm512_maskz_mov_ps(see, e);
}

/* Of a group of 32 queries, two columns, and the first `keys`: rows [key, 32] of P and dS, and pairs of the latter. */
AMX_TARGET static void group(const slope *how, int g, int keys, const float *s, const float *dp, uint16_t *p,
                             uint16_t *ds, uint32_t *pairs)
{
    const int whole = keys_of_all(how->at, 32 * g);
    for (int j = 0; j < keys; j += 2) {
        __m512i row[2];
#pragma GCC unroll 2
        for (int l = 0; l < 2; l++) {
            const int at = 16 * (j + l), c = 2 * g;
            __mmask16 see[2] = { 0xffff, 0xffff };
            if (j >= whole) {
                see[0] = seeing(how->at, c, j + l);
                see[1] = seeing(how->at, c + 1, j + l);
            }
            __m512 p0, p1, ds0, ds1;
            one(how, c, j + l, s + at, dp + at, see[0], &p0, &ds0);
            one(how, c + 1, j + l, s + KEYS * 16 + at, dp + KEYS * 16 + at, see[1], &p1, &ds1);
            row[l] = (__m512i)_mm512_cvtne2ps_pbh(ds1, ds0);
            _mm512_store_si512(p + 2 * at, (__m512i)_mm512_cvtne2ps_pbh(p1, p0));
            _mm512_store_si512(ds + 2 * at, row[l]);
        }
        _mm512_store_si512(pairs + 8 * j, _mm512_unpacklo_epi16(row[0], row[1]));
        _mm512_store_si512(pairs + KEYS / 2 * 16 + 8 * j, _mm512_unpackhi_epi16(row[0], row[1]));
    }
}

/* Keys and values of a head, in the thread's scratch. */
typedef struct tiles {
    uint16_t *k, *kt, *v;
    float *dk, *dv; /* [key / 16] [d / 16] */
} tiles;

/* One head of queries adds to dk and dv of its head of keys, and writes or adds to dq. */
static void backward_queries(const ls_attention_call *c, int64_t b, int64_t h, const tiles *of)
{
    _Alignas(64) uint16_t q[AMX_QUERIES * MOST_D], q_down[AMX_QUERIES * MOST_D], dout[AMX_QUERIES * MOST_D],
        dout_down[AMX_QUERIES * MOST_D], p[KEYS * AMX_QUERIES], ds[KEYS * AMX_QUERIES];
    _Alignas(64) float s[KEYS * 32], dp[KEYS * 32], dq[MOST_D * AMX_QUERIES];
    _Alignas(64) uint32_t pairs[KEYS / 2 * 32];
    _Alignas(64) float lse[AMX_QUERIES], delta[AMX_QUERIES], ones[16];
    _Alignas(64) uint64_t mask[AMX_QUERIES];
    const int64_t D = c->D, row0 = (b * c->Hq + h) * c->Tq, Tk = up(c->Tk, 32);
    const int64_t q_row = c->q_by.token, out_row = c->out_by.token;
    const int along = (int)(up(D, 32) / 32), across = (int)(up(D, 16) / 16); /* tiles of a row */
    for (int l = 0; l < 16; l++) ones[l] = 1.0f;

    for (int64_t i = 0; i < c->Tq; i += AMX_QUERIES) {
        block at = block_of(c, i, 0, AMX_QUERIES, KEYS);
        const int groups = (at.queries + 31) / 32;
        const int64_t end = keys_before(c, i + at.queries);
        const int64_t q_at = offset(c->q_by, b, h) + i * q_row, out_at = offset(c->out_by, b, h) + i * out_row;
        const ls_amx_rows qs = { (const uint16_t *)c->q + q_at, q_row, at.queries, D };
        const ls_amx_rows douts = { (const uint16_t *)c->dout + out_at, out_row, at.queries, D };
        ls_amx_pack_b_along(q, &qs, 32, c->scale < 0.0f);
        ls_amx_pack_b_along(dout, &douts, 32, false);
        if (of->dk) ls_amx_pack_b_down(q_down, &qs, 32);
        if (of->dv) ls_amx_pack_b_down(dout_down, &douts, 32);
        memset(delta, 0, sizeof delta); /* of queries that are not there P is 1 and dS 0 */
        memset(lse, 0, sizeof lse);
        ls_attention_row_dots(c->dtype, delta, c->dout, c->out, out_at, out_row, at.queries, D);
        memcpy(lse, c->lse + row0 + i, (size_t)at.queries * sizeof *lse);

        for (int64_t j = 0; j < end; j += KEYS) {
            at = block_of(c, i, j, AMX_QUERIES, KEYS);
            if (c->drop.least > 0) draw(c, drop_row(c, b, h), i, j, mask);
            const slope how = {
                .at = &at, .lse = lse, .delta = delta, .size = fabsf(c->scale), .scale = c->scale,
                .mask = c->drop.least > 0 ? mask : NULL, .kept_scale = c->drop.scale,
            };
            for (int g = 0; g < groups; g++) {
                const int seen = keys_up_to(&at, 32 * (g + 1)), n = 2 * g;
                if (seen == 0) continue;
                ls_amx_product product = {
                    .m = seen / 16, .n = 2, .k = along, .a = of->k + j * 32, .a_m = LS_AMX_TILE, .a_k = Tk * 64,
                    .b = q + n * along * 512, .b_k = LS_AMX_TILE, .b_n = along * LS_AMX_TILE, .c = s,
                    .c_m = LS_AMX_TILE, .c_n = KEYS * 64,
                };
                ls_amx_multiply(&product);
                product.a = of->v + j * 32;
                product.b = dout + n * along * 512;
                product.c = dp;
                ls_amx_multiply(&product);
                group(&how, g, seen, s, dp, p + g * KEYS * 32, ds + g * KEYS * 32, pairs);
                if (c->dq)
                    ls_amx_multiply(&(ls_amx_product){
                        .m = across, .n = 2, .k = seen / 32, .a = of->kt + j / 32 * across * 512, .a_m = LS_AMX_TILE,
                        .a_k = across * LS_AMX_TILE, .b = pairs, .b_k = LS_AMX_TILE,
                        .b_n = KEYS / 2 * 64, .c = dq + n * across * 256, .c_m = LS_AMX_TILE,
                        .c_n = across * LS_AMX_TILE, .add = j > 0 });
            }
            for (int l = 0; l < at.keys; l += 32) { /* keys that are cut alike */
                const int g = first_query(&at, l) / 32;
                ls_amx_product product = {
                    .m = 2, .n = across, .k = groups - g, .a = p + (g * KEYS + l) * 32, .a_m = LS_AMX_TILE,
                    .a_k = KEYS * 64, .b = dout_down + g * 512, .b_k = LS_AMX_TILE, .b_n = groups * LS_AMX_TILE,
                    .c = of->dv ? of->dv + (j + l) / 16 * across * 256 : NULL, .c_m = across * LS_AMX_TILE,
                    .c_n = LS_AMX_TILE, .add = true,
                };
                if (of->dv) ls_amx_multiply(&product);
                product.a = ds + (g * KEYS + l) * 32;
                product.b = q_down + g * 512;
                product.c = of->dk ? of->dk + (j + l) / 16 * across * 256 : NULL;
                if (of->dk) ls_amx_multiply(&product);
            }
        }
        for (int n = 0; c->dq && n < 2 * groups; n++) {
            int row[16];
            for (int l = 0; l < 16; l++) {
                const int query = n / 2 * 32 + l / 4 * 8 + n % 2 * 4 + l % 4;
                row[l] = query < at.queries ? query : -1;
            }
            ls_amx_put_columns(c, (uint16_t *)c->dq + q_at, q_row, dq + n * across * 256, ones, row, c->add_q);
        }
    }
}

void ls_attention_amx_backward(const ls_attention_call *c, int64_t b, int64_t hkv, float *scratch)
{
    const int64_t shared = c->Hq / c->Hkv, D = c->D, Tk = up(c->Tk, 32), n = Tk * up(D, 32);
    const int64_t k_at = offset(c->k_by, b, hkv), v_at = offset(c->v_by, b, hkv);
    const ls_amx_rows keys = { (const uint16_t *)c->k + k_at, c->k_by.token, c->Tk, D };
    const ls_amx_rows values = { (const uint16_t *)c->v + v_at, c->v_by.token, c->Tk, D };
    uint16_t *const half = (uint16_t *)(scratch + 2 * n);
    const tiles of = {
        .k = half, .kt = half + n, .v = half + 2 * n, .dk = c->dk ? scratch : NULL, .dv = c->dv ? scratch + n : NULL,
    };
    ls_amx_pack_a_along(of.k, &keys, 32);
    ls_amx_pack_a_along(of.v, &values, 32);
    if (c->dq) ls_amx_pack_a_transposed(of.kt, &keys, 32);
    if (of.dk) memset(of.dk, 0, (size_t)n * sizeof *of.dk);
    if (of.dv) memset(of.dv, 0, (size_t)n * sizeof *of.dv);
    ls_amx_begin();
    for (int64_t h = hkv * shared; h < (hkv + 1) * shared; h++) backward_queries(c, b, h, &of);
    ls_amx_end();
    if (of.dk) ls_amx_put_tiles(c, (uint16_t *)c->dk + k_at, c->k_by.token, of.dk, c->Tk, c->add_k);
    if (of.dv) ls_amx_put_tiles(c, (uint16_t *)c->dv + v_at, c->v_by.token, of.dv, c->Tk, c->add_v);
}

#else
void ls_attention_amx_backward(const ls_attention_call *c, int64_t b, int64_t hkv, float *scratch)
{
    (void)c, (void)b, (void)hkv, (void)scratch; /* never called: ls_amx_ready says no */
}
#endif
