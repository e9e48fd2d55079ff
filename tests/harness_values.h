/* harness_values.h -- one element of any type, and blocks of unequal length, for tests of collectives. */
#ifndef LS_TEST_HARNESS_VALUES_H
#define LS_TEST_HARNESS_VALUES_H
#include <stddef.h>
#include <stdint.h>

#include "coll/reduce.h"
#include "lockstep/shard.h"

static inline void ls_test_put(ls_dtype t, void *p, size_t i, double v)
{
    switch (t) {
    case LS_F32: ((float *)p)[i] = (float)v; break;
    case LS_F64: ((double *)p)[i] = v; break;
    case LS_BF16: ((uint16_t *)p)[i] = ls_f32_to_bf16((float)v); break;
    case LS_F16: ((uint16_t *)p)[i] = ls_f32_to_f16((float)v); break;
    case LS_I32: ((int32_t *)p)[i] = (int32_t)v; break;
    case LS_I64: ((int64_t *)p)[i] = (int64_t)v; break;
    default: ((uint8_t *)p)[i] = (uint8_t)(int)v; break;
    }
}

static inline double ls_test_get(ls_dtype t, const void *p, size_t i)
{
    switch (t) {
    case LS_F32: return (double)((const float *)p)[i];
    case LS_F64: return ((const double *)p)[i];
    case LS_BF16: return (double)ls_bf16_to_f32(((const uint16_t *)p)[i]);
    case LS_F16: return (double)ls_f16_to_f32(((const uint16_t *)p)[i]);
    case LS_I32: return (double)((const int32_t *)p)[i];
    case LS_I64: return (double)((const int64_t *)p)[i];
    default: return (double)((const uint8_t *)p)[i];
    }
}

/* The share of rank r of n in a vector of `count`, in elements. Uneven: ranks 0 and n/2 - 1 have none, n/2 has most. */
static inline ls_range ls_test_share(size_t count, int r, int n, bool uneven)
{
    ls_range s = { 0, 0 };
    if (!uneven) {
        (void)ls_shard_range(count, r, n, &s);
        return s;
    }
    size_t before = 0, after = 0; /* the middle rank's share */
    for (int q = 0; q < n; q++) {
        size_t mine = q == 0 || q == n / 2 - 1 || q == n / 2 ? 0 : count / (size_t)(2 * n) + (size_t)(q % 3);
        if (mine > count - before - after) mine = 0;
        if (q == r) s.count = mine;
        if (q < n / 2) before += mine;
        else after += mine;
        if (q < r) s.first += mine;
    }
    if (r == n / 2) s.count = count - before - after;
    if (r > n / 2) s.first += count - before - after;
    return s;
}

/* Elements that go from rank `from` to rank `to` of n in an all_to_all of `count` each. Uneven: none, some, or twice
 * as many, together at most 2 * count. */
static inline size_t ls_test_block(size_t count, int from, int to, int n, bool uneven)
{
    size_t each = count / (size_t)n;
    return uneven ? (size_t)((from * 7 + to * 3) % 4) * each / 2 : each;
}

/* All blocks of a rank: what it sends, or receives. */
static inline size_t ls_test_blocks(size_t count, int rank, int n, bool uneven, bool sent)
{
    size_t sum = 0;
    for (int q = 0; q < n; q++)
        sum += sent ? ls_test_block(count, rank, q, n, uneven) : ls_test_block(count, q, rank, n, uneven);
    return sum;
}

#endif
