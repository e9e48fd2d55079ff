/* predict.h -- what a published row's configuration is expected to measure. */
#ifndef LS_PLAN_PREDICT_H
#define LS_PLAN_PREDICT_H
#include "plan/coll_cost.h"
#include "plan/cost.h"
#include "plan/row.h"

/* A device and its software: which rows share constants. */
typedef struct ls_stack {
    const char *name, *families; /* separated by blanks */
    const char *gpu;             /* how the device begins; "": any */
    enum { ANY, DENSE, MOE } model;
    const char *note;            /* of a row's note; "": any */
} ls_stack;

extern const ls_stack ls_stacks[]; /* the first that fits is a row's; name NULL at the end */
enum { LS_STACKS = 17 };
/* The row's; where no stack has its family, one of its device; -1: no device of the table. */
int ls_stack_of(const ls_row *r);
/* Megatron-LM's on this device. */
int ls_stack_of_device(const ls_device_sheet *d, bool experts);

/* constants.c, which `make fit` writes. */
extern const double ls_constants[LS_STACKS][LS_K_COUNT];
/* The median part of the devices' peak that measured steps with 16-bit products have, by stack, attention as if not
 * causal; 0: there were none. */
extern const double ls_null_mfu[LS_STACKS];
/* Measured over predicted (of a step and a collective, their times): the 5th and 95th percentile of held-out rows. */
typedef struct ls_interval {
    const char *family; /* NULL at the end */
    char what;          /* 's' a step, 'c' a collective, 'm' memory */
    double low, high;
} ls_interval;
extern const ls_interval ls_intervals[];
/* The same of all steps that a stack's constants were fitted to, whatever their family: a run that is in none. A stack
 * that was measured in fewer than LS_LEAST_CONFIGURATIONS has those of all stacks of its kind of device. */
enum { LS_LEAST_CONFIGURATIONS = 8 };
extern const ls_interval ls_stack_intervals[LS_STACKS];

/* Whether the metric follows from the time of a step. */
bool ls_metric_of_step(const char *metric);
/* What the row would measure if its step took so many seconds. */
ls_status ls_row_from_seconds(const ls_row *r, const ls_run *run, double seconds, double *value);

/* The row's prediction. `rows` have stage times that a bubble rate follows from. LS_UNSUPPORTED says why there is
 * none. */
ls_status ls_row_predict(const ls_row *r, const ls_rows *rows, double *value);
/* Between which values 90 % of such rows are expected. */
void ls_row_interval(const ls_row *r, double value, double *low, double *high);

#endif
