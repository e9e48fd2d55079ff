/* ls_launch: exit codes and blame first, then what the ranks are given.
 * Their output is test_launch_logs.c, the ways to be stopped test_launch_stop.c. */
#include "harness_launch.h"

#include <sched.h>
#include <sys/personality.h>

/* The three who fail learn of it by the page, however late they run: SIGTERM, which follows, does not end them. */
static int play(const char *name, int rank, ls_world_page *page)
{
    if (strcmp(name, "mismatch") == 0 || strcmp(name, "reset") == 0 || strcmp(name, "killed") == 0)
        signal(SIGTERM, SIG_IGN);
    if (strcmp(name, "mismatch") == 0) { /* rank 1 finds the cause, rank 0 is the first to leave */
        if (rank == 0) {
            until_aborted(page);
            return 82;
        }
        ls_page_abort(page, 1 + 1, LS_COLL_MISMATCH, "rank 1 called all_reduce, but rank 0 called barrier");
        usleep(100000);
        return 76;
    }
    if (strcmp(name, "reset") == 0) { /* rank 0 sees the connection break before the launcher sees the death */
        if (rank == 0) {
            ls_page_abort(page, 1 + 0, LS_PEER_RESET, "rank 0: the connection to rank 1 broke");
            return 82;
        }
        until_aborted(page);
        raise(SIGKILL);
    }
    if (strcmp(name, "killed") == 0) {
        if (rank == 1) raise(SIGKILL);
        until_aborted(page);
        return 82;
    }
    return 106;
}

/* --- exit codes and blame ------------------------------------------------------------------------ */

static void gives_the_exit_code_of_the_first_rank_that_failed(void **state)
{
    (void)state;
    static const struct { int nproc; const char *script; int code, rank, signal; const char *says; } row[] = {
        { 1, "exit 0", 0, -1, 0, "" },
        { 3, "exit 0", 0, -1, 0, "" },
        { 1, "exit 3", 3, 0, 0, "rank 0 (pid " },
        { 1, "exit 75", 75, 0, 0, "ended with exit code 75" },
        { 1, "kill -9 $$", 82, 0, 9, "was killed by signal 9 (SIGKILL)" },
        { 1, "kill -SEGV $$", 82, 0, 11, "was killed by signal 11 (SIGSEGV)" },
        { 2, "[ $RANK = 1 ] && exit 7; exec sleep 60", 7, 1, 0, "rank 1 (pid " },
        { 3, "[ $RANK = 2 ] && kill -9 $$; exec sleep 60", 82, 2, 9, "rank 2 (pid " },
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        outcome x = shell(row[i].nproc, row[i].script, (ls_launch_opts){ 0 });
        assert_int_equal(x.st, LS_OK);
        assert_int_equal(x.r.exit_code, row[i].code);
        assert_int_equal(x.r.first_rank, row[i].rank);
        assert_int_equal(x.r.signal, row[i].signal);
        assert_true(has(x.r.message, row[i].says));
        if (row[i].code == 0) assert_string_equal(x.err, "");
        else assert_true(has(x.err, "lockstep: error[rank-died] gen=1 rank="));
        release(&x);
    }
}

static void says_the_cause_before_the_consequences(void **state)
{
    (void)state;
    outcome x = role(2, "mismatch", (ls_launch_opts){ .shutdown_ns = long_ns });
    assert_int_equal(x.r.exit_code, 76);
    assert_int_equal(x.r.first_rank, 1);
    assert_int_equal(x.r.status, LS_COLL_MISMATCH);
    assert_true(strncmp(x.err, "lockstep: error[coll-mismatch] gen=1 step=12 rank=1 ", 52) == 0);
    assert_true(has(x.err, "consequences: rank 0 ended with exit code 82"));
    release(&x);
}

static void blames_the_dead_rank_for_the_broken_connection(void **state)
{
    (void)state;
    outcome x = role(2, "reset", (ls_launch_opts){ .shutdown_ns = long_ns });
    assert_int_equal(x.r.exit_code, 82);
    assert_int_equal(x.r.first_rank, 1);
    assert_int_equal(x.r.signal, SIGKILL);
    assert_true(has(x.r.message, "was killed by signal 9 (SIGKILL) in step 12"));
    release(&x);
}

