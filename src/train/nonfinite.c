/* nonfinite.c -- a loss that is not finite: which tensor was the first. */
#include <stdio.h>

#include "train/trainer.h"

typedef struct search {
    ls_trainer *t;
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

static ls_rows rows_of(const search *s, int micro_batch)
{
    return ls_feed_micro_batch(&s->t->feed, (size_t)micro_batch);
}

static ls_status forward(void *arg, const ls_pipe_action *a, ls_pipe_data *data)
{
    search *s = arg;
    ls_tape *tape = s->t->par.tape[a->slot];
    const ls_rows rows = rows_of(s, a->micro_batch);
    ls_stage_pass pass;
    if (*s->buf && !ls_parallel_forwards_meet(&s->t->par)) return LS_OK;
    s->op = 0;
    if (data)
        return ls_parallel_stage_forward(&s->t->par, a, (int64_t)rows.n, (int64_t)rows.tokens, rows.x, rows.label, data,
                                         &pass);
    ls_tape_reset(tape);
    (void)ls_train_loss(s->t, tape, &rows, &pass.sums);
    return ls_tape_status(tape);
}

static size_t edge(void *arg, int number, int micro_batch, ls_dtype *dtype)
{
    const search *s = arg;
    const ls_rows rows = rows_of(s, micro_batch);
    return ls_parallel_edge(&s->t->par, number, (int64_t)rows.n, (int64_t)rows.tokens, dtype);
}

void ls_train_find_nonfinite(ls_trainer *t, char *buf, size_t n)
{
    static const ls_pipe_work work = { NULL, forward, NULL, edge };
    const ls_params *ps = &t->par.model->params;
    search s = { t, buf, n, 0 };
    ls_status st = LS_OK;
    *buf = 0;
    for (int i = 0; i < ps->n && !*buf; i++)
        if (!is_finite(&ps->item[i])) snprintf(buf, n, "the parameter %s", ps->item[i].name);
    /* Without gradients: nothing is reduced, and no dropout; that does not make what is finite infinite. */
    for (int i = 0; i < t->par.ntapes; i++) {
        ls_tape_set_grad(t->par.tape[i], false);
        if (st == LS_OK) st = ls_tape_listen(t->par.tape[i], &(ls_tape_events){ .output = look }, &s);
    }
    if (st == LS_OK) (void)ls_pipe_forward(t->par.pipe, (int)ls_feed_micro_batches(&t->feed), &work, &s);
    for (int i = 0; i < t->par.ntapes; i++) {
        ls_tape_unlisten(t->par.tape[i], &s);
        ls_tape_set_grad(t->par.tape[i], true);
    }
}
