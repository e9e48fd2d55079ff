/* report.c -- what failed first, for people on stderr and for programs in failure.json. */
#include <jansson.h>
#include <signal.h> /* names of signals only */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "launch/impl.h"

#define REPORT_DRAIN_NS 2000000000ull /* how long a slow terminal may take to swallow the report */
#define PREEMPTED 75                  /* a rank stopped on purpose after a durable checkpoint */

/* --- the exit code ------------------------------------------------------------------------- */

/* 75 when the ranks say that they saved and may be queued again. */
static int interrupted_code(const ls_job *j)
{
    bool saved = false;
    for (int r = 0; r < j->o->nproc; r++) {
        const ls_job_rank *k = &j->rank[r];
        if (k->signal || (k->code != 0 && k->code != PREEMPTED)) return 128 + j->user_signal;
        saved = saved || k->code == PREEMPTED;
    }
    const bool preempted = j->user_signal == SIGTERM || j->user_signal == SIGUSR1 || j->user_signal == SIGUSR2;
    return saved && preempted ? PREEMPTED : 128 + j->user_signal;
}

static int exit_code(const ls_job *j)
{
    if (j->status == LS_OK) return j->user_signal ? interrupted_code(j) : 0;
    const ls_job_rank *k = j->culprit >= 0 ? &j->rank[j->culprit] : NULL;
    if (j->status != LS_RANK_HUNG && k && k->code > 0 && !k->told) return k->code; /* its own word */
    return ls_status_exit_code(j->status);
}

/* Rank 0 says nothing when another rank's end ended it. */
static void note_silence(const ls_job *j, ls_launch_result *out)
{
    const ls_job_rank *first = &j->rank[0];
    out->unanswered = j->first == 0 && (first->signal || first->code == ls_status_exit_code(LS_ABORTED));
    for (int r = 0; r < j->o->nproc; r++) out->killed = out->killed || j->rank[r].signal == SIGKILL;
}

/* Bytes from ranks and files may not drive the terminal. */
static void make_inert(char *p)
{
    for (; p && *p; p++)
        if (((unsigned char)*p < 0x20 && *p != '\n') || *p == 0x7f) *p = '?';
}

/* --- what was saved ------------------------------------------------------------------------- */

/* After a stop on request: ranks that were killed cannot say what they saved. */
static void note_killed(ls_job *j, const ls_launch_result *r)
{
    char line[sizeof r->saved + 64];
    if (!r->killed || !*r->saved || j->o->ranks_answer || j->o->quiet) return;
    const int n = snprintf(line, sizeof line, "lockstep: ranks were killed; %s\n", r->saved);
    make_inert(line);
    ls_console_add(&j->err, line, (size_t)n);
}

/* --- pieces ----------------------------------------------------------------------------------- */

/* "2026-01-31_12:00:00Z": days since 1970 to year, month, day by counting years of 365.2425
 * days from a March (the leap day is then the last of a year). */
static void time_text(int64_t wall_ns, char *buf, size_t n)
{
    int64_t s = wall_ns / 1000000000, days = s / 86400 + 719468, sec = s % 86400;
    int64_t era = days / 146097, doe = days % 146097; /* 400 years; day of them */
    int64_t yoe = (doe - doe / 1460 + doe / 36524 - doe / 146096) / 365;
    int64_t doy = doe - (365 * yoe + yoe / 4 - yoe / 100), mp = (5 * doy + 2) / 153;
    int month = (int)(mp < 10 ? mp + 3 : mp - 9), day = (int)(doy - (153 * mp + 2) / 5 + 1);
    int year = (int)(yoe + era * 400 + (month <= 2));
    snprintf(buf, n, "%04d-%02d-%02d_%02d:%02d:%02dZ", year, month, day, (int)(sec / 3600), (int)(sec / 60 % 60),
             (int)(sec % 60));
}

/* The error file of a rank; false when there is nothing to read. *data is malloc'd. */
static bool read_error_file(const ls_job_rank *k, char **data, size_t *n)
{
    const ls_env *env = ls_env_get();
    ls_file_info info;
    if (k->error_fd < 0) {
        if (!k->error_file || env->info(k->error_file, &info) < 0 || info.type != LS_FILE_REGULAR) return false;
        return ls_file_read(k->error_file, LS_REPLY_BYTES, data, n) == LS_OK;
    }
    const int64_t size = env->fd_size(k->error_fd);
    if (size <= 0 || size > LS_REPLY_BYTES || !(*data = malloc((size_t)size))) return false;
    const ssize_t got = env->pread(k->error_fd, *data, (size_t)size, 0);
    *n = got > 0 ? (size_t)got : 0;
    return true;
}

