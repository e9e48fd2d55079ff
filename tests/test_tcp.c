/* transport_tcp: order and sizes, channels side by side, strangers, and what a broken wire looks like. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "harness.h"
#include "meet/door.h"
#include "net/tcp.h"
#include "net/transports.h"

#define S 1000000000ull

static const ls_world_opts tcp = { .transport = "tcp", .arena_bytes = 4u << 20, .join_timeout_ns = 20 * S };

/* --- sending and receiving with a deadline -------------------------------------------------------- */

typedef struct io {
    ls_world *w;
    int peer, channel;
    ls_msg m;
    uint64_t ticket;
    char *to;
    size_t got;
    uint64_t sig;
} io;

static ls_status offer(void *arg)
{
    io *x = arg;
    return x->w->tops->send(x->w->tp, x->peer, x->channel, &x->m, &x->ticket);
}

static ls_status released(void *arg)
{
    io *x = arg;
    if (x->w->tops->sent(x->w->tp, x->peer, x->channel) >= x->ticket) return LS_OK;
    LS_TRY(x->w->tops->progress(x->w->tp));
    return LS_AGAIN;
}

/* Collects m.n bytes. */
static ls_status collect(void *arg)
{
    io *x = arg;
    for (;;) {
        ls_msg m;
        ls_status st = x->w->tops->view(x->w->tp, x->peer, x->channel, &m);
        if (st != LS_OK) return st;
        if (m.n > x->m.n - x->got) return ls_fail(LS_INTERNAL, "%zu bytes shown, %zu expected", m.n, x->m.n - x->got);
        if (m.n < x->m.n - x->got && m.n % 16 != 0) return ls_fail(LS_INTERNAL, "a part of %zu bytes", m.n);
        if (m.n > 0) memcpy(x->to + x->got, m.p, m.n);
        x->got += m.n;
        x->sig = m.sig;
        LS_TRY(x->w->tops->take(x->w->tp, x->peer, x->channel, m.n));
        if (x->got == x->m.n) return LS_OK;
    }
}

static ls_status aborted(void *arg)
{
    ls_world *w = arg;
    return atomic_load(&w->page->abort_by) ? LS_OK : LS_AGAIN;
}

/* A connection that breaks has a cause at its other end, which is told in a moment. */
static ls_status wait_for(ls_world *w, ls_status (*ready)(void *), io *x)
{
    ls_status st = ls_wait(&w->waiter, ready, x, ls_env_get()->mono_ns() + 20 * S);
    if (st != LS_PEER_RESET) return st;
    char says[LS_ERROR_BYTES];
    snprintf(says, sizeof says, "%s", ls_last_error());
    ls_waiter waiter = { 0 };
    (void)ls_wait(&waiter, aborted, w, ls_env_get()->mono_ns() + S);
    return ls_fail(st, "%s", says);
}

static ls_status send_now(ls_world *w, int peer, int channel, const void *p, size_t n, uint32_t sig)
{
    io x = { .w = w, .peer = peer, .channel = channel, .m = { p, n, sig } };
    LS_TRY(wait_for(w, offer, &x));
    return wait_for(w, released, &x);
}

static ls_status recv_now(ls_world *w, int peer, int channel, void *p, size_t n, uint64_t *sig)
{
    io x = { .w = w, .peer = peer, .channel = channel, .m = { NULL, n, 0 }, .to = p };
    ls_status st = wait_for(w, collect, &x);
    *sig = x.sig;
    return st;
}

static unsigned char byte_of(size_t i, uint32_t sig) { return (unsigned char)(i * 31 + i / 251 + sig); }

static void pattern(char *p, size_t n, uint32_t sig)
{
    for (size_t i = 0; i < n; i++) p[i] = (char)byte_of(i, sig);
}

static ls_status check_pattern(const char *p, size_t n, uint32_t sig)
{
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)p[i] != byte_of(i, sig)) return ls_fail(LS_INTERNAL, "byte %zu of message %u is wrong", i, sig);
    return LS_OK;
}

static void assert_ok(ls_status st)
{
    if (st < 0) fail_msg("%s", ls_last_error());
}

/* --- data ------------------------------------------------------------------------------------------- */

static const size_t sizes[] = { 0,     1,     15,    16,     17,     0,       0,       4096,
                                65535, 65536, 65537, 100000, 253952, 253953, 262144, 1 << 20, 8 << 20, 3 };
#define NSIZES (sizeof sizes / sizeof *sizes)

