/* expert_loads.h -- how many tokens each expert has once a model has begun to learn.
 *
 * A router that has not learned sends about as many tokens to each expert. After a few steps it often sends nearly all
 * of them to a few experts, and products with fewer, larger matrices are faster. A mirror (measure.h) does not learn
 * where its gradients are wrong, so it is told these loads.
 */
#ifndef LS_TRAIN_EXPERT_LOADS_H
#define LS_TRAIN_EXPERT_LOADS_H
#include "lockstep/parallel.h"
#include "train/config.h"

typedef struct ls_expert_loads {
    float *part;    /* owned: [layers][experts], ls_moe_rule.loads; zeros: a dense layer. NULL: no experts */
    int64_t layers, experts;
    double most;    /* part for which an expert has room (moe.capacity_factor); 0: for all */
    double busiest; /* the largest of them */
    int steps;      /* that were taken, the last of which has these loads */
} ls_expert_loads;

/* Trains c's model on one rank for up to eight steps, at most those of the run, from random parameters whatever the run
 * loads, with one or two micro-batches of layout p per step, and whole sequences. No step begins after long_s seconds.
 * `copies` processes of this machine do so at the same time. Nothing is done, and steps is 0, where there are no
 * experts, or moe.force_expert says where tokens go. LS_UNSUPPORTED: a step would take seconds (100 GFLOP or more).
 * LS_NO_MEMORY: the model does not fit on one rank. To be freed also after a failure. */
ls_status ls_expert_loads_find(const ls_train_config *c, const ls_plan *p, int copies, double long_s,
                               ls_expert_loads *out);
/* Loads [layers][experts] for rank `rank` of `ranks` that divide the experts evenly: in each layer its experts change
 * places with those of the rank that gets most, since all ranks wait for that one. */
void ls_expert_loads_busiest(const float *part, int64_t layers, int64_t experts, int ranks, int rank, float *out);
/* How many tokens the experts of each of `ranks` ranks, which divide them evenly, get in proportion to their mean:
 * out[layers][ranks]; 1 in a dense layer. */
void ls_expert_loads_of_ranks(const ls_expert_loads *l, int ranks, double *out);
void ls_expert_loads_free(ls_expert_loads *l);

#endif
