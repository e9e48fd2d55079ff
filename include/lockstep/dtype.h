/* dtype.h -- element types, the collectives, and how these combine elements. */
#ifndef LS_DTYPE_H
#define LS_DTYPE_H
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum ls_dtype {
    LS_F32, LS_F64, LS_BF16, LS_F16, LS_I32, LS_I64, LS_U8, LS_DTYPES
} ls_dtype;
/* LS_SUM_TREE is a sum with one stated order, whatever carries it out: ranks are added pairwise, as a binary tree over
 * neighbours, ((0 + 1) + (2 + 3)) + ...; where the number of ranks is no power of two, the ranks of its binary digits
 * form trees, which are added from the last to the first. It is for all_reduce and reduce_scatter. The others are below
 * LS_REDOPS, and every collective that reduces and every backend has them. */
typedef enum ls_redop { LS_SUM, LS_AVG, LS_MAX, LS_MIN, LS_PROD, LS_REDOPS, LS_SUM_TREE = LS_REDOPS } ls_redop;
typedef enum ls_coll {
    LS_ALL_REDUCE, LS_REDUCE_SCATTER, LS_ALL_GATHER, LS_BROADCAST, LS_REDUCE, LS_GATHER, LS_SCATTER,
    LS_ALL_TO_ALL, LS_BARRIER, LS_SENDRECV, LS_COLLS
} ls_coll;

/* Bytes of one element; 0 for a value outside the enum. (A digit for each type, LS_F32's last: 4, 8, 2, 2, 4, 8, 1.) */
inline size_t ls_dtype_size(ls_dtype d) { return (unsigned)d < LS_DTYPES ? 0x1842284u >> 4 * (unsigned)d & 15u : 0; }
/* nccl-tests' names: "float" "double" "bfloat16" "half" "int32" "int64" "uint8"; "?" if unknown. */
const char *ls_dtype_name(ls_dtype d);
/* "sum" "avg" "max" "min" "prod" "tree"; "?" if unknown. */
const char *ls_redop_name(ls_redop op);
/* "all_reduce" ...; "?" if unknown. The reverse returns LS_COLLS for an unknown name. */
const char *ls_coll_name(ls_coll c);
ls_coll ls_coll_find(const char *name);

/* bfloat16 <-> float, round to nearest even; a NaN stays a NaN. */
float ls_bf16_to_f32(uint16_t b);
uint16_t ls_f32_to_bf16(float f);

#ifdef __cplusplus
}
#endif
#endif
