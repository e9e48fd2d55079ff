/* logline: every format against literal lines, and against the regular expressions that its readers use. */
#include <math.h>
#include <regex.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "report/logline.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

static ls_log_values example(void)
{
    return (ls_log_values){ .step = 1,
                            .steps = 1000,
                            .loss = 10.825,
                            .grad_norm = 1.41,
                            .lr = 6e-4,
                            .loss_z = 0.0,
                            .grad_norm_z = -1.256,
                            .step_s = 0.118,
                            .rate = 69440.0,
                            .tokens = true,
                            .ranks = 2,
                            .memory_bytes = 1.2 * (1u << 30),
                            .memory_share = 0.05,
                            .flops = 12.34e12,
                            .mfu = 0.412,
                            .dtype = "bf16",
                            .exposed = 0.178,
                            .eta_s = 118.0,
                            .samples = 8,
                            .global_batch = 8 };
}

/* The line; valid until the next call. */
static const char *line(const char *format, const ls_log_values *v, bool colour)
{
    static char buf[1024];
    ls_text text = { 0 };
    const ls_log_format *f = ls_log_format_find(format);
    assert_non_null(f);
    f->line(v, colour, &text);
    assert_true(text.n < sizeof buf);
    memcpy(buf, ls_text_str(&text), text.n + 1);
    ls_text_free(&text);
    return buf;
}

static void lines_are_those_of_the_documentation(void **state)
{
    (void)state;
    static const struct {
        const char *format, *want;
    } row[] = {
        { "torchtitan",
          "step:  1  loss: 10.82500  grad_norm:  1.4100  memory:  1.20GiB(5.00%)  tps: 34,720  tflops: 12.34  "
          "mfu: 41.20%  tok/s: 69,440  exposed: 17.8%  lr: 6.00e-04  ETA: 1:58" },
        { "megatron",
          " iteration        1/    1000 | consumed samples:            8 | elapsed time per iteration (ms): "
          "118.0 | throughput per GPU (TFLOP/s/GPU): 12.3 | learning rate: 6.000000E-04 | global batch size:     8 "
          "| lm loss: 1.082500E+01 | loss scale: 1.0 | grad norm: 1.410 | number of skipped iterations:   0 | "
          "number of nan iterations:   0 |" },
        { "nanogpt", "iter 0: loss 10.8250, time 118.00ms, mfu 41.20%" },
        { "llmc",
          "step    1/1000 | loss 10.825000 (+0.00z)| norm 1.4100 (-1.26z)| lr 6.00e-04 | 118.00 ms | 41.2% bf16 MFU "
          "| 69440 tok/s" },
    };
    ls_log_values v = example();
    for (size_t i = 0; i < COUNT(row); i++) {
        assert_string_equal(line(row[i].format, &v, false), row[i].want);
        if (strcmp(row[i].format, "torchtitan") != 0) assert_string_equal(line(row[i].format, &v, true), row[i].want);
    }
    for (size_t i = 0; ls_log_formats[i].name; i++) assert_true(i < COUNT(row)); /* none is without a line above */
    assert_null(ls_log_format_find("tqdm"));
}

static void colours_are_torchtitans_and_leave_the_text_alone(void **state)
{
    (void)state;
    ls_log_values v = example();
    char plain[1024], stripped[1024];
    snprintf(plain, sizeof plain, "%s", line("torchtitan", &v, false));
    const char *p = line("torchtitan", &v, true);
    assert_ptr_equal(strstr(p, "\x1b[31mstep:  1  \x1b[32mloss: 10.82500  \x1b[38;2;180;60;0mgrad_norm:"), p);
    assert_non_null(strstr(p, "\x1b[35mmfu: 41.20%\x1b[39m"));
    size_t n = 0;
    for (; *p; p++) {
        if (*p == '\x1b')
            p = strchr(p, 'm');
        else
            stripped[n++] = *p;
    }
    stripped[n] = 0;
    assert_string_equal(stripped, plain);
}

/* Small models: the units that say something. A tenth is the border. */
static void small_numbers_have_smaller_units(void **state)
{
    (void)state;
    static const struct {
        double memory, flops;
        const char *want[2];
    } row[] = {
        { 0.1 * (1u << 30), 0.1e12, { "memory:  0.10GiB(", "  tflops: 0.10  " } },
        { 0.0999 * (1u << 30), 0.0999e12, { "memory: 102.30MiB(", "  gflops: 99.90  " } },
        { 26.08 * (1u << 20), 10.3e9, { "memory: 26.08MiB(", "  gflops: 10.30  " } },
        { 0.05 * (1u << 20), 0.05e9, { "memory: 51.20KiB(", "  mflops: 50.00  " } },
        { 3.0, 4.0, { "memory:  0.00KiB(", "  mflops: 0.00  " } }, /* the smallest there is */
    };
    ls_log_values v = example();
    for (size_t i = 0; i < COUNT(row); i++) {
        v.memory_bytes = row[i].memory;
        v.flops = row[i].flops;
        for (int k = 0; k < 2; k++)
            if (!strstr(line("torchtitan", &v, false), row[i].want[k]))
                fail_msg("\"%s\" is not in \"%s\"", row[i].want[k], line("torchtitan", &v, false));
    }
}

