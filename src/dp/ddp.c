/* ddp.c -- DistributedDataParallel: replicas kept in step during backward. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/log.h"
#include "base/text.h"
#include "dp/ddp.h"

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

/* --- layout ------------------------------------------------------------------------ */

static size_t param_bytes(const ls_param *p) { return ls_tensor_nbytes(&p->t); }

size_t ls_ddp_arena_bytes(const ls_params *ps, int size, const ls_ddp_config *c)
{
    (void)c;
    size_t n = 0; /* enough for any assignment: every bucket ends at a multiple of size cache lines */
    for (int i = 0; i < ps->n; i++) n += ls_ddp_room(&ps->item[i]) + (size_t)size * LS_DDP_ALIGN;
    return n;
}

static void free_buckets(ls_ddp *d)
{
    for (int i = 0; i < d->nbuckets; i++) free(d->b[i].param);
    free(d->b);
    d->b = NULL;
    d->nbuckets = 0;
}

/* Makes buckets of order[] as numbered by number[] (by position) and points every gradient at its place. */
static ls_status lay_out(ls_ddp *d, const int *order, const int *number, int nbuckets)
{
    ls_params *ps = d->ps;
    free_buckets(d);
    d->b = calloc((size_t)nbuckets, sizeof *d->b);
    if (!d->b) return ls_fail(LS_NO_MEMORY, "%d buckets", nbuckets);
    d->nbuckets = nbuckets;
    char *at = d->span;
    for (int k = 0; k < nbuckets; k++) {
        ls_bucket *b = &d->b[k];
        snprintf(b->label, sizeof b->label, "bucket %d", k);
        b->param = malloc((size_t)ps->n * sizeof *b->param);
        if (!b->param) return ls_fail(LS_NO_MEMORY, "a bucket of %d parameters", ps->n);
        b->data = (float *)(void *)at;
        for (int i = 0; i < ps->n; i++) {
            if (number[i] != k) continue;
            ls_param *p = &ps->item[order[i]];
            b->param[b->nparams++] = order[i];
            b->nbytes += param_bytes(p);
            d->bucket_of[order[i]] = k;
            p->grad.data = at;
            p->t.grad = &p->grad;
            at += ls_ddp_room(p);
            b->sharded = p->sharded;
        }
        const size_t nbytes = ls_bucket_room((size_t)(at - (char *)b->data), ls_group_size(d->g));
        at = (char *)b->data + nbytes;
        b->count = nbytes / sizeof(float);
    }
    memset(d->span, 0, (size_t)(at - d->span)); /* padding takes part in the sums */
    return LS_OK;
}

/* For good: an optimizer's state lies where the shares are. */
static ls_status lay_out_sharded(ls_ddp *d)
{
    ls_zero_plan p;
    LS_TRY(ls_zero_plan_make(d->ps, &d->c, ls_group_rank(d->g), ls_group_size(d->g), &p));
    ls_status st = ls_zero_check_bound(d->ps, &p);
    if (st == LS_OK) st = lay_out(d, p.order, p.number, p.nbuckets);
    ls_zero_plan_free(&p);
    d->rebuilt = true;
    return st;
}

/* One bucket in registration order: what PyTorch does before it has seen a backward. */
static ls_status lay_out_first(ls_ddp *d)
{
    int *order = calloc((size_t)d->ps->n, sizeof *order), *number = calloc((size_t)d->ps->n, sizeof *number);
    ls_status st = order && number ? LS_OK : ls_fail(LS_NO_MEMORY, "bucket of %d parameters", d->ps->n);
    if (st == LS_OK) {
        for (int i = 0; i < d->ps->n; i++) order[i] = i;
        st = lay_out(d, order, number, 1);
    }
    free(order);
    free(number);
    return st;
}

/* In the order in which rank 0 saw gradients arrive, with the real limits. Gradients that
 * are being accumulated keep their values. */
