/* bench_ddp_step.c -- one training step of the exercise: MLP 64-128-10, 32 samples a rank, Adam, DDP.
 *
 * Timed on rank 0: fetching the samples, zero_grad, forward, loss, backward with the all_reduce in it, and
 * the optimizer's update. bench/peers/ddp_step.py times the same in PyTorch.
 *
 *   build/bench/bench_ddp_step [ranks [steps]]      (starts its ranks by itself)
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/env.h"
#include "lockstep/lockstep.h"

enum { IN = 64, HIDDEN = 128, OUT = 10, BATCH = 32, SAMPLES = 1000, WARM_UP = 200 };

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

typedef struct job {
    ls_dataset data;
    ls_model *model;
    ls_arena *arena;
    ls_ddp *ddp;
    ls_optim *adam;
    ls_tape *tape;
    float x[BATCH * IN];
    int64_t y[BATCH];
} job;

static ls_status build(job *j, ls_world *w)
{
    const ls_model_config mlp = { .name = "mlp", .dims = (const int64_t[]){ IN, HIDDEN, OUT }, .ndims = 3, .init = LS_INIT_TORCH };
    ls_optim_config adam;
    LS_TRY(ls_dataset_synthetic(0, SAMPLES, IN, OUT, &j->data));
    LS_TRY(ls_model_create(&mlp, &j->model));
    LS_TRY(ls_arena_create((size_t)1 << 20, false, NULL, &j->arena));
    LS_TRY(ls_params_bind(&j->model->params, j->arena, NULL));
    LS_TRY(ls_model_init(j->model, &mlp));
    LS_TRY(ls_ddp_create(ls_world_group(w), &j->model->params, NULL, &j->ddp));
    LS_TRY(ls_optim_defaults("adam", &adam));
    LS_TRY(ls_optim_create(&adam, &j->model->params, j->arena, &j->adam));
    return ls_tape_create(ls_model_tape_bytes(j->model, BATCH), NULL, NULL, &j->tape);
}

static ls_status step(job *j, size_t first)
{
    for (size_t i = 0; i < BATCH; i++) {
        size_t sample = (first + i) % SAMPLES;
        memcpy(j->x + i * IN, j->data.x + sample * IN, IN * sizeof(float));
        j->y[i] = j->data.label[sample];
    }
    ls_params_zero_grad(&j->model->params);
    ls_tape_reset(j->tape);
    LS_TRY(ls_ddp_begin_forward(j->ddp, j->tape, true));
    ls_tensor *x = ls_tape_input(j->tape, LS_F32, 2, (const int64_t[]){ BATCH, IN }, j->x);
    ls_tensor *y = ls_tape_input(j->tape, LS_I64, 1, (const int64_t[]){ BATCH }, j->y);
    ls_tensor *logits = ls_model_forward(j->model, j->tape, x);
    LS_TRY(ls_backward(j->tape, ls_softmax_cross_entropy(j->tape, logits, y, NULL, NULL)));
    return ls_optim_step(j->adam);
}

/* A fast step that lets replicas drift apart would be worth nothing. */
static ls_status same_replicas(job *j, ls_world *w)
{
    const size_t size = (size_t)ls_world_size(w);
    char mine[33], *all = malloc(32 * size);
    if (!all) return ls_fail(LS_NO_MEMORY, "digests of %zu ranks", size);
    ls_status st = ls_params_digest(&j->model->params, mine);
    if (st == LS_OK) st = ls_all_gather(ls_world_group(w), mine, all, 32 * size, LS_U8);
    for (size_t r = 0; r < size && st == LS_OK; r++)
        if (memcmp(all + 32 * r, all, 32) != 0) st = ls_fail(LS_INTERNAL, "ranks 0 and %zu have different models", r);
    free(all);
    return st;
}

static ls_status run(ls_world *w, int steps)
{
    const ls_env *env = ls_env_get();
    const size_t rank = (size_t)ls_world_rank(w), size = (size_t)ls_world_size(w);
    job j = { 0 };
    double *us = calloc((size_t)steps, sizeof *us);
    ls_status st = us ? build(&j, w) : ls_fail(LS_NO_MEMORY, "times of %d steps", steps);
    for (int s = -WARM_UP; st == LS_OK && s < steps; s++) {
        uint64_t t0 = env->mono_ns();
        st = step(&j, ((size_t)(s + WARM_UP) * size + rank) * BATCH);
        if (s >= 0) us[s] = 1e-3 * (double)(env->mono_ns() - t0);
    }
    if (st == LS_OK) st = same_replicas(&j, w);
    if (st == LS_OK && rank == 0) {
        qsort(us, (size_t)steps, sizeof *us, by_value);
        printf("%6zu %12.2f %12.2f\n", size, us[steps / 2], us[0]);
        fflush(stdout);
    }
    ls_tape_destroy(j.tape);
    ls_optim_destroy(j.adam);
    ls_ddp_destroy(j.ddp);
    ls_model_destroy(j.model);
    ls_arena_destroy(j.arena);
    ls_dataset_free(&j.data);
    free(us);
    return st;
}

static int start(const char *const *argv, int ranks)
{
    ls_launch_opts o = { .argv = argv, .nproc = ranks };
    ls_launch_result result;
    printf("# step of MLP %d-%d-%d, %d samples a rank, Adam, DDP\n%6s %12s %12s\n", IN, HIDDEN, OUT, BATCH, "ranks", "median us",
           "min us");
    fflush(stdout);
    if (ls_launch(&o, &result) == LS_OK) return result.exit_code;
    fprintf(stderr, "bench_ddp_step: %s\n", ls_last_error());
    return 1;
}

int main(int argc, char **argv)
{
    int ranks = argc > 1 ? atoi(argv[1]) : 2, steps = argc > 2 ? atoi(argv[2]) : 2000;
    if (ranks < 1 || ranks > LS_HOST_MOST_RANKS || steps < 1) {
        fprintf(stderr, "usage: bench_ddp_step [ranks [steps]], 1 to %d ranks\n", LS_HOST_MOST_RANKS);
        return 64;
    }
    if (!getenv("RANK")) return start((const char *const *)argv, ranks);
    ls_world_opts o = { 0 };
    ls_world *w;
    ls_status st = ls_world_join(&o, &w);
    if (st == LS_OK) st = run(w, steps);
    if (st < 0 && st != LS_ABORTED) fprintf(stderr, "bench_ddp_step: %s\n", ls_last_error());
    if (st < 0 && w) (void)ls_world_abort(w, st);
    ls_world_leave(w);
    return ls_status_exit_code(st);
}
