/* p2p.c -- messages between two ranks of a group: send, recv and batches of them.
 *
 * Every member and direction has a queue of its own, moved in order; queues
 * never wait for one another, nor for the group's collectives. Messages go
 * over the group's last channel. Each carries what it is (its group, its
 * number among those of its pair and direction, element type, count), so that
 * a receiver who expects something else can say what was sent.
 *
 * A group that is destroyed leaves its channel empty: members tell one another
 * how many messages they have sent, and who has received fewer discards the
 * rest. The next group of that channel would take them for its own senders'.
 *
 * A blocking call whose queue is empty tries the transport at once and mostly
 * is through; else it becomes a work like any other.
 */
#include <stdlib.h>
#include <string.h>

#include "base/copy.h"
#include "base/log.h"
#include "group/backend.h"
#include "group/impl.h"
#include "net/attach.h"

#define NONE 255u
#define TURN_BYTES ((size_t)256 << 10) /* of one turn: a poke must not take long */
#define QUICK_TURNS 256                /* looks of a blocking call before it becomes a work; */
#define EAGER_TURNS 64                 /* the first ones follow each other at once */
#define PULL_BYTES ((size_t)256 << 10) /* shorter messages are copied by who receives them */
#define PAST_CACHE_BYTES ((size_t)16 << 20) /* both ends' buffers are more than the caches hold: bytes go past them */
/* Bits of a signature: all but the count's, which are the lowest, exact or cut. */
#define COUNT_BITS 37
#define GROUP_BITS 16
#define GENERATION_BITS 2
#define DTYPE_BITS 3
#define GROUP_AT COUNT_BITS
#define GENERATION_AT (GROUP_AT + GROUP_BITS)
#define DTYPE_AT (GENERATION_AT + GENERATION_BITS)
#define SEQ_AT (DTYPE_AT + DTYPE_BITS)
#define SEQ_BITS (64 - SEQ_AT)
_Static_assert(LS_DTYPES <= 1 << DTYPE_BITS && SEQ_BITS == 6, "a message says all that it is");
#define MOST_COUNT (((size_t)1 << COUNT_BITS) - 1) /* elements of one message */
#define ANY_BYTES SIZE_MAX /* of a message that is discarded, before its signature is seen */

enum direction { SEND, RECV };

/* Messages to, or from, one member: first, and from there by `next`. Of sends those before `offered` are with
 * the transport. */
typedef struct queue {
    uint8_t first, offered, last; /* NONE: no more */
} queue;

struct ls_p2p_state {
    /* the caller's */
    uint8_t spare[LS_P2P_WORKS];
    int nspare;
    uint8_t given[256];          /* works on their way to who moves them */
    _Atomic uint32_t tail;       /* works ever given */
    _Atomic uint32_t finished;   /* and complete: written by who moves them */
    /* of who moves them */
    uint32_t picked;
    uint8_t next[LS_P2P_WORKS];
    queue queue[LS_MAX_RANKS][2];
    struct { uint8_t peer, direction; } busy[2 * LS_MAX_RANKS]; /* queues with something in them */
    int nbusy;
    ls_work work[LS_P2P_WORKS];
};
_Static_assert(LS_P2P_WORKS < NONE && LS_MAX_RANKS <= 256, "works and ranks are numbered in bytes");

/* One message, as the transport sees it. */
typedef struct message {
    char *p;
    size_t count, nbytes, pos;
    ls_dtype dtype;
    int peer, world_rank, channel; /* peer: in the group */
    uint32_t seq;
    uint64_t sig;
} message;

/* --- what a message says of itself --------------------------------------------------------------- */

/* Type and count are exact: no call takes a larger count. Of the number 6 bits, of the group's id 16 and of the
 * generation 2 are enough: transports deliver in order, each message once (pieces and frames have numbers of 32 bits),
 * and refuse another generation; a destroyed group leaves no messages. So these bits tell apart only what a broken
 * transport makes of that, and would have to be wrong by a multiple of 64 messages, or 65536 groups, to be missed. */
