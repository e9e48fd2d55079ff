/* slots.h -- memory for gradients that lasts as long as they are needed: a rank keeps the sums of its own rows, and what
 * backward writes stands in one of two slots, which the units use in turn.
 *
 *   unit          h.11   h.10   h.9    h.8   ...           root: what several units use
 *   its slot         0      1      0      1   ...           a place of its own for the whole backward
 *
 * A unit's backward begins when the gradients that its slot had before are reduced. So while one unit is computed, the
 * gradients of the one before travel. A model without units has a root alone: its gradients are whole.
 */
#ifndef LS_PARALLEL_SLOTS_H
#define LS_PARALLEL_SLOTS_H
#include "lockstep/unit.h"
#include "parallel/shard.h"

#define LS_SLOTS 2

typedef struct ls_slots ls_slots;

/* ls_shard_how.grads: memory for the sums of own rows (ls_param.dmaster), in `own`. */
ls_status ls_slots_bind(ls_group *g, ls_params *ps, const ls_shard_plan *l, ls_dtype dtype, ls_arena *own);
/* After ls_shard_place with buckets that are cut at units: memory for what backward writes, in the world's arena. */
ls_status ls_slots_create(ls_ddp *d, ls_slots **out);
void ls_slots_destroy(ls_slots *s); /* NULL is fine */

/* Before a backward that is reduced: the root's gradients get their place. */
void ls_slots_begin(ls_slots *s, ls_ddp *d);
/* A unit's backward begins: its gradients get their slot, once that is free. LS_INVALID names a parameter of the unit
 * that has it, where one has got no gradient. */
ls_status ls_slots_enter(ls_slots *s, ls_ddp *d, const ls_unit *u);
/* ls_dp_strategy.arrived: this rank's rows of the sums go to where they stay, or are added there. */
ls_status ls_slots_arrived(ls_ddp *d, int k);
/* ls_shard_how.lend, one parameter at a time. */
float *ls_slots_lend(const ls_slots *s, const ls_ddp *d, const ls_param *p);

#endif
