/* zero.c -- ZeRO's first stage: each rank updates its share of every bucket of matrices, and has the optimizer's state
 * for that share alone.
 *
 * A bucket of count elements, padding included, is cut evenly: rank r of W owns elements [r, r + 1) count / W, which
 * begin on a cache line of floats. Values (float), or their copies in bf16, lie in the world's arena like the bucket
 * does, so that one all_gather in place brings a whole bucket's new values to all.
 *
 *   backward      reduce_scatter   4 (W - 1) / W bytes an element and rank, beside which all_reduce has twice that
 *   after a step  all_gather       the same in float, half of it in bf16
 *
 * Rajbhandari, Rasley, Ruwase and He, "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", 2020.
 */
#include <stdlib.h>
#include <string.h>

#include "dp/ddp.h"

/* --- who owns what --------------------------------------------------------------------------- */

ls_status ls_zero_check_stage(const ls_ddp_config *c)
{
    if (!c || c->zero_stage == 0 || c->zero_stage == 1) return LS_OK;
    return ls_fail(LS_UNSUPPORTED, "zero_stage %d: expected 0, or 1 for the optimizer's state", c->zero_stage);
}

void ls_zero_plan_free(ls_zero_plan *p)
{
    free(p->order);
    free(p->number);
    free(p->at);
    free(p->own);
    *p = (ls_zero_plan){ 0 };
}

/* Which parameters share a bucket. */
static bool assign(const ls_params *ps, const ls_ddp_config *c, ls_zero_plan *out)
{
    const ls_ddp_config d = ls_ddp_defaults(c);
    const size_t n = (size_t)ps->n + 1, limits[2] = { d.first_bucket, d.bucket_cap };
    size_t *nbytes = calloc(n, sizeof *nbytes);
    int *key = calloc(n, sizeof *key);
    *out = (ls_zero_plan){ .order = calloc(n, sizeof *out->order),
                           .number = calloc(n, sizeof *out->number),
                           .at = calloc(n, sizeof *out->at),
                           .own = calloc(n, sizeof *out->own) };
    const bool room = nbytes && key && out->order && out->number && out->at && out->own;
    for (int i = 0; room && i < ps->n; i++) {
        const ls_param *p = &ps->item[ps->n - 1 - i];
        out->order[i] = ps->n - 1 - i;
        nbytes[i] = ls_tensor_nbytes(&p->t);
        key[i] = ls_zero_shards(p);
    }
    if (room) out->nbuckets = ls_bucket_assign(nbytes, key, ps->n, limits, 2, false, out->number);
    free(nbytes);
    free(key);
    return out->nbuckets > 0 || (room && ps->n == 0);
}

/* The part of `share` that lies in the n elements from element `at` on. */
static ls_range part_of(ls_range share, size_t at, size_t n)
{
    const size_t end = share.first + share.count;
    const size_t first = share.first > at ? share.first - at : 0, last = end < at ? 0 : end - at < n ? end - at : n;
    return first < last ? (ls_range){ first, last - first } : (ls_range){ 0, 0 };
}

/* Where the matrices of bucket k lie, and what of each is the rank's. */
static void divide(const ls_params *ps, int k, int rank, int size, ls_zero_plan *out)
{
    const size_t begin = out->count;
    size_t end = begin;
    for (int i = 0; i < ps->n; i++) {
        const ls_param *p = &ps->item[out->order[i]];
        if (out->number[i] != k || !ls_zero_shards(p)) continue;
        out->at[out->order[i]] = end;
        end += ls_ddp_room(p) / sizeof(float);
    }
    out->count = begin + ls_bucket_room((end - begin) * sizeof(float), size) / sizeof(float);
    ls_range share = ls_shard_of(out->count - begin, rank, size);
    share.first += begin;
    for (int i = 0; i < ps->n; i++) {
        const int at = out->order[i];
        const ls_param *p = &ps->item[at];
        if (out->number[i] == k && ls_zero_shards(p))
            out->own[at] = part_of(share, out->at[at], (size_t)ls_tensor_count(&p->t));
    }
}

ls_status ls_zero_plan_make(const ls_params *ps, const ls_ddp_config *c, int rank, int size, ls_zero_plan *out)
{
    if (!assign(ps, c, out)) {
        ls_zero_plan_free(out);
        return ls_fail(LS_NO_MEMORY, "buckets of %d parameters", ps->n);
    }
    for (int k = 0; k < out->nbuckets; k++) divide(ps, k, rank, size, out);
    return LS_OK;
}

