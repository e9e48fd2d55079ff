/* store_client.c -- a rank's side of the rendezvous: one request at a time. */
#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "meet/store_wire.h"

#define ABORT_LOOK_NS 20000000u

static ssize_t client_recv(ls_store_client *c, void *p, size_t n)
{
    return c->unix_socket ? ls_env_get()->recv(c->fd, p, n) : ls_door_recv(&c->door, c->fd, p, n);
}

static ssize_t client_send(ls_store_client *c, const void *p, size_t n)
{
    return c->unix_socket ? ls_env_get()->send(c->fd, p, n) : ls_door_send(&c->door, c->fd, p, n);
}

int ls_store_client_fd(const ls_store_client *c) { return c->fd; }

bool ls_store_is_gone(ls_store_client *c)
{
    char byte;
    ssize_t k = client_recv(c, &byte, 1); /* nobody speaks to us unasked */
    return k <= 0 && k != -EAGAIN;
}

void ls_store_watch(ls_store_client *c, const _Atomic uint32_t *abort_word) { c->abort_word = abort_word; }

void ls_store_disconnect(ls_store_client *c)
{
    if (!c) return;
    ls_env_get()->close_fd(c->fd);
    ls_door_close(&c->door);
    free(c);
}

static ls_status late(const char *doing)
{
    return ls_fail(LS_JOIN_TIMEOUT, "no answer from the rendezvous store while %s", doing);
}

/* Sleeps until the socket has something, or room. */
static ls_status wait_for(const ls_store_client *c, short events, uint64_t deadline_ns, const char *doing)
{
    const ls_env *env = ls_env_get();
    uint64_t now = env->mono_ns();
    if (now >= deadline_ns) return late(doing);
    if (c->abort_word && atomic_load_explicit(c->abort_word, memory_order_acquire))
        return ls_fail(LS_ABORTED, "the job was given up while %s", doing);
    ls_pollfd pfd = { .fd = c->fd, .events = events };
    env->wait(NULL, 0, &pfd, 1, deadline_ns - now > ABORT_LOOK_NS ? now + ABORT_LOOK_NS : deadline_ns);
    return LS_OK;
}

/* What a door still holds of what it took. */
static ls_status flush_all(ls_store_client *c, uint64_t deadline_ns, const char *doing)
{
    for (int r; !c->unix_socket && (r = ls_door_flush(&c->door, c->fd)) != 0;) {
        if (r != -EAGAIN) return ls_fail(LS_PEER_RESET, "the rendezvous store is gone (%s while %s)", strerror(-r), doing);
        LS_TRY(wait_for(c, LS_POLL_OUT, deadline_ns, doing));
    }
    return LS_OK;
}

static ls_status send_all(ls_store_client *c, const void *p, size_t n, uint64_t deadline_ns, const char *doing)
{
    const char *at = p;
    while (n > 0) {
        ssize_t k = client_send(c, at, n);
        if (k == -EAGAIN) {
            LS_TRY(wait_for(c, LS_POLL_OUT, deadline_ns, doing));
        } else if (k < 0) {
            c->reset = true;
            return ls_fail(LS_PEER_RESET, "the rendezvous store is gone (%s while %s)", strerror((int)-k), doing);
        } else {
            at += k;
            n -= (size_t)k;
        }
    }
    return flush_all(c, deadline_ns, doing);
}

static ls_status recv_all(ls_store_client *c, void *p, size_t n, uint64_t deadline_ns, const char *doing)
{
    char *at = p;
    while (n > 0) {
        ssize_t k = client_recv(c, at, n);
        if (k == -EAGAIN) {
            LS_TRY(wait_for(c, LS_POLL_IN, deadline_ns, doing));
        } else if (k <= 0) {
            c->reset = k < 0;
            return ls_fail(LS_PEER_RESET, "the rendezvous store closed the connection while %s", doing);
        } else {
            at += k;
            n -= (size_t)k;
        }
    }
    return LS_OK;
}

static ls_status recv_descriptor(ls_store_client *c, int *fd, uint64_t deadline_ns, const char *doing)
{
    const ls_env *env = ls_env_get();
    for (;;) {
        *fd = env->recv_fd(c->fd);
        if (*fd >= 0) return LS_OK;
        if (*fd != -EAGAIN)
            return ls_fail(LS_PEER_RESET, "no descriptor came from the rendezvous store while %s", doing);
        LS_TRY(wait_for(c, LS_POLL_IN, deadline_ns, doing));
    }
}

