/* wire.c -- a wire between two network interfaces, with a rate and a delay, for kernels that cannot emulate one.
 *
 *   wire offload INTERFACE               before: frames must carry real checksums and be no longer than the MTU
 *   wire A B BITS_PER_S DELAY_US         until killed
 *
 * Each direction is a queue: a frame may leave when those before it have been clocked out at the rate, and arrives
 * the delay later. A frame that finds QUEUE_BYTES waiting is dropped, as by a switch.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <linux/ethtool.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define FRAMES 2048u             /* a power of two */
#define FRAME_BYTES 9216         /* a jumbo frame */
#define QUEUE_BYTES ((size_t)2 << 20)
#define OVERHEAD_BYTES 24        /* preamble, checksum and gap of Ethernet */
#define SPIN_NS 60000            /* a sleep takes about so long: what is due sooner is waited for awake */

typedef struct frame {
    uint64_t due_ns;
    size_t n;
    char bytes[FRAME_BYTES];
} frame;

typedef struct direction {
    int from, to;
    frame *queue;                /* [FRAMES] */
    unsigned head, tail;
    size_t waiting;
    uint64_t free_ns;            /* when the last frame in it will have been clocked out */
} direction;

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int tap(const char *interface)
{
    int fd = socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK, htons(ETH_P_ALL)), room = 8 << 20;
    struct sockaddr_ll a = { .sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL) };
    a.sll_ifindex = (int)if_nametoindex(interface);
    if (fd < 0 || a.sll_ifindex == 0 || bind(fd, (struct sockaddr *)&a, sizeof a) < 0) {
        perror(interface);
        exit(71);
    }
    setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof room);
    setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof room);
    return fd;
}

static int offload(const char *interface)
{
    static const unsigned off[] = { ETHTOOL_STXCSUM, ETHTOOL_STSO, ETHTOOL_SGSO, ETHTOOL_SGRO };
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    for (size_t i = 0; i < sizeof off / sizeof *off; i++) {
        struct ethtool_value value = { .cmd = off[i], .data = 0 };
        struct ifreq r = { 0 };
        snprintf(r.ifr_name, sizeof r.ifr_name, "%s", interface);
        r.ifr_data = (void *)&value;
        if (ioctl(fd, SIOCETHTOOL, &r) < 0 && i == 0) {
            perror(interface);
            return 71;
        }
    }
    return 0;
}

/* Takes what has arrived; returns whether there was something. */
static int take(direction *d, double bytes_per_ns, uint64_t delay_ns)
{
    int got = 0;
    for (int k = 0; k < 64 && d->tail - d->head < FRAMES; k++, got = 1) {
        frame *f = &d->queue[d->tail % FRAMES];
        struct sockaddr_ll a;
        socklen_t n = sizeof a;
        ssize_t r = recvfrom(d->from, f->bytes, sizeof f->bytes, MSG_TRUNC, (struct sockaddr *)&a, &n);
        if (r <= 0) break;
        size_t bytes = (size_t)r;
        if (a.sll_pkttype == PACKET_OUTGOING || bytes > sizeof f->bytes || d->waiting + bytes > QUEUE_BYTES) continue;
        uint64_t now = now_ns();
        if (d->free_ns < now) d->free_ns = now;
        d->free_ns += (uint64_t)((double)(bytes + OVERHEAD_BYTES) / bytes_per_ns);
        f->due_ns = d->free_ns + delay_ns;
        f->n = bytes;
        d->waiting += bytes;
        d->tail++;
    }
    return got;
}

/* Hands over what is due; *next becomes the time of the first that is not. */
static int deliver(direction *d, uint64_t *next)
{
    int got = 0;
    for (; d->head != d->tail; d->head++, got = 1) {
        frame *f = &d->queue[d->head % FRAMES];
        if (f->due_ns > now_ns()) {
            if (f->due_ns < *next) *next = f->due_ns;
            break;
        }
        if (send(d->to, f->bytes, f->n, 0) < 0 && errno == EAGAIN) break;
        d->waiting -= f->n;
    }
    return got;
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "offload") == 0) return offload(argv[2]);
    if (argc != 5) {
        fprintf(stderr, "usage: wire A B BITS_PER_S DELAY_US\n");
        return 64;
    }
    prctl(PR_SET_TIMERSLACK, 1000);
    const double bytes_per_ns = atof(argv[3]) / 8e9;
    const uint64_t delay_ns = (uint64_t)(atof(argv[4]) * 1000);
    int a = tap(argv[1]), b = tap(argv[2]);
    direction d[2] = { { .from = a, .to = b }, { .from = b, .to = a } };
    for (int i = 0; i < 2; i++)
        if (!(d[i].queue = calloc(FRAMES, sizeof *d[i].queue))) return 71;
    for (;;) {
        uint64_t next = UINT64_MAX;
        int busy = 0;
        for (int i = 0; i < 2; i++) busy += take(&d[i], bytes_per_ns, delay_ns) + deliver(&d[i], &next);
        uint64_t now = now_ns();
        if (busy || (next != UINT64_MAX && next < now + SPIN_NS)) continue;
        struct pollfd p[2] = { { a, POLLIN, 0 }, { b, POLLIN, 0 } };
        uint64_t sleep = next == UINT64_MAX ? 1000000000u : next - now - SPIN_NS;
        struct timespec t = { (time_t)(sleep / 1000000000u), (long)(sleep % 1000000000u) };
        ppoll(p, 2, &t, NULL);
    }
}
