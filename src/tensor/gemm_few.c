/* gemm_few.c -- walks weights for a few tokens.
 *
 *     y  = x w^T     for each group of outputs, whose weights (rows of w) lie one after another:
 *                        for each block of tokens: a tile for every LS_FEW_ROWS outputs
 *     dx = dy w      for each FEW_DEEP rows of w, for each group of columns: the same, added to sums
 *     dw = dy^T x    for each FEW_DEEP tokens, for each few rows of dw: a tile for every nr columns
 *
 * Threads share groups (of y, also blocks of tokens), or rows of dw. Tokens are brought into panels first (gemm_tile's
 * pack): element q of nr tokens, then element q + 1; of dw, token q of nr columns, then token q + 1.
 */
#include "tensor/gemm_few.h"

#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "tensor/threads.h"

#define GROUP       96  /* outputs: a whole number of LS_FEW_ROWS, and of cache lines */
#define FEW_DEEP    128 /* terms of a sum before it is stored: panels of a block stay in the first-level cache */
#define LINE        16  /* floats */
#define MOST_BLOCK  64  /* ls_few_kernel.block */
#define MOST_NR     32
#define MOST_ROWS   12
#define MOST_TOKENS 256 /* in panels at a time */
#define AHEAD       1   /* tiles of dw: while one is computed, memory brings the next */
#define LEAST_N     (4 * GROUP) /* outputs: fewer are too few parts for threads */
#define PACK_DEEP   512 /* elements of a token that a thread brings into a panel at a time */

struct ls_gemm_few {
    const ls_few_kernel *by; /* borrowed; NULL: the CPU has none */
    float *panel, *sum;      /* owned */
    size_t panel_count, sum_count;
};

/* A product that is being run. */
typedef struct walk {
    const ls_gemm_call *c;
    const ls_few_kernel *by;
    float *panel, *sum;
    int64_t first, tokens; /* of the panels; of dw, the terms that are added now */
    int64_t units, pieces; /* groups or rows of dw that threads share, and into how many parts */
} walk;