/* Each rank sends all sizes to its right and receives from its left. */
static ls_status round_trip(ls_world *w, void *arg)
{
    (void)arg;
    int n = ls_world_size(w), right = (ls_world_rank(w) + 1) % n, left = (ls_world_rank(w) + n - 1) % n;
    char *out = malloc(8 << 20), *in = malloc(8 << 20);
    ls_status st = out && in ? LS_OK : ls_fail(LS_NO_MEMORY, "buffers");
    for (uint32_t i = 0; i < NSIZES && st == LS_OK; i++) {
        pattern(out, sizes[i], i);
        io x = { .w = w, .peer = right, .channel = 60, .m = { out, sizes[i], i } };
        uint64_t sig = 99;
        st = wait_for(w, offer, &x);
        if (st == LS_OK) st = recv_now(w, left, 60, in, sizes[i], &sig);
        if (st == LS_OK && sig != i) st = ls_fail(LS_INTERNAL, "message %llu came in place of %u", (unsigned long long)sig, i);
        if (st == LS_OK) st = check_pattern(in, sizes[i], i);
        if (st == LS_OK) st = wait_for(w, released, &x);
    }
    free(out);
    free(in);
    return st;
}

static void brings_messages_of_any_size_in_order(void **state)
{
    (void)state;
    for (int n = 2; n <= 3; n++) assert_ok(ls_world_threads(n, &tcp, round_trip, NULL));
}

static void works_without_checksums(void **state)
{
    (void)state;
    ls_world_opts o = tcp;
    o.no_crc = true;
    assert_ok(ls_world_threads(2, &o, round_trip, NULL));
}

/* --- sealed links ------------------------------------------------------------------------------------- */

static const ls_world_opts sealed = { .transport = "tcp", .arena_bytes = 4u << 20, .join_timeout_ns = 20 * S,
                                      .security = LS_SECURITY_ENCRYPT };

/* Looks at everything that goes out for the pattern that message 10 of round_trip has; or turns one bit around. */
static _Atomic int seen, turn_around;
static _Atomic size_t gone_out;

static void look_at(const void *p, size_t n)
{
    unsigned char want[32];
    for (size_t i = 0; i < sizeof want; i++) want[i] = (unsigned char)(i * 31 + 10);
    if (n >= sizeof want && memmem(p, n, want, sizeof want)) seen = 1;
}

static ssize_t tapped_send(int fd, const void *p, size_t n)
{
    look_at(p, n);
    ssize_t k;
    if (turn_around && gone_out > 4096 && n > 600) {
        char *copy = malloc(n);
        memcpy(copy, p, n);
        copy[n / 2] ^= 4;
        turn_around = 0;
        k = ls_env_real.send(fd, copy, n);
        free(copy);
    } else {
        k = ls_env_real.send(fd, p, n);
    }
    if (k > 0) gone_out += (size_t)k;
    return k;
}

static ssize_t tapped_sendv(int fd, const ls_span *from, int n)
{
    for (int i = 0; i < n; i++) look_at(from[i].p, from[i].n);
    return ls_env_real.sendv(fd, from, n);
}

static ls_status found[3]; /* by each rank */

static ls_status noted_round_trip(ls_world *w, void *arg) { return found[ls_world_rank(w)] = round_trip(w, arg); }

static ls_status tapped_round_trip(const ls_world_opts *o, int flip)
{
    ls_env env = ls_env_real;
    env.send = tapped_send;
    env.sendv = tapped_sendv;
    ls_context c = { .env = &env, .rank = -1, .log_level = LS_LOG_ERROR };
    seen = 0;
    gone_out = 0;
    turn_around = flip;
    ls_context_swap(&c);
    ls_status st = ls_world_threads(2, o, noted_round_trip, NULL);
    ls_context_swap(NULL);
    if (flip) assert_int_equal(turn_around, 0); /* there was something to turn */
    return st;
}

static void sealed_links_bring_the_same_and_show_nothing(void **state)
{
    (void)state;
    for (int n = 2; n <= 3; n++) assert_ok(ls_world_threads(n, &sealed, round_trip, NULL));
    assert_int_equal(tapped_round_trip(&sealed, 0), LS_OK);
    assert_int_equal(seen, 0);
    assert_int_equal(tapped_round_trip(&tcp, 0), LS_OK); /* the tap works: within a host nothing is sealed */
    assert_int_equal(seen, 1);
}

static void a_changed_bit_does_not_open(void **state)
{
    (void)state;
    assert_true(tapped_round_trip(&sealed, 1) < 0);
    assert_true(found[0] == LS_FRAME_CRC || found[1] == LS_FRAME_CRC); /* the other only loses the connection */
}

/* Two processes, of which one wants its links sealed. */
static void security_must_be_the_same_everywhere(void **state)
{
    (void)state;
    char port[16];
    pid_t pid[2];
    snprintf(port, sizeof port, "%d", ls_env_get()->free_port());
    fflush(NULL);
    for (int r = 0; r < 2; r++) {
        if ((pid[r] = fork()) > 0) continue;
        ls_world_opts o = r ? sealed : tcp;
        ls_world *w;
        setenv("RANK", r ? "1" : "0", 1);
        setenv("WORLD_SIZE", "2", 1);
        setenv("MASTER_ADDR", "127.0.0.1", 1);
        setenv("MASTER_PORT", port, 1);
        ls_status st = ls_world_join(&o, &w);
        ls_world_leave(w);
        _exit(st == LS_CONFIG_MISMATCH && strstr(ls_last_error(), "comm.security is ") ? 0 : st == LS_ABORTED ? 1 : 2);
    }
    int code[2];
    for (int r = 0; r < 2; r++) {
        int status;
        assert_int_equal(waitpid(pid[r], &status, 0), pid[r]);
        code[r] = WEXITSTATUS(status);
    }
    assert_in_range(code[0] + code[1], 0, 1); /* who comes second hears of it from the first */
}

