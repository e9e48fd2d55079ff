/* launch.c -- a job from its first to its last moment.
 *
 * What a job owns outside its own memory is made here and is nameless (a
 * sealed memory file for the world page, another for the secret) or vanishes
 * with us (the abstract socket, the children, which die with their parent), so
 * that nothing is left behind even when the launcher itself is killed.
 */
#include "lockstep/launch.h"

#include <errno.h>
#include <signal.h> /* names of signals only */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "launch/impl.h"

#define DEFAULT_TIMEOUT_NS 30000000000ull
#define LEAVE_NS 1000000000ull

static bool safe_in_a_path(char c)
{
    bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'), digit = c >= '0' && c <= '9';
    return letter || digit || c == '-' || c == '_' || c == '.';
}

/* <log_dir>/<run-id>_<random>, as torchrun has it. Generations share it. */
static ls_status make_dir(ls_job *j)
{
    uint64_t r;
    ls_text path = { 0 };
    j->dir = j->gens->dir;
    if (j->dir) return LS_OK;
    ls_env_get()->random(&r, sizeof r);
    ls_text_add(&path, "%s/", j->o->log_dir);
    size_t front = path.n;
    ls_text_add(&path, "%s_%010llx", j->run_id, (unsigned long long)(r & 0xffffffffffull));
    LS_TRY(ls_text_status(&path));
    for (char *p = path.p + front; *p; p++)
        if (!safe_in_a_path(*p) || (*p == '.' && p == path.p + front)) *p = '_';
    j->dir = j->gens->dir = path.p;
    return ls_logs_mkdir(j->dir);
}

/* Whether the program that started us wants a signal ignored (nohup does for
 * SIGHUP); blocked signals reach a signalfd even then. */
static bool ignored_signal(int sig)
{
    char *text;
    size_t n;
    if (ls_file_read("/proc/self/status", 1u << 16, &text, &n) < 0) return false;
    const char *line = strstr(text, "SigIgn:");
    uint64_t mask = line ? strtoull(line + 7, NULL, 16) : 0;
    free(text);
    return mask >> (sig - 1) & 1u;
}

static const int stopping[] = { SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM, SIGXCPU };

static int stopping_signal(const char *name, size_t n)
{
    for (size_t i = 0; i < sizeof stopping / sizeof *stopping; i++) {
        const char *is = ls_signal_name(stopping[i]);
        if (strlen(is) == n && strncmp(is, name, n) == 0) return stopping[i];
    }
    return 0;
}

/* "SIGTERM,SIGUSR1" into a mask, bit 1 << signal; NULL: what torchrun handles. */
static ls_status read_signals(const char *text, uint64_t *mask)
{
    *mask = 0;
    if (!text) text = LS_LAUNCH_SIGNALS;
    for (const char *p = text;; p++) {
        p += strspn(p, " ");
        const size_t n = strcspn(p, ", ");
        const int sig = stopping_signal(p, n);
        if (!sig)
            return ls_fail(LS_USAGE, "--signals-to-handle is '%.60s', and a job cannot be stopped by '%.*s': expected some of "
                                     "SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM and SIGXCPU, as " LS_LAUNCH_SIGNALS,
                           text, (int)(n < 30 ? n : 30), p);
        *mask |= 1ull << sig;
        p += n + strspn(p + n, " ");
        if (!*p) return LS_OK;
    }
}

/* A signal that is not among those that stop the job does what it did: mostly, it ends us, and the ranks with us. */
static ls_status watch_signals(ls_job *j)
{
    int sig[LS_LAUNCH_STOPS] = { SIGCHLD, SIGPIPE }, n = 2;
    uint64_t stops;
    LS_TRY(read_signals(j->o->signals, &stops));
    for (size_t i = 0; i < sizeof stopping / sizeof *stopping; i++) {
        const bool always = stopping[i] == SIGINT || stopping[i] == SIGTERM;
        if ((stops >> stopping[i] & 1u) && (always || !ignored_signal(stopping[i]))) sig[n++] = stopping[i];
    }
    memcpy(j->stops, sig + 2, (size_t)(n - 2) * sizeof *sig); /* the first two are no wish of anybody's */
    j->nstops = n - 2;
    j->sigint_ignored = ignored_signal(SIGINT);
    j->signal_fd = ls_env_get()->signal_fd(sig, n);
    return j->signal_fd < 0 ? ls_fail(LS_SYSTEM, "watching signals: %s", strerror(-j->signal_fd)) : LS_OK;
}

