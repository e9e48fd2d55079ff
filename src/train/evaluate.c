/* evaluate.c -- loss and accuracy on the test set: every sample once, shared by the ranks. */
#include "train/trainer.h"

#define ROWS 256

typedef struct sums {
    double loss, correct;
} sums;

static ls_status my_part(ls_trainer *t, sums *mine)
{
    ls_range part;
    ls_loader *l = NULL;
    LS_TRY(ls_shard_range(t->test.n, t->rank, t->size, &part));
    if (part.count == 0) return LS_OK;
    ls_dataset view = t->test; /* a window on the same memory */
    view.owner = NULL;
    view.n = part.count;
    view.label += part.first;
    if (view.x) view.x += part.first * view.features;
    if (view.bytes) view.bytes += part.first * view.features;
    LS_TRY(ls_loader_create(&view, NULL, ROWS, false, &l));

    ls_status st = LS_OK;
    ls_tape_set_grad(t->tape, false);
    for (size_t n; st == LS_OK && (n = ls_loader_next(l)) > 0;) {
        ls_tape_reset(t->tape);
        const int64_t xdim[2] = { (int64_t)n, (int64_t)view.features }, ydim[1] = { (int64_t)n };
        ls_loss_sums batch;
        ls_tensor *x = ls_tape_input(t->tape, LS_F32, 2, xdim, l->x),
                  *y = ls_tape_input(t->tape, LS_I64, 1, ydim, l->label);
        ls_model_loss(t->model, t->tape, x, y, &batch);
        st = ls_tape_status(t->tape);
        mine->loss += batch.sum;
        mine->correct += (double)batch.correct;
    }
    ls_tape_set_grad(t->tape, true);
    ls_loader_destroy(l);
    return st;
}

ls_status ls_train_evaluate(ls_trainer *t, double *loss, double *accuracy)
{
    sums all[LS_MAX_RANKS] = { { 0, 0 } }, total = { 0, 0 };
    LS_TRY(my_part(t, &all[t->rank]));
    LS_TRY(ls_all_gather(t->group, NULL, all, (size_t)t->size * 2, LS_F64));
    for (int r = 0; r < t->size; r++) {
        total.loss += all[r].loss;
        total.correct += all[r].correct;
    }
    *loss = total.loss / (double)t->test.n;
    *accuracy = total.correct / (double)t->test.n;
    return LS_OK;
}
