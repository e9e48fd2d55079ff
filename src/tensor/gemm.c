/* gemm.c -- chooses who multiplies, and walks small products tile by tile. */
#include "tensor/gemm.h"

#include <stdlib.h>

#include "base/compiler.h"
#include "tensor/element.h"
#include "tensor/gemm_few.h"
#include "tensor/gemm_tile.h"
#include "tensor/threads.h"

#define ROW_ELEMENTS (1 << 18) /* of B: from 1 MiB on it comes from memory, and packing it costs as much as reading it */

/* Up to here copies in float take no more time than a call of the library (bench_gemm). */
#define BF16_FLOPS (1 << 18)

struct ls_gemm {
    const ls_gemm_tile *tile; /* borrowed */
    float *panel;             /* owned; [panel_k, tile->nr]: columns of a transposed B */
    int64_t panel_k;
    float *wide;              /* owned; float copies of parts of bfloat16 matrices */
    int64_t wide_count;
    ls_gemm_few *few;         /* owned; NULL before the first product of few tokens */
    ls_gemm_library *library; /* owned; NULL before the first large product */
};

ls_status ls_gemm_create(ls_gemm **out)
{
    *out = calloc(1, sizeof **out);
    if (!*out) return ls_fail(LS_NO_MEMORY, "matrix product workspace");
    (*out)->tile = ls_gemm_tile_best();
    return LS_OK;
}

void ls_gemm_destroy(ls_gemm *g)
{
    if (!g) return;
    ls_gemm_library_close(g->library);
    ls_gemm_few_destroy(g->few);
    free(g->panel);
    free(g->wide);
    free(g);
}

void ls_gemm_use_tile(ls_gemm *g, const ls_gemm_tile *tile)
{
    free(g->panel);
    g->panel = NULL;
    g->panel_k = 0;
    g->tile = tile;
}

static LS_COLD ls_status grow_panel(ls_gemm *g, int64_t k)
{
    free(g->panel);
    g->panel_k = 0;
    g->panel = aligned_alloc(64, ((size_t)k * (size_t)g->tile->nr * sizeof *g->panel + 63) / 64 * 64);
    if (!g->panel)
        return ls_fail(LS_NO_MEMORY, "matrix product workspace for an inner dimension of %lld", (long long)k);
    g->panel_k = k;
    return LS_OK;
}

#define LINE 16 /* floats */

/* Asks for part i of n of the next strip of B, beginning with column j: weights and gradients of a model do not fit the
 * second-level cache together, and the hardware does not follow rows of a few lines each. */
static LS_ALWAYS_INLINE void fetch_strip(const ls_gemm_call *p, int nr, int64_t j, int64_t i, int64_t n)
{
    const int64_t columns = p->n - j < nr ? p->n - j : nr, step = p->trans_b ? p->k : p->n;
    const int64_t rows = p->trans_b ? columns : p->k, row = p->trans_b ? p->k : columns;
    const float *b = (const float *)p->b + (p->trans_b ? j * p->k : j);
    for (int64_t r = i * rows / n; r < (i + 1) * rows / n; r++)
        for (int64_t c = 0; c < row; c += LINE) __builtin_prefetch(b + r * step + c, 0, 2);
}

/* The lines that a tile of C will be stored to. */
static LS_ALWAYS_INLINE void fetch_tile(const ls_gemm_tile_args *t)
{
    for (int r = 0; r < t->mr; r++)
        for (int c = 0; c < t->nr; c += LINE) __builtin_prefetch(t->c + r * t->ldc + c, 1, 3);
}

