/* own_optimizer.c -- an optimizer that the library does not have, on any number of ranks; docs/your-own-model.md goes
 * through it. Lion (Chen et al. 2023, "Symbolic Discovery of Optimization Algorithms"): the sign of a momentum.
 *
 *   c = beta1 m + (1 - beta1) g
 *   p = p - lr (sign(c) + weight_decay p)
 *   m = beta2 m + (1 - beta2) g
 *
 * It has one state per weight where Adam has two. Which of four quadrants is a point in? */
#include <lockstep/lockstep.h>
#include <stdio.h>

/* --- Lion ---------------------------------------------------------------------------- */

static void lion_update(const ls_optim_config *c, const ls_update *u)
{
    float *p = u->p, *m = ls_update_state(u, 0);
    const float lr = (float)u->lr, decay = (float)u->weight_decay;
    const float beta1 = (float)c->beta1, beta2 = (float)c->beta2;
    for (int64_t i = 0; i < u->n; i++) {
        const float g = u->g[i] * u->grad_scale;
        const float mix = beta1 * m[i] + (1 - beta1) * g;
        p[i] -= lr * ((float)((mix > 0) - (mix < 0)) + decay * p[i]);
        m[i] = beta2 * m[i] + (1 - beta2) * g;
    }
    for (int64_t i = 0; u->bf16 && i < u->n; i++) u->bf16[i] = ls_f32_to_bf16(p[i]);
}

static ls_status lion_check(const ls_optim_config *c)
{
    if (c->beta1 >= 0 && c->beta1 < 1 && c->beta2 >= 0 && c->beta2 < 1) return LS_OK;
    return ls_fail(LS_BAD_CONFIG, "lion: betas are %g and %g, expected in [0, 1)", c->beta1, c->beta2);
}

static const ls_optim_class lion = {
    .name = "lion",
    .defaults = { .lr = 1e-4, .beta1 = 0.9, .beta2 = 0.99 },
    .nstates = 1,
    .state_name = { "exp_avg" },
    .check = lion_check,
    .update = lion_update,
};

/* --- a model to train ------------------------------------------------------------------ */

enum { BATCH = 64, STEPS = 300, SEED = 1 };
static const int64_t dims[] = { 2, 32, 4 };
static const ls_model_config mlp = { .name = "mlp", .dims = dims, .ndims = 3, .init = LS_INIT_PHILOX, .seed = SEED };

typedef struct job {
    ls_model *model;
    ls_arena *arena;
    ls_ddp *ddp;
    ls_optim *lion;
    ls_tape *tape;
} job;

static ls_status build(job *j, ls_world *w, int64_t mine)
{
    /* Biases learn faster, and do not decay. */
    static const char *const biases[] = { "0.bias", "2.bias", NULL };
    const ls_optim_group group = { .param = biases, .lr = 3e-3, .weight_decay = 0 };
    ls_optim_config c = lion.defaults;
    c.cls = &lion;
    c.lr = 1e-3;
    c.weight_decay = 0.01;
    LS_TRY(ls_model_create(&mlp, &j->model));
    LS_TRY(ls_arena_create((size_t)1 << 20, false, ls_world_ledger(w), &j->arena));
    LS_TRY(ls_params_bind(&j->model->params, j->arena, NULL));
    LS_TRY(ls_model_init(j->model, &mlp));
    LS_TRY(ls_ddp_create(ls_world_group(w), &j->model->params, NULL, &j->ddp));
    LS_TRY(ls_optim_create_groups(&c, &j->model->params, &group, 1, j->arena, &j->lion));
    return ls_tape_create(ls_model_tape_bytes(j->model, mine), ls_world_ledger(w), ls_world_tracer(w), &j->tape);
}

/* Points [first, first + n) of a step's batch. */
static void draw(int64_t step, int64_t first, int64_t n, float *x, int64_t *quadrant)
{
    ls_philox_uniform(SEED, (uint64_t)step, (uint64_t)(2 * first), (size_t)(2 * n), -1, 1, x);
    for (int64_t i = 0; i < n; i++) quadrant[i] = (x[2 * i] > 0) + 2 * (x[2 * i + 1] > 0);
}

static ls_status train(job *j, ls_world *w)
{
    const int64_t n = BATCH / ls_world_size(w), first = ls_world_rank(w) * n;
    float x[2 * BATCH], sum;
    int64_t quadrant[BATCH];
    for (int64_t step = 1; step <= STEPS; step++) {
        draw(step, first, n, x, quadrant);
        ls_tape_reset(j->tape);
        LS_TRY(ls_ddp_begin_forward(j->ddp, j->tape, true));
        ls_tensor *points = ls_tape_input(j->tape, LS_F32, 2, (int64_t[]){ n, 2 }, x);
        ls_tensor *labels = ls_tape_input(j->tape, LS_I64, 1, &n, quadrant);
        ls_tensor *loss = ls_model_loss(j->model, j->tape, points, labels, NULL);
        LS_TRY(ls_backward(j->tape, loss));
        LS_TRY(ls_optim_step(j->lion));
        sum = *(float *)loss->data;
        LS_TRY(ls_all_reduce(ls_world_group(w), NULL, &sum, 1, LS_F32, LS_AVG));
        if (ls_world_rank(w) == 0 && (step == 1 || step % 100 == 0))
            printf("step %lld loss %.4f\n", (long long)step, (double)sum);
    }
    const float *m = ls_optim_state(j->lion, "2.bias", "exp_avg");
    if (ls_world_rank(w) == 0)
        printf("after %lld steps exp_avg of 2.bias is %.6f ...\n", (long long)ls_optim_steps(j->lion), (double)m[0]);
    return LS_OK;
}

int main(void)
{
    job j = { 0 };
    ls_world *w = NULL;
    ls_status st = ls_world_join(NULL, &w);
    if (st == LS_OK && BATCH % ls_world_size(w) != 0)
        st = ls_fail(LS_USAGE, "%d ranks do not divide a batch of %d", ls_world_size(w), BATCH);
    if (st == LS_OK) st = build(&j, w, BATCH / ls_world_size(w));
    if (st == LS_OK) st = train(&j, w);
    if (st < 0) fprintf(stderr, "own_optimizer: %s\n", ls_last_error());
    if (st < 0 && w) (void)ls_world_abort(w, st);
    ls_tape_destroy(j.tape);
    ls_optim_destroy(j.lion);
    ls_ddp_destroy(j.ddp);
    ls_model_destroy(j.model);
    ls_arena_destroy(j.arena);
    ls_world_leave(w);
    return ls_status_exit_code(st);
}
