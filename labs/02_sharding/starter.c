/* starter.c -- ZeRO in one screen: four ranks train one small GPT, and say what each of them holds.
 *
 *   build/labs/02_sharding STAGE           2 steps with stage 0, 1, 2 or 3; then the bytes of rank 0 by class
 *     rank                                 stage 3: each rank gathers values (FSDP); otherwise all map one copy
 *     prefetch=N  micro=N  last            units gathered ahead; micro-batches per step; reduce only the last of them
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "lockstep/lockstep.h"

enum { RANKS = 4, STEPS = 2, BATCH = 2, TOKENS = 64, VOCABULARY = 260 };

typedef struct held { /* by a rank, in bytes */
    size_t param, grad, optim, act, comm; /* most in use at once, as its ledger counted */
    size_t values, gradients;             /* of param and grad: memory that units use one after another */
    size_t state;                         /* the rest of param, grad and optim: it stays from step to step */
} held;

typedef struct job {
    ls_ddp_config ddp;
    int micro_batches;
    held rank[RANKS];
    size_t count, root, unit[4]; /* parameters; bytes of the root's and of each unit's */
} job;

/* --- main transition: one step ------------------------------------------------------------------------- */

static ls_status one_step(const job *j, const ls_parallel *p, ls_optim *adam, int step, int rank)
{
    const int64_t dim[2] = { BATCH, TOKENS };
    int64_t x[BATCH * TOKENS], y[BATCH * TOKENS];
    ls_tape *t = p->tape[0];
    for (int m = 0; m < j->micro_batches; m++) {
        for (int i = 0; i < BATCH * TOKENS; i++) y[i] = (x[i] = (i * (rank + 3) + step + m) % VOCABULARY) / 2;
        ls_tape_reset(t);
        LS_TRY(ls_ddp_begin_forward(p->ddp, t, m == j->micro_batches - 1)); /* true: this backward is a step's last */
        ls_tensor *in = ls_tape_input(t, LS_I64, 2, dim, x), *want = ls_tape_input(t, LS_I64, 2, dim, y);
        ls_tensor *loss = ls_model_loss(p->model, t, in, want, NULL); /* stage 3: gathers each unit that it enters */
        LS_TRY(ls_backward(t, loss));                                 /* and again; sums gradients unit by unit */
    }
    LS_TRY(ls_optim_step(adam));      /* updates this rank's rows only, with its part of Adam's state */
    return ls_ddp_after_step(p->ddp); /* stages 1 and 2: all_gathers the new values */
}

/* --- setup and contract --------------------------------------------------------------------------------- */
static void look(const ls_parallel *p, const size_t *peak, held *h)
{
    const ls_ddp_in_use u = ls_ddp_units_in_use(p->ddp);
    *h = (held){ peak[LS_MEM_PARAM], peak[LS_MEM_GRAD], peak[LS_MEM_OPTIM], peak[LS_MEM_ACT], peak[LS_MEM_COMM],
                 u.values, u.gradients, 0 };
    h->state = h->param + h->grad + h->optim - h->values - h->gradients;
}

static void measure_units(const ls_params *ps, job *j)
{
    j->count = (size_t)ls_params_count(ps);
    for (int i = 0; i < ps->n; i++)
        *(ps->item[i].unit < 0 ? &j->root : &j->unit[ps->item[i].unit]) += 4 * (size_t)ls_tensor_count(&ps->item[i].t);
}

/* Activations of one micro-batch: a model without values tells. */
static ls_status tape_bytes(const ls_model_config *mc, size_t *out)
{
    ls_model *m;
    LS_TRY(ls_model_create(mc, &m));
    *out = ls_model_tape_bytes(m, BATCH); /* 0: a failure */
    ls_model_destroy(m);
    return *out ? LS_OK : LS_INVALID;
}

static ls_status train(ls_world *w, void *arg)
{
    job *j = arg;
    const int rank = ls_world_rank(w);
    const ls_model_config mc = { .name = "gpt2", .init = LS_INIT_PHILOX, .seed = 42,
                                 .lm = { .vocab_size = VOCABULARY, .seq_len = TOKENS, .n_layer = 2, .n_head = 4,
                                         .d_model = 64, .tied = true } };
    const ls_plan plan = { .size = { 1, RANKS, 1, 1, 1 }, .ddp = j->ddp, .micro_batch = BATCH,
                           .micro_batches = j->micro_batches };
    const ls_optim_config oc = { .name = "adam", .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8 };
    ls_parallel_opts opts = { 0 };
    ls_parallel p = { 0 };
    ls_optim *adam = NULL;
    ls_status st = tape_bytes(&mc, &opts.tape_bytes);
    if (st == LS_OK) st = ls_arena_create((size_t)4 << 20, false, ls_world_ledger(w), &opts.own);
    if (st == LS_OK) st = ls_parallelize(w, &plan, &mc, &opts, &p);
    if (st == LS_OK) st = ls_optim_create(&oc, &p.model->params, opts.own, &adam); /* state for this rank's rows */
    for (int step = 0; st == LS_OK && step < STEPS; step++) st = one_step(j, &p, adam, step, rank);
    if (st == LS_OK) look(&p, ls_world_ledger(w)->peak, &j->rank[rank]);
    if (st == LS_OK && rank == 0) measure_units(&p.model->params, j);
    ls_optim_destroy(adam);
    ls_parallel_destroy(&p);
    ls_arena_destroy(opts.own);
    return st;
}

int main(int argc, char **argv)
{
    job j = { .ddp = { .zero_stage = argc > 1 ? atoi(argv[1]) : 0 }, .micro_batches = 1 };
    for (int i = 2; i < argc; i++) {
        if (strcmp(argv[i], "rank") == 0) j.ddp.copy = LS_ZERO_COPY_RANK, j.ddp.prefetch = 1;
        else if (strcmp(argv[i], "last") == 0) j.ddp.reduce_last = true;
        else if (strncmp(argv[i], "prefetch=", 9) == 0) j.ddp.prefetch = atoi(argv[i] + 9);
        else if (strncmp(argv[i], "micro=", 6) == 0) j.micro_batches = atoi(argv[i] + 6);
        else return fprintf(stderr, "starter: '%s': expected rank, prefetch=N, micro=N or last\n", argv[i]), 64;
    }
    const ls_status st = ls_world_threads(RANKS, NULL, train, &j);
    if (st < 0) return fprintf(stderr, "starter: %s\n", ls_last_error()), ls_status_exit_code(st);
    size_t all = 0;
    for (int r = 0; r < RANKS; r++) all += j.rank[r].state;
    const held *h = &j.rank[0];
    printf("%d ranks, stage %d: what rank 0 holds, in bytes\n", RANKS, j.ddp.zero_stage);
    printf("{\"p\": %zu, \"param\": %zu, \"grad\": %zu, \"optim\": %zu, ", j.count, h->param, h->grad, h->optim);
    printf("\"act\": %zu, \"comm\": %zu, ", h->act, h->comm);
    printf("\"values\": %zu, \"gradients\": %zu, ", h->values, h->gradients);
    printf("\"state\": %zu, \"all\": %zu, \"root\": %zu, \"units\": [", h->state, all, j.root);
    printf("%zu, %zu, %zu, %zu]}\n", j.unit[0], j.unit[1], j.unit[2], j.unit[3]);
    return 0;
}