/* What torch's @record leaves behind. Both are malloc'd; NULL: not said. */
typedef struct reply {
    char *message;   /* "ValueError: no such layer", one line */
    char *traceback; /* lines, without the last line's end */
} reply;

static char *copy_text(const json_t *value, bool lines)
{
    char *text = json_is_string(value) ? strdup(json_string_value(value)) : NULL;
    for (char *p = text; p && *p; p++)
        if (((unsigned char)*p < 0x20 && !(lines && *p == '\n')) || *p == 0x7f) *p = ' ';
    for (size_t n = text ? strlen(text) : 0; n > 0 && text[n - 1] == '\n'; n--) text[n - 1] = 0;
    return text;
}

/* {"message": {"message": "...", "extraInfo": {"py_callstack": "..."}}} or {"message": "..."}. */
static reply read_reply(const ls_job_rank *k)
{
    reply said = { 0 };
    char *data = NULL;
    size_t n = 0;
    if (!read_error_file(k, &data, &n)) return said;
    json_t *root = json_loadb(data, n, 0, NULL), *m = json_object_get(root, "message");
    if (json_is_object(m)) {
        said.message = copy_text(json_object_get(m, "message"), false);
        said.traceback = copy_text(json_object_get(json_object_get(m, "extraInfo"), "py_callstack"), true);
    } else said.message = copy_text(m, false);
    json_decref(root);
    free(data);
    return said;
}

static void release_reply(reply *said)
{
    free(said->message);
    free(said->traceback);
}

static unsigned step_of(const ls_job *j)
{
    return atomic_load_explicit(&j->page->rank[j->first_rank].step, memory_order_relaxed);
}

static bool last_collective(const ls_job *j, int r, char *buf, size_t n)
{
    ls_coll_desc d;
    if (!ls_page_last_words(j->page, r, &d)) return false;
    ls_desc_text(&d, &j->page->rank[r], buf, n);
    return true;
}

/* What to look at next, after a death; NULL: nothing in particular. */
static const char *hint(const ls_job_rank *k)
{
    switch (k->signal) {
    case SIGKILL: return "another process sent the signal, or the kernel did when memory ran out (see dmesg)";
    case SIGSEGV: case SIGBUS: case SIGILL: case SIGFPE: case SIGABRT:
        return "--prefix-rank RANK \"gdb --args\" shows where it happens";
    case SIGXCPU: case SIGXFSZ: return "a limit of `ulimit` was reached";
    default: return NULL;
    }
}

/* Of whoever failed first, wherever it is; else our own. */
static int pid_of(const ls_job *j)
{
    if (j->culprit >= 0) return j->rank[j->culprit].pid;
    if (j->first_rank < 0) return ls_env_get()->pid();
    return atomic_load_explicit(&j->page->rank[j->first_rank].pid, memory_order_relaxed);
}

/* The cause without what the head line has said before it: "rank 1 (pid 41)", "in step 100". */
static void short_cause(const ls_job *j, char *out, size_t n)
{
    char front[64], step[32];
    const int skip = snprintf(front, sizeof front, "rank %d (pid %d) ", j->first_rank, pid_of(j));
    const bool same = j->first_rank >= 0 && strncmp(j->message, front, (size_t)skip) == 0;
    snprintf(out, n, "%s", j->message + (same ? skip : 0));
    if (!same) return; /* a node, or the launcher itself */
    snprintf(step, sizeof step, " in step %u", step_of(j));
    char *at = strstr(out, step);
    const size_t k = strlen(step);
    if (at && !(at[k] >= '0' && at[k] <= '9')) memmove(at, at + k, strlen(at + k) + 1);
}

/* "rank 0 ended with exit code 82; rank 3 was stopped by us" */
static void consequences(const ls_job *j, ls_text *t)
{
    bool any = false;
    for (int r = 0; r < j->o->nproc; r++) {
        const ls_job_rank *k = &j->rank[r];
        if (r == j->culprit || !k->started || (!k->code && !k->signal)) continue;
        ls_text_add(t, "%srank %d ", any ? "; " : "", j->first + r);
        if (k->signal && k->told) ls_text_add(t, "was stopped by us (%s)", ls_signal_name(k->signal));
        else if (k->signal) ls_text_add(t, "was killed by signal %d (%s)", k->signal, ls_signal_name(k->signal));
        else ls_text_add(t, "ended with exit code %d", k->code);
        any = true;
    }
    if (!any) ls_text_add(t, "none");
}

