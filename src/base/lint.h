/* lint.h -- calls of a program that `lockstep run --lint` judges: one JSON line for each, appended to the file that the
 * environment variable LOCKSTEP_LINT names. Without the variable nothing is written. For calls that are rare. */
#ifndef LS_BASE_LINT_H
#define LS_BASE_LINT_H
#include <stdbool.h>

#define LS_LINT_VARIABLE "LOCKSTEP_LINT"

bool ls_lint_on(void);
/* {"rank": <RANK of the environment>, "call": "<call>"<more>}; `more` begins with a comma, or is "". A file that cannot
 * be written ends no program. */
void ls_lint_note(const char *call, const char *more);
/* The same with text made of a format; at most 4 KiB. */
void ls_lint_notef(const char *call, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
