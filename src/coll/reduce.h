/* reduce.h -- combining vectors: the arithmetic of every reduction. */
#ifndef LS_COLL_REDUCE_H
#define LS_COLL_REDUCE_H
#include <stddef.h>
#include <stdbool.h>
#include <stdint.h>
#include "base/rank_set.h"
#include "lockstep/dtype.h"

/* dst[j][i] = op over k of (scale * src[k][i]), for every j and i < count.
 *
 * Sources are combined in the given order, of LS_SUM_TREE pairwise, in one pass; every destination gets
 * the same bits. A destination may be equal to a source (exactly, no partial
 * overlap). 16-bit types are accumulated in f32 and rounded once. Integers
 * wrap. `scale` matters for LS_AVG only (1 / ranks, on every contribution
 * before the sum, which is PyTorch DDP's order); elsewhere it is ignored. */
void ls_reduce_n(void *const *dst, int ndst, const void *const *src, int nsrc, size_t count, ls_dtype dtype,
                 ls_redop op, double scale);

/* ls_reduce_n with LS_SUM_TREE, which calls it. */
void ls_reduce_tree(void *const *dst, int ndst, const void *const *src, int nsrc, size_t count, ls_dtype dtype);

/* ls_reduce_n into one place, which is none of the sources. Float sums of up to LS_PAST_CACHE_SOURCES vectors are
 * stored past the caches (base/copy.h), where the processor can do that; they are visible before whatever the caller
 * writes next. */
#define LS_PAST_CACHE_SOURCES 16
void ls_reduce_n_past_cache(void *dst, const void *const *src, int nsrc, size_t count, ls_dtype dtype, ls_redop op,
                            double scale);

/* dst[i] = dst[i] op src[i]: one hop of a ring. LS_AVG adds (scaled beforehand). */
void ls_reduce_2(void *dst, const void *src, size_t count, ls_dtype dtype, ls_redop op);

/* v[i] *= factor (the own vector of an average, before its first hop). Integers are left alone. */
void ls_scale_values(void *v, size_t count, ls_dtype dtype, double factor);

/* v[i] /= divisor, for averages that divide the sum. Integers are left alone. */
void ls_divide(void *v, size_t count, ls_dtype dtype, double divisor);

/* f32 that travels as bf16: rounded to nearest, ties to even; a NaN stays one. src and dst may be the same for
 * ls_round_bf16 only, which does both ways. */
void ls_narrow(void *dst_bf16, const void *src_f32, size_t count);
void ls_widen(void *dst_f32, const void *src_bf16, size_t count);
/* From one of LS_F32, LS_BF16 and LS_F16 to another, rounded to nearest, ties to even. */
void ls_convert(void *dst, ls_dtype to, const void *src, ls_dtype from, size_t count);
void ls_round_bf16(void *v_f32, size_t count);
/* dst[i] = dst[i] op src[i], src as bf16. */
void ls_reduce_2_narrow(void *dst_f32, const void *src_bf16, size_t count, ls_redop op);
/* ls_reduce_n into one f32 vector, from sources of which those in the set `narrow` are bf16. */
void ls_reduce_n_narrow(void *dst_f32, const void *const *src, int nsrc, const ls_rank_set *narrow, size_t count,
                        ls_redop op, double scale);

/* half <-> float, round to nearest even. */
float ls_f16_to_f32(uint16_t h);
uint16_t ls_f32_to_f16(float f);

#endif