static ls_status rebuild(ls_ddp *d)
{
    ls_params *ps = d->ps;
    size_t n = (size_t)ps->n, total = 0;
    const size_t limits[2] = { d->c.first_bucket, d->c.bucket_cap };
    int32_t *order32 = malloc(n * sizeof *order32);
    int *order = malloc(n * sizeof *order), *number = malloc(n * sizeof *number);
    size_t *nbytes = malloc(n * sizeof *nbytes);
    char *kept = NULL;
    ls_status st = order32 && order && number && nbytes ? LS_OK : ls_fail(LS_NO_MEMORY, "rebuilding buckets");
    if (st < 0) goto done;

    for (int i = 0; i < ps->n; i++) order32[i] = d->arrival[i];
    if ((st = ls_broadcast(d->g, order32, n, LS_I32, 0)) < 0) goto done;
    bool live = false;
    for (int i = 0; i < ps->n; i++) {
        if (order32[i] < 0 || order32[i] >= ps->n) {
            st = ls_fail(LS_PROTOCOL, "rank 0 names parameter %d of %d in its bucket order", order32[i], ps->n);
            goto done;
        }
        order[i] = order32[i];
        nbytes[i] = param_bytes(&ps->item[order[i]]);
        total += nbytes[i];
        live |= ps->item[i].t.grad_ready;
    }
    int nbuckets = ls_bucket_assign(nbytes, NULL, ps->n, limits, 2, false, number);
    if (nbuckets == 0) {
        st = ls_fail(LS_NO_MEMORY, "rebuilding buckets");
        goto done;
    }
    if (live && !(kept = malloc(total))) {
        st = ls_fail(LS_NO_MEMORY, "%zu bytes to keep accumulated gradients while buckets are rebuilt", total);
        goto done;
    }
    char *at = kept;
    for (int i = 0; live && i < ps->n; at += param_bytes(&ps->item[i]), i++)
        memcpy(at, ps->item[i].grad.data, param_bytes(&ps->item[i]));
    if ((st = lay_out(d, order, number, nbuckets)) < 0) goto done;
    at = kept;
    for (int i = 0; live && i < ps->n; at += param_bytes(&ps->item[i]), i++)
        memcpy(ps->item[i].grad.data, at, param_bytes(&ps->item[i]));
    d->rebuilt = true;
    for (int k = 0; k < d->nbuckets; k++)
        ls_log(LS_LOG_INFO, "ddp: bucket %d of %d: %d parameters, %zu bytes, rebuilt in the order gradients arrived", k,
               d->nbuckets, d->b[k].nparams, d->b[k].nbytes);
done:
    free(order32);
    free(order);
    free(number);
    free(nbytes);
    free(kept);
    return st;
}

/* --- the same model everywhere -------------------------------------------------------- */

typedef struct param_desc {
    char name[LS_NAME_BYTES];
    int64_t ndim, dim[LS_MAX_DIMS];
} param_desc;

static void describe(const ls_param *p, param_desc *out)
{
    memset(out, 0, sizeof *out);
    snprintf(out->name, sizeof out->name, "%s", p->name);
    out->ndim = p->t.ndim;
    for (int i = 0; i < p->t.ndim; i++) out->dim[i] = p->t.dim[i];
}

static const char *desc_text(const param_desc *p, char *buf, size_t n)
{
    ls_tensor t = { .ndim = (int)p->ndim };
    char shape[64];
    for (int i = 0; i < t.ndim && i < LS_MAX_DIMS; i++) t.dim[i] = p->dim[i];
    snprintf(buf, n, "%s %s", p->name, ls_tensor_shape(&t, shape, sizeof shape));
    return buf;
}

