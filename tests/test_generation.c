/* Generations of a job at node 0's store: ranks of an older one are refused, and a node that comes when the job has
 * begun without it waits for the next. On a clock of the test's own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "fake_net.h"
#include "meet/page.h"
#include "meet/store_wire.h"

#define END (fake.now_ns + 3000000000u)

static const uint8_t secret[LS_SECRET_BYTES] = { 1 }, job[LS_DOOR_JOB_BYTES] = { 2 };

static void step_store(void *arg) { (void)ls_store_step(arg, fake.now_ns); }

static ls_store *open_store(int nranks, int nnodes, uint32_t generation)
{
    ls_store_config c = { .unix_name = "x", .tcp_port = -1, .nnodes = nnodes, .nranks = nranks, .page_fd = -1,
                          .generation = generation };
    ls_store *s = NULL;
    fake_begin();
    c.secret[0] = 1;
    c.job[0] = 2;
    assert_int_equal(ls_store_create(&c, &s), LS_OK);
    fake.idle = step_store;
    fake.idle_arg = s;
    return s;
}

static void close_store(ls_store *s)
{
    ls_store_destroy(s);
    fake_end_net();
}

static ls_store_caller rank_of(uint32_t generation)
{
    return (ls_store_caller){ .tcp_addr = "127.0.0.1", .tcp_port = 1, .secret = secret, .job = job, .rank = 1, .size = 2,
                              .generation = generation };
}

static ls_store_caller node(int rank)
{
    return (ls_store_caller){ .tcp_addr = "127.0.0.1", .tcp_port = 1, .secret = secret, .job = job, .agent = true, .rank = rank,
                              .size = 3 };
}

static void ranks_of_another_generation_are_refused(void **state)
{
    (void)state;
    static const struct { uint32_t store, rank; bool in; } row[] = {
        { 2, 2, true }, { 2, 1, false }, { 2, 3, false }, { 2, 0, false }, { 1, 1, true }, { 0, 0, true }, { 0, 1, true },
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        int none = -1;
        ls_store_client *c = NULL;
        ls_store *s = open_store(2, 0, row[i].store);
        const ls_store_caller who = rank_of(row[i].rank);
        const ls_status st = ls_store_connect(&who, END, &c, &none);
        if ((st == LS_OK) != row[i].in) fail_msg("rank of generation %u at a store of %u: %d", row[i].rank, row[i].store, st);
        if (!row[i].in) assert_int_equal(ls_store_connected(s), 0);
        if (st == LS_OK) ls_store_disconnect(c);
        close_store(s);
    }
}

static uint8_t learned[LS_SECRET_BYTES];
static uint64_t learns_ns;

static void step_and_learn(void *arg)
{
    step_store(arg);
    if (fake.now_ns >= learns_ns) learned[0] = secret[0];
}

/* As a store does that is closing, while the next one is not there yet. */
static void a_node_that_was_here_is_refused_for_a_while(void **state)
{
    (void)state;
    for (int again = 0; again < 2; again++)
        for (uint64_t after_s = 1; after_s < 10; after_s += 8) {
            int none = -1;
            ls_store_client *c = NULL;
            ls_store *s = open_store(2, 3, 2);
            fake.idle = step_and_learn;
            learned[0] = 9;
            learns_ns = fake.now_ns + after_s * 1000000000u;
            ls_store_caller who = node(1);
            who.secret = learned;
            who.again = again;
            const uint64_t begun = fake.now_ns;
            const ls_status st = ls_store_connect(&who, END, &c, &none);
            if (!again) assert_int_equal(st, LS_AUTH_FAILED);
            if (!again) assert_true(fake.now_ns - begun < 1000000000u);
            if (again && after_s == 1) assert_int_equal(st, LS_OK);
            if (again && after_s == 9) assert_true(st < 0 && fake.now_ns - begun < 4000000000u);
            if (st == LS_OK) ls_store_disconnect(c);
            close_store(s);
        }
}

