/* dp.h -- data parallelism around a model: DDP with gradient buckets.
 *
 * The wrapper is PyTorch's DistributedDataParallel, rule by rule: parameters
 * are compared and broadcast from rank 0; gradients live in buckets in the
 * shared arena; during backward a full bucket's all_reduce starts in bucket
 * order; buckets are rebuilt once in the order gradients arrived. User code
 * calls only ls_backward.
 *
 *     ls_ddp_create(group, &model->params, &cfg, &ddp);
 *     ls_ddp_begin_forward(ddp, tape, true);
 *     loss = ...; ls_backward(tape, loss); ls_optim_step(o);
 */
#ifndef LS_DP_H
#define LS_DP_H
#include "lockstep/group.h"
#include "lockstep/nn.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ls_ddp ls_ddp;

typedef struct ls_ddp_config {
    size_t first_bucket; /* bytes; 0: 1 MiB */
    size_t bucket_cap;   /* bytes; 0: 25 MiB */
    bool bucket_view;    /* divide contributions by W (PyTorch's gradient_as_bucket_view) instead of
                            multiplying them by 1/W */
    bool no_overlap;     /* start every bucket at the end of backward (to measure overlap) */
} ls_ddp_config;

typedef struct ls_ddp_bucket_info {
    int index;
    const int *param;   /* indices into the params, in bucket order */
    int nparams;
    size_t nbytes;      /* of the parameters, padding apart */
} ls_ddp_bucket_info;

/* Every rank of the group calls it. Compares count, names, shapes with all ranks
 * (LS_CONFIG_MISMATCH names both ranks, the parameter and both shapes), binds each
 * parameter's gradient into a bucket in the shared arena, and broadcasts the
 * values from rank 0. `ps` is borrowed and must be bound; its grads may be NULL. */
ls_status ls_ddp_create(ls_group *g, ls_params *ps, const ls_ddp_config *c, ls_ddp **out);
void ls_ddp_destroy(ls_ddp *d);

/* Before every forward: hooks into the tape's backward (whose end waits for the
 * buckets in flight), rebuilds buckets when due, and decides whether the coming backward synchronises (false is
 * no_sync(): gradients accumulate locally). LS_INVALID, with PyTorch's sentence
 * "Expected to have finished reduction in the prior iteration ...", when the
 * prior synced backward left buckets unfinished. */
ls_status ls_ddp_begin_forward(ls_ddp *d, ls_tape *t, bool sync);

int ls_ddp_buckets(const ls_ddp *d);
ls_ddp_bucket_info ls_ddp_bucket(const ls_ddp *d, int index);
bool ls_ddp_rebuilt(const ls_ddp *d);
/* Registered bytes that ls_ddp_create takes from the world's arena. */
size_t ls_ddp_arena_bytes(const ls_params *ps, int size, const ls_ddp_config *c);

/* torch._compute_bucket_assignment_by_size: which tensors share a bucket.
 * nbytes[n] and key[n] (dtype and device; equal keys may share; NULL: one key);
 * limits[nlimits] in bytes. bucket[i] gets the bucket of tensor i (in the given
 * order); returns the number of buckets. `sorted`: buckets are numbered by their
 * smallest tensor, as torch does when no explicit order was given. */
int ls_bucket_assign(const size_t *nbytes, const int *key, int n, const size_t *limits, int nlimits,
                     bool sorted, int *bucket);

#ifdef __cplusplus
}
#endif
#endif
