/* env_real_process.c -- the real env's threads, processes and signals. */
#include "base/env_real.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define ASK_PERSONALITY 0xffffffffUL /* changes nothing, says what it is */

extern char **environ;

/* --- threads ----------------------------------------------------------------------------- */

typedef struct thread {
    pthread_t id;
    void (*fn)(void *);
    void *arg;
} thread;

static void *thread_main(void *p)
{
    thread *t = p;
    t->fn(t->arg);
    return NULL;
}

int ls_real_thread_start(void (*fn)(void *), void *arg, void **handle)
{
    *handle = NULL;
    thread *t = malloc(sizeof *t);
    if (!t) return -ENOMEM;
    t->fn = fn;
    t->arg = arg;
    int r = pthread_create(&t->id, NULL, thread_main, t);
    if (r != 0) {
        free(t);
        return -r;
    }
    *handle = t;
    return 0;
}

void ls_real_thread_join(void *handle)
{
    thread *t = handle;
    if (!t) return;
    pthread_join(t->id, NULL);
    free(t);
}

/* What the ending thread calls is the key's value: a function pointer, which C has no cast to void * for. */
static pthread_key_t end_key;
static pthread_once_t end_once = PTHREAD_ONCE_INIT;

static void call_end(void *p)
{
    void (*fn)(void);
    memcpy(&fn, &p, sizeof fn);
    fn();
}

static void make_end_key(void) { (void)pthread_key_create(&end_key, call_end); }

void ls_real_at_thread_end(void (*fn)(void))
{
    void *p;
    memcpy(&p, &fn, sizeof p);
    if (pthread_once(&end_once, make_end_key) == 0) (void)pthread_setspecific(end_key, p);
}

/* --- starting a process -------------------------------------------------------------------- */

/* All that the child needs, prepared before the fork: after it, in a program
 * with threads, only async-signal-safe calls are allowed. */
typedef struct launch {
    const ls_child *c;
    char *path;           /* owned: what to execute */
    char **env;           /* owned array of borrowed strings */
    cpu_set_t cpus[8];    /* 8,192 CPUs */
    pid_t parent;
    int report;           /* the child writes errno here when it cannot start */
} launch;

static bool executable(const char *path)
{
    struct stat s;
    return stat(path, &s) == 0 && S_ISREG(s.st_mode) && access(path, X_OK) == 0;
}

static int find_program(const char *name, char **out)
{
    if (strchr(name, '/')) return (*out = strdup(name)) ? 0 : -ENOMEM;
    const char *dirs = getenv("PATH");
    if (!dirs) dirs = "/usr/local/bin:/usr/bin:/bin";
    size_t most = strlen(dirs) + strlen(name) + 3;
    char *path = malloc(most);
    if (!path) return -ENOMEM;
    for (;;) {
        size_t n = strcspn(dirs, ":");
        if (n == 0) snprintf(path, most, "./%s", name); /* an empty entry is the current folder */
        else snprintf(path, most, "%.*s/%s", (int)n, dirs, name);
        if (executable(path)) {
            *out = path;
            return 0;
        }
        if (!dirs[n]) break;
        dirs += n + 1;
    }
    free(path);
    return -ENOENT;
}

static bool same_name(const char *a, const char *b)
{
    size_t n = strcspn(a, "=");
    return strncmp(a, b, n) == 0 && b[n] == '=';
}

/* Our environment, with c->env_set in front and what it replaces left out. */
static char **child_environment(const ls_child *c)
{
    size_t nset = 0, nours = 0, n = 0;
    while (c->env_set && c->env_set[nset]) nset++;
    while (environ && environ[nours]) nours++;
    char **env = calloc(nset + nours + 1, sizeof *env);
    if (!env) return NULL;
    for (size_t i = 0; i < nset; i++) env[n++] = (char *)(uintptr_t)c->env_set[i];
    for (size_t i = 0; i < nours; i++) {
        bool replaced = false;
        for (size_t k = 0; k < nset && !replaced; k++) replaced = same_name(c->env_set[k], environ[i]);
        if (!replaced) env[n++] = environ[i];
    }
    return env;
}

