/* transport_tcp.c -- ranks over TCP: one connection per peer, on which all
 * channels take turns.
 *
 * A message is cut into frames of at most 248 KiB, of which two fit into a
 * window, and between hosts 128 KiB: a wire takes a millisecond for so many, and
 * nothing of a frame is shown before all of it is there. Some frames make a batch
 * that one call hands to the kernel: heads and short payloads from a buffer, long
 * payloads straight from the caller's memory, which is free again once the
 * kernel has taken the batch.
 *
 *   message -> [queue of the channel] -> frames -> [batch] -> socket
 *   socket -> heads, checked -> payload into the [ring of the channel], checked -> view
 *
 * Every channel has a ring at its receiver, and the sender never has more
 * under way than the ring can hold (its credit, which the receiver renews as
 * the ring is read). So what comes out of a socket can always be put away, and
 * a channel that nobody reads blocks none of the others.
 *
 * A ring holds entries: 16 bytes that say length, signature and whether the
 * message ends, then the payload, padded to 16. An entry is shown once its
 * frame is whole and its checksum is right, never before.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/log.h"
#include "meet/door.h"
#include "net/tcp.h"
#include "net/transports.h"

#define QUEUE 64u                       /* messages of a channel that wait to be cut or taken */
#define BATCH_BYTES (512u << 10)
#define FAR_FRAME_BYTES (128u << 10)    /* of a frame where the link leaves the host */
#define TELL_BYTES LS_TCP_FRAME_BYTES   /* read bytes that a sender hears of at once */
#define BATCH_FRAMES 16                 /* data frames of a batch */
#define SHORT_BYTES 4096u               /* payloads up to this travel in the batch's buffer, behind their heads */
#define CREDITS_BYTES (LS_MAX_CHANNELS * sizeof(ls_tcp_frame))
#define OUT_BYTES ((32u << 10) + CREDITS_BYTES) /* of that buffer; the credits' place is theirs */
#define SPANS (2 * BATCH_FRAMES + 2)
#define IN_BYTES (16u << 10)            /* of heads and short frames, read together */
#define LONG_IN_BYTES 256u              /* the same while frames are long */
#define GATHER_BYTES (32u << 10)        /* of a long payload are read at once, */
#define GATHER_NS 100000u               /* unless no more has come for so long */
#define READS 4                         /* of one socket before the others have their turn */
#define BYE_NS 1000000000ull            /* how long an orderly close may take */
#define HEARSAY_NS 500000000ull         /* how long the reason for a peer's end may take from its host to ours */

typedef struct entry {
    uint32_t n, last;
    uint64_t sig;
} entry;
_Static_assert(sizeof(entry) == LS_TCP_ENTRY, "an entry is what it costs");

typedef struct sender {
    ls_msg queue[QUEUE];
    size_t at;                  /* bytes of the oldest message that is not cut whole */
    uint64_t given, cut, done;  /* messages queued, cut to their end, taken by the kernel (tickets) */
    uint32_t used, credit;      /* window bytes ever sent, and ever read by the peer */
} sender;

typedef struct receiver {
    char *ring;             /* owned, LS_TCP_WINDOW bytes */
    uint32_t head, tail;    /* bytes ever read and ever filled; the index is modulo the window */
    uint32_t told;          /* the head that the peer knows */
    uint32_t taken;         /* payload bytes of the entry at head that are read */
} receiver;

