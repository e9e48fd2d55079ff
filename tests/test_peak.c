/* peak: what is measured is kept, found again on the same host only, and a broken file is named. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/context.h"
#include "base/file.h"
#include "base/team.h"
#include "report/peak.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

static const char *host_name;
static int host(char *buf, size_t n) { return snprintf(buf, n, "%s", host_name); }

static ls_env env;
static ls_context context = { .env = &env, .rank = -1 }, *was;
static char folder[64];

static int enter(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/test_peak.%d", (int)getpid());
    unsetenv("LOCKSTEP_PEAK");
    setenv("XDG_CACHE_HOME", folder, 1);
    host_name = "node7";
    env = ls_env_real;
    env.hostname = host;
    was = ls_context_swap(&context);
    context.log_level = -1; /* warnings are expected */
    return 0;
}

static int leave(void **state)
{
    (void)state;
    char command[100];
    ls_context_swap(was);
    unsetenv("LOCKSTEP_PEAK");
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

static const ls_peaks example = {
    .host = "node7",
    .n = 3,
    .row = { { LS_F32, 1, 115.25 }, { LS_F32, 2, 114.5 }, { LS_BF16, 1, 232.0 } },
};

static void a_kept_peak_is_found_on_its_host(void **state)
{
    (void)state;
    char path[200], want[200];
    ls_peak p;
    assert_true(ls_peak_path(path, sizeof path));
    snprintf(want, sizeof want, "%s/lockstep/peak.json", folder);
    assert_string_equal(path, want);
    assert_int_equal(ls_peak_keep(&example, path), LS_OK);
    assert_int_equal(ls_peak_find(LS_F32, 1, &p), LS_OK);
    assert_true(p.gflops == 115.25);
    assert_non_null(strstr(p.text, "115.2 GFLOP/s per thread in f32 products, 1 thread per rank (measured once, cached in "));
    assert_non_null(strstr(p.text, path));
    assert_int_equal(ls_peak_find(LS_F32, 2, &p), LS_OK);
    assert_true(p.gflops == 229.0);
    assert_int_equal(ls_peak_find(LS_BF16, 1, &p), LS_OK);
    assert_true(p.gflops == 232.0);
    host_name = "node8"; /* a home that two machines share */
    assert_int_equal(ls_peak_find(LS_F32, 1, &p), LS_OK);
    assert_true(p.gflops > 0.0 && p.gflops != 115.25);
}

static void it_is_measured_once(void **state)
{
    (void)state;
    double first;
    char path[200];
    ls_peak p;
    assert_int_equal(ls_peak_find(LS_F32, 1, &p), LS_OK);
    first = p.gflops;
    assert_true(first > 0.0);
    assert_int_equal(ls_peak_find(LS_BF16, 1, &p), LS_OK); /* a further row of the same file */
    assert_true(p.gflops > 0.0);
    assert_int_equal(ls_peak_find(LS_F32, 1, &p), LS_OK);
    assert_true(p.gflops == first); /* to the bit: two measurements never agree so far */
    /* A full file still takes the newest row. */
    ls_peaks full = { .host = "node7", .n = LS_PEAK_ROWS };
    for (int i = 0; i < full.n; i++) full.row[i] = (ls_peak_row){ LS_F32, i + 2, 7.5 };
    assert_int_equal(ls_peak_keep(&full, (ls_peak_path(path, sizeof path), path)), LS_OK);
    assert_int_equal(ls_peak_find(LS_F32, 1, &p), LS_OK);
    first = p.gflops;
    assert_int_equal(ls_peak_find(LS_F32, 1, &p), LS_OK);
    assert_true(p.gflops == first);
    assert_int_equal(ls_peak_find(LS_F32, 2, &p), LS_OK);
    assert_true(p.gflops == 15.0);
}

static void without_a_place_for_it_there_is_none(void **state)
{
    (void)state;
    double gflops;
    ls_peak p;
    setenv("LOCKSTEP_PEAK", "none", 1);
    assert_int_equal(ls_peak_find(LS_F32, 1, &p), LS_OK);
    assert_true(p.gflops == 0.0);
    assert_non_null(strstr(p.text, "not known: there is no folder to keep it in, so MFU is left out"));
    unsetenv("LOCKSTEP_PEAK");
    setenv("XDG_CACHE_HOME", "/proc/none", 1);
    assert_int_equal(ls_peak_find(LS_F32, 1, &p), LS_OK);
    assert_true(p.gflops == 0.0);
    assert_non_null(strstr(p.text, "/proc/none"));
    assert_non_null(strstr(p.text, "; MFU is left out"));
    assert_int_equal(ls_peak_measure(LS_F32, 1, 0.2, &gflops), LS_OK);
    assert_true(gflops > 0.0);
    assert_int_equal(ls_peak_measure(LS_BF16, 1, 0.01, &gflops), LS_OK);
    assert_true(gflops > 0.0);
    assert_int_equal(ls_peak_measure(LS_I32, 1, 0.2, &gflops), LS_UNSUPPORTED);
}

static void a_file_gives_back_what_was_written(void **state)
{
    (void)state;
    ls_text text = { 0 };
    ls_peaks back;
    ls_peak_print_json(&example, &text);
    assert_int_equal(ls_peak_read_json("p", text.p, text.n, &back), LS_OK);
    assert_string_equal(back.host, "node7");
    assert_int_equal(back.n, 3);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(back.row[i].dtype, example.row[i].dtype);
        assert_int_equal(back.row[i].threads, example.row[i].threads);
        assert_true(back.row[i].gflops == example.row[i].gflops);
    }
    ls_text_free(&text);
}

