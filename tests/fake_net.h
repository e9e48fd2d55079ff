/* fake_net.h -- a network in memory, for fuzz targets and for tests that count allocations.
 *
 * An ls_env whose sockets are queues of bytes: both ends of a connection live in one thread, and
 * waiting means that `idle` moves the other side along. Descriptors are counted, so that what is
 * left open shows. One at a time; its memory is not the library's (malloc may be made to fail).
 */
#ifndef LS_TEST_FAKE_NET_H
#define LS_TEST_FAKE_NET_H
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/context.h"
#include "base/env.h"

#define FAKE_FDS 128
#define FAKE_FIRST 1000
#define FAKE_BYTES (1u << 18) /* that one end may hold unread */

typedef struct fake_end {
    enum { FAKE_CLOSED, FAKE_LISTENER, FAKE_SOCKET, FAKE_PLAIN } kind;
    int peer;            /* index; -1: it has hung up */
    int waiting[FAKE_FDS], nwaiting; /* of a listener */
    bool tcp;
    int passed;          /* a descriptor on its way to us; -1: none */
    size_t n;
    uint8_t in[FAKE_BYTES];
} fake_end;

typedef struct fake_net {
    ls_env env;
    ls_context context;
    uint64_t now_ns;
    uint32_t random;
    void (*idle)(void *arg); /* the other side's turn, when we would wait */
    void *idle_arg;
    fake_end end[FAKE_FDS];
} fake_net;

static fake_net fake; /* one per program */

static inline fake_end *fake_of(int fd)
{
    int i = fd - FAKE_FIRST;
    return i >= 0 && i < FAKE_FDS && fake.end[i].kind != FAKE_CLOSED ? &fake.end[i] : NULL;
}

static inline int fake_new(int kind)
{
    for (int i = 0; i < FAKE_FDS; i++) {
        fake_end *e = &fake.end[i];
        if (e->kind != FAKE_CLOSED) continue;
        e->kind = (unsigned)kind;
        e->peer = e->passed = -1;
        e->n = 0;
        e->nwaiting = 0;
        e->tcp = false;
        return FAKE_FIRST + i;
    }
    return -EMFILE;
}

static inline int fake_open_fds(void)
{
    int n = 0;
    for (int i = 0; i < FAKE_FDS; i++) n += fake.end[i].kind != FAKE_CLOSED;
    return n;
}

static inline void fake_close(int fd)
{
    fake_end *e = fake_of(fd);
    if (!e) abort(); /* closed twice, or never open */
    if (e->peer >= 0) fake.end[e->peer].peer = -1;
    if (e->passed >= 0) fake_close(e->passed);
    for (int i = 0; i < e->nwaiting; i++) fake_close(e->waiting[i]);
    e->kind = FAKE_CLOSED;
}

/* Both ends find the connection closed, and are still to be closed themselves. */
static inline void fake_hang_up(int fd)
{
    fake_end *e = fake_of(fd);
    if (e->peer >= 0) fake.end[e->peer].peer = -1;
    e->peer = -1;
}

static inline ssize_t fake_send(int fd, const void *p, size_t n)
{
    fake_end *e = fake_of(fd);
    if (!e) abort();
    if (e->peer < 0) return -EPIPE;
    fake_end *to = &fake.end[e->peer];
    size_t room = FAKE_BYTES - to->n, k = n < room ? n : room;
    if (k == 0 && n > 0) return -EAGAIN;
    if (k > 0) memcpy(to->in + to->n, p, k);
    to->n += k;
    return (ssize_t)k;
}

static inline ssize_t fake_recv(int fd, void *p, size_t n)
{
    fake_end *e = fake_of(fd);
    if (!e) abort();
    if (e->n == 0) return e->peer < 0 ? 0 : -EAGAIN;
    size_t k = n < e->n ? n : e->n;
    if (k > 0) memcpy(p, e->in, k);
    memmove(e->in, e->in + k, e->n - k);
    e->n -= k;
    return (ssize_t)k;
}

static inline ssize_t fake_sendv(int fd, const ls_span *from, int n)
{
    ssize_t sum = 0;
    for (int i = 0; i < n; i++) {
        ssize_t k = from[i].n ? fake_send(fd, from[i].p, from[i].n) : 0;
        if (k < 0) return sum ? sum : k;
        sum += k;
        if ((size_t)k < from[i].n) break;
    }
    return sum;
}

static inline ssize_t fake_recvv(int fd, const ls_span *to, int n)
{
    ssize_t sum = 0;
    for (int i = 0; i < n; i++) {
        ssize_t k = to[i].n ? fake_recv(fd, to[i].p, to[i].n) : 0;
        if (k <= 0 && to[i].n) return sum ? sum : k;
        sum += k;
        if ((size_t)k < to[i].n) break;
    }
    return sum;
}

static inline int fake_listen_unix(const char *name) { (void)name; return fake_new(FAKE_LISTENER); }
static inline int fake_listen_tcp(const char *addr, int port, int *bound)
{
    int fd = fake_new(FAKE_LISTENER);
    (void)addr;
    if (bound) *bound = port ? port : 1;
    if (fd >= 0) fake_of(fd)->tcp = true;
    return fd;
}

