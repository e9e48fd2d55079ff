/* train.h -- a whole training run from a recipe: what `lockstep train` does, for a program to call. */
#ifndef LS_TRAIN_H
#define LS_TRAIN_H
#include <stdint.h>
#include "lockstep/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The results of a run; filled on rank 0, and as far as the run came on failure. */
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

/* Trains as `lockstep train` does. `args` are the words after these two: at most one YAML file, and flags as
 * `lockstep train --help` lists them:
 *
 *     const char *const args[] = { "run.yaml", "--train.steps", "100" };
 *     ls_status st = ls_train_run(3, args, &result);
 *
 * Joins the world that the environment describes (ls_world_join), so a program that `lockstep run` starts as several
 * ranks calls it on each of them; log lines and `final` go to stdout from rank 0. On failure the job is aborted with
 * the cause. LS_USAGE, LS_BAD_CONFIG, LS_UNSUPPORTED: an argument, and why; also one that only the command can follow
 * (--help, --print-config, --dry-run, --explain), and --nproc-per-node, --events, --log-dir, which launchers follow. */
ls_status ls_train_run(int nargs, const char *const *args, ls_train_result *out);

#ifdef __cplusplus
}
#endif
#endif
