/* shard.c -- each rank owns rows: which, where values and gradients lie, and how all ranks get the new values. */
#include "parallel/shard.h"

#include <stdlib.h>
#include <string.h>

#include "parallel/first_values.h"

/* --- which bucket ------------------------------------------------------------------------------ */

static void plan_free(ls_shard_plan *p)
{
    free(p->order);
    free(p->number);
    free(p->grad);
    free(p->value);
    *p = (ls_shard_plan){ 0 };
}

/* Positions of the order from `first` on that may share buckets. */
static int run_of(const ls_params *ps, const ls_shard_plan *l, int first, bool at_units)
{
    int n = 1;
    const int unit = ps->item[l->order[first]].unit;
    while (first + n < ps->n && (!at_units || ps->item[l->order[first + n]].unit == unit)) n++;
    return n;
}

/* Which parameters share a bucket. False: no memory. */
static bool number_buckets(const ls_params *ps, const ls_ddp_config *c, const size_t *nbytes, bool at_units,
                           ls_shard_plan *out)
{
    const ls_ddp_config d = ls_ddp_defaults(c);
    const size_t limits[2] = { d.first_bucket, d.bucket_cap };
    for (int first = 0, n; first < ps->n; first += n) {
        n = run_of(ps, out, first, at_units);
        const int later = first > 0; /* the first bucket's limit is for the first one alone */
        int *const number = out->number + first;
        const int more = ls_bucket_assign(nbytes + first, NULL, n, limits + later, 2 - later, false, number);
        if (more == 0) return false;
        for (int i = 0; i < n; i++) number[i] += out->nbuckets;
        out->nbuckets += more;
    }
    return true;
}

static bool assign(const ls_params *ps, const ls_ddp_config *c, bool at_units, ls_shard_plan *out)
{
    const size_t n = (size_t)ps->n + 1;
    size_t *nbytes = calloc(n, sizeof *nbytes);
    *out = (ls_shard_plan){ .order = calloc(n, sizeof *out->order),
                            .number = calloc(n, sizeof *out->number),
                            .grad = calloc(n, sizeof *out->grad),
                            .value = calloc(n, sizeof *out->value) };
    bool done = nbytes && out->order && out->number && out->grad && out->value;
    for (int i = 0; done && i < ps->n; i++) {
        const ls_param *p = &ps->item[ps->n - 1 - i];
        out->order[i] = ps->n - 1 - i;
        nbytes[i] = ls_tensor_nbytes(&p->t);
    }
    done = done && number_buckets(ps, c, nbytes, at_units, out);
    free(nbytes);
    return done;
}

/* In what ops read a parameter of a model in `dtype`. */
static ls_dtype read_as(const ls_param *p, ls_dtype dtype)
{
    return dtype == LS_BF16 && ls_param_bf16_nbytes(p) > 0 ? LS_BF16 : LS_F32;
}

static size_t read_bytes(const ls_param *p, ls_dtype dtype)
{
    const size_t n = (size_t)ls_tensor_count(&p->t) * ls_dtype_size(read_as(p, dtype));
    return (n + LS_BUCKET_ALIGN - 1) / LS_BUCKET_ALIGN * LS_BUCKET_ALIGN;
}

static ls_status plan_make(const ls_params *ps, const ls_ddp_config *c, bool at_units, ls_dtype dtype, int size,
                           ls_shard_plan *out)
{
    if (!assign(ps, c, at_units, out)) {
        plan_free(out);
        return ls_fail(LS_NO_MEMORY, "buckets of %d parameters", ps->n);
    }
    size_t begin = 0;
    for (int k = 0; k < out->nbuckets; k++) {
        size_t end = begin;
        for (int i = 0; i < ps->n; i++) {
            const int at = out->order[i];
            if (out->number[i] != k) continue;
            out->grad[at] = end;
            out->value[at] = out->nbytes;
            end += ls_bucket_param_bytes(&ps->item[at]) / sizeof(float);
            out->nbytes += read_bytes(&ps->item[at], dtype);
        }
        begin += ls_bucket_bytes((end - begin) * sizeof(float), size) / sizeof(float);
    }
    return LS_OK;
}

