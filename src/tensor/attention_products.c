/* attention_products.c -- the products of a tile of scores with rows, cut to what a causal mask leaves. */
#include "tensor/attention_impl.h"

#include <string.h>

#define LINE 64   /* bytes of a cache line */
#define FETCHED 8 /* rows fetched with each product of a tile */

static void expect(ahead *a, const void *x, int64_t at, int64_t row, int64_t n)
{
    if (!x || n <= 0) return;
    a->part[a->n].x = ls_at_const(x, at, a->bf16);
    a->part[a->n].row = row * (a->bf16 ? 2 : 4);
    a->part[a->n++].rows = n;
}

void ls_attention_look_ahead(const ls_attention_call *c, ahead *a, int64_t b, int64_t h, int64_t i, bool backward)
{
    if (i >= c->Tq) {
        i = 0;
        h++;
    }
    if (h >= c->Hq) {
        h = 0;
        b++;
    }
    a->n = 0;
    a->bf16 = c->dtype == LS_BF16;
    a->width = c->D * (a->bf16 ? 2 : 4);
    if (b >= c->B) return;
    const int64_t queries = c->Tq - i < QUERIES ? c->Tq - i : QUERIES;
    const int64_t q_row = c->q_by.token, out_row = c->out_by.token;
    const int64_t q_at = offset(c->q_by, b, h) + i * q_row, out_at = offset(c->out_by, b, h) + i * out_row;
    if (backward) expect(a, c->dq, q_at, q_row, queries); /* what is needed last comes first */
    expect(a, c->out, out_at, out_row, queries);
    if (backward) expect(a, c->dout, out_at, out_row, queries);
    expect(a, c->q, q_at, q_row, queries);
}

/* As far into the second cache: the first is full of the tiles at hand. */
static LS_ALWAYS_INLINE void fetch_some(ahead *a)
{
    for (int n = 0; n < FETCHED && a->n > 0; n++) {
        const int p = a->n - 1;
        for (int64_t d = 0; d < a->width; d += LINE) __builtin_prefetch(a->part[p].x + d, 0, 2);
        a->part[p].x += a->part[p].row;
        if (--a->part[p].rows == 0) a->n--;
    }
}

void ls_attention_scores(const ls_gemm_tile *tile, ahead *next, const block *at, float *out, const float *a,
                         int64_t a_row, const float *packed, int64_t D)
{
    ls_gemm_tile_args t = { .k = D, .a_row = a_row, .a_col = 1, .ldb = tile->nr, .ldc = QUERIES };
    for (int j = 0; j < at->keys; j += tile->mr) {
        t.mr = least(tile->mr, at->keys - j);
        t.a = a + j * a_row;
        for (int i = first_query(at, j) / LANES * LANES; i < at->width; i += t.nr) {
            const int within = i % tile->nr; /* a panel of the packed b */
            t.nr = least(tile->nr - within, at->width - i);
            t.b = packed + (i - within) * D + within;
            t.c = out + j * QUERIES + i;
            fetch_some(next);
            tile->run(&t);
        }
    }
}

void ls_attention_sum_over_keys(const ls_gemm_tile *tile, ahead *next, const block *at, float *out, int64_t out_row,
                                const float *st, const float *b, int64_t b_row, int64_t D, bool add)
{
    ls_gemm_tile_args t = { .a_row = 1, .a_col = QUERIES, .ldb = b_row, .ldc = out_row, .add = add };
    for (int64_t d = 0; d < D; d += tile->nr) {
        t.nr = D - d < tile->nr ? (int)(D - d) : tile->nr;
        t.b = b + d;
        for (int i = 0; i < at->queries; i += tile->mr) {
            t.mr = least(tile->mr, at->queries - i);
            t.k = (keys_seen(at, i + t.mr - 1) + each(tile) - 1) / each(tile);
            if (t.k <= 0) continue;
            t.a = st + i;
            t.c = out + i * out_row + d;
            fetch_some(next);
            tile->run(&t);
        }
    }
}

void ls_attention_sum_over_queries(const ls_gemm_tile *tile, ahead *next, const block *at, float *out, int64_t out_row,
                                   const float *st, const float *b, int64_t b_row, int64_t D)
{
    const int st_row = QUERIES / each(tile), queries = (at->queries + each(tile) - 1) / each(tile);
    ls_gemm_tile_args t = { .a_row = st_row, .a_col = 1, .ldb = b_row, .ldc = out_row, .add = true };
    for (int64_t d = 0; d < D; d += tile->nr) {
        t.nr = D - d < tile->nr ? (int)(D - d) : tile->nr;
        for (int j = 0; j < at->keys; j += tile->mr) {
            const int i = first_query(at, j) / each(tile);
            t.mr = least(tile->mr, at->keys - j);
            t.k = queries - i;
            t.a = st + j * st_row + i;
            t.b = b + i * b_row + d;
            t.c = out + j * out_row + d;
            fetch_some(next);
            tile->run(&t);
        }
    }
}

LS_KERNEL static void scale_in_place(float *x, int64_t n, float scale)
{
    for (int64_t i = 0; i < n; i++) x[i] *= scale;
}

void ls_attention_pack_queries(const ls_gemm_tile *tile, const block *at, float *packed, const float *b, int64_t b_row,
                               int64_t D, float scale)
{
    for (int i = 0; i < at->width; i += tile->nr) {
        const int columns = at->queries > i ? least(tile->nr, at->queries - i) : 0;
        float *panel = packed + i * D;
        if (columns < tile->nr) memset(panel, 0, (size_t)(tile->nr * D) * sizeof *panel);
        tile->pack(panel, b + i * b_row, b_row, columns, D);
        if (scale != 1.0f) scale_in_place(panel, tile->nr * D, scale);
    }
}
