/* tcp_connect.c -- one TCP connection between each two ranks that need one.
 *
 * Every rank listens on a free port, tells address and port through the store,
 * connects to those below it and accepts those above. Both ends come through the
 * door (meet/door.h) with a key of this pair of ranks, in this generation.
 */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/log.h"
#include "meet/door.h"
#include "net/tcp.h"

typedef struct place {
    char addr[LS_ADDRESS_BYTES];
    uint16_t port;
    uint32_t security;    /* ls_security, which all must have in common */
} place;

/* A connection on its way to being a peer's. */
typedef struct opening {
    int fd;
    int rank;             /* whom we connect to; -1: accepted, nobody yet */
    bool connecting;      /* the kernel is still at it */
    char from[LS_ADDRESS_BYTES];
    uint64_t deadline_ns;
    ls_door door;
} opening;

typedef struct connector {
    ls_world *w;
    place *all;           /* owned, [size] */
    int listener;
    const ls_rank_set *with; /* the ranks to connect with, and perhaps ourselves */
    ls_tcp_link *link;    /* the result */
    int missing;
    int n;
    unsigned rejected;
    opening o[];          /* room for all ranks and LS_DOOR_STRANGERS */
} connector;

uint32_t ls_tcp_crc_head(const ls_tcp_frame *f) { return ls_crc32c(0, f, offsetof(ls_tcp_frame, crc)); }

uint32_t ls_tcp_crc(const ls_tcp_frame *f, const void *payload)
{
    return ls_crc32c(ls_tcp_crc_head(f), payload, f->length);
}

static bool wanted(const connector *c, int rank) { return rank != c->w->rank && ls_rank_set_has(c->with, rank); }

static void forget(connector *c, opening *o)
{
    ls_door_close(&o->door);
    *o = c->o[--c->n];
    ls_secret_wipe(&c->o[c->n], sizeof c->o[c->n]);
}

static void drop(connector *c, opening *o)
{
    if (o->rank < 0) c->rejected++;
    ls_env_get()->close_fd(o->fd);
    forget(c, o);
}

/* The key of the link between two ranks, whichever asks. */
static void key_of(const connector *c, uint32_t a, uint32_t b, uint8_t psk[LS_NOISE_KEY_BYTES])
{
    uint8_t generation[LS_NOISE_KEY_BYTES];
    ls_door_derive(c->w->link_key, "generation", c->w->generation, (uint32_t)c->w->size, generation);
    ls_door_derive(generation, "link", a < b ? a : b, a < b ? b : a, psk);
    ls_secret_wipe(generation, sizeof generation);
}

/* Whether the bytes between us and a rank are sealed: as told, else where others could read them. */
static uint32_t sealed(const connector *c, int rank)
{
    ls_security s = c->w->opts.security;
    if (s != LS_SECURITY_DEFAULT) return s == LS_SECURITY_ENCRYPT;
    return !ls_address_is_loopback(c->all[rank].addr) || !ls_address_is_loopback(c->all[c->w->rank].addr);
}

/* Whether we wait for whoever says this. */
static bool expected(void *arg, const ls_door_head *h, uint8_t psk[LS_NOISE_KEY_BYTES])
{
    const connector *c = arg;
    const ls_world *w = c->w;
    if (h->to != (uint32_t)w->rank || h->from <= h->to || h->from >= (uint32_t)w->size) return false;
    if (!wanted(c, (int)h->from) || c->link[h->from].fd >= 0 || h->sealed != sealed(c, (int)h->from)) return false;
    key_of(c, h->from, h->to, psk);
    return true;
}

/* --- one connection ------------------------------------------------------------------------- */

static ls_status gone(int rank, const char *how, const char *why)
{
    return ls_fail(LS_PEER_RESET, "the connection to rank %d could not be made (%s: %s): has it ended?", rank, how, why);
}

