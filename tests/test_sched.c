/* Building and sealing: what emit() may say, and what is derived from it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "lockstep/sched.h"

static ls_slice out(uint32_t first, uint32_t n) { return (ls_slice){ LS_BUF_OUT, first, n }; }
static ls_slice tmp(uint32_t first, uint32_t n) { return (ls_slice){ LS_BUF_TMP, first, n }; }

static ls_sched empty(ls_coll coll, int nlanes)
{
    const ls_shape shape = { .coll = coll, .rank = 1, .size = 4, .segments = 1, .nlanes = nlanes };
    return (ls_sched){ .shape = shape, .nchunks = { 0, 4, 4 } };
}

static void a_write_waits_for_the_last_send_of_what_it_overwrites(void **state)
{
    (void)state;
    ls_sched s = empty(LS_ALL_REDUCE, 1);
    assert_int_equal(ls_sched_send(&s, 0, 0, out(0, 2)), LS_OK);
    assert_int_equal(ls_sched_send(&s, 0, 2, out(1, 1)), LS_OK);
    assert_int_equal(ls_sched_recv(&s, 0, 0, out(0, 1)), LS_OK);       /* under send 0 only */
    assert_int_equal(ls_sched_recv_reduce(&s, 0, 0, out(1, 2)), LS_OK);/* under sends 0 and 1 */
    assert_int_equal(ls_sched_copy(&s, 0, out(0, 4), tmp(0, 4)), LS_OK);/* reads OUT, writes what nobody reads */
    assert_int_equal(ls_sched_recv(&s, 0, 0, out(3, 1)), LS_OK);       /* never sent */
    assert_int_equal(ls_sched_recv(&s, 0, 0, out(1, 0)), LS_OK);       /* writes nothing */
    assert_int_equal(ls_sched_send(&s, 0, 0, out(3, 1)), LS_OK);
    assert_int_equal(ls_sched_recv(&s, 0, 0, out(0, 4)), LS_OK);       /* its last chunk is under the last send */
    assert_int_equal(ls_sched_seal(&s), LS_OK);
    static const int want[] = { -1, -1, 0, 1, -1, -1, -1, -1, 7 };
    for (int i = 0; i < 9; i++) assert_int_equal(s.lane[0].step[i].after_send, want[i]);
    assert_int_equal(ls_sched_seal(&s), LS_OK); /* idempotent */
    for (int i = 0; i < 9; i++) assert_int_equal(s.lane[0].step[i].after_send, want[i]);
    ls_sched_free(&s);
}

static void marks_the_last_addition_of_a_chunk_that_is_kept(void **state)
{
    (void)state;
    ls_shape shape = { LS_ALL_REDUCE, 1, 4, 0, 1, 1, NULL, false };
    ls_sched s;
    assert_int_equal(ls_sched_emit(ls_algo_find("ring"), &shape, &s), LS_OK);
    for (uint32_t i = 0; i < s.lane[0].n; i++) /* of the ring's three additions the one into its own share */
        assert_int_equal(s.lane[0].step[i].last_reduce,
                         s.lane[0].step[i].kind == LS_STEP_RECV_REDUCE && s.lane[0].step[i].dst.first == 1);
    ls_sched_free(&s);
    shape.coll = LS_REDUCE_SCATTER; /* nothing overwrites the passed-on sums here, but they are not kept */
    assert_int_equal(ls_sched_emit(ls_algo_find("ring"), &shape, &s), LS_OK);
    for (uint32_t i = 0; i < s.lane[0].n; i++)
        assert_int_equal(s.lane[0].step[i].last_reduce,
                         s.lane[0].step[i].kind == LS_STEP_RECV_REDUCE && s.lane[0].step[i].dst.first == 1);
    ls_sched_free(&s);
}

static void lanes_may_read_together_but_not_write(void **state)
{
    (void)state;
    ls_sched s = empty(LS_ALL_REDUCE, 3);
    assert_int_equal(ls_sched_send(&s, 0, 0, out(2, 1)), LS_OK);
    assert_int_equal(ls_sched_send(&s, 1, 0, out(1, 2)), LS_OK);
    assert_int_equal(ls_sched_recv(&s, 1, 0, tmp(2, 1)), LS_OK);
    assert_int_equal(ls_sched_seal(&s), LS_OK);
    assert_int_equal(ls_sched_recv(&s, 2, 0, out(2, 2)), LS_OK);
    assert_int_equal(ls_sched_seal(&s), LS_INVALID);
    assert_non_null(strstr(ls_last_error(), "rank 1: lane 2 writes chunk 2 of out, which another lane reads"));
    ls_sched_free(&s);

    s = empty(LS_ALL_REDUCE, 2);
    assert_int_equal(ls_sched_recv(&s, 0, 0, tmp(0, 1)), LS_OK);
    assert_int_equal(ls_sched_copy(&s, 1, tmp(0, 1), out(0, 1)), LS_OK);
    assert_int_equal(ls_sched_seal(&s), LS_INVALID);
    assert_non_null(strstr(ls_last_error(), "lane 1 reads chunk 0 of tmp, which another lane writes"));
    ls_sched_free(&s);
}

