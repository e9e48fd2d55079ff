/* nonfinite.c -- a loss that is not finite: which tensor was the first. */
#include <stdio.h>

#include "train/trainer.h"

typedef struct search {
    char *buf;
    size_t n;
    int op; /* of forward */
} search;

static void look(void *arg, const char *op, const ls_tensor *out)
{
    search *s = arg;
    char shape[96];
    s->op++;
    if (*s->buf || ls_tensor_finite(out)) return;
    snprintf(s->buf, s->n, "the result %s of %s, operation %d of forward", ls_tensor_shape(out, shape, sizeof shape), op, s->op);
}

/* Of what this rank stores of a parameter: the values that operations read, or those of its own rows. */
static bool is_finite(const ls_param *p)
{
    ls_tensor value = p->t;
    if (!value.data && p->bf16) value.dtype = LS_BF16, value.data = p->bf16;
    if (!value.data) value = (ls_tensor){ .ndim = 1, .dim = { (int64_t)p->own.count }, .data = p->master };
    return value.dim[0] == 0 || ls_tensor_finite(&value);
}

void ls_train_find_nonfinite(ls_trainer *t, char *buf, size_t n)
{
    const ls_params *ps = &t->par.model->params;
    const bool meet = ls_parallel_forwards_meet(&t->par); /* then all ranks run all forwards */
    search s = { buf, n, 0 };
    *buf = 0;
    for (int i = 0; i < ps->n && !*buf; i++)
        if (!is_finite(&ps->item[i])) snprintf(buf, n, "the parameter %s", ps->item[i].name);
    /* Without gradients: nothing is reduced, and no dropout; that does not make what is finite infinite. */
    ls_tape *tape = t->par.tape[0];
    ls_status st = ls_tape_listen(tape, &(ls_tape_events){ .output = look }, &s);
    ls_tape_set_grad(tape, false);
    for (size_t k = 0; st == LS_OK && (meet || !*buf) && k < ls_feed_micro_batches(&t->feed); k++) {
        const ls_rows rows = ls_feed_micro_batch(&t->feed, k);
        ls_loss_sums sums;
        s.op = 0;
        ls_tape_reset(tape);
        (void)ls_train_loss(t, tape, &rows, &sums);
        st = ls_tape_status(tape);
    }
    ls_tape_unlisten(tape, &s);
    ls_tape_set_grad(tape, true);
}
