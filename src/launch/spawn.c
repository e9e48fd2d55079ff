/* spawn.c -- starting one rank: its environment, its streams, its CPUs. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/lint.h"
#include "base/log.h"
#include "base/team.h"
#include "launch/impl.h"

#define MAX_VARS 40
#define MAX_WORDS 4096 /* of the command of a rank */

/* --- the environment ------------------------------------------------------------------------ */

typedef struct vars {
    char *v[MAX_VARS + 1]; /* owned, NULL-ended */
    int n;
    bool failed;
} vars;

static void set(vars *e, const char *fmt, ...) LS_PRINTF(2, 3);

static void set(vars *e, const char *fmt, ...)
{
    char *line = NULL;
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    LS_ASSERT(e->n < MAX_VARS);
    if (n >= 0) line = malloc((size_t)n + 1);
    if (!line) {
        e->failed = true;
        return;
    }
    va_start(ap, fmt);
    vsnprintf(line, (size_t)n + 1, fmt, ap);
    va_end(ap);
    e->v[e->n++] = line;
}

/* What torchrun sets, so that programs written for it find everything; then
 * what our own ranks read (src/meet/job_env.c). */
static void describe(const ls_job *j, int r, vars *e)
{
    const ls_env *env = ls_env_get();
    const ls_job_rank *k = &j->rank[r];
    int n = j->o->nproc;
    set(e, "RANK=%d", j->first + r);
    set(e, "LOCAL_RANK=%d", j->o->virtual_local_rank ? 0 : r);
    if (j->o->virtual_local_rank) set(e, "LOCKSTEP_LOCAL_RANK=%d", r);
    set(e, "GROUP_RANK=%d", j->group_rank);
    set(e, "ROLE_RANK=%d", j->first + r);
    set(e, "ROLE_NAME=%s", j->role);
    set(e, "WORLD_SIZE=%d", j->world);
    set(e, "LOCAL_WORLD_SIZE=%d", n);
    set(e, "GROUP_WORLD_SIZE=%d", j->nhere);
    set(e, "ROLE_WORLD_SIZE=%d", j->world);
    set(e, "MASTER_ADDR=%s", j->nnodes > 1 ? j->o->master_addr : "127.0.0.1");
    set(e, "MASTER_PORT=%d", j->master_port);
    set(e, "TORCHELASTIC_RESTART_COUNT=%d", j->gens->restarts);
    set(e, "TORCHELASTIC_MAX_RESTARTS=%d", j->o->max_restarts);
    set(e, "TORCHELASTIC_RUN_ID=%s", j->run_id);
    set(e, "TORCHELASTIC_USE_AGENT_STORE=False");
    set(e, "TORCHELASTIC_SIGNALS_TO_HANDLE=%s", j->o->signals ? j->o->signals : LS_LAUNCH_SIGNALS);
    set(e, "TORCHELASTIC_ERROR_FILE=%s", k->error_file);
    if (!env->getenv("TORCH_NCCL_ASYNC_ERROR_HANDLING")) set(e, "TORCH_NCCL_ASYNC_ERROR_HANDLING=1");
    if (!ls_team_told()) set(e, "OMP_NUM_THREADS=%d", ls_team_share(j->cpus, n));

    set(e, "LOCKSTEP_LAUNCHER=1");
    set(e, "LOCKSTEP_STORE=%s", j->store_name);
    set(e, "LOCKSTEP_SECRET_FD=%d", j->secret_fd);
    set(e, "LOCKSTEP_CPUS=%d", j->cpus);
    if (j->nnodes > 1) {
        set(e, "LOCKSTEP_ADDRESS=%s", j->address);
        set(e, "LOCKSTEP_LISTEN=%s", j->listen);
        if (j->agent) set(e, "LOCKSTEP_RENDEZVOUS=%s", j->node0);
    }
    if (*j->gens->run_dir) set(e, "LOCKSTEP_RUN_DIR=%s", j->gens->run_dir);
    if (*j->gens->checkpoint) set(e, "LOCKSTEP_CHECKPOINT=%s", j->gens->checkpoint);
    if (j->o->events) set(e, "LOCKSTEP_EVENTS=%s", j->o->events);
    if (j->o->lint) set(e, LS_LINT_VARIABLE "=%s", j->o->lint);
    if (j->o->log_dir) set(e, "LOCKSTEP_LOG_DIR=%s", j->o->log_dir);
    /* stderr is a pipe to us; a rank whose bytes reach a terminal unchanged may draw a progress bar */
    bool terminal = k->err.console && !k->err.prefixed && env->isatty(2);
    if (terminal || env->getenv("LOCKSTEP_TTY_COLUMNS"))
        set(e, "LOCKSTEP_TTY_COLUMNS=%d", terminal ? env->columns(2) : 0);
    set(e, "LOCKSTEP_TTY_STDOUT=%d", k->out.console && !k->out.prefixed && env->isatty(1)); /* likewise, for colours */
}

