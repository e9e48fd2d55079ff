/* op_silu.c -- y = x s(x) with s(x) = 1 / (1 + e^-x), any shape. Elfwing, Uchibe and Doya 2017.
 *
 * forward          y  = x s                       about 16 flops and 8 bytes an element
 * backward, input  dx = dy s (1 + x (1 - s))      about 20 flops and 12 bytes
 */
#include "base/compiler.h"
#include "tensor/tape.h"
#include "tensor/vecmath.h"

#define FLOPS_FORWARD 16.0
#define FLOPS_BACKWARD 20.0

LS_KERNEL_CHOOSING static void forward(float *restrict y, const float *restrict x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) y[i] = x[i] * ls_sigmoidf(x[i]);
}

static LS_ALWAYS_INLINE float slope(float x)
{
    const float s = ls_sigmoidf(x);
    return s * (1.0f + x * (1.0f - s));
}

/* dx may be dy, when not adding. */
LS_KERNEL_CHOOSING static void backward(float *dx, const float *dy, const float *restrict x, int64_t n, bool add)
{
    if (add)
        LS_INDEPENDENT
        for (int64_t i = 0; i < n; i++) dx[i] += dy[i] * slope(x[i]);
    else
        LS_INDEPENDENT
        for (int64_t i = 0; i < n; i++) dx[i] = dy[i] * slope(x[i]);
}

static ls_status backward_input(ls_tape *t, struct ls_node *n)
{
    ls_tensor *x = n->in[0];
    bool add;
    void *dx;
    LS_TRY(ls_grad_begin_in_place(t, n, x, &add, &dx));
    if (!ls_tape_dry(t)) backward(dx, n->out->grad->data, x->data, ls_tensor_count(x), add);
    return ls_grad_end(t, x);
}

static ls_status again(ls_tape *t, struct ls_node *n)
{
    (void)t;
    forward(n->out->data, n->in[0]->data, ls_tensor_count(n->out));
    return LS_OK;
}

static const ls_op silu = { .name = "silu", .napplied = 1, .backward_input = backward_input, .again = again };

ls_tensor *ls_silu(ls_tape *t, ls_tensor *x)
{
    if (!ls_op_begin(t, silu.name, x != NULL)) return NULL;
    const ls_status st = ls_op_check(t, silu.name, "input", x);
    if (st < 0) return ls_op_fail(t, st);
    ls_tensor *y = ls_op_output_again(t, LS_F32, x->ndim, x->dim);
    if (!y) return NULL;
    const int64_t n = ls_tensor_count(x);
    if (!ls_tape_dry(t)) forward(y->data, x->data, n);
    return ls_op_end(t, y, &(struct ls_node){
        .op = &silu, .in = { x }, .flops = FLOPS_FORWARD * (double)n, .flops_input = FLOPS_BACKWARD * (double)n,
        .label_a = (uint32_t)n,
    });
}