typedef struct wire {
    ls_tcp_link link;       /* fd -1: closed */
    uint32_t seq_in, seq_out;

    /* Output: the batch that the kernel has not taken whole. */
    char *out;                     /* owned, OUT_BYTES: heads and short payloads */
    size_t nout, nbatch;           /* bytes of `out`, of the whole batch */
    ls_span span[SPANS];           /* [first, nspan) is still to go */
    int first, nspan, frames;
    uint8_t ended[BATCH_FRAMES];   /* channels of the messages that end in it */
    int nended;

    /* Input: bytes in `in`, unless the payload of `frame` is still coming. */
    char *in;                      /* owned, IN_BYTES */
    size_t have;
    ls_tcp_frame frame;            /* whose payload goes straight into its ring, */
    uint32_t left;                 /* so many bytes of it from now on; 0: none */
    size_t here;                   /* bytes of it that wait in the kernel for more to come, */
    uint64_t here_ns;              /* and when there were so many */
    bool long_frames;              /* the newest payload was long: so will the next one be */

    sender *s[LS_MAX_CHANNELS];    /* owned; NULL until used */
    receiver *r[LS_MAX_CHANNELS];
    uint64_t waiting;              /* channels with messages that are not cut whole */
    uint64_t owed;                 /* channels whose peer must hear of read bytes */
    int turn;                      /* the channel that is served next */
    bool bye_sent, bye_heard;
    bool cut_off;           /* the kernel takes no more output, perhaps in the middle of a frame */
    ls_status broken;              /* LS_OK: it works; and the sentence */
    uint64_t broken_ns;            /* since when */
    char why[256];
} wire;

struct ls_transport {
    ls_world *w;
    wire **wire;         /* owned, [size]; NULL for ourselves and whom we are not connected with */
    ls_rank_set busy;    /* owned: peers for whom there is output that could not go yet */
    ls_pollfd *fds;      /* owned, [size], and whose they are: scratch of progress_tcp */
    int *peer;
};

static uint32_t cost(size_t n) { return LS_TCP_ENTRY + (((uint32_t)n + 15u) & ~15u); }

/* --- the end of a link ------------------------------------------------------------------- */

static void break_link(wire *l, ls_status s)
{
    l->broken = s;
    l->broken_ns = ls_env_get()->mono_ns();
    snprintf(l->why, sizeof l->why, "%s", ls_last_error());
    ls_tcp_close(&l->link);
}

/* Bytes to and from the kernel, sealed where the link is. */
static ssize_t wire_send(wire *l, const ls_span *from, int n)
{
    if (LS_UNLIKELY(l->link.door != NULL)) return ls_door_sendv(l->link.door, l->link.fd, from, n);
    return n == 1 ? ls_env_get()->send(l->link.fd, from->p, from->n) : ls_env_get()->sendv(l->link.fd, from, n);
}

static ssize_t wire_recv(wire *l, const ls_span *to, int n)
{
    if (LS_UNLIKELY(l->link.door != NULL)) return ls_door_recvv(l->link.door, l->link.fd, to, n);
    return n == 1 ? ls_env_get()->recv(l->link.fd, to->p, to->n) : ls_env_get()->recvv(l->link.fd, to, n);
}

/* What a door holds: output that the kernel did not take yet, input that no poll will show. */
static bool holds_output(const wire *l) { return l->link.door && ls_door_writes(l->link.door); }
static bool holds_input(const wire *l) { return l->link.door && ls_door_holds(l->link.door); }

/* What a caller is told of a link that is no more. When the job is being
 * aborted, that is why the peer has gone; and why another host's has, its
 * launcher knows, whose word takes a moment to come here. */
static LS_COLD ls_status tell(ls_transport *t, int peer)
{
    const wire *l = t->wire[peer];
    bool aborted = atomic_load_explicit(&t->w->page->abort_by, memory_order_acquire) != 0;
    if (aborted && l->broken == LS_PEER_RESET) return ls_world_aborted(t->w);
    bool may_hear = l->broken == LS_PEER_RESET && !l->bye_heard && !ls_world_is_local(t->w, peer);
    if (may_hear && ls_env_get()->mono_ns() < l->broken_ns + HEARSAY_NS) return LS_AGAIN;
    return ls_fail(l->broken, "%s", l->why);
}

static void lost(ls_transport *t, int peer, const char *how)
{
    wire *l = t->wire[peer];
    if (l->bye_heard)
        break_link(
            l, ls_fail(LS_PEER_RESET, "rank %d has left the world, but rank %d still expects it", peer, t->w->rank));
    else
        break_link(l, ls_fail(LS_PEER_RESET, "rank %d lost the connection to rank %d (%s): it has ended or was killed",
                              t->w->rank, peer, how));
}

