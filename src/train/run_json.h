/* run_json.h -- `lockstep train --json`: one JSON object about the run, after its last line (docs/formats.md).
 *
 * Rank 0 collects losses and buckets while the run goes on. At its end every rank tells the others what its newest step
 * moved, by collective, and the memory that it has had in use.
 */
#ifndef LS_TRAIN_RUN_JSON_H
#define LS_TRAIN_RUN_JSON_H
#include "lockstep/status.h"

struct ls_trainer;
struct ls_step_stats;
typedef struct ls_run_json ls_run_json;

#define LS_RUN_JSON_LOSSES 1000 /* losses and norms of so many steps, the first of this process */

/* NULL in *out without --json; the other calls then do nothing. On every rank. */
ls_status ls_run_json_open(const struct ls_trainer *t, ls_run_json **out);
/* After a step. */
void ls_run_json_step(ls_run_json *j, const struct ls_trainer *t, const struct ls_step_stats *s);
/* Once the run is over: every rank calls it, rank 0 prints. `digest` is that of all parameters. */
ls_status ls_run_json_print(ls_run_json *j, const struct ls_trainer *t, double loss, const char *digest);
void ls_run_json_close(ls_run_json *j);

#endif
