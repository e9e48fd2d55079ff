/* runs.h -- copies of, or sums of, many runs of elements that lie evenly apart: what slicing and concatenating is. */
#ifndef LS_TENSOR_RUNS_H
#define LS_TENSOR_RUNS_H
#include <string.h>

#include "base/compiler.h"
#include "tensor/element.h"
#include "tensor/share.h"

/* to[r to_row + i] (+)= from[r from_row + i] for r < rows, i < count. */
typedef struct ls_runs {
    ls_dtype dtype;
    int64_t rows, count, to_row, from_row;
    bool add;
    void *to;
    const void *from;
} ls_runs;

static LS_ALWAYS_INLINE void add_run(void *to, const void *from, int64_t n, bool bf16)
{
    LS_INDEPENDENT
    for (int64_t i = 0; i < n; i++) ls_put(to, i, ls_get(to, i, bf16) + ls_get(from, i, bf16), bf16);
}

LS_KERNEL static void some_runs(const void *call, int64_t first, int64_t count)
{
    const ls_runs *k = call;
    const bool bf16 = k->dtype == LS_BF16;
    for (int64_t r = first; r < first + count; r++) {
        void *to = ls_at(k->to, r * k->to_row, bf16);
        const void *from = ls_at_const(k->from, r * k->from_row, bf16);
        if (!k->add) memcpy(to, from, (size_t)k->count * ls_dtype_size(k->dtype));
        else LS_BY_DTYPE(k->dtype, add_run, to, from, k->count);
    }
}

static inline void copy_runs(const ls_runs *k)
{
    ls_parallel_for(some_runs, k, k->rows, 1, 2 * k->rows * k->count * (int64_t)ls_dtype_size(k->dtype));
}

/* A tensor as [outer, dim[d], inner]. */
static inline void split_at(const ls_tensor *x, int d, int64_t *outer, int64_t *inner)
{
    *outer = *inner = 1;
    for (int i = 0; i < d; i++) *outer *= x->dim[i];
    for (int i = d + 1; i < x->ndim; i++) *inner *= x->dim[i];
}

#endif
