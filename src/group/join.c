/* join.c -- a world with its group of all ranks: from the environment, or as threads. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/lint.h"
#include "group/backend.h"
#include "group/engine.h"
#include "net/open.h"

static ls_status complete(ls_world *w, ls_world **out)
{
    ls_status st = ls_group_create_world(w);
    if (st == LS_OK) st = ls_engine_start(w);
    if (st == LS_OK) {
        ls_log(LS_LOG_INFO, "joined: world of %d, transport %s, arena %zu MiB, %s", w->size, w->tops->name,
               ls_arena_size(w->arena) >> 20, w->waiter.may_spin ? "a core per rank" : "more ranks than cores");
        *out = w;
        return LS_OK;
    }
    st = ls_world_join_failed(w, st);
    ls_world_leave(w);
    return st;
}

ls_status ls_world_join(const ls_world_opts *opts, ls_world **out)
{
    ls_world *w;
    *out = NULL;
    LS_TRY(ls_world_open(opts, &w));
    w->lint = ls_lint_on();
    ls_lint_notef("join", ", \"size\": %d", w->size);
    return complete(w, out);
}

/* Nobody reads our arena any more, once all are here. One that was through first may have ended already, and its
 * launcher have told us to; that is no news for who holds a sentence of his own. */
static void part(ls_group *g)
{
    char said[LS_ERROR_BYTES];
    memcpy(said, ls_last_error(), sizeof said);
    (void)ls_barrier(g);
    memcpy(ls_context_get()->error, said, sizeof said);
}

void ls_world_leave(ls_world *w)
{
    if (!w) return;
    if (!w->failed && w->group) part(w->group);
    if (w->engine) {
        if (w->engine->thread) ls_engine_stop(w);
        for (int i = 0; i < LS_MAX_GROUPS; i++)
            ls_group_free(atomic_load_explicit(&w->engine->group[i], memory_order_relaxed));
    }
    if (w->engine) ls_backend_close(w->engine);
    ls_engine_destroy(w);
    ls_world_close(w);
}

/* --- ranks as threads --------------------------------------------------------------- */

typedef struct rank_thread {
    ls_thread_host *host;
    const ls_world_opts *opts;
    ls_rank_fn fn;
    void *arg;
    int rank;
    void *thread;
    const ls_env *env;
    int log_level;
    ls_status status;
    char error[LS_ERROR_BYTES];
} rank_thread;

static void run_rank(void *arg)
{
    rank_thread *t = arg;
    ls_context c = { .env = t->env, .rank = t->rank, .log_level = t->log_level };
    ls_context_swap(&c);
    ls_world *opened = NULL, *w = NULL;
    ls_status st = ls_world_open_thread(t->host, t->rank, t->opts, &opened);
    if (st == LS_OK) st = complete(opened, &w);
    if (st == LS_OK) {
        st = t->fn(w, t->arg);
        if (st < 0) (void)ls_world_abort(w, st);
    } else {
        ls_page_abort(t->host->page, 1 + (uint32_t)t->rank, st, ls_last_error());
    }
    t->status = st;
    memcpy(t->error, ls_last_error(), sizeof t->error);
    ls_world_leave(w);
    ls_context_swap(NULL);
}

static void random_name(char *out, size_t n)
{
    uint64_t r[2];
    ls_env_get()->random(r, sizeof r);
    snprintf(out, n, "lockstep-%016llx%016llx", (unsigned long long)r[0], (unsigned long long)r[1]);
}

/* The one to report: the job's cause if somebody recorded it, else the first failure. */
static ls_status verdict(const rank_thread *t, int size, const ls_world_page *page)
{
    char text[LS_ERROR_BYTES];
    ls_status s;
    int by;
    if (ls_page_cause(page, &by, &s, text, sizeof text)) return ls_fail(s, "%s", text);
    for (int r = 0; r < size; r++)
        if (t[r].status < 0) return ls_fail(t[r].status, "rank %d: %s", r, t[r].error);
    return LS_OK;
}

ls_status ls_world_threads(int size, const ls_world_opts *opts, ls_rank_fn fn, void *arg)
{
    const ls_env *env = ls_env_get();
    if (size < 1 || size > LS_HOST_MOST_RANKS)
        return ls_fail(LS_INVALID, "%d thread ranks: expected 1 to %d, since each looks at the memory of all others", size,
                       LS_HOST_MOST_RANKS);
    if (opts && (opts->size || opts->bind))
        return ls_fail(LS_INVALID, "size, rank and bind of ls_world_opts are for ranks that are processes: ls_world_threads "
                                   "numbers its threads by itself");
    ls_status st = LS_OK;
    struct ls_store_server *server = NULL;
    rank_thread *t = calloc((size_t)size, sizeof *t);
    ls_thread_host *host = calloc(1, sizeof *host);
    if (host) host->arena = calloc((size_t)size, sizeof(ls_arena *));
    size_t arena = opts && opts->arena_bytes ? opts->arena_bytes : LS_WORLD_ARENA_BYTES;
    int started = 0, fd = -1;
    char name[64];
    if (!t || !host || !host->arena) {
        st = ls_fail(LS_NO_MEMORY, "%d thread ranks", size);
        goto done;
    }
    host->size = size;
    if ((st = ls_page_create(size, LS_STORE_GENERATION, &host->page, &fd)) < 0) goto done;
    for (int r = 0; r < size; r++) {
        const size_t nbytes = opts && opts->arena_of ? opts->arena_of[r] : arena;
        if ((st = ls_arena_create(nbytes, true, NULL, &host->arena[r])) < 0) goto done;
    }

    random_name(name, sizeof name);
    host->store_name = name;
    env->random(host->secret, sizeof host->secret);
    ls_store_config c = { .unix_name = name, .nranks = size, .page_fd = -1, .page = host->page };
    memcpy(c.secret, host->secret, sizeof c.secret);
    if (size > 1 && (st = ls_store_serve(&c, NULL, NULL, &server)) < 0) goto done;

    for (; started < size; started++) {
        t[started] = (rank_thread){ .host = host, .opts = opts, .fn = fn, .arg = arg, .rank = started, .env = env,
                                    .log_level = ls_context_get()->log_level };
        if (env->thread_start(run_rank, &t[started], &t[started].thread) < 0) {
            st = ls_fail(LS_SYSTEM, "thread for rank %d of %d could not be started", started, size);
            ls_page_abort(host->page, LS_ABORT_BY_LAUNCHER, st, ls_last_error());
            break;
        }
    }
    for (int r = 0; r < started; r++) env->thread_join(t[r].thread);
    if (st == LS_OK) st = verdict(t, size, host->page);
done:
    ls_store_serve_stop(server);
    if (host) {
        for (int r = 0; host->arena && r < size; r++) ls_arena_destroy(host->arena[r]);
        free(host->arena);
        if (host->page) env->unmap(host->page, ls_page_bytes(size));
    }
    if (fd >= 0) env->close_fd(fd);
    free(host);
    free(t);
    return st;
}

ls_status ls_world_run(const ls_world_opts *opts, ls_rank_fn fn, void *arg)
{
    ls_world *w = NULL;
    LS_TRY(ls_world_join(opts, &w));
    const ls_status st = fn(w, arg);
    if (st < 0) (void)ls_world_abort(w, st);
    ls_world_leave(w);
    return st;
}
