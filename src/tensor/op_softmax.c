/* op_softmax.c -- y = e^(x - max) / sum of e^(x - max), over the last dimension of x[.., C].
 *
 * forward          y                            about 30 flops an element: e^x twice, to round once
 * backward, input  dx = y (dy - sum of dy y)    about 32 flops an element
 *
 * Backward makes y again from x, and from the row's largest element and 1 / sum, which are kept: in bf16 y is rounded.
 * What is 87 or more below the largest is 0: masks of -inf are.
 */
#include "base/compiler.h"
#include "lockstep/op.h"
#include "tensor/element.h"
#include "tensor/rows.h"
#include "tensor/share.h"
#include "tensor/vecmath.h"

static LS_ALWAYS_INLINE float power(float d) { return ls_selectf(d < -87.0f, 0.0f, ls_expf(d)); }

static LS_ALWAYS_INLINE double row_powers(const void *x, int64_t at, float max, int64_t C, bool bf16)
{
#define TERM(i) power(ls_get(x, at + (i), bf16) - max)
    LS_ROW_SUM(TERM);
#undef TERM
}

static LS_ALWAYS_INLINE double row_products(const void *dy, const void *x, int64_t at, float max, float inverse,
                                            int64_t C, bool bf16)
{
#define TERM(i) (ls_get(dy, at + (i), bf16) * (power(ls_get(x, at + (i), bf16) - max) * inverse))
    LS_ROW_SUM(TERM);
#undef TERM
}

static int64_t columns(const ls_op_call *c) { return c->out->dim[c->out->ndim - 1]; }

static LS_ALWAYS_INLINE void forward_loop(const ls_op_call *c, int64_t first, int64_t end, bool bf16)
{
    const int64_t C = columns(c);
    const void *const x = c->in[0]->data;
    void *const y = c->out->data;
    float *const kept = c->saved;
    for (int64_t n = first, at = n * C; n < end; n++, at += C) {
        float max = ls_get(x, at, bf16);
        for (int64_t i = 1; i < C; i++) {
            const float v = ls_get(x, at + i, bf16);
            max = v > max ? v : max;
        }
        const float inverse = (float)(1.0 / row_powers(x, at, max, C, bf16));
        kept[2 * n] = max;
        kept[2 * n + 1] = inverse;
        LS_INDEPENDENT
        for (int64_t i = 0; i < C; i++) ls_put(y, at + i, power(ls_get(x, at + i, bf16) - max) * inverse, bf16);
    }
}

/* Rows. */
LS_KERNEL_CHOOSING static void forward_rows(const void *call, int64_t first, int64_t count)
{
    const ls_op_call *c = call;
    LS_BY_DTYPE(c->out->dtype, forward_loop, c, first, first + count);
}

static LS_ALWAYS_INLINE void backward_loop(const ls_op_call *c, int64_t first, int64_t end, bool bf16)
{
    const int64_t C = columns(c);
    const void *const dy = c->dy, *const x = c->in[0]->data;
    void *const dx = c->grad[0].data;
    const float *const kept = c->saved;
    for (int64_t n = first, at = n * C; n < end; n++, at += C) {
        const float max = kept[2 * n], inverse = kept[2 * n + 1];
        const float sum = (float)row_products(dy, x, at, max, inverse, C, bf16);
        if (c->grad[0].add)
            LS_INDEPENDENT
            for (int64_t i = 0; i < C; i++) {
                const float y = power(ls_get(x, at + i, bf16) - max) * inverse;
                ls_put(dx, at + i, ls_get(dx, at + i, bf16) + y * (ls_get(dy, at + i, bf16) - sum), bf16);
            }
        else
            LS_INDEPENDENT
            for (int64_t i = 0; i < C; i++) {
                const float y = power(ls_get(x, at + i, bf16) - max) * inverse;
                ls_put(dx, at + i, y * (ls_get(dy, at + i, bf16) - sum), bf16);
            }
    }
}

LS_KERNEL_CHOOSING static void backward_rows(const void *call, int64_t first, int64_t count)
{
    const ls_op_call *c = call;
    LS_BY_DTYPE(c->out->dtype, backward_loop, c, first, first + count);
}

static ls_status shapes(const ls_op_call *c, ls_tensor *out)
{
    if (c->in[0]->ndim < 1) return ls_fail(LS_SHAPE, "softmax: input []: expected [.., C]");
    LS_TRY(ls_op_inputs_alike(c, true));
    return ls_op_like(out, c->in[0]);
}

static ls_op_work work(const ls_op_call *c)
{
    const double n = (double)ls_tensor_count(c->out);
    return (ls_op_work){ .forward = 30.0 * n, .backward_input = 32.0 * n };
}

static size_t saved_bytes(const ls_op_call *c)
{
    return 2 * (size_t)(ls_tensor_count(c->out) / columns(c)) * sizeof(float);
}

static ls_status forward(const ls_op_call *c)
{
    ls_parallel_for(forward_rows, c, ls_tensor_count(c->out) / columns(c), 1, 2 * (int64_t)ls_tensor_nbytes(c->out));
    return LS_OK;
}

static ls_status backward(const ls_op_call *c)
{
    ls_parallel_for(backward_rows, c, ls_tensor_count(c->out) / columns(c), 1, 3 * (int64_t)ls_tensor_nbytes(c->out));
    return LS_OK;
}

static const ls_op softmax = {
    .name = "softmax", .least = 1, .most = 1, .applied = 1, .shapes = shapes, .work = work,
    .saved_bytes = saved_bytes, .recompute = true,
    .cpu = { .forward = forward, .backward_input = backward },
};

ls_tensor *ls_softmax(ls_tape *t, ls_tensor *x) { return ls_tape_apply(t, &softmax, &x, 1, NULL); }