/* --- who owns what --------------------------------------------------------------------------- */

static size_t row_of(const ls_param *p) { return (size_t)(ls_tensor_count(&p->t) / p->t.dim[0]); }

/* What `rank` owns of a parameter, elements. */
static ls_range owned(const ls_param *p, int rank, int size)
{
    const ls_range rows = ls_shard_of((size_t)p->t.dim[0], rank, size);
    return (ls_range){ rows.first * row_of(p), rows.count * row_of(p) };
}

/* --- memory ------------------------------------------------------------------------------------- */

/* Points a parameter at the values that operations read: t.data for f32, t.bf16 for bf16. If that is not f32 memory of
 * this rank (bf16, or read_by_peers is NULL), allocates f32 master weights for this rank's rows. */
static ls_status bind_one(ls_param *p, void *read_by_peers, ls_dtype dtype, ls_arena *own)
{
    void *master = NULL;
    const bool floats = read_as(p, dtype) == LS_F32;
    p->t.data = floats ? read_by_peers : NULL;
    p->t.bf16 = p->bf16 = floats ? NULL : read_by_peers;
    if (p->t.data) return LS_OK;
    LS_TRY(ls_arena_alloc(own, p->own.count * sizeof(float), LS_MEM_PARAM, &master));
    LS_TRY(ls_arena_assign(own, master, p->own.count * sizeof(float), p->unit));
    p->master = master;
    return LS_OK;
}

/* All buckets, for ever. */
static ls_status all_grads(ls_group *g, ls_params *ps, const ls_shard_plan *l)
{
    char *grads;
    LS_TRY(ls_buckets_alloc(g, ps, &grads));
    for (int i = 0; i < ps->n; i++) ps->item[i].grad.data = grads + l->grad[i] * sizeof(float);
    return LS_OK;
}

/* Allocates the values that peers read, per rank or once for all ranks of `g`. */
static ls_status values_memory(const ls_shard_how *how, ls_group *g, const ls_params *ps, size_t nbytes, char **out)
{
    void *base = NULL;
    const bool none = nbytes == 0 || how->values == LS_SHARD_GATHERED;
    const ls_status st = none                               ? LS_OK
                         : how->values == LS_SHARD_ONE_COPY ? ls_group_alloc_shared(g, nbytes, LS_MEM_PARAM, &base)
                                                            : ls_alloc(ls_group_world(g), nbytes, LS_MEM_PARAM, &base);
    *out = base;
    return st < 0 ? ls_while(st, "allocating values that peers read: %s is the largest parameter", ls_params_largest(ps)->name) : st;
}

/* Counts a parameter's values in the ledger's row of its unit. Of a copy that all ranks of `g` share, each counts as
 * many rows as if it were sharded over them: its own ones on one node. */
static ls_status count_values(const ls_shard_how *how, ls_group *g, const ls_param *p, char *at, ls_dtype dtype)
{
    const size_t size = ls_dtype_size(read_as(p, dtype)), count = (size_t)ls_tensor_count(&p->t);
    ls_world *w = ls_group_world(g);
    if (how->values == LS_SHARD_GATHERED) return LS_OK;
    if (how->values == LS_SHARD_EACH) return ls_assign(w, at, count * size, p->unit);
    ls_count_shared(w, LS_MEM_PARAM, p->unit, owned(p, ls_group_rank(g), ls_group_size(g)).count * size);
    if (ls_group_rank(g) == 0) ls_count_shared(w, LS_MEM_PARAM, LS_NO_UNIT, read_bytes(p, dtype) - count * size);
    return LS_OK;
}

/* What ls_shard_bind and ls_shard_place have to agree on, as a number above 0. */
static int layout_of(const ls_shard_how *how)
{
    return 1 + how->nodes * 32 + (int)how->values * 8 + how->at_units * 4 + how->lends * 2 + (how->grads != NULL);
}

