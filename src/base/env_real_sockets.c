/* env_real_sockets.c -- the real env's sockets: abstract unix names and tcp. */
#include "base/env_real.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define BACKLOG 256
#define TYPE (SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC)

/* Closes fd when r is a failure. */
static int fd_or_close(int fd, int r)
{
    if (r == 0) return fd;
    close(fd);
    return r;
}

/* --- unix ------------------------------------------------------------------------------ */

/* A leading NUL makes the name abstract: it lives in the network namespace and
 * goes with the last descriptor, however the job ends. */
static int unix_address(const char *name, struct sockaddr_un *a, socklen_t *n)
{
    size_t len = strlen(name);
    if (len == 0 || len > sizeof a->sun_path - 1) return len ? -ENAMETOOLONG : -EINVAL;
    *a = (struct sockaddr_un){ .sun_family = AF_UNIX };
    memcpy(a->sun_path + 1, name, len);
    *n = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + len);
    return 0;
}

int ls_real_listen_unix(const char *name)
{
    struct sockaddr_un a;
    socklen_t n;
    int r = unix_address(name, &a, &n);
    if (r < 0) return r;
    int fd = socket(AF_UNIX, TYPE, 0);
    if (fd < 0) return -errno;
    r = ls_real_result(bind(fd, (struct sockaddr *)&a, n));
    if (r == 0) r = ls_real_result(listen(fd, BACKLOG));
    return fd_or_close(fd, r);
}

int ls_real_connect_unix(const char *name)
{
    struct sockaddr_un a;
    socklen_t n;
    int r = unix_address(name, &a, &n);
    if (r < 0) return r;
    int fd = socket(AF_UNIX, TYPE, 0);
    if (fd < 0) return -errno;
    return fd_or_close(fd, ls_real_result(connect(fd, (struct sockaddr *)&a, n)));
}

/* --- tcp ------------------------------------------------------------------------------- */

typedef union address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
} address;

/* A numeric address, or "localhost"; names are not looked up. */
static int tcp_address(const char *text, int port, address *a, socklen_t *n)
{
    if (port < 0 || port > 65535) return -EINVAL;
    if (strcmp(text, "localhost") == 0) text = "127.0.0.1";
    memset(a, 0, sizeof *a);
    if (inet_pton(AF_INET, text, &a->v4.sin_addr) == 1) {
        a->v4.sin_family = AF_INET;
        a->v4.sin_port = htons((uint16_t)port);
        *n = sizeof a->v4;
        return 0;
    }
    if (inet_pton(AF_INET6, text, &a->v6.sin6_addr) == 1) {
        a->v6.sin6_family = AF_INET6;
        a->v6.sin6_port = htons((uint16_t)port);
        *n = sizeof a->v6;
        return 0;
    }
    return -EINVAL;
}

static bool is_loopback(const address *a)
{
    if (a->any.sa_family == AF_INET) return ntohl(a->v4.sin_addr.s_addr) >> 24 == 127;
    return IN6_IS_ADDR_LOOPBACK(&a->v6.sin6_addr);
}

static int switch_on(int fd, int level, int option)
{
    int one = 1;
    return ls_real_result(setsockopt(fd, level, option, &one, sizeof one));
}

int ls_real_listen_tcp(const char *addr, int port, int *bound_port)
{
    address a;
    socklen_t n;
    int r = tcp_address(addr, port, &a, &n);
    if (r < 0) return r;
    return is_loopback(&a) ? ls_real_listen_open(addr, port, bound_port) : -EACCES;
}

int ls_real_listen_open(const char *addr, int port, int *bound_port)
{
    address a;
    socklen_t n;
    int r = tcp_address(addr, port, &a, &n);
    if (r < 0) return r;
    int fd = socket(a.any.sa_family, TYPE, 0);
    if (fd < 0) return -errno;
    r = switch_on(fd, SOL_SOCKET, SO_REUSEADDR); /* old connections in TIME_WAIT; a listener still excludes */
    if (r == 0) r = ls_real_result(bind(fd, &a.any, n));
    if (r == 0) r = ls_real_result(listen(fd, BACKLOG));
    if (r == 0) r = ls_real_result(getsockname(fd, &a.any, &n));
    if (r == 0 && bound_port) *bound_port = ntohs(a.any.sa_family == AF_INET ? a.v4.sin_port : a.v6.sin6_port);
    return fd_or_close(fd, r);
}

int ls_real_connect_tcp(const char *addr, int port)
{
    address a;
    socklen_t n;
    int r = tcp_address(addr, port, &a, &n);
    if (r < 0) return r;
    int fd = socket(a.any.sa_family, TYPE, 0);
    if (fd < 0) return -errno;
    r = switch_on(fd, IPPROTO_TCP, TCP_NODELAY);
    if (r == 0) r = ls_real_result(connect(fd, &a.any, n));
    if (r == -EINPROGRESS || r == -EINTR) r = 0; /* goes on behind us: connect_done tells */
    return fd_or_close(fd, r);
}

