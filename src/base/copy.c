/* copy.c -- stores that go past the caches, and those of a string instruction. */
#include "base/copy.h"

#include <stdint.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define LINE 64u
#define BLOCK 4096u /* read once and then taken from the first-level cache */

#if defined(__x86_64__)
__attribute__((target("avx512f"))) static void stream_wide(char *d, const char *s, size_t nbytes)
{
    for (size_t i = 0; i < nbytes; i += LINE)
        _mm512_stream_si512((__m512i *)(void *)(d + i), _mm512_loadu_si512((const void *)(s + i)));
}

static void stream(char *d, const char *s, size_t nbytes)
{
    for (size_t i = 0; i < nbytes; i += sizeof(__m128i))
        _mm_stream_si128((__m128i *)(void *)(d + i), _mm_loadu_si128((const __m128i *)(const void *)(s + i)));
}

static void past_cache(char *d, const char *s, size_t nbytes)
{
    size_t head = (LINE - (uintptr_t)d % LINE) % LINE;
    if (head > nbytes) head = nbytes;
    size_t lines = (nbytes - head) / LINE * LINE, end = head + lines;
    if (head > 0) memcpy(d, s, head);
    if (__builtin_cpu_supports("avx512f")) stream_wide(d + head, s + head, lines);
    else stream(d + head, s + head, lines);
    if (end < nbytes) memcpy(d + end, s + end, nbytes - end);
}

/* Nothing else orders such stores: they come before the flag that says that we are done. */
static void ordered(void) { _mm_sfence(); }
#else
static void past_cache(char *d, const char *s, size_t nbytes)
{
    if (nbytes > 0) memcpy(d, s, nbytes);
}
static void ordered(void) {}
#endif

void ls_copy_string(void *dst, const void *src, size_t nbytes)
{
#if defined(__x86_64__)
    __asm__ volatile("rep movsb" : "+D"(dst), "+S"(src), "+c"(nbytes)::"memory");
#else
    if (nbytes > 0) memcpy(dst, src, nbytes);
#endif
}

void ls_copy_past_cache(void *dst, const void *src, size_t nbytes)
{
    past_cache(dst, src, nbytes);
    ordered();
}

void ls_spread_past_cache(void *const *dst, int ndst, const void *src, size_t nbytes)
{
    for (size_t at = 0, n; at < nbytes; at += n) {
        n = nbytes - at < BLOCK ? nbytes - at : BLOCK;
        for (int i = 0; i < ndst; i++) past_cache((char *)dst[i] + at, (const char *)src + at, n);
    }
    ordered();
}