/* A step of one connection. LS_OK: it is a peer's now; else, when accepted, drop it. */
static ls_status advance(opening *o)
{
    if (o->connecting) {
        int r = ls_env_get()->connect_done(o->fd);
        if (r == -EINPROGRESS) return LS_AGAIN;
        if (r < 0) return gone(o->rank, "connecting", strerror(-r));
        o->connecting = false;
    }
    ls_status st = ls_door_step(&o->door, o->fd);
    if (st == LS_AUTH_FAILED && o->rank >= 0)
        return ls_fail(LS_AUTH_FAILED, "whoever answers on rank %d's port is not rank %d of this job, or has ended",
                       o->rank, o->rank);
    if (st == LS_PEER_RESET && o->rank >= 0) return gone(o->rank, "saying hello", "it closed the connection");
    return st;
}

/* --- all of them ----------------------------------------------------------------------------- */

/* The stranger to make room, of one address or (NULL) of any: the oldest of those who have proved nothing, if there
 * are any. How many there are. */
static opening *oldest_stranger(connector *c, const char *from, int *n)
{
    opening *oldest = NULL;
    *n = 0;
    for (int i = 0; i < c->n; i++) {
        opening *o = &c->o[i];
        if (o->rank >= 0 || (from && strcmp(o->from, from) != 0)) continue;
        ++*n;
        bool proof = ls_door_has_proof(&o->door), its = oldest && ls_door_has_proof(&oldest->door);
        if (!oldest || (proof == its ? o->deadline_ns < oldest->deadline_ns : !proof)) oldest = o;
    }
    return oldest;
}

static void admit(connector *c, uint64_t now_ns)
{
    const ls_env *env = ls_env_get();
    for (int fd, turn = 0; turn < LS_DOOR_ACCEPTS && (fd = env->accept(c->listener)) >= 0; turn++) {
        int n;
        char from[LS_ADDRESS_BYTES] = "";
        (void)env->peer_addr(fd, from, sizeof from);
        opening *oldest = oldest_stranger(c, from, &n);
        if (oldest && n >= LS_DOOR_PER_ADDRESS && !ls_address_is_loopback(from)) drop(c, oldest);
        oldest = oldest_stranger(c, NULL, &n);
        if (oldest && n >= LS_DOOR_STRANGERS) drop(c, oldest);
        opening *o = &c->o[c->n++];
        *o = (opening){ .fd = fd, .rank = -1, .deadline_ns = now_ns + LS_DOOR_NS };
        memcpy(o->from, from, sizeof from);
        ls_door_accept(&o->door, LS_DOOR_RANK, c->w->generation, c->w->job, expected, c);
    }
}

/* It is rank's now. */
static ls_status keep(connector *c, opening *o, int rank)
{
    ls_door *door = NULL;
    if (sealed(c, rank)) {
        if (!(door = malloc(sizeof *door))) return ls_fail(LS_NO_MEMORY, "the keys of the link to rank %d", rank);
        *door = o->door;
        o->door = (ls_door){ .initiator = false }; /* its keys have moved */
    }
    ls_log(LS_LOG_INFO, "connection to rank %d: %s, frames %s checksums", rank, door ? "encrypted" : "authenticated",
           c->w->opts.no_crc ? "without" : "with");
    c->link[rank] = (ls_tcp_link){ o->fd, door };
    c->missing--;
    forget(c, o);
    return LS_OK;
}

