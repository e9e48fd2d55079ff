/* call_gaps.c -- what a rank does between two calls of a step. */
#include "plan/call_gaps.h"

#include <math.h>
#include <string.h>

#include "parallel/cp_attention.h"
#include "plan/coll_measure.h"

/* All work of a kind, and the calls that it is between. */
typedef struct work_between { double seconds, bytes, ncalls; } work_between;

bool ls_step_is_of_ring(const ls_step_call *x)
{
    static const ls_step_span stages = LS_BETWEEN_STAGES;
    return x->coll == LS_SENDRECV && !ls_step_same_span(&x->span, &stages);
}

static void count_item(const ls_step_item *i, work_between *all, work_between *ring)
{
    const ls_step_call call = ls_step_call_of(i);
    const bool coll = i->kind == LS_ITEM_COLL || i->kind == LS_ITEM_BEGIN;
    all->ncalls += coll || i->kind == LS_ITEM_RECV;
    ring->ncalls += coll && ls_step_is_of_ring(&call);
    if (i->kind != LS_ITEM_WORK) return;
    all->seconds += i->seconds;
    all->bytes += i->bytes;
}

static ls_call_gap mean_of(const work_between *x)
{
    const double n = fmax(1, x->ncalls);
    return (ls_call_gap){ .seconds = fmax(0, x->seconds) / n, .nbytes = fmax(0, x->bytes) / n };
}

ls_call_gaps ls_call_gaps_of(const ls_step_lists *l)
{
    work_between all = { 0, 0, 1 }, ring = { 0, 0, 0 }; /* the last piece of work is after the last call */
    for (int s = 0; s < l->stages; s++)
        for (int k = 0; k < l->of[s].n; k++) count_item(&l->of[s].item[k], &all, &ring);
    for (int s = 0; s < l->stages && ring.ncalls > 0; s++)
        for (int k = 0; k < l->of[s].nops; k++) {
            const ls_step_op *op = &l->of[s].op[k];
            if (strncmp(op->name, LS_CP_ATTENTION, strlen(LS_CP_ATTENTION)) != 0) continue;
            ring.seconds += op->busy_s;
            ring.bytes += op->bytes;
        }
    const work_between others = { all.seconds - ring.seconds, all.bytes - ring.bytes, all.ncalls - ring.ncalls };
    ring.bytes *= l->size[LS_AXIS_CP];
    return (ls_call_gaps){ .all = mean_of(&all), .ring = mean_of(&ring), .others = mean_of(&others) };
}
