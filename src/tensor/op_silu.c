/* op_silu.c -- y = x s(x) with s(x) = 1 / (1 + e^-x), any shape. Elfwing, Uchibe and Doya 2017.
 *
 * forward          y  = x s                       about 16 flops, a load and a store an element
 * backward, input  dx = dy s (1 + x (1 - s))      about 20 flops, 2 loads and a store
 */
#include "base/compiler.h"
#include "tensor/element.h"
#include "tensor/share.h"
#include "tensor/tape.h"
#include "tensor/vecmath.h"

#define FLOPS_FORWARD 16.0
#define FLOPS_BACKWARD 20.0

static LS_ALWAYS_INLINE float slope(float x)
{
    const float s = ls_sigmoidf(x);
    return s * (1.0f + x * (1.0f - s));
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
        ls_put(y, i, v * ls_sigmoidf(v), bf16);
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

static const ls_op silu = { .name = "silu", .napplied = 1, .backward_input = backward_input, .again = again };

ls_tensor *ls_silu(ls_tape *t, ls_tensor *x)
{
    if (!ls_op_begin(t, silu.name, x != NULL)) return NULL;
    const ls_status st = ls_op_check_activation(t, silu.name, "input", x);
    if (st < 0) return ls_op_fail(t, st);
    ls_tensor *y = ls_op_output_again(t, x->dtype, x->ndim, x->dim);
    if (!y) return NULL;
    const int64_t n = ls_tensor_count(x);
    if (!ls_tape_dry(t)) run_forward(x, y);
    return ls_op_end(t, y, &(struct ls_node){
        .op = &silu, .in = { x }, .flops = FLOPS_FORWARD * (double)n, .flops_input = FLOPS_BACKWARD * (double)n,
        .label_a = (uint32_t)n,
    });
}
