/* attention_amx_forward.c -- forward of one head by tiles of bfloat16:
 *
 *   S^T = K Q^T [keys, queries]      out^T += V^T P^T [D, queries]
 *
 * Scores, probabilities and out^T lie in columns of 16 queries, so all that softmax does is a vector of queries by a
 * vector of queries. Of a column the rows are keys, or d.
 */
#include "tensor/attention_amx.h"

#if defined(__x86_64__)
#include <math.h>

/* The running softmax. */
typedef struct running {
    _Alignas(64) float top[AMX_QUERIES]; /* the largest score, before the scale */
    _Alignas(64) float sum[AMX_QUERIES]; /* of e^(scale (s - top)) */
    _Alignas(64) float fade[AMX_QUERIES];
} running;

/* How scores become probabilities. */
typedef struct softmax {
    const block *at;
    float log2_scale;     /* of e^(scale x) = 2^(log2_scale x); not negative */
    const uint64_t *mask; /* of keys that are kept, for each query; NULL: all */
    float kept_scale;
    bool first;           /* tile of keys */
} softmax;

/* Two rows of probabilities, already summed up, as a row of pairs. */
AMX_INLINE void put_pair(uint32_t *to, const softmax *how, int c, int j, __m512 a, __m512 b)
{
    if (how->mask) {
        const __m512 scale = _mm512_set1_ps(how->kept_scale);
        a = _mm512_maskz_mul_ps(kept(how->mask, c, j), a, scale);
        b = _mm512_maskz_mul_ps(kept(how->mask, c, j + 1), b, scale);
    }
    const __m512i alternate = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22,
                                               6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    _mm512_store_si512(to, _mm512_permutexvar_epi16(alternate, (__m512i)_mm512_cvtne2ps_pbh(b, a)));
}

/* Column c of scores s becomes pairs of probabilities, for the first `keys`. */
AMX_TARGET static void column(running *r, const softmax *how, int c, int keys, const float *s, uint32_t *pairs)
{
    const int whole = keys_of_all(how->at, 16 * c) < keys ? keys_of_all(how->at, 16 * c) : keys;
    const __m512 was = _mm512_load_ps(r->top + 16 * c), scale = _mm512_set1_ps(how->log2_scale);
    __m512 top[4] = { was, was, was, was };
    int j = 0;
    for (; j + 4 <= whole; j += 4)
#pragma GCC unroll 4
        for (int l = 0; l < 4; l++) top[l] = _mm512_max_ps(top[l], _mm512_load_ps(s + 16 * (j + l)));
    for (; j < keys; j++)
        top[0] = _mm512_mask_max_ps(top[0], seeing(how->at, c, j), top[0], _mm512_load_ps(s + 16 * j));
    const __m512 now = _mm512_max_ps(_mm512_max_ps(top[0], top[1]), _mm512_max_ps(top[2], top[3]));

    __m512 even = _mm512_setzero_ps(), odd = _mm512_setzero_ps();
    for (j = 0; j < whole; j += 2) {
        const __m512 a = exp2_of(_mm512_mul_ps(_mm512_sub_ps(_mm512_load_ps(s + 16 * j), now), scale));
        const __m512 b = exp2_of(_mm512_mul_ps(_mm512_sub_ps(_mm512_load_ps(s + 16 * j + 16), now), scale));
        even = _mm512_add_ps(even, a);
        odd = _mm512_add_ps(odd, b);
        put_pair(pairs + 8 * j, how, c, j, a, b);
    }
    for (; j < keys; j += 2) {
        const __mmask16 see_a = seeing(how->at, c, j), see_b = seeing(how->at, c, j + 1);
        const __m512 x = _mm512_maskz_sub_ps(see_a, _mm512_load_ps(s + 16 * j), now);
        const __m512 y = _mm512_maskz_sub_ps(see_b, _mm512_load_ps(s + 16 * j + 16), now);
        const __m512 a = _mm512_maskz_mov_ps(see_a, exp2_of(_mm512_mul_ps(x, scale)));
        const __m512 b = _mm512_maskz_mov_ps(see_b, exp2_of(_mm512_mul_ps(y, scale)));
        even = _mm512_add_ps(even, a);
        odd = _mm512_add_ps(odd, b);
        put_pair(pairs + 8 * j, how, c, j, a, b);
    }
    __m512 sum = _mm512_add_ps(even, odd);
    if (!how->first) {
        const __m512 fade = exp2_of(_mm512_mul_ps(_mm512_sub_ps(was, now), scale));
        sum = _mm512_fmadd_ps(_mm512_load_ps(r->sum + 16 * c), fade, sum);
        _mm512_store_ps(r->fade + 16 * c, fade);
    }
    _mm512_store_ps(r->sum + 16 * c, sum);
    _mm512_store_ps(r->top + 16 * c, now);
}

/* n rows of a column of out^T, where some query's maximum grew. */
AMX_TARGET static void fade_column(float *out, const float *fade, int64_t n)
{
    const __m512 f = _mm512_load_ps(fade);
    if (_mm512_cmp_ps_mask(f, _mm512_set1_ps(1.0f), _CMP_NEQ_UQ) == 0) return;
    for (int64_t i = 0; i < n; i++) _mm512_store_ps(out + 16 * i, _mm512_mul_ps(_mm512_load_ps(out + 16 * i), f));
}

