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

/* Each of the three pairs in turn sends 200,000 bytes there and back, five times; arg: how long each took for it. */
static ls_status pairs(ls_world *w, void *arg)
{
    static const struct { int a, b; } pair[] = { { 0, 1 }, { 0, 2 }, { 1, 2 } };
    uint64_t *took = arg;
    ls_group *g = ls_world_group(w);
    const int rank = ls_world_rank(w);
    const size_t n = 200000;
    char *buf = malloc(n);
    ls_status st = buf ? LS_OK : ls_fail(LS_NO_MEMORY, "a buffer");
    for (int k = 0; k < 3 && st == LS_OK; k++) {
        if ((st = ls_barrier(g)) < 0) break;
        const uint64_t t0 = ls_env_get()->mono_ns();
        for (int i = 0; i < 5 && st == LS_OK; i++) {
            if (rank == pair[k].a) memset(buf, 7 * k + i, n);
            if (rank == pair[k].a) st = ls_send(g, buf, n, LS_U8, pair[k].b);
            if (rank == pair[k].b) st = ls_recv(g, buf, n, LS_U8, pair[k].a);
            if (rank == pair[k].b && st == LS_OK) st = ls_send(g, buf, n, LS_U8, pair[k].a);
            if (rank == pair[k].a && st == LS_OK) st = ls_recv(g, buf, n, LS_U8, pair[k].b);
            const char want = (char)(7 * k + i);
            if (rank == pair[k].a && st == LS_OK && (buf[0] != want || buf[n - 1] != want))
                st = ls_fail(LS_INTERNAL, "wrong message");
        }
        if (rank == pair[k].a) took[k] = ls_env_get()->mono_ns() - t0;
    }
    free(buf);
    return st;
}

static bool has_margin(const bool slow[3], const uint64_t took[3])
{
    for (int k = 0; k < 3; k++)
        for (int j = 0; j < 3; j++)
            if (slow[k] && !slow[j] && took[j] * 2 > took[k]) return false;
    return true;
}

/* 2 MB there and back: 0.2 s at 10 MB/s, some milliseconds where nothing is slow. A busy machine gets more tries. */
static void a_rate_slows_its_pairs_alone(void **state)
{
    (void)state;
    static const struct { const char *list; bool slow[3]; } row[] = {
        { ",rate=10MB/s@0-1", { true, false, false } },
        { ",rate=10000kB/s@1-0", { true, false, false } },
        { ",rate=10MB/s@2", { false, true, true } },
        { ",rate=1GB/s@1-2,rate=10000000B/s", { true, true, false } },
    };
    for (size_t wire = 0; wire < 2; wire++)
        for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
            char name[64];
            uint64_t took[3] = { 0 };
            bool good = false;
            snprintf(name, sizeof name, "%s%s", wires[wire], row[i].list);
            ls_world_opts o = { .transport = name, .arena_bytes = 8u << 20 };
            for (int turn = 0; turn < 10 && !good; turn++) {
                if (ls_world_threads(3, &o, pairs, took) != LS_OK) fail_msg("%s: %s", name, ls_last_error());
                for (int k = 0; k < 3; k++)
                    if (row[i].slow[k] && took[k] < 199 * MS) fail_msg("%s, pair %d: %llu ns", name, k, (unsigned long long)took[k]);
                good = has_margin(row[i].slow, took);
            }
            if (!good) fail_msg("%s: %llu, %llu, %llu ns", name, (unsigned long long)took[0],
                                (unsigned long long)took[1], (unsigned long long)took[2]);
        }
}

/* Sums are right over a slow link, also with more messages in flight than it holds and with other faults. */
static void a_slow_link_changes_no_byte(void **state)
{
    (void)state;
    for (size_t wire = 0; wire < 2; wire++)
        for (int n = 2; n <= 4; n++) {
            char name[64];
            snprintf(name, sizeof name, "%s,rate=20MB/s,delay=10us@1", wires[wire]);
            ls_world_opts o = { .transport = name, .algo = "direct", .arena_bytes = 8u << 20 };
            if (ls_world_threads(n, &o, ten_sums, NULL) != LS_OK) fail_msg("%s, %d ranks: %s", name, n, ls_last_error());
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
    static const char *const name[] = { "rate", "rate=3", "rate=0MB/s", "rate=1XB/s", "rate=5MB/s@", "rate=5MB/s@1-", "rate=5MB/s@1-1",
                                        "rate=5MB/s-1", "rate=5MB/s@0-1:3", "rate=99999999999GB/s", "delay=1ms@0-1", "boom" };
    for (size_t i = 0; i < sizeof name / sizeof *name; i++) {
        char text[96];
        snprintf(text, sizeof text, "fault:self,%s", name[i]);
        if (ls_transport_check(text) != LS_BAD_CONFIG) fail_msg("'%s' is taken", text);
        assert_non_null(strstr(ls_last_error(), "the list after the transport's name is '"));
    }
    assert_int_equal(ls_transport_check("fault:tcp,rate=50MB/s@0-1,kill@0:5"), LS_OK);
    static const char *const other[] = { "tcp,rate=5MB/s", "tcp:shm", "fault:tcp:shm", "fault,rate=5MB/s", "fault:,rate=5MB/s" };
    for (size_t i = 0; i < sizeof other / sizeof *other; i++)
        if (ls_transport_check(other[i]) != LS_BAD_CONFIG) fail_msg("'%s' is taken", other[i]);
    ls_world_opts o = { .transport = "fault:fault:shm", .arena_bytes = 4u << 20 };
    assert_int_equal(ls_world_threads(1, &o, ten_sums, NULL), LS_BAD_CONFIG);
    assert_non_null(strstr(ls_last_error(), "expected fault: and one of shm, tcp, mixed and self"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_fault_has_its_effect),
        cmocka_unit_test(a_delay_takes_its_time),
        cmocka_unit_test(a_rate_slows_its_pairs_alone),
        cmocka_unit_test(a_slow_link_changes_no_byte),
        cmocka_unit_test(a_kill_is_seen_as_a_death),
        cmocka_unit_test(a_mistaken_plan_is_refused),
    };
    return cmocka_run_group_tests_name("fault", tests, NULL, NULL);
}
