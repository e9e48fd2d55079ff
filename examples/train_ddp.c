/* The exercise: Linear - ReLU - Linear on synthetic data, Adam, cross-entropy; train_single.c on one
 * rank, train_ddp.c on many. Put side by side they show what data parallel training adds. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include "lockstep/lockstep.h"

#define NAME "train_ddp"

typedef struct options {
    int64_t d_in, d_hidden, d_out, epochs, batch, seed;
    double lr;
    const char *init, *out;
    const char *transport;
    int64_t world_size, port;
    bool help, global_loss, no_sampler;
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
    { "world-size", LS_OPT_INT, AT(world_size), "2", "1..256", "ranks to start, unless a launcher did", 0, NULL },
    { "port", LS_OPT_INT, AT(port), "12355", "0..65535", "where ranks meet, unless MASTER_PORT says; 0: a free one", 0, NULL },
    { "transport", LS_OPT_STRING, AT(transport), "shm", NULL, "shm or tcp", 0, NULL },
    { "global-loss", LS_OPT_BOOL, AT(global_loss), "false", NULL, "print the mean loss of all ranks, too", 0, NULL },
    { "no-sampler", LS_OPT_BOOL, AT(no_sampler), "false", NULL, "give every rank all samples, to see the warning", 0, NULL },
    { "help", LS_OPT_BOOL, AT(help), "false", NULL, "print this and stop", 'h', NULL },
};

/* What the process belongs to: a handle for the thread, as the exercise's functions take none. */
static _Thread_local struct { ls_world *world; const options *o; } job;

/* Joins the process group as rank `rank` of `world_size` and binds this rank to cores of its own: every rank calls it
 * and returns when all have. They meet at localhost, port 12355, unless MASTER_ADDR and MASTER_PORT say otherwise. */
static ls_status setup_ddp(int rank, int world_size)
{
    if (job.world) return ls_fail(LS_INVALID, "setup_ddp was called twice: call cleanup_ddp first");
    const options *o = job.o;
    ls_world_opts wo = { .rank = rank, .size = world_size, .master_port = getenv("MASTER_PORT") ? 0 : (int)o->port,
                         .bind = true, .transport = o->transport };
    return ls_world_join(&wo, &job.world);
}

/* Leaves the process group; setup_ddp works again afterwards. */
static void cleanup_ddp(void)
{
    ls_world_leave(job.world);
    job.world = NULL;
}

/* Trains the same model on every rank, each on its part of the data. Every rank gets the trained model, the same to the
 * bit, which outlives the process group; the caller destroys it. Rank 0 saves it. */