/* A rank says hello behind the head of a launcher, for which any generation will do. */
static void a_rank_is_no_launcher(void **state)
{
    (void)state;
    for (uint32_t agent = 0; agent < 2; agent++) {
        ls_door d;
        uint8_t psk[LS_NOISE_KEY_BYTES];
        ls_store *s = open_store(2, 3, 2);
        const int fd = fake_connect_tcp("127.0.0.1", 1);
        ls_door_derive(secret, "store", 0, 0, psk);
        ls_door_connect(&d, &(ls_door_head){ .role = LS_DOOR_STORE, .generation = LS_DOOR_ANY_GENERATION }, job, psk);
        ls_status st;
        while ((st = ls_door_step(&d, fd)) == LS_AGAIN) step_store(s);
        assert_int_equal(st, LS_OK);
        const store_hello h = { .magic = LS_STORE_MAGIC, .version = LS_STORE_VERSION, .rank = 1,
                                .size = agent ? 3 : 2, .agent = agent };
        assert_int_equal(ls_door_send(&d, fd, &h, sizeof h), sizeof h);
        assert_int_equal(ls_door_flush(&d, fd), 0);
        for (int i = 0; i < 10; i++) step_store(s);
        assert_int_equal(ls_store_connected(s), agent);
        ls_door_close(&d);
        fake_close(fd);
        close_store(s);
    }
}

#define WAITED_NS 3000000000u

static void answer_until_it_has_waited(void *arg)
{
    static uint64_t end_ns;
    if (ls_store_waiting(arg) == 0) end_ns = fake.now_ns + WAITED_NS;
    if (fake.now_ns < end_ns) step_store(arg);
}

static void a_node_that_comes_late_waits(void **state)
{
    (void)state;
    ls_world_page *page = calloc(1, ls_page_bytes(2));
    assert_non_null(page);
    ls_page_format(page, 2, 2);
    int none = -1;
    ls_store_client *one = NULL, *two = NULL, *late = NULL;
    ls_store *s = open_store(0, 3, 2);
    ls_store_caller who = node(1);
    assert_int_equal(ls_store_connect(&who, END, &one, &none), LS_OK);
    who = node(2);
    assert_int_equal(ls_store_connect(&who, END, &two, &none), LS_OK);
    assert_int_equal(ls_store_agents(s), 2);
    ls_store_exclude(s, 2); /* it has not said how many ranks it has */
    assert_int_equal(ls_store_agents(s), 1);
    assert_true(ls_store_is_gone(two));
    assert_int_equal(ls_store_begin(s, 2, page, -1), LS_OK);
    assert_int_equal(ls_store_waiting(s), 0);
    const uint64_t rejected = ls_store_rejected(s), begun = fake.now_ns;
    ls_store_disconnect(two);
    fake.idle = answer_until_it_has_waited;
    assert_int_equal(ls_store_connect(&who, fake.now_ns + 100000000u, &late, &none), LS_JOIN_TIMEOUT);
    assert_true(fake.now_ns - begun > WAITED_NS); /* far beyond its limit, which began anew with each answer */
    assert_true(fake.now_ns - begun < WAITED_NS + 1000000000u);
    assert_int_equal(ls_store_waiting(s), 1);
    assert_int_equal(atomic_load(&page->abort_by), 0); /* nobody was lost */
    assert_int_equal(ls_store_rejected(s), rejected); /* nor a stranger */
    ls_store_disconnect(one);
    for (int i = 0; i < 3; i++) step_store(s);
    assert_int_not_equal(atomic_load(&page->abort_by), 0); /* node 1 was */
    assert_int_equal(ls_store_agents(s), 0);
    close_store(s);
    free(page);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_of_another_generation_are_refused),
        cmocka_unit_test(a_node_that_was_here_is_refused_for_a_while),
        cmocka_unit_test(a_rank_is_no_launcher),
        cmocka_unit_test(a_node_that_comes_late_waits),
    };
    return cmocka_run_group_tests_name("generation", tests, NULL, NULL);
}