/* --- output ---------------------------------------------------------------------------------- */

static void add_span(wire *l, const void *p, size_t n)
{
    ls_span *last = l->nspan > 0 ? &l->span[l->nspan - 1] : NULL;
    if (last && (const char *)last->p + last->n == p) last->n += n;
    else l->span[l->nspan++] = (ls_span){ (void *)(uintptr_t)p, n };
    l->nbatch += n;
}

static void put_frame(ls_transport *t, wire *l, ls_tcp_frame f, const void *payload)
{
    f.magic = LS_TCP_FRAME_MAGIC;
    f.generation = t->w->generation;
    f.seq = l->seq_out++;
    f.crc = t->w->opts.no_crc ? 0 : ls_tcp_crc(&f, payload);
    char *to = l->out + l->nout;
    memcpy(to, &f, sizeof f);
    bool is_short = f.length <= SHORT_BYTES;
    if (is_short && f.length > 0) memcpy(to + sizeof f, payload, f.length);
    size_t n = sizeof f + (is_short ? f.length : 0);
    add_span(l, to, n);
    l->nout += n;
    if (!is_short) add_span(l, payload, f.length);
}

/* One frame of the channel's oldest message; false when credit or room is missing. */
static bool cut(ls_transport *t, wire *l, int channel)
{
    sender *s = l->s[channel];
    const ls_msg *m = &s->queue[s->cut % QUEUE];
    size_t most = l->link.door ? FAR_FRAME_BYTES : LS_TCP_FRAME_BYTES; /* a link that leaves the host is sealed */
    size_t left = m->n - s->at, n = left < most ? left : most;
    uint32_t free_window = LS_TCP_WINDOW - (s->used - s->credit);
    bool fits = OUT_BYTES - CREDITS_BYTES - l->nout >= sizeof(ls_tcp_frame) + SHORT_BYTES && l->frames < BATCH_FRAMES &&
                l->nbatch + n <= BATCH_BYTES + SHORT_BYTES;
    if (free_window < cost(n) || !fits) return false;
    ls_tcp_frame f = { .kind = LS_TCP_DATA, .channel = (uint8_t)channel, .length = (uint32_t)n,
                       .sig = m->sig, .last = n == left };
    put_frame(t, l, f, n ? (const char *)m->p + s->at : NULL);
    l->frames++;
    s->used += cost(n);
    s->at += n;
    if (n == left) {
        s->at = 0;
        l->ended[l->nended++] = (uint8_t)channel;
        if (++s->cut == s->given) l->waiting &= ~(1ull << channel);
    }
    return true;
}

static uint32_t untold(const receiver *r) { return r->head - r->told; }

/* Tells what was read: all of it beside data, alone only what the peer may be short of. */
static void put_credits(ls_transport *t, wire *l)
{
    for (uint64_t owed = l->owed; owed; owed &= owed - 1) {
        int c = __builtin_ctzll(owed);
        receiver *r = l->r[c];
        if (l->frames == 0 && untold(r) < TELL_BYTES) continue;
        r->told = r->head;
        put_frame(t, l, (ls_tcp_frame){ .kind = LS_TCP_CREDIT, .channel = (uint8_t)c, .credit = r->head }, NULL);
        l->owed &= ~(1ull << c);
    }
}

/* Fills an empty batch, a frame of each channel in turn. */
static void fill(ls_transport *t, wire *l)
{
    bool any = l->waiting != 0;
    while (any) {
        any = false;
        uint64_t later = l->waiting >> l->turn << l->turn, channels = l->waiting;
        while (channels) {
            int c = __builtin_ctzll(later ? later : channels);
            channels &= ~(1ull << c);
            later &= channels;
            if (!cut(t, l, c)) continue;
            l->turn = (c + 1) % LS_MAX_CHANNELS;
            any = true;
        }
    }
    put_credits(t, l);
}

