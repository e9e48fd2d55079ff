/* reshard.h -- a checkpoint as another number of ranks would have written it. */
#ifndef LS_CKPT_RESHARD_H
#define LS_CKPT_RESHARD_H
#include "lockstep/state.h"

/* Writes the folder `out`, which must not be there: every tensor of c, divided over `ranks` files by ls_shard_range of
 * its first dimension, what ls_state_add has added in the first one, and the files beside sharded/ as they are. Step
 * and generation are those of c, all bytes of which are checked first. Holds one rank's part in memory. LS_INVALID:
 * fewer than one rank. LS_UNSUPPORTED: another program wrote c. LS_CKPT_CORRUPT, LS_CKPT_FAILED, LS_IO. */
ls_status ls_checkpoint_reshard(ls_checkpoint *c, int ranks, const char *out);

#endif
