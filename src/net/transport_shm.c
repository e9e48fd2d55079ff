/* transport_shm.c -- ranks of one machine, through the arenas they all map.
 *
 * Per ordered pair of ranks and channel there is a *pipe* in the sender's
 * arena: a ring of cells (one cache line each) and an acknowledgement word on
 * a line of its own. A cell announces one piece of a message: its bytes are
 * inline (up to 32), in the pipe's bounce buffer, or, when the message lies in
 * the sender's shared arena, simply where they are: the receiver reads them in
 * place and nothing is copied.
 *
 *   sender's arena                               receiver
 *   [ack][cell 0][cell 1] ... [bounce bytes]     reads cell, bytes; writes ack
 *
 * Pipes are allocated on first use. The directory of a rank (offset of the
 * pipe to each peer and channel) stands at the front of its arena.
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "net/transports.h"
#include "net/world.h"

#define CELLS 16u
#define INLINE_BYTES 32u
#define BOUNCE_BYTES (64u << 10) /* a private message goes through in pieces of at most a quarter of it */
#define PIECE_BYTES (BOUNCE_BYTES / 4)
#define TICKETS 64u /* messages of one pipe in flight */

typedef struct cell {
    _Alignas(64) _Atomic uint32_t seq; /* 1 + index of the piece; written last (release) */
    uint32_t sig;
    uint32_t where;                    /* enum place */
    uint32_t reserved;
    uint64_t offset, n;                /* bytes at this offset of the sender's arena */
    char bytes[INLINE_BYTES];
} cell;

enum place { INLINE, ARENA };

typedef struct pipe_shared {
    _Alignas(64) _Atomic uint32_t acked; /* pieces the receiver has taken; written by it alone */
    cell cell[CELLS];
    _Alignas(64) char bounce[BOUNCE_BYTES];
} pipe_shared;

/* directory entry: offset of the pipe in its sender's arena, 0: not there yet */
typedef _Atomic uint64_t dir_entry;

typedef struct sender {
    pipe_shared *p;
    uint32_t sent;       /* pieces announced */
    uint32_t bounce_end[CELLS];
    uint32_t head;       /* next free byte of the bounce ring, counted without wrapping */
    uint32_t tail;       /* first byte a receiver may still read */
    uint32_t freed;      /* pieces whose bounce bytes are free again */
    uint64_t ticket;     /* messages given */
    uint32_t mark[TICKETS]; /* pieces to be acknowledged before ticket i + 1 is released */
    uint32_t pulled;     /* pieces up to the newest one that is read where it lies */
    /* a private message still being cut into pieces */
    const char *rest;
    size_t nrest;
    uint32_t sig;
    bool sending;
    uint64_t done;       /* tickets whose pieces were all acknowledged */
} sender;

typedef struct receiver {
    pipe_shared *p;
    const char *base;    /* the sender's arena as mapped here */
    size_t base_bytes;
    uint32_t got;        /* pieces taken */
    size_t used;         /* bytes of the current piece already taken */
    cell now;            /* the current piece, copied once and checked */
    bool have;
} receiver;

struct ls_transport {
    ls_world *w;
    dir_entry *dir;                                   /* mine: [size][LS_MAX_CHANNELS] */
    sender *out[LS_MAX_RANKS][LS_MAX_CHANNELS];       /* owned; NULL until used */
    receiver *in[LS_MAX_RANKS][LS_MAX_CHANNELS];
    int nsending;                                     /* pipes with a private message half announced */
};

static size_t dir_bytes(int size) { return (size_t)size * LS_MAX_CHANNELS * sizeof(dir_entry); }

ls_status ls_transport_shm_open(ls_world *w, ls_transport **out)
{
    *out = NULL;
    ls_transport *t = calloc(1, sizeof *t);
    if (!t) return ls_fail(LS_NO_MEMORY, "shm transport");
    t->w = w;
    void *dir;
    ls_status st = ls_arena_alloc(w->arena, dir_bytes(w->size), LS_MEM_COMM, &dir);
    if (st < 0) {
        free(t);
        return ls_while(st, "opening the shm transport");
    }
    t->dir = dir;
    /* peers find the directory where every rank has it: first in its arena */
    LS_ASSERT((char *)dir == (char *)ls_arena_base(w->arena));
    *out = t;
    return LS_OK;
}

static ls_status open_shm(ls_world *w, ls_transport **out)
{
    *out = NULL;
    if (w->local_size != w->size)
        return ls_fail(LS_INVALID, "transport 'shm' serves one machine, but only %d of %d ranks are local: use mixed",
                       w->local_size, w->size);
    return ls_transport_shm_open(w, out);
}