/* The cpu_first'th to (cpu_first + cpu_count)'th of the CPUs we may use. */
static int choose_cpus(const ls_child *c, cpu_set_t *out, size_t nbytes)
{
    cpu_set_t usable[8];
    CPU_ZERO_S(nbytes, out);
    if (sched_getaffinity(0, sizeof usable, usable) < 0) return -errno;
    int seen = 0, chosen = 0;
    for (size_t i = 0; i < nbytes * 8; i++) {
        if (!CPU_ISSET_S(i, sizeof usable, usable)) continue;
        if (seen >= c->cpu_first && chosen < c->cpu_count) {
            CPU_SET_S(i, nbytes, out);
            chosen++;
        }
        seen++;
    }
    return chosen == c->cpu_count ? 0 : -EINVAL;
}

/* A copy of fd outside 0 to 2, so that putting one stream in place cannot close
 * the source of another. */
static int above_streams(int fd) { return fcntl(fd, F_DUPFD_CLOEXEC, 3); }

static int place(int fd, int at)
{
    if (fd < 0) return 0;
    return dup2(fd, at) < 0 ? -errno : 0;
}

static int limit(int which, rlim_t most)
{
    struct rlimit r;
    if (getrlimit((__rlimit_resource_t)which, &r) < 0) return -errno;
    r.rlim_cur = r.rlim_max = most < r.rlim_max ? most : r.rlim_max; /* never above ours */
    return setrlimit((__rlimit_resource_t)which, &r) < 0 ? -errno : 0;
}

static int set_limits(const ls_child_limits *l)
{
    const struct { int which; uint64_t most; } row[] = {
        { RLIMIT_AS, l->memory }, { RLIMIT_FSIZE, l->file }, { RLIMIT_CPU, l->cpu_s }, { RLIMIT_NPROC, l->processes },
    };
    int r = limit(RLIMIT_CORE, 0);
    for (size_t i = 0; r == 0 && i < sizeof row / sizeof *row; i++)
        if (row[i].most) r = limit(row[i].which, row[i].most);
    return r;
}

/* In a child that has started with all signals blocked: handlers of the parent must not run here. */
static void reset_signals(void)
{
    for (int sig = 1; sig <= SIGRTMAX; sig++) {
        struct sigaction a;
        if (sigaction(sig, NULL, &a) == 0 && a.sa_handler != SIG_IGN && a.sa_handler != SIG_DFL) {
            a.sa_handler = SIG_DFL;
            a.sa_flags = 0;
            sigaction(sig, &a, NULL);
        }
    }
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

static int die_with(pid_t parent)
{
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0) return -errno;
    if (getppid() != parent) _exit(1); /* it ended before we asked */
    return 0;
}

/* Runs in the child. Returns only when something fails: -errno. */
static int become(const launch *l)
{
    const ls_child *c = l->c;
    int r = 0, out = -1, err = -1;

    if (c->die_with_parent && (r = die_with(l->parent)) < 0) return r;
    if (c->own_group && setpgid(0, 0) < 0) return -errno;
    if (c->cpu_count > 0 && sched_setaffinity(0, sizeof l->cpus, l->cpus) < 0) return -errno;

    if (c->stdout_fd >= 0 && (out = above_streams(c->stdout_fd)) < 0) return -errno;
    if (c->stderr_fd >= 0 && (err = above_streams(c->stderr_fd)) < 0) return -errno;
    if ((r = place(out, 1)) < 0 || (r = place(err, 2)) < 0) return r;
    for (int i = 0; i < c->nkeep; i++)
        if (fcntl(c->keep_fds[i], F_SETFD, 0) < 0) return -errno;

    reset_signals();
    const int had = c->same_addresses ? personality(ASK_PERSONALITY) : -1;
    if (had != -1) (void)personality((unsigned long)had | ADDR_NO_RANDOMIZE);
    if (c->limits && (r = set_limits(c->limits)) < 0) return r;
    execve(l->path, (char *const *)(uintptr_t)c->argv, l->env);
    return -errno;
}

/* 0 once the child runs its program: exec closes the pipe. Its -errno otherwise. */
static int started(int report)
{
    int failure = 0;
    ssize_t k;
    do k = read(report, &failure, sizeof failure);
    while (k < 0 && errno == EINTR);
    return k == (ssize_t)sizeof failure ? failure : 0;
}

static int launch_child(launch *l)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0) return -errno;
    l->report = above_streams(ends[1]);
    close(ends[1]);
    if (l->report < 0) {
        close(ends[0]);
        return -EMFILE;
    }

    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    l->parent = getpid();
    pid_t pid = fork();
    int r = ls_real_result((int)pid);
    if (pid == 0) {
        int failure = become(l);
        ssize_t told = write(l->report, &failure, sizeof failure);
        _exit(told < 0 ? 126 : 127);
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);

    close(l->report);
    if (pid > 0) {
        int failure = started(ends[0]);
        if (failure < 0) {
            while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) continue;
            r = failure;
        }
    }
    close(ends[0]);
    return r;
}

