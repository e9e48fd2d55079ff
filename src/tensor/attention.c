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
 * in ascending order within: the bits do not depend on who does which.
 */
#include "tensor/attention.h"

#include <math.h>
#include <string.h>

#include "base/compiler.h"
#include "tensor/gemm_tile.h"
#include "tensor/vecmath.h"

#define QUERIES 64
#define KEYS 64
#define LANES 16  /* columns of a score tile come in such blocks */
#define LINE 16   /* floats of a cache line */
#define FETCHED 8 /* rows fetched with each product of a tile */
#define FEW 4     /* up to so many queries go one by one: their columns would leave most of a vector empty */
#define MOST_D LS_ATTENTION_MOST_D

_Static_assert(QUERIES % LANES == 0, "whole blocks of columns");

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
    struct { const float *x; int64_t row, rows; } part[8];
    int n; /* parts, the last of them first */
    int64_t D;
} ahead;

static void expect(ahead *a, const float *x, int64_t at, int64_t row, int64_t rows)
{
    if (!x || rows <= 0) return;
    a->part[a->n].x = x + at;
    a->part[a->n].row = row;
    a->part[a->n++].rows = rows;
}

/* As far into the second cache: the first is full of the tiles at hand. */
static LS_ALWAYS_INLINE void fetch_some(ahead *a)
{
    for (int n = 0; n < FETCHED && a->n > 0; n++) {
        const int p = a->n - 1;
        for (int64_t d = 0; d < a->D; d += LINE) __builtin_prefetch(a->part[p].x + d, 0, 2);
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
    a->D = c->D;
    if (b >= c->B) return;
    const int64_t hkv = h / (c->Hq / c->Hkv), queries = c->Tq - i < QUERIES ? c->Tq - i : QUERIES;
    const int64_t j = i == 0 ? 0 : keys_before(c, i), keys = keys_before(c, i + queries) - j;
    const int64_t q_row = c->q_by.token, k_row = c->k_by.token, v_row = c->v_by.token, out_row = c->out_by.token;
    const int64_t q_at = offset(c->q_by, b, h) + i * q_row, out_at = offset(c->out_by, b, h) + i * out_row;
    const int64_t k_at = offset(c->k_by, b, hkv) + j * k_row, v_at = offset(c->v_by, b, hkv) + j * v_row;
    if (backward) { /* what is needed last comes first */
        expect(a, c->dk, k_at, k_row, keys);
        expect(a, c->dv, v_at, v_row, keys);
        expect(a, c->dq, q_at, q_row, queries);
    }
    expect(a, c->out, out_at, out_row, queries);
    expect(a, c->v, v_at, v_row, keys);
    expect(a, c->k, k_at, k_row, keys);
    if (backward) expect(a, c->dout, out_at, out_row, queries);
    expect(a, c->q, q_at, q_row, queries);
}

static void forward_tiles(const ls_attention_call *c, int64_t b, int64_t h)
{
    _Alignas(64) float packed[MOST_D * QUERIES], st[KEYS * QUERIES];
    running r;
    ahead next;
    const ls_gemm_tile *tile = tile_of(c);
    const int64_t hkv = h / (c->Hq / c->Hkv);
    const int64_t q_row = c->q_by.token, k_row = c->k_by.token, v_row = c->v_by.token, out_row = c->out_by.token;
    const float *q = c->q + offset(c->q_by, b, h), *k = c->k + offset(c->k_by, b, hkv),
                *v = c->v + offset(c->v_by, b, hkv);
    float *lse = c->lse ? c->lse + (b * c->Hq + h) * c->Tq : NULL;

    for (int64_t i = 0; i < c->Tq; i += QUERIES) {
        block at = block_at(c, i, 0);
        float *out = c->out + offset(c->out_by, b, h) + i * out_row;
        const int64_t Tk = keys_before(c, i + at.queries);
        look_ahead(c, &next, b, h, i + QUERIES, false);
        pack_queries(tile, &at, packed, q + i * q_row, q_row, c->D);
        scale_in_place(packed, packed_count(tile, &at, c->D), c->scale);
        for (int l = 0; l < QUERIES; l++) {
            r.max[l] = -INFINITY;
            r.sum[l] = 0.0f;
        }
        for (int64_t j = 0; j < Tk; j += KEYS) {
            at = block_at(c, i, j);
            scores(tile, &next, &at, st, k + j * k_row, k_row, packed, c->D);
            exponentials(&r, &at, st);
            if (j > 0) fade_rows(out, out_row, r.fade, at.queries, c->D);
            sum_over_keys(tile, &next, &at, out, out_row, st, v + j * v_row, v_row, c->D, j > 0);
        }
        for (int l = 0; l < at.queries; l++) {
            r.fade[l] = 1.0f / r.sum[l];
            if (lse) lse[i + l] = r.max[l] + logf(r.sum[l]);
        }
        fade_rows(out, out_row, r.fade, at.queries, c->D);
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
    const float *q = c->q + offset(c->q_by, b, h), *k = c->k + offset(c->k_by, b, hkv),
                *v = c->v + offset(c->v_by, b, hkv);
    float *out = c->out + offset(c->out_by, b, h);
    for (int64_t i = 0; i < c->Tq; i++)
        forward_one(c, q + i * c->q_by.token, k, v, keys_before(c, i + 1), out + i * c->out_by.token);
}

/* Rows [first, end) of x become 0. */
static void clear_rows(float *x, int64_t row, int64_t first, int64_t end, int64_t D)
{
    for (int64_t t = first; t < end; t++) memset(x + t * row, 0, (size_t)D * sizeof *x);
}

/* One head of queries adds to dk and dv of its head of keys, or, the first, writes them, and writes or adds to dq. */
static void backward_tiles(const ls_attention_call *c, int64_t b, int64_t h)
{
    _Alignas(64) float packed_q[MOST_D * QUERIES], packed_do[MOST_D * QUERIES];
    _Alignas(64) float st[KEYS * QUERIES], dst[KEYS * QUERIES], delta[QUERIES] = { 0 }, lse[QUERIES] = { 0 };
    ahead next;
    const ls_gemm_tile *tile = tile_of(c);
    const int64_t hkv = h / (c->Hq / c->Hkv), D = c->D;
    const int64_t q_row = c->q_by.token, k_row = c->k_by.token, v_row = c->v_by.token, out_row = c->out_by.token;
    const float *k = c->k + offset(c->k_by, b, hkv), *v = c->v + offset(c->v_by, b, hkv);

    for (int64_t i = 0; i < c->Tq; i += QUERIES) {
        block at = block_at(c, i, 0);
        const int64_t Tk = keys_before(c, i + at.queries);
        const int64_t q_at = offset(c->q_by, b, h) + i * q_row, out_at = offset(c->out_by, b, h) + i * out_row;
        const float *q = c->q + q_at, *dout = c->dout + out_at;
        look_ahead(c, &next, b, h, i + QUERIES, true);
        if (h % (c->Hq / c->Hkv) == 0) { /* the first to add to these keys */
            const int64_t seen = i == 0 ? 0 : keys_before(c, i);
            if (c->dk && !c->add_k) clear_rows(c->dk + offset(c->k_by, b, hkv), k_row, seen, Tk, D);
            if (c->dv && !c->add_v) clear_rows(c->dv + offset(c->v_by, b, hkv), v_row, seen, Tk, D);
        }
        pack_queries(tile, &at, packed_q, q, q_row, D);
        scale_in_place(packed_q, packed_count(tile, &at, D), c->scale);
        pack_queries(tile, &at, packed_do, dout, out_row, D);
        row_dots(delta, dout, c->out + out_at, out_row, at.queries, D);
        memcpy(lse, c->lse + (b * c->Hq + h) * c->Tq + i, (size_t)at.queries * sizeof *lse);
        for (int64_t j = 0; j < Tk; j += KEYS) {
            at = block_at(c, i, j);
            const int64_t k_at = offset(c->k_by, b, hkv) + j * k_row, v_at = offset(c->v_by, b, hkv) + j * v_row;
            scores(tile, &next, &at, st, k + j * k_row, k_row, packed_q, D);
            scores(tile, &next, &at, dst, v + j * v_row, v_row, packed_do, D);
            slopes(&at, st, dst, lse, delta, c->scale);
            if (c->dv) sum_over_queries(tile, &next, &at, c->dv + v_at, v_row, st, dout, out_row, D);
            if (c->dk) sum_over_queries(tile, &next, &at, c->dk + k_at, k_row, dst, q, q_row, D);
            if (c->dq)
                sum_over_keys(tile, &next, &at, c->dq + q_at, q_row, dst, k + j * k_row, k_row, D, j > 0 || c->add_q);
        }
    }
}

/* --- all heads ------------------------------------------------------------------------ */

ls_strides ls_strides_dense(int64_t T, int64_t H, int64_t D)
{
    return (ls_strides){ .batch = T * H * D, .token = H * D, .head = D };
}

/* Pieces are independent: threads may share them as they like. What backward follows goes by tiles: it makes the same
 * scores again, to the bit, however large they are. */
void ls_attention_forward(const ls_attention_call *c)
{
    for (int64_t piece = 0; piece < c->B * c->Hq; piece++) {
        if (c->Tq <= FEW && !c->lse) forward_few(c, piece / c->Hq, piece % c->Hq);
        else forward_tiles(c, piece / c->Hq, piece % c->Hq);
    }
}

/* The same, a piece being a head of keys with all its heads of queries. */
void ls_attention_backward(const ls_attention_call *c)
{
    const int64_t shared = c->Hq / c->Hkv;
    for (int64_t piece = 0; piece < c->B * c->Hkv; piece++) {
        const int64_t b = piece / c->Hkv, hkv = piece % c->Hkv;
        for (int64_t h = hkv * shared; h < (hkv + 1) * shared; h++) backward_tiles(c, b, h);
    }
}

double ls_attention_flops(const ls_attention_call *c)
{
    const double Tq = (double)c->Tq, Tk = (double)c->Tk;
    const double pairs = c->causal ? Tq * (Tk - Tq) + Tq * (Tq + 1.0) / 2.0 : Tq * Tk;
    return 4.0 * (double)c->D * pairs * (double)(c->B * c->Hq);
}