/* Rank 0 floods channel 50, which rank 1 reads last. */
static ls_status flood(ls_world *w, void *arg)
{
    (void)arg;
    enum { N = 3 << 20 };
    char *p = malloc(N);
    if (!p) return ls_fail(LS_NO_MEMORY, "a buffer");
    ls_status st = LS_OK;
    uint64_t sig;
    if (ls_world_rank(w) == 0) {
        pattern(p, N, 7);
        io x = { .w = w, .peer = 1, .channel = 50, .m = { p, N, 7 } };
        st = wait_for(w, offer, &x);
        for (uint32_t i = 0; st == LS_OK && i < 200; i++) st = send_now(w, 1, 40 + (int)(i % 10), &i, sizeof i, i);
        if (st == LS_OK) st = wait_for(w, released, &x);
    } else {
        for (uint32_t i = 0; st == LS_OK && i < 200; i++) {
            uint32_t got;
            st = recv_now(w, 0, 40 + (int)(i % 10), &got, sizeof got, &sig);
            if (st == LS_OK && got != i) st = ls_fail(LS_INTERNAL, "%u came in place of %u", got, i);
        }
        if (st == LS_OK) st = recv_now(w, 0, 50, p, N, &sig);
        if (st == LS_OK) st = check_pattern(p, N, 7);
    }
    free(p);
    return st;
}

static void lets_no_channel_block_another(void **state)
{
    (void)state;
    assert_ok(ls_world_threads(2, &tcp, flood, NULL));
}

/* More messages than a queue holds, both ways at once, none read before all are offered: LS_AGAIN must come. */
static ls_status fill_up(ls_world *w, void *arg)
{
    (void)arg;
    static const char bytes[50000];
    int peer = 1 - ls_world_rank(w);
    uint64_t ticket, last = 0;
    ls_msg m = { bytes, sizeof bytes, 5 };
    unsigned given = 0;
    for (ls_status st; (st = w->tops->send(w->tp, peer, 61, &m, &ticket)) != LS_AGAIN; given++) {
        LS_TRY(st);
        LS_EXPECT(ticket == last + 1, "ticket %llu after %llu", (unsigned long long)ticket, (unsigned long long)last);
        LS_EXPECT(given < 1000, "a queue without an end");
        last = ticket;
    }
    LS_EXPECT(w->tops->sent(w->tp, peer, 61) < last, "everything sent though nobody reads");
    LS_TRY(send_now(w, peer, 62, &given, sizeof given, 1));
    unsigned theirs;
    uint64_t sig;
    LS_TRY(recv_now(w, peer, 62, &theirs, sizeof theirs, &sig));
    char *p = malloc(sizeof bytes);
    if (!p) return ls_fail(LS_NO_MEMORY, "a buffer");
    ls_status st = LS_OK;
    for (unsigned i = 0; i < theirs && st == LS_OK; i++) st = recv_now(w, peer, 61, p, sizeof bytes, &sig);
    free(p);
    LS_TRY(st);
    io x = { .w = w, .peer = peer, .channel = 61, .ticket = last };
    return wait_for(w, released, &x);
}

static void says_again_when_the_queue_is_full(void **state)
{
    (void)state;
    assert_ok(ls_world_threads(2, &tcp, fill_up, NULL));
}

/* --- the same bits as through shared memory ------------------------------------------------------------ */

static ls_status sums(ls_world *w, void *arg)
{
    (void)arg;
    int n = ls_world_size(w), rank = ls_world_rank(w);
    for (size_t count = 1; count < 300000; count = count * 7 + 3) {
        float *x = malloc(count * sizeof *x);
        if (!x) return ls_fail(LS_NO_MEMORY, "floats");
        for (size_t i = 0; i < count; i++) x[i] = (float)(rank + 1) + (float)(i % 7);
        ls_work *work;
        ls_coll_args a = { .coll = LS_ALL_REDUCE, .in = x, .out = x, .count = count, .dtype = LS_F32, .op = LS_SUM, .label = "test" };
        ls_status st = ls_coll_start(ls_world_group(w), &a, &work);
        if (st == LS_OK) st = ls_work_wait(work);
        for (size_t i = 0; i < count && st == LS_OK; i++) {
            float want = (float)(n * (n + 1)) / 2.0f + (float)n * (float)(i % 7); /* exact in float */
            if (x[i] != want) st = ls_fail(LS_INTERNAL, "x[%zu] = %g, want %g", i, (double)x[i], (double)want);
        }
        free(x);
        LS_TRY(st);
    }
    return LS_OK;
}

