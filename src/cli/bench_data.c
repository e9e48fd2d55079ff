/* bench_data.c -- what lockstep bench sends, and what must arrive.
 *
 * Contributions are integers of so few bits that the sum over up to 64 ranks, which has
 * 6 bits more, still fits into the significand of the dtype (24, 53, 11 and 8 bits); over up to 256 ranks they have
 * two bits less, and never less than one: each dtype holds the sum of 256 values that are 0 or -1. Products are of
 * factors 1, 2 and 3, at most 24. Integer types wrap, here as there. So there is one right answer,
 * bit by bit, in whatever order an algorithm adds.
 *
 * An average scales every contribution by 1/size before it adds. That rounds, so in each element only
 * one rank's contribution is not zero: the answer is one rounded product again.
 */
#include <string.h>

#include "cli/bench.h"
#include "coll/reduce.h"

#define BLOCK 1024

static bool reduces(ls_coll c) { return c == LS_ALL_REDUCE || c == LS_REDUCE_SCATTER || c == LS_REDUCE; }

size_t ls_bench_share(const ls_bench_case *c, int from, int to)
{
    if (!c->each) return c->count / (size_t)c->size;
    return c->each[(c->coll == LS_ALL_TO_ALL ? (size_t)from * (size_t)c->size : 0) + (size_t)to];
}

size_t ls_bench_share_at(const ls_bench_case *c, int from, int to)
{
    size_t at = 0;
    for (int r = 0; r < to; r++) at += ls_bench_share(c, from, r);
    return at;
}

static unsigned value_bits(const ls_bench_case *c)
{
    const unsigned less = c->size > 64 ? 2 : 0;
    switch (c->dtype) {
    case LS_F32: return c->narrow ? (less ? 1 : 2) : 16 - less;
    case LS_F16: return 5 - less;
    case LS_BF16: return less ? 1 : 2;
    case LS_U8: return 8;
    default: return 20;
    }
}

/* Scattered bits, the upper ones best. Cheap: gigabytes are filled and checked with them. */
static inline uint32_t mix(size_t i, int rank, uint32_t round)
{
    uint32_t h = (uint32_t)i * 0x9e3779b1u + (uint32_t)rank * 0x85ebca6bu + round * 0xc2b2ae35u;
    return (h ^ h >> 15) * 0x2c1b3c6du;
}

static inline int64_t small_integer(ls_dtype t, uint32_t bits, size_t i, int rank, uint32_t round)
{
    int64_t v = (int64_t)(mix(i, rank, round) >> (32 - bits));
    return t == LS_U8 ? v : v - ((int64_t)1 << (bits - 1));
}

/* One of 1, 2, 3; over all ranks at most one 3 and three 2s in an element. */
static inline int64_t factor(size_t i, int rank, int size, uint32_t round)
{
    uint32_t h = mix(i, 0, round) >> 24, k = (uint32_t)((i + (size_t)rank) % (size_t)size);
    if (k > 3 || !(h >> k & 1u)) return 1;
    return k == 0 ? 3 : 2;
}

/* v[k] = element first + k of rank's contribution. */
static void contribution(const ls_bench_case *c, int rank, size_t first, size_t n, int64_t *v)
{
    const uint32_t bits = value_bits(c);
    bool adds = reduces(c->coll);
    if (adds && c->op == LS_PROD) {
        for (size_t k = 0; k < n; k++) v[k] = factor(first + k, rank, c->size, c->round);
        return;
    }
    for (size_t k = 0; k < n; k++) v[k] = small_integer(c->dtype, bits, first + k, rank, c->round);
    if (!adds || c->op != LS_AVG) return;
    for (size_t k = 0; k < n; k++)
        if ((first + k + c->round) % (size_t)c->size != (size_t)rank) v[k] = 0;
}

