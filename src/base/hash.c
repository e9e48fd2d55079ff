/* hash.c -- signatures and digests; xxHash does the work. */
#include "base/hash.h"

#include <stdio.h>
#include <stdlib.h>

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

/* Castagnoli, reflected; the table is made by the compiler-visible rule below. */
uint32_t ls_crc32c(uint32_t crc, const void *p, size_t n)
{
    const unsigned char *b = p;
    crc = ~crc;
#if defined(__x86_64__) && defined(__SSE4_2__)
    for (; n >= 8; n -= 8, b += 8) {
        uint64_t v;
        __builtin_memcpy(&v, b, sizeof v);
        crc = (uint32_t)__builtin_ia32_crc32di(crc, v);
    }
    for (; n > 0; n--) crc = __builtin_ia32_crc32qi(crc, *b++);
#else
    for (; n > 0; n--) {
        crc ^= *b++;
        for (int k = 0; k < 8; k++) crc = crc >> 1 ^ (0x82f63b78u & (0u - (crc & 1u)));
    }
#endif
    return ~crc;
}
