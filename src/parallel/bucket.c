/* bucket.c -- where the gradients of a bucket lie, and when it starts. assign.c: which they are. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "coll/reduce.h"
#include "parallel/hook.h"
#include "parallel/partial.h"
#include "parallel/unused.h"

#define FIRST_BUCKET ((size_t)1 << 20)
#define BUCKET_CAP ((size_t)25 << 20)
#define POKE_NS 50000u

ls_ddp_config ls_ddp_defaults(const ls_ddp_config *c)
{
    ls_ddp_config d = c ? *c : (ls_ddp_config){ 0 };
    if (d.first_bucket == 0) d.first_bucket = FIRST_BUCKET;
    if (d.bucket_cap == 0) d.bucket_cap = BUCKET_CAP;
    return d;
}

/* --- who counts ----------------------------------------------------------------------------------- */

void ls_dp_keep(ls_params *ps, int rank, int size)
{
    const int64_t all = ls_params_count(ps);
    int64_t before = 0;
    for (int i = 0; i < ps->n; i++) {
        ls_param *p = &ps->item[i];
        const bool mine = before * size / all == rank;
        p->keeps = mine ? p->own : (ls_range){ 0, 0 };
        before += ls_tensor_count(&p->t);
    }
}

/* --- where --------------------------------------------------------------------------------------- */

ls_status ls_buckets_alloc(ls_group *g, const ls_params *ps, char **grads)
{
    void *p = NULL;
    size_t n = 0; /* enough for any assignment: every bucket ends at a multiple of size cache lines */
    const size_t padding = (size_t)ls_group_size(g) * LS_BUCKET_ALIGN;
    for (int i = 0; i < ps->n; i++) n += ls_bucket_param_bytes(&ps->item[i]) + padding;
    ls_status st = ls_alloc(ls_group_world(g), n, LS_MEM_GRAD, &p);
    *grads = p;
    for (int i = 0; st >= 0 && i < ps->n; i++) { /* where each will lie is not known, how much it takes is */
        st = ls_assign(ls_group_world(g), p, ls_tensor_nbytes(&ps->item[i].t), ps->item[i].unit);
        p = (char *)p + ls_bucket_param_bytes(&ps->item[i]);
    }
    if (st >= 0) return LS_OK;
    return ls_while(st, "placing the gradients of %d parameters, of which %s is the largest", ps->n, ls_params_largest(ps)->name);
}

void ls_buckets_free(ls_ddp *d)
{
    for (int i = 0; i < d->nbuckets; i++) {
        free(d->b[i].param);
        free(d->b[i].at);
        free(d->b[i].span);
    }
    for (int i = 0; i < d->ngathers; i++) {
        free((void *)(uintptr_t)d->gather[i].call.span);
        free(d->gather[i].part);
    }
    free(d->b);
    free(d->gather);
    d->b = NULL;
    d->gather = NULL;
    d->nbuckets = d->ngathers = 0;
}

static ls_status make_one(ls_ddp *d, int k, const int *order, const int *number)
{
    const ls_params *ps = d->ps;
    ls_bucket *b = &d->b[k];
    size_t used = 0;
    snprintf(b->label, sizeof b->label, "bucket %d", k);
    b->param = malloc((size_t)ps->n * sizeof *b->param);
    b->at = malloc((size_t)ps->n * sizeof *b->at);
    if (!b->param || !b->at) return ls_fail(LS_NO_MEMORY, "a bucket of %d parameters", ps->n);
    b->reduce = LS_ALL_REDUCE;
    for (int i = 0; i < ps->n; i++) {
        if (number[i] != k) continue;
        const ls_param *p = &ps->item[order[i]];
        b->at[b->nparams] = used / sizeof(float);
        b->param[b->nparams++] = order[i];
        b->nbytes += ls_tensor_nbytes(&p->t);
        d->bucket_of[order[i]] = k;
        used += ls_bucket_param_bytes(p);
    }
    b->count = ls_bucket_bytes(used, ls_group_size(d->g)) / sizeof(float);
    return LS_OK;
}

