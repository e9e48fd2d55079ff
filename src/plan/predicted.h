/* predicted.h -- what a run on this machine is expected to take, before its first step.
 *
 * Memory, calls and bytes are those of the run's own plan (train/explain_layout.h): exact. Time is that of `lockstep
 * sim` (step_sim.h), with operations timed on this machine (train/measure.h), links as `lockstep calibrate` measured
 * them (coll/cost.h), and the cores of this machine, which ranks share if they are more.
 */
#ifndef LS_PLAN_PREDICTED_H
#define LS_PLAN_PREDICTED_H
#include "base/text.h"
#include "lockstep/topo.h"
#include "plan/step_sim.h"
#include "train/explain_layout.h"
#include "train/measure.h"

/* Seconds per step, the mean over all ranks; the parts sum to the step. */
typedef struct ls_predicted_time {
    double step, compute, optimizer, data;
    double exposed; /* communication that a rank waits for, within its pipeline stage and between stages; and for cores,
                     * where ranks share them */
    double bubble;  /* waiting for other pipeline stages */
} ls_predicted_time;

/* This machine, or several like it, as a cluster with a device per rank. */
typedef struct ls_here {
    int ranks, local;     /* all; on this machine */
    double cores;         /* of this machine */
    bool shared;          /* ranks have more threads than there are cores */
    double for_ranks, idle_s; /* ls_step_sim_opts.cores and idle_s */
    double wake_s;        /* and wake_s */
    ls_wait_cost waits;   /* where cores are shared, */
    uint32_t *core;       /* owned: [ranks], on which each rank then stays (ls_here_place); NULL: on all */
    ls_measured_colls colls; /* owned */
    ls_topo topo;
    ls_measured *measured; /* owned: [nmeasured]: of each stage, or of all of them */
    int nmeasured;
    bool mirrored;        /* the ranks of the layout were timed, and not one rank alone */
    char cost_from[160];
} ls_here;

/* `local` ranks on each node; times the ranks of the layout, or if that fails (memory), the model on one rank
 * (train/measure.h). LS_UNSUPPORTED: not equally many ranks on each node.
 * To be freed also after a failure. */
ls_status ls_here_make(const ls_train_config *c, int ranks, int local, ls_here *out);
void ls_here_free(ls_here *h);
/* Times the collectives of a step with all its ranks. If there are several nodes, or if it fails, there are none: they
 * take what links take. */
void ls_here_time_colls(ls_here *h, const ls_train_config *c, const ls_step_lists *l);
/* Sets o->core: where ranks of one thread share the cores of one node, and a launcher binds them (ls_local_is_bound),
 * the core of each. Else NULL. LS_NO_MEMORY. */
ls_status ls_here_place(ls_here *h, ls_step_sim_opts *o);
/* What a simulation takes from it: the links, the cores that ranks share, and what waiting costs then. */
void ls_here_options(const ls_here *h, ls_step_sim_opts *o);
/* How fast its ranks compute; borrows. */
void ls_here_rates(const ls_here *h, ls_step_rates *out);
/* What its ranks do in a step. Those of a node share memory; groups that nodes divide in a way that cannot be
 * simulated (ls_step_span_of) are taken to be of ranks with a node each. The failures of ls_step_lists_create. */
ls_status ls_here_lists(const ls_here *h, const ls_train_config *c, const ls_step_rates *rates, ls_step_lists *out);
/* Where its numbers come from, in a line without an end. */
void ls_here_text(const ls_here *h, ls_text *out);

typedef struct ls_predicted {
    ls_here here;            /* owned, as all here */
    ls_predicted_time time;
    ls_explain_layout plan;
} ls_predicted;

/* What a run and its explanation refuse. Steps are those after ddp.powersgd_start, if the run has any. To be freed
 * also after a failure. */
ls_status ls_predict(const ls_train_config *c, int ranks, int local, ls_predicted *out);
/* What the other ranks do meanwhile, if each has cores of its own: the same computation, on their cores. A core
 * computes more slowly while others do (clock, memory). Its results are not kept, and it cannot fail. */
void ls_predict_beside(const ls_train_config *c, int ranks, int local);
void ls_predicted_free(ls_predicted *p);
/* For people, without a newline at its end; and predicted.json (docs/formats.md). */
void ls_predicted_text(const ls_predicted *p, ls_text *out);
void ls_predicted_json(const ls_predicted *p, ls_text *out);

#endif
