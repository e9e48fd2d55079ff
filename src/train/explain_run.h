/* explain_run.h -- what is replicated, what is sharded, what is on the critical path of a step, and why the optimizer
 * does what it would do on one rank: of a configuration, or of a run, whose counters must say the same.
 *
 * All numbers come from the plan that a run applies (explain_zero.h): formulas, and the ledger and recorded collectives
 * of a dry world.
 */
#ifndef LS_TRAIN_EXPLAIN_RUN_H
#define LS_TRAIN_EXPLAIN_RUN_H
#include "train/explain_zero.h"

/* What rank 0 counted in the steps of a run. */
typedef struct ls_run_counters {
    int world_size;        /* ranks of its last steps, which are the ones that count here; 0: the run does not say */
    size_t steps, steady;  /* of them without an evaluation; and so many moved `bytes`, more than moved anything else */
    int64_t first, last;   /* the first and the last of the steady ones */
    uint64_t bytes;        /* comm/bytes of a steady step */
    double seconds, exposed_s; /* means of steady steps */
} ls_run_counters;

/* FOLDER/metrics.jsonl. LS_BAD_FILE: there is none, or it has no step without an evaluation. */
ls_status ls_run_counters_read(const char *folder, ls_run_counters *out);

/* Appends the answers, as text or as a JSON object. `folder` and `k` are NULL where there is no run. LS_BAD_FILE: the
 * run moved other bytes than its configuration's plan, or its memory.json has others; the message has both numbers. */
ls_status ls_explain_run(const ls_train_config *c, const ls_model_config *mc, int size, const char *folder,
                         const ls_run_counters *k, bool json, ls_text *out);

#endif
