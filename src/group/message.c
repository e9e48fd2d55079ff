/* message.c -- messages in flight: what each says of itself, and the queues that move them.
 *
 * Every member and direction has a queue of its own, moved in order; queues
 * never wait for one another, nor for the group's collectives. Messages go
 * over the group's last channel. Each carries what it is (its group, its
 * number among those of its pair and direction, element type, count), so that
 * a receiver who expects something else can say what was sent.
 */
#include "group/message.h"

#include <stdlib.h>

#include "group/args.h"
#include "group/backend.h"
#include "group/form.h"
#include "group/mismatch.h"
#include "net/open.h"

uint64_t ls_message_sign(const ls_group *g)
{
    return (uint64_t)(g->generation & ((1u << LS_GENERATION_BITS) - 1)) << LS_GENERATION_AT |
           (uint64_t)(g->id & ((1u << LS_ID_BITS) - 1)) << LS_ID_AT;
}
static ls_dtype dtype_in(uint64_t sig) { return (ls_dtype)(sig >> LS_DTYPE_AT & ((1u << LS_DTYPE_BITS) - 1)); }
static size_t count_in(uint64_t sig) { return sig & LS_MOST_MESSAGE; }

static ls_coll_desc describe(const ls_group *g, const ls_message *m, ls_direction d)
{
    return (ls_coll_desc){ .generation = g->generation, .group = g->id, .seq = m->seq, .coll = LS_SENDRECV,
                           .dtype = (uint8_t)m->dtype, .op = (uint8_t)d, .count = m->count, .root = m->world_rank,
                           .block = (uint8_t)(g->channel / LS_GROUP_CHANNELS) };
}

/* What the peer sent, from its signature. */
LS_COLD ls_status ls_message_mismatch(ls_group *g, const ls_message *m, uint64_t sig)
{
    ls_coll_desc mine = describe(g, m, LS_RECEIVES), theirs = mine;
    theirs.op = LS_SENDS;
    theirs.root = g->w->rank;
    theirs.seq = m->seq + (((uint32_t)(sig >> LS_SEQ_AT) - m->seq + 32u) & 63u) - 32u; /* the nearest with these bits */
    theirs.dtype = (uint8_t)dtype_in(sig);
    theirs.count = count_in(sig);
    const uint32_t group = (uint32_t)(sig >> LS_ID_AT) & ((1u << LS_ID_BITS) - 1), all = (1u << LS_ID_BITS) - 1;
    if (group != (g->id & all)) { /* one that had this channel before: its name may be ours, or not yet overwritten */
        theirs.group = LS_GROUP_OTHER;
        theirs.seq = (uint32_t)(sig >> LS_SEQ_AT);
    }
    return ls_mismatch_message(g, &mine, &theirs);
}

/* Takes and forgets a message that this group's members have sent; its own signature says how long it is. */
static LS_COLD ls_status discard(ls_group *g, ls_message *m, size_t budget)
{
    ls_world *w = g->w;
    for (;;) {
        ls_msg x;
        ls_status st = w->tops->view(w->tp, m->world_rank, m->channel, &x);
        if (st != LS_OK) return st;
        const uint64_t ours = ls_message_signature(g, m->seq, dtype_in(x.sig), count_in(x.sig));
        if (m->nbytes == LS_ANY_BYTES && dtype_in(x.sig) < LS_DTYPES) {
            m->dtype = dtype_in(x.sig);
            m->count = count_in(x.sig);
            m->nbytes = m->count * ls_dtype_size(m->dtype);
        }
        if (x.sig != ours || x.n > m->nbytes - m->pos) return ls_message_mismatch(g, m, x.sig);
        m->pos += x.n;
        if ((st = w->tops->take(w->tp, m->world_rank, m->channel, x.n)) != LS_OK) return st;
        if (m->pos == m->nbytes) return LS_OK;
        if (x.n >= budget) return LS_AGAIN;
        budget -= x.n;
    }
}

/* --- queues ------------------------------------------------------------------------------------------ */

