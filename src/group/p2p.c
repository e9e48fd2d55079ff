/* p2p.c -- send, recv and batches of them.
 *
 * A blocking call whose queue is empty tries the transport at once and mostly
 * is through; else it becomes a work like any other (message.c).
 *
 * A group that is destroyed leaves its channel empty: members tell one another
 * how many messages they have sent, and who has received fewer discards the
 * rest. The next group of that channel would take them for its own senders'.
 */
#include "group/p2p.h"

#include <stdlib.h>

#include "base/log.h"
#include "group/args.h"
#include "group/message.h"
#include "group/record.h"

#define QUICK_TURNS 256                /* looks of a blocking call before it becomes a work; */
#define EAGER_TURNS 64                 /* the first ones follow each other at once */

/* The next message of a member, which no call will ask for: *dtype and *count are what it was. */
static LS_COLD ls_status discard_next(ls_group *g, int peer, ls_dtype *dtype, size_t *count)
{
    ls_messages *s = atomic_load_explicit(&g->p2p, memory_order_relaxed);
    if (!s) LS_TRY(ls_messages_create(g, &s));
    if (s->nspare == 0) return ls_fail(LS_INVALID, "no spare work for a message of group %s", g->text);
    const ls_p2p x = { .dtype = LS_U8, .peer = peer };
    ls_message m = ls_message_next(g, &x, LS_RECEIVES, NULL);
    m.nbytes = LS_ANY_BYTES;
    ls_work *k = ls_message_give(g, s, &m, LS_RECEIVES, NULL);
    k->discards = true;
    k->t0_ns = 0;
    ls_message_given(g, s);
    ls_status st = ls_work_wait(k); /* the work is spare again, but still says what it was */
    *dtype = k->a.dtype;
    *count = k->a.count;
    return st;
}

static ls_status drain(ls_group *g, uint32_t *sent, uint32_t *theirs)
{
    for (int r = 0; r < g->size; r++) sent[r] = g->p2p_seq[r][LS_SENDS];
    const ls_coll_args a = { .coll = LS_ALL_TO_ALL, .in = sent, .out = theirs, .count = (size_t)g->size,
                             .dtype = LS_I32, .label = "ls_group_destroy" };
    LS_TRY(ls_coll_run(g, &a));
    for (int r = 0; r < g->size; r++) {
        const int32_t n = (int32_t)(theirs[r] - g->p2p_seq[r][LS_RECEIVES]);
        ls_dtype dtype = LS_U8, first = LS_U8;
        size_t count = 0, first_count = 0;
        for (int32_t i = 0; i < n; i++) {
            LS_TRY(discard_next(g, r, &dtype, &count));
            if (i == 0) first = dtype, first_count = count;
        }
        if (n > 0)
            ls_log(LS_LOG_WARN,
                   "group %s was destroyed with %d message%s of rank %d that rank %d never received, discarded now: the "
                   "first has %zu %s; receive what is sent, or do not send it",
                   g->text, (int)n, n > 1 ? "s" : "", g->world_rank[r], g->w->rank, first_count, ls_dtype_name(first));
    }
    return LS_OK;
}

ls_status ls_p2p_drain(ls_group *g)
{
    if (g->backend) return LS_OK; /* the library's own affair: it never reuses what tells its groups apart */
    uint32_t *sent = calloc(2 * (size_t)g->size, sizeof *sent);
    if (!sent) return ls_fail(LS_NO_MEMORY, "what %d ranks have sent", g->size);
    ls_status st = drain(g, sent, sent + g->size);
    free(sent);
    return st;
}

/* --- calls ---------------------------------------------------------------------------------------------- */

/* Whether no message of this pair and direction is ahead, and the transport is the caller's. */
static inline bool free_way(const ls_group *g, int peer, ls_direction d)
{
    ls_messages *s = atomic_load_explicit(&g->p2p, memory_order_relaxed);
    if (ls_engine_threaded(g->e) || g->backend) return false;
    return !s || (s->queue[peer][d].first == LS_NO_MESSAGE &&
                  s->picked == atomic_load_explicit(&s->tail, memory_order_relaxed));
}

/* The rest of a blocking call that was not through at once: `ticket` not 0 when its message is with the transport. */
static LS_COLD ls_status wait_as_work(ls_group *g, const ls_message *m, ls_direction d, bool offered, uint64_t ticket)
{
    ls_messages *s = atomic_load_explicit(&g->p2p, memory_order_relaxed);
    if (!s) LS_TRY(ls_messages_create(g, &s));
    if (s->nspare == 0) return ls_fail(LS_INTERNAL, "no spare work for a message of group %s", g->text);
    ls_work *k = ls_message_give(g, s, m, d, NULL);
    k->phase = offered;
    k->ticket = ticket;
    if (k->nbytes < LS_TIMED_BLOCKING_BYTES) k->t0_ns = 0;
    ls_message_given(g, s);
    return ls_work_wait(k);
}

/* Counts the turns of a blocking call in which nothing moved. */
static inline bool patient(const ls_group *g, int *turn)
{
    if (++*turn >= QUICK_TURNS || !g->spins) return false;
    if (*turn > EAGER_TURNS) ls_cpu_relax();
    return true;
}

