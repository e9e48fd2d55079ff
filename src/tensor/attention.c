/* attention.c -- attention in tiles of 64 queries and 64 keys: no T x T matrix
 * is ever kept. FlashAttention-2 (Dao 2023), for CPUs.
 *
 * Scores of a tile are kept transposed, a row for each key: then the maximum
 * and the sum of softmax run over rows, a vector being neighbouring queries, and
 * every product of the tile is one that the matrix tiles (gemm_tile.h) do
 * as it is. Only queries (and dout) are packed, once for all their keys:
 *
 *   forward      S^T = K Q^T            [keys, queries]
 *                out = e^(S - max) V, rescaled when the running maximum grows, over the running sum
 *   backward     S^T = K Q^T, P = e^(S - lse);  dP^T = V dO^T;  dS = scale P (dP - rowsum(dO O))
 *                dV += P^T dO;  dK += dS^T Q;  dQ += dS K
 *
 * Tiles that a causal mask hides are not visited. On the diagonal, products are
 * cut to the rows and columns that are needed: to blocks of a few rows and 16
 * columns of a score tile, and in their sums exactly.
 *
 * Each (sequence, head of keys) is one piece of work, independent of the others,
 * in ascending order within: the bits do not depend on which thread does which.
 *
 * Of bfloat16 the rows of a tile are copied as floats first, a small part of its
 * work, and results are rounded when their sum is complete; dk and dv of a head are
 * added up in float memory of the thread's own.
 */
#include "tensor/attention.h"

#include <math.h>
#include <string.h>

#include "base/bf16.h"
#include "base/compiler.h"
#include "lockstep/rng.h"
#include "tensor/element.h"
#include "tensor/gemm_tile.h"
#include "tensor/threads.h"
#include "tensor/vecmath.h"

#define QUERIES 64
#define KEYS 64
#define LANES 16  /* columns of a score tile come in such blocks */
#define LINE 64   /* bytes of a cache line */
#define FETCHED 8 /* rows fetched with each product of a tile */
#define FEW 4     /* up to so many queries go one by one: their columns would leave most of a vector empty */
#define MOST_D LS_ATTENTION_MOST_D

_Static_assert(QUERIES % LANES == 0, "whole blocks of columns");
_Static_assert(KEYS <= 64, "a mask of keys is a word");

/* A tile of scores [keys, queries]; element [j, i] is at j * QUERIES + i. */
typedef struct block {
    int queries, keys; /* in use */
    int width;         /* queries rounded up to LANES: columns that are computed */
    int64_t ahead;     /* query i sees the keys up to i + ahead of the tile */
} block;

/* The first query that sees key j. */
static LS_ALWAYS_INLINE int first_query(const block *at, int j) { return j > at->ahead ? (int)(j - at->ahead) : 0; }

/* How many keys of the tile query i sees. */
static LS_ALWAYS_INLINE int keys_seen(const block *at, int i)
{
    return i + at->ahead + 1 < at->keys ? (int)(i + at->ahead + 1) : at->keys;
}

static LS_ALWAYS_INLINE int least(int a, int b) { return a < b ? a : b; }

/* --- memory that is needed soon ------------------------------------------------------- */

/* Heads of a token lie side by side, so the rows of one head are far apart, and no hardware guesses them. They are
 * fetched a few at a time between the products, which leave the way to memory free. */
typedef struct ahead {
    struct { const char *x; int64_t row, rows; } part[8]; /* row: in bytes */
    int n; /* parts, the last of them first */
    int64_t width; /* bytes of a row that are read */
    bool bf16;
} ahead;