/* Columns of C in strips of nr, each strip in blocks of about equally many rows. */
ls_status ls_gemm_run_tiles(ls_gemm *g, const ls_gemm_call *p)
{
    const ls_gemm_tile *tile = g->tile;
    if (p->trans_b && g->panel_k < p->k) LS_TRY(grow_panel(g, p->k));
    const int64_t blocks = (p->m + tile->mr - 1) / tile->mr;
    const float *a = p->a, *b = p->b;
    float *c = p->c;
    ls_gemm_tile_args t = {
        .k = p->k, .a_row = p->trans_a ? 1 : p->k, .a_col = p->trans_a ? p->m : 1, .ldc = p->n, .add = p->add,
    };
    for (int64_t j = 0; j < p->n; j += tile->nr) {
        t.nr = (int)(p->n - j < tile->nr ? p->n - j : tile->nr);
        t.b = p->trans_b ? g->panel : b + j;
        t.ldb = p->trans_b ? tile->nr : p->n;
        t.bias = p->bias ? p->bias + j : NULL;
        if (p->trans_b) tile->pack(g->panel, b + j * p->k, p->k, t.nr, p->k);
        int64_t first = 0;
        for (int64_t i = 1; i <= blocks; i++) {
            const int64_t end = i * p->m / blocks;
            t.mr = (int)(end - first);
            t.a = a + first * t.a_row;
            t.c = c + first * p->n + j;
            fetch_tile(&t);
            if (j + tile->nr < p->n) fetch_strip(p, tile->nr, j + tile->nr, i - 1, blocks);
            tile->run(&t);
            first = end;
        }
    }
    return LS_OK;
}

/* ThreadSanitizer sees nothing of what a library does inside and reports its locks as races. */
#if defined(__SANITIZE_THREAD__)
#define ALWAYS_TILES 1
#else
#define ALWAYS_TILES 0
#endif

static bool is_small(const ls_gemm_call *c, const ls_gemm_tile *by) { return 2 * c->m * c->n * c->k <= by->most_flops; }

static ls_status run_float(ls_gemm *g, const ls_gemm_call *call)
{
    if (is_small(call, g->tile)) return ls_gemm_run_tiles(g, call);
    if (ls_gemm_few_takes(call)) {
        if (!g->few) LS_TRY(ls_gemm_few_create(&g->few));
        return ls_gemm_few_run(g->few, call);
    }
    if (ALWAYS_TILES) return ls_gemm_run_tiles(g, call);
    if (!g->library) LS_TRY(ls_gemm_library_open(&g->library));
    return ls_gemm_library_run(g->library, call);
}

/* --- bfloat16 by way of float: parts of A and B are copied, and their products are those of floats ----- */

#define WIDE_M 256
#define WIDE_N 512
#define WIDE_K 2048

static int64_t less(int64_t a, int64_t b) { return a < b ? a : b; }

LS_KERNEL static void widen_row(float *restrict to, const uint16_t *restrict from, int64_t n)
{
    for (int64_t i = 0; i < n; i++) to[i] = ls_from_bf16(from[i]);
}

static void widen(float *to, const uint16_t *from, int64_t rows, int64_t columns, int64_t row)
{
    for (int64_t i = 0; i < rows; i++) widen_row(to + i * columns, from + i * row, columns);
}

static LS_ALWAYS_INLINE void store_loop(void *c, const float *restrict sum, const float *restrict bias, int64_t n,
                                        bool add, bool bf16)
{
    for (int64_t j = 0; j < n; j++) {
        const float s = bias ? sum[j] + bias[j] : sum[j];
        ls_put(c, j, add ? ls_get(c, j, bf16) + s : s, bf16);
    }
}

LS_KERNEL static void store_row(ls_dtype out, void *c, const float *sum, const float *bias, int64_t n, bool add)
{
    LS_BY_DTYPE(out, store_loop, c, sum, bias, n, add);
}

static LS_COLD ls_status grow_wide(ls_gemm *g, int64_t count)
{
    free(g->wide);
    g->wide_count = 0;
    g->wide = aligned_alloc(64, (size_t)(count + 15) / 16 * 64);
    if (!g->wide) return ls_fail(LS_NO_MEMORY, "matrix product workspace of %lld floats", (long long)count);
    g->wide_count = count;
    return LS_OK;
}

