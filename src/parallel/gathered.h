/* gathered.h -- sharded parameter values (FSDP). Each rank stores the f32 values of its own rows (ls_param.master).
 * All ranks all_gather the values of a unit before its forward and before its backward.
 *
 *   forward     | embedding | h.0      | h.1      | ...     memory: one slot for the unit in use, and one for each unit
 *   all_gather    h.0         h.1        h.2        ...     that is gathered ahead (ls_ddp_config.prefetch)
 *
 * There is one all_gather per unit. Values that operations read in bf16 are rounded by their owner and travel in
 * bf16. The root's values are gathered once per step and stay until its end.
 *
 * Zhao et al., "PyTorch FSDP: Experiences on Scaling Fully Sharded Data Parallel", 2023.
 */
#ifndef LS_PARALLEL_GATHERED_H
#define LS_PARALLEL_GATHERED_H
#include "lockstep/unit.h"
#include "parallel/strategy.h"

typedef struct ls_gathered ls_gathered;

/* Call it after ls_shard_place, with buckets that end at unit boundaries. */
ls_status ls_gathered_create(ls_ddp *d, ls_gathered **out);
void ls_gathered_destroy(ls_gathered *v); /* NULL is fine */

/* At the start of a unit's forward or backward: waits for its values and the root's, and starts to gather those of the
 * next units. */
ls_status ls_gathered_enter(ls_gathered *v, const ls_unit *u, bool backward);
/* At the end of a unit's forward or backward: releases its values unless they are needed soon. `returns`: a
 * backward will follow this forward. */
void ls_gathered_leave(ls_gathered *v, const ls_unit *u, bool backward, bool returns);
/* After an optimizer step: releases all gathered values, because their owners have newer ones. */
ls_status ls_gathered_expire(ls_gathered *v);

#endif
