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
    *out = (ls_layout){ .parts = parts_of(&s->shape), .count = SIZE_MAX };
    out->nchunks = out->parts * (uint32_t)s->shape.segments;
    for (int b = LS_BUF_IN; b <= LS_BUF_TMP; b++)
        if (s->nchunks[b] != out->nchunks && (s->nchunks[b] != 0 || b == LS_BUF_OUT))
            return ls_fail(LS_UNSUPPORTED, "%s over %d ranks in %d segments: buffer %d has %u chunks, expected %u",
                           ls_coll_name(s->shape.coll), s->shape.size, s->shape.segments, b, s->nchunks[b],
                           out->nchunks);
    out->at = calloc((size_t)out->nchunks + 1, sizeof *out->at);
    return out->at ? LS_OK : ls_fail(LS_NO_MEMORY, "layout of %u chunks", out->nchunks);
}

void ls_layout_free(ls_layout *l)
{
    free(l->at);
    *l = (ls_layout){ .count = SIZE_MAX };
}

void ls_layout_set(ls_layout *l, size_t count)
{
    if (count == l->count) return;
    l->count = count;
    uint32_t c = 0, segments = l->parts ? l->nchunks / l->parts : 0;
    for (uint32_t p = 0; p < l->parts; p++) {
        ls_range share = { 0, 0 }, piece = { 0, 0 };
        ls_shard_range(count, (int)p, (int)l->parts, &share);
        for (uint32_t g = 0; g < segments; g++) {
            ls_shard_range(share.count, (int)g, (int)segments, &piece);
            l->at[c++] = share.first + piece.first;
        }
    }
    l->at[c] = l->parts ? count : 0;
}

size_t ls_sched_tmp_bytes(const ls_sched *s, size_t count, size_t elem)
{
    return s->nchunks[LS_BUF_TMP] ? count * elem : 0;
}
