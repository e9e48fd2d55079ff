/* group.h -- process groups, collectives, work handles.
 *
 * Collectives of one group are matched in call order on every rank; groups
 * never block one another, and sends and receives (matched in order per pair
 * and direction) never wait for collectives. Buffers belong to an operation
 * from start to wait. Memory from ls_alloc() (registered) is read and reduced
 * in place by peers, without a copy; other memory works and is staged.
 *
 * Counts are of elements. Where ranks have shares of a vector (all_gather,
 * reduce_scatter, gather, scatter, all_to_all), rank r's part is
 * ls_shard_range(count, r, size), or, in the v-variants, counts[r] elements
 * after those of the ranks before it; a part may be empty.
 */
#ifndef LS_GROUP_H
#define LS_GROUP_H
#include <stddef.h>
#include <stdint.h>
#include "lockstep/dtype.h"
#include "lockstep/sched.h"
#include "lockstep/shard.h"
#include "lockstep/world.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ls_work ls_work;

/* A matrix in a vector: `rows` rows of `row` elements each, from element `first` on. A vector has rows of 1. */
typedef struct ls_matrix_span {
    size_t first, rows, row;
    const ls_range *part; /* borrowed: [size] the rows of each rank; no two ranks have the same row, and rows that no
                             rank has stay as they are. NULL: rank r has ls_shard_range(rows, r, size) */
} ls_matrix_span;

/* The order of its fields keeps it within 80 bytes: compilers clear a longer struct by a loop, which costs every call
 * about 10 ns. */