static ls_status bind_all(const ls_shard_how *how, ls_group *all, ls_params *ps, const ls_ddp_config *c,
                          const ls_shard_plan *l, ls_dtype dtype, ls_arena *own)
{
    char *base;
    ls_group *const g = ls_dp_shards(all, c), *const node = ls_dp_node(all, c);
    ls_params_take_sink(ps, NULL);
    ps->layout = layout_of(how);
    LS_TRY(values_memory(how, node, ps, l->nbytes, &base));
    for (int i = 0; i < ps->n; i++) {
        ls_param *p = &ps->item[i];
        p->own = owned(p, ls_group_rank(g), ls_group_size(g));
        p->t.grad = NULL;
        p->t.grad_ready = p->dmaster_ready = p->settled = false;
        p->master = p->dmaster = NULL;
    }
    if (how->grads) LS_TRY(how->grads(g, ps, l, dtype, own));
    if (!how->lends) LS_TRY(all_grads(all, ps, l));
    for (int i = 0; i < ps->n; i++) {
        ls_param *p = &ps->item[i];
        char *const value = base ? base + l->value[i] : NULL;
        LS_TRY(count_values(how, node, p, value, dtype));
        const ls_status bound = bind_one(p, value, dtype, own);
        if (bound < 0) return ls_while(bound, "allocating parameter %s", p->name);
    }
    if (dtype == LS_F32 && how->values == LS_SHARD_EACH) return LS_OK;
    return ls_first_values_create(all, ps, c, how->values == LS_SHARD_ONE_COPY);
}

ls_status ls_shard_bind(const ls_shard_how *how, ls_group *g, ls_params *ps, const ls_ddp_config *c, ls_dtype dtype,
                        ls_arena *own)
{
    ls_shard_plan l;
    LS_TRY(plan_make(ps, c, how->at_units, dtype, ls_group_size(g), &l));
    const ls_status st = bind_all(how, g, ps, c, &l, dtype, own);
    plan_free(&l);
    return st;
}

/* --- buckets ------------------------------------------------------------------------------------ */

static char *read_by_peers(const ls_param *p) { return p->bf16 ? p->bf16 : p->t.data; }

/* LS_INVALID unless ls_shard_bind has bound the parameters so. *grads: where the memory of all buckets begins, if they
 * have it. */
static ls_status check_bound(const ls_ddp *d, const ls_shard_how *how, const ls_shard_plan *l, char **grads)
{
    const bool have_memory = !how->lends;
    const char *base = NULL;
    *grads = NULL;
    for (int i = 0; i < d->ps->n; i++) {
        const ls_param *p = &d->ps->item[i];
        const ls_range own = owned(p, ls_group_rank(d->shards), ls_group_size(d->shards));
        const size_t of = l->grad[i] * sizeof(float);
        char *grad = p->grad.data;
        if (have_memory && !*grads && grad) *grads = grad - of;
        const char *at = read_by_peers(p);
        if (i == 0 && at) base = at - l->value[i];
        const bool values = how->values == LS_SHARD_GATHERED ? !at && p->master
                                                             : at && base && at == base + l->value[i];
        const bool whole = !have_memory || (*grads && grad == *grads + of);
        const bool gradient = whole && (how->grads != NULL) == (p->dmaster != NULL);
        const bool rows = p->own.first == own.first && p->own.count == own.count;
        if (d->ps->layout != layout_of(how) || !values || !gradient || !rows)
            return ls_fail(LS_INVALID,
                           "zero_stage %d: parameter %s does not lie where its values are gathered: call "
                           "ls_ddp_bind with the same configuration before ls_ddp_create",
                           d->c.zero_stage, p->name);
    }
    return LS_OK;
}

static ls_status scatter(const ls_params *ps, ls_bucket *b)
{
    b->reduce = LS_REDUCE_SCATTER;
    b->span = calloc((size_t)b->nparams, sizeof *b->span);
    if (!b->span) return ls_fail(LS_NO_MEMORY, "%d parameters of a bucket", b->nparams);
    for (int i = 0; i < b->nparams; i++) {
        const ls_param *p = &ps->item[b->param[i]];
        b->span[i] = (ls_matrix_span){ .first = b->at[i], .rows = (size_t)p->t.dim[0], .row = row_of(p) };
    }
    return LS_OK;
}

