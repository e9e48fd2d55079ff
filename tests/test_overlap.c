/* The predicted time of a step with overlapped buckets: closed forms, a schedule worked out by hand, bad input. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "parallel/overlap.h"

#define KIB ((size_t)1 << 10)
#define N 64

/* N gradients of 4 KiB, one ready each microsecond: gradient i after i + 1 of them. */
static size_t bytes[N];
static double ready[N];

static ls_overlap even(double alpha, double beta)
{
    for (int i = 0; i < N; i++) {
        bytes[i] = 4 * KIB;
        ready[i] = 1000.0 * (i + 1);
    }
    return (ls_overlap){ .n = N, .nbytes = bytes, .ready_ns = ready, .backward_ns = 1000.0 * N, .rest_ns = 7000,
                         .alpha_ns = alpha, .beta_ns = beta };
}

static ls_overlap_step predict(const ls_overlap *o, size_t first, size_t cap)
{
    ls_overlap_step s;
    assert_int_equal(ls_overlap_predict(o, first, cap, &s), LS_OK);
    return s;
}

static void the_timeline_is_the_schedule_of_the_prediction(void **state)
{
    (void)state;
    const ls_overlap o = even(5000, 0.25); /* 16 KiB take 5000 + 4096 ns, and 4 more gradients come in 4000 */
    ls_overlap_bucket b[N];
    ls_overlap_step s;
    assert_int_equal(ls_overlap_timeline(&o, 4 * KIB, 16 * KIB, b, &s), LS_OK);
    assert_int_equal(s.nbuckets, 17); /* 1, then 15 times 4, then 3 */
    double end = 0;
    for (int k = 0, at = 0; k < s.nbuckets; at += b[k++].n) {
        assert_int_equal(b[k].first, at);
        assert_int_equal(b[k].n, k == 0 ? 1 : k < 16 ? 4 : 3);
        assert_int_equal(b[k].nbytes, (size_t)b[k].n * 4 * KIB);
        assert_true(b[k].ready_ns == 1000.0 * (at + b[k].n));
        assert_true(b[k].start_ns == (b[k].ready_ns > end ? b[k].ready_ns : end)); /* one at a time */
        end = b[k].start_ns + 5000 + 0.25 * (double)b[k].nbytes;
        assert_true(b[k].end_ns == end);
    }
    assert_true(s.exposed_ns == end - o.backward_ns);
}

static void one_bucket_takes_backward_and_all_of_the_all_reduce(void **state)
{
    (void)state;
    const ls_overlap o = even(5000, 0.25);
    const ls_overlap_step s = predict(&o, N * 4 * KIB, N * 4 * KIB);
    const double comm = 5000 + 0.25 * N * 4096; /* alpha + beta S */
    assert_int_equal(s.nbuckets, 1);
    assert_true(s.exposed_ns == comm);
    assert_true(s.step_ns == 7000 + 64000 + comm);
    assert_true(s.first_bucket == N * 4 * KIB && s.bucket_cap == N * 4 * KIB);
}

/* A bucket per gradient, and alpha longer than the time between two gradients: from the first one on, all_reduces
 * follow one another without a gap, N alpha + beta S. */
static void buckets_of_one_gradient_are_bound_by_latency(void **state)
{
    (void)state;
    const ls_overlap o = even(3000, 0.25);
    const ls_overlap_step s = predict(&o, 1, 1);
    const double end = 1000 + N * (3000 + 0.25 * 4096);
    assert_int_equal(s.nbuckets, N);
    assert_true(s.exposed_ns == end - 64000);
    assert_true(s.step_ns == 7000 + end);
}

/* Each all_reduce ends before the next gradient is ready: only the last one is exposed. */
static void a_fast_network_exposes_the_last_bucket_alone(void **state)
{
    (void)state;
    const ls_overlap o = even(400, 0.125);
    const ls_overlap_step s = predict(&o, 1, 1);
    assert_true(s.exposed_ns == 400 + 0.125 * 4096);
}

static void nothing_is_exposed_while_backward_goes_on(void **state)
{
    (void)state;
    ls_overlap o = even(400, 0.125);
    o.backward_ns += 912; /* to the nanosecond that the last all_reduce takes */
    ls_overlap_step s = predict(&o, 1, 1);
    assert_true(s.exposed_ns == 0 && s.step_ns == 7000 + 64912);
    o.backward_ns += 5000;
    s = predict(&o, 1, 1);
    assert_true(s.exposed_ns == 0 && s.step_ns == 7000 + 69912);
}

/*   ready      10   20        50        60      backward ends at 70
 *   bytes     100  200       100       300      alpha 5, beta 0.1
 *   buckets   [ 0 ][    1    ]        [ 2 ]     limits: 100, then 300
 *   0: starts 10, ends 10 + 5 + 10 = 25
 *   1: ready at 50, ends 50 + 5 + 30 = 85
 *   2: ready at 60, but the network is free at 85 only: ends 85 + 5 + 30 = 120 */
static void buckets_wait_for_gradients_and_for_one_another(void **state)
{
    (void)state;
    static const size_t nbytes[] = { 100, 200, 100, 300 };
    static const double at[] = { 10, 20, 50, 60 };
    const ls_overlap o = { .n = 4, .nbytes = nbytes, .ready_ns = at, .backward_ns = 70, .rest_ns = 30,
                           .alpha_ns = 5, .beta_ns = 0.1 };
    const ls_overlap_step s = predict(&o, 100, 300);
    assert_int_equal(s.nbuckets, 3);
    assert_true(fabs(s.exposed_ns - 50) < 1e-9); /* sums of a few numbers, of which 0.1 is rounded */
    assert_true(fabs(s.step_ns - 150) < 1e-9);
}

