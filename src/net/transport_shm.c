/* transport_shm.c -- ranks of one machine, through the arenas they all map.
 *
 * Per ordered pair of ranks and channel there is a *pipe* in the sender's
 * arena: a ring of cells (one cache line each) and an acknowledgement word on
 * a line of its own. A cell announces one piece of a message: its bytes are
 * inline (up to 48), in the pipe's bounce ring, or, when the message is large
 * and lies in the sender's shared arena, simply where they are: the receiver
 * reads them in place and nothing is copied.
 *
 *   sender's arena                               receiver
 *   [ack][cell 0][cell 1] ... [bounce bytes]     reads cell, bytes; writes ack
 *
 * A large message that is read in place is cut into blocks, which both sides copy: the receiver, who says where they
 * belong, and the sender, who would only wait. Each takes the next one by the word `claim`. The sender never has to:
 * what it does not take the receiver does.
 *
 * A large message in private memory may be *lent* to a receiver that can read it there (net/attach.h): its cell says at
 * which address it is, and the receiver copies it once.
 *
 * A message of at most LS_EAGER_BYTES is copied whole and is the sender's again at
 * once. The sender looks at the acknowledgements only when it needs room or
 * waits for a buffer: the line stays with the receiver meanwhile.
 *
 * Pipes are allocated on first use. The directory of a rank stands at the front of its arena: for each peer the
 * offset of a row, which is allocated likewise and has the offset of the pipe of each channel.
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/copy.h"
#include "base/log.h"
#include "net/attach.h"
#include "net/transports.h"
#include "net/world.h"

#define CELLS 64u             /* pieces, and so messages, of one pipe in flight */
#define INLINE_BYTES 48u
#define BOUNCE_BYTES (256u << 10) /* a private message is sent in pieces of at most a quarter of it */
#define PIECE_BYTES (BOUNCE_BYTES / 4)
#define IN_ARENA UINT32_MAX   /* a cell's n: the bytes are not inline, but at its offset, */
#define LENT (UINT32_MAX - 1) /* or in the sender's private memory, at that address */
#define LENT_BYTES ((size_t)256 << 10) /* read at a time */
#define SHARED_BYTES ((size_t)1 << 20) /* messages from this on are copied by both sides, */
#define BLOCK_BYTES ((size_t)128 << 10) /* so much at a time; */
#define PAST_CACHE_BYTES ((size_t)16 << 20) /* from this on past the caches, which hold less than both ends' buffers */
_Static_assert(LS_EAGER_BYTES <= PIECE_BYTES, "an eager message is one piece");

typedef struct cell {
    _Alignas(64) _Atomic uint32_t seq; /* 1 + index of the piece; written last (release) */
    uint32_t n;                        /* bytes of the piece that stand here, or IN_ARENA */
    uint64_t sig;
    union {
        struct { uint64_t offset, nbytes; }; /* in the sender's arena; lent: an address */
        char bytes[INLINE_BYTES];
    };
} cell;

typedef struct pipe_shared {
    _Alignas(64) _Atomic uint32_t acked; /* pieces the receiver has taken; written by it alone */
    _Alignas(64) uint32_t first;         /* where the sender began to count pieces */
    cell cell[CELLS];
    _Alignas(64) _Atomic uint64_t claim; /* number of a piece << 32 | its blocks that somebody has taken; opened by the
                                            receiver (release), who has written `to` */
    uint64_t to;                         /* where the piece belongs in the receiver's arena */
    _Atomic uint32_t helped;             /* blocks that the sender has copied (release) */
    _Alignas(64) char bounce[BOUNCE_BYTES];
} pipe_shared;

/* directory and row entry: offset in the sender's arena, 0: not there yet */
typedef _Atomic uint64_t dir_entry;

typedef struct sender {
    pipe_shared *p;
    uint32_t sent;       /* pieces announced */
    uint32_t acked;      /* and taken, as far as we have looked: their cells and bounce bytes are free again */
    uint32_t head;       /* next free byte of the bounce ring, counted without wrapping */
    uint32_t tail;       /* first byte a receiver may still read */
    uint32_t pulled;     /* pieces up to the newest one that is read where it lies */
    const char *shared;  /* the newest one that the sender may help to copy, until it is taken; NULL: there is none */
    size_t nshared;
    uint32_t piece;      /* its number */
    bool sending;        /* a private message is still being cut into pieces: */
    uint64_t sig;
    const char *rest;
    size_t nrest;
    uint64_t ticket;     /* messages given, */
    uint64_t done;       /* and those whose buffers are not needed any more */
    uint32_t mark[CELLS];/* pieces to be acknowledged before ticket i + 1 is done */
    uint32_t bounce_end[CELLS];
} sender;

