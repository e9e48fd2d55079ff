/* op_sub.c -- y = a - b, element by element, equal shapes.
 *
 * forward          y  = a - b           1 flop an element
 * backward, input  da = dy, db = -dy    2 flops an element
 */
#include "base/compiler.h"
#include "lockstep/op.h"

static LS_ALWAYS_INLINE float value(float a, float b) { return a - b; }

static LS_ALWAYS_INLINE float gradient(int of, float dy, float a, float b)
{
    (void)a;
    (void)b;
    return of == 0 ? dy : -dy;
}

#include "tensor/binary.h"

static const ls_op sub = BINARY_OP("sub");

ls_tensor *ls_sub(ls_tape *t, ls_tensor *a, ls_tensor *b)
{
    return ls_tape_apply(t, &sub, (ls_tensor *[]){ a, b }, 2, NULL);
}