static void tells_the_survivors_through_the_page(void **state)
{
    (void)state;
    outcome x = role(4, "killed", (ls_launch_opts){ .shutdown_ns = long_ns });
    assert_int_equal(x.r.first_rank, 1);
    assert_true(has(x.err, "consequences: rank 0 ended with exit code 82; rank 2 ended with exit code 82; rank 3"));
    assert_true(x.s * 1e9 < (double)long_ns); /* they ignore SIGTERM: nothing but the page told them in this time */
    release(&x);
}

static void shows_the_last_lines_of_the_failing_rank(void **state)
{
    (void)state;
    char *dir = folder();
    setenv("DIR", dir, 1);
    /* rank 0 speaks when the launcher has seen the end of rank 1, whose process is a zombie until then; however late */
    outcome x = shell(2, "trap '' TERM; if [ $RANK = 1 ]; then for i in $(seq 30); do echo line $i >&2; done; printf 'bad\\033[2J' >&2;"
                         "echo $$ >$DIR/1; until [ -e $DIR/0 ]; do sleep 0.01; done; exit 3; fi;"
                         "until [ -s $DIR/1 ]; do sleep 0.01; done; read pid <$DIR/1; : >$DIR/0;"
                         "while kill -0 $pid 2>/dev/null; do sleep 0.01; done; echo noise >&2; exit 0",
                      (ls_launch_opts){ .shutdown_ns = long_ns });
    assert_false(has(x.err, "    | line 10\n")); /* of 31 lines the last 20 */
    assert_false(has(x.err, "    | line 11\n"));
    assert_true(has(x.err, "    | line 12\n    | line 13\n"));
    assert_true(has(x.err, "    | line 30\n    | bad?[2J\n")); /* what drives a terminal is made harmless */
    assert_false(has(x.err, "    | noise"));
    assert_true(has(x.err, "lockstep: rank 0 after the failure:\nnoise\n"));
    release(&x);
    remove_folder(dir);
}

static void ends_stubborn_survivors(void **state)
{
    (void)state;
    char *dir = folder();
    setenv("DIR", dir, 1);
    outcome x = shell(3, "trap '' TERM INT; echo $$ > $DIR/$RANK; while [ ! -s $DIR/2 -o ! -s $DIR/1 ]; do sleep 0.01; done;"
                         "[ $RANK = 0 ] && exit 3; sleep 1000", (ls_launch_opts){ 0 });
    assert_int_equal(x.r.exit_code, 3);
    assert_true(x.s >= 0.8); /* of grace and after SIGTERM, by watch.c */
    assert_true(x.s < 100.0); /* and not when they would end by themselves */
    assert_true(has(x.err, "rank 1 was stopped by us (SIGKILL); rank 2 was stopped by us (SIGKILL)"));
    release(&x);
    remove_folder(dir);
}

static void takes_along_what_a_rank_has_left_running(void **state)
{
    (void)state;
    char *dir = folder();
    setenv("DIR", dir, 1);
    outcome x = shell(1, "sleep 1000 >/dev/null 2>&1 & echo $! > $DIR/pid; exit 0", (ls_launch_opts){ 0 });
    assert_int_equal(x.r.exit_code, 0);
    char *text = printed(dir, "cat pid"), now = 'R';
    int pid = atoi(text);
    assert_true(pid > 0);
    for (int i = 0; i < 20000 && now != 0 && now != 'Z'; i++) { /* it is killed, not waited for */
        usleep(1000);
        now = ls_env_get()->proc_state(pid);
    }
    assert_true(now == 0 || now == 'Z');
    free(text);
    release(&x);
    remove_folder(dir);
}

