/* shard.h -- what strategies share in which ranks own different rows: who owns what, where it lies, and how all ranks
 * get the new values.
 *
 * Shards are cut at rows: rank r of W owns rows ls_shard_range(dim[0], r, W) of every parameter; a row of a vector is
 * one element. So a shard is a box of the global tensor, and is empty where there are fewer rows than ranks. A rank's
 * share of a bucket is then a span of each of its parameters, and the bucket stays one collective (ls_coll_args.span).
 * What ops read lies in the world's arena like the gradients do, so that all_gathers in place bring new values to all:
 *
 *   f32    one per bucket
 *   bf16   one per bucket, of the copies in bf16; and one, of the whole model, of all that ops read in float in any
 *          case: vectors, and matrices that say so (ls_param.f32)
 *
 * Of a parameter with a copy floats exist for own elements alone (p->master), and t.data is NULL.
 */
#ifndef LS_PARALLEL_SHARD_H
#define LS_PARALLEL_SHARD_H
#include "parallel/strategy.h"

/* How parameters lie in buckets: last parameters first, which is about how gradients arrive. Position i of the order is
 * parameter order[i], in bucket number[i]. It depends on shapes, units and configuration alone, and stays: an
 * optimizer's state lies where the shards are. */
typedef struct ls_shard_plan {
    int *order, *number; /* owned, as all here: [nparams] */
    int nbuckets;
    size_t *grad;  /* [nparams], by parameter: elements from the begin of all buckets to its gradient */
    size_t *value; /* [nparams]: bytes from the begin of what peers read to its values, or its copy, in this order */
    size_t nbytes; /* of what peers read, each parameter in whole cache lines */
} ls_shard_plan;

/* Where the parameter values are stored that operations read. */
typedef enum ls_shard_values {
    LS_SHARD_EACH,     /* each rank stores all of them, and gathers the new ones after a step */
    LS_SHARD_ONE_COPY, /* all ranks of a node share one copy (ls_group_alloc_shared); nodes gather the new values */
    LS_SHARD_GATHERED, /* a rank stores the f32 values of its own rows (ls_param.master); the strategy gathers the
                          others */
} ls_shard_values;

/* In what such strategies differ. */
typedef struct ls_shard_how {
    ls_shard_values values;
    bool nodes;    /* LS_SHARD_ONE_COPY: there are several copies, one per node */
    bool at_units; /* buckets end at unit boundaries: a unit's buckets are complete when its backward ends */
    bool lends;    /* after ls_shard_place the strategy assigns memory to its buckets (ls_buckets_put). false: each
                      bucket has memory for the whole run */
    bool sums_all; /* buckets are all_reduced over all ranks, although a rank uses the sums of its own rows only */
    /* Allocates sums of this rank's own rows (ls_param.dmaster) in `own`. NULL: they stand in the buckets. */
    ls_status (*grads)(ls_group *g, ls_params *ps, const ls_shard_plan *l, ls_dtype dtype, ls_arena *own);
    /* Memory for all values of a parameter in float, until the next backward or optimizer step; where it is one place
     * for all of them, until the next parameter's (a checkpoint and a digest ask for one after another, samples need
     * all together). NULL: ls_bucket_lend. */
    ls_status (*lend)(ls_ddp *d, const ls_param *p, float **out);
} ls_shard_how;

/* What the functions of a strategy's table (strategy.h) call, or are. */
ls_status ls_shard_bind(const ls_shard_how *how, ls_group *g, ls_params *ps, const ls_ddp_config *c, ls_dtype dtype,
                        ls_arena *own);
ls_status ls_shard_place(const ls_shard_how *how, ls_ddp *d);
ls_status ls_shard_whole(const ls_shard_how *how, ls_ddp *d, const ls_param *p, const float **out);

#endif
