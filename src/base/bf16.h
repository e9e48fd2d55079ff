/* bf16.h -- bfloat16 to float and back, for loops: the compiler vectorises both.
 *
 * Rounding is to nearest, ties to even; a NaN stays a NaN, with the upper part of its payload.
 * Integer operations only, so that every instruction set gives the same bits: the conversion of
 * AVX512-BF16 turns subnormal numbers to 0, and no loop here is held up by the few instructions more.
 */
#ifndef LS_BASE_BF16_H
#define LS_BASE_BF16_H
#include <stdint.h>
#include <string.h>

#include "base/compiler.h"

static LS_ALWAYS_INLINE float ls_from_bf16(uint16_t b)
{
    const uint32_t u = (uint32_t)b << 16;
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static LS_ALWAYS_INLINE uint16_t ls_to_bf16(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    const uint32_t nan = u >> 16 | 0x40u;                       /* quiet */
    const uint32_t even = (u + 0x7fffu + (u >> 16 & 1u)) >> 16; /* round half to even */
    return (uint16_t)((u & 0x7fffffffu) > 0x7f800000u ? nan : even);
}

#endif
