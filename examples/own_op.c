/* own_op.c -- an operation that Lockstep does not have: a causal convolution along T, each channel by itself. The
 * section "An operation of your own" of docs/your-own-model.md goes through it.
 *
 *   x [B, T, C]    w [C, K]    y[b, t, c] = sum over k of w[c, k] x[b, t - k, c], x being 0 before its first token
 *
 * The program finds the filter that made some data: gradient descent on the mean squared error.
 */
#include <lockstep/lockstep.h>
#include <stdio.h>
#include <string.h>

enum { B = 8, T = 32, C = 4, K = 3, STEPS = 200 };

/* --- the operation ------------------------------------------------------------------------- */

static ls_status shapes(const ls_op_call *c, ls_tensor *out)
{
    char xs[96], ws[96];
    const ls_tensor *x = c->in[0], *w = c->in[1];
    if (x->ndim != 3 || w->ndim != 2 || w->dim[0] != x->dim[2])
        return ls_fail(LS_SHAPE, "conv1d: input %s and weight %s: expected [B, T, C] and [C, K]",
                       ls_tensor_shape(x, xs, sizeof xs), ls_tensor_shape(w, ws, sizeof ws));
    LS_TRY(ls_op_inputs_alike(c, false));
    return ls_op_like(out, x);
}

static ls_op_work work(const ls_op_call *c)
{
    const double flops = 2.0 * (double)ls_tensor_count(c->out) * (double)c->in[1]->dim[1];
    return (ls_op_work){ flops, flops, flops };
}

/* Sequences of the batch: each is one thread's. */
static void sequences_forward(const void *call, int64_t first, int64_t count)
{
    const ls_op_call *c = call;
    const int64_t tokens = c->in[0]->dim[1], channels = c->in[0]->dim[2], taps = c->in[1]->dim[1];
    const float *w = c->in[1]->data;
    for (int64_t b = first; b < first + count; b++) {
        const float *x = (const float *)c->in[0]->data + b * tokens * channels;
        float *y = (float *)c->out->data + b * tokens * channels;
        memset(y, 0, (size_t)(tokens * channels) * sizeof *y);
        for (int64_t t = 0; t < tokens; t++)
            for (int64_t k = 0; k < taps && k <= t; k++)
                for (int64_t i = 0; i < channels; i++)
                    y[t * channels + i] += w[i * taps + k] * x[(t - k) * channels + i];
    }
}

static void sequences_backward(const void *call, int64_t first, int64_t count)
{
    const ls_op_call *c = call;
    const int64_t tokens = c->in[0]->dim[1], channels = c->in[0]->dim[2], taps = c->in[1]->dim[1];
    const float *w = c->in[1]->data;
    for (int64_t b = first; b < first + count; b++) {
        const float *dy = (const float *)c->dy + b * tokens * channels;
        float *dx = (float *)c->grad[0].data + b * tokens * channels;
        if (!c->grad[0].add) memset(dx, 0, (size_t)(tokens * channels) * sizeof *dx);
        for (int64_t t = 0; t < tokens; t++)
            for (int64_t k = 0; k < taps && k <= t; k++)
                for (int64_t i = 0; i < channels; i++)
                    dx[(t - k) * channels + i] += w[i * taps + k] * dy[t * channels + i];
    }
}

/* Rows of w: each is summed up in order by one thread, so their number changes no bit. */
static void rows_backward(const void *call, int64_t first, int64_t count)
{
    const ls_op_call *c = call;
    const int64_t batch = c->in[0]->dim[0], tokens = c->in[0]->dim[1], channels = c->in[0]->dim[2];
    const int64_t taps = c->in[1]->dim[1];
    const float *x = c->in[0]->data, *dy = c->dy;
    for (int64_t i = first; i < first + count; i++)
        for (int64_t k = 0; k < taps; k++) {
            double sum = 0.0;
            for (int64_t b = 0; b < batch; b++)
                for (int64_t t = k; t < tokens; t++)
                    sum += (double)dy[(b * tokens + t) * channels + i] * (double)x[(b * tokens + t - k) * channels + i];
            float *dw = (float *)c->grad[1].data + i * taps + k;
            *dw = c->grad[1].add ? *dw + (float)sum : (float)sum;
        }
}

static ls_status forward(const ls_op_call *c)
{
    ls_parallel_for(sequences_forward, c, c->in[0]->dim[0], 1, 2 * (int64_t)ls_tensor_nbytes(c->out));
    return LS_OK;
}

static ls_status backward_input(const ls_op_call *c)
{
    ls_parallel_for(sequences_backward, c, c->in[0]->dim[0], 1, 2 * (int64_t)ls_tensor_nbytes(c->out));
    return LS_OK;
}

static ls_status backward_weight(const ls_op_call *c)
{
    ls_parallel_for(rows_backward, c, c->in[1]->dim[0], 1, 2 * (int64_t)ls_tensor_nbytes(c->out));
    return LS_OK;
}

static const ls_op conv1d = {
    .name = "conv1d", .least = 2, .most = 2, .applied = 1, .shapes = shapes, .work = work,
    .cpu = { .forward = forward, .backward_weight = backward_weight, .backward_input = backward_input },
};

/* --- finding a filter ------------------------------------------------------------------------ */

static float x[B * T * C], truth[C * K], target[B * T * C], w[C * K], dw[C * K];

static ls_status train(ls_tape *t)
{
    ls_tensor grad = { .dtype = LS_F32, .ndim = 2, .dim = { C, K }, .data = dw };
    ls_tensor weight = { .dtype = LS_F32, .ndim = 2, .dim = { C, K }, .data = w, .grad = &grad, .name = "conv.weight" };
    ls_tensor real = { .dtype = LS_F32, .ndim = 2, .dim = { C, K }, .data = truth };
    for (int step = 0; step <= STEPS; step++) {
        ls_tape_reset(t);
        ls_tensor *in = ls_tape_input(t, LS_F32, 3, (int64_t[]){ B, T, C }, x);
        ls_tensor *y = ls_tape_apply(t, &conv1d, (ls_tensor *[]){ in, step ? &weight : &real }, 2, NULL);
        LS_TRY(ls_tape_status(t));
        if (step == 0) {
            memcpy(target, y->data, sizeof target); /* what the filter to be found makes of x */
            continue;
        }
        ls_tensor *loss = ls_mse_loss(t, y, ls_tape_input(t, LS_F32, 3, (int64_t[]){ B, T, C }, target));
        weight.grad_ready = false;
        LS_TRY(ls_backward(t, loss));
        for (int i = 0; i < C * K; i++) w[i] -= 0.5f * dw[i];
        if (step == 1 || step % 50 == 0) printf("step %4d  loss %.6f\n", step, (double)*(float *)loss->data);
    }
    return LS_OK;
}

int main(void)
{
    ls_tape *t = NULL;
    ls_philox_uniform(1, 0, 0, B * T * C, -1.0f, 1.0f, x);
    ls_philox_uniform(1, 1, 0, C * K, -1.0f, 1.0f, truth);
    ls_status st = ls_tape_create(1 << 20, NULL, NULL, &t);
    if (st >= 0) st = train(t);
    if (st < 0) fprintf(stderr, "own_op: %s\n", ls_last_error());
    ls_tape_destroy(t);
    return st < 0;
}
