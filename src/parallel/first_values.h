/* first_values.h -- initial values of parameters for which a rank has no memory to store all of them.
 *
 * Rank 0's values are used on every rank. Rank 0 writes one parameter at a time into a buffer of the size of the
 * largest parameter and broadcasts it. Each rank then rounds its bf16 copy from the buffer and saves the f32 values
 * of its own rows. If ranks read one shared f32 copy, rank 0 writes there, and nothing is broadcast, except to the
 * further copies: of other sets in hybrid sharding, and of other nodes.
 */
#ifndef LS_PARALLEL_FIRST_VALUES_H
#define LS_PARALLEL_FIRST_VALUES_H
#include "lockstep/dp.h"
#include "lockstep/nn.h"

/* Gives the parameters a sink (ls_params.sink). It receives the values of each parameter that has f32 master
 * weights for this rank's rows (ls_param.master), and with `one_copy` (all ranks read the same memory) of every
 * parameter. The parameters must be bound: own, and master or t.data. The ledger counts the buffer as activations,
 * because there are no activations yet. Every rank of the group calls it. LS_CONFIG_MISMATCH: the ranks' models
 * differ. */
ls_status ls_first_values_create(ls_group *g, ls_params *ps, const ls_ddp_config *c, bool one_copy);
/* Destroys the sink after initialization. LS_INVALID names a parameter whose initial values are missing; a dry
 * world has none, so there this call replays the collectives that would have distributed them. */
ls_status ls_first_values_end(ls_group *g, ls_params *ps);

#endif