/* Reads a reply; a failure's sentence becomes ours. value may be NULL when none is expected. */
static ls_status read_reply(ls_store_client *c, void *value, size_t *n, int *fd, uint64_t deadline_ns,
                            const char *doing)
{
    store_reply r;
    LS_TRY(recv_all(c, &r, sizeof r, deadline_ns, doing));
    size_t room = n ? *n : 0;
    if (r.nvalue > LS_STORE_VALUE_MAX && r.nvalue > room)
        return ls_fail(LS_PROTOCOL, "a reply of %u bytes from the rendezvous store", r.nvalue);
    if (r.status < 0 || r.nvalue > room) {
        char text[400];
        size_t k = r.nvalue < sizeof text - 1 ? r.nvalue : sizeof text - 1;
        LS_TRY(recv_all(c, text, k, deadline_ns, doing));
        text[k] = 0;
        if (r.status < 0) return ls_fail((ls_status)r.status, "%s", text);
        return ls_fail(LS_INVALID, "a value of %u bytes where %zu were expected while %s", r.nvalue, room, doing);
    }
    if (r.nvalue) LS_TRY(recv_all(c, value, r.nvalue, deadline_ns, doing));
    if (n) *n = r.nvalue;
    if (r.status > 0) return (ls_status)r.status;
    if (r.has_fd) {
        int got = -1;
        LS_TRY(recv_descriptor(c, &got, deadline_ns, doing));
        if (fd) *fd = got;
        else ls_env_get()->close_fd(got);
    }
    return LS_OK;
}

static ls_status request(ls_store_client *c, store_op op, const char *key, const void *value, size_t n,
                         uint64_t deadline_ns)
{
    size_t nkey = strlen(key);
    if (nkey > LS_STORE_KEY_MAX || n > LS_STORE_VALUE_MAX)
        return ls_fail(LS_INVALID, "store key of %zu bytes, value of %zu: at most %d and %d", nkey, n, LS_STORE_KEY_MAX,
                       LS_STORE_VALUE_MAX);
    store_request q = { .op = op, .nkey = (uint32_t)nkey, .nvalue = (uint32_t)n };
    LS_TRY(send_all(c, &q, sizeof q, deadline_ns, key));
    LS_TRY(send_all(c, key, nkey, deadline_ns, key));
    return n ? send_all(c, value, n, deadline_ns, key) : LS_OK;
}

static ls_status nobody_there(const ls_store_caller *w, const char *how)
{
    if (w->unix_name)
        return ls_fail(LS_JOIN_TIMEOUT, "rank %d found no store at the job's meeting point '%s' (%s): is rank 0 running?",
                       w->rank, w->unix_name, how);
    return ls_fail(LS_JOIN_TIMEOUT, "%s %d found no store at %s, port %d (%s): is %s 0 running, and can it be reached?",
                   w->agent ? "node" : "rank", w->rank, w->tcp_addr, w->tcp_port, how, w->agent ? "node" : "rank");
}

/* Through the door. LS_AGAIN: not now, try again. */
static ls_status come_in(ls_store_client *c, const ls_store_caller *who, uint64_t deadline_ns)
{
    const ls_env *env = ls_env_get();
    uint8_t psk[LS_NOISE_KEY_BYTES];
    const uint32_t generation = who->generation ? who->generation : LS_STORE_GENERATION;
    ls_door_head head = { .role = LS_DOOR_STORE, .generation = who->agent ? LS_DOOR_ANY_GENERATION : generation };
    int r;
    while ((r = env->connect_done(c->fd)) == -EINPROGRESS)
        if (wait_for(c, LS_POLL_OUT, deadline_ns, "connecting") < 0) return LS_AGAIN;
    if (r < 0) return LS_AGAIN;
    ls_door_derive(who->secret, "store", 0, 0, psk);
    ls_door_connect(&c->door, &head, who->job, psk);
    sodium_memzero(psk, sizeof psk);
    ls_status st;
    while ((st = ls_door_step(&c->door, c->fd)) == LS_AGAIN) {
        st = wait_for(c, ls_door_writes(&c->door) ? LS_POLL_OUT : LS_POLL_IN, deadline_ns, "the handshake");
        if (st < 0) break;
    }
    if (st == LS_AUTH_FAILED)
        return ls_fail(st, "%s %d was refused at %s, port %d: it could not prove that it belongs to the job; the same "
                           "secret file and the same --rdzv-id are needed on every node",
                       who->agent ? "node" : "rank", who->rank, who->tcp_addr, who->tcp_port);
    return st == LS_PEER_RESET ? LS_AGAIN : st;
}

