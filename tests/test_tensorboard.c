/* tensorboard: byte for byte the records of TensorBoard's own writer, and files that are named as its reader expects.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/context.h"
#include "base/file.h"
#include "golden/tensorboard.h"
#include "report/tensorboard.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

static void records_are_those_of_its_own_writer(void **state)
{
    (void)state;
    char a[114], b[115], c[131];
    memset(a, 'a', sizeof a - 1), a[sizeof a - 1] = 0;
    memset(b, 'b', sizeof b - 1), b[sizeof b - 1] = 0;
    memset(c, 'c', sizeof c - 1), c[sizeof c - 1] = 0;
    const struct {
        double time;
        int64_t step;
        size_t n;
        ls_scalar v[3];
    } run[] = {
        { 1700000000.25, 0, 1, { { "loss", 0.0 } } },
        { 1700000001.5, 1, 3, { { "loss_metrics/global_avg_loss", 10.825 }, { "lr", 6e-4 }, { "mfu(%)", 41.2 } } },
        { 1700000002.125, 127, 2, { { "loss", (double)INFINITY }, { "loss", -(double)INFINITY } } },
        { 1700000003.0, 128, 3, { { a, 1.0 }, { b, -1.0 }, { c, 1e-45 } } },
        { 1700000004.0, ((int64_t)1 << 40) + 300, 2, { { "big", 3.4e38 }, { "small", 1.0 / 3.0 } } },
        { 1700000005.0, 7, 0, { { NULL, 0.0 } } },
    };
    ls_text out = { 0 };
    ls_tensorboard_version(&out, 1700000000.0);
    for (size_t i = 0; i < COUNT(run); i++) ls_tensorboard_scalars(&out, run[i].time, run[i].step, run[i].v, run[i].n);
    assert_int_equal(ls_text_status(&out), LS_OK);
    assert_int_equal(out.n, sizeof golden_events);
    for (size_t i = 0; i < out.n; i++)
        if ((unsigned char)out.p[i] != golden_events[i])
            fail_msg("byte %zu is 0x%02x, want 0x%02x", i, (unsigned)(unsigned char)out.p[i],
                     (unsigned)golden_events[i]);
    ls_text_free(&out);
}

static int64_t at_second_1700000000(void) { return 1700000000500000000; }
static int host_of_mine(char *buf, size_t n) { return snprintf(buf, n, "node7"); }
static int process_41(void) { return 41; }

static ls_env env;
static ls_context context = { .env = &env, .rank = -1 }, *was;
static char folder[64];

static int enter(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/test_tensorboard.%d", (int)getpid());
    env = ls_env_real;
    env.wall_ns = at_second_1700000000;
    env.hostname = host_of_mine;
    env.pid = process_41;
    was = ls_context_swap(&context);
    return 0;
}

static int leave(void **state)
{
    (void)state;
    ls_context_swap(was);
    char command[100];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

/* The bytes of the run's n-th event file. */
static size_t content(int n, char **p)
{
    char path[160];
    size_t bytes;
    snprintf(path, sizeof path, "%s/tb/events.out.tfevents.1700000000.node7.41.%d", folder, n);
    assert_int_equal(ls_file_read(path, 1 << 20, p, &bytes), LS_OK);
    return bytes;
}

static void what_was_added_is_there_after_a_flush(void **state)
{
    (void)state;
    char tb[100], *before, *after, *other;
    ls_tensorboard *t, *second;
    ls_text want = { 0 };
    const ls_scalar v[] = { { "loss", 2.5 }, { "lr", 1e-3 } };
    snprintf(tb, sizeof tb, "%s/tb", folder);
    assert_int_equal(ls_tensorboard_open(tb, &t), LS_OK);
    assert_int_equal(ls_tensorboard_open(tb, &second), LS_OK); /* in the same second: another name */
    ls_tensorboard_add(t, 3, v, COUNT(v));
    size_t n = content(0, &before);
    assert_int_equal(ls_tensorboard_flush(t), LS_OK);
    assert_int_equal(ls_tensorboard_flush(t), LS_OK); /* nothing more */
    size_t m = content(0, &after);
    ls_tensorboard_version(&want, 1700000000.5);
    assert_int_equal(n, want.n);
    assert_memory_equal(before, want.p, n);
    ls_tensorboard_scalars(&want, 1700000000.5, 3, v, COUNT(v));
    assert_int_equal(m, want.n);
    assert_memory_equal(after, want.p, m);
    assert_int_equal(content(1, &other), n);
    assert_memory_equal(other, before, n);
    ls_tensorboard_close(t);
    ls_tensorboard_close(second);
    ls_tensorboard_close(NULL);
    ls_text_free(&want);
    free(before);
    free(after);
    free(other);
}

static void a_folder_that_cannot_be_is_named(void **state)
{
    (void)state;
    ls_tensorboard *t;
    assert_int_equal(ls_tensorboard_open("/proc/none/tb", &t), LS_IO);
    assert_null(t);
    assert_non_null(strstr(ls_last_error(), "/proc/none"));
}

static ssize_t disk_full(int fd, const void *p, size_t n)
{
    (void)fd, (void)p, (void)n;
    return -28; /* ENOSPC */
}

static void a_full_disk_is_named(void **state)
{
    (void)state;
    char tb[100];
    ls_tensorboard *t;
    snprintf(tb, sizeof tb, "%s/tb", folder);
    assert_int_equal(ls_tensorboard_open(tb, &t), LS_OK);
    env.write = disk_full;
    ls_tensorboard_add(t, 1, &(ls_scalar){ "loss", 1.0 }, 1);
    assert_int_equal(ls_tensorboard_flush(t), LS_IO);
    assert_non_null(strstr(ls_last_error(), "events.out.tfevents.1700000000.node7.41."));
    assert_non_null(strstr(ls_last_error(), "No space left"));
    ls_tensorboard_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(records_are_those_of_its_own_writer),
        cmocka_unit_test_setup_teardown(what_was_added_is_there_after_a_flush, enter, leave),
        cmocka_unit_test_setup_teardown(a_folder_that_cannot_be_is_named, enter, leave),
        cmocka_unit_test_setup_teardown(a_full_disk_is_named, enter, leave),
    };
    return cmocka_run_group_tests_name("tensorboard", tests, NULL, NULL);
}
