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

enum {
    SIDE = 16,  /* of a square: a cache line of float */
    TILE = 128, /* of a tile of squares: its rows are in as many pages, whose addresses the core remembers */
};

typedef float four __attribute__((vector_size(16), aligned(4)));

/* 4 x 4 floats: pairs of two rows, then pairs of pairs. */
static void turn_four(const float *from, size_t from_row, float *to, size_t to_row)
{
    four row[4];
    memcpy(&row[0], from, sizeof *row);
    memcpy(&row[1], from + from_row, sizeof *row);
    memcpy(&row[2], from + 2 * from_row, sizeof *row);
    memcpy(&row[3], from + 3 * from_row, sizeof *row);
    const four a = __builtin_shufflevector(row[0], row[1], 0, 4, 1, 5);
    const four b = __builtin_shufflevector(row[0], row[1], 2, 6, 3, 7);
    const four c = __builtin_shufflevector(row[2], row[3], 0, 4, 1, 5);
    const four d = __builtin_shufflevector(row[2], row[3], 2, 6, 3, 7);
    const four column[4] = { __builtin_shufflevector(a, c, 0, 1, 4, 5), __builtin_shufflevector(a, c, 2, 3, 6, 7),
                             __builtin_shufflevector(b, d, 0, 1, 4, 5), __builtin_shufflevector(b, d, 2, 3, 6, 7) };
    for (size_t k = 0; k < 4; k++) memcpy(to + k * to_row, &column[k], sizeof *column);
}

static void turn_square(const float *from, size_t from_row, float *to, size_t to_row)
{
    for (size_t c = 0; c < SIDE; c += 4)
        for (size_t r = 0; r < SIDE; r += 4) turn_four(from + r * from_row + c, from_row, to + c * to_row + r, to_row);
}

/* What has fewer rows or columns than a square. */
static void turn_edge(const float *from, size_t from_row, int64_t rows, int64_t columns, float *to, size_t to_row)
{
    for (int64_t r = 0; r < SIDE && r < rows; r++)
        for (int64_t c = 0; c < SIDE && c < columns; c++)
            to[(size_t)c * to_row + (size_t)r] = from[(size_t)r * from_row + (size_t)c];
}

static void turn_tile(const float *from, size_t from_row, int64_t rows, int64_t columns, float *to, size_t to_row)
{
    for (int64_t c = 0; c < columns; c += SIDE)
        for (int64_t r = 0; r < rows; r += SIDE) {
            const float *in = from + (size_t)r * from_row + (size_t)c;
            float *out = to + (size_t)c * to_row + (size_t)r;
            if (rows - r >= SIDE && columns - c >= SIDE) turn_square(in, from_row, out, to_row);
            else turn_edge(in, from_row, rows - r, columns - c, out, to_row);
        }
}

static int64_t at_most_tile(int64_t n) { return n < TILE ? n : TILE; }

void ls_ckpt_turn(const float *from, size_t from_row, int64_t rows, int64_t columns, float *to, size_t to_row)
{
    for (int64_t r = 0; r < rows; r += TILE)
        for (int64_t c = 0; c < columns; c += TILE)
            turn_tile(from + (size_t)r * from_row + (size_t)c, from_row, at_most_tile(rows - r),
                      at_most_tile(columns - c), to + (size_t)c * to_row + (size_t)r, to_row);
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
