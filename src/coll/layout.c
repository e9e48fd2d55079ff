/* layout.c -- chunk numbers to element offsets. */
#include "coll/layout.h"

#include <stdlib.h>

#include "lockstep/shard.h"

static uint32_t parts_of(const ls_shape *s)
{
    switch (s->coll) {
    case LS_BROADCAST:
    case LS_REDUCE:
    case LS_SENDRECV: return 1;
    case LS_BARRIER: return 0;
    default: return (uint32_t)s->size;
    }
}

ls_status ls_layout_create(const ls_sched *s, ls_layout *out)
{
    const size_t n = (size_t)parts_of(&s->shape) * (size_t)s->shape.segments + 1;
    *out = (ls_layout){ .parts = parts_of(&s->shape), .nchunks = (uint32_t)n - 1, .count = SIZE_MAX };
    for (int b = LS_BUF_IN; b <= LS_BUF_TMP; b++)
        if (s->nchunks[b] != out->nchunks && (s->nchunks[b] != 0 || b == LS_BUF_OUT))
            return ls_fail(LS_UNSUPPORTED, "%s over %d ranks in %d segments: buffer %d has %u chunks, expected %u",
                           ls_coll_name(s->shape.coll), s->shape.size, s->shape.segments, b, s->nchunks[b],
                           out->nchunks);
    bool apart = s->shape.coll == LS_ALL_TO_ALL && s->shape.uneven;
    out->memory = calloc(apart ? 2 * n : n, sizeof *out->memory);
    if (!out->memory) return ls_fail(LS_NO_MEMORY, "layout of %u chunks", out->nchunks);
    out->at[LS_BUF_OUT] = out->at[LS_BUF_TMP] = out->memory;
    out->at[LS_BUF_IN] = apart ? out->memory + n : out->memory;
    return LS_OK;
}

void ls_layout_free(ls_layout *l)
{
    free(l->memory);
    *l = (ls_layout){ .count = SIZE_MAX };
}

/* Cuts the share that starts at `first` over the segments of part p. */
static void cut_share(size_t *at, uint32_t p, uint32_t segments, ls_range share)
{
    for (uint32_t g = 0; g < segments; g++) {
        ls_range piece = { 0, 0 };
        ls_shard_range(share.count, (int)g, (int)segments, &piece);
        at[p * segments + g] = share.first + piece.first;
    }
    at[(p + 1) * segments] = share.first + share.count;
}

void ls_layout_set(ls_layout *l, size_t count)
{
    if (count == l->count) return;
    l->count = count;
    for (uint32_t p = 0; p < l->parts; p++) {
        ls_range share = { 0, 0 };
        ls_shard_range(count, (int)p, (int)l->parts, &share);
        cut_share(l->memory, p, l->nchunks / l->parts, share);
        if (l->at[LS_BUF_IN] != l->memory) cut_share(l->at[LS_BUF_IN], p, l->nchunks / l->parts, share);
    }
}

static void cut_by_counts(const ls_layout *l, size_t *at, const size_t *counts)
{
    ls_range share = { 0, 0 };
    for (uint32_t p = 0; p < l->parts; p++, share.first += share.count) {
        share.count = counts[p];
        cut_share(at, p, l->nchunks / l->parts, share);
    }
}

void ls_layout_set_counts(ls_layout *l, const size_t *out, const size_t *in)
{
    l->count = SIZE_MAX;
    cut_by_counts(l, l->at[LS_BUF_OUT], out);
    if (l->at[LS_BUF_IN] != l->memory) cut_by_counts(l, l->at[LS_BUF_IN], in ? in : out);
}

size_t ls_sched_tmp_bytes(const ls_sched *s, size_t count, size_t elem)
{
    return s->nchunks[LS_BUF_TMP] ? count * elem : 0;
}
