/* dtype.c -- element types, and the names of collectives and reduction operators. */
#include "lockstep/dtype.h"

#include <string.h>

#include "base/bf16.h"

static const char *const dtypes[LS_DTYPES] = {
    [LS_F32] = "float", [LS_F64] = "double", [LS_BF16] = "bfloat16", [LS_F16] = "half",
    [LS_I32] = "int32", [LS_I64] = "int64",  [LS_U8] = "uint8",
};
static const char *const redops[LS_SUM_TREE + 1] = {
    [LS_SUM] = "sum", [LS_AVG] = "avg", [LS_MAX] = "max", [LS_MIN] = "min", [LS_PROD] = "prod",
    [LS_SUM_TREE] = "tree",
};
static const char *const coll_names[LS_COLLS] = {
    [LS_ALL_REDUCE] = "all_reduce", [LS_REDUCE_SCATTER] = "reduce_scatter",
    [LS_ALL_GATHER] = "all_gather", [LS_BROADCAST] = "broadcast",
    [LS_REDUCE] = "reduce",         [LS_GATHER] = "gather",
    [LS_SCATTER] = "scatter",       [LS_ALL_TO_ALL] = "all_to_all",
    [LS_BARRIER] = "barrier",       [LS_SENDRECV] = "sendrecv",
};

extern inline size_t ls_dtype_size(ls_dtype d); /* for who cannot inline it */
const char *ls_dtype_name(ls_dtype d) { return (unsigned)d < LS_DTYPES ? dtypes[d] : "?"; }
const char *ls_redop_name(ls_redop op) { return (unsigned)op <= LS_SUM_TREE ? redops[op] : "?"; }
const char *ls_coll_name(ls_coll c) { return (unsigned)c < LS_COLLS ? coll_names[c] : "?"; }

ls_coll ls_coll_find(const char *name)
{
    for (int c = 0; c < LS_COLLS; c++)
        if (strcmp(coll_names[c], name) == 0) return (ls_coll)c;
    return LS_COLLS;
}

float ls_bf16_to_f32(uint16_t b) { return ls_from_bf16(b); }
uint16_t ls_f32_to_bf16(float f) { return ls_to_bf16(f); }
