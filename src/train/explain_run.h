/* explain_run.h -- what is replicated, what is sharded, what is on the critical path of a step, and why the optimizer
 * does what it would do on one rank: of a configuration, or of a run, whose counters must say the same.
 *
 * All numbers come from the plan that a run applies: the ledger and the recorded collectives of dry worlds
 * (explain_layout.h), and for data parallelism alone formulas beside them (explain_zero.h).
 *
 *   explain_run.c       the answers                explain_layout.c        a plan, rank by rank
 *   explain_counters.c  what a run has counted     explain_layout_print.c  the same as text and JSON
 *   explain_words.c     axes and collectives in words
 *   explain_time.c      where the time of a run's steps went       explain_failure.c   how a run ended that failed
 */
#ifndef LS_TRAIN_EXPLAIN_RUN_H
#define LS_TRAIN_EXPLAIN_RUN_H
#include "train/explain_failure.h"
#include "train/explain_layout.h"
#include "train/explain_zero.h"

/* --- explain_counters.c ------------------------------------------------------------------------------------------- */

/* Steps after the first LS_COMM_STEADY, which touch memory for the first time; all steps of a shorter run. Steady ones
 * alone, if at least half of them are: where ranks divide experts, bytes differ from step to step. */
typedef struct ls_typical_step {
    size_t steps;
    double median_s;       /* what disturbs some of the steps does not change it */
    double mean_s, exposed_s, data_s; /* means */
} ls_typical_step;

/* What rank 0 counted in the steps of a run. */
typedef struct ls_run_counters {
    int world_size;        /* ranks of its last steps, which are the ones that count here; 0: the run does not say */
    size_t steps, steady;  /* of them without an evaluation; and so many moved `bytes`, more than moved anything else */
    int64_t first, last;   /* the first and the last of the steady ones */
    uint64_t bytes;        /* comm/bytes of a steady step; where ranks divide experts, of some step */
    double seconds, exposed_s, hidden_s, data_s; /* means of steady steps */
    ls_typical_step typical;
} ls_run_counters;

/* FOLDER/metrics.jsonl. LS_BAD_FILE: there is none, or it has no step without an evaluation. */
ls_status ls_run_counters_read(const char *folder, ls_run_counters *out);
/* FOLDER/comm.json: on which nodes the ranks were, for the caller to free. *node is NULL, and *n is 0: there is no such
 * file, as a run of an earlier version, or one that was killed, has none. */
ls_status ls_run_nodes_read(const char *folder, int **node, int *n);
/* FOLDER/comm.json: for how long each of `size` ranks was busy per step, [LS_BUSY_PHASES][size] seconds, for the caller
 * to free. *busy is NULL: there is no such file, or it does not say, as those of earlier versions and short runs. */
ls_status ls_run_busy_read(const char *folder, int size, double **busy);
/* A run beside its plan: fills in `real` and l->step from comm.json; *memory: it has memory.json. LS_BAD_FILE: rank 0's
 * bytes of metrics.jsonl, calls or bytes of some rank's group, or kinds of memory differ; the message has both numbers.
 */
ls_status ls_explain_check(const char *folder, const ls_run_counters *k, ls_explain_layout *l, bool *memory);
/* Bytes that a rank moves per step by the plan; *most: at most. */
uint64_t ls_explain_moved(const ls_explain_layout *l, int rank, bool *most);

/* --- explain_run.c ------------------------------------------------------------------------------------------------ */

/* What is explained. */
typedef struct ls_explained {
    const ls_train_config *c;     /* borrowed, as all here */
    const ls_model_config *mc;
    const char *folder;           /* of a run; NULL: a configuration */
    const ls_run_counters *k;     /* NULL likewise, or of a run that failed in its first steps */
    const ls_run_failure *failure; /* of a run; NULL: a configuration */
    int size, nodes;              /* ranks, on so many nodes with equally many each; */
    const int *node;              /* or rank r on node[r]; NULL: as `nodes` says */
    int rank;                     /* whose groups and collectives are shown as text */
} ls_explained;

/* Appends the answers, as text or as a JSON object. Fails as ls_explain_layout_make and ls_explain_check do. */
ls_status ls_explain_run(const ls_explained *e, bool json, ls_text *out);

#endif
