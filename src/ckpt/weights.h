/* weights.h -- a model's values and what is said of them, in whichever form Lockstep has saved them: one safetensors
 * file, or a checkpoint of all ranks, which is a folder. */
#ifndef LS_CKPT_WEIGHTS_H
#define LS_CKPT_WEIGHTS_H
#include "lockstep/ckpt.h"
#include "lockstep/state.h"

typedef struct ls_weights {
    ls_ckpt *file;         /* owned: one of the two, */
    ls_checkpoint *folder; /* and the other is NULL */
} ls_weights;

/* Whether `path` is a checkpoint of all ranks without the whole model in one file. */
bool ls_weights_are_sharded(const char *path);
/* LS_BAD_FILE, LS_CKPT_CORRUPT, LS_IO as in ls_ckpt_open and ls_checkpoint_open. */
ls_status ls_weights_open(const char *path, ls_weights *out);
const char *ls_weights_meta(const ls_weights *w, const char *key); /* NULL if absent */
void ls_weights_close(ls_weights *w);

#endif
