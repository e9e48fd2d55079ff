/* The sockets of the real env: descriptors travel, TCP moves bytes, and a busy port names its holder. */
#include "harness_env.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* --- sockets ------------------------------------------------------------------------------- */

static int accept_soon(int fd)
{
    int s;
    ls_pollfd p = { .fd = fd, .events = LS_POLL_IN };
    for (uint64_t deadline = in_s(10); (s = env->accept(fd)) == -EAGAIN && env->mono_ns() < deadline;)
        env->wait(NULL, 0, &p, 1, deadline);
    return s;
}

static ssize_t recv_soon(int fd, void *to, size_t n)
{
    ssize_t k;
    ls_pollfd p = { .fd = fd, .events = LS_POLL_IN };
    for (uint64_t deadline = in_s(10); (k = env->recv(fd, to, n)) == -EAGAIN && env->mono_ns() < deadline;)
        env->wait(NULL, 0, &p, 1, deadline);
    return k;
}

static int connect_result(int fd)
{
    int r;
    ls_pollfd p = { .fd = fd, .events = LS_POLL_OUT };
    for (uint64_t deadline = in_s(10); (r = env->connect_done(fd)) == -EINPROGRESS && env->mono_ns() < deadline;)
        env->wait(NULL, 0, &p, 1, deadline);
    return r;
}

