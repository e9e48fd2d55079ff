/* slots.h -- memory for sharded gradients (ZeRO stage 2). Each rank stores reduced gradients of its own rows only.
 * Backward writes a unit's local gradients to one of two slots, and units alternate between the slots.
 *
 *   unit          h.11   h.10   h.9    h.8   ...           root: parameters that several units use
 *   its slot         0      1      0      1   ...           its own memory for the whole backward
 *
 * A unit's backward starts once the gradients that its slot contained before are reduced. So the gradients of one
 * unit are reduced while the next unit is computed. In a model without units all parameters belong to the root, so
 * each rank has memory for all gradients.
 */
#ifndef LS_PARALLEL_SLOTS_H
#define LS_PARALLEL_SLOTS_H
#include "lockstep/unit.h"
#include "parallel/shard.h"

#define LS_SLOTS 2

typedef struct ls_slots ls_slots;

/* ls_shard_how.grads: allocates, in `own`, the reduced gradients of this rank's rows (ls_param.dmaster). */
ls_status ls_slots_bind(ls_group *g, ls_params *ps, const ls_shard_plan *l, ls_dtype dtype, ls_arena *own);
/* Allocates the slots in the world's arena. Call it after ls_shard_place, with buckets that end at unit boundaries. */
ls_status ls_slots_create(ls_ddp *d, ls_slots **out);
void ls_slots_destroy(ls_slots *s); /* NULL is fine */

/* Before a backward that is reduced: assigns the root's memory to its gradients. */
void ls_slots_begin(ls_slots *s, ls_ddp *d);
/* At the start of a unit's backward: waits until its slot is free, and assigns the slot to its gradients.
 * LS_INVALID names a parameter of the slot's previous unit that got no gradient, since that unit cannot be
 * reduced. */
ls_status ls_slots_enter(ls_slots *s, ls_ddp *d, const ls_unit *u);
/* ls_dp_strategy.arrived: adds this rank's rows of bucket k to its reduced gradients, unless they are there. */
ls_status ls_slots_arrived(ls_ddp *d, int k);
/* ls_shard_how.lend: memory for the f32 values of one parameter at a time. */
float *ls_slots_lend(const ls_slots *s, const ls_ddp *d, const ls_param *p);

#endif
