/* put.h -- adding a step to a schedule, inline.
 *
 * ls_sched_send and the others (sched.c) are these functions for every algorithm. Algorithms of which simulations emit
 * 10^8 steps (program.h) include them: a slice that is passed in registers is put together in memory first, which
 * takes longer than all else that is done for a step.
 */
#ifndef LS_COLL_PUT_H
#define LS_COLL_PUT_H
#include "base/compiler.h"
#include "lockstep/sched.h"

static const ls_slice ls_put_nothing = { LS_BUF_OUT, 0, 0 };

static inline bool ls_put_fits(const ls_sched *s, ls_slice a)
{
    return (unsigned)a.buf <= LS_BUF_TMP && a.first <= s->nchunks[a.buf] && a.n <= s->nchunks[a.buf] - a.first;
}

static inline bool ls_put_is_local(ls_step_kind k)
{
    return k != LS_STEP_SEND && k != LS_STEP_RECV && k != LS_STEP_RECV_REDUCE;
}

/* Why a step cannot be added: LS_INVALID, with the step in words. */
LS_COLD ls_status ls_put_refused(const ls_sched *s, int lane, const ls_step *step);
LS_COLD ls_status ls_put_grow(ls_lane *ln);

static LS_ALWAYS_INLINE ls_status ls_put(ls_sched *s, int lane, ls_step_kind kind, int peer, ls_slice src, ls_slice dst)
{
    const bool local = ls_put_is_local(kind);
    if (LS_UNLIKELY(lane < 0 || lane >= s->shape.nlanes || lane >= LS_MAX_LANES || !ls_put_fits(s, src) ||
                    !ls_put_fits(s, dst) || (dst.buf == LS_BUF_IN && dst.n > 0) ||
                    (local ? peer != -1 : peer < 0 || peer >= s->shape.size || peer == s->shape.rank) ||
                    ((kind == LS_STEP_COPY || kind == LS_STEP_REDUCE) && src.n != dst.n)))
        return ls_put_refused(s, lane, &(ls_step){ .kind = kind, .peer = peer, .src = src, .dst = dst });
    ls_lane *ln = &s->lane[lane];
    if (LS_UNLIKELY(ln->n == ln->cap)) LS_TRY(ls_put_grow(ln));
    ls_step *to = &ln->step[ln->n++];
    to->kind = kind;
    to->peer = peer;
    to->src = src;
    to->dst = dst;
    to->after_send = -1;
    to->last_reduce = false;
    return LS_OK;
}

static LS_ALWAYS_INLINE ls_status ls_put_send(ls_sched *s, int lane, int peer, ls_slice src)
{
    return ls_put(s, lane, LS_STEP_SEND, peer, src, ls_put_nothing);
}

static LS_ALWAYS_INLINE ls_status ls_put_recv(ls_sched *s, int lane, int peer, ls_slice dst)
{
    return ls_put(s, lane, LS_STEP_RECV, peer, ls_put_nothing, dst);
}

static LS_ALWAYS_INLINE ls_status ls_put_recv_reduce(ls_sched *s, int lane, int peer, ls_slice dst)
{
    return ls_put(s, lane, LS_STEP_RECV_REDUCE, peer, ls_put_nothing, dst);
}

#endif
