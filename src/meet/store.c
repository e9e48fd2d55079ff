/* store.c -- the rendezvous server: a state machine over non-blocking sockets. What a connection asks is answered in
 * store_request.c. */
#include "meet/store_state.h"

#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "meet/address.h"

/* What there is one of for each rank or host; called again once their number is known. */
static ls_status make_room(ls_store *s)
{
    const int nnodes = s->c.nnodes ? s->c.nnodes : s->c.nranks; /* no more hosts than ranks */
    if (nnodes > 0 && !s->node && !(s->node = calloc((size_t)nnodes, sizeof *s->node)))
        return ls_fail(LS_NO_MEMORY, "a rendezvous store for %d nodes", nnodes);
    s->nnodes = nnodes;
    if (s->c.nranks == 0) return LS_OK;
    if (!(s->pid = calloc((size_t)s->c.nranks, sizeof *s->pid)))
        return ls_fail(LS_NO_MEMORY, "a rendezvous store for %d ranks", s->c.nranks);
    LS_TRY(ls_rank_set_create(s->c.nranks, &s->left));
    return ls_rank_set_create(s->c.nranks, &s->local);
}

/* Memory that holds keys is not left to realloc. */
static void free_conns(ls_store *s)
{
    const size_t nbytes = (size_t)s->conn_cap * sizeof *s->conn;
    if (s->conn) sodium_memzero(s->conn, nbytes);
    ls_env_get()->unmap(s->conn, nbytes);
    s->conn = NULL;
    s->conn_cap = 0;
}

/* For one more connection: a rank and an agent for each, and strangers. */
static bool room_for_conn(ls_store *s)
{
    const int most = s->c.nranks + s->nnodes + LS_STORE_STRANGERS;
    if (s->nconns == most) return false;
    if (s->nconns < s->conn_cap) return true;
    const int cap = 2 * s->conn_cap < LS_STORE_STRANGERS ? LS_STORE_STRANGERS : 2 * s->conn_cap;
    conn *more = ls_env_get()->map_secret((size_t)cap * sizeof *more);
    if (!more) return false;
    if (s->nconns > 0) memcpy(more, s->conn, (size_t)s->nconns * sizeof *more);
    free_conns(s);
    s->conn = more;
    s->conn_cap = cap;
    return true;
}

ls_status ls_store_create(const ls_store_config *c, ls_store **out)
{
    const ls_env *env = ls_env_get();
    *out = NULL;
    if (c->nranks < 0 || c->nranks > LS_WORLD_MOST_RANKS)
        return ls_fail(LS_INVALID, "a job of %d ranks: expected 1 to %d", c->nranks, LS_WORLD_MOST_RANKS);
    const char *addr = c->tcp_addr ? c->tcp_addr : "127.0.0.1";
    if (c->tcp_port != 0) LS_TRY(ls_address_check(addr, !c->no_secret));
    ls_store *s = env->map_secret(sizeof *s); /* it holds the keys for the whole job */
    if (!s) return ls_fail(LS_NO_MEMORY, "rendezvous store");
    s->c = *c;
    if (!s->c.silent_ns) s->c.silent_ns = LS_STORE_SILENT_NS;
    if (!s->c.generation) s->c.generation = LS_STORE_GENERATION;
    s->listen_unix = s->listen_tcp = -1;
    ls_status st = make_room(s);
    if (st < 0) {
        ls_store_destroy(s);
        return st;
    }
    ls_door_derive(c->secret, "store", 0, 0, s->psk);
    env->random(s->key, sizeof s->key);

    s->listen_unix = env->listen_unix(c->unix_name);
    if (s->listen_unix < 0) {
        int err = -s->listen_unix;
        ls_store_destroy(s);
        if (err == EADDRINUSE)
            return ls_fail(LS_PORT_BUSY, "another job already meets at '%s': choose another MASTER_PORT", c->unix_name);
        return ls_fail(LS_SYSTEM, "listening on the socket '%s': %s", c->unix_name, strerror(err));
    }
    if (c->tcp_port != 0) {
        s->listen_tcp = env->listen_open(addr, c->tcp_port > 0 ? c->tcp_port : 0, &s->port);
        if (s->listen_tcp < 0) {
            int err = -s->listen_tcp;
            char who[128] = "a process we cannot see";
            if (err == EADDRINUSE) env->port_holder(c->tcp_port, who, sizeof who);
            ls_store_destroy(s);
            if (err == EADDRINUSE)
                return ls_fail(LS_PORT_BUSY, "port %d on %s is held by %s: use another port, or none for a free one",
                               c->tcp_port, addr, who);
            return ls_fail(LS_SYSTEM, "listening on %s, port %d: %s%s", addr, c->tcp_port, strerror(err),
                           err == EADDRNOTAVAIL ? "; --listen takes an address of this node" : "");
        }
    }
    *out = s;
    return LS_OK;
}

