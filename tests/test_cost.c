/* The calibration file: written and read back, refused with the reason, found where the environment says. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/file.h"
#include "base/limits.h"
#include "coll/cost.h"

static void fits_a_line_by_relative_errors(void **state)
{
    (void)state;
    const double x[4] = { 0, 1024, 65536, 1 << 20 };
    double y[4], alpha, beta, worst;
    for (int i = 0; i < 4; i++) y[i] = 500.0 + 0.25 * x[i];
    ls_cost_fit(x, y, 4, &alpha, &beta, &worst);
    assert_true(fabs(alpha - 500.0) < 1e-6 && fabs(beta - 0.25) < 1e-9 && worst < 1e-9);
    y[0] *= 1.1; /* a tenth off at one end moves both a little, and shows */
    ls_cost_fit(x, y, 4, &alpha, &beta, &worst);
    assert_true(alpha > 500.0 && alpha < 550.0 && fabs(beta - 0.25) < 0.01 && worst > 0.02 && worst < 0.1);
    const double down[2] = { 100.0, 50.0 }, steep[2] = { 1.0, 1e6 };
    ls_cost_fit(x, down, 2, &alpha, &beta, &worst);
    assert_true(beta == 0.0 && alpha > 50.0 && alpha < 100.0);
    const double far[2] = { 1000.0, 2000.0 };
    ls_cost_fit(far, steep, 2, &alpha, &beta, &worst);
    assert_true(alpha == 0.0 && beta > 0.0);
}

static void comes_back_as_it_was_written(void **state)
{
    (void)state;
    ls_cost c = { .link = { { 1.0 / 3, 0.1, 2e-9 }, { 8e3, 1e3, 0.5 }, { 3e4, 2e3, 0.8 } },
                  .gamma_ns = 0.7, .poke_ns = 5, .in_memory = { 512, 2048, 1 << 25, 4096, LS_COST_NEVER, 1 << 19 } };
    ls_cost back;
    ls_text t = { 0 };
    ls_cost_print_json(&c, "a \"host\"", &t);
    assert_int_equal(ls_cost_read_json("x", ls_text_str(&t), t.n, &back), LS_OK);
    assert_memory_equal(&c, &back, sizeof c);
    ls_text_free(&t);
}

static void what_is_left_out_is_the_presets(void **state)
{
    (void)state;
    static const char text[] = "{\"lockstep_calibration\": 1, \"network\": {\"alpha_ns\": 5, \"gap_ns\": -0.0}, \"more\": [1], "
                               "\"in_memory\": {\"mail_string_bytes\": 2048}}";
    ls_cost c, want = ls_cost_preset;
    want.link[LS_LEVEL_NETWORK].alpha_ns = 5.0;
    want.in_memory.mail_string = 2048.0;
    want.link[LS_LEVEL_NETWORK].gap_ns = 0.0; /* not minus zero, to the bit */
    assert_int_equal(ls_cost_read_json("x", text, sizeof text - 1, &c), LS_OK);
    assert_memory_equal(&c, &want, sizeof c);
}

static void says_what_is_wrong_with_a_file(void **state)
{
    (void)state;
    static const struct { const char *text, *says; } row[] = {
        { "", "x: line 1: " },
        { "{\n\"lockstep_calibration\": 1,\n}", "x: line 3: " },
        { "[1]", "x: expected an object" },
        { "{}", "\"lockstep_calibration\": expected 1" },
        { "{\"lockstep_calibration\": 2}", "\"lockstep_calibration\": expected 1" },
        { "{\"lockstep_calibration\": 1, \"memory\": 3}", "x: memory: expected an object" },
        { "{\"lockstep_calibration\": 1, \"memory\": {\"gap_ns\": -1}}", "x: memory.gap_ns: expected a number from 0 to 1e+12" },
        { "{\"lockstep_calibration\": 1, \"poke_ns\": 1e13}", "x: poke_ns: expected a number from 0 to 1e+12" },
        { "{\"lockstep_calibration\": 1, \"poke_ns\": \"1\"}", "x: poke_ns: expected a number" },
        { "{\"lockstep_calibration\": 1, \"in_memory\": 3}", "x: in_memory: expected an object" },
        { "{\"lockstep_calibration\": 1, \"in_memory\": {\"past_cache_bytes\": -1}}",
          "x: in_memory.past_cache_bytes: expected a number from 0 to 1e+12" },
        { "{\"lockstep_calibration\": 1, \"poke_ns\": 1, \"poke_ns\": 1}", "duplicate" },
    };
    ls_cost c;
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        assert_int_equal(ls_cost_read_json("x", row[i].text, strlen(row[i].text), &c), LS_BAD_FILE);
        if (!strstr(ls_last_error(), row[i].says)) fail_msg("%s: %s", row[i].text, ls_last_error());
    }
    char *text = malloc(LS_COST_MAX_BYTES + 1);
    memset(text, ' ', LS_COST_MAX_BYTES + 1);
    memcpy(text, "{\"lockstep_calibration\": 1}", 27);
    assert_int_equal(ls_cost_read_json("x", text, LS_COST_MAX_BYTES, &c), LS_OK);
    assert_int_equal(ls_cost_read_json("x", text, LS_COST_MAX_BYTES + 1, &c), LS_BAD_FILE);
    free(text);
}