static void set_shares(ls_params *ps, const ls_zero_plan *b)
{
    for (int i = 0; i < ps->n; i++) {
        ps->item[i].sharded = ls_zero_shards(&ps->item[i]);
        ps->item[i].own = b->own[i];
    }
}

ls_status ls_ddp_shard(ls_params *ps, int rank, int size, const ls_ddp_config *c)
{
    ls_zero_plan b;
    for (int i = 0; i < ps->n; i++) ps->item[i].sharded = false;
    if (!c || c->zero_stage == 0) return LS_OK;
    if (rank < 0 || rank >= size) return ls_fail(LS_INVALID, "the shard of rank %d of %d", rank, size);
    LS_TRY(ls_zero_plan_make(ps, c, rank, size, &b));
    set_shares(ps, &b);
    ls_zero_plan_free(&b);
    return LS_OK;
}

/* --- values that peers can read -------------------------------------------------------------- */

/* What of a parameter stands among what peers read. */
typedef struct kept {
    bool value, copy;
} kept;

static kept shared_part(const ls_param *p, const ls_ddp_config *c, ls_dtype dtype)
{
    const bool sharded = c && c->zero_stage > 0 && ls_zero_shards(p);
    return (kept){ .value = sharded && dtype == LS_F32, .copy = sharded && dtype == LS_BF16 };
}

static size_t copy_bytes(const ls_param *p, ls_dtype dtype) { return dtype == LS_BF16 ? ls_param_bf16_nbytes(p) : 0; }

static size_t up(size_t n) { return (n + LS_DDP_ALIGN - 1) / LS_DDP_ALIGN * LS_DDP_ALIGN; }

ls_status ls_ddp_bind_bytes(const ls_params *ps, int size, const ls_ddp_config *c, ls_dtype dtype, size_t *shared,
                            size_t *own)
{
    *shared = *own = 0;
    for (int i = 0; i < ps->n; i++) {
        const ls_param *p = &ps->item[i];
        const kept there = shared_part(p, c, dtype);
        if (!there.value) *own += up(ls_tensor_nbytes(&p->t));
        if (!there.copy) *own += up(copy_bytes(p, dtype));
    }
    if (!c || c->zero_stage == 0) return LS_OK;
    ls_zero_plan b;
    LS_TRY(ls_zero_plan_make(ps, c, 0, size, &b));
    *shared = up(b.count * ls_dtype_size(dtype));
    ls_zero_plan_free(&b);
    return LS_OK;
}

static ls_status bind(ls_params *ps, const ls_zero_plan *b, const ls_ddp_config *c, ls_dtype dtype, char *base,
                      ls_arena *own)
{
    for (int i = 0; i < ps->n; i++) {
        ls_param *p = &ps->item[i];
        const kept there = shared_part(p, c, dtype);
        void *at = p->sharded ? base + b->at[i] * ls_dtype_size(dtype) : NULL;
        p->t.grad = NULL;
        p->t.grad_ready = false;
        p->t.bf16_only = there.copy;
        if (there.value)
            p->t.data = at;
        else
            LS_TRY(ls_arena_alloc(own, ls_tensor_nbytes(&p->t), LS_MEM_PARAM, &p->t.data));
        if (there.copy)
            p->bf16 = at;
        else if (copy_bytes(p, dtype))
            LS_TRY(ls_arena_alloc(own, copy_bytes(p, dtype), LS_MEM_PARAM, &p->bf16));
        p->t.bf16 = p->bf16;
    }
    return LS_OK;
}

ls_status ls_ddp_bind(ls_group *g, ls_params *ps, const ls_ddp_config *c, ls_dtype dtype, ls_arena *own)
{
    ls_zero_plan b;
    void *base = NULL;
    if (dtype != LS_F32 && dtype != LS_BF16)
        return ls_fail(LS_UNSUPPORTED, "parameters for %s: expected f32 or bf16", ls_dtype_name(dtype));
    LS_TRY(ls_zero_check_stage(c));
    if (!c || c->zero_stage == 0) {
        for (int i = 0; i < ps->n; i++) ps->item[i].sharded = ps->item[i].t.bf16_only = false;
        LS_TRY(ls_params_bind(ps, own, NULL));
        return dtype == LS_BF16 ? ls_params_bind_bf16(ps, own) : LS_OK;
    }
    LS_TRY(ls_zero_plan_make(ps, c, ls_group_rank(g), ls_group_size(g), &b));
    const size_t n = b.count * ls_dtype_size(dtype);
    ls_status st = n ? ls_alloc(ls_group_world(g), n, LS_MEM_PARAM, &base) : LS_OK;
    if (st < 0) ls_while(st, "placing values where peers read them");
    if (n && st == LS_OK) memset(base, 0, n); /* padding travels, too */
    set_shares(ps, &b);
    if (st == LS_OK) st = bind(ps, &b, c, dtype, base, own);
    ls_zero_plan_free(&b);
    return st;
}

