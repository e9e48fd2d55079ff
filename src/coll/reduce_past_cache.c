/* reduce_past_cache.c -- sums of floats whose results are stored past the caches. */
#include <stdint.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "coll/reduce.h"

#define LINE 64u

#if defined(__x86_64__)
typedef float floats __attribute__((vector_size(LINE), aligned(4), may_alias));
typedef float half_line __attribute__((vector_size(LINE / 2), aligned(4), may_alias));

/* n elements, whole lines; dst at the start of a line. Sums as ls_reduce_n makes them. */
__attribute__((target("avx512f"))) static void sum_lines(float *dst, const float *const *src, int nsrc, size_t n,
                                                         float scale)
{
    for (size_t i = 0; i < n; i += LINE / sizeof *dst) {
        floats sum = *(const floats *)(const void *)(src[0] + i) * scale;
        for (int r = 1; r < nsrc; r++) sum += *(const floats *)(const void *)(src[r] + i) * scale;
        _mm512_stream_ps(dst + i, (__m512)sum);
    }
    _mm_sfence(); /* nothing else orders such stores: they come before the flag that says that we are done */
}

/* The same for processors that store half a line at once. */
__attribute__((target("avx"))) static void sum_half_lines(float *dst, const float *const *src, int nsrc, size_t n, float scale)
{
    for (size_t i = 0; i < n; i += LINE / 2 / sizeof *dst) {
        half_line sum = *(const half_line *)(const void *)(src[0] + i) * scale;
        for (int r = 1; r < nsrc; r++) sum += *(const half_line *)(const void *)(src[r] + i) * scale;
        _mm256_stream_ps(dst + i, (__m256)sum);
    }
    _mm_sfence();
}
#endif

void ls_reduce_n_past_cache(void *dst, const void *const *src, int nsrc, size_t count, ls_dtype dtype, ls_redop op,
                            double scale)
{
    if (op == LS_SUM_TREE && nsrc <= 2) op = LS_SUM; /* one pair */
#if defined(__x86_64__)
    bool sums = dtype == LS_F32 && (op == LS_SUM || op == LS_AVG) && (uintptr_t)dst % sizeof(float) == 0;
    if (sums && nsrc <= LS_PAST_CACHE_SOURCES && __builtin_cpu_supports("avx")) {
        const size_t line = LINE / sizeof(float);
        size_t head = (LINE - (uintptr_t)dst % LINE) % LINE / sizeof(float);
        if (head > count) head = count;
        size_t lines = (count - head) / line * line, tail = head + lines;
        const float *from[LS_PAST_CACHE_SOURCES];
        const void *end[LS_PAST_CACHE_SOURCES];
        for (int r = 0; r < nsrc; r++) {
            from[r] = (const float *)src[r] + head;
            end[r] = (const float *)src[r] + tail;
        }
        void *last = (float *)dst + tail;
        if (head > 0) ls_reduce_n(&dst, 1, src, nsrc, head, dtype, op, scale);
        (__builtin_cpu_supports("avx512f") ? sum_lines : sum_half_lines)((float *)dst + head, from, nsrc, lines,
                                                                     op == LS_AVG ? (float)scale : 1.0f);
        if (tail < count) ls_reduce_n(&last, 1, end, nsrc, count - tail, dtype, op, scale);
        return;
    }
#endif
    if (count > 0) ls_reduce_n(&dst, 1, src, nsrc, count, dtype, op, scale);
}
