/* stages.c -- forward and backward of a pipeline stage: what the actions of a pipe do. */
#include "lockstep/parallel.h"

static const ls_stage *stage_of(const ls_parallel *p, int chunk) { return &p->model->stage[chunk]; }

bool ls_parallel_has_loss(const ls_parallel *p, const ls_pipe_action *a)
{
    if (!ls_parallel_staged(p)) return true;
    const ls_stage *s = stage_of(p, a->chunk);
    return s->number == s->of - 1;
}

/* What the stage before has sent. */
static ls_tensor *entering(const ls_parallel *p, int chunk, ls_tape *t, int64_t rows, int64_t tokens, void *data)
{
    ls_tensor shape;
    ls_model_edge(p->model, chunk, true, rows, tokens, ls_tape_dtype(t), &shape);
    if (ls_tape_grad(t)) return ls_tape_input_wanted(t, shape.dtype, shape.ndim, shape.dim, data, NULL);
    return ls_tape_input(t, shape.dtype, shape.ndim, shape.dim, data);
}

/* The whole model is here. */
static ls_status forward_whole(const ls_parallel *p, const ls_pipe_action *a, int64_t rows, int64_t tokens, void *x,
                               int64_t *labels, ls_stage_pass *out)
{
    ls_tape *t = p->tape[a->slot];
    ls_model_input in;
    ls_tape_reset(t);
    LS_TRY(ls_parallel_begin_forward(p, t, a->last));
    p->model->cls->input(p->model, rows, tokens, &in);
    ls_tensor *ids = ls_tape_input(t, in.dtype, in.ndim, in.dim, x);
    ls_tensor *y = ls_tape_input(t, LS_I64, in.label_ndim, in.label_dim, labels);
    out->in = NULL;
    out->out = ls_model_loss(p->model, t, ids, y, &out->sums);
    return ls_tape_status(t);
}

ls_status ls_parallel_stage_forward(const ls_parallel *p, const ls_pipe_action *a, int64_t rows, int64_t tokens,
                                    void *x, int64_t *labels, ls_pipe_data *data, ls_stage_pass *out)
{
    if (!ls_parallel_staged(p)) return forward_whole(p, a, rows, tokens, x, labels, out);
    ls_tape *t = p->tape[a->slot];
    const ls_model *m = p->model;
    const bool first = stage_of(p, a->chunk)->number == 0, last = ls_parallel_has_loss(p, a);
    ls_model_input in;
    ls_tape_reset(t);
    m->cls->input(m, rows, tokens, &in);
    ls_tensor *x_in =
        first ? ls_tape_input(t, in.dtype, in.ndim, in.dim, x) : entering(p, a->chunk, t, rows, tokens, data->x);
    ls_tensor *y = last ? ls_tape_input(t, LS_I64, in.label_ndim, in.label_dim, labels) : NULL;
    out->in = first ? NULL : x_in;
    out->out = ls_model_stage_forward(m, a->chunk, t, x_in, y, &out->sums);
    if (out->out) data->y = out->out->data;
    return ls_tape_status(t);
}

ls_status ls_parallel_stage_backward(ls_parallel *p, const ls_pipe_action *a, ls_stage_pass *s, const float *scale,
                                     ls_pipe_data *data)
{
    ls_tape *t = p->tape[a->slot];
    if (!ls_parallel_staged(p)) return ls_backward_from(t, s->out, scale);
    if (a->what == LS_PIPE_BACKWARD_WEIGHT) {
        LS_TRY(ls_parallel_begin_backward(p, a->chunk, t, a->last));
        LS_TRY(ls_backward_weights(t));
        return a->last ? ls_parallel_end_weights(p, a->chunk) : LS_OK;
    }
    const bool half = a->what == LS_PIPE_BACKWARD_INPUT;
    LS_TRY(ls_tape_defer_weights(t, half));
    LS_TRY(ls_parallel_begin_backward(p, a->chunk, t, a->last && !half));
    if (s->in) s->in->grad->data = data->dx;
    if (ls_parallel_has_loss(p, a)) return ls_backward_from(t, s->out, scale);
    ls_tape_scale_losses(t, *scale);
    return ls_backward_from(t, s->out, data->dy);
}

size_t ls_parallel_edge(const ls_parallel *p, int edge, int64_t rows, int64_t tokens, ls_dtype *dtype)
{
    *dtype = ls_tape_dtype(p->tape[0]);
    for (int i = 0; i < p->model->nstages; i++) {
        const int number = stage_of(p, i)->number;
        ls_tensor x;
        if (number != edge && number != edge - 1) continue;
        ls_model_edge(p->model, i, number == edge, rows, tokens, *dtype, &x);
        return (size_t)ls_tensor_count(&x);
    }
    return 0;
}
