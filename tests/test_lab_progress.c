/* lab: progress of a reader, changed by several processes at once, merged with other lines; pages for a terminal. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/env.h"
#include "base/file.h"
#include "lab/page.h"
#include "lab/progress.h"

#define HEAD "# lockstep labs, progress 1\n"
#define DAY (86400000000000ll)

static char folder[64], path[96];

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/lockstep-test-XXXXXX");
    if (!mkdtemp(folder)) return 1;
    snprintf(path, sizeof path, "%s/progress", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    ls_remove_folder(folder);
    return 0;
}

static void become(ls_lab_item *item, const void *arg)
{
    snprintf(item->state, sizeof item->state, "%s", (const char *)arg);
    item->tries++;
}

static void change(const char *item, const char *state)
{
    const ls_lab_change c = { .item = item, .make = become, .arg = state };
    if (ls_lab_progress_change(path, &c, 1, 20820 * DAY) != LS_OK) fail_msg("%s", ls_last_error());
}

static void text_is(const char *expected)
{
    char *text;
    assert_int_equal(ls_lab_progress_text(path, &text), LS_OK);
    assert_string_equal(text, expected);
    free(text);
}

static void an_item_is_a_line(void **state)
{
    (void)state;
    ls_lab_item item;
    text_is("");
    change("01.ex1", "red");
    change("01.ex10", "green");
    change("01.ex1", "green");
    text_is(HEAD "01.ex1 green 2027-01-02 tries=2\n01.ex10 green 2027-01-02 tries=1\n");
    assert_int_equal(ls_lab_progress_read(path, "01.ex1", &item), LS_OK);
    assert_string_equal(item.date, "2027-01-02");
    assert_int_equal(item.tries, 2);
    assert_int_equal(ls_lab_progress_read(path, "01.ex", &item), LS_OK);
    assert_string_equal(item.state, "");
}

static void every_part_of_a_line_is_read_back(void **state)
{
    (void)state;
    ls_text t = { 0 };
    ls_lab_item item, back;
    ls_lab_progress_find("x\n01.5 holds 2027-01-03 tries=3 hints=2 solution | 1 | 2 = tries=9 solution\n", "01.5", &item);
    assert_string_equal(item.state, "holds");
    assert_string_equal(item.values, "1 | 2 = tries=9 solution");
    assert_int_equal(item.tries, 3);
    assert_int_equal(item.hints, 2);
    assert_true(item.told);
    ls_lab_progress_edit("", "01.5", &item, &t);
    assert_string_equal(ls_text_str(&t), HEAD "01.5 holds 2027-01-03 tries=3 hints=2 solution | 1 | 2 = tries=9 solution\n");
    ls_lab_progress_find(ls_text_str(&t), "01.5", &back);
    assert_memory_equal(&item, &back, sizeof item);
    ls_text_free(&t);
}

/* Each of four processes has an item of its own and one that all of them count. */
static void several_processes_lose_no_line(void **state)
{
    (void)state;
    enum { PROCESSES = 4, TIMES = 25 };
    pid_t pid[PROCESSES];
    ls_lab_item item;
    char name[16];
    for (int p = 0; p < PROCESSES; p++) {
        pid[p] = fork();
        assert_true(pid[p] >= 0);
        if (pid[p] > 0) continue;
        bool fine = true;
        snprintf(name, sizeof name, "0%d.ex1", p);
        const ls_lab_change c[] = { { name, become, "red" }, { "01.all", become, "red" } };
        for (int i = 0; fine && i < TIMES; i++) fine = ls_lab_progress_change(path, c, 2, DAY) == LS_OK;
        _exit(fine ? 0 : 1);
    }
    for (int p = 0; p < PROCESSES; p++) {
        int status;
        assert_int_equal(waitpid(pid[p], &status, 0), pid[p]);
        assert_int_equal(status, 0);
    }
    assert_int_equal(ls_lab_progress_read(path, "01.all", &item), LS_OK);
    assert_int_equal(item.tries, PROCESSES * TIMES);
    for (int p = 0; p < PROCESSES; p++) {
        snprintf(name, sizeof name, "0%d.ex1", p);
        assert_int_equal(ls_lab_progress_read(path, name, &item), LS_OK);
        assert_int_equal(item.tries, TIMES);
    }
}

static void merged(const char *text, const char *more, const char *expected)
{
    ls_text t = { 0 };
    int items;
    if (ls_lab_progress_merge(text, "f", more, &t, &items) != LS_OK) fail_msg("%s: %s", more, ls_last_error());
    assert_string_equal(ls_text_str(&t), expected);
    ls_text_free(&t);
}

