/* fuzz_store_client.c -- a rank's side of the rendezvous when the store answers with arbitrary bytes: an error
 * or a value that fits, in bounded time. */
#include "meet/agent.h"
#include "meet/store_wire.h"

#include "../tests/fake_net.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

typedef struct script {
    const uint8_t *p;
    size_t n, at;
    int listener, fd;
} script;

/* The store's turn: it says the next piece, whatever was asked. */
static void answer(void *arg)
{
    script *s = arg;
    char sink[512];
    if (s->fd < 0) s->fd = fake_accept(s->listener);
    if (s->fd < 0) return;
    while (fake_recv(s->fd, sink, sizeof sink) > 0) {}
    int fd = fake_recv_fd(s->fd);
    if (fd >= 0) fake_close(fd);
    if (s->at >= s->n) {
        fake_close(s->fd);
        s->fd = -1;
        return;
    }
    size_t k = 1 + s->p[s->at++];
    if (k > s->n - s->at) k = s->n - s->at;
    (void)fake_send(s->fd, s->p + s->at, k);
    s->at += k;
    if (k % 3 == 0) (void)fake_send_fd(s->fd, s->listener);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    static const uint8_t secret[32] = { 9 }, job[LS_DOOR_JOB_BYTES] = { 8 };
    if (n < 1) return 0;
    fake_begin();
    bool tcp = p[0] & 1;
    script s = { .p = p + 1, .n = n - 1, .fd = -1 };
    s.listener = tcp ? fake_listen_tcp("", 0, NULL) : fake_listen_unix("x");
    fake.idle = answer;
    fake.idle_arg = &s;
    ls_store_client *c;
    int fd = -1;
    ls_store_caller who = { .unix_name = tcp ? NULL : "x", .tcp_addr = "127.0.0.1", .tcp_port = 1, .secret = secret, .job = job,
                            .rank = 1, .size = 2 };
    uint64_t end = fake.now_ns + 500000000u;
    if (ls_store_connect(&who, end, &c, &fd) == LS_OK) {
        char value[64], text[32];
        if (tcp) abort(); /* nobody here knows the secret */
        for (int i = 0; i < 4; i++) {
            size_t m = sizeof value;
            ls_status st = i == 0   ? ls_store_get(c, "key", value, &m, end)
                           : i == 1 ? ls_store_set(c, "key", "value", 5, end)
                           : i == 2 ? ls_store_ask_missing(c, text, sizeof text, end)
                                    : LS_OK;
            if (i == 0 && st == LS_OK && m > sizeof value) abort();
            if (i == 2 && memchr(text, 0, sizeof text) == NULL) abort();
            int got = -1;
            if (i == 3 && ls_store_get_fd(c, "fd", &got, end) == LS_OK && got < 0) abort();
            if (got >= 0) fake_close(got);
        }
        ls_store_disconnect(c);
    } else if (c) {
        abort();
    }
    if (fd >= 0) fake_close(fd);
    if (s.fd >= 0) fake_close(s.fd);
    fake_close(s.listener);
    fake_end_net();
    return 0;
}