static ls_direction direction_of(const ls_work *k) { return k->a.in ? LS_SENDS : LS_RECEIVES; }

static ls_message message_of(const ls_work *k)
{
    const ls_group *g = k->g;
    return (ls_message){ .p = (char *)(uintptr_t)(k->a.in ? k->a.in : k->a.out), .count = k->a.count,
                         .nbytes = k->nbytes, .pos = k->pos, .dtype = k->a.dtype, .peer = k->peer,
                         .world_rank = g->world_rank[k->peer], .channel = g->channel + LS_GROUP_LANES,
                         .seq = k->desc.seq, .sig = k->says };
}

/* Works that the caller has given since join their queues. */
static void pick_up(ls_messages *s)
{
    uint32_t tail = atomic_load_explicit(&s->tail, memory_order_acquire); /* pairs with ls_message_given */
    for (; s->picked != tail; s->picked++) {
        uint8_t i = s->given[s->picked % 256];
        const ls_work *k = &s->work[i];
        ls_message_queue *q = &s->queue[k->peer][direction_of(k)];
        s->next[i] = LS_NO_MESSAGE;
        if (q->first == LS_NO_MESSAGE) {
            q->first = i;
            s->busy[s->nbusy].peer = k->peer;
            s->busy[s->nbusy++].direction = (int32_t)direction_of(k);
        } else {
            s->next[q->last] = i;
        }
        q->last = i;
        if (q->offered == LS_NO_MESSAGE && k->phase == 0) q->offered = i;
    }
}

static void finish_first(ls_messages *s, ls_message_queue *q, ls_status st)
{
    ls_work *k = &s->work[q->first];
    q->first = s->next[q->first];
    atomic_store_explicit(&s->finished, atomic_load_explicit(&s->finished, memory_order_relaxed) + 1,
                          memory_order_relaxed);
    ls_work_complete(k, st);
}

/* True when something moved; a failure stays in the work. */
static bool move_sends(ls_group *g, ls_messages *s, ls_message_queue *q, int peer)
{
    bool moved = false;
    int channel = g->channel + LS_GROUP_LANES;
    while (q->offered != LS_NO_MESSAGE) {
        ls_work *k = &s->work[q->offered];
        ls_message m = message_of(k);
        ls_status st = ls_message_offer(g, &m, &k->ticket);
        if (st == LS_AGAIN) break;
        if (LS_UNLIKELY(st < 0)) return finish_first(s, q, st), true;
        k->phase = 1;
        q->offered = s->next[q->offered];
        moved = true;
    }
    if (q->first == q->offered) return moved;
    ls_status st = ls_message_may_help(g) ? g->w->tops->help(g->w->tp, g->world_rank[peer], channel) : LS_AGAIN;
    if (LS_UNLIKELY(st < 0)) return finish_first(s, q, st), true;
    moved |= st == LS_OK;
    uint64_t sent = g->w->tops->sent(g->w->tp, g->world_rank[peer], channel);
    for (; q->first != q->offered && sent >= s->work[q->first].ticket; moved = true) finish_first(s, q, LS_OK);
    return moved;
}

static bool move_receives(ls_group *g, ls_messages *s, ls_message_queue *q)
{
    bool moved = false;
    while (q->first != LS_NO_MESSAGE) {
        ls_work *k = &s->work[q->first];
        ls_message m = message_of(k);
        ls_status st =
            LS_LIKELY(!k->discards) ? ls_message_receive(g, &m, LS_TURN_BYTES) : discard(g, &m, LS_TURN_BYTES);
        moved |= st != LS_AGAIN || k->pos != m.pos;
        k->pos = m.pos;
        if (LS_UNLIKELY(k->discards)) {
            k->nbytes = m.nbytes;
            k->a.count = m.count;
            k->a.dtype = m.dtype;
        }
        if (st == LS_AGAIN) break;
        finish_first(s, q, st);
        if (st < 0) break;
    }
    return moved;
}

