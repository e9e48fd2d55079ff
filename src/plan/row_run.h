/* row_run.h -- a row's configuration as a run that has a cost. */
#ifndef LS_PLAN_ROW_RUN_H
#define LS_PLAN_ROW_RUN_H
#include "plan/cost.h"
#include "plan/row.h"

/* LS_UNSUPPORTED: what is missing, or what is not understood, is the message. */
ls_status ls_row_run(const ls_row *r, ls_run *out);
/* Whether a word is among others, which blanks separate; "" is none. */
bool ls_among(const char *words, const char *word);

#endif
