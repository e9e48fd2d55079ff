/* convert.c -- values of a file's type as float, and in another order. */
#include <string.h>

#include "ckpt/format.h"
#include "coll/reduce.h"

float ls_ckpt_value(const void *raw, ls_dtype dtype, size_t k)
{
    if (dtype == LS_F32) return ((const float *)raw)[k];
    const uint16_t h = ((const uint16_t *)raw)[k];
    return dtype == LS_BF16 ? ls_bf16_to_f32(h) : ls_f16_to_f32(h);
}

enum { SIDE = 16 }; /* of a square: a cache line of float */

/* Each line is read once and written once, however far rows are apart. */
static void turn_square(const float *from, size_t from_row, float *to, size_t to_row)
{
    float square[SIDE][SIDE];
    for (int r = 0; r < SIDE; r++)
        for (int c = 0; c < SIDE; c++) square[c][r] = from[(size_t)r * from_row + (size_t)c];
    for (int c = 0; c < SIDE; c++) memcpy(to + (size_t)c * to_row, square[c], sizeof square[c]);
}

void ls_ckpt_turn(const float *from, size_t from_row, int64_t rows, int64_t columns, float *to, size_t to_row)
{
    for (int64_t r0 = 0; r0 < rows; r0 += SIDE)
        for (int64_t c0 = 0; c0 < columns; c0 += SIDE) {
            const float *in = from + (size_t)r0 * from_row + (size_t)c0;
            float *out = to + (size_t)c0 * to_row + (size_t)r0;
            if (rows - r0 >= SIDE && columns - c0 >= SIDE) {
                turn_square(in, from_row, out, to_row);
                continue;
            }
            for (int64_t r = 0; r < SIDE && r0 + r < rows; r++)
                for (int64_t c = 0; c < SIDE && c0 + c < columns; c++)
                    out[(size_t)c * to_row + (size_t)r] = in[(size_t)r * from_row + (size_t)c];
        }
}

void ls_ckpt_transpose(const void *raw, ls_dtype dtype, int64_t O, int64_t I, float *out)
{
    if (dtype == LS_F32) {
        ls_ckpt_turn(raw, (size_t)O, I, O, out, (size_t)I);
        return;
    }
    for (int64_t i0 = 0; i0 < I; i0 += SIDE)
        for (int64_t o0 = 0; o0 < O; o0 += SIDE)
            for (int64_t i = i0; i < i0 + SIDE && i < I; i++)
                for (int64_t o = o0; o < o0 + SIDE && o < O; o++)
                    out[o * I + i] = ls_ckpt_value(raw, dtype, (size_t)(i * O + o));
}