static void carries_collectives(void **state)
{
    (void)state;
    for (int n = 2; n <= 5; n++) assert_ok(ls_world_threads(n, &tcp, sums, NULL));
}

/* A kernel that has no room now and then, in the middle of frames. */
static _Atomic unsigned short_of_room;

static ssize_t sends_little(int fd, const void *p, size_t n)
{
    unsigned turn = atomic_fetch_add(&short_of_room, 1);
    if (turn % 3 == 0) return turn % 2 ? -ENOBUFS : -ENOMEM;
    return ls_env_real.send(fd, p, n < 700 ? n : 700);
}

static ssize_t sends_little_of_many(int fd, const ls_span *from, int n)
{
    (void)n;
    return sends_little(fd, from->p, from->n);
}

static ls_status sums_in_little_room(ls_world *w, void *arg)
{
    static ls_env env;
    ls_status st = ls_barrier(ls_world_group(w));
    if (ls_world_rank(w) == 0) {
        env = ls_env_real;
        env.send = sends_little;
        env.sendv = sends_little_of_many;
        ls_context_get()->env = &env;
    }
    if (st == LS_OK) st = sums(w, arg);
    if (ls_world_rank(w) == 0) ls_context_get()->env = &ls_env_real;
    return st;
}

static void a_kernel_without_room_cuts_no_frame(void **state)
{
    (void)state;
    ls_world_opts secret = tcp;
    secret.security = LS_SECURITY_ENCRYPT;
    assert_ok(ls_world_threads(3, &tcp, sums_in_little_room, NULL));
    assert_ok(ls_world_threads(3, &secret, sums_in_little_room, NULL));
    assert_true(short_of_room > 200);
}

/* --- what a peer may not send ------------------------------------------------------------------------------ */

typedef struct attack {
    const char *name;
    void (*change)(ls_tcp_frame *f);   /* before the checksum is made; NULL: nothing */
    void (*damage)(ls_tcp_frame *f, char *payload); /* after */
    int times;                         /* frames sent */
    ls_status status;
    const char *says;
} attack;

static void flip_payload(ls_tcp_frame *f, char *payload) { (void)f; payload[17] ^= 1; }
static void flip_signature(ls_tcp_frame *f, char *payload) { (void)payload; f->sig ^= 0x80000000u; }
static void flip_last(ls_tcp_frame *f, char *payload) { (void)payload; f->last ^= 1; }
static void too_long(ls_tcp_frame *f) { f->length = LS_TCP_FRAME_BYTES + 1; }
static void no_such_kind(ls_tcp_frame *f) { f->kind = 9; }
static void no_kind(ls_tcp_frame *f) { f->kind = 0; }
static void no_such_channel(ls_tcp_frame *f) { f->channel = LS_MAX_CHANNELS; }
static void older(ls_tcp_frame *f) { f->generation--; }
static void other_magic(ls_tcp_frame *f) { f->magic++; }
static void skip_one(ls_tcp_frame *f) { f->seq++; }
static void two_ends(ls_tcp_frame *f) { f->last = 2; }
static void unearned(ls_tcp_frame *f) { f->kind = LS_TCP_CREDIT; f->length = 0; f->credit = 1; }
static void long_bye(ls_tcp_frame *f) { f->kind = LS_TCP_BYE; }
static void whole(ls_tcp_frame *f) { f->length = LS_TCP_FRAME_BYTES; }

static const attack attacks[] = {
    { "a flipped bit of the payload", NULL, flip_payload, 1, LS_FRAME_CRC, "frame 0 from rank 1 to rank 0 (channel 60, 64 bytes)" },
    { "a flipped bit of the signature", NULL, flip_signature, 1, LS_FRAME_CRC, "bytes changed on the way" },
    { "a flipped end", NULL, flip_last, 1, LS_FRAME_CRC, "has checksum" },
    { "a length above the limit", too_long, NULL, 1, LS_PROTOCOL, "length 253953, expected 253952" },
    { "an unknown kind", no_such_kind, NULL, 1, LS_PROTOCOL, "kind 9" },
    { "no kind", no_kind, NULL, 1, LS_PROTOCOL, "kind 0" },
    { "a channel above the limit", no_such_channel, NULL, 1, LS_PROTOCOL, "channel 64, expected 63" },
    { "an older generation", older, NULL, 1, LS_PROTOCOL, "generation 0, expected 1" },
    { "another magic", other_magic, NULL, 1, LS_PROTOCOL, "magic" },
    { "a missing frame", skip_one, NULL, 1, LS_PROTOCOL, "number 1, expected 0" },
    { "an end that is no truth value", two_ends, NULL, 1, LS_PROTOCOL, "last 2" },
    { "credit for what was not sent", unearned, NULL, 1, LS_PROTOCOL, "credit 1, expected 0" },
    { "a goodbye with a payload", long_bye, NULL, 1, LS_PROTOCOL, "length 64, expected 0" },
    { "more than its credit", whole, NULL, 3, LS_PROTOCOL, "beyond its credit on channel 60" },
    { "nothing more", NULL, NULL, 0, LS_PEER_RESET, "rank 0 lost the connection to rank 1 (closed by it)" },
};

