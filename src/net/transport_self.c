/* transport_self.c -- a rank talking to itself. The smallest transport: read
 * it before writing another. One message slot per channel is enough, because
 * a schedule never sends twice to itself without receiving in between. */
#include <stdlib.h>

#include "net/transports.h"

struct ls_transport {
    struct slot {
        ls_msg m;
        size_t taken;         /* bytes already read */
        uint64_t sent, acked; /* tickets */
    } slot[LS_MAX_CHANNELS];
};

static ls_status open_self(ls_world *w, ls_transport **out)
{
    *out = NULL;
    if (ls_world_size(w) != 1)
        return ls_fail(LS_INVALID, "transport 'self' serves a world of one, this one has %d ranks: use shm or tcp",
                       ls_world_size(w));
    *out = calloc(1, sizeof **out);
    return *out ? LS_OK : ls_fail(LS_NO_MEMORY, "self transport");
}

static void close_self(ls_transport *t) { free(t); }

static ls_status send_self(ls_transport *t, int peer, int channel, const ls_msg *m, uint64_t *ticket)
{
    (void)peer;
    struct slot *s = &t->slot[channel];
    if (s->acked != s->sent) return LS_AGAIN;
    s->m = *m;
    s->taken = 0;
    *ticket = ++s->sent;
    return LS_OK;
}

static uint64_t sent_self(ls_transport *t, int peer, int channel)
{
    (void)peer;
    return t->slot[channel].acked;
}

static ls_status view_self(ls_transport *t, int peer, int channel, ls_msg *m)
{
    (void)peer;
    struct slot *s = &t->slot[channel];
    if (s->acked == s->sent) return LS_AGAIN;
    *m = (ls_msg){ (const char *)s->m.p + s->taken, s->m.n - s->taken, s->m.sig };
    return LS_OK;
}

static ls_status take_self(ls_transport *t, int peer, int channel, size_t n)
{
    (void)peer;
    struct slot *s = &t->slot[channel];
    s->taken += n;
    if (s->taken == s->m.n) s->acked = s->sent;
    return LS_OK;
}

const ls_transport_ops ls_transport_self = {
    .name = "self",
    .open = open_self,
    .close = close_self,
    .send = send_self,
    .sent = sent_self,
    .view = view_self,
    .take = take_self,
};
