/* step_sim.h -- a training step of every rank of a cluster, in virtual time.
 *
 * Each rank is two processes of the event engine (sim/des.h): one computes, one carries out the collectives that go on
 * beside. Ranks of a pipeline stage share the list of the stage (step_list.h). A collective takes what its messages
 * take on the cluster (step_price.h) from the moment at which its last member is there; messages between stages take
 * links in turn. Computation is not slowed down by what goes on beside it.
 */
#ifndef LS_PLAN_STEP_SIM_H
#define LS_PLAN_STEP_SIM_H
#include "base/text.h"
#include "plan/coll_measure.h"
#include "plan/step_list.h"
#include "plan/step_price.h"
#include "plan/wait_cost.h"
#include "sim/des.h"

typedef struct ls_step_straggler {
    int rank;
    double pace; /* its operations take so many times as long */
} ls_step_straggler;

#define LS_STEP_PRICES  512
#define LS_STEP_EVENTS  16
#define LS_STEP_TRACED  64

typedef struct ls_step_sim_opts {
    const ls_topo *t;     /* borrowed, as all here */
    const ls_algo *const *algo; /* [LS_COLLS]: of a collective; NULL among them, or in place of them: the fastest */
    double cores;         /* that all ranks share (sim/des.h); 0: a device per rank */
    const uint32_t *core; /* [ranks]: each rank stays on this one of a whole number of `cores`; NULL: they share all */
    double idle_s;        /* seconds without work on a core, after which ranks that wait there sleep (sim/des.h) */
    double wake_s;        /* with idle_s: how much later a rank goes on that sleeps in a wait (sim/des.h) */
    const ls_wait_cost *waits; /* of ranks that share cores; NULL: waiting costs nothing else */
    const ls_measured_colls *colls; /* what collectives take, where they were measured; NULL: all by their messages */
    double jitter;
    uint64_t seed;
    const ls_step_straggler *straggler;
    int nstragglers;
    const ls_des_failure *failure;
    int nfailures;
    const char *trace;    /* a file for the timeline of the first LS_STEP_TRACED ranks that `traced` has; NULL: none */
    int traced;           /* so many ranks, evenly over the world */
} ls_step_sim_opts;

/* Where the time of a rank goes; the parts sum to the step, without those that are in another one. */
typedef struct ls_step_parts {
    double compute;
    double optimizer, data; /* both in `compute` */
    double core_s;      /* of `compute`: what a core does for it alone; less where ranks share cores */
    double collectives; /* that it waits for, once all are there, and what waiting costs a core that is shared */
    double others;      /* until all are there, of groups within a stage */
    double beside;      /* waits for collectives that went on beside */
    double stages;      /* waits for other stages: their messages, or in collectives of several stages */
    double idle;        /* after its last item */
} ls_step_parts;

/* From when all of these stages have done their last item until the step ends: what goes on beside takes longer. It is
 * in `idle` of each, and no bubble. */
double ls_step_tail_s(const ls_step_parts *stage, int stages);

/* A collective of the step, by group, length and layout of its vector. */
typedef struct ls_step_called {
    ls_step_call call;
    int calls;            /* per step, of the stage that has most */
    ls_step_price price;
} ls_step_called;

typedef struct ls_step_result {
    double step_s;
    double bubble;        /* which part of all ranks' time they wait for stages, or are done */
    double exposed_s;     /* collectives and beside: the mean over all ranks */
    double beside_s;      /* collectives that go on beside: the mean over all ranks, whether waited for or not */
    ls_step_parts stage[LS_STEP_STAGES]; /* mean over the ranks of each stage */
    ls_step_called called[LS_STEP_PRICES];
    int ncalled;
    uint64_t events;
} ls_step_result;

/* LS_BAD_CONFIG: the ranks do not fit, a straggler that is not there, and what ls_des_run says; LS_UNSUPPORTED: more
 * than LS_STEP_PRICES kinds of collectives. */
ls_status ls_step_simulate(const ls_step_lists *l, const ls_step_sim_opts *o, ls_step_result *out);

/* --- step_trace.c ------------------------------------------------------------------------------------- */

typedef struct ls_step_trace ls_step_trace;
/* Of so many ranks out of all, evenly. LS_NO_MEMORY. */
ls_status ls_step_trace_create(const ls_step_lists *l, int traced, ls_step_trace **out);
/* An item of a rank, or of its stream beside. */
void ls_step_trace_add(ls_step_trace *t, int rank, const ls_step_item *i, const ls_des_span *span);
/* As ls_trace_export. */
ls_status ls_step_trace_write(const ls_step_trace *t, const char *path);
void ls_step_trace_free(ls_step_trace *t); /* NULL is fine */

#endif