static void reports_a_stopped_rank_as_hung(void **state)
{
    (void)state;
    outcome x = shell(2, "[ $RANK = 1 ] && kill -STOP $$; exec sleep 600", (ls_launch_opts){ .timeout_ns = 200000000 });
    assert_int_equal(x.r.exit_code, 83);
    assert_int_equal(x.r.first_rank, 1);
    assert_true(has(x.err, "lockstep: error[rank-hung]"));
    assert_true(has(x.r.message, "is stopped (state T, by signal 19, SIGSTOP) and silent for "));
    assert_true(x.s < 60.0); /* nobody waited for the end of the others */
    release(&x);
}

static void leaves_a_rank_alone_that_goes_on_in_time(void **state)
{
    (void)state;
    outcome x = shell(1, "(sleep 0.1; kill -CONT $$) & kill -STOP $$; wait", (ls_launch_opts){ .timeout_ns = 10000000000u });
    assert_int_equal(x.r.exit_code, 0);
    release(&x);
}

/* --- what a rank is given --------------------------------------------------------------------------- */

static void sets_torchruns_environment(void **state)
{
    (void)state;
    char *dir = folder();
    setenv("DIR", dir, 1);
    unsetenv("OMP_NUM_THREADS");
    unsetenv("TORCH_NCCL_ASYNC_ERROR_HANDLING");
    outcome x = shell(2, "env > $DIR/$RANK", (ls_launch_opts){ .role = "rank", .run_id = "job7" });
    assert_int_equal(x.r.exit_code, 0);
    char *got = printed(dir, "grep -E '^((LOCAL_|GROUP_|ROLE_)?(RANK|WORLD_SIZE|NAME)|MASTER_ADDR|TORCHELASTIC.*)=' 1 | "
                             "sed 's|^\\(TORCHELASTIC_ERROR_FILE=/\\).*|\\1...|' | LC_ALL=C sort");
    assert_string_equal(got, "GROUP_RANK=0\nGROUP_WORLD_SIZE=1\nLOCAL_RANK=1\nLOCAL_WORLD_SIZE=2\nMASTER_ADDR=127.0.0.1\nRANK=1\n"
                             "ROLE_NAME=rank\nROLE_RANK=1\nROLE_WORLD_SIZE=2\nTORCHELASTIC_ERROR_FILE=/...\nTORCHELASTIC_MAX_RESTARTS=0\n"
                             "TORCHELASTIC_RESTART_COUNT=0\nTORCHELASTIC_RUN_ID=job7\n"
                             "TORCHELASTIC_SIGNALS_TO_HANDLE=SIGTERM,SIGINT,SIGHUP,SIGQUIT\nTORCHELASTIC_USE_AGENT_STORE=False\nWORLD_SIZE=2\n");
    free(got);
    got = printed(dir, "sed -n 's/^TORCH_NCCL_ASYNC_ERROR_HANDLING=//p' 0 1");
    assert_string_equal(got, "1\n1\n");
    free(got);
    got = printed(dir, "grep -h ^TORCHELASTIC_ERROR_FILE= 0 1 | uniq | wc -l"); /* each has its own */
    assert_string_equal(got, "2\n");
    free(got);
    char want[64];
    int cpus = ls_env_get()->cpus();
    snprintf(want, sizeof want, "OMP_NUM_THREADS=%d\n", cpus / 2 > 1 ? cpus / 2 : 1);
    got = printed(dir, "grep OMP_NUM_THREADS 0");
    assert_string_equal(got, want);
    free(got);
    got = printed(dir, "cat 0 1 | grep ^MASTER_PORT= | uniq | wc -l"); /* the same for both */
    assert_string_equal(got, "1\n");
    free(got);
    release(&x);
    remove_folder(dir);
}

static int cpus_told;
static int told_cpus(void) { return cpus_told; }