static ls_status look(void *arg)
{
    io *x = arg;
    ls_msg m;
    ls_status st = x->w->tops->view(x->w->tp, 1, 59, &m); /* a channel that nobody uses */
    return st == LS_OK ? LS_INTERNAL : st;
}

/* All of it, unless the other end has had enough. */
static bool put_all(int fd, const char *p, size_t n)
{
    for (uint64_t end = ls_env_get()->mono_ns() + 10 * S; n > 0 && ls_env_get()->mono_ns() < end;) {
        ssize_t k = ls_env_get()->send(fd, p, n);
        if (k == -EAGAIN) usleep(500);
        else if (k < 0) return false;
        else p += k, n -= (size_t)k;
    }
    return n == 0;
}

/* Rank 1 takes the socket from under its transport and writes what it likes. */
static ls_status under_attack(ls_world *w, void *arg)
{
    const attack *a = arg;
    io x = { .w = w };
    w->failed = true; /* leave without a barrier: the connection will not carry one */
    if (ls_world_rank(w) == 0) {
        ls_status st = wait_for(w, look, &x);
        LS_EXPECT(st == a->status, "status %d (%s), expected %d", (int)st, ls_last_error(), (int)a->status);
        LS_EXPECT(strstr(ls_last_error(), a->says), "'%s' does not say '%s'", ls_last_error(), a->says);
        ls_msg m = { "", 0, 0 };
        st = w->tops->send(w->tp, 1, 60, &m, &x.ticket);
        LS_EXPECT(st == a->status, "a send afterwards gives %d", (int)st);
        return LS_OK;
    }
    int fd;
    LS_EXPECT(w->tops->fds(w->tp, &fd, 1) == 1, "one peer, one connection");
    static char payload[LS_TCP_FRAME_BYTES + 1];
    for (int i = 0; i < a->times; i++) {
        ls_tcp_frame f = { .magic = LS_TCP_FRAME_MAGIC, .kind = LS_TCP_DATA, .channel = 60, .length = 64, .sig = 3,
                           .generation = 1, .seq = (uint32_t)i, .last = 1 };
        memset(payload, 1, sizeof payload);
        if (a->change) a->change(&f);
        f.crc = ls_tcp_crc(&f, payload);
        if (a->damage) a->damage(&f, payload);
        LS_EXPECT(ls_env_get()->send(fd, &f, sizeof f) == sizeof f, "the head is not sent");
        bool sent = put_all(fd, payload, f.length); /* the last one may be refused by its head */
        LS_EXPECT(sent || i == a->times - 1, "the payload is not sent");
    }
    if (a->times == 0) shutdown(fd, SHUT_RDWR);
    for (uint64_t end = ls_env_get()->mono_ns() + 10 * S; ls_env_get()->mono_ns() < end;) {
        char byte; /* until rank 0 has had enough: closing earlier could take our bytes back */
        ssize_t k = ls_env_get()->recv(fd, &byte, 1);
        if (k == 0 || (k < 0 && k != -EAGAIN)) return LS_OK;
        usleep(500);
    }
    return ls_fail(LS_INTERNAL, "rank 0 keeps the connection");
}

static void refuses_what_a_peer_may_not_send(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof attacks / sizeof *attacks; i++) {
        attack a = attacks[i];
        if (ls_world_threads(2, &tcp, under_attack, &a) < 0) fail_msg("%s: %s", a.name, ls_last_error());
    }
}

/* Without checksums none is made, and none is looked at. Rank 1 writes to the socket itself. */
static ls_status no_checksums(ls_world *w, void *arg)
{
    char payload[64] = { 0 };
    (void)arg;
    w->failed = true; /* leave without a barrier: the connection will not carry one */
    if (ls_world_rank(w) == 0) {
        uint64_t sig = 0, ticket;
        LS_TRY(recv_now(w, 1, 60, payload, sizeof payload, &sig));
        LS_EXPECT(sig == 3, "message %llu", (unsigned long long)sig);
        ls_msg m = { payload, sizeof payload, 4 };
        return w->tops->send(w->tp, 1, 60, &m, &ticket);
    }
    int fd;
    LS_EXPECT(w->tops->fds(w->tp, &fd, 1) == 1, "one peer, one connection");
    ls_tcp_frame f = { .magic = LS_TCP_FRAME_MAGIC, .kind = LS_TCP_DATA, .channel = 60, .length = 64, .sig = 3,
                       .generation = 1, .last = 1, .crc = 12345 };
    LS_EXPECT(put_all(fd, (char *)&f, sizeof f) && put_all(fd, payload, sizeof payload), "the frame is not sent");
    size_t have = 0;
    for (uint64_t end = ls_env_get()->mono_ns() + 10 * S; have < sizeof f && ls_env_get()->mono_ns() < end;) {
        ssize_t k = ls_env_get()->recv(fd, (char *)&f + have, sizeof f - have);
        if (k > 0) have += (size_t)k;
        else usleep(500);
    }
    LS_EXPECT(have == sizeof f && f.kind == LS_TCP_DATA && f.sig == 4, "%zu bytes come back", have);
    LS_EXPECT(f.crc == 0, "a checksum of %08x is made", f.crc);
    return LS_OK;
}

