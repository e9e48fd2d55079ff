/* plan_check.h -- a run beside its prediction (predicted.h), term by term. */
#ifndef LS_PLAN_CHECK_H
#define LS_PLAN_CHECK_H
#include "base/text.h"
#include "lockstep/status.h"

/* predicted.json of a run's folder beside what the run measured. LS_BAD_FILE: there is no prediction, or a file is
 * broken; LS_BAD_CONFIG: the run has too few steps to compare. */
ls_status ls_plan_check_run(const char *folder, bool json, ls_text *out);

#endif
