/* convert.c -- values of a file's type as float, and in another order. */
#include "ckpt/format.h"
#include "coll/reduce.h"

float ls_ckpt_value(const void *raw, ls_dtype dtype, size_t k)
{
    if (dtype == LS_F32) return ((const float *)raw)[k];
    const uint16_t h = ((const uint16_t *)raw)[k];
    return dtype == LS_BF16 ? ls_bf16_to_f32(h) : ls_f16_to_f32(h);
}

/* In squares that stay in the cache. */
void ls_ckpt_transpose(const void *raw, ls_dtype dtype, int64_t O, int64_t I, float *out)
{
    enum { SIDE = 32 };
    for (int64_t i0 = 0; i0 < I; i0 += SIDE)
        for (int64_t o0 = 0; o0 < O; o0 += SIDE)
            for (int64_t i = i0; i < i0 + SIDE && i < I; i++)
                for (int64_t o = o0; o < o0 + SIDE && o < O; o++)
                    out[o * I + i] = ls_ckpt_value(raw, dtype, (size_t)(i * O + o));
}
