/* fsdp.c -- ZeRO: each rank owns rows of every parameter, and stores optimizer state for its own rows only (shard.h
 * shows the memory layout).
 *
 *   stage 1   every rank stores all gradients and all values
 *   stage 2   a rank stores reduced gradients of its own rows, and all gradients of two units at a time (slots.h)
 *   stage 3   in addition, each node stores one copy of the values, in which each rank updates its own rows
 *             (LS_ZERO_COPY_HOST); or a rank gathers the values of the unit in use (LS_ZERO_COPY_RANK, gathered.h)
 *
 * Traffic per rank, where P is the bytes of the parameters in f32 (all_reduce, in DDP, has 2 P (W - 1) / W):
 *
 *   backward      reduce_scatter   P (W - 1) / W, from stage 2 on per micro-batch unless ls_ddp_config.reduce_last
 *   after a step  all_gather       stages 1 and 2: P (W - 1) / W, half of it in bf16
 *                                 LS_ZERO_COPY_HOST on N nodes: P (N - 1) / W, half of it in bf16, between the ranks
 *                                 that have the same place on their nodes; on one node nothing
 *   each unit     all_gather       LS_ZERO_COPY_RANK: P (W - 1) / W, once before forward and once before backward
 *
 * With hybrid sharding W is the number of shards, and the sums of shards are all_reduced between the ranks that hold
 * the same ones (copies.h). If all ranks map each other's memory, a bucket is all_reduced over all ranks instead. Sums
 * then add in ascending rank order, as without shards.
 *
 * Rajbhandari, Rasley, Ruwase and He, "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", 2020.
 */
#include <stdlib.h>

#include "parallel/copies.h"
#include "parallel/gathered.h"
#include "parallel/shard.h"
#include "parallel/slots.h"

/* ls_ddp.mine */
typedef struct fsdp {
    ls_slots *slots;     /* NULL: this rank stores all gradients */
    ls_gathered *values; /* NULL: all values have memory */
    ls_copies *copies;   /* NULL: nobody else holds this rank's shard, or buckets are all_reduced over all ranks */
    bool one_copy;
} fsdp;

static ls_status lend(ls_ddp *d, const ls_param *p, float **out)
{
    const fsdp *f = d->mine;
    *out = ls_slots_lend(f->slots, d, p);
    return LS_OK;
}

/* Sums are complete within a set of shards first, then over all sets. */
static bool in_two_steps(const ls_group *g, const ls_ddp_config *c) { return c->copies && !ls_group_is_mapped(g); }

static bool keeps_own(const ls_ddp_config *c) { return c->zero_stage >= 2 && !c->reduce_last; }

static ls_shard_values values_of(const ls_ddp_config *c)
{
    return c->zero_stage < 3 ? LS_SHARD_EACH : c->copy == LS_ZERO_COPY_RANK ? LS_SHARD_GATHERED : LS_SHARD_ONE_COPY;
}

/* Buckets end at unit boundaries if units take turns in memory for gradients or for values. */
static ls_shard_how how_of(const ls_group *g, const ls_ddp_config *c)
{
    return (ls_shard_how){ .values = values_of(c),
                           .nodes = c->column != NULL,
                           .at_units = keeps_own(c) || values_of(c) == LS_SHARD_GATHERED,
                           .lends = keeps_own(c),
                           .sums_all = c->copies && !in_two_steps(g, c),
                           .grads = keeps_own(c) || in_two_steps(g, c) ? ls_slots_bind : NULL,
                           .lend = keeps_own(c) ? lend : NULL };
}

static ls_status bind(ls_group *g, ls_params *ps, const ls_ddp_config *c, ls_dtype dtype, ls_arena *own)
{
    const ls_shard_how how = how_of(g, c);
    const ls_status st = ls_shard_bind(&how, g, ps, c, dtype, own);
    if (st != LS_UNSUPPORTED || how.values != LS_SHARD_ONE_COPY) return st;
    return ls_while(st, "storing one copy of the parameters per node (zero.copy rank, LS_ZERO_COPY_RANK, needs no shared memory)");
}

/* Reduced gradients of own rows go where the optimizer reads them, side by side. */
static void sum_apart(ls_ddp *d)
{
    for (int k = 0; k < d->nbuckets; k++) d->b[k].sums = d->ps->item[d->b[k].param[0]].dmaster;
}

static ls_status place(ls_ddp *d)
{
    const ls_shard_how how = how_of(d->g, &d->c);
    if (d->c.prefetch < 0) return ls_fail(LS_BAD_CONFIG, "prefetch is %d: expected 0 or more units", d->c.prefetch);
    fsdp *f = d->mine = calloc(1, sizeof *f);
    if (!f) return ls_fail(LS_NO_MEMORY, "fsdp");
    f->one_copy = how.values == LS_SHARD_ONE_COPY;
    LS_TRY(ls_shard_place(&how, d));
    d->forwards_meet = how.values == LS_SHARD_GATHERED;
    if (d->forwards_meet) LS_TRY(ls_gathered_create(d, &f->values));
    if (in_two_steps(d->g, &d->c)) LS_TRY(ls_copies_create(d, &f->copies));
    if (f->copies && !keeps_own(&d->c)) sum_apart(d);
    if (!keeps_own(&d->c)) return LS_OK;
    d->lends = d->every_backward = true;
    return ls_slots_create(d, &f->slots);
}

