/* rng.c -- random numbers addressed by (seed, stream, global element index).
 *
 * Only the keying is ours, and a loop that makes many blocks; the generator is Random123's
 * Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
 */
#include "lockstep/rng.h"

#include <math.h>
#include <Random123/philox.h>

#include "base/compiler.h"

void ls_philox_block(uint64_t seed, uint64_t stream, uint64_t block, uint32_t out[4])
{
    philox4x32_key_t key = { { (uint32_t)seed, (uint32_t)(seed >> 32) } };
    philox4x32_ctr_t counter = {
        { (uint32_t)block, (uint32_t)(block >> 32), (uint32_t)stream, (uint32_t)(stream >> 32) },
    };
    philox4x32_ctr_t word = philox4x32_R(10, counter, key);
    for (int k = 0; k < 4; k++) out[k] = word.v[k];
}

/* Random123's rounds once more, with 32-bit words in 64-bit variables: so compilers vectorise the loop,
 * several blocks at a time. */
LS_KERNEL void ls_philox_blocks(uint64_t seed, uint64_t stream, uint64_t block, size_t n, uint32_t *restrict out)
{
    const uint64_t low = 0xffffffffu;
    for (size_t i = 0; i < n; i++) {
        const uint64_t at = block + i;
        uint64_t c0 = at & low, c1 = at >> 32, c2 = stream & low, c3 = stream >> 32;
        uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
        for (int round = 0; round < 10; round++) {
            const uint64_t p0 = (c0 & low) * PHILOX_M4x32_0, p1 = (c2 & low) * PHILOX_M4x32_1;
            c0 = (p1 >> 32) ^ c1 ^ k0;
            c1 = p1;
            c2 = (p0 >> 32) ^ c3 ^ k1;
            c3 = p0;
            k0 += PHILOX_W32_0;
            k1 += PHILOX_W32_1;
        }
        out[4 * i] = (uint32_t)c0;
        out[4 * i + 1] = (uint32_t)c1;
        out[4 * i + 2] = (uint32_t)c2;
        out[4 * i + 3] = (uint32_t)c3;
    }
}

void ls_philox_uniform(uint64_t seed, uint64_t stream, uint64_t first, size_t n, float lo, float hi, float *out)
{
    uint32_t word[4];
    for (size_t i = 0; i < n; i++) {
        uint64_t at = first + i;
        if (i == 0 || at % 4 == 0) ls_philox_block(seed, stream, at / 4, word);
        float v = (float)(word[at % 4] >> 8) * 0x1p-24f * (hi - lo) + lo;
        out[i] = v < hi ? v : lo; /* the sum may round up to hi when |lo| is large beside hi - lo */
    }
}

/* Box and Muller 1958. u1 in (0, 1], so that its logarithm is finite. */
static void normal_pair(const uint32_t word[2], double pair[2])
{
    double u1 = ((double)word[0] + 1.0) * 0x1p-32, u2 = (double)word[1] * 0x1p-32;
    double r = sqrt(-2.0 * log(u1)), theta = 2.0 * 3.14159265358979323846 * u2;
    pair[0] = r * cos(theta);
    pair[1] = r * sin(theta);
}

void ls_philox_normal(uint64_t seed, uint64_t stream, uint64_t first, size_t n, float stddev, float *out)
{
    uint32_t word[4];
    double value[4];
    for (size_t i = 0; i < n; i++) {
        uint64_t at = first + i;
        if (i == 0 || at % 4 == 0) {
            ls_philox_block(seed, stream, at / 4, word);
            normal_pair(word, value);
            normal_pair(word + 2, value + 2);
        }
        out[i] = (float)(value[at % 4] * (double)stddev);
    }
}