/* Of the GPUs that we were given, rank r sees one, as number 0. */
static ls_status show_one_device(int r, vars *e)
{
    const ls_env *env = ls_env_get();
    const char *hip = env->getenv("HIP_VISIBLE_DEVICES"), *name = hip && *hip ? "HIP_VISIBLE_DEVICES" : "CUDA_VISIBLE_DEVICES";
    const char *given = env->getenv(name), *at = given;
    char number[16];
    snprintf(number, sizeof number, "%d", r);
    for (int i = 0; at && i < r; i++)
        if ((at = strchr(at, ','))) at++;
    if (given && !at)
        return ls_fail(LS_USAGE, "--virtual-local-rank: %s is '%.60s', which has no device for local rank %d", name, given, r);
    if (!at) at = number;
    at += strspn(at, " ");
    const int n = (int)strcspn(at, ", ");
    set(e, "CUDA_VISIBLE_DEVICES=%.*s", n, at);
    if (name[0] == 'H') set(e, "HIP_VISIBLE_DEVICES=%.*s", n, at);
    return LS_OK;
}

/* --- streams -------------------------------------------------------------------------------- */

static ls_status open_log(const ls_job *j, int r, const char *name, int *fd)
{
    ls_text path = { 0 };
    ls_text_add(&path, "%s/attempt_%u/%d/%s", j->dir, j->gens->number - 1, r, name);
    ls_status st = ls_text_status(&path);
    if (st == LS_OK && (*fd = ls_env_get()->create(path.p)) < 0)
        st = ls_fail(LS_IO, "making the log file %s: %s", path.p, strerror(-*fd));
    ls_text_free(&path);
    return st;
}

static ls_status open_pipe(ls_stream *s)
{
    int ends[2], err = ls_env_get()->pipe(ends);
    if (err < 0) return ls_fail(LS_SYSTEM, "a pipe for the output of a rank: %s", strerror(-err));
    s->from = ends[0];
    s->to = ends[1];
    return LS_OK;
}

/* stdout is left alone unless somebody asked for it; stderr always comes through us. */
static ls_status open_streams(ls_job *j, int r)
{
    ls_job_rank *k = &j->rank[r];
    unsigned files = j->redirect[r] | j->tee[r], quiet = j->redirect[r] & ~(unsigned)j->tee[r];
    bool shown = ls_rank_set_has(&j->shown, r);

    k->out.prefix = k->err.prefix = k->prefix;
    k->out.prefixed = j->tee[r] & 1u;
    k->out.console = shown && !(quiet & 1u) ? &j->out : NULL;
    if (k->out.prefixed || !k->out.console) LS_TRY(open_pipe(&k->out));
    if (j->dir && files & 1u) LS_TRY(open_log(j, r, "stdout.log", &k->out.file));
    if (k->out.prefixed && shown && j->copy[0].words) k->out.copy = &j->copy[0];

    k->err.prefixed = j->tee[r] & 2u;
    k->err.console = shown && !(quiet & 2u) ? &j->err : NULL;
    k->err.tail = &k->tail;
    LS_TRY(open_pipe(&k->err));
    if (j->dir && files & 2u) LS_TRY(open_log(j, r, "stderr.log", &k->err.file));
    if (k->err.prefixed && shown && j->copy[1].words) k->err.copy = &j->copy[1];
    return LS_OK;
}

/* The file that a Python rank's @record writes when the rank fails: in its log folder, else in memory, under a name
 * that vanishes with us. The path is absolute, since a rank may change its folder. */
static ls_status name_error_file(ls_job *j, int r)
{
    const ls_env *env = ls_env_get();
    ls_job_rank *k = &j->rank[r];
    char here[LS_LAUNCH_PATH] = "";
    ls_text path = { 0 }, dir = { 0 };
    ls_status st = LS_OK;
    int err = 0;
    if (!j->dir) {
        k->error_fd = env->scratch("lockstep-error");
        if (k->error_fd < 0) return ls_fail(LS_NO_MEMORY, "a file for the error of rank %d: %s", r, strerror(-k->error_fd));
        ls_text_add(&path, "/proc/%d/fd/%d", env->pid(), k->error_fd);
    } else {
        ls_text_add(&dir, "%s/attempt_%u/%d", j->dir, j->gens->number - 1, r);
        if ((st = ls_text_status(&dir)) == LS_OK) st = ls_logs_mkdir(dir.p);
        if (*j->dir != '/') err = env->folder(here, sizeof here);
        if (st == LS_OK && err < 0) st = ls_fail(LS_IO, "--log-dir %s is in a folder without a name: %s", j->o->log_dir, strerror(-err));
        ls_text_add(&path, "%s%s%s/error.json", here, *j->dir != '/' ? "/" : "", ls_text_str(&dir));
    }
    if (st == LS_OK) st = ls_text_status(&path);
    ls_text_free(&dir);
    k->error_file = path.p; /* ours now */
    return st;
}

/* --- the command ---------------------------------------------------------------------------- */

/* Splits at blanks into words, which point into the returned copy. */
static char *split(const char *text, const char **word, int *n)
{
    char *copy = strdup(text), *save = NULL;
    if (!copy) return NULL;
    for (char *w = strtok_r(copy, " \t", &save); w && *n < 64; w = strtok_r(NULL, " \t", &save)) word[(*n)++] = w;
    return copy;
}

