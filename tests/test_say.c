/* Lines of a run: of any length, and in the place of a live line where one stands. Whole runs on a terminal are in
 * test_train_lines.sh. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/context.h"
#include "base/log.h"
#include "report/say.h"

#define MOST 20000

static char text[MOST + 1];

/* What `fn` writes to fd, in `text`: a pipe holds that much. */
static void capture(int fd, void (*fn)(int n), int n)
{
    int ends[2];
    const int was = dup(fd);
    assert_int_equal(pipe(ends), 0);
    dup2(ends[1], fd);
    close(ends[1]);
    fn(n);
    dup2(was, fd);
    close(was);
    size_t at = 0;
    for (ssize_t k; (k = read(ends[0], text + at, MOST - at)) > 0;) at += (size_t)k;
    text[at] = 0;
    close(ends[0]);
}

static char digits[MOST];

static void say(int n) { ls_say("%.*s", n, digits); }

static void lines_have_any_length(void **state)
{
    (void)state;
    for (int i = 0; i < MOST; i++) digits[i] = (char)('0' + i % 10);
    static const int lengths[] = { 0, 1, 1000, 1018, 1019, 1020, 1021, 1022, 1023, 1024, 1025, 5000, MOST - 100 };
    /* As the launcher says it. A line clears its place where a bar may stand: both reach a terminal. Under mpirun
     * stdout may be a terminal while stderr is none, and a program reads the lines. */
    static const struct { const char *out, *columns; bool clears; } row[] = {
        { "0", "0", false }, { "1", "80", true }, { "1", "0", false }, { "0", "80", false },
    };
    for (size_t k = 0; k < sizeof row / sizeof *row; k++)
        for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
            const size_t n = (size_t)lengths[i], front = row[k].clears ? sizeof LS_ERASE_LINE - 1 : 0;
            setenv("LOCKSTEP_TTY_STDOUT", row[k].out, 1);
            setenv("LOCKSTEP_TTY_COLUMNS", row[k].columns, 1);
            capture(1, say, lengths[i]);
            assert_int_equal(strlen(text), front + n + 1);
            assert_memory_equal(text, LS_ERASE_LINE, front);
            assert_memory_equal(text + front, digits, n);
            assert_int_equal(text[front + n], '\n');
        }
    unsetenv("LOCKSTEP_TTY_STDOUT");
    unsetenv("LOCKSTEP_TTY_COLUMNS");
}

static void warn_while_a_bar_is_shown(int n)
{
    ls_bar b = { .terminal = true, .columns = 80 };
    ls_log(LS_LOG_WARN, "before");
    ls_bar_draw(&b, 1, 2, 0, 0.5, 10, "samples");
    if (n) ls_log_error(LS_IO, -1, "over it");
    else ls_log(LS_LOG_WARN, "over it");
    ls_log(LS_LOG_WARN, "after");
    ls_bar_draw(&b, 2, 2, 0, 0.5, 10, "samples");
    ls_bar_clear(&b);
    ls_log(LS_LOG_WARN, "at the end");
}

static void a_line_of_the_log_takes_the_place_of_a_bar(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        capture(2, warn_while_a_bar_is_shown, k);
        assert_memory_equal(text, "before\n\r[", 9);
        assert_non_null(strstr(text, k ? "\x1b[K" LS_ERASE_LINE "lockstep: error[io]" : "\x1b[K" LS_ERASE_LINE "over it\n"));
        assert_non_null(strstr(text, "over it\nafter\n\r["));
        assert_non_null(strstr(text, "\x1b[K" LS_ERASE_LINE "at the end\n"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_have_any_length),
        cmocka_unit_test(a_line_of_the_log_takes_the_place_of_a_bar),
    };
    return cmocka_run_group_tests_name("say", tests, NULL, NULL);
}
