/* gemm_tile.h -- the inner kernels of small matrix products, one per
 * instruction set.
 *
 * A tile of C stays in registers while k runs over rows of B:
 *
 *            B[k, 0..nr)          nr floats are loaded,
 *   A[i, k]  C[i, 0..nr)          mr floats are broadcast,
 *                                 mr * nr multiply-adds
 *
 * Each element of C is one sum over ascending k, whatever the tile, so all
 * kernels with a fused multiply-add give the same bits.
 *
 * A kernel of pairs does twice as much in the same time: an element of A and of B
 * stands for two bfloat16 that are neighbours in the sum, the first in the lower
 * half, and their product is the sum of two, added in float. Of an odd number the
 * last pair holds a 0, in A and in B.
 */
#ifndef LS_TENSOR_GEMM_TILE_H
#define LS_TENSOR_GEMM_TILE_H
#include <stdbool.h>
#include <stdint.h>

typedef struct ls_gemm_tile_args {
    int mr, nr;              /* 1 <= mr <= kernel's mr, same for nr */
    int64_t k;
    const float *a;          /* A[i, k] is a[i * a_row + k * a_col] */
    int64_t a_row, a_col;
    const float *b;          /* B[k, j] is b[k * ldb + j] */
    int64_t ldb;
    const float *bias;       /* [nr] or NULL */
    float *c;                /* C[i, j] is c[i * ldc + j] */
    int64_t ldc;
    bool add;                /* C += */
} ls_gemm_tile_args;

typedef struct ls_gemm_tile {
    const char *name;
    int mr, nr;
    bool pairs;              /* elements of A and B are pairs of bfloat16, in the place of a float */
    int64_t most_flops;      /* up to here it is at least as fast as the library (bench_gemm) */
    bool (*supported)(void); /* by the running CPU */
    void (*run)(const ls_gemm_tile_args *t);
    /* out[k * nr + j] = b[j * ldb + k] for j < columns: B stored transposed, made walkable by run. */
    void (*pack)(float *out, const float *b, int64_t ldb, int columns, int64_t k);
} ls_gemm_tile;

extern const ls_gemm_tile *const ls_gemm_tiles[]; /* best first, NULL-ended; the last runs everywhere */

/* The best one that the running CPU supports. */
const ls_gemm_tile *ls_gemm_tile_best(void);
/* The one of pairs (AVX512-BF16); NULL where the running CPU has none. */
const ls_gemm_tile *ls_gemm_tile_of_pairs(void);
/* Whether that one is faster than floats. Intel's processors run its instruction half as often as a multiply-add: no
 * faster, and the rounding comes on top (Sapphire Rapids: 1.4 to 1.8 times the time). */
bool ls_gemm_tile_pairs_pay(void);

#endif
