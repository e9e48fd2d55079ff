/* starter.c -- data parallel training in one screen: four ranks, one small model, gradients that travel in buckets.
 *
 *   build/labs/01_buckets                  100 steps; then the buckets, and the digest of each rank's weights
 *   build/labs/01_buckets --no-wrapper     the same without ls_ddp: every rank trains a model of its own
 *
 * The ranks are threads of this process here. In processes (lockstep run) the same calls do the same.
 */
#include <stdio.h>
#include <string.h>

#include "lockstep/lockstep.h"

enum { RANKS = 4, STEPS = 100, BATCH = 8, IN = 64, OUT = 10, MOST = 1024 };

/* What main learns of the ranks: each writes its own digest, and rank 0 the buckets. */
typedef struct job {
    bool wrapped;
    char digest[RANKS][33]; /* of a rank's weights after the last step */
    char buckets[MOST];     /* JSON: a list of lists of names */
} job;

/* One batch of this rank: no two ranks, and no two steps, have the same. */
static void draw(int step, int rank, float *x, int64_t *label)
{
    ls_philox_normal(7, (uint64_t)(step * RANKS + rank), 0, BATCH * IN, 1.0f, x);
    for (int i = 0; i < BATCH; i++) label[i] = (i + rank + step) % OUT;
}

/* --- main transition: one step ------------------------------------------------------------------------- */

static ls_status one_step(ls_model *model, ls_tape *tape, ls_ddp *ddp, ls_optim *sgd, int step, int rank)
{
    const int64_t xdim[2] = { BATCH, IN }, ydim[1] = { BATCH };
    float x[BATCH * IN];
    int64_t label[BATCH];
    draw(step, rank, x, label);
    ls_params_zero_grad(&model->params);
    ls_tape_reset(tape);
    if (ddp) LS_TRY(ls_ddp_begin_forward(ddp, tape, true)); /* the tape tells ddp which gradient is ready */
    ls_tensor *in = ls_tape_input(tape, LS_F32, 2, xdim, x), *want = ls_tape_input(tape, LS_I64, 1, ydim, label);
    ls_tensor *loss = ls_softmax_cross_entropy(tape, ls_model_forward(model, tape, in), want, NULL, NULL);
    LS_TRY(ls_backward(tape, loss)); /* starts a bucket's all_reduce when its last gradient is ready; waits for all */
    return ls_optim_step(sgd);       /* the same update on every rank: no communication */
}

/* --- setup and contract --------------------------------------------------------------------------------- */

static void write_buckets(const ls_ddp *ddp, const ls_params *ps, char *out)
{
    size_t n = 0;
    for (int i = 0; i < ls_ddp_buckets(ddp); i++) {
        const ls_ddp_bucket_info b = ls_ddp_bucket(ddp, i);
        n += (size_t)snprintf(out + n, MOST - n, "%s[", i ? "," : "");
        for (int k = 0; k < b.nparams && n < MOST; k++)
            n += (size_t)snprintf(out + n, MOST - n, "%s\"%s\"", k ? "," : "", ps->item[b.param[k]].name);
        if (n < MOST) n += (size_t)snprintf(out + n, MOST - n, "]");
        if (n >= MOST) return;
    }
}

static ls_status train(ls_world *world, void *arg)
{
    job *j = arg;
    const int rank = ls_world_rank(world);
    const int64_t dims[] = { IN, 128, 64, OUT };
    /* Each rank begins with values of its own; ls_ddp_create gives all of them those of rank 0. */
    const ls_model_config mc = { .name = "mlp", .dims = dims, .ndims = 4, .init = LS_INIT_PHILOX, .seed = 42 + (uint64_t)rank };
    const ls_ddp_config dc = { .first_bucket = 2048, .bucket_cap = 16384 };
    ls_optim_config oc;
    ls_model *model = NULL;
    ls_arena *arena = NULL;
    ls_tape *tape = NULL;
    ls_ddp *ddp = NULL;
    ls_optim *sgd = NULL;
    ls_status st = ls_optim_defaults("sgd", &oc);
    oc.lr = 0.05;
    if (st == LS_OK) st = ls_model_create(&mc, &model);
    if (st == LS_OK) st = ls_arena_create((size_t)1 << 20, false, NULL, &arena);
    if (st == LS_OK) st = ls_params_bind(&model->params, arena, j->wrapped ? NULL : arena);
    if (st == LS_OK) st = ls_model_init(model, &mc);
    if (st == LS_OK && j->wrapped) st = ls_ddp_create(ls_world_group(world), &model->params, &dc, &ddp);
    if (st == LS_OK) st = ls_optim_create(&oc, &model->params, arena, &sgd);
    if (st == LS_OK) st = ls_tape_create(ls_model_tape_bytes(model, BATCH), NULL, NULL, &tape);
    for (int step = 0; st == LS_OK && step < STEPS; step++) st = one_step(model, tape, ddp, sgd, step, rank);
    if (st == LS_OK) st = ls_params_digest(&model->params, j->digest[rank]);
    if (st == LS_OK && ddp && rank == 0) write_buckets(ddp, &model->params, j->buckets);
    ls_tape_destroy(tape);
    ls_optim_destroy(sgd);
    ls_ddp_destroy(ddp);
    ls_model_destroy(model);
    ls_arena_destroy(arena);
    return st;
}

int main(int argc, char **argv)
{
    job j = { .wrapped = argc < 2 || strcmp(argv[1], "--no-wrapper") != 0 };
    const ls_status st = ls_world_threads(RANKS, NULL, train, &j);
    if (st < 0) {
        fprintf(stderr, "starter: error[%s]: %s\n", ls_status_word(st), ls_last_error());
        return ls_status_exit_code(st);
    }
    printf("%d ranks, %d steps, %s. Digest of each rank's weights:\n", RANKS, STEPS, j.wrapped ? "with ls_ddp" : "without ls_ddp");
    for (int r = 0; r < RANKS; r++) printf("  rank %d  %s\n", r, j.digest[r]);
    printf("{\"ranks\": %d, \"steps\": %d, \"digests\": [\"%s\", \"%s\", \"%s\", \"%s\"], \"buckets\": [%s]}\n", RANKS, STEPS,
           j.digest[0], j.digest[1], j.digest[2], j.digest[3], j.buckets);
    return 0;
}
