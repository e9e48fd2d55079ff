/* tcp_connect.c -- one TCP connection between each two ranks that need one, on the loopback.
 *
 * Every rank listens on a free port, tells port and key through the store,
 * connects to those below it and accepts those above. Who does not
 * prove with its first 64 bytes that it has read our key is dropped.
 */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/log.h"
#include "net/tcp.h"

typedef struct address {
    uint32_t port;
    uint8_t key[LS_TCP_KEY_BYTES];
} address;

/* A connection on its way to being a peer's. */
typedef struct opening {
    int fd;
    int rank;             /* whom we connect to; -1: accepted, nobody yet */
    bool connecting;      /* the kernel is still at it */
    size_t sent, have;    /* bytes of the two hellos */
    ls_tcp_hello out, in;
    uint64_t deadline_ns;
} opening;

typedef struct connector {
    ls_world *w;
    address all[LS_MAX_RANKS];
    int listener;
    uint64_t with;        /* the ranks to connect with */
    int *fd;              /* the result */
    int missing;
    opening o[LS_MAX_RANKS + LS_TCP_STRANGERS];
    int n;
    unsigned rejected;
} connector;

uint32_t ls_tcp_crc_head(const ls_tcp_frame *f) { return ls_crc32c(0, f, offsetof(ls_tcp_frame, crc)); }

uint32_t ls_tcp_crc(const ls_tcp_frame *f, const void *payload)
{
    return ls_crc32c(ls_tcp_crc_head(f), payload, f->length);
}

static void hello_for(const connector *c, int rank, ls_tcp_hello *h)
{
    *h = (ls_tcp_hello){ .magic = LS_TCP_MAGIC, .version = LS_TCP_VERSION, .generation = c->w->generation,
                         .from = (uint32_t)c->w->rank, .to = (uint32_t)rank, .size = (uint32_t)c->w->size };
    memcpy(h->key, c->all[rank].key, sizeof h->key);
}

static void forget(connector *c, opening *o) { *o = c->o[--c->n]; }

static void drop(connector *c, opening *o)
{
    if (o->rank < 0) c->rejected++;
    ls_env_get()->close_fd(o->fd);
    forget(c, o);
}

static bool wanted(const connector *c, int rank) { return c->with >> rank & 1u; }

static bool same_key(const uint8_t *a, const uint8_t *b)
{
    unsigned diff = 0; /* every byte is looked at: time tells nothing */
    for (int i = 0; i < LS_TCP_KEY_BYTES; i++) diff |= (unsigned)(a[i] ^ b[i]);
    return diff == 0;
}

/* Whether the hello that came makes this connection the one to a rank we wait for. */
static bool acceptable(const connector *c, const opening *o)
{
    const ls_tcp_hello *h = &o->in;
    const ls_world *w = c->w;
    if (!same_key(h->key, c->all[w->rank].key)) return false;
    if (h->version != LS_TCP_VERSION || h->generation != w->generation || h->size != (uint32_t)w->size) return false;
    if (h->to != (uint32_t)w->rank || h->from >= h->size || !wanted(c, (int)h->from) || c->fd[h->from] >= 0)
        return false;
    return o->rank >= 0 ? h->from == (uint32_t)o->rank : h->from > (uint32_t)w->rank;
}

/* --- one connection ------------------------------------------------------------------------- */

static ls_status gone(int rank, const char *how, int err)
{
    return ls_fail(LS_PEER_RESET, "the connection to rank %d could not be made (%s: %s): has it ended?", rank, how,
                   strerror(err));
}

/* Sends what is left of our hello. LS_AGAIN: the socket is full. */
static ls_status say_hello(opening *o)
{
    while (o->sent < sizeof o->out) {
        ssize_t k = ls_env_get()->send(o->fd, (const char *)&o->out + o->sent, sizeof o->out - o->sent);
        if (k == -EAGAIN) return LS_AGAIN;
        if (k < 0) return gone(o->rank, "sending hello", (int)-k);
        o->sent += (size_t)k;
    }
    return LS_OK;
}

/* Reads the other hello. LS_AGAIN: not whole yet; LS_AUTH_FAILED: it cannot become one. */
static ls_status hear_hello(opening *o)
{
    uint64_t magic = LS_TCP_MAGIC;
    while (o->have < sizeof o->in) {
        ssize_t k = ls_env_get()->recv(o->fd, (char *)&o->in + o->have, sizeof o->in - o->have);
        if (k == -EAGAIN) return LS_AGAIN;
        if (k <= 0) return LS_AUTH_FAILED;
        o->have += (size_t)k;
        if (memcmp(&o->in, &magic, o->have < sizeof magic ? o->have : sizeof magic) != 0) return LS_AUTH_FAILED;
    }
    return LS_OK;
}

/* A step of one connection. LS_OK: it is a peer's now; LS_AUTH_FAILED: drop it. */
static ls_status advance(connector *c, opening *o)
{
    if (o->connecting) {
        int r = ls_env_get()->connect_done(o->fd);
        if (r == -EINPROGRESS) return LS_AGAIN;
        if (r < 0) return gone(o->rank, "connecting", -r);
        o->connecting = false;
    }
    ls_status st;
    if (o->rank >= 0) { /* we speak first */
        if ((st = say_hello(o)) != LS_OK) return st;
        if ((st = hear_hello(o)) == LS_AUTH_FAILED) return gone(o->rank, "its hello", ECONNRESET);
        if (st != LS_OK) return st;
        return acceptable(c, o)
                   ? LS_OK
                   : ls_fail(LS_AUTH_FAILED, "whoever answers on rank %d's port is not rank %d", o->rank, o->rank);
    }
    if (o->sent == 0) {
        if ((st = hear_hello(o)) != LS_OK) return st;
        if (!acceptable(c, o)) return LS_AUTH_FAILED;
        hello_for(c, (int)o->in.from, &o->out);
    }
    return say_hello(o);
}

