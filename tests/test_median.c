/* The middle of some values, by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "base/median.h"

static void the_median_is_the_one_in_the_middle(void **state)
{
    (void)state;
    double odd[] = { 5, 1, 3 }, even[] = { 8, 1, 2, 4 };
    assert_true(ls_median(odd, 3) == 3 && odd[0] == 1 && odd[2] == 5);
    assert_true(ls_median(even, 4) == 3);
    assert_true(ls_median(even, 0) == 0);
}

static void a_quarter_is_below_the_lower_quartile(void **state)
{
    (void)state;
    double four[] = { 8, 1, 2, 4 }, eleven[] = { 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1 };
    assert_true(ls_lower_quartile(four, 4) == 2 && four[0] == 1 && four[3] == 8);
    assert_true(ls_lower_quartile(eleven, 11) == 3);
    assert_true(ls_lower_quartile(four + 1, 3) == 2); /* 2, 4, 8 */
    assert_true(ls_lower_quartile(four, 1) == 1);
    assert_true(ls_lower_quartile(four, 0) == 0);
}

static void a_trimmed_mean_leaves_out_the_ends(void **state)
{
    (void)state;
    const double five[] = { 100, 1, 2, 3, -50 }, four[] = { 1, 2, 3, 10 };
    assert_true(ls_trimmed_mean(five, 5) == 2);
    assert_true(ls_trimmed_mean(four, 4) == 4);
    assert_true(ls_trimmed_mean(five, 0) == 0);
}

/* The lower quartile is the third of nine; what takes more than twice as long was disturbed. */
static void a_disturbance_does_not_count(void **state)
{
    (void)state;
    double mostly[] = { 40, 8, 23, 7, 90, 6, 50, 9, 16 }, none[] = { 8, 10 }, below[] = { -10, -2, -1, 4 };
    double all[] = { 1, 2, 2.5, 3 };
    assert_true(ls_undisturbed_mean(mostly, 9) == 9.2); /* 6, 7, 8, 9 and 16: just twice as long; 23 is not */
    assert_true(ls_undisturbed_mean(none, 2) == 9);
    assert_true(ls_undisturbed_mean(all, 4) == 2.125);
    assert_true(ls_undisturbed_mean(below, 4) == -2);
    assert_true(ls_undisturbed_mean(below, 0) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_median_is_the_one_in_the_middle),
        cmocka_unit_test(a_quarter_is_below_the_lower_quartile),
        cmocka_unit_test(a_trimmed_mean_leaves_out_the_ends),
        cmocka_unit_test(a_disturbance_does_not_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
