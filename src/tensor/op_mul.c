/* op_mul.c -- y = a b, element by element, equal shapes.
 *
 * forward          y  = a b             1 flop an element
 * backward, input  da = dy b, db = dy a     2 flops an element
 */
#include "base/compiler.h"
#include "lockstep/op.h"

static LS_ALWAYS_INLINE float value(float a, float b) { return a * b; }
static LS_ALWAYS_INLINE float gradient(int of, float dy, float a, float b) { return dy * (of == 0 ? b : a); }

#include "tensor/binary.h"

static const ls_op mul = BINARY_OP("mul");

ls_tensor *ls_mul(ls_tape *t, ls_tensor *a, ls_tensor *b)
{
    return ls_tape_apply(t, &mul, (ls_tensor *[]){ a, b }, 2, NULL);
}
