/* copy.h -- memcpy by several threads: the limit of what moves memory, for the benchmarks of this folder. */
#ifndef BENCH_COPY_H
#define BENCH_COPY_H
#include <string.h>
#ifdef _OPENMP
#include <omp.h>
#endif

/* Threads that there are to use. */
static inline int most_threads(void)
{
#ifdef _OPENMP
    return omp_get_max_threads();
#else
    return 1;
#endif
}

static inline void use_threads(int n)
{
#ifdef _OPENMP
    omp_set_num_threads(n);
#else
    (void)n;
#endif
}

static inline void copy_array(char *to, const char *from, size_t nbytes, int threads)
{
#pragma omp parallel for schedule(static)
    for (int i = 0; i < threads; i++) {
        const size_t first = nbytes / 64 * (size_t)i / (size_t)threads * 64;
        const size_t end = i == threads - 1 ? nbytes : nbytes / 64 * (size_t)(i + 1) / (size_t)threads * 64;
        memcpy(to + first, from + first, end - first);
    }
}

#endif
