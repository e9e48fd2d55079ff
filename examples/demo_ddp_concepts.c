/* DDP's three ideas on a CPU, by running them: who gets which sample, what all_reduce gives, and why
 * replicas stay equal. Ranks are threads of this process. */
#include <stdio.h>
#include <string.h>

#include "lockstep/lockstep.h"

#define RANKS 4
#define SAMPLES 20
#define GRADS 3

static ls_status show_sampler(void)
{
    printf("1. DistributedSampler: each rank gets its own part of the data\n");
    for (int rank = 0; rank < RANKS; rank++) {
        ls_sampler *s;
        LS_TRY(ls_sampler_create(SAMPLES, RANKS, rank, false, 0, false, &s));
        printf("   rank %d sees samples:", rank);
        for (size_t i = 0; i < s->num_samples; i++) printf(" %lld", (long long)s->index[i]);
        printf("\n");
        ls_sampler_destroy(s);
    }
    return LS_OK;
}

typedef struct replicas {
    float grad[RANKS][GRADS], mean[RANKS][GRADS];
    char digest[RANKS][33];
} replicas;

static ls_status average(ls_world *w, void *arg)
{
    replicas *x = arg;
    int rank = ls_world_rank(w);
    return ls_all_reduce(ls_world_group(w), x->grad[rank], x->mean[rank], GRADS, LS_F32, LS_AVG);
}

static ls_status show_all_reduce(replicas *x)
{
    printf("\n2. Gradient AllReduce: every rank ends with the mean of all gradients\n");
    for (int rank = 0; rank < RANKS; rank++) {
        ls_philox_normal(42, (uint64_t)rank, 0, GRADS, 1.0f, x->grad[rank]);
        printf("   rank %d gradient: [%7.4f %7.4f %7.4f]\n", rank, (double)x->grad[rank][0], (double)x->grad[rank][1],
               (double)x->grad[rank][2]);
    }
    LS_TRY(ls_world_threads(RANKS, NULL, average, x));
    for (int i = 0; i < GRADS; i++) {
        double by_hand = 0;
        for (int rank = 0; rank < RANKS; rank++) by_hand += (double)x->grad[rank][i] / RANKS;
        for (int rank = 0; rank < RANKS; rank++)
            if (x->mean[rank][i] != x->mean[0][i] || by_hand - (double)x->mean[rank][i] > 1e-6 ||
                (double)x->mean[rank][i] - by_hand > 1e-6)
                return ls_fail(LS_INTERNAL, "rank %d has %g for the mean %g", rank, (double)x->mean[rank][i], by_hand);
    }
    printf("   averaged:        [%7.4f %7.4f %7.4f]\n", (double)x->mean[0][0], (double)x->mean[0][1],
           (double)x->mean[0][2]);
    printf("   all ranks now have this same averaged gradient\n");
    return LS_OK;
}

/* Model 4-8-2, one SGD step with lr 0.01 on a batch of 4; initial values differ until DDP broadcasts rank 0's. */
static ls_status train_replica(ls_world *w, void *arg)
{
    replicas *x = arg;
    int rank = ls_world_rank(w);
    const int64_t dims[3] = { 4, 8, 2 }, xdim[2] = { 4, 4 }, ydim[1] = { 4 };
    const ls_model_config mc = {
        .name = "mlp", .dims = dims, .ndims = 3, .init = LS_INIT_PHILOX, .seed = (uint64_t)rank
    };
    ls_optim_config oc;
    ls_model *model = NULL;
    ls_arena *arena = NULL;
    ls_ddp *ddp = NULL;
    ls_tape *tape = NULL;
    ls_optim *sgd = NULL;
    float input[16];
    int64_t label[4] = { 0, 1, 0, 1 };
    ls_philox_normal(7, (uint64_t)rank, 0, 16, 1.0f, input);

    ls_status st = ls_optim_defaults("sgd", &oc);
    oc.lr = 0.01;
    if (st == LS_OK) st = ls_model_create(&mc, &model);
    if (st == LS_OK) st = ls_arena_create(1 << 16, false, NULL, &arena);
    if (st == LS_OK) st = ls_params_bind(&model->params, arena, NULL);
    if (st == LS_OK) st = ls_model_init(model, &mc);
    if (st == LS_OK) st = ls_ddp_create(ls_world_group(w), &model->params, NULL, &ddp);
    if (st == LS_OK) st = ls_optim_create(&oc, &model->params, arena, &sgd);
    if (st == LS_OK) st = ls_tape_create(1 << 18, NULL, NULL, &tape);
    if (st == LS_OK) st = ls_ddp_begin_forward(ddp, tape, true);
    if (st == LS_OK) {
        ls_tensor *in = ls_tape_input(tape, LS_F32, 2, xdim, input),
                  *want = ls_tape_input(tape, LS_I64, 1, ydim, label);
        st = ls_backward(tape, ls_softmax_cross_entropy(tape, ls_model_forward(model, tape, in), want, NULL, NULL));
    }
    if (st == LS_OK) st = ls_optim_step(sgd);
    if (st == LS_OK) st = ls_params_digest(&model->params, x->digest[rank]);
    ls_tape_destroy(tape);
    ls_optim_destroy(sgd);
    ls_ddp_destroy(ddp);
    ls_model_destroy(model);
    ls_arena_destroy(arena);
    return st;
}

static ls_status show_sync(replicas *x)
{
    printf("\n3. Parameter sync: same start, same averaged gradient, same update\n");
    LS_TRY(ls_world_threads(RANKS, NULL, train_replica, x));
    for (int rank = 0; rank < RANKS; rank++) {
        printf("   rank %d parameters after a step: digest %s\n", rank, x->digest[rank]);
        if (strcmp(x->digest[rank], x->digest[0]) != 0)
            return ls_fail(LS_INTERNAL, "rank %d has other parameters than rank 0", rank);
    }
    printf("   identical on all ranks, and no parameter was sent after the start\n");
    return LS_OK;
}

int main(void)
{
    replicas x = { 0 };
    printf("DDP concepts, run on this CPU with %d ranks\n\n", RANKS);
    ls_status st = show_sampler();
    if (st == LS_OK) st = show_all_reduce(&x);
    if (st == LS_OK) st = show_sync(&x);
    if (st < 0) fprintf(stderr, "demo_ddp_concepts: error[%s]: %s\n", ls_status_word(st), ls_last_error());
    else
        printf("\nA real launch:\n   build/examples/train_ddp --world-size 2 --d-in 64 --d-hidden 128 --d-out 10 "
               "--epochs 10\n");
    return ls_status_exit_code(st);
}
