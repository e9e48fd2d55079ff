/* The order of a step's micro-batches: lists that are a step and lists that are not, and the loop that walks them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "harness.h"
#include "parallel/pipe_list.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))
#define MOST 8

/* --- lists ------------------------------------------------------------------------------------------------- */

/* "F0 B0 F1 B1": what a list does. Of a second chunk it writes f and b. */
static const char *text_of(const ls_pipe_list *l, char *buf, size_t n)
{
    size_t at = 0;
    buf[0] = 0;
    for (int i = 0; i < l->n && at < n; i++) {
        const ls_pipe_action *a = &l->action[i];
        const char letter = a->what == LS_PIPE_FORWARD ? 'F' : 'B';
        at += (size_t)snprintf(buf + at, n - at, "%s%c%d", i ? " " : "", a->chunk ? letter + 'a' - 'A' : letter, a->micro_batch);
    }
    return buf;
}

/* The reverse of it. */
static void set(ls_pipe_list *l, const char *text)
{
    l->n = 0;
    for (const char *s = text; *s; s += s[2] ? 3 : 2)
        l->action[l->n++] = (ls_pipe_action){ .what = *s == 'F' || *s == 'f' ? LS_PIPE_FORWARD : LS_PIPE_BACKWARD,
                                              .chunk = *s >= 'a',
                                              .micro_batch = s[1] - '0' };
}

static void one_stage_accumulates(void **state)
{
    (void)state;
    static const char *const want[MOST] = { "F0 B0", "F0 B0 F1 B1", "F0 B0 F1 B1 F2 B2", "F0 B0 F1 B1 F2 B2 F3 B3" };
    ls_pipe_list l;
    char text[128];
    assert_int_equal(ls_pipe_list_create(1, MOST, 1, &l), LS_OK);
    for (int m = 1; m <= MOST; m++) {
        assert_int_equal(ls_pipe_list_make(&l, m), LS_OK);
        assert_int_equal(l.micro_batches, m);
        assert_int_equal(l.n, 2 * m);
        if (want[m - 1]) assert_string_equal(text_of(&l, text, sizeof text), want[m - 1]);
        for (int i = 0; i < l.n; i++) { /* each right after its forward: one is alive */
            const ls_pipe_action *a = &l.action[i];
            assert_int_equal(a->what, i % 2 ? LS_PIPE_BACKWARD : LS_PIPE_FORWARD);
            assert_int_equal(a->micro_batch, i / 2);
            assert_true(a->chunk == 0 && a->slot == 0);
            assert_int_equal(a->last, i / 2 == m - 1);
        }
    }
    ls_pipe_list_free(&l);
}

/* Lists of schedules to come: of stages that have several micro-batches alive, and of two chunks. */
static void a_proof_finds_slots_for_what_is_alive(void **state)
{
    (void)state;
    static const struct {
        int chunks, micro_batches, slots;
        const char *list, *slot;
    } row[] = {
        { 1, 3, 1, "F0 B0 F1 B1 F2 B2", "000000" },
        { 1, 3, 2, "F0 F1 B0 F2 B1 B2", "010010" },
        { 1, 3, 3, "F0 F1 F2 B0 B1 B2", "012012" },
        { 1, 4, 2, "F0 F1 B0 F2 B1 F3 B2 B3", "01001101" },
        { 1, 2, 4, "F0 F1 B0 B1", "0101" },
        { 2, 2, 2, "F0 f0 b0 F1 B0 f1 b1 B1", "01110001" },
        { 2, 2, 4, "F0 F1 f0 f1 b0 b1 B0 B1", "01232301" },
    };
    for (size_t k = 0; k < COUNT(row); k++) {
        ls_pipe_list l;
        assert_int_equal(ls_pipe_list_create(row[k].chunks, MOST, row[k].slots, &l), LS_OK);
        set(&l, row[k].list);
        if (ls_pipe_list_prove(&l, row[k].micro_batches) < 0) fail_msg("%s: %s", row[k].list, ls_last_error());
        for (int i = 0; i < l.n; i++) {
            if (l.action[i].slot != row[k].slot[i] - '0')
                fail_msg("%s: action %d is in slot %d, expected %c", row[k].list, i, l.action[i].slot, row[k].slot[i]);
            assert_int_equal(l.action[i].last, l.action[i].micro_batch == row[k].micro_batches - 1);
        }
        ls_pipe_list_free(&l);
    }
}

