/* share.h -- one loop divided among the threads of a rank: ls_parallel_for (op.h). A loop may be an LS_KERNEL.
 *
 * What is divided is independent: rows, columns or elements, each of which gets the same bits wherever the cuts
 * are. A sum over rows is divided by columns, each of which is added up in order by one thread. So nothing depends
 * on the number of threads.
 */
#ifndef LS_TENSOR_SHARE_H
#define LS_TENSOR_SHARE_H
#include <stdint.h>
#include "lockstep/op.h"

/* Units in elements: of what is long, and of the columns of a matrix. Stores of two threads do not meet in a cache line
 * in either dtype, or in float, as sums over rows are. */
#define LS_SHARE_LINE 64
#define LS_SHARE_COLUMNS 16

/* A loop over the columns of a matrix whose rows are added up. Parts are as wide as they can be while every thread has
 * one: a few columns of a row are too little memory to be fetched ahead. `bytes` is ls_parallel_for's. */
void ls_share_columns(ls_loop loop, const void *call, int64_t columns, int64_t bytes);

/* to[0 .. n) = 0. */
void ls_clear(float *to, int64_t n);

#endif
