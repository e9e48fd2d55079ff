/* The processes of the real env: how a child starts, what it is given, how it ends, and which signals are read. */
#include "harness_env.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* --- processes ------------------------------------------------------------------------------- */

static int start(const char *const *argv, const ls_child *more, int *pidfd)
{
    ls_child c = more ? *more : (ls_child){ .stdout_fd = -1, .stderr_fd = -1 };
    c.argv = argv;
    return env->spawn(&c, pidfd);
}

static int start_shell(const char *script, const ls_child *more)
{
    return start((const char *const[]){ "sh", "-c", script, NULL }, more, NULL);
}

static ls_child_state state_soon(int pid, ls_child_state not_this, int *code)
{
    ls_child_state s;
    uint64_t deadline = in_s(10);
    while ((s = env->child_poll(pid, code)) == not_this && env->mono_ns() < deadline) nap();
    return s;
}

/* What a shell command prints when started so. */
static const char *output_of(const char *script, const ls_child *more)
{
    static char text[4096];
    int ends[2], code;
    ls_child c = *more;
    size_t have = 0;
    assert_int_equal(env->pipe(ends), 0);
    c.stdout_fd = ends[1];
    int pid = start_shell(script, &c);
    assert_true(pid > 0);
    env->close_fd(ends[1]);
    ls_pollfd p = { .fd = ends[0], .events = LS_POLL_IN };
    for (ssize_t k; (k = env->read(ends[0], text + have, sizeof text - 1 - have)) != 0;) {
        if (k > 0) have += (size_t)k;
        else env->wait(NULL, 0, &p, 1, in_s(10));
    }
    text[have] = 0;
    env->close_fd(ends[0]);
    assert_int_equal(state_soon(pid, LS_CHILD_RUNNING, &code), LS_CHILD_EXITED);
    return text;
}

static const ls_child plain = { .stdout_fd = -1, .stderr_fd = -1 };

static void a_program_that_cannot_start_says_why_and_leaves_no_child(void **state)
{
    (void)state;
    static const struct { const char *program; int want; } row[] = {
        { "lockstep-no-such-program", -ENOENT }, { "/no/such/program", -ENOENT }, { "/etc/passwd", -EACCES }, { "/", -EACCES },
    };
    for (size_t i = 0; i < N(row); i++) {
        int pidfd = 5;
        assert_int_equal(start((const char *const[]){ row[i].program, NULL }, NULL, &pidfd), row[i].want);
        assert_int_equal(pidfd, -1);
    }
    assert_int_equal(start((const char *const[]){ NULL }, NULL, NULL), -EINVAL);
    ls_child c = plain;
    c.cpu_first = env->cpus() + 8000;
    c.cpu_count = 1;
    assert_int_equal(start_shell("true", &c), -EINVAL);
    c = plain;
    c.keep_fds = (const int[]){ 999 };
    c.nkeep = 1;
    assert_int_equal(start_shell("true", &c), -EBADF);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    assert_int_equal(errno, ECHILD);
}

static void tells_how_a_child_ended(void **state)
{
    (void)state;
    int code, pidfd = -1;
    int pid = start_shell("exit 3", NULL);
    assert_true(pid > 0);
    assert_int_equal(state_soon(pid, LS_CHILD_RUNNING, &code), LS_CHILD_EXITED);
    assert_int_equal(code, 3);
    assert_int_equal(env->child_poll(pid, &code), LS_CHILD_EXITED); /* reaped before */
    assert_int_equal(code, -1);

    pid = start((const char *const[]){ "sleep", "100", NULL }, NULL, &pidfd);
    assert_true(pid > 0 && pidfd >= 0);
    assert_int_equal(env->child_poll(pid, &code), LS_CHILD_RUNNING);
    assert_int_equal(env->kill(pid, SIGSTOP), 0);
    assert_int_equal(state_soon(pid, LS_CHILD_RUNNING, &code), LS_CHILD_STOPPED);
    assert_int_equal(env->child_poll(pid, &code), LS_CHILD_STOPPED); /* and stays so for who asks next */
    assert_int_equal(env->kill(pid, SIGCONT), 0);
    assert_int_equal(state_soon(pid, LS_CHILD_STOPPED, &code), LS_CHILD_RUNNING);
    assert_int_equal(env->kill(pid, SIGKILL), 0);
    ls_pollfd p = { .fd = pidfd, .events = LS_POLL_IN };
    env->wait(NULL, 0, &p, 1, in_s(10));
    assert_int_equal(p.revents & LS_POLL_IN, LS_POLL_IN);
    assert_int_equal(env->child_poll(pid, &code), LS_CHILD_SIGNALED);
    assert_int_equal(code, SIGKILL);
    env->close_fd(pidfd);
}

