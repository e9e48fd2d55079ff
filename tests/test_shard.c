/* ls_shard_range: examples first, then what users rely on. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "lockstep/shard.h"

static void gives_the_first_ranks_the_extra_elements(void **state)
{
    (void)state;
    static const struct { size_t n; int rank, size; size_t first, count; } row[] = {
        { 10, 0, 4, 0, 3 }, { 10, 1, 4, 3, 3 }, { 10, 2, 4, 6, 2 }, { 10, 3, 4, 8, 2 },
        { 2, 2, 3, 2, 0 }, /* fewer elements than ranks */
        { 0, 0, 1, 0, 0 },
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        ls_range got;
        assert_int_equal(ls_shard_range(row[i].n, row[i].rank, row[i].size, &got), LS_OK);
        assert_int_equal(got.first, row[i].first);
        assert_int_equal(got.count, row[i].count);
    }
}

static void covers_everything_once(void **state)
{
    (void)state;
    for (int size = 1; size <= 17; size++)
        for (size_t n = 0; n < 200; n += 7) {
            size_t next = 0;
            for (int rank = 0; rank < size; rank++) {
                ls_range got;
                assert_int_equal(ls_shard_range(n, rank, size, &got), LS_OK);
                assert_int_equal(got.first, next);
                next += got.count;
            }
            assert_int_equal(next, n);
        }
}

static void names_the_bad_rank(void **state)
{
    (void)state;
    static const struct { int rank, size; const char *says; } row[] = {
        { 4, 4, "rank 4 of 4" }, { -1, 4, "rank -1 of 4" }, { 0, 0, "rank 0 of 0" },
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        ls_range got = { 7, 7 };
        assert_int_equal(ls_shard_range(8, row[i].rank, row[i].size, &got), LS_INVALID);
        assert_non_null(strstr(ls_last_error(), row[i].says));
        assert_int_equal(got.count, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gives_the_first_ranks_the_extra_elements),
        cmocka_unit_test(covers_everything_once),
        cmocka_unit_test(names_the_bad_rank),
    };
    return cmocka_run_group_tests_name("shard", tests, NULL, NULL);
}