static void refuses_steps_outside_the_schedule(void **state)
{
    (void)state;
    ls_sched s = empty(LS_ALL_REDUCE, 2);
    assert_int_equal(ls_sched_send(&s, 2, 0, out(0, 1)), LS_INVALID);
    assert_non_null(strstr(ls_last_error(), "lane 2 of 2"));
    assert_int_equal(ls_sched_send(&s, -1, 0, out(0, 1)), LS_INVALID);
    assert_int_equal(ls_sched_send(&s, 0, 4, out(0, 1)), LS_INVALID);
    assert_non_null(strstr(ls_last_error(), "send out[0] -> 4: peer 4 of 4 ranks"));
    assert_int_equal(ls_sched_recv(&s, 0, 1, out(0, 1)), LS_INVALID); /* itself */
    assert_int_equal(ls_sched_recv(&s, 0, 0, out(3, 2)), LS_INVALID);
    assert_non_null(strstr(ls_last_error(), "recv out[3..4] <- 0: outside the buffers"));
    assert_int_equal(ls_sched_recv(&s, 0, 0, out(0xffffffffu, 2)), LS_INVALID);
    assert_int_equal(ls_sched_fold(&s, 0, (ls_slice){ LS_BUF_IN, 0, 1 }), LS_INVALID);
    assert_int_equal(ls_sched_copy(&s, 0, out(0, 2), tmp(0, 1)), LS_INVALID);
    assert_non_null(strstr(ls_last_error(), "2 chunks into 1"));
    assert_int_equal(s.lane[0].n, 0);
    assert_int_equal(ls_sched_recv(&s, 0, 0, out(4, 0)), LS_OK); /* nothing, at the end */
    ls_sched_free(&s);
}

static void refuses_shapes_out_of_range(void **state)
{
    (void)state;
    static const struct { ls_shape shape; const char *say; } row[] = {
        { { LS_ALL_REDUCE, 4, 4, 0, 1, 1, NULL, false }, "rank 4 of 4" },  { { LS_ALL_REDUCE, 0, 0, 0, 1, 1, NULL, false }, "rank 0 of 0" },
        { { LS_ALL_REDUCE, 0, 4, 4, 1, 1, NULL, false }, "root 4 of 4" },  { { LS_ALL_REDUCE, 0, 4, 0, 0, 1, NULL, false }, "0 segments" },
        { { LS_ALL_REDUCE, 0, 4, 0, 1, 9, NULL, false }, "9 lanes" },      { { LS_BROADCAST, 0, 4, 0, 1, 1, NULL, false }, "does not do broadcast" },
        { { LS_COLLS, 0, 4, 0, 1, 1, NULL, false }, "collective 10" },
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        ls_sched s;
        assert_int_equal(ls_sched_emit(ls_algo_find("ring"), &row[i].shape, &s), LS_INVALID);
        if (!strstr(ls_last_error(), row[i].say)) fail_msg("no '%s' in: %s", row[i].say, ls_last_error());
        assert_null(s.lane[0].step);
    }
}

static void names_go_both_ways(void **state)
{
    (void)state;
    for (int c = 0; c < LS_COLLS; c++) assert_int_equal(ls_coll_find(ls_coll_name((ls_coll)c)), c);
    assert_int_equal(ls_coll_find("allreduce"), LS_COLLS);
    assert_string_equal(ls_coll_name(LS_COLLS), "?");
    for (int i = 0; ls_algos[i]; i++) assert_ptr_equal(ls_algo_find(ls_algos[i]->name), ls_algos[i]);
    assert_null(ls_algo_find("rnig"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_write_waits_for_the_last_send_of_what_it_overwrites),
        cmocka_unit_test(marks_the_last_addition_of_a_chunk_that_is_kept),
        cmocka_unit_test(lanes_may_read_together_but_not_write),
        cmocka_unit_test(refuses_steps_outside_the_schedule),
        cmocka_unit_test(refuses_shapes_out_of_range),
        cmocka_unit_test(names_go_both_ways),
    };
    return cmocka_run_group_tests_name("sched", tests, NULL, NULL);
}
