/* join.c -- uneven inputs: a rank whose inputs have ended takes part in the collectives of the others until theirs end,
 * too. It mirrors a forward and a backward without computing them, and contributes zeros.
 *
 *   every forward          all_reduce of two words: ranks that still have inputs, and those that reduce this backward
 *   a joined rank, then    what begin_forward calls; if the backward is reduced, an all_reduce of zeros per bucket
 *   after the last input   all ranks get the values of the rank that had inputs longest; of several, the largest rank
 *
 * PyTorch's torch.distributed.algorithms.Join.
 */
#include "parallel/join.h"

#include <stdlib.h>
#include <string.h>

#include "parallel/unused.h"

struct ls_join {
    ls_join_config c;
    int active;    /* ranks that take part in this forward with inputs of their own */
    bool mirrored; /* this rank has joined before the others */
};

ls_status ls_ddp_join_begin(ls_ddp *d, const ls_join_config *c)
{
    if (d->join) return ls_fail(LS_INVALID, "ls_ddp_join_begin: it was called before; call ls_ddp_join_end when this rank's inputs end");
    if (d->strategy->shards)
        return ls_fail(LS_UNSUPPORTED, "ls_ddp_join_begin with zero_stage %d: expected zero_stage 0", d->c.zero_stage);
    if (d->hook) return ls_fail(LS_UNSUPPORTED, "ls_ddp_join_begin with a communication hook: a joined rank cannot mirror what a hook calls");
    d->join = calloc(1, sizeof *d->join);
    if (!d->join) return ls_fail(LS_NO_MEMORY, "ls_ddp_join_begin");
    *d->join = (ls_join){ .c = c ? *c : (ls_join_config){ 0 }, .active = ls_group_size(d->g) };
    return LS_OK;
}

int ls_join_divisor(const ls_ddp *d)
{
    return d->join && d->join->c.divide_by_active ? d->join->active : ls_group_size(d->g);
}

/* Tells the others, and hears from them: *active, ranks with inputs; *syncing, those of them that reduce this backward. */
static ls_status tell(ls_ddp *d, bool active, bool sync, int *syncing)
{
    int32_t word[2] = { active, sync };
    const ls_coll_args a = { .coll = LS_ALL_REDUCE, .out = word, .count = 2, .dtype = LS_I32, .op = LS_SUM, .label = "join" };
    ls_work *work;
    LS_TRY(ls_coll_start(d->g, &a, &work));
    LS_TRY(ls_work_wait(work));
    d->join->active = word[0];
    *syncing = word[1];
    return LS_OK;
}

ls_status ls_join_forward(ls_ddp *d, bool sync)
{
    int syncing;
    LS_TRY(tell(d, true, sync, &syncing));
    if (d->join->active < ls_group_size(d->g) && d->join->c.stop_together)
        return ls_fail(LS_INVALID, "join: the inputs of %d of %d ranks have ended, and stop_together is set", ls_group_size(d->g) -
                       d->join->active, ls_group_size(d->g));
    if (syncing == (sync ? d->join->active : 0)) return LS_OK;
    return ls_fail(LS_INVALID, "join: %d of %d ranks reduce this backward: expected all of them or none (sync of ls_ddp_begin_forward)",
                   syncing, d->join->active);
}

/* --- a rank that has joined ---------------------------------------------------------------------------- */

/* A reduced backward that contributes zeros. */
static ls_status mirror_backward(ls_ddp *d)
{
    ls_buckets_begin(d);
    d->state = LS_DP_PENDING;
    d->last = true;
    for (int i = 0; i < d->ps->n; i++) {
        const ls_param *p = &d->ps->item[i];
        if (!d->dry) memset(p->grad.data, 0, ls_tensor_nbytes(&p->t));
        ls_buckets_count_ready(d, i);
    }
    return ls_buckets_done(d);
}

static ls_status mirror(ls_ddp *d, int syncing)
{
    LS_TRY(ls_dp_before_forward(d));
    d->last = syncing > 0;
    if (syncing > 0) LS_TRY(mirror_backward(d));
    d->state = LS_DP_CURRENT;
    return LS_OK;
}

/* The rank that has trained longest gives its values to all. */
static ls_status take_last(ls_ddp *d)
{
    int32_t from = d->join->mirrored ? -1 : ls_group_rank(d->g);
    LS_TRY(ls_all_reduce(d->g, NULL, &from, 1, LS_I32, LS_MAX));
    for (int i = 0; i < d->ps->n; i++) {
        const ls_param *p = &d->ps->item[i];
        LS_TRY(ls_broadcast(d->g, p->t.data, (size_t)ls_tensor_count(&p->t), LS_F32, from));
    }
    ls_params_round(d->ps);
    return ls_dp_sync_buffers(d, from);
}

static ls_status join_all(ls_ddp *d)
{
    int syncing;
    for (;;) {
        LS_TRY(tell(d, false, false, &syncing));
        if (d->join->active == 0) break;
        if (d->join->c.stop_together)
            return ls_fail(LS_INVALID, "join: the inputs of rank %d have ended before those of %d others, and stop_together is set",
                           ls_group_rank(d->g), d->join->active);
        d->join->mirrored = true;
        LS_TRY(mirror(d, syncing));
    }
    return take_last(d);
}

ls_status ls_ddp_join_end(ls_ddp *d)
{
    if (!d->join) return ls_fail(LS_INVALID, "ls_ddp_join_end: call ls_ddp_join_begin before the first forward of uneven inputs");
    const ls_status st = join_all(d);
    ls_params_zero_grad(d->ps);
    free(d->join);
    d->join = NULL;
    return st;
}
