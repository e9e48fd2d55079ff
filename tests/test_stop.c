/* Signals to stop: seen without a system call, by a thread that ends with the watch. */
#include <dirent.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/env.h"
#include "base/stop.h"

static int entries(const char *folder)
{
    int n = 0;
    DIR *d = opendir(folder);
    assert_non_null(d);
    while (readdir(d)) n++;
    closedir(d);
    return n;
}

static void sees_the_newest_signal_and_leaves_nothing_behind(void **state)
{
    (void)state;
    static const int sigs[] = { SIGUSR1, SIGUSR2 };
    ls_stop *s;
    assert_int_equal(ls_stop_watch(sigs, 2, &s), LS_OK);
    ls_stop_end(s); /* with the first thread ThreadSanitizer starts one that stays */
    const int fds = entries("/proc/self/fd"), threads = entries("/proc/self/task");
    assert_int_equal(ls_stop_watch(sigs, 2, &s), LS_OK);
    assert_int_equal(ls_stop_seen(s), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ls_env_get()->kill(getpid(), sigs[i]), 0);
        const uint64_t end = ls_env_get()->mono_ns() + 10000000000ull;
        while (ls_stop_seen(s) != sigs[i] && ls_env_get()->mono_ns() < end) ls_env_get()->yield();
        assert_int_equal(ls_stop_seen(s), sigs[i]);
    }
    ls_stop_end(s);
    assert_int_equal(entries("/proc/self/fd"), fds);
    const uint64_t end = ls_env_get()->mono_ns() + 10000000000ull; /* a joined thread's entry goes a moment later */
    while (entries("/proc/self/task") != threads && ls_env_get()->mono_ns() < end) ls_env_get()->yield();
    assert_int_equal(entries("/proc/self/task"), threads);
}

static void nobody_watching_sees_nothing(void **state)
{
    (void)state;
    assert_int_equal(ls_stop_seen(NULL), 0);
    ls_stop_end(NULL);
}

static void says_which_signal_cannot_be_watched(void **state)
{
    (void)state;
    ls_stop *s;
    const int fds = entries("/proc/self/fd");
    assert_int_equal(ls_stop_watch((const int[]){ 1000 }, 1, &s), LS_SYSTEM);
    assert_non_null(strstr(ls_last_error(), "watching for signals to stop: Invalid argument"));
    assert_null(s);
    assert_int_equal(entries("/proc/self/fd"), fds);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sees_the_newest_signal_and_leaves_nothing_behind),
        cmocka_unit_test(nobody_watching_sees_nothing),
        cmocka_unit_test(says_which_signal_cannot_be_watched),
    };
    return cmocka_run_group_tests_name("stop", tests, NULL, NULL);
}
