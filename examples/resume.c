/* A loop of one's own that survives: it saves its state every 20 steps, and goes on from the newest checkpoint when it
 * is started again, on any number of ranks: lockstep run --nproc-per-node 2 -- build/examples/resume */
#include <stdio.h>
#include "lockstep/lockstep.h"
enum { GLOBAL = 24, IN = 16, OUT = 4 }; /* samples per step, over all ranks; features; classes */

static ls_status one_step(ls_world *w, const ls_parallel *here, ls_tape *tape, ls_optim *adam, int64_t step)
{
    const ls_range mine = ls_shard_of(GLOBAL, ls_world_rank(w), ls_world_size(w)); /* samples, whoever has them */
    const int64_t n = (int64_t)mine.count, xdim[2] = { n, IN };
    float x[GLOBAL * IN];
    int64_t label[GLOBAL];
    ls_philox_normal(1, (uint64_t)step, mine.first * IN, mine.count * IN, 1.0f, x);
    for (int64_t i = 0; i < n; i++) label[i] = x[i * IN] > 0 ? 1 + (x[i * IN + 1] > 0) : 0;
    ls_tape_reset(tape);
    LS_TRY(ls_ddp_begin_forward(here->ddp, tape, true));
    ls_tensor *in = ls_tape_input(tape, LS_F32, 2, xdim, x), *classes = ls_tape_input(tape, LS_I64, 1, &n, label);
    LS_TRY(ls_backward(tape, ls_model_loss(here->model, tape, in, classes, NULL)));
    LS_TRY(ls_optim_step(adam));
    return ls_ddp_after_step(here->ddp);
}

static ls_status train(ls_world *w, void *dir)
{
    const ls_model_config mc = { .name = "mlp", .dims = (int64_t[]){ IN, 32, OUT }, .ndims = 3, .init = LS_INIT_PHILOX };
    const ls_plan plan = { .size = { 1, ls_world_size(w), 1, 1, 1 }, .micro_batch = GLOBAL, .micro_batches = 1 };
    const ls_optim_config oc = { .name = "adamw", .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8 };
    ls_arena *arena;
    ls_parallel here;
    ls_optim *adam;
    ls_state *state;
    ls_checkpoint *saved;
    int64_t step = 0;
    char digest[33];
    LS_TRY(ls_checkpoint_newest(ls_world_group(w), dir, &saved)); /* NULL: this is the beginning */
    LS_TRY(ls_arena_create(1 << 18, false, NULL, &arena));
    const ls_parallel_opts opts = { .own = arena, .tape_bytes = 1 << 18, .arg = saved,
                                    .values = saved ? ls_checkpoint_first_values : NULL };
    LS_TRY(ls_parallelize(w, &plan, &mc, &opts, &here));
    LS_TRY(ls_optim_create(&oc, &here.model->params, arena, &adam));
    LS_TRY(ls_state_create(ls_world_group(w), &state)); /* what has to survive: the model, its optimizer, the step */
    LS_TRY(ls_state_add_model(state, &here.model->params, adam));
    LS_TRY(ls_state_add_i64(state, "step", &step));
    if (saved) LS_TRY(ls_state_load(state, saved));
    if (ls_world_rank(w) == 0) printf("%s step %lld\n", saved ? "going on after" : "beginning at", (long long)step);
    while (step < 100) {
        LS_TRY(one_step(w, &here, here.tape[0], adam, step++));
        if (step % 20 == 0) LS_TRY(ls_state_save_in(state, dir, step));
    }
    LS_TRY(ls_params_digest(&here.model->params, digest));
    if (ls_world_rank(w) == 0) printf("step %lld: digest %s\n", (long long)step, digest);
    return LS_OK; /* the process ends here, and with it all of the above */
}

int main(int argc, char **argv)
{
    const ls_status st = ls_world_run(NULL, train, argc > 1 ? argv[1] : "resume-checkpoints");
    if (st < 0) fprintf(stderr, "resume: error[%s]: %s\n", ls_status_word(st), ls_last_error());
    return ls_status_exit_code(st);
}
