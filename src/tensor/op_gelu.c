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
#include "tensor/element.h"
#include "tensor/share.h"
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

typedef struct map {
    ls_dtype dtype;
    bool add;
    void *out;            /* y or dx; dx may be dy, when not adding */
    const void *dy, *x;
} map;

static LS_ALWAYS_INLINE void forward_loop(const map *m, int64_t first, int64_t end, bool bf16)
{
    void *const y = m->out;
    const void *const x = m->x;
    LS_INDEPENDENT
    for (int64_t i = first; i < end; i++) {
        const float v = ls_get(x, i, bf16);
        ls_put(y, i, v * sigmoid_2u(v), bf16);
    }
}

LS_KERNEL_CHOOSING static void forward(const void *call, int64_t first, int64_t count)
{
    const map *m = call;
    LS_BY_DTYPE(m->dtype, forward_loop, m, first, first + count);
}

static LS_ALWAYS_INLINE void backward_loop(const map *m, int64_t first, int64_t end, bool bf16)
{
    void *const dx = m->out;
    const void *const dy = m->dy, *const x = m->x;
    if (m->add)
        LS_INDEPENDENT
        for (int64_t i = first; i < end; i++) {
            const float d = ls_get(dy, i, bf16), v = ls_get(x, i, bf16);
            ls_put(dx, i, ls_get(dx, i, bf16) + d * slope(v), bf16);
        }
    else
        LS_INDEPENDENT
        for (int64_t i = first; i < end; i++) {
            const float d = ls_get(dy, i, bf16), v = ls_get(x, i, bf16);
            ls_put(dx, i, d * slope(v), bf16);
        }
}

LS_KERNEL_CHOOSING static void backward(const void *call, int64_t first, int64_t count)
{
    const map *m = call;
    LS_BY_DTYPE(m->dtype, backward_loop, m, first, first + count);
}

static void run_forward(const ls_tensor *x, ls_tensor *y)
{
    ls_share(forward, &(map){ .dtype = x->dtype, .out = y->data, .x = x->data }, ls_tensor_count(x), LS_SHARE_LINE,
             2 * (int64_t)ls_tensor_nbytes(x));
}

static ls_status again(ls_tape *t, struct ls_node *n)
{
    (void)t;
    run_forward(n->in[0], n->out);
    return LS_OK;
}

static ls_status backward_input(ls_tape *t, struct ls_node *n)
{
    ls_tensor *x = n->in[0];
    bool add;
    void *dx;
    LS_TRY(ls_grad_begin_in_place(t, n, x, &add, &dx));
    if (!ls_tape_dry(t))
        ls_share(backward, &(map){ x->dtype, add, dx, n->out->grad->data, x->data }, ls_tensor_count(x),
                 LS_SHARE_LINE, 3 * (int64_t)ls_tensor_nbytes(x));
    return ls_grad_end(t, x);
}

static const ls_op gelu = { .name = "gelu", .napplied = 1, .backward_input = backward_input, .again = again };

ls_tensor *ls_gelu(ls_tape *t, ls_tensor *x)
{
    if (!ls_op_begin(t, gelu.name, x != NULL)) return NULL;
    const ls_status st = ls_op_check_activation(t, gelu.name, "input", x);
    if (st < 0) return ls_op_fail(t, st);
    ls_tensor *y = ls_op_output_again(t, x->dtype, x->ndim, x->dim);
    if (!y) return NULL;
    const int64_t n = ls_tensor_count(x);
    if (!ls_tape_dry(t)) run_forward(x, y);
    return ls_op_end(t, y, &(struct ls_node){
        .op = &gelu, .in = { x }, .flops = FLOPS_FORWARD * (double)n, .flops_input = FLOPS_BACKWARD * (double)n,
        .label_a = (uint32_t)n,
    });
}
