/* starter.c -- the training script of the exercise: setup_ddp, cleanup_ddp, train_ddp, launch_distributed.
 *   build/labs/10_script [RANKS [EPOCHS [no-set-epoch]]]     4 ranks, 3 epochs
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lockstep/lockstep.h"

enum { SAMPLES = 1000, IN = 64, BATCH = 32, MOST_EPOCHS = 16 };

/* The functions of the exercise take no handle: what this process belongs to, and what it has seen. */
static _Thread_local struct {
    ls_world *world;
    double lr, loss[MOST_EPOCHS]; /* of an epoch: mean over this rank's batches */
    unsigned order[MOST_EPOCHS];  /* hash of this rank's samples in an epoch */
    bool no_set_epoch, no_shuffle;
} job = { .lr = 1e-3 };

/* --- setup and contract: the ranks meet at MASTER_PORT ------------------------------------------------------ */
static ls_status setup_ddp(int rank, int world_size)
{
    if (job.world) return ls_fail(LS_INVALID, "setup_ddp was called twice: call cleanup_ddp first");
    const ls_world_opts o = { .rank = rank, .size = world_size, .master_port = getenv("MASTER_PORT") ? 0 : 12355 };
    return ls_world_join(&o, &job.world);
}

static void cleanup_ddp(void)
{
    ls_world_leave(job.world);
    job.world = NULL;
}

/* --- main transition: an epoch of this rank's samples ------------------------------------------------------ */
static ls_status one_epoch(int e, ls_model *m, ls_tape *tape, ls_ddp *ddp, ls_optim *adam, ls_sampler *s, ls_loader *l)
{
    ls_status st = job.no_set_epoch ? LS_OK : ls_sampler_set_epoch(s, (uint64_t)e);
    for (size_t i = 0; i < s->num_samples; i++) job.order[e] = 31 * job.order[e] + (unsigned)s->index[i];
    ls_loader_rewind(l);
    while (st == LS_OK && (st = ls_loader_next(l)) == LS_OK && l->n > 0) {
        const int64_t n = (int64_t)l->n, xdim[2] = { n, IN };
        ls_params_zero_grad(&m->params);
        ls_tape_reset(tape);
        LS_TRY(ls_ddp_begin_forward(ddp, tape, true));
        ls_tensor *x = ls_tape_input(tape, LS_F32, 2, xdim, l->x), *y = ls_tape_input(tape, LS_I64, 1, &n, l->label);
        ls_tensor *loss = ls_softmax_cross_entropy(tape, ls_model_forward(m, tape, x), y, NULL, NULL);
        LS_TRY(ls_backward(tape, loss));
        LS_TRY(ls_optim_step(adam));
        job.loss[e] += (double)*(float *)loss->data / (double)ls_loader_batches(l);
    }
    if (st == LS_OK && ls_world_rank(job.world) == 0) printf("Epoch %d, Loss: %.4f\n", e, job.loss[e]);
    return st;
}

/* Every rank gets the trained model, the same to the bit; the caller destroys it. Rank 0 saves it to `out`. */
static ls_status train_ddp(int rank, int world_size, const ls_model_config *model_class, const ls_dataset *data,
                           int epochs, const char *out, ls_model **trained)
{
    ls_ddp *ddp = NULL;
    ls_optim *adam = NULL;
    ls_tape *tape = NULL;
    ls_sampler *s = NULL;
    ls_loader *l = NULL;
    ls_optim_config oc;
    ls_model *m = *trained = NULL;
    ls_status st = setup_ddp(rank, world_size);
    if (st == LS_OK) st = ls_model_create(model_class, &m);
    if (st == LS_OK) st = ls_arena_create(4 * ls_params_nbytes(&m->params) + 65536, false, NULL, &m->arena);
    if (st == LS_OK) st = ls_params_bind(&m->params, m->arena, NULL);
    if (st == LS_OK) st = ls_model_init(m, model_class);
    if (st == LS_OK) st = ls_ddp_create(ls_world_group(job.world), &m->params, NULL, &ddp);
    if (st == LS_OK) st = ls_optim_defaults("adam", &oc);
    oc.lr = job.lr;
    if (st == LS_OK) st = ls_optim_create(&oc, &m->params, m->arena, &adam);
    if (st == LS_OK) st = ls_tape_create(ls_model_tape_bytes(m, BATCH), NULL, NULL, &tape);
    if (st == LS_OK) st = ls_sampler_create(data->n, world_size, rank, !job.no_shuffle, 0, false, &s);
    if (st == LS_OK) st = ls_loader_create(data, s, BATCH, false, &l);
    for (int e = 0; st == LS_OK && e < epochs; e++) st = one_epoch(e, m, tape, ddp, adam, s, l);
    if (st == LS_OK && rank == 0 && out) st = ls_ckpt_save_prefixed(out, &m->params, "net.", NULL);
    if (st == LS_OK) st = ls_barrier(ls_world_group(job.world)); /* now every rank finds the file */
    if (st < 0 && job.world) (void)ls_world_abort(job.world, st);
    ls_loader_destroy(l), ls_sampler_destroy(s), ls_tape_destroy(tape), ls_optim_destroy(adam), ls_ddp_destroy(ddp);
    cleanup_ddp();
    if (st == LS_OK) *trained = m;
    else ls_model_destroy(m);
    return st;
}

static const int64_t dims[3] = { IN, 128, 10 };
static const ls_model_config mlp = { .name = "mlp", .dims = dims, .ndims = 3, .init = LS_INIT_TORCH, .seed = 1234 };

/* Starts world_size copies of this program. Each knows from its environment that it is one, and trains. */
static ls_status launch_distributed(int world_size, char **argv, int epochs)
{
    const ls_launch_opts lo = { .argv = (const char *const *)argv, .nproc = world_size, .quiet = true };
    ls_launch_result end;
    int rank, size;
    if (!ls_world_launched(&rank, &size)) {
        LS_TRY(ls_launch(&lo, &end));
        return end.status < 0 ? ls_fail(end.status, "%s", end.message) : LS_OK;
    }
    ls_dataset data;
    ls_model *model = NULL;
    ls_status st = ls_dataset_synthetic(0, SAMPLES, IN, 10, &data);
    if (st == LS_OK) st = train_ddp(rank, size, &mlp, &data, epochs, NULL, &model);
    ls_model_destroy(model);
    ls_dataset_free(&data);
    return st;
}

int main(int argc, char **argv)
{
    const int ranks = argc > 1 ? atoi(argv[1]) : 4, epochs = argc > 2 ? atoi(argv[2]) : 3;
    job.no_set_epoch = argc == 4 && strcmp(argv[3], "no-set-epoch") == 0;
    ls_status st = ls_fail(LS_USAGE, "expected 1 to 8 ranks, 1 to 16 epochs, and no-set-epoch or nothing");
    if (ranks >= 1 && ranks <= 8 && epochs >= 1 && epochs <= MOST_EPOCHS && argc <= 3 + job.no_set_epoch)
        st = launch_distributed(ranks, argv, epochs);
    if (st < 0) fprintf(stderr, "starter: error[%s]: %s\n", ls_status_word(st), ls_last_error());
    return ls_status_exit_code(st);
}
