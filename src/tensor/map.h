/* map.h -- the frame of an op that maps each element of x to one of y. To be included by the op's file after
 *
 *   static LS_ALWAYS_INLINE float value(float x);                the element's new value
 *   static LS_ALWAYS_INLINE float gradient(float dy, float kept); what dy is worth in x
 *   #define MAP_KEEPS_OUTPUT 0 or 1                               kept is x, or y
 *
 * so that its loops are compiled with them. dx may have dy's memory.
 */
#ifndef LS_TENSOR_MAP_H
#define LS_TENSOR_MAP_H
#include "base/compiler.h"
#include "tensor/element.h"
#include "tensor/share.h"
#include "tensor/tape.h"

typedef struct map {
    ls_dtype dtype;
    bool add;
    void *out;              /* y or dx */
    const void *dy, *from;  /* from: x, in backward what is kept */
} map;

static LS_ALWAYS_INLINE void forward_loop(const map *m, int64_t first, int64_t end, bool bf16)
{
    void *const y = m->out;
    const void *const x = m->from;
    LS_INDEPENDENT
    for (int64_t i = first; i < end; i++) ls_put(y, i, value(ls_get(x, i, bf16)), bf16);
}

LS_KERNEL_CHOOSING static void forward(const void *call, int64_t first, int64_t count)
{
    const map *m = call;
    LS_BY_DTYPE(m->dtype, forward_loop, m, first, first + count);
}

static LS_ALWAYS_INLINE void backward_loop(const map *m, int64_t first, int64_t end, bool bf16)
{
    void *const dx = m->out;
    const void *const dy = m->dy, *const kept = m->from;
    if (m->add)
        LS_INDEPENDENT
        for (int64_t i = first; i < end; i++) {
            const float d = gradient(ls_get(dy, i, bf16), ls_get(kept, i, bf16));
            ls_put(dx, i, ls_get(dx, i, bf16) + d, bf16);
        }
    else
        LS_INDEPENDENT
        for (int64_t i = first; i < end; i++)
            ls_put(dx, i, gradient(ls_get(dy, i, bf16), ls_get(kept, i, bf16)), bf16);
}

LS_KERNEL_CHOOSING static void backward(const void *call, int64_t first, int64_t count)
{
    const map *m = call;
    LS_BY_DTYPE(m->dtype, backward_loop, m, first, first + count);
}

static void run_forward(const ls_tensor *x, const ls_tensor *y)
{
    const map m = { .dtype = x->dtype, .out = y->data, .from = x->data };
    ls_parallel_for(forward, &m, ls_tensor_count(x), LS_SHARE_LINE, 2 * (int64_t)ls_tensor_nbytes(x));
}

static ls_status map_again(ls_tape *t, struct ls_node *n)
{
    if (!ls_tape_dry(t)) run_forward(n->in[0], n->out);
    return LS_OK;
}

static ls_status map_backward(ls_tape *t, struct ls_node *n)
{
    ls_tensor *x = n->in[0];
    map m = { .dtype = x->dtype, .from = MAP_KEEPS_OUTPUT ? n->out->data : x->data };
    LS_TRY(ls_grad_begin_in_place(t, n, x, &m.add, &m.out));
    m.dy = n->out->grad->data;
    if (!ls_tape_dry(t))
        ls_parallel_for(backward, &m, ls_tensor_count(x), LS_SHARE_LINE, 3 * (int64_t)ls_tensor_nbytes(x));
    return ls_grad_end(t, x);
}

/* y, by an op with these two functions; flops are those of an element. */
static ls_tensor *map_apply(ls_tape *t, const ls_tape_op *op, ls_tensor *x, double flops_forward, double flops_backward)
{
    if (!ls_op_begin(t, op->name, x != NULL)) return NULL;
    const ls_status st = ls_op_check_activation(t, op->name, "input", x);
    if (st < 0) return ls_op_fail(t, st);
    ls_tensor *y = op->again ? ls_op_output_again(t, x->dtype, x->ndim, x->dim)
                             : ls_op_output(t, x->dtype, x->ndim, x->dim);
    if (!y) return NULL;
    const int64_t n = ls_tensor_count(x);
    if (!ls_tape_dry(t)) run_forward(x, y);
    return ls_op_end(t, y, &(struct ls_node){
        .op = op, .in = { x }, .label_a = (uint32_t)n, .flops = flops_forward * (double)n,
        .flops_input = flops_backward * (double)n,
    });
}

/* Who keeps y for backward has no use for making it again. */
#define MAP_OP(name_) \
    { .name = name_, .napplied = 1, .backward_input = map_backward, .again = MAP_KEEPS_OUTPUT ? NULL : map_again }

#endif