static void a_descriptor_travels_over_an_abstract_socket(void **state)
{
    (void)state;
    char name[64], long_name[200];
    snprintf(name, sizeof name, "lockstep-test-env-%d", (int)getpid());
    memset(long_name, 'x', sizeof long_name);
    long_name[sizeof long_name - 1] = 0;
    assert_int_equal(env->connect_unix(name), -ECONNREFUSED);
    int door = env->listen_unix(name);
    assert_true(door >= 0);
    assert_int_equal(env->listen_unix(name), -EADDRINUSE);
    assert_int_equal(env->listen_unix(long_name), -ENAMETOOLONG);
    assert_int_equal(access(name, F_OK), -1); /* nothing in the file system */
    assert_int_equal(env->accept(door), -EAGAIN);
    int us = env->connect_unix(name), them = accept_soon(door);
    assert_true(us >= 0 && them >= 0);
    assert_int_equal(env->connect_done(us), 0);
    assert_int_equal(env->peer_uid_is_ours(us), 1);
    assert_int_equal(env->peer_pid(us), env->pid());
    assert_true(env->parent_pid() == (int)getppid());
    assert_int_equal(env->peer_uid_is_ours(them), 1);

    assert_int_equal(env->recv_fd(us), -EAGAIN);
    int fd = env->memfd("passed", 4096);
    char *p = env->map_shared(fd, 4096, false);
    strcpy(p, "passed on");
    assert_int_equal(env->send_fd(them, fd), 0);
    int got = env->recv_fd(us);
    assert_true(got >= 0 && got != fd);
    assert_int_equal(fcntl(got, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    char *q = env->map_shared(got, 4096, false);
    assert_string_equal(q, "passed on");

    assert_int_equal(env->send(them, "x", 1), 1);
    assert_int_equal(env->recv_fd(us), -EPROTO); /* a byte without a descriptor */
    env->close_fd(them);
    assert_int_equal(env->recv_fd(us), -ECONNRESET);
    env->close_fd(us);
    env->close_fd(door);
    env->close_fd(fd);
    env->close_fd(got);
    env->unmap(p, 4096);
    env->unmap(q, 4096);
    assert_int_equal(env->connect_unix(name), -ECONNREFUSED); /* the name went with its socket */
}

static void tcp_moves_bytes_and_tells_when_the_peer_closes(void **state)
{
    (void)state;
    int port = 0, other = 0;
    char text[8];
    int door = env->listen_tcp("127.0.0.1", 0, &port);
    assert_true(door >= 0);
    assert_in_range(port, 1, 65535);
    assert_int_equal(env->listen_tcp("127.0.0.1", port, &other), -EADDRINUSE);
    int us = env->connect_tcp("localhost", port), them = accept_soon(door);
    assert_true(us >= 0 && them >= 0);
    assert_int_equal(connect_result(us), 0);
    assert_int_equal(env->recv(them, text, sizeof text), -EAGAIN);
    assert_int_equal(env->send(us, "hello", 5), 5);
    assert_int_equal(recv_soon(them, text, sizeof text), 5);
    assert_memory_equal(text, "hello", 5);

    static char chunk[1 << 16];
    ssize_t k;
    size_t sent = 0;
    while ((k = env->send(us, chunk, sizeof chunk)) > 0 && sent < (size_t)1 << 30) sent += (size_t)k;
    assert_int_equal(k, -EAGAIN); /* full, not stuck */

    env->close_fd(us);
    for (size_t left = sent; left > 0; left -= (size_t)k) {
        k = recv_soon(them, chunk, sizeof chunk);
        assert_true(k > 0);
    }
    assert_int_equal(recv_soon(them, text, sizeof text), 0);
    for (int i = 0; i < 100 && (k = env->send(them, "x", 1)) == 1; i++) nap();
    assert_true(k == -EPIPE || k == -ECONNRESET); /* and no SIGPIPE */
    env->close_fd(them);
    env->close_fd(door);
    assert_int_equal(connect_result(us = env->connect_tcp("127.0.0.1", port)), -ECONNREFUSED);
    env->close_fd(us);
}

static void tcp_listens_elsewhere_and_tells_both_ends(void **state)
{
    (void)state;
    int port;
    char addr[64];
    int door = env->listen_open("0.0.0.0", 0, &port);
    assert_true(door >= 0);
    int us = env->connect_tcp("127.0.0.1", port), them = accept_soon(door);
    assert_int_equal(connect_result(us), 0);
    assert_int_equal(env->local_addr(us, addr, sizeof addr), 0);
    assert_string_equal(addr, "127.0.0.1");
    assert_int_equal(env->peer_addr(them, addr, sizeof addr), 0);
    assert_string_equal(addr, "127.0.0.1");
    assert_int_equal(env->peer_addr(door, addr, sizeof addr), -ENOTCONN);
    assert_int_equal(env->peer_addr(them, addr, 3), -ENOSPC);
    env->close_fd(us);
    env->close_fd(them);
    env->close_fd(door);
    assert_int_equal(env->resolve("127.0.0.1", addr, sizeof addr), 0);
    assert_string_equal(addr, "127.0.0.1");
    assert_int_equal(env->resolve("no.such.host.invalid", addr, sizeof addr), -ENOENT);
}

static void tcp_listens_on_loopback_only(void **state)
{
    (void)state;
    static const struct { const char *addr; int want; } row[] = {
        { "0.0.0.0", -EACCES }, { "10.1.2.3", -EACCES }, { "126.255.255.255", -EACCES }, { "128.0.0.1", -EACCES },
        { "::", -EACCES }, { "::2", -EACCES }, { "example.org", -EINVAL }, { "127.0.0.1:80", -EINVAL }, { "", -EINVAL },
    };
    int port = 0;
    for (size_t i = 0; i < N(row); i++) assert_int_equal(env->listen_tcp(row[i].addr, 0, &port), row[i].want);
    assert_int_equal(env->listen_tcp("127.0.0.1", 65536, &port), -EINVAL);
    int fd = env->listen_tcp("127.9.8.7", 0, &port);
    assert_true(fd >= 0);
    env->close_fd(fd);
    fd = env->listen_tcp("::1", 0, &port);
    assert_true(fd >= 0 || fd == -EADDRNOTAVAIL || fd == -EAFNOSUPPORT); /* a host without IPv6 */
    env->close_fd(fd);
}

static void names_who_holds_a_port(void **state)
{
    (void)state;
    int port = env->free_port(), bound = 0;
    char text[64] = "", want[64];
    assert_in_range(port, 1, 65535);
    assert_int_equal(env->port_holder(port, text, sizeof text), 0);
    int fd = env->listen_tcp("127.0.0.1", port, &bound); /* it was free */
    assert_true(fd >= 0);
    assert_int_equal(bound, port);
    snprintf(want, sizeof want, "pid %d (test_env_socket)", (int)getpid()); /* of a name the kernel keeps 15 letters */
    assert_int_equal(env->port_holder(port, text, sizeof text), strlen(want));
    assert_string_equal(text, want);
    int us = env->connect_tcp("127.0.0.1", port), them = accept_soon(fd);
    env->close_fd(fd); /* what is left is a connection */
    assert_int_equal(env->port_holder(port, text, sizeof text), strlen(want));
    env->close_fd(us);
    env->close_fd(them);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_descriptor_travels_over_an_abstract_socket),
        cmocka_unit_test(tcp_moves_bytes_and_tells_when_the_peer_closes),
        cmocka_unit_test(tcp_listens_on_loopback_only),
        cmocka_unit_test(tcp_listens_elsewhere_and_tells_both_ends),
        cmocka_unit_test(names_who_holds_a_port),
    };
    return cmocka_run_group_tests_name("env_sockets", tests, NULL, NULL);
}
