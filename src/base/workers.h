/* workers.h -- threads that prepare things ahead of one consumer: begun in order, finished in any, taken in order.
 *
 * Jobs are numbered from 0. The consumer posts jobs and takes them, oldest first, each when it is done; at most `slots`
 * may be posted and not yet taken, so job i can use the (i mod slots)-th of as many buffers. Only the consumer's thread
 * calls these functions, except ls_workers_unwanted.
 */
#ifndef LS_BASE_WORKERS_H
#define LS_BASE_WORKERS_H
#include <stdbool.h>
#include <stdint.h>
#include "lockstep/status.h"

typedef struct ls_workers ls_workers;

/* Does job `job` on a worker's thread. Its status and, after a failure, ls_last_error() reach ls_workers_take. */
typedef ls_status (*ls_workers_fn)(void *arg, uint64_t job);

/* Starts the threads. Nothing is allocated after this. LS_SYSTEM: a thread cannot be started. */
ls_status ls_workers_create(int threads, int slots, ls_workers_fn fn, void *arg, ls_workers **out);
/* Gives out one more job. */
void ls_workers_post(ls_workers *w);
/* Posted and not yet taken; the number of the next one to take. */
int ls_workers_posted(const ls_workers *w);
uint64_t ls_workers_next(const ls_workers *w);
/* Whether the oldest posted job is done, so that taking it does not wait; false if none is posted. */
bool ls_workers_ready(const ls_workers *w);
/* Waits for the oldest posted job and returns what it returned; a failure's message is then this thread's. */
ls_status ls_workers_take(ls_workers *w);
/* Forgets all posted jobs: those that were not begun never are. Returns when no job runs any more. */
void ls_workers_drop(ls_workers *w);
/* For a job: it was dropped, so the sooner it returns, the better. */
bool ls_workers_unwanted(const ls_workers *w, uint64_t job);
/* Drops all jobs and ends the threads. NULL is fine. */
void ls_workers_destroy(ls_workers *w);

#endif