static void checksums_are_skipped_where_nobody_asks_for_them(void **state)
{
    (void)state;
    ls_world_opts o = tcp;
    o.no_crc = true;
    assert_ok(ls_world_threads(2, &o, no_checksums, NULL));
}

/* --- strangers ------------------------------------------------------------------------------------------------ */

static const char *const openings[] = { "GET / HTTP/1.1\r\n", "\x16\x03\x01\x02", "l", "", "lockstep" };
#define NSTRANGERS 80 /* more than are let wait at once */
static int stranger[2 * NSTRANGERS];
static _Atomic int nstrangers;

/* In place of the real listen_tcp: a crowd is at the door before any peer is. */
static int crowded_listen(const char *addr, int port, int *bound)
{
    int fd = ls_env_real.listen_tcp(addr, port, bound);
    for (int i = 0; i < NSTRANGERS; i++) {
        int s = ls_env_real.connect_tcp("127.0.0.1", *bound);
        const char *says = openings[i % 5];
        while (ls_env_real.connect_done(s) == -EINPROGRESS) usleep(100);
        ls_env_real.send(s, says, strlen(says));
        if (i == 3) { /* knows everything but the key */
            ls_door_head h[3] = { { .magic = LS_DOOR_MAGIC, .version = LS_DOOR_VERSION, .role = LS_DOOR_RANK,
                                    .generation = 1, .from = 1 } };
            ls_env_real.send(s, h, LS_DOOR_HELLO_BYTES);
        }
        stranger[nstrangers++] = s;
    }
    return fd;
}

static void drops_strangers_and_finds_its_peers(void **state)
{
    (void)state;
    ls_env env = ls_env_real;
    env.listen_tcp = crowded_listen;
    ls_context c = { .env = &env, .rank = -1, .log_level = LS_LOG_ERROR };
    nstrangers = 0;
    ls_context_swap(&c);
    ls_status st = ls_world_threads(2, &tcp, round_trip, NULL);
    ls_context_swap(NULL);
    if (st < 0) fail_msg("%s", c.error);
    assert_int_equal(nstrangers, 2 * NSTRANGERS);
    for (int i = 0; i < nstrangers; i++) {
        ssize_t k = -EAGAIN;
        for (int turn = 0; turn < 2000 && k == -EAGAIN; turn++) {
            char byte;
            k = ls_env_real.recv(stranger[i], &byte, 1);
            if (k == -EAGAIN) usleep(1000);
        }
        assert_true(k <= 0 && k != -EAGAIN); /* closed, and not a byte was said */
        ls_env_real.close_fd(stranger[i]);
    }
}

/* In place of the real send: a hello that is not quite right. `twist` chooses what. */
static int twist;

static ssize_t twisted_send(int fd, const void *p, size_t n)
{
    char hello[LS_DOOR_HELLO_BYTES];
    ls_door_head h;
    if (twist == 0 && n == sizeof h && memcmp(p, &(uint64_t){ LS_DOOR_MAGIC }, 8) == 0) { /* the acceptor's answer */
        memcpy(&h, p, sizeof h);
        h.version += 2;
        return ls_env_real.send(fd, &h, n);
    }
    if (n != sizeof hello || memcmp(p, &(uint64_t){ LS_DOOR_MAGIC }, 8) != 0) return ls_env_real.send(fd, p, n);
    memcpy(hello, p, n);
    memcpy(&h, p, sizeof h);
    switch (twist) {
    case 0: h.version++; break;
    case 1: h.generation--; break; /* comes from an earlier life of the job */
    case 2: h.role = LS_DOOR_STORE; break;
    case 3: h.from = h.to; break;
    case 4: h.to = h.from; break;
    case 5: h.from = 7; break;
    case 6: h.reserved = 1; break;
    case 7: hello[40] ^= 1; break;
    case 8: hello[79] ^= 1; break;
    case 9: h.generation += h.from < h.to; break; /* the acceptor's answer, whose head no tag covers */
    default: break;
    }
    memcpy(hello, &h, sizeof h);
    return ls_env_real.send(fd, hello, n);
}