typedef struct receiver {
    pipe_shared *p;
    const char *bytes;   /* the rest of the current piece; NULL: none is looked at */
    size_t left;
    uint64_t sig;
    uint32_t got;        /* pieces taken */
    bool may_lend;       /* we can read the sender's private memory */
    bool lent;           /* the current piece stands there: `bytes` is its address */
    bool open;           /* the current piece is being copied in blocks, */
    uint32_t blocks;     /* of which this rank copied so many */
} receiver;

struct ls_transport {
    ls_world *w;
    dir_entry *dir;    /* mine: [size] */
    sender ***out;     /* owned, [size][LS_MAX_CHANNELS]; NULL until used. The row of a peer is `no_out` till then, */
    receiver ***in;    /* or no_in */
    int nsending;      /* pipes with a private message half announced */
    uint32_t first;    /* where new pipes begin to count */
    sender *no_out[LS_MAX_CHANNELS]; /* all NULL */
    receiver *no_in[LS_MAX_CHANNELS];
};

#define ROW_BYTES (LS_MAX_CHANNELS * sizeof(dir_entry))

size_t ls_shm_directory_bytes(int size) { return (size_t)size * sizeof(dir_entry); }
size_t ls_shm_row_bytes(void) { return ROW_BYTES; }
size_t ls_shm_pipe_bytes(void) { return sizeof(pipe_shared); }

static void close_shm(ls_transport *t);

