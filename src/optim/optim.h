/* optim.h -- what the optimizers' files share: one fused pass each, shared out to all threads.
 *
 * Every pass reads and writes element by element, in PyTorch's order of
 * operations and in float. Where PyTorch's kernels fuse a multiplication into
 * an addition these say so with fmaf, and nowhere else does the compiler: the
 * bits do not depend on the instruction set, on alignment, on the number of
 * threads, or on how a parameter is cut into shards.
 */
#ifndef LS_OPTIM_OPTIM_H
#define LS_OPTIM_OPTIM_H
#include <stdint.h>

#include "lockstep/optim.h"

/* One parameter's update. */
typedef struct ls_update {
    int64_t n;
    float *p;
    const float *g;
    uint16_t *bf16;   /* [n]: gets a copy of p; NULL: none */
    float grad_scale; /* times g, first */
    bool decay;
} ls_update;

/* buffer [n] is NULL when momentum is 0, and all zero before the first step. */
void ls_sgd_update(const ls_optim_config *c, const ls_update *u, float *buffer);

/* exp_avg, exp_avg_sq [n]; step counts this parameter's updates from 1. `decoupled`: AdamW. */
void ls_adam_update(const ls_optim_config *c, bool decoupled, int64_t step, const ls_update *u, float *exp_avg,
                    float *exp_avg_sq);

#endif
