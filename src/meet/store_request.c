/* store_request.c -- what a connection asks of the rendezvous store, the table of keys, and replies. */
#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "meet/beat.h"
#include "meet/store_state.h"

#define MAX_KEYS 65536
#define FIRST_IN_BYTES 1024 /* of a request; most fit */
_Static_assert(FIRST_IN_BYTES >= sizeof(store_hello) && FIRST_IN_BYTES >= sizeof(store_request), "read before the handshake");

/* --- bytes -------------------------------------------------------------------- */

ssize_t ls_store_recv(conn *c, void *p, size_t n)
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

bool ls_store_flush(conn *c)
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

bool ls_store_read_requests(ls_store *s, conn *c)
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
            ssize_t k = ls_store_recv(c, c->in + c->have, want - c->have);
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