static void is_looked_for_where_the_environment_says(void **state)
{
    (void)state;
    static const char good[] = "{\"lockstep_calibration\": 1, \"poke_ns\": 77}", bad[] = "{\"lockstep_calibration\": 1";
    char dir[] = "/tmp/test_cost.XXXXXX", path[256], want[256], from[256];
    ls_cost c;
    assert_non_null(mkdtemp(dir));
    unsetenv("LOCKSTEP_CALIBRATION");
    setenv("HOME", dir, 1);
    unsetenv("XDG_CACHE_HOME");
    snprintf(want, sizeof want, "%s/.cache/lockstep/calibration.json", dir);
    assert_true(ls_cost_path(path, sizeof path));
    assert_string_equal(path, want);
    setenv("XDG_CACHE_HOME", dir, 1);
    snprintf(want, sizeof want, "%s/lockstep/calibration.json", dir);
    assert_true(ls_cost_path(path, sizeof path));
    assert_string_equal(path, want);

    assert_int_equal(ls_cost_load(&c, from, sizeof from), LS_OK); /* nothing there */
    assert_memory_equal(&c, &ls_cost_preset, sizeof c);
    assert_string_equal(from, "the preset");
    snprintf(path, sizeof path, "%s/lockstep", dir);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(ls_file_write(want, good, sizeof good - 1), LS_OK);
    assert_int_equal(ls_cost_load(&c, from, sizeof from), LS_OK);
    assert_true(c.poke_ns == 77.0);
    assert_string_equal(from, want);

    setenv("LOCKSTEP_CALIBRATION", "none", 1);
    assert_false(ls_cost_path(path, sizeof path));
    assert_int_equal(ls_cost_load(&c, from, sizeof from), LS_OK);
    assert_memory_equal(&c, &ls_cost_preset, sizeof c);
    unsetenv("LOCKSTEP_CALIBRATION");

    assert_int_equal(unlink(want), 0);
    assert_int_equal(ls_file_write(want, bad, sizeof bad - 1), LS_OK);
    assert_int_equal(ls_cost_load(&c, from, sizeof from), LS_OK); /* a cache that is broken is no reason to stop */
    assert_memory_equal(&c, &ls_cost_preset, sizeof c);
    setenv("LOCKSTEP_CALIBRATION", want, 1); /* one that was asked for is */
    assert_int_equal(ls_cost_load(&c, from, sizeof from), LS_BAD_FILE);
    assert_int_equal(unlink(want), 0);
    assert_int_equal(ls_cost_load(&c, from, sizeof from), LS_IO);
    snprintf(path, sizeof path, "%s/lockstep", dir);
    rmdir(path);
    rmdir(dir);
    setenv("LOCKSTEP_CALIBRATION", "none", 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fits_a_line_by_relative_errors),
        cmocka_unit_test(comes_back_as_it_was_written),
        cmocka_unit_test(what_is_left_out_is_the_presets),
        cmocka_unit_test(says_what_is_wrong_with_a_file),
        cmocka_unit_test(is_looked_for_where_the_environment_says),
    };
    return cmocka_run_group_tests_name("cost", tests, NULL, NULL);
}
