/* wait_cost.h -- what waiting costs ranks that share cores, beside the time until what they wait for is there.
 *
 * Where each rank has a core, one that waits costs nothing. Where others use its core meanwhile, the processor changes
 * from one to the other, each looks for what has come, and its data have to come from further away, since those of
 * others are in the core's own caches (Mogul and Borg 1991). All of it is time of the core.
 */
#ifndef LS_PLAN_WAIT_COST_H
#define LS_PLAN_WAIT_COST_H
#include "lockstep/status.h"

#define LS_WAIT_SIZES 7
#define LS_WAIT_RANKS 32 /* that are measured together, at most */

typedef struct ls_wait_cost {
    double coll_s, message_s;       /* of a rank: in a short collective, and until a short message has come */
    double refill_s[LS_WAIT_SIZES]; /* until 64 KiB, 128 KiB, .. of its data are near again */
} ls_wait_cost;

/* On this machine, so many ranks on so many cores, whatever the transport of a run: ranks that are threads, in shared
 * memory. In some tenths of a second. LS_NO_MEMORY, and the failures of a
 * world of threads. */
ls_status ls_wait_cost_measure(int ranks, double cores, ls_wait_cost *out);
/* For a rank that reads so many bytes between two waits: no more than its caches hold comes again. */
double ls_wait_cost_refill_s(const ls_wait_cost *t, double bytes);

#endif