ls_status ls_send(ls_group *g, const void *buf, size_t count, ls_dtype dtype, int peer)
{
    ls_p2p x = { .send = buf, .count = count, .dtype = dtype, .peer = peer };
    if (LS_UNLIKELY(!ls_message_ok(g, &x, buf))) return ls_message_bad(g, &x, LS_SENDS);
    ls_message m = ls_message_next(g, &x, LS_SENDS, buf);
    ls_count_op(g, LS_SENDRECV);
    if (LS_UNLIKELY(!free_way(g, peer, LS_SENDS))) return wait_as_work(g, &m, LS_SENDS, false, 0);
    uint64_t ticket;
    ls_status st = ls_message_offer(g, &m, &ticket);
    if (LS_UNLIKELY(st != LS_OK)) return st < 0 ? ls_group_fail(g, st) : wait_as_work(g, &m, LS_SENDS, false, 0);
    for (int turn = 0; g->w->tops->sent(g->w->tp, m.world_rank, m.channel) < ticket;) {
        if (m.nbytes >= LS_PULL_BYTES && ls_message_may_help(g) &&
            (st = g->w->tops->help(g->w->tp, m.world_rank, m.channel)) < 0)
            return ls_group_fail(g, st);
        if (!patient(g, &turn)) return wait_as_work(g, &m, LS_SENDS, true, ticket);
    }
    return LS_OK;
}

ls_status ls_recv(ls_group *g, void *buf, size_t count, ls_dtype dtype, int peer)
{
    ls_p2p x = { .recv = buf, .count = count, .dtype = dtype, .peer = peer };
    if (LS_UNLIKELY(!ls_message_ok(g, &x, buf))) return ls_message_bad(g, &x, LS_RECEIVES);
    ls_message m = ls_message_next(g, &x, LS_RECEIVES, buf);
    ls_count_op(g, LS_SENDRECV);
    if (LS_UNLIKELY(!free_way(g, peer, LS_RECEIVES))) return wait_as_work(g, &m, LS_RECEIVES, false, 0);
    ls_status st;
    for (int turn = 0; (st = ls_message_receive(g, &m, SIZE_MAX)) == LS_AGAIN;)
        if (!patient(g, &turn)) return wait_as_work(g, &m, LS_RECEIVES, false, 0);
    if (LS_LIKELY(st == LS_OK)) st = ls_unless_aborted(g->w);
    return LS_LIKELY(st == LS_OK) ? LS_OK : ls_group_fail(g, st);
}

/* Which way it goes; LS_INVALID, with a sentence, unless it can. */
static inline ls_status direction_of(const ls_group *g, const ls_p2p *x, ls_direction *d)
{
    *d = x->send ? LS_SENDS : LS_RECEIVES;
    if (LS_UNLIKELY(x->send && x->recv))
        return ls_fail(LS_INVALID, "a message sends and receives at once: expected send or recv to be NULL");
    if (LS_LIKELY(ls_message_ok(g, x, *d == LS_SENDS ? x->send : x->recv))) return LS_OK;
    return ls_message_bad(g, x, *d);
}

/* In a world without other ranks: notes a message, and the pipe that its sender takes of the arena for the first of
 * them; or in a mirror answers it, which is not the rank's time, and yields where the rank would wait. */
static LS_COLD ls_status note(ls_group *g, const ls_p2p *x, const char *label)
{
    const ls_world *w = g->w;
    const uint64_t nbytes = x->recv ? x->count * ls_dtype_size(x->dtype) : 0; /* that are written */
    ls_status st = LS_OK;
    ls_record_enter(g->e->record, nbytes);
    if (x->send && w->tops->reserve) st = w->tops->reserve(w->tp, g->world_rank[x->peer], g->channel + LS_GROUP_LANES);
    if (st == LS_OK) st = ls_record_message(g->e->record, g, x, label);
    ls_record_leave(g->e->record, nbytes);
    if (x->recv) ls_record_wait(g->e->record);
    return st;
}

ls_status ls_p2p_batch(ls_group *g, const ls_p2p *op, int n)
{
    ls_work *work[LS_P2P_BATCH];
    if (!g) return ls_no_group();
    if (n < 0 || n > LS_P2P_BATCH || (n > 0 && !op))
        return ls_fail(LS_INVALID, "a batch of %d messages: expected 0 to %d", n, LS_P2P_BATCH);
    for (int i = 0; i < n; i++) { /* all of them before the first one moves */
        ls_direction d;
        ls_status st = direction_of(g, &op[i], &d);
        if (LS_UNLIKELY(st < 0)) return ls_while(st, "message %d of a batch", i);
    }
    for (int i = 0; i < n && g->w->alone; i++) LS_TRY(note(g, &op[i], NULL));
    if (g->w->alone) return LS_OK;
    ls_status st = LS_OK;
    int started = 0;
    while (started < n && st == LS_OK) {
        st = ls_message_begin(g, &op[started], op[started].send ? LS_SENDS : LS_RECEIVES, NULL, 0, &work[started]);
        started += st == LS_OK;
    }
    for (int i = 0; i < started; i++) {
        ls_status done = ls_work_wait(work[i]);
        if (st == LS_OK) st = done;
    }
    return st;
}

ls_status ls_p2p_start(ls_group *g, const ls_p2p *op, const char *label, ls_work **out)
{
    ls_direction d;
    *out = NULL;
    if (LS_UNLIKELY(!op)) return ls_fail(LS_INVALID, "a message to start: expected an ls_p2p, found NULL");
    LS_TRY(direction_of(g, op, &d));
    if (g->w->alone) return note(g, op, label);
    LS_TRY(ls_message_begin(g, op, d, label, LS_P2P_BATCH, out));
    if (!ls_engine_threaded(g->e)) (void)ls_engine_turn_group(g); /* a failure stays in the work */
    return LS_OK;
}