int ls_real_connect_done(int fd)
{
    struct pollfd p = { .fd = fd, .events = POLLOUT };
    int failure = 0;
    socklen_t n = sizeof failure;
    int ready = poll(&p, 1, 0);
    if (ready < 0 && errno != EINTR) return -errno;
    if (ready <= 0) return -EINPROGRESS;
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &failure, &n) < 0) return -errno;
    return -failure;
}

static int address_text(const address *a, char *addr, size_t n)
{
    const void *part = a->any.sa_family == AF_INET ? (const void *)&a->v4.sin_addr : (const void *)&a->v6.sin6_addr;
    bool tcp = a->any.sa_family == AF_INET || a->any.sa_family == AF_INET6;
    if (n > 0) addr[0] = 0;
    return !tcp || inet_ntop(a->any.sa_family, part, addr, (socklen_t)n) ? 0 : -errno;
}

int ls_real_local_addr(int fd, char *addr, size_t n)
{
    address a = { .any.sa_family = AF_UNSPEC };
    socklen_t k = sizeof a;
    return getsockname(fd, &a.any, &k) < 0 ? -errno : address_text(&a, addr, n);
}

int ls_real_peer_addr(int fd, char *addr, size_t n)
{
    address a = { .any.sa_family = AF_UNSPEC };
    socklen_t k = sizeof a;
    return getpeername(fd, &a.any, &k) < 0 ? -errno : address_text(&a, addr, n);
}

int ls_real_resolve(const char *host, char *addr, size_t n)
{
    struct addrinfo want = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM }, *found = NULL;
    address a;
    if (getaddrinfo(host, NULL, &want, &found) != 0 || !found) return -ENOENT;
    int r = -ENOENT;
    if (found->ai_addrlen <= sizeof a) {
        memset(&a, 0, sizeof a);
        memcpy(&a, found->ai_addr, found->ai_addrlen);
        r = address_text(&a, addr, n);
    }
    freeaddrinfo(found);
    return r;
}

