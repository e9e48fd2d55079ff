/* explain_time.h -- where the time of a run's steps went: computing, exposed communication, waiting for a slower rank,
 * data; which rank is slowest, how much of the link collectives use, the cause of the largest loss and what to do.
 */
#ifndef LS_TRAIN_EXPLAIN_TIME_H
#define LS_TRAIN_EXPLAIN_TIME_H
#include "coll/cost.h"
#include "train/explain_run.h"
#include "train/straggler.h"

typedef enum ls_cause { LS_CAUSE_NONE, LS_CAUSE_SLOW_RANK, LS_CAUSE_SLOW_LOADER, LS_CAUSE_SLOW_LINK,
                        LS_CAUSE_OVERSUBSCRIBED, LS_CAUSE_EXPOSED, LS_CAUSES } ls_cause;
const char *ls_cause_name(ls_cause c); /* "slow-rank", as lab 09 has it; "none" */

/* Means per step, in seconds. The first four are of rank 0 and add up to `step`. */
typedef struct ls_step_split {
    double compute, exposed, wait, data, step;
    bool waits_known;          /* comm.json says how long each rank was busy; else `wait` is 0 and in `exposed` */
    int slowest;               /* the rank that is busy longest in `phase` beyond the median rank; -1: not known */
    ls_busy phase;
    double slowest_s, median_s;
    ls_level level;            /* how messages travel between the ranks of the run */
    double under_way;          /* rank 0 has collectives under way, and waits for no slower rank */
    double expected;           /* for all calls of the plan, one after the other, by the cost model */
    double bus, peak;          /* bytes per second: moved by rank 0 while collectives are under way (0: not known);
                                * of the link */
    ls_cause cause;
    int rank;                  /* that the cause is on; -1: all ranks */
    double lost;               /* seconds per step by it */
    char cost_from[96];
} ls_step_split;

/* One run, whose plan is `l`. LS_BAD_FILE: comm.json is broken. */
ls_status ls_step_split_of(const ls_explained *e, const ls_explain_layout *l, ls_step_split *out);
/* The cause in one line, which ends with a newline; and the numbers with the recommendation. */
void ls_step_split_cause(const ls_step_split *s, ls_text *out);
void ls_step_split_text(const ls_step_split *s, ls_text *out);
/* A JSON object. */
void ls_step_split_json(const ls_step_split *s, ls_text *out);

#endif