static void expect(ahead *a, const void *x, int64_t at, int64_t row, int64_t rows)
{
    if (!x || rows <= 0) return;
    a->part[a->n].x = ls_at_const(x, at, a->bf16);
    a->part[a->n].row = row * (a->bf16 ? 2 : 4);
    a->part[a->n++].rows = rows;
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

/* --- products -------------------------------------------------------------------- */

/* out[j, i] = sum over d of a[j, d] b[i, d] where query i sees key j, with b packed. */
static void scores(const ls_gemm_tile *tile, ahead *next, const block *at, float *out, const float *a, int64_t a_row,
                   const float *packed, int64_t D)
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

/* out[i, d] (+)= sum over the keys j that query i sees of st[j, i] b[j, d]. */
static void sum_over_keys(const ls_gemm_tile *tile, ahead *next, const block *at, float *out, int64_t out_row,
                          const float *st, const float *b, int64_t b_row, int64_t D, bool add)
{
    ls_gemm_tile_args t = { .a_row = 1, .a_col = QUERIES, .ldb = b_row, .ldc = out_row, .add = add };
    for (int64_t d = 0; d < D; d += tile->nr) {
        t.nr = D - d < tile->nr ? (int)(D - d) : tile->nr;
        t.b = b + d;
        for (int i = 0; i < at->queries; i += tile->mr) {
            t.mr = least(tile->mr, at->queries - i);
            t.k = keys_seen(at, i + t.mr - 1);
            if (t.k <= 0) continue;
            t.a = st + i;
            t.c = out + i * out_row + d;
            fetch_some(next);
            tile->run(&t);
        }
    }
}

/* out[j, d] += sum over the queries i that see key j of st[j, i] b[i, d]. */
static void sum_over_queries(const ls_gemm_tile *tile, ahead *next, const block *at, float *out, int64_t out_row,
                             const float *st, const float *b, int64_t b_row, int64_t D)
{
    ls_gemm_tile_args t = { .a_row = QUERIES, .a_col = 1, .ldb = b_row, .ldc = out_row, .add = true };
    for (int64_t d = 0; d < D; d += tile->nr) {
        t.nr = D - d < tile->nr ? (int)(D - d) : tile->nr;
        for (int j = 0; j < at->keys; j += tile->mr) {
            const int i = first_query(at, j);
            t.mr = least(tile->mr, at->keys - j);
            t.k = at->queries - i;
            t.a = st + j * QUERIES + i;
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

/* Rows of b [queries, D] as columns, in panels of the tile's width: what `scores` reads. Columns up to
 * at->width that stand for no query are 0. */
static void pack_queries(const ls_gemm_tile *tile, const block *at, float *packed, const float *b, int64_t b_row,
                         int64_t D)
{
    for (int i = 0; i < at->width; i += tile->nr) {
        const int columns = at->queries > i ? least(tile->nr, at->queries - i) : 0;
        float *panel = packed + i * D;
        if (columns < tile->nr) memset(panel, 0, (size_t)(tile->nr * D) * sizeof *panel);
        tile->pack(panel, b + i * b_row, b_row, columns, D);
    }
}

/* Elements of all panels that pack_queries wrote. */
static int64_t packed_count(const ls_gemm_tile *tile, const block *at, int64_t D)
{
    return (at->width + tile->nr - 1) / tile->nr * tile->nr * D;
}

/* --- softmax ----------------------------------------------------------------------- */

/* The running softmax of a tile's queries; columns without a query are harmless. */
typedef struct running {
    _Alignas(64) float max[QUERIES];
    _Alignas(64) float sum[QUERIES];  /* of e^(s - max) */
    _Alignas(64) float fade[QUERIES]; /* e^(old max - new max) */
} running;

static void hide(const block *at, float *st)
{
    for (int j = 0; j < at->keys; j++) {
        const int first = first_query(at, j);
        if (first > 0) memset(st + j * QUERIES, 0, (size_t)first * sizeof *st);
    }
}

/* Scores become e^(s - max), 0 where hidden. */
LS_KERNEL static void exponentials(running *r, const block *at, float *restrict st)
{
    float top[QUERIES];
    for (int i = 0; i < QUERIES; i++) top[i] = r->max[i];
    for (int j = 0; j < at->keys; j++) {
        float *restrict s = st + j * QUERIES;
        const int first = first_query(at, j), from = first / LANES * LANES;
        for (int i = from; i < first; i++) s[i] = -INFINITY;
        for (int b = from; b < at->width; b += LANES)
            for (int i = b; i < b + LANES; i++) top[i] = s[i] > top[i] ? s[i] : top[i];
    }
    for (int i = 0; i < QUERIES; i++) {
        r->fade[i] = ls_expf(r->max[i] - top[i]);
        r->sum[i] *= r->fade[i];
        r->max[i] = top[i];
    }
    for (int j = 0; j < at->keys; j++) {
        float *restrict s = st + j * QUERIES;
        for (int b = first_query(at, j) / LANES * LANES; b < at->width; b += LANES)
            for (int i = b; i < b + LANES; i++) {
                s[i] = ls_expf(s[i] - top[i]);
                r->sum[i] += s[i];
            }
    }
    hide(at, st);
}

/* Rows of out fade where the maximum grew. */
LS_KERNEL static void fade_rows(float *out, int64_t out_row, const float *fade, int queries, int64_t D)
{
    for (int i = 0; i < queries; i++) {
        const float f = fade[i];
        float *row = out + i * out_row;
        if (f == 1.0f) continue;
        for (int64_t d = 0; d < D; d++) row[d] *= f;
    }
}

/* Scores become probabilities, and dst, which holds dP, becomes dS; both 0 where hidden. */
LS_KERNEL static void slopes(const block *at, float *restrict st, float *restrict dst, const float *restrict lse,
                             const float *restrict delta, float scale)
{
    for (int j = 0; j < at->keys; j++) {
        float *restrict s = st + j * QUERIES, *restrict ds = dst + j * QUERIES;
        for (int b = first_query(at, j) / LANES * LANES; b < at->width; b += LANES)
            for (int i = b; i < b + LANES; i++) {
                s[i] = ls_expf(s[i] - lse[i]);
                ds[i] = s[i] * (ds[i] - delta[i]) * scale;
            }
    }
    hide(at, st);
    hide(at, dst);
}

typedef float lanes __attribute__((vector_size(LANES * sizeof(float))));

/* In LANES partial sums, then by halves. */
static LS_ALWAYS_INLINE float dot(const float *a, const float *b, int64_t n)
{
    lanes sum = { 0 }, x, y;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        memcpy(&x, a + i, sizeof x);
        memcpy(&y, b + i, sizeof y);
        sum += x * y;
    }
    float part[LANES];
    memcpy(part, &sum, sizeof part);
    for (int l = 0; i + l < n; l++) part[l] += a[i + l] * b[i + l];
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int l = 0; l < half; l++) part[l] += part[l + half];
    return part[0];
}

/* delta[i] = a[i] . b[i] */
LS_KERNEL static void row_dots(float *delta, const float *a, const float *b, int64_t row, int queries, int64_t D)
{
    for (int i = 0; i < queries; i++) delta[i] = dot(a + i * row, b + i * row, D);
}

/* --- dropout ------------------------------------------------------------------------- */

/* Bit j of mask[i]: the probability of query i and key j is kept. Columns without a query keep nothing. */
static void draw(const ls_attention_call *c, const block *at, int64_t row, int64_t key, uint64_t mask[QUERIES])
{
    uint32_t word[KEYS + 8]; /* Philox makes four at a time: up to three more on both sides */
    memset(mask, 0, QUERIES * sizeof *mask);
    for (int i = 0; i < at->queries; i++) {
        const int keys = keys_seen(at, i);
        if (keys <= 0) continue;
        const uint64_t first = c->drop.first + (uint64_t)((row + i) * c->Tk + key);
        const int before = (int)(first % 4);
        ls_philox_blocks(c->drop.seed, c->drop.stream, first / 4, (size_t)(before + keys + 3) / 4, word);
        for (int j = 0; j < keys; j++) mask[i] |= (uint64_t)(word[before + j] >> 8 >= c->drop.least) << j;
    }
}

LS_KERNEL static void drop(const block *at, float *restrict st, const uint64_t *restrict mask, float scale)
{
    for (int j = 0; j < at->keys; j++) {
        float *restrict s = st + j * QUERIES;
        for (int i = first_query(at, j) / LANES * LANES; i < at->width; i++) s[i] *= mask[i] >> j & 1u ? scale : 0.0f;
    }
}

/* --- rows as floats -------------------------------------------------------------------- */

/* D floats each, row floats apart: the caller's own, or copies. */
typedef struct rows {
    const float *x;
    int64_t row;
} rows;

LS_KERNEL static void widen_rows(float *restrict to, const uint16_t *restrict from, int64_t from_row, int64_t n,
                                 int64_t D)
{
    for (int64_t i = 0; i < n; i++)
        for (int64_t d = 0; d < D; d++) to[i * D + d] = ls_from_bf16(from[i * from_row + d]);
}

LS_KERNEL static void round_rows(uint16_t *restrict to, int64_t to_row, const float *restrict from, int64_t n,
                                 int64_t D, bool add)
{
    for (int64_t i = 0; i < n; i++) {
        uint16_t *restrict y = to + i * to_row;
        const float *restrict x = from + i * D;
        if (add)
            for (int64_t d = 0; d < D; d++) y[d] = ls_to_bf16(ls_from_bf16(y[d]) + x[d]);
        else
            for (int64_t d = 0; d < D; d++) y[d] = ls_to_bf16(x[d]);
    }
}

#define TILE (MOST_D * 64) /* floats of the rows of a tile */

/* n rows of x from element `at` on; copied where they are bfloat16, to the k-th of `copies`. */
static rows as_floats(const ls_attention_call *c, const void *x, int64_t at, int64_t row, int64_t n, float *copies,
                      int k)
{
    if (c->dtype != LS_BF16) return (rows){ (const float *)x + at, row };
    float *copy = copies + k * TILE;
    widen_rows(copy, (const uint16_t *)x + at, row, n, c->D);
    return (rows){ copy, c->D };
}

/* --- one head ------------------------------------------------------------------------ */

/* Where a head of a sequence starts. */
static int64_t offset(ls_strides by, int64_t b, int64_t h) { return b * by.batch + h * by.head; }

static const ls_gemm_tile *tile_of(const ls_attention_call *c) { return c->tile ? c->tile : ls_gemm_tile_best(); }

/* Keys that some query of [0, end) sees. */
static int64_t keys_before(const ls_attention_call *c, int64_t end) { return c->causal ? c->Tk - c->Tq + end : c->Tk; }

static block block_at(const ls_attention_call *c, int64_t query, int64_t key)
{
    const int64_t queries = c->Tq - query < QUERIES ? c->Tq - query : QUERIES;
    const int64_t keys = keys_before(c, query + queries) - key;
    return (block){
        .queries = (int)queries,
        .keys = (int)(keys < KEYS ? keys : KEYS),
        .width = (int)((queries + LANES - 1) / LANES * LANES),
        .ahead = c->causal ? query + c->Tk - c->Tq - key : KEYS,
    };
}

/* What the queries from i on of head h, and after the last query the next head, need for the first time. */
static void look_ahead(const ls_attention_call *c, ahead *a, int64_t b, int64_t h, int64_t i, bool backward)
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
    const int64_t hkv = h / (c->Hq / c->Hkv), queries = c->Tq - i < QUERIES ? c->Tq - i : QUERIES;
    const int64_t j = i == 0 ? 0 : keys_before(c, i), keys = keys_before(c, i + queries) - j;
    const int64_t q_row = c->q_by.token, k_row = c->k_by.token, v_row = c->v_by.token, out_row = c->out_by.token;
    const int64_t q_at = offset(c->q_by, b, h) + i * q_row, out_at = offset(c->out_by, b, h) + i * out_row;
    const int64_t k_at = offset(c->k_by, b, hkv) + j * k_row, v_at = offset(c->v_by, b, hkv) + j * v_row;
    if (backward) { /* what is needed last comes first */
        if (!a->bf16) expect(a, c->dk, k_at, k_row, keys);
        if (!a->bf16) expect(a, c->dv, v_at, v_row, keys);
        expect(a, c->dq, q_at, q_row, queries);
    }
    expect(a, c->out, out_at, out_row, queries);
    expect(a, c->v, v_at, v_row, keys);
    expect(a, c->k, k_at, k_row, keys);
    if (backward) expect(a, c->dout, out_at, out_row, queries);
    expect(a, c->q, q_at, q_row, queries);
}

/* copies: of bfloat16, 4 TILE floats; else NULL. */
static void forward_tiles(const ls_attention_call *c, int64_t b, int64_t h, float *copies)
{
    _Alignas(64) float packed[MOST_D * QUERIES], st[KEYS * QUERIES];
    uint64_t mask[QUERIES];
    running r;
    ahead next;
    const ls_gemm_tile *tile = tile_of(c);
    const int64_t hkv = h / (c->Hq / c->Hkv), D = c->D;
    const int64_t q_row = c->q_by.token, k_row = c->k_by.token, v_row = c->v_by.token;
    const int64_t out_row = copies ? D : c->out_by.token, row0 = (b * c->Hq + h) * c->Tq;
    float *lse = c->lse ? c->lse + row0 : NULL;

    for (int64_t i = 0; i < c->Tq; i += QUERIES) {
        block at = block_at(c, i, 0);
        const int64_t out_at = offset(c->out_by, b, h) + i * c->out_by.token;
        float *out = copies ? copies : (float *)c->out + out_at;
        const int64_t Tk = keys_before(c, i + at.queries);
        look_ahead(c, &next, b, h, i + QUERIES, false);
        const rows q = as_floats(c, c->q, offset(c->q_by, b, h) + i * q_row, q_row, at.queries, copies, 1);
        pack_queries(tile, &at, packed, q.x, q.row, D);
        scale_in_place(packed, packed_count(tile, &at, D), c->scale);
        for (int l = 0; l < QUERIES; l++) {
            r.max[l] = -INFINITY;
            r.sum[l] = 0.0f;
        }
        for (int64_t j = 0; j < Tk; j += KEYS) {
            at = block_at(c, i, j);
            const rows k = as_floats(c, c->k, offset(c->k_by, b, hkv) + j * k_row, k_row, at.keys, copies, 2);
            const rows v = as_floats(c, c->v, offset(c->v_by, b, hkv) + j * v_row, v_row, at.keys, copies, 3);
            scores(tile, &next, &at, st, k.x, k.row, packed, D);
            exponentials(&r, &at, st);
            if (c->drop.least > 0) {
                draw(c, &at, row0 + i, j, mask);
                drop(&at, st, mask, c->drop.scale);
            }
            if (j > 0) fade_rows(out, out_row, r.fade, at.queries, D);
            sum_over_keys(tile, &next, &at, out, out_row, st, v.x, v.row, D, j > 0);
        }
        for (int l = 0; l < at.queries; l++) {
            r.fade[l] = 1.0f / r.sum[l];
            if (lse) lse[i + l] = r.max[l] + logf(r.sum[l]);
        }
        fade_rows(out, out_row, r.fade, at.queries, D);
        if (copies) round_rows((uint16_t *)c->out + out_at, c->out_by.token, out, at.queries, D, false);
    }
}

static __attribute__((noinline)) void forward_bf16(const ls_attention_call *c, int64_t b, int64_t h)
{
    _Alignas(64) float copies[4 * TILE];
    forward_tiles(c, b, h, copies);
}

/* One query against n keys, which are read once, as they lie in memory. */
LS_KERNEL static void forward_one(const ls_attention_call *c, const float *q, const float *k, const float *v, int64_t n,
                                  float *restrict out)
{
    float p[KEYS], max = -INFINITY, sum = 0.0f;
    const int64_t D = c->D;
    for (int64_t d = 0; d < D; d++) out[d] = 0.0f;
    for (int64_t first = 0; first < n; first += KEYS) {
        const int keys = n - first < KEYS ? (int)(n - first) : KEYS;
        float top = max;
        for (int j = 0; j < keys; j++) {
            p[j] = c->scale * dot(q, k + (first + j) * c->k_by.token, D);
            top = p[j] > top ? p[j] : top;
        }
        const float fade = ls_expf(max - top);
        max = top;
        sum *= fade;
        for (int j = 0; j < keys; j++) p[j] = ls_expf(p[j] - top);
        for (int j = 0; j < keys; j++) sum += p[j];
        if (fade != 1.0f)
            for (int64_t d = 0; d < D; d++) out[d] *= fade;
        for (int j = 0; j < keys; j++) {
            const float *restrict row = v + (first + j) * c->v_by.token;
            for (int64_t d = 0; d < D; d++) out[d] += p[j] * row[d];
        }
    }
    for (int64_t d = 0; d < D; d++) out[d] *= 1.0f / sum;
}

static void forward_few(const ls_attention_call *c, int64_t b, int64_t h)
{
    const int64_t hkv = h / (c->Hq / c->Hkv);
    const float *q = (const float *)c->q + offset(c->q_by, b, h), *k = (const float *)c->k + offset(c->k_by, b, hkv),
                *v = (const float *)c->v + offset(c->v_by, b, hkv);
    float *out = (float *)c->out + offset(c->out_by, b, h);
    for (int64_t i = 0; i < c->Tq; i++)
        forward_one(c, q + i * c->q_by.token, k, v, keys_before(c, i + 1), out + i * c->out_by.token);
}

/* Rows [first, end) of x become 0. */
static void clear_rows(float *x, int64_t row, int64_t first, int64_t end, int64_t D)
{
    for (int64_t t = first; t < end; t++) memset(x + t * row, 0, (size_t)D * sizeof *x);
}

/* Where a head's sums of dk and dv are: the caller's memory, or [Tk, D] floats each. */
typedef struct sums {
    float *dk, *dv; /* NULL: not wanted */
    int64_t k_row, v_row;
    bool add_k, add_v;
} sums;

/* One head of queries adds to dk and dv of its head of keys, or, the first, writes them, and writes or adds to dq.
 * copies: of bfloat16, 6 TILE floats; else NULL. */
static void backward_tiles(const ls_attention_call *c, int64_t b, int64_t h, const sums *to, float *copies)
{
    _Alignas(64) float packed_q[MOST_D * QUERIES], packed_do[MOST_D * QUERIES];
    _Alignas(64) float st[KEYS * QUERIES], dst[KEYS * QUERIES], delta[QUERIES] = { 0 }, lse[QUERIES] = { 0 };
    uint64_t mask[QUERIES];
    ahead next;
    const ls_gemm_tile *tile = tile_of(c);
    const int64_t hkv = h / (c->Hq / c->Hkv), D = c->D, row0 = (b * c->Hq + h) * c->Tq;
    const int64_t q_row = c->q_by.token, k_row = c->k_by.token, v_row = c->v_by.token, out_row = c->out_by.token;
    const int64_t dq_row = copies ? D : q_row;

    for (int64_t i = 0; i < c->Tq; i += QUERIES) {
        block at = block_at(c, i, 0);
        const int64_t Tk = keys_before(c, i + at.queries);
        const int64_t q_at = offset(c->q_by, b, h) + i * q_row, out_at = offset(c->out_by, b, h) + i * out_row;
        float *dq = !c->dq ? NULL : copies ? copies : (float *)c->dq + q_at;
        const bool add_q = c->add_q && !copies;
        look_ahead(c, &next, b, h, i + QUERIES, true);
        if (h % (c->Hq / c->Hkv) == 0) { /* the first to add to these keys */
            const int64_t seen = i == 0 ? 0 : keys_before(c, i);
            if (to->dk && !to->add_k) clear_rows(to->dk, to->k_row, seen, Tk, D);
            if (to->dv && !to->add_v) clear_rows(to->dv, to->v_row, seen, Tk, D);
        }
        const rows q = as_floats(c, c->q, q_at, q_row, at.queries, copies, 1);
        const rows dout = as_floats(c, c->dout, out_at, out_row, at.queries, copies, 2);
        const rows out = as_floats(c, c->out, out_at, out_row, at.queries, copies, 3);
        pack_queries(tile, &at, packed_q, q.x, q.row, D);
        scale_in_place(packed_q, packed_count(tile, &at, D), c->scale);
        pack_queries(tile, &at, packed_do, dout.x, dout.row, D);
        row_dots(delta, dout.x, out.x, out.row, at.queries, D);
        memcpy(lse, c->lse + row0 + i, (size_t)at.queries * sizeof *lse);
        for (int64_t j = 0; j < Tk; j += KEYS) {
            at = block_at(c, i, j);
            const rows k = as_floats(c, c->k, offset(c->k_by, b, hkv) + j * k_row, k_row, at.keys, copies, 4);
            const rows v = as_floats(c, c->v, offset(c->v_by, b, hkv) + j * v_row, v_row, at.keys, copies, 5);
            scores(tile, &next, &at, st, k.x, k.row, packed_q, D);
            scores(tile, &next, &at, dst, v.x, v.row, packed_do, D);
            if (c->drop.least > 0) {
                draw(c, &at, row0 + i, j, mask);
                drop(&at, dst, mask, c->drop.scale);
            }
            slopes(&at, st, dst, lse, delta, c->scale);
            if (c->drop.least > 0) drop(&at, st, mask, c->drop.scale);
            if (to->dv)
                sum_over_queries(tile, &next, &at, to->dv + j * to->v_row, to->v_row, st, dout.x, dout.row, D);
            if (to->dk) sum_over_queries(tile, &next, &at, to->dk + j * to->k_row, to->k_row, dst, q.x, q.row, D);
            if (dq) sum_over_keys(tile, &next, &at, dq, dq_row, dst, k.x, k.row, D, j > 0 || add_q);
        }
        if (dq && copies) round_rows((uint16_t *)c->dq + q_at, q_row, dq, at.queries, D, c->add_q);
    }
}

static void backward_float(const ls_attention_call *c, int64_t b, int64_t hkv)
{
    const int64_t shared = c->Hq / c->Hkv;
    const sums to = {
        .dk = c->dk ? (float *)c->dk + offset(c->k_by, b, hkv) : NULL, .k_row = c->k_by.token, .add_k = c->add_k,
        .dv = c->dv ? (float *)c->dv + offset(c->v_by, b, hkv) : NULL, .v_row = c->v_by.token, .add_v = c->add_v,
    };
    for (int64_t h = hkv * shared; h < (hkv + 1) * shared; h++) backward_tiles(c, b, h, &to, NULL);
}

static __attribute__((noinline)) void backward_bf16(const ls_attention_call *c, int64_t b, int64_t hkv, float *scratch)
{
    _Alignas(64) float copies[6 * TILE];
    const int64_t shared = c->Hq / c->Hkv, D = c->D;
    const sums to = {
        .dk = c->dk ? scratch : NULL, .k_row = D, .dv = c->dv ? scratch + c->Tk * D : NULL, .v_row = D,
    };
    for (int64_t h = hkv * shared; h < (hkv + 1) * shared; h++) backward_tiles(c, b, h, &to, copies);
    if (to.dk)
        round_rows((uint16_t *)c->dk + offset(c->k_by, b, hkv), c->k_by.token, to.dk, c->Tk, D, c->add_k);
    if (to.dv)
        round_rows((uint16_t *)c->dv + offset(c->v_by, b, hkv), c->v_by.token, to.dv, c->Tk, D, c->add_v);
}

/* --- all heads ------------------------------------------------------------------------ */

ls_strides ls_strides_dense(int64_t T, int64_t H, int64_t D)
{
    return (ls_strides){ .batch = T * H * D, .token = H * D, .head = D };
}

/* Pieces are independent: threads share them. What backward follows goes by tiles: it makes the same scores again, to
 * the bit, however large they are. */
void ls_attention_forward(const ls_attention_call *c)
{
    const bool few = c->Tq <= FEW && !c->lse && c->dtype != LS_BF16 && c->drop.least == 0;
    const bool pay = ls_threads_pay((int64_t)(ls_attention_flops(c) / 4.0));
    LS_THREADS_FOR(pay, for (int64_t piece = 0; piece < c->B * c->Hq; piece++) {
        if (few) forward_few(c, piece / c->Hq, piece % c->Hq);
        else if (c->dtype == LS_BF16) forward_bf16(c, piece / c->Hq, piece % c->Hq);
        else forward_tiles(c, piece / c->Hq, piece % c->Hq, NULL);
    });
}

static int64_t scratch_of_thread(const ls_attention_call *c) { return (2 * c->Tk * c->D + 15) / 16 * 16; }

int64_t ls_attention_scratch(const ls_attention_call *c)
{
    return c->dtype == LS_BF16 ? ls_thread_count() * scratch_of_thread(c) : 0;
}

/* The same, a piece being a head of keys with all its heads of queries. */
void ls_attention_backward(const ls_attention_call *c)
{
    const bool pay = ls_threads_pay((int64_t)(2.5 * ls_attention_flops(c) / 4.0));
    LS_THREADS_FOR(pay, for (int64_t piece = 0; piece < c->B * c->Hkv; piece++) {
        const int64_t b = piece / c->Hkv, hkv = piece % c->Hkv;
        if (c->dtype != LS_BF16) backward_float(c, b, hkv);
        else backward_bf16(c, b, hkv, c->scratch + ls_thread_index() * scratch_of_thread(c));
    });
}

double ls_attention_flops(const ls_attention_call *c)
{
    const double Tq = (double)c->Tq, Tk = (double)c->Tk;
    const double pairs = c->causal ? Tq * (Tk - Tq) + Tq * (Tq + 1.0) / 2.0 : Tq * Tk;
    return 4.0 * (double)c->D * pairs * (double)(c->B * c->Hq);
}