static void a_list_that_is_no_step_is_refused(void **state)
{
    (void)state;
    static const struct {
        int chunks, slots;
        const char *list, *says; /* of 2 micro-batches */
    } row[] = {
        { 1, 1, "", "0 of 2 micro-batches have gone forward, and 0 backward, when it ends" },
        { 1, 1, "F0 B0", "1 of 2 micro-batches have gone forward, and 1 backward, when it ends" },
        { 1, 2, "F0 B0 F1", "2 of 2 micro-batches have gone forward, and 1 backward, when it ends" },
        { 1, 1, "F0 F1 B0 B1", "action 1 is the forward of micro-batch 1, with which more than 1 are alive" },
        { 1, 2, "F0 F0 B0 B0", "action 1 is the forward of micro-batch 0: expected that of micro-batch 1, since each goes once" },
        { 1, 2, "F0 B0 B0 F1 B1", "action 2 is the backward of micro-batch 0: expected that of micro-batch 1, since each goes once" },
        { 1, 2, "F1 F0 B0 B1", "action 0 is the forward of micro-batch 1: expected that of micro-batch 0" },
        { 1, 2, "F0 F1 B1 B0", "action 2 is the backward of micro-batch 1: expected that of micro-batch 0" },
        { 1, 2, "B0 F0 F1 B1", "action 0 is the backward of micro-batch 0, which has not gone forward" },
        { 1, 2, "F0 B0 B1 F1", "action 2 is the backward of micro-batch 1, which has not gone forward" },
        { 1, 2, "F0 B0 F1 B1 F2 B2", "action 4 is the forward of micro-batch 2, but all 2 have gone forward" },
        { 1, 2, "F0 B0 F1 B1 B2", "action 4 is the backward of micro-batch 2, but all 2 have gone backward" },
        { 1, 2, "F0 B0 f1 b1", "action 2 is of chunk 1: expected 0 to 0" },
        { 2, 4, "F0 f0 b0 B0 F1 B1", "1 of 2 micro-batches have gone forward, and 1 backward, when it ends" },
        { 2, 4, "F0 b0 B0 f0 F1 f1 b1 B1", "action 1 is the backward of micro-batch 0, which has not gone forward" },
    };
    for (size_t k = 0; k < COUNT(row); k++) {
        ls_pipe_list l;
        assert_int_equal(ls_pipe_list_create(row[k].chunks, MOST, row[k].slots, &l), LS_OK);
        set(&l, row[k].list);
        if (ls_pipe_list_prove(&l, 2) != LS_INTERNAL) fail_msg("'%s' passes", row[k].list);
        if (!strstr(ls_last_error(), row[k].says)) fail_msg("'%s': '%s' is not in '%s'", row[k].list, row[k].says, ls_last_error());
        assert_non_null(strstr(ls_last_error(), "pipeline schedule: "));
        if (row[k].chunks == 1) assert_int_equal(ls_pipe_list_make(&l, 2), LS_OK); /* a failure leaves nothing behind */
        ls_pipe_list_free(&l);
    }
}

/* --- the loop ------------------------------------------------------------------------------------------------ */

/* What was called: s feed (samples), F forward, B backward, each with its micro-batch; ! the last. */
typedef struct diary {
    char text[256];
    const char *fail_at;
} diary;

static ls_status note(diary *d, char what, const ls_pipe_action *a)
{
    const size_t used = strlen(d->text);
    snprintf(d->text + used, sizeof d->text - used, "%s%c%d%s", used ? " " : "", what, a->micro_batch, a->last ? "!" : "");
    const char *mine = d->text + used + (used > 0);
    return d->fail_at && strcmp(mine, d->fail_at) == 0 ? ls_fail(LS_SHAPE, "no %s today", mine) : LS_OK;
}

static ls_status feed(void *arg, const ls_pipe_action *a) { return note(arg, 's', a); }
static ls_status forward(void *arg, const ls_pipe_action *a) { return note(arg, 'F', a); }
static ls_status backward(void *arg, const ls_pipe_action *a) { return note(arg, 'B', a); }
static const ls_pipe_work work = { feed, forward, backward };

static ls_pipe *pipe_of(int micro_batches)
{
    ls_pipe *p;
    const ls_pipe_config c = { .micro_batches = micro_batches };
    if (ls_pipe_create(&c, &p) < 0) fail_msg("%s", ls_last_error());
    return p;
}

static void runs(ls_pipe *p, int micro_batches, const char *want)
{
    diary d = { 0 };
    if (ls_pipe_run(p, micro_batches, &work, &d) < 0) fail_msg("%s", ls_last_error());
    assert_string_equal(d.text, want);
}

static void each_action_is_called_in_order(void **state)
{
    (void)state;
    ls_pipe *p = pipe_of(3);
    assert_int_equal(ls_pipe_slots(p), 1);
    for (int k = 0; k < 2; k++) {
        runs(p, 3, "s0 F0 B0 s1 F1 B1 s2! F2! B2!");
        runs(p, 1, "s0! F0! B0!"); /* an epoch ends with fewer samples */
        runs(p, 2, "s0 F0 B0 s1! F1! B1!");
    }
    const ls_pipe_work without = { .forward = forward, .backward = backward }; /* samples are in memory already */
    diary d = { 0 };
    assert_int_equal(ls_pipe_run(p, 2, &without, &d), LS_OK);
    assert_string_equal(d.text, "F0 B0 F1! B1!");
    ls_pipe_destroy(p);
    ls_pipe_destroy(NULL);
}

