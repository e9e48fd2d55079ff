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
#include "coll/reduce.h"
#include "lockstep/optim.h"

/* One parameter's update. */
typedef struct ls_update {
    size_t n;
    float *p;
    const float *g;
    void *bf16;       /* [n]: gets a copy of p; NULL: none */
    float grad_scale; /* times g, first */
    bool decay;
} ls_update;

/* With a copy to make, the pass goes in pieces that are still in the first-level cache when they are copied. */
#define LS_UPDATE_PIECE 1024

static inline size_t ls_update_piece(const ls_update *u, size_t at)
{
    return u->bf16 && u->n - at > LS_UPDATE_PIECE ? LS_UPDATE_PIECE : u->n - at;
}

static inline void ls_update_copy(const ls_update *u, size_t at, size_t n)
{
    if (u->bf16) ls_narrow((char *)u->bf16 + 2 * at, u->p + at, n);
}

/* buffer [n] is NULL when momentum is 0, and all zero before the first step. */
void ls_sgd_update(const ls_optim_config *c, const ls_update *u, float *buffer);

/* exp_avg, exp_avg_sq [n]; step counts this parameter's updates from 1. `decoupled`: AdamW. */
void ls_adam_update(const ls_optim_config *c, bool decoupled, int64_t step, const ls_update *u, float *exp_avg,
                    float *exp_avg_sq);

#endif