/* The same where another library carries messages: it matches those of a pair in the order they are started. */
static bool move_elsewhere(ls_messages *s, ls_message_queue *q)
{
    bool moved = false;
    while (q->first != LS_NO_MESSAGE) {
        ls_work *k = &s->work[q->first];
        int phase = k->phase;
        ls_status st = ls_backend_turn(k);
        moved |= st != LS_AGAIN || k->phase != phase;
        if (st == LS_AGAIN) break;
        finish_first(s, q, st);
        if (st < 0) break;
    }
    return moved;
}

ls_status ls_messages_turn(ls_group *g, ls_messages *s)
{
    bool moved = false;
    pick_up(s);
    for (int i = 0; i < s->nbusy; i++) {
        int peer = s->busy[i].peer;
        ls_message_queue *q = &s->queue[peer][s->busy[i].direction];
        if (LS_UNLIKELY(g->backend != NULL)) moved |= move_elsewhere(s, q);
        else if (s->busy[i].direction == LS_SENDS) moved |= move_sends(g, s, q, peer);
        else moved |= move_receives(g, s, q);
        if (LS_UNLIKELY(atomic_load_explicit(&g->frozen, memory_order_relaxed))) return LS_OK;
        if (q->first == LS_NO_MESSAGE) s->busy[i--] = s->busy[--s->nbusy];
    }
    return moved ? LS_OK : LS_AGAIN;
}

bool ls_messages_idle(ls_messages *s)
{
    return atomic_load_explicit(&s->finished, memory_order_relaxed) ==
           atomic_load_explicit(&s->tail, memory_order_acquire);
}

/* --- works -------------------------------------------------------------------------------------------- */

LS_COLD ls_status ls_messages_create(ls_group *g, ls_messages **out)
{
    const size_t n = (size_t)g->size;
    *out = NULL;
    if (g->w->alone)
        return ls_fail(LS_UNSUPPORTED, "messages over connections in group %s of %s: its other ranks do not exist", g->text,
                       ls_world_alone_name(g->w->dry));
    ls_messages *s = *out = calloc(1, sizeof *s);
    if (s) {
        s->queue = calloc(n, sizeof *s->queue);
        s->busy = calloc(2 * n, sizeof *s->busy);
    }
    if (!s || !s->queue || !s->busy) {
        ls_messages_free(s);
        *out = NULL;
        return ls_fail(LS_NO_MEMORY, "messages of group %s", g->text);
    }
    while (s->nspare < LS_P2P_WORKS) {
        s->spare[s->nspare] = (uint8_t)s->nspare;
        s->nspare++;
    }
    for (int r = 0; r < g->size; r++)
        for (int d = 0; d < 2; d++) s->queue[r][d] = (ls_message_queue){ LS_NO_MESSAGE, LS_NO_MESSAGE, LS_NO_MESSAGE };
    atomic_store_explicit(&g->p2p, s, memory_order_release); /* a progress thread sees it whole */
    return LS_OK;
}

LS_COLD ls_status ls_message_bad(const ls_group *g, const ls_p2p *x, ls_direction d)
{
    const char *what = d == LS_SENDS ? "send" : "recv";
    const void *p = d == LS_SENDS ? x->send : x->recv;
    if (!g) return ls_no_group();
    if (g->failed < 0) return ls_fail(LS_INVALID, "group %s cannot be used any more: %s", g->text, g->error);
    if (ls_elsewhere(g))
        return ls_fail(LS_INVALID, "group %s is rank %d's, and this is rank %d: each rank has handles of its own", g->text,
                       g->w->rank, ls_context_get()->rank);
    if ((unsigned)x->dtype >= LS_DTYPES)
        return ls_fail(LS_INVALID, "%s: dtype number %d does not exist", what, (int)x->dtype);
    if (x->peer < 0 || x->peer >= g->size || x->peer == g->rank)
        return ls_fail(LS_INVALID, "rank %d of %d cannot %s rank %d: expected another rank from 0 to %d", g->rank,
                       g->size, d == LS_SENDS ? "send to" : "receive from", x->peer, g->size - 1);
    if (x->count > LS_MOST_ELEMENTS)
        return ls_fail(LS_INVALID, "%s: %zu elements of %s are more than memory can hold", what, x->count,
                       ls_dtype_name(x->dtype));
    if (x->count > LS_MOST_MESSAGE)
        return ls_fail(LS_UNSUPPORTED, "%s: %zu elements of %s: one message has at most %zu, send more in parts", what,
                       x->count, ls_dtype_name(x->dtype), LS_MOST_MESSAGE);
    if (!p && x->count > 0)
        return ls_fail(LS_INVALID, "%s: no buffer for %zu elements of %s", what, x->count, ls_dtype_name(x->dtype));
    return LS_OK;
}

