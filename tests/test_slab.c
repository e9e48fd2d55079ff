/* The tape's memory: a stack whose holes are used again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "tensor/slab.h"

static void pushes_in_units_of_64_and_says_when_it_is_full(void **state)
{
    (void)state;
    ls_slab s = { .size = 256 };
    assert_int_equal(ls_slab_push(&s, 1), 0);
    assert_int_equal(ls_slab_push(&s, 65), 64);
    assert_int_equal(ls_slab_push(&s, 0), 192);
    assert_int_equal(ls_slab_push(&s, 65), LS_SLAB_FULL);
    assert_int_equal(ls_slab_push(&s, SIZE_MAX), LS_SLAB_FULL);
    assert_int_equal(ls_slab_take(&s, SIZE_MAX), LS_SLAB_FULL);
    assert_int_equal(ls_slab_push(&s, 64), 192);
    assert_int_equal(s.used, 256);
    assert_int_equal(s.peak, 256);
}

static void takes_the_smallest_hole_that_fits(void **state)
{
    (void)state;
    ls_slab s = { .size = 4096 };
    (void)ls_slab_push(&s, 512);
    ls_slab_give(&s, 0, 192);
    ls_slab_give(&s, 256, 128);                     /* holes [0, 192) and [256, 384) */
    assert_int_equal(ls_slab_push(&s, 64), 512);    /* the stack does not look at them */
    assert_int_equal(ls_slab_take(&s, 128), 256);
    assert_int_equal(ls_slab_take(&s, 64), 0);
    assert_int_equal(ls_slab_take(&s, 192), 576);   /* [64, 192) is too small */
    assert_int_equal(ls_slab_take(&s, 128), 64);
    assert_int_equal(s.nholes, 0);
}

static void neighbours_join_and_the_end_sinks(void **state)
{
    (void)state;
    ls_slab s = { .size = 4096 };
    for (int i = 0; i < 5; i++) (void)ls_slab_push(&s, 64);
    ls_slab_give(&s, 64, 64);
    ls_slab_give(&s, 192, 64);
    assert_int_equal(s.nholes, 2);
    ls_slab_give(&s, 128, 64);
    assert_int_equal(s.nholes, 1);
    ls_slab_give(&s, 256, 64); /* the last: nothing is left above the first */
    assert_int_equal(s.nholes, 0);
    assert_int_equal(s.used, 64);
    assert_int_equal(s.peak, 320);
}

static void a_release_ends_what_is_above_and_nothing_sinks_below_the_floor(void **state)
{
    (void)state;
    ls_slab s = { .size = 4096 };
    (void)ls_slab_push(&s, 256);
    s.floor = 256;
    (void)ls_slab_push(&s, 64);
    ls_slab_give(&s, 128, 128);
    ls_slab_give(&s, 256, 64);
    assert_int_equal(s.used, 320); /* one hole from 128 on, which begins below the floor */
    assert_int_equal(s.nholes, 1);
    ls_slab_release(&s, 256);
    assert_int_equal(s.used, 256);
    assert_int_equal(s.hole[0].n, 128);
    assert_int_equal(ls_slab_take(&s, 128), 128);
}

/* Against a map of who owns each unit, for random calls: nobody gets what another has, and what nobody has can
 * be had again. */
static void never_hands_out_what_somebody_has(void **state)
{
    (void)state;
    enum { UNITS = 512, MOST = 128 };
    uint32_t random = 1;
    for (int round = 0; round < 50; round++) {
        ls_slab s = { .size = UNITS * 64 };
        struct { size_t at, n; } piece[MOST];
        uint8_t owned[UNITS] = { 0 };
        int n = 0;
        for (int i = 0; i < 400; i++) {
            random = random * 1664525u + 1013904223u;
            if (n > 0 && (random >> 28) < 7) {
                const int k = (int)(random >> 8) % n;
                ls_slab_give(&s, piece[k].at, piece[k].n);
                memset(owned + piece[k].at / 64, 0, (piece[k].n + 63) / 64);
                piece[k] = piece[--n];
            } else if (n < MOST) {
                const size_t want = 1 + (random >> 12) % 900;
                const size_t at = random & 1024 ? ls_slab_take(&s, want) : ls_slab_push(&s, want);
                if (at == LS_SLAB_FULL) continue;
                for (size_t u = at / 64; u < (at + want + 63) / 64; u++) {
                    if (owned[u]) fail_msg("round %d, call %d: unit %zu is given twice", round, i, u);
                    owned[u] = 1;
                }
                piece[n].at = at;
                piece[n++].n = want;
            }
            size_t held = 0, free_below = 0;
            for (size_t u = 0; u < UNITS; u++) held += owned[u];
            for (int k = 0; k < s.nholes; k++) free_below += s.hole[k].n / 64;
            if (held + free_below != s.used / 64) fail_msg("round %d, call %d: %zu units held, %zu free, %zu used", round, i, held, free_below, s.used / 64);
        }
        while (n > 0) ls_slab_give(&s, piece[n - 1].at, piece[n - 1].n), n--;
        assert_int_equal(s.used, 0);
        assert_int_equal(s.nholes, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pushes_in_units_of_64_and_says_when_it_is_full),
        cmocka_unit_test(takes_the_smallest_hole_that_fits),
        cmocka_unit_test(neighbours_join_and_the_end_sinks),
        cmocka_unit_test(a_release_ends_what_is_above_and_nothing_sinks_below_the_floor),
        cmocka_unit_test(never_hands_out_what_somebody_has),
    };
    return cmocka_run_group_tests_name("slab", tests, NULL, NULL);
}
