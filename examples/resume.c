/* A loop of one's own that survives: it saves its state every 20 steps, and goes on from the newest checkpoint when it
 * is started again, on any number of ranks. Kill it, start it again: it ends with the same digest.
 *
 *   lockstep run --nproc-per-node 2 -- build/examples/resume */
#include <stdio.h>
#include "lockstep/lockstep.h"

#define GLOBAL 24 /* samples per step, over all ranks */
#define IN 16
#define OUT 4
static float x[GLOBAL * IN];
static int64_t label[GLOBAL];

static ls_status one_step(ls_world *w, ls_model *m, ls_ddp *ddp, ls_optim *adam, ls_tape *tape, int64_t step)
{
    const ls_range mine = ls_shard_of(GLOBAL, ls_world_rank(w), ls_world_size(w)); /* the step's samples, whoever has
                                                                                      them */
    const int64_t n = (int64_t)mine.count, xdim[2] = { n, IN };
    ls_philox_normal(1, (uint64_t)step, mine.first * IN, mine.count * IN, 1.0f, x);
    for (int64_t i = 0; i < n; i++) label[i] = x[i * IN] > 0 ? 1 + (x[i * IN + 1] > 0) : 0;
    ls_params_zero_grad(&m->params);
    ls_tape_reset(tape);
    LS_TRY(ls_ddp_begin_forward(ddp, tape, true));
    ls_tensor *out = ls_model_forward(m, tape, ls_tape_input(tape, LS_F32, 2, xdim, x));
    LS_TRY(ls_backward(tape, ls_softmax_cross_entropy(tape, out, ls_tape_input(tape, LS_I64, 1, &n, label), NULL,
                                                      NULL)));
    return ls_optim_step(adam);
}

static ls_status train(ls_world *w, const char *dir)
{
    static const int64_t dims[] = { IN, 32, OUT };
    const ls_model_config mc = { .name = "mlp", .dims = dims, .ndims = 3, .init = LS_INIT_PHILOX, .seed = 42 };
    ls_model *model;
    ls_arena *arena;
    ls_ddp *ddp;
    ls_optim *adam;
    ls_tape *tape;
    ls_state *state;
    ls_checkpoint *saved;
    ls_optim_config oc;
    int64_t step = 0;
    char folder[256], digest[33];
    LS_TRY(ls_checkpoint_newest(ls_world_group(w), dir, &saved)); /* NULL: this is the beginning */
    LS_TRY(ls_optim_defaults("adamw", &oc));
    LS_TRY(ls_model_create(&mc, &model));
    LS_TRY(ls_arena_create(1 << 18, false, NULL, &arena));
    LS_TRY(ls_params_bind(&model->params, arena, NULL));
    LS_TRY(saved ? ls_checkpoint_values(saved, &model->params) : ls_model_init(model, &mc));
    LS_TRY(ls_ddp_create(ls_world_group(w), &model->params, NULL, &ddp));
    LS_TRY(ls_optim_create(&oc, &model->params, arena, &adam));
    LS_TRY(ls_tape_create(1 << 18, NULL, NULL, &tape));
    LS_TRY(ls_state_create(ls_world_group(w), &state)); /* what has to survive: the model, its optimizer, the step */
    LS_TRY(ls_state_add_model(state, &model->params, adam));
    LS_TRY(ls_state_add_i64(state, "step", &step));
    if (saved) LS_TRY(ls_state_load(state, saved));
    if (ls_world_rank(w) == 0) printf("%s step %lld\n", saved ? "going on after" : "beginning at", (long long)step);
    while (step < 100) {
        LS_TRY(one_step(w, model, ddp, adam, tape, step++));
        snprintf(folder, sizeof folder, "%s/step-%08lld", dir, (long long)step);
        if (step % 20 == 0) LS_TRY(ls_state_save(state, folder, step));
    }
    LS_TRY(ls_params_digest(&model->params, digest));
    if (ls_world_rank(w) == 0) printf("step %lld: digest %s\n", (long long)step, digest);
    return LS_OK; /* the process ends here, and with it all of the above */
}

int main(int argc, char **argv)
{
    ls_world *w = NULL;
    ls_status st = ls_world_join(NULL, &w);
    if (st == LS_OK) st = train(w, argc > 1 ? argv[1] : "resume-checkpoints");
    if (st < 0) fprintf(stderr, "resume: error[%s]: %s\n", ls_status_word(st), ls_last_error());
    if (st < 0 && w) (void)ls_world_abort(w, st);
    ls_world_leave(w);
    return ls_status_exit_code(st);
}
