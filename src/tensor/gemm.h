/* gemm.h -- matrix products: the seam between the ops and whatever multiplies.
 *
 * Small products run on the project's own tiles (gemm_tile.h), because a call
 * into a library costs as much as the product; large ones go to the library
 * the build found: oneDNN (gemm_dnnl.c) or a BLAS (gemm_blas.c). Two kinds mostly
 * wait for memory, and have code of their own: one row times a transposed matrix
 * (gemm_row.c), and few tokens with a large weight (gemm_few.h). Who multiplies
 * depends on shape, types and CPU, and never on an address, so the same product
 * gives the same bits every time. Large products take all threads that the process
 * gives the team, small ones that of the caller; the bits do not depend on their
 * number, because pieces of C, cut as the shape says, are what threads share.
 */
#ifndef LS_TENSOR_GEMM_H
#define LS_TENSOR_GEMM_H
#include <stdbool.h>
#include <stdint.h>
#include "lockstep/dtype.h"
#include "lockstep/status.h"

/* One product of dense row-major matrices:
 *
 *   C[M, N] = op(A)[M, K] op(B)[K, N]  (+ C, when add)  (+ bias[N] on every row)
 *
 * op is the transpose where trans_a or trans_b says so: then A is stored
 * [K, M], or B is stored [N, K]. C overlaps none of the others. A and B are
 * float; or bfloat16, and C bfloat16 or float: sums are in float and rounded
 * once. `packed` is B once more as ls_gemm_pack left it for a product of this shape, add, bias, dtypes and number of
 * threads; NULL: B is read as it is. */
typedef struct ls_gemm_call {
    int64_t m, n, k;
    bool trans_a, trans_b, add;
    ls_dtype in, out; /* of A and B, and of C; not named: LS_F32 */
    const void *a, *b;
    const void *packed;
    const float *bias; /* may be NULL */
    void *c;
} ls_gemm_call;

/* Workspace and prepared kernels of one thread; a tape owns one. */
typedef struct ls_gemm ls_gemm;
struct ls_gemm_tile; /* gemm_tile.h */

ls_status ls_gemm_create(ls_gemm **out);
void ls_gemm_destroy(ls_gemm *g); /* NULL is fine */
/* Memory is allocated only when a shape is seen for the first time. */
ls_status ls_gemm_run(ls_gemm *g, const ls_gemm_call *call);

/* Whether ls_gemm_run prepares a kernel for each shape that it sees: a caller whose m or k differs from step to step is
 * faster with few of them. */
bool ls_gemm_prepares(const ls_gemm_call *call);

/* A weight that many products read can be put into the order that the library likes best. Room for it that is
 * always enough (it follows from shape and processor); 0 where nothing would be gained: small products, a single row,
 * few tokens, a transposed A, a library that does not do it. */
size_t ls_gemm_packed_bytes(const ls_gemm_call *call);
/* Fills `to` (64-byte aligned, ls_gemm_packed_bytes) from call->b. *done false: the library likes B as it is. Sums of
 * the product may be taken in another order than from B as it is, so the two agree to rounding. */
ls_status ls_gemm_pack(ls_gemm *g, const ls_gemm_call *call, void *to, bool *done);

/* The product of m = 1 with trans_b and a float C, whatever the size. */
void ls_gemm_row(const ls_gemm_call *call);

/* For tests and benchmarks: the own tiles whatever the size (float), and with another kernel (borrowed); bfloat16 by
 * way of float, as where neither processor nor library has products of it. */
ls_status ls_gemm_run_tiles(ls_gemm *g, const ls_gemm_call *call);
ls_status ls_gemm_run_widened(ls_gemm *g, const ls_gemm_call *call);
void ls_gemm_use_tile(ls_gemm *g, const struct ls_gemm_tile *tile);

/* --- the library side: gemm_dnnl.c or gemm_blas.c --------------------------- */

typedef struct ls_gemm_library ls_gemm_library;

const char *ls_gemm_library_name(void); /* "oneDNN" or "BLAS" */
/* Whether it multiplies bfloat16, on this processor, faster than float. */
bool ls_gemm_library_has_bf16(void);
/* What it multiplies with here, as "oneDNN 2.6.3 (avx512_core_bf16)". */
void ls_gemm_library_describe(char *out, size_t n);
ls_status ls_gemm_library_open(ls_gemm_library **out);
void ls_gemm_library_close(ls_gemm_library *l);
ls_status ls_gemm_library_run(ls_gemm_library *l, const ls_gemm_call *call);
bool ls_gemm_library_prepares(const ls_gemm_call *call);
/* Whether packing B is faster for it; ls_gemm_pack, with `room` bytes at `to`. */
bool ls_gemm_library_packs(const ls_gemm_call *call);
ls_status ls_gemm_library_pack(ls_gemm_library *l, const ls_gemm_call *call, void *to, size_t room, bool *done);
/* For benchmarks: the library's ways of doing a product, 0 .. and their names, NULL after the last. Forcing one that
 * cannot do a product leaves the choice as it is; -1 gives it back. */
const char *ls_gemm_library_way(int way);
bool ls_gemm_library_can(int way, const ls_gemm_call *call);
void ls_gemm_library_force(ls_gemm_library *l, int way);

#endif
