/* slow_link.c -- a queue per channel of messages that are on their way, and when the link is free again. */
#include "net/slow_link.h"

#include <stdlib.h>

#include "base/env.h"

#define QUEUE 16u /* messages of a channel: on their way, or handed over and not known to have been sent */

typedef struct held {
    ls_msg m;
    uint64_t due_ns; /* when it has crossed */
    uint64_t ticket; /* of the transport below, once it was handed over */
} held;

/* Tickets count messages: [done, given) were handed over, [given, taken) are on their way. */
typedef struct channel {
    held of[QUEUE];
    uint64_t done, given, taken;
} channel;

struct ls_slow_link {
    const ls_transport_ops *ops;
    ls_transport *inner;
    int peer;
    uint64_t bytes_per_s;
    uint64_t free_ns; /* the last message has crossed */
    channel *channel[LS_MAX_CHANNELS]; /* owned; NULL until used */
};

ls_status ls_slow_link_create(const ls_transport_ops *ops, ls_transport *inner, int peer, uint64_t bytes_per_s,
                              ls_slow_link **out)
{
    ls_slow_link *l = *out = calloc(1, sizeof *l);
    if (!l) return ls_fail(LS_NO_MEMORY, "a slow link to rank %d", peer);
    *l = (ls_slow_link){ .ops = ops, .inner = inner, .peer = peer, .bytes_per_s = bytes_per_s };
    return LS_OK;
}

void ls_slow_link_destroy(ls_slow_link *l)
{
    for (int c = 0; l && c < LS_MAX_CHANNELS; c++) free(l->channel[c]);
    free(l);
}

static ls_status hand_over(ls_slow_link *l, int number, uint64_t now)
{
    channel *c = l->channel[number];
    for (; c->given < c->taken; c->given++) {
        held *h = &c->of[c->given % QUEUE];
        if (h->due_ns > now) break;
        const ls_status st = l->ops->send(l->inner, l->peer, number, &h->m, &h->ticket);
        if (st != LS_OK) return st;
    }
    return LS_OK;
}

/* What the transport below has sent, we have. */
static void settle(const ls_slow_link *l, int number)
{
    channel *c = l->channel[number];
    while (c->done < c->given && l->ops->sent(l->inner, l->peer, number) >= c->of[c->done % QUEUE].ticket) c->done++;
}

ls_status ls_slow_link_progress(ls_slow_link *l)
{
    const uint64_t now = ls_env_get()->mono_ns();
    ls_status first = LS_OK;
    for (int c = 0; c < LS_MAX_CHANNELS; c++) {
        const ls_status st = l->channel[c] ? hand_over(l, c, now) : LS_OK; /* one that is full holds up no other */
        if (st < 0 && first == LS_OK) first = st;
    }
    return first;
}

ls_status ls_slow_link_send(ls_slow_link *l, int number, const ls_msg *m, uint64_t *ticket)
{
    if (!l->channel[number] && !(l->channel[number] = calloc(1, sizeof *l->channel[number])))
        return ls_fail(LS_NO_MEMORY, "a channel of a slow link to rank %d", l->peer);
    channel *c = l->channel[number];
    LS_TRY(ls_slow_link_progress(l));
    settle(l, number);
    if (c->taken - c->done == QUEUE) return LS_AGAIN;
    const uint64_t now = ls_env_get()->mono_ns(), from = l->free_ns > now ? l->free_ns : now;
    l->free_ns = from + (uint64_t)((double)m->n * 1e9 / (double)l->bytes_per_s);
    c->of[c->taken % QUEUE] = (held){ .m = *m, .due_ns = l->free_ns };
    *ticket = ++c->taken;
    return ls_slow_link_progress(l);
}

uint64_t ls_slow_link_sent(ls_slow_link *l, int number)
{
    if (!l->channel[number]) return 0;
    (void)ls_slow_link_progress(l); /* a failure shows at the next send, or in progress */
    settle(l, number);
    return l->channel[number]->done;
}
