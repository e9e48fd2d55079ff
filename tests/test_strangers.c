/* strangers: a thousand of them at the ports of a job -- garbage, silence, half hellos, replays, wrong keys --
 * and its result is what it is without them; and the bounds that keep them out. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "harness.h"
#include "meet/door.h"
#include "meet/store.h"
#include "net/world.h"

#define S 1000000000ull
#define STRANGERS 1000
#define N(x) (sizeof(x) / sizeof *(x))

static const uint8_t secret[LS_SECRET_BYTES] = { 1, 2, 3 };

/* A store with a port of its own, stepped by hand; time is ours. */
static _Atomic uint64_t later_ns;
static uint64_t shifted_ns(void) { return ls_env_real.mono_ns() + later_ns; }

static ls_store *open_store(int *port)
{
    char name[64];
    ls_store *s;
    snprintf(name, sizeof name, "lockstep-test-strangers-%d", (int)getpid());
    ls_store_config c = { .unix_name = name, .tcp_port = -1, .nranks = 2, .page_fd = -1 };
    memcpy(c.secret, secret, sizeof secret);
    if (ls_store_create(&c, &s) != LS_OK) fail_msg("%s", ls_last_error());
    *port = ls_store_port(s);
    return s;
}

static int connect_to(int port)
{
    for (int turn = 0; turn < 1000; turn++) {
        int fd = ls_env_real.connect_tcp("127.0.0.1", port), r = -EINPROGRESS;
        while (fd >= 0 && (r = ls_env_real.connect_done(fd)) == -EINPROGRESS) usleep(100);
        if (r == 0) return fd;
        if (fd >= 0) ls_env_real.close_fd(fd);
        usleep(1000);
    }
    return -1;
}

/* The first message of somebody who knows this secret. */
static void hello_of(const uint8_t *key, uint8_t out[LS_DOOR_HELLO_BYTES])
{
    ls_door d;
    uint8_t psk[LS_NOISE_KEY_BYTES], job[LS_DOOR_JOB_BYTES] = { 0 };
    ls_door_derive(key, "store", 0, 0, psk);
    ls_door_connect(&d, &(ls_door_head){ .role = LS_DOOR_STORE, .generation = LS_STORE_GENERATION }, job, psk);
    memcpy(out, d.buf, LS_DOOR_HELLO_BYTES);
    ls_door_close(&d);
}

static void steps(ls_store *s, int n)
{
    for (int i = 0; i < n; i++) {
        assert_int_equal(ls_store_step(s, shifted_ns()), LS_OK);
        usleep(1000);
    }
}

/* Whether the other end has closed: with nothing said but what `most` allows. */
static bool closed(int fd, size_t most)
{
    char byte;
    size_t n = 0;
    ssize_t k;
    while ((k = ls_env_real.recv(fd, &byte, 1)) > 0)
        if (++n > most) fail_msg("%zu bytes were said to a stranger", n);
    return k != -EAGAIN;
}

/* Mutated first messages of somebody who knows the secret, and right ones of somebody who does not. */
static void nobody_gets_in_who_should_not(void **state)
{
    (void)state;
    int port, tried = 0;
    ls_store *s = open_store(&port);
    uint8_t wrong[LS_SECRET_BYTES] = { 1, 2, 4 }, right[LS_DOOR_HELLO_BYTES], hello[LS_DOOR_HELLO_BYTES];
    hello_of(secret, right);
    for (int i = 0; i < 300; i++) {
        int fd = connect_to(port);
        memcpy(hello, right, sizeof hello);
        if (i == 0) hello_of(wrong, hello);
        else hello[(size_t)i % sizeof hello] ^= (uint8_t)(1 << i % 7);
        ls_env_real.send(fd, hello, sizeof hello);
        for (int turn = 0; turn < 2000 && !closed(fd, sizeof(ls_door_head)); turn++) steps(s, 1);
        assert_true(closed(fd, sizeof(ls_door_head))); /* another version hears of ours, the others nothing */
        ls_env_real.close_fd(fd);
        assert_int_equal(ls_store_rejected(s), ++tried);
    }
    int fd = connect_to(port);
    ls_env_real.send(fd, right, sizeof right);
    uint8_t answer[LS_DOOR_HELLO_BYTES];
    size_t have = 0;
    for (int turn = 0; turn < 2000 && have < sizeof answer; turn++) {
        steps(s, 1);
        ssize_t k = ls_env_real.recv(fd, answer + have, sizeof answer - have);
        if (k > 0) have += (size_t)k;
    }
    assert_int_equal(have, sizeof answer); /* the unchanged one is answered, */
    assert_int_equal(ls_store_connected(s), 0); /* and is nobody until it confirms */
    later_ns += LS_DOOR_NS + S;
    steps(s, 2);
    assert_true(closed(fd, 0)); /* a replay cannot: it costs a place for five seconds */
    ls_env_real.close_fd(fd);
    later_ns = 0;
    ls_store_destroy(s);
}

