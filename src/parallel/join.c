/* join.c -- uneven inputs: a rank whose inputs have ended takes part in the collectives of the others until theirs end,
 * too. It mirrors a forward and a backward without computing them, and contributes zeros.
 *
 *   every forward          all_gather of a byte: which ranks still have inputs, and whether they reduce this backward
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
    bool mirrored; /* this rank has joined before the others */
};

ls_status ls_ddp_join_begin(ls_ddp *d, const ls_join_config *c)
{
    if (d->join) return ls_fail(LS_INVALID, "ls_ddp_join_begin: it was called before; call ls_ddp_join_end when this rank's inputs end");
    if (d->strategy->shards)
        return ls_fail(LS_UNSUPPORTED, "ls_ddp_join_begin with zero_stage %d: expected zero_stage 0", d->c.zero_stage);
    if (d->c.static_graph)
        return ls_fail(LS_UNSUPPORTED, "ls_ddp_join_begin with static_graph: a rank without inputs has no graph: set find_unused");
    if (d->c.tree)
        return ls_fail(LS_UNSUPPORTED, "ls_ddp_join_begin with ls_ddp_config.tree: its sums need every rank in every backward");
    if (d->hook) return ls_fail(LS_UNSUPPORTED, "ls_ddp_join_begin with a communication hook: a joined rank cannot mirror what a hook calls");
    d->join = calloc(1, sizeof *d->join);
    if (!d->join) return ls_fail(LS_NO_MEMORY, "ls_ddp_join_begin");
    *d->join = (ls_join){ .c = c ? *c : (ls_join_config){ 0 } };
    return LS_OK;
}

/* What ranks tell each other before a forward. */
enum { JOINED, ACTIVE, SYNCING };

typedef struct heard {
    int active, syncing; /* ranks that have inputs; those of them that reduce this backward */
    int from;            /* the largest of the active ranks */
} heard;

static ls_status tell(ls_ddp *d, uint8_t mine, heard *out)
{
    const int size = ls_group_size(d->g), rank = ls_group_rank(d->g);
    uint8_t *all = calloc((size_t)size, 1);
    *out = (heard){ 0 };
    if (!all) return ls_fail(LS_NO_MEMORY, "what %d ranks tell", size);
    for (int r = 0; r < size; r++) all[r] = r == rank || d->dry ? mine : JOINED;
    const ls_coll_args a = { .coll = LS_ALL_GATHER, .out = all, .count = (size_t)size, .dtype = LS_U8, .label = "join" };
    ls_work *work;
    ls_status st = ls_coll_start(d->g, &a, &work);
    if (st == LS_OK) st = ls_work_wait(work);
    for (int r = 0; st == LS_OK && r < size; r++) {
        out->active += all[r] != JOINED;
        out->syncing += all[r] == SYNCING;
        if (all[r] != JOINED) out->from = r;
    }
    free(all);
    LS_TRY(st);
    d->divisor = d->join->c.divide_by_active && out->active ? out->active : size;
    if (out->syncing == 0 || out->syncing == out->active) return LS_OK;
    return ls_fail(LS_INVALID, "join: %d of %d ranks reduce this backward: expected all of them or none (sync of ls_ddp_begin_forward)",
                   out->syncing, out->active);
}

ls_status ls_join_forward(ls_ddp *d, bool sync, int *from)
{
    heard h;
    const int size = ls_group_size(d->g);
    LS_TRY(tell(d, sync ? SYNCING : ACTIVE, &h));
    *from = h.active < size ? h.from : 0;
    if (h.active == size || !d->join->c.stop_together) return LS_OK;
    return ls_fail(LS_INVALID, "join: the inputs of %d of %d ranks have ended, and stop_together is set", size - h.active, size);
}

/* --- a rank that has joined ---------------------------------------------------------------------------- */

/* A reduced backward that contributes zeros. */
static ls_status mirror_backward(ls_ddp *d)
{
    ls_buckets_begin(d);
    if (d->unused) ls_unused_forget(d);
    d->state = LS_DP_PENDING;
    d->last = true;
    for (int i = 0; i < d->ps->n; i++) {
        const ls_param *p = &d->ps->item[i];
        if (!d->dry) memset(p->grad.data, 0, ls_tensor_nbytes(&p->t));
        ls_buckets_count_ready(d, i);
    }
    return ls_buckets_done(d);
}

static ls_status mirror(ls_ddp *d, const heard *h)
{
    LS_TRY(ls_dp_before_forward(d, h->from));
    d->last = h->syncing > 0;
    if (h->syncing > 0) LS_TRY(mirror_backward(d));
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
    if (!d->dry) ls_params_round(d->ps);
    return ls_dp_sync_buffers(d, from);
}

static ls_status join_all(ls_ddp *d)
{
    heard h;
    for (;;) {
        LS_TRY(tell(d, JOINED, &h));
        if (h.active == 0) break;
        if (d->join->c.stop_together)
            return ls_fail(LS_INVALID, "join: the inputs of rank %d have ended before those of %d others, and stop_together is set",
                           ls_group_rank(d->g), h.active);
        d->join->mirrored = true;
        LS_TRY(mirror(d, &h));
    }
    return take_last(d);
}

ls_status ls_ddp_join_end(ls_ddp *d)
{
    if (d->state == LS_DP_PENDING)
        return ls_fail(LS_INVALID, "ls_ddp_join_end: the last backward has not given all gradients on rank %d", ls_group_rank(d->g));
    if (!d->join) return ls_fail(LS_INVALID, "ls_ddp_join_end: call ls_ddp_join_begin before the first forward of uneven inputs");
    const ls_status st = join_all(d);
    ls_params_zero_grad(d->ps);
    free(d->join);
    d->join = NULL;
    d->divisor = ls_group_size(d->g);
    return st;
}
