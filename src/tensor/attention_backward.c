/* attention_backward.c -- backward of one head of keys: the scores of each tile are computed again. */
#include "tensor/attention_impl.h"

#include <string.h>

#include "tensor/attention_dot.h"
#include "tensor/vecmath.h"

static LS_ALWAYS_INLINE void row_dots_of(float *delta, const void *a, const void *b, int64_t at, int64_t row,
                                         int queries, int64_t D, bool bf16)
{
    for (int64_t i = 0; i < queries; i++)
        delta[i] = dot(ls_at_const(a, at + i * row, bf16), ls_at_const(b, at + i * row, bf16), D, bf16);
}

LS_KERNEL static void row_dots(ls_dtype dtype, float *delta, const void *a, const void *b, int64_t at, int64_t row,
                               int queries, int64_t D)
{
    LS_BY_DTYPE(dtype, row_dots_of, delta, a, b, at, row, queries, D);
}

void ls_attention_row_dots(ls_dtype dtype, float *delta, const void *a, const void *b, int64_t at, int64_t row,
                           int queries, int64_t D)
{
    row_dots(dtype, delta, a, b, at, row, queries, D);
}

/* `n` scores of one row, up to `scale_st`, become probabilities, and ds, which holds dP, becomes dS. lse is at least as
 * large as any score that is seen. */
static LS_ALWAYS_INLINE void row_slopes(float *restrict s, float *restrict ds, const float *restrict lse,
                                        const float *restrict delta, float scale_st, float scale, int n)
{
    for (int i = 0; i < n; i++) {
        s[i] = ls_expf_low(scale_st * s[i] - lse[i]);
        ds[i] = s[i] * (ds[i] - delta[i]) * scale;
    }
}

/* A loop whose length is known takes a fifth less time. */
LS_KERNEL_CHOOSING static void slopes_of(const block *at, float *restrict st, float *restrict dst,
                                         const float *restrict lse, const float *restrict delta, float scale_st,
                                         float scale)
{
    if (is_whole(at))
        for (int j = 0; j < at->keys; j++, st += QUERIES, dst += QUERIES)
            row_slopes(st, dst, lse, delta, scale_st, scale, QUERIES);
    else
        for (int j = 0; j < at->keys; j++, st += QUERIES, dst += QUERIES)
            for (int b = first_query(at, j) / LANES * LANES; b < at->width; b += LANES)
                row_slopes(st + b, dst + b, lse + b, delta + b, scale_st, scale, LANES);
}

/* And both are 0 where hidden. */
static void slopes(const block *at, float *st, float *dst, const float *lse, const float *delta, float scale_st,
                   float scale)
{
    slopes_of(at, st, dst, lse, delta, scale_st, scale);
    if (is_whole(at)) return;
    ls_attention_hide(at, st);
    ls_attention_hide(at, dst);
}

static void backward_tiles(const ls_attention_call *c, int64_t b, int64_t h, const head *of)
{
    _Alignas(64) float packed_q[MOST_D * QUERIES], packed_do[MOST_D * QUERIES], dq[TILE], q_copy[TILE], do_copy[TILE];
    _Alignas(64) float st[KEYS * QUERIES], dst[KEYS * QUERIES], delta[QUERIES] = { 0 }, lse[QUERIES] = { 0 };
    rounded p, ds;
    uint64_t mask[QUERIES];
    ahead next;
    const ls_gemm_tile *tile = ls_attention_tile(c);
    const int64_t D = c->D, along = D / each(tile), row0 = (b * c->Hq + h) * c->Tq;
    const float scale_q = tile->pairs ? 1.0f : c->scale, scale_st = tile->pairs ? c->scale : 1.0f;
    const int64_t q_row = c->q_by.token, out_row = c->out_by.token;

    for (int64_t i = 0; i < c->Tq; i += QUERIES) {
        block at = block_at(c, i, 0);
        const int64_t Tk = keys_before(c, i + at.queries);
        const int64_t q_at = offset(c->q_by, b, h) + i * q_row, out_at = offset(c->out_by, b, h) + i * out_row;
        ls_attention_look_ahead(c, &next, b, h, i + QUERIES, true);
        const row_view q = ls_attention_factor(c, tile, c->q, q_at, q_row, at.queries, q_copy, of->dk);
        const row_view dout = ls_attention_factor(c, tile, c->dout, out_at, out_row, at.queries, do_copy, of->dv);
        ls_attention_pack_queries(tile, &at, packed_q, q.along_d, q.along_row, along, scale_q);
        ls_attention_pack_queries(tile, &at, packed_do, dout.along_d, dout.along_row, along, 1.0f);
        ls_attention_row_dots(c->dtype, delta, c->dout, c->out, out_at, out_row, at.queries, D);
        memcpy(lse, c->lse + row0 + i, (size_t)at.queries * sizeof *lse);
        for (int64_t j = 0; j < Tk; j += KEYS) {
            at = block_at(c, i, j);
            const row_view k = rows_from(tile, &of->k, j), v = rows_from(tile, &of->v, j);
            ls_attention_scores(tile, &next, &at, st, k.along_d, k.along_row, packed_q, along);
            ls_attention_scores(tile, &next, &at, dst, v.along_d, v.along_row, packed_do, along);
            if (c->drop.least > 0) {
                ls_attention_draw(c, &at, drop_row(c, b, h) + i, j, mask);
                ls_attention_apply_drop(&at, dst, mask, c->drop.scale);
            }
            slopes(&at, st, dst, lse, delta, scale_st, c->scale);
            if (c->drop.least > 0) ls_attention_apply_drop(&at, st, mask, c->drop.scale);
            const float *pt = st, *dst_down = dst, *dst_along = dst;
            if (tile->pairs) {
                if (of->dv) ls_attention_round_tile(&p, &at, st, false);
                if (of->dk || c->dq) ls_attention_round_tile(&ds, &at, dst, c->dq);
                pt = (const float *)p.of_queries;
                dst_along = (const float *)ds.of_queries;
                dst_down = (const float *)ds.of_keys;
            }
            if (of->dv)
                ls_attention_sum_over_queries(tile, &next, &at, of->dv + j * D, D, pt, dout.down, dout.down_row, D);
            if (of->dk)
                ls_attention_sum_over_queries(tile, &next, &at, of->dk + j * D, D, dst_along, q.down, q.down_row, D);
            if (c->dq) ls_attention_sum_over_keys(tile, &next, &at, dq, D, dst_down, k.down, k.down_row, D, j > 0);
        }
        if (c->dq) ls_attention_put_rows(c, c->dq, q_at, q_row, dq, at.queries, c->add_q);
    }
}

void ls_attention_backward_head(const ls_attention_call *c, int64_t b, int64_t hkv, float *scratch)
{
    const int64_t shared = c->Hq / c->Hkv;
    const head of = ls_attention_gather(c, ls_attention_tile(c), b, hkv, scratch, true);
    if (of.dk) memset(of.dk, 0, (size_t)(c->Tk * c->D) * sizeof *of.dk);
    if (of.dv) memset(of.dv, 0, (size_t)(c->Tk * c->D) * sizeof *of.dv);
    for (int64_t h = hkv * shared; h < (hkv + 1) * shared; h++) backward_tiles(c, b, h, &of);
    if (of.dk) ls_attention_put_rows(c, c->dk, offset(c->k_by, b, hkv), c->k_by.token, of.dk, c->Tk, c->add_k);
    if (of.dv) ls_attention_put_rows(c, c->dv, offset(c->v_by, b, hkv), c->v_by.token, of.dv, c->Tk, c->add_v);
}
