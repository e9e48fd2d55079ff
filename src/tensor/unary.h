/* unary.h -- the frame of an ls_op that maps each element of x to one of y. To be included by the op's file after
 *
 *   typedef struct attributes ...;                              what the op is told
 *   static LS_ALWAYS_INLINE float value(float x, const attributes *a);
 *   static LS_ALWAYS_INLINE float gradient(float dy, float x, const attributes *a);
 *
 * so that its loops are compiled with them. Backward reads x: in bf16 the result is rounded, and may be dropped.
 */
#ifndef LS_TENSOR_UNARY_H
#define LS_TENSOR_UNARY_H
#include "base/compiler.h"
#include "tensor/element.h"
#include "tensor/share.h"

static LS_ALWAYS_INLINE void forward_loop(const ls_op_call *c, int64_t first, int64_t end, bool bf16)
{
    const attributes a = *(const attributes *)c->attributes;
    void *const y = c->out->data;
    const void *const x = c->in[0]->data;
    LS_INDEPENDENT
    for (int64_t i = first; i < end; i++) ls_put(y, i, value(ls_get(x, i, bf16), &a), bf16);
}

LS_KERNEL_CHOOSING static void forward_part(const void *call, int64_t first, int64_t count)
{
    const ls_op_call *c = call;
    LS_BY_DTYPE(c->out->dtype, forward_loop, c, first, first + count);
}

static LS_ALWAYS_INLINE void backward_loop(const ls_op_call *c, int64_t first, int64_t end, bool bf16)
{
    const attributes a = *(const attributes *)c->attributes;
    void *const dx = c->grad[0].data;
    const void *const dy = c->dy, *const x = c->in[0]->data;
    if (c->grad[0].add)
        LS_INDEPENDENT
        for (int64_t i = first; i < end; i++) {
            const float d = gradient(ls_get(dy, i, bf16), ls_get(x, i, bf16), &a);
            ls_put(dx, i, ls_get(dx, i, bf16) + d, bf16);
        }
    else
        LS_INDEPENDENT
        for (int64_t i = first; i < end; i++)
            ls_put(dx, i, gradient(ls_get(dy, i, bf16), ls_get(x, i, bf16), &a), bf16);
}

LS_KERNEL_CHOOSING static void backward_part(const void *call, int64_t first, int64_t count)
{
    const ls_op_call *c = call;
    LS_BY_DTYPE(c->out->dtype, backward_loop, c, first, first + count);
}

static ls_status unary_shapes(const ls_op_call *c, ls_tensor *out)
{
    LS_TRY(ls_op_inputs_alike(c, true));
    return ls_op_like(out, c->in[0]);
}

static ls_status unary_forward(const ls_op_call *c)
{
    ls_parallel_for(forward_part, c, ls_tensor_count(c->out), LS_SHARE_LINE, 2 * (int64_t)ls_tensor_nbytes(c->out));
    return LS_OK;
}

static ls_status unary_backward(const ls_op_call *c)
{
    ls_parallel_for(backward_part, c, ls_tensor_count(c->out), LS_SHARE_LINE, 3 * (int64_t)ls_tensor_nbytes(c->out));
    return LS_OK;
}

/* work_: a function, or NULL. */
#define UNARY_OP(name_, work_)                                                                               \
    { .name = name_, .least = 1, .most = 1, .applied = 1, .attribute_bytes = sizeof(attributes), .work = work_, \
      .shapes = unary_shapes, .in_place = true, .recompute = true,                                           \
      .cpu = { .forward = unary_forward, .backward_input = unary_backward } }

#endif