static bool near_shm(ls_transport *t, int peer)
{
    (void)t;
    (void)peer;
    return true;
}

static void close_shm(ls_transport *t)
{
    if (!t) return;
    for (int p = 0; p < t->w->size; p++)
        for (int c = 0; c < LS_MAX_CHANNELS; c++) {
            free(t->out[p][c]);
            free(t->in[p][c]);
        }
    free(t);
}

/* --- sending --------------------------------------------------------------- */

static ls_status sender_of(ls_transport *t, int peer, int channel, sender **out)
{
    sender *s = t->out[peer][channel];
    if (LS_LIKELY(s != NULL)) {
        *out = s;
        return LS_OK;
    }
    *out = NULL;
    void *p;
    LS_TRY(ls_arena_alloc(t->w->arena, sizeof(pipe_shared), LS_MEM_COMM, &p));
    s = calloc(1, sizeof *s);
    if (!s) return ls_fail(LS_NO_MEMORY, "shm pipe to rank %d", peer);
    memset(p, 0, offsetof(pipe_shared, bounce));
    s->p = p;
    t->out[peer][channel] = s;
    uint64_t offset = (uint64_t)((char *)p - (char *)ls_arena_base(t->w->arena));
    /* release: the zeroed cells are visible before the pipe can be found */
    atomic_store_explicit(&t->dir[peer * LS_MAX_CHANNELS + channel], offset, memory_order_release);
    *out = s;
    return LS_OK;
}

/* Learns what the receiver has taken: frees bounce bytes, completes tickets. */
static void collect(sender *s)
{
    /* acquire: the receiver's reads of those pieces are over before we overwrite them */
    uint32_t acked = atomic_load_explicit(&s->p->acked, memory_order_acquire);
    /* nonsense from a broken peer: stall, the deadline names it */
    if ((int32_t)(s->sent - acked) < 0 || (int32_t)(acked - s->freed) < 0) return;
    if ((int32_t)(acked - s->pulled) > 0) s->pulled = acked; /* or the numbers grow apart for ever */
    while (s->freed != acked) {
        s->tail = s->bounce_end[s->freed % CELLS];
        s->freed++;
    }
    while (s->done < s->ticket && !(s->sending && s->done + 1 == s->ticket) &&
           (int32_t)(acked - s->mark[s->done % TICKETS]) >= 0)
        s->done++;
}

static void announce(sender *s, const ls_msg *m, uint32_t where, uint64_t offset)
{
    cell *c = &s->p->cell[s->sent % CELLS];
    c->sig = m->sig;
    c->where = where;
    c->offset = offset;
    c->n = m->n;
    if (where == INLINE && m->n > 0) memcpy(c->bytes, m->p, m->n);
    s->bounce_end[s->sent % CELLS] = s->head;
    s->sent++;
    atomic_store_explicit(&c->seq, s->sent, memory_order_release); /* the cell and its bytes are visible first */
}

/* Cuts the rest of a private message into bounce pieces while there is room. */
static bool push_rest(ls_transport *t, sender *s)
{
    bool moved = false;
    while (s->sending && s->sent - s->freed < CELLS) {
        size_t n = s->nrest < PIECE_BYTES ? s->nrest : PIECE_BYTES;
        uint32_t at = s->head % BOUNCE_BYTES, skip = at + n > BOUNCE_BYTES ? BOUNCE_BYTES - at : 0;
        if (s->head + skip + (uint32_t)n - s->tail > BOUNCE_BYTES) break; /* pieces do not wrap */
        s->head += skip;
        char *to = s->p->bounce + s->head % BOUNCE_BYTES;
        memcpy(to, s->rest, n);
        s->head += (uint32_t)((n + 63) & ~(size_t)63);
        s->rest += n;
        s->nrest -= n;
        ls_msg m = { to, n, s->sig };
        announce(s, &m, ARENA, (uint64_t)(to - (char *)ls_arena_base(t->w->arena)));
        if (s->nrest == 0) {
            s->sending = false;
            t->nsending--;
            s->mark[(s->ticket - 1) % TICKETS] = s->pulled; /* all copied: the buffer is free */
        }
        moved = true;
    }
    return moved;
}

