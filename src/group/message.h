/* message.h -- a message between two ranks of a group, and the queues of those in flight.
 *
 * Messages have works of their own. message.c checks, starts and moves them; p2p.c has the calls. What a blocking call
 * does when nothing is ahead of it is inline here: offering a message to the transport, and taking one that is there.
 */
#ifndef LS_GROUP_MESSAGE_H
#define LS_GROUP_MESSAGE_H
#include <string.h>

#include "base/copy.h"
#include "group/engine.h"
#include "net/attach.h"

#define LS_P2P_WORKS (LS_WORKS + LS_P2P_BATCH) /* messages in flight: 64 and a batch */
#define LS_NO_MESSAGE 255u
#define LS_PULL_BYTES ((size_t)256 << 10) /* shorter messages are copied by who receives them */
#define LS_MESSAGE_PAST_CACHE ((size_t)16 << 20) /* both ends' buffers are more than the caches hold: bytes go past them */
#define LS_ANY_BYTES SIZE_MAX /* of a message that is discarded, before its signature is seen */

/* Bits of a message's signature: the count's are the lowest. Type and count are exact: no call takes a larger count. Of
 * the number 6 bits, of the group's id 16 and of the generation 2 are enough: transports deliver in order, each message
 * once (pieces and frames have numbers of 32 bits), and refuse another generation; a destroyed group leaves none. So
 * these bits tell apart only what a broken transport makes of that, and would have to be wrong by a multiple of 64
 * messages, or 65536 groups, to be missed. */
enum {
    LS_COUNT_BITS = 37, LS_ID_BITS = 16, LS_GENERATION_BITS = 2, LS_DTYPE_BITS = 3,
    LS_ID_AT = LS_COUNT_BITS,
    LS_GENERATION_AT = LS_ID_AT + LS_ID_BITS,
    LS_DTYPE_AT = LS_GENERATION_AT + LS_GENERATION_BITS,
    LS_SEQ_AT = LS_DTYPE_AT + LS_DTYPE_BITS
};
_Static_assert(LS_DTYPES <= 1 << LS_DTYPE_BITS && 64 - LS_SEQ_AT == 6, "a message says all that it is");
#define LS_MOST_MESSAGE (((size_t)1 << LS_COUNT_BITS) - 1) /* elements of one message */

typedef enum ls_direction { LS_SENDS, LS_RECEIVES } ls_direction;

/* Messages to, or from, one member: first, and from there by `next`. Of sends those before `offered` are with
 * the transport. */
typedef struct ls_message_queue {
    uint8_t first, offered, last; /* LS_NO_MESSAGE: no more */
} ls_message_queue;

typedef struct ls_messages {
    /* the caller's */
    uint8_t spare[LS_P2P_WORKS];
    int nspare;
    uint8_t given[256];          /* works on their way to who moves them */
    _Atomic uint32_t tail;       /* works ever given */
    _Atomic uint32_t finished;   /* and complete: written by who moves them */
    /* of who moves them */
    uint32_t picked;
    uint8_t next[LS_P2P_WORKS];
    ls_message_queue (*queue)[2];    /* owned, [size] */
    struct { int32_t peer, direction; } *busy; /* owned, [2 size]: queues with something in them */
    int nbusy;
    ls_work work[LS_P2P_WORKS];
} ls_messages;
_Static_assert(LS_P2P_WORKS < LS_NO_MESSAGE, "works are numbered in bytes");

/* One message, as the transport sees it. */
typedef struct ls_message {
    char *p;
    size_t count, nbytes, pos;
    ls_dtype dtype;
    int peer, world_rank, channel; /* peer: in the group */
    uint32_t seq;
    uint64_t sig;
} ls_message;

uint64_t ls_message_sign(const ls_group *g); /* for a new group's p2p_sign */
static inline uint64_t ls_message_signature(const ls_group *g, uint32_t seq, ls_dtype dtype, size_t count)
{
    return g->p2p_sign | (uint64_t)seq << LS_SEQ_AT | (uint64_t)dtype << LS_DTYPE_AT | count;
}
/* LS_COLL_MISMATCH: what the peer sent, from its signature, is not message m. */
LS_COLD ls_status ls_message_mismatch(ls_group *g, const ls_message *m, uint64_t sig);

/* --- works ------------------------------------------------------------------------------------------------ */

/* Starts a message that ls_message_ok has passed; the caller gives the engine a turn. `keep`: works that must stay free
 * for a batch. */
ls_status ls_message_begin(ls_group *g, const ls_p2p *x, ls_direction d, const char *label, int keep, ls_work **out);
/* A message becomes a work, which waits for ls_message_given: there must be a spare one. */
ls_work *ls_message_give(ls_group *g, ls_messages *s, const ls_message *m, ls_direction d, const char *label);
void ls_message_given(ls_group *g, ls_messages *s);
void ls_message_recycle(ls_work *k);
/* The sentence for one that ls_message_ok refuses. */
LS_COLD ls_status ls_message_bad(const ls_group *g, const ls_p2p *x, ls_direction d);