static void drop(ls_store *s, int i)
{
    conn *c = &s->conn[i];
    if (c->rank < 0 && !c->put_off) s->rejected++;
    ls_env_get()->close_fd(c->fd);
    ls_door_close(&c->door);
    free(c->in);
    free(c->out);
    s->conn[i] = s->conn[--s->nconns];
}

void ls_store_destroy(ls_store *s)
{
    if (!s) return;
    const ls_env *env = ls_env_get();
    while (s->nconns > 0) drop(s, 0);
    for (int i = 0; i < s->nentries; i++) {
        free(s->entry[i].value);
        if (s->entry[i].fd >= 0) env->close_fd(s->entry[i].fd);
    }
    free(s->entry);
    while (s->exchange) {
        exchange *x = s->exchange;
        s->exchange = x->next;
        ls_rank_set_free(&x->told);
        free(x->all);
        free(x);
    }
    free(s->pid);
    free(s->node);
    ls_rank_set_free(&s->left);
    ls_rank_set_free(&s->local);
    free_conns(s);
    free(s->fds);
    if (s->listen_unix >= 0) env->close_fd(s->listen_unix);
    if (s->listen_tcp >= 0) env->close_fd(s->listen_tcp);
    sodium_memzero(s, sizeof *s);
    env->unmap(s, sizeof *s);
}

ls_status ls_store_begin(ls_store *s, int nranks, ls_world_page *page, int page_fd)
{
    s->c.nranks = nranks;
    s->begun = true;
    LS_TRY(make_room(s));
    s->c.page = page;
    s->c.page_fd = page_fd;
    for (int i = 0; i < s->nnodes; i++) s->node[i].beat_ns = ls_env_get()->mono_ns() + FIRST_BEAT_NS;
    return LS_OK;
}

const ls_rank_set *ls_store_local(const ls_store *s) { return &s->local; }

int ls_store_agents(const ls_store *s)
{
    int n = 0;
    for (int i = 0; i < s->nnodes; i++) n += s->node[i].here && !s->node[i].left;
    return n;
}

int ls_store_waiting(const ls_store *s)
{
    int n = 0;
    for (int i = 0; i < s->nnodes; i++) n += s->node[i].waits;
    return n;
}

void ls_store_exclude(ls_store *s, int at)
{
    s->node[at] = (node){ 0 };
    for (int i = s->nconns - 1; i >= 0; i--)
        if (s->conn[i].agent && s->conn[i].rank == at) drop(s, i);
}

int ls_store_agents_told(const ls_store *s)
{
    int n = 0;
    for (int i = 0; i < s->nnodes; i++) n += s->node[i].here && !s->node[i].left && s->node[i].told;
    return n;
}

int ls_store_port(const ls_store *s) { return s->port; }
uint64_t ls_store_rejected(const ls_store *s) { return s->rejected; }

int ls_store_connected(const ls_store *s)
{
    int n = 0;
    for (int i = 0; i < s->nconns; i++) n += s->conn[i].rank >= 0;
    return n;
}

ls_pollfd *ls_store_fds(ls_store *s, int more, int *n)
{
    const int want = 2 + s->nconns + more;
    *n = 0;
    if (want > s->fds_cap) {
        ls_pollfd *fds = realloc(s->fds, 2 * (size_t)want * sizeof *fds);
        if (!fds) return NULL;
        s->fds = fds;
        s->fds_cap = 2 * want;
    }
    s->fds[(*n)++] = (ls_pollfd){ .fd = s->listen_unix, .events = LS_POLL_IN };
    if (s->listen_tcp >= 0) s->fds[(*n)++] = (ls_pollfd){ .fd = s->listen_tcp, .events = LS_POLL_IN };
    for (int i = 0; i < s->nconns; i++) {
        const bool writes = s->conn[i].out || ls_door_writes(&s->conn[i].door);
        s->fds[(*n)++] =
            (ls_pollfd){ .fd = s->conn[i].fd, .events = (short)(LS_POLL_IN | (writes ? LS_POLL_OUT : 0)) };
    }
    return s->fds;
}

const char *ls_store_silence(uint64_t silent_ns, char *buf, size_t n)
{
    snprintf(buf, n, "nothing was heard of it for %.1f s (lockstep run --node-timeout): the node, its launcher or the network "
                     "between has stopped", (double)silent_ns * 1e-9);
    return buf;
}

static void host_gone(ls_store *s, int i, const char *how)
{
    const node *o = &s->node[i];
    char text[LS_ERROR_BYTES];
    snprintf(text, sizeof text, "node %d (host %s, launcher's pid %d) is gone: %s", i, o->host, (int)o->pid, how);
    ls_page_abort(s->c.page, LS_ABORT_BY_LAUNCHER, LS_PEER_SILENT, text);
}

/* A waiting connection has nothing to say: whatever arrives is its end. */
static bool still_there(conn *c)
{
    char byte;
    return ls_store_recv(c, &byte, 1) == -EAGAIN;
}

