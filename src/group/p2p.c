/* p2p.c -- send and recv between two ranks of a group.
 *
 * One message on the group's last channel; messages of a pair are matched in
 * order by a counter of their own. They take their turn in the group's queue.
 */
#include <string.h>

#include "base/log.h"
#include "group/impl.h"

ls_status ls_p2p_turn(ls_work *k)
{
    ls_group *g = k->g;
    ls_world *w = g->w;
    int peer = g->world_rank[k->a.peer], channel = g->channel + LS_GROUP_LANES;
    size_t nbytes = k->nbytes;
    ls_status st;
    if (k->a.in) { /* send: offered once, then held until it is read */
        if (k->phase == 0) {
            ls_msg m = { k->a.in, nbytes, k->sig };
            if ((st = w->tops->send(w->tp, peer, channel, &m, &k->ticket)) != LS_OK) return st;
            k->phase = 1;
            ls_count_bytes(g, nbytes);
        }
        return w->tops->sent(w->tp, peer, channel) >= k->ticket ? LS_OK : LS_AGAIN;
    }
    for (;;) {
        ls_msg m;
        if ((st = w->tops->view(w->tp, peer, channel, &m)) != LS_OK) return st;
        if (m.sig != k->sig || m.n > nbytes - k->pos)
            return ls_fail(
                LS_COLL_MISMATCH,
                "rank %d expects %zu %s from rank %d (message #%u of this pair), but it sent something else: "
                "sends and receives of a pair must match in order, count and dtype",
                w->rank, k->a.count, ls_dtype_name(k->a.dtype), peer, k->desc.seq);
        if (m.n > 0) memcpy((char *)k->a.out + k->pos, m.p, m.n);
        k->pos += m.n;
        if ((st = w->tops->take(w->tp, peer, channel, m.n)) != LS_OK) return st;
        ls_count_bytes(g, m.n);
        if (k->pos == nbytes) return LS_OK;
    }
}

static ls_status exchange(ls_group *g, const void *in, void *out, size_t count, ls_dtype dtype, int peer)
{
    ls_coll_args a = { .coll = LS_SENDRECV, .in = in, .out = out, .count = count, .dtype = dtype, .peer = peer };
    ls_work *k;
    LS_TRY(ls_coll_start(g, &a, &k));
    return ls_work_wait(k);
}

ls_status ls_send(ls_group *g, const void *buf, size_t count, ls_dtype dtype, int peer)
{
    return exchange(g, buf ? buf : "", (void *)(uintptr_t)buf, count, dtype, peer);
}

ls_status ls_recv(ls_group *g, void *buf, size_t count, ls_dtype dtype, int peer)
{
    return exchange(g, NULL, buf, count, dtype, peer);
}
