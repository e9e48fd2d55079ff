/* evaluate.c -- the loss on samples that are not trained on: each once, shared by the ranks. */
#include <math.h>

#include "train/trainer.h"

typedef struct sums {
    double loss, counted, correct;
} sums;

static ls_status my_part(ls_trainer *t, size_t n, sums *mine)
{
    ls_range part;
    ls_status st = LS_OK;
    LS_TRY(ls_shard_range(n, t->rank, t->size, &part));
    ls_tape_set_grad(t->tape, false);
    for (size_t done = 0; st == LS_OK && done < part.count;) {
        ls_rows rows;
        ls_loss_sums batch;
        if ((st = ls_feed_test(&t->feed, part.first + done, part.count - done, &rows)) < 0) break;
        ls_tape_reset(t->tape);
        (void)ls_train_loss(t, &rows, &batch);
        st = ls_tape_status(t->tape);
        mine->loss += batch.sum;
        mine->counted += (double)batch.counted;
        mine->correct += (double)batch.correct;
        done += rows.n;
    }
    ls_tape_set_grad(t->tape, true);
    return st;
}

ls_status ls_train_evaluate(ls_trainer *t, ls_eval *out)
{
    const size_t most = (size_t)t->c->train.eval_batches * (size_t)t->c->train.global_batch;
    const size_t n = most && most < t->feed.test_samples ? most : t->feed.test_samples;
    sums all[LS_MAX_RANKS] = { { 0, 0, 0 } }, total = { 0, 0, 0 };
    *out = (ls_eval){ 0 };
    LS_TRY(my_part(t, n, &all[t->rank]));
    LS_TRY(ls_all_gather(t->group, NULL, all, (size_t)t->size * (sizeof *all / sizeof(double)), LS_F64));
    for (int r = 0; r < t->size; r++) {
        total.loss += all[r].loss;
        total.counted += all[r].counted;
        total.correct += all[r].correct;
    }
    out->done = true;
    out->loss = total.loss / total.counted;
    if (t->feed.tokens) out->perplexity = exp(out->loss);
    else out->accuracy = total.correct / total.counted;
    return LS_OK;
}