uint64_t ls_p2p_sign(const ls_group *g)
{
    return (uint64_t)(g->generation & ((1u << GENERATION_BITS) - 1)) << GENERATION_AT |
           (uint64_t)(g->id & ((1u << GROUP_BITS) - 1)) << GROUP_AT;
}
static inline uint64_t signature(const ls_group *g, uint32_t seq, ls_dtype dtype, size_t count)
{
    return g->p2p_sign | (uint64_t)seq << SEQ_AT | (uint64_t)dtype << DTYPE_AT | count;
}
static ls_dtype dtype_in(uint64_t sig) { return (ls_dtype)(sig >> DTYPE_AT & ((1u << DTYPE_BITS) - 1)); }
static size_t count_in(uint64_t sig) { return sig & MOST_COUNT; }

static ls_coll_desc describe(const ls_group *g, const message *m, enum direction d)
{
    return (ls_coll_desc){ .generation = g->generation, .group = g->id, .seq = m->seq, .coll = LS_SENDRECV,
                           .dtype = (uint8_t)m->dtype, .op = (uint8_t)d, .count = m->count, .root = m->world_rank,
                           .block = (uint8_t)(g->channel / LS_GROUP_CHANNELS) };
}

/* What the peer sent, from its signature. */
static LS_COLD ls_status mismatch(ls_group *g, const message *m, uint64_t sig)
{
    ls_coll_desc mine = describe(g, m, RECV), theirs = mine;
    theirs.op = SEND;
    theirs.root = g->w->rank;
    theirs.seq = m->seq + (((uint32_t)(sig >> SEQ_AT) - m->seq + 32u) & 63u) - 32u; /* with these 6 bits the nearest */
    theirs.dtype = (uint8_t)dtype_in(sig);
    theirs.count = count_in(sig);
    const uint32_t group = (uint32_t)(sig >> GROUP_AT) & ((1u << GROUP_BITS) - 1), all = (1u << GROUP_BITS) - 1;
    if (group != (g->id & all)) { /* no group is younger than the newest: of those with these bits the one before it */
        const uint32_t newest = g->e->next_id;
        theirs.group = newest - ((newest - group) & all);
        theirs.seq = (uint32_t)(sig >> SEQ_AT);
    }
    return ls_blame_message(g, &mine, &theirs);
}

/* --- moving one message ---------------------------------------------------------------------------- */

static inline ls_status offer(ls_group *g, const message *m, uint64_t *ticket)
{
    ls_world *w = g->w;
    ls_msg x = { m->p, m->nbytes, m->sig };
    ls_status st = LS_UNSUPPORTED;
    if (LS_UNLIKELY(m->nbytes >= PULL_BYTES) && m->nbytes < LS_ATTACH_MESSAGE_MOST && w->tops->lend &&
        (double)m->nbytes >= g->e->terms.cost.in_memory.attach)
        st = w->tops->lend(w->tp, m->world_rank, m->channel, &x, ticket);
    if (st == LS_UNSUPPORTED) st = w->tops->send(w->tp, m->world_rank, m->channel, &x, ticket);
    if (LS_UNLIKELY(st != LS_OK)) return st;
    atomic_store_explicit(&g->flow->message[m->world_rank], m->seq + 1, memory_order_relaxed);
    if (!g->mapped) ls_count_bytes(g, m->nbytes);
    return LS_OK;
}

