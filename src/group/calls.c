/* calls.c -- every collective as one blocking call. */
#include <stdlib.h>
#include <string.h>

#include "group/args.h"
#include "group/engine.h"
#include "group/memory/oneshot.h"
#include "group/memory/quick.h"
#include "group/select.h"
#include "group/spans.h"

#define SCRATCH_BYTES ((size_t)64 << 10)
#define MOST_BYTES (SIZE_MAX / 16)

static LS_COLD ls_status no_counts(ls_coll c) { return ls_fail(LS_INVALID, "%s: no counts per rank", ls_coll_name(c)); }

ls_status ls_all_reduce(ls_group *g, const void *in, void *out, size_t count, ls_dtype dtype, ls_redop op)
{
    ls_coll_args a = { .coll = LS_ALL_REDUCE, .in = in, .out = out, .count = count, .dtype = dtype, .op = op };
    if (LS_UNLIKELY(g && g->w->lint)) ls_args_note(&a);
    if (count <= LS_SHORT_SUM_BYTES && ls_quick_fits(g, &a) && ls_sum_is_short(g, count * ls_dtype_size(dtype)))
        return ls_quick_all_reduce(g, in, out, count, dtype, op);
    return ls_coll_run(g, &a);
}

ls_status ls_reduce_scatter(ls_group *g, const void *in, void *out, size_t count, ls_dtype dtype, ls_redop op)
{
    ls_coll_args a = { .coll = LS_REDUCE_SCATTER, .in = in, .out = out, .count = count, .dtype = dtype, .op = op };
    return ls_coll_run(g, &a);
}

ls_status ls_all_gather(ls_group *g, const void *in, void *out, size_t count, ls_dtype dtype)
{
    ls_coll_args a = { .coll = LS_ALL_GATHER, .in = in, .out = out, .count = count, .dtype = dtype };
    return ls_coll_run(g, &a);
}

ls_status ls_broadcast(ls_group *g, void *buf, size_t count, ls_dtype dtype, int root)
{
    ls_coll_args a = { .coll = LS_BROADCAST, .out = buf, .count = count, .dtype = dtype, .root = root };
    if (count <= LS_MAIL_MOST && ls_quick_fits(g, &a) && count * ls_dtype_size(dtype) <= LS_MAIL_MOST)
        return ls_quick_broadcast(g, buf, count, dtype, root);
    return ls_coll_run(g, &a);
}

ls_status ls_barrier(ls_group *g)
{
    ls_coll_args a = { .coll = LS_BARRIER, .dtype = LS_U8 };
    if (LS_LIKELY(ls_quick_fits(g, &a) && !g->crowded)) return ls_quick_barrier(g);
    return ls_coll_run(g, &a);
}

ls_status ls_reduce(ls_group *g, const void *in, void *out, size_t count, ls_dtype dtype, ls_redop op, int root)
{
    ls_coll_args a = { .coll = LS_REDUCE, .in = in, .out = out, .count = count, .dtype = dtype, .op = op,
                       .root = root };
    return ls_coll_run(g, &a);
}

ls_status ls_gather(ls_group *g, const void *in, void *out, size_t count, ls_dtype dtype, int root)
{
    ls_coll_args a = { .coll = LS_GATHER, .in = in, .out = out, .count = count, .dtype = dtype, .root = root };
    return ls_coll_run(g, &a);
}

ls_status ls_scatter(ls_group *g, const void *in, void *out, size_t count, ls_dtype dtype, int root)
{
    ls_coll_args a = { .coll = LS_SCATTER, .in = in, .out = out, .count = count, .dtype = dtype, .root = root };
    return ls_coll_run(g, &a);
}

ls_status ls_all_to_all(ls_group *g, const void *in, void *out, size_t count, ls_dtype dtype)
{
    ls_coll_args a = { .coll = LS_ALL_TO_ALL, .in = in, .out = out, .count = count, .dtype = dtype };
    return ls_coll_run(g, &a);
}

ls_status ls_all_gather_v(ls_group *g, const void *in, void *out, const size_t *counts, ls_dtype dtype)
{
    ls_coll_args a = { .coll = LS_ALL_GATHER, .in = in, .out = out, .counts = counts, .dtype = dtype };
    return counts ? ls_coll_run(g, &a) : no_counts(LS_ALL_GATHER);
}

ls_status ls_reduce_scatter_v(ls_group *g, const void *in, void *out, const size_t *counts, ls_dtype dtype,
                              ls_redop op)
{
    ls_coll_args a = { .coll = LS_REDUCE_SCATTER, .in = in, .out = out, .counts = counts, .dtype = dtype, .op = op };
    return counts ? ls_coll_run(g, &a) : no_counts(LS_REDUCE_SCATTER);
}

