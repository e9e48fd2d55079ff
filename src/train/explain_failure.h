/* explain_failure.h -- how a run ended that failed, from the report that its launcher left in the run's folder.
 */
#ifndef LS_TRAIN_EXPLAIN_FAILURE_H
#define LS_TRAIN_EXPLAIN_FAILURE_H
#include "train/explain_layout.h"

typedef struct ls_run_failure {
    bool any;                  /* else the run has not failed, and nothing below is set */
    char word[32];             /* the status name, "rank-died" */
    char message[500], signal[16]; /* signal "": none, or not known */
    int world_size, rank;      /* the rank that failed first; -1: none, or not known */
    int64_t step;              /* that it was in; -1: not known */
} ls_run_failure;

/* FOLDER/failure.json. LS_BAD_FILE: it is broken. */
ls_status ls_run_failure_read(const char *folder, ls_run_failure *out);
/* What happened in one line, "cause: ...", and in a second one what to do. l: the run's plan. */
void ls_run_failure_text(const ls_run_failure *f, const ls_explain_layout *l, ls_text *out);
/* A JSON object; null: the run has not failed. */
void ls_run_failure_json(const ls_run_failure *f, const ls_explain_layout *l, ls_text *out);

#endif
