/* memory_stages.h -- pipeline stages that fit memory.limit.
 *
 * A model is cut into stages where the replayed step is shortest. Its ranks may need more memory than those of another
 * cut, for example of stages that cost the same. If memory.limit is set and the fastest cut does not fit, a run takes
 * the fastest of the cuts of whole layers that fit. What cuts need is found by dry runs: after 512 of them, further
 * cuts count as ones that do not fit.
 */
#ifndef LS_TRAIN_MEMORY_STAGES_H
#define LS_TRAIN_MEMORY_STAGES_H
#include "lockstep/model.h"
#include "train/config.h"

#define LS_MEMORY_STAGES_PLANS 512 /* dry runs of a rank, each of which takes milliseconds */

typedef struct ls_memory_stages {
    ls_train_config c; /* the configuration, with a pipeline.split that fits */
    char said[360];    /* for the log: why the cut is another one; "": it is not */
    int planned;       /* dry runs that the search took, at most LS_MEMORY_STAGES_PLANS; 0: there was none */
} ls_memory_stages;

/* For `size` ranks on one machine. Nothing changes without memory.limit (what the system has left differs from rank to
 * rank and from start to start), with memory.check false, with a pipeline.split, or where no cut fits: the check that
 * follows (ls_memory_check) then says what is missing. The same result on every rank and in dry worlds. */
ls_status ls_memory_stages_fit(const ls_train_config *c, const ls_model_config *mc, int size, ls_memory_stages *out);

#endif