/* dst[k] = v[k] * scale in the dtype; exact when scale is 1. */
static void store(void *dst, const int64_t *v, size_t n, ls_dtype t, double scale)
{
    switch (t) {
    case LS_F32:
        for (size_t k = 0; k < n; k++) ((float *)dst)[k] = (float)v[k] * (float)scale;
        break;
    case LS_F64:
        for (size_t k = 0; k < n; k++) ((double *)dst)[k] = (double)v[k] * scale;
        break;
    case LS_BF16:
        for (size_t k = 0; k < n; k++) ((uint16_t *)dst)[k] = ls_f32_to_bf16((float)v[k] * (float)scale);
        break;
    case LS_F16:
        for (size_t k = 0; k < n; k++) ((uint16_t *)dst)[k] = ls_f32_to_f16((float)v[k] * (float)scale);
        break;
    case LS_I32:
        for (size_t k = 0; k < n; k++) ((int32_t *)dst)[k] = (int32_t)(uint32_t)(uint64_t)v[k];
        break;
    case LS_I64: memcpy(dst, v, n * sizeof *v); break;
    default:
        for (size_t k = 0; k < n; k++) ((uint8_t *)dst)[k] = (uint8_t)v[k];
        break;
    }
}

static void combine(int64_t *acc, const int64_t *v, size_t n, ls_redop op)
{
    for (size_t k = 0; k < n; k++) {
        switch (op) {
        case LS_MAX: acc[k] = v[k] > acc[k] ? v[k] : acc[k]; break;
        case LS_MIN: acc[k] = v[k] < acc[k] ? v[k] : acc[k]; break;
        case LS_PROD: acc[k] *= v[k]; break;
        default: acc[k] += v[k]; break;
        }
    }
}

/* Shares one after another, as they come from rank 0, 1, ...: elements [first, first + n). */
static void gathered(const ls_bench_case *c, int rank, size_t first, size_t n, int64_t *acc)
{
    bool mine_only = c->coll == LS_ALL_TO_ALL; /* else everybody's share is in one vector of all */
    size_t at = 0, done = 0;
    for (int r = 0; r < c->size && done < n; r++) {
        size_t share = mine_only ? ls_bench_share(c, r, rank) : ls_bench_share(c, 0, r);
        if (first + done < at + share) {
            size_t within = first + done - at, m = share - within < n - done ? share - within : n - done;
            contribution(c, r, (mine_only ? ls_bench_share_at(c, r, rank) : at) + within, m, acc + done);
            done += m;
        }
        at += share;
    }
}

static void expected(const ls_bench_case *c, int rank, size_t first, size_t n, int64_t *acc)
{
    int64_t v[BLOCK];
    switch (c->coll) {
    case LS_ALL_REDUCE:
    case LS_REDUCE:
    case LS_REDUCE_SCATTER:
        contribution(c, 0, first, n, acc);
        for (int r = 1; r < c->size; r++) {
            contribution(c, r, first, n, v);
            combine(acc, v, n, c->op);
        }
        break;
    case LS_ALL_GATHER:
    case LS_GATHER:
    case LS_ALL_TO_ALL: gathered(c, rank, first, n, acc); break;
    case LS_SENDRECV: contribution(c, (rank + c->size - 1) % c->size, first, n, acc); break;
    default: contribution(c, c->root, first, n, acc); break;
    }
}

void ls_bench_fill(const ls_bench_case *c, int rank, size_t first, size_t n, void *dst)
{
    int64_t v[BLOCK];
    size_t elem = ls_dtype_size(c->dtype);
    for (size_t at = 0; at < n; at += BLOCK) {
        size_t m = n - at < BLOCK ? n - at : BLOCK;
        contribution(c, rank, first + at, m, v);
        store((char *)dst + at * elem, v, m, c->dtype, 1.0);
    }
}

size_t ls_bench_wrong(const ls_bench_case *c, int rank, size_t first, size_t n, const void *found)
{
    int64_t acc[BLOCK], want[BLOCK]; /* want: room for a block of any dtype */
    size_t elem = ls_dtype_size(c->dtype), wrong = 0;
    double scale = reduces(c->coll) && c->op == LS_AVG ? 1.0 / c->size : 1.0;
    for (size_t at = 0; at < n; at += BLOCK) {
        size_t m = n - at < BLOCK ? n - at : BLOCK;
        const char *have = (const char *)found + at * elem;
        expected(c, rank, first + at, m, acc);
        store(want, acc, m, c->dtype, scale);
        if (memcmp(want, have, m * elem) == 0) continue;
        for (size_t k = 0; k < m; k++) wrong += memcmp((char *)want + k * elem, have + k * elem, elem) != 0;
    }
    return wrong;
}