/* Of two CPUs, or of one if this process has no other: each has equally many ranks, if they can. */
static void ranks_that_share_cores_are_bound_in_turn(void **state)
{
    (void)state;
    enum { SAID = 4096 };
    const char *say = "sed -n 's/^Cpus_allowed_list:[[:space:]]*/'$RANK' /p' /proc/self/status";
    cpu_set_t all, two;
    int cpu[2], n = 0;
    char together[64];
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    CPU_ZERO(&two);
    for (int i = 0; i < CPU_SETSIZE && n < 2; i++)
        if (CPU_ISSET((size_t)i, &all)) CPU_SET((size_t)i, &two), cpu[n++] = i;
    snprintf(together, sizeof together, n == 1 ? "%d" : cpu[1] == cpu[0] + 1 ? "%d-%d" : "%d,%d", cpu[0], cpu[n - 1]);
    assert_int_equal(sched_setaffinity(0, sizeof two, &two), 0);
    ls_env env = *ls_env_get();
    const ls_context before = *ls_context_get();
    env.cpus = told_cpus; /* whatever a control group says */
    const struct { int nproc; bool no_bind, limited, bound; } row[] = {
        { 4, false, false, true }, { 4, true, false, false }, { 3, false, false, n == 1 },
        { 2, false, n == 2, n == 1 }, /* one CPU's time, on any of two */
    };
    outcome x[sizeof row / sizeof *row];
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        if (i == 3 && n == 1) continue;
        cpus_told = row[i].limited ? 1 : n;
        ls_context_get()->env = &env;
        x[i] = shell(row[i].nproc, say, (ls_launch_opts){ .no_bind = row[i].no_bind });
        *ls_context_get() = before;
    }
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        if (i == 3 && n == 1) continue;
        for (int r = 0; r < row[i].nproc; r++) {
            char want[SAID];
            snprintf(want, sizeof want, "%d %s\n", r, together);
            if (row[i].bound) snprintf(want, sizeof want, "%d %d\n", r, cpu[r % n]);
            if (!strstr(x[i].out, want)) fail_msg("row %zu: no '%s' in '%s'", i, want, x[i].out);
        }
        release(&x[i]);
    }
}

