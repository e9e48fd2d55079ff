/* copies.c -- sums of shards, added up over the ranks that hold the same shard. */
#include "parallel/copies.h"

#include <stdlib.h>

struct ls_copies {
    ls_ddp *d;         /* borrowed */
    ls_work **work;    /* owned: [nbuckets], in the order in which they were started */
    int started, done; /* so many of them, in this backward */
};

ls_status ls_copies_create(ls_ddp *d, ls_copies **out)
{
    ls_copies *x = *out = calloc(1, sizeof *x);
    if (x) x->work = calloc((size_t)d->nbuckets, sizeof *x->work);
    if (!x || !x->work) return ls_fail(LS_NO_MEMORY, "%d buckets of hybrid sharding", d->nbuckets);
    x->d = d;
    return LS_OK;
}

static ls_status wait_one(ls_copies *x)
{
    ls_work *work = x->work[x->done];
    x->work[x->done++] = NULL;
    return ls_work_wait(work);
}

ls_status ls_copies_start(ls_copies *x, int k)
{
    const ls_ddp *d = x->d;
    const ls_bucket *b = &d->b[k];
    size_t count = 0;
    for (int i = 0; i < b->nparams; i++) count += d->ps->item[b->param[i]].own.count;
    if (count == 0) return LS_OK; /* on all ranks that hold this shard */
    while (x->started - x->done >= LS_BUCKETS_IN_FLIGHT) LS_TRY(wait_one(x));
    const ls_coll_args a = { .coll = LS_ALL_REDUCE, .dtype = LS_F32, .op = d->c.tree ? LS_SUM_TREE : LS_SUM,
                             .count = count, .bucket = 1 + k, .label = b->label,
                             .out = d->ps->item[b->param[0]].dmaster };
    LS_TRY(ls_coll_start(d->c.copies, &a, &x->work[x->started]));
    x->started++;
    return LS_OK;
}

ls_status ls_copies_finish(ls_copies *x)
{
    ls_status st = LS_OK;
    while (x->done < x->started) {
        const ls_status one = wait_one(x);
        if (st == LS_OK) st = one;
    }
    x->started = x->done = 0;
    return st;
}

void ls_copies_destroy(ls_copies *x)
{
    if (!x) return;
    if (x->work) (void)ls_copies_finish(x); /* peers may still be reading */
    free(x->work);
    free(x);
}
