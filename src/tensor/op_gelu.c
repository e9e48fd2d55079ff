/* op_gelu.c -- GPT-2's GELU, any shape. Hendrycks and Gimpel 2016.
 *
 *   y = 0.5 x (1 + tanh u),   u = sqrt(2/pi) (x + 0.044715 x^3)
 *
 * With s = 1 / (1 + e^(-2u)), 0.5 (1 + tanh u) = s: no subtraction of nearly
 * equal numbers for negative x.
 *
 * forward          y  = x s                            about 16 flops an element
 * backward, input  dx = dy (s + 2 x s (1 - s) u'(x))   about 24 flops an element
 */
#include "base/compiler.h"
#include "tensor/vecmath.h"

static const float root = 0.7978845608028654f; /* sqrt(2/pi) */
static const float cubic = 0.044715f;

static LS_ALWAYS_INLINE float sigmoid_2u(float x)
{
    const float u = root * (x + cubic * (x * x * x));
    return ls_sigmoidf(2.0f * u);
}

static LS_ALWAYS_INLINE float value(float x) { return x * sigmoid_2u(x); }

static LS_ALWAYS_INLINE float gradient(float dy, float x)
{
    const float s = sigmoid_2u(x);
    const float du = root * (1.0f + 3.0f * cubic * (x * x));
    return dy * (s + 2.0f * (x * s) * ((1.0f - s) * du));
}

#define MAP_KEEPS_OUTPUT 0
#include "tensor/map.h"

static const ls_tape_op gelu = MAP_OP("gelu");

ls_tensor *ls_gelu(ls_tape *t, ls_tensor *x) { return map_apply(t, &gelu, x, 16.0, 24.0); }