ls_work *ls_message_give(ls_group *g, ls_messages *s, const ls_message *m, ls_direction d, const char *label)
{
    uint8_t i = s->spare[--s->nspare];
    ls_work *k = &s->work[i];
    k->g = g;
    k->form = &ls_form_messages;
    k->a = (ls_coll_args){ .coll = LS_SENDRECV, .count = m->count, .dtype = m->dtype, .label = label };
    k->peer = m->peer;
    if (d == LS_SENDS) k->a.in = m->p ? m->p : "";
    else k->a.out = m->p;
    k->nbytes = m->nbytes;
    k->pos = m->pos;
    k->phase = 0;
    k->says = m->sig;
    k->discards = false;
    k->status = LS_OK;
    k->live = true;
    k->t0_ns = k->nbytes >= LS_TIMED_BYTES ? ls_env_get()->mono_ns() : 0;
    k->desc = describe(g, m, d);
    if (label) k->desc.label = ls_tracer_label(g->w->tracer, label);
    atomic_store_explicit(&k->done, 0, memory_order_relaxed);
    uint32_t tail = atomic_load_explicit(&s->tail, memory_order_relaxed);
    s->given[tail % 256] = i;
    return k;
}

void ls_message_given(ls_group *g, ls_messages *s)
{
    /* release: the work and its place are complete */
    atomic_store_explicit(&s->tail, atomic_load_explicit(&s->tail, memory_order_relaxed) + 1, memory_order_release);
    if (LS_UNLIKELY(ls_engine_threaded(g->e))) ls_world_wake(g->w, g->w->rank);
}

ls_status ls_message_begin(ls_group *g, const ls_p2p *x, ls_direction d, const char *label, int keep, ls_work **out)
{
    ls_messages *s = atomic_load_explicit(&g->p2p, memory_order_relaxed);
    if (LS_UNLIKELY(!s)) LS_TRY(ls_messages_create(g, &s));
    if (LS_UNLIKELY(s->nspare <= keep))
        return ls_fail(LS_INVALID, "%d messages were started on group %s and none of them waited for",
                       LS_P2P_WORKS - keep, g->text);
    ls_message m = ls_message_next(g, x, d, d == LS_SENDS ? x->send : x->recv);
    *out = ls_message_give(g, s, &m, d, label);
    ls_message_given(g, s);
    ls_count_op(g, LS_SENDRECV);
    return LS_OK;
}

void ls_message_recycle(ls_work *k)
{
    ls_messages *s = atomic_load_explicit(&k->g->p2p, memory_order_relaxed);
    s->spare[s->nspare++] = (uint8_t)(k - s->work);
}

void ls_messages_free(ls_messages *s)
{
    if (!s) return;
    free(s->queue);
    free(s->busy);
    free(s);
}

static ls_status traffic(const ls_work *k, ls_traffic *out)
{
    *out = (ls_traffic){ .flags = k->a.in != NULL, .rounds = 1, .read = k->a.out ? k->nbytes : 0,
                         .written = k->a.in ? k->nbytes : 0 };
    out->counted = k->g->mapped ? out->read : out->written;
    return LS_OK;
}

const ls_form ls_form_messages = { .name = "messages", .about = "a message", .traffic = traffic };
