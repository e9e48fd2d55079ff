/* harness_layout_dry.c -- what a dry world says of a rank: its memory, and the collectives of a steady step. */
#include "harness_layout.h"

#include <stdio.h>

#include "train/comm_log.h"
#include "train/dry.h"

static ls_status count(const ls_recorded *r, ls_layout_group *to)
{
    uint64_t moved;
    LS_TRY(ls_recorded_traffic(r, &moved, NULL));
    to->dry[r->coll].count++;
    to->dry[r->coll].bytes += r->bytes;
    to->dry[r->coll].moved += moved;
    return LS_OK;
}

static ls_status take_down(const ls_train_dry *d, ls_layout_rank *out)
{
    ls_group *group[LS_LAYOUT_GROUPS];
    const ls_recorded *had;
    const int n = ls_world_recorded(d->w, &had);
    out->ngroups = ls_comm_groups(&d->par, group);
    for (int k = 0; k < out->ngroups; k++)
        snprintf(out->group[k].text, sizeof out->group[k].text, "%s", ls_group_text(group[k]));
    for (int i = 0; i < n; i++) {
        int k = 0;
        while (k < out->ngroups && group[k] != had[i].group) k++;
        if (k == out->ngroups)
            return ls_fail(LS_INTERNAL, "a dry step calls %s in group %s, which the rank does not have",
                           ls_coll_name(had[i].coll), ls_group_text(had[i].group));
        LS_TRY(count(&had[i], &out->group[k]));
    }
    return LS_OK;
}

static ls_status take_steps(const ls_train_config *c, ls_train_dry *d)
{
    const int ranks = ls_train_batch_ranks(c, ls_world_size(d->w));
    const int64_t rows = ls_train_micro_batch(c, c->train.global_batch / ranks);
    for (int i = 0; i < LS_LAYOUT_STEADY; i++) {
        ls_world_record_clear(d->w);
        LS_TRY(ls_train_dry_step(c, d, rows));
    }
    return LS_OK;
}

ls_status ls_layout_dry(const ls_train_config *c, const ls_model_config *mc, int rank, int ranks,
                        const int *node, const ls_world_opts *o, ls_layout_rank *out)
{
    ls_train_dry d;
    ls_status st = ls_train_dry_open(c, mc, rank, ranks, node, o, &d);
    if (st == LS_OK) st = take_steps(c, &d);
    if (st == LS_OK) st = take_down(&d, out);
    ls_train_dry_close(&d);
    return st < 0 ? ls_while(st, "rank %d of %d in a dry world", rank, ranks) : LS_OK;
}
