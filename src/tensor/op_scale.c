/* op_scale.c -- y = factor x, any shape.
 *
 * forward          y  = factor x     1 flop an element
 * backward, input  dx = factor dy    1 flop an element
 */
#include "base/compiler.h"
#include "lockstep/op.h"

typedef struct attributes {
    float factor;
} attributes;

static LS_ALWAYS_INLINE float value(float x, const attributes *a) { return a->factor * x; }

static LS_ALWAYS_INLINE float gradient(float dy, float x, const attributes *a)
{
    (void)x;
    return a->factor * dy;
}

#include "tensor/unary.h"

static const ls_op scale = UNARY_OP("scale", NULL);

ls_tensor *ls_scale(ls_tape *t, ls_tensor *x, float factor)
{
    return ls_tape_apply(t, &scale, &x, 1, &(attributes){ factor });
}
