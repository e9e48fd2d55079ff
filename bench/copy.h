/* copy.h -- memcpy by several threads: the limit of what moves memory, for the benchmarks of this folder. */
#ifndef BENCH_COPY_H
#define BENCH_COPY_H
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/team.h"

/* Threads that there are to use. */
static inline int most_threads(void) { return ls_team_size(); }
static inline void use_threads(int n) { (void)ls_team_resize(n); }

typedef struct array_copy {
    char *to;
    const char *from;
    size_t nbytes;
    int threads;
} array_copy;

static inline void copy_part(void *arg, int64_t i)
{
    const array_copy *c = arg;
    const size_t parts = (size_t)c->threads, first = c->nbytes / 64 * (size_t)i / parts * 64;
    const size_t end = i == c->threads - 1 ? c->nbytes : c->nbytes / 64 * (size_t)(i + 1) / parts * 64;
    memcpy(c->to + first, c->from + first, end - first);
}

static inline void copy_array(char *to, const char *from, size_t nbytes, int threads)
{
    ls_team_run(copy_part, &(array_copy){ to, from, nbytes, threads }, threads);
}

#endif
