/* same_model.c -- whether all ranks have the same parameters. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "parallel/strategy.h"

typedef struct param_desc {
    char name[LS_NAME_BYTES];
    int64_t ndim, dim[LS_MAX_DIMS];
} param_desc;

static void describe(const ls_param *p, param_desc *out)
{
    memset(out, 0, sizeof *out);
    snprintf(out->name, sizeof out->name, "%s", p->name);
    out->ndim = p->t.ndim;
    for (int i = 0; i < p->t.ndim; i++) out->dim[i] = p->t.dim[i];
}

static const char *desc_text(const param_desc *p, char *buf, size_t n)
{
    ls_tensor t = { .ndim = (int)p->ndim };
    char shape[64];
    for (int i = 0; i < t.ndim && i < LS_MAX_DIMS; i++) t.dim[i] = p->dim[i];
    snprintf(buf, n, "%s %s", p->name, ls_tensor_shape(&t, shape, sizeof shape));
    return buf;
}

ls_status ls_dp_same_model(ls_group *g, const ls_params *ps)
{
    int size = ls_group_size(g), rank = ls_group_rank(g);
    int64_t *count = calloc((size_t)size, sizeof *count);
    if (!count) return ls_fail(LS_NO_MEMORY, "comparing the models of %d ranks", size);
    const bool dry = ls_world_is_dry(ls_group_world(g)); /* nobody else tells */
    for (int r = 0; r < size; r++) count[r] = r == rank || dry ? ps->n : 0;
    ls_status st = ls_all_gather(g, NULL, count, (size_t)size, LS_I64);
    for (int r = 0; r < size && st == LS_OK; r++)
        if (count[r] != count[0])
            st = ls_fail(LS_CONFIG_MISMATCH,
                         "DDP expects same model across all ranks, but Rank 0 has %lld params, while rank %d has "
                         "inconsistent %lld params: build the same model on every rank",
                         (long long)count[0], r, (long long)count[r]);
    free(count);
    LS_TRY(st);
    if (ps->n == 0) return ls_fail(LS_INVALID, "DDP needs at least one parameter that wants a gradient");

    size_t n = (size_t)ps->n;
    param_desc *all = malloc((size_t)size * n * sizeof *all);
    if (!all) return ls_fail(LS_NO_MEMORY, "comparing %d parameters over %d ranks", ps->n, size);
    for (size_t i = 0; i < n; i++) describe(&ps->item[i], &all[(size_t)rank * n + i]);
    st = ls_all_gather(g, NULL, all, (size_t)size * n * sizeof *all, LS_U8);
    for (int r = 1; st == LS_OK && r < size && !dry; r++)
        for (size_t i = 0; st == LS_OK && i < n; i++) { /* everybody sees all and comes to one verdict */
            char a[160], b[160];
            if (memcmp(&all[i], &all[(size_t)r * n + i], sizeof *all) == 0) continue;
            st = ls_fail(LS_CONFIG_MISMATCH,
                         "parameter %zu is %s on rank 0, but %s on rank %d: build the same model on every rank", i,
                         desc_text(&all[i], a, sizeof a), desc_text(&all[(size_t)r * n + i], b, sizeof b), r);
        }
    free(all);
    return st;
}