/* The kernel has the whole batch: the messages that end in it are their callers' again. */
static void batch_done(wire *l)
{
    for (int i = 0; i < l->nended; i++) l->s[l->ended[i]]->done++;
    l->nout = l->nbatch = 0;
    l->first = l->nspan = l->frames = l->nended = 0;
}

/* Hands the kernel what it takes. */
static void push(ls_transport *t, int peer)
{
    wire *l = t->wire[peer];
    ls_rank_set_add(&t->busy, peer);
    while (l->link.fd >= 0 && !l->cut_off) {
        if (l->first == l->nspan) {
            batch_done(l);
            fill(t, l);
            if (l->nspan == 0) {
                if (holds_output(l) && ls_door_flush(l->link.door, l->link.fd) == -EAGAIN) return;
                if (!l->waiting) ls_rank_set_remove(&t->busy, peer);
                return;
            }
        }
        ls_span *from = &l->span[l->first];
        int n = l->nspan - l->first;
        ssize_t k = wire_send(l, from, n);
        /* a kernel without room for now: the batch stays, for a frame that is cut ends the stream */
        if (k == -EAGAIN || k == -ENOBUFS || k == -ENOMEM) return;
        if (k < 0) { /* what the peer said before is still to be read, and ends in its close */
            l->nended = 0; /* what it did not take was not sent, */
            batch_done(l);
            l->waiting = l->owed = 0;
            l->cut_off = true; /* and nothing may follow it */
            break;
        }
        l->first += ls_spans_skip(from, n, (size_t)k);
    }
    ls_rank_set_remove(&t->busy, peer);
}

/* --- input ------------------------------------------------------------------------------------ */

/* n bytes of a ring from `at` on, which may go on at its beginning: one or two spans. */
static int ring_spans(const receiver *r, uint32_t at, uint32_t n, ls_span to[2])
{
    at %= LS_TCP_WINDOW;
    uint32_t first = LS_TCP_WINDOW - at < n ? LS_TCP_WINDOW - at : n;
    to[0] = (ls_span){ r->ring + at, first };
    to[1] = (ls_span){ r->ring, n - first };
    return n > first ? 2 : 1;
}

/* Where payload byte i of the entry at the ring's tail belongs. */
static uint32_t payload_at(const receiver *r, uint32_t i) { return r->tail + LS_TCP_ENTRY + i; }

static ls_status receiver_of(wire *l, int channel, receiver **out)
{
    *out = l->r[channel];
    if (LS_LIKELY(*out != NULL)) return LS_OK;
    receiver *r = calloc(1, sizeof *r);
    if (r) r->ring = malloc(LS_TCP_WINDOW);
    if (!r || !r->ring) {
        free(r);
        return ls_fail(LS_NO_MEMORY, "a ring of %u KiB for channel %d", LS_TCP_WINDOW >> 10, channel);
    }
    *out = l->r[channel] = r;
    return LS_OK;
}

static ls_status bad(int peer, const ls_tcp_frame *f, const char *field, uint32_t found, uint32_t limit)
{
    return ls_fail(LS_PROTOCOL, "rank %d sent frame %u with %s %u, expected %u: do both ranks run the same build?",
                   peer, f->seq, field, found, limit);
}

/* Everything but the checksum: done before a byte of the payload is waited for. */
static ls_status check_head(const ls_transport *t, int peer, const ls_tcp_frame *f)
{
    if (f->magic != LS_TCP_FRAME_MAGIC) return bad(peer, f, "magic", f->magic, LS_TCP_FRAME_MAGIC);
    if (f->generation != t->w->generation) return bad(peer, f, "generation", f->generation, t->w->generation);
    if (f->kind < LS_TCP_DATA || f->kind > LS_TCP_BYE) return bad(peer, f, "kind", f->kind, LS_TCP_DATA);
    if (f->channel >= LS_MAX_CHANNELS) return bad(peer, f, "channel", f->channel, LS_MAX_CHANNELS - 1);
    uint32_t most = f->kind == LS_TCP_DATA ? LS_TCP_FRAME_BYTES : 0;
    if (f->length > most) return bad(peer, f, "length", f->length, most);
    if (f->kind == LS_TCP_DATA && f->last > 1) return bad(peer, f, "last", f->last, 1);
    return LS_OK;
}

