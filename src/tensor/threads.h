/* threads.h -- when threads pay, and how sums over rows are cut for them.
 *
 *     LS_THREADS_FOR(ls_threads_pay(bytes), for (int64_t i = 0; i < n; i++) part(i);)
 *
 * How many threads there are says whoever owns the process, once (net/cores.c, OMP_NUM_THREADS); an op never does. The
 * loop belongs into a plain function that calls an LS_KERNEL for each part: what OpenMP takes out of a kernel loses
 * its instruction set.
 *
 * No result depends on the number of threads. What is independent may be shared out in any way. A sum over rows is
 * either shared out by columns, each of which is added up in order, or cut into ls_sum_blocks parts, a number that
 * follows from the shape alone; each part is added up on its own, and then they are, in ascending order.
 */
#ifndef LS_TENSOR_THREADS_H
#define LS_TENSOR_THREADS_H
#include <stdbool.h>
#include <stdint.h>
#ifdef _OPENMP
#include <omp.h>
#define LS_THREADED 1
#else
#define LS_THREADED 0
#endif

/* To start and to wait costs about 2 us while the threads spin, 30 us after they have gone to sleep. A core moves these
 * bytes in 10 us. */
#define LS_THREADS_BYTES ((int64_t)256 << 10)
#define LS_MOST_SUM_BLOCKS 16

/* `bytes`: what is read and written; where arithmetic takes longer, a quarter of the flops. */
static inline bool ls_threads_pay(int64_t bytes) { return bytes >= LS_THREADS_BYTES; }

/* How many threads a parallel loop gets at most, and which of them runs: for memory of each thread's own. */
static inline int ls_thread_count(void)
{
#if defined(_OPENMP)
    return omp_get_max_threads();
#else
    return 1;
#endif
}

static inline int ls_thread_index(void)
{
#if defined(_OPENMP)
    return omp_get_thread_num();
#else
    return 0;
#endif
}

/* The calling thread's parallel regions from now on have at most n threads; returns how many they had. */
static inline int ls_threads_limit(int n)
{
#if defined(_OPENMP)
    const int before = omp_get_max_threads();
    if (n != before) omp_set_num_threads(n);
    return before;
#else
    (void)n;
    return 1;
#endif
}

/* The loop, shared out to all threads where they pay and there are any. (An `if` in the pragma would not do: libgomp
 * takes memory for every parallel region of one thread.) */
#ifdef _OPENMP
#define LS_THREADS_FOR(pay, ...)                                     \
    do {                                                             \
        if ((pay) && ls_thread_count() > 1) {                        \
            _Pragma("omp parallel for schedule(static)") __VA_ARGS__ \
        } else {                                                     \
            __VA_ARGS__                                              \
        }                                                            \
    } while (0)
#else
#define LS_THREADS_FOR(pay, ...) \
    do {                         \
        (void)(pay);             \
        __VA_ARGS__              \
    } while (0)
#endif

/* Into how many parts a sum over rows is cut: 1 to LS_MOST_SUM_BLOCKS, one for each LS_THREADS_BYTES. */
static inline int64_t ls_sum_blocks(int64_t rows, int64_t row_bytes)
{
    int64_t n = rows * row_bytes / LS_THREADS_BYTES;
    if (n > LS_MOST_SUM_BLOCKS) n = LS_MOST_SUM_BLOCKS;
    if (n > rows) n = rows;
    return n < 1 ? 1 : n;
}

/* Where part i of [0, n) begins, of `parts` about equal ones; part `parts` begins at n. */
static inline int64_t ls_part(int64_t n, int64_t parts, int64_t i) { return n / parts * i + n % parts * i / parts; }

#endif
