/* harness.c -- starts ranks as threads or as forked processes and collects the first failure. */
#include "harness.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static ls_world_opts with_small_arena(const ls_world_opts *opts)
{
    ls_world_opts o = opts ? *opts : (ls_world_opts){ 0 };
    if (!o.arena_bytes) o.arena_bytes = (size_t)4 << 20;
    if (!o.join_timeout_ns) o.join_timeout_ns = 20000000000ull;
    if (!o.coll_timeout_ns) o.coll_timeout_ns = 20000000000ull;
    return o;
}

typedef struct verdict {
    int status;
    bool joined;
    char text[512];
} verdict;

/* What a process does: fn in a world that was joined for it with o, or `alone`. */
typedef struct program {
    const ls_world_opts *o;
    ls_rank_fn fn;
    ls_process_fn alone;
    void *arg;
} program;

static void run_process(int rank, int n, int port, const program *p, verdict *v)
{
    char text[16];
    snprintf(text, sizeof text, "%d", rank);
    setenv("RANK", text, 1);
    snprintf(text, sizeof text, "%d", n);
    setenv("WORLD_SIZE", text, 1);
    snprintf(text, sizeof text, "%d", port);
    setenv("MASTER_PORT", text, 1);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    unsetenv("LOCAL_RANK");
    unsetenv("LOCAL_WORLD_SIZE");
    ls_world *w = NULL;
    ls_status st = p->alone ? p->alone(p->arg) : ls_world_join(p->o, &w);
    v->joined = p->alone || st == LS_OK;
    if (w) {
        st = p->fn(w, p->arg);
        if (st < 0) (void)ls_world_abort(w, st);
    }
    v->status = st;
    snprintf(v->text, sizeof v->text, "%s", ls_last_error());
    ls_world_leave(w);
}

/* A port that no other test is likely to use: probed by binding. */
static int free_port(void)
{
    extern int ls_test_free_port(void);
    return ls_test_free_port();
}

static ls_rank_report run_processes(int n, const program *p)
{
    ls_rank_report report = { 0 };
    int port = free_port();
    verdict *v = mmap(NULL, (size_t)n * sizeof *v, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t pid[LS_TEST_RANKS];
    fflush(NULL);
    for (int r = 0; r < n; r++) {
        v[r].status = LS_RANK_DIED;
        pid[r] = fork();
        if (pid[r] == 0) {
            /* or cmocka goes on with the next test */
            static const int sigs[] = { SIGFPE, SIGILL, SIGSEGV, SIGBUS, SIGSYS };
            for (size_t i = 0; i < sizeof sigs / sizeof *sigs; i++) signal(sigs[i], SIG_DFL);
            run_process(r, n, port, p, &v[r]);
            _exit(0);
        }
    }
    int cause = -1;
    for (int r = 0; r < n; r++) {
        int status;
        waitpid(pid[r], &status, 0);
        if (!WIFEXITED(status) && v[r].status == LS_RANK_DIED)
            snprintf(v[r].text, sizeof v[r].text, "killed by signal %d", WTERMSIG(status));
        if (v[r].status >= 0) continue;
        if (WIFEXITED(status) && !v[r].joined) {
            report.not_joined |= 1ull << r;
            snprintf(report.join_text, sizeof report.join_text, "%s", v[r].text);
        }
        report.failed++;
        if (cause < 0 || v[cause].status == LS_ABORTED) cause = r;
    }
    if (cause >= 0) {
        report.status = (ls_status)v[cause].status;
        snprintf(report.text, sizeof report.text, "rank %d: %.480s", cause, v[cause].text);
    }
    munmap(v, (size_t)n * sizeof *v);
    return report;
}

ls_rank_report ls_test_ranks(ls_test_mode mode, int n, const ls_world_opts *opts, ls_rank_fn fn, void *arg)
{
    ls_world_opts o = with_small_arena(opts);
    if (mode == LS_TEST_PROCESSES && n > 1) return run_processes(n, &(program){ .o = &o, .fn = fn, .arg = arg });
    ls_rank_report report = { .status = ls_world_threads(n, &o, fn, arg) };
    report.failed = report.status < 0;
    snprintf(report.text, sizeof report.text, "%s", report.failed ? ls_last_error() : "");
    return report;
}

ls_rank_report ls_test_processes(int n, ls_process_fn fn, void *arg)
{
    return run_processes(n, &(program){ .alone = fn, .arg = arg });
}
