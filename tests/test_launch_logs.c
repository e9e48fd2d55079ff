/* What ls_launch does with the output of ranks: files, prefixes, filters, error files and events. */
#include "harness_launch.h"

static const char speak[] = "echo out $RANK; echo err $RANK >&2";

static void writes_redirected_streams_to_files_alone(void **state)
{
    (void)state;
    char *dir = folder();
    outcome x = shell(2, speak, (ls_launch_opts){ .log_dir = dir, .run_id = "../job", .redirects = "0:3,1:1" });
    assert_int_equal(x.r.exit_code, 0);
    assert_string_equal(x.out, "");
    assert_string_equal(x.err, "err 1\n");
    char *got = printed(dir, "find . -type f | sed 's/_[0-9a-f]*\\//_X\\//' | sort");
    assert_string_equal(got, "./_._job_X/attempt_0/0/stderr.log\n./_._job_X/attempt_0/0/stdout.log\n./_._job_X/attempt_0/1/stdout.log\n");
    free(got);
    got = printed(dir, "cat */attempt_0/0/*.log");
    assert_string_equal(got, "err 0\nout 0\n");
    free(got);
    release(&x);
    remove_folder(dir);
}

static void puts_the_rank_before_teed_lines(void **state)
{
    (void)state;
    char *dir = folder();
    outcome x = shell(2, "printf 'a\\n\\nb'", (ls_launch_opts){ .log_dir = dir, .tee = "3", .role = "rank", .local_ranks_filter = "1" });
    assert_int_equal(x.r.exit_code, 0);
    assert_string_equal(x.out, "[rank1]:a\n[rank1]:\n[rank1]:b\n");
    char *got = printed(dir, "cat */attempt_0/[01]/stdout.log"); /* the filter is for the console only */
    assert_string_equal(got, "a\n\nba\n\nb");
    free(got);
    release(&x);
    remove_folder(dir);
}

static void puts_what_was_asked_for_before_teed_lines(void **state)
{
    (void)state;
    char host[64], want[200];
    assert_int_equal(gethostname(host, sizeof host), 0);
    outcome x = shell(2, "echo a", (ls_launch_opts){ .tee = "1", .role = "gpt", .local_ranks_filter = "1",
                                                     .line_prefix = "$hostname ${role_name}/$local_rank,${rank}$$1 ${no} ${rank $rank_ $" });
    snprintf(want, sizeof want, "%s gpt/1,1$1 ${no} ${rank $rank_ $a\n", host);
    assert_string_equal(x.out, want);
    release(&x);
}

static void copies_teed_lines_that_have_a_word(void **state)
{
    (void)state;
    char *dir = folder();
    outcome x = shell(3, "echo loss $RANK; echo other; echo a; printf 'a,b'; echo loss >&2; echo lost >&2",
                      (ls_launch_opts){ .log_dir = dir, .tee = "0:1,1:3", .local_ranks_filter = "1,2", .copy_stdout = ",loss,a,,b",
                                        .copy_stderr = "lost" });
    assert_int_equal(x.r.exit_code, 0);
    char *got = printed(dir, "cat */attempt_0/filtered_stdout.log"); /* not rank 0, which is hidden; not rank 2, which is not teed */
    assert_string_equal(got, "[default1]:loss 1\n[default1]:a,b\n");
    free(got);
    got = printed(dir, "cat */attempt_0/filtered_stderr.log");
    assert_string_equal(got, "[default1]:lost\n");
    free(got);
    assert_true(has(x.out, "[default1]:other\n"));
    release(&x);
    x = shell(1, "echo loss", (ls_launch_opts){ .log_dir = dir, .tee = "1", .copy_stdout = "," }); /* no word, no file */
    assert_int_equal(x.r.exit_code, 0);
    got = printed(dir, "find . -name 'filtered*' | wc -l");
    assert_string_equal(got, "2\n");
    free(got);
    release(&x);
    remove_folder(dir);
}

static void hides_the_ranks_that_the_filter_leaves_out(void **state)
{
    (void)state;
    outcome x = shell(3, speak, (ls_launch_opts){ .local_ranks_filter = "1" });
    assert_string_equal(x.out, "out 1\n");
    assert_string_equal(x.err, "err 1\n");
    release(&x);
}