/* Says hello on a new connection. LS_AGAIN: this is the store of a job that is ending, ask the next one. */
static ls_status say_hello(ls_store_client *c, const ls_store_caller *who, uint64_t deadline_ns, int *page_fd)
{
    const ls_env *env = ls_env_get();
    store_hello h = { .magic = LS_STORE_MAGIC, .version = LS_STORE_VERSION, .rank = (uint32_t)who->rank,
                      .size = (uint32_t)who->size, .pid = env->pid(), .agent = who->agent };
    uint8_t key[LS_NOISE_KEY_BYTES];
    size_t n = sizeof key;
    if (env->hostname(h.host, sizeof h.host) < 0) h.host[0] = 0;
    if (c->unix_socket) memcpy(h.secret, who->secret, LS_SECRET_BYTES);
    ls_status st = send_all(c, &h, sizeof h, deadline_ns, "saying hello");
    sodium_memzero(&h, sizeof h);
    if (st == LS_OK) st = read_reply(c, key, &n, page_fd, deadline_ns, "saying hello");
    if (st == LS_OK && n != sizeof key) st = ls_fail(LS_PROTOCOL, "the rendezvous store said hello with %zu bytes", n);
    if (st == LS_OK && who->key) memcpy(who->key, key, sizeof key);
    sodium_memzero(key, sizeof key);
    if (st == LS_PEER_RESET && c->reset) return LS_AGAIN;
    if (st == LS_PEER_RESET)
        return ls_fail(LS_AUTH_FAILED,
                       "rank %d was refused at the job's meeting point: it could not prove that it belongs to the job",
                       who->rank);
    return st;
}

static const char put_off[] = "the store asks to come again";

/* One try. LS_AGAIN: another may do better. */
static ls_status try_to_connect(ls_store_client *c, const ls_store_caller *who, uint64_t deadline_ns, int *page_fd,
                                const char **how)
{
    const ls_env *env = ls_env_get();
    *how = "no answer";
    c->fd = who->unix_name ? env->connect_unix(who->unix_name) : env->connect_tcp(who->tcp_addr, who->tcp_port);
    if (c->fd < 0) {
        *how = strerror(-c->fd);
        return LS_AGAIN;
    }
    if (!who->unix_name) {
        ls_status st = come_in(c, who, deadline_ns);
        if (st != LS_OK) return st;
    } else if (env->peer_uid_is_ours(c->fd) != 1) { /* our secret is for our own user's ears only */
        return ls_fail(LS_AUTH_FAILED, "the job's meeting point '%s' belongs to another user: choose another MASTER_PORT",
                       who->unix_name);
    }
    *how = put_off;
    return say_hello(c, who, deadline_ns, page_fd);
}

#define PAUSE_NS 10000000ull
#define LONGEST_PAUSE_NS 200000000ull /* of a node whose turn may come in an hour */

ls_status ls_store_connect(const ls_store_caller *who, uint64_t deadline_ns, ls_store_client **out, int *page_fd)
{
    const ls_env *env = ls_env_get();
    const char *how;
    const uint64_t begun = env->mono_ns(), patience = deadline_ns > begun ? deadline_ns - begun : 0;
    uint64_t pause = PAUSE_NS;
    *out = NULL;
    *page_fd = -1;
    ls_store_client *c = calloc(1, sizeof *c);
    if (!c) return ls_fail(LS_NO_MEMORY, "store client");
    c->unix_socket = who->unix_name != NULL;
    for (;;) { /* the store may come later than we do */
        ls_status st = try_to_connect(c, who, deadline_ns, page_fd, &how);
        if (st == LS_OK) {
            *out = c;
            return LS_OK;
        }
        if (st == LS_AUTH_FAILED && who->again && env->mono_ns() < deadline_ns) {
            st = LS_AGAIN;
            how = "it closes its connections";
        }
        if (*page_fd >= 0) env->close_fd(*page_fd);
        *page_fd = -1;
        if (c->fd >= 0) env->close_fd(c->fd);
        ls_door_close(&c->door);
        if (st < 0 || env->mono_ns() >= deadline_ns) {
            free(c);
            return st < 0 ? st : nobody_there(who, how);
        }
        if (who->agent && how == put_off) { /* the job is there: its next generation is worth waiting for */
            deadline_ns = env->mono_ns() + patience;
            if (pause == PAUSE_NS) ls_log(LS_LOG_WARN, "node %d: the job has begun without it; waiting for the next generation", who->rank);
            if (pause < LONGEST_PAUSE_NS) pause += pause / 2;
        }
        env->wait(NULL, 0, NULL, 0, env->mono_ns() + pause);
    }
}

