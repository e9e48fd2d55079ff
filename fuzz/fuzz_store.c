/* fuzz_store.c -- the rendezvous store under arbitrary clients: ranks that came in properly and then say
 * anything, an agent, strangers on both sockets, in any order. It stays whole and leaks nothing. */
#include "meet/beat.h"
#include "meet/store_wire.h"

#include "../tests/fake_net.h"

#define RANKS 3
#define CONNS 12

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static const uint8_t secret[32] = { 9 }, job[LS_DOOR_JOB_BYTES] = { 8 };

typedef struct caller {
    int fd;                 /* -1: none */
    ls_store_client *c;     /* of one that came in properly */
} caller;

static void step(void *arg) { (void)ls_store_step(arg, fake.now_ns); }

/* Comes in by the library's own client. */
static void come_in(caller *k, bool tcp, bool agent, int rank)
{
    int fd = -1;
    ls_store_caller who = { .unix_name = tcp ? NULL : "x", .tcp_addr = "127.0.0.1", .tcp_port = 1, .secret = secret,
                            .job = job, .agent = agent, .rank = rank, .size = RANKS };
    k->fd = -1;
    if (ls_store_connect(&who, fake.now_ns + 30000000u, &k->c, &fd) == LS_OK) k->fd = k->c->fd;
    if (fd >= 0) fake_close(fd);
}

static void say(caller *k, const uint8_t *p, size_t n)
{
    if (k->fd < 0) return;
    if (k->c && !k->c->unix_socket) (void)ls_door_send(&k->c->door, k->fd, p, n);
    else (void)fake_send(k->fd, p, n);
}

static void leave(caller *k)
{
    if (k->c) ls_store_disconnect(k->c);
    else if (k->fd >= 0) fake_close(k->fd);
    *k = (caller){ .fd = -1 };
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    fake_begin();
    static ls_world_page *page; /* large: made once, and only what is written here is cleared */
    ls_store *s;
    caller k[CONNS];
    for (int i = 0; i < CONNS; i++) k[i] = (caller){ .fd = -1 };
    if (!page && !(page = calloc(1, ls_page_bytes(RANKS)))) abort();
    memset(page, 0, sizeof *page);
    for (int r = 0; r < RANKS; r++) memset(&page->rank[r], 0, offsetof(ls_rank_slot, box) + offsetof(ls_blackbox, ev));
    ls_page_format(page, RANKS, 1);
    int page_fd = fake_new(FAKE_PLAIN);
    ls_store_config c = { .unix_name = "x", .tcp_port = -1, .nranks = RANKS, .page = page, .page_fd = page_fd,
                          .watch_ranks = true };
    memcpy(c.secret, secret, sizeof secret);
    memcpy(c.job, job, sizeof job);
    if (ls_store_create(&c, &s) != LS_OK) abort();
    fake.idle = step;
    fake.idle_arg = s;
    while (n >= 2) { /* who, what, and for words their length */
        caller *w = &k[p[0] % CONNS];
        unsigned what = p[1] % 8, rank = p[1] >> 3 & 3;
        p += 2;
        n -= 2;
        if (w->fd < 0) {
            if (what < 3) come_in(w, what == 1, what == 2, (int)rank);
            else w->fd = fake_connect(what & 1);
        } else if (what == 0) {
            leave(w);
        } else if (what == 1) { /* a request whose lengths fit */
            uint8_t q[sizeof(store_request) + 64] = { 0 };
            size_t nkey = n > 1 ? p[0] % 8 : 0, nvalue = n > 1 ? p[1] % 32 : 0;
            store_request head = { .op = rank + (n > 2 ? p[2] % 4 : 0), .nkey = (uint32_t)nkey,
                                   .nvalue = (uint32_t)nvalue };
            memcpy(q, &head, sizeof head);
            for (size_t i = 0; i < nkey + nvalue && i < n; i++) q[sizeof head + i] = p[i];
            say(w, q, sizeof head + nkey + nvalue);
            if (rank == 2) (void)fake_send_fd(w->fd, page_fd);
            size_t used = n < 3 ? n : 3;
            p += used;
            n -= used;
        } else if (what == 2) { /* a beat, true in its form */
            uint8_t q[sizeof(store_request) + 4 + 2048];
            size_t m = n < 200 ? n : 200;
            store_request head = { .op = STORE_BEAT, .nkey = 4, .nvalue = (uint32_t)m };
            memcpy(q, &head, sizeof head);
            memcpy(q + sizeof head, "beat", 4);
            memcpy(q + sizeof head + 4, p, m);
            say(w, q, sizeof head + 4 + m);
            p += m;
            n -= m;
        } else {
            size_t m = n > 0 ? p[0] : 0;
            if (m > n) m = n;
            say(w, p, m);
            p += m;
            n -= m;
        }
        if (what & 1) fake.now_ns += 300000000u;
        step(s);
        for (int i = 0; i < CONNS; i++) { /* replies are read by nobody else */
            char sink[512];
            while (k[i].fd >= 0 && fake_recv(k[i].fd, sink, sizeof sink) > 0) {}
            int fd = k[i].fd >= 0 ? fake_recv_fd(k[i].fd) : -1;
            if (fd >= 0) fake_close(fd);
        }
    }
    char text[64];
    (void)ls_store_missing(s, text, sizeof text);
    for (int i = 0; i < CONNS; i++) leave(&k[i]);
    step(s);
    step(s);
    if (ls_store_connected(s) != 0) abort();
    ls_store_destroy(s);
    fake_close(page_fd);
    fake_end_net();
    return 0;
}
