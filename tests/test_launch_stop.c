/* The ways to stop ls_launch: signals, ranks that save first or go on for too long, and a launcher that is killed. */
#include "harness_launch.h"

/* Waits for a signal to stop. Then rank 0 goes on with its step for longer than a rank may stand still; or does not; or
 * trains on as if nothing had been said. */
static int play(const char *name, int rank, ls_world_page *page)
{
    sigset_t set;
    int sig, fd;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigprocmask(SIG_BLOCK, &set, NULL);
    if ((fd = open(rank ? "1" : "0", O_CREAT | O_WRONLY, 0600)) < 0 || dprintf(fd, "%d\n", getpid()) < 0) return 107;
    close(fd);
    sigwait(&set, &sig);
    const int turns = sig == SIGINT ? 40 : getenv("LOCKSTEP_TEST_LONG") ? 140 : 10; /* of 0.2 s; after SIGTERM standing still is over at 25 s */
    if (*name != 'm' || rank == 1)
        for (;; usleep(20000)) {
            if (*name == 'i') atomic_fetch_add(&page->rank[rank].step, 1);
            if (*name == 'm' && atomic_load(&page->rank[0].state) != LS_RANK_RUNNING) break;
        }
    for (int i = 0; rank == 0 && i < turns; i++) {
        atomic_store(&page->rank[0].micro_batch, (uint32_t)i);
        usleep(200000);
    }
    atomic_store(&page->rank[rank].state, LS_RANK_DONE);
    return sig == SIGTERM ? 75 : 130;
}

/* A launcher in a process of its own; its ranks write their pids to dir/0 and dir/1. */
static pid_t launcher(const char *dir, const char *script, ls_launch_opts o)
{
    char line[4200];
    snprintf(line, sizeof line, "cd %s; %s; echo $$ > .$RANK; mv .$RANK $RANK; while :; do sleep 0.01; done", dir, script);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        int null = open("/dev/null", O_WRONLY);
        dup2(null, 2);
        sigset_t none; /* the launches of this test have blocked signals, a new process has not */
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        outcome x = { 0 };
        const char *argv[] = { "/bin/sh", "-c", line, NULL };
        o.argv = argv;
        o.nproc = 2;
        x.st = ls_launch(&o, &x.r);
        _exit(x.r.exit_code);
    }
    char path[4200];
    for (int i = 0; i < 10000; i++) {
        struct stat s;
        snprintf(path, sizeof path, "%s/0", dir);
        bool both = stat(path, &s) == 0;
        snprintf(path, sizeof path, "%s/1", dir);
        if (both && stat(path, &s) == 0) return pid;
        usleep(1000);
    }
    fail_msg("the ranks did not start");
    return pid;
}

/* Whether every rank is gone, after 20 s at the most. */
static bool all_gone(const char *dir)
{
    char *text = printed(dir, "cat 0 1"), *end;
    int pid[2];
    pid[0] = (int)strtol(text, &end, 10);
    pid[1] = (int)strtol(end, &end, 10);
    free(text);
    assert_true(pid[0] > 0 && pid[1] > 0);
    for (int i = 0; i < 20000; i++) {
        bool gone = true;
        for (int r = 0; r < 2; r++) { /* an orphan may wait a moment for its new parent */
            char state = ls_env_get()->proc_state(pid[r]);
            gone = gone && (state == 0 || state == 'Z');
        }
        if (gone) return true;
        usleep(1000);
    }
    return false;
}

