/* Exercise 3 of lab 00: convert this script.
 *
 * It trains on one rank, and saves the model after each epoch. Make it train on all ranks of a job:
 *
 *   1. `lockstep run --nproc-per-node 4 --lint` has no finding: the rank joins the job, the wrapper averages gradients,
 *      the sampler deals samples to ranks, one rank writes.
 *   2. The loss is that of one rank, within 1e-5, on 1, 2 and 4 ranks: `batch` counts the samples of all ranks.
 *   3. A job that was killed goes on: if `file` is there when the script starts, it holds the model after some epochs.
 *
 * `batch` and `samples` are multiples of 4. Ranks that are threads call `train` directly.
 */
#include <stdio.h>
#include <stdlib.h>

#include "lockstep/lockstep.h"

typedef struct run {
    int samples, in, classes;
    int batch, epochs;
    uint64_t seed;
    const char *file;                                    /* NULL: nothing is saved */
    void (*after_epoch)(const struct run *r, int epoch); /* to be called on every rank, when the file is there */
    double loss;                                         /* result: of the trained model, over all samples */
} run;

/* How many epochs the model in the file has been trained for; 0: there is no file. */
static int epochs_in(const char *file)
{
    ls_ckpt *c = NULL;
    if (!file || ls_ckpt_open(file, &c) < 0) return 0;
    const char *epochs = ls_ckpt_meta(c, "epochs");
    const int n = epochs ? atoi(epochs) : 0;
    ls_ckpt_close(c);
    return n;
}

static ls_status save(const run *r, const ls_params *ps, int epochs)
{
    char text[16];
    snprintf(text, sizeof text, "%d", epochs);
    return ls_ckpt_save(r->file, ps, (const char *const[]){ "epochs", text, NULL });
}

static ls_tensor *loss_of(ls_model *model, ls_tape *tape, const run *r, const ls_loader *batch)
{
    const int64_t n = (int64_t)batch->n, dim[2] = { n, r->in };
    ls_tape_reset(tape);
    ls_tensor *x = ls_tape_input(tape, LS_F32, 2, dim, batch->x), *y = ls_tape_input(tape, LS_I64, 1, &n, batch->label);
    return ls_softmax_cross_entropy(tape, ls_model_forward(model, tape, x), y, NULL, NULL);
}

ls_status train(ls_world *world, void *arg)
{
    run *r = arg;
    const int64_t dims[] = { r->in, 16, r->classes };
    const ls_model_config mc = { .name = "mlp", .dims = dims, .ndims = 3, .init = LS_INIT_PHILOX, .seed = r->seed };
    ls_dataset data = { 0 };
    ls_model *model = NULL;
    ls_arena *arena = NULL;
    ls_optim *sgd = NULL;
    ls_tape *tape = NULL;
    ls_sampler *sampler = NULL, *all = NULL;
    ls_loader *loader = NULL, *whole = NULL;
    ls_optim_config oc;
    const ls_tensor *mean = NULL;
    int first = 0; /* epoch */
    (void)world, (void)epochs_in; /* your code takes the place of this line, and of others */
    ls_status st = ls_dataset_synthetic(r->seed, (size_t)r->samples, (size_t)r->in, r->classes, &data);
    if (st == LS_OK) st = ls_model_create(&mc, &model);
    if (st == LS_OK) st = ls_arena_create((size_t)1 << 20, false, NULL, &arena);
    if (st == LS_OK) st = ls_params_bind(&model->params, arena, arena);
    if (st == LS_OK) st = ls_model_init(model, &mc);
    if (st == LS_OK) st = ls_optim_defaults("sgd", &oc);
    oc.lr = 0.1;
    if (st == LS_OK) st = ls_optim_create(&oc, &model->params, arena, &sgd);
    if (st == LS_OK) st = ls_tape_create(ls_model_tape_bytes(model, r->samples), NULL, NULL, &tape);
    if (st == LS_OK) st = ls_sampler_create((size_t)r->samples, 1, 0, true, 0, false, &sampler);
    if (st == LS_OK) st = ls_loader_create(&data, sampler, (size_t)r->batch, false, &loader);

    for (int epoch = first; st == LS_OK && epoch < r->epochs; epoch++) {
        st = ls_sampler_set_epoch(sampler, (uint64_t)epoch);
        ls_loader_rewind(loader);
        while (st == LS_OK && (st = ls_loader_next(loader)) == LS_OK && loader->n > 0) {
            ls_params_zero_grad(&model->params);
            st = ls_backward(tape, loss_of(model, tape, r, loader));
            if (st == LS_OK) st = ls_optim_step(sgd);
        }
        if (st == LS_OK && r->file) st = save(r, &model->params, epoch + 1);
        if (st == LS_OK) r->after_epoch(r, epoch);
    }

    if (st == LS_OK) st = ls_sampler_create((size_t)r->samples, 1, 0, false, 0, false, &all);
    if (st == LS_OK) st = ls_loader_create(&data, all, (size_t)r->samples, false, &whole);
    if (st == LS_OK) st = ls_loader_next(whole);
    if (st == LS_OK) mean = loss_of(model, tape, r, whole);
    if (st == LS_OK) st = ls_tape_status(tape);
    if (st == LS_OK) r->loss = (double)*(const float *)mean->data;

    ls_loader_destroy(whole);
    ls_sampler_destroy(all);
    ls_loader_destroy(loader);
    ls_sampler_destroy(sampler);
    ls_tape_destroy(tape);
    ls_optim_destroy(sgd);
    ls_model_destroy(model);
    ls_arena_destroy(arena);
    ls_dataset_free(&data);
    return st;
}

ls_status script(run *r) { return train(NULL, r); }
