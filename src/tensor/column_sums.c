/* column_sums.c -- sums over the rows of a matrix: the gradient of a bias. */
#include "tensor/column_sums.h"

#include "base/compiler.h"
#include "tensor/element.h"
#include "tensor/share.h"

typedef struct sums {
    float *db;
    const void *dy;
    int64_t N, O;
    bool add;
} sums;

static LS_ALWAYS_INLINE void column_sums_of(const sums *s, int64_t first, int64_t end, bool bf16)
{
    float *const db = s->db;
    const void *const dy = s->dy;
    if (!s->add)
        for (int64_t o = first; o < end; o++) db[o] = ls_get(dy, o, bf16);
    for (int64_t n = s->add ? 0 : 1; n < s->N; n++) LS_INDEPENDENT
    for (int64_t o = first; o < end; o++) db[o] += ls_get(dy, n * s->O + o, bf16);
}

/* Columns: db[o] (+)= sum of dy[n][o] over n, in ascending n. */
LS_KERNEL static void f32_column_sums(const void *call, int64_t first, int64_t count)
{
    column_sums_of(call, first, first + count, false);
}

LS_KERNEL static void bf16_column_sums(const void *call, int64_t first, int64_t count)
{
    column_sums_of(call, first, first + count, true);
}

void ls_column_sums(float *db, const ls_tensor *dy, int64_t O, bool add)
{
    const sums s = { .db = db, .dy = dy->data, .N = ls_tensor_count(dy) / O, .O = O, .add = add };
    ls_share_columns(dy->dtype == LS_BF16 ? bf16_column_sums : f32_column_sums, &s, O, (int64_t)ls_tensor_nbytes(dy));
}