/* Silent strangers: 64 are let wait, the oldest go first, all go after five seconds. */
static void silence_costs_a_place_for_five_seconds(void **state)
{
    (void)state;
    int port, fd[LS_DOOR_STRANGERS + 10];
    ls_store *s = open_store(&port);
    for (size_t i = 0; i < N(fd); i++) {
        fd[i] = connect_to(port);
        steps(s, 1);
    }
    steps(s, 5);
    for (size_t i = 0; i < N(fd); i++) assert_int_equal(closed(fd[i], 0), i < 10);
    later_ns += LS_DOOR_NS - S;
    steps(s, 2);
    assert_false(closed(fd[N(fd) - 1], 0));
    later_ns += 2 * S;
    steps(s, 2);
    for (size_t i = 10; i < N(fd); i++) assert_true(closed(fd[i], 0));
    assert_int_equal(ls_store_rejected(s), N(fd));
    for (size_t i = 0; i < N(fd); i++) ls_env_real.close_fd(fd[i]);
    later_ns = 0;
    ls_store_destroy(s);
}

static int another_address(int fd, char *addr, size_t n)
{
    (void)fd;
    snprintf(addr, n, "192.0.2.7");
    return 0;
}

static void one_address_has_sixteen_places(void **state)
{
    (void)state;
    int port, fd[LS_DOOR_PER_ADDRESS + 4];
    ls_env env = ls_env_real;
    env.peer_addr = another_address;
    ls_context c = { .env = &env, .rank = -1, .log_level = LS_LOG_ERROR };
    ls_context_swap(&c);
    ls_store *s = open_store(&port);
    for (size_t i = 0; i < N(fd); i++) {
        fd[i] = connect_to(port);
        steps(s, 1);
    }
    steps(s, 5);
    for (size_t i = 0; i < N(fd); i++) {
        assert_int_equal(closed(fd[i], 0), i < 4);
        ls_env_real.close_fd(fd[i]);
    }
    ls_store_destroy(s);
    ls_context_swap(NULL);
}

/* --- a job that has visitors ----------------------------------------------------------------------------- */

static ls_status digest_of_sums(ls_world *w, void *arg)
{
    float x[500];
    for (int i = 0; i < 500; i++) x[i] = 1.0f / (float)(i + 1 + ls_world_rank(w));
    for (int turn = 0; turn < 200; turn++) LS_TRY(ls_all_reduce(ls_world_group(w), NULL, x, 500, LS_F32, LS_AVG));
    if (ls_world_rank(w) == 0) memcpy(arg, x, sizeof x);
    return LS_OK;
}

/* Ports that ranks listen on while the job runs, told by a listen_tcp that remembers them. */
static _Atomic int ports[8], nports, stop, visits;

static int remembered_listen(const char *addr, int port, int *bound)
{
    int fd = ls_env_real.listen_tcp(addr, port, bound);
    if (fd >= 0 && nports < 8) ports[nports++] = *bound;
    while (fd >= 0 && visits < STRANGERS) usleep(1000); /* the ranks find the crowd at the door */
    return fd;
}

/* Comes again and again with something else. */
static void *visit(void *arg)
{
    static const char *const openings[] = { "GET / HTTP/1.1\r\n\r\n", "\x16\x03\x01\x02", "", "l", "lockstep", "\0\0\0\0\0\0\0\0\0\0" };
    uint8_t hello[LS_DOOR_HELLO_BYTES], wrong[LS_SECRET_BYTES] = { 7 };
    (void)arg;
    hello_of(wrong, hello);
    while (!stop) {
        if (nports == 0) {
            usleep(100);
            continue;
        }
        int i = visits, fd = ls_env_real.connect_tcp("127.0.0.1", ports[i % nports]);
        if (fd >= 0) {
            for (int turn = 0; turn < 100 && ls_env_real.connect_done(fd) == -EINPROGRESS; turn++) usleep(50);
            if (i % 7 == 6) ls_env_real.send(fd, hello, i % 2 ? sizeof hello : 40);
            else ls_env_real.send(fd, openings[i % 7 % 6], strlen(openings[i % 7 % 6]));
            ls_env_real.close_fd(fd);
        }
        visits++;
    }
    return NULL;
}

static void a_thousand_strangers_change_nothing(void **state)
{
    (void)state;
    ls_world_opts o = { .transport = "tcp", .arena_bytes = 4u << 20, .join_timeout_ns = 60 * S };
    float alone[500], visited[500];
    assert_int_equal(ls_world_threads(3, &o, digest_of_sums, alone), LS_OK);
    ls_env env = ls_env_real;
    env.listen_tcp = remembered_listen;
    ls_context c = { .env = &env, .rank = -1, .log_level = LS_LOG_ERROR };
    pthread_t thread;
    nports = stop = visits = 0;
    assert_int_equal(pthread_create(&thread, NULL, visit, NULL), 0);
    ls_context_swap(&c);
    ls_status st = ls_world_threads(3, &o, digest_of_sums, visited);
    ls_context_swap(NULL);
    stop = 1;
    pthread_join(thread, NULL);
    if (st < 0) fail_msg("%s", c.error);
    assert_true(visits >= STRANGERS);
    assert_memory_equal(alone, visited, sizeof alone);
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nobody_gets_in_who_should_not),
        cmocka_unit_test(silence_costs_a_place_for_five_seconds),
        cmocka_unit_test(one_address_has_sixteen_places),
        cmocka_unit_test(a_thousand_strangers_change_nothing),
    };
    return cmocka_run_group_tests_name("strangers", tests, NULL, NULL);
}
