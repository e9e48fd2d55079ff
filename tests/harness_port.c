/* harness_port.c -- a loopback port that is free now, and that nobody else will take before it is used.
 *
 * The ports are below those that the system hands out by itself (net.ipv4.ip_local_port_range begins at 32768), of
 * which one may be another connection's a moment later. Suites run side by side: each takes a block for its life. */
#include <arpa/inet.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { FIRST = 10000, BLOCKS = 85, EACH = 256 }; /* scripts have those from 32000 on: tests/harness.sh */

static int block = -1; /* of this process and its children */

/* Before main, so that a test that counts descriptors finds this one from the beginning. A name in the abstract
 * namespace is free again when the last process that holds it has ended. */
__attribute__((constructor)) static void take_block(void)
{
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    for (int i = 0; i < BLOCKS && block < 0; i++) {
        const int k = (int)(((unsigned)getpid() + (unsigned)i) % BLOCKS);
        struct sockaddr_un a = { .sun_family = AF_UNIX };
        snprintf(a.sun_path + 1, sizeof a.sun_path - 1, "lockstep-test-ports-%d", k);
        if (bind(fd, (const struct sockaddr *)&a, sizeof a) == 0) block = k;
    }
}

static bool is_free(int port)
{
    const struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                   .sin_port = htons((uint16_t)port) };
    const int fd = socket(AF_INET, SOCK_STREAM, 0), yes = 1; /* one whose last connection was closed just now, too */
    const bool ok = setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) == 0 &&
                    bind(fd, (const struct sockaddr *)&a, sizeof a) == 0;
    close(fd);
    return ok;
}

/* 0: there is none. */
int ls_test_free_port(void);
int ls_test_free_port(void)
{
    static int asked;
    for (int tries = 0; tries < EACH && block >= 0; tries++) {
        const int port = FIRST + block * EACH + asked++ % EACH;
        if (is_free(port)) return port;
    }
    return 0;
}
