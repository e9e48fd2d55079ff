/* evaluate.c -- the loss on samples that are not trained on: each once, shared by the ranks. */
#include <math.h>

#include "train/trainer.h"

enum { LOSS, COUNTED, CORRECT, SUMS };
_Static_assert(SUMS <= LS_TRAIN_WORDS, "what a rank tells the others");

/* A rank's samples, and what was found of them. */
typedef struct evaluation {
    ls_trainer *t;
    ls_range part;  /* this rank's, */
    size_t most;    /* and how many the rank with most has */
    int loaded;     /* the newest forward whose samples are loaded; -1: none */
    ls_rows rows;
    bool counts;
    double *mine;   /* [LS_TRAIN_WORDS] */
} evaluation;

/* Loads the rows of a forward. If forwards include collectives, a rank that has no samples left still runs a forward,
 * of one row, and does not count it. */
static ls_status feed(void *arg, const ls_pipe_action *a)
{
    evaluation *e = arg;
    ls_feed *f = &e->t->feed;
    const size_t done = (size_t)a->micro_batch * f->test_rows;
    if (e->loaded == a->micro_batch) return LS_OK; /* for the chunk before */
    e->loaded = a->micro_batch;
    e->counts = done < e->part.count;
    return e->counts ? ls_feed_test(f, e->part.first + done, e->part.count - done, &e->rows)
                     : ls_feed_test(f, 0, 1, &e->rows);
}

static ls_status forward(void *arg, const ls_pipe_action *a, ls_pipe_data *data)
{
    const evaluation *e = arg;
    ls_trainer *t = e->t;
    ls_tape *tape = t->par.tape[a->slot];
    const ls_rows *rows = &e->rows;
    ls_stage_pass pass = { 0 };
    if (data) {
        LS_TRY(ls_parallel_stage_forward(&t->par, a, (int64_t)rows->n, (int64_t)rows->tokens, rows->x, rows->label,
                                         data, &pass));
    } else {
        ls_tape_reset(tape);
        (void)ls_train_loss(t, tape, rows, &pass.sums);
        LS_TRY(ls_tape_status(tape));
    }
    if (!t->par.mesh.has_loss || !e->counts || (data && !ls_parallel_has_loss(&t->par, a))) return LS_OK;
    e->mine[LOSS] += pass.sums.sum;
    e->mine[COUNTED] += (double)pass.sums.counted;
    e->mine[CORRECT] += (double)pass.sums.correct;
    return LS_OK;
}

static size_t edge(void *arg, int number, int micro_batch, ls_dtype *dtype)
{
    const evaluation *e = arg;
    (void)feed(arg, &(ls_pipe_action){ .micro_batch = micro_batch });
    return ls_parallel_edge(&e->t->par, number, (int64_t)e->rows.n, (int64_t)e->rows.tokens, dtype);
}

static void set_grad(const ls_trainer *t, bool on)
{
    for (int i = 0; i < t->par.ntapes; i++) ls_tape_set_grad(t->par.tape[i], on);
}

static ls_status my_part(ls_trainer *t, size_t n, double mine[LS_TRAIN_WORDS])
{
    static const ls_pipe_work work = { feed, forward, NULL, edge };
    const int rank = ls_group_rank(t->par.mesh.batch), ranks = ls_group_size(t->par.mesh.batch);
    const size_t rows = t->feed.test_rows;
    evaluation e = { .t = t, .loaded = -1, .mine = mine };
    ls_range largest;
    LS_TRY(ls_shard_range(n, rank, ranks, &e.part));
    LS_TRY(ls_shard_range(n, ls_parallel_forwards_meet(&t->par) ? 0 : rank, ranks, &largest));
    e.most = largest.count;
    set_grad(t, false);
    const ls_status st = ls_pipe_forward(t->par.pipe, (int)((e.most + rows - 1) / rows), &work, &e);
    set_grad(t, true);
    return st;
}

ls_status ls_train_evaluate(ls_trainer *t, ls_eval *out)
{
    const size_t most = (size_t)t->c->train.eval_batches * (size_t)t->c->train.global_batch;
    const size_t n = most && most < t->feed.test_samples ? most : t->feed.test_samples;
    double mine[LS_TRAIN_WORDS] = { 0 }, total[SUMS] = { 0 };
    const double (*all)[LS_TRAIN_WORDS];
    *out = (ls_eval){ 0 };
    LS_TRY(my_part(t, n, mine));
    LS_TRY(ls_train_tell(t->w, t->words, mine, &all));
    for (int r = 0; r < ls_world_size(t->w); r++)
        for (int i = 0; i < SUMS; i++) total[i] += all[r][i];
    out->done = true;
    out->loss = total[LOSS] / total[COUNTED];
    if (t->feed.tokens) out->perplexity = exp(out->loss);
    else out->accuracy = total[CORRECT] / total[COUNTED];
    return LS_OK;
}
