/* steps.h -- the folders step-XXXXXXXX of a run's checkpoints, by name. */
#ifndef LS_CKPT_STEPS_H
#define LS_CKPT_STEPS_H
#include <stddef.h>
#include <stdint.h>

#define LS_STEPS_NAMES_BYTES ((size_t)1 << 18) /* of one folder's entries */

/* Of `count` sorted names, as ls_env.list gives them, the newest step folder before `than` (NULL: of all). NULL: none.
 * */
const char *ls_steps_newest(const char *names, int count, const char *than);
/* The number in such a name. */
int64_t ls_steps_number(const char *name);

#endif
