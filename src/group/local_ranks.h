/* local_ranks.h -- a world whose ranks are threads or copies of one process, which starts them to measure something.
 *
 * Ranks that are threads share one table of pages: a core that switches from one to another keeps its translations of
 * addresses (TLB). Between processes it keeps those of the last few only (six on x86, in Linux). So ranks that share
 * cores and are processes have to be measured as processes.
 */
#ifndef LS_GROUP_LOCAL_RANKS_H
#define LS_GROUP_LOCAL_RANKS_H
#include "lockstep/world.h"

/* ls_world_threads, or the same with processes. There `fn` changes its copy of this process's memory, which is gone
 * afterwards: its results go to memory of ls_local_alloc. No arena grows beyond opts->arena_bytes, since the other
 * ranks would not see it. LS_RANK_DIED: a process ended before `fn` returned. LS_RANK_HUNG: two minutes have passed. */
ls_status ls_local_run(int size, const ls_world_opts *opts, ls_rank_fn fn, void *arg, bool threads);
/* Zeros that this process and those of ls_local_run share. Memory is behind the first `used` bytes; behind others only
 * after ls_local_use, which LS_NO_MEMORY refuses. */
ls_status ls_local_alloc(size_t nbytes, size_t used, void **out);
ls_status ls_local_use(void *p, size_t nbytes);
void ls_local_free(void *p, size_t nbytes);

/* Whether a launcher binds so many ranks of this machine to its cores: ls_team_cores gives each rank some, and where
 * ranks are more than cores, this process may use no more CPUs than there are cores (a control group may give less time
 * than that of the CPUs that it allows; then a launcher binds no ranks that share cores). */
bool ls_local_is_bound(int ranks, double cores);
/* Then: the first core of a rank, from 0 to cores - 1. */
int ls_local_core(int rank, int ranks, double cores);
/* Binds the calling thread, which measures as this rank, as a launcher binds that rank. If a launcher has bound this
 * process, it is rank 0 of its job: the job's cores then are those of this process and the ones that follow. Without
 * effect for one rank. If it fails, being unbound is only slower. */
void ls_local_place(int rank, int ranks, double cores);
/* Returns when the cores of all ranks of w do nothing else, or after some seconds: the other processes of a job of
 * `ranks` ranks on this machine were busy until now (ls_predict_beside), unless they share its `cores`. The failures of
 * ls_all_reduce. */
ls_status ls_local_await_cores(ls_world *w, int ranks, double cores);

#endif
