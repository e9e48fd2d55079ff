/* gemm_few.h -- products of few tokens with large weights, of float.
 *
 * With 64 tokens, each element of a weight takes part in 64 multiply-adds. So few of them take no longer than memory
 * needs to bring the element, unless it was asked for ahead of time (prefetched). These products therefore read weights
 * in the order in which they lie, ask for the next ones meanwhile, and copy none of them. Only tokens are copied.
 *
 *     y  = x w^T      tokens [M, K], weights [N, K]     M: the tokens
 *     dx = dy w       tokens [M, K], weights [K, N]
 *     dw = dy^T x     tokens [K, M] and [K, N]          K: the tokens; the weights' gradient is C
 *
 * In the first two a vector holds the same element of several tokens. Each element of C is a sum over ascending k; of
 * dw it is a sum of sums of at most 128 terms each. Bits follow from the shape alone, whatever the number of threads.
 */
#ifndef LS_TENSOR_GEMM_FEW_H
#define LS_TENSOR_GEMM_FEW_H
#include "tensor/gemm.h"
#include "tensor/gemm_tile.h"

/* --- kernels: gemm_few_x86.c --------------------------------------------------------------------------------- */

/* sum[i, t] = (sum[i, t], when add) + the sum over q of w[i, q] tokens[q, t], for i < rows and t < 1, 2 .. vectors. */
typedef struct ls_few_tile {
    int rows, vectors;
    bool across;          /* w[i, q] is w[q * stride + i]; otherwise w[i * stride + q] */
    bool add;
    const float *w;
    int64_t stride, k;
    const float *tokens;  /* panels of tile->nr tokens: [k, nr], and `panel` after it the next */
    int64_t panel;
    float *sum;           /* [rows, ls_few_kernel.block] */
    const float *ahead;   /* weights that are read next: LS_FEW_ROWS lines at a time; NULL: none */
    int64_t ahead_row, ahead_step; /* elements from line to line, and from time to time */
} ls_few_tile;

/* C[i, j] = (C[i, j], when add) + the sum over q of a[q, i] b[q, j], for i < rows and j < tile->nr. */
typedef struct ls_few_sum {
    int rows;
    bool add;
    int64_t k;
    const float *a;       /* [k, rows] */
    const float *b;       /* [k, tile->nr] */
    float *c;
    int64_t ldc;
    float *ahead;         /* what will be C soon */
} ls_few_sum;

#define LS_FEW_ROWS 6

typedef struct ls_few_kernel {
    const ls_gemm_tile *tile;  /* its pack and nr */
    int block;                 /* tokens of a sum: a number of panels */
    int lanes;                 /* tokens of a vector */
    int most_rows;             /* of ls_few_sum */
    int64_t panels;            /* floats of panels at a time: half of a second-level cache */
    int64_t most_y, most_dx, most_dw; /* tokens up to which it is faster than the library; 0: never */
    void (*run)(const ls_few_tile *t); /* rows: LS_FEW_ROWS, 4, 2, 1 */
    void (*add)(const ls_few_sum *t);  /* rows: most_rows, then powers of two below it */
} ls_few_kernel;

extern const ls_few_kernel *const ls_few_kernels[]; /* best first, NULL-ended; tile->supported says where they run */

/* --- products: gemm_few.c ------------------------------------------------------------------------------------- */

typedef struct ls_gemm_few ls_gemm_few; /* workspace */

/* Whether the product is one of few tokens, and faster here than by the library (bench_gemm few). */
bool ls_gemm_few_takes(const ls_gemm_call *call);
/* Whether it is of floats in one of the three orders, without bias where it is dw, and the CPU has a kernel: then
 * ls_gemm_few_run does it, whatever its size. */
bool ls_gemm_few_can(const ls_gemm_call *call);
/* Memory is allocated only when a shape needs more than all before. */
ls_status ls_gemm_few_run(ls_gemm_few *f, const ls_gemm_call *call);
ls_status ls_gemm_few_create(ls_gemm_few **out);
/* For tests: another kernel (borrowed). */
void ls_gemm_few_use(ls_gemm_few *f, const ls_few_kernel *kernel);
void ls_gemm_few_destroy(ls_gemm_few *f); /* NULL is fine */

#endif
