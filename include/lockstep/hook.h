/* hook.h -- communication hooks of DDP: code that reduces a bucket of gradients in place of DDP's all_reduce, as
 * torch.distributed's register_comm_hook does. A hook gets this rank's gradients, which nothing has divided yet (but
 * those of experts that ep ranks divide, by ep), and must leave the same averages on all ranks.
 *
 *     ls_comm_hook *hook;
 *     ls_hook_compress(LS_BF16, &hook);
 *     ls_ddp_set_hook(ddp, hook);       // after ls_ddp_create, before the first forward
 *
 * A hook of your own is a struct that begins with an ls_comm_hook (examples/own_hook.c).
 */
#ifndef LS_HOOK_H
#define LS_HOOK_H
#include "lockstep/dp.h"
#include "lockstep/group.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A bucket of gradients, as a hook sees it. */
typedef struct ls_grad_bucket {
    int index;          /* buckets start in ascending order, from 0 in each backward */
    bool is_last;       /* no bucket follows in this backward */
    float *data;        /* [count] gradients of all parameters, flat; padding between them is zero */
    size_t count;
    const int *param;   /* [nparams] which parameters: indices into ls_params.item */
    const size_t *at;   /* [nparams] where each begins in data, elements */
    int nparams;
} ls_grad_bucket;

typedef struct ls_comm_hook ls_comm_hook;

/* The functions of a hook. All ranks must start the same collectives in the same order. */
struct ls_comm_hook {
    const char *name; /* for messages */
    /* Called once by ls_ddp_set_hook: allocates memory. All buckets of a backward together have at most `most`
     * elements. NULL: nothing to do. */
    ls_status (*attach)(ls_comm_hook *h, ls_group *g, const ls_params *ps, size_t most);
    /* Starts to reduce a bucket. *work: a collective that DDP waits for before `finish`; NULL: there is none. */
    ls_status (*start)(ls_comm_hook *h, ls_group *g, const ls_grad_bucket *b, ls_work **work);
    /* Called in the order of buckets, by the end of backward. It may call further collectives. *out, [*count], are the
     * averages; both are set to b->data and b->count before the call. A count other than b->count is refused with
     * LS_INVALID. NULL: the averages are in b->data. */
    ls_status (*finish)(ls_comm_hook *h, ls_group *g, const ls_grad_bucket *b, const float **out, size_t *count);
    void (*destroy)(ls_comm_hook *h); /* NULL: nothing to do */
};

/* Every rank calls it with the same hook. On LS_OK, d owns h and destroys it after its last bucket; else the
 * caller still owns it. LS_UNSUPPORTED: the strategy shards gradients (zero_stage 1 and above). LS_INVALID: d has
 * a hook already, or a forward was announced already. */
ls_status ls_ddp_set_hook(ls_ddp *d, ls_comm_hook *h);

/* "allreduce": all_reduce of the average in f32, as without a hook, except that each rank's gradients are divided
 * by the number of ranks instead of being multiplied by its reciprocal (PyTorch's allreduce_hook). */
ls_status ls_hook_allreduce(ls_comm_hook **out);

/* "f16", "bf16": gradients are rounded to LS_F16 or LS_BF16, which halves the traffic, and averaged in that type
 * (PyTorch's fp16_compress_hook and bf16_compress_hook). Values beyond the range of f16 become infinite. */
ls_status ls_hook_compress(ls_dtype dtype, ls_comm_hook **out);

/* "powersgd": a gradient matrix M [n, m] travels as two factors of rank r, n r + m r elements instead of n m.
 * (Vogels, Karimireddy and Jaggi, "PowerSGD: Practical Low-Rank Gradient Compression for Distributed
 * Optimization", 2019; PyTorch's powerSGD_hook.) */
typedef struct ls_powersgd_config {
    int rank;            /* r; 0: 1 */
    int64_t start;       /* backwards that are reduced in full before the first compressed one, at least 2; 0: 1000 */
    bool no_feedback;    /* do not add the error of a backward to the gradients of the next one */
    bool no_warm_start;  /* begin each backward with random factors, not with those of the one before */
    uint64_t seed;       /* of random factors; the same on all ranks */
} ls_powersgd_config;

/* Vectors travel in full, and so do matrices that factors would not halve at least. c NULL: defaults. */
ls_status ls_hook_powersgd(const ls_powersgd_config *c, ls_comm_hook **out);

/* A hook by name: "allreduce", "f16", "bf16" or "powersgd". c, NULL or not, is for the last. LS_BAD_CONFIG lists them. */
ls_status ls_hook_named(const char *name, const ls_powersgd_config *c, ls_comm_hook **out);

#ifdef __cplusplus
}
#endif
#endif
