/* join.c -- a world with its group of all ranks: from the environment. */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/lint.h"
#include "group/backend.h"
#include "group/engine.h"
#include "net/open.h"

ls_status ls_world_complete(ls_world *w, ls_world **out)
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
    return ls_world_complete(w, out);
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

ls_status ls_world_run(const ls_world_opts *opts, ls_rank_fn fn, void *arg)
{
    ls_world *w = NULL;
    LS_TRY(ls_world_join(opts, &w));
    const ls_status st = fn(w, arg);
    if (st < 0) (void)ls_world_abort(w, st);
    ls_world_leave(w);
    return st;
}
