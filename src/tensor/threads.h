/* threads.h -- when threads pay, and how sums over rows are cut for them.
 *
 *     ls_threads_for(ls_threads_pay(bytes), n, part, &call);      part(&call, i) for every i of [0, n)
 *
 * How many threads there are says whoever owns the process, once (net/cores.c, OMP_NUM_THREADS); an op never does.
 * `part` is a plain function that calls an LS_KERNEL.
 *
 * No result depends on the number of threads. Independent pieces may be cut in any way. A sum over rows is
 * either cut by columns, each of which is added up in order, or into ls_sum_blocks parts, a number that
 * follows from the shape alone; each part is added up on its own, and then they are, in ascending order.
 */
#ifndef LS_TENSOR_THREADS_H
#define LS_TENSOR_THREADS_H
#include <stdbool.h>
#include <stdint.h>
#include "base/team.h"

/* To start and to wait costs about 1 us while the threads spin, 30 us after they have gone to sleep. A core moves these
 * bytes in 10 us. */
#define LS_THREADS_BYTES ((int64_t)256 << 10)
#define LS_MOST_SUM_BLOCKS 16

/* `bytes`: what is read and written; where arithmetic takes longer, a quarter of the flops. */
static inline bool ls_threads_pay(int64_t bytes) { return bytes >= LS_THREADS_BYTES; }

/* The loop, on all threads where they pay. */
static inline void ls_threads_for(bool pay, int64_t n, ls_team_fn part, void *call)
{
    if (pay) ls_team_run(part, call, n);
    else
        for (int64_t i = 0; i < n; i++) part(call, i);
}

/* Into how many parts a sum over rows is cut: 1 to LS_MOST_SUM_BLOCKS, one for each LS_THREADS_BYTES. */
static inline int64_t ls_sum_blocks(int64_t rows, int64_t row_bytes)
{
    int64_t n = rows * row_bytes / LS_THREADS_BYTES;
    if (n > LS_MOST_SUM_BLOCKS) n = LS_MOST_SUM_BLOCKS;
    if (n > rows) n = rows;
    return n < 1 ? 1 : n;
}

/* Where part i of [0, n) begins, of `parts` about equal ones; part `parts` begins at n. */
static inline int64_t ls_part_begin(int64_t n, int64_t parts, int64_t i)
{
    return n / parts * i + n % parts * i / parts;
}

#endif