static void head_line(const ls_job *j, const char *host, ls_text *t)
{
    const ls_job_rank *k = j->culprit >= 0 ? &j->rank[j->culprit] : NULL;
    ls_text line = { 0 };
    ls_text_add(&line, "lockstep: error[%s] gen=%u", ls_status_word(j->status), j->page->generation);
    if (k ? ls_job_joined(j, j->culprit) : j->first_rank >= 0) ls_text_add(&line, " step=%u", step_of(j));
    if (j->first_rank >= 0) ls_text_add(&line, " rank=%d", j->first_rank);
    char cause[sizeof j->message];
    short_cause(j, cause, sizeof cause);
    ls_text_add(&line, " host=%s pid=%d: %s", host, pid_of(j), cause);
    for (size_t i = 0; i < line.n; i++)
        if (line.p[i] == '\n') line.p[i] = ' ';
    ls_text_add(t, "%s\n", ls_text_str(&line));
    ls_text_free(&line);
}

/* As torchrun prints it: the first line follows the key. A long one is cut to its last lines. */
static void add_traceback(ls_text *t, const char *p)
{
    const size_t n = strlen(p);
    ls_text_add(t, "  traceback : ");
    if (n > LS_TRACEBACK_BYTES) {
        p += n - LS_TRACEBACK_BYTES;
        p += strcspn(p, "\n");
        ls_text_add(t, "...");
    }
    for (; *p; p++) {
        ls_text_addn(t, p, 1);
        if (*p == '\n') ls_text_add(t, "  ");
    }
    ls_text_add(t, "\n");
}

/* Whether the rank's stderr ends as the traceback does: Python has printed it there, too, and PyTorch puts "[rank1]: "
 * before each line. */
static bool repeats(const ls_tail *tail, const char *traceback)
{
    char line[LS_TAIL_BYTES], last[LS_TAIL_BYTES] = "";
    for (unsigned i = 0; ls_tail_line(tail, i, line); i++) snprintf(last, sizeof last, "%s", line);
    const char *end = traceback ? strrchr(traceback, '\n') : NULL;
    const size_t n = strlen(last), m = end ? strlen(end + 1) : 0;
    return m > 0 && n >= m && strcmp(last + n - m, end + 1) == 0;
}

/* --- the two forms ----------------------------------------------------------------------------- */

/* A failure after which the job goes on is told beside the logs of its generation. */
static void add_json_path(const ls_job *j, ls_text *t)
{
    if (j->gens->again) ls_text_add(t, "%s/attempt_%u/failure.json", j->dir, j->gens->number - 1);
    else ls_text_add(t, "%s/failure.json", j->dir);
}