static ls_status same_model(ls_group *g, const ls_params *ps)
{
    int size = ls_group_size(g), rank = ls_group_rank(g);
    int64_t count[LS_MAX_RANKS];
    count[rank] = ps->n;
    LS_TRY(ls_all_gather(g, NULL, count, (size_t)size, LS_I64));
    for (int r = 0; r < size; r++)
        if (count[r] != count[0])
            return ls_fail(LS_CONFIG_MISMATCH,
                           "DDP expects same model across all ranks, but Rank 0 has %lld params, while rank %d has "
                           "inconsistent %lld params: build the same model on every rank",
                           (long long)count[0], r, (long long)count[r]);
    if (ps->n == 0) return ls_fail(LS_INVALID, "DDP needs at least one parameter that wants a gradient");

    size_t n = (size_t)ps->n;
    param_desc *all = malloc((size_t)size * n * sizeof *all);
    if (!all) return ls_fail(LS_NO_MEMORY, "comparing %d parameters over %d ranks", ps->n, size);
    for (size_t i = 0; i < n; i++) describe(&ps->item[i], &all[(size_t)rank * n + i]);
    ls_status st = ls_all_gather(g, NULL, all, (size_t)size * n * sizeof *all, LS_U8);
    for (int r = 1; st == LS_OK && r < size; r++)
        for (size_t i = 0; st == LS_OK && i < n; i++) { /* everybody sees all and comes to one verdict */
            char a[160], b[160];
            if (memcmp(&all[i], &all[(size_t)r * n + i], sizeof *all) == 0) continue;
            st = ls_fail(LS_CONFIG_MISMATCH,
                         "parameter %zu is %s on rank 0, but %s on rank %d: build the same model on every rank", i,
                         desc_text(&all[i], a, sizeof a), desc_text(&all[(size_t)r * n + i], b, sizeof b), r);
        }
    free(all);
    return st;
}

/* Tells the optimizer that gradients have to be averaged over `ranks` before a step; 0: no longer. */
static void set_ranks(ls_params *ps, int rank, int ranks)
{
    for (int i = 0; i < ps->n; i++) {
        ps->item[i].rank = rank;
        ps->item[i].ranks = ranks;
    }
}

ls_status ls_ddp_create(ls_group *g, ls_params *ps, const ls_ddp_config *c, ls_ddp **out)
{
    *out = NULL;
    if (!g) return ls_fail(LS_INVALID, "no process group: call ls_world_join before ls_ddp_create");
    LS_TRY(same_model(g, ps));
    LS_TRY(ls_zero_check_stage(c));
    for (int i = 0; i < ps->n && (!c || c->zero_stage == 0); i++)
        if (ps->item[i].sharded)
            return ls_fail(LS_INVALID,
                           "parameter %s is sharded, but zero_stage is 0: call ls_ddp_bind and ls_ddp_create with "
                           "the same configuration",
                           ps->item[i].name);
    for (int i = 0; i < ps->n; i++)
        LS_TRY(ls_broadcast(g, ps->item[i].t.data, (size_t)ls_tensor_count(&ps->item[i].t), LS_F32, 0));

    ls_status st = LS_NO_MEMORY;
    size_t n = (size_t)ps->n;
    ls_ddp *d = calloc(1, sizeof *d);
    if (!d) return ls_fail(LS_NO_MEMORY, "DDP");
    d->g = g;
    d->ps = ps;
    d->c = ls_ddp_defaults(c);
    d->bucket_of = calloc(n, sizeof *d->bucket_of);
    d->ready = calloc(n, sizeof *d->ready);
    d->arrival = calloc(n, sizeof *d->arrival);
    if (!d->bucket_of || !d->ready || !d->arrival) {
        st = ls_fail(LS_NO_MEMORY, "DDP of %d parameters", ps->n);
        goto fail;
    }
    void *span;
    st = ls_alloc(ls_group_world(g), ls_ddp_arena_bytes(ps, ls_group_size(g), &d->c), LS_MEM_GRAD, &span);
    if (st < 0) {
        ls_while(st, "placing the gradient buckets");
        goto fail;
    }
    d->span = span;
    if ((st = d->c.zero_stage ? lay_out_sharded(d) : lay_out_first(d)) < 0) goto fail;
    ls_params_zero_grad(ps); /* earlier gradients lay elsewhere */
    set_ranks(ps, ls_group_rank(g), ls_group_size(g));
    *out = d;
    return LS_OK;
fail:
    ls_ddp_destroy(d);
    return st;
}

