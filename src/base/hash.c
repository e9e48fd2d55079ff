/* hash.c -- signatures and digests; xxHash does the work. */
#include "base/hash.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define XXH_INLINE_ALL
#include <xxhash.h>

struct ls_digest {
    XXH3_state_t *xx; /* owned */
};

uint64_t ls_hash64(const void *p, size_t n, uint64_t seed) { return XXH3_64bits_withSeed(p, n, seed); }

ls_digest *ls_digest_create(void)
{
    ls_digest *d = calloc(1, sizeof *d);
    if (d && !(d->xx = XXH3_createState())) {
        free(d);
        return NULL;
    }
    if (d) XXH3_128bits_reset(d->xx);
    return d;
}

void ls_digest_add(ls_digest *d, const void *p, size_t n) { XXH3_128bits_update(d->xx, p, n); }

void ls_digest_reset(ls_digest *d) { XXH3_128bits_reset(d->xx); }

void ls_digest_hex(const ls_digest *d, char out[33])
{
    XXH128_hash_t h = XXH3_128bits_digest(d->xx);
    snprintf(out, 33, "%016llx%016llx", (unsigned long long)h.high64, (unsigned long long)h.low64);
}

/* Both widths share one state and one update; only the last step differs. */
uint64_t ls_digest_u64(const ls_digest *d) { return XXH3_64bits_digest(d->xx); }

void ls_digest_destroy(ls_digest *d)
{
    if (!d) return;
    XXH3_freeState(d->xx);
    free(d);
}

/* Castagnoli, reflected: bit 31 is x^0. */
#define POLY 0x82f63b78u

#if defined(__x86_64__) && defined(__SSE4_2__)

/* The processor's instruction gives 8 bytes a cycle but takes three to do so: three runs of the data keep it
 * busy. A register that is followed by n zero bytes is multiplied by x^(8n), and so the three become one. */
#define LONG_RUN 4096u
#define LONG_RUN_POWER 0x35d73a62u  /* x^(8 * 4096) mod P */
#define SHORT_RUN 256u
#define SHORT_RUN_POWER 0x88e56f72u /* x^(8 * 256) mod P */

static uint32_t multiply(uint32_t a, uint32_t b)
{
    uint32_t product = 0;
    for (int bit = 31; bit >= 0; bit--) {
        product ^= b & (0u - (a >> bit & 1u));
        b = b >> 1 ^ (POLY & (0u - (b & 1u)));
    }
    return product;
}

static uint64_t word_at(const unsigned char *b)
{
    uint64_t v;
    __builtin_memcpy(&v, b, sizeof v);
    return v;
}

static uint32_t three_runs(uint32_t crc, const unsigned char *b, size_t run, uint32_t power)
{
    uint64_t c0 = crc, c1 = 0, c2 = 0;
    for (const unsigned char *end = b + run; b < end; b += 8) {
        c0 = __builtin_ia32_crc32di(c0, word_at(b));
        c1 = __builtin_ia32_crc32di(c1, word_at(b + run));
        c2 = __builtin_ia32_crc32di(c2, word_at(b + 2 * run));
    }
    return multiply(power, multiply(power, (uint32_t)c0) ^ (uint32_t)c1) ^ (uint32_t)c2;
}

/* Four vectors of four lanes each, folded over the data 256 bytes at a time: a lane is 128 bits of a polynomial, moved
 * on by 2048 bits with two products without carry (Gopal et al., "Fast CRC Computation for Generic Polynomials Using
 * PCLMULQDQ", 2009). What is left is as many bytes with the same remainder. n: a multiple of FOLD, not 0. */
#define FOLD 256u
#define FOLD_LOW  0xdcb17aa4 /* x^(2048 + 32) mod P, one bit up: for the half of a lane that comes first */
#define FOLD_HIGH 0xb9e02b86 /* x^(2048 - 32) mod P, likewise for the other */

__attribute__((target("avx512f,avx512vl,vpclmulqdq"))) static void fold(uint32_t crc, const unsigned char *b, size_t n,
                                                                        unsigned char left[FOLD])
{
    const __m512i by = _mm512_set4_epi64(FOLD_HIGH, FOLD_LOW, FOLD_HIGH, FOLD_LOW);
    __m512i a[4];
    for (int i = 0; i < 4; i++) a[i] = _mm512_loadu_si512(b + 64 * i);
    a[0] = _mm512_xor_si512(a[0], _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)crc)));
    for (size_t at = FOLD; at < n; at += FOLD)
        for (int i = 0; i < 4; i++)
            a[i] = _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(a[i], by, 0x00),
                                             _mm512_clmulepi64_epi128(a[i], by, 0x11),
                                             _mm512_loadu_si512(b + at + 64 * (size_t)i), 0x96); /* all three, xor */
    for (int i = 0; i < 4; i++) _mm512_storeu_si512(left + 64 * i, a[i]);
}

static bool folds(void) { return __builtin_cpu_supports("vpclmulqdq") && __builtin_cpu_supports("avx512vl"); }

static uint32_t crc_bytes(uint32_t crc, const unsigned char *b, size_t n)
{
    for (; n >= 3 * LONG_RUN; n -= 3 * LONG_RUN, b += 3 * LONG_RUN) crc = three_runs(crc, b, LONG_RUN, LONG_RUN_POWER);
    for (; n >= 3 * SHORT_RUN; n -= 3 * SHORT_RUN, b += 3 * SHORT_RUN)
        crc = three_runs(crc, b, SHORT_RUN, SHORT_RUN_POWER);
    for (; n >= 8; n -= 8, b += 8) crc = (uint32_t)__builtin_ia32_crc32di(crc, word_at(b));
    for (; n > 0; n--) crc = __builtin_ia32_crc32qi(crc, *b++);
    return crc;
}

uint32_t ls_crc32c(uint32_t crc, const void *p, size_t n)
{
    const unsigned char *b = p;
    crc = ~crc;
    if (n >= 8 * FOLD && folds()) {
        unsigned char left[FOLD];
        size_t whole = n - n % FOLD;
        fold(crc, b, whole, left);
        crc = 0;
        for (size_t i = 0; i < FOLD; i += 8) crc = (uint32_t)__builtin_ia32_crc32di(crc, word_at(left + i));
        b += whole;
        n -= whole;
    }
    return ~crc_bytes(crc, b, n);
}

#else

static uint32_t crc_bytes(uint32_t crc, const unsigned char *b, size_t n)
{
    for (; n > 0; n--) {
        crc ^= *b++;
        for (int k = 0; k < 8; k++) crc = crc >> 1 ^ (POLY & (0u - (crc & 1u)));
    }
    return crc;
}

uint32_t ls_crc32c(uint32_t crc, const void *p, size_t n) { return ~crc_bytes(~crc, p, n); }

uint32_t ls_crc32c_step(uint32_t crc, uint64_t x)
{
    unsigned char b[8];
    for (int i = 0; i < 8; i++) b[i] = (unsigned char)(x >> 8 * i);
    return crc_bytes(crc, b, sizeof b);
}

#endif

uint32_t ls_crc32c_narrow(uint32_t crc, const void *p, size_t n) { return ~crc_bytes(~crc, p, n); }