/* Ranks that share cores have the same addresses, unless the caller wants them at random. */
static void addresses_are_random_where_cores_are_not_shared(void **state)
{
    (void)state;
    const struct { int nproc; bool aslr, same; } row[] = {
        { 2, false, true }, { 2, true, false }, { 1, false, false },
    };
    const unsigned long ours = (unsigned long)personality(0xffffffffUL);
    const bool may = personality(ours | ADDR_NO_RANDOMIZE) != -1;
    cpu_set_t one, all;
    CPU_ZERO(&one);
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    for (size_t cpu = 0; CPU_COUNT(&one) == 0; cpu++)
        if (CPU_ISSET(cpu, &all)) CPU_SET(cpu, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    outcome x[3];
    const unsigned long random = ours & ~(unsigned long)ADDR_NO_RANDOMIZE;
    for (int i = 0; i < 3; i++) {
        (void)personality(random);
        x[i] = shell(row[i].nproc, "exec cat /proc/self/personality", (ls_launch_opts){ .aslr = row[i].aslr });
    }
    (void)personality(ours);
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
    for (int i = 0; i < 3; i++) {
        char want[64];
        const unsigned long each = random | (may && row[i].same ? ADDR_NO_RANDOMIZE : 0);
        snprintf(want, sizeof want, row[i].nproc == 2 ? "%08lx\n%08lx\n" : "%08lx\n", each, each);
        assert_string_equal(x[i].out, want);
        release(&x[i]);
    }
}

static void keeps_a_thread_count_that_is_set(void **state)
{
    (void)state;
    setenv("OMP_NUM_THREADS", "5", 1);
    outcome x = shell(2, "[ $OMP_NUM_THREADS = 5 ]", (ls_launch_opts){ 0 });
    assert_int_equal(x.r.exit_code, 0);
    unsetenv("OMP_NUM_THREADS");
    release(&x);
}

/* What rank R was given, in a folder with a file per rank. */
static void assert_given(const char *dir, int rank, const char *name, const char *want)
{
    char command[200];
    snprintf(command, sizeof command, "sed -n 's/^%s=/=/p' %d", name, rank);
    char *got = printed(dir, command);
    if (strcmp(got, want) != 0) fail_msg("rank %d has %s%s, expected %s", rank, name, got, want);
    free(got);
}

static void shows_each_rank_one_device_as_number_0(void **state)
{
    (void)state;
    char *dir = folder();
    setenv("DIR", dir, 1);
    unsetenv("HIP_VISIBLE_DEVICES");
    unsetenv("CUDA_VISIBLE_DEVICES");
    const ls_launch_opts o = { .virtual_local_rank = true };
    outcome x = shell(2, "env > $DIR/$RANK", o);
    assert_given(dir, 1, "LOCAL_RANK", "=0\n");
    assert_given(dir, 1, "LOCKSTEP_LOCAL_RANK", "=1\n");
    assert_given(dir, 0, "CUDA_VISIBLE_DEVICES", "=0\n");
    assert_given(dir, 1, "CUDA_VISIBLE_DEVICES", "=1\n");
    assert_given(dir, 1, "HIP_VISIBLE_DEVICES", "");
    release(&x);
    setenv("CUDA_VISIBLE_DEVICES", "4, GPU-7,5", 1);
    x = shell(2, "env > $DIR/$RANK", o);
    assert_given(dir, 0, "CUDA_VISIBLE_DEVICES", "=4\n");
    assert_given(dir, 1, "CUDA_VISIBLE_DEVICES", "=GPU-7\n");
    release(&x);
    setenv("HIP_VISIBLE_DEVICES", "2,3", 1);
    x = shell(2, "env > $DIR/$RANK", o);
    assert_given(dir, 1, "CUDA_VISIBLE_DEVICES", "=3\n");
    assert_given(dir, 1, "HIP_VISIBLE_DEVICES", "=3\n");
    release(&x);
    x = shell(3, "exit 0", o);
    assert_int_equal(x.r.exit_code, 64);
    assert_true(has(x.r.message, "HIP_VISIBLE_DEVICES is '2,3', which has no device for local rank 2"));
    release(&x);
    unsetenv("HIP_VISIBLE_DEVICES");
    unsetenv("CUDA_VISIBLE_DEVICES");
    x = shell(2, "env > $DIR/$RANK", (ls_launch_opts){ 0 });
    assert_given(dir, 1, "LOCAL_RANK", "=1\n");
    assert_given(dir, 1, "CUDA_VISIBLE_DEVICES", "");
    release(&x);
    remove_folder(dir);
}

static void leaves_the_master_port_free_for_the_ranks(void **state)
{
    (void)state;
    int port = ls_env_get()->free_port();
    outcome x = shell(1, "python3 -c 'import os, socket; s = socket.socket(); s.bind((\"127.0.0.1\", int(os.environ[\"MASTER_PORT\"])))'",
                      (ls_launch_opts){ .port = port });
    assert_int_equal(x.r.exit_code, 0);
    release(&x);
}

static void names_the_holder_of_a_busy_port(void **state)
{
    (void)state;
    int port, fd = ls_env_get()->listen_tcp("127.0.0.1", 0, &port);
    char want[64];
    outcome x = shell(1, "exit 0", (ls_launch_opts){ .port = port });
    assert_int_equal(x.st, LS_PORT_BUSY);
    assert_int_equal(x.r.exit_code, 69);
    snprintf(want, sizeof want, "is held by pid %d (", (int)getpid());
    assert_true(has(x.r.message, want));
    close(fd);
    release(&x);
}

static void puts_a_command_before_one_rank(void **state)
{
    (void)state;
    outcome x = shell(2, "[ $RANK$TAG = 0 -o $RANK$TAG = 1debug ]", (ls_launch_opts){ .prefix_cmd = "env TAG=debug", .prefix_rank = 1 });
    assert_int_equal(x.r.exit_code, 0);
    release(&x);
}

static void refuses_what_cannot_start(void **state)
{
    (void)state;
    static const char *const missing[] = { "./no-such-program", NULL }, *const script[] = { "./train.py", NULL };
    static const char *const fine[] = { "/bin/true", NULL };
    const struct { ls_launch_opts o; ls_status st; const char *says; } row[] = {
        { { .argv = missing, .nproc = 2 }, LS_USAGE, "no such program" },
        { { .argv = script, .nproc = 1 }, LS_USAGE, "cannot run './train.py': no such file" },
        { { .argv = fine, .nproc = 1, .python = "/absent/python3" }, LS_USAGE, "/absent/python3', which runs /bin/true: No such file" },
        { { .argv = fine, .nproc = 1, .python = "absent-python3" }, LS_USAGE, "no such program in PATH: install Python 3" },
        { { .argv = fine, .nproc = 1, .signals = "SIGTERM,SIGKILL" }, LS_USAGE, "cannot be stopped by 'SIGKILL'" },
        { { .argv = fine, .nproc = 1, .signals = "SIGTERM," }, LS_USAGE, "expected some of SIGTERM" },
        { { .argv = fine, .nproc = 1, .signals = "SIG" }, LS_USAGE, "cannot be stopped by 'SIG'" },
        { { .argv = fine, .nproc = 1, .copy_stdout = "loss", .tee = "1" }, LS_USAGE, "--duplicate-stdout-filters needs --tee 1 and --log-dir" },
        { { .argv = fine, .nproc = 1, .copy_stderr = "loss", .tee = "1", .log_dir = "/absent" }, LS_USAGE, "--duplicate-stderr-filters needs --tee 2" },
        { { .argv = fine, .nproc = 0 }, LS_USAGE, "expected 1 to 256" },
        { { .argv = fine, .nproc = 257 }, LS_USAGE, "expected 1 to 256, since" },
        { { .argv = fine, .nproc = 2, .redirects = "3" }, LS_USAGE, "--log-dir" },
        { { .argv = fine, .nproc = 2, .tee = "4" }, LS_USAGE, "--tee is '4'" },
        { { .argv = fine, .nproc = 2, .tee = "0:1,2:1" }, LS_USAGE, "ranks 0 to 1" },
        { { .argv = fine, .nproc = 2, .local_ranks_filter = "2" }, LS_USAGE, "ranks from 0 to 1" },
        { { .argv = fine, .nproc = 2, .prefix_cmd = "gdb", .prefix_rank = 2 }, LS_USAGE, "expected 0 to 1" },
        { { .argv = fine, .nproc = 2, .port = 65536 }, LS_USAGE, "65535" },
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        outcome x = launch(&row[i].o);
        assert_int_equal(x.st, row[i].st);
        assert_int_equal(x.r.exit_code, 64);
        assert_true(has(x.r.message, row[i].says));
        release(&x);
    }
}

int main(int argc, char **argv)
{
    if (argc > 1) return act(argv[1], play);
    if (!find_self()) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gives_the_exit_code_of_the_first_rank_that_failed),
        cmocka_unit_test(says_the_cause_before_the_consequences),
        cmocka_unit_test(blames_the_dead_rank_for_the_broken_connection),
        cmocka_unit_test(tells_the_survivors_through_the_page),
        cmocka_unit_test(shows_the_last_lines_of_the_failing_rank),
        cmocka_unit_test(ends_stubborn_survivors),
        cmocka_unit_test(takes_along_what_a_rank_has_left_running),
        cmocka_unit_test(reports_a_stopped_rank_as_hung),
        cmocka_unit_test(leaves_a_rank_alone_that_goes_on_in_time),
        cmocka_unit_test(sets_torchruns_environment),
        cmocka_unit_test(ranks_that_share_cores_are_bound_in_turn),
        cmocka_unit_test(addresses_are_random_where_cores_are_not_shared),
        cmocka_unit_test(keeps_a_thread_count_that_is_set),
        cmocka_unit_test(shows_each_rank_one_device_as_number_0),
        cmocka_unit_test(leaves_the_master_port_free_for_the_ranks),
        cmocka_unit_test(names_the_holder_of_a_busy_port),
        cmocka_unit_test(puts_a_command_before_one_rank),
        cmocka_unit_test(refuses_what_cannot_start),
    };
    return cmocka_run_group_tests_name("launch", tests, NULL, NULL);
}
