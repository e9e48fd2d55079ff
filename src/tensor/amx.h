/* amx.h -- products of tiles of bfloat16 by AMX (Intel's processors from Sapphire Rapids on).
 *
 * A tile is 16 rows of 64 bytes, without gaps: 1 KiB. Of C each row holds 16 floats; of A 32 bfloat16, neighbours in
 * the sum; of B 16 pairs, one for each column, each of two neighbours in the sum:
 *
 *     A [16 rows of C, 32]      B [32 / 2, 16 columns of C] pairs      C [16, 16] += A B
 *
 * One product takes 16 cycles, in which AVX-512 does one thirtieth of it. Numbers below 1.2e-38 count as 0; sums
 * are in float, always in the same order.
 */
#ifndef LS_TENSOR_AMX_H
#define LS_TENSOR_AMX_H
#include <stdbool.h>
#include <stdint.h>

#define LS_AMX_TILE 1024 /* bytes */

/* Whether this process may: the CPU has it, and the kernel, which is asked through the context's env, saves its
 * registers. */
bool ls_amx_ready(void);

/* A thread multiplies between these two, and calls nothing there that has tiles of its own. */
void ls_amx_begin(void);
void ls_amx_end(void);

/* C (+)= A B, of m x n tiles with k in the sum. Steps from tile to tile are in bytes. */
typedef struct ls_amx_product {
    int m, n, k;
    const void *a, *b;
    void *c;
    int64_t a_m, a_k, b_k, b_n, c_m, c_n;
    bool add;
} ls_amx_product;
void ls_amx_multiply(const ls_amx_product *p);

#endif