/* A group's messages, made when they are needed first. */
LS_COLD ls_status ls_messages_create(ls_group *g, ls_messages **out);
void ls_messages_free(ls_messages *s); /* NULL is fine */
/* One turn of all of them: LS_OK when something moved. */
ls_status ls_messages_turn(ls_group *g, ls_messages *s);
bool ls_messages_idle(ls_messages *s);

/* --- moving one message ----------------------------------------------------------------------------------- */

/* Where ranks share a core the receiver has it, and would wait for what a sender has begun. */
static inline bool ls_message_may_help(const ls_group *g) { return g->spins && !g->crowded && g->w->tops->help; }

static inline ls_status ls_message_offer(ls_group *g, const ls_message *m, uint64_t *ticket)
{
    ls_world *w = g->w;
    ls_msg x = { m->p, m->nbytes, m->sig };
    ls_status st = LS_UNSUPPORTED;
    if (LS_UNLIKELY(m->nbytes >= LS_PULL_BYTES) && m->nbytes < LS_ATTACH_MESSAGE_MOST && w->tops->lend &&
        (double)m->nbytes >= g->e->tuning.cost.in_memory.attach)
        st = w->tops->lend(w->tp, m->world_rank, m->channel, &x, ticket);
    if (st == LS_UNSUPPORTED) st = w->tops->send(w->tp, m->world_rank, m->channel, &x, ticket);
    if (LS_UNLIKELY(st != LS_OK)) return st;
    atomic_store_explicit(&g->messages[m->world_rank], m->seq + 1, memory_order_relaxed);
    if (!g->mapped) ls_count_bytes(g, LS_SENDRECV, m->nbytes);
    return LS_OK;
}

/* Takes what is here, at most about `budget` bytes; LS_OK once all of it is. */
static inline ls_status ls_message_receive(ls_group *g, ls_message *m, size_t budget)
{
    ls_world *w = g->w;
    for (;;) {
        ls_msg x;
        ls_status st = w->tops->view(w->tp, m->world_rank, m->channel, &x);
        if (st != LS_OK) return st;
        if (x.sig == m->sig && x.n == m->nbytes && x.n >= LS_PULL_BYTES && w->tops->pull) {
            size_t from = m->pos;
            st = w->tops->pull(w->tp, m->world_rank, m->channel, m->p, &m->pos);
            if (st == LS_OK && g->mapped) ls_count_bytes(g, LS_SENDRECV, m->nbytes);
            if (st == LS_AGAIN && m->pos - from < budget && m->pos > from) {
                budget -= m->pos - from;
                continue;
            }
            if (st != LS_UNSUPPORTED) return st;
        }
        if (LS_UNLIKELY(x.sig != m->sig || x.n > m->nbytes - m->pos)) return ls_message_mismatch(g, m, x.sig);
        size_t n = x.n <= budget ? x.n : budget;
        if (m->nbytes >= LS_MESSAGE_PAST_CACHE) ls_copy_past_cache(m->p + m->pos, x.p, n);
        else if (n > 0) memcpy(m->p + m->pos, x.p, n);
        m->pos += n;
        budget -= n;
        if ((st = w->tops->take(w->tp, m->world_rank, m->channel, n)) != LS_OK) return st;
        if (g->mapped) ls_count_bytes(g, LS_SENDRECV, n);
        if (m->pos == m->nbytes) return LS_OK;
        if (budget == 0) return LS_AGAIN;
    }
}

static inline bool ls_message_ok(const ls_group *g, const ls_p2p *x, const void *p)
{
    return g && g->failed >= 0 && !ls_elsewhere(g) && (unsigned)x->dtype < LS_DTYPES &&
           (unsigned)x->peer < (unsigned)g->size && x->peer != g->rank && x->count <= LS_MOST_MESSAGE &&
           (p || x->count == 0);
}

/* The next message of its pair and direction. */
static inline ls_message ls_message_next(ls_group *g, const ls_p2p *x, ls_direction d, const void *p)
{
    uint32_t seq = g->p2p_seq[x->peer][d]++;
    return (ls_message){ .p = (char *)(uintptr_t)p, .count = x->count, .nbytes = x->count * ls_dtype_size(x->dtype),
                         .dtype = x->dtype, .peer = x->peer, .world_rank = g->world_rank[x->peer],
                         .channel = g->channel + LS_GROUP_LANES, .seq = seq,
                         .sig = ls_message_signature(g, seq, x->dtype, x->count) };
}

#endif
