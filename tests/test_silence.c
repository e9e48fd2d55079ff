/* Hosts of which nothing is heard: gone at the limit and not before, seen from both ends; at once when a connection
 * closes. On a clock of the test's own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "fake_net.h"
#include "meet/agent.h"
#include "meet/page.h"
#include "meet/store.h"

#define MS 1000000ull
#define STEP (10 * MS)

/* Node 0's store and page, and node 1's link to it with a page of its own. */
typedef struct hosts {
    ls_world_page *page[2];
    ls_store *store, *local;
    ls_agent *agent;
} hosts;

static void step_store(void *arg) { (void)ls_store_step(arg, fake.now_ns); }

static ls_store *new_store(const char *name, ls_world_page *page, int port, uint64_t silent_ns)
{
    ls_store_config c = { .unix_name = name, .tcp_port = port, .nnodes = 2, .nranks = 2, .page = page, .page_fd = -1,
                          .silent_ns = silent_ns };
    ls_store *s = NULL;
    c.secret[0] = 1;
    c.job[0] = 2;
    assert_int_equal(ls_store_create(&c, &s), LS_OK);
    return s;
}

static void set_up(hosts *h, uint64_t silent_ns)
{
    static const uint8_t secret[LS_SECRET_BYTES] = { 1 }, job[LS_DOOR_JOB_BYTES] = { 2 };
    int none = -1;
    ls_store_client *link = NULL;
    fake_begin();
    for (int i = 0; i < 2; i++) {
        assert_non_null(h->page[i] = calloc(1, ls_page_bytes(2)));
        ls_page_format(h->page[i], 2, 1);
    }
    h->store = new_store("x", h->page[0], -1, silent_ns);
    h->local = new_store("y", h->page[1], 0, silent_ns);
    fake.idle = step_store;
    fake.idle_arg = h->store;
    ls_store_caller who = { .tcp_addr = "127.0.0.1", .tcp_port = 1, .secret = secret, .job = job, .agent = true,
                            .rank = 1, .size = 2 };
    assert_int_equal(ls_store_connect(&who, fake.now_ns + 3000 * MS, &link, &none), LS_OK);
    assert_int_equal(ls_agent_create(link, h->page[1], h->local, "node 0", silent_ns, &h->agent), LS_OK);
}

static void tear_down(hosts *h)
{
    if (h->agent) ls_agent_leave(h->agent, 0);
    ls_store_destroy(h->store);
    ls_store_destroy(h->local);
    fake_end_net();
    for (int i = 0; i < 2; i++) free(h->page[i]);
}

/* Time passes; the ends that are alive do what their loops do. */
static void pass(hosts *h, uint64_t ns, bool node0, bool node1)
{
    for (uint64_t end = fake.now_ns + ns; fake.now_ns < end;) {
        fake.now_ns += STEP;
        if (node1) (void)ls_agent_step(h->agent, fake.now_ns);
        if (node0) step_store(h->store);
    }
}

static bool gone(const ls_world_page *p, const char *says)
{
    char text[LS_ERROR_BYTES];
    ls_status s;
    int about;
    if (!ls_page_cause(p, &about, &s, text, sizeof text)) return false;
    assert_int_equal(s, LS_PEER_SILENT);
    if (!strstr(text, says)) fail_msg("'%s' does not say '%s'", text, says);
    return true;
}

static const struct { uint64_t asked, limit;
    const char *says;
} row[] = {
    { 0, 5000 * MS, "nothing was heard of it for 5.0 s (lockstep run --node-timeout)" },
    { 700 * MS, 700 * MS, "nothing was heard of it for 0.7 s" },
    { 20000 * MS, 20000 * MS, "nothing was heard of it for 20.0 s" },
};
#define ROWS (sizeof row / sizeof *row)

static void a_silent_host_is_gone_at_the_limit(void **state)
{
    (void)state;
    for (size_t i = 0; i < ROWS; i++) {
        hosts h;
        set_up(&h, row[i].asked);
        pass(&h, 2000 * MS, true, true);
        assert_false(gone(h.page[0], "") || gone(h.page[1], ""));
        pass(&h, row[i].limit - 200 * MS, true, false); /* its last beat is at most 100 ms old */
        assert_false(gone(h.page[0], ""));
        pass(&h, 400 * MS, true, false);
        assert_true(gone(h.page[0], row[i].says) && gone(h.page[0], "node 1 (host "));
        tear_down(&h);
    }
}

static void a_silent_node_0_is_gone_at_the_limit(void **state)
{
    (void)state;
    for (size_t i = 0; i < ROWS; i++) {
        hosts h;
        set_up(&h, row[i].asked);
        pass(&h, 2000 * MS, true, true);
        pass(&h, row[i].limit - 200 * MS, false, true);
        assert_false(gone(h.page[1], ""));
        pass(&h, 500 * MS, false, true);
        assert_true(gone(h.page[1], row[i].says) && gone(h.page[1], "node 0 (node 0) is gone"));
        tear_down(&h);
    }
}

static void one_that_speaks_again_is_not(void **state)
{
    (void)state;
    hosts h;
    set_up(&h, 0);
    for (int i = 0; i < 5; i++) {
        pass(&h, 4500 * MS, true, false);
        pass(&h, 300 * MS, true, true);
        pass(&h, 4500 * MS, false, true);
        pass(&h, 300 * MS, true, true);
    }
    assert_false(gone(h.page[0], "") || gone(h.page[1], ""));
    tear_down(&h);
}

static void a_connection_that_closes_is_noticed_at_once(void **state)
{
    (void)state;
    hosts h;
    set_up(&h, 60000 * MS);
    pass(&h, 1000 * MS, true, true);
    fake_hang_up(ls_agent_fd(h.agent)); /* its host's kernel says so */
    step_store(h.store);
    assert_true(gone(h.page[0], "its connection closed"));
    tear_down(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_silent_host_is_gone_at_the_limit),
        cmocka_unit_test(a_silent_node_0_is_gone_at_the_limit),
        cmocka_unit_test(one_that_speaks_again_is_not),
        cmocka_unit_test(a_connection_that_closes_is_noticed_at_once),
    };
    return cmocka_run_group_tests_name("silence", tests, NULL, NULL);
}