/* The head is right: makes room for the payload. */
static ls_status expect(int peer, wire *l, const ls_tcp_frame *f)
{
    receiver *r;
    LS_TRY(receiver_of(l, f->channel, &r));
    uint32_t unread = r->tail - r->head;
    if (unread + cost(f->length) > LS_TCP_WINDOW)
        return bad(peer, f, "bytes beyond its credit on channel", f->channel, LS_TCP_WINDOW);
    return LS_OK;
}

static uint32_t crc_of(const wire *l, const ls_tcp_frame *f)
{
    uint32_t crc = ls_tcp_crc_head(f);
    if (f->length == 0) return crc;
    const receiver *r = l->r[f->channel];
    ls_span part[2];
    int n = ring_spans(r, payload_at(r, 0), f->length, part);
    for (int i = 0; i < n; i++) crc = ls_crc32c(crc, part[i].p, part[i].n);
    return crc;
}

/* A whole frame, its payload in the ring. */
static ls_status on_frame(ls_transport *t, int peer, const ls_tcp_frame *f)
{
    wire *l = t->wire[peer];
    uint32_t crc = t->w->opts.no_crc ? f->crc : crc_of(l, f);
    if (crc != f->crc)
        return ls_fail(LS_FRAME_CRC,
                       "frame %u from rank %d to rank %d (channel %u, %u bytes) has checksum %08x, expected %08x: "
                       "bytes changed on the way",
                       l->seq_in, peer, t->w->rank, f->channel, f->length, crc, f->crc);
    if (f->seq != l->seq_in) return bad(peer, f, "number", f->seq, l->seq_in);
    l->seq_in++;
    if (f->kind == LS_TCP_DATA) {
        receiver *r = l->r[f->channel];
        entry e = { .n = f->length, .sig = f->sig, .last = f->last };
        memcpy(r->ring + r->tail % LS_TCP_WINDOW, &e, sizeof e); /* whole: the ring is a multiple of it */
        r->tail += cost(f->length);
        return LS_OK;
    }
    if (f->kind == LS_TCP_BYE) {
        l->bye_heard = true;
        return LS_OK;
    }
    sender *s = l->s[f->channel];
    if (!s || f->credit - s->credit > s->used - s->credit) return bad(peer, f, "credit", f->credit, s ? s->used : 0);
    s->credit = f->credit;
    return LS_OK;
}

/* Takes every frame out of the input buffer, of the last one what is there. */
static ls_status parse(ls_transport *t, int peer)
{
    wire *l = t->wire[peer];
    size_t at = 0;
    while (l->left == 0 && l->have - at >= sizeof(ls_tcp_frame)) {
        ls_tcp_frame *f = &l->frame;
        memcpy(f, l->in + at, sizeof *f);
        at += sizeof *f;
        LS_TRY(check_head(t, peer, f));
        if (f->kind == LS_TCP_DATA) {
            LS_TRY(expect(peer, l, f));
            l->long_frames = f->length > SHORT_BYTES;
        }
        uint32_t n = l->have - at < f->length ? (uint32_t)(l->have - at) : f->length;
        if (n > 0) {
            const receiver *r = l->r[f->channel];
            ls_span part[2];
            int parts = ring_spans(r, payload_at(r, 0), n, part);
            memcpy(part[0].p, l->in + at, part[0].n);
            if (parts == 2) memcpy(part[1].p, l->in + at + part[0].n, part[1].n);
            at += n;
        }
        l->left = f->length - n;
        if (l->left == 0) LS_TRY(on_frame(t, peer, f));
    }
    if (at < l->have) memmove(l->in, l->in + at, l->have - at);
    l->have -= at;
    return LS_OK;
}

/* Whether to leave a payload in the kernel until more of it has come. Whoever reads a packet at a time calls forth
 * an acknowledgement for each, and these cost both ends and the wire more than the reading. */