typedef struct ls_coll_args {
    ls_coll coll;
    ls_dtype dtype;
    const void *in;    /* NULL or == out: in place */
    void *out;
    size_t count;      /* elements of the whole vector. all_to_all: the total that one rank sends, a multiple of
                          the group's size. Ignored where counts are given */
    const size_t *counts; /* NULL: equal parts; else the sizes of [size] parts, read at start, not kept. all_gather,
                          reduce_scatter, gather, scatter: the same on every rank. all_to_all: what goes to each rank */
    const size_t *recv_counts; /* all_to_all with counts: what comes from each rank */
    const ls_matrix_span *span; /* reduce_scatter, all_gather: [nspans] matrices in the vector of `count` elements, in
                          ascending order, the same on every rank. Rank r's part is rows ls_shard_range(rows, r, size)
                          of each matrix, unless its `part` says otherwise; elements between matrices stay as they
                          are. The call is in place, except that reduce_scatter may be given the vector in `in` and an
                          `out` that receives the rows of this rank only, side by side. Borrowed until wait. If ranks
                          map each other's memory, the vector must be registered. NULL: none */
    int nspans;
    ls_redop op;
    int root;          /* rank in the group, where it matters */
    int bucket;        /* 1 + the number of the gradient bucket that it carries, for traces; 0: none */
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
/* The sum arrives on root; elsewhere `out` is not touched and may be NULL (then `in` must not be). */
ls_status ls_reduce(ls_group *g, const void *in, void *out, size_t count, ls_dtype dtype, ls_redop op, int root);
/* `in`: this rank's part (NULL on root: it is in `out` already); `out`: the whole vector, on root only. */
ls_status ls_gather(ls_group *g, const void *in, void *out, size_t count, ls_dtype dtype, int root);
/* `in`: the whole vector, on root only; `out`: this rank's part (NULL on root: it stays in `in`). */
ls_status ls_scatter(ls_group *g, const void *in, void *out, size_t count, ls_dtype dtype, int root);
/* Block d of `in` goes to rank d, block s of `out` comes from rank s; `count` a multiple of the group's size.
 * In place (in == NULL or out): through a copy. */
ls_status ls_all_to_all(ls_group *g, const void *in, void *out, size_t count, ls_dtype dtype);

/* Counts per rank. All but all_to_all: the same counts[size] on every rank (else LS_COLL_MISMATCH). */
ls_status ls_all_gather_v(ls_group *g, const void *in, void *out, const size_t *counts, ls_dtype dtype);
ls_status ls_reduce_scatter_v(ls_group *g, const void *in, void *out, const size_t *counts, ls_dtype dtype,
                              ls_redop op);
ls_status ls_gather_v(ls_group *g, const void *in, void *out, const size_t *counts, ls_dtype dtype, int root);
ls_status ls_scatter_v(ls_group *g, const void *in, void *out, const size_t *counts, ls_dtype dtype, int root);
ls_status ls_all_to_all_v(ls_group *g, const void *in, const size_t *send_counts, void *out,
                          const size_t *recv_counts, ls_dtype dtype);

/* Many small tensors as one collective: packed into registered scratch, reduced once, unpacked. The same
 * counts on every rank; bits as if each were reduced by the same algorithm alone. */
ls_status ls_all_reduce_coalesced(ls_group *g, void *const *tensor, const size_t *count, int ntensors, ls_dtype dtype,
                                  ls_redop op);

/* Matched in order per pair of ranks and direction, within the group; at most 2^37 - 1 elements; blocking. Both
 * directions of a pair, and other pairs, move meanwhile: two ranks that send to each other at once need ls_p2p_batch,
 * or start one and wait later. */
ls_status ls_send(ls_group *g, const void *buf, size_t count, ls_dtype dtype, int peer);
ls_status ls_recv(ls_group *g, void *buf, size_t count, ls_dtype dtype, int peer);
/* Started together, moved together, complete together: no order among them can deadlock. Exactly one of
 * send and recv is not NULL (a buffer of no elements may be any address). At most LS_P2P_BATCH. */
#define LS_P2P_BATCH 128
typedef struct ls_p2p {
    const void *send;
    void *recv;
    size_t count;
    ls_dtype dtype;
    int peer;
} ls_p2p;
ls_status ls_p2p_batch(ls_group *g, const ls_p2p *op, int n);
/* Starts one of them, does not wait: ls_work_test, ls_work_wait. `label` as in ls_coll_args. */
ls_status ls_p2p_start(ls_group *g, const ls_p2p *op, const char *label, ls_work **out);

/* Progresses collectives in flight on this thread, for up to budget_ns.
 * A no-op when a progress thread owns them. */
ls_status ls_progress(ls_world *w, uint64_t budget_ns);

/* Every rank of `parent` calls it; ranks with equal color >= 0 form a group, in
 * parent's order; color < 0: *out is NULL. Destroy before the parent. */
ls_status ls_group_split(ls_group *parent, int color, ls_group **out);
/* The same with a name for people ("tp"; up to 15 printable characters, the same on every member): errors, reports and
 * traces say "tp 0-3", the name and its ranks in the world. Without a name they say "ranks 0-3"; the world's group is
 * "world". LS_INVALID for another name. */
ls_status ls_group_split_named(ls_group *parent, int color, const char *name, ls_group **out);
/* The same where a rule says which color every rank of the parent gives, and each rank knows it. */
typedef int (*ls_color_fn)(const void *arg, int rank);
ls_status ls_group_split_by(ls_group *parent, ls_color_fn color, const void *arg, const char *name, ls_group **out);
/* A second group of the same ranks, with a name of its own: its collectives move while those of g do. On connections a
 * group carries out one collective after the other, so the second one uses the time in which the first one's messages
 * are on their way. Every member calls it. *out is NULL if members map each other's memory, if there is one member, or
 * if another library carries out collectives: then nothing would be gained. Destroy it before g. */
ls_status ls_group_second(ls_group *g, const char *name, ls_group **out);
/* "tp 0-3"; lives as long as the group. */
const char *ls_group_text(const ls_group *g);
/* Bytes that a group of `size` ranks takes of the shared arena of each when it is created. What private vectors,
 * schedules and messages need is taken when they come. It has all of that as long as it lives; a group that is created
 * later takes over what a destroyed one had. */
size_t ls_group_bytes(int size);
/* A caller who knows the largest vector of spans (ls_coll_args.span) that the group will work on, its matrices `nbytes`
 * together, says so first: where such vectors travel packed, on wires, there is one place for that in the arena, which
 * otherwise is replaced by a larger one as they come. LS_NO_MEMORY. */
ls_status ls_group_reserve_spans(ls_group *g, size_t nbytes);
/* Whether all members map each other's memory, as ranks of one node do unless a configuration says otherwise. All
 * members get the same answer. */
bool ls_group_is_mapped(const ls_group *g);
/* Allocates memory in rank 0's arena that all members read and write. Every member calls it. It lives as long as
 * the world. Members order their accesses by collectives. No ledger counts it: each member counts the bytes that
 * it is responsible for with ls_count_shared. LS_UNSUPPORTED: members do not map each other's memory. LS_NO_MEMORY
 * is returned on rank 0 only, while the other members wait. */
ls_status ls_group_alloc_shared(ls_group *g, size_t nbytes, ls_mem_kind kind, void **out);
/* Counts nbytes of shared memory in this rank's ledger, and in the row of a unit (-1: the root; LS_NO_UNIT: in no
 * row). */
#define LS_NO_UNIT (-2)
void ls_count_shared(ls_world *w, ls_mem_kind kind, int unit, size_t nbytes);
/* Every member calls it, overlapping groups in the same order. NULL and the world's group are left alone. Messages that
 * were sent in it and that their receiver has not asked for are discarded, with a warning of the receiver's. */
void ls_group_destroy(ls_group *g);
int ls_group_rank(const ls_group *g);
int ls_group_size(const ls_group *g);
ls_world *ls_group_world(ls_group *g);
/* The world rank of a rank of the group. */
int ls_group_world_rank(const ls_group *g, int rank);
/* The nodes that the group's ranks are on: how many, and on which of them a rank is. Nodes are numbered by their first
 * rank in the group. */
int ls_group_nodes(const ls_group *g);
int ls_group_node(const ls_group *g, int rank);

/* Who carries out collectives and in which order they add, for people: "Lockstep's schedules; sums in ascending
 * rank order where memory is mapped, else as each algorithm adds", "mpi (Open MPI v4.1.4); sums in MPI's own
 * order; ...". Lives as long as the world. */
const char *ls_comm_text(const ls_world *w);

#define LS_SLOW_NS 100000000u

/* What moved so far on this rank. `bytes` counts payload read from or written
 * to memory another rank owns, or sent on a wire. */
typedef struct ls_comm_stats {
    uint64_t ops, bytes;
    struct { uint64_t ops, bytes; } of[LS_COLLS]; /* of each kind; LS_SENDRECV: messages, sent and received */
    uint64_t exposed_ns; /* time blocked in ls_work_wait, works of 4 KiB and more (blocking calls: 1 MiB), and waits of
                            1 ms and more for smaller ones */
    uint64_t busy_ns;    /* time with such works in flight, of any group or of the one: overlapping ones count once */
    uint64_t waited_ns;  /* time blocked in works of any size, except the first 64 polls of each */
    uint64_t slow_waits; /* waits that lasted LS_SLOW_NS and more, whatever their size: a rank came late */
    int slow_rank;       /* the rank of the world that the newest of them waited for, most of the time; -1: none */
} ls_comm_stats;
void ls_comm_stats_read(const ls_world *w, ls_comm_stats *out);   /* in every group, destroyed or not */
void ls_group_stats_read(const ls_group *g, ls_comm_stats *out);  /* in one */
/* *now becomes what moved since *before was read; slow_rank stays. */
void ls_comm_stats_since(const ls_comm_stats *before, ls_comm_stats *now);

/* --- to plan with ------------------------------------------------------------------------ */

/* Rank `rank` of a world of `size` whose other ranks do not exist; node[r] (NULL: all on one) says on which node rank
 * r would be. Everything is created in it by the same calls as in a real one. ls_alloc gives addresses without memory,
 * as ls_arena_create_dry does; a collective returns at once, moves nothing and is recorded, and takes what it needs of
 * the arena, so that the ledger is that of a real rank. Which form carries it out follows from opts (may be NULL), and
 * from the calibration and the CPUs of this machine. If that form is a schedule, all algorithms are timed as on a real
 * rank, once per collective and power of two of the size, which takes seconds in a world of hundreds of ranks on many
 * nodes. LS_UNSUPPORTED: messages; and ls_group_split, which would need the colors that the other ranks give: call
 * ls_group_split_by. ls_world_leave ends it. */
ls_status ls_world_dry(int rank, int size, const int *node, const ls_world_opts *opts, ls_world **out);
bool ls_world_is_dry(const ls_world *w);
bool ls_world_is_alone(const ls_world *w); /* dry, or a mirror (below): no other rank is there */

typedef struct ls_mirror_opts {
    bool yields; /* a wait for other ranks first yields the core to ranks that share it. In a group of n the rank that
                  * comes last does not wait, so n - 1 of n waits yield */
    double message_waits; /* with yields: so large a part of the messages that arrive is waited for; 0: half */
} ls_mirror_opts;

/* Such a rank whose memory is there, so that it computes: to time what it does, without the other ranks. A collective
 * returns at once, as if every other rank had given what this one gives: all_gather copies this rank's part to the
 * others', all_reduce and reduce leave its values, all_to_all its own; gather, scatter and broadcast write nothing.
 * Messages from another rank bring numbers of about 1/4 to 1/2. The values are therefore wrong; sizes and order are
 * those of a real rank. Nothing is recorded. Otherwise as ls_world_dry. */
ls_status ls_world_mirror(int rank, int size, const int *node, const ls_world_opts *opts, const ls_mirror_opts *mirror,
                          ls_world **out);

/* What a mirror has done in place of other ranks, and is not this rank's work; 0 in any other world. */
typedef struct ls_mirrored {
    int64_t collectives, messages; /* that returned at once; messages: sent and received */
    uint64_t bytes;                /* of their vectors */
    uint64_t wall_ns, cpu_ns;      /* spent inside these calls, by the clock and of the rank's thread. Calls that
                                    * write at most 8 KiB take less than a look at the thread's clock: one in 13 is
                                    * timed, by the wall's clock, and each is taken to last as long as these did on
                                    * average */
    int64_t looks;                 /* how many longer calls and waits were put between two looks at both clocks; what
                                    * these took is in wall_ns and cpu_ns, too */
} ls_mirrored;
ls_mirrored ls_world_mirrored(const ls_world *w);

/* A collective that was called in a dry world. */
typedef struct ls_recorded {
    ls_group *group;   /* borrowed: alive as long as the world, of use until it is destroyed */
    ls_coll coll;
    ls_dtype dtype;
    ls_redop op;
    int root;
    uint64_t bytes;    /* of the whole vector */
    bool rounded;      /* between ranks that do not map each other's memory its sums travel as bf16
                        * (ls_world_opts.wire_bf16) */
    const size_t *counts, *recv_counts; /* the record's: elements per rank of a call with counts per rank, or with
                        * spans; NULL: equal parts */
    int spans;         /* matrices in the vector (ls_coll_args.span); 0: none */
    size_t rows;       /* of a matrix, on average, rounded down */
    bool apart;        /* input and output are different buffers */
    uint64_t moved;    /* bytes that this rank would read, write and send, */
    int rounds;        /* and how often in a row it would wait for others; both 0 with form "schedule":
                        * ls_recorded_traffic */
    const char *form;  /* how it would be carried out: "oneshot", "fold" ..., "schedule": ls_recorded_algo. Static */
    char label[32];    /* the call's, cut to fit; "" */
} ls_recorded;

/* What was called since the world was made or ls_world_record_clear, in order; valid until the next call. */
int ls_world_recorded(const ls_world *w, const ls_recorded **out);
void ls_world_record_clear(ls_world *w);
/* The algorithm whose schedule would carry it out: "ring". Costs what choosing it costs. Static text. */
ls_status ls_recorded_algo(const ls_recorded *r, const char **out);
/* Bytes and rounds, also of a schedule, at the same cost; *rounds (NULL: not wanted) takes a simulation of all
 * ranks. */
ls_status ls_recorded_traffic(const ls_recorded *r, uint64_t *moved, int *rounds);

#ifdef __cplusplus
}
#endif
#endif
