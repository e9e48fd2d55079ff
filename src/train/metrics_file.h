/* metrics_file.h -- reading metrics.jsonl of a run's folder. */
#ifndef LS_TRAIN_METRICS_FILE_H
#define LS_TRAIN_METRICS_FILE_H
#include <jansson.h>
#include <stdint.h>
#include "lockstep/status.h"

/* Calls `line` for each line of FOLDER/metrics.jsonl, in order, until it fails. A last line without an end was being
 * written and is left out. LS_BAD_FILE: there is no such file, or a line is no JSON object with a step. */
typedef ls_status (*ls_metrics_line)(void *arg, int64_t step, const json_t *j);
ls_status ls_metrics_read(const char *folder, ls_metrics_line line, void *arg);
/* The number of a key; NAN: it is missing or not finite. */
double ls_metrics_number(const json_t *line, const char *key);

#endif