static bool gathers(wire *l)
{
    const ls_env *env = ls_env_get();
    size_t inside = l->link.door ? l->link.door->nin : 0; /* of a sealed frame that is not whole */
    size_t rest = l->left > inside ? l->left - inside : 0, enough = rest < GATHER_BYTES ? rest : GATHER_BYTES;
    if (rest <= SHORT_BYTES || holds_input(l)) return false;
    ssize_t here = env->received(l->link.fd);
    if (here <= 0 || (size_t)here >= enough) return false; /* closed, perhaps: recv tells */
    uint64_t now = env->mono_ns();
    if ((size_t)here == l->here) return now < l->here_ns + GATHER_NS;
    l->here = (size_t)here;
    l->here_ns = now;
    return true;
}

/* Reads once: what is missing of a payload into its ring, and the head behind it; else heads and short
 * frames as they come. LS_AGAIN: there was less than there was room for. */
static ls_status read_once(ls_transport *t, int peer)
{
    wire *l = t->wire[peer];
    ls_span to[3];
    int n = 0;
    if (gathers(l)) return LS_AGAIN;
    if (l->left > 0) {
        const receiver *r = l->r[l->frame.channel];
        n = ring_spans(r, payload_at(r, l->frame.length - l->left), l->left, to);
    }
    /* where long frames follow one another, little but their heads goes through the buffer */
    size_t heads = l->long_frames ? LONG_IN_BYTES : IN_BYTES;
    to[n] = (ls_span){ l->in + l->have, heads - l->have };
    size_t want = l->left + to[n++].n;
    ssize_t k = wire_recv(l, to, n);
    if (k == -EAGAIN) return LS_AGAIN;
    if (k == -EBADMSG)
        return ls_fail(LS_FRAME_CRC, "bytes from rank %d to rank %d do not open: they were changed on the way", peer,
                       t->w->rank);
    if (k <= 0) {
        lost(t, peer, k == 0 ? "closed by it" : strerror((int)-k));
        return LS_AGAIN;
    }
    uint32_t direct = (size_t)k < l->left ? (uint32_t)k : l->left;
    l->left -= direct;
    l->have += (size_t)k - direct;
    if (direct > 0 && l->left == 0) LS_TRY(on_frame(t, peer, &l->frame));
    LS_TRY(parse(t, peer));
    return (size_t)k < want ? LS_AGAIN : LS_OK;
}

static void pull(ls_transport *t, int peer)
{
    wire *l = t->wire[peer];
    for (int turn = 0; turn < READS && l->link.fd >= 0; turn++) {
        ls_status st = read_once(t, peer);
        if (st < 0) break_link(l, st);
        if (st != LS_OK) return;
    }
}

/* Moves along what waits for other peers, so that a message under way does not
 * depend on its sender asking for it. */
static void push_busy(ls_transport *t)
{
    for (int peer = ls_rank_set_next(&t->busy, 0); peer >= 0; peer = ls_rank_set_next(&t->busy, peer + 1)) {
        pull(t, peer); /* credit */
        push(t, peer);
    }
}

/* --- the operations ------------------------------------------------------------------------------ */

static ls_status send_tcp(ls_transport *t, int peer, int channel, const ls_msg *m, uint64_t *ticket)
{
    wire *l = t->wire[peer];
    sender *s = l->s[channel];
    if (LS_UNLIKELY(!s)) {
        s = l->s[channel] = calloc(1, sizeof *s);
        if (!s) return ls_fail(LS_NO_MEMORY, "channel %d to rank %d", channel, peer);
    }
    if (LS_UNLIKELY(l->broken)) return tell(t, peer);
    if (s->given - s->done == QUEUE) {
        push_busy(t);
        if (s->given - s->done == QUEUE) return LS_AGAIN;
    }
    s->queue[s->given++ % QUEUE] = *m;
    l->waiting |= 1ull << channel;
    *ticket = s->given;
    push(t, peer);
    return LS_OK;
}

static uint64_t sent_tcp(ls_transport *t, int peer, int channel)
{
    wire *l = t->wire[peer];
    sender *s = l->s[channel];
    if (!s) return 0;
    if (s->done < s->given) push_busy(t);
    return s->done;
}

