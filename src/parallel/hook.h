/* hook.h -- how DDP calls a communication hook (lockstep/hook.h). */
#ifndef LS_PARALLEL_HOOK_H
#define LS_PARALLEL_HOOK_H
#include "lockstep/hook.h"
#include "parallel/strategy.h"

static inline bool ls_hook_dry(ls_group *g) { return ls_world_is_dry(ls_group_world(g)); }

/* Starts the reduction of bucket k by d->hook; ls_hook_finish ends it after d->b[k].work, if there is one. */
ls_status ls_hook_start(ls_ddp *d, int k);
ls_status ls_hook_finish(ls_ddp *d, int k);

#endif
