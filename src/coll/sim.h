/* sim.h -- the reader of schedules that moves time.
 *
 * All ranks' lanes are stepped by the executor's rules; each step takes what the
 * cost model says, where the hardware it needs is free:
 *
 *   between hosts   a message holds the way out of its host and the way into the
 *                   other for gap + beta x bytes, and is there alpha + beta x bytes
 *                   after it started; messages of one rank leave in order
 *   loopback        the same with the ways out of and into its ranks
 *   memory          offering a message takes the sender's core gap, and it is there
 *                   alpha after that began; copying it takes the receiver's core
 *                   beta x bytes
 *   adding          takes the adder's core gamma x bytes; n vectors at once, (n+1)/3
 *                   of that: n reads and a write, where one addition is two and one
 *   crowded hosts   (more ranks than cores) hand out their cores first come first
 *                   served, loopback's transfers included; who had to wait for a
 *                   message looks again only poke later
 *
 * Nothing else takes time. So a ring over n free ranks takes
 * 2 (n-1) (alpha + beta S/n) + (n-1) gamma S/n, as in the books.
 */
#ifndef LS_COLL_SIM_H
#define LS_COLL_SIM_H
#include "coll/cost.h"
#include "lockstep/sched.h"

typedef struct ls_machine {
    const ls_cost *cost; /* borrowed */
    bool memory;         /* ranks of one host map one another's memory; else they use loopback */
    const int *cores;    /* [hosts] cores that the ranks of a host share; borrowed; NULL: enough everywhere */
} ls_machine;

/* How long the slowest rank is busy with one run over a vector of nbytes; schedules of all ranks, whose shape
 * says which host each is on. LS_NO_MEMORY; LS_INTERNAL for schedules that the prover would refuse. */
ls_status ls_sched_time(const ls_machine *m, const ls_sched *const *per_rank, int size, size_t nbytes, double *ns);

#endif
