/* rng_torch.c -- PyTorch's CPU generator, draw by draw.
 *
 * mt19937 (Matsumoto and Nishimura 1998) and the distributions that PyTorch
 * builds on it, so that a model and data made after torch.manual_seed(s) are
 * the same here. What is drawn, in which order and how many bits of it count
 * is the interface. log, sin and cos are evaluated in double and rounded, which
 * agrees with PyTorch's vectorised float versions to a unit in the last place.
 */
#include <math.h>

#include "lockstep/rng.h"

#define WORDS 624
#define SHIFT 397
#define PI    3.14159265358979323846

void ls_mt19937_seed(ls_mt19937 *g, uint64_t seed)
{
    *g = (ls_mt19937){ .next = WORDS };
    g->state[0] = (uint32_t)seed;
    for (uint32_t i = 1; i < WORDS; i++) {
        uint32_t before = g->state[i - 1];
        g->state[i] = 1812433253u * (before ^ before >> 30) + i;
    }
}

static void refill(ls_mt19937 *g)
{
    for (int i = 0; i < WORDS; i++) {
        uint32_t both = (g->state[i] & 0x80000000u) | (g->state[(i + 1) % WORDS] & 0x7fffffffu);
        g->state[i] = g->state[(i + SHIFT) % WORDS] ^ both >> 1 ^ (both & 1u ? 0x9908b0dfu : 0u);
    }
    g->next = 0;
}

uint32_t ls_mt19937_next(ls_mt19937 *g)
{
    if (g->next >= WORDS) refill(g);
    uint32_t y = g->state[g->next++];
    y ^= y >> 11;
    y ^= (y << 7) & 0x9d2c5680u;
    y ^= (y << 15) & 0xefc60000u;
    return y ^ y >> 18;
}

static float next_float(ls_mt19937 *g) { return (float)(ls_mt19937_next(g) & 0xffffffu) * 0x1p-24f; }

static double next_double(ls_mt19937 *g)
{
    uint64_t high = ls_mt19937_next(g), low = ls_mt19937_next(g);
    return (double)((high << 32 | low) & ((UINT64_C(1) << 53) - 1)) * 0x1p-53;
}

void ls_mt19937_uniform(ls_mt19937 *g, float lo, float hi, size_t n, float *out)
{
    /* one rounding, as PyTorch's kernels have it on every CPU with fused multiply-add */
    for (size_t i = 0; i < n; i++) out[i] = fmaf(next_float(g), hi - lo, lo);
}

/* One value of the short path; every second one was kept from the call before. */
static double next_normal(ls_mt19937 *g)
{
    if (g->has_cached) {
        g->has_cached = 0;
        return g->cached;
    }
    double u1 = next_double(g), u2 = next_double(g);
    double r = sqrt(-2.0 * log1p(-u2)), theta = 2.0 * PI * u1;
    g->cached = r * sin(theta);
    g->has_cached = 1;
    return r * cos(theta);
}

/* 16 uniforms become 16 normals: the first eight are radii, the last eight angles. The angle is
 * rounded to float before its cosine is taken: that error, not those of log and cos, is the large
 * one (r times 2^-22), and PyTorch makes it. */
static void normal_block(float d[16])
{
    for (int j = 0; j < 8; j++) {
        float u1 = 1.0f - d[j], theta = (float)(2.0 * PI) * d[j + 8];
        float r = (float)sqrt(-2.0 * log((double)u1));
        d[j] = r * (float)cos((double)theta);
        d[j + 8] = r * (float)sin((double)theta);
    }
}

void ls_mt19937_normal(ls_mt19937 *g, size_t n, float *out)
{
    if (n < 16) {
        for (size_t i = 0; i < n; i++) out[i] = (float)next_normal(g);
        return;
    }
    ls_mt19937_uniform(g, 0.0f, 1.0f, n, out);
    for (size_t i = 0; i + 16 <= n; i += 16) normal_block(out + i);
    if (n % 16) { /* the last 16 are drawn anew, over what the last full block left */
        ls_mt19937_uniform(g, 0.0f, 1.0f, 16, out + n - 16);
        normal_block(out + n - 16);
    }
}

ls_status ls_mt19937_randint(ls_mt19937 *g, int64_t lo, int64_t hi, size_t n, int64_t *out)
{
    uint64_t range = (uint64_t)hi - (uint64_t)lo;
    if (lo >= hi || range >> 32)
        return ls_fail(LS_INVALID, "randint from %lld to %lld: expected lo < hi and fewer than 2^32 values",
                       (long long)lo, (long long)hi);
    for (size_t i = 0; i < n; i++) out[i] = lo + (int64_t)(ls_mt19937_next(g) % range);
    return LS_OK;
}

ls_status ls_mt19937_randperm(ls_mt19937 *g, size_t n, int64_t *out)
{
    if (n >= UINT32_MAX / 20) return ls_fail(LS_INVALID, "randperm of %zu: expected fewer than 2^32 / 20", n);
    for (size_t i = 0; i < n; i++) out[i] = (int64_t)i;
    for (size_t i = 0; i + 1 < n; i++) {
        size_t k = i + ls_mt19937_next(g) % (uint32_t)(n - i);
        int64_t was = out[i];
        out[i] = out[k];
        out[k] = was;
    }
    return LS_OK;
}
