/* reduce.c -- choosing the loop: two vectors, a few streams at once, or many in blocks. */
#include "coll/reduce.h"

#include <string.h>

#include "coll/reduce_kernels.h"

/* Elements of a block: accumulator and one source together fit the first-level cache. */
#define BLOCK 1024

static bool is_float(ls_dtype t) { return t == LS_F32 || t == LS_F64 || t == LS_BF16 || t == LS_F16; }

/* Three sources a turn, so that the accumulator is read and written less often. */
static void sum_f32_in_blocks(void *const *dst, int ndst, const void *const *src, int nsrc, size_t count, float scale)
{
    const ls_reduce_kernels *k = &ls_reduce_kernel_table[LS_F32];
    float acc[BLOCK];
    for (size_t first = 0; first < count; first += BLOCK) {
        size_t n = count - first < BLOCK ? count - first : BLOCK, at = first * sizeof *acc;
        int i = 1;
        k->load(acc, (const char *)src[0] + at, n, (double)scale);
        for (; i + 3 <= nsrc; i += 3) {
            const void *three[3];
            for (int j = 0; j < 3; j++) three[j] = (const char *)src[i + j] + at;
            ls_reduce_f32_add3(acc, three, n, scale);
        }
        for (; i < nsrc; i++) k->combine[LS_SUM](acc, (const char *)src[i] + at, n, (double)scale);
        for (int j = 0; j < ndst; j++) memcpy((char *)dst[j] + at, acc, n * sizeof *acc);
    }
}

void ls_reduce_n(void *const *dst, int ndst, const void *const *src, int nsrc, size_t count, ls_dtype dtype,
                 ls_redop op, double scale)
{
    const ls_reduce_kernels *k = &ls_reduce_kernel_table[dtype];
    const size_t elem = ls_dtype_size(dtype);
    double acc[BLOCK]; /* the widest type's alignment and size */

    if (op == LS_SUM_TREE && nsrc > 2) {
        ls_reduce_tree(dst, ndst, src, nsrc, count, dtype);
        return;
    }
    if (op == LS_SUM_TREE) op = LS_SUM; /* one pair */
    if (op != LS_AVG) scale = 1.0; /* x * 1.0 is x: sums and averages share their loops */
    if (dtype == LS_F32 && (op == LS_SUM || op == LS_AVG)) {
        if (!ls_reduce_f32_streams(dst, ndst, src, nsrc, count, (float)scale))
            sum_f32_in_blocks(dst, ndst, src, nsrc, count, (float)scale);
        return;
    }
    /* Every source of a block is read before any destination of it is written, so a
     * destination may be a source. */
    for (size_t first = 0; first < count; first += BLOCK) {
        size_t n = count - first < BLOCK ? count - first : BLOCK, at = first * elem;
        k->load(acc, (const char *)src[0] + at, n, scale);
        for (int i = 1; i < nsrc; i++) k->combine[op](acc, (const char *)src[i] + at, n, scale);
        k->store((char *)dst[0] + at, acc, n);
        for (int j = 1; j < ndst; j++) memcpy((char *)dst[j] + at, (char *)dst[0] + at, n * elem);
    }
}

void ls_reduce_2(void *dst, const void *src, size_t count, ls_dtype dtype, ls_redop op)
{
    ls_reduce_kernel_table[dtype].into[op](dst, src, count);
}

/* Blocks that start at element `first`: in the accumulator, which is aligned whatever the vectors are. */
#define EACH_BLOCK(first, n, count)                                                                                    \
    for (size_t first = 0, n; n = count - first < BLOCK ? count - first : BLOCK, first < count; first += n)

void ls_convert(void *dst, ls_dtype to, const void *src, ls_dtype from, size_t count)
{
    const size_t read = ls_dtype_size(from), written = ls_dtype_size(to);
    float acc[BLOCK];
    EACH_BLOCK(at, n, count) {
        ls_reduce_kernel_table[from].load(acc, (const char *)src + read * at, n, 1.0);
        ls_reduce_kernel_table[to].store((char *)dst + written * at, acc, n);
    }
}

void ls_narrow(void *dst_bf16, const void *src_f32, size_t count)
{
    ls_convert(dst_bf16, LS_BF16, src_f32, LS_F32, count);
}

void ls_widen(void *dst_f32, const void *src_bf16, size_t count)
{
    ls_convert(dst_f32, LS_F32, src_bf16, LS_BF16, count);
}

void ls_round_bf16(void *v_f32, size_t count)
{
    uint16_t narrow[BLOCK];
    EACH_BLOCK(at, n, count) {
        ls_narrow(narrow, (const char *)v_f32 + 4 * at, n);
        ls_widen((char *)v_f32 + 4 * at, narrow, n);
    }
}

void ls_reduce_2_narrow(void *dst_f32, const void *src_bf16, size_t count, ls_redop op)
{
    float wide[BLOCK];
    EACH_BLOCK(at, n, count) {
        ls_reduce_kernel_table[LS_BF16].load(wide, (const char *)src_bf16 + 2 * at, n, 1.0);
        ls_reduce_2((char *)dst_f32 + 4 * at, wide, n, LS_F32, op);
    }
}

void ls_reduce_n_narrow(void *dst_f32, const void *const *src, int nsrc, const ls_rank_set *narrow, size_t count,
                        ls_redop op, double scale)
{
    float acc[BLOCK];
    if (op != LS_AVG) scale = 1.0;
    EACH_BLOCK(at, n, count) {
        for (int i = 0; i < nsrc; i++) {
            const bool small = ls_rank_set_has(narrow, i);
            const ls_reduce_kernels *k = &ls_reduce_kernel_table[small ? LS_BF16 : LS_F32];
            const char *from = (const char *)src[i] + (small ? 2 : 4) * at;
            if (i == 0) k->load(acc, from, n, scale);
            else k->combine[op](acc, from, n, scale);
        }
        ls_reduce_kernel_table[LS_F32].store((char *)dst_f32 + 4 * at, acc, n);
    }
}

void ls_scale_values(void *v, size_t count, ls_dtype dtype, double factor)
{
    if (is_float(dtype)) ls_reduce_kernel_table[dtype].scale(v, count, factor);
}

void ls_divide(void *v, size_t count, ls_dtype dtype, double divisor)
{
    if (is_float(dtype)) ls_reduce_kernel_table[dtype].divide(v, count, divisor);
}
