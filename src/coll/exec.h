/* exec.h -- running a schedule over a transport.
 *
 * A run is bound to a schedule once (that allocates) and may then be started
 * and finished any number of times (that does not):
 *
 *     ls_run r = { 0 };
 *     LS_TRY(ls_run_bind(&r, sched));
 *     r.ops = ops; r.tp = tp; r.channel = c; r.sig = sig;
 *     r.red = (ls_reduction){ LS_F32, LS_SUM, false };
 *     r.count = n; r.buf[LS_BUF_OUT] = x;
 *     LS_TRY(ls_run_start(&r));
 *     while ((st = ls_run_progress(&r)) == LS_AGAIN) { ... }
 *     ls_run_free(&r);
 */
#ifndef LS_COLL_EXEC_H
#define LS_COLL_EXEC_H
#include <stddef.h>
#include <stdint.h>
#include "base/rank_set.h"
#include "coll/layout.h"
#include "lockstep/dtype.h"
#include "lockstep/sched.h"
#include "lockstep/transport.h"

/* How a run combines. LS_AVG of floats multiplies each contribution by 1/size
 * before the sum, or (divide_last) divides the sum by size; in schedules of one
 * SUM per value that happens inside its pass, otherwise in a pass of its own. */
typedef struct ls_reduction {
    ls_dtype dtype;
    ls_redop op;
    bool divide_last;
} ls_reduction;

/* How far one lane has got. */
typedef struct ls_lane_run {
    uint32_t pc;       /* the step it is at */
    uint32_t released; /* all sends before this step have been read by their peers */
    size_t done;       /* bytes of the step at pc */
    int awaited;       /* of a step that sums: the rank whose message is missing */
    uint64_t *ticket;  /* per step, for sends; into ls_run.tickets */
} ls_lane_run;

typedef struct ls_run {
    /* Set by the owner before ls_run_start; all borrowed. */
    const ls_transport_ops *ops;
    ls_transport *tp;
    const int *world_rank;   /* of each rank of the group; NULL: the same number */
    int channel;             /* lane l uses channel + l */
    uint32_t sig;            /* goes with every message, with its number between the two ranks, and is expected there */
    ls_reduction red;        /* for collectives that move only: dtype alone */
    size_t count;            /* elements of the whole vector */
    const size_t *counts;    /* NULL: equal shares; else [size] shares of OUT (all_to_all: of IN), together `count` */
    const size_t *recv_counts; /* all_to_all with counts: [size] shares of OUT */
    const void *in;          /* NULL or OUT: in place; else copied to OUT first: the whole vector, the own
                                share for all_gather and gather, ignored off the root of a broadcast or scatter.
                                all_to_all, sendrecv: IN, read where it lies, not OUT */
    void *buf[3];            /* [LS_BUF_OUT], and [LS_BUF_TMP] of ls_sched_tmp_bytes() */
    uint32_t out_first;      /* buf[LS_BUF_OUT] begins with this chunk: who lends scratch lends what is touched */
    const ls_rank_set *narrow; /* f32 only: ranks of the group with whom values travel as bf16; NULL: none. If `rounds`,
                                complete sums are rounded to bf16, so that all have the same */
    bool rounds;
    void *wire;              /* scratch of 2 * count bytes where there are such ranks: what they are sent */
    size_t budget;           /* bytes that one ls_run_progress may move before it returns; 0: no limit */

    /* Known after ls_run_bind: the chunks of OUT that any step touches, first to last, and whether one writes there. */
    ls_slice touched;
    bool writes;

    /* What happened. */
    uint64_t received, sent; /* payload bytes since bind */
    int mismatch_peer;       /* after LS_COLL_MISMATCH: rank in the group, and what it sent */
    uint32_t mismatch_sig;

    /* Private to exec.c. */
    const ls_sched *sched;
    ls_layout layout;
    size_t elem, moved, origin; /* origin: elements in front of out_first */
    uint64_t *tickets;
    const void **src;        /* [size]: what a step sums */
    size_t *share;           /* [size], where the algorithm has a rule of its own; else NULL */
    uint32_t *nth;           /* [lanes][2][size]: messages sent to and received from each rank so far */
    ls_lane_run lane[LS_MAX_LANES];
} ls_run;

/* Owns nothing of the schedule, which must outlive the run. LS_UNSUPPORTED for
 * schedules that FOLD: those need mapped memory and another reader.
 *
 * With `narrow`, every chunk's sum must be completed by one rank and sent from OUT (ls_algo.one_owner). */
ls_status ls_run_bind(ls_run *r, const ls_sched *s);
void ls_run_free(ls_run *r); /* NULL and zeroed are fine */

/* Copies `in`, scales the contribution if the reduction says so. Moves nothing. */
ls_status ls_run_start(ls_run *r);

/* Runs every lane until it would have to wait. LS_OK: complete, and every
 * peer has read what it was sent, so the buffers are the caller's again.
 * LS_AGAIN: call again (and poke the transport). Failures: the transport's;
 * LS_COLL_MISMATCH; LS_PROTOCOL for a message of the wrong length, and where
 * one was lost or came twice. */
ls_status ls_run_progress(ls_run *r);

/* What a lane waits for, after LS_AGAIN: the `number`-th message (from 0) of `peer`, of which a part may be here; or,
 * `sends`: that peer takes what it was sent. Peers are ranks of the group. False: it is through. */
typedef struct ls_run_wait {
    int peer;
    bool sends, part;
    uint32_t number;
} ls_run_wait;
bool ls_run_waits(const ls_run *r, int lane, ls_run_wait *out);
/* Messages that a lane has offered to a rank of the group. */
uint32_t ls_run_sent(const ls_run *r, int lane, int peer);
/* Changes whenever a run gets on. */
uint64_t ls_run_stamp(const ls_run *r);

#endif
