/* vecmath.h -- elementary functions that vectorise: call them in an LS_KERNEL_CHOOSING
 * loop. Only additions, multiplications and bit operations, each rounded once,
 * so every instruction set gives the same bits. */
#ifndef LS_TENSOR_VECMATH_H
#define LS_TENSOR_VECMATH_H
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* c ? a : b, by masks: of `c ? a : b` GCC may make branches, and it vectorises loops with branches for AVX-512 only. */
static inline __attribute__((always_inline)) float ls_selectf(bool c, float a, float b)
{
    const uint32_t mask = -(uint32_t)c;
    uint32_t bits, other;
    memcpy(&bits, &a, sizeof bits);
    memcpy(&other, &b, sizeof other);
    bits = (bits & mask) | (other & ~mask);
    memcpy(&a, &bits, sizeof a);
    return a;
}

/* e^x for x in [-87, 88].
 *
 * x = k ln 2 + r with |r| <= ln 2 / 2, ln 2 split in two so that k * high part is
 * exact; e^r by its Taylor polynomial of degree 7 (error 5e-9); times 2^k. */
static inline __attribute__((always_inline)) float ls_expf_in_range(float x)
{
    const float shift = 0x1.8p23f; /* adding it rounds to an integer, found in the low bits */
    const float z = x * 0x1.715476p0f + shift;
    const float k = z - shift;
    const float r = (x - k * 0x1.62e4p-1f) - k * 0x1.7f7d1cp-20f;
    float p = 1.0f / 5040.0f;
    p = p * r + 1.0f / 720.0f;
    p = p * r + 1.0f / 120.0f;
    p = p * r + 1.0f / 24.0f;
    p = p * r + 1.0f / 6.0f;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    uint32_t bits;
    memcpy(&bits, &z, sizeof bits);
    bits = (bits + 127u) << 23; /* 2^k */
    float scale;
    memcpy(&scale, &bits, sizeof scale);
    return p * scale;
}

/* e^x to 2 ulp for x in [-87, 88]; below 1.2e-38 it is about that, above 88 about 1.7e38; NaN for NaN. */
static inline __attribute__((always_inline)) float ls_expf(float x)
{
    const float c = ls_selectf(x < -87.0f, -87.0f, x);
    return ls_expf_in_range(ls_selectf(c > 88.0f, 88.0f, c));
}

/* The same bits for x of at most 88, as in a softmax, and a fifth less time; above 88 any value. GCC vectorises its
 * choice, a maximum, only in an LS_KERNEL_CHOOSING loop. */
static inline __attribute__((always_inline)) float ls_expf_low(float x)
{
    return ls_expf_in_range(x < -87.0f ? -87.0f : x);
}

/* 1 / (1 + e^-x) to about 3 ulp; below -87 it is about 1e-38. */
static inline __attribute__((always_inline)) float ls_sigmoidf(float x) { return 1.0f / (1.0f + ls_expf(-x)); }

#endif
