/* share.c -- the one place where elementwise work starts threads. */
#include "tensor/share.h"

#include <string.h>
#ifdef _OPENMP
#include <omp.h>
#endif

#include "tensor/threads.h"

#ifdef _OPENMP
static int64_t cut(int64_t n, int64_t unit, int64_t parts, int64_t i)
{
    const int64_t at = ls_part((n + unit - 1) / unit, parts, i) * unit;
    return at < n ? at : n;
}
#endif

void ls_share(ls_loop loop, const void *call, int64_t n, int64_t unit, int64_t bytes)
{
#ifdef _OPENMP
    if (ls_threads_pay(bytes) && omp_get_max_threads() > 1) {
#pragma omp parallel
        {
            const int64_t parts = omp_get_num_threads(), me = omp_get_thread_num();
            const int64_t first = cut(n, unit, parts, me), end = cut(n, unit, parts, me + 1);
            if (first < end) loop(call, first, end - first);
        }
        return;
    }
#endif
    (void)unit;
    (void)bytes;
    loop(call, 0, n);
}

static void clear(const void *call, int64_t first, int64_t count)
{
    memset(*(float *const *)call + first, 0, (size_t)count * sizeof(float));
}

void ls_clear(float *to, int64_t n) { ls_share(clear, &to, n, LS_SHARE_LINE, n * (int64_t)sizeof *to); }
