/* parallelize.h -- what a plan says about its replicas and its pipeline: for parallelize.c, which applies it, and
 * parallelize_check.c, which refuses it. */
#ifndef LS_TRAIN_PARALLELIZE_H
#define LS_TRAIN_PARALLELIZE_H
#include "lockstep/parallel.h"
#include "parallel/pipe_cut.h"
#include "parallel/strategy.h"

/* Whose functions the plan's replicas call. */
ls_status ls_plan_strategy(const ls_plan *p, const ls_dp_strategy **out);

/* Schedule, chunks and micro-batches. */
ls_pipe_config ls_plan_pipe(const ls_plan *p);

/* Stages of the pipeline: its ranks times the chunks of each. */
int ls_plan_stages(const ls_plan *p);

/* The cut of the model's whole layers with the shortest replayed step (ls_pipe_cut; `memory` as there), of a plan
 * without a split: first[stages + 1], in units of a model without halved layers. `here`: the place of any rank.
 * LS_BAD_CONFIG: more stages than units. */
ls_status ls_plan_cut_layers(const ls_plan *p, const ls_model_config *mc, const ls_place *here,
                             const ls_pipe_memory *memory, int *first);

/* Operations of a micro-batch in each stage of the pipeline, as the cut counts them: forward, backward of the input and
 * of the weights, [stages] each. `here`: the place of any rank. */
ls_status ls_plan_stage_costs(const ls_plan *p, const ls_model_config *mc, const ls_place *here, double *forward,
                              double *input, double *weight);

#endif
