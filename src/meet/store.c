/* store.c -- the rendezvous server: a state machine over non-blocking sockets. */
#include "meet/store.h"

#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/text.h"
#include "meet/address.h"
#include "meet/beat.h"
#include "meet/store_wire.h"

#define MAX_KEYS 65536
#define FIRST_BEAT_NS 5000000000ull /* an agent has pages to make before it tells anything */
#define FIRST_IN_BYTES 1024 /* of a request; most fit */
_Static_assert(FIRST_IN_BYTES >= sizeof(store_hello) && FIRST_IN_BYTES >= sizeof(store_request), "read before the handshake");

enum stage { HELLO, REQUEST, BODY, DESCRIPTOR };

typedef struct conn {
    int fd;
    bool unix_socket, waiting, bye;
    ls_door door;         /* tcp */
    char from[46];        /* address of a tcp connection */
    int rank;             /* -1 until its hello is accepted; the node of an agent */
    bool agent;
    bool put_off;         /* one of the job's, which comes too early or too late */
    uint64_t deadline_ns; /* of the hello */
    enum stage stage;
    char *in;             /* owned, of nin bytes */
    size_t nin, have;
    char *out;            /* owned: a reply on its way; NULL: none */
    size_t nout, at;
    const char *body;     /* borrowed: nbody bytes that follow it; NULL: none */
    size_t nbody;
    int out_fd;           /* sent after it; borrowed from the table; -1: none */
    bool close_after;
} conn;

typedef struct entry {
    char key[LS_STORE_KEY_MAX + 1];
    void *value;          /* owned */
    size_t n;
    int fd;               /* owned; -1: a plain value */
} entry;

/* What all ranks tell one another: ls_store_exchange. */
typedef struct exchange {
    char key[LS_STORE_KEY_MAX + 1];
    char *all;            /* owned: [nranks][n] */
    size_t n;
    ls_rank_set told;     /* owned: those who have said theirs */
    int ntold;
    struct exchange *next;
} exchange;

/* Another host, as its agent tells. */
typedef struct node {
    bool here, left, told; /* told: it knows of the job's cause */
    bool waits;            /* it came when the job had begun without it */
    int32_t pid;           /* of the agent */
    char host[LS_STORE_HOST_BYTES];
    uint64_t beat_ns;      /* when it was heard of last */
} node;

struct ls_store {
    ls_store_config c;
    uint8_t psk[LS_NOISE_KEY_BYTES]; /* of the door */
    uint8_t key[LS_NOISE_KEY_BYTES]; /* that the job's links derive theirs from */
    int listen_unix, listen_tcp, port;
    conn *conn;                /* owned, secret memory: doors have keys */
    int nconns, conn_cap;
    ls_pollfd *fds;            /* owned: of the last ls_store_fds */
    int fds_cap;
    entry *entry;              /* owned */
    int nentries, cap;
    exchange *exchange;        /* owned, a list */
    int32_t *pid;              /* owned, [nranks]: of the ranks that said hello; 0: not yet */
    ls_rank_set left, local;   /* ranks that said goodbye; that came over the Unix socket */
    node *node;                /* owned, [nnodes] */
    int nnodes;
    bool begun;                /* with the nodes that had come: ls_store_begin */
    uint64_t step_ns;          /* when we last looked */
    uint64_t rejected;
};

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

