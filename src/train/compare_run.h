/* compare_run.h -- a run that compares itself with a recorded one, step by step: `lockstep train --compare RUN`.
 *
 * At each step rank 0 compares loss and gradient norm with RUN's metrics.jsonl, bit for bit. After a step of which RUN
 * has a checkpoint every rank compares the elements that it keeps, of parameters and optimizer state, with it. RUN may
 * have been made by another number of ranks, and in another stage of ZeRO.
 */
#ifndef LS_TRAIN_COMPARE_RUN_H
#define LS_TRAIN_COMPARE_RUN_H
#include "lockstep/status.h"

struct ls_trainer;
struct ls_step_stats;
typedef struct ls_compare_run ls_compare_run;

/* Every rank calls it, when the steps of the run are known. *out is NULL without --compare. LS_BAD_FILE: RUN has no
 * metrics.jsonl, or none of the steps that this run takes. */
ls_status ls_compare_open(struct ls_trainer *t, ls_compare_run **out);
void ls_compare_close(ls_compare_run *r); /* NULL is fine */
/* Every rank calls it after a step. LS_DIVERGED at the first step that differs: loss and gradient norm of both, and, if
 * RUN has a checkpoint of it, the first tensor by name and in it the first element that differ, and how far. LS_SHAPE:
 * RUN's checkpoint is of another model or optimizer. */
ls_status ls_compare_step(struct ls_trainer *t, const struct ls_step_stats *s);
/* Rank 0 says how much was compared. */
void ls_compare_say(const struct ls_trainer *t);

#endif