static ls_status train_ddp(int rank, int world_size, const ls_model_config *model_class, const ls_dataset *data,
                           int64_t epochs, ls_model **trained)
{
    const options *o = job.o;
    ls_model *model = NULL;
    ls_ddp *ddp = NULL;
    ls_optim *adam = NULL;
    ls_tape *tape = NULL;
    ls_sampler *sampler = NULL;
    ls_loader *loader = NULL;
    ls_optim_config oc;
    bool checked = false; /* whether ranks have different samples */
    *trained = NULL;
    ls_status st = setup_ddp(rank, world_size);
    if (st == LS_OK) st = ls_model_create(model_class, &model);
    if (st == LS_OK) st = ls_arena_create(4 * ls_params_nbytes(&model->params) + 65536, false, NULL, &model->arena);
    if (st == LS_OK) st = ls_params_bind(&model->params, model->arena, NULL);
    if (st == LS_OK) st = ls_model_init(model, model_class);
    if (st == LS_OK) st = ls_ddp_create(ls_world_group(job.world), &model->params, NULL, &ddp);
    if (st == LS_OK) st = ls_optim_defaults("adam", &oc);
    oc.lr = o->lr;
    if (st == LS_OK) st = ls_optim_create(&oc, &model->params, model->arena, &adam);
    if (st == LS_OK) st = ls_tape_create(ls_model_tape_bytes(model, o->batch), NULL, NULL, &tape);
    if (st == LS_OK) st = ls_sampler_create(data->n, world_size, rank, true, 0, false, &sampler);
    if (st == LS_OK) st = ls_loader_create(data, o->no_sampler ? NULL : sampler, (size_t)o->batch, false, &loader);

    for (int64_t epoch = 0; st == LS_OK && epoch < epochs; epoch++) {
        double mean = 0, all[2] = { 0 }; /* rank 0's mean of its batches; sum over samples and their number */
        st = ls_sampler_set_epoch(sampler, (uint64_t)epoch);
        ls_loader_rewind(loader);
        while (st == LS_OK && (st = ls_loader_next(loader)) == LS_OK && loader->n > 0) {
            const int64_t n = (int64_t)loader->n, xdim[2] = { n, (int64_t)data->features };
            bool same;
            if (!checked && (st = ls_loader_check_sharded(loader, ls_world_group(job.world), &same)) < 0) break;
            checked = true;
            ls_params_zero_grad(&model->params);
            ls_tape_reset(tape);
            if ((st = ls_ddp_begin_forward(ddp, tape, true)) < 0) break;
            ls_tensor *x = ls_tape_input(tape, LS_F32, 2, xdim, loader->x),
                      *y = ls_tape_input(tape, LS_I64, 1, &n, loader->label);
            ls_tensor *loss = ls_softmax_cross_entropy(tape, ls_model_forward(model, tape, x), y, NULL, NULL);
            if ((st = ls_backward(tape, loss)) < 0 || (st = ls_optim_step(adam)) < 0) break;
            mean += (double)*(float *)loss->data / (double)ls_loader_batches(loader);
            all[0] += (double)*(float *)loss->data * (double)n;
            all[1] += (double)n;
        }
        if (st == LS_OK && o->global_loss) st = ls_all_reduce(ls_world_group(job.world), all, all, 2, LS_F64, LS_SUM);
        if (st < 0 || rank != 0) continue;
        printf("Epoch %lld, Loss: %.4f", (long long)epoch, mean);
        if (o->global_loss) printf(" on rank 0, %.4f over all ranks", all[0] / all[1]);
        printf("\n");
    }
    if (st == LS_OK && rank == 0) st = ls_ckpt_save_prefixed(o->out, &model->params, "net.", NULL);
    if (st == LS_OK) st = ls_barrier(ls_world_group(job.world)); /* now every rank finds the file */
    if (st == LS_OK && rank == 0) printf("Model saved from rank 0.\n");
    if (st < 0 && job.world) (void)ls_world_abort(job.world, st);

    ls_loader_destroy(loader);
    ls_sampler_destroy(sampler);
    ls_tape_destroy(tape);
    ls_optim_destroy(adam);
    ls_ddp_destroy(ddp);
    cleanup_ddp();
    if (st == LS_OK) *trained = model;
    else ls_model_destroy(model);
    return st;
}

/* Starts world_size copies of this program, waits for all, and reports the first that fails. A copy knows itself by its
 * environment, which ls_launch, torchrun, mpirun or a user has set. */
static ls_status launch_distributed(int world_size, char **argv, const ls_model_config *model_class,
                                    const ls_dataset *data, const options *o)
{
    int rank, size;
    const char *port = getenv("MASTER_PORT");
    job.o = o;
    if (ls_world_launched(&rank, &size) || world_size == 1) {
        ls_model *model;
        LS_TRY(train_ddp(rank, size, model_class, data, o->epochs, &model));
        ls_model_destroy(model);
        return LS_OK;
    }
    ls_launch_opts lo = { .argv = (const char *const *)argv, .nproc = world_size };
    lo.port = port ? atoi(port) : (int)o->port;
    ls_launch_result result;
    LS_TRY(ls_launch(&lo, &result));
    if (result.status < 0) exit(result.exit_code); /* the report is on stderr already */
    return LS_OK;
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
        if (st == LS_OK) st = launch_distributed((int)o.world_size, argv, &mlp, &data, &o);
        ls_dataset_free(&data);
    }
    if (st < 0) fprintf(stderr, "%s: error[%s]: %s\n", argv[0], ls_status_word(st), ls_last_error());
    ls_opts_destroy(opts);
    return ls_status_exit_code(st);
}
