/* optim.h -- what the optimizers' files share: one fused pass each.
 *
 * Every pass reads and writes element by element, in PyTorch's order of
 * operations and in float. Where PyTorch's kernels fuse a multiplication into
 * an addition these say so with fmaf, and nowhere else does the compiler: the
 * bits do not depend on the instruction set, on alignment, or on how a
 * parameter is cut into shards.
 */
#ifndef LS_OPTIM_OPTIM_H
#define LS_OPTIM_OPTIM_H
#include <stdint.h>
#include "lockstep/optim.h"

/* p, g, buffer [n]. buffer is NULL when momentum is 0, and all zero before the first step. */
void ls_sgd_update(const ls_optim_config *c, size_t n, float *p, const float *g, float *buffer);

/* p, g, exp_avg, exp_avg_sq [n]; step counts this parameter's updates from 1. `decoupled`: AdamW. */
void ls_adam_update(const ls_optim_config *c, bool decoupled, int64_t step, size_t n, float *p, const float *g,
                    float *exp_avg, float *exp_avg_sq);

#endif
