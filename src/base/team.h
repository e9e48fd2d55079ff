/* team.h -- the threads of a rank, and loops that they share.
 *
 * Every thread that computes has a team of its own, whose first member it is; the others are started by its first loop
 * and sleep when there is nothing to do. A loop is n pieces of work. Each member begins with a range of pieces that
 * follows from n and the size of the team alone, so that loops over the same memory meet it in the same caches. Then
 * it takes pieces that others have not begun: a member that another process keeps from its core delays no loop.
 *
 * A member that waits spins for a bounded time, offers its core to other processes every 5 us, and then sleeps. Once
 * an offer was accepted, members sleep almost at once, for a while. OMP_NUM_THREADS and OMP_WAIT_POLICY (active,
 * passive) are heeded, as users of OpenMP expect. A process that was forked starts a team of its own once
 * ls_team_resize was called; until then its loops run on the thread that forked.
 */
#ifndef LS_BASE_TEAM_H
#define LS_BASE_TEAM_H
#include <stdbool.h>
#include <stdint.h>

#define LS_TEAM_MOST 1024 /* members */

/* Does piece i of n. Pieces run at the same time and in any order. */
typedef void (*ls_team_fn)(void *arg, int64_t i);

/* Runs fn(arg, i) once for every i of [0, n), n < 2^31; returns when all pieces are done, and what they wrote is
 * visible. Within a piece, and where threads cannot be started, it runs the pieces one after another itself. */
void ls_team_run(ls_team_fn fn, void *arg, int64_t n);

/* Threads that a loop of this thread takes: OMP_NUM_THREADS, else the usable cores; 1 within a piece of several. */
int ls_team_size(void);
/* OMP_NUM_THREADS is set: each rank has as many threads as it says. */
bool ls_team_told(void);
/* Otherwise: threads of each of `ranks` ranks that compute on `cpus` cores. An equal share, at least 1. */
int ls_team_share(int cpus, int ranks);
/* The CPUs of a rank, of 0 to cpus - 1: *count from *first on. 4 ranks have 2 each of 8 CPUs; of 2 CPUs, ranks 0 and 2
 * have the first, and ranks 1 and 3 the second. 3 ranks on 2 CPUs would have unequal parts: then *count is 0, and ranks
 * share all. ranks: at least 1. */
void ls_team_cores(int rank, int ranks, int cpus, int *first, int *count);
/* Threads that each of `ranks` ranks would have on the cores that this process may use, by these two rules: for plans.
 * At most ls_team_size. */
int ls_team_planned(int ranks);
/* Which of them runs, 0 to size - 1: for memory of each one's own. */
int ls_team_index(void);
/* Loops of the calling thread take n threads from now on, 1 to LS_TEAM_MOST; returns how many they took. */
int ls_team_resize(int n);

/* Ends the calling thread's team. The end of the thread does so, too; a later loop starts a new one. */
void ls_team_end(void);

#endif
