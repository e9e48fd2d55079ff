/* The exercise: Linear - ReLU - Linear on synthetic data, Adam, cross-entropy; train_single.c on one
 * rank, train_ddp.c on many. Put side by side they show what data parallel training adds. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include "lockstep/lockstep.h"

#define NAME "train_single"

typedef struct options {
    int64_t d_in, d_hidden, d_out, epochs, batch, seed;
    double lr;
    const char *init, *out;
    bool help;
} options;

#define AT(field) offsetof(options, field)
static const ls_opt table[] = {
    { "d-in", LS_OPT_INT, AT(d_in), "64", "1..1048576", "features of a sample", 0, NULL },
    { "d-hidden", LS_OPT_INT, AT(d_hidden), "128", "1..1048576", "width of the hidden layer", 0, NULL },
    { "d-out", LS_OPT_INT, AT(d_out), "10", "2..1048576", "classes", 0, NULL },
    { "epochs", LS_OPT_INT, AT(epochs), "10", "0..", "passes over the data", 0, NULL },
    { "batch", LS_OPT_INT, AT(batch), "32", "1..", "samples per rank and step", 0, NULL },
    { "lr", LS_OPT_DOUBLE, AT(lr), "1e-3", "0..", "Adam's learning rate", 0, NULL },
    { "seed", LS_OPT_INT, AT(seed), "0", "0..", "of the model's initial values", 0, NULL },
    { "init", LS_OPT_CHOICE, AT(init), "torch", "torch|philox", "generator of the initial values", 0, NULL },
    { "out", LS_OPT_STRING, AT(out), "./ddp_model.safetensors", NULL, "where the trained model is saved", 0, NULL },
    { "help", LS_OPT_BOOL, AT(help), "false", NULL, "print this and stop", 'h', NULL },
};

static ls_status train(const ls_model_config *model_class, const ls_dataset *data, const options *o)
{
    ls_model *model = NULL;
    ls_optim *adam = NULL;
    ls_tape *tape = NULL;
    ls_sampler *sampler = NULL;
    ls_loader *loader = NULL;
    ls_arena *arena = NULL;
    ls_optim_config oc;
    ls_status st = ls_model_create(model_class, &model);
    if (st == LS_OK) st = ls_arena_create(4 * ls_params_nbytes(&model->params) + 65536, false, NULL, &arena);
    if (st == LS_OK) st = ls_params_bind(&model->params, arena, arena);
    if (st == LS_OK) st = ls_model_init(model, model_class);
    if (st == LS_OK) st = ls_optim_defaults("adam", &oc);
    oc.lr = o->lr;
    if (st == LS_OK) st = ls_optim_create(&oc, &model->params, arena, &adam);
    if (st == LS_OK) st = ls_tape_create(ls_model_tape_bytes(model, o->batch), NULL, NULL, &tape);
    if (st == LS_OK) st = ls_sampler_create(data->n, 1, 0, true, 0, false, &sampler);
    if (st == LS_OK) st = ls_loader_create(data, sampler, (size_t)o->batch, false, &loader);

    for (int64_t epoch = 0; st == LS_OK && epoch < o->epochs; epoch++) {
        double mean = 0;
        st = ls_sampler_set_epoch(sampler, (uint64_t)epoch);
        ls_loader_rewind(loader);
        while (st == LS_OK && (st = ls_loader_next(loader)) == LS_OK && loader->n > 0) {
            const int64_t n = (int64_t)loader->n, xdim[2] = { n, (int64_t)data->features };
            ls_params_zero_grad(&model->params);
            ls_tape_reset(tape);
            ls_tensor *x = ls_tape_input(tape, LS_F32, 2, xdim, loader->x),
                      *y = ls_tape_input(tape, LS_I64, 1, &n, loader->label);
            ls_tensor *loss = ls_softmax_cross_entropy(tape, ls_model_forward(model, tape, x), y, NULL, NULL);
            if ((st = ls_backward(tape, loss)) < 0 || (st = ls_optim_step(adam)) < 0) break;
            mean += (double)*(float *)loss->data / (double)ls_loader_batches(loader);
        }
        if (st == LS_OK) printf("Epoch %lld, Loss: %.4f\n", (long long)epoch, mean);
    }
    if (st == LS_OK) st = ls_ckpt_save(o->out, &model->params, NULL);
    if (st == LS_OK) printf("Model saved.\n");

    ls_loader_destroy(loader);
    ls_sampler_destroy(sampler);
    ls_tape_destroy(tape);
    ls_optim_destroy(adam);
    ls_model_destroy(model);
    ls_arena_destroy(arena);
    return st;
}

int main(int argc, char **argv)
{
    options o;
    ls_opts *opts;
    int rest;
    ls_status st = ls_opts_create(table, sizeof table / sizeof *table, &o, &opts);
    if (st == LS_OK) st = ls_opts_parse(opts, argc, argv, false, &rest);
    if (st == LS_OK && o.help) {
        char *text = ls_opts_help(opts, NAME " [options]", "the exercise", NAME " --epochs 10 --seed 1234");
        printf("%s", text ? text : "");
        free(text);
    } else if (st == LS_OK && ls_opts_npositional(opts) > 0) {
        st = ls_fail(LS_USAGE, "'%s' is no option; see " NAME " --help", ls_opts_positional(opts, 0));
    } else if (st == LS_OK) {
        const int64_t dims[3] = { o.d_in, o.d_hidden, o.d_out };
        const ls_model_config mlp = { .name = "mlp", .dims = dims, .ndims = 3, .seed = (uint64_t)o.seed,
                                      .init = o.init[0] == 't' ? LS_INIT_TORCH : LS_INIT_PHILOX };
        ls_dataset data;
        st = ls_dataset_synthetic(0, 1000, (size_t)o.d_in, o.d_out, &data);
        if (st == LS_OK) st = train(&mlp, &data, &o);
        ls_dataset_free(&data);
    }
    if (st < 0) fprintf(stderr, "%s: error[%s]: %s\n", argv[0], ls_status_word(st), ls_last_error());
    ls_opts_destroy(opts);
    return ls_status_exit_code(st);
}