/* Takes what is here, at most about `budget` bytes; LS_OK once all of it is. */
static inline ls_status receive(ls_group *g, message *m, size_t budget)
{
    ls_world *w = g->w;
    for (;;) {
        ls_msg x;
        ls_status st = w->tops->view(w->tp, m->world_rank, m->channel, &x);
        if (st != LS_OK) return st;
        if (x.sig == m->sig && x.n == m->nbytes && x.n >= PULL_BYTES && w->tops->pull) {
            size_t from = m->pos;
            st = w->tops->pull(w->tp, m->world_rank, m->channel, m->p, &m->pos);
            if (st == LS_OK && g->mapped) ls_count_bytes(g, m->nbytes);
            if (st == LS_AGAIN && m->pos - from < budget && m->pos > from) {
                budget -= m->pos - from;
                continue;
            }
            if (st != LS_UNSUPPORTED) return st;
        }
        if (LS_UNLIKELY(x.sig != m->sig || x.n > m->nbytes - m->pos)) return mismatch(g, m, x.sig);
        size_t n = x.n <= budget ? x.n : budget;
        if (m->nbytes >= PAST_CACHE_BYTES) ls_copy_past_cache(m->p + m->pos, x.p, n);
        else if (n > 0) memcpy(m->p + m->pos, x.p, n);
        m->pos += n;
        budget -= n;
        if ((st = w->tops->take(w->tp, m->world_rank, m->channel, n)) != LS_OK) return st;
        if (g->mapped) ls_count_bytes(g, n);
        if (m->pos == m->nbytes) return LS_OK;
        if (budget == 0) return LS_AGAIN;
    }
}

/* Takes and forgets a message that this group's members have sent; its own signature says how long it is. */
static LS_COLD ls_status discard(ls_group *g, message *m, size_t budget)
{
    ls_world *w = g->w;
    for (;;) {
        ls_msg x;
        ls_status st = w->tops->view(w->tp, m->world_rank, m->channel, &x);
        if (st != LS_OK) return st;
        const uint64_t ours = signature(g, m->seq, dtype_in(x.sig), count_in(x.sig));
        if (m->nbytes == ANY_BYTES && dtype_in(x.sig) < LS_DTYPES) {
            m->dtype = dtype_in(x.sig);
            m->count = count_in(x.sig);
            m->nbytes = m->count * ls_dtype_size(m->dtype);
        }
        if (x.sig != ours || x.n > m->nbytes - m->pos) return mismatch(g, m, x.sig);
        m->pos += x.n;
        if ((st = w->tops->take(w->tp, m->world_rank, m->channel, x.n)) != LS_OK) return st;
        if (m->pos == m->nbytes) return LS_OK;
        if (x.n >= budget) return LS_AGAIN;
        budget -= x.n;
    }
}

/* --- queues ------------------------------------------------------------------------------------------ */

static enum direction direction_of(const ls_work *k) { return k->a.in ? SEND : RECV; }

static message message_of(const ls_work *k)
{
    const ls_group *g = k->g;
    return (message){ .p = (char *)(uintptr_t)(k->a.in ? k->a.in : k->a.out), .count = k->a.count, .nbytes = k->nbytes,
                      .pos = k->pos, .dtype = k->a.dtype, .peer = k->a.peer, .world_rank = g->world_rank[k->a.peer],
                      .channel = g->channel + LS_GROUP_LANES, .seq = k->desc.seq, .sig = k->says };
}

/* Works that the caller has given since join their queues. */
static void pick_up(struct ls_p2p_state *s)
{
    uint32_t tail = atomic_load_explicit(&s->tail, memory_order_acquire); /* pairs with give() */
    for (; s->picked != tail; s->picked++) {
        uint8_t i = s->given[s->picked % 256];
        const ls_work *k = &s->work[i];
        queue *q = &s->queue[k->a.peer][direction_of(k)];
        s->next[i] = NONE;
        if (q->first == NONE) {
            q->first = i;
            s->busy[s->nbusy].peer = (uint8_t)k->a.peer;
            s->busy[s->nbusy++].direction = (uint8_t)direction_of(k);
        } else {
            s->next[q->last] = i;
        }
        q->last = i;
        if (q->offered == NONE && k->phase == 0) q->offered = i;
    }
}

static void finish_first(struct ls_p2p_state *s, queue *q, ls_status st)
{
    ls_work *k = &s->work[q->first];
    q->first = s->next[q->first];
    atomic_store_explicit(&s->finished, atomic_load_explicit(&s->finished, memory_order_relaxed) + 1,
                          memory_order_relaxed);
    ls_engine_complete(k, st);
}

/* Where ranks share a core the receiver has it, and would wait for what a sender has begun. */
static inline bool may_help(const ls_group *g) { return g->spins && !g->crowded && g->w->tops->help; }

