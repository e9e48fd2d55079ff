/* first_values.h -- first values of parameters that a rank has no memory for all of.
 *
 * Those of rank 0 count, for every rank. One parameter after another is written into memory for the largest one, on rank
 * 0 alone, and goes from there to all ranks, each of which rounds its copy and keeps the floats of its own rows. Where
 * all ranks read one copy in float, rank 0 writes there, and nothing travels.
 */
#ifndef LS_PARALLEL_FIRST_VALUES_H
#define LS_PARALLEL_FIRST_VALUES_H
#include "lockstep/group.h"
#include "lockstep/nn.h"

/* The parameters' sink (ls_params.sink) for those of which a rank keeps the floats of its own rows (master), and with
 * `one_copy` (all ranks read the same memory) for all. They are bound: own, and master or t.data. The memory is of kind
 * activations: there are none yet. Every rank of the group calls it; LS_CONFIG_MISMATCH if their models differ. */
ls_status ls_first_values_create(ls_group *g, ls_params *ps, bool one_copy);
/* All first values have come. LS_INVALID names a parameter whose have not; in a dry world they come by this call. */
ls_status ls_first_values_end(ls_group *g, ls_params *ps);

#endif
