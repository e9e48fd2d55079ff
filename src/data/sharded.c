/* sharded.c -- whether the ranks of a group have different samples. */
#include <stdlib.h>

#include "base/hash.h"
#include "base/log.h"
#include "lockstep/data.h"

ls_status ls_check_sharded(ls_group *g, const int64_t *id, size_t n, bool *same)
{
    const int64_t hash = (int64_t)ls_hash64(id, n * sizeof *id, n);
    int64_t most[2] = { hash, ~hash }; /* of all ranks: the largest hash, and the complement of the smallest */
    *same = false;
    LS_TRY(ls_all_reduce(g, most, most, 2, LS_I64, LS_MAX));
    *same = n > 0 && ls_group_size(g) > 1 && most[0] == ~most[1];
    if (*same && ls_group_rank(g) == 0)
        ls_log(LS_LOG_WARN,
               "all %d ranks have the same %zu sample ids in their first batch: they compute the same gradient, and more ranks "
               "train no faster; give each rank its own samples, as ls_sampler does",
               ls_group_size(g), n);
    return LS_OK;
}

ls_status ls_loader_check_sharded(const ls_loader *l, ls_group *g, bool *same)
{
    if (l->next < l->n || l->n == 0)
        return ls_fail(LS_INVALID, "ls_loader_check_sharded: there is no batch: call it between ls_loader_next and ls_loader_rewind");
    const size_t first = l->next - l->n;
    if (l->sampler) return ls_check_sharded(g, l->sampler->index + first, l->n, same);
    int64_t *id = malloc((l->n + 1) * sizeof *id);
    if (!id) return ls_fail(LS_NO_MEMORY, "the ids of %zu samples", l->n);
    for (size_t i = 0; i < l->n; i++) id[i] = (int64_t)(first + i);
    const ls_status st = ls_check_sharded(g, id, l->n, same);
    free(id);
    return st;
}