ls_status ls_gemm_run_widened(ls_gemm *g, const ls_gemm_call *p)
{
    const int64_t most_m = less(p->m, WIDE_M), most_n = less(p->n, WIDE_N), most_k = less(p->k, WIDE_K);
    const int64_t count_a = (most_m * most_k + 15) / 16 * 16, count_b = (most_n * most_k + 15) / 16 * 16;
    if (g->wide_count < count_a + count_b + most_m * most_n) LS_TRY(grow_wide(g, count_a + count_b + most_m * most_n));
    float *a = g->wide, *b = a + count_a, *c = b + count_b;
    const uint16_t *from_a = p->a, *from_b = p->b;
    for (int64_t i = 0; i < p->m; i += WIDE_M)
        for (int64_t j = 0; j < p->n; j += WIDE_N) {
            ls_gemm_call part = {
                .m = less(p->m - i, WIDE_M), .n = less(p->n - j, WIDE_N), .trans_a = p->trans_a, .trans_b = p->trans_b,
                .a = a, .b = b, .c = c,
            };
            for (int64_t k = 0; k == 0 || k < p->k; k += WIDE_K) {
                part.k = less(p->k - k, WIDE_K);
                part.add = k > 0;
                if (p->trans_a) widen(a, from_a + k * p->m + i, part.k, part.m, p->m);
                else widen(a, from_a + i * p->k + k, part.m, part.k, p->k);
                if (p->trans_b) widen(b, from_b + j * p->k + k, part.n, part.k, p->k);
                else widen(b, from_b + k * p->n + j, part.k, part.n, p->n);
                LS_TRY(run_float(g, &part));
            }
            for (int64_t r = 0; r < part.m; r++)
                store_row(p->out, ls_at(p->c, (i + r) * p->n + j, p->out == LS_BF16), c + r * part.n,
                          p->bias ? p->bias + j : NULL, part.n, p->add);
        }
    return LS_OK;
}

static ls_status run_bf16(ls_gemm *g, const ls_gemm_call *call)
{
    if (ALWAYS_TILES || 2 * call->m * call->n * call->k <= BF16_FLOPS || !ls_gemm_library_has_bf16())
        return ls_gemm_run_widened(g, call);
    if (!g->library) LS_TRY(ls_gemm_library_open(&g->library));
    return ls_gemm_library_run(g->library, call);
}

bool ls_gemm_prepares(const ls_gemm_call *c)
{
    return !ALWAYS_TILES && (c->in == LS_F32 || ls_gemm_library_has_bf16()) && ls_gemm_library_prepares(c);
}

/* --- packed weights ---------------------------------------------------------------------------- */

#define PACKED_UNIT 64 /* rows and columns: what any of the library's layouts pads to */

size_t ls_gemm_packed_bytes(const ls_gemm_call *c)
{
    const int64_t small = c->in == LS_BF16 ? BF16_FLOPS : ls_gemm_tile_best()->most_flops;
    if (ALWAYS_TILES || c->m == 1 || c->trans_a || 2 * c->m * c->n * c->k <= small) return 0;
    if ((c->in == LS_BF16 && !ls_gemm_library_has_bf16()) || !ls_gemm_library_packs(c)) return 0;
    if (ls_gemm_few_takes(c)) return 0;
    const size_t k = (size_t)(c->k + PACKED_UNIT - 1) / PACKED_UNIT, n = (size_t)(c->n + PACKED_UNIT - 1) / PACKED_UNIT;
    return k * n * PACKED_UNIT * PACKED_UNIT * (c->in == LS_BF16 ? sizeof(uint16_t) : sizeof(float));
}

ls_status ls_gemm_pack(ls_gemm *g, const ls_gemm_call *call, void *to, bool *done)
{
    const size_t room = ls_gemm_packed_bytes(call);
    *done = false;
    if (room == 0) return LS_OK;
    if (!g->library) LS_TRY(ls_gemm_library_open(&g->library));
    return ls_gemm_library_pack(g->library, call, to, room, done);
}

ls_status ls_gemm_run(ls_gemm *g, const ls_gemm_call *call)
{
    if (call->packed) return ls_gemm_library_run(g->library, call); /* it packed it */
    if (call->m == 1 && call->trans_b && call->out == LS_F32 && call->n * call->k >= ROW_ELEMENTS) {
        ls_gemm_row(call);
        return LS_OK;
    }
    return call->in == LS_BF16 ? run_bf16(g, call) : run_float(g, call);
}