static void passes_on_an_unfinished_line(void **state)
{
    (void)state;
    char *dir = folder();
    setenv("DIR", dir, 1);
    /* rank 1 speaks while rank 0 is in the middle of a line */
    outcome x = shell(2, "if [ $RANK = 0 ]; then printf ab >&2; touch $DIR/0; while [ ! -e $DIR/1 ]; do sleep 0.001; done;"
                         "printf 'cd\\n' >&2; printf 'e' >&2; sleep 0.1; printf f >&2;"
                         "else while [ ! -e $DIR/0 ]; do sleep 0.001; done; printf '12\\n34\\n' >&2; touch $DIR/1; fi", (ls_launch_opts){ 0 });
    assert_true(has(x.err, "12\n34\n"));
    assert_int_equal(strlen(x.err), 13);
    assert_string_equal(x.err + 11, "ef");
    release(&x);
    remove_folder(dir);
}

static void passes_on_much_output_unchanged(void **state)
{
    (void)state;
    outcome x = shell(1, "seq 200000 >&2", (ls_launch_opts){ 0 });
    assert_int_equal(x.r.exit_code, 0);
    assert_int_equal(strlen(x.err), 1288895); /* digits and newlines of 1 to 200000 */
    assert_true(has(x.err, "\n99999\n100000\n") && has(x.err, "\n200000\n"));
    release(&x);
}

static void writes_the_failure_as_json(void **state)
{
    (void)state;
    char *dir = folder();
    outcome x = shell(2, "if [ $RANK = 1 ]; then echo '</script>' >&2;"
                         "echo '{\"message\": {\"message\": \"boom\"}}' > $TORCHELASTIC_ERROR_FILE; kill -9 $$; fi; exec sleep 60",
                      (ls_launch_opts){ .log_dir = dir, .quiet = true });
    assert_string_equal(x.err, "</script>\n"); /* quiet: the rank's words only */
    char *text = printed(dir, "cat */failure.json");
    json_t *j = json_loads(text, 0, NULL);
    assert_non_null(j);
    assert_string_equal(json_string_value(json_object_get(j, "code_word")), "rank-died");
    assert_int_equal(json_integer_value(json_object_get(j, "rank")), 1);
    assert_int_equal(json_integer_value(json_object_get(j, "exitcode")), -9);
    assert_string_equal(json_string_value(json_object_get(j, "signal")), "SIGKILL");
    assert_string_equal(json_string_value(json_object_get(j, "error")), "boom");
    assert_string_equal(json_string_value(json_array_get(json_object_get(j, "stderr"), 0)), "</script>");
    assert_false(has(text, "<"));
    json_t *c = json_array_get(json_object_get(j, "consequences"), 0);
    assert_int_equal(json_integer_value(json_object_get(c, "rank")), 0);
    assert_true(json_is_true(json_object_get(c, "stopped_by_launcher")));
    json_decref(j);
    free(text);
    release(&x);
    remove_folder(dir);
}

/* As torch's @record: what it writes before the exception goes on. */
#define RECORD(text) "printf '%s' '" text "' >$TORCHELASTIC_ERROR_FILE;"
#define STACK "{\"message\": {\"message\": \"ValueError: no layer\", \"extraInfo\": {\"py_callstack\": " \
    "\"Traceback (most recent call last):\\n  File \\\"x.py\\\", line 3, in f\\u001b[2J\\nValueError: no layer\\n\", \"timestamp\": \"1\"}}}"

static void reports_what_record_left(void **state)
{
    (void)state;
    static const char traceback[] = "  error_file: not kept; --log-dir DIR keeps it\n"
        "  traceback : Traceback (most recent call last):\n    File \"x.py\", line 3, in f [2J\n  ValueError: no layer\n  ";
    static const struct { const char *script, *says, *silent; } row[] = {
        { RECORD(STACK) "echo 'ValueError: no layer' >&2; exit 1", traceback, "its last lines" },
        { RECORD(STACK) "echo '[rank0]: ValueError: no layer' >&2; exit 1", traceback, "its last lines" }, /* PyTorch's */
        { RECORD(STACK) "echo 'no layer' >&2; exit 1", "its last lines on stderr:\n    | no layer\n", "<N/A>" },
        { RECORD(STACK) "echo 'Segmentation fault' >&2; exit 1", traceback, "error     :" },
        { RECORD(STACK) "echo 'Segmentation fault' >&2; exit 1", "its last lines on stderr:\n    | Segmentation fault\n", "<N/A>" },
        { RECORD("{\"message\": \"out of\\nluck\"}") "exit 1", "  error     : out of luck\n", "traceback" },
        { RECORD("{\"message\": {\"message\": \"bad\"}}") "exit 1", "  error     : bad\n", "traceback" },
        { RECORD("{\"message\": 7}") "exit 1", "  error_file: <N/A>\n", "error     :" },
        { RECORD("{\"message\": ") "exit 1", "  error_file: <N/A>\n", "error     :" },
        { "cd /; printf '%s' '{\"message\": \"late\"}' >$TORCHELASTIC_ERROR_FILE & wait; exit 1", "  error     : late\n", "traceback" },
        { "yes '{' | head -c 2000000 >$TORCHELASTIC_ERROR_FILE; exit 1", "  error_file: <N/A>\n", "error     :" },
        { "exit 1", "  error_file: <N/A>\n", "traceback" },
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        outcome x = shell(1, row[i].script, (ls_launch_opts){ 0 });
        assert_int_equal(x.r.exit_code, 1);
        if (!has(x.err, row[i].says) || has(x.err, row[i].silent)) fail_msg("row %zu: %s", i, x.err);
        release(&x);
    }
}