static void write_report(const ls_job *j, const char *host, const char *when, ls_text *t)
{
    char coll[256], line[LS_TAIL_BYTES];
    head_line(j, host, t);
    if (j->culprit < 0 && j->first_rank >= 0) { /* its own host's launcher knows more */
        ls_text_add(t, "  time      : %s\n  host      : %s\n  rank      : %d\n", when, host, j->first_rank);
        if (last_collective(j, j->first_rank, coll, sizeof coll)) ls_text_add(t, "  collective: %s\n", coll);
    }
    if (j->culprit >= 0) {
        const ls_job_rank *k = &j->rank[j->culprit];
        ls_text_add(t, "  time      : %s\n  host      : %s\n  rank      : %d (local_rank: %d)\n", when, host,
                    j->first_rank, j->culprit);
        ls_text_add(t, "  exitcode  : %d (pid: %d)\n", k->signal ? -k->signal : k->code, k->pid);
        reply said = read_reply(k);
        const bool recorded = said.message || said.traceback;
        ls_text_add(t, "  error_file: %s\n", !recorded ? "<N/A>" : k->error_fd < 0 ? k->error_file : "not kept; --log-dir DIR keeps it");
        if (said.traceback) add_traceback(t, said.traceback);
        else if (said.message) ls_text_add(t, "  error     : %s\n", said.message);
        /* the head line has the collective, too */
        const bool died = j->status == LS_RANK_DIED && k->signal && !k->told;
        if (!died && last_collective(j, j->first_rank, coll, sizeof coll)) ls_text_add(t, "  collective: %s\n", coll);
        if (died && hint(k)) ls_text_add(t, "  hint      : %s\n", hint(k));
        if (!repeats(&k->tail, said.traceback)) {
            if (ls_tail_line(&k->tail, 0, line)) ls_text_add(t, "  its last lines on stderr:\n");
            for (unsigned i = 0; ls_tail_line(&k->tail, i, line); i++) ls_text_add(t, "    | %s\n", line);
        }
        release_reply(&said);
    }
    char saved[LS_SAVED_PATH_BYTES + 128];
    ls_saved snapshot;
    ls_saved_read(&j->page->snapshot, &snapshot);
    if (*ls_job_saved(j, saved, sizeof saved)) {
        ls_saved s;
        ls_saved_read(&j->page->saved, &s);
        ls_text_add(t, "  checkpoint: %s\n", saved);
        if (*s.path && !j->gens->again) ls_text_add(t, "  to go on  : the same command with --checkpoint.resume %s\n", s.path);
        else if (!j->gens->again && snapshot.state != LS_SAVED_ONE)
            ls_text_add(t, "  to go on  : start again; --checkpoint.every N saves while it trains\n");
    }
    if (snapshot.state == LS_SAVED_ONE && *snapshot.path)
        ls_text_add(t, "  snapshot  : step %lld stays in memory%s (%s)\n", (long long)snapshot.step,
                    j->gens->again ? "" : ": the same command with --checkpoint.resume auto goes on from it", snapshot.path);
    if (*j->gens->note) ls_text_add(t, "  restart   : %s\n", j->gens->note);
    ls_text_add(t, "  consequences: ");
    consequences(j, t);
    if (j->dir) {
        ls_text_add(t, "\n  the same as JSON: ");
        add_json_path(j, t);
    }
    ls_text_add(t, "\n");
    make_inert(t->p);
}

static void member(ls_text *t, const char *key, const char *value)
{
    ls_text_add(t, ",\n  \"%s\": ", key);
    ls_json_string(t, value);
}

static void write_json(const ls_job *j, const char *host, const char *when, int code, ls_text *t)
{
    char coll[256], line[LS_TAIL_BYTES];
    ls_text_add(
        t,
        "{\n  \"version\": 1,\n  \"code_word\": \"%s\",\n  \"exit_code\": %d,\n  \"generation\": %u,\n  \"t_ns\": %llu,\n  "
        "\"world_size\": %d",
        ls_status_word(j->status), code, j->page->generation, (unsigned long long)j->failed_ns, j->world);
    member(t, "time", when);
    member(t, "host", host);
    member(t, "message", j->message);
    if (*j->gens->note) member(t, "restart", j->gens->note);
    if (j->culprit < 0 && j->first_rank >= 0) ls_text_add(t, ",\n  \"rank\": %d", j->first_rank);
    if (j->culprit >= 0) {
        const ls_job_rank *k = &j->rank[j->culprit];
        ls_text_add(t, ",\n  \"rank\": %d,\n  \"local_rank\": %d,\n  \"pid\": %d,\n  \"exitcode\": %d,\n  \"step\": %u",
                    j->first_rank, j->culprit, k->pid, k->signal ? -k->signal : k->code, step_of(j));
        if (k->signal) member(t, "signal", ls_signal_name(k->signal));
        if (last_collective(j, j->first_rank, coll, sizeof coll)) member(t, "collective", coll);
        reply said = read_reply(k);
        if (said.message || said.traceback) member(t, "error_file", k->error_file);
        if (said.message) member(t, "error", said.message);
        if (said.traceback) member(t, "traceback", said.traceback);
        release_reply(&said);
        ls_text_add(t, ",\n  \"stderr\": [");
        for (unsigned i = 0; ls_tail_line(&k->tail, i, line); i++) {
            ls_text_add(t, "%s\n    ", i ? "," : "");
            ls_json_string(t, line);
        }
        ls_text_add(t, "]");
    }
    ls_saved saved;
    ls_saved_read(&j->page->saved, &saved);
    if (saved.state == LS_SAVED_NONE) ls_text_add(t, ",\n  \"checkpoint\": null");
    if (saved.state == LS_SAVED_ONE) member(t, "checkpoint", saved.path);
    if (saved.state == LS_SAVED_ONE) ls_text_add(t, ",\n  \"checkpoint_step\": %lld", (long long)saved.step);
    ls_saved_read(&j->page->snapshot, &saved);
    if (saved.state == LS_SAVED_ONE) ls_text_add(t, ",\n  \"snapshot_step\": %lld", (long long)saved.step);
    ls_text_add(t, ",\n  \"consequences\": [");
    for (int r = 0, n = 0; r < j->o->nproc; r++) {
        const ls_job_rank *k = &j->rank[r];
        if (r == j->culprit || !k->started || (!k->code && !k->signal)) continue;
        ls_text_add(t, "%s\n    { \"rank\": %d, \"pid\": %d, \"exitcode\": %d, \"stopped_by_launcher\": %s }",
                    n++ ? "," : "", j->first + r, k->pid, k->signal ? -k->signal : k->code,
                    k->told && k->signal ? "true" : "false");
    }
    ls_text_add(t, "]\n}\n");
}