static ls_status view_tcp(ls_transport *t, int peer, int channel, ls_msg *m)
{
    wire *l = t->wire[peer];
    receiver *r = l->r[channel];
    if (!r || r->head == r->tail) {
        if (LS_UNLIKELY(l->broken)) return tell(t, peer);
        pull(t, peer);
        push_busy(t);
        r = l->r[channel];
        if (!r || r->head == r->tail) return LS_UNLIKELY(l->broken) ? tell(t, peer) : LS_AGAIN;
    }
    entry e;
    memcpy(&e, r->ring + r->head % LS_TCP_WINDOW, sizeof e);
    uint32_t at = (r->head + LS_TCP_ENTRY + r->taken) % LS_TCP_WINDOW, n = e.n - r->taken;
    if (n > LS_TCP_WINDOW - at) n = LS_TCP_WINDOW - at; /* the rest is at the beginning of the ring */
    *m = (ls_msg){ r->ring + at, n, e.sig };
    return LS_OK;
}

static ls_status take_tcp(ls_transport *t, int peer, int channel, size_t n)
{
    wire *l = t->wire[peer];
    receiver *r = l->r[channel];
    entry e;
    memcpy(&e, r->ring + r->head % LS_TCP_WINDOW, sizeof e);
    r->taken += (uint32_t)n;
    if (r->taken < e.n) return LS_OK;
    r->head += cost(e.n);
    r->taken = 0;
    /* A sender can be short of credit only while more than this is unread or untold. Some goes along with
     * what is to be sent anyway. */
    if (untold(r) >= LS_TCP_WINDOW / 8) l->owed |= 1ull << channel;
    if (untold(r) >= TELL_BYTES) push(t, peer);
    return LS_OK;
}

static int fds_tcp(ls_transport *t, int *fds, int max)
{
    int n = 0;
    for (int r = 0; r < t->w->size && n < max; r++)
        if (t->wire[r] && t->wire[r]->link.fd >= 0) fds[n++] = t->wire[r]->link.fd;
    return n;
}

/* Whether messages were given for a peer that will never get them: its link broke. */
static bool undeliverable(const wire *l)
{
    if (LS_LIKELY(!l->broken)) return false;
    for (int c = 0; c < LS_MAX_CHANNELS; c++)
        if (l->s[c] && l->s[c]->done != l->s[c]->given) return true;
    return false;
}

/* One look at all sockets, then only those that have something. A link's
 * failure is told to whoever uses it next, or waits for what it was to carry. */
static ls_status progress_tcp(ls_transport *t)
{
    for (int r = 0; r < t->w->size; r++)
        if (t->wire[r] && undeliverable(t->wire[r])) return tell(t, r);
    ls_pollfd *fds = t->fds;
    int *peer = t->peer, n = 0;
    for (int r = 0; r < t->w->size; r++) {
        if (!t->wire[r] || t->wire[r]->link.fd < 0) continue;
        peer[n] = r;
        fds[n++] = (ls_pollfd){ .fd = t->wire[r]->link.fd, .events = LS_POLL_IN };
    }
    if (n == 0) return LS_OK;
    ls_env_get()->wait(NULL, 0, fds, n, 0);
    for (int i = 0; i < n; i++) {
        if (fds[i].revents || holds_input(t->wire[peer[i]])) pull(t, peer[i]);
        if (ls_rank_set_has(&t->busy, peer[i])) push(t, peer[i]);
    }
    return LS_OK;
}

/* --- beginning and end -------------------------------------------------------------------------------- */

static void free_link(wire *l)
{
    if (!l) return;
    ls_tcp_close(&l->link);
    for (int c = 0; c < LS_MAX_CHANNELS; c++) {
        free(l->s[c]);
        if (l->r[c]) free(l->r[c]->ring);
        free(l->r[c]);
    }
    free(l->in);
    free(l->out);
    free(l);
}

/* Whether every peer has our last byte and has said goodbye. A socket closed
 * with unread input would take back what it has not delivered yet. */
