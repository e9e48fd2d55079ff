/* types.c -- dtypes and reductions as MPI knows them.
 *
 * MPI has no 16-bit floats: there they are two bytes, and their reductions operations of our own, which widen to f32,
 * combine and round. MPI combines two vectors at a time, so they are rounded once a hop, where Lockstep's own
 * direct, oneshot and fold round once in all.
 */
#include <stdio.h>

#include "coll/reduce.h"
#include "plugins/mpi/impl.h"

#define OP(name, dtype, op)                                                \
    static void name(void *in, void *inout, int *count, MPI_Datatype *type) \
    {                                                                      \
        (void)type;                                                        \
        ls_reduce_2(inout, in, (size_t)*count, (dtype), (op));             \
    }
OP(bf16_sum, LS_BF16, LS_SUM)
OP(bf16_max, LS_BF16, LS_MAX)
OP(bf16_min, LS_BF16, LS_MIN)
OP(bf16_prod, LS_BF16, LS_PROD)
OP(f16_sum, LS_F16, LS_SUM)
OP(f16_max, LS_F16, LS_MAX)
OP(f16_min, LS_F16, LS_MIN)
OP(f16_prod, LS_F16, LS_PROD)

static const struct {
    ls_dtype dtype;
    ls_redop op;
    MPI_User_function *fn;
} ours[] = {
    { LS_BF16, LS_SUM, bf16_sum }, { LS_BF16, LS_MAX, bf16_max }, { LS_BF16, LS_MIN, bf16_min },
    { LS_BF16, LS_PROD, bf16_prod }, { LS_F16, LS_SUM, f16_sum }, { LS_F16, LS_MAX, f16_max },
    { LS_F16, LS_MIN, f16_min }, { LS_F16, LS_PROD, f16_prod },
};
#define NOURS (sizeof ours / sizeof *ours)

ls_status mpi_types_create(ls_backend_lib *lib, char *why)
{
    MPI_Datatype *t = lib->type;
    t[LS_F32] = MPI_FLOAT;
    t[LS_F64] = MPI_DOUBLE;
    t[LS_I32] = MPI_INT32_T;
    t[LS_I64] = MPI_INT64_T;
    t[LS_U8] = MPI_UINT8_T;
    for (int d = 0; d < LS_DTYPES; d++) {
        lib->op[d][LS_SUM] = lib->op[d][LS_AVG] = MPI_SUM; /* contributions to an average are scaled before */
        lib->op[d][LS_MAX] = MPI_MAX;
        lib->op[d][LS_MIN] = MPI_MIN;
        lib->op[d][LS_PROD] = MPI_PROD;
    }
    const ls_dtype halves[] = { LS_BF16, LS_F16 };
    for (int i = 0; i < 2; i++) {
        LS_TRY(mpi_check(MPI_Type_contiguous(2, MPI_BYTE, &t[halves[i]]), "making a 16-bit type", why));
        LS_TRY(mpi_check(MPI_Type_commit(&t[halves[i]]), "making a 16-bit type", why));
    }
    for (size_t i = 0; i < NOURS; i++)
        LS_TRY(mpi_check(MPI_Op_create(ours[i].fn, 1, &lib->op[ours[i].dtype][ours[i].op]), "making an operation", why));
    for (int i = 0; i < 2; i++) lib->op[halves[i]][LS_AVG] = lib->op[halves[i]][LS_SUM];
    return LS_OK;
}

void mpi_types_free(ls_backend_lib *lib)
{
    for (size_t i = 0; i < NOURS; i++) MPI_Op_free(&lib->op[ours[i].dtype][ours[i].op]);
    MPI_Type_free(&lib->type[LS_BF16]);
    MPI_Type_free(&lib->type[LS_F16]);
}