ls_status ls_transport_shm_open(ls_world *w, ls_transport **out)
{
    *out = NULL;
    ls_transport *t = calloc(1, sizeof *t);
    if (!t) return ls_fail(LS_NO_MEMORY, "shm transport");
    t->w = w;
    t->out = calloc((size_t)w->size, sizeof *t->out);
    t->in = calloc((size_t)w->size, sizeof *t->in);
    for (int r = 0; r < w->size && t->out && t->in; r++) {
        t->out[r] = t->no_out;
        t->in[r] = t->no_in;
    }
    void *dir;
    ls_status st = t->out && t->in ? LS_OK : ls_fail(LS_NO_MEMORY, "pipes to %d ranks", w->size);
    if (st == LS_OK) st = ls_arena_alloc(w->arena, ls_shm_directory_bytes(w->size), LS_MEM_COMM, &dir);
    if (st < 0) {
        close_shm(t);
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

static bool is_mapped_shm(ls_transport *t, int peer)
{
    (void)t;
    (void)peer;
    return true;
}

static void close_shm(ls_transport *t)
{
    if (!t) return;
    for (int p = 0; p < t->w->size && t->out && t->in; p++) {
        for (int c = 0; c < LS_MAX_CHANNELS; c++) {
            free(t->out[p][c]);
            free(t->in[p][c]);
        }
        if (t->out[p] != t->no_out) free(t->out[p]);
        if (t->in[p] != t->no_in) free(t->in[p]);
    }
    free(t->out);
    free(t->in);
    free(t);
}

/* --- sending --------------------------------------------------------------- */

/* The row of our pipes to a peer, in our directory and here. */
static ls_status row_to(ls_transport *t, int peer, dir_entry **row)
{
    if (t->out[peer] == t->no_out) {
        sender **out = calloc(LS_MAX_CHANNELS, sizeof *out);
        if (!out) return ls_fail(LS_NO_MEMORY, "shm pipes to rank %d", peer);
        t->out[peer] = out;
    }
    uint64_t offset = atomic_load_explicit(&t->dir[peer], memory_order_relaxed);
    if (offset == 0) {
        void *p;
        LS_TRY(ls_arena_alloc(t->w->arena, ROW_BYTES, LS_MEM_COMM, &p));
        memset(p, 0, ROW_BYTES);
        offset = ls_world_offset(t->w, p, ROW_BYTES);
        /* release: the zeroed row is visible before it can be found */
        atomic_store_explicit(&t->dir[peer], offset, memory_order_release);
    }
    *row = (dir_entry *)(void *)ls_world_peer(t->w, t->w->rank, offset, ROW_BYTES);
    return LS_OK;
}

static ls_status sender_of(ls_transport *t, int peer, int channel, sender **out)
{
    sender *s = t->out[peer][channel];
    if (LS_LIKELY(s != NULL)) {
        *out = s;
        return LS_OK;
    }
    *out = NULL;
    void *p;
    dir_entry *row;
    LS_TRY(row_to(t, peer, &row));
    LS_TRY(ls_arena_alloc(t->w->arena, sizeof(pipe_shared), LS_MEM_COMM, &p));
    s = calloc(1, sizeof *s);
    if (!s) return ls_fail(LS_NO_MEMORY, "shm pipe to rank %d", peer);
    s->p = p;
    memset(p, 0, offsetof(pipe_shared, bounce));
    s->p->first = s->sent = s->acked = s->pulled = t->first;
    atomic_store_explicit(&s->p->acked, t->first, memory_order_relaxed);
    atomic_store_explicit(&s->p->claim, (uint64_t)t->first << 32 | UINT32_MAX, memory_order_relaxed); /* nothing left */
    for (uint32_t i = 0; i < CELLS; i++) atomic_store_explicit(&s->p->cell[i].seq, t->first, memory_order_relaxed);
    s->head = s->tail = t->first * 64;
    t->out[peer][channel] = s;
    uint64_t offset = ls_world_offset(t->w, p, sizeof(pipe_shared));
    /* release: the zeroed cells are visible before the pipe can be found */
    atomic_store_explicit(&row[channel], offset, memory_order_release);
    *out = s;
    return LS_OK;
}

static ls_status reserve_shm(ls_transport *t, int peer, int channel)
{
    sender *s;
    return sender_of(t, peer, channel, &s);
}

/* Learns what the receiver has taken: frees cells and bounce bytes, completes tickets. */
static void collect(sender *s)
{
    /* acquire: the receiver's reads of those pieces are over before we overwrite them */
    uint32_t acked = atomic_load_explicit(&s->p->acked, memory_order_acquire);
    /* nonsense from a broken peer: stall, the deadline names it */
    if ((int32_t)(s->sent - acked) < 0 || (int32_t)(acked - s->acked) < 0) return;
    if (acked != s->acked) s->tail = s->bounce_end[(acked - 1) % CELLS];
    s->acked = acked;
    if ((int32_t)(acked - s->pulled) > 0) s->pulled = acked; /* or the numbers grow apart for ever */
    while (s->done < s->ticket && !(s->sending && s->done + 1 == s->ticket) &&
           (int32_t)(acked - s->mark[s->done % CELLS]) >= 0)
        s->done++;
    if (s->shared && (int32_t)(acked - s->piece) >= 0) s->shared = NULL;
}

static inline bool has_cell(const sender *s) { return s->sent - s->acked < CELLS; }

/* The next cell; its piece is announced by announce(). */
static inline cell *next_cell(sender *s) { return &s->p->cell[s->sent % CELLS]; }

static inline void announce(sender *s, cell *c, uint64_t sig, uint32_t n)
{
    c->sig = sig;
    c->n = n;
    s->bounce_end[s->sent % CELLS] = s->head;
    s->sent++;
    atomic_store_explicit(&c->seq, s->sent, memory_order_release); /* the cell and its bytes are visible first */
}

/* Room for n <= PIECE_BYTES in one span of the bounce ring, or NULL. */
static char *bounce(sender *s, size_t n)
{
    uint32_t at = s->head % BOUNCE_BYTES, skip = at + n > BOUNCE_BYTES ? BOUNCE_BYTES - at : 0;
    if (s->head + skip + (uint32_t)n - s->tail > BOUNCE_BYTES) return NULL;
    char *p = s->p->bounce + (s->head + skip) % BOUNCE_BYTES;
    s->head += skip + (uint32_t)((n + 63) & ~(size_t)63);
    return p;
}

static void announce_at(const ls_transport *t, sender *s, uint64_t sig, const char *p, size_t n)
{
    cell *c = next_cell(s);
    c->offset = ls_world_offset(t->w, p, n);
    c->nbytes = n;
    announce(s, c, sig, IN_ARENA);
}

/* The newest message is copied whole: its buffer is free once those before it are. */
static inline void copied(sender *s)
{
    if (LS_LIKELY(s->done + 1 == s->ticket && (int32_t)(s->acked - s->pulled) >= 0)) s->done = s->ticket;
    else s->mark[(s->ticket - 1) % CELLS] = s->pulled;
}

/* Cuts the rest of a private message into bounce pieces while there is room. */
static bool push_rest(ls_transport *t, sender *s)
{
    bool moved = false;
    while (s->sending) {
        size_t n = s->nrest < PIECE_BYTES ? s->nrest : PIECE_BYTES;
        char *to = has_cell(s) ? bounce(s, n) : NULL;
        if (!to) break;
        /* The receiver's core has read these lines before: on some processors stores past the caches need not wait for
         * it, on others they are slower. `lockstep calibrate` finds out for slots, which are used in the same way. */
        if (t->w->bounce_past_cache) ls_copy_past_cache(to, s->rest, n);
        else memcpy(to, s->rest, n);
        s->rest += n;
        s->nrest -= n;
        announce_at(t, s, s->sig, to, n);
        moved = true;
        if (s->nrest > 0) continue;
        s->sending = false;
        t->nsending--;
        copied(s);
    }
    return moved;
}

/* Goes on with a private message. */
static void push(ls_transport *t, sender *s, int peer)
{
    collect(s);
    if (push_rest(t, s)) ls_world_wake(t->w, peer);
}

static ls_status send_shm(ls_transport *t, int peer, int channel, const ls_msg *m, uint64_t *ticket)
{
    sender *s = t->out[peer][channel];
    if (LS_UNLIKELY(!s)) LS_TRY(sender_of(t, peer, channel, &s));
    if (LS_UNLIKELY(s->sending)) push(t, s, peer);
    if (LS_UNLIKELY(!has_cell(s) || s->ticket - s->done >= CELLS)) collect(s);
    if (LS_UNLIKELY(s->sending || !has_cell(s) || s->ticket - s->done >= CELLS)) return LS_AGAIN;

    if (m->n <= INLINE_BYTES) {
        cell *c = next_cell(s);
        if (m->n > 0) memcpy(c->bytes, m->p, m->n);
        announce(s, c, m->sig, (uint32_t)m->n);
        s->ticket++;
        copied(s);
    } else if (m->n <= LS_EAGER_BYTES) {
        char *to = bounce(s, m->n);
        if (LS_UNLIKELY(!to)) {
            collect(s);
            if (!(to = bounce(s, m->n))) return LS_AGAIN;
        }
        memcpy(to, m->p, m->n);
        announce_at(t, s, m->sig, to, m->n);
        s->ticket++;
        copied(s);
    } else if (ls_arena_holds(t->w->arena, m->p, m->n)) {
        announce_at(t, s, m->sig, m->p, m->n);
        s->ticket++;
        s->mark[(s->ticket - 1) % CELLS] = s->pulled = s->sent;
        if (m->n >= SHARED_BYTES) {
            s->shared = m->p;
            s->nshared = m->n;
            s->piece = s->sent;
        }
    } else {
        s->ticket++;
        s->sending = true;
        t->nsending++;
        s->rest = m->p;
        s->nrest = m->n;
        s->sig = m->sig;
        push_rest(t, s);
    }
    *ticket = s->ticket;
    ls_world_wake(t->w, peer);
    return LS_OK;
}

static ls_status lend_shm(ls_transport *t, int peer, int channel, const ls_msg *m, uint64_t *ticket)
{
    sender *s;
    if (!ls_attach_reads(t->w, peer, t->w->rank) || ls_arena_holds(t->w->arena, m->p, m->n)) return LS_UNSUPPORTED;
    LS_TRY(sender_of(t, peer, channel, &s));
    if (s->sending) push(t, s, peer);
    if (!has_cell(s) || s->ticket - s->done >= CELLS) collect(s);
    if (s->sending || !has_cell(s) || s->ticket - s->done >= CELLS) return LS_AGAIN;
    cell *c = next_cell(s);
    c->offset = (uint64_t)(uintptr_t)m->p;
    c->nbytes = m->n;
    announce(s, c, m->sig, LENT);
    *ticket = ++s->ticket;
    s->mark[(s->ticket - 1) % CELLS] = s->pulled = s->sent;
    ls_world_wake(t->w, peer);
    return LS_OK;
}

static uint64_t sent_shm(ls_transport *t, int peer, int channel)
{
    sender *s = t->out[peer][channel];
    if (!s) return 0;
    if (s->done != s->ticket) push(t, s, peer);
    return s->done;
}

/* --- large messages: both sides copy ------------------------------------------ */

/* The last block first: what was written last is still near. */
static void copy_shared(char *to, const char *from, size_t n, uint32_t i)
{
    size_t end = n - i * BLOCK_BYTES, len = end < BLOCK_BYTES ? end : BLOCK_BYTES;
    if (n >= PAST_CACHE_BYTES) ls_copy_past_cache(to + end - len, from + end - len, len);
    else memcpy(to + end - len, from + end - len, len);
}

/* Takes the next block of the piece; false when none is left, or it is not open. */
static bool claim(pipe_shared *p, uint32_t piece, size_t n, uint32_t *block)
{
    uint64_t c = atomic_load_explicit(&p->claim, memory_order_acquire); /* `to` is visible */
    do {
        *block = (uint32_t)c;
        if ((uint32_t)(c >> 32) != piece || *block >= (n + BLOCK_BYTES - 1) / BLOCK_BYTES) return false;
    } while (!atomic_compare_exchange_weak_explicit(&p->claim, &c, c + 1, memory_order_acq_rel, memory_order_acquire));
    return true;
}

static ls_status help_shm(ls_transport *t, int peer, int channel)
{
    sender *s = t->out[peer][channel];
    uint32_t block;
    if (!s || !s->shared) return LS_AGAIN;
    if (!claim(s->p, s->piece, s->nshared, &block)) return LS_AGAIN;
    char *to = ls_world_peer(t->w, peer, s->p->to, s->nshared); /* copied once, checked, used */
    if (!to) return ls_fail(LS_PROTOCOL, "rank %d wants a message outside its arena", peer);
    copy_shared(to, s->shared, s->nshared, block);
    /* one writer while the piece is open; release: the bytes are there */
    uint32_t helped = atomic_load_explicit(&s->p->helped, memory_order_relaxed);
    atomic_store_explicit(&s->p->helped, helped + 1, memory_order_release);
    return LS_OK;
}

/* --- receiving ------------------------------------------------------------- */

static receiver *receiver_of(ls_transport *t, int peer, int channel)
{
    receiver *r = t->in[peer][channel];
    if (LS_LIKELY(r != NULL)) return r;
    const dir_entry *dir = (const dir_entry *)(const void *)t->w->peer_base[peer];
    uint64_t offset = atomic_load_explicit(&dir[t->w->rank], memory_order_acquire);
    const char *row = ls_world_peer(t->w, peer, offset, ROW_BYTES); /* copied once, checked, used */
    if (offset == 0 || offset % 64 != 0 || !row) return NULL;
    offset = atomic_load_explicit(&((const dir_entry *)(const void *)row)[channel], memory_order_acquire);
    char *p = ls_world_peer(t->w, peer, offset, sizeof(pipe_shared)); /* likewise */
    if (offset == 0 || offset % 64 != 0 || !p) return NULL;
    if (t->in[peer] == t->no_in) {
        receiver **in = calloc(LS_MAX_CHANNELS, sizeof *in);
        if (!in) return NULL;
        t->in[peer] = in;
    }
    r = calloc(1, sizeof *r);
    if (!r) return NULL;
    r->may_lend = ls_attach_reads(t->w, t->w->rank, peer);
    r->p = (pipe_shared *)(void *)p;
    r->got = r->p->first;
    t->in[peer][channel] = r;
    return r;
}

/* The next piece, once it is here. */
static ls_status look(ls_transport *t, receiver *r, int peer)
{
    const cell *c = &r->p->cell[r->got % CELLS];
    /* acquire: pairs with announce(); what the cell names is visible */
    if (atomic_load_explicit(&c->seq, memory_order_acquire) != r->got + 1) return LS_AGAIN;
    const uint32_t here = c->n; /* copied once, checked, used */
    r->sig = c->sig;
    if (here <= INLINE_BYTES) {
        r->bytes = c->bytes;
        r->left = here;
        return LS_OK;
    }
    const uint64_t n = c->nbytes, offset = c->offset; /* likewise */
    r->lent = here == LENT && r->may_lend && offset != 0 && n != 0;
    if (r->lent) { /* whoever pulls it knows how long it must be; the system checks the address */
        r->bytes = (const char *)(uintptr_t)offset;
        r->left = n;
        return LS_OK;
    }
    r->bytes = here == IN_ARENA && n > 0 ? ls_world_peer(t->w, peer, offset, n) : NULL;
    if (LS_UNLIKELY(!r->bytes))
        return ls_fail(LS_PROTOCOL, "rank %d offers %llu bytes at offset %llu, which is outside its arena", peer,
                       (unsigned long long)n, (unsigned long long)offset);
    r->left = n;
    return LS_OK;
}

static ls_status view_shm(ls_transport *t, int peer, int channel, ls_msg *m)
{
    receiver *r = t->in[peer][channel];
    if (LS_UNLIKELY(!r) && !(r = receiver_of(t, peer, channel))) return LS_AGAIN;
    if (!r->bytes) {
        ls_status st = look(t, r, peer);
        if (st != LS_OK) return st;
    }
    *m = (ls_msg){ r->lent ? NULL : r->bytes, r->left, r->sig };
    return LS_OK;
}

static ls_status take_shm(ls_transport *t, int peer, int channel, size_t n)
{
    receiver *r = t->in[peer][channel];
    r->bytes += n;
    r->left -= n;
    if (r->left > 0) return LS_OK;
    r->bytes = NULL;
    r->lent = false;
    r->got++;
    /* release: our reads of the piece are over before the sender may overwrite it */
    atomic_store_explicit(&r->p->acked, r->got, memory_order_release);
    ls_world_wake(t->w, peer);
    return LS_OK;
}

/* The next part of a message that is lent. */
static ls_status pull_lent(ls_transport *t, int peer, int channel, char *dst, size_t *got)
{
    const receiver *r = t->in[peer][channel];
    const size_t left = r->left - *got, n = left < LENT_BYTES ? left : LENT_BYTES;
    LS_TRY(ls_attach_read(t->w, peer, (uint64_t)(uintptr_t)r->bytes + *got, dst + *got, n));
    *got += n;
    return n < left ? LS_AGAIN : take_shm(t, peer, channel, r->left);
}

static ls_status pull_shm(ls_transport *t, int peer, int channel, void *dst, size_t *got)
{
    receiver *r = t->in[peer][channel];
    size_t n = r->left;
    uint32_t piece = r->got + 1, block;
    if (r->lent) return pull_lent(t, peer, channel, dst, got);
    if (!r->open) {
        if (n < SHARED_BYTES || !ls_arena_holds(t->w->arena, dst, n)) return LS_UNSUPPORTED;
        r->p->to = ls_world_offset(t->w, dst, n);
        atomic_store_explicit(&r->p->helped, 0, memory_order_relaxed);
        atomic_store_explicit(&r->p->claim, (uint64_t)piece << 32, memory_order_release);
        r->open = true;
        r->blocks = 0;
        ls_world_wake(t->w, peer);
    }
    size_t blocks = (n + BLOCK_BYTES - 1) / BLOCK_BYTES;
    if (claim(r->p, piece, n, &block)) {
        copy_shared(dst, r->bytes, n, block);
        r->blocks++;
        if (*got + BLOCK_BYTES < n) *got += BLOCK_BYTES;
    }
    /* acquire: what the sender has copied is there */
    if (r->blocks + atomic_load_explicit(&r->p->helped, memory_order_acquire) < blocks) return LS_AGAIN;
    r->open = false;
    *got = n;
    return take_shm(t, peer, channel, n);
}

void ls_shm_count_from(ls_transport *t, uint32_t first) { t->first = first; }

static ls_status progress_shm(ls_transport *t)
{
    if (t->nsending == 0) return LS_OK;
    for (int p = 0; p < t->w->size; p++)
        for (int c = 0; c < LS_MAX_CHANNELS && t->out[p] != t->no_out; c++) {
            sender *s = t->out[p][c];
            if (s && s->sending) push(t, s, p);
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
    .pull = pull_shm,
    .help = help_shm,
    .lend = lend_shm,
    .reserve = reserve_shm,
    .progress = progress_shm,
    .is_mapped = is_mapped_shm,
};