ls_status ls_buckets_make(ls_ddp *d, const int *order, const int *number, int nbuckets)
{
    ls_buckets_free(d);
    d->b = calloc((size_t)nbuckets, sizeof *d->b);
    if (!d->b) return ls_fail(LS_NO_MEMORY, "%d buckets", nbuckets);
    d->nbuckets = nbuckets;
    for (int k = 0; k < nbuckets; k++) LS_TRY(make_one(d, k, order, number));
    return LS_OK;
}

void ls_buckets_put(ls_ddp *d, int k, float *data)
{
    ls_bucket *b = &d->b[k];
    b->data = data;
    ls_bucket_point(d, b);
    for (int i = 0; i < b->nparams; i++) d->ps->item[b->param[i]].t.grad = &d->ps->item[b->param[i]].grad;
}

ls_status ls_buckets_place(ls_ddp *d, const int *order, const int *number, int nbuckets)
{
    float *const grads = (float *)(void *)d->grads;
    size_t at = 0;
    LS_TRY(ls_buckets_make(d, order, number, nbuckets));
    for (int k = 0; k < nbuckets; at += d->b[k++].count) ls_buckets_put(d, k, grads + at);
    if (!d->dry) memset(grads, 0, at * sizeof *grads); /* padding takes part in the sums */
    return LS_OK;
}

void ls_buckets_limit(ls_ddp *d, size_t first_bucket, size_t bucket_cap, bool overlap)
{
    d->c.first_bucket = first_bucket;
    d->c.bucket_cap = bucket_cap;
    d->c.no_overlap = !overlap;
    d->narrived = 0;
}

ls_status ls_bucket_lend(const ls_param *p, int rank, float **out)
{
    *out = p->grad.data;
    if (!p->t.grad_ready) return LS_OK;
    return ls_fail(LS_INVALID,
                   "the values of %s on rank %d: its gradient would be overwritten, and no optimizer's step has used it: "
                   "call ls_optim_step or ls_params_zero_grad first",
                   p->name, rank);
}

/* --- when --------------------------------------------------------------------------------------------- */

static ls_status wait_for(ls_work **w)
{
    ls_work *work = *w;
    *w = NULL;
    return ls_work_wait(work);
}

ls_status ls_buckets_wait_one(ls_ddp *d)
{
    const int k = d->waited++;
    const ls_bucket *b = &d->b[k];
    if (b->work) LS_TRY(wait_for(&d->b[k].work)); /* a hook may have none */
    if (d->hook) LS_TRY(ls_hook_finish(d, k));
    /* Of the step's last backward: an optimizer may use it. */
    for (int i = 0; i < b->nparams; i++) d->ps->item[b->param[i]].t.grad_reduced = d->last;
    return d->strategy->arrived ? d->strategy->arrived(d, k) : LS_OK;
}

void ls_buckets_begin(ls_ddp *d)
{
    d->next = d->waited = 0;
    for (int k = 0; k < d->nbuckets; k++) d->b[k].nready = 0;
    memset(d->ready, 0, (size_t)d->ps->n * sizeof *d->ready);
    if (d->narrived > 0) d->narrived = 0;
}

LS_KERNEL static void divide(float *x, size_t n, float by)
{
    for (size_t i = 0; i < n; i++) x[i] /= by;
}

/* Over connections, all_reduces alternate between two groups: one bucket crosses while ranks of a node sum another. */
static ls_group *group_of(const ls_ddp *d, const ls_bucket *b)
{
    if (b->reduce == LS_REDUCE_SCATTER) return d->shards;
    return d->second && d->next % 2 == 1 ? d->second : d->g;
}

/* Starts the reduction of the bucket whose turn it is. */
static ls_status launch(ls_ddp *d, ls_bucket *b)
{
    while (d->next - d->waited >= LS_BUCKETS_IN_FLIGHT) LS_TRY(ls_buckets_wait_one(d));
    if (d->hook) return ls_hook_start(d, d->next);
    /* Both ways scale before the sum, as PyTorch does; they round differently unless W is a power of two. */
    const int by = d->divisor;
    ls_group *const g = group_of(d, b);
    const bool scaled = !d->c.tree && (d->c.bucket_view || by != ls_group_size(g));
    if (scaled && d->c.bucket_view && !d->dry) divide(b->data, b->count, (float)by);
    else if (scaled && !d->dry) ls_scale_values(b->data, b->count, LS_F32, 1.0 / by);
    const ls_coll_args a = { .coll = b->reduce,
                             .in = b->sums ? b->data : NULL,
                             .out = b->sums ? b->sums : b->data,
                             .count = b->count,
                             .span = b->span,
                             .nspans = b->span ? b->nparams : 0,
                             .dtype = LS_F32,
                             .op = d->c.tree ? LS_SUM_TREE : scaled ? LS_SUM : LS_AVG,
                             .bucket = 1 + d->next,
                             .label = b->label };
    return ls_coll_start(g, &a, &b->work);
}