int ls_real_accept(int fd)
{
    int s;
    do s = accept4(fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    while (s < 0 && (errno == EINTR || errno == ECONNABORTED));
    if (s < 0) return -errno;
    switch_on(s, IPPROTO_TCP, TCP_NODELAY); /* refused on unix sockets, where it is not needed */
    return s;
}

/* --- bytes and descriptors --------------------------------------------------------------- */

ssize_t ls_real_send(int fd, const void *p, size_t n)
{
    ssize_t k;
    do k = send(fd, p, n, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (k < 0 && errno == EINTR);
    return k < 0 ? -errno : k;
}

ssize_t ls_real_recv(int fd, void *p, size_t n)
{
    ssize_t k;
    do k = recv(fd, p, n, MSG_DONTWAIT);
    while (k < 0 && errno == EINTR);
    return k < 0 ? -errno : k;
}

_Static_assert(sizeof(ls_span) == sizeof(struct iovec) && offsetof(ls_span, p) == offsetof(struct iovec, iov_base) &&
                   offsetof(ls_span, n) == offsetof(struct iovec, iov_len),
               "a span is an iovec");

static struct msghdr message_of(const ls_span *s, int n)
{
    return (struct msghdr){ .msg_iov = (struct iovec *)(uintptr_t)s, .msg_iovlen = (size_t)n };
}

ssize_t ls_real_sendv(int fd, const ls_span *from, int n)
{
    struct msghdr m = message_of(from, n);
    ssize_t k;
    do k = sendmsg(fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (k < 0 && errno == EINTR);
    return k < 0 ? -errno : k;
}

ssize_t ls_real_recvv(int fd, const ls_span *to, int n)
{
    struct msghdr m = message_of(to, n);
    ssize_t k;
    do k = recvmsg(fd, &m, MSG_DONTWAIT);
    while (k < 0 && errno == EINTR);
    return k < 0 ? -errno : k;
}

ssize_t ls_real_received(int fd)
{
    int n = 0;
    return ioctl(fd, FIONREAD, &n) < 0 ? -errno : n;
}

typedef union fd_control {
    struct cmsghdr head; /* for its alignment */
    char bytes[CMSG_SPACE(sizeof(int))];
} fd_control;

int ls_real_send_fd(int sock, int fd)
{
    char byte = 'f';
    fd_control control = { .bytes = { 0 } };
    struct iovec io = { .iov_base = &byte, .iov_len = 1 };
    struct msghdr m = { .msg_iov = &io, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control };
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(c), &fd, sizeof fd);
    ssize_t k;
    do k = sendmsg(sock, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (k < 0 && errno == EINTR);
    return k < 0 ? -errno : 0;
}

/* A peer that sends more descriptors than the one there is room for loses them:
 * the kernel closes what does not fit. */
int ls_real_recv_fd(int sock)
{
    char byte;
    fd_control control = { .bytes = { 0 } };
    struct iovec io = { .iov_base = &byte, .iov_len = 1 };
    struct msghdr m = { .msg_iov = &io, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control };
    ssize_t k;
    do k = recvmsg(sock, &m, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    while (k < 0 && errno == EINTR);
    if (k < 0) return -errno;
    if (k == 0) return -ECONNRESET;
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    if (!c || c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS || c->cmsg_len != CMSG_LEN(sizeof(int)))
        return -EPROTO;
    int fd;
    memcpy(&fd, CMSG_DATA(c), sizeof fd);
    return fd;
}

int ls_real_peer_uid_is_ours(int sock)
{
    struct ucred peer;
    socklen_t n = sizeof peer;
    if (getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &peer, &n) < 0) return -errno;
    return peer.uid == geteuid();
}

int ls_real_peer_pid(int sock)
{
    struct ucred peer;
    socklen_t n = sizeof peer;
    if (getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &peer, &n) < 0) return -errno;
    return peer.pid;
}

/* --- ports ------------------------------------------------------------------------------- */

/* Bound without SO_REUSEADDR and never listening, so that it is free again at once. */
int ls_real_free_port(void)
{
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
    socklen_t n = sizeof a;
    int fd = socket(AF_INET, TYPE, 0);
    if (fd < 0) return -errno;
    int r = ls_real_result(bind(fd, (struct sockaddr *)&a, n));
    if (r == 0) r = ls_real_result(getsockname(fd, (struct sockaddr *)&a, &n));
    if (r == 0) r = ntohs(a.sin_port);
    close(fd);
    return r;
}

/* The inode of the socket that listens on port, or else of one that is connected
 * from it, in a table whose lines read "sl: local:PORT remote:PORT ST tx:rx tr:tm
 * retrnsmt uid timeout inode"; 0 if none. */
static unsigned long port_inode(const char *table, int port)
{
    FILE *f = fopen(table, "re");
    char line[512];
    unsigned long found = 0;
    bool listens = false;
    if (!f) return 0;
    while (!listens && fgets(line, sizeof line, f)) {
        unsigned local, state;
        unsigned long inode;
        if (sscanf(line, "%*d: %*[0-9A-Fa-f]:%x %*[0-9A-Fa-f]:%*x %x %*s %*s %*s %*u %*u %lu", &local, &state,
                   &inode) != 3)
            continue;
        if (local != (unsigned)port || inode == 0) continue; /* no inode: closed, and waiting for stragglers */
        found = inode;
        listens = state == 0x0a;
    }
    fclose(f);
    return found;
}

/* Whether a process holds the socket. Other users' processes cannot be looked into. */
static bool holds(int pid, const char *socket_name)
{
    char dir[64], path[400], link[64];
    snprintf(dir, sizeof dir, "/proc/%d/fd", pid);
    DIR *d = opendir(dir);
    if (!d) return false;
    bool found = false;
    for (struct dirent *e; !found && (e = readdir(d));) {
        snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        ssize_t k = readlink(path, link, sizeof link - 1);
        if (k <= 0) continue;
        link[k] = 0;
        found = strcmp(link, socket_name) == 0;
    }
    closedir(d);
    return found;
}

static void program_name(int pid, char *name, size_t n)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/comm", pid);
    FILE *f = fopen(path, "re");
    if (!f || !fgets(name, (int)n, f)) snprintf(name, n, "?");
    if (f) fclose(f);
    name[strcspn(name, "\n")] = 0;
}

int ls_real_port_holder(int port, char *buf, size_t n)
{
    char socket_name[64], name[64];
    unsigned long inode = port_inode("/proc/net/tcp", port);
    if (!inode) inode = port_inode("/proc/net/tcp6", port);
    if (!inode) return 0;
    snprintf(socket_name, sizeof socket_name, "socket:[%lu]", inode);
    DIR *proc = opendir("/proc");
    if (!proc) return 0;
    int holder = 0, self = getpid();
    for (struct dirent *e; (holder == 0 || holder == self) && (e = readdir(proc));) {
        int pid = atoi(e->d_name);
        if (pid > 0 && holds(pid, socket_name)) holder = pid; /* a child has its parent's sockets: rather name that */
    }
    closedir(proc);
    if (holder == 0) return 0;
    program_name(holder, name, sizeof name);
    return snprintf(buf, n, "pid %d (%s)", holder, name);
}
