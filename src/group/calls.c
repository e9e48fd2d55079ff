/* calls.c -- every collective as one blocking call. */
#include "group/impl.h"

static LS_COLD ls_status no_counts(ls_coll c) { return ls_fail(LS_INVALID, "%s: no counts per rank", ls_coll_name(c)); }

ls_status ls_all_reduce(ls_group *g, const void *in, void *out, size_t count, ls_dtype dtype, ls_redop op)
{
    ls_coll_args a = { .coll = LS_ALL_REDUCE, .in = in, .out = out, .count = count, .dtype = dtype, .op = op };
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
    return ls_coll_run(g, &a);
}

ls_status ls_barrier(ls_group *g)
{
    ls_coll_args a = { .coll = LS_BARRIER, .dtype = LS_U8 };
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
