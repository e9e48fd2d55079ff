/* call_gaps.c -- what a rank does between two calls of a step. */
#include "plan/call_gaps.h"

#include <math.h>
#include <string.h>

#include "parallel/cp_attention.h"
#include "plan/coll_measure.h"

/* All work of a kind, and the calls that it is between. */
typedef struct share { double seconds, bytes, calls; } share;

bool ls_step_is_of_ring(const ls_step_call *x)
{
    static const ls_step_span stages = LS_BETWEEN_STAGES;
    return x->coll == LS_SENDRECV && !ls_step_same_span(&x->span, &stages);
}

static void count_item(const ls_step_item *i, share *calls, share *ring)
{
    const ls_step_call call = ls_step_call_of(i);
    const bool coll = i->kind == LS_ITEM_COLL || i->kind == LS_ITEM_BEGIN;
    if (coll && ls_step_is_of_ring(&call)) ring->calls++;
    else if (coll || i->kind == LS_ITEM_RECV) calls->calls++;
    if (i->kind != LS_ITEM_WORK) return;
    calls->seconds += i->seconds;
    calls->bytes += i->bytes;
}

static ls_call_gap mean_of(const share *x)
{
    const double n = fmax(1, x->calls);
    return (ls_call_gap){ .seconds = fmax(0, x->seconds) / n, .nbytes = fmax(0, x->bytes) / n };
}

ls_call_gaps ls_call_gaps_of(const ls_step_lists *l)
{
    share calls = { 0, 0, 0 }, ring = { 0, 0, 0 };
    for (int s = 0; s < l->stages; s++)
        for (int k = 0; k < l->of[s].n; k++) count_item(&l->of[s].item[k], &calls, &ring);
    for (int s = 0; s < l->stages && ring.calls > 0; s++)
        for (int k = 0; k < l->of[s].nops; k++) {
            const ls_step_op *op = &l->of[s].op[k];
            if (strncmp(op->name, LS_CP_ATTENTION, strlen(LS_CP_ATTENTION)) != 0) continue;
            ring.seconds += op->busy_s;
            ring.bytes += op->bytes;
        }
    calls.seconds -= ring.seconds;
    calls.bytes -= ring.bytes;
    return (ls_call_gaps){ .calls = mean_of(&calls), .of_ring = mean_of(&ring) };
}
