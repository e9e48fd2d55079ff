/* optim.h -- what the optimizers' files share: one pass over a parameter each, shared out to all threads.
 *
 * Every pass reads and writes element by element, in PyTorch's order of
 * operations and in float. Where PyTorch's kernels fuse a multiplication into
 * an addition these say so with fmaf, and nowhere else does the compiler: the
 * bits do not depend on the instruction set, on alignment, on the number of
 * threads, or on how a parameter is cut into shards.
 */
#ifndef LS_OPTIM_OPTIM_H
#define LS_OPTIM_OPTIM_H
#include "lockstep/optim.h"

/* check.c: LS_BAD_CONFIG, naming the setting, unless a value is finite and >= 0 (`below` 0), or in [0, below). */
typedef struct ls_optim_rule {
    const char *what;
    double value, below;
} ls_optim_rule;
ls_status ls_optim_check(const char *name, const ls_optim_rule *rule, int n);

/* optim.c: what the optimizer updates; the hash of what it wrote last to parameter i. */
const ls_params *ls_optim_params(const ls_optim *o);
uint32_t ls_optim_hash_of(const ls_optim *o, int i);

#endif