int ls_store_missing(const ls_store *s, char *buf, size_t n)
{
    ls_rank_set missing;
    if (n) buf[0] = 0;
    if (ls_rank_set_create(s->c.nranks, &missing) < 0) return s->c.nranks; /* no memory to say which */
    for (int r = 0; r < s->c.nranks; r++)
        if (!s->pid[r]) ls_rank_set_add(&missing, r);
    const int count = ls_rank_set_count(&missing);
    if (n) ls_rank_set_text(&missing, buf, n);
    ls_rank_set_free(&missing);
    return count;
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

/* --- bytes -------------------------------------------------------------------- */

static ssize_t conn_recv(conn *c, void *p, size_t n)
{
    return c->unix_socket ? ls_env_get()->recv(c->fd, p, n) : ls_door_recv(&c->door, c->fd, p, n);
}

static ssize_t conn_send(conn *c, const void *p, size_t n)
{
    return c->unix_socket ? ls_env_get()->send(c->fd, p, n) : ls_door_send(&c->door, c->fd, p, n);
}

/* --- replies ---------------------------------------------------------------- */

static bool reply(conn *c, ls_status status, const void *value, size_t n, int fd)
{
    store_reply r = { .status = status, .nvalue = (uint32_t)n, .has_fd = fd >= 0 };
    c->out = malloc(sizeof r + n);
    if (!c->out) return false;
    memcpy(c->out, &r, sizeof r);
    if (n) memcpy(c->out + sizeof r, value, n);
    c->nout = sizeof r + n;
    c->body = NULL;
    c->at = c->nbody = 0;
    c->out_fd = fd;
    c->waiting = false;
    return true;
}

/* A value that lives as long as the store and goes to many. */
static bool reply_shared(conn *c, const char *value, size_t n)
{
    if (!reply(c, LS_OK, NULL, 0, -1)) return false;
    store_reply r = { .status = LS_OK, .nvalue = (uint32_t)n };
    memcpy(c->out, &r, sizeof r);
    c->body = value;
    c->nbody = n;
    return true;
}

static bool refuse(conn *c, ls_status status, const char *text)
{
    c->close_after = true;
    return reply(c, status, text, strlen(text), -1);
}

static bool flush(conn *c)
{
    const ls_env *env = ls_env_get();
    while (c->out && c->at < c->nout + c->nbody) {
        const bool head = c->at < c->nout;
        ssize_t k = head ? conn_send(c, c->out + c->at, c->nout - c->at)
                         : conn_send(c, c->body + (c->at - c->nout), c->nbody - (c->at - c->nout));
        if (k == -EAGAIN) return true;
        if (k < 0) return false;
        c->at += (size_t)k;
    }
    if (c->out && !c->unix_socket) {
        int k = ls_door_flush(&c->door, c->fd);
        if (k == -EAGAIN) return true;
        if (k < 0) return false;
    }
    if (c->out && c->out_fd >= 0) {
        int k = env->send_fd(c->fd, c->out_fd);
        if (k == -EAGAIN) return true;
        if (k < 0) return false;
    }
    free(c->out);
    c->out = NULL;
    c->out_fd = -1;
    return !c->close_after;
}

/* --- the table --------------------------------------------------------------- */

static entry *find(ls_store *s, const char *key)
{
    for (int i = 0; i < s->nentries; i++)
        if (strcmp(s->entry[i].key, key) == 0) return &s->entry[i];
    return NULL;
}

/* A reply on its way borrows the descriptor of its key, so a key that holds one stays as it is. */
static bool is_fixed(ls_store *s, const char *key)
{
    const entry *e = find(s, key);
    return e && e->fd >= 0;
}

/* Takes ownership of fd; copies value. False when out of memory or over the limit. */
static bool put(ls_store *s, const char *key, const void *value, size_t n, int fd)
{
    entry *e = find(s, key);
    if (!e) {
        if (s->nentries == s->cap) {
            int cap = s->cap ? 2 * s->cap : 64;
            entry *p = cap <= MAX_KEYS ? realloc(s->entry, (size_t)cap * sizeof *p) : NULL;
            if (!p) return false;
            s->entry = p;
            s->cap = cap;
        }
        e = &s->entry[s->nentries];
        *e = (entry){ .fd = -1 };
        snprintf(e->key, sizeof e->key, "%s", key);
        s->nentries++;
    }
    void *copy = malloc(n ? n : 1);
    if (!copy) return false;
    if (n) memcpy(copy, value, n);
    free(e->value);
    if (e->fd >= 0) ls_env_get()->close_fd(e->fd);
    e->value = copy;
    e->n = n;
    e->fd = fd;
    return true;
}

static const char *key_of(const conn *c, char key[LS_STORE_KEY_MAX + 1])
{
    store_request q;
    memcpy(&q, c->in, sizeof q);
    memcpy(key, c->in + sizeof q, q.nkey);
    key[q.nkey] = 0;
    return key;
}

static bool answer_get(ls_store *s, conn *c)
{
    char key[LS_STORE_KEY_MAX + 1];
    const entry *e = find(s, key_of(c, key));
    if (!e) {
        c->waiting = true;
        return true;
    }
    return reply(c, LS_OK, e->value, e->n, e->fd);
}

static bool is_get(const conn *c)
{
    store_request q;
    memcpy(&q, c->in, sizeof q);
    return q.op == STORE_GET || q.op == STORE_GET_FD;
}

static void answer_waiters(ls_store *s)
{
    for (int i = 0; i < s->nconns; i++) {
        conn *c = &s->conn[i];
        if (!c->waiting || c->out || !is_get(c) || !answer_get(s, c) || c->waiting) continue;
        c->stage = REQUEST;
        c->have = 0;
    }
}

ls_status ls_store_put(ls_store *s, const char *key, const void *value, size_t n)
{
    if (!put(s, key, value, n, -1)) return ls_fail(LS_NO_MEMORY, "the store has no space for '%s'", key);
    answer_waiters(s);
    return LS_OK;
}

const void *ls_store_look(ls_store *s, const char *key, size_t *n)
{
    const entry *e = find(s, key);
    if (e) *n = e->n;
    return e ? e->value : NULL;
}

/* --- what all tell all --------------------------------------------------------- */

static exchange *exchange_of(ls_store *s, const char *key, size_t n)
{
    exchange *x = s->exchange;
    while (x && strcmp(x->key, key) != 0) x = x->next;
    if (x || (s->c.nranks > 0 && n > UINT32_MAX / (size_t)s->c.nranks)) return x;
    x = calloc(1, sizeof *x);
    if (x) x->all = malloc(n > 0 ? n * (size_t)s->c.nranks : 1);
    if (!x || !x->all || ls_rank_set_create(s->c.nranks, &x->told) < 0) {
        if (x) free(x->all);
        free(x);
        return NULL;
    }
    snprintf(x->key, sizeof x->key, "%s", key);
    x->n = n;
    x->next = s->exchange;
    return s->exchange = x;
}

/* Whom to ask for whom once all are here: their requests stay in conn.in meanwhile. */
static void answer_exchange(ls_store *s, const exchange *x)
{
    for (int i = 0; i < s->nconns; i++) {
        conn *c = &s->conn[i];
        char key[LS_STORE_KEY_MAX + 1];
        store_request q;
        if (!c->waiting || c->out) continue;
        memcpy(&q, c->in, sizeof q);
        if (q.op != STORE_EXCHANGE || strcmp(key_of(c, key), x->key) != 0) continue;
        if (!reply_shared(c, x->all, x->n * (size_t)s->c.nranks)) continue; /* it waits until its deadline */
        c->stage = REQUEST;
        c->have = 0;
    }
}

static bool on_exchange(ls_store *s, conn *c, const char *key, const char *value, size_t n)
{
    char text[256];
    exchange *x = c->agent ? NULL : exchange_of(s, key, n);
    if (!x) return !c->agent && refuse(c, LS_NO_MEMORY, "the store is full");
    if (x->n != n) {
        snprintf(text, sizeof text, "rank %d provided %zu bytes for '%.60s', rank %d %zu: do all ranks run the same build?",
                 c->rank, n, key, ls_rank_set_next(&x->told, 0), x->n);
        return refuse(c, LS_PROTOCOL, text);
    }
    if (ls_rank_set_has(&x->told, c->rank)) {
        snprintf(text, sizeof text, "rank %d provided '%.60s' twice", c->rank, key);
        return refuse(c, LS_INVALID, text);
    }
    ls_rank_set_add(&x->told, c->rank);
    if (n > 0) memcpy(x->all + (size_t)c->rank * n, value, n);
    c->waiting = true;
    if (++x->ntold < s->c.nranks) return true;
    answer_exchange(s, x);
    return true;
}

/* --- requests ---------------------------------------------------------------- */

/* Only agents that have proved who they are send more than a value. */
static size_t most_value(const ls_store *s, const conn *c, uint32_t op)
{
    return op == STORE_BEAT && c->agent ? ls_beat_most_bytes((uint32_t)s->c.nranks) : LS_STORE_VALUE_MAX;
}

static bool grow_in(conn *c, size_t n)
{
    char *more = n <= c->nin ? c->in : realloc(c->in, n);
    if (!more) return false;
    c->in = more;
    if (n > c->nin) c->nin = n;
    return true;
}

static bool welcome(ls_store *s, conn *c, int rank)
{
    c->rank = rank;
    c->stage = REQUEST;
    return reply(c, LS_OK, s->key, sizeof s->key, c->unix_socket && !c->agent ? s->c.page_fd : -1);
}

/* It comes again. */
static bool put_off(conn *c)
{
    c->put_off = true;
    return refuse(c, LS_AGAIN, "");
}

static bool on_agent(ls_store *s, conn *c, const store_hello *h)
{
    char text[256];
    if (s->c.nnodes && h->size && (h->size != (uint32_t)s->c.nnodes || h->rank >= h->size)) {
        snprintf(text, sizeof text, "node %u of %u came to a job of %d nodes: --nnodes must be the same everywhere",
                 h->rank, h->size, s->c.nnodes);
        return refuse(c, LS_CONFIG_MISMATCH, text);
    }
    if (h->rank >= (uint32_t)s->nnodes) return false;
    node *o = &s->node[h->rank];
    if (s->begun && h->rank > 0 && (!o->here || o->left)) { /* the next generation begins with it */
        o->waits = true;
        return put_off(c);
    }
    if (o->here || (h->rank == 0 && s->c.nnodes)) {
        snprintf(text, sizeof text, "node %u joined twice: every node needs its own --node-rank", h->rank);
        return refuse(c, LS_CONFIG_MISMATCH, text);
    }
    *o = (node){ .here = true, .pid = h->pid, .beat_ns = ls_env_get()->mono_ns() + FIRST_BEAT_NS };
    memcpy(o->host, h->host, sizeof o->host - 1);
    ls_text_printable(o->host);
    c->agent = true;
    return welcome(s, c, (int)h->rank);
}

/* False: drop without a word. */
static bool on_hello(ls_store *s, conn *c)
{
    store_hello h;
    memcpy(&h, c->in, sizeof h);
    if (h.magic != LS_STORE_MAGIC) return false;
    if (c->unix_socket && !s->c.no_secret && sodium_memcmp(h.secret, s->c.secret, LS_SECRET_BYTES) != 0) return false;

    char text[256];
    if (h.version != LS_STORE_VERSION)
        return refuse(c, LS_VERSION_MISMATCH, "this rank speaks another version of the store's protocol: run the same "
                                              "build everywhere");
    if (h.agent) return on_agent(s, c, &h);
    if (!c->unix_socket && c->door.head.generation != s->c.generation) return false;
    if (s->c.nranks == 0) return put_off(c); /* not all hosts are here yet */
    if (h.size != (uint32_t)s->c.nranks || h.rank >= h.size) {
        snprintf(text, sizeof text,
                 "rank %u of a world of %u came to a job of %d: WORLD_SIZE and RANK must agree on every rank", h.rank,
                 h.size, s->c.nranks);
        return refuse(c, LS_CONFIG_MISMATCH, text);
    }
    if (ls_rank_set_has(&s->left, (int)h.rank)) return put_off(c); /* early: it joins the next job here */
    if (s->pid[h.rank]) {
        snprintf(text, sizeof text, "rank %u joined twice: pid %d and pid %d; every process needs its own RANK", h.rank,
                 (int)s->pid[h.rank], (int)h.pid);
        return refuse(c, LS_CONFIG_MISMATCH, text);
    }
    s->pid[h.rank] = h.pid;
    if (c->unix_socket) ls_rank_set_add(&s->local, (int)h.rank);
    return welcome(s, c, (int)h.rank);
}

/* What a host's ranks do, and what those of the others do. */
static bool on_beat(ls_store *s, conn *c, const char *value, size_t n)
{
    uint64_t now = ls_env_get()->mono_ns();
    if (!c->agent) return false;
    s->node[c->rank].beat_ns = now;
    if (!s->c.page) return reply(c, LS_OK, NULL, 0, -1);
    ls_rank_set theirs;
    if (ls_rank_set_create(s->c.nranks, &theirs) < 0) return false;
    char *out = malloc(ls_beat_most_bytes((uint32_t)s->c.nranks));
    bool sent = out && ls_beat_read(s->c.page, (ls_beat_of){ &s->local, true }, value, n, now, &theirs);
    bool aborted = atomic_load_explicit(&s->c.page->abort_by, memory_order_acquire) != 0;
    if (sent) sent = reply(c, LS_OK, out, ls_beat_write(s->c.page, (ls_beat_of){ &theirs, true }, now, out), -1);
    free(out);
    ls_rank_set_free(&theirs);
    s->node[c->rank].told = aborted;
    return sent;
}

static bool on_body(ls_store *s, conn *c)
{
    store_request q;
    memcpy(&q, c->in, sizeof q);
    char key[LS_STORE_KEY_MAX + 1];
    store_missing missing = { 0 };
    key_of(c, key);
    switch (q.op) {
    case STORE_SET:
        if (is_fixed(s, key)) return refuse(c, LS_INVALID, "this key of the store holds a descriptor: it is set once");
        if (!put(s, key, c->in + sizeof q + q.nkey, q.nvalue, -1)) return refuse(c, LS_NO_MEMORY, "the store is full");
        if (!reply(c, LS_OK, NULL, 0, -1)) return false;
        answer_waiters(s);
        return true;
    case STORE_GET:
    case STORE_GET_FD: return answer_get(s, c);
    case STORE_MISSING:
        missing.count = ls_store_missing(s, missing.text, sizeof missing.text);
        return reply(c, LS_OK, &missing, sizeof missing, -1);
    case STORE_EXCHANGE: return on_exchange(s, c, key, c->in + sizeof q + q.nkey, q.nvalue);
    case STORE_BYE:
        c->bye = true;
        if (c->agent) s->node[c->rank].left = true;
        else ls_rank_set_add(&s->left, c->rank);
        return reply(c, LS_OK, NULL, 0, -1);
    case STORE_BEAT: return on_beat(s, c, c->in + sizeof q + q.nkey, q.nvalue);
    default: return false;
    }
}

/* Bytes wanted to finish the current stage. */
static size_t wanted(const conn *c)
{
    store_request q;
    if (c->stage == HELLO) return sizeof(store_hello);
    if (c->stage == REQUEST) return sizeof q;
    memcpy(&q, c->in, sizeof q);
    return sizeof q + q.nkey + q.nvalue;
}

/* Reads what is there and acts on it. False: the connection is over. */
static bool serve(ls_store *s, conn *c)
{
    const ls_env *env = ls_env_get();
    if (!c->unix_socket && !ls_door_is_open(&c->door)) {
        ls_status st = ls_door_step(&c->door, c->fd);
        if (st != LS_OK) return st == LS_AGAIN;
    }
    if (!c->in && !grow_in(c, FIRST_IN_BYTES)) return false;
    while (!c->out && !c->waiting) { /* one request at a time */
        if (c->stage == DESCRIPTOR) {
            int fd = env->recv_fd(c->fd);
            if (fd == -EAGAIN) return true;
            if (fd < 0) return false;
            char key[LS_STORE_KEY_MAX + 1];
            if (is_fixed(s, key_of(c, key))) {
                env->close_fd(fd);
                return refuse(c, LS_INVALID, "this key of the store holds a descriptor: it is set once");
            }
            if (!put(s, key, NULL, 0, fd)) {
                env->close_fd(fd);
                return refuse(c, LS_NO_MEMORY, "the store is full");
            }
            c->stage = REQUEST;
            c->have = 0;
            if (!reply(c, LS_OK, NULL, 0, -1)) return false;
            answer_waiters(s);
            break;
        }
        size_t want = wanted(c);
        if (c->have < want) {
            ssize_t k = conn_recv(c, c->in + c->have, want - c->have);
            if (k == -EAGAIN) return true;
            if (k <= 0) return false;
            c->have += (size_t)k;
            if (c->have < want) continue;
        }
        if (c->stage == HELLO) {
            if (!on_hello(s, c)) return false;
            c->have = 0;
        } else if (c->stage == REQUEST) {
            store_request q;
            memcpy(&q, c->in, sizeof q);
            if (q.nkey > LS_STORE_KEY_MAX || q.nvalue > most_value(s, c, q.op)) return false;
            if (!grow_in(c, sizeof q + q.nkey + q.nvalue)) return false;
            c->stage = BODY;
        } else {
            store_request q;
            memcpy(&q, c->in, sizeof q);
            if (q.op == STORE_SET_FD) {
                if (!c->unix_socket) return false;
                c->stage = DESCRIPTOR;
                continue;
            }
            if (!on_body(s, c)) return false;
            if (c->waiting) break; /* the request stays in c->in until it can be answered */
            c->stage = REQUEST;
            c->have = 0;
        }
    }
    return true;
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
    return conn_recv(c, &byte, 1) == -EAGAIN;
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
        bool alive = c->waiting ? still_there(c) : serve(s, c);
        if (alive) alive = flush(c);
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
    for (int i = 0; i < s->nconns; i++) flush(&s->conn[i]); /* answers to waiters; failures show at the next step */
    return LS_OK;
}
