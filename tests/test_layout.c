/* Chunks as byte offsets: shares cut over ranks, then over segments. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "coll/layout.h"

static ls_layout layout_of(ls_coll coll, int size, int segments, size_t count)
{
    uint32_t parts = coll == LS_BARRIER ? 0 : coll == LS_BROADCAST ? 1 : (uint32_t)size;
    ls_sched s = { .shape = { .coll = coll, .size = size, .segments = segments, .nlanes = 1 } };
    ls_layout l;
    s.nchunks[LS_BUF_OUT] = parts * (uint32_t)segments;
    assert_int_equal(ls_layout_create(&s, &l), LS_OK);
    ls_layout_set(&l, count);
    return l;
}

static void cuts_shares_and_then_segments(void **state)
{
    (void)state;
    static const struct {
        ls_coll coll;
        int size, segments;
        size_t count, at[9];
    } row[] = {
        { LS_ALL_REDUCE, 4, 1, 10, { 0, 3, 6, 8, 10 } },
        { LS_ALL_REDUCE, 2, 2, 7, { 0, 2, 4, 6, 7 } },              /* shares 4, 3; halves 2+2, 2+1 */
        { LS_REDUCE_SCATTER, 3, 2, 2, { 0, 1, 1, 2, 2, 2, 2 } },    /* an empty share, empty segments */
        { LS_ALL_GATHER, 2, 1, 0, { 0, 0, 0 } },
        { LS_BROADCAST, 5, 3, 8, { 0, 3, 6, 8 } },                  /* not cut over ranks */
        { LS_BARRIER, 5, 1, 8, { 0 } },
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        ls_layout l = layout_of(row[i].coll, row[i].size, row[i].segments, row[i].count);
        for (uint32_t c = 0; c <= l.nchunks; c++) assert_int_equal(l.at[LS_BUF_OUT][c], row[i].at[c]);
        ls_layout_free(&l);
    }
}

static void covers_every_element_once(void **state)
{
    (void)state;
    for (int size = 1; size <= 9; size++)
        for (int segments = 1; segments <= 4; segments++)
            for (size_t count = 0; count < 60; count += 7) {
                ls_layout l = layout_of(LS_ALL_REDUCE, size, segments, count);
                ls_slice all = { LS_BUF_OUT, 0, l.nchunks };
                assert_int_equal(ls_layout_first(&l, all), 0);
                assert_int_equal(ls_layout_count(&l, all), count);
                for (uint32_t c = 0; c < l.nchunks; c++) assert_true(l.at[LS_BUF_OUT][c] <= l.at[LS_BUF_OUT][c + 1]);
                ls_layout_free(&l);
            }
}

static void can_be_set_again(void **state)
{
    (void)state;
    ls_layout l = layout_of(LS_ALL_REDUCE, 2, 1, 10);
    ls_layout_set(&l, 4);
    assert_int_equal(l.at[LS_BUF_OUT][1], 2);
    ls_layout_set(&l, 4);
    ls_layout_set(&l, 10);
    assert_int_equal(l.at[LS_BUF_OUT][1], 5);
    ls_layout_free(&l);
}

static void refuses_chunks_it_cannot_place(void **state)
{
    (void)state;
    ls_sched s = { .shape = { .coll = LS_ALL_REDUCE, .size = 3, .segments = 2, .nlanes = 1 }, .nchunks = { 0, 5, 0 } };
    ls_layout l;
    assert_int_equal(ls_layout_create(&s, &l), LS_UNSUPPORTED);
    assert_non_null(strstr(ls_last_error(), "has 5 chunks, expected 6"));
    s.nchunks[LS_BUF_OUT] = 6;
    s.nchunks[LS_BUF_TMP] = 2;
    assert_int_equal(ls_layout_create(&s, &l), LS_UNSUPPORTED);
}

static void only_schedules_with_tmp_need_memory_for_it(void **state)
{
    (void)state;
    ls_shape shape = { LS_ALL_REDUCE, 0, 3, 0, 1, 1, NULL, false };
    ls_sched s;
    assert_int_equal(ls_sched_emit(ls_algo_find("ring"), &shape, &s), LS_OK);
    assert_int_equal(ls_sched_tmp_bytes(&s, 100, 4), 0);
    ls_sched_free(&s);
    assert_int_equal(ls_sched_emit(ls_algo_find("oneshot"), &shape, &s), LS_OK);
    assert_int_equal(ls_sched_tmp_bytes(&s, 100, 4), 400);
    ls_sched_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cuts_shares_and_then_segments),
        cmocka_unit_test(covers_every_element_once),
        cmocka_unit_test(can_be_set_again),
        cmocka_unit_test(refuses_chunks_it_cannot_place),
        cmocka_unit_test(only_schedules_with_tmp_need_memory_for_it),
    };
    return cmocka_run_group_tests_name("layout", tests, NULL, NULL);
}