static ls_status check(const ls_launch_opts *o)
{
    if (!o->argv || !o->argv[0]) return ls_fail(LS_USAGE, "no program to run: lockstep run [flags] -- PROGRAM ARGS...");
    if (o->nproc < 1 || o->nproc > LS_HOST_MOST_RANKS)
        return ls_fail(LS_USAGE, "%d ranks on this node: expected 1 to %d, since each maps the memory of all others", o->nproc,
                       LS_HOST_MOST_RANKS);
    if (o->nnodes > 1 && (o->nnodes > LS_WORLD_MOST_RANKS || o->node_rank < 0 || o->node_rank >= o->nnodes))
        return ls_fail(LS_USAGE, "node %d of %d: expected 0 to %d, of at most %d", o->node_rank, o->nnodes, o->nnodes - 1,
                       LS_WORLD_MOST_RANKS);
    if (o->nnodes > 1 && (!o->master_addr || o->port == 0))
        return ls_fail(LS_USAGE, "a job of %d nodes needs the address and the port of node 0", o->nnodes);
    if (o->port < 0 || o->port > 65535)
        return ls_fail(LS_USAGE, "port %d: expected 1 to 65535, or 0 for a free one", o->port);
    uint64_t any;
    LS_TRY(read_signals(o->signals, &any));
    if (o->least_nproc < 0 || o->least_nproc > o->nproc)
        return ls_fail(LS_USAGE, "at least %d ranks of %d on this node: expected 1 to %d", o->least_nproc, o->nproc, o->nproc);
    if (o->max_restarts < 0) return ls_fail(LS_USAGE, "%d restarts: expected 0 or more", o->max_restarts);
    if (o->prefix_cmd && (o->prefix_rank < 0 || o->prefix_rank >= o->nproc))
        return ls_fail(LS_USAGE, "a prefix for rank %d: expected 0 to %d", o->prefix_rank, o->nproc - 1);
    return LS_OK;
}

/* The port that programs with a rendezvous of their own (PyTorch) bind. We
 * must not hold it: only look that it is free. */
static ls_status choose_port(ls_job *j)
{
    const ls_env *env = ls_env_get();
    if (j->o->port == 0) {
        j->master_port = env->free_port();
        return j->master_port < 0 ? ls_fail(LS_SYSTEM, "no free port on 127.0.0.1: %s", strerror(-j->master_port))
                                  : LS_OK;
    }
    int bound, fd = env->listen_tcp("127.0.0.1", j->o->port, &bound);
    if (fd >= 0) {
        env->close_fd(fd);
        j->master_port = j->o->port;
        return LS_OK;
    }
    char who[128] = "a process we cannot see";
    if (fd != -EADDRINUSE) return ls_fail(LS_SYSTEM, "port %d on 127.0.0.1: %s", j->o->port, strerror(-fd));
    env->port_holder(j->o->port, who, sizeof who);
    return ls_fail(LS_PORT_BUSY, "port %d on 127.0.0.1 is held by %s: use another port, or none for a free one",
                   j->o->port, who);
}

/* Before any file is there. */
static ls_status check_copies(ls_job *j)
{
    static const char *const flag[] = { "duplicate-stdout-filters", "duplicate-stderr-filters" };
    const char *const text[] = { j->o->copy_stdout, j->o->copy_stderr };
    for (unsigned i = 0; i < 2; i++) {
        bool teed = false;
        LS_TRY(ls_logs_words(text[i], &j->copy[i].words));
        if (!j->copy[i].words) continue;
        for (int r = 0; r < j->o->nproc; r++) teed = teed || ((unsigned)j->tee[r] >> i & 1u);
        if (!teed || !j->o->log_dir)
            return ls_fail(LS_USAGE, "--%s needs --tee %u and --log-dir: lines of teed streams are copied into that folder", flag[i], i + 1);
    }
    return LS_OK;
}

