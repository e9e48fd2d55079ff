/* attention_rows.c -- rows of queries, keys and values as factors of products: borrowed, or copied as floats or as
 * pairs of bfloat16; and float sums as rows of the result. */
#include "tensor/attention_impl.h"

#include <string.h>

LS_KERNEL static void copy_rows(float *restrict to, const float *restrict from, int64_t from_row, int64_t n, int64_t D)
{
    for (int64_t i = 0; i < n; i++)
        for (int64_t d = 0; d < D; d++) to[i * D + d] = from[i * from_row + d];
}

LS_KERNEL static void widen_rows(float *restrict to, const uint16_t *restrict from, int64_t from_row, int64_t n,
                                 int64_t D)
{
    for (int64_t i = 0; i < n; i++)
        for (int64_t d = 0; d < D; d++) to[i * D + d] = ls_from_bf16(from[i * from_row + d]);
}

LS_KERNEL static void round_rows(uint16_t *restrict to, int64_t to_row, const float *restrict from, int64_t from_row,
                                 int64_t n, int64_t D, bool add)
{
    for (int64_t i = 0; i < n; i++) {
        uint16_t *restrict y = to + i * to_row;
        const float *restrict x = from + i * from_row;
        if (add)
            for (int64_t d = 0; d < D; d++) y[d] = ls_to_bf16(ls_from_bf16(y[d]) + x[d]);
        else
            for (int64_t d = 0; d < D; d++) y[d] = ls_to_bf16(x[d]);
    }
}

/* to[m, d] = the pair (from[2m, d], from[2m + 1, d]); after the last row comes one of 0. */
LS_KERNEL static void interleave(uint32_t *restrict to, int64_t to_row, const uint16_t *restrict from, int64_t from_row,
                                 int64_t n, int64_t D)
{
    for (int64_t i = 0; i < n; i += 2) {
        uint32_t *restrict y = to + i / 2 * to_row;
        const uint16_t *restrict low = from + i * from_row, *restrict high = low + from_row;
        if (i + 1 < n)
            for (int64_t d = 0; d < D; d++) y[d] = low[d] | (uint32_t)high[d] << 16;
        else
            for (int64_t d = 0; d < D; d++) y[d] = low[d];
    }
}

void ls_attention_round_tile(rounded *to, const block *at, const float *st, bool of_keys)
{
    round_rows(to->of_queries, QUERIES, st, QUERIES, at->keys, at->width, false);
    if (at->queries % 2 == 1)
        for (int j = 0; j < at->keys; j++) to->of_queries[j * QUERIES + at->queries] = 0;
    if (of_keys) interleave(to->of_keys, QUERIES, to->of_queries, QUERIES, at->keys, at->width);
}

row_view ls_attention_factor(const ls_attention_call *c, const ls_gemm_tile *tile, const void *x, int64_t at,
                             int64_t row, int64_t n, float *copy, bool down)
{
    const int64_t D = c->D;
    if (c->dtype != LS_BF16) {
        const float *from = (const float *)x + at;
        if (!down) return (row_view){ from, from, row, row };
        copy_rows(copy, from, row, n, D);
        return (row_view){ copy, copy, D, D };
    }
    const uint16_t *from = (const uint16_t *)x + at;
    if (!tile->pairs) {
        widen_rows(copy, from, row, n, D);
        return (row_view){ copy, copy, D, D };
    }
    if (down) interleave((uint32_t *)copy, D, from, row, n, D);
    return (row_view){ (const float *)from, copy, row / 2, D };
}

/* Whether heads of [B, T, H, D] at x consist of whole pairs, each in a word of its own. */
static bool in_pairs(const void *x, ls_strides by)
{
    return (uintptr_t)x % sizeof(uint32_t) == 0 && (by.batch | by.token | by.head) % 2 == 0;
}

const ls_gemm_tile *ls_attention_tile(const ls_attention_call *c)
{
    const ls_gemm_tile *const pairs_tile = ls_gemm_tile_pairs_pay() ? ls_gemm_tile_of_pairs() : NULL;
    const ls_gemm_tile *tile = c->tile ? c->tile : c->dtype == LS_BF16 ? pairs_tile : NULL;
    const bool pairs = c->dtype == LS_BF16 && c->D % 2 == 0 && in_pairs(c->q, c->q_by) && in_pairs(c->k, c->k_by) &&
                       in_pairs(c->v, c->v_by) && in_pairs(c->dout, c->out_by);
    return tile && (pairs || !tile->pairs) ? tile : ls_gemm_tile_best();
}

/* With pairs: rows, up to a whole cache line, and then pairs of rows. */
int64_t ls_attention_copy_count(const ls_attention_call *c) { return ((c->Tk + 1) * c->D + 30) / 16 * 16; }

/* Pairs of rows only if `down`. */
static row_view copy_head(const ls_attention_call *c, const ls_gemm_tile *tile, const void *x, int64_t at, int64_t row,
                      float *to, bool along, bool down)
{
    const int64_t D = c->D, Tk = c->Tk;
    if (c->dtype != LS_BF16) {
        const float *from = (const float *)x + at;
        if (row == D || !to) return (row_view){ from, from, row, row };
        copy_rows(to, from, row, Tk, D);
        return (row_view){ to, to, D, D };
    }
    const uint16_t *from = (const uint16_t *)x + at;
    if (!tile->pairs) {
        widen_rows(to, from, row, Tk, D);
        return (row_view){ to, to, D, D };
    }
    float *pairs = to + (Tk * D / 2 + 15) / 16 * 16;
    for (int64_t i = 0; along && i < Tk; i++) memcpy((uint16_t *)to + i * D, from + i * row, (size_t)D * sizeof *from);
    if (down) interleave((uint32_t *)pairs, D, from, row, Tk, D);
    return (row_view){ to, pairs, D / 2, D };
}

head ls_attention_gather(const ls_attention_call *c, const ls_gemm_tile *tile, int64_t b, int64_t hkv, float *scratch,
                         bool backward)
{
    const int64_t k_at = offset(c->k_by, b, hkv), v_at = offset(c->v_by, b, hkv), n = ls_attention_copy_count(c);
    return (head){
        .k = copy_head(c, tile, c->k, k_at, c->k_by.token, scratch, true, backward),
        .v = copy_head(c, tile, c->v, v_at, c->v_by.token, scratch ? scratch + n : NULL, backward, !backward),
        .dk = backward && c->dk ? scratch + 2 * n : NULL, .dv = backward && c->dv ? scratch + 3 * n : NULL,
    };
}

/* Rows of float sums to where they belong. */
LS_KERNEL static void put_floats(float *restrict to, int64_t to_row, const float *restrict from, int64_t n, int64_t D,
                                 bool add)
{
    for (int64_t i = 0; i < n; i++) {
        if (add)
            for (int64_t d = 0; d < D; d++) to[i * to_row + d] += from[i * D + d];
        else
            for (int64_t d = 0; d < D; d++) to[i * to_row + d] = from[i * D + d];
    }
}

void ls_attention_put_rows(const ls_attention_call *c, void *to, int64_t at, int64_t row, const float *from, int64_t n,
                           bool add)
{
    if (c->dtype == LS_BF16) round_rows((uint16_t *)to + at, row, from, c->D, n, c->D, add);
    else put_floats((float *)to + at, row, from, n, c->D, add);
}