/* The last gradient of a bucket starts it, unless an earlier bucket is not full yet. */
static ls_status reduce_full(ls_ddp *d)
{
    while (d->next < d->nbuckets && d->b[d->next].nready == d->b[d->next].nparams) {
        LS_TRY(launch(d, &d->b[d->next]));
        d->next++;
    }
    return LS_OK;
}

static ls_status wait_for_all(ls_ddp *d)
{
    while (d->waited < d->next) LS_TRY(ls_buckets_wait_one(d));
    return LS_OK;
}

ls_status ls_buckets_grad_ready(void *arg, ls_tensor *t)
{
    ls_ddp *d = arg;
    ls_params *ps = d->ps;
    uintptr_t first = (uintptr_t)&ps->item[0].t, p = (uintptr_t)t;
    if (p < first || p > (uintptr_t)&ps->item[ps->n - 1].t) return LS_OK; /* a leaf of somebody else */
    int i = (int)((p - first) / sizeof(ls_param));
    if (d->unused) LS_TRY(ls_unused_reached(d, i));
    if (d->partial) ls_partial_grad_ready(d, i);
    if (d->state == LS_DP_LOCAL || d->state == LS_DP_IDLE) return LS_OK; /* not announced: it stays on this rank */
    if (d->ready[i])
        return ls_fail(LS_INVALID,
                       "Expected to mark a variable ready only once: parameter %d (%s) got its gradient twice "
                       "in one backward; call ls_ddp_begin_forward before every forward",
                       i, ps->item[i].name);
    const bool begins = d->state == LS_DP_SYNC;
    d->state = LS_DP_PENDING;
    ls_buckets_count_ready(d, i);
    if (begins && d->unused) LS_TRY(ls_unused_mark(d));
    if (d->c.no_overlap && !d->lends) return LS_OK;
    LS_TRY(reduce_full(d));
    return d->c.no_overlap ? wait_for_all(d) : LS_OK;
}

ls_status ls_buckets_progress(void *arg)
{
    ls_ddp *d = arg;
    return ls_progress(ls_group_world(d->g), POKE_NS);
}

ls_status ls_buckets_done(void *arg)
{
    ls_ddp *d = arg;
    if (d->state == LS_DP_SYNC && d->unused) { /* it has reached no parameter at all: other ranks may have */
        d->state = LS_DP_PENDING;
        LS_TRY(ls_unused_mark(d));
    }
    if (d->state != LS_DP_PENDING) return LS_OK;
    LS_TRY(reduce_full(d)); /* without overlap this is where all of them start */
    LS_TRY(wait_for_all(d));
    /* Else the optimizer's step, or the next forward, says what is missing. */
    if (d->next < d->nbuckets) return LS_OK;
    if (d->unused) LS_TRY(ls_unused_settle(d));
    d->state = LS_DP_REDUCED;
    return LS_OK;
}

ls_status ls_buckets_gather(ls_ddp *d)
{
    ls_status st = LS_OK;
    int oldest = 0; /* of those in flight */
    for (int k = 0; st == LS_OK && k < d->ngathers; k++) {
        while (st == LS_OK && k - oldest >= LS_BUCKETS_IN_FLIGHT) st = wait_for(&d->gather[oldest++].work);
        if (st == LS_OK) st = ls_coll_start(d->gathers_in, &d->gather[k].call, &d->gather[k].work);
    }
    while (oldest < d->ngathers) {
        const ls_status one = wait_for(&d->gather[oldest++].work);
        if (st == LS_OK) st = one;
    }
    return st;
}
