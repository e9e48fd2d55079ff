/* What data parallel training averages, and why it is gradients: four ranks, each with batches of its own, train
 * the same model in three ways. Averaged gradients are the reference. Averaging parameters after a step that each
 * rank takes alone gives the same with SGD, because its update is linear in the gradient, and something else with
 * Adam, whose state on each rank has seen the gradients of that rank only. Summed gradients are a larger learning
 * rate. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lockstep/lockstep.h"

#define RANKS 4
#define STEPS 20
#define BATCH 8
#define IN 8
#define OUT 4
#define MOST 1024 /* parameters */

enum { AVERAGE_GRADIENTS, AVERAGE_PARAMETERS, SUM_GRADIENTS, MODES };

typedef struct job {
    const char *optim;
    double momentum;
    int mode;
    size_t n;           /* parameters */
    float value[MOST];  /* rank 0's at the end */
} job;

/* Every element of values or gradients, over all ranks. */
static ls_status reduce(ls_group *g, const ls_params *ps, bool gradients, ls_redop op)
{
    for (int i = 0; i < ps->n; i++) {
        const ls_tensor *t = gradients ? ps->item[i].t.grad : &ps->item[i].t;
        LS_TRY(ls_all_reduce(g, t->data, t->data, (size_t)ls_tensor_count(t), LS_F32, op));
    }
    return LS_OK;
}

static ls_status one_step(ls_world *w, const job *j, ls_model *m, ls_tape *tape, ls_optim *o, uint64_t step)
{
    const int64_t xdim[2] = { BATCH, IN }, ydim[1] = { BATCH };
    const uint64_t mine = step * RANKS + (uint64_t)ls_world_rank(w); /* no two ranks have the same batch */
    ls_group *g = ls_world_group(w);
    float x[BATCH * IN];
    int64_t label[BATCH];
    ls_philox_normal(7, mine, 0, BATCH * IN, 1.0f, x);
    for (size_t i = 0; i < BATCH; i++) label[i] = (int64_t)((i + mine) % OUT);
    ls_params_zero_grad(&m->params);
    ls_tape_reset(tape);
    ls_tensor *in = ls_tape_input(tape, LS_F32, 2, xdim, x), *want = ls_tape_input(tape, LS_I64, 1, ydim, label);
    LS_TRY(ls_backward(tape, ls_softmax_cross_entropy(tape, ls_model_forward(m, tape, in), want, NULL, NULL)));
    if (j->mode != AVERAGE_PARAMETERS)
        LS_TRY(reduce(g, &m->params, true, j->mode == AVERAGE_GRADIENTS ? LS_AVG : LS_SUM));
    LS_TRY(ls_optim_step(o));
    return j->mode == AVERAGE_PARAMETERS ? reduce(g, &m->params, false, LS_AVG) : LS_OK;
}

static void keep(job *j, const ls_params *ps)
{
    j->n = 0;
    for (int i = 0; i < ps->n; i++) {
        const size_t n = (size_t)ls_tensor_count(&ps->item[i].t);
        memcpy(j->value + j->n, ps->item[i].t.data, n * sizeof *j->value);
        j->n += n;
    }
}

static ls_status train(ls_world *w, void *arg)
{
    job *j = arg;
    const int64_t dims[3] = { IN, 16, OUT };
    const ls_model_config mc = { .name = "mlp", .dims = dims, .ndims = 3, .init = LS_INIT_PHILOX, .seed = 42 };
    ls_optim_config oc;
    ls_model *model = NULL;
    ls_arena *arena = NULL;
    ls_tape *tape = NULL;
    ls_optim *optim = NULL;
    ls_status st = ls_optim_defaults(j->optim, &oc);
    oc.momentum = j->momentum;
    oc.lr = 0.01;
    if (st == LS_OK) st = ls_model_create(&mc, &model);
    if (st == LS_OK) st = ls_arena_create(1 << 18, false, NULL, &arena);
    if (st == LS_OK) st = ls_params_bind(&model->params, arena, arena);
    if (st == LS_OK) st = ls_model_init(model, &mc);
    if (st == LS_OK) st = ls_optim_create(&oc, &model->params, arena, &optim);
    if (st == LS_OK) st = ls_tape_create(1 << 18, NULL, NULL, &tape);
    for (uint64_t step = 0; st == LS_OK && step < STEPS; step++) st = one_step(w, j, model, tape, optim, step);
    if (st == LS_OK && ls_world_rank(w) == 0) keep(j, &model->params);
    ls_tape_destroy(tape);
    ls_optim_destroy(optim);
    ls_model_destroy(model);
    ls_arena_destroy(arena);
    return st;
}

static double distance(const job *a, const job *b)
{
    double most = 0;
    for (size_t i = 0; i < a->n; i++) most = fmax(most, fabs((double)a->value[i] - (double)b->value[i]));
    return most;
}

int main(void)
{
    static const struct { const char *name, *optim; double momentum; } row[] = {
        { "sgd", "sgd", 0 }, { "momentum", "sgd", 0.9 }, { "adam", "adam", 0 }
    };
    static job j[MODES];
    ls_status st = LS_OK;
    printf("Largest distance of a parameter from training with averaged gradients, after %d steps on %d ranks\n\n", STEPS, RANKS);
    printf("%-10s %20s %20s %20s\n", "optimizer", "average gradients", "average parameters", "sum gradients");
    for (size_t i = 0; st == LS_OK && i < sizeof row / sizeof *row; i++) {
        for (int m = 0; st == LS_OK && m < MODES; m++) {
            j[m] = (job){ .optim = row[i].optim, .momentum = row[i].momentum, .mode = m };
            st = ls_world_threads(RANKS, NULL, train, &j[m]);
        }
        if (st == LS_OK)
            printf("%-10s %20.3g %20.3g %20.3g\n", row[i].name, distance(&j[0], &j[0]), distance(&j[0], &j[1]), distance(&j[0], &j[2]));
    }
    if (st < 0) fprintf(stderr, "demo_average: error[%s]: %s\n", ls_status_word(st), ls_last_error());
    else
        printf("\nSGD's update is linear in the gradient: both averages give the same. Adam's is not. A sum is a larger learning\n"
               "rate for SGD; Adam divides by the size of the gradient and hardly notices it.\n");
    return ls_status_exit_code(st);
}
