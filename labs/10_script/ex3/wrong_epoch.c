/* Wrong: set_epoch is not called. */
#include <sys/wait.h>
#include <unistd.h>

#include "lockstep/lockstep.h"

#define BATCH 4

_Thread_local ls_world *world;

ls_status setup_ddp(int rank, int world_size)
{
    const ls_world_opts o = { .rank = rank, .size = world_size };
    if (world) return LS_INVALID;
    return ls_world_join(&o, &world);
}

void cleanup_ddp(void)
{
    ls_world_leave(world);
    world = NULL;
}

static ls_status one_epoch(int e, int features, ls_model *m, ls_tape *tape, ls_ddp *ddp, ls_optim *adam, ls_sampler *s,
                           ls_loader *l, double *loss)
{
    ls_status st = LS_OK;
    (void)e, (void)s;
    *loss = 0;
    ls_loader_rewind(l);
    while (st == LS_OK && (st = ls_loader_next(l)) == LS_OK && l->n > 0) {
        const int64_t n = (int64_t)l->n, xdim[2] = { n, features };
        ls_tape_reset(tape);
        st = ls_ddp_begin_forward(ddp, tape, true);
        if (st < 0) break;
        ls_tensor *x = ls_tape_input(tape, LS_F32, 2, xdim, l->x), *y = ls_tape_input(tape, LS_I64, 1, &n, l->label);
        ls_tensor *of = ls_softmax_cross_entropy(tape, ls_model_forward(m, tape, x), y, NULL, NULL);
        st = ls_backward(tape, of);
        if (st == LS_OK) st = ls_optim_step(adam);
        if (st == LS_OK) *loss += (double)*(float *)of->data / (double)ls_loader_batches(l);
    }
    return st;
}

ls_status train_ddp(int rank, int world_size, const ls_model_config *model_class, const ls_dataset *data, int epochs,
                    double *loss, ls_model **trained)
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
    if (st == LS_OK) st = ls_ddp_create(ls_world_group(world), &m->params, NULL, &ddp);
    if (st == LS_OK) st = ls_optim_defaults("adam", &oc);
    if (st == LS_OK) st = ls_optim_create(&oc, &m->params, m->arena, &adam);
    if (st == LS_OK) st = ls_tape_create(ls_model_tape_bytes(m, BATCH), NULL, NULL, &tape);
    if (st == LS_OK) st = ls_sampler_create(data->n, world_size, rank, true, 0, false, &s);
    if (st == LS_OK) st = ls_loader_create(data, s, BATCH, false, &l);
    for (int e = 0; st == LS_OK && e < epochs; e++)
        st = one_epoch(e, (int)data->features, m, tape, ddp, adam, s, l, &loss[e]);
    if (st == LS_OK) st = ls_barrier(ls_world_group(world));
    if (st < 0 && world) (void)ls_world_abort(world, st);
    ls_loader_destroy(l);
    ls_sampler_destroy(s);
    ls_tape_destroy(tape);
    ls_optim_destroy(adam);
    ls_ddp_destroy(ddp);
    cleanup_ddp();
    if (st == LS_OK) *trained = m;
    else ls_model_destroy(m);
    return st;
}

ls_status launch_distributed(int world_size, int (*train)(int rank, int world_size))
{
    ls_status st = LS_OK;
    int started = 0, end;
    for (; started < world_size; started++) {
        const pid_t pid = fork();
        if (pid == 0) _exit(train(started, world_size));
        if (pid < 0) break;
    }
    if (started < world_size) st = LS_SYSTEM;
    for (int r = 0; r < started; r++)
        if (wait(&end) < 0 || end != 0) st = LS_RANK_DIED;
    return st;
}
