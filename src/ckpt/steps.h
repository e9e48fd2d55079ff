/* steps.h -- the folders step-XXXXXXXX of a run's checkpoints, by name. */
#ifndef LS_CKPT_STEPS_H
#define LS_CKPT_STEPS_H
#include <stddef.h>
#include <stdint.h>
#include "lockstep/status.h"

#define LS_STEPS_NAMES_BYTES ((size_t)1 << 18) /* of one folder's entries */

/* Of `count` sorted names, as ls_env.list gives them, the newest step folder before `than` (NULL: of all). NULL: none.
 * */
const char *ls_steps_newest(const char *names, int count, const char *than);
#define LS_STEPS_BEST "best" /* the file beside them that names the best one */
/* A path that a user names: if it is such a file, the folder that it names, else the path as it is, into out[n].
 * LS_BAD_FILE: the file has no name of a step folder. LS_IO. */
ls_status ls_steps_resolve(const char *path, char *out, size_t n);
/* The number in such a name. */
int64_t ls_steps_number(const char *name);

#endif
