/* fsdp.c -- ZeRO's first stage: each rank owns a shard of every parameter, and has the optimizer's state for it alone.
 * Gradients and values are whole on every rank; shard.h says how they lie.
 *
 *   backward      reduce_scatter   4 (W - 1) / W bytes per element and rank, where all_reduce has twice that
 *   after a step  all_gather       the same of what ops read in float, half of it in bf16
 *
 * Rajbhandari, Rasley, Ruwase and He, "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", 2020.
 */
#include "parallel/shard.h"

static const ls_shard_how how = { 0 };

static ls_status bind(ls_group *g, ls_params *ps, const ls_ddp_config *c, ls_dtype dtype, ls_arena *own)
{
    return ls_shard_bind(&how, g, ps, c, dtype, own);
}

static ls_status place(ls_ddp *d) { return ls_shard_place(&how, d); }

static ls_status begin_forward(ls_ddp *d)
{
    if (d->state == LS_DP_REDUCED)
        return ls_fail(LS_INVALID,
                       "zero_stage %d: ls_ddp_after_step was not called after the last backward that "
                       "reduced: ranks have only the values that they have updated themselves",
                       d->c.zero_stage);
    for (int i = 0; d->state == LS_DP_CURRENT && i < d->ps->n; i++)
        if (d->ps->item[i].t.grad_ready)
            return ls_fail(LS_INVALID,
                           "zero_stage %d: the gradient of %s is reduced, and no more than this rank's share of it is "
                           "a sum: nothing can be added to it; call ls_optim_step or ls_params_zero_grad first",
                           d->c.zero_stage, d->ps->item[i].name);
    return LS_OK;
}

static ls_status whole(ls_ddp *d, const ls_param *p, const float **out) { return ls_shard_whole(&how, d, p, out); }

const ls_dp_strategy ls_dp_fsdp = {
    .name = "fsdp", .first_stage = 1, .last_stage = 1, .shards = true,
    .order = "last parameters first: each rank updates its shard",
    .bind = bind, .place = place,
    .events = { .grad_ready = ls_buckets_grad_ready, .progress = ls_buckets_progress, .done = ls_buckets_done },
    .begin_forward = begin_forward, .after_step = ls_buckets_gather, .whole = whole,
};
