/* attention_dot.h -- the product of two rows, where it is cheaper than a tile of products; private to attention*.c. */
#ifndef LS_TENSOR_ATTENTION_DOT_H
#define LS_TENSOR_ATTENTION_DOT_H
#include <string.h>
#include "tensor/attention_impl.h"

typedef float lanes __attribute__((vector_size(LANES * sizeof(float))));
typedef uint32_t words __attribute__((vector_size(LANES * sizeof(uint32_t))));
typedef uint16_t halves __attribute__((vector_size(LANES * sizeof(uint16_t))));

/* x[i..i + LANES) */
static LS_ALWAYS_INLINE void load(lanes *to, const void *x, int64_t i, bool bf16)
{
    if (bf16) {
        halves h;
        memcpy(&h, (const uint16_t *)x + i, sizeof h);
        const words w = __builtin_convertvector(h, words) << 16;
        memcpy(to, &w, sizeof *to);
    } else {
        memcpy(to, (const float *)x + i, sizeof *to);
    }
}

/* In LANES partial sums, then by halves. */
static LS_ALWAYS_INLINE float dot(const void *a, const void *b, int64_t n, bool bf16)
{
    lanes sum = { 0 }, x, y;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        load(&x, a, i, bf16);
        load(&y, b, i, bf16);
        sum += x * y;
    }
    float part[LANES];
    memcpy(part, &sum, sizeof part);
    for (int l = 0; i + l < n; l++) part[l] += ls_get(a, i + l, bf16) * ls_get(b, i + l, bf16);
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int l = 0; l < half; l++) part[l] += part[l + half];
    return part[0];
}

#endif