static void bytes_have_the_unit_that_fits(void **state)
{
    (void)state;
    static const struct {
        double nbytes;
        const char *want;
    } row[] = { { 0.0, "0 B" },          { 1023.0, "1023 B" },           { 1024.0, "1.00 KiB" },
                { 27347911.0, "26.08 MiB" }, { 1288490189.0, "1.20 GiB" }, { 0x1p50, "1024.00 TiB" } };
    char buf[32];
    for (size_t i = 0; i < COUNT(row); i++)
        assert_string_equal(ls_bytes_text(row[i].nbytes, buf, sizeof buf), row[i].want);
}

/* A terminal wraps a line once at most: its end gives way. */
static void a_line_fits_into_two_lines_of_the_terminal(void **state)
{
    (void)state;
    ls_log_values v = example();
    char whole[1024];
    snprintf(whole, sizeof whole, "%s", line("torchtitan", &v, false));
    const size_t n = strlen(whole), must = (size_t)(strstr(whole, "  tok/s") - whole);
    for (int columns = 40; columns < 100; columns++) {
        v.columns = columns;
        const size_t limit = 2 * (size_t)columns > must ? 2 * (size_t)columns : must;
        const char *p = line("torchtitan", &v, false);
        assert_true(strlen(p) <= limit);
        assert_int_equal(strncmp(p, whole, must), 0); /* torchtitan's own part is whole */
        if (n <= limit) assert_string_equal(p, whole);
        if (2 * (size_t)columns >= must + strlen("  tok/s: 69,440")) assert_non_null(strstr(p, "  tok/s: 69,440"));
        p = line("torchtitan", &v, true); /* escape codes take no columns */
        if (n <= limit) assert_non_null(strstr(p, "ETA: 1:58"));
    }
    v.mfu = (double)NAN;
    v.columns = (int)(n - strlen("  mfu: 41.20%") + 1) / 2;
    assert_non_null(strstr(line("torchtitan", &v, true), "ETA: 1:58"));
    v.columns--;
    assert_null(strstr(line("torchtitan", &v, true), "ETA: 1:58"));
}

static void evaluations_are_those_of_the_documentation(void **state)
{
    (void)state;
    static const struct {
        const char *format, *want;
    } row[] = {
        { "torchtitan", "validate step: 500  loss:  2.2968  perplexity: 9.94" },
        { "megatron", " validation loss at iteration 500 | lm loss value: 2.296800E+00 | lm loss PPL: 9.942300E+00 | " },
        { "nanogpt", "step 500: train loss 2.3117, val loss 2.2968" },
        { "llmc", "val loss 2.296800" },
    };
    const ls_log_eval e = { .step = 500, .loss = 2.2968, .perplexity = 9.9423, .train_loss = 2.31172 };
    for (size_t i = 0; ls_log_formats[i].name; i++) {
        ls_text text = { 0 };
        ls_log_formats[i].eval(&e, false, &text);
        assert_string_equal(row[i].format, ls_log_formats[i].name);
        assert_string_equal(ls_text_str(&text), row[i].want);
        ls_text_free(&text);
    }
    ls_text text = { 0 };
    ls_log_format_find("torchtitan")->eval(&e, true, &text);
    assert_string_equal(ls_text_str(&text), "\x1b[33mvalidate step: 500  \x1b[32mloss:  2.2968\x1b[39m  perplexity: 9.94");
    ls_text_free(&text);
}

