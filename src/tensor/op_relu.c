/* op_relu.c -- y = max(x, 0), any shape.
 *
 * A NaN stays a NaN, so that a broken input is seen in the loss.
 *
 * forward          y  = x < 0 ? 0 : x       1 flop an element
 * backward, input  dx = y <= 0 ? 0 : dy     1 flop an element, from the kept y
 */
#include "base/compiler.h"

static LS_ALWAYS_INLINE float value(float x) { return x < 0.0f ? 0.0f : x; }
static LS_ALWAYS_INLINE float gradient(float dy, float y) { return y <= 0.0f ? 0.0f : dy; }

#define MAP_KEEPS_OUTPUT 1
#include "tensor/map.h"

static const ls_tape_op relu = MAP_OP("relu");

ls_tensor *ls_relu(ls_tape *t, ls_tensor *x) { return map_apply(t, &relu, x, 1.0, 1.0); }
