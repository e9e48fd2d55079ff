/* problem.h -- a query that is resolved: its device and constants, the ranks of a node, and rules of layouts. */
#ifndef LS_PLAN_PROBLEM_H
#define LS_PLAN_PROBLEM_H
#include "plan/cost.h"

enum { LS_SCHEDULES = 96 };

/* A schedule, and how layers are divided into its chunks. */
typedef struct ls_schedule {
    ls_pipe_form form;
    int64_t v;
    int fewer;
} ls_schedule;

typedef struct ls_problem {
    const ls_layout_query *q;
    ls_device_sheet device;
    double k[LS_K_COUNT]; /* constants, scaled from the cluster that was measured to this one */
    double coll[LS_COLL_CLASSES][LS_C_COUNT]; /* those of collectives, likewise */
    double memory, hop_in, level_net[LS_TOPO_MOST_LEVELS];
    int64_t node;         /* ranks that share one */
    int stack;
    bool flash;
    unsigned schedules;
} ls_problem;

ls_status ls_problem_of(const ls_layout_query *q, ls_problem *out);
/* Of degrees alone: tp, cp, ep, pp and dp (layout's v, micro, ... are not read). */
ls_refusal ls_degrees_refused(const ls_problem *b, const ls_layout *l);
/* Schedules of so many stages, in the order of ls_pipe_form and v; returns how many. */
int ls_schedules_of(const ls_problem *b, int64_t p, ls_schedule out[LS_SCHEDULES]);
/* LS_REFUSE_NONE or LS_REFUSE_MICRO: so many micro-batches. */
ls_refusal ls_schedule_refused(const ls_schedule *s, int64_t p, int64_t m);
/* LS_REFUSE_NONE or LS_REFUSE_ZERO. */
ls_refusal ls_zero_refused(int zero, int64_t replicas, int64_t m);
/* Whether the query has them; attention in one kernel keeps no scores, so that selective recomputation is none. */
bool ls_zero_searched(const ls_problem *b, int zero);
bool ls_kept_searched(const ls_problem *b, int kept);
/* The layout as a run, legal or not; and its place again after a change of p_in or d_in. */
void ls_layout_run(const ls_problem *b, const ls_layout *l, ls_run *out);
void ls_layout_place(const ls_problem *b, const ls_layout *l, ls_spans *out);

#endif
