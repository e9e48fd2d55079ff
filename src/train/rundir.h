/* rundir.h -- the folder of a run: config, metrics, checkpoints, traces. */
#ifndef LS_TRAIN_RUNDIR_H
#define LS_TRAIN_RUNDIR_H
#include <stddef.h>
#include "base/file.h"
#include "base/text.h"
#include "lockstep/status.h"

/* Makes the folder (parents too) and `checkpoints` in it. `dir` "" means runs/<name>; a folder
 * that exists is never used again: a suffix -2, -3, ... is appended. `out` gets the path. */
ls_status ls_rundir_create(const char *dir, const char *name, char *out, size_t n);

/* The checkpoint that a user names: the file itself, the file of a folder that has model.safetensors, or the newest
 * whole one of a run folder's checkpoints/step-XXXXXXXX; one line of the log names each that is skipped because it is
 * not whole. LS_BAD_FILE: there is none. */
ls_status ls_rundir_checkpoint(const char *path, ls_text *out);

#endif