/* A connection to the first listener of that kind. */
static inline int fake_connect(bool tcp)
{
    for (int i = 0; i < FAKE_FDS; i++) {
        fake_end *l = &fake.end[i];
        if (l->kind != FAKE_LISTENER || l->tcp != tcp) continue;
        if (l->nwaiting == FAKE_FDS) return -EAGAIN;
        int ours = fake_new(FAKE_SOCKET), theirs = ours < 0 ? -1 : fake_new(FAKE_SOCKET);
        if (theirs < 0) {
            if (ours >= 0) fake_close(ours);
            return -EMFILE;
        }
        fake_of(ours)->peer = theirs - FAKE_FIRST;
        fake_of(theirs)->peer = ours - FAKE_FIRST;
        fake_of(ours)->tcp = fake_of(theirs)->tcp = tcp;
        l->waiting[l->nwaiting++] = theirs;
        return ours;
    }
    return -ECONNREFUSED;
}
static inline int fake_connect_unix(const char *name) { (void)name; return fake_connect(false); }
static inline int fake_connect_tcp(const char *addr, int port) { (void)addr; (void)port; return fake_connect(true); }
static inline int fake_connect_done(int fd) { (void)fd; return 0; }

static inline int fake_accept(int fd)
{
    fake_end *l = fake_of(fd);
    if (!l) abort();
    if (l->nwaiting == 0) return -EAGAIN;
    int s = l->waiting[0];
    memmove(l->waiting, l->waiting + 1, (size_t)--l->nwaiting * sizeof *l->waiting);
    return s;
}

static inline int fake_send_fd(int sock, int fd)
{
    fake_end *e = fake_of(sock);
    (void)fd;
    if (!e) abort();
    if (e->peer < 0) return -EPIPE;
    fake_end *to = &fake.end[e->peer];
    if (to->passed >= 0) return -EAGAIN;
    int copy = fake_new(FAKE_PLAIN);
    if (copy < 0) return copy;
    to->passed = copy;
    return 0;
}

static inline int fake_recv_fd(int sock)
{
    fake_end *e = fake_of(sock);
    if (!e) abort();
    if (e->passed < 0) return e->peer < 0 ? -ECONNRESET : e->n ? -EPROTO : -EAGAIN;
    int fd = e->passed;
    e->passed = -1;
    return fd;
}

static inline int fake_peer_uid(int fd) { (void)fd; return 1; }
static inline int fake_addr(int fd, char *addr, size_t n)
{
    (void)fd;
    if (n < 10) return -ENOSPC;
    memcpy(addr, "192.0.2.1", 10);
    return 0;
}

static inline uint64_t fake_mono(void) { return fake.now_ns += 1000; }
static inline void fake_wait(const uint32_t *word, uint32_t value, ls_pollfd *fds, int nfds, uint64_t deadline_ns)
{
    (void)word;
    (void)value;
    for (int i = 0; i < nfds; i++) fds[i].revents = fds[i].events;
    fake.now_ns += 1000000;
    if (fake.idle) fake.idle(fake.idle_arg);
    (void)deadline_ns;
}
static inline void fake_wake(const uint32_t *word) { (void)word; }
static inline void fake_random(void *p, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        fake.random = fake.random * 1664525u + 1013904223u;
        ((uint8_t *)p)[i] = (uint8_t)(fake.random >> 24);
    }
}
static inline void *fake_map(size_t n) { return calloc(1, n); }
static inline void fake_unmap(void *p, size_t n) { (void)n; free(p); }

/* From here to fake_end_net the thread's env is this one. */
static inline void fake_begin(void)
{
    if (fake_open_fds()) abort();
    fake.env = ls_env_real;
    fake.env.send = fake_send;
    fake.env.recv = fake_recv;
    fake.env.sendv = fake_sendv;
    fake.env.recvv = fake_recvv;
    fake.env.listen_unix = fake_listen_unix;
    fake.env.listen_tcp = fake.env.listen_open = fake_listen_tcp;
    fake.env.connect_unix = fake_connect_unix;
    fake.env.connect_tcp = fake_connect_tcp;
    fake.env.connect_done = fake_connect_done;
    fake.env.accept = fake_accept;
    fake.env.send_fd = fake_send_fd;
    fake.env.recv_fd = fake_recv_fd;
    fake.env.peer_uid_is_ours = fake_peer_uid;
    fake.env.peer_addr = fake.env.local_addr = fake_addr;
    fake.env.close_fd = fake_close;
    fake.env.mono_ns = fake_mono;
    fake.env.wait = fake_wait;
    fake.env.wake = fake_wake;
    fake.env.random = fake_random;
    fake.env.map_secret = fake_map;
    fake.env.unmap = fake_unmap;
    fake.now_ns = 1000000000u;
    fake.random = 1;
    fake.idle = NULL;
    fake.context = (ls_context){ .env = &fake.env, .rank = -1, .log_level = -1 };
    ls_context_swap(&fake.context);
}

/* Everything must be closed. */
static inline void fake_end_net(void)
{
    ls_context_swap(NULL);
    if (fake_open_fds()) abort();
}

#endif
