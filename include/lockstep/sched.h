/* sched.h -- collective schedules: who sends which chunk to whom, and when.
 *
 * A schedule is data: lists of steps on chunks, no bytes, addresses or wires
 * in it. One text has several readers: the executor moves bytes, the prover
 * moves sets of contributions, the printer moves ink (and a simulator time).
 */
#ifndef LS_SCHED_H
#define LS_SCHED_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "lockstep/dtype.h"
#include "lockstep/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum ls_step_kind {
    LS_STEP_SEND,        /* src is ready for peer; not touched until peer has read it */
    LS_STEP_RECV,        /* copy the peer's next message into dst */
    LS_STEP_RECV_REDUCE, /* add it to dst */
    LS_STEP_COPY,        /* dst = src, locally */
    LS_STEP_REDUCE,      /* dst += src, locally */
    LS_STEP_SUM,         /* dst = sum over all ranks in rank order: own dst at the own position, the next
                            message of every peer at its; one pass over all of them */
    LS_STEP_FOLD         /* sum dst over all ranks, in rank order, store the sum into all of them;
                            only for transports that map every peer's buffer */
} ls_step_kind;
typedef enum ls_bufid { LS_BUF_IN, LS_BUF_OUT, LS_BUF_TMP } ls_bufid;

typedef struct ls_slice { ls_bufid buf; uint32_t first, n; } ls_slice; /* in chunks, not bytes */

typedef struct ls_step {
    ls_step_kind kind;
    int peer;           /* rank in the group; -1 for COPY, REDUCE, SUM and FOLD */
    ls_slice src, dst;
    int32_t after_send; /* filled by seal: index of the last earlier SEND of this lane that still
                           reads dst; -1: none */
    bool last_reduce;   /* filled by seal: the value in dst is now complete, and nothing but copies of
                           it follow; an average that divides last divides here */
} ls_step;

#define LS_MAX_LANES 8
#define LS_MAX_SEGMENTS 1024
typedef struct ls_lane { ls_step *step; uint32_t n, cap; } ls_lane;

/* Everything a schedule depends on, and nothing else: the cache key. */
typedef struct ls_shape {
    ls_coll coll;
    int rank, size, root;
    int segments; /* pieces per rank's share, for pipelining; >= 1 */
    int nlanes;   /* steps of one lane run in order; lanes run side by side; 1..LS_MAX_LANES */
    const int *node; /* [size] which node each rank is on, numbered from 0 by first appearance; borrowed;
                        NULL: all on one. The same for every shape of a group: no part of a cache key */
    bool uneven; /* all_to_all: what goes from one rank to another may have any length (counts per rank). Otherwise all
                    blocks are of one length, and may lie in one another's place in TMP and OUT */
} ls_shape;

/* Cuts `count` elements of `elem` bytes into shares of `size` ranks: share[r] elements each. */
typedef void ls_cut(size_t count, size_t elem, int size, size_t *share);

typedef struct ls_sched {
    ls_shape shape;
    uint32_t nchunks[3]; /* chunks in IN, OUT and TMP */
    bool one_sum;        /* set by emit: every result is made by one SUM or FOLD straight from the
                            ranks' own vectors, so scaling (LS_AVG) and the rounding of 16-bit types
                            happen once, there. Otherwise each rank scales its vector first. Proved */
    ls_cut *cut;         /* the algorithm's */
    ls_lane lane[LS_MAX_LANES];
} ls_sched;

/* An algorithm: one file, one of these, one line in ls_algos. Large vectors
 * of equal parts: OUT has size * segments chunks for all_reduce,
 * reduce_scatter and all_gather; chunk owner * segments + s. For all_gather
 * rank r's contribution is its own part of OUT before the start; after a
 * reduce_scatter only this rank's part of OUT is defined. Broadcast and reduce: `segments` chunks of OUT (off
 * the root of a reduce they are scratch). Gather and scatter: parts of OUT; every rank's own part is its
 * contribution (or result), root's OUT is whole, and off the root the executor lends scratch
 * for the other parts that it touches. sendrecv: every rank's vector goes to the next rank, from `segments` chunks of
 * IN to as many of OUT. all_to_all: size * segments chunks of IN (read only; share d is for rank
 * d) and of OUT (share s comes from rank s). TMP mirrors OUT's chunks unless said. */
typedef struct ls_algo {
    const char *name;   /* "ring" */
    uint32_t colls;     /* bit set of ls_coll */
    const char *source; /* paper or system it comes from */
    bool mapped;        /* uses FOLD, or has a faster form where peers' memory is mapped */
    ls_cut *cut;        /* all_reduce, where the order of additions depends on the cut; NULL: ls_shard_range */
    bool pipelined;     /* segments follow one another: many are worth it */
    bool levels;        /* for several nodes */
    bool one_owner;     /* all_reduce, reduce_scatter: one rank completes each chunk, and sends it to the others if they
                           get it, too; chunks are sent from OUT alone. So they may travel rounded (comm.wire) */
    bool by_name;       /* runs only when it is asked for, however fast */
    bool (*fits)(const ls_shape *s);
    ls_status (*emit)(ls_sched *out, const ls_shape *s);
} ls_algo;

extern const ls_algo *const ls_algos[]; /* NULL-ended */
const ls_algo *ls_algo_find(const char *name); /* NULL if unknown */
/* "ring", for every collective that it serves, or "all_reduce=ring,broadcast=chain": what comm.algo and
 * LOCKSTEP_ALGO say. by[LS_COLLS]: NULL where nothing is said. LS_BAD_CONFIG names the word that is wrong. */
ls_status ls_algo_parse(const char *text, const ls_algo **by);

/* What emit() may say. LS_NO_MEMORY or LS_INVALID (lane or slice out of range). */
ls_status ls_sched_send(ls_sched *s, int lane, int peer, ls_slice src);
ls_status ls_sched_recv(ls_sched *s, int lane, int peer, ls_slice dst);
ls_status ls_sched_recv_reduce(ls_sched *s, int lane, int peer, ls_slice dst);
ls_status ls_sched_copy(ls_sched *s, int lane, ls_slice src, ls_slice dst);
ls_status ls_sched_reduce(ls_sched *s, int lane, ls_slice src, ls_slice dst);
ls_status ls_sched_sum(ls_sched *s, int lane, ls_slice dst);
ls_status ls_sched_fold(ls_sched *s, int lane, ls_slice dst);

/* Checks fits(), emits and seals. Free with ls_sched_free. */
ls_status ls_sched_emit(const ls_algo *a, const ls_shape *s, ls_sched *out);
/* Derives hazards and last_reduce; proves that lanes do not touch one another's
 * chunks. Idempotent. */
ls_status ls_sched_seal(ls_sched *s);
void ls_sched_free(ls_sched *s); /* NULL and zeroed are fine */

/* Proves an algorithm for one shape (rank ignored): all ranks' schedules are
 * run with sets of contributions instead of bytes, once with payloads captured
 * at SEND (pushed) and once read at RECV (pulled), lanes stepped in seeded
 * random order: right result on every rank, equal message lengths, nothing
 * deadlocks, hazards suffice, and all ranks add in the same order where the
 * collective promises equal bits. LS_INTERNAL with a message when it fails. */
ls_status ls_sched_verify(const ls_algo *a, const ls_shape *any_rank);
/* The same on given schedules, one per rank (they need not come from an algorithm). */
ls_status ls_sched_verify_all(const ls_sched *const *per_rank, int size);

#ifdef __cplusplus
}
#endif
#endif
