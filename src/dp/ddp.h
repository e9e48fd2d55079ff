/* ddp.h -- what the files of data parallelism share: a replica's buckets.
 *
 *   ddp.c     gradients: buckets, and their reduction during backward
 *   zero.c    ZeRO's first stage: who owns which part of a bucket, and how its new values reach the others
 *   bucket.c  which gradients travel together
 */
#ifndef LS_DP_DDP_H
#define LS_DP_DDP_H
#include "lockstep/dp.h"

#define LS_DDP_ALIGN     64u /* bytes: where parameters begin in a bucket; buckets end at multiples of W of them */
#define LS_DDP_IN_FLIGHT 32  /* buckets; a group carries 64 collectives at once */

typedef struct ls_bucket {
    int *param; /* owned: indices, in the order they lie in memory */
    int nparams;
    size_t nbytes; /* of the parameters */
    float *data;   /* borrowed from the shared arena; peers read and write it */
    size_t count;  /* elements, padding included */
    int nready;
    bool sharded;   /* each rank gets the sum of its share alone */
    ls_work *work;  /* NULL when nothing is in flight */
    char label[24]; /* "bucket 3" */
} ls_bucket;

struct ls_ddp {
    ls_group *g;   /* borrowed */
    ls_params *ps; /* borrowed */
    ls_ddp_config c;
    char *span;   /* borrowed: all buckets */
    ls_bucket *b; /* owned */
    int nbuckets;
    int next;       /* the bucket to be launched, strictly in order */
    int waited;     /* the oldest bucket that nobody has waited for */
    int *bucket_of; /* owned: [nparams] */
    bool *ready;    /* owned: [nparams], in the current synced backward */
    int *arrival;   /* owned: parameters in the order their gradients came */
    int narrived;
    bool rebuilt;
    bool sync;  /* the coming backward reduces */
    bool open;  /* gradients have come whose reduction is not finished */
    bool due;   /* reduced shares whose new values nobody has gathered */
    bool cut;   /* the last reduction left each rank its shares of gradients, and what is no sum beside them */
    bool apart; /* float values that only their owners have */
};

/* How parameters lie in buckets when those of matrices are sharded. Position i of the order is parameter order[i], in
 * bucket number[i]. */
typedef struct ls_zero_plan {
    int *order, *number; /* owned, as all here: [nparams] */
    int nbuckets;
    size_t *at;    /* [nparams], by parameter: elements from the begin of all sharded buckets to a matrix */
    ls_range *own; /* [nparams], by parameter: what the rank owns of a matrix */
    size_t count;  /* elements of all sharded buckets, padding included */
} ls_zero_plan;

/* Sizes that nobody has given. */
ls_ddp_config ls_ddp_defaults(const ls_ddp_config *c);
static inline size_t ls_ddp_room(const ls_param *p)
{
    return (ls_tensor_nbytes(&p->t) + LS_DDP_ALIGN - 1) / LS_DDP_ALIGN * LS_DDP_ALIGN;
}
/* Bytes of a bucket whose parameters take `used`. */
static inline size_t ls_bucket_room(size_t used, int size)
{
    const size_t unit = (size_t)size * LS_DDP_ALIGN;
    return (used + unit - 1) / unit * unit;
}
/* Waits for the oldest bucket in flight. */
ls_status ls_ddp_wait_one(ls_ddp *d);

static inline bool ls_zero_shards(const ls_param *p) { return p->t.ndim >= 2 && !p->whole; }
/* Last parameters first, which is about how gradients arrive; matrices, whose buckets are sharded, apart from the
 * rest. Depends on shapes and configuration alone. */
ls_status ls_zero_plan_make(const ls_params *ps, const ls_ddp_config *c, int rank, int size, ls_zero_plan *out);
void ls_zero_plan_free(ls_zero_plan *p);
/* LS_UNSUPPORTED for a stage that is not there. */
ls_status ls_zero_check_stage(const ls_ddp_config *c);
/* LS_INVALID unless ls_ddp_bind has bound the parameters so. */
ls_status ls_zero_check_bound(const ls_params *ps, const ls_zero_plan *p);

#endif
