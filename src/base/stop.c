/* stop.c -- one thread that sleeps on signals. */
#include "base/stop.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/env.h"

#define NAP_NS 3600000000000ull

struct ls_stop {
    const ls_env *env;
    int fd, over[2]; /* the pipe: closed at one end, it ends the thread */
    void *thread;
    atomic_int seen;
};

static void watch(void *arg)
{
    ls_stop *s = arg;
    for (;;) {
        ls_pollfd fds[] = { { .fd = s->fd, .events = LS_POLL_IN }, { .fd = s->over[0], .events = LS_POLL_IN } };
        s->env->wait(NULL, 0, fds, 2, s->env->mono_ns() + NAP_NS);
        if (fds[1].revents) return;
        /* relaxed: nothing but the number itself is told */
        for (int sig; (sig = s->env->signal_read(s->fd)) > 0;)
            atomic_store_explicit(&s->seen, sig, memory_order_relaxed);
    }
}

static LS_COLD ls_status failed(int error)
{
    return ls_fail(LS_SYSTEM, "watching for signals to stop: %s", strerror(-error));
}

ls_status ls_stop_watch(const int *sigs, int n, ls_stop **out)
{
    const ls_env *env = ls_env_get();
    int error;
    *out = NULL;
    ls_stop *s = calloc(1, sizeof *s);
    if (!s) return ls_fail(LS_NO_MEMORY, "a watch for signals");
    s->env = env;
    s->over[0] = s->over[1] = -1;
    if ((error = s->fd = env->signal_fd(sigs, n)) >= 0 && (error = env->pipe(s->over)) >= 0 &&
        (error = env->thread_start(watch, s, &s->thread)) >= 0) {
        *out = s;
        return LS_OK;
    }
    s->thread = NULL;
    ls_stop_end(s);
    return failed(error);
}

int ls_stop_seen(const ls_stop *s) { return s ? atomic_load_explicit(&s->seen, memory_order_relaxed) : 0; }

void ls_stop_end(ls_stop *s)
{
    if (!s) return;
    if (s->over[1] >= 0) s->env->close_fd(s->over[1]);
    if (s->thread) s->env->thread_join(s->thread);
    if (s->over[0] >= 0) s->env->close_fd(s->over[0]);
    if (s->fd >= 0) s->env->close_fd(s->fd);
    free(s);
}
