/* agree.c -- whether all ranks have succeeded. */
#include <stdio.h>
#include <stdlib.h>

#include "base/context.h"
#include "ckpt/state.h"

ls_status ls_state_agree(ls_group *g, ls_status mine, int *culprit)
{
    const int rank = ls_group_rank(g), size = ls_group_size(g);
    char message[LS_ERROR_BYTES] = "";
    int64_t *all = calloc((size_t)size, sizeof *all);
    if (!all) return ls_fail(LS_NO_MEMORY, "what %d ranks say of a checkpoint", size);
    if (mine < 0) snprintf(message, sizeof message, "%s", ls_last_error());
    all[rank] = mine;
    ls_status st = ls_all_gather(g, NULL, all, (size_t)size, LS_I64);
    int first = 0;
    while (first < size && all[first] >= 0) first++;
    if (st == LS_OK && first < size) {
        if (culprit) *culprit = first;
        st = ls_broadcast(g, message, sizeof message, LS_U8, first);
        message[sizeof message - 1] = 0;
        const ls_status cause = (ls_status)all[first];
        if (st == LS_OK && size == 1) st = ls_fail(cause, "%s", message);
        else if (st == LS_OK) st = ls_fail(cause, "rank %d: %s", ls_group_world_rank(g, first), message);
    }
    free(all);
    return st;
}