/* Whose shard rank i of the column has, by the rank among the shards. */
static ls_status shard_of_column(const ls_ddp *d, int i, int *out)
{
    const int rank = ls_group_world_rank(d->c.column, i), size = ls_group_size(d->shards);
    for (*out = 0; *out < size; ++*out)
        if (ls_group_world_rank(d->shards, *out) == rank) return LS_OK;
    return ls_fail(LS_INVALID, "one copy per node: rank %d is in this rank's column (%s), and has none of the shards (%s)", rank,
                   ls_group_text(d->c.column), ls_group_text(d->shards));
}

/* Between nodes a rank brings the rows of its own shard: says so in the spans. */
static ls_status set_parts(const ls_ddp *d, ls_dp_gather *x, ls_matrix_span *span, int nspans)
{
    const int ranks = ls_group_size(d->c.column);
    x->part = calloc((size_t)nspans * (size_t)ranks, sizeof *x->part);
    if (!x->part) return ls_fail(LS_NO_MEMORY, "the rows of %d ranks of %d parameters", ranks, nspans);
    for (int r = 0; r < ranks; r++) {
        int shard;
        LS_TRY(shard_of_column(d, r, &shard));
        for (int i = 0; i < nspans; i++)
            x->part[i * ranks + r] = ls_shard_of(span[i].rows, shard, ls_group_size(d->shards));
    }
    for (int i = 0; i < nspans; i++) span[i].part = x->part + (size_t)i * (size_t)ranks;
    return LS_OK;
}

/* Appends the all_gather of what ops read as `dtype` in buckets [first, first + n), if there is any. */
static ls_status add_gather(ls_ddp *d, int first, int n, ls_dtype dtype, const char *label)
{
    const char *base = NULL;
    ls_matrix_span *span = calloc((size_t)d->ps->n, sizeof *span);
    int nspans = 0;
    if (!span) return ls_fail(LS_NO_MEMORY, "gathering %d parameters", d->ps->n);
    for (int k = first; k < first + n; k++) /* in the order in which values lie */
        for (int i = 0; i < d->b[k].nparams; i++) {
            const ls_param *p = &d->ps->item[d->b[k].param[i]];
            if ((p->bf16 ? LS_BF16 : LS_F32) != dtype) continue;
            if (!base) base = read_by_peers(p);
            const size_t at = (size_t)(read_by_peers(p) - base) / ls_dtype_size(dtype);
            span[nspans++] = (ls_matrix_span){ .first = at, .rows = (size_t)p->t.dim[0], .row = row_of(p) };
        }
    if (nspans == 0) {
        free(span);
        return LS_OK;
    }
    const ls_matrix_span *last = &span[nspans - 1];
    ls_dp_gather *x = &d->gather[d->ngathers++];
    x->call = (ls_coll_args){ .coll = LS_ALL_GATHER, .dtype = dtype, .out = (void *)(uintptr_t)base,
                              .count = last->first + last->rows * last->row, .span = span, .nspans = nspans,
                              .label = label };
    return d->gathers_in != d->shards ? set_parts(d, x, span, nspans) : LS_OK;
}

/* In float a bucket's values travel as its gradients do; in bf16 its copies do, and what has none travels together. */
static ls_status make_gathers(ls_ddp *d, ls_dtype dtype)
{
    d->gather = calloc((size_t)d->nbuckets + 1, sizeof *d->gather);
    if (!d->gather) return ls_fail(LS_NO_MEMORY, "%d buckets to gather", d->nbuckets);
    for (int k = 0; k < d->nbuckets; k++) LS_TRY(add_gather(d, k, 1, dtype, d->b[k].label));
    return dtype == LS_F32 ? LS_OK : add_gather(d, 0, d->nbuckets, LS_F32, "values in f32");
}

/* Rows of a span that the `ranks` of a group bring. */
static size_t rows_brought(const ls_matrix_span *s, int ranks)
{
    size_t rows = 0;
    for (int r = 0; s->part && r < ranks; r++) rows += s->part[r].count;
    return s->part ? rows : s->rows;
}

