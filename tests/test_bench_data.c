/* bench_data: a right result has nothing wrong, and every way of being wrong shows. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/bench.h"
#include "coll/reduce.h"
#include "harness.h"

#define COUNT 4200 /* several blocks and a rest; a multiple of all sizes below */

static const int sizes[] = { 1, 2, 3, 7, 60 };
#define NSIZES (sizeof sizes / sizeof *sizes)

static ls_bench_case case_of(ls_coll coll, ls_dtype t, ls_redop op, int size)
{
    return (ls_bench_case){ .coll = coll, .dtype = t, .op = op, .size = size, .root = size / 2, .count = COUNT,
                            .round = 5 };
}

static bool defined(ls_dtype t, ls_redop op)
{
    return op != LS_AVG || t == LS_F32 || t == LS_F64 || t == LS_BF16 || t == LS_F16;
}

/* The reduction of all contributions but `without` (-1: of all), by the library's own kernel in the given order. */
static void reduced(const ls_bench_case *c, bool descending, int without, void *out)
{
    size_t elem = ls_dtype_size(c->dtype);
    const void *src[64] = { 0 };
    int n = 0;
    for (int k = 0; k < c->size; k++) {
        int r = descending ? c->size - 1 - k : k;
        if (r == without) continue;
        char *v = malloc(COUNT * elem);
        assert_non_null(v);
        ls_bench_fill(c, r, 0, COUNT, v);
        src[n++] = v;
    }
    ls_reduce_n(&out, 1, src, n, COUNT, c->dtype, c->op, 1.0 / c->size);
    while (n > 0) free((void *)(uintptr_t)src[--n]);
}

static void every_right_reduction_has_nothing_wrong(void **state)
{
    (void)state;
    static double out[COUNT];
    for (size_t i = 0; i < NSIZES; i++)
        for (int t = 0; t < LS_DTYPES; t++)
            for (int op = 0; op < LS_REDOPS; op++)
                for (int order = 0; order < 2 && defined((ls_dtype)t, (ls_redop)op); order++) {
                    ls_bench_case c = case_of(LS_ALL_REDUCE, (ls_dtype)t, (ls_redop)op, sizes[i]);
                    reduced(&c, order, -1, out);
                    if (ls_bench_wrong(&c, 0, 0, COUNT, out) != 0)
                        fail_msg("%s %s over %d ranks, order %d", ls_dtype_name(c.dtype), ls_redop_name(c.op), c.size, order);
                }
}

/* Rounding to the dtype after each rank, as a ring does, changes nothing either. */
static void sums_round_by_round_are_exact_too(void **state)
{
    (void)state;
    static double acc[COUNT], next[COUNT];
    for (int t = 0; t < LS_DTYPES; t++)
        for (int op = 0; op < LS_REDOPS; op++) {
            ls_bench_case c = case_of(LS_ALL_REDUCE, (ls_dtype)t, (ls_redop)op, 60);
            if (!defined(c.dtype, c.op)) continue;
            for (int r = 0; r < c.size; r++) {
                ls_bench_fill(&c, r, 0, COUNT, r ? next : acc);
                if (c.op == LS_AVG) ls_scale_values(r ? next : acc, COUNT, c.dtype, 1.0 / c.size);
                if (r) ls_reduce_2(acc, next, COUNT, c.dtype, c.op);
            }
            if (ls_bench_wrong(&c, 0, 0, COUNT, acc) != 0)
                fail_msg("%s %s", ls_dtype_name(c.dtype), ls_redop_name(c.op));
        }
}

static void one_changed_bit_is_one_wrong_element(void **state)
{
    (void)state;
    static double out[COUNT];
    for (int t = 0; t < LS_DTYPES; t++) {
        ls_bench_case c = case_of(LS_ALL_REDUCE, (ls_dtype)t, LS_SUM, 3);
        size_t elem = ls_dtype_size(c.dtype);
        reduced(&c, false, -1, out);
        for (size_t bit = 0; bit < 8 * elem; bit++) {
            static const size_t at[] = { 0, 1023, 1024, COUNT - 1 };
            for (size_t k = 0; k < 4; k++) {
                unsigned char *p = (unsigned char *)out + at[k] * elem + bit / 8;
                *p ^= (unsigned char)(1u << bit % 8);
                assert_int_equal(ls_bench_wrong(&c, 0, 0, COUNT, out), 1);
                *p ^= (unsigned char)(1u << bit % 8);
            }
        }
        assert_int_equal(ls_bench_wrong(&c, 0, 0, COUNT, out), 0);
    }
}

/* A contribution that is missing or counted twice must show whatever dtype and operation are: not in every element
 * (a least value is often another's), but in some. */
static void a_missing_rank_shows(void **state)
{
    (void)state;
    static double out[COUNT];
    for (size_t i = 1; i < NSIZES; i++)
        for (int t = 0; t < LS_DTYPES; t++)
            for (int op = 0; op < LS_REDOPS; op++)
                for (int r = 0; r < sizes[i] && defined((ls_dtype)t, (ls_redop)op); r++) {
                    ls_bench_case c = case_of(LS_REDUCE_SCATTER, (ls_dtype)t, (ls_redop)op, sizes[i]);
                    /* 60 values of 2 bits: others have the same least value almost everywhere */
                    if (sizes[i] > 7 && t == LS_BF16 && (op == LS_MIN || op == LS_MAX)) continue;
                    reduced(&c, false, r, out);
                    if (ls_bench_wrong(&c, 0, 0, COUNT, out) == 0)
                        fail_msg("%s %s without rank %d of %d", ls_dtype_name(c.dtype), ls_redop_name(c.op), r, c.size);
                }
}