static void shows_the_end_of_a_long_traceback(void **state)
{
    (void)state;
    outcome x = shell(1, "(printf '{\"message\": {\"extraInfo\": {\"py_callstack\": \"'; for i in $(seq 5000); do printf 'frame %d\\\\n' $i; done;"
                         "printf 'end\"}}}') >$TORCHELASTIC_ERROR_FILE; exit 1", (ls_launch_opts){ 0 });
    assert_true(has(x.err, "  traceback : ...\n  frame "));
    assert_true(has(x.err, "\n  frame 5000\n  end\n"));
    assert_false(has(x.err, "frame 2000\n"));
    release(&x);
}

static void names_error_files_for_programs_that_change_their_folder(void **state)
{
    (void)state;
    char *dir = folder(), was[4096], want[4200];
    assert_non_null(getcwd(was, sizeof was));
    assert_int_equal(chdir(dir), 0);
    outcome x = shell(1, "cd /; printf '%s' '" STACK "' >$TORCHELASTIC_ERROR_FILE; exit 1", (ls_launch_opts){ .log_dir = "logs" });
    assert_int_equal(chdir(was), 0);
    snprintf(want, sizeof want, "  error_file: %s/logs/none_", dir);
    if (!has(x.err, want)) fail_msg("no %s in: %s", want, x.err);
    char *got = printed(dir, "cat logs/*/attempt_0/0/error.json");
    assert_string_equal(got, STACK);
    free(got);
    got = printed(dir, "cat logs/*/failure.json");
    json_t *j = json_loads(got, 0, NULL);
    assert_non_null(j);
    assert_true(has(json_string_value(json_object_get(j, "error_file")), "/attempt_0/0/error.json"));
    assert_string_equal(json_string_value(json_object_get(j, "error")), "ValueError: no layer");
    assert_true(has(json_string_value(json_object_get(j, "traceback")), "line 3, in f"));
    json_decref(j);
    free(got);
    release(&x);
    remove_folder(dir);
}

static void writes_events_as_json_lines(void **state)
{
    (void)state;
    char *dir = folder(), file[64];
    snprintf(file, sizeof file, "%s/events", dir);
    outcome x = shell(1, "exit 3", (ls_launch_opts){ .events = file });
    char *text = printed(dir, "cat events"), *line = text;
    static const char *const want[] = { "gen_start", "rank_spawn", "rank_exit", "detect", "exit" };
    double before = 0;
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        json_t *j = json_loads(line, JSON_DISABLE_EOF_CHECK, NULL);
        assert_non_null(j);
        assert_string_equal(json_string_value(json_object_get(j, "event")), want[i]);
        assert_true(json_number_value(json_object_get(j, "t_ns")) >= before);
        before = json_number_value(json_object_get(j, "t_ns"));
        assert_int_equal(json_integer_value(json_object_get(j, "gen")), 1);
        json_decref(j);
        line = strchr(line, '\n') + 1;
    }
    assert_string_equal(line, "");
    free(text);
    release(&x);
    remove_folder(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(writes_redirected_streams_to_files_alone),
        cmocka_unit_test(puts_the_rank_before_teed_lines),
        cmocka_unit_test(puts_what_was_asked_for_before_teed_lines),
        cmocka_unit_test(copies_teed_lines_that_have_a_word),
        cmocka_unit_test(hides_the_ranks_that_the_filter_leaves_out),
        cmocka_unit_test(passes_on_an_unfinished_line),
        cmocka_unit_test(passes_on_much_output_unchanged),
        cmocka_unit_test(writes_the_failure_as_json),
        cmocka_unit_test(reports_what_record_left),
        cmocka_unit_test(shows_the_end_of_a_long_traceback),
        cmocka_unit_test(names_error_files_for_programs_that_change_their_folder),
        cmocka_unit_test(writes_events_as_json_lines),
    };
    return cmocka_run_group_tests_name("launch_logs", tests, NULL, NULL);
}