static int own = 1;
static void count_up(void *arg)
{
    own++;
    *(int *)arg = own;
}
static void wait_for_a_signal(void *arg)
{
    *(int *)arg = getppid();
    for (uint64_t until = in_s(20); env->mono_ns() < until;) nap();
}
static void never(int sig) { (void)sig; }

static void a_copy_has_memory_of_its_own_and_no_handlers(void **state)
{
    (void)state;
    int code, fd = env->memfd("told", 4096);
    int *told = env->map_shared(fd, 4096, false);
    assert_non_null(told);
    env->close_fd(fd);
    int pid = env->fork(count_up, told);
    assert_true(pid > 0);
    assert_int_equal(state_soon(pid, LS_CHILD_RUNNING, &code), LS_CHILD_EXITED);
    assert_int_equal(code, 0);
    assert_true(own == 1 && *told == 2);

    void (*before)(int) = signal(SIGTERM, never);
    pid = env->fork(wait_for_a_signal, told);
    for (uint64_t until = in_s(10); *(volatile int *)told != (int)getpid() && env->mono_ns() < until;) nap();
    assert_int_equal(*told, getpid());
    assert_int_equal(env->kill(pid, SIGTERM), 0);
    assert_int_equal(state_soon(pid, LS_CHILD_RUNNING, &code), LS_CHILD_SIGNALED);
    assert_int_equal(code, SIGTERM);
    (void)signal(SIGTERM, before);
    env->unmap(told, 4096);
}

static void kill_refuses_everyone(void **state)
{
    (void)state;
    assert_int_equal(env->kill(0, SIGKILL), -EINVAL);
    assert_int_equal(env->kill(-1, SIGKILL), -EINVAL);
}

static void a_child_gets_environment_descriptors_and_cpus_as_given(void **state)
{
    (void)state;
    int fd = env->memfd("kept", 4096), closed = env->memfd("closed", 4096), code;
    char script[128], want[64];
    assert_int_equal(setenv("LOCKSTEP_TEST_A", "ours", 1), 0);
    assert_int_equal(setenv("LOCKSTEP_TEST_B", "ours", 1), 0);

    ls_child c = plain;
    c.env_set = (const char *const[]){ "LOCKSTEP_TEST_B=set", "LOCKSTEP_TEST_BB=new", NULL };
    assert_string_equal(output_of("echo $LOCKSTEP_TEST_A $LOCKSTEP_TEST_B $LOCKSTEP_TEST_BB", &c), "ours set new\n");
    assert_string_equal(getenv("LOCKSTEP_TEST_B"), "ours");

    c = plain;
    c.keep_fds = &fd;
    c.nkeep = 1;
    snprintf(script, sizeof script, "readlink /proc/$$/fd/%d /proc/$$/fd/%d", fd, closed);
    assert_string_equal(output_of(script, &c), "/memfd:kept (deleted)\n");

    c = plain;
    c.cpu_count = 1;
    c.cpu_first = env->cpus() - 1;
    assert_string_equal(output_of("nproc", &c), "1\n");

    const unsigned long ours = (unsigned long)personality(0xffffffffUL);
    const bool may = personality(ours | ADDR_NO_RANDOMIZE) != -1; /* a sandbox may refuse it: then it is left out */
    (void)personality(ours);
    c = plain;
    c.same_addresses = true;
    snprintf(want, sizeof want, "%08lx\n", ours);
    assert_string_equal(output_of("cat /proc/$$/personality", &plain), want);
    snprintf(want, sizeof want, "%08lx\n", may ? ours | ADDR_NO_RANDOMIZE : ours);
    assert_string_equal(output_of("cat /proc/$$/personality", &c), want);

    c = plain;
    c.limits = &(ls_child_limits){ .memory = 1 << 30, .file = 1 << 20, .cpu_s = 20 };
    assert_string_equal(output_of("ulimit -v; ulimit -H -v; ulimit -f; ulimit -t; ulimit -c", &c), "1048576\n1048576\n2048\n20\n0\n");
    c.limits = &(ls_child_limits){ .memory = 0 };
    assert_string_equal(output_of("ulimit -H -c", &c), "0\n");

    c = plain;
    c.own_group = true;
    int pid = start_shell("test \"$(cut -d' ' -f5 /proc/$$/stat)\" = $$", &c);
    assert_true(pid > 0);
    assert_int_equal(state_soon(pid, LS_CHILD_RUNNING, &code), LS_CHILD_EXITED);
    assert_int_equal(code, 0);

    snprintf(want, sizeof want, "%d\n", (int)getpgrp());
    assert_string_equal(output_of("cut -d' ' -f5 /proc/$$/stat", &plain), want);
    env->close_fd(fd);
    env->close_fd(closed);
}

