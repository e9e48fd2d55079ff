/* attention_impl.h -- what the files of attention share; private to attention*.c.
 *
 *   attention.c           all heads: what is called from outside
 *   attention_forward.c   the queries of one head, by tiles and one by one
 *   attention_backward.c  the same, backward
 *   attention_products.c  the products of a tile
 *   attention_rows.c      rows as factors of products: copied, rounded, in pairs; and results as rows
 *   attention_mask.c      probabilities that are hidden or dropped
 *   attention_amx*.c      both directions where the CPU multiplies tiles of bfloat16
 */
#ifndef LS_TENSOR_ATTENTION_IMPL_H
#define LS_TENSOR_ATTENTION_IMPL_H
#include "base/compiler.h"
#include "tensor/attention.h"
#include "tensor/element.h"
#include "tensor/gemm_tile.h"

#define QUERIES 64
#define KEYS 64
#define LANES 16 /* columns of a score tile come in such blocks */
#define MOST_D LS_ATTENTION_MOST_D
#define TILE (MOST_D * 64) /* floats of the rows of a tile */

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

/* Whether each column of the tile belongs to a query that sees each key, as in tiles below the diagonal. */
static LS_ALWAYS_INLINE bool is_whole(const block *at) { return at->queries == QUERIES && at->ahead + 1 >= at->keys; }

/* How many keys of the tile query i sees. */
static LS_ALWAYS_INLINE int keys_seen(const block *at, int i)
{
    return i + at->ahead + 1 < at->keys ? (int)(i + at->ahead + 1) : at->keys;
}

static LS_ALWAYS_INLINE int least(int a, int b) { return a < b ? a : b; }

/* Where a head of a sequence starts. */
static LS_ALWAYS_INLINE int64_t offset(ls_strides by, int64_t b, int64_t h) { return b * by.batch + h * by.head; }

/* The row of scores, of all heads of the layer, that query 0 of head h is: what dropout counts by. */
static LS_ALWAYS_INLINE int64_t drop_row(const ls_attention_call *c, int64_t b, int64_t h)
{
    const int64_t rows = c->drop.T > 0 ? c->drop.T : c->Tq;
    return (b * (c->drop.heads > 0 ? c->drop.heads : c->Hq) + c->drop.first_head + h) * rows + c->drop.first_query;
}

/* Keys that some query of [0, end) sees. */
static LS_ALWAYS_INLINE int64_t keys_before(const ls_attention_call *c, int64_t end)
{
    return c->causal ? c->Tk - c->Tq + end : c->Tk;
}

/* The block from there on. */
static inline block block_of(const ls_attention_call *c, int64_t query, int64_t key, int most_queries, int most_keys)
{
    const int64_t queries = c->Tq - query < most_queries ? c->Tq - query : most_queries;
    const int64_t keys = keys_before(c, query + queries) - key;
    return (block){
        .queries = (int)queries,
        .keys = (int)(keys < most_keys ? keys : most_keys),
        .width = (int)((queries + LANES - 1) / LANES * LANES),
        .ahead = c->causal ? query + c->Tk - c->Tq - key : most_keys,
    };
}

static inline block block_at(const ls_attention_call *c, int64_t query, int64_t key)
{
    return block_of(c, query, key, QUERIES, KEYS);
}

/* --- memory that is needed soon ------------------------------------------------------- */

/* Heads of a token lie side by side, so the rows of one head are far apart, and no hardware guesses them. They are
 * fetched a few at a time between the products, which leave the way to memory free. */
typedef struct ahead {
    struct { const char *x; int64_t row, rows; } part[8]; /* row: in bytes */
    int n; /* parts, the last of them first */
    int64_t width; /* bytes of a row that are read */
    bool bf16;
} ahead;

/* What the queries from i on of head h, and after the last query the next head, need for the first time. */
void ls_attention_look_ahead(const ls_attention_call *c, ahead *a, int64_t b, int64_t h, int64_t i, bool backward);

/* --- products: of pairs D and rows are counted in them (attention_products.c) ---------------- */

/* Elements of a sum that one element of a tile stands for. */
static LS_ALWAYS_INLINE int each(const ls_gemm_tile *tile) { return tile->pairs ? 2 : 1; }

/* out[j, i] = sum over d of a[j, d] b[i, d] where query i sees key j, with b packed. */
void ls_attention_scores(const ls_gemm_tile *tile, ahead *next, const block *at, float *out, const float *a,
                         int64_t a_row, const float *packed, int64_t D);
/* out[i, d] (+)= sum over the keys j that query i sees of st[j, i] b[j, d]. Hidden keys that share a pair are 0. */
void ls_attention_sum_over_keys(const ls_gemm_tile *tile, ahead *next, const block *at, float *out, int64_t out_row,
                                const float *st, const float *b, int64_t b_row, int64_t D, bool add);
