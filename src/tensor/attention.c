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
 * Keys and values of a head are copied first, to lie side by side, and its dk and dv are added up
 * in float memory of the thread's own. Of bfloat16 results are rounded when their sum is complete. Where
 * the CPU multiplies pairs of bfloat16 faster than floats (gemm_tile.h), and heads consist of whole ones,
 * all products are of such:
 *
 *   S^T, dP^T    pairs along D: rows as they lie in memory; the scale comes after the sum
 *   out, dQ      pairs of keys: P, dS and the rows of V and K, two keys interleaved
 *   dV, dK       pairs of queries: rows of P and dS; the rows of dO and Q, two queries interleaved
 *
 * So P and dS, and nothing else, are rounded to bfloat16 for their products, as
 * FlashAttention does; softmax, its sums, delta and dS itself are float. Elsewhere
 * the rows of a tile are copied as floats first, a small part of its work.
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

/* --- products: of pairs D and rows are counted in them ---------------------------------- */

/* Elements of a sum that one element of a tile stands for. */
static LS_ALWAYS_INLINE int each(const ls_gemm_tile *tile) { return tile->pairs ? 2 : 1; }

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

/* out[i, d] (+)= sum over the keys j that query i sees of st[j, i] b[j, d]. Hidden keys that share a pair are 0. */
static void sum_over_keys(const ls_gemm_tile *tile, ahead *next, const block *at, float *out, int64_t out_row,
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

/* out[j, d] += sum over the queries i that see key j of st[j, i] b[i, d]. */
static void sum_over_queries(const ls_gemm_tile *tile, ahead *next, const block *at, float *out, int64_t out_row,
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

/* Scores become e^(scale s - max), 0 where hidden. */
LS_KERNEL static void exponentials(running *r, const block *at, float *restrict st, float scale)
{
    float top[QUERIES];
    for (int i = 0; i < QUERIES; i++) top[i] = r->max[i];
    for (int j = 0; j < at->keys; j++) {
        float *restrict s = st + j * QUERIES;
        const int first = first_query(at, j), from = first / LANES * LANES;
        for (int i = from; i < first; i++) s[i] = -INFINITY;
        for (int b = from; b < at->width; b += LANES)
            for (int i = b; i < b + LANES; i++) top[i] = scale * s[i] > top[i] ? scale * s[i] : top[i];
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
                s[i] = ls_expf(scale * s[i] - top[i]);
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

/* Scores, up to `scale_st`, become probabilities, and dst, which holds dP, becomes dS; both 0 where hidden. */
LS_KERNEL static void slopes(const block *at, float *restrict st, float *restrict dst, const float *restrict lse,
                             const float *restrict delta, float scale_st, float scale)
{
    for (int j = 0; j < at->keys; j++) {
        float *restrict s = st + j * QUERIES, *restrict ds = dst + j * QUERIES;
        for (int b = first_query(at, j) / LANES * LANES; b < at->width; b += LANES)
            for (int i = b; i < b + LANES; i++) {
                s[i] = ls_expf(scale_st * s[i] - lse[i]);
                ds[i] = s[i] * (ds[i] - delta[i]) * scale;
            }
    }
    hide(at, st);
    hide(at, dst);
}

typedef float lanes __attribute__((vector_size(LANES * sizeof(float))));
typedef uint32_t words __attribute__((vector_size(LANES * sizeof(uint32_t))));
typedef uint16_t halves __attribute__((vector_size(LANES * sizeof(uint16_t))));

/* x[i..i + LANES) */
static LS_ALWAYS_INLINE void load(lanes *to, const void *x, int64_t i, bool bf16)
{
    if (bf16) {
        halves h;
        memcpy(&h, (const uint16_t *)x + i, sizeof h);
        const words w = __builtin_convertvector(h, words) << 16;
        memcpy(to, &w, sizeof *to);
    } else {
        memcpy(to, (const float *)x + i, sizeof *to);
    }
}

/* In LANES partial sums, then by halves. */
static LS_ALWAYS_INLINE float dot(const void *a, const void *b, int64_t n, bool bf16)
{
    lanes sum = { 0 }, x, y;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        load(&x, a, i, bf16);
        load(&y, b, i, bf16);
        sum += x * y;
    }
    float part[LANES];
    memcpy(part, &sum, sizeof part);
    for (int l = 0; i + l < n; l++) part[l] += ls_get(a, i + l, bf16) * ls_get(b, i + l, bf16);
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int l = 0; l < half; l++) part[l] += part[l + half];
    return part[0];
}

static LS_ALWAYS_INLINE void row_dots_of(float *delta, const void *a, const void *b, int64_t at, int64_t row,
                                         int queries, int64_t D, bool bf16)
{
    for (int64_t i = 0; i < queries; i++)
        delta[i] = dot(ls_at_const(a, at + i * row, bf16), ls_at_const(b, at + i * row, bf16), D, bf16);
}

/* delta[i] = a[i] . b[i], rows from element `at` on */
LS_KERNEL static void row_dots(ls_dtype dtype, float *delta, const void *a, const void *b, int64_t at, int64_t row,
                               int queries, int64_t D)
{
    LS_BY_DTYPE(dtype, row_dots_of, delta, a, b, at, row, queries, D);
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

/* --- rows ------------------------------------------------------------------- */

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

/* A tile of scores as a factor of products of pairs. */
typedef struct rounded {
    _Alignas(64) uint16_t of_queries[KEYS * QUERIES];  /* [keys, queries]: pairs of queries */
    _Alignas(64) uint32_t of_keys[KEYS / 2 * QUERIES]; /* [keys / 2, queries]: pairs of keys */
} rounded;

/* Queries beyond the last one are 0 where they share its pair. */
static void round_tile(rounded *to, const block *at, const float *st, bool of_keys)
{
    round_rows(to->of_queries, QUERIES, st, QUERIES, at->keys, at->width, false);
    if (at->queries % 2 == 1)
        for (int j = 0; j < at->keys; j++) to->of_queries[j * QUERIES + at->queries] = 0;
    if (of_keys) interleave(to->of_keys, QUERIES, to->of_queries, QUERIES, at->keys, at->width);
}

/* Rows of D elements as a factor of products: `along_d` in sums over d, `down` in sums over rows. Both are the same but
 * of pairs, which D is counted in along d, and rows are downwards. Borrowed, or copies. */
typedef struct rows {
    const float *along_d, *down;
    int64_t along_row, down_row; /* from row to row */
} rows;

#define TILE (MOST_D * 64) /* floats of the rows of a tile */

/* n rows of x from element `at` on, of which what is not read as it lies in memory is copied; pairs of rows only if
 * `down`. */
static rows factor(const ls_attention_call *c, const ls_gemm_tile *tile, const void *x, int64_t at, int64_t row,
                   int64_t n, float *copy, bool down)
{
    const int64_t D = c->D;
    if (c->dtype != LS_BF16) {
        const float *from = (const float *)x + at;
        if (!down) return (rows){ from, from, row, row };
        copy_rows(copy, from, row, n, D);
        return (rows){ copy, copy, D, D };
    }
    const uint16_t *from = (const uint16_t *)x + at;
    if (!tile->pairs) {
        widen_rows(copy, from, row, n, D);
        return (rows){ copy, copy, D, D };
    }
    if (down) interleave((uint32_t *)copy, D, from, row, n, D);
    return (rows){ (const float *)from, copy, row / 2, D };
}

/* --- one head ------------------------------------------------------------------------ */

/* Where a head of a sequence starts. */
static int64_t offset(ls_strides by, int64_t b, int64_t h) { return b * by.batch + h * by.head; }

/* Whether heads of [B, T, H, D] at x consist of whole pairs, each in a word of its own. */
static bool in_pairs(const void *x, ls_strides by)
{
    return (uintptr_t)x % sizeof(uint32_t) == 0 && (by.batch | by.token | by.head) % 2 == 0;
}

static const ls_gemm_tile *tile_of(const ls_attention_call *c)
{
    const ls_gemm_tile *const pairs_tile = ls_gemm_tile_pairs_pay() ? ls_gemm_tile_of_pairs() : NULL;
    const ls_gemm_tile *tile = c->tile ? c->tile : c->dtype == LS_BF16 ? pairs_tile : NULL;
    const bool pairs = c->dtype == LS_BF16 && c->D % 2 == 0 && in_pairs(c->q, c->q_by) && in_pairs(c->k, c->k_by) &&
                       in_pairs(c->v, c->v_by) && in_pairs(c->dout, c->out_by);
    return tile && (pairs || !tile->pairs) ? tile : ls_gemm_tile_best();
}

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
    const int64_t queries = c->Tq - i < QUERIES ? c->Tq - i : QUERIES;
    const int64_t q_row = c->q_by.token, out_row = c->out_by.token;
    const int64_t q_at = offset(c->q_by, b, h) + i * q_row, out_at = offset(c->out_by, b, h) + i * out_row;
    if (backward) expect(a, c->dq, q_at, q_row, queries); /* what is needed last comes first */
    expect(a, c->out, out_at, out_row, queries);
    if (backward) expect(a, c->dout, out_at, out_row, queries);
    expect(a, c->q, q_at, q_row, queries);
}

/* --- keys and values of a head, side by side ------------------------------------------------ */

/* In a batch the rows of a head are as far apart as tokens are: of long sequences each lies in a page of its own, and
 * all of them in a few sets of the first cache. So they are copied once, for all queries, and dk and dv are added up
 * in such a copy, too. */
typedef struct head {
    rows k, v;
    float *dk, *dv; /* [Tk, D]; backward only */
} head;

static int64_t copy_count(const ls_attention_call *c) { return ((c->Tk + 1) * c->D + 15) / 16 * 16; }

/* Pairs of rows only if `down`. */
static rows copy_head(const ls_attention_call *c, const ls_gemm_tile *tile, const void *x, int64_t at, int64_t row,
                      float *to, bool along, bool down)
{
    const int64_t D = c->D, Tk = c->Tk;
    if (c->dtype != LS_BF16) {
        const float *from = (const float *)x + at;
        if (row == D || !to) return (rows){ from, from, row, row };
        copy_rows(to, from, row, Tk, D);
        return (rows){ to, to, D, D };
    }
    const uint16_t *from = (const uint16_t *)x + at;
    if (!tile->pairs) {
        widen_rows(to, from, row, Tk, D);
        return (rows){ to, to, D, D };
    }
    float *pairs = to + (Tk * D / 2 + 15) / 16 * 16;
    for (int64_t i = 0; along && i < Tk; i++) memcpy((uint16_t *)to + i * D, from + i * row, (size_t)D * sizeof *from);
    if (down) interleave((uint32_t *)pairs, D, from, row, Tk, D);
    return (rows){ to, pairs, D / 2, D };
}

static head gather(const ls_attention_call *c, const ls_gemm_tile *tile, int64_t b, int64_t hkv, float *scratch,
                   bool backward)
{
    const int64_t k_at = offset(c->k_by, b, hkv), v_at = offset(c->v_by, b, hkv), n = copy_count(c);
    return (head){
        .k = copy_head(c, tile, c->k, k_at, c->k_by.token, scratch, true, backward),
        .v = copy_head(c, tile, c->v, v_at, c->v_by.token, scratch ? scratch + n : NULL, backward, !backward),
        .dk = backward && c->dk ? scratch + 2 * n : NULL, .dv = backward && c->dv ? scratch + 3 * n : NULL,
    };
}

/* From key j on, the first of a tile. */
static rows rows_from(const ls_gemm_tile *tile, const rows *all, int64_t j)
{
    return (rows){
        .along_d = all->along_d + j * all->along_row, .along_row = all->along_row,
        .down = all->down + j / each(tile) * all->down_row, .down_row = all->down_row,
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

static void put_rows(const ls_attention_call *c, void *to, int64_t at, int64_t row, const float *from, int64_t n,
                     bool add)
{
    if (c->dtype == LS_BF16) round_rows((uint16_t *)to + at, row, from, c->D, n, c->D, add);
    else put_floats((float *)to + at, row, from, n, c->D, add);
}

static __attribute__((noinline)) void forward_tiles(const ls_attention_call *c, int64_t b, int64_t h, float *scratch)
{
    _Alignas(64) float packed[MOST_D * QUERIES], st[KEYS * QUERIES], out[TILE], copy[TILE];
    rounded p;
    uint64_t mask[QUERIES];
    running r;
    ahead next;
    const ls_gemm_tile *tile = tile_of(c);
    const int64_t hkv = h / (c->Hq / c->Hkv), D = c->D, along = D / each(tile);
    const int64_t q_row = c->q_by.token, row0 = (b * c->Hq + h) * c->Tq;
    float *lse = c->lse ? c->lse + row0 : NULL;
    const head of = gather(c, tile, b, hkv, scratch, false);

    for (int64_t i = 0; i < c->Tq; i += QUERIES) {
        block at = block_at(c, i, 0);
        const int64_t Tk = keys_before(c, i + at.queries);
        look_ahead(c, &next, b, h, i + QUERIES, false);
        const rows q = factor(c, tile, c->q, offset(c->q_by, b, h) + i * q_row, q_row, at.queries, copy, false);
        pack_queries(tile, &at, packed, q.along_d, q.along_row, along);
        if (!tile->pairs) scale_in_place(packed, packed_count(tile, &at, D), c->scale);
        for (int l = 0; l < QUERIES; l++) {
            r.max[l] = -INFINITY;
            r.sum[l] = 0.0f;
        }
        for (int64_t j = 0; j < Tk; j += KEYS) {
            at = block_at(c, i, j);
            const rows k = rows_from(tile, &of.k, j), v = rows_from(tile, &of.v, j);
            scores(tile, &next, &at, st, k.along_d, k.along_row, packed, along);
            exponentials(&r, &at, st, tile->pairs ? c->scale : 1.0f);
            if (c->drop.least > 0) {
                draw(c, &at, row0 + i, j, mask);
                drop(&at, st, mask, c->drop.scale);
            }
            if (j > 0) fade_rows(out, D, r.fade, at.queries, D);
            if (tile->pairs) round_tile(&p, &at, st, true);
            sum_over_keys(tile, &next, &at, out, D, tile->pairs ? (const float *)p.of_keys : st, v.down, v.down_row, D,
                          j > 0);
        }
        for (int l = 0; l < at.queries; l++) {
            r.fade[l] = 1.0f / r.sum[l];
            if (lse) lse[i + l] = r.max[l] + logf(r.sum[l]);
        }
        fade_rows(out, D, r.fade, at.queries, D);
        put_rows(c, c->out, offset(c->out_by, b, h) + i * c->out_by.token, c->out_by.token, out, at.queries, false);
    }
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
            p[j] = c->scale * dot(q, k + (first + j) * c->k_by.token, D, false);
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

/* One head of queries adds to dk and dv of its head of keys, and writes or adds to dq. */
static void backward_tiles(const ls_attention_call *c, int64_t b, int64_t h, const head *of)
{
    _Alignas(64) float packed_q[MOST_D * QUERIES], packed_do[MOST_D * QUERIES], dq[TILE], q_copy[TILE], do_copy[TILE];
    _Alignas(64) float st[KEYS * QUERIES], dst[KEYS * QUERIES], delta[QUERIES] = { 0 }, lse[QUERIES] = { 0 };
    rounded p, ds;
    uint64_t mask[QUERIES];
    ahead next;
    const ls_gemm_tile *tile = tile_of(c);
    const int64_t D = c->D, along = D / each(tile), row0 = (b * c->Hq + h) * c->Tq;
    const int64_t q_row = c->q_by.token, out_row = c->out_by.token;

    for (int64_t i = 0; i < c->Tq; i += QUERIES) {
        block at = block_at(c, i, 0);
        const int64_t Tk = keys_before(c, i + at.queries);
        const int64_t q_at = offset(c->q_by, b, h) + i * q_row, out_at = offset(c->out_by, b, h) + i * out_row;
        look_ahead(c, &next, b, h, i + QUERIES, true);
        const rows q = factor(c, tile, c->q, q_at, q_row, at.queries, q_copy, of->dk);
        const rows dout = factor(c, tile, c->dout, out_at, out_row, at.queries, do_copy, of->dv);
        pack_queries(tile, &at, packed_q, q.along_d, q.along_row, along);
        if (!tile->pairs) scale_in_place(packed_q, packed_count(tile, &at, D), c->scale);
        pack_queries(tile, &at, packed_do, dout.along_d, dout.along_row, along);
        row_dots(c->dtype, delta, c->dout, c->out, out_at, out_row, at.queries, D);
        memcpy(lse, c->lse + row0 + i, (size_t)at.queries * sizeof *lse);
        for (int64_t j = 0; j < Tk; j += KEYS) {
            at = block_at(c, i, j);
            const rows k = rows_from(tile, &of->k, j), v = rows_from(tile, &of->v, j);
            scores(tile, &next, &at, st, k.along_d, k.along_row, packed_q, along);
            scores(tile, &next, &at, dst, v.along_d, v.along_row, packed_do, along);
            if (c->drop.least > 0) {
                draw(c, &at, row0 + i, j, mask);
                drop(&at, dst, mask, c->drop.scale);
            }
            slopes(&at, st, dst, lse, delta, tile->pairs ? c->scale : 1.0f, c->scale);
            if (c->drop.least > 0) drop(&at, st, mask, c->drop.scale);
            const float *pt = st, *dst_down = dst, *dst_along = dst;
            if (tile->pairs) {
                if (of->dv) round_tile(&p, &at, st, false);
                if (of->dk || c->dq) round_tile(&ds, &at, dst, c->dq);
                pt = (const float *)p.of_queries;
                dst_along = (const float *)ds.of_queries;
                dst_down = (const float *)ds.of_keys;
            }
            if (of->dv) sum_over_queries(tile, &next, &at, of->dv + j * D, D, pt, dout.down, dout.down_row, D);
            if (of->dk) sum_over_queries(tile, &next, &at, of->dk + j * D, D, dst_along, q.down, q.down_row, D);
            if (c->dq) sum_over_keys(tile, &next, &at, dq, D, dst_down, k.down, k.down_row, D, j > 0);
        }
        if (c->dq) put_rows(c, c->dq, q_at, q_row, dq, at.queries, c->add_q);
    }
}

static __attribute__((noinline)) void backward_head(const ls_attention_call *c, int64_t b, int64_t hkv, float *scratch)
{
    const int64_t shared = c->Hq / c->Hkv;
    const head of = gather(c, tile_of(c), b, hkv, scratch, true);
    if (of.dk) memset(of.dk, 0, (size_t)(c->Tk * c->D) * sizeof *of.dk);
    if (of.dv) memset(of.dv, 0, (size_t)(c->Tk * c->D) * sizeof *of.dv);
    for (int64_t h = hkv * shared; h < (hkv + 1) * shared; h++) backward_tiles(c, b, h, &of);
    if (of.dk) put_rows(c, c->dk, offset(c->k_by, b, hkv), c->k_by.token, of.dk, c->Tk, c->add_k);
    if (of.dv) put_rows(c, c->dv, offset(c->v_by, b, hkv), c->v_by.token, of.dv, c->Tk, c->add_v);
}

/* --- all heads ------------------------------------------------------------------------ */

ls_strides ls_strides_dense(int64_t T, int64_t H, int64_t D)
{
    return (ls_strides){ .batch = T * H * D, .token = H * D, .head = D };
}

static bool is_few(const ls_attention_call *c)
{
    return c->Tq <= FEW && !c->lse && c->dtype != LS_BF16 && c->drop.least == 0;
}

/* Copies of k and v, and backward sums for dk and dv. */
static int64_t scratch_of_thread(const ls_attention_call *c, bool backward)
{
    return (backward ? 4 : 2) * copy_count(c);
}

int64_t ls_attention_scratch(const ls_attention_call *c, bool backward)
{
    return ls_thread_count() * scratch_of_thread(c, backward);
}

/* Pieces are independent: threads share them. What backward follows goes by tiles: it makes the same scores again, to
 * the bit, however large they are. */
void ls_attention_forward(const ls_attention_call *c)
{
    const bool few = is_few(c);
    const bool pay = ls_threads_pay((int64_t)(ls_attention_flops(c) / 4.0));
    LS_THREADS_FOR(pay, for (int64_t piece = 0; piece < c->B * c->Hq; piece++) {
        float *scratch = c->scratch ? c->scratch + ls_thread_index() * scratch_of_thread(c, false) : NULL;
        if (few) forward_few(c, piece / c->Hq, piece % c->Hq);
        else forward_tiles(c, piece / c->Hq, piece % c->Hq, scratch);
    });
}

/* The same, a piece being a head of keys with all its heads of queries. */
void ls_attention_backward(const ls_attention_call *c)
{
    const bool pay = ls_threads_pay((int64_t)(2.5 * ls_attention_flops(c) / 4.0));
    LS_THREADS_FOR(pay, for (int64_t piece = 0; piece < c->B * c->Hkv; piece++)
        backward_head(c, piece / c->Hkv, piece % c->Hkv,
                      c->scratch + ls_thread_index() * scratch_of_thread(c, true)););
}

double ls_attention_flops(const ls_attention_call *c)
{
    const double Tq = (double)c->Tq, Tk = (double)c->Tk;
    const double pairs = c->causal ? Tq * (Tk - Tq) + Tq * (Tq + 1.0) / 2.0 : Tq * Tk;
    return 4.0 * (double)c->D * pairs * (double)(c->B * c->Hq);
}
