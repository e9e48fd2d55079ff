/* coll_measure.h -- what the collectives of a step take on this machine.
 *
 * As many ranks as the run has, started by this process, carry out each collective of the step with its length and the
 * same kind of vector, all of its groups at once, as ranks do that are alike. Between two calls each rank reads as many
 * bytes as the step does on average between two calls, and writes its vector, as backward does: between messages of a
 * ring those of pieces of attention, between other calls those of all other work, 16 KiB or more (call_gaps.h). Where
 * ranks share cores it reads a quarter of the latter, and computes for as long as the step does, at most 0.1 ms. What
 * that takes is taken off: of ranks that share cores their processor time between these very calls, else the time of a
 * batch without calls. Messages of a ring go on while their ranks compute, as in the step, and what came in is
 * sent on. All collectives are timed in turn, in several passes. Ranks are on the cores to which a launcher binds them.
 */
#ifndef LS_PLAN_COLL_MEASURE_H
#define LS_PLAN_COLL_MEASURE_H
#include "plan/step_list.h"

/* A collective, with its waits. */
typedef struct ls_measured_coll {
    ls_step_call call; /* bytes: of its vector; of LS_SENDRECV: of a message that each rank sends */
    double seconds; /* from the moment at which all are there, where all groups call it at once */
} ls_measured_coll;

typedef struct ls_measured_colls {
    ls_measured_coll *of; /* owned: [n] */
    int n;
    double poll;    /* a rank that waits for another stage takes so large a part of what a rank that computes gets of
                     * the same core: it polls whenever that one yields. 0: not measured, as where ranks of a stage
                     * call nothing */
    double part;    /* of `seconds` in which a rank has a core of its own: below 1 where ranks share cores */
    double seconds; /* that measuring took */
} ls_measured_colls;

/* Times the collectives of these lists, whose ranks are all on this machine with its `cores`. There are none with
 * another transport than shared memory, another backend than sched, one rank, or more than 64. Those that have
 * no pass after long_s seconds are left out. To be freed also after a failure. LS_NO_MEMORY, and the failures of
 * ls_local_run. */
ls_status ls_colls_measure(const ls_train_config *c, const ls_step_lists *l, double cores, double long_s,
                           ls_measured_colls *out);
void ls_colls_free(ls_measured_colls *m);
/* Messages between stages, timed where ranks share cores: each rank sends one to the next stage, the last one to the
 * first, and receives one. As LS_SENDRECV of this span. */
#define LS_BETWEEN_STAGES { .axes = LS_ALONG(LS_AXIS_PP) }
/* Of so many ranks in a ring (cp_ring.c), each sends so many messages per layer: forward keys and values, ranks - 1
 * times; backward the same, and `ranks` times their gradients. */
#define LS_RING_MESSAGES(ranks) (3 * (ranks) - 2)
/* How many of them travel while a rank computes, once `done` were sent: one; two where keys and values and gradients of
 * the round before do so together; 0: the last one, which is waited for at once. ranks: 2 and more. */
int ls_ring_at_once(int ranks, int done);
/* Seconds that a call takes in a run; took: seconds of a call in each of n > 0 passes here, which are sorted; part:
 * ls_measured_colls.part. If each rank has a core, it is the median. Where ranks share cores, it is the mean of the
 * passes that were not disturbed; of a ring's messages it is the lower quartile, since what they take depends on the
 * order in which the ranks of a core have their turns. A run has a good order after two steps, and passes often have a
 * worse one. */
double ls_call_in_run(const ls_step_call *x, double part, double *took, size_t n);
/* NULL: it was not measured. */
const ls_measured_coll *ls_colls_find(const ls_measured_colls *m, const ls_step_call *call);

#endif
