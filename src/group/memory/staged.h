/* staged.h -- long vectors in private memory, piece by piece through slots. */
#ifndef LS_GROUP_MEMORY_STAGED_H
#define LS_GROUP_MEMORY_STAGED_H
#include "group/form.h"

/* For the calling thread, before a long work is numbered: memory for what is private. */
void ls_staged_prepare(ls_work *k);
/* The work becomes staged, since somebody's memory is private. LS_AGAIN, or a failure. */
ls_status ls_staged_start(ls_work *k);
/* Says once per group that the caller's private memory costs a copy. */
void ls_hint_private(const ls_work *k);

#endif
