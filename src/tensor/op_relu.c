/* op_relu.c -- y = max(x, 0), any shape.
 *
 * A NaN stays a NaN, so that a broken input is seen in the loss.
 *
 * forward          y  = x < 0 ? 0 : x       1 flop an element
 * backward, input  dx = y <= 0 ? 0 : dy     1 flop an element, from the kept y
 */
#include "base/compiler.h"
#include "tensor/element.h"
#include "tensor/share.h"
#include "tensor/tape.h"

typedef struct map {
    ls_dtype dtype;
    bool add;
    void *out;            /* y or dx; dx may be dy, when not adding */
    const void *dy, *x;   /* y in backward */
} map;

static LS_ALWAYS_INLINE void forward_loop(const map *m, int64_t first, int64_t end, bool bf16)
{
    void *const y = m->out;
    const void *const x = m->x;
    LS_INDEPENDENT
    for (int64_t i = first; i < end; i++) {
        const float v = ls_get(x, i, bf16);
        ls_put(y, i, v < 0.0f ? 0.0f : v, bf16);
    }
}

LS_KERNEL static void forward(const void *call, int64_t first, int64_t count)
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
            ls_put(dx, i, ls_get(dx, i, bf16) + (v <= 0.0f ? 0.0f : d), bf16);
        }
    else
        LS_INDEPENDENT
        for (int64_t i = first; i < end; i++) {
            const float d = ls_get(dy, i, bf16), v = ls_get(x, i, bf16);
            ls_put(dx, i, (v <= 0.0f ? 0.0f : d), bf16);
        }
}

LS_KERNEL static void backward(const void *call, int64_t first, int64_t count)
{
    const map *m = call;
    LS_BY_DTYPE(m->dtype, backward_loop, m, first, first + count);
}

static ls_status backward_input(ls_tape *t, struct ls_node *n)
{
    ls_tensor *x = n->in[0];
    bool add;
    void *dx;
    LS_TRY(ls_grad_begin_in_place(t, n, x, &add, &dx));
    if (!ls_tape_dry(t))
        ls_share(backward, &(map){ x->dtype, add, dx, n->out->grad->data, n->out->data }, ls_tensor_count(x),
                 LS_SHARE_LINE, 3 * (int64_t)ls_tensor_nbytes(x));
    return ls_grad_end(t, x);
}

static const ls_op relu = { .name = "relu", .napplied = 1, .backward_input = backward_input };

ls_tensor *ls_relu(ls_tape *t, ls_tensor *x)
{
    if (!ls_op_begin(t, relu.name, x != NULL)) return NULL;
    const ls_status st = ls_op_check_activation(t, relu.name, "input", x);
    if (st < 0) return ls_op_fail(t, st);
    ls_tensor *y = ls_op_output(t, x->dtype, x->ndim, x->dim);
    if (!y) return NULL;
    const int64_t n = ls_tensor_count(x);
    if (!ls_tape_dry(t))
        ls_share(forward, &(map){ .dtype = x->dtype, .out = y->data, .x = x->data }, n, LS_SHARE_LINE,
                 2 * (int64_t)ls_tensor_nbytes(x));
    return ls_op_end(t, y, &(struct ls_node){
        .op = &relu, .in = { x }, .flops = (double)n, .flops_input = (double)n, .label_a = (uint32_t)n,
    });
}