static void admits_nobody_whose_hello_is_wrong(void **state)
{
    (void)state;
    ls_env env = ls_env_real;
    env.send = twisted_send;
    ls_context c = { .env = &env, .rank = -1, .log_level = LS_LOG_ERROR };
    for (twist = 0; twist <= 10; twist++) {
        ls_context_swap(&c);
        ls_status st = ls_world_threads(2, &tcp, round_trip, NULL);
        ls_context_swap(NULL);
        assert_int_equal(st, twist == 10 ? LS_OK : twist == 0 ? LS_VERSION_MISMATCH : LS_AUTH_FAILED);
    }
}

/* --- trouble in the middle of a collective ------------------------------------------------------------------ */

/* What happens to rank 1's connections, from its 4th write on after all have met. */
typedef enum trouble { RESETS, CLOSES, FALLS_SILENT, IS_CUT_OFF, TALKS_NONSENSE, TROUBLES } trouble;

static const char *const trouble_name[TROUBLES] = { "resets", "closes", "falls silent", "is cut off", "talks nonsense" };

#define RANKS 3
static struct {
    trouble what;
    ls_coll coll;
    size_t count;
    _Atomic int writes; /* of rank 1; below 0: not armed */
    ls_status st[RANKS];
    uint64_t ns[RANKS];
    char says[RANKS][LS_ERROR_BYTES];
} plan;

static bool troubled(void)
{
    if (ls_context_get()->rank != 1 || plan.writes < 0) return false;
    return ++plan.writes >= 4;
}

/* Returns true when it has made something else of a write. */
static bool meddle(int fd, size_t n, ssize_t *k)
{
    if (!troubled()) return false;
    *k = (ssize_t)n;
    switch (plan.what) {
    case RESETS: { /* a TCP socket that is connected to nothing tells its peer so by a reset */
        struct sockaddr nowhere = { .sa_family = AF_UNSPEC };
        (void)connect(fd, &nowhere, sizeof nowhere);
        *k = -ECONNRESET;
        break;
    }
    case CLOSES: shutdown(fd, SHUT_RDWR); break;
    case TALKS_NONSENSE:
        for (size_t i = 0; i < n; i++) {
            char byte = (char)(i * 7 + 3);
            ssize_t sent; /* all of it: a stream that ends in a payload would only be one more silence */
            while ((sent = ls_env_real.send(fd, &byte, 1)) == -EAGAIN) usleep(100);
            if (sent != 1) break;
        }
        break;
    default: break; /* the bytes are lost */
    }
    return true;
}

static ssize_t troubled_send(int fd, const void *p, size_t n)
{
    ssize_t k;
    return meddle(fd, n, &k) ? k : ls_env_real.send(fd, p, n);
}

static ssize_t troubled_sendv(int fd, const ls_span *from, int n)
{
    ssize_t k;
    size_t all = 0;
    for (int i = 0; i < n; i++) all += from[i].n;
    return meddle(fd, all, &k) ? k : ls_env_real.sendv(fd, from, n);
}

static bool is_deaf(void) { return plan.what == IS_CUT_OFF && ls_context_get()->rank == 1 && plan.writes >= 4; }

static ssize_t troubled_recv(int fd, void *p, size_t n) { return is_deaf() ? -EAGAIN : ls_env_real.recv(fd, p, n); }

static ssize_t troubled_recvv(int fd, const ls_span *to, int n)
{
    return is_deaf() ? -EAGAIN : ls_env_real.recvv(fd, to, n);
}

static ls_status one_collective(ls_group *g, float *in, float *out)
{
    size_t n = plan.count;
    switch (plan.coll) {
    case LS_ALL_REDUCE: return ls_all_reduce(g, in, out, n, LS_F32, LS_SUM);
    case LS_REDUCE_SCATTER: return ls_reduce_scatter(g, in, out, n, LS_F32, LS_SUM);
    case LS_ALL_GATHER: return ls_all_gather(g, in, out, n, LS_F32);
    case LS_BROADCAST: return ls_broadcast(g, out, n, LS_F32, 1);
    case LS_ALL_TO_ALL: return ls_all_to_all(g, in, out, n / RANKS * RANKS, LS_F32);
    case LS_GATHER: return ls_gather(g, in, out, n, LS_F32, 0);
    case LS_SCATTER: return ls_scatter(g, in, out, n, LS_F32, 1);
    case LS_REDUCE: return ls_reduce(g, in, out, n, LS_F32, LS_SUM, 2);
    default: return ls_barrier(g);
    }
}

