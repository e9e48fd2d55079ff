/* gathered.h -- values that a rank has whole only while they are computed with: it keeps the floats of its own rows
 * (ls_param.master), and all ranks put a unit's values together before its forward and before its backward.
 *
 *   forward     | embedding | h.0      | h.1      | ...     one slot for the unit at hand, and one for each unit that
 *   gathering     h.0         h.1        h.2        ...     is gathered ahead of its use (ls_ddp_config.prefetch)
 *
 * A unit is one all_gather. What ops read in bf16 is rounded from floats by its owner and travels in bf16. The root's
 * values are gathered once a step and stay until its end.
 *
 * Zhao et al., "PyTorch FSDP: Experiences on Scaling Fully Sharded Data Parallel", 2023.
 */
#ifndef LS_PARALLEL_GATHERED_H
#define LS_PARALLEL_GATHERED_H
#include "lockstep/unit.h"
#include "parallel/strategy.h"

typedef struct ls_gathered ls_gathered;

/* After buckets that are cut at units were made. */
ls_status ls_gathered_create(ls_ddp *d, ls_gathered **out);
void ls_gathered_destroy(ls_gathered *v); /* NULL is fine */

/* A unit's forward or backward begins: its values, and the root's, are there when it returns, and those of the next
 * units are on their way. */
ls_status ls_gathered_enter(ls_gathered *v, const ls_unit *u, bool backward);
/* It is over. `returns`: a backward will come back to it. */
void ls_gathered_leave(ls_gathered *v, const ls_unit *u, bool backward, bool returns);
/* Owners have new values: nobody reads the old ones any more. */
ls_status ls_gathered_expire(ls_gathered *v);

#endif