static void only_so_many_micro_batches_as_it_was_created_for(void **state)
{
    (void)state;
    ls_pipe *p = pipe_of(3);
    diary d = { 0 };
    for (int k = 0; k < 2; k++) {
        assert_int_equal(ls_pipe_run(p, k ? 4 : 0, &work, &d), LS_INVALID);
        assert_non_null(strstr(ls_last_error(), k ? "4 micro-batches: expected 1 to 3" : "0 micro-batches: expected 1 to 3"));
        assert_string_equal(d.text, "");
    }
    runs(p, 3, "s0 F0 B0 s1 F1 B1 s2! F2! B2!");
    ls_pipe_destroy(p);
}

static void the_first_failure_ends_a_step_and_is_returned_as_it_is(void **state)
{
    (void)state;
    static const struct { const char *at, *done; } row[] = {
        { "s0", "s0" }, { "F0", "s0 F0" }, { "B0", "s0 F0 B0" }, { "s1!", "s0 F0 B0 s1!" }, { "B1!", "s0 F0 B0 s1! F1! B1!" },
    };
    ls_pipe *p = pipe_of(2);
    for (size_t k = 0; k < COUNT(row); k++) {
        diary d = { .fail_at = row[k].at };
        char says[32];
        assert_int_equal(ls_pipe_run(p, 2, &work, &d), LS_SHAPE);
        snprintf(says, sizeof says, "no %s today", row[k].at);
        assert_string_equal(ls_last_error(), says);
        assert_string_equal(d.text, row[k].done);
        runs(p, 2, "s0 F0 B0 s1! F1! B1!"); /* it leaves nothing behind */
    }
    ls_pipe_destroy(p);
}

static void what_is_not_implemented_is_refused(void **state)
{
    (void)state;
    static const struct {
        ls_pipe_config c;
        int stages;
        ls_status st;
        const char *says; /* NULL: it is */
    } row[] = {
        { { .micro_batches = 1 }, 1, LS_OK, NULL },
        { { .micro_batches = LS_PIPE_MOST_MICRO_BATCHES, .schedule = "1f1b", .chunks = 1 }, 1, LS_OK, NULL },
        { { .micro_batches = 4 }, 2, LS_UNSUPPORTED, "pp is 2: pipeline stages are not implemented: expected 1" },
        { { .micro_batches = 4, .schedule = "gpipe" }, 1, LS_UNSUPPORTED, "schedule 'gpipe' is not implemented: expected 1f1b" },
        { { .micro_batches = 4, .chunks = 2 }, 1, LS_UNSUPPORTED, "2 pipeline chunks per stage are not implemented: expected 1" },
        { { .micro_batches = 4, .chunks = -1 }, 1, LS_UNSUPPORTED, "-1 pipeline chunks" },
        { { .micro_batches = 0 }, 1, LS_BAD_CONFIG, "a step of 0 micro-batches: expected 1 to 16777216" },
        { { .micro_batches = LS_PIPE_MOST_MICRO_BATCHES + 1 }, 1, LS_BAD_CONFIG, "a step of 16777217 micro-batches" },
    };
    for (size_t k = 0; k < COUNT(row); k++) {
        assert_int_equal(ls_pipe_check(&row[k].c, row[k].stages), row[k].st);
        if (row[k].says && !strstr(ls_last_error(), row[k].says))
            fail_msg("'%s' is not in '%s'", row[k].says, ls_last_error());
        if (!row[k].says || row[k].stages > 1) continue;
        ls_pipe *p = (ls_pipe *)&row; /* to see that it is cleared */
        assert_int_equal(ls_pipe_create(&row[k].c, &p), row[k].st);
        assert_null(p);
    }
}

static ls_status two_stages(ls_world *w, void *arg)
{
    ls_pipe *p;
    const ls_pipe_config c = { .stages = ls_world_group(w), .micro_batches = 4 };
    (void)arg;
    const ls_status st = ls_pipe_create(&c, &p);
    LS_EXPECT(st == (ls_world_size(w) == 1 ? LS_OK : LS_UNSUPPORTED), "%d stages: %s", ls_world_size(w), ls_status_word(st));
    ls_pipe_destroy(p);
    return LS_OK;
}

static void a_group_says_how_many_stages_there_are(void **state)
{
    (void)state;
    for (int n = 1; n <= 2; n++) {
        const ls_rank_report r = ls_test_ranks(LS_TEST_THREADS, n, NULL, two_stages, NULL);
        if (r.failed) fail_msg("%s", r.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_stage_accumulates),
        cmocka_unit_test(a_proof_finds_slots_for_what_is_alive),
        cmocka_unit_test(a_list_that_is_no_step_is_refused),
        cmocka_unit_test(each_action_is_called_in_order),
        cmocka_unit_test(only_so_many_micro_batches_as_it_was_created_for),
        cmocka_unit_test(the_first_failure_ends_a_step_and_is_returned_as_it_is),
        cmocka_unit_test(what_is_not_implemented_is_refused),
        cmocka_unit_test(a_group_says_how_many_stages_there_are),
    };
    return cmocka_run_group_tests_name("pipe", tests, NULL, NULL);
}
