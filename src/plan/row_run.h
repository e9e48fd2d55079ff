/* row_run.h -- a row's configuration as a run, or a collective, that has a cost. */
#ifndef LS_PLAN_ROW_RUN_H
#define LS_PLAN_ROW_RUN_H
#include "plan/coll_cost.h"
#include "plan/cost.h"
#include "plan/row.h"

/* LS_UNSUPPORTED: what is missing, or what is not understood, is the message. */
ls_status ls_row_run(const ls_row *r, ls_run *out);
/* LS_UNSUPPORTED: the row is no measurement of a collective, or does not state the message. */
ls_status ls_row_coll(const ls_row *r, ls_coll_run *out);
/* What the row measures where the collective takes so many seconds, and the reverse. */
double ls_coll_value(const ls_row *r, const ls_coll_run *run, double seconds);
double ls_coll_measured(const ls_row *r, const ls_coll_run *run);
/* Whether a word is among others, which blanks separate; "" is none. */
bool ls_among(const char *words, const char *word);

#endif