/* True when something moved; a failure stays in the work. */
static bool move_sends(ls_group *g, struct ls_p2p_state *s, queue *q, int peer)
{
    bool moved = false;
    int channel = g->channel + LS_GROUP_LANES;
    while (q->offered != NONE) {
        ls_work *k = &s->work[q->offered];
        message m = message_of(k);
        ls_status st = offer(g, &m, &k->ticket);
        if (st == LS_AGAIN) break;
        if (LS_UNLIKELY(st < 0)) return finish_first(s, q, st), true;
        k->phase = 1;
        q->offered = s->next[q->offered];
        moved = true;
    }
    if (q->first == q->offered) return moved;
    ls_status st = may_help(g) ? g->w->tops->help(g->w->tp, g->world_rank[peer], channel) : LS_AGAIN;
    if (LS_UNLIKELY(st < 0)) return finish_first(s, q, st), true;
    moved |= st == LS_OK;
    uint64_t sent = g->w->tops->sent(g->w->tp, g->world_rank[peer], channel);
    for (; q->first != q->offered && sent >= s->work[q->first].ticket; moved = true) finish_first(s, q, LS_OK);
    return moved;
}

static bool move_receives(ls_group *g, struct ls_p2p_state *s, queue *q)
{
    bool moved = false;
    while (q->first != NONE) {
        ls_work *k = &s->work[q->first];
        message m = message_of(k);
        ls_status st = LS_LIKELY(!k->discards) ? receive(g, &m, TURN_BYTES) : discard(g, &m, TURN_BYTES);
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
static bool move_elsewhere(struct ls_p2p_state *s, queue *q)
{
    bool moved = false;
    while (q->first != NONE) {
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

ls_status ls_p2p_turn(ls_group *g, struct ls_p2p_state *s)
{
    bool moved = false;
    pick_up(s);
    for (int i = 0; i < s->nbusy; i++) {
        int peer = s->busy[i].peer;
        queue *q = &s->queue[peer][s->busy[i].direction];
        if (LS_UNLIKELY(g->backend != NULL)) moved |= move_elsewhere(s, q);
        else if (s->busy[i].direction == SEND) moved |= move_sends(g, s, q, peer);
        else moved |= move_receives(g, s, q);
        if (LS_UNLIKELY(atomic_load_explicit(&g->frozen, memory_order_relaxed))) return LS_OK;
        if (q->first == NONE) s->busy[i--] = s->busy[--s->nbusy];
    }
    return moved ? LS_OK : LS_AGAIN;
}

bool ls_p2p_idle(struct ls_p2p_state *s)
{
    return atomic_load_explicit(&s->finished, memory_order_relaxed) ==
           atomic_load_explicit(&s->tail, memory_order_acquire);
}

/* --- works -------------------------------------------------------------------------------------------- */

static LS_COLD ls_status state_of(ls_group *g, struct ls_p2p_state **out)
{
    struct ls_p2p_state *s = calloc(1, sizeof *s);
    *out = s;
    if (!s) return ls_fail(LS_NO_MEMORY, "messages of group %u", g->id);
    while (s->nspare < LS_P2P_WORKS) {
        s->spare[s->nspare] = (uint8_t)s->nspare;
        s->nspare++;
    }
    for (int r = 0; r < LS_MAX_RANKS; r++)
        for (int d = 0; d < 2; d++) s->queue[r][d] = (queue){ NONE, NONE, NONE };
    atomic_store_explicit(&g->p2p, s, memory_order_release); /* a progress thread sees it whole */
    return LS_OK;
}

static LS_COLD ls_status bad_message(const ls_group *g, const ls_p2p *x, enum direction d)
{
    const char *what = d == SEND ? "send" : "recv";
    const void *p = d == SEND ? x->send : x->recv;
    if (!g) return ls_no_group();
    if (g->failed < 0) return ls_fail(LS_INVALID, "group %u cannot be used any more: %s", g->id, g->error);
    if (ls_elsewhere(g))
        return ls_fail(LS_INVALID, "group %u is rank %d's, and this is rank %d: each rank has handles of its own", g->id,
                       g->w->rank, ls_context_get()->rank);
    if ((unsigned)x->dtype >= LS_DTYPES)
        return ls_fail(LS_INVALID, "%s: dtype number %d does not exist", what, (int)x->dtype);
    if (x->peer < 0 || x->peer >= g->size || x->peer == g->rank)
        return ls_fail(LS_INVALID, "rank %d of %d cannot %s rank %d: expected another rank from 0 to %d", g->rank,
                       g->size, d == SEND ? "send to" : "receive from", x->peer, g->size - 1);
    if (x->count > LS_MOST_ELEMENTS)
        return ls_fail(LS_INVALID, "%s: %zu elements of %s are more than memory can hold", what, x->count,
                       ls_dtype_name(x->dtype));
    if (x->count > MOST_COUNT)
        return ls_fail(LS_UNSUPPORTED, "%s: %zu elements of %s: one message has at most %zu, send more in parts", what,
                       x->count, ls_dtype_name(x->dtype), MOST_COUNT);
    if (!p && x->count > 0)
        return ls_fail(LS_INVALID, "%s: no buffer for %zu elements of %s", what, x->count, ls_dtype_name(x->dtype));
    return LS_OK;
}

static inline bool message_ok(const ls_group *g, const ls_p2p *x, const void *p)
{
    return g && g->failed >= 0 && !ls_elsewhere(g) && (unsigned)x->dtype < LS_DTYPES &&
           (unsigned)x->peer < (unsigned)g->size && x->peer != g->rank && x->count <= MOST_COUNT &&
           (p || x->count == 0);
}

/* The next message of its pair and direction. */
static inline message next_message(ls_group *g, const ls_p2p *x, enum direction d, const void *p)
{
    uint32_t seq = g->p2p_seq[x->peer][d]++;
    return (message){ .p = (char *)(uintptr_t)p, .count = x->count, .nbytes = x->count * ls_dtype_size(x->dtype),
                      .dtype = x->dtype, .peer = x->peer, .world_rank = g->world_rank[x->peer],
                      .channel = g->channel + LS_GROUP_LANES, .seq = seq,
                      .sig = signature(g, seq, x->dtype, x->count) };
}

static inline void count_op(ls_engine *e)
{
    atomic_store_explicit(&e->ops, atomic_load_explicit(&e->ops, memory_order_relaxed) + 1, memory_order_relaxed);
}

/* A message becomes a work; there must be a spare one. */
static ls_work *give(ls_group *g, struct ls_p2p_state *s, const message *m, enum direction d, const char *label)
{
    uint8_t i = s->spare[--s->nspare];
    ls_work *k = &s->work[i];
    k->g = g;
    k->kind = LS_WORK_P2P;
    k->a = (ls_coll_args){ .coll = LS_SENDRECV, .count = m->count, .dtype = m->dtype, .peer = m->peer, .label = label };
    if (d == SEND) k->a.in = m->p ? m->p : "";
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

static void given(ls_group *g, struct ls_p2p_state *s)
{
    /* release: the work and its place are complete */
    atomic_store_explicit(&s->tail, atomic_load_explicit(&s->tail, memory_order_relaxed) + 1, memory_order_release);
    if (LS_UNLIKELY(ls_engine_threaded(g->e))) ls_world_wake(g->w, g->w->rank);
}

/* Checked already. `keep`: works that must stay free for a batch. */
static ls_status start(ls_group *g, const ls_p2p *x, enum direction d, const char *label, int keep, ls_work **out)
{
    struct ls_p2p_state *s = atomic_load_explicit(&g->p2p, memory_order_relaxed);
    if (LS_UNLIKELY(!s)) LS_TRY(state_of(g, &s));
    if (LS_UNLIKELY(s->nspare <= keep))
        return ls_fail(LS_INVALID, "%d messages were started on group %u and none of them waited for",
                       LS_P2P_WORKS - keep, g->id);
    message m = next_message(g, x, d, d == SEND ? x->send : x->recv);
    *out = give(g, s, &m, d, label);
    given(g, s);
    count_op(g->e);
    return LS_OK;
}

ls_status ls_p2p_start(ls_group *g, const ls_coll_args *a, ls_work **out)
{
    enum direction d = a->in ? SEND : RECV;
    ls_p2p x = { .send = a->in, .recv = a->out, .count = a->count, .dtype = a->dtype, .peer = a->peer };
    *out = NULL;
    if (LS_UNLIKELY(!message_ok(g, &x, d == SEND ? x.send : x.recv))) return bad_message(g, &x, d);
    LS_TRY(start(g, &x, d, a->label, LS_P2P_BATCH, out));
    if (!ls_engine_threaded(g->e)) (void)ls_engine_turn_group(g); /* a failure stays in the work */
    return LS_OK;
}

void ls_p2p_recycle(ls_work *k)
{
    struct ls_p2p_state *s = atomic_load_explicit(&k->g->p2p, memory_order_relaxed);
    s->spare[s->nspare++] = (uint8_t)(k - s->work);
}

void ls_p2p_free(struct ls_p2p_state *s) { free(s); }

/* The next message of a member, which no call will ask for: *dtype and *count are what it was. */
static LS_COLD ls_status discard_next(ls_group *g, int peer, ls_dtype *dtype, size_t *count)
{
    struct ls_p2p_state *s = atomic_load_explicit(&g->p2p, memory_order_relaxed);
    if (!s) LS_TRY(state_of(g, &s));
    if (s->nspare == 0) return ls_fail(LS_INVALID, "no spare work for a message of group %u", g->id);
    const ls_p2p x = { .dtype = LS_U8, .peer = peer };
    message m = next_message(g, &x, RECV, NULL);
    m.nbytes = ANY_BYTES;
    ls_work *k = give(g, s, &m, RECV, NULL);
    k->discards = true;
    k->t0_ns = 0;
    given(g, s);
    ls_status st = ls_work_wait(k); /* the work is spare again, but still says what it was */
    *dtype = k->a.dtype;
    *count = k->a.count;
    return st;
}

ls_status ls_p2p_drain(ls_group *g)
{
    uint32_t sent[LS_MAX_RANKS], theirs[LS_MAX_RANKS];
    if (g->backend) return LS_OK; /* the library's own affair: it never reuses what tells its groups apart */
    for (int r = 0; r < g->size; r++) sent[r] = g->p2p_seq[r][SEND];
    const ls_coll_args a = { .coll = LS_ALL_TO_ALL, .in = sent, .out = theirs, .count = (size_t)g->size,
                             .dtype = LS_I32, .label = "ls_group_destroy" };
    LS_TRY(ls_coll_run(g, &a));
    for (int r = 0; r < g->size; r++) {
        const int32_t n = (int32_t)(theirs[r] - g->p2p_seq[r][RECV]);
        ls_dtype dtype = LS_U8, first = LS_U8;
        size_t count = 0, first_count = 0;
        for (int32_t i = 0; i < n; i++) {
            LS_TRY(discard_next(g, r, &dtype, &count));
            if (i == 0) first = dtype, first_count = count;
        }
        if (n > 0)
            ls_log(LS_LOG_WARN,
                   "group %u was destroyed with %d message%s of rank %d that rank %d never received, discarded now: the "
                   "first has %zu %s; receive what is sent, or do not send it",
                   g->id, (int)n, n > 1 ? "s" : "", g->world_rank[r], g->w->rank, first_count, ls_dtype_name(first));
    }
    return LS_OK;
}

/* --- calls ---------------------------------------------------------------------------------------------- */

/* Whether no message of this pair and direction is ahead, and the transport is the caller's. */
static inline bool free_way(const ls_group *g, int peer, enum direction d)
{
    struct ls_p2p_state *s = atomic_load_explicit(&g->p2p, memory_order_relaxed);
    if (ls_engine_threaded(g->e) || g->backend) return false;
    return !s || (s->queue[peer][d].first == NONE && s->picked == atomic_load_explicit(&s->tail, memory_order_relaxed));
}

/* The rest of a blocking call that was not through at once: `ticket` not 0 when its message is with the transport. */
static LS_COLD ls_status wait_as_work(ls_group *g, const message *m, enum direction d, bool offered, uint64_t ticket)
{
    struct ls_p2p_state *s = atomic_load_explicit(&g->p2p, memory_order_relaxed);
    if (!s) LS_TRY(state_of(g, &s));
    if (s->nspare == 0) return ls_fail(LS_INTERNAL, "no spare work for a message of group %u", g->id);
    ls_work *k = give(g, s, m, d, NULL);
    k->phase = offered;
    k->ticket = ticket;
    if (k->nbytes < LS_TIMED_BLOCKING_BYTES) k->t0_ns = 0;
    given(g, s);
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
    if (LS_UNLIKELY(!message_ok(g, &x, buf))) return bad_message(g, &x, SEND);
    message m = next_message(g, &x, SEND, buf);
    count_op(g->e);
    if (LS_UNLIKELY(!free_way(g, peer, SEND))) return wait_as_work(g, &m, SEND, false, 0);
    uint64_t ticket;
    ls_status st = offer(g, &m, &ticket);
    if (LS_UNLIKELY(st != LS_OK)) return st < 0 ? ls_group_fail(g, st) : wait_as_work(g, &m, SEND, false, 0);
    for (int turn = 0; g->w->tops->sent(g->w->tp, m.world_rank, m.channel) < ticket;) {
        if (m.nbytes >= PULL_BYTES && may_help(g) && (st = g->w->tops->help(g->w->tp, m.world_rank, m.channel)) < 0)
            return ls_group_fail(g, st);
        if (!patient(g, &turn)) return wait_as_work(g, &m, SEND, true, ticket);
    }
    return LS_OK;
}

ls_status ls_recv(ls_group *g, void *buf, size_t count, ls_dtype dtype, int peer)
{
    ls_p2p x = { .recv = buf, .count = count, .dtype = dtype, .peer = peer };
    if (LS_UNLIKELY(!message_ok(g, &x, buf))) return bad_message(g, &x, RECV);
    message m = next_message(g, &x, RECV, buf);
    count_op(g->e);
    if (LS_UNLIKELY(!free_way(g, peer, RECV))) return wait_as_work(g, &m, RECV, false, 0);
    ls_status st;
    for (int turn = 0; (st = receive(g, &m, SIZE_MAX)) == LS_AGAIN;)
        if (!patient(g, &turn)) return wait_as_work(g, &m, RECV, false, 0);
    if (LS_LIKELY(st == LS_OK)) st = ls_unless_aborted(g->w);
    return LS_LIKELY(st == LS_OK) ? LS_OK : ls_group_fail(g, st);
}

static LS_COLD ls_status bad_batch(ls_status st, int i) { return ls_while(st, "message %d of a batch", i); }

ls_status ls_p2p_batch(ls_group *g, const ls_p2p *op, int n)
{
    ls_work *work[LS_P2P_BATCH];
    if (!g) return ls_no_group();
    if (n < 0 || n > LS_P2P_BATCH || (n > 0 && !op))
        return ls_fail(LS_INVALID, "a batch of %d messages: expected 0 to %d", n, LS_P2P_BATCH);
    for (int i = 0; i < n; i++) { /* all of them before the first one moves */
        enum direction d = op[i].send ? SEND : RECV;
        if (op[i].send && op[i].recv)
            return bad_batch(ls_fail(LS_INVALID, "it sends and receives at once: expected one of them to be NULL"), i);
        if (!message_ok(g, &op[i], d == SEND ? op[i].send : op[i].recv)) return bad_batch(bad_message(g, &op[i], d), i);
    }
    ls_status st = LS_OK;
    int started = 0;
    while (started < n && st == LS_OK) {
        st = start(g, &op[started], op[started].send ? SEND : RECV, NULL, 0, &work[started]);
        started += st == LS_OK;
    }
    for (int i = 0; i < started; i++) {
        ls_status done = ls_work_wait(work[i]);
        if (st == LS_OK) st = done;
    }
    return st;
}