static void another_round_is_wrong(void **state)
{
    (void)state;
    static double out[COUNT];
    for (int t = 0; t < LS_DTYPES; t++)
        for (int op = 0; op < LS_REDOPS; op++) {
            ls_bench_case c = case_of(LS_ALL_REDUCE, (ls_dtype)t, (ls_redop)op, 2);
            if (!defined(c.dtype, c.op)) continue;
            reduced(&c, false, -1, out);
            c.round++;
            size_t wrong = ls_bench_wrong(&c, 0, 0, COUNT, out);
            if (wrong < COUNT / 20) fail_msg("%s %s: %zu wrong", ls_dtype_name(c.dtype), ls_redop_name(c.op), wrong);
        }
}

/* --- what only moves ------------------------------------------------------------------------ */

static void shares_are_checked_where_they_belong(void **state)
{
    (void)state;
    static double out[COUNT];
    for (size_t i = 0; i < NSIZES; i++) {
        ls_bench_case c = case_of(LS_ALL_GATHER, LS_F32, LS_SUM, sizes[i]);
        size_t share = COUNT / (size_t)c.size;
        for (size_t r = 0; r < (size_t)c.size; r++)
            ls_bench_fill(&c, (int)r, r * share, share, (float *)out + r * share);
        assert_int_equal(ls_bench_wrong(&c, 0, 0, COUNT, out), 0);
        if (c.size == 1) continue;
        ls_bench_fill(&c, 0, share, share, (float *)out + share); /* rank 0's values in rank 1's place */
        size_t wrong = ls_bench_wrong(&c, 0, 0, COUNT, out);
        assert_true(wrong > share / 2 && wrong <= share);
    }
    ls_bench_case c = case_of(LS_REDUCE_SCATTER, LS_F32, LS_SUM, 3);
    reduced(&c, false, -1, out);
    assert_int_equal(ls_bench_wrong(&c, 1, COUNT / 3, COUNT / 3, (float *)out + COUNT / 3), 0);
    assert_true(ls_bench_wrong(&c, 1, COUNT / 3, COUNT / 3, out) > COUNT / 6); /* another rank's share */
}

static void broadcast_and_sendrecv_have_one_source(void **state)
{
    (void)state;
    static double out[COUNT];
    ls_bench_case b = case_of(LS_BROADCAST, LS_BF16, LS_SUM, 7), s = case_of(LS_SENDRECV, LS_U8, LS_SUM, 7);
    ls_bench_fill(&b, 3, 0, COUNT, out);
    assert_int_equal(ls_bench_wrong(&b, 6, 0, COUNT, out), 0);
    ls_bench_fill(&b, 6, 0, COUNT, out);
    assert_true(ls_bench_wrong(&b, 6, 0, COUNT, out) > COUNT / 4); /* its own data are still there */
    ls_bench_fill(&s, 6, 0, COUNT, out);
    assert_int_equal(ls_bench_wrong(&s, 0, 0, COUNT, out), 0); /* rank 0's left neighbour is rank 6 */
    assert_true(ls_bench_wrong(&s, 6, 0, COUNT, out) > COUNT / 4);
}

/* --- numbers ----------------------------------------------------------------------------------- */

static void numbers_keep_to_their_columns(void **state)
{
    (void)state;
    static const struct { double v; int width; const char *text; } row[] = {
        { 0.104, 7, "0.10" },      { 9.876, 7, "9.88" },     { 1234.567, 7, "1234.57" }, { 12345.67, 7, "12345.7" },
        { 123456.7, 7, "123457" }, { 1234567, 7, "1234567" }, { 12345678, 7, "1.2e+07" }, { 99.999, 6, "100.00" },
        { 123.456, 6, "123.46" },  { 1234.56, 6, "1234.6" },  { 12345.6, 6, "12346" },    { 1234567, 6, "1e+06" },
        { 0, 6, "0.00" },
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        char text[32];
        ls_bench_number(row[i].v, row[i].width, text);
        assert_string_equal(text, row[i].text);
    }
}

static void bus_factors_are_those_of_nccl_tests(void **state)
{
    (void)state;
    static const struct { ls_coll coll; int size; double factor; } row[] = {
        { LS_ALL_REDUCE, 2, 1.0 },      { LS_ALL_REDUCE, 4, 1.5 },  { LS_REDUCE_SCATTER, 4, 0.75 }, { LS_ALL_GATHER, 4, 0.75 },
        { LS_ALL_TO_ALL, 4, 0.75 },     { LS_BROADCAST, 4, 1.0 },   { LS_REDUCE, 4, 1.0 },          { LS_SENDRECV, 4, 1.0 },
        { LS_ALL_REDUCE, 1, 0.0 },
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        assert_true(ls_bench_bus_factor(row[i].coll, row[i].size) == row[i].factor);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_right_reduction_has_nothing_wrong),
        cmocka_unit_test(sums_round_by_round_are_exact_too),
        cmocka_unit_test(one_changed_bit_is_one_wrong_element),
        cmocka_unit_test(a_missing_rank_shows),
        cmocka_unit_test(another_round_is_wrong),
        cmocka_unit_test(shares_are_checked_where_they_belong),
        cmocka_unit_test(broadcast_and_sendrecv_have_one_source),
        cmocka_unit_test(numbers_keep_to_their_columns),
        cmocka_unit_test(bus_factors_are_those_of_nccl_tests),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