static ls_status open_copies(ls_job *j)
{
    ls_status st = LS_OK;
    for (unsigned i = 0; i < 2 && st == LS_OK; i++) {
        ls_text path = { 0 };
        if (!j->copy[i].words) continue;
        ls_text_add(&path, "%s/attempt_%u", j->dir, j->gens->number - 1);
        st = ls_text_status(&path);
        if (st == LS_OK) st = ls_logs_mkdir(path.p);
        ls_text_add(&path, "/filtered_%s.log", i ? "stderr" : "stdout");
        if (st == LS_OK) st = ls_text_status(&path);
        if (st == LS_OK && (j->copy[i].file = ls_env_get()->create(path.p)) < 0)
            st = ls_fail(LS_IO, "making the log file %s: %s", path.p, strerror(-j->copy[i].file));
        ls_text_free(&path);
    }
    return st;
}

static ls_status open_files(ls_job *j)
{
    const ls_launch_opts *o = j->o;
    LS_TRY(ls_logs_parse("redirects", o->redirects, o->nproc, j->redirect));
    LS_TRY(ls_logs_parse("tee", o->tee, o->nproc, j->tee));
    LS_TRY(ls_logs_filter(o->local_ranks_filter, o->nproc, &j->shown));
    for (int r = 0; r < o->nproc && !o->log_dir; r++)
        if (j->redirect[r]) return ls_fail(LS_USAGE, "--redirects needs --log-dir: the folder for the files");
    LS_TRY(check_copies(j));
    if (o->log_dir) LS_TRY(make_dir(j));
    LS_TRY(open_copies(j));
    if (o->events && (j->events_fd = ls_env_get()->append(o->events)) < 0)
        return ls_fail(LS_IO, "opening the events file %s: %s", o->events, strerror(-j->events_fd));
    return LS_OK;
}

static ls_status start_ranks(ls_job *j)
{
    char more[64];
    snprintf(more, sizeof more, ",\"world_size\":%d,\"from_step\":%lld", j->world, (long long)ls_generation_from(j->gens));
    ls_event_line(j->events_fd, j->page->generation, "gen_start", -1, more);
    for (int r = 0; r < j->o->nproc; r++) {
        LS_TRY(ls_job_spawn(j, r));
        snprintf(more, sizeof more, ",\"pid\":%d", j->rank[r].pid);
        ls_event_line(j->events_fd, j->page->generation, "rank_spawn", j->first + r, more);
    }
    return LS_OK;
}

/* Undoes everything; the ranks are gone. */
static void destroy(ls_job *j)
{
    if (!j) return;
    const ls_env *env = ls_env_get();
    for (int r = 0; j->rank && r < j->o->nproc; r++) {
        ls_stream_close(&j->rank[r].out);
        ls_stream_close(&j->rank[r].err);
        if (j->rank[r].pidfd >= 0) env->close_fd(j->rank[r].pidfd);
        if (j->rank[r].error_fd >= 0) env->close_fd(j->rank[r].error_fd);
        free(j->rank[r].error_file);
        free(j->rank[r].prefix);
    }
    for (size_t i = 0; i < 2; i++) {
        if (j->copy[i].file >= 0) env->close_fd(j->copy[i].file);
        free(j->copy[i].words);
    }
    ls_agent_leave(j->agent, env->mono_ns() + LEAVE_NS);
    ls_store_destroy(j->store);
    if (j->page) env->unmap(j->page, ls_page_bytes(j->world));
    int fds[] = { j->page_fd, j->secret_fd, j->signal_fd, j->events_fd };
    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++)
        if (fds[i] >= 0) env->close_fd(fds[i]);
    ls_text_free(&j->out.pending);
    ls_text_free(&j->err.pending);
    free(j->rank);
    free(j->node);
    free(j->redirect);
    free(j->tee);
    ls_rank_set_free(&j->shown);
    ls_secret_wipe(j->secret, sizeof j->secret);
    free(j);
}

