/* The clock that ranks of a test move together: a deadline does not pass while one of them is kept from running. */
#include <string.h>
#include <unistd.h>

#include "base/env.h"
#include "harness_clock.h"
#include "net/world.h"

#define MS 1000000ull

/* Rank 1 does not look at any clock for four times the deadline. */
static ls_status one_is_kept_from_running(ls_world *w, void *arg)
{
    (void)arg;
    LS_TRY(ls_barrier(ls_world_group(w)));
    if (ls_world_rank(w) == 1) usleep(800000);
    return ls_barrier(ls_world_group(w));
}

static void a_rank_that_does_not_run_is_not_late(void **state)
{
    (void)state;
    static const char *const wires[] = { "shm", "tcp" };
    for (int i = 0; i < 8; i++) {
        const ls_world_opts o = { .transport = wires[i % 2], .coll_timeout_ns = 200 * MS,
                                  .progress = i / 2 % 2 ? LS_PROGRESS_THREAD : LS_PROGRESS_INLINE };
        const ls_test_mode mode = i / 4 ? LS_TEST_PROCESSES : LS_TEST_THREADS;
        const ls_rank_report r = ls_test_ranks_in_step(mode, 3, &o, one_is_kept_from_running, NULL);
        if (r.failed) fail_msg("way %d: %s", i, r.text);
    }
}

static ls_status one_runs_and_does_not_come(ls_world *w, void *arg)
{
    (void)arg;
    LS_TRY(ls_barrier(ls_world_group(w)));
    while (ls_world_rank(w) == 1 && !atomic_load(&w->page->abort_by)) ls_env_get()->yield();
    return ls_barrier(ls_world_group(w));
}

static void a_rank_that_runs_and_does_not_come_is_late(void **state)
{
    (void)state;
    for (int mode = 0; mode < 2; mode++) {
        const ls_world_opts o = { .coll_timeout_ns = 200 * MS };
        const uint64_t t0 = ls_env_get()->mono_ns();
        const ls_rank_report r = ls_test_ranks_in_step(mode ? LS_TEST_PROCESSES : LS_TEST_THREADS, 3, &o,
                                                       one_runs_and_does_not_come, NULL);
        assert_int_equal(r.status, LS_RANK_HUNG);
        if (!strstr(r.text, " for rank 1 (pid ")) fail_msg("%s", r.text);
        assert_true(ls_env_get()->mono_ns() - t0 >= 200 * MS); /* it is not faster than others */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_that_does_not_run_is_not_late),
        cmocka_unit_test(a_rank_that_runs_and_does_not_come_is_late),
    };
    return cmocka_run_group_tests_name("harness_clock", tests, NULL, NULL);
}