ls_status ls_store_set(ls_store_client *c, const char *key, const void *value, size_t n, uint64_t deadline_ns)
{
    LS_TRY(request(c, STORE_SET, key, value, n, deadline_ns));
    return read_reply(c, NULL, NULL, NULL, deadline_ns, key);
}

static ls_status nobody_set(const char *key)
{
    return ls_fail(LS_JOIN_TIMEOUT, "no rank provided '%s' before the join deadline", key);
}

ls_status ls_store_get(ls_store_client *c, const char *key, void *value, size_t *n, uint64_t deadline_ns)
{
    LS_TRY(request(c, STORE_GET, key, NULL, 0, deadline_ns));
    ls_status st = read_reply(c, value, n, NULL, deadline_ns, key);
    return st == LS_JOIN_TIMEOUT ? nobody_set(key) : st;
}

ls_status ls_store_exchange(ls_store_client *c, const char *key, const void *mine, size_t n, int size, void *all,
                            uint64_t deadline_ns)
{
    size_t got = n * (size_t)size;
    LS_TRY(request(c, STORE_EXCHANGE, key, mine, n, deadline_ns));
    ls_status st = read_reply(c, all, &got, NULL, deadline_ns, key);
    if (st == LS_JOIN_TIMEOUT)
        return ls_fail(st, "not all ranks provided '%s' before the join deadline", key);
    if (st == LS_OK && got != n * (size_t)size)
        return ls_fail(LS_PROTOCOL, "the rendezvous store sent %zu bytes for '%s', expected %zu from each of %d ranks", got,
                       key, n, size);
    return st;
}

ls_status ls_store_set_fd(ls_store_client *c, const char *key, int fd, uint64_t deadline_ns)
{
    const ls_env *env = ls_env_get();
    if (!c->unix_socket) return ls_fail(LS_UNSUPPORTED, "descriptors travel over a Unix socket only");
    LS_TRY(request(c, STORE_SET_FD, key, NULL, 0, deadline_ns));
    for (int k; (k = env->send_fd(c->fd, fd)) != 0 && k != 1;) {
        if (k != -EAGAIN) return ls_fail(LS_PEER_RESET, "the rendezvous store is gone (%s)", strerror(-k));
        LS_TRY(wait_for(c, LS_POLL_OUT, deadline_ns, key));
    }
    return read_reply(c, NULL, NULL, NULL, deadline_ns, key);
}

ls_status ls_store_get_fd(ls_store_client *c, const char *key, int *fd, uint64_t deadline_ns)
{
    *fd = -1;
    LS_TRY(request(c, STORE_GET_FD, key, NULL, 0, deadline_ns));
    ls_status st = read_reply(c, NULL, NULL, fd, deadline_ns, key);
    if (st == LS_JOIN_TIMEOUT) return nobody_set(key);
    if (st == LS_OK && *fd < 0) return ls_fail(LS_PROTOCOL, "'%s' is not a descriptor", key);
    return st;
}

ls_status ls_store_ask_missing(ls_store_client *c, char *buf, size_t n, int *missing, uint64_t deadline_ns)
{
    store_missing m;
    size_t k = sizeof m;
    LS_TRY(request(c, STORE_MISSING, "missing", NULL, 0, deadline_ns));
    LS_TRY(read_reply(c, &m, &k, NULL, deadline_ns, "asking who is missing"));
    if (k != sizeof m) return ls_fail(LS_PROTOCOL, "the rendezvous store said who is missing in %zu bytes", k);
    m.text[sizeof m.text - 1] = 0;
    snprintf(buf, n, "%s", m.text);
    *missing = m.count;
    return LS_OK;
}

ls_status ls_store_bye(ls_store_client *c)
{
    uint64_t deadline = ls_env_get()->mono_ns() + 1000000000u;
    LS_TRY(request(c, STORE_BYE, "bye", NULL, 0, deadline));
    return read_reply(c, NULL, NULL, NULL, deadline, "saying goodbye");
}
