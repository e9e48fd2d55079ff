/* binary.h -- the frame of an ls_op of two tensors of one shape, element by element. To be included by the op's file
 * after
 *
 *   static LS_ALWAYS_INLINE float value(float a, float b);
 *   static LS_ALWAYS_INLINE float gradient(int of, float dy, float a, float b);   of: 0 for a, 1 for b
 *
 * so that its loops are compiled with them.
 */
#ifndef LS_TENSOR_BINARY_H
#define LS_TENSOR_BINARY_H
#include "base/compiler.h"
#include "tensor/element.h"
#include "tensor/share.h"

static LS_ALWAYS_INLINE void forward_loop(const ls_op_call *c, int64_t first, int64_t end, bool bf16)
{
    void *const y = c->out->data;
    const void *const a = c->in[0]->data, *const b = c->in[1]->data;
    LS_INDEPENDENT
    for (int64_t i = first; i < end; i++) ls_put(y, i, value(ls_get(a, i, bf16), ls_get(b, i, bf16)), bf16);
}

LS_KERNEL static void forward_part(const void *call, int64_t first, int64_t count)
{
    const ls_op_call *c = call;
    LS_BY_DTYPE(c->out->dtype, forward_loop, c, first, first + count);
}

static LS_ALWAYS_INLINE void gradient_loop(const ls_op_call *c, int of, int64_t first, int64_t end, bool bf16)
{
    void *const d = c->grad[of].data;
    const void *const dy = c->dy, *const a = c->in[0]->data, *const b = c->in[1]->data;
    if (c->grad[of].add)
        LS_INDEPENDENT
        for (int64_t i = first; i < end; i++) {
            const float more = gradient(of, ls_get(dy, i, bf16), ls_get(a, i, bf16), ls_get(b, i, bf16));
            ls_put(d, i, ls_get(d, i, bf16) + more, bf16);
        }
    else
        LS_INDEPENDENT
        for (int64_t i = first; i < end; i++)
            ls_put(d, i, gradient(of, ls_get(dy, i, bf16), ls_get(a, i, bf16), ls_get(b, i, bf16)), bf16);
}

LS_KERNEL static void backward_part(const void *call, int64_t first, int64_t count)
{
    const ls_op_call *c = call;
    if (c->grad[0].data) LS_BY_DTYPE(c->out->dtype, gradient_loop, c, 0, first, first + count);
    if (c->grad[1].data) LS_BY_DTYPE(c->out->dtype, gradient_loop, c, 1, first, first + count);
}

static ls_status binary_shapes(const ls_op_call *c, ls_tensor *out)
{
    char as[96], bs[96];
    if (!ls_tensor_same_shape(c->in[0], c->in[1]))
        return ls_fail(LS_SHAPE, "%s: %s and %s: expected equal shapes", c->op->name,
                       ls_tensor_shape(c->in[0], as, sizeof as), ls_tensor_shape(c->in[1], bs, sizeof bs));
    LS_TRY(ls_op_inputs_alike(c, true));
    return ls_op_like(out, c->in[0]);
}

static ls_status binary_forward(const ls_op_call *c)
{
    ls_parallel_for(forward_part, c, ls_tensor_count(c->out), LS_SHARE_LINE, 3 * (int64_t)ls_tensor_nbytes(c->out));
    return LS_OK;
}

static ls_status binary_backward(const ls_op_call *c)
{
    ls_parallel_for(backward_part, c, ls_tensor_count(c->out), LS_SHARE_LINE, 5 * (int64_t)ls_tensor_nbytes(c->out));
    return LS_OK;
}

#define BINARY_OP(name_)                                                       \
    { .name = name_, .least = 2, .most = 2, .applied = 2, .shapes = binary_shapes, \
      .cpu = { .forward = binary_forward, .backward_input = binary_backward } }

#endif
