/* harness_replica.c -- builds a replica and feeds it. */
#include "harness_replica.h"

#include <stdlib.h>
#include <string.h>

#include "parallel/strategy.h"

static ls_status bind(ls_group *g, ls_params *ps, const ls_replica_config *c, ls_arena *own)
{
    const ls_dtype dtype = c->bf16 ? LS_BF16 : LS_F32;
    return c->strategy ? ls_dp_bind(c->strategy, g, ps, c->ddp, dtype, own) : ls_ddp_bind(g, ps, c->ddp, dtype, own);
}

static ls_status wrap(ls_group *g, ls_params *ps, const ls_replica_config *c, ls_ddp **out)
{
    return c->strategy ? ls_dp_create(c->strategy, g, ps, c->ddp, out) : ls_ddp_create(g, ps, c->ddp, out);
}

static ls_status build(ls_world *w, const ls_replica_config *c, ls_replica *out)
{
    const ls_model_config mc = { .name = "mlp", .dims = c->dims, .ndims = c->ndims, .init = LS_INIT_PHILOX,
                                 .seed = c->seed };
    *out = (ls_replica){ .features = c->dims[0], .classes = c->dims[c->ndims - 1], .rows = c->rows };
    ls_optim_config oc;
    LS_TRY(ls_optim_defaults(c->optim ? c->optim : "sgd", &oc));
    if (c->lr > 0) oc.lr = c->lr;
    LS_TRY(ls_model_create(&mc, &out->model));
    ls_params *ps = &out->model->params;
    LS_TRY(ls_arena_create(2 * ls_params_nbytes(ps), false, NULL, &out->arena));
    ls_arena_may_grow(out->arena, NULL, NULL);
    if (c->plain) LS_TRY(ls_params_bind(ps, out->arena, out->arena));
    else LS_TRY(bind(ls_world_group(w), ps, c, out->arena));
    LS_TRY(c->saved ? ls_checkpoint_values(c->saved, ps) : ls_model_init(out->model, &mc));
    ls_params_round(ps);
    if (!c->plain) LS_TRY(wrap(ls_world_group(w), ps, c, &out->ddp));
    if (c->optim) LS_TRY(ls_optim_create(&oc, ps, out->arena, &out->optim));
    LS_TRY(ls_tape_create(ls_model_tape_bytes(out->model, c->rows), NULL, c->tracer, &out->tape));
    if (c->bf16) LS_TRY(ls_tape_set_dtype(out->tape, LS_BF16));
    out->x = malloc((size_t)(c->rows * out->features) * sizeof *out->x);
    out->label = malloc((size_t)c->rows * sizeof *out->label);
    return out->x && out->label ? LS_OK : ls_fail(LS_NO_MEMORY, "a batch of %lld rows", (long long)c->rows);
}

ls_status ls_replica_create(ls_world *w, const ls_replica_config *c, ls_replica *out)
{
    const ls_status st = build(w, c, out);
    if (st < 0) ls_replica_destroy(out);
    return st;
}

void ls_replica_destroy(ls_replica *r)
{
    ls_tape_destroy(r->tape);
    ls_optim_destroy(r->optim);
    ls_ddp_destroy(r->ddp);
    ls_model_destroy(r->model);
    ls_arena_destroy(r->arena);
    free(r->x);
    free(r->label);
    *r = (ls_replica){ 0 };
}

ls_status ls_replica_pass(ls_replica *r, uint64_t batch, int64_t first, int64_t n, bool sync, float weight,
                          double *loss_sum)
{
    const int64_t xdim[2] = { n, r->features }, ydim[1] = { n };
    ls_philox_normal(1000 + batch, 0, (uint64_t)(first * r->features), (size_t)(n * r->features), 1.0f, r->x);
    for (int64_t i = 0; i < n; i++) {
        uint32_t word[4];
        ls_philox_block(1000 + batch, 1, (uint64_t)(first + i), word);
        r->label[i] = (int64_t)(word[0] % (uint32_t)r->classes);
    }
    double sum = 0;
    ls_tape_reset(r->tape);
    if (r->ddp) LS_TRY(ls_ddp_begin_forward(r->ddp, r->tape, sync));
    ls_tensor *x = ls_tape_input(r->tape, LS_F32, 2, xdim, r->x);
    ls_tensor *y = ls_tape_input(r->tape, LS_I64, 1, ydim, r->label);
    ls_tensor *loss = ls_softmax_cross_entropy(r->tape, ls_model_forward(r->model, r->tape, x), y, &sum, NULL);
    LS_TRY(ls_backward_from(r->tape, loss, &weight));
    if (loss_sum) *loss_sum += sum;
    return LS_OK;
}

static float *gather(const ls_params *ps, bool grads)
{
    float *all = malloc((size_t)ls_params_count(ps) * sizeof *all), *at = all;
    for (int i = 0; all && i < ps->n; i++) {
        const ls_tensor *t = grads ? &ps->item[i].grad : &ps->item[i].t;
        memcpy(at, t->data, ls_tensor_nbytes(&ps->item[i].t));
        at += ls_tensor_count(&ps->item[i].t);
    }
    return all;
}

float *ls_replica_grads(const ls_replica *r) { return gather(&r->model->params, true); }
float *ls_replica_values(const ls_replica *r) { return gather(&r->model->params, false); }

ls_status ls_replica_whole(const ls_replica *r, float **out)
{
    const ls_params *ps = &r->model->params;
    const ls_values values = ls_ddp_values(r->ddp);
    float *at = *out = malloc((size_t)ls_params_count(ps) * sizeof *at);
    LS_EXPECT(at, "memory for %lld values", (long long)ls_params_count(ps));
    for (int i = 0; i < ps->n; i++) {
        const float *v;
        LS_TRY(values.whole(values.arg, &ps->item[i], &v));
        memcpy(at, v, ls_tensor_nbytes(&ps->item[i].t));
        at += ls_tensor_count(&ps->item[i].t);
    }
    return LS_OK;
}

ls_status ls_expect_equal(ls_world *w, const void *mine, size_t n, const char *what)
{
    static _Thread_local char all[LS_TEST_RANKS * 64]; /* of this rank */
    size_t size = (size_t)ls_world_size(w);
    memcpy(all + (size_t)ls_world_rank(w) * n, mine, n);
    LS_TRY(ls_all_gather(ls_world_group(w), NULL, all, size * n, LS_U8));
    for (size_t r = 1; r < size; r++)
        LS_EXPECT(memcmp(all, all + r * n, n) == 0, "rank %zu and rank 0 have different %s", r, what);
    return LS_OK;
}
