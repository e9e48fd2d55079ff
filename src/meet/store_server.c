/* store_server.c -- a store with a thread of its own, for jobs without a
 * launcher and for ranks that are threads. */
#include <stdatomic.h>
#include <stdlib.h>

#include "meet/agent.h"
#include "meet/store.h"

struct ls_store_server {
    ls_store *store;
    ls_agent *agent;       /* owned: this host's link to node 0; NULL: we are node 0 */
    const ls_env *env;
    _Atomic uint32_t stop;
    int bell[2];           /* a pipe: a byte in it ends the thread's sleep */
    void *thread;
};

static void serve(void *arg)
{
    struct ls_store_server *s = arg;
    uint64_t give_up = UINT64_MAX;
    for (;;) {
        uint64_t now = s->env->mono_ns();
        if (ls_store_step(s->store, now) < 0) return;
        if (atomic_load_explicit(&s->stop, memory_order_acquire)) {
            if (give_up == UINT64_MAX) give_up = now + 2000000000u;
            if (ls_store_connected(s->store) == 0 || now > give_up) return;
        }
        uint64_t until = now + (give_up == UINT64_MAX ? 50000000u : 1000000u);
        int n;
        ls_pollfd *fds = ls_store_fds(s->store, 2, &n);
        if (s->agent) {
            uint64_t again = ls_agent_step(s->agent, now);
            if (again < until) until = again;
            if (fds && ls_agent_fd(s->agent) >= 0)
                fds[n++] = (ls_pollfd){ .fd = ls_agent_fd(s->agent), .events = LS_POLL_IN };
        }
        if (fds && give_up == UINT64_MAX) fds[n++] = (ls_pollfd){ .fd = s->bell[0], .events = LS_POLL_IN };
        s->env->wait(NULL, 0, fds, n, fds ? until : now + 1000000u);
    }
}

static void destroy(struct ls_store_server *s)
{
    ls_agent_leave(s->agent, s->env->mono_ns() + 1000000000u);
    ls_store_destroy(s->store);
    s->env->close_fd(s->bell[0]);
    s->env->close_fd(s->bell[1]);
    free(s);
}

ls_status ls_store_serve(const ls_store_config *c, ls_store_client *node0, const char *node0_text,
                         struct ls_store_server **out)
{
    *out = NULL;
    struct ls_store_server *s = calloc(1, sizeof *s);
    if (!s) {
        ls_store_disconnect(node0);
        return ls_fail(LS_NO_MEMORY, "rendezvous store");
    }
    s->env = ls_env_get();
    if (s->env->pipe(s->bell) < 0) {
        free(s);
        ls_store_disconnect(node0);
        return ls_fail(LS_SYSTEM, "no pipe for the rendezvous store");
    }
    ls_status st = ls_store_create(c, &s->store);
    if (st < 0) ls_store_disconnect(node0);
    else if (node0) st = ls_agent_create(node0, c->page, s->store, node0_text, c->silent_ns, &s->agent);
    if (st == LS_OK && s->env->thread_start(serve, s, &s->thread) < 0)
        st = ls_fail(LS_SYSTEM, "no thread for the rendezvous store");
    if (st < 0) {
        destroy(s);
        return st;
    }
    *out = s;
    return LS_OK;
}

void ls_store_serve_stop(struct ls_store_server *s)
{
    if (!s) return;
    atomic_store_explicit(&s->stop, 1, memory_order_release);
    (void)s->env->write(s->bell[1], "", 1);
    s->env->thread_join(s->thread);
    destroy(s);
}
