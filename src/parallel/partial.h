/* partial.h -- sums of a step's gradients over its micro-batches as a binary tree (ls_ddp_config.tree).
 *
 * Backward k (from 0) completes as many pairs as k has trailing one bits, as a binary counter carries: a partial sum of
 * 2^b neighbours waits at level b until the next 2^b are summed. The step's last backward adds up all that waits. Where
 * every backward is reduced, the sums are those of this rank's rows over all ranks, and level 0 is where the optimizer
 * reads (ls_param.dmaster); else they are this rank's own gradients, and only the last sum is reduced.
 */
#ifndef LS_PARALLEL_PARTIAL_H
#define LS_PARALLEL_PARTIAL_H
#include "parallel/strategy.h"

/* Once the buckets are there. Without ls_ddp_config.tree it does nothing. LS_UNSUPPORTED: find_unused, static_graph. */
ls_status ls_partial_create(ls_ddp *d);
void ls_partial_destroy(struct ls_partial *x); /* NULL is fine */
/* Before each forward; `last`: its backward is the step's last. LS_INVALID: the step has more backwards than
 * ls_ddp_config.micro_batches. */
ls_status ls_partial_begin(ls_ddp *d, bool last);
/* Once the strategy has placed its buckets for this backward. Where only the last one is reduced, gradients that begin
 * a pair are written where they wait, not into their buckets. */
void ls_partial_place(ls_ddp *d);
/* Parameter i has its gradient of this backward. Where only the last one is reduced, it goes to the sums that wait, or,
 * of the last one, gets them. */
void ls_partial_grad_ready(ls_ddp *d, int i);
/* Whether nothing waits for the sums of this backward: its reduced rows belong into ls_param.dmaster as they are. */
bool ls_partial_begins(const ls_ddp *d);
/* Where every backward is reduced: the reduced rows of parameter i. */
void ls_partial_rows(ls_ddp *d, int i, const float *rows);

#endif
