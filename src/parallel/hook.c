/* hook.c -- communication hooks: a bucket seen by a hook, and the hooks that do not factorize. */
#include "parallel/hook.h"

#include <stdlib.h>
#include <string.h>

#include "coll/reduce.h"

/* --- DDP calls them --------------------------------------------------------------------------------- */

static ls_grad_bucket seen(const ls_ddp *d, int k)
{
    const ls_bucket *b = &d->b[k];
    return (ls_grad_bucket){ .index = k, .is_last = k == d->nbuckets - 1, .data = b->data, .count = b->count,
                             .param = b->param, .at = b->at, .nparams = b->nparams };
}

ls_status ls_hook_start(ls_ddp *d, int k)
{
    const ls_grad_bucket b = seen(d, k);
    const int size = ls_group_size(d->g); /* a hook averages over as many */
    if (d->divisor != size && !d->dry) ls_scale_values(b.data, b.count, LS_F32, (double)size / d->divisor);
    return d->hook->start(d->hook, d->g, &b, &d->b[k].work);
}

ls_status ls_hook_finish(ls_ddp *d, int k)
{
    const ls_grad_bucket b = seen(d, k);
    const float *out = b.data;
    size_t count = b.count;
    if (!d->hook->finish) return LS_OK;
    LS_TRY(d->hook->finish(d->hook, d->g, &b, &out, &count));
    if (count != b.count)
        return ls_fail(LS_INVALID, "communication hook %s returned %zu elements for bucket %d on rank %d: expected %zu, the "
                       "number in the bucket", d->hook->name, count, k, ls_group_rank(d->g), b.count);
    if (out != b.data && !d->dry) memcpy(b.data, out, count * sizeof *out);
    return LS_OK;
}

ls_status ls_ddp_set_hook(ls_ddp *d, ls_comm_hook *h)
{
    size_t most = 0;
    if (d->strategy->shards)
        return ls_fail(LS_UNSUPPORTED, "communication hook %s with zero_stage %d: hooks are for zero_stage 0, where gradients are "
                       "all_reduced", h->name, d->c.zero_stage);
    if (d->c.tree)
        return ls_fail(LS_UNSUPPORTED, "communication hook %s with ls_ddp_config.tree: a hook adds in an order of its own", h->name);
    if (d->hook)
        return ls_fail(LS_INVALID, "communication hook %s: there is one already, %s", h->name, d->hook->name);
    if (d->join)
        return ls_fail(LS_UNSUPPORTED, "communication hook %s after ls_ddp_join_begin: a joined rank cannot mirror what a hook calls", h->name);
    if (d->state != LS_DP_IDLE)
        return ls_fail(LS_INVALID, "communication hook %s: set it before the first ls_ddp_begin_forward", h->name);
    const size_t padding = (size_t)ls_group_size(d->g) * LS_BUCKET_ALIGN; /* each of them may end a bucket */
    for (int i = 0; i < d->ps->n; i++)
        most += (ls_bucket_param_bytes(&d->ps->item[i]) + padding) / sizeof(float);
    if (h->attach) LS_TRY(h->attach(h, d->g, d->ps, most));
    d->hook = h;
    return LS_OK;
}

/* --- allreduce ---------------------------------------------------------------------------------------- */

static ls_status start_allreduce(ls_comm_hook *h, ls_group *g, const ls_grad_bucket *b, ls_work **work)
{
    (void)h;
    if (!ls_hook_dry(g)) ls_divide(b->data, b->count, LS_F32, ls_group_size(g));
    const ls_coll_args a = { .coll = LS_ALL_REDUCE, .out = b->data, .count = b->count, .dtype = LS_F32, .op = LS_SUM,
                             .bucket = 1 + b->index, .label = "bucket of a hook" };
    return ls_coll_start(g, &a, work);
}

static void destroy(ls_comm_hook *h) { free(h); }

ls_status ls_hook_allreduce(ls_comm_hook **out)
{
    ls_comm_hook *h = *out = calloc(1, sizeof *h);
    if (!h) return ls_fail(LS_NO_MEMORY, "a communication hook");
    *h = (ls_comm_hook){ .name = "allreduce", .start = start_allreduce, .destroy = destroy };
    return LS_OK;
}

/* --- half as many bytes --------------------------------------------------------------------------------- */

typedef struct compress {
    ls_comm_hook hook;
    ls_dtype dtype;
    uint16_t *rounded; /* [most], in the world's arena */
    size_t used, widened; /* elements of the buckets that have started, and finished, in this backward */
} compress;

static ls_status attach_compress(ls_comm_hook *h, ls_group *g, const ls_params *ps, size_t most)
{
    compress *c = (compress *)(void *)h;
    void *p;
    (void)ps;
    LS_TRY(ls_alloc(ls_group_world(g), most * sizeof *c->rounded, LS_MEM_COMM, &p));
    c->rounded = p;
    return LS_OK;
}

/* The buckets of a backward lie side by side, so the place of one follows from those before it. */
static ls_status start_compress(ls_comm_hook *h, ls_group *g, const ls_grad_bucket *b, ls_work **work)
{
    compress *c = (compress *)(void *)h;
    if (b->index == 0) c->used = 0;
    uint16_t *to = c->rounded + c->used;
    c->used += b->count;
    if (!ls_hook_dry(g)) ls_convert(to, c->dtype, b->data, LS_F32, b->count);
    const ls_coll_args a = { .coll = LS_ALL_REDUCE, .out = to, .count = b->count, .dtype = c->dtype, .op = LS_AVG,
                             .bucket = 1 + b->index, .label = c->hook.name };
    return ls_coll_start(g, &a, work);
}

/* Buckets finish in the order in which they started: the same places. */
static ls_status finish_compress(ls_comm_hook *h, ls_group *g, const ls_grad_bucket *b, const float **out,
                                 size_t *count)
{
    compress *c = (compress *)(void *)h;
    (void)out, (void)count;
    if (b->index == 0) c->widened = 0;
    if (!ls_hook_dry(g)) ls_convert(b->data, LS_F32, c->rounded + c->widened, c->dtype, b->count);
    c->widened += b->count;
    return LS_OK;
}

ls_status ls_hook_compress(ls_dtype dtype, ls_comm_hook **out)
{
    *out = NULL;
    if (dtype != LS_F16 && dtype != LS_BF16)
        return ls_fail(LS_UNSUPPORTED, "a communication hook that rounds gradients to %s: expected f16 or bf16", ls_dtype_name(dtype));
    compress *c = calloc(1, sizeof *c);
    if (!c) return ls_fail(LS_NO_MEMORY, "a communication hook");
    *c = (compress){ .hook = { .name = dtype == LS_F16 ? "f16" : "bf16", .attach = attach_compress, .start = start_compress,
                               .finish = finish_compress, .destroy = destroy },
                     .dtype = dtype };
    *out = &c->hook;
    return LS_OK;
}

/* --- by name ------------------------------------------------------------------------------------------ */

ls_status ls_hook_named(const char *name, const ls_powersgd_config *c, ls_comm_hook **out)
{
    *out = NULL;
    if (strcmp(name, "allreduce") == 0) return ls_hook_allreduce(out);
    if (strcmp(name, "f16") == 0) return ls_hook_compress(LS_F16, out);
    if (strcmp(name, "bf16") == 0) return ls_hook_compress(LS_BF16, out);
    if (strcmp(name, "powersgd") == 0) return ls_hook_powersgd(c, out);
    return ls_fail(LS_BAD_CONFIG, "there is no communication hook %s: expected allreduce, f16, bf16 or powersgd", name);
}