static void the_best_cap_is_between_the_extremes(void **state)
{
    (void)state;
    const ls_overlap o = even(3000, 0.125);
    size_t cap[LS_OVERLAP_CAPS];
    ls_overlap_step s[LS_OVERLAP_CAPS];
    const int n = ls_overlap_caps(N * 4 * KIB, 0, cap);
    for (int i = 0; i < n; i++) s[i] = predict(&o, cap[i], cap[i]);
    const int best = ls_overlap_best(s, n);
    assert_in_range(best, 1, n - 2);
    for (int i = 0; i < best; i++) assert_true(s[i].step_ns >= s[i + 1].step_ns); /* falls, */
    for (int i = best; i + 1 < n; i++) assert_true(s[i].step_ns <= s[i + 1].step_ns); /* then rises */
}

static void of_equal_steps_the_first_is_the_best(void **state)
{
    (void)state;
    static const ls_overlap_step s[] = { { .step_ns = 3 }, { .step_ns = 2 }, { .step_ns = 2 }, { .step_ns = 4 } };
    assert_int_equal(ls_overlap_best(s, 4), 1);
    assert_int_equal(ls_overlap_best(s, 1), 0);
}

static void tries_caps_from_a_kibibyte_to_all_bytes(void **state)
{
    (void)state;
    static const struct { size_t total, now; int n; size_t cap[6]; } row[] = {
        { 100 * KIB, 1000 * KIB, 5, { KIB, 4 * KIB, 16 * KIB, 64 * KIB, 100 * KIB } },
        { 100 * KIB, 20 * KIB, 6, { KIB, 4 * KIB, 16 * KIB, 20 * KIB, 64 * KIB, 100 * KIB } },
        { 100 * KIB, 80 * KIB, 6, { KIB, 4 * KIB, 16 * KIB, 64 * KIB, 80 * KIB, 100 * KIB } },
        { 100 * KIB, 16 * KIB, 5, { KIB, 4 * KIB, 16 * KIB, 64 * KIB, 100 * KIB } },
        { 4 * KIB, 4 * KIB, 2, { KIB, 4 * KIB } },
        { 100, 50, 2, { 50, 100 } },
        { 100, 100, 1, { 100 } },
        { 100, 0, 1, { 100 } },
        { 3 * KIB, 512, 3, { 512, KIB, 3 * KIB } },
    };
    size_t cap[LS_OVERLAP_CAPS];
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        assert_int_equal(ls_overlap_caps(row[i].total, row[i].now, cap), row[i].n);
        for (int k = 0; k < row[i].n; k++) assert_int_equal(cap[k], row[i].cap[k]);
    }
    const int n = ls_overlap_caps(SIZE_MAX, 5 * KIB, cap); /* no end is in sight */
    assert_in_range(n, 1, LS_OVERLAP_CAPS);
    assert_int_equal(cap[n - 1], SIZE_MAX);
    for (int k = 1; k < n; k++) assert_true(cap[k] > cap[k - 1]);
}

static void refuses_what_is_no_step(void **state)
{
    (void)state;
    static const double descending[] = { 10, 5 };
    static const size_t nbytes[] = { 4, 4 };
    ls_overlap_step s;
    ls_overlap o = even(1, 1);
    o.n = 0;
    assert_int_equal(ls_overlap_predict(&o, 1, 1, &s), LS_INVALID);
    assert_non_null(strstr(ls_last_error(), "0 gradients"));
    o = (ls_overlap){ .n = 2, .nbytes = nbytes, .ready_ns = descending, .backward_ns = 20 };
    assert_int_equal(ls_overlap_predict(&o, 1, 1, &s), LS_INVALID);
    assert_non_null(strstr(ls_last_error(), "gradient 1"));
    o = even(1, 1);
    o.backward_ns = 63999;
    assert_int_equal(ls_overlap_predict(&o, 1, 1, &s), LS_INVALID);
    assert_non_null(strstr(ls_last_error(), "backward takes 63999 ns"));
    o = even(-1, 1);
    assert_int_equal(ls_overlap_predict(&o, 1, 1, &s), LS_INVALID);
    o = even(1, -1);
    assert_int_equal(ls_overlap_predict(&o, 1, 1, &s), LS_INVALID);
    o = even(1, NAN);
    assert_int_equal(ls_overlap_predict(&o, 1, 1, &s), LS_INVALID);
    o = even(1, 1);
    o.rest_ns = -1;
    assert_int_equal(ls_overlap_predict(&o, 1, 1, &s), LS_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_timeline_is_the_schedule_of_the_prediction),
        cmocka_unit_test(one_bucket_takes_backward_and_all_of_the_all_reduce),
        cmocka_unit_test(buckets_of_one_gradient_are_bound_by_latency),
        cmocka_unit_test(a_fast_network_exposes_the_last_bucket_alone),
        cmocka_unit_test(nothing_is_exposed_while_backward_goes_on),
        cmocka_unit_test(buckets_wait_for_gradients_and_for_one_another),
        cmocka_unit_test(the_best_cap_is_between_the_extremes),
        cmocka_unit_test(of_equal_steps_the_first_is_the_best),
        cmocka_unit_test(tries_caps_from_a_kibibyte_to_all_bytes),
        cmocka_unit_test(refuses_what_is_no_step),
    };
    return cmocka_run_group_tests_name("overlap", tests, NULL, NULL);
}