static ls_status until_trouble(ls_world *w, void *arg)
{
    (void)arg;
    ls_group *g = ls_world_group(w);
    int rank = ls_world_rank(w);
    uint64_t t0 = ls_env_get()->mono_ns(); /* the first barrier, too, may be the last thing to happen */
    float *in = calloc(plan.count + 1, sizeof *in), *out = calloc(plan.count + 1, sizeof *out);
    ls_status st = in && out ? ls_barrier(g) : ls_fail(LS_NO_MEMORY, "vectors");
    if (rank == 1) plan.writes = 0;
    for (int i = 0; i < 200 && st == LS_OK; i++) {
        t0 = ls_env_get()->mono_ns();
        st = one_collective(g, in, out);
        if (st == LS_OK && plan.coll != LS_BARRIER) st = ls_barrier(g); /* nobody runs far ahead */
    }
    plan.st[rank] = st;
    plan.ns[rank] = ls_env_get()->mono_ns() - t0;
    snprintf(plan.says[rank], sizeof plan.says[rank], "%s", ls_last_error());
    float sum = 0; /* what was handed in is the caller's again */
    for (size_t i = 0; i < plan.count; i++) sum += in[i] + out[i];
    free(in);
    free(out);
    return st < 0 || sum == 12345.0f ? st : LS_OK;
}

/* What at least the first to notice says; the others quote it. */
static bool expected(trouble what, ls_status st)
{
    switch (what) {
    case RESETS:
    case CLOSES: return st == LS_PEER_RESET;
    case TALKS_NONSENSE: /* rank 1, whom nobody listens to any more, may be the first to say so */
        return st == LS_PROTOCOL || st == LS_FRAME_CRC || st == LS_PEER_RESET;
    default: return st == LS_RANK_HUNG;
    }
}

/* Then all wait, for one another, until the deadline. */
static bool falls_silent(void) { return plan.what == FALLS_SILENT || plan.what == IS_CUT_OFF; }

static void run_into_trouble(const char *how)
{
    int first = 0;
    plan.writes = -1;
    ls_world_opts o = tcp;
    o.coll_timeout_ns = falls_silent() ? S / 2 : 20 * S; /* what else happens is seen at once, however busy all are */
    ls_status st = ls_world_threads(RANKS, &o, until_trouble, NULL);
    const char *coll = ls_coll_name(plan.coll);
    if (!expected(plan.what, st)) fail_msg("%s, rank 1 %s: %d (%s)", coll, how, (int)st, ls_last_error());
    for (int r = 0; r < RANKS; r++) {
        if (plan.st[r] >= 0) fail_msg("%s, rank 1 %s: rank %d goes on", coll, how, r);
        if (plan.st[r] != LS_ABORTED) first++;
        if (!falls_silent() && !strstr(plan.says[r], "rank 1"))
            fail_msg("%s, rank 1 %s: rank %d says '%s'", coll, how, r, plan.says[r]);
        if (plan.ns[r] > 19 * S) fail_msg("%s, rank 1 %s: rank %d hung", coll, how, r);
    }
    assert_true(first >= 1);
}

static void ends_on_every_rank_whatever_happens_to_a_connection(void **state)
{
    (void)state;
    static const ls_coll colls[] = { LS_ALL_REDUCE, LS_REDUCE_SCATTER, LS_ALL_GATHER, LS_BROADCAST, LS_ALL_TO_ALL,
                                     LS_GATHER,     LS_SCATTER,        LS_REDUCE,     LS_BARRIER };
    static const size_t counts[] = { 2, 300000 };
    ls_env env = ls_env_real;
    env.send = troubled_send;
    env.sendv = troubled_sendv;
    env.recv = troubled_recv;
    env.recvv = troubled_recvv;
    ls_context c = { .env = &env, .rank = -1, .log_level = LS_LOG_ERROR };
    ls_context *own = ls_context_swap(&c);
    for (size_t i = 0; i < sizeof colls / sizeof *colls; i++)
        for (plan.what = 0; plan.what < TROUBLES; plan.what++) {
            if ((i + plan.what) % 3 != 0 && !getenv("LOCKSTEP_TEST_LONG")) continue; /* each of both, but not each pair */
            plan.coll = colls[i];
            plan.count = counts[(i + plan.what) % 2]; /* short ones and long ones take turns */
            run_into_trouble(trouble_name[plan.what]);
        }
    ls_context_swap(own);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(brings_messages_of_any_size_in_order),
        cmocka_unit_test(works_without_checksums),
        cmocka_unit_test(sealed_links_bring_the_same_and_show_nothing),
        cmocka_unit_test(a_changed_bit_does_not_open),
        cmocka_unit_test(security_must_be_the_same_everywhere),
        cmocka_unit_test(lets_no_channel_block_another),
        cmocka_unit_test(says_again_when_the_queue_is_full),
        cmocka_unit_test(carries_collectives),
        cmocka_unit_test(a_kernel_without_room_cuts_no_frame),
        cmocka_unit_test(refuses_what_a_peer_may_not_send),
        cmocka_unit_test(checksums_are_skipped_where_nobody_asks_for_them),
        cmocka_unit_test(drops_strangers_and_finds_its_peers),
        cmocka_unit_test(ends_on_every_rank_whatever_happens_to_a_connection),
        cmocka_unit_test(admits_nobody_whose_hello_is_wrong),
    };
    return cmocka_run_group_tests_name("tcp", tests, NULL, NULL);
}