/* Numbers by name, as people take them out of such logs. */
static void readers_find_their_numbers(void **state)
{
    (void)state;
    static const struct {
        const char *format, *regex;
        double want;
    } row[] = {
        { "torchtitan", "step: +([0-9]+)", 1 },
        { "torchtitan", "loss: +([0-9.]+)", 10.825 },
        { "torchtitan", "grad_norm: +([0-9.]+)", 1.41 },
        { "torchtitan", "memory: +([0-9.]+)GiB", 1.2 },
        { "torchtitan", "mfu: ([0-9.]+)%", 41.2 },
        { "torchtitan", "tflops: ([0-9.]+)", 12.34 },
        { "megatron", "iteration +([0-9]+)/ +[0-9]+", 1 },
        { "megatron", "elapsed time per iteration \\(ms\\): ([0-9.]+)", 118 },
        { "megatron", "lm loss: ([0-9.E+-]+)", 10.825 },
        { "megatron", "throughput per GPU \\(TFLOP/s/GPU\\): ([0-9.]+)", 12.3 },
        { "megatron", "number of nan iterations: +([0-9]+)", 0 },
        { "nanogpt", "^iter ([0-9]+): loss", 0 },
        { "nanogpt", "time ([0-9.]+)ms", 118 },
        { "llmc", "^step +([0-9]+)/[0-9]+ \\|", 1 },
        { "llmc", "loss ([0-9.]+) \\(", 10.825 },
        { "llmc", "\\| ([0-9]+) tok/s$", 69440 },
        { "llmc", "([0-9.]+)% bf16 MFU", 41.2 },
    };
    ls_log_values v = example();
    for (size_t i = 0; i < COUNT(row); i++) {
        regex_t re;
        regmatch_t m[2];
        const char *text = line(row[i].format, &v, false);
        assert_int_equal(regcomp(&re, row[i].regex, REG_EXTENDED), 0);
        if (regexec(&re, text, 2, m, 0) != 0)
            fail_msg("%s: /%s/ finds nothing in \"%s\"", row[i].format, row[i].regex, text);
        assert_true(fabs(strtod(text + m[1].rm_so, NULL) - row[i].want) < 1e-9);
        regfree(&re);
    }
}

static void wide_numbers_and_unknown_ones(void **state)
{
    (void)state;
    ls_log_values v = example();
    v.step = 123456;
    v.rate = 2469135799.0; /* half of it ends in .5: to even, as Python rounds */
    v.flops = 1234.5678e12;
    v.mfu = (double)NAN;
    v.loss_z = v.grad_norm_z = -(double)NAN;
    v.tokens = false;
    v.eta_s = 7384.0;
    assert_string_equal(
        line("torchtitan", &v, false),
        "step: 123456  loss: 10.82500  grad_norm:  1.4100  memory:  1.20GiB(5.00%)  tps: 1,234,567,900  tflops: "
        "1,234.57  samples/s: 2,469,135,799  exposed: 17.8%  lr: 6.00e-04  ETA: 2:03:04");
    assert_non_null(strstr(line("llmc", &v, false), "(+nanz)| norm 1.4100 (+nanz)|"));
    assert_non_null(strstr(line("llmc", &v, false), "| -100.0% bf16 MFU |"));
    assert_non_null(strstr(line("nanogpt", &v, false), "iter 123455: "));
    assert_non_null(strstr(line("nanogpt", &v, false), "mfu -100.00%"));
    static const struct {
        double rate;
        const char *want;
    } row[] = {
        { 0.0, "tps: 0  " },
        { 999.0, "tps: 999  " },
        { 1000.0, "tps: 1,000  " },
        { 999999.0, "tps: 999,999  " },
        { 1000000.0, "tps: 1,000,000  " },
        { (double)INFINITY, "tps: inf  " },
    };
    v.ranks = 1;
    for (size_t i = 0; i < COUNT(row); i++) {
        v.rate = row[i].rate;
        assert_non_null(strstr(line("torchtitan", &v, false), row[i].want));
    }
}

static void the_window_measures_how_unusual_a_value_is(void **state)
{
    (void)state;
    ls_log_window w = { 0 };
    for (int i = 0; i < LS_LOG_WINDOW - 1; i++) assert_true(isnan(ls_log_window_add(&w, 3.0)));
    assert_true(ls_log_window_add(&w, 3.0) == 0.0);
    /* 127 threes and a four: mean 3 + 1/128, deviation sqrt(127)/128, z = sqrt(127) */
    assert_true(fabs(ls_log_window_add(&w, 4.0) - sqrt(127.0)) < 1e-9);
    for (int i = 0; i < LS_LOG_WINDOW; i++) (void)ls_log_window_add(&w, 5.0);
    assert_true(ls_log_window_add(&w, 5.0) == 0.0); /* the four has left */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_are_those_of_the_documentation),
        cmocka_unit_test(colours_are_torchtitans_and_leave_the_text_alone),
        cmocka_unit_test(small_numbers_have_smaller_units),
        cmocka_unit_test(bytes_have_the_unit_that_fits),
        cmocka_unit_test(a_line_fits_into_two_lines_of_the_terminal),
        cmocka_unit_test(evaluations_are_those_of_the_documentation),
        cmocka_unit_test(readers_find_their_numbers),
        cmocka_unit_test(wide_numbers_and_unknown_ones),
        cmocka_unit_test(the_window_measures_how_unusual_a_value_is),
    };
    return cmocka_run_group_tests_name("logline", tests, NULL, NULL);
}
