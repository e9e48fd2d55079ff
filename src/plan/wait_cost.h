/* wait_cost.h -- what waiting costs ranks that share cores, besides the time until what they wait for is there.
 *
 * Where each rank has a core, one that waits costs nothing. Where others use its core meanwhile, the processor changes
 * from one to the other, each looks for what has come, and its data have to come from further away, since those of
 * others are in the core's own caches (Mogul and Borg 1991). All of it is time of the core.
 */
#ifndef LS_PLAN_WAIT_COST_H
#define LS_PLAN_WAIT_COST_H
#include <stdbool.h>

#include "lockstep/status.h"

#define LS_WAIT_SIZES 7
#define LS_WAIT_RANKS 32 /* that are measured together, at most */

typedef struct ls_wait_cost {
    double coll_s, message_s;       /* of a rank: in a short collective, and until a short message has come */
    double refill_s[LS_WAIT_SIZES]; /* until 64 KiB, 128 KiB, .. of its data are near again */
} ls_wait_cost;

typedef struct ls_wait_ranks {
    int ranks;
    double cores;
    bool threads;   /* the ranks of the run are threads, and not processes */
    bool together;  /* operations were timed while other ranks used the core at their waits: their times have what
                     * refill_s would be, so it is 0 */
} ls_wait_ranks;

/* On this machine, whatever the transport of a run: ranks of this process, in shared memory. In some tenths of a
 * second. LS_NO_MEMORY, and the failures of ls_local_run. */
ls_status ls_wait_cost_measure(const ls_wait_ranks *r, ls_wait_cost *out);
/* How much later a rank goes on that sleeps in a long wait than one that still looks for its message: the median of
 * some waits for a message in shared memory, of two ranks of this process on different cores, when these do nothing
 * else. In some hundredths of a second. With one core 0, since both would wait for it. The same failures. */
ls_status ls_wait_wake_measure(const ls_wait_ranks *r, double *out_s);
/* For a rank that reads so many bytes between two waits: no more than its caches hold comes again. */
double ls_wait_cost_refill_s(const ls_wait_cost *t, double bytes);

#endif
