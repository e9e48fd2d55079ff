/* Exact sums: against integers of 128 bits, whatever the order and the division; the ends of the range of doubles;
 * signs, and what is not finite. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/exact.h"

#define N 4000

__extension__ typedef __int128 wide;

static uint64_t dice(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return *seed >> 11;
}

static double sum_of(const double *x, int n)
{
    ls_exact s = { 0 };
    for (int i = 0; i < n; i++) ls_exact_add(&s, x[i]);
    return ls_exact_value(&s);
}

/* Multiples of 2^-40 below 2^40, of both signs: their sum is an integer of 128 bits times 2^-40. */
static wide fill(double *x, int n, uint64_t *seed)
{
    wide sum = 0;
    for (int i = 0; i < n; i++) {
        int64_t k = (int64_t)(dice(seed) & ((1ull << 53) - 1)) * (dice(seed) % 2 ? 1 : -1);
        const int shift = (int)(dice(seed) % 28);
        x[i] = ldexp((double)k, shift - 40);
        sum += (wide)k * ((wide)1 << shift);
    }
    return sum;
}

static void is_the_rounded_sum_of_integers(void **state)
{
    (void)state;
    uint64_t seed = 7;
    double x[N];
    for (int round = 0; round < 50; round++) {
        const wide want = fill(x, 1 + round * 79, &seed);
        /* A conversion of an integer of 128 bits rounds to nearest, too. */
        assert_true(sum_of(x, 1 + round * 79) == ldexp((double)want, -40));
    }
}

static void order_and_division_do_not_matter(void **state)
{
    (void)state;
    uint64_t seed = 8;
    double x[N];
    (void)fill(x, N, &seed);
    const double want = sum_of(x, N);
    for (int parts = 1; parts <= 9; parts++) {
        ls_exact all = { 0 };
        for (int p = parts - 1; p >= 0; p--) {
            ls_exact s = { 0 };
            for (int i = p; i < N; i += parts) ls_exact_add(&s, x[N - 1 - i]);
            if (p % 2) ls_exact_carry(&s);
            ls_exact_merge(&all, &s);
        }
        assert_true(ls_exact_value(&all) == want);
    }
    ls_exact a = { 0 }, b = { 0 }; /* word by word, as ranks do */
    for (int i = 0; i < N; i++) ls_exact_add(i % 3 ? &a : &b, x[i]);
    ls_exact_carry(&a);
    ls_exact_carry(&b);
    for (int i = 0; i < LS_EXACT_WORDS; i++) a.word[i] += b.word[i];
    assert_true(ls_exact_value(&a) == want);
}

static void nothing_is_lost_between_the_ends_of_the_range(void **state)
{
    (void)state;
    const double x[] = { 0x1p1023, 0x1p-1074, 1.0, -0x1p1023, -1.0 };
    assert_true(sum_of(x, 5) == 0x1p-1074);
    const double top[] = { 0x1p1023, 0x1p1023, -0x1p1023, 0x1.ffffffffffffep1022 };
    assert_true(sum_of(top, 4) == 0x1.fffffffffffffp1023);
    assert_true(isinf(sum_of(top, 2))); /* the sum is beyond the largest double */
    const double tiny[] = { 0x1p-1074, 0x1p-1074, -0x1p-1073, 0x0.0000000000003p-1022 };
    assert_true(sum_of(tiny, 4) == 0x0.0000000000003p-1022);
    assert_true(sum_of(x, 0) == 0.0);
    const double below[] = { 3.0, -10.0, 0x1p-60 };
    assert_true(sum_of(below, 3) == -7.0);
}

/* To nearest, ties to even, also where a digit far below decides. */
static void rounds_once(void **state)
{
    (void)state;
    const double tie[] = { 1.0, 0x1p-53 }, above[] = { 1.0, 0x1p-53, 0x1p-900 }, odd[] = { 1.0, 0x1p-52, 0x1p-53 };
    assert_true(sum_of(tie, 2) == 1.0);
    assert_true(sum_of(above, 3) == 1.0 + 0x1p-52);
    assert_true(sum_of(odd, 3) == 1.0 + 0x1p-51);
    for (int e = -40; e < 40; e++) { /* wherever the highest digit begins */
        const double x[] = { ldexp(1.0, e), ldexp(1.0, e - 53), ldexp(1.0, e - 200) };
        assert_true(sum_of(x, 2) == ldexp(1.0, e));
        assert_true(sum_of(x, 3) == ldexp(1.0 + 0x1p-52, e));
    }
}

static void says_that_a_number_was_not_finite(void **state)
{
    (void)state;
    const double bad[] = { 1.0, (double)INFINITY, 2.0 }, worse[] = { (double)NAN }, minus[] = { -(double)INFINITY };
    assert_true(isnan(sum_of(bad, 3)) && isnan(sum_of(worse, 1)) && isnan(sum_of(minus, 1)));
    ls_exact s = { 0 }, t = { 0 };
    ls_exact_add(&s, (double)NAN);
    ls_exact_add(&t, 1.0);
    ls_exact_merge(&t, &s);
    assert_true(isnan(ls_exact_value(&t)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(is_the_rounded_sum_of_integers),
        cmocka_unit_test(order_and_division_do_not_matter),
        cmocka_unit_test(nothing_is_lost_between_the_ends_of_the_range),
        cmocka_unit_test(rounds_once),
        cmocka_unit_test(says_that_a_number_was_not_finite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
