/* fsdp.c -- ZeRO: each rank owns rows of every parameter, and has the optimizer's state for them alone (shard.h says how
 * they lie).
 *
 *   stage 1   gradients and values are whole on every rank
 *   stage 2   of gradients a rank keeps the sums of its own rows; two units at a time are whole (slots.h)
 *   stage 3   and what ops read stands once on the host, for all ranks: a rank updates its own rows there
 *
 *   backward      reduce_scatter   4 (W - 1) / W bytes per element and rank, where all_reduce has twice that; from stage
 *                                  2 on for each micro-batch, unless ls_ddp_config.reduce_last
 *   after a step  all_gather       the same of what ops read in float, half of it in bf16; with stage 3 nothing
 *
 * Rajbhandari, Rasley, Ruwase and He, "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", 2020.
 */
#include "parallel/shard.h"
#include "parallel/slots.h"

static ls_status lend(ls_ddp *d, const ls_param *p, float **out)
{
    *out = ls_slots_lend(d->mine, d, p);
    return LS_OK;
}

static bool keeps_own(const ls_ddp_config *c) { return c->zero_stage >= 2 && !c->reduce_last; }
static bool has_one_copy(const ls_ddp_config *c) { return c->zero_stage == 3; }

static const ls_shard_how *how_of(const ls_ddp_config *c)
{
    static const ls_shard_how how[2][2] = {
        { { 0 }, { .at_units = true, .grads = ls_slots_bind, .lend = lend } },
        { { .one_copy = true }, { .one_copy = true, .at_units = true, .grads = ls_slots_bind, .lend = lend } },
    };
    return &how[has_one_copy(c)][keeps_own(c)];
}

static ls_status bind(ls_group *g, ls_params *ps, const ls_ddp_config *c, ls_dtype dtype, ls_arena *own)
{
    const ls_status st = ls_shard_bind(how_of(c), g, ps, c, dtype, own);
    return st == LS_UNSUPPORTED && has_one_copy(c) ? ls_while(st, "sharding parameters with zero_stage 3 (2 works there)") : st;
}

static ls_status place(ls_ddp *d)
{
    ls_slots *s = NULL;
    LS_TRY(ls_shard_place(how_of(&d->c), d));
    if (!keeps_own(&d->c)) return LS_OK;
    d->lends = d->every_backward = true;
    const ls_status st = ls_slots_create(d, &s);
    d->mine = s;
    return st;
}

/* --- a step ----------------------------------------------------------------------------------------- */

/* Sums that are apart from what backward writes can be added to; others can not. */
static ls_status check_unused(const ls_ddp *d)
{
    for (int i = 0; !d->mine && d->state == LS_DP_CURRENT && i < d->ps->n; i++)
        if (d->ps->item[i].t.grad_ready)
            return ls_fail(LS_INVALID,
                           "zero_stage %d: the gradient of %s is reduced, and no more than this rank's share of it is "
                           "a sum: nothing can be added to it; call ls_optim_step or ls_params_zero_grad first",
                           d->c.zero_stage, d->ps->item[i].name);
    return LS_OK;
}

static ls_status begin_forward(ls_ddp *d)
{
    if (d->state == LS_DP_REDUCED && d->last)
        return ls_fail(LS_INVALID,
                       "zero_stage %d: ls_ddp_after_step was not called after the last backward that "
                       "reduced: ranks have only the values that they have updated themselves",
                       d->c.zero_stage);
    LS_TRY(check_unused(d));
    if (d->mine) ls_slots_begin(d->mine, d);
    return LS_OK;
}

static ls_status on_unit(void *arg, const ls_unit *u, ls_unit_when when)
{
    ls_ddp *d = arg;
    return d->mine && when == LS_UNIT_ENTER_BACKWARD ? ls_slots_enter(d->mine, d, u) : LS_OK;
}

static ls_status arrived(ls_ddp *d, int k) { return d->mine ? ls_slots_arrived(d, k) : LS_OK; }

/* Nobody's optimizer changes the one copy while another rank's backward reads it. */
static ls_status done(void *arg)
{
    ls_ddp *d = arg;
    const bool reduces = d->state == LS_DP_PENDING;
    LS_TRY(ls_buckets_done(d));
    return reduces && d->last && has_one_copy(&d->c) ? ls_barrier(d->g) : LS_OK;
}

static ls_status after_step(ls_ddp *d) { return has_one_copy(&d->c) ? ls_barrier(d->g) : ls_buckets_gather(d); }

static ls_status whole(ls_ddp *d, const ls_param *p, const float **out)
{
    return ls_shard_whole(how_of(&d->c), d, p, out);
}

static void destroy(ls_ddp *d) { ls_slots_destroy(d->mine); }

const ls_dp_strategy ls_dp_fsdp = {
    .name = "fsdp", .first_stage = 1, .last_stage = 3, .shards = true,
    .order = "last parameters first: each rank updates its shard",
    .bind = bind, .place = place,
    .events = { .unit = on_unit, .grad_ready = ls_buckets_grad_ready, .progress = ls_buckets_progress, .done = done },
    .begin_forward = begin_forward, .arrived = arrived, .after_step = after_step, .whole = whole, .destroy = destroy,
};
