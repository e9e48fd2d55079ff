/* group.h -- process groups, collectives, work handles.
 *
 * Collectives of one group are matched in call order on every rank; groups
 * never block one another. Buffers belong to a collective from start to wait.
 * Memory from ls_alloc() (registered) is reduced in place by peers, without a
 * copy; other memory works and is staged.
 */
#ifndef LS_GROUP_H
#define LS_GROUP_H
#include <stddef.h>
#include <stdint.h>
#include "lockstep/dtype.h"
#include "lockstep/sched.h"
#include "lockstep/world.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ls_work ls_work;

typedef struct ls_coll_args {
    ls_coll coll;
    const void *in;    /* NULL or == out: in place */
    void *out;
    size_t count;      /* elements of the whole vector: for all_gather and reduce_scatter too,
                          rank r's share is ls_shard_range(count, r, size) of it */
    ls_dtype dtype;
    ls_redop op;
    int root;          /* rank in the group, where it matters */
    int peer;          /* LS_SENDRECV: see ls_send, ls_recv */
    const char *label; /* borrowed until wait; shows in traces and errors: "bucket 3"; may be NULL */
} ls_coll_args;

/* Starts, does not wait. *out is valid until ls_work_wait. Before any byte
 * moves: LS_INVALID for a bad dtype, op, root or NULL buffer, or a group that
 * an earlier failure has made unusable. */
ls_status ls_coll_start(ls_group *g, const ls_coll_args *a, ls_work **out);
/* LS_OK when complete, LS_AGAIN while in flight; does not free. */
ls_status ls_work_test(ls_work *w);
/* Blocks, frees w also on failure. LS_COLL_MISMATCH names both descriptions,
 * LS_RANK_HUNG whom we wait for and where that rank is. NULL returns LS_OK. */
ls_status ls_work_wait(ls_work *w);

/* Blocking forms: start and wait. `op` LS_AVG multiplies every contribution by
 * 1/size before the sum (PyTorch DDP's order). in == NULL: in place. */
ls_status ls_all_reduce(ls_group *g, const void *in, void *out, size_t count, ls_dtype dtype, ls_redop op);
ls_status ls_reduce_scatter(ls_group *g, const void *in, void *out, size_t count, ls_dtype dtype, ls_redop op);
ls_status ls_all_gather(ls_group *g, const void *in, void *out, size_t count, ls_dtype dtype);
ls_status ls_broadcast(ls_group *g, void *buf, size_t count, ls_dtype dtype, int root);
ls_status ls_barrier(ls_group *g);
/* Matched in order per pair of ranks; blocking, after everything started on the group before. */
ls_status ls_send(ls_group *g, const void *buf, size_t count, ls_dtype dtype, int peer);
ls_status ls_recv(ls_group *g, void *buf, size_t count, ls_dtype dtype, int peer);

/* Gives collectives in flight up to budget_ns of this thread (a poke point).
 * A no-op when a progress thread owns them. */
ls_status ls_progress(ls_world *w, uint64_t budget_ns);

/* Every rank of `parent` calls it; ranks with equal color >= 0 form a group, in
 * parent's order; color < 0: *out is NULL. Destroy before the parent. */
ls_status ls_group_split(ls_group *parent, int color, ls_group **out);
/* Every member calls it, overlapping groups in the same order. NULL and the world's group are left alone. */
void ls_group_destroy(ls_group *g);
int ls_group_rank(const ls_group *g);
int ls_group_size(const ls_group *g);
ls_world *ls_group_world(ls_group *g);
/* The world rank of a rank of the group. */
int ls_group_world_rank(const ls_group *g, int rank);

/* What moved so far on this rank. `bytes` counts payload read from or written
 * to memory another rank owns, or sent on a wire. */
typedef struct ls_comm_stats {
    uint64_t ops, bytes;
    uint64_t exposed_ns; /* time blocked in ls_work_wait, works of 4 KiB and more (blocking calls: 1 MiB) */
    uint64_t busy_ns;    /* time with such works of a group in flight: overlapping ones count once */
} ls_comm_stats;
void ls_comm_stats_read(const ls_world *w, ls_comm_stats *out);

#ifdef __cplusplus
}
#endif
#endif
