/* Schedules as text and JSON, and back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "coll/print.h"

static void prints_a_ring_as_in_a_book(void **state)
{
    (void)state;
    ls_shape shape = { LS_ALL_REDUCE, 1, 3, 0, 1, 1, NULL, false };
    ls_sched s;
    ls_text t = { 0 };
    assert_int_equal(ls_sched_emit(ls_algo_find("ring"), &shape, &s), LS_OK);
    assert_int_equal(ls_sched_print(&s, LS_PRINT_TEXT, &t), LS_OK);
    assert_string_equal(ls_text_str(&t), "rank 1 of 3: 8 steps, 3 chunks\n"
                                         "   0  send out[0] -> 2\n"
                                         "   1  recv_reduce out[2] <- 0\n"
                                         "   2  send out[2] -> 2\n"
                                         "   3  recv_reduce out[1] <- 0         complete\n"
                                         "   4  send out[1] -> 2\n"
                                         "   5  recv out[0] <- 0                after send 0 is read\n"
                                         "   6  send out[0] -> 2\n"
                                         "   7  recv out[2] <- 0                after send 2 is read\n");
    ls_text_free(&t);
    assert_int_equal(ls_sched_print(&s, LS_PRINT_DOT, &t), LS_OK);
    assert_non_null(strstr(ls_text_str(&t), "l0s0 -> l0s5 [style=dashed"));
    assert_non_null(strstr(ls_text_str(&t), "\"rank 0\" -> l0s1"));
    ls_text_free(&t);
    ls_sched_free(&s);
}

/* All ranks' schedules, as `lockstep coll --json` prints them. */
static ls_text json_of(const ls_algo *a, ls_shape shape)
{
    ls_text t = { 0 };
    ls_text_add(&t, "[");
    for (shape.rank = 0; shape.rank < shape.size; shape.rank++) {
        ls_sched s;
        assert_int_equal(ls_sched_emit(a, &shape, &s), LS_OK);
        if (shape.rank) ls_text_add(&t, ",");
        assert_int_equal(ls_sched_print(&s, LS_PRINT_JSON, &t), LS_OK);
        ls_sched_free(&s);
    }
    ls_text_add(&t, "]");
    return t;
}

static void what_is_read_back_is_what_was_printed_and_is_proved(void **state)
{
    (void)state;
    for (int i = 0; ls_algos[i]; i++)
        for (int coll = 0; coll < LS_COLLS; coll++) {
            ls_shape shape = { (ls_coll)coll, 0, 5, 2, 2, 2, NULL, i % 2 };
            if (!(ls_algos[i]->colls & 1u << coll) || (ls_algos[i]->fits && !ls_algos[i]->fits(&shape))) continue;
            ls_text t = json_of(ls_algos[i], shape), again = { 0 };
            ls_sched *s;
            const ls_sched *p[5];
            int n;
            if (ls_sched_read_json("x", t.p, t.n, &s, &n) != LS_OK) fail_msg("%s", ls_last_error());
            assert_int_equal(n, 5);
            ls_text_add(&again, "[");
            for (int r = 0; r < n; r++) {
                p[r] = &s[r];
                if (r) ls_text_add(&again, ",");
                assert_int_equal(ls_sched_print(&s[r], LS_PRINT_JSON, &again), LS_OK);
            }
            ls_text_add(&again, "]");
            assert_string_equal(t.p, again.p);
            if (ls_sched_verify_all(p, n) != LS_OK) fail_msg("%s", ls_last_error());
            ls_text_free(&t);
            ls_text_free(&again);
            ls_sched_free_all(s, n);
        }
}

/* Replaces the first `from` by `to`. */
static void edit(ls_text *t, const char *from, const char *to)
{
    ls_text new = { 0 };
    char *at = strstr(t->p, from);
    assert_non_null(at);
    ls_text_addn(&new, t->p, (size_t)(at - t->p));
    ls_text_add(&new, "%s%s", to, at + strlen(from));
    ls_text_free(t);
    *t = new;
}

static void names_what_is_wrong_in_a_file(void **state)
{
    (void)state;
    static const struct { const char *from, *to, *say; } row[] = {
        { "[", "", "x: line" },
        { "[", "[3, ", "x: rank 0: expected an object" },
        { "\"all_reduce\"", "\"allreduce\"", "rank 0: \"coll\" is no collective" },
        { "\"size\": 3", "\"size\": 0", "\"size\" is 0, expected 1 to 256" },
        { "\"size\": 3", "\"size\": 1e3", "\"size\": expected an integer" },
        { "\"segments\": 1", "\"segments\": 99999999999", "\"segments\" is 99999999999, expected 1 to 1024" },
        { "\"out\": 3", "\"out\": -1", "\"out\" is -1" },
        { "\"lanes\": [", "\"lanes\": [[],[],[],[],[],[],[],[],", "1 to 8 lanes" },
        { "\"send\"", "\"sned\"", "rank 0, lane 0, step 0: \"kind\" is no kind of step" },
        { "\"peer\": 1", "\"peer\": 0", "rank 0, lane 0, step 0: send out[2] -> 0: peer 0 of 3 ranks" },
        { "\"peer\": 1", "\"peer\": 3", "\"peer\" is 3, expected 0 to 2" },
        { "\"buf\": \"out\"", "\"buf\": \"up\"", "\"src\": \"buf\" is none of in, out, tmp" },
        { "\"first\": 2, \"n\": 1", "\"first\": 2, \"n\": 2", "outside the buffers" },
        { "\"src\": {", "\"src\": 4, \"x\": {", "\"src\": expected an object" },
        { "{\"coll\"", "{\"coll\": \"barrier\", \"coll\"", "duplicate" },
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        ls_text t = json_of(ls_algo_find("ring"), (ls_shape){ LS_ALL_REDUCE, 0, 3, 0, 1, 1, NULL, false });
        ls_sched *s = (ls_sched *)&t;
        int n = 9;
        edit(&t, row[i].from, row[i].to);
        assert_int_equal(ls_sched_read_json("x", t.p, t.n, &s, &n), LS_BAD_FILE);
        assert_null(s);
        assert_int_equal(n, 0);
        if (!strstr(ls_last_error(), row[i].say)) fail_msg("row %zu: no '%s' in: %s", i, row[i].say, ls_last_error());
        ls_text_free(&t);
    }
}

static void cut_files_are_refused_wherever_they_end(void **state)
{
    (void)state;
    ls_text t = json_of(ls_algo_find("ring"), (ls_shape){ LS_ALL_REDUCE, 0, 2, 0, 1, 1, NULL, false });
    for (size_t n = 0; n < t.n; n++) {
        char *copy = malloc(n + 1); /* its own block, so that reading past the end shows */
        ls_sched *s;
        int count;
        memcpy(copy, t.p, n);
        assert_int_equal(ls_sched_read_json("x", copy, n, &s, &count), LS_BAD_FILE);
        free(copy);
    }
    ls_text_free(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prints_a_ring_as_in_a_book),
        cmocka_unit_test(what_is_read_back_is_what_was_printed_and_is_proved),
        cmocka_unit_test(names_what_is_wrong_in_a_file),
        cmocka_unit_test(cut_files_are_refused_wherever_they_end),
    };
    return cmocka_run_group_tests_name("print", tests, NULL, NULL);
}