/* Unless a later wrapper has taken the parameters over. */
static bool holds_gradients(const ls_ddp *d)
{
    return d->nbuckets > 0 && d->b[0].nparams > 0 && d->ps->item[d->b[0].param[0]].grad.data == d->b[0].data;
}

void ls_ddp_destroy(ls_ddp *d)
{
    if (!d) return;
    for (int i = 0; i < d->nbuckets; i++)
        if (d->b[i].work) (void)ls_work_wait(d->b[i].work); /* peers may still be reading */
    if (holds_gradients(d)) {
        set_ranks(d->ps, 0, 0);
        for (int i = 0; i < d->ps->n; i++) { /* their memory is the world's */
            d->ps->item[i].grad.data = NULL;
            d->ps->item[i].t.grad = NULL;
            d->ps->item[i].t.grad_ready = d->ps->item[i].t.grad_reduced = false;
        }
    }
    free_buckets(d);
    free(d->bucket_of);
    free(d->ready);
    free(d->arrival);
    free(d);
}

/* --- backward ------------------------------------------------------------------------ */

ls_status ls_ddp_wait_one(ls_ddp *d)
{
    ls_bucket *b = &d->b[d->waited++];
    ls_work *work = b->work;
    b->work = NULL;
    return ls_work_wait(work);
}

LS_KERNEL static void divide(float *x, size_t n, float by)
{
    for (size_t i = 0; i < n; i++) x[i] /= by;
}

static ls_status launch(ls_ddp *d, ls_bucket *b)
{
    if (d->next - d->waited == LS_DDP_IN_FLIGHT) LS_TRY(ls_ddp_wait_one(d));
    /* Both ways scale before the sum, as PyTorch does; they round differently unless W is a power of two. */
    if (d->c.bucket_view) divide(b->data, b->count, (float)ls_group_size(d->g));
    ls_coll_args a = { .coll = b->sharded ? LS_REDUCE_SCATTER : LS_ALL_REDUCE,
                       .out = b->data,
                       .count = b->count,
                       .dtype = LS_F32,
                       .op = d->c.bucket_view ? LS_SUM : LS_AVG,
                       .label = b->label };
    return ls_coll_start(d->g, &a, &b->work);
}

/* The last gradient of a bucket starts it, unless an earlier bucket is not full yet. */
static ls_status launch_full(ls_ddp *d)
{
    while (d->next < d->nbuckets && d->b[d->next].nready == d->b[d->next].nparams) {
        LS_TRY(launch(d, &d->b[d->next]));
        d->next++;
    }
    return LS_OK;
}

static ls_status on_grad_ready(void *arg, ls_tensor *t)
{
    ls_ddp *d = arg;
    ls_params *ps = d->ps;
    uintptr_t first = (uintptr_t)&ps->item[0].t, p = (uintptr_t)t;
    if (p < first || p > (uintptr_t)&ps->item[ps->n - 1].t) return LS_OK; /* a leaf of somebody else */
    int i = (int)((p - first) / sizeof(ls_param));
    if (!d->sync) return LS_OK;
    if (d->ready[i])
        return ls_fail(LS_INVALID,
                       "Expected to mark a variable ready only once: parameter %d (%s) got its gradient twice "
                       "in one backward; call ls_ddp_begin_forward before every forward",
                       i, ps->item[i].name);
    d->ready[i] = true;
    d->open = true;
    if (!d->rebuilt) d->arrival[d->narrived++] = i;
    d->b[d->bucket_of[i]].nready++;
    return d->c.no_overlap ? LS_OK : launch_full(d);
}

static ls_status on_progress(void *arg)
{
    ls_ddp *d = arg;
    return ls_progress(ls_group_world(d->g), POKE_NS);
}