static _Atomic uint64_t clock_ns; /* members of a team may look, too */
static uint64_t a_millisecond_later(void) { return clock_ns += 1000000; }

/* A pass reads two vectors of 8 MiB and writes one. */
static void memory_is_bytes_by_time(void **state)
{
    (void)state;
    double rate = 0;
    const int threads = ls_team_size();
    env.mono_ns = a_millisecond_later;
    assert_int_equal(ls_peak_memory(2, 0.02, &rate), LS_OK);
    /* So many milliseconds by the looks at the clock; a thread that waits for another one looks, too. */
    const double ms = 3.0 * (8 << 20) / rate / 1e-3;
    assert_true(ms > 1 - 1e-6 && ms < 100 && fabs(ms - round(ms)) < 1e-6);
    assert_true(clock_ns >= 2 * 20 * 1000000ull); /* two looks at the clock per pass */
    assert_int_equal(ls_team_size(), threads);
}

static void broken_files_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } row[] = {
        { "", "p: line 1" },
        { "[]", "\"lockstep_peak\": expected 1" },
        { "{\"lockstep_peak\": 2}", "\"lockstep_peak\": expected 1" },
        { "{\"lockstep_peak\": 1, \"host\": 7}", "host: expected a name" },
        { "{\"lockstep_peak\": 1, \"host\": \"h\"}", "peaks: expected up to 16 objects" },
        { "{\"lockstep_peak\": 1, \"host\": \"h\", \"peaks\": [1]}", "peaks[0].dtype" },
        { "{\"lockstep_peak\": 1, \"host\": \"h\", \"peaks\": [{\"dtype\": \"f33\"}]}", "peaks[0].dtype" },
        { "{\"lockstep_peak\": 1, \"host\": \"h\", \"peaks\": [{\"dtype\": \"float\", \"threads\": 0}]}",
          "peaks[0].threads" },
        { "{\"lockstep_peak\": 1, \"host\": \"h\", \"peaks\": [{\"dtype\": \"float\", \"threads\": 1, "
          "\"gflops_per_thread\": -1}]}",
          "peaks[0].gflops_per_thread" },
        { "{\"lockstep_peak\": 1, \"host\": \"h\", \"peaks\": [{\"dtype\": \"float\", \"threads\": 1, "
          "\"gflops_per_thread\": 1e300}]}",
          "peaks[0].gflops_per_thread" },
        { "{\"lockstep_peak\": 1, \"host\": \"h\", \"peaks\": [1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]}", "up to 16" },
    };
    ls_peaks p;
    for (size_t i = 0; i < COUNT(row); i++) {
        assert_int_equal(ls_peak_read_json("p", row[i].text, strlen(row[i].text), &p), LS_BAD_FILE);
        if (!strstr(ls_last_error(), row[i].says)) fail_msg("%s: \"%s\"", row[i].text, ls_last_error());
    }
    /* one that was asked for is an error; one in the usual place is not */
    char path[200];
    ls_peak found;
    assert_int_equal(ls_peak_keep(&example, (ls_peak_path(path, sizeof path), path)), LS_OK);
    assert_int_equal(ls_file_write(path, "{", 1), LS_OK);
    assert_int_equal(ls_peak_find(LS_F32, 1, &found), LS_OK);
    assert_true(found.gflops == 0.0);
    assert_non_null(strstr(found.text, "`lockstep doctor --peak` measures it"));
    setenv("LOCKSTEP_PEAK", path, 1);
    assert_int_equal(ls_peak_find(LS_F32, 1, &found), LS_BAD_FILE);
    setenv("LOCKSTEP_PEAK", "/tmp/nowhere.json", 1);
    assert_int_equal(ls_peak_find(LS_F32, 1, &found), LS_IO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_kept_peak_is_found_on_its_host, enter, leave),
        cmocka_unit_test_setup_teardown(it_is_measured_once, enter, leave),
        cmocka_unit_test_setup_teardown(without_a_place_for_it_there_is_none, enter, leave),
        cmocka_unit_test(a_file_gives_back_what_was_written),
        cmocka_unit_test_setup_teardown(memory_is_bytes_by_time, enter, leave),
        cmocka_unit_test_setup_teardown(broken_files_are_named, enter, leave),
    };
    return cmocka_run_group_tests_name("peak", tests, NULL, NULL);
}
