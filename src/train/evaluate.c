/* evaluate.c -- the loss on samples that are not trained on: each once, shared by the ranks. */
#include <math.h>

#include "train/trainer.h"

enum { LOSS, COUNTED, CORRECT, SUMS };
_Static_assert(SUMS == LS_TRAIN_WORDS, "what a rank tells the others");

static ls_status my_part(ls_trainer *t, size_t n, double mine[SUMS])
{
    ls_range part;
    ls_status st = LS_OK;
    ls_tape *tape = t->par.tape[0];
    LS_TRY(ls_shard_range(n, ls_group_rank(t->par.mesh.batch), ls_group_size(t->par.mesh.batch), &part));
    ls_tape_set_grad(tape, false);
    for (size_t done = 0; st == LS_OK && done < part.count;) {
        ls_rows rows;
        ls_loss_sums batch;
        if ((st = ls_feed_test(&t->feed, part.first + done, part.count - done, &rows)) < 0) break;
        ls_tape_reset(tape);
        (void)ls_train_loss(t, tape, &rows, &batch);
        st = ls_tape_status(tape);
        if (t->par.mesh.has_loss) {
            mine[LOSS] += batch.sum;
            mine[COUNTED] += (double)batch.counted;
            mine[CORRECT] += (double)batch.correct;
        }
        done += rows.n;
    }
    ls_tape_set_grad(tape, true);
    return st;
}

ls_status ls_train_evaluate(ls_trainer *t, ls_eval *out)
{
    const size_t most = (size_t)t->c->train.eval_batches * (size_t)t->c->train.global_batch;
    const size_t n = most && most < t->feed.test_samples ? most : t->feed.test_samples;
    double mine[SUMS] = { 0 }, total[SUMS] = { 0 };
    const double (*all)[SUMS];
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