static int64_t less(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t parts_of(int64_t n, int64_t each) { return (n + each - 1) / each; }

static const ls_few_kernel *best(void)
{
    int i = 0;
    while (ls_few_kernels[i] && !ls_few_kernels[i]->tile->supported()) i++;
    return ls_few_kernels[i];
}

ls_status ls_gemm_few_create(ls_gemm_few **out)
{
    *out = calloc(1, sizeof **out);
    if (!*out) return ls_fail(LS_NO_MEMORY, "workspace of products of few tokens");
    (*out)->by = best();
    return LS_OK;
}

void ls_gemm_few_destroy(ls_gemm_few *f)
{
    if (!f) return;
    free(f->panel);
    free(f->sum);
    free(f);
}

void ls_gemm_few_use(ls_gemm_few *f, const ls_few_kernel *kernel) { f->by = kernel; }

/* Lanes without a token are computed, too, and not stored: zeros to begin with. */
static LS_COLD ls_status grow(float **at, size_t *have, size_t count)
{
    const size_t bytes = (count * sizeof **at + 63) / 64 * 64;
    free(*at);
    *have = 0;
    *at = aligned_alloc(64, bytes);
    if (!*at) return ls_fail(LS_NO_MEMORY, "workspace of products of few tokens: %zu bytes", bytes);
    memset(*at, 0, bytes);
    *have = count;
    return LS_OK;
}

static ls_status make_room(ls_gemm_few *f, int64_t panel, int64_t sum)
{
    if (f->panel_count < (size_t)panel) LS_TRY(grow(&f->panel, &f->panel_count, (size_t)panel));
    if (f->sum_count < (size_t)sum) LS_TRY(grow(&f->sum, &f->sum_count, (size_t)sum));
    return LS_OK;
}

/* `each` parts of the units for each thread. Several: one that is kept from its core delays little. */
static void share(walk *w, int64_t units, int each, ls_team_fn part)
{
    w->units = units;
    w->pieces = ls_team_size() == 1 ? 1 : less(units, each * (int64_t)ls_team_size());
    ls_team_run(part, w, w->pieces);
}

/* --- tokens along vectors: y and dx ------------------------------------------------------------------------------ */

static int64_t panels_of(const walk *w) { return parts_of(w->tokens, w->by->tile->nr); }

/* PACK_DEEP elements of nr tokens. */
static void pack_tokens(void *arg, int64_t i)
{
    const walk *w = arg;
    const int64_t k = w->c->k, nr = w->by->tile->nr, p = i % panels_of(w), q = i / panels_of(w) * PACK_DEEP;
    const float *from = (const float *)w->c->a + (w->first + p * nr) * k + q;
    const int columns = (int)less(nr, w->tokens - p * nr);
    w->by->tile->pack(w->panel + p * nr * k + q * nr, from, k, columns, less(PACK_DEEP, k - q));
}

/* Sums of outputs j .. j + n of a block of tokens, to C. */
static void store(const walk *w, int64_t block, int64_t j, int64_t n, const float *sum)
{
    const ls_gemm_call *c = w->c;
    const int64_t first = block * w->by->block, tokens = less(w->by->block, w->tokens - first);
    const int64_t nr = w->by->tile->nr;
    float turned[MOST_BLOCK * MOST_NR];
    for (int64_t o = 0; o < n; o += nr) {
        const int64_t columns = less(nr, n - o);
        w->by->tile->pack(turned, sum + o * w->by->block, w->by->block, (int)columns, tokens);
        for (int64_t t = 0; t < tokens; t++) {
            float *to = (float *)c->c + (w->first + first + t) * c->n + j + o;
            float *from = turned + t * nr;
            for (int64_t i = 0; c->bias && i < columns; i++) from[i] += c->bias[j + o + i];
            for (int64_t i = 0; c->add && i < columns; i++) from[i] += to[i];
            memcpy(to, from, (size_t)columns * sizeof *to);
        }
    }
}

/* Weights that come next: tile i asks for those from at + i * step on, the first `tiles` of them. */
typedef struct next {
    const float *at;
    int64_t step, tiles;
} next;

/* The tiles of a group for a block of tokens. `common` has what they share; the first block asks for what is next. */
static void run_tiles(const walk *w, const ls_few_tile *common, int64_t block, int64_t n, const next *ahead)
{
    const int nr = w->by->tile->nr, panels = w->by->block / nr;
    ls_few_tile t = *common;
    t.vectors = (int)parts_of(less(w->by->block, w->tokens - block * w->by->block), w->by->lanes);
    t.panel = nr * w->c->k;
    t.tokens += block * panels * t.panel;
    for (int64_t i = 0; i < n; i += t.rows) {
        t.rows = LS_FEW_ROWS;
        while (t.rows > n - i) t.rows = t.rows == LS_FEW_ROWS ? 4 : t.rows / 2;
        t.ahead = block == 0 && i / LS_FEW_ROWS < ahead->tiles ? ahead->at + i / LS_FEW_ROWS * ahead->step : NULL;
        w->by->run(&t);
        t.w += t.across ? t.rows : t.rows * t.stride;
        t.sum += t.rows * w->by->block;
    }
}

/* y: a unit is a group and a block of tokens. The rows of the tile that comes next are asked for. */
static void outputs(void *arg, int64_t i)
{
    const walk *w = arg;
    const ls_gemm_call *c = w->c;
    const int64_t end = ls_part_begin(w->units, w->pieces, i + 1), blocks = parts_of(w->tokens, w->by->block);
    _Alignas(64) float sum[GROUP * MOST_BLOCK];
    for (int64_t u = ls_part_begin(w->units, w->pieces, i); u < end; u++) {
        const int64_t b = u % blocks, j = u / blocks * GROUP, n = less(GROUP, c->n - j);
        const float *first = (const float *)c->b + j * c->k;
        const ls_few_tile t = {
            .w = first, .stride = c->k, .k = c->k, .tokens = w->panel, .sum = sum,
            .ahead_row = c->k, .ahead_step = LINE,
        };
        const next ahead = { first + less(LS_FEW_ROWS, n) * c->k, LS_FEW_ROWS * c->k, (c->n - j) / LS_FEW_ROWS - 1 };
        run_tiles(w, &t, b, n, &ahead);
        store(w, b, j, n, sum);
    }
}

/* dx, of a range of groups of columns. Of the weights that come next, those of the next group, each tile asks for as
 * many rows as there are tiles. */
static void inputs(void *arg, int64_t i)
{
    const walk *w = arg;
    const ls_gemm_call *c = w->c;
    const int64_t begin = ls_part_begin(w->units, w->pieces, i), end = ls_part_begin(w->units, w->pieces, i + 1);
    const int64_t blocks = parts_of(w->tokens, w->by->block);
    for (int64_t q = 0; q < c->k; q += FEW_DEEP)
        for (int64_t g = begin; g < end; g++) {
            const int64_t j = g * GROUP, n = less(GROUP, c->n - j), deep = less(FEW_DEEP, c->k - q);
            const float *rows = (const float *)c->b + q * c->n;
            const bool turn = g + 1 == end; /* to the first group of the next rows */
            const int64_t steps = parts_of(deep, LINE), left = turn ? less(FEW_DEEP, c->k - q - deep) : deep;
            const next ahead = { turn ? rows + deep * c->n + begin * GROUP : rows + j + n, steps * c->n, left / steps };
            ls_few_tile t = {
                .across = true, .add = q > 0, .w = rows + j, .stride = c->n, .k = deep,
                .tokens = w->panel + q * w->by->tile->nr, .ahead_row = LINE, .ahead_step = c->n,
            };
            for (int64_t b = 0; b < blocks; b++) {
                t.sum = w->sum + (b * c->n + j) * w->by->block;
                run_tiles(w, &t, b, n, &ahead);
            }
        }
    for (int64_t g = begin; g < end; g++)
        for (int64_t b = 0; b < blocks; b++)
            store(w, b, g * GROUP, less(GROUP, c->n - g * GROUP), w->sum + (b * c->n + g * GROUP) * w->by->block);
}

/* Tokens whose panels stay in the second-level cache, as many as that are. */
static int64_t tokens_at_a_time(const walk *w)
{
    const int64_t block = w->by->block, blocks = less(w->by->panels / (w->c->k * block), MOST_TOKENS / block);
    return blocks < 1 ? block : blocks * block;
}

static ls_status along(ls_gemm_few *f, walk *w)
{
    const ls_gemm_call *c = w->c;
    const int64_t most = less(tokens_at_a_time(w), parts_of(c->m, w->by->block) * w->by->block);
    LS_TRY(make_room(f, most * c->k, c->trans_b ? 0 : most * c->n));
    w->panel = f->panel;
    w->sum = f->sum;
    for (w->first = 0; w->first < c->m; w->first += most) {
        w->tokens = less(most, c->m - w->first);
        ls_threads_for(ls_threads_pay(2 * w->tokens * c->k * (int64_t)sizeof(float)),
                       panels_of(w) * parts_of(c->k, PACK_DEEP), pack_tokens, w);
        if (c->trans_b) share(w, parts_of(c->n, GROUP) * parts_of(w->tokens, w->by->block), 4, outputs);
        else share(w, parts_of(c->n, GROUP), 1, inputs); /* long rows are read faster than short ones */
    }
    return LS_OK;
}

/* --- tokens as terms: dw ----------------------------------------------------------------------------------------- */

/* `width` floats of each of n rows, close together: a width that is constant needs no call per row. */
static LS_ALWAYS_INLINE void copy_width(float *restrict to, int64_t to_row, const float *restrict from,
                                        int64_t from_row, int64_t n, const size_t width)
{
    for (int64_t q = 0; q < n; q++) memcpy(to + q * to_row, from + q * from_row, width * sizeof *to);
}

LS_KERNEL static void copy_strip(float *to, int64_t to_row, const float *from, int64_t from_row, int64_t n,
                                 size_t width)
{
    switch (width) {
    case 32: copy_width(to, to_row, from, from_row, n, 32); break; /* a panel's */
    case 16: copy_width(to, to_row, from, from_row, n, 16); break;
    case 12: copy_width(to, to_row, from, from_row, n, 12); break; /* rows of dw */
    case 6: copy_width(to, to_row, from, from_row, n, 6); break;
    default: copy_width(to, to_row, from, from_row, n, width); break;
    }
}

/* nr columns of B: a panel. */
static void pack_columns(void *arg, int64_t i)
{
    const walk *w = arg;
    const int64_t nr = w->by->tile->nr, n = w->c->n, columns = less(nr, n - i * nr);
    const float *from = (const float *)w->c->b + w->first * n + i * nr;
    copy_strip(w->panel + i * nr * w->tokens, nr, from, n, w->tokens, (size_t)columns);
}

/* Columns that are no whole panel. */
static void last_columns(const walk *w, const ls_few_sum *s, int64_t columns)
{
    const int mr = w->by->tile->mr;
    for (int i = 0; i < s->rows; i += mr)
        w->by->tile->run(&(ls_gemm_tile_args){
            .mr = (int)less(mr, s->rows - i), .nr = (int)columns, .k = s->k,
            .a = s->a + i, .a_row = 1, .a_col = s->rows,
            .b = s->b, .ldb = w->by->tile->nr, .c = s->c + i * s->ldc, .ldc = s->ldc, .add = s->add,
        });
}

static void sum_rows(const walk *w, int64_t row, int rows)
{
    const ls_gemm_call *c = w->c;
    const int64_t nr = w->by->tile->nr;
    float a[MOST_ROWS * FEW_DEEP];
    copy_strip(a, rows, (const float *)c->a + w->first * c->m + row, c->m, w->tokens, (size_t)rows);
    ls_few_sum s = { .rows = rows, .add = c->add || w->first > 0, .k = w->tokens, .a = a, .ldc = c->n };
    float *begin = (float *)c->c + row * c->n, *then = row + 2 * rows <= c->m ? begin + rows * c->n : begin;
    const int64_t soon = AHEAD * nr, turn = parts_of(c->n, nr) * nr - soon; /* from here on, those of the next rows */
    for (int64_t j = 0; j < c->n; j += nr) {
        s.b = w->panel + j * w->tokens;
        s.c = begin + j;
        s.ahead = j < turn ? s.c + soon : j - turn + nr <= c->n ? then + (j - turn) : then;
        if (j + nr <= c->n) w->by->add(&s);
        else last_columns(w, &s, c->n - j);
    }
}

/* Units: most_rows rows. */
static void sums(void *arg, int64_t i)
{
    const walk *w = arg;
    const int64_t most = w->by->most_rows, end = less(ls_part_begin(w->units, w->pieces, i + 1) * most, w->c->m);
    for (int64_t row = ls_part_begin(w->units, w->pieces, i) * most; row < end;) {
        int rows = (int)most;
        while (rows > end - row) rows = rows == most ? (int)most * 2 / 3 : rows / 2; /* 12: 8, 4 ..; 6: 4, 2 .. */
        sum_rows(w, row, rows);
        row += rows;
    }
}

static ls_status terms(ls_gemm_few *f, walk *w)
{
    const ls_gemm_call *c = w->c;
    const int64_t nr = w->by->tile->nr, panels = parts_of(c->n, nr), blocks = parts_of(c->k, FEW_DEEP);
    LS_TRY(make_room(f, panels * nr * less(c->k, FEW_DEEP), 0));
    w->panel = f->panel;
    for (int64_t b = 0; b < blocks; b++) {
        w->first = ls_part_begin(c->k, blocks, b);
        w->tokens = ls_part_begin(c->k, blocks, b + 1) - w->first;
        ls_threads_for(ls_threads_pay(2 * w->tokens * c->n * (int64_t)sizeof(float)), panels, pack_columns, w);
        share(w, parts_of(c->m, w->by->most_rows), 4, sums);
    }
    return LS_OK;
}

/* --- which -------------------------------------------------------------------------------------------------------- */

bool ls_gemm_few_can(const ls_gemm_call *c)
{
    const bool dw = c->trans_a && !c->trans_b && !c->bias;
    if ((c->in && c->in != LS_F32) || (c->out && c->out != LS_F32) || !(dw || !c->trans_a)) return false;
    return c->m > 0 && c->n > 0 && c->k > 0 && best();
}

/* Measured by bench_gemm few (oneDNN 2.6.3, a Xeon with AVX-512, and the same one with AVX2 alone). */
bool ls_gemm_few_takes(const ls_gemm_call *c)
{
    if (!ls_gemm_few_can(c)) return false;
    const ls_few_kernel *by = best();
    if (c->trans_a) return c->k <= by->most_dw;
    return c->m > 16 && c->m <= (c->trans_b ? by->most_y : by->most_dx) && c->n >= LEAST_N;
}

ls_status ls_gemm_few_run(ls_gemm_few *f, const ls_gemm_call *call)
{
    walk w = { .c = call, .by = f->by };
    return call->trans_a ? terms(f, &w) : along(f, &w);
}