static ls_status parted(void *arg)
{
    ls_transport *t = arg;
    bool all = true;
    for (int r = 0; r < t->w->size; r++) {
        wire *l = t->wire[r];
        if (!l || l->link.fd < 0) continue;
        pull(t, r);
        push(t, r);
        if (!l->bye_sent && !l->waiting && l->nspan == 0) {
            put_frame(t, l, (ls_tcp_frame){ .kind = LS_TCP_BYE }, NULL);
            l->bye_sent = true;
            push(t, r);
        }
        all = all && (l->link.fd < 0 || (l->bye_sent && l->bye_heard && l->nspan == 0 && !holds_output(l)));
    }
    return all ? LS_OK : LS_AGAIN;
}

static void free_tcp(ls_transport *t)
{
    if (!t) return;
    for (int r = 0; t->wire && r < t->w->size; r++) free_link(t->wire[r]);
    ls_rank_set_free(&t->busy);
    free(t->wire);
    free(t->fds);
    free(t->peer);
    free(t);
}

static int close_fds(void *arg, int *fds, int max) { return fds_tcp(arg, fds, max); }

static void close_tcp(ls_transport *t)
{
    if (!t) return;
    if (!t->w->failed) {
        ls_waiter waiter = t->w->waiter;
        waiter.fds = close_fds;
        waiter.fds_arg = t;
        (void)ls_wait(&waiter, parted, t, ls_env_get()->mono_ns() + BYE_NS);
    }
    free_tcp(t);
}

ls_status ls_transport_tcp_over(ls_world *w, ls_tcp_link link[], ls_transport **out)
{
    *out = NULL;
    ls_transport *t = calloc(1, sizeof *t);
    const size_t size = (size_t)w->size;
    if (t) {
        t->w = w;
        t->wire = calloc(size, sizeof *t->wire);
        t->fds = calloc(size, sizeof *t->fds);
        t->peer = calloc(size, sizeof *t->peer);
    }
    bool whole = t && t->wire && t->fds && t->peer && ls_rank_set_create(w->size, &t->busy) == LS_OK;
    for (int r = 0; r < w->size; r++) {
        bool connected = link[r].fd >= 0;
        wire *l = whole && connected ? calloc(1, sizeof *l) : NULL;
        if (l) {
            t->wire[r] = l;
            l->link = link[r];
            l->in = malloc(IN_BYTES);
            l->out = malloc(OUT_BYTES);
        } else {
            ls_tcp_close(&link[r]);
        }
        whole = whole && (!connected || (l && l->in && l->out));
    }
    if (whole) {
        *out = t;
        return LS_OK;
    }
    free_tcp(t);
    return ls_fail(LS_NO_MEMORY, "connections to %d ranks", w->size - 1);
}

ls_status ls_transport_tcp_open(ls_world *w, const ls_rank_set *with, ls_transport **out)
{
    *out = NULL;
    ls_tcp_link *link = calloc((size_t)w->size, sizeof *link);
    if (!link) return ls_fail(LS_NO_MEMORY, "connections to %d ranks", w->size);
    ls_status st = ls_tcp_connect(w, with, link);
    if (st == LS_OK) st = ls_transport_tcp_over(w, link, out);
    free(link);
    return st;
}

static ls_status open_tcp(ls_world *w, ls_transport **out)
{
    ls_rank_set all;
    LS_TRY(ls_rank_set_create(w->size, &all));
    ls_rank_set_add_all(&all);
    ls_status st = ls_transport_tcp_open(w, &all, out);
    ls_rank_set_free(&all);
    return st;
}

const ls_transport_ops ls_transport_tcp = {
    .name = "tcp",
    .keys = (const char *const[]){ LS_FRAME_KEYS, "comm.security", NULL },
    .open = open_tcp,
    .close = close_tcp,
    .send = send_tcp,
    .sent = sent_tcp,
    .view = view_tcp,
    .take = take_tcp,
    .progress = progress_tcp,
    .fds = fds_tcp,
};