ls_status ls_gather_v(ls_group *g, const void *in, void *out, const size_t *counts, ls_dtype dtype, int root)
{
    ls_coll_args a = { .coll = LS_GATHER, .in = in, .out = out, .counts = counts, .dtype = dtype, .root = root };
    return counts ? ls_coll_run(g, &a) : no_counts(LS_GATHER);
}

ls_status ls_scatter_v(ls_group *g, const void *in, void *out, const size_t *counts, ls_dtype dtype, int root)
{
    ls_coll_args a = { .coll = LS_SCATTER, .in = in, .out = out, .counts = counts, .dtype = dtype, .root = root };
    return counts ? ls_coll_run(g, &a) : no_counts(LS_SCATTER);
}

ls_status ls_all_to_all_v(ls_group *g, const void *in, const size_t *send_counts, void *out,
                          const size_t *recv_counts, ls_dtype dtype)
{
    ls_coll_args a = { .coll = LS_ALL_TO_ALL, .in = in, .out = out, .counts = send_counts,
                       .recv_counts = recv_counts, .dtype = dtype };
    return send_counts ? ls_coll_run(g, &a) : no_counts(LS_ALL_TO_ALL);
}

/* Registered scratch that grows with what is packed; memory of our own where the arena is full. */
static ls_status scratch(ls_world *w, size_t nbytes, char **out)
{
    ls_engine *e = w->engine;
    *out = e->scratch;
    if (nbytes <= e->nscratch) return LS_OK;
    size_t want = e->nscratch ? 2 * e->nscratch : SCRATCH_BYTES;
    while (want < nbytes) want *= 2;
    void *p;
    if (ls_arena_alloc(w->arena, want, LS_MEM_COMM, &p) < 0) {
        char *own = realloc(e->own_scratch, want);
        if (!own) return ls_fail(LS_NO_MEMORY, "%zu bytes to pack tensors into", want);
        p = e->own_scratch = own;
    }
    *out = e->scratch = p;
    e->nscratch = want;
    return LS_OK;
}

/* Whether a form of the group packs vectors of spans. */
static bool packs(ls_group *g, ls_coll coll)
{
    const ls_matrix_span none = { 0 };
    const ls_work k = { .g = g, .a = { .coll = coll }, .span = &none };
    return g->size > 1 && !ls_select(&k)->spans;
}

ls_status ls_group_reserve_spans(ls_group *g, size_t nbytes)
{
    if (!g) return ls_no_group();
    return packs(g, LS_REDUCE_SCATTER) || packs(g, LS_ALL_GATHER) ? ls_spans_reserve(g, nbytes) : LS_OK;
}

ls_status ls_all_reduce_coalesced(ls_group *g, void *const *tensor, const size_t *count, int ntensors, ls_dtype dtype,
                                  ls_redop op)
{
    size_t elem = ls_dtype_size(dtype), total = 0;
    char *packed;
    if (!g) return ls_no_group();
    if (g->failed < 0) return ls_fail(LS_INVALID, "group %s cannot be used any more: %s", g->text, g->error);
    if (ntensors < 0 || (ntensors > 0 && (!tensor || !count)))
        return ls_fail(LS_INVALID, "all_reduce_coalesced: %d tensors without a list of them", ntensors);
    if (elem == 0) return ls_fail(LS_INVALID, "all_reduce_coalesced: dtype number %d does not exist", (int)dtype);
    for (int i = 0; i < ntensors; i++) {
        if (!tensor[i] && count[i] > 0)
            return ls_fail(LS_INVALID, "all_reduce_coalesced: no buffer for tensor %d of %zu elements", i, count[i]);
        if (count[i] > MOST_BYTES / elem - total)
            return ls_fail(LS_INVALID, "all_reduce_coalesced: %zu elements of tensor %d are more than memory can hold",
                           count[i], i);
        total += count[i];
    }
    LS_TRY(scratch(g->w, total * elem, &packed));
    char *p = packed;
    for (int i = 0; i < ntensors && g->w->lint; i++)
        ls_args_note(&(ls_coll_args){ .coll = LS_ALL_REDUCE, .out = tensor[i], .count = count[i], .dtype = dtype });
    const bool dry = g->w->dry; /* nothing has memory there */
    for (int i = 0; i < ntensors && !dry; p += count[i++] * elem)
        if (count[i] > 0) memcpy(p, tensor[i], count[i] * elem);
    LS_TRY(ls_all_reduce(g, NULL, packed, total, dtype, op));
    p = packed;
    for (int i = 0; i < ntensors && !dry; p += count[i++] * elem)
        if (count[i] > 0) memcpy(tensor[i], p, count[i] * elem);
    return LS_OK;
}
