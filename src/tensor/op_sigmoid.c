/* op_sigmoid.c -- y = 1 / (1 + e^-x), any shape.
 *
 * forward          y  = sigmoid x        about 16 flops an element
 * backward, input  dx = dy y (1 - y)     about 19 flops an element
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
    return ls_sigmoidf(x);
}

static LS_ALWAYS_INLINE float gradient(float dy, float x, const attributes *a)
{
    const float y = value(x, a);
    return dy * (y * (1.0f - y));
}

#include "tensor/unary.h"

static ls_op_work work(const ls_op_call *c)
{
    const double n = (double)ls_tensor_count(c->out);
    return (ls_op_work){ .forward = 16.0 * n, .backward_input = 19.0 * n };
}

static const ls_op op = UNARY_OP("sigmoid", work);

ls_tensor *ls_sigmoid(ls_tape *t, ls_tensor *x) { return ls_tape_apply(t, &op, &x, 1, &(attributes){ 0 }); }
