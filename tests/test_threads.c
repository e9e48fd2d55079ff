/* Threads within a rank: no rank gets more of them than its share of the cores, and sums are cut by shape alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "base/env.h"
#include "lockstep/world.h"
#include "tensor/threads.h"

static int share_of(int ranks)
{
    const int share = ls_env_get()->cpus() / ranks;
    return share < 1 ? 1 : share;
}

static void a_lone_process_has_no_more_threads_than_cores(void **state)
{
    (void)state;
    unsetenv("OMP_NUM_THREADS");
    const int cores = ls_env_get()->cpus();
    static const int more[] = { 0, 1, 50 };
    for (size_t i = 0; i < sizeof more / sizeof *more; i++) {
        ls_world *w;
        ls_team_resize(cores + more[i]);
        assert_int_equal(ls_world_join(NULL, &w), LS_OK);
        assert_int_equal(ls_team_size(), cores);
        ls_world_leave(w);
    }
    ls_world *w;
    ls_team_resize(1); /* its owner's wish */
    assert_int_equal(ls_world_join(NULL, &w), LS_OK);
    assert_int_equal(ls_team_size(), 1);
    ls_world_leave(w);
    setenv("OMP_NUM_THREADS", "50", 1); /* the user's */
    ls_team_resize(50);
    assert_int_equal(ls_world_join(NULL, &w), LS_OK);
    assert_int_equal(ls_team_size(), 50);
    ls_world_leave(w);
    unsetenv("OMP_NUM_THREADS");
    ls_team_resize(cores);
}

static ls_status count_mine(ls_world *w, void *arg)
{
    int *threads = arg;
    threads[ls_world_rank(w)] = ls_team_size();
    return LS_OK;
}

static void ranks_that_are_threads_share_the_cores(void **state)
{
    (void)state;
    static const int ranks[] = { 1, 2, 3, 4 };
    for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++)
        for (int told = 0; told < 2; told++) { /* OMP_NUM_THREADS is for the process, not for each of its ranks */
            int threads[4] = { 0 };
            if (told) setenv("OMP_NUM_THREADS", "7", 1);
            else unsetenv("OMP_NUM_THREADS");
            assert_int_equal(ls_world_threads(ranks[i], NULL, count_mine, threads), LS_OK);
            for (int r = 0; r < ranks[i]; r++) assert_in_range(threads[r], 1, share_of(ranks[i]));
        }
    unsetenv("OMP_NUM_THREADS");
}

static void parts_cover_everything_once(void **state)
{
    (void)state;
    for (int64_t n = 0; n < 40; n++)
        for (int64_t parts = 1; parts < 20; parts++) {
            assert_int_equal(ls_part_begin(n, parts, 0), 0);
            assert_int_equal(ls_part_begin(n, parts, parts), n);
            for (int64_t i = 0; i < parts; i++) {
                const int64_t size = ls_part_begin(n, parts, i + 1) - ls_part_begin(n, parts, i);
                assert_in_range(size, n / parts, (n + parts - 1) / parts);
            }
        }
    assert_int_equal(ls_part_begin((int64_t)1 << 62, 16, 16), (int64_t)1 << 62);
}

static void sums_are_cut_by_shape(void **state)
{
    (void)state;
    assert_int_equal(ls_sum_blocks(1, 4), 1);
    assert_int_equal(ls_sum_blocks(256, 768 * 4), 3);
    assert_int_equal(ls_sum_blocks(4096, 3072 * 4), LS_MOST_SUM_BLOCKS);
    assert_int_equal(ls_sum_blocks(2, (int64_t)1 << 30), 2);
    assert_int_equal(ls_sum_blocks(0, 4), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_lone_process_has_no_more_threads_than_cores),
        cmocka_unit_test(ranks_that_are_threads_share_the_cores),
        cmocka_unit_test(parts_cover_everything_once),
        cmocka_unit_test(sums_are_cut_by_shape),
    };
    return cmocka_run_group_tests_name("threads", tests, NULL, NULL);
}
