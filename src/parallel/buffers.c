/* buffers.c -- state of a model that all ranks get from rank 0. */
#include <stdlib.h>
#include <string.h>

#include "parallel/strategy.h"

ls_status ls_dp_sync_buffers(ls_ddp *d, int from)
{
    for (int i = 0; i < d->nbuffers; i++) {
        const ls_buffer *b = &d->buffer[i];
        const ls_status st = ls_broadcast(d->g, b->data, b->count, b->dtype, from);
        if (st < 0) return ls_while(st, "copying buffer %s from rank %d", b->name, from);
    }
    return LS_OK;
}

ls_status ls_dp_before_forward(ls_ddp *d, int from)
{
    LS_TRY(d->strategy->begin_forward(d));
    return d->state == LS_DP_IDLE || d->last ? ls_dp_sync_buffers(d, from) : LS_OK;
}

static ls_status same_number(ls_ddp *d, int n)
{
    const int size = ls_group_size(d->g), rank = ls_group_rank(d->g);
    int64_t *count = calloc((size_t)size, sizeof *count);
    if (!count) return ls_fail(LS_NO_MEMORY, "comparing the buffers of %d ranks", size);
    for (int r = 0; r < size; r++) count[r] = r == rank || d->dry ? n : 0;
    ls_status st = ls_all_gather(d->g, NULL, count, (size_t)size, LS_I64);
    for (int r = 1; st == LS_OK && r < size; r++)
        if (count[r] != count[0])
            st = ls_fail(LS_CONFIG_MISMATCH, "rank 0 has %lld buffers, but rank %d has %lld: build the same model on every rank",
                         (long long)count[0], r, (long long)count[r]);
    free(count);
    return st;
}

ls_status ls_ddp_set_buffers(ls_ddp *d, const ls_buffer *b, int n)
{
    LS_TRY(same_number(d, n));
    ls_buffer *list = calloc((size_t)n + 1, sizeof *list);
    if (!list) return ls_fail(LS_NO_MEMORY, "a list of %d buffers", n);
    for (int i = 0; i < n; i++) list[i] = b[i];
    free(d->buffer);
    d->buffer = list;
    d->nbuffers = n;
    return ls_dp_sync_buffers(d, 0);
}
