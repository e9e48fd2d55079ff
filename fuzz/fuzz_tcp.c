/* fuzz_tcp.c -- frames of a hostile peer on tcp: bytes as they come, or frames that are right but for what the input
 * changes in them, between our own sends and reads. An error that names the peer, or messages that fit their ring. */
#include "net/tcp.h"
#include "net/transports.h"

#include "../tests/fake_net.h"

#define CHANNELS 4

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

/* A frame whose checksum and number are right. */
static void say_frame(int fd, const uint8_t *p, uint32_t *seq, uint8_t flags)
{
    static uint8_t payload[4096 + 64];
    ls_tcp_frame f = { .magic = LS_TCP_FRAME_MAGIC, .kind = (uint8_t)(1 + p[0] % 3), .channel = p[1] % CHANNELS,
                       .sig = p[2], .generation = 1, .seq = (*seq)++ };
    if (f.kind == LS_TCP_DATA) f.last = p[3] & 1, f.length = (uint32_t)(p[3] >> 1) * (flags & 64 ? 32 : 1);
    if (f.kind == LS_TCP_CREDIT) f.credit = (uint32_t)p[2] << (p[3] & 15);
    if (flags & 1) f.channel = p[1];
    if (flags & 2) f.seq += p[2];
    if (flags & 4) f.generation = p[2];
    if (flags & 8) f.length = (uint32_t)p[2] << (p[3] & 31);
    if (flags & 16 && f.kind == LS_TCP_DATA) f.last = p[3];
    if (flags & 32) f.kind = p[0];
    memset(payload, p[2], sizeof payload);
    size_t n = f.length < sizeof payload ? f.length : 0; /* what is longer is refused, or never comes */
    f.crc = n == f.length ? ls_tcp_crc(&f, payload) : 0;
    if (flags & 128) f.crc ^= 1;
    (void)fake_send(fd, &f, sizeof f);
    if (n > 0) (void)fake_send(fd, payload, n);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    static ls_world_page *page;
    static ls_world w;
    static const uint8_t ours[3000];
    if (!page && !(page = calloc(1, ls_page_bytes(2)))) abort();
    fake_begin();
    w = (ls_world){ .size = 2, .nnodes = 2, .node = { 0, 1 }, .generation = 1, .page = page, .failed = true };
    page->abort_by = 0;
    int listener = fake_listen_tcp("", 0, NULL), peer = fake_connect(true);
    ls_tcp_link link[2] = { { -1, NULL }, { fake_accept(listener), NULL } };
    ls_transport *t;
    uint32_t seq = 0;
    if (ls_transport_tcp_over(&w, link, &t) != LS_OK) abort();
    bool gone = false;
    while (n >= 6) {
        uint8_t what = p[0] % 8, flags = p[1];
        p += 2;
        n -= 2;
        if (what < 4 && !gone) {
            say_frame(peer, p, &seq, what < 2 ? 0 : flags);
        } else if (what == 4 && !gone) {
            size_t k = flags < n ? flags : n;
            (void)fake_send(peer, p, k);
        } else if (what == 5) {
            uint64_t ticket;
            ls_msg m = { ours, (size_t)p[1] * 8, p[2] };
            (void)ls_transport_tcp.send(t, 1, p[0] % CHANNELS, &m, &ticket);
            (void)ls_transport_tcp.sent(t, 1, p[0] % CHANNELS);
        } else if (what == 6) {
            (void)ls_transport_tcp.progress(t);
            fake.now_ns += 200000000u;
        } else if (what == 7 && flags == 0 && !gone) {
            fake_close(peer);
            gone = true;
        }
        for (int c = 0; c < CHANNELS; c++) {
            ls_msg m;
            if (ls_transport_tcp.view(t, 1, c, &m) != LS_OK) continue;
            volatile uint8_t sum = 0; /* all of it can be read */
            for (size_t i = 0; i < m.n; i++) sum = (uint8_t)(sum + ((const uint8_t *)m.p)[i]);
            if (m.n > LS_TCP_WINDOW) abort();
            if (p[1] & 1) (void)ls_transport_tcp.take(t, 1, c, p[1] & 2 ? m.n : m.n / 32 * 16);
        }
        char sink[4096];
        while (!gone && fake_recv(peer, sink, sizeof sink) > 0) {}
        size_t used = n < 4 ? n : 4;
        p += used;
        n -= used;
    }
    ls_transport_tcp.close(t);
    if (!gone) fake_close(peer);
    fake_close(listener);
    fake_end_net();
    return 0;
}
