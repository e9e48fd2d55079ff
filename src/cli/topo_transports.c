/* topo_transports.c -- ways to carry bytes between two ends on this machine, and what each costs.
 *
 * Both ends are threads of this process, so its processor time is that of both together. Each has a core of its own, if
 * there are two, as ranks that a launcher starts.
 */
#include "cli/topo_links.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/env.h"
#include "lockstep/group.h"
#include "net/world.h"

#define TURNS   8                  /* there and back, of one look */
#define TOTAL   ((size_t)16 << 20) /* bytes one way, of one look */
#define LOOKS   40                 /* of which the best counts: what disturbs a machine only makes it slower */
#define WAIT_NS 10000000000u

/* What both measure in a look: latency first, then the bytes, with the processor time of those alone. */
typedef struct times {
    uint64_t t0, t1, t2, cpu;
} times;

static void keep_best(const times *t, size_t sent, ls_carried *best)
{
    const double late = 1e-9 * (double)(t->t1 - t->t0) / (2 * TURNS);
    const double rate = (double)sent / (1e-9 * (double)(t->t2 - t->t1));
    if (best->latency_s == 0 || late < best->latency_s) best->latency_s = late;
    if (rate < best->rate) return;
    best->rate = rate;
    best->cpu_s_per_gb = (double)t->cpu / (double)sent;
}

static void take_core(bool first)
{
    if (ls_env_get()->cpus() > 1) (void)ls_cores_stay_on(first ? 0 : 1, 1);
}

static int messages_of(size_t nbytes) { return nbytes > TOTAL ? 1 : (int)(TOTAL / nbytes); }

/* --- a transport -------------------------------------------------------------------------------------- */

typedef struct ranks {
    size_t nbytes;
    ls_carried *best; /* rank 0 writes it */
} ranks;

static ls_status rank(ls_world *w, void *arg)
{
    ranks *r = arg;
    const ls_env *env = ls_env_get();
    ls_group *g = ls_world_group(w);
    const bool first = ls_world_rank(w) == 0;
    const int peer = first ? 1 : 0, n = messages_of(r->nbytes);
    times t = { 0 };
    void *p;
    take_core(first);
    LS_TRY(ls_alloc(w, r->nbytes, LS_MEM_COMM, &p));
    memset(p, 1, r->nbytes);
    for (int look = 0; look < LOOKS; look++) {
        LS_TRY(ls_barrier(g));
        t.t0 = env->mono_ns();
        for (int i = 0; i < TURNS; i++) {
            if (first) LS_TRY(ls_send(g, p, 8, LS_U8, peer));
            LS_TRY(ls_recv(g, p, 8, LS_U8, peer));
            if (!first) LS_TRY(ls_send(g, p, 8, LS_U8, peer));
        }
        t.t1 = env->mono_ns();
        t.cpu = env->cpu_ns();
        for (int i = 0; i < n; i++)
            LS_TRY(first ? ls_send(g, p, r->nbytes, LS_U8, peer) : ls_recv(g, p, r->nbytes, LS_U8, peer));
        LS_TRY(first ? ls_recv(g, p, 1, LS_U8, peer) : ls_send(g, p, 1, LS_U8, peer));
        t.t2 = env->mono_ns();
        t.cpu = env->cpu_ns() - t.cpu;
        if (first) keep_best(&t, r->nbytes * (size_t)n, r->best);
    }
    return LS_OK;
}

static ls_status transport(const char *name, size_t nbytes, ls_carried *out)
{
    ranks r = { .nbytes = nbytes, .best = out };
    const ls_world_opts o = { .transport = name, .arena_bytes = 2 * nbytes + (1 << 20) };
    return ls_world_threads(2, &o, rank, &r);
}

/* --- a socket ----------------------------------------------------------------------------------------- */

typedef struct end {
    int fd;
    bool first;
    size_t nbytes;
    char *p;
    ls_status st;
    ls_carried *best; /* of the first one */
} end;

/* n bytes out of p or into it. */
static ls_status all_of(const end *e, bool out, size_t n)
{
    const ls_env *env = ls_env_get();
    const uint64_t deadline = env->mono_ns() + WAIT_NS;
    for (size_t at = 0; at < n;) {
        const ssize_t k = out ? env->send(e->fd, e->p + at, n - at) : env->recv(e->fd, e->p + at, n - at);
        if (k > 0) at += (size_t)k;
        if (k == 0 || (k < 0 && k != -EAGAIN))
            return ls_fail(LS_IO, "a socket of this process: %s", k ? strerror((int)-k) : "closed");
        ls_pollfd fd = { .fd = e->fd, .events = out ? LS_POLL_OUT : LS_POLL_IN };
        if (k == -EAGAIN) env->wait(NULL, 0, &fd, 1, deadline);
        if (env->mono_ns() >= deadline) return ls_fail(LS_IO, "a socket of this process moved %zu of %zu bytes in 10 s", at, n);
    }
    return LS_OK;
}

static ls_status measure_end(end *e)
{
    const ls_env *env = ls_env_get();
    const int n = messages_of(e->nbytes);
    times t;
    for (int look = 0; look < LOOKS; look++) {
        t.t0 = env->mono_ns();
        for (int i = 0; i < TURNS; i++) {
            if (e->first) LS_TRY(all_of(e, true, 8));
            LS_TRY(all_of(e, false, 8));
            if (!e->first) LS_TRY(all_of(e, true, 8));
        }
        t.t1 = env->mono_ns();
        t.cpu = env->cpu_ns();
        for (int i = 0; i < n; i++) LS_TRY(all_of(e, e->first, e->nbytes));
        LS_TRY(all_of(e, !e->first, 1));
        t.t2 = env->mono_ns();
        t.cpu = env->cpu_ns() - t.cpu;
        if (e->first) keep_best(&t, e->nbytes * (size_t)n, e->best);
    }
    return LS_OK;
}

