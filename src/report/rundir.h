/* rundir.h -- the folder of a run: config, metrics, checkpoints, traces. */
#ifndef LS_REPORT_RUNDIR_H
#define LS_REPORT_RUNDIR_H
#include <stddef.h>
#include <stdint.h>
#include "base/file.h"
#include "base/text.h"
#include "lockstep/status.h"

/* Makes the folder (parents too) and `checkpoints` in it. `dir` "" means runs/<name>, with the first suffix -2, -3, ...
 * that is free when that exists. Any other `dir` is used as it is: LS_BAD_CONFIG when it exists and is not an empty
 * folder, so that no run is ever overwritten. `out` gets the path. */
ls_status ls_rundir_create(const char *dir, const char *name, char *out, size_t n);
/* The same for a run that goes on in its folder, or begins in it: it may exist. */
ls_status ls_rundir_continue(const char *dir, char *out, size_t n);
/* Leaves of metrics.jsonl, if there is one, the lines of the steps up to `step`. */
ls_status ls_rundir_cut_metrics(const char *path, int64_t step);
/* Whether ls_rundir_create would refuse `dir` because it exists: asked before a job starts. Makes nothing. */
ls_status ls_rundir_check(const char *dir);

/* The checkpoint that a user names: the file itself, the file of a folder that has model.safetensors, a checkpoint's
 * folder that has it in the ranks' files alone, the one that a run folder's checkpoints/best names, or the newest whole
 * one of its checkpoints/step-XXXXXXXX; one line of the log names each that is skipped because it is not whole.
 * LS_BAD_FILE: there is none. */
ls_status ls_rundir_checkpoint(const char *name, ls_text *out);

#endif