int ls_real_fork(void (*fn)(void *), void *arg)
{
    sigset_t all, old;
    const pid_t parent = getpid();
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    const pid_t pid = fork();
    const int r = ls_real_result((int)pid);
    if (pid == 0) {
        if (die_with(parent) < 0) _exit(1);
        reset_signals();
        fn(arg);
        _exit(0);
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return r;
}

int ls_real_spawn(const ls_child *c, int *pidfd)
{
    launch l = { .c = c, .report = -1 };
    if (pidfd) *pidfd = -1;
    if (!c->argv || !c->argv[0]) return -EINVAL;
    int r = find_program(c->argv[0], &l.path);
    if (r == 0 && !(l.env = child_environment(c))) r = -ENOMEM;
    if (r == 0 && c->cpu_count > 0) r = choose_cpus(c, l.cpus, sizeof l.cpus);
    if (r == 0) r = launch_child(&l);
    /* Not reaped yet, so the number cannot mean another process. */
    if (r > 0 && pidfd) *pidfd = (int)syscall(SYS_pidfd_open, r, 0);
    free(l.path);
    free(l.env);
    return r;
}

/* --- watching and signalling ----------------------------------------------------------------- */

/* Looks first (WNOWAIT), so that a stopped child stays stopped for the next
 * caller, and reaps only what has ended. */
ls_child_state ls_real_child_poll(int pid, int *code)
{
    siginfo_t s = { 0 };
    *code = 0;
    if (waitid(P_PID, (id_t)pid, &s, WEXITED | WSTOPPED | WNOHANG | WNOWAIT) < 0) {
        *code = -1; /* not a child of ours, or reaped before */
        return LS_CHILD_EXITED;
    }
    if (s.si_pid == 0) return LS_CHILD_RUNNING;
    *code = s.si_status;
    if (s.si_code == CLD_STOPPED || s.si_code == CLD_TRAPPED) return LS_CHILD_STOPPED;
    waitid(P_PID, (id_t)pid, &s, WEXITED | WNOHANG);
    return s.si_code == CLD_EXITED ? LS_CHILD_EXITED : LS_CHILD_SIGNALED;
}

#ifndef PR_SET_PTRACER
#define PR_SET_PTRACER 0x59616d61 /* of Yama */
#endif

int ls_real_read_process(int pid, uint64_t address, void *to, size_t n)
{
    char *p = to;
    while (n > 0) {
        struct iovec here = { p, n }, there = { (void *)(uintptr_t)address, n };
        ssize_t k = process_vm_readv(pid, &here, 1, &there, 1, 0);
        if (k < 0 && errno == EINTR) continue;
        if (k < 0) return -errno;
        if (k == 0) return -EFAULT;
        p += k;
        address += (uint64_t)k;
        n -= (size_t)k;
    }
    return 0;
}

int ls_real_let_read(int pid) { return ls_real_result(prctl(PR_SET_PTRACER, (unsigned long)pid, 0, 0, 0)); }

int ls_real_kill(int pid, int sig)
{
    if (pid == 0 || pid == -1) return -EINVAL; /* "everyone" is never what a caller means */
    return ls_real_result(kill(pid, sig));
}

int ls_real_signal_fd(const int *sigs, int n)
{
    sigset_t set;
    sigemptyset(&set);
    for (int i = 0; i < n; i++)
        if (sigaddset(&set, sigs[i]) < 0) return -errno;
    int r = pthread_sigmask(SIG_BLOCK, &set, NULL);
    return r != 0 ? -r : ls_real_result(signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC));
}

void ls_real_signal_release(const int *sigs, int n)
{
    sigset_t set;
    sigemptyset(&set);
    for (int i = 0; i < n; i++) (void)sigaddset(&set, sigs[i]);
    (void)pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}

int ls_real_signal_read(int fd)
{
    struct signalfd_siginfo s;
    ssize_t k;
    do k = read(fd, &s, sizeof s);
    while (k < 0 && errno == EINTR);
    return k == (ssize_t)sizeof s ? (int)s.ssi_signo : 0;
}
