/* process.c -- one program from its start to its end, with limits. */
#include "lab/process.h"

#include <errno.h>
#include <signal.h> /* names of signals only */
#include <string.h>

#define LOOK_NS 20000000u /* between two looks at signals, and at a program that has closed its output */
#define END_NS 2000000000u /* for a process that was killed to be gone */

typedef struct child {
    int pid, pidfd, fd[2]; /* fd: its stdout and stderr; -1: at the end */
    ls_text *text[2];
} child;

/* What has come of one stream; false: the limit of output is reached. */
static bool take(child *c, int which)
{
    const ls_env *env = ls_env_get();
    char more[4096];
    for (;;) {
        if (c->fd[which] < 0) return true;
        const ssize_t k = env->read(c->fd[which], more, sizeof more);
        if (k == -EAGAIN) return true;
        if (k <= 0) {
            env->close_fd(c->fd[which]);
            c->fd[which] = -1;
            return true;
        }
        if (c->text[0]->n + c->text[1]->n + (size_t)k > LS_LAB_MAX_OUTPUT) return false;
        ls_text_addn(c->text[which], more, (size_t)k);
    }
}

static bool is_over(child *c, ls_lab_ended *ended)
{
    const ls_child_state state = ls_env_get()->child_poll(c->pid, &ended->code);
    if (state != LS_CHILD_EXITED && state != LS_CHILD_SIGNALED) return false;
    ended->how = state == LS_CHILD_EXITED ? LS_LAB_ENDED_EXIT : LS_LAB_ENDED_SIGNAL;
    return true;
}

/* Its whole group, and then this one is reaped. */
static void kill_group(child *c, bool over)
{
    const ls_env *env = ls_env_get();
    const uint64_t until = env->mono_ns() + END_NS;
    ls_lab_ended unused;
    (void)env->kill(-c->pid, SIGKILL);
    while (!over && !is_over(c, &unused) && env->mono_ns() < until) {
        ls_pollfd p = { .fd = c->pidfd, .events = LS_POLL_IN };
        env->wait(NULL, 0, c->pidfd >= 0 ? &p : NULL, c->pidfd >= 0, env->mono_ns() + LOOK_NS);
    }
}

static void wait_for_more(const child *c, uint64_t deadline_ns)
{
    const ls_env *env = ls_env_get();
    const uint64_t soon = env->mono_ns() + LOOK_NS;
    ls_pollfd p[3];
    int n = 0;
    for (int i = 0; i < 2; i++)
        if (c->fd[i] >= 0) p[n++] = (ls_pollfd){ .fd = c->fd[i], .events = LS_POLL_IN };
    if (c->pidfd >= 0) p[n++] = (ls_pollfd){ .fd = c->pidfd, .events = LS_POLL_IN };
    env->wait(NULL, 0, p, n, deadline_ns < soon ? deadline_ns : soon);
}

static ls_status follow(child *c, uint64_t deadline_ns, const ls_stop *stop, ls_lab_ended *ended)
{
    bool over = false, quiet = true;
    ls_status st = LS_OK;
    while (!over && quiet) {
        if (ls_stop_seen(stop)) {
            st = ls_fail(LS_INTERRUPTED, "stopped by signal %d", ls_stop_seen(stop));
            break;
        }
        if (ls_env_get()->mono_ns() >= deadline_ns) {
            ended->how = LS_LAB_ENDED_LATE;
            break;
        }
        wait_for_more(c, deadline_ns);
        over = is_over(c, ended); /* first: what it wrote before its end is there then */
        quiet = take(c, 0) && take(c, 1);
        if (!quiet) ended->how = LS_LAB_ENDED_LOUD;
    }
    kill_group(c, over);
    return st;
}

ls_status ls_lab_process(const ls_child *what, uint64_t timeout_ns, const ls_stop *stop, ls_text *out, ls_text *err,
                         ls_lab_ended *ended)
{
    const ls_env *env = ls_env_get();
    int o[2], e[2];
    child c = { .pidfd = -1, .text = { out, err } };
    *ended = (ls_lab_ended){ 0 };
    int r = env->pipe(o);
    if (r < 0) return ls_fail(LS_SYSTEM, "a pipe: %s", strerror(-r));
    if ((r = env->pipe(e)) < 0) {
        env->close_fd(o[0]);
        env->close_fd(o[1]);
        return ls_fail(LS_SYSTEM, "a pipe: %s", strerror(-r));
    }
    ls_child how = *what;
    how.stdout_fd = o[1];
    how.stderr_fd = e[1];
    how.die_with_parent = how.own_group = true;
    c.fd[0] = o[0];
    c.fd[1] = e[0];
    c.pid = env->spawn(&how, &c.pidfd);
    env->close_fd(o[1]);
    env->close_fd(e[1]);
    ls_status st = c.pid < 0 ? ls_fail(LS_SYSTEM, "%s cannot be started: %s", what->argv[0], strerror(-c.pid))
                             : follow(&c, env->mono_ns() + timeout_ns, stop, ended);
    for (int i = 0; i < 2; i++)
        if (c.fd[i] >= 0) env->close_fd(c.fd[i]);
    if (c.pidfd >= 0) env->close_fd(c.pidfd);
    if (st == LS_OK) st = ls_text_status(out);
    return st < 0 ? st : ls_text_status(err);
}