/* The larger of `most` and the bytes of some spans in a group of so many ranks. */
static size_t larger(size_t most, const ls_matrix_span *span, int n, ls_dtype dtype, int ranks)
{
    size_t count = 0;
    for (int i = 0; i < n; i++) count += rows_brought(&span[i], ranks) * span[i].row;
    const size_t nbytes = count * ls_dtype_size(dtype);
    return nbytes > most ? nbytes : most;
}

/* Where ranks do not map each other's memory, spans travel packed: the place for them is known now. */
static ls_status reserve(ls_ddp *d)
{
    const bool one_group = d->gathers_in == d->shards;
    size_t sums = 0, values = 0;
    for (int k = 0; k < d->nbuckets; k++)
        if (d->b[k].span) sums = larger(sums, d->b[k].span, d->b[k].nparams, LS_F32, ls_group_size(d->shards));
    for (int k = 0; k < d->ngathers; k++) {
        const ls_coll_args *a = &d->gather[k].call;
        values = larger(values, a->span, a->nspans, a->dtype, ls_group_size(d->gathers_in));
    }
    LS_TRY(ls_group_reserve_spans(d->shards, one_group && values > sums ? values : sums));
    return one_group ? LS_OK : ls_group_reserve_spans(d->gathers_in, values);
}

/* Of ranks that hold the same shard, the first counts it in the norm. */
static void keep(const ls_ddp *d)
{
    const bool counts = !d->c.copies || ls_group_rank(d->c.copies) == 0;
    for (int i = 0; i < d->ps->n; i++)
        d->ps->item[i].keeps = counts ? d->ps->item[i].own : (ls_range){ d->ps->item[i].own.first, 0 };
}

ls_status ls_shard_place(const ls_shard_how *how, ls_ddp *d)
{
    ls_shard_plan l;
    const ls_dtype dtype = d->ps->bound;
    LS_TRY(plan_make(d->ps, &d->c, how->at_units, dtype, ls_group_size(d->g), &l));
    if (how->nodes) d->gathers_in = d->c.column;
    ls_status st = check_bound(d, how, &l, &d->grads);
    if (st == LS_OK) {
        keep(d);
        st = how->lends ? ls_buckets_make(d, l.order, l.number, l.nbuckets)
                        : ls_buckets_place(d, l.order, l.number, l.nbuckets);
    }
    for (int k = 0; st == LS_OK && !how->sums_all && k < d->nbuckets; k++) st = scatter(d->ps, &d->b[k]);
    if (st == LS_OK && (how->values == LS_SHARD_EACH || how->nodes)) st = make_gathers(d, dtype);
    if (st == LS_OK) st = reserve(d);
    d->narrived = -1;
    plan_free(&l);
    return st;
}

/* --- values ------------------------------------------------------------------------------------- */

/* Floats that only their owners have come together in borrowed memory. */
static ls_status gather_master(const ls_shard_how *how, ls_ddp *d, const ls_param *p, const float **out)
{
    const int size = ls_group_size(d->shards);
    float *all;
    LS_TRY(how->lend ? how->lend(d, p, &all) : ls_bucket_lend(p, ls_group_rank(d->g), &all));
    size_t *count = calloc((size_t)size, sizeof *count);
    if (!count) return ls_fail(LS_NO_MEMORY, "the shards of %d ranks", size);
    for (int r = 0; r < size; r++) count[r] = owned(p, r, size).count;
    if (!d->dry) memcpy(all + p->own.first, p->master, p->own.count * sizeof(float));
    const ls_status st = ls_all_gather_v(d->shards, NULL, all, count, LS_F32);
    free(count);
    *out = all;
    return st;
}

ls_status ls_shard_whole(const ls_shard_how *how, ls_ddp *d, const ls_param *p, const float **out)
{
    if (p->master) return gather_master(how, d, p, out);
    *out = p->t.data;
    if (d->state != LS_DP_REDUCED) return LS_OK;
    return ls_fail(LS_INVALID, "the values of %s on rank %d: ls_ddp_after_step was not called after the last backward "
                               "that reduced", p->name, ls_group_rank(d->g));
}