static ls_status send_shm(ls_transport *t, int peer, int channel, const ls_msg *m, uint64_t *ticket)
{
    sender *s;
    LS_TRY(sender_of(t, peer, channel, &s));
    collect(s);
    if (s->sending && push_rest(t, s)) ls_world_wake(t->w, peer);
    if (s->sending || s->sent - s->freed >= CELLS || s->ticket - s->done >= TICKETS) return LS_AGAIN;

    *ticket = ++s->ticket;
    if (m->n <= INLINE_BYTES) {
        announce(s, m, INLINE, 0);
        s->mark[(s->ticket - 1) % TICKETS] = s->pulled; /* copied: the buffer is free */
    } else if (ls_arena_holds(t->w->arena, m->p, m->n)) {
        announce(s, m, ARENA, (uint64_t)((const char *)m->p - (char *)ls_arena_base(t->w->arena)));
        s->pulled = s->sent;
        s->mark[(s->ticket - 1) % TICKETS] = s->pulled;
    } else {
        s->sending = true;
        t->nsending++;
        s->rest = m->p;
        s->nrest = m->n;
        s->sig = m->sig;
        push_rest(t, s);
    }
    ls_world_wake(t->w, peer);
    return LS_OK;
}

static uint64_t sent_shm(ls_transport *t, int peer, int channel)
{
    sender *s = t->out[peer][channel];
    if (!s) return 0;
    collect(s);
    if (s->sending && push_rest(t, s)) ls_world_wake(t->w, peer);
    return s->done;
}

/* --- receiving ------------------------------------------------------------- */

static receiver *receiver_of(ls_transport *t, int peer, int channel)
{
    receiver *r = t->in[peer][channel];
    if (LS_LIKELY(r != NULL)) return r;
    const dir_entry *dir = (const dir_entry *)(const void *)t->w->peer_base[peer];
    uint64_t offset = atomic_load_explicit(&dir[t->w->rank * LS_MAX_CHANNELS + channel], memory_order_acquire);
    char *p = ls_world_peer(t->w, peer, offset, sizeof(pipe_shared)); /* copied once, checked, used */
    if (offset == 0 || offset % 64 != 0 || !p) return NULL;
    r = calloc(1, sizeof *r);
    if (!r) return NULL;
    r->base = t->w->peer_base[peer];
    r->base_bytes = t->w->peer_bytes[peer];
    r->p = (pipe_shared *)(void *)p;
    t->in[peer][channel] = r;
    return r;
}

static ls_status view_shm(ls_transport *t, int peer, int channel, ls_msg *m)
{
    receiver *r = receiver_of(t, peer, channel);
    if (!r) return LS_AGAIN;
    if (!r->have) {
        const cell *c = &r->p->cell[r->got % CELLS];
        /* acquire: pairs with announce(); what the cell names is visible */
        if (atomic_load_explicit(&c->seq, memory_order_acquire) != r->got + 1) return LS_AGAIN;
        r->now.sig = c->sig;
        r->now.where = c->where;
        r->now.offset = c->offset;
        r->now.n = c->n;
        if (r->now.where == INLINE && r->now.n <= INLINE_BYTES)
            memcpy(r->now.bytes, c->bytes, r->now.n);
        else if (r->now.where != ARENA || r->now.n > r->base_bytes || r->now.offset > r->base_bytes - r->now.n)
            return ls_fail(LS_PROTOCOL, "rank %d offers %llu bytes at offset %llu of an arena of %zu bytes", peer,
                           (unsigned long long)r->now.n, (unsigned long long)r->now.offset, r->base_bytes);
        r->used = 0;
        r->have = true;
    }
    const char *p = r->now.where == INLINE ? r->now.bytes : r->base + r->now.offset;
    *m = (ls_msg){ p + r->used, r->now.n - r->used, r->now.sig };
    return LS_OK;
}

static ls_status take_shm(ls_transport *t, int peer, int channel, size_t n)
{
    receiver *r = t->in[peer][channel];
    r->used += n;
    if (r->used < r->now.n) return LS_OK;
    r->have = false;
    r->got++;
    /* release: our reads of the piece are over before the sender may overwrite it */
    atomic_store_explicit(&r->p->acked, r->got, memory_order_release);
    ls_world_wake(t->w, peer);
    return LS_OK;
}

static ls_status poke_shm(ls_transport *t)
{
    if (t->nsending == 0) return LS_OK;
    for (int p = 0; p < t->w->size; p++)
        for (int c = 0; c < LS_MAX_CHANNELS; c++) {
            sender *s = t->out[p][c];
            if (!s || !s->sending) continue;
            collect(s);
            if (push_rest(t, s)) ls_world_wake(t->w, p);
        }
    return LS_OK;
}

const ls_transport_ops ls_transport_shm = {
    .name = "shm",
    .open = open_shm,
    .close = close_shm,
    .send = send_shm,
    .sent = sent_shm,
    .view = view_shm,
    .take = take_shm,
    .poke = poke_shm,
    .near = near_shm,
};
