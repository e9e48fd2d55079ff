/* score.h -- predictions of published rows beside what was measured. */
#ifndef LS_PLAN_SCORE_H
#define LS_PLAN_SCORE_H
#include "base/text.h"
#include "plan/predict.h"

/* A line per row, `id,metric,predicted,low90,high90,measured,error_pct`; what is not predicted, and why; a table of
 * families, beside the null model: the file's median part of the device's peak, or median value. */
ls_status ls_score(const ls_rows *rows, ls_text *out);

#endif
