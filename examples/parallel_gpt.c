/* parallel_gpt.c -- a training loop of one's own on three axes: a small GPT over 8 ranks, as 2 pipeline stages of 2
 * data parallel replicas, each of which is 2 tensor parallel ranks.
 * `parallel_gpt [PP [DP [TP]]]`, default 2 2 2; the ranks are threads of this process. Every product ends
 * with the same loss, up to rounding: try 1 1 1, 1 8 1 or 2 1 4. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "lockstep/lockstep.h"

enum { STEPS = 20, GLOBAL = 8, ROWS = 1, TOKENS = 32, VOCABULARY = 64, MOST = 64 };

typedef struct job {
    int size[LS_AXES];
    double loss[STEPS];
} job;

typedef struct run {
    ls_parallel here;          /* what of the model is on this rank */
    ls_stage_pass alive[MOST]; /* micro-batches between forward and backward, by slot */
    int micro_batches, step;   /* of a step, on each replica */
    int64_t x[MOST][ROWS * TOKENS], y[MOST][ROWS * TOKENS]; /* their tokens and labels */
    double sums[2];            /* loss and labels of this rank's micro-batches */
} run;

/* Sequences that count upwards from a number that depends on step and sample: the model learns to count. */
static ls_status feed(void *arg, const ls_pipe_action *a)
{
    run *r = arg;
    const int replica = ls_group_rank(r->here.mesh.batch), sample = replica * r->micro_batches + a->micro_batch;
    for (int i = 0; i < TOKENS; i++) {
        r->x[a->slot][i] = (7 * sample + 3 * r->step + i) % VOCABULARY;
        r->y[a->slot][i] = (r->x[a->slot][i] + 1) % VOCABULARY;
    }
    return LS_OK;
}

static ls_status forward(void *arg, const ls_pipe_action *a, ls_pipe_data *data)
{
    run *r = arg; /* the first stage reads x, the last one y, and those between what the stage before has sent */
    ls_stage_pass *s = &r->alive[a->slot];
    return ls_parallel_stage_forward(&r->here, a, ROWS, TOKENS, r->x[a->slot], r->y[a->slot], data, s);
}

static ls_status backward(void *arg, const ls_pipe_action *a, ls_pipe_data *data)
{
    run *r = arg;
    ls_stage_pass *s = &r->alive[a->slot];
    const float scale = 1.0f / (float)r->micro_batches; /* a step's loss is the mean of its micro-batches' */
    LS_TRY(ls_parallel_stage_backward(&r->here, a, s, &scale, data));
    if (!ls_parallel_has_loss(&r->here, a) || !r->here.mesh.has_loss) return LS_OK;
    r->sums[0] += s->sums.sum;
    r->sums[1] += (double)s->sums.counted;
    return LS_OK;
}

static size_t edge(void *arg, int stage, int micro_batch, ls_dtype *dtype)
{
    (void)micro_batch;
    return ls_parallel_edge(&((run *)arg)->here, stage, ROWS, TOKENS, dtype);
}

static ls_status one_step(ls_world *w, run *r, ls_optim *adam)
{
    static const ls_pipe_work work = { feed, forward, backward, edge };
    double norm;
    r->sums[0] = r->sums[1] = 0;
    LS_TRY(ls_pipe_run(r->here.pipe, r->micro_batches, &work, r)); /* buckets of replicas travel beside backward */
    LS_TRY(ls_parallel_sum_gradients(&r->here));                   /* of a tied embedding, over its two stages */
    LS_TRY(ls_grad_norm_shared(ls_world_group(w), &r->here.model->params, &norm, NULL)); /* of the whole model */
    LS_TRY(ls_optim_step_scaled(adam, ls_clip_scale(norm, 1.0)));
    LS_TRY(ls_parallel_after_step(&r->here));
    return ls_all_reduce(ls_world_group(w), NULL, r->sums, 2, LS_F64, LS_SUM);
}

static ls_status train(ls_world *w, void *arg)
{
    static const size_t chunk_bytes[1] = { 4 << 20 };
    job *j = arg;
    const ls_model_config mc = { .name = "gpt2", .init = LS_INIT_PHILOX, .seed = 42,
                                 .lm = { .vocab_size = VOCABULARY, .seq_len = TOKENS, .n_layer = 4, .n_head = 4,
                                         .d_model = 32, .tied = true } };
    ls_plan plan = { .schedule = "1f1b", .micro_batch = ROWS, .micro_batches = GLOBAL / j->size[LS_AXIS_DP] / ROWS };
    ls_parallel_opts opts = { .tape_bytes = 8 << 20, .chunk_bytes = chunk_bytes };
    run *r = calloc(1, sizeof *r);
    ls_optim_config oc;
    ls_optim *adam = NULL;
    memcpy(plan.size, j->size, sizeof plan.size);
    ls_status st = r ? ls_optim_defaults("adamw", &oc) : ls_fail(LS_NO_MEMORY, "a run");
    oc.lr = 0.01;
    if (st == LS_OK) st = ls_arena_create((size_t)8 << 20, false, ls_world_ledger(w), &opts.own);
    if (st == LS_OK) st = ls_parallelize(w, &plan, &mc, &opts, &r->here); /* what of the model is here */
    if (st == LS_OK && r->here.ntapes > MOST) st = ls_fail(LS_INVALID, "more than %d micro-batches are alive", MOST);
    if (st == LS_OK) st = ls_optim_create(&oc, &r->here.model->params, opts.own, &adam);
    if (st == LS_OK) r->micro_batches = plan.micro_batches;
    for (; st == LS_OK && r->step < STEPS; r->step++) {
        st = one_step(w, r, adam);
        if (r->here.mesh.speaks) j->loss[r->step] = r->sums[0] / r->sums[1];
    }
    if (st < 0) (void)ls_world_abort(w, st);
    ls_optim_destroy(adam);
    if (r) ls_parallel_destroy(&r->here);
    ls_arena_destroy(opts.own);
    free(r);
    return st;
}

int main(int argc, char **argv)
{
    job j = { .size = { 2, 2, 1, 1, 2 } };
    const ls_axis axis[] = { LS_AXIS_PP, LS_AXIS_DP, LS_AXIS_TP };
    for (int i = 1; i < argc && i < 4; i++) j.size[axis[i - 1]] = atoi(argv[i]);
    const int pp = j.size[LS_AXIS_PP], dp = j.size[LS_AXIS_DP], tp = j.size[LS_AXIS_TP];
    if (pp < 1 || tp < 1 || dp < 1 || GLOBAL % dp != 0)
        return fprintf(stderr, "parallel_gpt: expected PP and TP of at least 1, and DP 1, 2, 4 or 8\n"), 64;
    const ls_status st = ls_world_threads(pp * dp * tp, NULL, train, &j);
    if (st < 0) fprintf(stderr, "parallel_gpt: error[%s]: %s\n", ls_status_word(st), ls_last_error());
    for (int step = 0; st == LS_OK && step < STEPS; step++)
        if (step % 5 == 0 || step == STEPS - 1) printf("step %d: loss %.6f\n", step + 1, j.loss[step]);
    return ls_status_exit_code(st);
}
