/* share.h -- one loop shared out to the threads of a rank.
 *
 * What is shared out is independent: rows, columns or elements, each of which gets the same bits wherever the cuts
 * are. A sum over rows is shared out by columns, each of which is added up in order by one thread. So nothing depends
 * on the number of threads.
 */
#ifndef LS_TENSOR_SHARE_H
#define LS_TENSOR_SHARE_H
#include <stdint.h>

/* Does [first, first + count) of the work that `call` describes. May be an LS_KERNEL. */
typedef void (*ls_loop)(const void *call, int64_t first, int64_t count);

/* Runs `loop` over [0, n): whole, or, where threads pay for the `bytes` it reads and writes (threads.h), in some parts
 * per thread, cut at multiples of `unit`. Returns when all is done. */
void ls_share(ls_loop loop, const void *call, int64_t n, int64_t unit, int64_t bytes);

/* Units in elements: of what is long, and of the columns of a matrix. Stores of two threads do not meet in a cache line
 * in either dtype, or in float, as sums over rows are. */
#define LS_SHARE_LINE 64
#define LS_SHARE_COLUMNS 16

/* to[0 .. n) = 0. */
void ls_clear(float *to, int64_t n);

#endif
