/* evaluate.c -- the loss on samples that are not trained on: each once, shared by the ranks. */
#include <math.h>

#include "train/trainer.h"

enum { LOSS, COUNTED, CORRECT, SUMS };
_Static_assert(SUMS <= LS_TRAIN_WORDS, "what a rank tells the others");

/* Loads the rows of the next forward; `done` of this rank's samples are evaluated, and the largest part has
 * `most`. If forwards include collectives, a rank that has no samples left still runs a forward, of one row, and
 * does not count it. */
static ls_status next_rows(ls_trainer *t, ls_range part, size_t done, size_t most, ls_rows *rows, size_t *step,
                           bool *counts)
{
    const size_t left = most - done;
    *counts = done < part.count;
    *step = left < t->feed.test_rows ? left : t->feed.test_rows; /* the same on all ranks, however much is loaded
                                                                    here */
    LS_TRY(ls_feed_test(&t->feed, *counts ? part.first + done : 0, *step, rows));
    if (!*counts) rows->n = 1;
    else if (rows->n > part.count - done) rows->n = part.count - done;
    return LS_OK;
}

static ls_status my_part(ls_trainer *t, size_t n, double mine[LS_TRAIN_WORDS])
{
    ls_range part, largest;
    ls_status st = LS_OK;
    ls_tape *tape = t->par.tape[0];
    const int rank = ls_group_rank(t->par.mesh.batch), ranks = ls_group_size(t->par.mesh.batch);
    LS_TRY(ls_shard_range(n, rank, ranks, &part));
    LS_TRY(ls_shard_range(n, ls_parallel_forwards_meet(&t->par) ? 0 : rank, ranks, &largest));
    ls_tape_set_grad(tape, false);
    for (size_t done = 0, step; st == LS_OK && done < largest.count; done += step) {
        ls_rows rows;
        ls_loss_sums batch;
        bool counts;
        if ((st = next_rows(t, part, done, largest.count, &rows, &step, &counts)) < 0) break;
        ls_tape_reset(tape);
        (void)ls_train_loss(t, tape, &rows, &batch);
        st = ls_tape_status(tape);
        if (!t->par.mesh.has_loss || !counts) continue;
        mine[LOSS] += batch.sum;
        mine[COUNTED] += (double)batch.counted;
        mine[CORRECT] += (double)batch.correct;
    }
    ls_tape_set_grad(tape, true);
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
