/* tune.h -- measures what a step's time depends on, and predicts and measures it for several bucket caps. */
#ifndef LS_TRAIN_TUNE_H
#define LS_TRAIN_TUNE_H
#include "parallel/overlap.h"
#include "train/config.h"

typedef struct ls_tune_row {
    ls_overlap_step predicted;
    double step_ns, exposed_ns; /* medians of measured steps, of the slowest rank; 0: not measured */
} ls_tune_row;

typedef struct ls_tune {
    int ranks;            /* that average gradients */
    char transport[64];
    double alpha_ns, beta_ns, worst; /* of all_reduce; worst: the largest relative distance from a measurement */
    int ngradients;
    size_t nbytes;        /* of all gradients */
    double backward_ns, rest_ns;
    int nrows, best;      /* best: the row whose predicted step is the shortest */
    ls_tune_row row[LS_OVERLAP_CAPS]; /* ascending caps; the last one makes one bucket */
} ls_tune;

/* What would be measured does not exist or does not depend on buckets: LS_USAGE for fewer than 2 ranks,
 * LS_UNSUPPORTED, LS_BAD_CONFIG; the message names the key. */
ls_status ls_tune_check(const ls_train_config *c, int world_size);
/* Every rank of the world that the environment describes calls it. Trains a model for some steps per row, and saves
 * nothing; `steps` are measured for each cap, 0: none, the steps are predicted only. The result is the same on every
 * rank. On failure the job is aborted with the cause. */
ls_status ls_tune_buckets(const ls_train_config *c, int64_t steps, ls_tune *out);

#endif
