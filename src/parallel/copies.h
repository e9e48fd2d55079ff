/* copies.h -- hybrid sharding (HSDP): several ranks hold the same shard. The ranks of a node usually hold one set of
 * shards, and the nodes hold copies of it.
 *
 *   ranks     0     1  |  2     3        4 ranks, 2 copies of the sharded whole
 *   shard     a     b  |  a     b        ls_ddp_config.shards: 0 1 and 2 3; copies: 0 2 and 1 3
 *
 * Over wires a bucket is reduce_scattered among the ranks of a set. Its sums are then all_reduced among the ranks that
 * hold the same shard, in the backward that completes the gradients of a step. So of P bytes of parameters, with S
 * shards in each of C sets, a rank sends P (S - 1) / S within its set and 2 P / S (C - 1) / C to other sets. If all
 * ranks map each other's memory, there is one all_reduce over all of them instead (fsdp.c), and this file is not used.
 *
 * Zhao et al., "PyTorch FSDP: Experiences on Scaling Fully Sharded Data Parallel", 2023, section 3.2.2.
 */
#ifndef LS_PARALLEL_COPIES_H
#define LS_PARALLEL_COPIES_H
#include "parallel/strategy.h"

typedef struct ls_copies ls_copies;

/* Call it after ls_shard_place with sums of own rows (ls_param.dmaster), a bucket's side by side. */
ls_status ls_copies_create(ls_ddp *d, ls_copies **out);
/* Waits for what is in flight. NULL is fine. */
void ls_copies_destroy(ls_copies *x);

/* The sums of bucket k are complete within this set: starts to add those of the others. */
ls_status ls_copies_start(ls_copies *x, int k);
/* Waits for all that was started. Returns the first failure; nothing is in flight then, either. */
ls_status ls_copies_finish(ls_copies *x);

#endif