/* What peers read of a matrix. */
static char *read_by_peers(const ls_param *p) { return p->bf16 ? p->bf16 : p->t.data; }

ls_status ls_zero_check_bound(const ls_params *ps, const ls_zero_plan *b)
{
    const char *base = NULL;
    for (int i = 0; i < ps->n; i++) {
        const ls_param *p = &ps->item[i];
        if (!ls_zero_shards(p)) continue;
        const size_t at = b->at[i] * (p->bf16 ? sizeof(uint16_t) : sizeof(float));
        const char *value = read_by_peers(p);
        if (!base && value) base = value - at;
        if (!p->sharded || !value || value != base + at || p->own.first != b->own[i].first ||
            p->own.count != b->own[i].count)
            return ls_fail(LS_INVALID,
                           "zero_stage 1: parameter %s does not lie where its values are gathered: call "
                           "ls_ddp_bind with the same configuration before ls_ddp_create",
                           p->name);
    }
    return LS_OK;
}

/* --- after a step ----------------------------------------------------------------------------- */

/* All sharded buckets, in place: what peers read of the parameters, or what stands in the buckets themselves. */
static ls_status gather(ls_ddp *d, bool buckets)
{
    ls_status st = LS_OK;
    d->waited = 0;
    for (int k = 0; st == LS_OK && k < d->nbuckets; k++) {
        ls_bucket *b = &d->b[k];
        if (!b->sharded) continue;
        const ls_param *first = &d->ps->item[b->param[0]];
        const ls_coll_args a = { .coll = LS_ALL_GATHER,
                                 .count = b->count,
                                 .label = b->label,
                                 .out = buckets ? (void *)b->data : read_by_peers(first),
                                 .dtype = !buckets && first->bf16 ? LS_BF16 : LS_F32 };
        while (st == LS_OK && k - d->waited >= LS_DDP_IN_FLIGHT) st = ls_ddp_wait_one(d);
        if (st == LS_OK) st = ls_coll_start(d->g, &a, &b->work);
    }
    while (d->waited < d->nbuckets) { /* after a failure, too: nothing stays in flight */
        const ls_status one = ls_ddp_wait_one(d);
        if (st == LS_OK) st = one;
    }
    return st;
}

ls_status ls_ddp_after_step(ls_ddp *d)
{
    if (!d->due) return LS_OK;
    LS_TRY(gather(d, false));
    d->due = false;
    for (int i = 0; i < d->ps->n; i++) d->apart |= d->ps->item[i].sharded && d->ps->item[i].bf16;
    return LS_OK;
}

/* Through the buckets, whose gradients nobody needs any more. */
ls_status ls_ddp_gather_values(ls_ddp *d)
{
    const ls_params *ps = d->ps;
    if (!d->apart) return LS_OK;
    for (int i = 0; i < ps->n; i++)
        if (ps->item[i].sharded && ps->item[i].t.grad_ready)
            return ls_fail(LS_INVALID,
                           "ls_ddp_gather_values on rank %d: the gradient of %s would be overwritten, and no optimizer's step "
                           "has used it: call ls_optim_step or ls_params_zero_grad first",
                           ls_group_rank(d->g), ps->item[i].name);
    for (int i = 0; i < ps->n; i++) {
        const ls_param *p = &ps->item[i];
        if (p->sharded)
            memcpy((float *)p->grad.data + p->own.first, (float *)p->t.data + p->own.first,
                   p->own.count * sizeof(float));
    }
    LS_TRY(gather(d, true));
    for (int i = 0; i < ps->n; i++)
        if (ps->item[i].sharded) memcpy(ps->item[i].t.data, ps->item[i].grad.data, ls_tensor_nbytes(&ps->item[i].t));
    d->apart = false;
    return LS_OK;
}
