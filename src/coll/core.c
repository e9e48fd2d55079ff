/* core.c -- virtual ranks, their shares, and passing them round by doubling. */
#include "coll/core.h"

#include "coll/put.h"

ls_core ls_core_of(const ls_shape *s)
{
    ls_core c = { .power = 1 };
    while (c.power * 2 <= s->size) c.power *= 2;
    c.extra = s->size - c.power;
    if (s->rank >= 2 * c.extra) c.v = s->rank - c.extra;
    else c.v = s->rank % 2 ? s->rank / 2 : -1;
    return c;
}

ls_status ls_core_double(ls_sched *o, const ls_shape *s, const ls_core *c, int seg, int lane)
{
    for (int d = 1; d < c->power; d *= 2) {
        int block = c->v & ~(d - 1), peer = ls_core_rank(c, c->v ^ d);
        LS_TRY(ls_put_send(o, lane, peer, ls_core_shares(s, c, block, d, seg)));
        LS_TRY(ls_put_recv(o, lane, peer, ls_core_shares(s, c, block ^ d, d, seg)));
    }
    return LS_OK;
}

ls_status ls_core_gather(ls_sched *o, const ls_shape *s)
{
    ls_core c = ls_core_of(s);
    ls_slice all = ls_shares(s, 0, s->size);
    if (c.v < 0) {
        LS_TRY(ls_sched_send(o, 0, s->rank + 1, ls_shares(s, s->rank, 1)));
        return ls_sched_recv(o, 0, s->rank + 1, all);
    }
    if (c.v < c.extra) LS_TRY(ls_sched_recv(o, 0, s->rank - 1, ls_shares(s, s->rank - 1, 1)));
    LS_TRY(ls_core_double(o, s, &c, 0, 0));
    return c.v < c.extra ? ls_sched_send(o, 0, s->rank - 1, all) : LS_OK;
}