static void run_end(void *arg)
{
    end *e = arg;
    take_core(e->first);
    e->st = measure_end(e);
}

static ls_status both_ends(int a, int b, size_t nbytes, ls_carried *out)
{
    const ls_env *env = ls_env_get();
    end x = { .fd = a, .first = true, .nbytes = nbytes, .p = malloc(nbytes), .best = out };
    end y = { .fd = b, .nbytes = nbytes, .p = malloc(nbytes) };
    void *thread[2] = { NULL, NULL };
    ls_status st = x.p && y.p ? LS_OK : ls_fail(LS_NO_MEMORY, "buffers of %zu bytes", nbytes);
    if (st == LS_OK) memset(x.p, 1, nbytes);
    if (st == LS_OK &&
        (env->thread_start(run_end, &x, &thread[0]) < 0 || env->thread_start(run_end, &y, &thread[1]) < 0))
        st = ls_fail(LS_SYSTEM, "a thread cannot be started");
    for (int i = 0; i < 2; i++)
        if (thread[i]) env->thread_join(thread[i]);
    if (st == LS_OK && (x.st < 0 || y.st < 0)) st = ls_fail(x.st < 0 ? x.st : y.st, "a socket of this process failed");
    free(x.p);
    free(y.p);
    return st;
}

static ls_status socket_of(bool tcp, size_t nbytes, ls_carried *out)
{
    const ls_env *env = ls_env_get();
    char name[64];
    uint64_t key;
    int port = 0, from = -1, to = -1;
    env->random(&key, sizeof key);
    snprintf(name, sizeof name, "lockstep-topo-%016llx", (unsigned long long)key);
    const int listener = tcp ? env->listen_tcp("127.0.0.1", 0, &port) : env->listen_unix(name);
    ls_status st = listener >= 0 ? LS_OK : ls_fail(LS_SYSTEM, "a socket: %s", strerror(-listener));
    if (st == LS_OK && (from = tcp ? env->connect_tcp("127.0.0.1", port) : env->connect_unix(name)) < 0)
        st = ls_fail(LS_SYSTEM, "a connection within this machine: %s", strerror(-from));
    const uint64_t deadline = env->mono_ns() + WAIT_NS;
    while (st == LS_OK && (to = env->accept(listener)) == -EAGAIN) {
        ls_pollfd fd = { .fd = listener, .events = LS_POLL_IN };
        env->wait(NULL, 0, &fd, 1, deadline);
        if (env->mono_ns() >= deadline) st = ls_fail(LS_SYSTEM, "a connection within this machine: timed out after 10 s");
    }
    if (st == LS_OK && to < 0) st = ls_fail(LS_SYSTEM, "a connection within this machine: %s", strerror(-to));
    while (st == LS_OK && tcp && env->connect_done(from) == -EINPROGRESS && env->mono_ns() < deadline) env->yield();
    if (st == LS_OK) st = both_ends(from, to, nbytes, out);
    if (to >= 0) env->close_fd(to);
    if (from >= 0) env->close_fd(from);
    if (listener >= 0) env->close_fd(listener);
    return st;
}

/* --- all ---------------------------------------------------------------------------------------------- */

ls_status ls_carriers_measure(size_t nbytes, ls_carried out[LS_CARRIERS])
{
    static const ls_carried all[LS_CARRIERS] = {
        { .name = "shm", .how = "shared memory, as ranks of a node use it" },
        { .name = "unix", .how = "a Unix socket, bytes alone" },
        { .name = "tcp", .how = "a TCP connection over the loopback, bytes alone" },
        { .name = "tcp+frames", .how = "the same as ranks use it: with frames and checksums" },
    };
    memcpy(out, all, sizeof all);
    LS_TRY(transport("shm", nbytes, &out[0]));
    LS_TRY(socket_of(false, nbytes, &out[1]));
    LS_TRY(socket_of(true, nbytes, &out[2]));
    return transport("tcp", nbytes, &out[3]);
}

void ls_carriers_print(const ls_carried *c, ls_text *out)
{
    ls_text_add(out, "%-12s %10s %10s %14s\n", "", "us", "GB/s", "CPU s per GB");
    for (int i = 0; i < LS_CARRIERS; i++)
        ls_text_add(out, "%-12s %10.4g %10.4g %14.4g   %s\n", c[i].name, c[i].latency_s * 1e6, c[i].rate * 1e-9,
                    c[i].cpu_s_per_gb, c[i].how);
    ls_text_add(out, "The best of %d looks. Both ends are threads of one process; processor time is that of both together, waiting included.\n", LOOKS);
}

void ls_carriers_json(const ls_carried *c, ls_text *out)
{
    ls_text_add(out, "{\"carriers\": [");
    for (int i = 0; i < LS_CARRIERS; i++) {
        ls_text_add(out, "%s\n {\"name\": \"%s\", \"latency_s\": ", i ? "," : "", c[i].name);
        ls_json_number(out, c[i].latency_s);
        ls_text_add(out, ", \"bytes_per_s\": ");
        ls_json_number(out, c[i].rate);
        ls_text_add(out, ", \"cpu_s_per_gb\": ");
        ls_json_number(out, c[i].cpu_s_per_gb);
        ls_text_add(out, "}");
    }
    ls_text_add(out, "]}\n");
}
