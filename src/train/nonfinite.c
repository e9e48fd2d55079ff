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

void ls_train_find_nonfinite(ls_trainer *t, char *buf, size_t n)
{
    const ls_params *ps = &t->model->params;
    search s = { buf, n, 0 };
    *buf = 0;
    for (int i = 0; i < ps->n; i++) {
        const ls_param *p = &ps->item[i];
        ls_tensor value = p->t;
        if (value.bf16_only) value.dtype = LS_BF16, value.data = p->bf16;
        if (ls_tensor_finite(&value)) continue;
        snprintf(buf, n, "the parameter %s", ps->item[i].name);
        return;
    }
    /* Without gradients: no collective begins, and no dropout; that does not make what is finite infinite. */
    ls_rows rows;
    ls_loss_sums sums;
    ls_status st = LS_OK;
    ls_tape_set_grad(t->tape, false);
    ls_tape_on_output(t->tape, look, &s);
    t->feed.done = 0;
    while (st == LS_OK && !*buf && (rows = ls_feed_next(&t->feed)).n > 0) {
        s.op = 0;
        ls_tape_reset(t->tape);
        (void)ls_train_loss(t, &rows, &sums);
        st = ls_tape_status(t->tape);
    }
    ls_tape_on_output(t->tape, NULL, NULL);
    ls_tape_set_grad(t->tape, true);
}