void ls_attention_amx_forward(const ls_attention_call *c, int64_t b, int64_t h, float *scratch)
{
    _Alignas(64) uint16_t q[AMX_QUERIES * MOST_D];
    _Alignas(64) float s[KEYS * 32], out[MOST_D * AMX_QUERIES];
    _Alignas(64) uint32_t p[KEYS / 2 * 32];
    _Alignas(64) uint64_t mask[AMX_QUERIES];
    running r;
    const int64_t hkv = h / (c->Hq / c->Hkv), D = c->D, row0 = (b * c->Hq + h) * c->Tq, Tk = up(c->Tk, 32);
    const int along = (int)(up(D, 32) / 32), across = (int)(up(D, 16) / 16); /* tiles of a row */
    const ls_amx_rows keys = { (const uint16_t *)c->k + offset(c->k_by, b, hkv), c->k_by.token, c->Tk, D };
    const ls_amx_rows values = { (const uint16_t *)c->v + offset(c->v_by, b, hkv), c->v_by.token, c->Tk, D };
    uint16_t *const k = (uint16_t *)scratch, *const v = k + Tk * up(D, 32);
    uint16_t *const to = (uint16_t *)c->out + offset(c->out_by, b, h);
    float *lse = c->lse ? c->lse + row0 : NULL;

    ls_amx_pack_a_along(k, &keys, 32);
    ls_amx_pack_a_transposed(v, &values, 32);
    ls_amx_begin();
    for (int64_t i = 0; i < c->Tq; i += AMX_QUERIES) {
        block at = block_of(c, i, 0, AMX_QUERIES, KEYS);
        const int columns = at.width / 16;
        const int64_t end = keys_before(c, i + at.queries);
        const ls_amx_rows queries = { (const uint16_t *)c->q + offset(c->q_by, b, h) + i * c->q_by.token,
                                      c->q_by.token, at.queries, D };
        ls_amx_pack_b_along(q, &queries, 16, c->scale < 0.0f);
        for (int l = 0; l < AMX_QUERIES; l++) r.top[l] = -INFINITY;
        for (int64_t j = 0; j < end; j += KEYS) {
            at = block_of(c, i, j, AMX_QUERIES, KEYS);
            if (c->drop.least > 0) draw(c, drop_row(c, b, h), i, j, mask);
            const softmax how = {
                .at = &at, .log2_scale = fabsf(c->scale) * 0x1.715476p0f, .mask = c->drop.least > 0 ? mask : NULL,
                .kept_scale = c->drop.scale, .first = j == 0,
            };
            for (int n = 0; n < columns; n += 2) { /* columns that are cut alike */
                const int wide = least(2, columns - n), seen = keys_up_to(&at, 16 * (n + 2));
                if (seen == 0) continue;
                ls_amx_multiply(&(ls_amx_product){
                    .m = seen / 16, .n = wide, .k = along, .a = k + j * 32, .a_m = LS_AMX_TILE, .a_k = Tk * 64,
                    .b = q + n * along * 512, .b_k = LS_AMX_TILE, .b_n = along * LS_AMX_TILE, .c = s,
                    .c_m = LS_AMX_TILE, .c_n = KEYS * 64 });
                for (int l = n; l < n + wide; l++) {
                    column(&r, &how, l, seen, s + (l - n) * KEYS * 16, p + (l - n) * KEYS / 2 * 16);
                    if (j > 0) fade_column(out + l * across * 256, r.fade + 16 * l, across * 16);
                }
                ls_amx_multiply(&(ls_amx_product){
                    .m = across, .n = wide, .k = seen / 32, .a = v + j / 32 * across * 512, .a_m = LS_AMX_TILE,
                    .a_k = across * LS_AMX_TILE, .b = p, .b_k = LS_AMX_TILE, .b_n = KEYS / 2 * 64,
                    .c = out + n * across * 256, .c_m = LS_AMX_TILE, .c_n = across * LS_AMX_TILE, .add = j > 0 });
            }
        }
        for (int l = 0; l < at.queries; l++) {
            r.fade[l] = 1.0f / r.sum[l];
            if (lse) lse[i + l] = fabsf(c->scale) * r.top[l] + logf(r.sum[l]);
        }
        for (int n = 0; n < columns; n++) {
            int row[16];
            for (int l = 0; l < 16; l++) row[l] = 16 * n + l < at.queries ? 16 * n + l : -1;
            ls_amx_put_columns(c, to + i * c->out_by.token, c->out_by.token, out + n * across * 256, r.fade + 16 * n,
                               row, false);
        }
    }
    ls_amx_end();
}

#else
void ls_attention_amx_forward(const ls_attention_call *c, int64_t b, int64_t h, float *scratch)
{
    (void)c, (void)b, (void)h, (void)scratch; /* never called: ls_amx_ready says no */
}
#endif
