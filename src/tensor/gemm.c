/* gemm.c -- chooses who multiplies, and walks small products tile by tile. */
#include "tensor/gemm.h"

#include <stdlib.h>

#include "base/compiler.h"
#include "tensor/gemm_tile.h"

#define ROW_ELEMENTS (1 << 18) /* of B: from 1 MiB on it comes from memory, and packing it costs as much as reading it */

struct ls_gemm {
    const ls_gemm_tile *tile; /* borrowed */
    float *panel;             /* owned; [panel_k, tile->nr]: columns of a transposed B */
    int64_t panel_k;
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
    free(g->panel);
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

/* Columns of C in strips of nr, each strip in blocks of about equally many rows. */
ls_status ls_gemm_run_tiles(ls_gemm *g, const ls_gemm_call *p)
{
    const ls_gemm_tile *tile = g->tile;
    if (p->trans_b && g->panel_k < p->k) LS_TRY(grow_panel(g, p->k));
    const int64_t blocks = (p->m + tile->mr - 1) / tile->mr;
    ls_gemm_tile_args t = {
        .k = p->k, .a_row = p->trans_a ? 1 : p->k, .a_col = p->trans_a ? p->m : 1, .ldc = p->n, .add = p->add,
    };
    for (int64_t j = 0; j < p->n; j += tile->nr) {
        t.nr = (int)(p->n - j < tile->nr ? p->n - j : tile->nr);
        t.b = p->trans_b ? g->panel : p->b + j;
        t.ldb = p->trans_b ? tile->nr : p->n;
        t.bias = p->bias ? p->bias + j : NULL;
        if (p->trans_b) tile->pack(g->panel, p->b + j * p->k, p->k, t.nr, p->k);
        int64_t first = 0;
        for (int64_t i = 1; i <= blocks; i++) {
            const int64_t end = i * p->m / blocks;
            t.mr = (int)(end - first);
            t.a = p->a + first * t.a_row;
            t.c = p->c + first * p->n + j;
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

ls_status ls_gemm_run(ls_gemm *g, const ls_gemm_call *call)
{
    if (call->m == 1 && call->trans_b && call->n * call->k >= ROW_ELEMENTS) {
        ls_gemm_row(call);
        return LS_OK;
    }
    if (ALWAYS_TILES || 2 * call->m * call->n * call->k <= g->tile->most_flops) return ls_gemm_run_tiles(g, call);
    if (!g->library) LS_TRY(ls_gemm_library_open(&g->library));
    return ls_gemm_library_run(g->library, call);
}
