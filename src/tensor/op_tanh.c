/* op_tanh.c -- y = tanh x, any shape.
 *
 * Near 0 by its series, up to x^11 (the first term left out is below 2e-8 of x where |x| < 0.35); elsewhere by
 * e = e^(-2 |x|): (1 - e) / (1 + e), where nothing is lost in 1 - e.
 *
 * forward          y  = tanh x          about 30 flops an element
 * backward, input  dx = dy (1 - y^2)    about 33 flops an element
 */
#include "base/compiler.h"
#include "lockstep/op.h"
#include "tensor/vecmath.h"

typedef struct attributes {
    char none;
} attributes;

static LS_ALWAYS_INLINE float value(float x, const attributes *a)
{
    (void)a;
    const float size = ls_selectf(x < 0.0f, -x, x), e = ls_expf(-2.0f * size), far = (1.0f - e) / (1.0f + e);
    const float q = x * x;
    float p = -1382.0f / 155925.0f;
    p = p * q + 62.0f / 2835.0f;
    p = p * q - 17.0f / 315.0f;
    p = p * q + 2.0f / 15.0f;
    p = p * q - 1.0f / 3.0f;
    const float close = x + x * (p * q);
    return ls_selectf(size < 0.35f, close, ls_selectf(x < 0.0f, -far, far)); /* a NaN is not close: far is one */
}

static LS_ALWAYS_INLINE float gradient(float dy, float x, const attributes *a)
{
    const float y = value(x, a);
    return dy * (1.0f - y * y);
}

#include "tensor/unary.h"

static ls_op_work work(const ls_op_call *c)
{
    const double n = (double)ls_tensor_count(c->out);
    return (ls_op_work){ .forward = 30.0 * n, .backward_input = 33.0 * n };
}

static const ls_op op = UNARY_OP("tanh", work);

ls_tensor *ls_tanh(ls_tape *t, ls_tensor *x) { return ls_tape_apply(t, &op, &x, 1, &(attributes){ 0 }); }
