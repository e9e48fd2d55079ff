/* explain_compare.h -- two plans, or runs, side by side: what differs first. */
#ifndef LS_TRAIN_EXPLAIN_COMPARE_H
#define LS_TRAIN_EXPLAIN_COMPARE_H
#include "train/explain_run.h"

typedef struct ls_explain_side {
    const char *name;             /* borrowed, as all here: as the user said it */
    const ls_opts *opts;          /* keys of the configuration */
    const ls_explain_layout *l;
    const ls_run_counters *k;     /* of a run; NULL: a configuration */
} ls_explain_side;

/* Appends, as text or as a JSON object, of rank 0 axes, memory, calls and bytes per axis, of runs the time of a step,
 * and the keys that differ; lines that differ come before those that do not. LS_NO_MEMORY. */
ls_status ls_explain_compare(const ls_explain_side *a, const ls_explain_side *b, bool json, ls_text *out);

#endif