static LS_COLD ls_status unfinished(const ls_ddp *d)
{
    ls_text list = { 0 };
    for (int i = 0; i < d->ps->n; i++)
        if (!d->ready[i]) ls_text_add(&list, "%s%d (%s)", list.n ? ", " : "", i, d->ps->item[i].name);
    ls_status st =
        ls_fail(LS_INVALID,
                "Expected to have finished reduction in the prior iteration before starting a new one: rank %d got no "
                "gradient for parameter %.300s; every parameter must take part in the loss",
                ls_group_rank(d->g), ls_text_str(&list));
    ls_text_free(&list);
    return st;
}

/* All buckets that were launched: an optimizer may use their gradients. */
static void mark_reduced(ls_ddp *d)
{
    for (int k = 0; k < d->next; k++)
        for (int i = 0; i < d->b[k].nparams; i++) d->ps->item[d->b[k].param[i]].t.grad_reduced = true;
}

/* The end of backward: waits for every bucket. */
static ls_status on_done(void *arg)
{
    ls_ddp *d = arg;
    if (!d->sync || !d->open) return LS_OK;
    LS_TRY(launch_full(d)); /* without overlap this is where all of them start */
    while (d->waited < d->next) LS_TRY(ls_ddp_wait_one(d));
    mark_reduced(d);
    if (d->next < d->nbuckets) return LS_OK; /* the optimizer's step or the next forward names what is missing */
    d->open = false;
    d->due = d->cut = d->c.zero_stage > 0;
    return LS_OK;
}

ls_status ls_ddp_begin_forward(ls_ddp *d, ls_tape *t, bool sync)
{
    if (d->open) return unfinished(d);
    if (ls_tape_pending(t))
        return ls_fail(LS_INVALID,
                       "ls_ddp_begin_forward on rank %d: the tape holds a forward whose backward has not run, and the "
                       "coming backward must do what was said before that forward (sync %s): call ls_ddp_begin_forward "
                       "before the forward, once per backward, or ls_tape_reset first",
                       ls_group_rank(d->g), d->sync ? "true" : "false");
    if (d->due)
        return ls_fail(LS_INVALID,
                       "zero_stage %d: ls_ddp_after_step was not called after the last backward that "
                       "reduced: ranks have only the values that they have updated themselves",
                       d->c.zero_stage);
    for (int i = 0; d->cut && i < d->ps->n; i++)
        if (d->ps->item[i].sharded && d->ps->item[i].t.grad_ready)
            return ls_fail(LS_INVALID,
                           "zero_stage %d: the gradient of %s is reduced, and no more than this rank's share of it is "
                           "a sum: nothing can be added to it; call ls_optim_step or ls_params_zero_grad first",
                           d->c.zero_stage, d->ps->item[i].name);
    d->cut = false;
    if (!d->rebuilt && d->narrived == d->ps->n) LS_TRY(rebuild(d));
    d->sync = sync;
    d->next = d->waited = 0;
    if (sync) {
        for (int k = 0; k < d->nbuckets; k++) d->b[k].nready = 0;
        memset(d->ready, 0, (size_t)d->ps->n * sizeof *d->ready);
        if (!d->rebuilt) d->narrived = 0;
    }
    ls_tape_on_grad_ready(t, on_grad_ready, d);
    ls_tape_on_progress(t, on_progress, d);
    ls_tape_on_done(t, on_done, d);
    return LS_OK;
}

/* --- looking ------------------------------------------------------------------------- */

int ls_ddp_buckets(const ls_ddp *d) { return d->nbuckets; }
bool ls_ddp_rebuilt(const ls_ddp *d) { return d->rebuilt; }

ls_ddp_bucket_info ls_ddp_bucket(const ls_ddp *d, int index)
{
    const ls_bucket *b = &d->b[index];
    return (ls_ddp_bucket_info){ .index = index, .param = b->param, .nparams = b->nparams, .nbytes = b->nbytes };
}
