/* net.h -- the small network that the probes of labs train: three layers, on one rank or under DDP. */
#ifndef LS_LABS_NET_H
#define LS_LABS_NET_H
#include <string.h>

#include "lockstep/lockstep.h"

enum { NET_IN = 64, NET_OUT = 10, NET_MOST_ROWS = 64 };

typedef struct net {
    ls_model *model;
    ls_arena *arena;
    ls_tape *tape;
    ls_ddp *ddp; /* NULL: gradients stay on this rank */
    ls_optim *optim;
} net;

/* c NULL: without DDP; optim "momentum": sgd with momentum 0.9. After a failure, too, net_close frees it. */
static inline ls_status net_open(net *n, ls_world *w, const ls_ddp_config *c, const char *optim, uint64_t seed)
{
    static const int64_t dims[] = { NET_IN, 128, 64, NET_OUT };
    const ls_model_config mc = { .name = "mlp", .dims = dims, .ndims = 4, .init = LS_INIT_PHILOX, .seed = seed };
    ls_optim_config oc;
    memset(n, 0, sizeof *n);
    const bool momentum = strcmp(optim, "momentum") == 0;
    LS_TRY(ls_optim_defaults(momentum ? "sgd" : optim, &oc));
    if (momentum) oc.momentum = 0.9;
    oc.lr = 0.01;
    LS_TRY(ls_model_create(&mc, &n->model));
    LS_TRY(ls_arena_create((size_t)1 << 20, false, NULL, &n->arena));
    if (c) LS_TRY(ls_ddp_bind(ls_world_group(w), &n->model->params, c, LS_F32, n->arena));
    else LS_TRY(ls_params_bind(&n->model->params, n->arena, n->arena));
    LS_TRY(ls_model_init(n->model, &mc));
    if (c) LS_TRY(ls_ddp_create(ls_world_group(w), &n->model->params, c, &n->ddp));
    LS_TRY(ls_optim_create(&oc, &n->model->params, n->arena, &n->optim));
    return ls_tape_create(ls_model_tape_bytes(n->model, NET_MOST_ROWS), NULL, NULL, &n->tape);
}

static inline void net_close(net *n)
{
    ls_tape_destroy(n->tape);
    ls_optim_destroy(n->optim);
    ls_ddp_destroy(n->ddp);
    ls_model_destroy(n->model);
    ls_arena_destroy(n->arena);
}

/* Gradients of samples [first, first + rows) of a step, times `weight`: they take the place of those that there are
 * (zero), or are added; they are averaged over ranks (sync), or stay on this rank for the next micro-batch. */
static inline ls_status net_micro_batch(net *n, uint64_t step, int64_t first, int64_t rows, float weight, bool zero,
                                        bool sync)
{
    const int64_t xdim[2] = { rows, NET_IN };
    float x[NET_MOST_ROWS * NET_IN];
    int64_t label[NET_MOST_ROWS];
    ls_philox_normal(7, step, (uint64_t)(first * NET_IN), (size_t)(rows * NET_IN), 1.0f, x);
    for (int64_t i = 0; i < rows; i++) label[i] = (3 * (first + i) + (int64_t)step) % NET_OUT;
    if (zero) ls_params_zero_grad(&n->model->params);
    ls_tape_reset(n->tape);
    if (n->ddp) LS_TRY(ls_ddp_begin_forward(n->ddp, n->tape, sync));
    ls_tensor *in = ls_tape_input(n->tape, LS_F32, 2, xdim, x), *want = ls_tape_input(n->tape, LS_I64, 1, &rows, label);
    ls_tensor *loss = ls_softmax_cross_entropy(n->tape, ls_model_forward(n->model, n->tape, in), want, NULL, NULL);
    return ls_backward_from(n->tape, loss, &weight);
}

/* The only micro-batch of a step. */
static inline ls_status net_backward(net *n, uint64_t step, int64_t first, int64_t rows, float weight)
{
    return net_micro_batch(n, step, first, rows, weight, true, true);
}

#endif