static void both_streams_may_change_places(void **state)
{
    (void)state;
    int a[2], b[2], code;
    char text[8] = "";
    assert_int_equal(env->pipe(a), 0);
    assert_int_equal(env->pipe(b), 0);
    ls_child c = { .stdout_fd = a[1], .stderr_fd = b[1] };
    int pid = start_shell("printf out; printf err >&2", &c);
    assert_true(pid > 0);
    assert_int_equal(state_soon(pid, LS_CHILD_RUNNING, &code), LS_CHILD_EXITED);
    assert_int_equal(env->read(a[0], text, sizeof text), 3);
    assert_memory_equal(text, "out", 3);
    assert_int_equal(env->read(b[0], text, sizeof text), 3);
    assert_memory_equal(text, "err", 3);

    c = (ls_child){ .stdout_fd = 2, .stderr_fd = 1 };
    int out = dup(1), err = dup(2);
    fflush(stdout);
    dup2(a[1], 1);
    dup2(b[1], 2);
    pid = start_shell("printf out; printf err >&2", &c);
    dup2(out, 1);
    dup2(err, 2);
    close(out);
    close(err);
    assert_true(pid > 0);
    assert_int_equal(state_soon(pid, LS_CHILD_RUNNING, &code), LS_CHILD_EXITED);
    assert_int_equal(env->read(a[0], text, sizeof text), 3);
    assert_memory_equal(text, "err", 3);
    for (int i = 0; i < 2; i++) {
        env->close_fd(a[i]);
        env->close_fd(b[i]);
    }
}

static void handler(int sig) { (void)sig; }

static void a_child_starts_with_no_signal_blocked_or_handled(void **state)
{
    (void)state;
    sigset_t set, old;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, &old);
    signal(SIGUSR2, handler);
    const char *status = output_of("exec cat /proc/self/status", &plain);
    assert_non_null(strstr(status, "SigBlk:\t0000000000000000\n"));
    assert_non_null(strstr(status, "SigCgt:\t0000000000000000\n"));
    sigset_t now;
    sigprocmask(SIG_SETMASK, &old, &now);
    assert_int_equal(sigismember(&now, SIGTERM), 1); /* ours is as it was */
    signal(SIGUSR2, SIG_DFL);
}

/* A process between us and the child ends; we adopt the child and see what became of it. */
static void a_child_dies_with_its_parent_if_told(void **state)
{
    (void)state;
    int told[2], code, pid = 0;
    assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
    assert_int_equal(pipe(told), 0);
    pid_t middle = fork();
    if (middle == 0) {
        ls_child c = plain;
        c.die_with_parent = true;
        int child = start((const char *const[]){ "sleep", "100", NULL }, &c, NULL);
        ssize_t k = write(told[1], &child, sizeof child);
        _exit(k == (ssize_t)sizeof child ? 0 : 1);
    }
    assert_int_equal(read(told[0], &pid, sizeof pid), sizeof pid);
    assert_true(pid > 0);
    assert_int_equal(state_soon(middle, LS_CHILD_RUNNING, &code), LS_CHILD_EXITED);
    assert_int_equal(state_soon(pid, LS_CHILD_RUNNING, &code), LS_CHILD_SIGNALED);
    assert_int_equal(code, SIGKILL);
    assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 0), 0);
    close(told[0]);
    close(told[1]);
}

static void signals_are_read_from_a_descriptor(void **state)
{
    (void)state;
    sigset_t old;
    sigprocmask(SIG_SETMASK, NULL, &old);
    int fd = env->signal_fd((const int[]){ SIGUSR1, SIGUSR2 }, 2);
    assert_true(fd >= 0);
    assert_int_equal(env->signal_read(fd), 0);
    assert_int_equal(env->kill(getpid(), SIGUSR1), 0);
    assert_int_equal(env->signal_read(fd), SIGUSR1);
    assert_int_equal(env->signal_read(fd), 0);
    env->close_fd(fd);
    sigprocmask(SIG_SETMASK, &old, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_program_that_cannot_start_says_why_and_leaves_no_child),
        cmocka_unit_test(tells_how_a_child_ended),
        cmocka_unit_test(a_copy_has_memory_of_its_own_and_no_handlers),
        cmocka_unit_test(kill_refuses_everyone),
        cmocka_unit_test(a_child_gets_environment_descriptors_and_cpus_as_given),
        cmocka_unit_test(both_streams_may_change_places),
        cmocka_unit_test(a_child_starts_with_no_signal_blocked_or_handled),
        cmocka_unit_test(a_child_dies_with_its_parent_if_told),
        cmocka_unit_test(signals_are_read_from_a_descriptor),
    };
    return cmocka_run_group_tests_name("env_process", tests, NULL, NULL);
}
