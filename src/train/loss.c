/* loss.c -- the loss of some samples: for a step, an evaluation, or the search for a tensor that is not finite. */
#include "train/trainer.h"

ls_tensor *ls_train_loss(ls_trainer *t, ls_tape *tape, const ls_rows *rows, ls_loss_sums *sums)
{
    ls_model *m = t->par.model;
    ls_model_input in;
    m->cls->input(m, (int64_t)rows->n, (int64_t)rows->tokens, &in);
    ls_tensor *x = ls_tape_input(tape, in.dtype, in.ndim, in.dim, rows->x);
    ls_tensor *labels = ls_tape_input(tape, LS_I64, in.label_ndim, in.label_dim, rows->label);
    return ls_model_loss(m, tape, x, labels, sums);
}
