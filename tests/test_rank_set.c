/* ls_rank_set: sets of ranks on both sides of each word's end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/rank_set.h"

static const int sizes[] = { 1, 2, 63, 64, 65, 127, 128, 129, 256, 1000, 65536 };
#define EACH_SIZE(n) for (size_t i_ = 0, n; i_ < sizeof sizes / sizeof *sizes && ((n = (size_t)sizes[i_]), true); i_++)

static ls_rank_set of(size_t size)
{
    ls_rank_set s;
    assert_int_equal(ls_rank_set_create((int)size, &s), LS_OK);
    return s;
}

static void has_whom_it_was_given(void **state)
{
    (void)state;
    EACH_SIZE(n) {
        ls_rank_set s = of(n);
        assert_true(ls_rank_set_is_empty(&s));
        for (int r = 0; r < (int)n; r += 3) ls_rank_set_add(&s, r);
        for (int r = 0; r < (int)n; r++) assert_int_equal(ls_rank_set_has(&s, r), r % 3 == 0);
        assert_int_equal(ls_rank_set_count(&s), (n + 2) / 3);
        for (int r = 0; r < (int)n; r += 6) ls_rank_set_remove(&s, r);
        for (int r = 0; r < (int)n; r++) assert_int_equal(ls_rank_set_has(&s, r), r % 6 == 3);
        ls_rank_set_clear(&s);
        assert_true(ls_rank_set_is_empty(&s));
        ls_rank_set_free(&s);
    }
}

static void all_are_exactly_its_size(void **state)
{
    (void)state;
    EACH_SIZE(n) {
        ls_rank_set s = of(n);
        ls_rank_set_add_all(&s);
        assert_int_equal(ls_rank_set_count(&s), n);
        assert_true(ls_rank_set_has(&s, 0));
        assert_true(ls_rank_set_has(&s, (int)n - 1));
        ls_rank_set_free(&s);
    }
}

static void ranks_outside_are_in_no_set(void **state)
{
    (void)state;
    EACH_SIZE(n) {
        ls_rank_set s = of(n);
        ls_rank_set_add_all(&s);
        assert_false(ls_rank_set_has(&s, -1));
        assert_false(ls_rank_set_has(&s, (int)n));
        assert_false(ls_rank_set_has(&s, INT32_MAX));
        assert_int_equal(ls_rank_set_next(&s, (int)n), -1);
        assert_int_equal(ls_rank_set_next(&s, -5), 0);
        ls_rank_set_free(&s);
    }
}

static void next_visits_each_member_once_in_order(void **state)
{
    (void)state;
    static const int in[] = { 0, 1, 62, 63, 64, 127, 129, 255, 256, 999 };
    const int n = sizeof in / sizeof *in;
    ls_rank_set s = of(1000);
    for (int i = 0; i < n; i++) ls_rank_set_add(&s, in[i]);
    int seen = 0;
    for (int r = ls_rank_set_next(&s, 0); r >= 0; r = ls_rank_set_next(&s, r + 1)) assert_int_equal(r, in[seen++]);
    assert_int_equal(seen, n);
    ls_rank_set_free(&s);
}

static void zero_bytes_are_a_set_of_nobody(void **state)
{
    (void)state;
    ls_rank_set s = { 0 };
    char text[8] = "x";
    assert_true(ls_rank_set_is_empty(&s));
    assert_false(ls_rank_set_has(&s, 0));
    assert_int_equal(ls_rank_set_count(&s), 0);
    ls_rank_set_clear(&s);
    ls_rank_set_add_all(&s);
    assert_string_equal(ls_rank_set_text(&s, text, sizeof text), "");
    ls_rank_set_free(&s);
    assert_int_equal(ls_rank_set_create(0, &s), LS_OK);
    assert_int_equal(ls_rank_set_create(-1, &s), LS_INVALID);
}

static void text_has_ranges(void **state)
{
    (void)state;
    static const struct { int in[8]; const char *text; } row[] = {
        { { -1 }, "" },
        { { 0, -1 }, "0" },
        { { 0, 1, -1 }, "0, 1" },
        { { 0, 1, 2, -1 }, "0-2" },
        { { 1, 2, 4, 62, 63, 64, 65, -1 }, "1, 2, 4, 62-65" },
        { { 199, -1 }, "199" },
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        ls_rank_set s = of(200);
        char text[64];
        for (int k = 0; row[i].in[k] >= 0; k++) ls_rank_set_add(&s, row[i].in[k]);
        assert_string_equal(ls_rank_set_text(&s, text, sizeof text), row[i].text);
        ls_rank_set_free(&s);
    }
}

/* Whatever the buffer's size, nothing is written past it, and what is cut says so. */
static void text_that_does_not_fit_ends_in_dots(void **state)
{
    (void)state;
    ls_rank_set s = of(300);
    char all[1024], text[1024];
    for (int r = 0; r < 300; r += 2) ls_rank_set_add(&s, r);
    ls_rank_set_text(&s, all, sizeof all);
    for (size_t n = 1; n < sizeof text; n++) {
        memset(text, '#', sizeof text);
        ls_rank_set_text(&s, text, n);
        assert_true(strlen(text) < n);
        assert_int_equal(text[n], '#');
        if (n > strlen(all)) assert_string_equal(text, all);
        else if (n > 8) {
            assert_string_equal(text + strlen(text) - 3, "...");
            assert_memory_equal(text, all, strlen(text) - 3);
        }
    }
    ls_rank_set_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(has_whom_it_was_given),
        cmocka_unit_test(all_are_exactly_its_size),
        cmocka_unit_test(ranks_outside_are_in_no_set),
        cmocka_unit_test(next_visits_each_member_once_in_order),
        cmocka_unit_test(zero_bytes_are_a_set_of_nobody),
        cmocka_unit_test(text_has_ranges),
        cmocka_unit_test(text_that_does_not_fit_ends_in_dots),
    };
    return cmocka_run_group_tests_name("rank_set", tests, NULL, NULL);
}
