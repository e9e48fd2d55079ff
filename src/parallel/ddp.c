/* ddp.c -- DistributedDataParallel: gradients are all_reduced in buckets during backward, and every rank updates all
 * parameters. Buckets are rebuilt once, in the order in which gradients arrived. */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "parallel/strategy.h"

/* --- values ---------------------------------------------------------------------------------------- */

static ls_status bind(ls_group *g, ls_params *ps, const ls_ddp_config *c, ls_dtype dtype, ls_arena *own)
{
    (void)g, (void)c;
    for (int i = 0; i < ps->n; i++) ps->item[i].own = (ls_range){ 0, (size_t)ls_tensor_count(&ps->item[i].t) };
    LS_TRY(ls_params_bind(ps, own, NULL));
    return dtype == LS_BF16 ? ls_params_bind_bf16(ps, own) : LS_OK;
}

static ls_status whole(ls_ddp *d, const ls_param *p, const float **out)
{
    (void)d;
    *out = p->t.data;
    return LS_OK;
}

/* --- buckets --------------------------------------------------------------------------------------- */

/* With find_unused gradients do not arrive in one order: buckets follow registration, and the last one starts first. */
static int assign_reversed(const ls_ddp *d, int *number)
{
    const size_t n = (size_t)d->ps->n, limits[2] = { d->c.first_bucket, d->c.bucket_cap };
    size_t *nbytes = calloc(n, sizeof *nbytes);
    for (size_t i = 0; nbytes && i < n; i++) nbytes[i] = ls_tensor_nbytes(&d->ps->item[i].t);
    const int nbuckets = nbytes ? ls_bucket_assign(nbytes, NULL, (int)n, limits, 2, true, number) : 0;
    for (size_t i = 0; i < n; i++) number[i] = nbuckets - 1 - number[i];
    free(nbytes);
    return nbuckets;
}

/* One bucket in registration order: what PyTorch does before it has seen a backward. */
static ls_status place_first(ls_ddp *d)
{
    const bool stays = d->c.find_unused && !d->c.static_graph;
    int *order = calloc((size_t)d->ps->n, sizeof *order), *number = calloc((size_t)d->ps->n, sizeof *number);
    const int nbuckets = !order || !number ? 0 : stays ? assign_reversed(d, number) : 1;
    ls_status st = nbuckets ? LS_OK : ls_fail(LS_NO_MEMORY, "bucket of %d parameters", d->ps->n);
    if (st == LS_OK) {
        for (int i = 0; i < d->ps->n; i++) order[i] = i;
        st = ls_buckets_place(d, order, number, nbuckets);
    }
    if (stays) d->narrived = -1;
    free(order);
    free(number);
    return st;
}

static ls_status place(ls_ddp *d)
{
    for (int i = 0; i < d->ps->n; i++) {
        const ls_param *p = &d->ps->item[i];
        if (p->own.count != (size_t)ls_tensor_count(&p->t))
            return ls_fail(LS_INVALID,
                           "parameter %s is sharded, but zero_stage is 0: call ls_ddp_bind and ls_ddp_create with "
                           "the same configuration",
                           p->name);
    }
    LS_TRY(ls_buckets_alloc(d->g, d->ps, &d->grads));
    ls_dp_keep(d->ps, ls_group_rank(d->g), ls_group_size(d->g));
    LS_TRY(ls_group_second(d->g, "buckets", &d->second));
    return place_first(d);
}

static size_t nbytes_of(const ls_params *ps, int i) { return ls_tensor_nbytes(&ps->item[i].t); }

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
        nbytes[i] = nbytes_of(ps, order[i]);
        total += nbytes[i];
        live |= ps->item[i].t.grad_ready && !d->dry;
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
    for (int i = 0; live && i < ps->n; at += nbytes_of(ps, i), i++)
        memcpy(at, ps->item[i].grad.data, nbytes_of(ps, i));
    if ((st = ls_buckets_place(d, order, number, nbuckets)) < 0) goto done;
    at = kept;
    for (int i = 0; live && i < ps->n; at += nbytes_of(ps, i), i++)
        memcpy(ps->item[i].grad.data, at, nbytes_of(ps, i));
    d->narrived = -1;
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

static ls_status begin_forward(ls_ddp *d) { return d->narrived == d->ps->n ? rebuild(d) : LS_OK; }

const ls_dp_strategy ls_dp_ddp = {
    .name = "ddp", .first_stage = 0, .last_stage = 0, .order = "rebuilt in the order gradients arrived",
    .bind = bind, .place = place,
    .events = { .grad_ready = ls_buckets_grad_ready, .progress = ls_buckets_progress, .done = ls_buckets_done },
    .begin_forward = begin_forward, .whole = whole,
};