static void lost(ls_store *s, const conn *c)
{
    if (c->rank < 0 || c->bye) return;
    if (c->agent && !s->c.page) s->node[c->rank].here = false; /* before the job began: another may come */
    if (!s->c.page) return;
    if (c->agent) s->node[c->rank].left = true;
    if (c->agent) host_gone(s, c->rank, "its connection closed: its launcher has ended, or the node");
    else if (s->c.watch_ranks && c->unix_socket) ls_page_died(s->c.page, c->rank, s->pid[c->rank]);
}

/* When we did not run ourselves for a while, nobody else can be blamed for silence in it. */
static void look_for_silence(ls_store *s, uint64_t now_ns)
{
    const uint64_t absent = s->step_ns && now_ns - s->step_ns > s->c.silent_ns / 4 ? now_ns - s->step_ns : 0;
    s->step_ns = now_ns;
    for (int i = 0; i < s->nnodes && s->c.page; i++) {
        node *o = &s->node[i];
        if (!o->here || o->left) continue;
        o->beat_ns += absent;
        if (now_ns <= o->beat_ns || now_ns - o->beat_ns < s->c.silent_ns) continue;
        o->left = true; /* said once */
        char how[160];
        host_gone(s, i, ls_store_silence(s->c.silent_ns, how, sizeof how));
    }
}

/* The stranger to make room, from this address or (NULL) any: the oldest of those who have proved nothing, if there
 * are any. How many there are; -1: none. */
static int oldest_stranger(const ls_store *s, const char *from, int *n)
{
    int oldest = -1;
    *n = 0;
    for (int i = 0; i < s->nconns; i++) {
        const conn *c = &s->conn[i];
        if (c->rank >= 0 || c->unix_socket || (from && strcmp(c->from, from) != 0)) continue;
        ++*n;
        bool proof = ls_door_has_proof(&c->door), its = oldest >= 0 && ls_door_has_proof(&s->conn[oldest].door);
        if (oldest < 0 || (proof == its ? c->deadline_ns < s->conn[oldest].deadline_ns : !proof)) oldest = i;
    }
    return oldest;
}

static bool psk_of_store(void *arg, const ls_door_head *head, uint8_t psk[LS_NOISE_KEY_BYTES])
{
    const ls_store *s = arg;
    (void)head;
    memcpy(psk, s->psk, LS_NOISE_KEY_BYTES);
    return !s->c.no_secret;
}

static void admit(ls_store *s, int listener, bool unix_socket, uint64_t now_ns)
{
    const ls_env *env = ls_env_get();
    for (int fd, turn = 0; turn < LS_DOOR_ACCEPTS && (fd = env->accept(listener)) >= 0; turn++) {
        char from[46] = "";
        int n, oldest;
        if (unix_socket && env->peer_uid_is_ours(fd) != 1) {
            env->close_fd(fd);
            s->rejected++;
            continue;
        }
        if (!unix_socket) {
            (void)env->peer_addr(fd, from, sizeof from);
            oldest = oldest_stranger(s, from, &n);
            if (n >= LS_DOOR_PER_ADDRESS && !ls_address_is_loopback(from)) drop(s, oldest);
            oldest = oldest_stranger(s, NULL, &n);
            if (n >= LS_STORE_STRANGERS) drop(s, oldest);
        }
        if (!room_for_conn(s)) { /* only our own user can bring it to that */
            env->close_fd(fd);
            continue;
        }
        conn *c = &s->conn[s->nconns++];
        *c = (conn){
            .fd = fd, .unix_socket = unix_socket, .rank = -1, .out_fd = -1, .deadline_ns = now_ns + LS_STORE_HELLO_NS
        };
        memcpy(c->from, from, sizeof from);
        if (!unix_socket)
            ls_door_accept(&c->door, LS_DOOR_STORE, s->c.generation, s->c.job, psk_of_store, s);
    }
}

ls_status ls_store_step(ls_store *s, uint64_t now_ns)
{
    admit(s, s->listen_unix, true, now_ns);
    if (s->listen_tcp >= 0) admit(s, s->listen_tcp, false, now_ns);
    for (int i = 0; i < s->nconns;) {
        conn *c = &s->conn[i];
        bool alive = c->waiting ? still_there(c) : ls_store_read_requests(s, c);
        if (alive) alive = ls_store_flush(c);
        if (alive && !c->out && !c->waiting && ls_door_holds(&c->door)) continue; /* no poll will show it */
        if (alive && c->rank < 0 && !c->out && now_ns > c->deadline_ns) alive = false;
        if (!alive) {
            lost(s, c);
            drop(s, i);
        } else {
            i++;
        }
    }
    look_for_silence(s, now_ns);
    for (int i = 0; i < s->nconns; i++) ls_store_flush(&s->conn[i]); /* to waiters; failures show at the next step */
    return LS_OK;
}