static ls_status create(ls_generations *g, ls_job **out)
{
    const ls_launch_opts *o = &g->o;
    *out = NULL;
    ls_job *j = calloc(1, sizeof *j);
    if (!j) return ls_fail(LS_NO_MEMORY, "a job");
    *j = (ls_job){ .o = o, .gens = g, .role = o->role ? o->role : "default", .run_id = o->run_id ? o->run_id : "none",
                   .timeout_ns = o->timeout_ns ? o->timeout_ns : DEFAULT_TIMEOUT_NS, .cpus = ls_env_get()->cpus(),
                   .page_fd = -1, .secret_fd = -1, .signal_fd = -1, .events_fd = -1, .first_rank = -1,
                   .culprit = -1, .nnodes = o->nnodes > 1 ? o->nnodes : 1,
                   .out = { .fd = 1, .terminal = ls_env_get()->isatty(1) },
                   .err = { .fd = 2, .terminal = ls_env_get()->isatty(2) } };
    const size_t n = (size_t)o->nproc;
    j->rank = calloc(n, sizeof *j->rank);
    j->node = calloc((size_t)j->nnodes, sizeof *j->node);
    j->redirect = calloc(n, 1);
    j->tee = calloc(n, 1);
    for (int r = 0; j->rank && r < o->nproc; r++) {
        ls_job_rank *k = &j->rank[r];
        k->pidfd = k->error_fd = k->out.from = k->out.to = k->out.file = k->err.from = k->err.to = k->err.file = -1;
    }
    j->copy[0].file = j->copy[1].file = -1;
    *out = j; /* the caller destroys it, also on failure */
    if (!j->rank || !j->node || !j->redirect || !j->tee) return ls_fail(LS_NO_MEMORY, "a job of %d ranks", o->nproc);
    return LS_OK;
}

static ls_status run(ls_job *j, ls_launch_result *out)
{
    ls_status st = open_files(j);
    if (st == LS_OK && j->nnodes == 1) st = choose_port(j);
    if (st == LS_OK) st = ls_job_meet(j);
    for (int r = 0; st == LS_OK && r < j->o->nproc; r++)
        st = ls_logs_prefix(j->o->line_prefix, j->role, r, j->first + r, &j->rank[r].prefix);
    if (st == LS_OK) st = watch_signals(j);
    if (st == LS_OK && (st = start_ranks(j)) < 0) { /* those that have started must go again */
        char why[LS_ERROR_BYTES];
        snprintf(why, sizeof why, "%s", ls_last_error());
        ls_job_signal(j, SIGKILL);
        j->phase = LS_PHASE_KILL;
        j->phase_ns = ls_env_get()->mono_ns() + DEFAULT_TIMEOUT_NS;
        ls_job_watch(j);
        (void)ls_fail(st, "%s", why);
    } else if (st == LS_OK) {
        ls_job_watch(j);
        if (j->nnodes > 1) ls_job_part(j);
        ls_job_report(j, out);
        char more[64];
        snprintf(more, sizeof more, ",\"code\":%d", out->exit_code);
        if (!j->gens->again) ls_event_line(j->events_fd, j->page->generation, "exit", -1, more);
    }
    return st;
}

/* Until the next generation has ranks, a signal ends the launcher as it ends any program: it may wait for a node. */
static void heed_signals(const ls_job *j)
{
    if (j && j->gens->again) ls_env_get()->signal_release(j->stops, j->nstops);
}

static ls_status launch_one(ls_generations *g, ls_launch_result *out)
{
    ls_job *j = NULL;
    *out = (ls_launch_result){ .first_rank = -1 };
    ls_status st = create(g, &j);
    if (st == LS_OK) st = run(j, out);
    heed_signals(j);
    destroy(j);
    return st;
}

ls_status ls_launch(const ls_launch_opts *o, ls_launch_result *out)
{
    ls_generations g = { .o = *o, .nproc = o->nproc, .next_nproc = o->nproc, .durable = -1, .snapshot = -1 };
    *out = (ls_launch_result){ .first_rank = -1 };
    ls_status st = check(o);
    do {
        ls_generation_begin(&g);
        if (st == LS_OK) st = launch_one(&g, out);
    } while (st == LS_OK && g.again);
    if (st < 0) { /* nothing ran */
        out->status = st;
        out->exit_code = ls_status_exit_code(st);
        snprintf(out->message, sizeof out->message, "%s", ls_last_error());
    }
    out->restarts = g.restarts;
    free(g.dir);
    return st;
}
