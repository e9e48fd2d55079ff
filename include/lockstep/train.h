/* train.h -- a whole training run from a configuration. */
#ifndef LS_TRAIN_H
#define LS_TRAIN_H
#include <stdbool.h>
#include "lockstep/world.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ls_train_config;
struct ls_opts;

/* What a run left behind; filled on rank 0, and as far as the run came on failure. */
typedef struct ls_train_result {
    int64_t steps;
    double loss;             /* of the last step: global mean */
    double test_loss;        /* of the last evaluation */
    double test_accuracy;    /* of features */
    double perplexity;       /* of tokens: e^test_loss */
    char digest[33];         /* of all parameters */
    char run_dir[256];
    char checkpoint[360];    /* newest durable file; "" if none */
} ls_train_result;

/* Joins the world that the environment describes and trains as `c` says: steps, evaluations
 * between them, a checkpoint, one `final` line on stdout from rank 0. `opts` (borrowed)
 * is written to the run folder as config.yaml, with the number of ranks filled in. On failure the
 * job is aborted with the cause. */
ls_status ls_train(const struct ls_train_config *c, struct ls_opts *opts, ls_train_result *out);

#ifdef __cplusplus
}
#endif
#endif
