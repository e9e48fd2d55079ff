/* op_silu.c -- y = x s(x) with s(x) = 1 / (1 + e^-x), any shape. Elfwing, Uchibe and Doya 2017.
 *
 * forward          y  = x s                       about 16 flops, a load and a store an element
 * backward, input  dx = dy s (1 + x (1 - s))      about 20 flops, 2 loads and a store
 */
#include "base/compiler.h"
#include "tensor/vecmath.h"

static LS_ALWAYS_INLINE float value(float x) { return x * ls_sigmoidf(x); }

static LS_ALWAYS_INLINE float gradient(float dy, float x)
{
    const float s = ls_sigmoidf(x);
    return dy * (s * (1.0f + x * (1.0f - s)));
}

#define MAP_KEEPS_OUTPUT 0
#include "tensor/map.h"

static const ls_tape_op silu = MAP_OP("silu");

ls_tensor *ls_silu(ls_tape *t, ls_tensor *x) { return map_apply(t, &silu, x, 16.0, 20.0); }