/* out[j, d] += sum over the queries i that see key j of st[j, i] b[i, d]. */
void ls_attention_sum_over_queries(const ls_gemm_tile *tile, ahead *next, const block *at, float *out, int64_t out_row,
                                   const float *st, const float *b, int64_t b_row, int64_t D);
/* Rows of b [queries, D] as columns, in panels of the tile's width: what `scores` reads, times `scale`. Columns up to
 * at->width that stand for no query are 0. */
void ls_attention_pack_queries(const ls_gemm_tile *tile, const block *at, float *packed, const float *b, int64_t b_row,
                               int64_t D, float scale);

/* --- rows (attention_rows.c) ------------------------------------------------------------------ */

/* A tile of scores as a factor of products of pairs. */
typedef struct rounded {
    _Alignas(64) uint16_t of_queries[KEYS * QUERIES];  /* [keys, queries]: pairs of queries */
    _Alignas(64) uint32_t of_keys[KEYS / 2 * QUERIES]; /* [keys / 2, queries]: pairs of keys */
} rounded;

/* Queries beyond the last one are 0 where they share its pair. */
void ls_attention_round_tile(rounded *to, const block *at, const float *st, bool of_keys);

/* Rows of D elements as a factor of products: `along_d` in sums over d, `down` in sums over rows. Both are the same but
 * of pairs, which D is counted in along d, and rows are downwards. Borrowed, or copies. */
typedef struct row_view {
    const float *along_d, *down;
    int64_t along_row, down_row; /* from row to row */
} row_view;

/* n rows of x from element `at` on, of which what is not read as it lies in memory is copied; pairs of rows only if
 * `down`. */
row_view ls_attention_factor(const ls_attention_call *c, const ls_gemm_tile *tile, const void *x, int64_t at,
                             int64_t row, int64_t n, float *copy, bool down);

/* Keys and values of a head, side by side. In a batch the rows of a head are as far apart as tokens are: of long
 * sequences each lies in a page of its own, and all of them in a few sets of the first cache. So they are copied once,
 * for all queries, and dk and dv are added up in such a copy, too. */
typedef struct head {
    row_view k, v;
    float *dk, *dv; /* [Tk, D]; backward only */
} head;

int64_t ls_attention_copy_count(const ls_attention_call *c); /* floats of one such copy */
head ls_attention_gather(const ls_attention_call *c, const ls_gemm_tile *tile, int64_t b, int64_t hkv, float *scratch,
                         bool backward);

/* From key j on, the first of a tile. */
static LS_ALWAYS_INLINE row_view rows_from(const ls_gemm_tile *tile, const row_view *all, int64_t j)
{
    return (row_view){
        .along_d = all->along_d + j * all->along_row, .along_row = all->along_row,
        .down = all->down + j / each(tile) * all->down_row, .down_row = all->down_row,
    };
}

/* Rows of float sums to where they belong. */
void ls_attention_put_rows(const ls_attention_call *c, void *to, int64_t at, int64_t row, const float *from, int64_t n,
                           bool add);

/* --- probabilities that do not count (attention_mask.c) ----------------------------------------- */

/* Hidden ones are 0. */
void ls_attention_hide(const block *at, float *st);
/* Bit j of mask[i]: the probability of query i and key j is kept. Columns without a query keep nothing. */
void ls_attention_draw(const ls_attention_call *c, const block *at, int64_t row, int64_t key, uint64_t mask[QUERIES]);
/* Those that are kept times `scale`, the others 0. */
void ls_attention_apply_drop(const block *at, float *st, const uint64_t *mask, float scale);

/* --- a head --------------------------------------------------------------------------------------- */

/* The inner kernel of a call. */
const ls_gemm_tile *ls_attention_tile(const ls_attention_call *c);
/* One head of queries. */
void ls_attention_forward_tiles(const ls_attention_call *c, int64_t b, int64_t h, float *scratch);
/* The same of float queries without lse, which read keys and values as they lie. */
void ls_attention_forward_few(const ls_attention_call *c, int64_t b, int64_t h);
/* One head of keys, with all its heads of queries. */
void ls_attention_backward_head(const ls_attention_call *c, int64_t b, int64_t hkv, float *scratch);
/* Both by tiles of bfloat16 (attention_amx.h). They need 1 and 3.5 times Tk D floats of scratch, both rounded up to
 * 32. */
void ls_attention_amx_forward(const ls_attention_call *c, int64_t b, int64_t h, float *scratch);
void ls_attention_amx_backward(const ls_attention_call *c, int64_t b, int64_t hkv, float *scratch);
/* delta[i] = a[i] . b[i], rows from element `at` on */
void ls_attention_row_dots(ls_dtype dtype, float *delta, const void *a, const void *b, int64_t at, int64_t row,
                           int queries, int64_t D);

#endif
