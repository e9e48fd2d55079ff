/* starter.c -- single.c, converted: the same training on many ranks, each with its share of every batch.
 *
 *   build/labs/00_conversion [FILE]             one rank: what single.c does
 *   build/lockstep run --nproc-per-node 4 -- build/labs/00_conversion [FILE]
 */
#include <stdio.h>

#include "lockstep/lockstep.h"

enum { SAMPLES = 256, IN = 64, CLASSES = 10, BATCH = 32, EPOCHS = 3 };

static ls_tensor *loss_of(ls_model *model, ls_tape *tape, const ls_loader *batch)
{
    const int64_t n = (int64_t)batch->n, dim[2] = { n, IN };
    ls_tape_reset(tape);
    ls_tensor *x = ls_tape_input(tape, LS_F32, 2, dim, batch->x), *y = ls_tape_input(tape, LS_I64, 1, &n, batch->label);
    return ls_softmax_cross_entropy(tape, ls_model_forward(model, tape, x), y, NULL, NULL);
}

static ls_status train(ls_world *world, void *file)
{
    const int rank = ls_world_rank(world), size = ls_world_size(world);
    const int64_t dims[] = { IN, 128, CLASSES };
    const ls_model_config mc = { .name = "mlp", .dims = dims, .ndims = 3, .init = LS_INIT_PHILOX, .seed = 42 };
    ls_dataset data = { 0 };
    ls_model *model = NULL;
    ls_arena *arena = NULL;
    ls_ddp *ddp = NULL;
    ls_optim *adam = NULL;
    ls_tape *tape = NULL;
    ls_sampler *sampler = NULL, *all = NULL;
    ls_loader *loader = NULL, *whole = NULL;
    ls_optim_config oc;
    const ls_tensor *mean = NULL;
    ls_status st = ls_dataset_synthetic(0, SAMPLES, IN, CLASSES, &data);
    if (st == LS_OK) st = ls_model_create(&mc, &model);
    if (st == LS_OK) st = ls_arena_create((size_t)1 << 20, false, NULL, &arena);
    if (st == LS_OK) st = ls_params_bind(&model->params, arena, NULL); /* gradients: in buckets */
    if (st == LS_OK) st = ls_model_init(model, &mc);
    if (st == LS_OK) st = ls_ddp_create(ls_world_group(world), &model->params, NULL, &ddp);
    if (st == LS_OK) st = ls_optim_defaults("adam", &oc);
    if (st == LS_OK) st = ls_optim_create(&oc, &model->params, arena, &adam);
    if (st == LS_OK) st = ls_tape_create(ls_model_tape_bytes(model, SAMPLES), NULL, NULL, &tape);
    if (st == LS_OK) st = ls_sampler_create(SAMPLES, size, rank, true, 0, false, &sampler);
    if (st == LS_OK) st = ls_loader_create(&data, sampler, (size_t)(BATCH / size), false, &loader);

    for (uint64_t epoch = 0; st == LS_OK && epoch < EPOCHS; epoch++) {
        st = ls_sampler_set_epoch(sampler, epoch);
        ls_loader_rewind(loader);
        while (st == LS_OK && (st = ls_loader_next(loader)) == LS_OK && loader->n > 0) {
            ls_params_zero_grad(&model->params);
            st = ls_ddp_begin_forward(ddp, tape, true);
            if (st == LS_OK) st = ls_backward(tape, loss_of(model, tape, loader));
            if (st == LS_OK) st = ls_optim_step(adam);
        }
    }

    /* The loss of the trained model over all samples. */
    if (st == LS_OK) st = ls_sampler_create(SAMPLES, 1, 0, false, 0, false, &all);
    if (st == LS_OK) st = ls_loader_create(&data, all, SAMPLES, false, &whole);
    if (st == LS_OK) st = ls_loader_next(whole);
    if (st == LS_OK) mean = loss_of(model, tape, whole);
    if (st == LS_OK) st = ls_tape_status(tape);
    if (st == LS_OK && file && rank == 0) st = ls_ckpt_save(file, &model->params, NULL);
    if (st == LS_OK) st = ls_barrier(ls_world_group(world)); /* now every rank finds the file */
    if (st == LS_OK && rank == 0) printf("{\"loss\": %.9g}\n", (double)*(const float *)mean->data);

    ls_loader_destroy(whole);
    ls_sampler_destroy(all);
    ls_loader_destroy(loader);
    ls_sampler_destroy(sampler);
    ls_tape_destroy(tape);
    ls_optim_destroy(adam);
    ls_ddp_destroy(ddp);
    ls_model_destroy(model);
    ls_arena_destroy(arena);
    ls_dataset_free(&data);
    return st;
}

int main(int argc, char **argv)
{
    const ls_status st = ls_world_run(&(ls_world_opts){ .bind = true }, train, argc > 1 ? argv[1] : NULL);
    if (st < 0) fprintf(stderr, "error[%s]: %s\n", ls_status_word(st), ls_last_error());
    return ls_status_exit_code(st);
}