static ls_status explain(const ls_job *j, const char *program, int err)
{
    const char *dot = strrchr(program, '.'), *python = j->o->python;
    bool script = dot && strcmp(dot, ".py") == 0;
    if (python && strcmp(program, python) == 0 && (err == ENOENT || err == EACCES))
        return ls_fail(LS_USAGE, "cannot run '%s', which runs %s: %s: install Python 3, activate the environment that has it, or "
                                 "set PYTHON_EXEC to its path",
                       python, j->o->argv[0], strchr(python, '/') ? strerror(err) : "no such program in PATH");
    if (script && err == ENOENT) return ls_fail(LS_USAGE, "cannot run '%s': no such file", program);
    if (script && (err == EACCES || err == ENOEXEC))
        return ls_fail(LS_USAGE, "cannot run '%s' by itself (%s): it is run by Python without --no-python, or as python3 %s", program,
                       strerror(err), program);
    if (err == ENOENT)
        return ls_fail(LS_USAGE, "cannot run '%s': no such program%s", program,
                       strchr(program, '/') ? "" : " in PATH; for one in this folder say ./NAME");
    if (err == EACCES || err == ENOEXEC)
        return ls_fail(LS_USAGE, "cannot run '%s': %s; is it a program?", program, strerror(err));
    return ls_fail(LS_SYSTEM, "starting '%s': %s", program, strerror(err));
}

/* Where a control group limits the time of more CPUs than it gives, ranks that share cores may use all of them. */
static void choose_cores(const ls_job *j, int r, ls_child *c)
{
    uint64_t mask[LS_CPU_WORDS];
    ls_team_cores(r, j->o->nproc, j->cpus, &c->cpu_first, &c->cpu_count);
    if (j->cpus < j->o->nproc && ls_env_get()->cpu_mask(mask, LS_CPU_WORDS) > j->cpus) c->cpu_count = 0;
}

static ls_status start(ls_job *j, int r, const vars *e, const char *const *argv)
{
    const ls_env *env = ls_env_get();
    ls_job_rank *k = &j->rank[r];
    bool prefixed = j->o->prefix_cmd && j->o->prefix_rank == r;
    int keep[] = { j->secret_fd };
    ls_child c = { .argv = argv, .env_set = (const char *const *)e->v, .keep_fds = keep, .nkeep = 1,
                   .stdout_fd = k->out.to, .stderr_fd = k->err.to, .die_with_parent = true };
    /* a debugger reads the terminal, which only the foreground process group may */
    c.own_group = k->own_group = !(prefixed && env->isatty(0));
    if (prefixed) c.stdout_fd = c.stderr_fd = -1;
    if (!j->o->no_bind && j->o->nproc > 1 && !prefixed) choose_cores(j, r, &c);
    c.same_addresses = !j->o->aslr && j->cpus < j->o->nproc && j->nnodes == 1;
    int pid = env->spawn(&c, &k->pidfd);
    if (pid == -EINVAL && c.cpu_count > 0) { /* fewer CPUs than we thought: unbound is only slower */
        c.cpu_count = 0;
        pid = env->spawn(&c, &k->pidfd);
    }
    if (pid < 0) return explain(j, argv[0], -pid);
    k->pid = pid;
    k->alive = k->started = true;
    j->nalive++;
    return LS_OK;
}

ls_status ls_job_spawn(ls_job *j, int r)
{
    const ls_env *env = ls_env_get();
    ls_job_rank *k = &j->rank[r];
    const char **argv = calloc(MAX_WORDS + 1, sizeof *argv);
    char *words = NULL;
    vars e = { 0 };
    int n = 0;
    ls_status st = argv ? LS_OK : ls_fail(LS_NO_MEMORY, "the command of rank %d", r);
    if (st == LS_OK) st = name_error_file(j, r);
    if (st == LS_OK) st = open_streams(j, r);
    if (st < 0) goto done;

    if (j->o->prefix_cmd && j->o->prefix_rank == r && !(words = split(j->o->prefix_cmd, argv, &n))) e.failed = true;
    if (j->o->python) {
        argv[n++] = j->o->python;
        argv[n++] = "-u"; /* as torchrun: lines appear when they are printed */
    }
    for (int i = 0; j->o->argv[i]; i++) {
        if (n == MAX_WORDS) {
            st = ls_fail(LS_USAGE, "the command has more than %d words", MAX_WORDS);
            goto done;
        }
        argv[n++] = j->o->argv[i];
    }
    describe(j, r, &e);
    if (j->o->virtual_local_rank && (st = show_one_device(r, &e)) < 0) goto done;
    st = e.failed ? ls_fail(LS_NO_MEMORY, "the environment of rank %d", r) : start(j, r, &e, argv);
done:
    /* the child has its own copies: ours would keep the pipes from ending */
    if (k->out.to >= 0) env->close_fd(k->out.to);
    if (k->err.to >= 0) env->close_fd(k->err.to);
    k->out.to = k->err.to = -1;
    for (int i = 0; i < e.n; i++) free(e.v[i]);
    free(words);
    free(argv);
    return st;
}