/* --- a step ----------------------------------------------------------------------------------------- */

/* Whether a further backward cannot add to a gradient. After a reduction in place only this rank's rows are sums. With
 * slots the sums have memory of their own; but sums over several sets cannot take in those of one set. */
static bool is_final(const fsdp *f, const ls_param *p)
{
    if (f->slots) return f->copies && p->dmaster_ready && p->t.grad_reduced;
    return (p->t.grad_ready && p->t.grad_reduced) || p->dmaster_ready; /* another chunk may have begun its own sum */
}

static ls_status check_unused(const ls_ddp *d)
{
    const fsdp *f = d->mine;
    for (int i = 0; d->state == LS_DP_CURRENT && i < d->ps->n; i++)
        if (is_final(f, &d->ps->item[i]))
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
    const fsdp *f = d->mine;
    if (f->slots) ls_slots_begin(f->slots, d);
    return LS_OK;
}

static ls_status on_unit(void *arg, const ls_unit *u, ls_unit_when when)
{
    ls_ddp *d = arg;
    const fsdp *f = d->mine;
    const bool backward = when == LS_UNIT_ENTER_BACKWARD || when == LS_UNIT_LEAVE_BACKWARD;
    const bool enters = when == LS_UNIT_ENTER || when == LS_UNIT_ENTER_BACKWARD;
    if (f->values && enters) LS_TRY(ls_gathered_enter(f->values, u, backward));
    const bool returns = d->state == LS_DP_SYNC || d->state == LS_DP_LOCAL;
    if (f->values && !enters) ls_gathered_leave(f->values, u, backward, returns);
    return f->slots && when == LS_UNIT_ENTER_BACKWARD ? ls_slots_enter(f->slots, d, u) : LS_OK;
}

/* The gradients that backward wrote are used up. */
static void take_sums(const ls_ddp *d, const ls_bucket *b)
{
    for (int i = 0; i < b->nparams; i++) {
        ls_param *p = &d->ps->item[b->param[i]];
        p->dmaster_ready = true;
        p->t.grad_ready = false;
    }
}

static ls_status arrived(ls_ddp *d, int k)
{
    const fsdp *f = d->mine;
    if (f->slots) LS_TRY(ls_slots_arrived(d, k));
    else if (f->copies) take_sums(d, &d->b[k]);
    return f->copies && d->last ? ls_copies_start(f->copies, k) : LS_OK;
}

/* Between two operations of backward: a bucket whose sums are complete within this set travels on to the others. */
static ls_status progress(void *arg)
{
    ls_ddp *d = arg;
    const fsdp *f = d->mine;
    LS_TRY(ls_buckets_progress(d));
    if (!f->copies) return LS_OK;
    while (d->waited < d->next && ls_work_test(d->b[d->waited].work) == LS_OK) LS_TRY(ls_buckets_wait_one(d));
    return LS_OK;
}

/* The barrier keeps any rank's optimizer from changing a copy while another rank's backward reads it. */
static ls_status done(void *arg)
{
    ls_ddp *d = arg;
    const fsdp *f = d->mine;
    const bool reduces = d->state == LS_DP_PENDING;
    LS_TRY(ls_buckets_done(d));
    if (f->copies) LS_TRY(ls_copies_finish(f->copies));
    return reduces && d->state == LS_DP_REDUCED && d->last && f->one_copy ? ls_barrier(ls_dp_node(d->g, &d->c)) : LS_OK;
}

/* A rank's collectives between nodes write to its node's copy rows that no rank of the node updates. After the barrier
 * the copy has all new values. */
static ls_status after_step(ls_ddp *d)
{
    const fsdp *f = d->mine;
    if (f->values) return ls_gathered_expire(f->values);
    LS_TRY(ls_buckets_gather(d));
    return f->one_copy ? ls_barrier(ls_dp_node(d->g, &d->c)) : LS_OK;
}

static ls_status whole(ls_ddp *d, const ls_param *p, const float **out)
{
    const ls_shard_how how = how_of(d->g, &d->c);
    return ls_shard_whole(&how, d, p, out);
}

/* A backward has failed, and ranks may have got a different number of buckets on their way to the other sets: after
 * this all have the same ones in flight. */
static void start_rest(const ls_ddp *d, const fsdp *f)
{
    for (int k = d->waited; f->copies && d->state == LS_DP_PENDING && d->last && k < d->next; k++)
        (void)ls_copies_start(f->copies, k);
}

static void destroy(ls_ddp *d)
{
    fsdp *f = d->mine;
    if (!f) return;
    start_rest(d, f);
    ls_slots_destroy(f->slots);
    ls_gathered_destroy(f->values);
    ls_copies_destroy(f->copies);
    free(f);
}

const ls_dp_strategy ls_dp_fsdp = {
    .name = "fsdp", .first_stage = 1, .last_stage = 3, .shards = true,
    .order = "last parameters first: each rank updates its shard",
    .bind = bind, .place = place,
    .events = { .unit = on_unit, .grad_ready = ls_buckets_grad_ready, .progress = progress, .done = done },
    .begin_forward = begin_forward, .arrived = arrived, .after_step = after_step, .whole = whole, .destroy = destroy,
};
