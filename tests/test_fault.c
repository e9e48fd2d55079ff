/* transport_fault: each fault does what it says, over shm and tcp, and a plan with a mistake is refused. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "harness_clock.h"
#include "net/world.h"

#define MS 1000000ull

static const char *const wires[] = { "fault:shm", "fault:tcp" };

/* Ten sums of 3,000 floats (several cells or frames each); fails at the first wrong one. The
 * algorithm is fixed, so that every rank sends in each of them. */
static ls_status ten_sums(ls_world *w, void *arg)
{
    float x[3000];
    int n = ls_world_size(w), rank = ls_world_rank(w);
    (void)arg;
    for (int turn = 0; turn < 10; turn++) {
        for (size_t i = 0; i < 3000; i++) x[i] = (float)(rank + 1) + (float)(i % 7);
        ls_work *work;
        ls_coll_args a = { .coll = LS_ALL_REDUCE, .in = x, .out = x, .count = 3000, .dtype = LS_F32, .op = LS_SUM, .label = "test" };
        LS_TRY(ls_coll_start(ls_world_group(w), &a, &work));
        LS_TRY(ls_work_wait(work));
        for (size_t i = 0; i < 3000; i++) {
            float want = (float)(n * (n + 1)) / 2.0f + (float)n * (float)(i % 7); /* exact in float */
            if (x[i] != want) return ls_fail(LS_INTERNAL, "wrong sum");
        }
    }
    return LS_OK;
}

static void each_fault_has_its_effect(void **state)
{
    (void)state;
    static const struct { const char *plan; ls_status status; const char *says; } row[] = {
        { "", LS_OK, "" },
        { "delay=300us@1", LS_OK, "" },
        { "stall@1:5", LS_RANK_HUNG, " s in all_reduce #" },
        { "drop@0:3", LS_PROTOCOL, "message 1 of rank 0 arrived in place of message 0: one was lost" },
        /* the next collective's message comes in its place */
        { "drop@0:4", LS_PROTOCOL, "a message of rank 0 to all_reduce #1" },
        { "repeat@1:5", LS_PROTOCOL, "message 0 of rank 1 arrived in place of message 1: one was repeated" },
        { "repeat@1:6", LS_PROTOCOL, "a message of rank 1 to all_reduce #3" },
        { "corrupt@1:4", LS_INTERNAL, "wrong sum" },
        { "garbage@1:4", LS_PROTOCOL, "rank 1" },
        { "stall@5", LS_OK, "" }, /* there is no rank 5 */
    };
    for (size_t wire = 0; wire < 2; wire++)
        for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
            const bool hangs = row[i].status == LS_RANK_HUNG; /* the others must not time out on a busy machine */
            ls_world_opts o = { .transport = wires[wire], .algo = "ring", .arena_bytes = 4u << 20,
                                .coll_timeout_ns = hangs ? 300 * MS : 20000 * MS };
            setenv("LOCKSTEP_FAULT", row[i].plan, 1);
            const ls_rank_report r = ls_test_ranks_in_step(LS_TEST_THREADS, 2, &o, ten_sums, NULL);
            unsetenv("LOCKSTEP_FAULT");
            if (r.status != row[i].status)
                fail_msg("%s with '%s': %d %s", wires[wire], row[i].plan, (int)r.status, r.text);
            if (r.failed && !strstr(r.text, row[i].says)) fail_msg("'%s' gives '%s'", row[i].plan, r.text);
        }
}

static void a_delay_takes_its_time(void **state)
{
    (void)state;
    ls_world_opts o = { .transport = "fault:shm", .algo = "ring", .arena_bytes = 4u << 20 };
    setenv("LOCKSTEP_FAULT", "delay=10ms@0", 1);
    uint64_t t0 = ls_env_get()->mono_ns();
    assert_int_equal(ls_world_threads(2, &o, ten_sums, NULL), LS_OK);
    unsetenv("LOCKSTEP_FAULT");
    assert_true(ls_env_get()->mono_ns() - t0 >= 10 * 2 * 10 * MS); /* ten sums of two rounds of ring */
}

static void a_kill_is_seen_as_a_death(void **state)
{
    (void)state;
    for (size_t wire = 0; wire < 2; wire++) {
        ls_world_opts o = { .transport = wires[wire], .algo = "ring", .arena_bytes = 4u << 20, .coll_timeout_ns = 5000 * MS };
        setenv("LOCKSTEP_FAULT", "kill@1:7", 1);
        ls_rank_report r = ls_test_ranks(LS_TEST_PROCESSES, 2, &o, ten_sums, NULL);
        unsetenv("LOCKSTEP_FAULT");
        assert_int_equal(r.failed, 2);
        /* over tcp the broken connection may be noticed first */
        if (!strstr(r.text, "rank 1")) fail_msg("%s: '%s' does not name rank 1", wires[wire], r.text);
    }
}

static void a_mistaken_plan_is_refused(void **state)
{
    (void)state;
    static const char *const plan[] = { "boom", "delay", "delay=3", "delay=us", "stall@", "stall@x", "stall@65536", "drop@1:0", "kill@1:5x",
                                        "kill@1 ,", "drop,drop,drop,drop,drop,drop,drop,drop,drop" };
    for (size_t i = 0; i < sizeof plan / sizeof *plan; i++) {
        ls_world_opts o = { .transport = "fault:self", .arena_bytes = 4u << 20 };
        setenv("LOCKSTEP_FAULT", plan[i], 1);
        ls_status st = ls_world_threads(1, &o, ten_sums, NULL);
        unsetenv("LOCKSTEP_FAULT");
        if (st != LS_BAD_CONFIG) fail_msg("'%s' gives %d", plan[i], (int)st);
        assert_non_null(strstr(ls_last_error(), "LOCKSTEP_FAULT is '"));
    }
    ls_world_opts o = { .transport = "fault:fault:shm", .arena_bytes = 4u << 20 };
    assert_int_equal(ls_world_threads(1, &o, ten_sums, NULL), LS_BAD_CONFIG);
    assert_non_null(strstr(ls_last_error(), "expected fault: and one of shm, tcp, mixed and self"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_fault_has_its_effect),
        cmocka_unit_test(a_delay_takes_its_time),
        cmocka_unit_test(a_kill_is_seen_as_a_death),
        cmocka_unit_test(a_mistaken_plan_is_refused),
    };
    return cmocka_run_group_tests_name("fault", tests, NULL, NULL);
}