static ls_status connect_turn(void *arg)
{
    connector *c = arg;
    uint64_t now = ls_env_get()->mono_ns();
    admit(c, now);
    for (int i = 0; i < c->n;) {
        opening *o = &c->o[i];
        ls_status st = advance(o);
        int rank = o->rank >= 0 ? o->rank : (int)o->door.head.from;
        if (st == LS_OK && c->link[rank].fd >= 0) {
            drop(c, o); /* a second one of the same rank */
        } else if (st == LS_OK) {
            LS_TRY(keep(c, o, rank));
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

/* What the ranks say of themselves must fit together. */
static ls_status agree(connector *c)
{
    static const char *const name[] = { "auto", "auth", "encrypt" };
    const ls_world *w = c->w;
    bool open = false;
    for (int r = 0; r < w->size; r++) {
        place *p = &c->all[r];
        p->addr[LS_ADDRESS_BYTES - 1] = 0;
        open = open || !ls_address_is_loopback(p->addr);
        if (p->security != (uint32_t)w->opts.security)
            return ls_fail(LS_CONFIG_MISMATCH, "comm.security is %s on rank %d and %s on rank %d: it must be the same on all",
                           name[w->opts.security], w->rank, name[p->security < 3 ? p->security : 0], r);
    }
    if (open && w->opts.security == LS_SECURITY_AUTH && w->rank == 0)
        ls_log(LS_LOG_WARN, "comm.security auth: the ranks prove who they are, but what they send to other nodes can be "
                            "read and changed on the way");
    return LS_OK;
}

static ls_status start(connector *c)
{
    const ls_env *env = ls_env_get();
    const ls_world *w = c->w;
    place mine = { .port = 0 };
    int port;
    LS_TRY(ls_address_check(w->listen, w->nnodes > 1)); /* several hosts met by a secret */
    c->listener = ls_address_is_loopback(w->listen) ? env->listen_tcp(w->listen, 0, &port)
                                                    : env->listen_open(w->listen, 0, &port);
    if (c->listener < 0) return ls_fail(LS_SYSTEM, "listening on %s: %s", w->listen, strerror(-c->listener));
    mine.port = (uint16_t)port;
    snprintf(mine.addr, sizeof mine.addr, "%s", w->address);
    mine.security = (uint32_t)w->opts.security;
    LS_TRY(ls_world_exchange(c->w, "tcp", &mine, sizeof mine, c->all));
    LS_TRY(agree(c));
    for (int r = 0; r < w->rank; r++) {
        uint8_t psk[LS_NOISE_KEY_BYTES];
        if (!wanted(c, r)) continue;
        int fd = env->connect_tcp(c->all[r].addr, c->all[r].port);
        if (fd < 0) return gone(r, "connecting", strerror(-fd));
        opening *o = &c->o[c->n++];
        *o = (opening){ .fd = fd, .rank = r, .connecting = true };
        key_of(c, (uint32_t)r, (uint32_t)w->rank, psk);
        ls_door_connect(&o->door,
                        &(ls_door_head){ .role = LS_DOOR_RANK, .generation = w->generation, .from = (uint32_t)w->rank,
                                         .to = (uint32_t)r, .sealed = sealed(c, r) },
                        w->job, psk);
        ls_secret_wipe(psk, sizeof psk);
    }
    return LS_OK;
}

static ls_status late(const connector *c)
{
    char who[256] = "";
    size_t at = 0;
    for (int r = 0; r < c->w->size; r++)
        if (wanted(c, r) && c->link[r].fd < 0 && at < sizeof who)
            at += (size_t)snprintf(who + at, sizeof who - at, "%s%d", at ? ", " : "", r);
    return ls_fail(LS_JOIN_TIMEOUT, "rank %d has no connection to rank %s after %.1f s", c->w->rank, who,
                   (double)c->w->opts.join_timeout_ns * 1e-9);
}

void ls_tcp_close(ls_tcp_link *l)
{
    if (l->fd >= 0) ls_env_get()->close_fd(l->fd);
    if (l->door) ls_door_close(l->door);
    free(l->door);
    *l = (ls_tcp_link){ -1, NULL };
}

ls_status ls_tcp_connect(ls_world *w, const ls_rank_set *with, ls_tcp_link link[])
{
    const ls_env *env = ls_env_get();
    for (int r = 0; r < w->size; r++) link[r] = (ls_tcp_link){ -1, NULL };
    const size_t nbytes = sizeof(connector) + ((size_t)w->size + LS_DOOR_STRANGERS) * sizeof(opening);
    place *all = calloc((size_t)w->size, sizeof *all);
    connector *c = all ? env->map_secret(nbytes) : NULL; /* it holds keys */
    if (!c) {
        free(all);
        return ls_fail(LS_NO_MEMORY, "connecting %d ranks", w->size);
    }
    c->all = all;
    c->w = w;
    c->link = link;
    c->with = with;
    c->missing = ls_rank_set_count(with) - ls_rank_set_has(with, w->rank);
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
    for (int r = 0; r < w->size && st < 0; r++) ls_tcp_close(&link[r]);
    ls_secret_wipe(c, nbytes);
    env->unmap(c, nbytes);
    free(all);
    return st;
}
