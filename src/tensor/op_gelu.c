/* op_gelu.c -- GPT-2's GELU, any shape. Hendrycks and Gimpel 2016.
 *
 *   y = 0.5 x (1 + tanh u),   u = sqrt(2/pi) (x + 0.044715 x^3)
 *
 * With s = 1 / (1 + e^(-2u)), 0.5 (1 + tanh u) = s: no subtraction of nearly
 * equal numbers for negative x.
 *
 * forward          y  = x s                            about 16 flops an element
 * backward, input  dx = dy (s + 2 x s (1 - s) u'(x))   about 24 flops an element
 */
#include "base/compiler.h"
#include "tensor/tape.h"
#include "tensor/vecmath.h"

#define FLOPS_FORWARD 16.0
#define FLOPS_BACKWARD 24.0

static const float root = 0.7978845608028654f; /* sqrt(2/pi) */
static const float cubic = 0.044715f;

static inline __attribute__((always_inline)) float sigmoid_2u(float x)
{
    const float u = root * (x + cubic * (x * x * x));
    return ls_sigmoidf(2.0f * u);
}

static inline __attribute__((always_inline)) float slope(float x)
{
    const float s = sigmoid_2u(x);
    const float du = root * (1.0f + 3.0f * cubic * (x * x));
    return s + 2.0f * (x * s) * ((1.0f - s) * du);
}

LS_KERNEL_CHOOSING static void forward(float *restrict y, const float *restrict x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) y[i] = x[i] * sigmoid_2u(x[i]);
}

LS_KERNEL_CHOOSING static void backward_write(float *restrict dx, const float *restrict dy, const float *restrict x,
                                              int64_t n)
{
    for (int64_t i = 0; i < n; i++) dx[i] = dy[i] * slope(x[i]);
}

LS_KERNEL_CHOOSING static void backward_in_place(float *restrict d, const float *restrict x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) d[i] = d[i] * slope(x[i]);
}

LS_KERNEL_CHOOSING static void backward_add(float *restrict dx, const float *restrict dy, const float *restrict x,
                                            int64_t n)
{
    for (int64_t i = 0; i < n; i++) dx[i] += dy[i] * slope(x[i]);
}

static ls_status backward_input(ls_tape *t, struct ls_node *n)
{
    ls_tensor *x = n->in[0];
    const int64_t count = ls_tensor_count(x);
    bool add;
    void *dx;
    LS_TRY(ls_grad_begin_in_place(t, n, x, &add, &dx));
    if (!ls_tape_dry(t)) {
        const float *dy = n->out->grad->data, *xs = x->data;
        if (add) backward_add(dx, dy, xs, count);
        else if (dx == dy) backward_in_place(dx, xs, count);
        else backward_write(dx, dy, xs, count);
    }
    return ls_grad_end(t, x);
}

static ls_status again(ls_tape *t, struct ls_node *n)
{
    (void)t;
    forward(n->out->data, n->in[0]->data, ls_tensor_count(n->out));
    return LS_OK;
}

static const ls_op gelu = { .name = "gelu", .napplied = 1, .backward_input = backward_input, .again = again };

ls_tensor *ls_gelu(ls_tape *t, ls_tensor *x)
{
    if (!ls_op_begin(t, gelu.name, x != NULL)) return NULL;
    if (x->dtype != LS_F32)
        return ls_op_fail(
            t, ls_fail(LS_UNSUPPORTED, "gelu: input is %s; only float is supported", ls_dtype_name(x->dtype)));
    ls_tensor *y = ls_op_output_again(t, LS_F32, x->ndim, x->dim);
    if (!y) return NULL;
    const int64_t n = ls_tensor_count(x);
    if (!ls_tape_dry(t)) forward(y->data, x->data, n);
    return ls_op_end(t, y, &(struct ls_node){
        .op = &gelu, .in = { x }, .flops = FLOPS_FORWARD * (double)n, .flops_input = FLOPS_BACKWARD * (double)n,
        .label_a = (uint32_t)n,
    });
}