static void save(const char *path, const ls_text *json)
{
    const ls_env *env = ls_env_get();
    int fd = json->failed ? -1 : env->create(path);
    if (fd < 0) return;
    if (env->write(fd, json->p, json->n) != (ssize_t)json->n) ls_log(LS_LOG_WARN, "%s could not be written whole", path);
    env->close_fd(fd);
}

/* Beside the logs; and of a training that does not go on, in the run's folder, in place of an earlier failure's. */
static void save_json(const ls_job *j, const char *run, const ls_text *json)
{
    ls_text path = { 0 };
    if (j->dir) add_json_path(j, &path);
    if (j->dir && !path.failed) save(path.p, json);
    if (*run && !j->gens->again) {
        char here[LS_RUN_DIR_BYTES + 16];
        snprintf(here, sizeof here, "%s/failure.json", run);
        ls_env_get()->unlink(here);
        save(here, json);
    }
    ls_text_free(&path);
}

/* The ranks had done all their work when the next generation was to begin. */
static void forget_needless_stop(ls_job *j)
{
    bool done = j->growing;
    for (int r = 0; r < j->o->nproc; r++) done = done && !j->rank[r].code && !j->rank[r].signal;
    if (!done) return;
    j->growing = false;
    j->user_signal = 0;
}

void ls_job_report(ls_job *j, ls_launch_result *out)
{
    const ls_env *env = ls_env_get();
    char host[64] = "?", when[40];
    forget_needless_stop(j);
    int code = exit_code(j);
    ls_generation_decide(j, code);
    *out = (ls_launch_result){ .status = j->status, .exit_code = code, .first_rank = -1 };
    ls_job_saved(j, out->saved, sizeof out->saved);
    if (j->status == LS_OK && j->user_signal) {
        out->status = LS_INTERRUPTED;
        snprintf(out->message, sizeof out->message, "stopped by the user (%s)", ls_signal_name(j->user_signal));
        note_silence(j, out);
        note_killed(j, out);
    } else if (j->status < 0) {
        const char *there = j->first_rank >= 0 && j->culprit < 0 ? ls_job_host(j, j->first_rank) : NULL;
        if (there) snprintf(host, sizeof host, "%s", there);
        else if (env->hostname(host, sizeof host) < 0) snprintf(host, sizeof host, "?");
        time_text(j->failed_wall_ns, when, sizeof when);
        out->first_rank = j->first_rank;
        if (j->culprit >= 0 && !j->rank[j->culprit].told) out->signal = j->rank[j->culprit].signal;
        snprintf(out->message, sizeof out->message, "%s", j->message);
        ls_text t = { 0 }, json = { 0 };
        if (!j->o->quiet) write_report(j, host, when, &t);
        char run[LS_RUN_DIR_BYTES]; /* "": rank 0 is no training, on another host, or has not come so far */
        ls_run_dir_read(&j->page->run_dir, run);
        if (j->dir || *run) {
            write_json(j, host, when, code, &json);
            save_json(j, run, &json);
        }
        ls_console_say(&j->err, ls_text_str(&t), t.n);
        ls_text_free(&t);
        ls_text_free(&json);
    }
    for (int r = 0; r < j->o->nproc; r++) {
        char line[64];
        int n = snprintf(line, sizeof line, "lockstep: rank %d after the failure:\n", j->first + r);
        if (j->rank[r].err.held.n > 0) ls_console_say(&j->err, line, (size_t)n);
        ls_stream_release(&j->rank[r].err);
    }
    uint64_t deadline = env->mono_ns() + REPORT_DRAIN_NS;
    ls_console_drain(&j->out, deadline);
    ls_console_drain(&j->err, deadline);
}
