/* harness_zero.h -- what the suites of ZeRO share: configurations, a step, the groups of sets of shards. */
#ifndef LS_TEST_HARNESS_ZERO_H
#define LS_TEST_HARNESS_ZERO_H
#include "harness_replica.h"

#define STEPS    12

static const int64_t dims[] = { 20, 17, 12, 3 }; /* matrices end within cache lines; some ranks have none of 3 rows */
static const ls_world_opts wires = { .transport = "tcp" };
static const ls_ddp_config one_bucket = { .zero_stage = 1 };
static const ls_ddp_config one_each = { .first_bucket = 1, .bucket_cap = 1, .zero_stage = 1 }; /* empty shards */
static const ls_ddp_config many_buckets = { .first_bucket = 512, .bucket_cap = 700, .zero_stage = 1 };
static const ls_ddp_config own_sums = { .first_bucket = 512, .bucket_cap = 700, .zero_stage = 2 };
static const ls_ddp_config own_sums_late = { .zero_stage = 2, .no_overlap = true };
static const ls_ddp_config one_copy = { .first_bucket = 512, .bucket_cap = 700, .zero_stage = 3 };
static const ls_ddp_config last_of_one = { .zero_stage = 3, .reduce_last = true };
static const ls_ddp_config gathered = { .zero_stage = 3, .copy = LS_ZERO_COPY_RANK, .prefetch = 1 };
static const ls_ddp_config gathered_late = { .first_bucket = 512, .bucket_cap = 700, .zero_stage = 3,
                                             .copy = LS_ZERO_COPY_RANK, .reshard = LS_RESHARD_ALWAYS };
static const ls_ddp_config gathered_once = { .zero_stage = 3, .reduce_last = true, .copy = LS_ZERO_COPY_RANK,
                                             .prefetch = 2, .reshard = LS_RESHARD_NEVER };
static const ls_ddp_config last_sums = { .first_bucket = 512, .bucket_cap = 700, .zero_stage = 2, .reduce_last = true };

static inline ls_replica_config config_of(const ls_ddp_config *ddp, const char *optim)
{
    return (ls_replica_config){
        .dims = dims, .ndims = COUNT(dims), .seed = 4, .ddp = ddp, .optim = optim, .lr = 0.02, .rows = ROWS
    };
}

/* A step of `parts` micro-batches, clipped: its norm. */
static inline ls_status step(ls_world *w, ls_replica *r, uint64_t n, int parts, double *norm)
{
    ls_params *ps = &r->model->params;
    const int64_t each = ROWS / parts;
    ls_params_zero_grad(ps);
    for (int m = 0; m < parts; m++)
        LS_TRY(ls_replica_pass(r, n, (ls_world_rank(w) * parts + m) * each, each, m + 1 == parts, 1.0f / (float)parts,
                               NULL));
    LS_TRY(ls_grad_norm_shared(ls_world_group(w), ps, norm, NULL));
    LS_TRY(ls_optim_step_scaled(r->optim, ls_clip_scale(*norm, 0.3)));
    return ls_ddp_after_step(r->ddp);
}

typedef struct hybrid {
    const ls_ddp_config *ddp;
    int sets, parts;
    bool exact; /* sums add in rank order: the values are DDP's to the bit */
} hybrid;

/* The groups of this rank: consecutive ranks hold one set. */
static inline ls_status split(ls_world *w, const hybrid *h, ls_ddp_config *c)
{
    const int shards = ls_world_size(w) / h->sets, rank = ls_world_rank(w);
    *c = *h->ddp;
    LS_TRY(ls_group_split_named(ls_world_group(w), rank / shards, "shards", &c->shards));
    return ls_group_split_named(ls_world_group(w), rank % shards, "copies", &c->copies);
}

static inline void destroy_sets(ls_ddp_config *c)
{
    ls_group_destroy(c->copies);
    ls_group_destroy(c->shards);
}

#endif
