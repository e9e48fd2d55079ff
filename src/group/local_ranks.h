/* local_ranks.h -- a world whose ranks are threads or copies of one process, which starts them to measure something.
 *
 * Ranks that are threads share one table of pages: a core that switches from one to another keeps its translations of
 * addresses (TLB). Between processes it keeps those of the last few only (six on x86, in Linux). So ranks that share
 * cores and are processes have to be measured as processes.
 */
#ifndef LS_GROUP_LOCAL_RANKS_H
#define LS_GROUP_LOCAL_RANKS_H
#include "lockstep/world.h"

#define LS_LOCAL_MASK_WORDS 128 /* 8,192 CPUs */

/* ls_world_threads, or the same with processes. There `fn` changes its copy of this process's memory, which is gone
 * afterwards: its results go to memory of ls_local_alloc. No arena grows beyond opts->arena_bytes, since the other
 * ranks would not see it. LS_RANK_DIED: a process ended before `fn` returned. LS_RANK_HUNG: two minutes have passed. */
ls_status ls_local_run(int size, const ls_world_opts *opts, ls_rank_fn fn, void *arg, bool threads);
/* Zeros that this process and those of ls_local_run share. Memory is behind the first `used` bytes; behind others only
 * after ls_local_use, which LS_NO_MEMORY refuses. */
ls_status ls_local_alloc(size_t nbytes, size_t used, void **out);
ls_status ls_local_use(void *p, size_t nbytes);
void ls_local_free(void *p, size_t nbytes);

/* CPUs of the thread that calls ls_local_cpus_here. */
typedef struct ls_local_cpus {
    uint64_t mask[LS_LOCAL_MASK_WORDS];
    int n;
} ls_local_cpus;
void ls_local_cpus_here(ls_local_cpus *out);
/* Whether `cores`, a whole number, can have equally many of these ranks. */
bool ls_local_is_even(int ranks, double cores);
/* Then: the core of a rank, from 0 to cores - 1, in a pseudorandom assignment that differs from round to round. */
int ls_local_core(int rank, int ranks, int cores, unsigned round);
/* Binds the calling thread, which is this rank, to that one of these CPUs: the kernel moves ranks that share cores now
 * and then, and a short measurement would see one assignment, most often an uneven one. Without effect if cores cannot
 * have equally many ranks, or these CPUs are fewer than `cores`. */
void ls_local_place(const ls_local_cpus *c, int rank, int ranks, double cores, unsigned round);
/* Binds the calling thread, which is this rank, to cores of its own, where there are as many as ranks. A launcher has
 * bound this process to those of rank 0 of its job, and the other ranks of the job have those that follow. If it fails,
 * being unbound is only slower. */
void ls_local_stay_apart(int rank, int ranks, double cores);
/* Returns when the cores of all ranks of w do nothing else, or after some seconds: the other processes of a job of
 * `ranks` ranks on this machine were busy until now (ls_predict_beside), unless they share its `cores`. The failures of
 * ls_all_reduce. */
ls_status ls_local_await_cores(ls_world *w, int ranks, double cores);

#endif