static int end_of(pid_t pid)
{
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static void lets_the_ranks_save_when_interrupted(void **state)
{
    (void)state;
    static const struct { int sig; const char *script; int code; const char *signals; } row[] = {
        { SIGINT, "trap 'touch saved$RANK; exit 0' INT", 130, NULL },
        { SIGINT, "trap 'touch saved$RANK; exit 130' INT", 130, NULL },
        { SIGTERM, "trap 'touch saved$RANK; exit 75' TERM", 75, NULL },
        { SIGTERM, "trap 'touch saved$RANK; exit 0' TERM", 143, NULL },
        { SIGHUP, "trap 'touch saved$RANK; exit 0' TERM", 129, NULL },
        { SIGUSR1, "trap 'touch saved$RANK; exit 0' USR1", 128 + SIGUSR1, "SIGTERM, SIGUSR1" },
        { SIGUSR2, "trap 'touch saved$RANK; exit 75' USR2", 75, "SIGUSR2" },
        { SIGXCPU, "trap 'touch saved$RANK; exit 0' TERM", 128 + SIGXCPU, "SIGXCPU,SIGTERM" },
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        char *dir = folder(), saved[64];
        pid_t pid = launcher(dir, row[i].script, (ls_launch_opts){ .signals = row[i].signals, .shutdown_ns = long_ns });
        kill(pid, row[i].sig);
        assert_int_equal(end_of(pid), row[i].code);
        for (int r = 0; r < 2; r++) {
            snprintf(saved, sizeof saved, "%s/saved%d", dir, r);
            assert_int_equal(access(saved, F_OK), 0);
        }
        assert_true(all_gone(dir));
        remove_folder(dir);
    }
}

/* Every signal that is not named does what it does to any program. */
static void ends_by_a_signal_that_is_not_named(void **state)
{
    (void)state;
    char *dir = folder();
    pid_t pid = launcher(dir, "trap 'touch saved' TERM", (ls_launch_opts){ .signals = "SIGUSR1" });
    kill(pid, SIGTERM);
    assert_int_equal(end_of(pid), -SIGTERM);
    assert_true(all_gone(dir));
    remove_folder(dir);
}

static void gives_ranks_the_time_that_was_given_to_end(void **state)
{
    (void)state;
    char *dir = folder();
    setenv("DIR", dir, 1);
    outcome x = shell(2, "if [ $RANK = 0 ]; then until [ -e $DIR/set ]; do sleep 0.01; done; exit 3; fi;"
                         "trap 'sleep 1; touch $DIR/saved; exit 0' TERM; touch $DIR/set; while :; do sleep 0.01; done",
                      (ls_launch_opts){ .shutdown_ns = long_ns });
    assert_int_equal(x.r.exit_code, 3);
    char *got = printed(dir, "ls saved 2>&1"); /* 0.3 s would have been too short */
    assert_string_equal(got, "saved\n");
    free(got);
    release(&x);
    remove_folder(dir);

    dir = folder();
    pid_t pid = launcher(dir, "trap '' TERM", (ls_launch_opts){ .shutdown_ns = 100000000 });
    uint64_t t0 = ls_env_get()->mono_ns();
    kill(pid, SIGTERM);
    assert_int_equal(end_of(pid), 143);
    assert_true(ls_env_get()->mono_ns() - t0 < 20000000000u); /* and not after 25 s of patience */
    assert_true(all_gone(dir));
    remove_folder(dir);
}

static void waits_for_ranks_that_go_on_with_their_step(void **state)
{
    (void)state;
    static const struct { const char *play; int sig, code; bool killed; } row[] = {
        { "moves", SIGINT, 130, false }, { "moves", SIGTERM, 75, false },
        { "sticks", SIGINT, 130, true }, { "ignores", SIGINT, 130, true },
    };
    enum { ROWS = sizeof row / sizeof *row };
    char *dir[ROWS], path[4200], was[4096];
    pid_t pid[ROWS];
    assert_non_null(getcwd(was, sizeof was));
    fflush(NULL);
    for (int i = 0; i < ROWS; i++) { /* side by side: each takes its time */
        dir[i] = folder();
        if ((pid[i] = fork()) > 0) continue;
        int null = open("/dev/null", O_WRONLY);
        dup2(null, 2);
        outcome x = { 0 };
        const char *argv[] = { self, row[i].play, NULL };
        ls_launch_opts o = { .argv = argv, .nproc = 2, .timeout_ns = 200000000 };
        if (chdir(dir[i]) < 0) _exit(108);
        x.st = ls_launch(&o, &x.r);
        _exit(x.r.killed == row[i].killed ? x.r.exit_code : 109);
    }
    for (int i = 0; i < ROWS; i++)
        for (int r = 0; r < 2; r++) {
            struct stat s;
            snprintf(path, sizeof path, "%s/%d", dir[i], r);
            for (int turn = 0; turn < 20000 && (stat(path, &s) < 0 || s.st_size == 0); turn++) usleep(1000);
        }
    for (int i = 0; i < ROWS; i++) kill(pid[i], row[i].sig);
    for (int i = 0; i < ROWS; i++) {
        const int code = end_of(pid[i]);
        if (code != row[i].code) fail_msg("%s, signal %d: exit %d", row[i].play, row[i].sig, code);
        assert_true(all_gone(dir[i]));
        remove_folder(dir[i]);
    }
}

static void kills_at_the_second_interrupt(void **state)
{
    (void)state;
    char *dir = folder(), told[64];
    pid_t pid = launcher(dir, "trap 'touch told' INT", (ls_launch_opts){ .shutdown_ns = long_ns });
    uint64_t t0 = ls_env_get()->mono_ns();
    kill(pid, SIGINT);
    snprintf(told, sizeof told, "%s/told", dir);
    for (int i = 0; i < 50000 && access(told, F_OK) != 0; i++) usleep(1000);
    usleep(30000); /* a second wish, not an echo of the first one: nobody's finger is faster */
    kill(pid, SIGINT);
    assert_int_equal(end_of(pid), 130);
    assert_true(ls_env_get()->mono_ns() - t0 < long_ns); /* and not when the time to end is over */
    assert_true(all_gone(dir));
    remove_folder(dir);
}

static void takes_the_ranks_along_when_it_is_killed(void **state)
{
    (void)state;
    char *dir = folder();
    pid_t pid = launcher(dir, "trap '' INT TERM HUP", (ls_launch_opts){ 0 });
    kill(pid, SIGKILL);
    assert_int_equal(end_of(pid), -SIGKILL);
    assert_true(all_gone(dir));
    remove_folder(dir);
}

int main(int argc, char **argv)
{
    if (argc > 1) return act(argv[1], play);
    if (!find_self()) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lets_the_ranks_save_when_interrupted),
        cmocka_unit_test(ends_by_a_signal_that_is_not_named),
        cmocka_unit_test(gives_ranks_the_time_that_was_given_to_end),
        cmocka_unit_test(waits_for_ranks_that_go_on_with_their_step),
        cmocka_unit_test(kills_at_the_second_interrupt),
        cmocka_unit_test(takes_the_ranks_along_when_it_is_killed),
    };
    return cmocka_run_group_tests_name("launch_stop", tests, NULL, NULL);
}