/* --- all of them ----------------------------------------------------------------------------- */

static void admit(connector *c, uint64_t now_ns)
{
    const ls_env *env = ls_env_get();
    for (int fd; (fd = env->accept(c->listener)) >= 0;) {
        int strangers = 0, oldest = -1;
        for (int i = 0; i < c->n; i++) {
            if (c->o[i].rank >= 0) continue;
            strangers++;
            if (oldest < 0 || c->o[i].deadline_ns < c->o[oldest].deadline_ns) oldest = i;
        }
        if (strangers == LS_TCP_STRANGERS) drop(c, &c->o[oldest]);
        c->o[c->n++] = (opening){ .fd = fd, .rank = -1, .deadline_ns = now_ns + LS_TCP_HELLO_NS };
    }
}

static ls_status connect_turn(void *arg)
{
    connector *c = arg;
    uint64_t now = ls_env_get()->mono_ns();
    admit(c, now);
    for (int i = 0; i < c->n;) {
        opening *o = &c->o[i];
        ls_status st = advance(c, o);
        if (st == LS_OK && c->fd[o->in.from] >= 0) {
            drop(c, o); /* a second one of the same rank */
        } else if (st == LS_OK) {
            c->fd[o->in.from] = o->fd;
            c->missing--;
            forget(c, o);
        } else if (o->rank < 0 && (st < 0 || now > o->deadline_ns)) {
            drop(c, o);
        } else if (st < 0) {
            return st;
        } else {
            i++;
        }
    }
    return c->missing == 0 ? LS_OK : LS_AGAIN;
}

static int connector_fds(void *arg, int *fds, int max)
{
    connector *c = arg;
    int n = 0;
    if (max > 0) fds[n++] = c->listener;
    for (int i = 0; i < c->n && n < max; i++) fds[n++] = c->o[i].fd;
    return n;
}

static ls_status start(connector *c)
{
    const ls_env *env = ls_env_get();
    address mine = { 0 };
    int port;
    c->listener = env->listen_tcp("127.0.0.1", 0, &port);
    if (c->listener < 0) return ls_fail(LS_SYSTEM, "listening on 127.0.0.1: %s", strerror(-c->listener));
    mine.port = (uint32_t)port;
    env->random(mine.key, sizeof mine.key);
    LS_TRY(ls_world_exchange(c->w, "tcp", &mine, sizeof mine, c->all));
    for (int r = 0; r < c->w->rank; r++) {
        if (!wanted(c, r)) continue;
        int fd = env->connect_tcp("127.0.0.1", (int)c->all[r].port);
        if (fd < 0) return gone(r, "connecting", -fd);
        c->o[c->n] = (opening){ .fd = fd, .rank = r, .connecting = true };
        hello_for(c, r, &c->o[c->n++].out);
    }
    return LS_OK;
}

static ls_status late(const connector *c)
{
    char who[256] = "";
    size_t at = 0;
    for (int r = 0; r < c->w->size; r++)
        if (wanted(c, r) && c->fd[r] < 0 && at < sizeof who)
            at += (size_t)snprintf(who + at, sizeof who - at, "%s%d", at ? ", " : "", r);
    return ls_fail(LS_JOIN_TIMEOUT, "rank %d has no connection to rank %s after %.1f s", c->w->rank, who,
                   (double)c->w->opts.join_timeout_ns * 1e-9);
}

ls_status ls_tcp_connect(ls_world *w, uint64_t with, int fd[LS_MAX_RANKS])
{
    const ls_env *env = ls_env_get();
    for (int r = 0; r < LS_MAX_RANKS; r++) fd[r] = -1;
    connector *c = calloc(1, sizeof *c);
    if (!c) return ls_fail(LS_NO_MEMORY, "connecting %d ranks", w->size);
    c->w = w;
    c->fd = fd;
    c->with = with & ~(1ull << w->rank);
    c->missing = __builtin_popcountll(c->with);
    c->listener = -1;
    ls_status st = w->size > 1 ? start(c) : LS_OK;
    if (st == LS_OK && c->missing > 0) {
        ls_waiter waiter = w->waiter;
        waiter.fds = connector_fds;
        waiter.fds_arg = c;
        st = ls_wait(&waiter, connect_turn, c, env->mono_ns() + w->opts.join_timeout_ns);
        if (st == LS_RANK_HUNG) st = late(c);
        if (st == LS_ABORTED) st = ls_world_aborted(w);
    }
    while (c->n > 0) drop(c, &c->o[0]);
    if (c->rejected > 0)
        ls_log(LS_LOG_WARN,
               "auth-reject: %u connection%s to this rank's port refused: no proof of belonging to this job",
               c->rejected, c->rejected == 1 ? "" : "s");
    if (c->listener >= 0) env->close_fd(c->listener);
    for (int r = 0; r < w->size && st < 0; r++) {
        if (fd[r] >= 0) env->close_fd(fd[r]);
        fd[r] = -1;
    }
    free(c);
    return st;
}
