/* op_relu.c -- y = max(x, 0), any shape.
 *
 * A NaN stays a NaN, so that a broken input is seen in the loss.
 *
 * forward          y  = x < 0 ? 0 : x       1 flop an element
 * backward, input  dx = y <= 0 ? 0 : dy     1 flop an element, from the kept y
 */
#include "base/compiler.h"
#include "tensor/tape.h"

LS_KERNEL static void forward(float *restrict y, const float *restrict x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) y[i] = x[i] < 0.0f ? 0.0f : x[i];
}

LS_KERNEL static void backward_write(float *restrict dx, const float *restrict dy, const float *restrict y, int64_t n)
{
    for (int64_t i = 0; i < n; i++) dx[i] = y[i] <= 0.0f ? 0.0f : dy[i];
}

LS_KERNEL static void backward_in_place(float *restrict d, const float *restrict y, int64_t n)
{
    for (int64_t i = 0; i < n; i++) d[i] = y[i] <= 0.0f ? 0.0f : d[i];
}

LS_KERNEL static void backward_add(float *restrict dx, const float *restrict dy, const float *restrict y, int64_t n)
{
    for (int64_t i = 0; i < n; i++) dx[i] += y[i] <= 0.0f ? 0.0f : dy[i];
}

static ls_status backward_input(ls_tape *t, struct ls_node *n)
{
    ls_tensor *x = n->in[0];
    const int64_t count = ls_tensor_count(x);
    bool add;
    void *dx;
    LS_TRY(ls_grad_begin_in_place(t, n, x, &add, &dx));
    if (!ls_tape_dry(t)) {
        const float *dy = n->out->grad->data, *y = n->out->data;
        if (add) backward_add(dx, dy, y, count);
        else if (dx == dy) backward_in_place(dx, y, count);
        else backward_write(dx, dy, y, count);
    }
    return ls_grad_end(t, x);
}

static const ls_op relu = { .name = "relu", .napplied = 1, .backward_input = backward_input };

ls_tensor *ls_relu(ls_tape *t, ls_tensor *x)
{
    if (!ls_op_begin(t, relu.name, x != NULL)) return NULL;
    if (x->dtype != LS_F32)
        return ls_op_fail(
            t, ls_fail(LS_UNSUPPORTED, "relu: input is %s; only float is supported", ls_dtype_name(x->dtype)));
    ls_tensor *y = ls_op_output(t, LS_F32, x->ndim, x->dim);
    if (!y) return NULL;
    const int64_t n = ls_tensor_count(x);
    if (!ls_tape_dry(t)) forward(y->data, x->data, n);
    return ls_op_end(t, y, &(struct ls_node){
        .op = &relu, .in = { x }, .flops = (double)n, .flops_input = (double)n, .label_a = (uint32_t)n,
    });
}
