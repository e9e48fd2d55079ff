/* transport_mixed.c -- several hosts: shm between ranks of one of them, tcp
 * between ranks of two.
 *
 * Hosts are where the world found its ranks, or as ls_world_opts.node has it:
 * so one machine can play several.
 */
#include <stdlib.h>

#include "net/transports.h"
#include "net/world.h"

struct ls_transport {
    ls_transport *shm, *tcp; /* owned */
    ls_rank_set far;         /* owned: the peers over tcp */
};

static const ls_transport_ops *ops_of(const ls_transport *t, int peer, ls_transport **inner)
{
    bool is_far = ls_rank_set_has(&t->far, peer);
    *inner = is_far ? t->tcp : t->shm;
    return is_far ? &ls_transport_tcp : &ls_transport_shm;
}

static void close_mixed(ls_transport *t)
{
    if (!t) return;
    if (t->tcp) ls_transport_tcp.close(t->tcp);
    if (t->shm) ls_transport_shm.close(t->shm);
    ls_rank_set_free(&t->far);
    free(t);
}

static ls_status open_mixed(ls_world *w, ls_transport **out)
{
    *out = NULL;
    const int *node = w->opts.node ? w->opts.node : w->node;
    ls_transport *t = calloc(1, sizeof *t);
    if (!t) return ls_fail(LS_NO_MEMORY, "mixed transport");
    ls_status st = ls_rank_set_create(w->size, &t->far);
    for (int r = 0; r < w->size && st == LS_OK; r++)
        if (node[r] != node[w->rank] || !ls_world_is_local(w, r)) ls_rank_set_add(&t->far, r);
    if (st == LS_OK) st = ls_transport_tcp_open(w, &t->far, &t->tcp);
    if (st == LS_OK) st = ls_transport_shm_open(w, &t->shm);
    if (st < 0) {
        close_mixed(t);
        return st;
    }
    *out = t;
    return LS_OK;
}

static ls_status send_mixed(ls_transport *t, int peer, int channel, const ls_msg *m, uint64_t *ticket)
{
    ls_transport *inner;
    return ops_of(t, peer, &inner)->send(inner, peer, channel, m, ticket);
}

static uint64_t sent_mixed(ls_transport *t, int peer, int channel)
{
    ls_transport *inner;
    return ops_of(t, peer, &inner)->sent(inner, peer, channel);
}

static ls_status view_mixed(ls_transport *t, int peer, int channel, ls_msg *m)
{
    ls_transport *inner;
    return ops_of(t, peer, &inner)->view(inner, peer, channel, m);
}

static ls_status take_mixed(ls_transport *t, int peer, int channel, size_t n)
{
    ls_transport *inner;
    return ops_of(t, peer, &inner)->take(inner, peer, channel, n);
}

static ls_status pull_mixed(ls_transport *t, int peer, int channel, void *dst, size_t *got)
{
    ls_transport *inner;
    const ls_transport_ops *ops = ops_of(t, peer, &inner);
    return ops->pull ? ops->pull(inner, peer, channel, dst, got) : LS_UNSUPPORTED;
}

static ls_status help_mixed(ls_transport *t, int peer, int channel)
{
    ls_transport *inner;
    const ls_transport_ops *ops = ops_of(t, peer, &inner);
    return ops->help ? ops->help(inner, peer, channel) : LS_AGAIN;
}

static ls_status lend_mixed(ls_transport *t, int peer, int channel, const ls_msg *m, uint64_t *ticket)
{
    ls_transport *inner;
    const ls_transport_ops *ops = ops_of(t, peer, &inner);
    return ops->lend ? ops->lend(inner, peer, channel, m, ticket) : LS_UNSUPPORTED;
}

static ls_status reserve_mixed(ls_transport *t, int peer, int channel)
{
    ls_transport *inner;
    const ls_transport_ops *ops = ops_of(t, peer, &inner);
    return ops->reserve ? ops->reserve(inner, peer, channel) : LS_OK;
}

static ls_status progress_mixed(ls_transport *t)
{
    LS_TRY(ls_transport_shm.progress(t->shm));
    return ls_transport_tcp.progress(t->tcp);
}

static int fds_mixed(ls_transport *t, int *fds, int max) { return ls_transport_tcp.fds(t->tcp, fds, max); }

static bool is_mapped_mixed(ls_transport *t, int peer) { return !ls_rank_set_has(&t->far, peer); }

const ls_transport_ops ls_transport_mixed = {
    .name = "mixed",
    .keys = (const char *const[]){ LS_FRAME_KEYS, "comm.security", NULL },
    .open = open_mixed,
    .close = close_mixed,
    .send = send_mixed,
    .sent = sent_mixed,
    .view = view_mixed,
    .take = take_mixed,
    .pull = pull_mixed,
    .help = help_mixed,
    .lend = lend_mixed,
    .reserve = reserve_mixed,
    .progress = progress_mixed,
    .fds = fds_mixed,
    .is_mapped = is_mapped_mixed,
};