static void lines_from_elsewhere_are_merged(void **state)
{
    (void)state;
    merged("", "01.q1 right 2027-01-03 tries=1\n", HEAD "01.q1 right 2027-01-03 tries=1\n");
    merged(HEAD "mine\n01.q1 missed 2027-01-03 tries=2\n", HEAD "\n01.q1 right 2027-01-03 tries=1\r\n02.q1 missed 2027-01-01",
           HEAD "mine\n01.q1 right 2027-01-03 tries=2\n02.q1 missed 2027-01-01\n"); /* the same day: the better */
    merged(HEAD "01.q1 right 2027-01-03\n", "01.q1 missed 2027-01-03\n", HEAD "01.q1 right 2027-01-03\n");
    merged(HEAD "01.q1 right 2027-01-03\n", "01.q1 missed 2027-01-04\n", HEAD "01.q1 missed 2027-01-04\n"); /* the later */
    merged(HEAD "01.q1 missed 2027-01-04\n", "01.q1 right 2027-01-03\n", HEAD "01.q1 missed 2027-01-04\n");
    merged(HEAD "01.ex1 green 2027-01-04 tries=1 hints=3\n", "01.ex1 red 2027-01-03 tries=5 solution\n",
           HEAD "01.ex1 green 2027-01-04 tries=5 hints=3 solution\n");
    merged(HEAD "01.5 holds 2027-01-03 | 1 = 1\n", "", HEAD "01.5 holds 2027-01-03 | 1 = 1\n");
}

static void other_lines_are_refused(void **state)
{
    (void)state;
    static const char *const bad[] = { "x", "01.q1", "01.q1 right", "01.q1 right today", "01.q1 wrong 2027-01-03", "1.q right 2027-01-03",
                                       "01.Q1 right 2027-01-03", " 01.q1 right 2027-01-03", "01.q1  right 2027-01-03" };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ls_text t = { 0 };
        char more[96];
        int items;
        snprintf(more, sizeof more, "# a\n01.q2 right 2027-01-03\n%s\n", bad[i]);
        if (ls_lab_progress_merge("", "f", more, &t, &items) != LS_USAGE) fail_msg("'%s' is taken", bad[i]);
        assert_non_null(strstr(ls_last_error(), "f:3: is no line of progress"));
        ls_text_free(&t);
    }
}

static void page_is(const char *md, const char *progress, const char *expected)
{
    ls_text t = { 0 };
    assert_int_equal(ls_lab_page(md, progress, 40, &t), LS_OK);
    assert_string_equal(ls_text_str(&t), expected);
    ls_text_free(&t);
}

static void pages_are_broken_at_the_width(void **state)
{
    (void)state;
    page_is("# Lab 01\n\nOne two three four\nfive **six** [seven](a.c) eight nine.\n", "",
            "# Lab 01\n\nOne two three four five six seven eight\nnine.\n");
    page_is("* one two three four five six seven eight\n  nine\n* ten\n12. eleven\n", "",
            "* one two three four five six seven\n  eight nine\n* ten\n12. eleven\n");
    page_is("text\n\n    code that is longer than 40 columns stays [as](it) is\n", "",
            "text\n\n    code that is longer than 40 columns stays [as](it) is\n");
    page_is("```c\n* a | b\n```\nend [page](https://x.org)\n", "", "    * a | b\nend page (https://x.org)\n");
    page_is("| a | bb |\n|---|---|\n| ccc | d |\n", "", "a    bb\nccc  d\n");
    page_is("| a | b | c |\n|---|---|---|\n| a longer word | | of more than 40 columns |\n", "",
            "Columns: a; b; c\n- a longer word; of more than 40 columns\n");
}

static void numbers_of_the_reader_come_after_the_claim(void **state)
{
    (void)state;
    static const char mine[] = HEAD "01.5 holds 2027-01-03 | 6 = 6\n01.12b red 2027-01-03 | 1 = 2\n01.6 seen 2027-01-03\n01.8 holds 2027-01-03 | 8 = 8\n";
    page_is("Claim 01.5. More of 01.5, 01.6.\n\n* 101.8, 01.8.1, 01.80, 1/01.12b\n\n01.12b\n", mine,
            "Claim 01.5. More of 01.5, 01.6.\n    > 01.5 here: 6 = 6 (holds,\n      2027-01-03)\n\n* 101.8, 01.8.1, 01.80, 1/01.12b\n\n"
            "01.12b\n    > 01.12b here: 1 = 2 (red,\n      2027-01-03)\n");
    page_is("| a | 01.5 |\n", mine, "a  01.5\n    > 01.5 here: 6 = 6 (holds,\n      2027-01-03)\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(an_item_is_a_line, make_folder, remove_folder),
        cmocka_unit_test(every_part_of_a_line_is_read_back),
        cmocka_unit_test_setup_teardown(several_processes_lose_no_line, make_folder, remove_folder),
        cmocka_unit_test(lines_from_elsewhere_are_merged),
        cmocka_unit_test(other_lines_are_refused),
        cmocka_unit_test(pages_are_broken_at_the_width),
        cmocka_unit_test(numbers_of_the_reader_come_after_the_claim),
    };
    return cmocka_run_group_tests_name("lab_progress", tests, NULL, NULL);
}
