/* stages.c -- forward and backward of a pipeline stage. */
#include "train/stages.h"

static const ls_stage *stage_of(const ls_parallel *p, int chunk) { return &p->model->stage[chunk]; }

bool ls_stages_has_loss(const ls_parallel *p, const ls_pipe_action *a)
{
    const ls_stage *s = stage_of(p, a->chunk);
    return s->number == s->of - 1;
}

/* The samples, or what the stage before has sent. */
static ls_tensor *input_of(const ls_parallel *p, int chunk, ls_tape *t, ls_alive *m, const ls_model_input *in, void *x)
{
    ls_tensor shape;
    m->in = NULL;
    if (stage_of(p, chunk)->number == 0) return ls_tape_input(t, in->dtype, in->ndim, in->dim, m->rows.x);
    ls_model_edge(p->model, chunk, true, (int64_t)m->rows.n, (int64_t)m->rows.tokens, ls_tape_dtype(t), &shape);
    if (!ls_tape_grad(t)) return ls_tape_input(t, shape.dtype, shape.ndim, shape.dim, x);
    return m->in = ls_tape_input_wanted(t, shape.dtype, shape.ndim, shape.dim, x, NULL);
}

ls_status ls_stages_forward(const ls_parallel *p, const ls_pipe_action *a, ls_alive *m, ls_pipe_data *data)
{
    ls_tape *t = p->tape[a->slot];
    const ls_model *model = p->model;
    const bool last = ls_stages_has_loss(p, a);
    ls_model_input in;
    ls_tape_reset(t);
    model->cls->input(model, (int64_t)m->rows.n, (int64_t)m->rows.tokens, &in);
    ls_tensor *x = input_of(p, a->chunk, t, m, &in, data->x);
    ls_tensor *labels = last ? ls_tape_input(t, LS_I64, in.label_ndim, in.label_dim, m->rows.label) : NULL;
    m->loss = ls_model_stage_forward(model, a->chunk, t, x, labels, &m->sums);
    if (m->loss) data->y = m->loss->data;
    return ls_tape_status(t);
}

ls_status ls_stages_backward(ls_parallel *p, const ls_pipe_action *a, ls_alive *m, const float *scale, ls_pipe_data *data)
{
    ls_tape *t = p->tape[a->slot];
    if (a->what == LS_PIPE_BACKWARD_WEIGHT) {
        LS_TRY(ls_parallel_begin_backward(p, a->chunk, t, a->last));
        LS_TRY(ls_backward_weights(t));
        return a->last ? ls_parallel_end_weights(p, a->chunk) : LS_OK;
    }
    const bool half = a->what == LS_PIPE_BACKWARD_INPUT;
    LS_TRY(ls_tape_defer_weights(t, half));
    LS_TRY(ls_parallel_begin_backward(p, a->chunk, t, a->last && !half));
    if (m->in) m->in->grad->data = data->dx;
    if (ls_stages_has_loss(p, a)) return ls_backward_from(t, m->loss, scale);
    ls_tape_scale_losses(t, *scale);
    return ls_backward_from(t, m->loss, data->dy);
}

size_t ls_stages_edge(const ls_parallel *p, int edge, int64_t rows, int64_t tokens, ls_dtype *dtype)
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
