/* measure.h -- how long the operations of a model take on one rank of this machine: for predictions.
 *
 * A few steps of the model, whole, on one rank that is a thread, with the micro-batches that a rank of the layout has,
 * and its number of threads. Each operation is timed, in processor time, which other processes do not lengthen. One
 * that leaves its core, since it waits for a clock, is timed by the clock. Ranks that divide layers have smaller
 * operations: those take the time of the same operation here, in proportion to their FLOP (or bytes, if it has none).
 */
#ifndef LS_TRAIN_MEASURE_H
#define LS_TRAIN_MEASURE_H
#include "lockstep/tensor.h"
#include "train/config.h"

typedef struct ls_measured_time {
    double busy_s;   /* of a core, or of the rank's cores */
    double asleep_s; /* without one */
} ls_measured_time;

/* An operation of a unit in one phase, by its name with its sizes. */
typedef struct ls_measured_row {
    char unit[32], name[48];
    ls_tape_phase phase;
    int64_t calls;        /* per step */
    double flops, bytes;  /* of these calls */
    ls_measured_time takes; /* of these calls per step: the mean of processor time without the least and the greatest,
                             * or with several threads the median of the clock; then scaled: all of them together
                             * take the median of the steps that no one listens to, if there are any */
} ls_measured_row;

typedef struct ls_measured {
    ls_measured_row *row; /* owned: [n] */
    int n;
    int steps, micro_batches, threads; /* that were timed; per step; of the rank */
    double seconds;       /* that measuring took */
    double elements;      /* of the model's parameters */
    double update_s;      /* of the optimizer, for all of them */
    double data_s;        /* of a step's samples */
    double rest_s;        /* of a step, besides operations, data and optimizer */
    double busiest;       /* of mirrors that do not learn: the part of a rank's tokens that its busiest expert gets, */
    int routed_after;     /* as after so many steps (train/expert_loads.h); 0: where the router sends them */
    double *uneven;       /* owned: [layers][eps]: of ranks that divide experts and share cores, how many tokens
                           * those of each place along ep have, in proportion to the mean, which the rows are of. Of
                           * several stages only the first has it. NULL: all are alike, or as busy as the busiest */
    int64_t layers;
    int eps;
    double learning_rate; /* of the steps: in mirrors the run's or next to none (ls_measure_stages) */
} ls_measured;

#define LS_MEASURE_LONG_S 15 /* the other ranks of a run wait for 60 s until this one joins them */

/* For a rank of `ranks`, `here` of which share this machine. After long_s seconds no further step begins, so a step
 * that takes longer is the only one. LS_NO_MEMORY: the whole model does not fit on one rank, and the failures of a
 * run. */
ls_status ls_measure(const ls_train_config *c, int ranks, int here, double long_s, ls_measured *out);
void ls_measured_free(ls_measured *m);
/* The same for each stage of the pipeline: out[parallel.pp]. Here the ranks of the layout compute, in mirrors
 * (ls_world_mirror): operations have the very sizes and order of the run, and no other rank is there. If ranks share
 * `cores` of this machine, all of its ranks are timed together. A mirror learns where the gradients of its own samples
 * are those of a rank: on one rank, and on replicas without ZeRO or a hook. Elsewhere routers send as many tokens to
 * each expert as once one rank has learned for some steps (train/expert_loads.h). Of ranks that divide experts, a
 * mirror gets as many as the busiest one in each layer, since all wait for that one; if ranks share cores, the mean. To
 * be freed also after a failure. */
ls_status ls_measure_stages(const ls_train_config *c, int ranks, int here, double cores, double long_s,
                            ls_measured *out);
/* Which part of its messages a rank waits for, where so many ranks share this machine's cores and are bound to them. */
double ls_ring_waits(const ls_plan *p, int rank, int here, double cores);
/* Of one call. An operation that was not measured is as fast as those of the same kind; one of a kind that was not is
 * as fast as all that memory bounds, or all that arithmetic does. */
ls_measured_time ls_measured_op(const ls_measured *m, const ls_op_event *e);
/* Of an optimizer that updates so many elements. */
double ls_measured_update(const ls_measured *m, double elements);

#endif
