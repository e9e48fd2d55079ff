/* ls_launch: exit codes and blame first, then what the ranks are given, then logs, then the ways to be stopped.
 *
 * Most ranks are shell scripts; those that need the world page are this program started again with a
 * role as its first argument. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>
#include <jansson.h>

#include "base/env.h"
#include "lockstep/launch.h"
#include "meet/page.h"
#include "meet/store.h"

static char self[4096]; /* this program; set by main and never again */

/* --- running a job ---------------------------------------------------------------------------- */

/* More than any machine needs for what a script does when it is told to end: the launcher kills nobody before. */
static const uint64_t long_ns = 100000000000u;

typedef struct outcome {
    ls_status st;
    ls_launch_result r;
    char *err;   /* everything on stderr */
    char *out;   /* and stdout */
    double s;    /* how long it took */
} outcome;

static char *whole(int fd)
{
    off_t n = lseek(fd, 0, SEEK_END);
    char *p = calloc(1, (size_t)n + 1);
    assert_non_null(p);
    assert_int_equal(pread(fd, p, (size_t)n, 0), n);
    close(fd);
    return p;
}

static int scratch_file(void)
{
    char path[] = "/tmp/lockstep-test-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    unlink(path);
    return fd;
}

static outcome launch(const ls_launch_opts *o)
{
    outcome x = { 0 };
    int out = scratch_file(), err = scratch_file();
    int was_out = fcntl(1, F_DUPFD_CLOEXEC, 3), was_err = fcntl(2, F_DUPFD_CLOEXEC, 3);
    uint64_t t0 = ls_env_get()->mono_ns();
    fflush(NULL);
    dup2(out, 1);
    dup2(err, 2);
    x.st = ls_launch(o, &x.r);
    dup2(was_out, 1);
    dup2(was_err, 2);
    close(was_out);
    close(was_err);
    x.s = (double)(ls_env_get()->mono_ns() - t0) * 1e-9;
    x.out = whole(out);
    x.err = whole(err);
    return x;
}

static void release(outcome *x)
{
    free(x->out);
    free(x->err);
}

static outcome shell(int nproc, const char *script, ls_launch_opts o)
{
    const char *argv[] = { "/bin/sh", "-c", script, NULL };
    o.argv = argv;
    o.nproc = nproc;
    return launch(&o);
}

static outcome role(int nproc, const char *name, ls_launch_opts o)
{
    const char *argv[] = { self, name, NULL };
    o.argv = argv;
    o.nproc = nproc;
    return launch(&o);
}

static bool has(const char *text, const char *part) { return strstr(text, part) != NULL; }

static char *folder(void)
{
    static const char form[] = "/tmp/lockstep-test-XXXXXX";
    char *path = malloc(sizeof form);
    assert_non_null(path);
    memcpy(path, form, sizeof form);
    assert_non_null(mkdtemp(path));
    return path;
}

static void remove_folder(char *path)
{
    char command[4200];
    snprintf(command, sizeof command, "rm -rf %s", path);
    assert_int_equal(system(command), 0);
    free(path);
}

/* What a shell command prints in the folder `dir`, for the caller to free. */
static char *printed(const char *dir, const char *what)
{
    char command[4200];
    snprintf(command, sizeof command, "cd %s && %s", dir, what);
    FILE *f = popen(command, "r");
    assert_non_null(f);
    char *text = calloc(1, 65536);
    assert_non_null(text);
    size_t n = fread(text, 1, 65535, f);
    text[n] = 0;
    pclose(f);
    return text;
}

/* --- ranks that know the world page ------------------------------------------------------------ */

static ls_world_page *join(int *rank, ls_store_client **client)
{
    const ls_env *env = ls_env_get();
    uint8_t secret[LS_SECRET_BYTES];
    int fd = -1, size = atoi(getenv("WORLD_SIZE"));
    *rank = atoi(getenv("RANK"));
    if (pread(atoi(getenv("LOCKSTEP_SECRET_FD")), secret, sizeof secret, 0) != sizeof secret) exit(100);
    ls_store_caller who = { .unix_name = getenv("LOCKSTEP_STORE"), .secret = secret, .rank = *rank, .size = size };
    if (ls_store_connect(&who, env->mono_ns() + 10000000000u, client, &fd) < 0)
        exit(101);
    ls_world_page *page = env->map_shared(fd, ls_page_bytes(size), true);
    if (!page || ls_page_check(page, ls_page_bytes(size), size) < 0) exit(102);
    atomic_store(&page->rank[*rank].state, LS_RANK_RUNNING);
    atomic_store(&page->rank[*rank].step, 12);
    return page;
}

/* Both are there before anything happens. */
static void meet(ls_store_client *c, int rank)
{
    char key[16], byte;
    uint64_t deadline = ls_env_get()->mono_ns() + 10000000000u;
    snprintf(key, sizeof key, "met/%d", rank);
    if (ls_store_set(c, key, "x", 1, deadline) < 0) exit(103);
    for (int r = 0; r < atoi(getenv("WORLD_SIZE")); r++) {
        size_t n = 1;
        snprintf(key, sizeof key, "met/%d", r);
        if (ls_store_get(c, key, &byte, &n, deadline) < 0) exit(104);
    }
}

static void until_aborted(const ls_world_page *page)
{
    for (int i = 0; i < 20000; i++) {
        if (atomic_load(&page->abort_ready)) return;
        usleep(1000);
    }
    exit(105);
}

/* Waits for a signal to stop. Then rank 0 goes on with its step for longer than a rank may stand still; or does not; or
 * trains on as if nothing had been said. */
static int stop_on_request(const char *name, int rank, ls_world_page *page)
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
    const int turns = sig == SIGINT ? 40 : 140; /* of 0.2 s */
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
    if (strcmp(name, "moves") == 0 || strcmp(name, "sticks") == 0 || strcmp(name, "ignores") == 0) return stop_on_request(name, rank, page);
    return 106;
}

static int act(const char *name)
{
    ls_store_client *client;
    int rank;
    ls_world_page *page = join(&rank, &client);
    meet(client, rank);
    int code = play(name, rank, page);
    ls_store_disconnect(client);
    return code;
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

/* --- logs --------------------------------------------------------------------------------------------- */

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

/* --- being stopped ------------------------------------------------------------------------------------- */

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
    if (argc > 1) return act(argv[1]);
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n <= 0) return 1;
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
        cmocka_unit_test(keeps_a_thread_count_that_is_set),
        cmocka_unit_test(shows_each_rank_one_device_as_number_0),
        cmocka_unit_test(leaves_the_master_port_free_for_the_ranks),
        cmocka_unit_test(names_the_holder_of_a_busy_port),
        cmocka_unit_test(puts_a_command_before_one_rank),
        cmocka_unit_test(refuses_what_cannot_start),
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
        cmocka_unit_test(lets_the_ranks_save_when_interrupted),
        cmocka_unit_test(ends_by_a_signal_that_is_not_named),
        cmocka_unit_test(gives_ranks_the_time_that_was_given_to_end),
        cmocka_unit_test(waits_for_ranks_that_go_on_with_their_step),
        cmocka_unit_test(kills_at_the_second_interrupt),
        cmocka_unit_test(takes_the_ranks_along_when_it_is_killed),
    };
    return cmocka_run_group_tests_name("launch", tests, NULL, NULL);
}
