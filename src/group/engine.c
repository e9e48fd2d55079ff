/* engine.c -- who moves works along: the calling thread at its progress points, or
 * a thread that does nothing else. Either owns the transport, never both. */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "group/engine.h"
#include "group/form.h"
#include "group/message.h"
#include "group/record.h"

static ls_status turn_collectives(ls_group *g)
{
    uint32_t head = atomic_load_explicit(&g->head, memory_order_relaxed);
    bool moved = false;
    /* acquire: pairs with ls_coll_start; the work's fields are visible */
    while (head != atomic_load_explicit(&g->tail, memory_order_acquire)) {
        ls_work *k = ls_queued(g, head);
        const ls_form *form = k->form;
        int phase = k->phase;
        size_t pos = k->pos;
        ls_status st = ls_form_turn(k);
        if (st == LS_AGAIN) return moved || k->form != form || k->phase != phase || k->pos != pos ? LS_OK : LS_AGAIN;
        atomic_store_explicit(&g->head, ++head, memory_order_relaxed);
        ls_work_complete(k, st);
        if (LS_UNLIKELY(st < 0)) return LS_OK;
        moved = true;
    }
    return moved ? LS_OK : LS_AGAIN;
}

ls_status ls_engine_turn_group(ls_group *g)
{
    if (LS_UNLIKELY(atomic_load_explicit(&g->frozen, memory_order_relaxed))) return LS_AGAIN;
    ls_status st = turn_collectives(g);
    ls_messages *s = atomic_load_explicit(&g->p2p, memory_order_acquire);
    if (LS_LIKELY(!s) || atomic_load_explicit(&g->frozen, memory_order_relaxed)) return st;
    return ls_messages_turn(g, s) == LS_OK ? LS_OK : st;
}

ls_status ls_engine_turn(ls_engine *e)
{
    bool moved = false;
    for (int i = 0; i < LS_MAX_GROUPS; i++) {
        ls_group *g = atomic_load_explicit(&e->group[i], memory_order_acquire);
        if (g && ls_engine_turn_group(g) == LS_OK) moved = true;
    }
    if (e->w->tops->progress) (void)e->w->tops->progress(e->w->tp); /* a failure shows at the next send or view */
    return moved ? LS_OK : LS_AGAIN;
}

/* Whether no work of any group waits to be moved. */
static bool idle(const ls_engine *e)
{
    for (int i = 0; i < LS_MAX_GROUPS; i++) {
        ls_group *g = atomic_load_explicit(&e->group[i], memory_order_acquire);
        if (!g) continue;
        uint32_t head = atomic_load_explicit(&g->head, memory_order_relaxed);
        if (head != atomic_load_explicit(&g->tail, memory_order_acquire)) return false;
        ls_messages *s = atomic_load_explicit(&g->p2p, memory_order_acquire);
        if (s && !ls_messages_idle(s)) return false;
    }
    return true;
}

ls_status ls_progress(ls_world *w, uint64_t budget_ns)
{
    ls_engine *e = w->engine;
    if (ls_engine_threaded(e)) return LS_OK;
    if (idle(e)) return LS_OK;
    const ls_env *env = ls_env_get();
    uint64_t end = env->mono_ns() + budget_ns;
    while (ls_engine_turn(e) == LS_OK && env->mono_ns() < end) {}
    return LS_OK;
}

/* --- the progress thread ------------------------------------------------------- */

static void wake_main(ls_engine *e)
{
    if (!atomic_load_explicit(&e->main_parked, memory_order_relaxed)) return;
    atomic_store_explicit(&e->main_parked, 0, memory_order_relaxed);
    ls_env_get()->wake((const uint32_t *)(const void *)&e->main_parked);
}

static ls_status turn_ready(void *arg)
{
    ls_engine *e = arg;
    if (atomic_load_explicit(&e->stop, memory_order_acquire)) return LS_OK;
    atomic_fetch_add_explicit(&e->turns, 1, memory_order_release); /* ls_engine_settle waits for two */
    if (ls_engine_turn(e) != LS_OK) return LS_AGAIN;
    wake_main(e);
    return LS_OK;
}

static void engine_thread(void *arg)
{
    ls_engine *e = arg;
    ls_context_swap(&e->context);
    const ls_env *env = ls_env_get();
    while (!atomic_load_explicit(&e->stop, memory_order_acquire)) {
        ls_waiter waiter = e->w->waiter;
        waiter.abort_word = NULL; /* the caller's wait sees it */
        if (idle(e)) waiter.may_spin = false;
        (void)ls_wait(&waiter, turn_ready, e, env->mono_ns() + 100000000u);
    }
    ls_context_swap(NULL);
}

void ls_engine_settle(ls_engine *e)
{
    if (!ls_engine_threaded(e)) return;
    uint32_t turn = atomic_load_explicit(&e->turns, memory_order_acquire);
    while (atomic_load_explicit(&e->turns, memory_order_acquire) - turn < 2) {
        ls_world_wake(e->w, e->w->rank);
        ls_env_get()->yield();
    }
}

ls_status ls_engine_create(ls_world *w)
{
    ls_engine *e = calloc(1, sizeof *e);
    if (!e) return ls_fail(LS_NO_MEMORY, "progress engine");
    e->w = w;
    atomic_store_explicit(&e->past.slow_rank, -1, memory_order_relaxed);
    w->engine = e;
    return LS_OK;
}

ls_status ls_engine_start(ls_world *w)
{
    ls_engine *e = w->engine;
    if (w->opts.progress != LS_PROGRESS_THREAD) return LS_OK;
    e->context = (ls_context){ .env = ls_env_get(), .rank = w->rank, .log_level = ls_context_get()->log_level };
    void *thread;
    if (ls_env_get()->thread_start(engine_thread, e, &thread) < 0)
        return ls_fail(LS_SYSTEM, "no thread for communication (comm.progress: thread)");
    e->thread = thread;
    ls_log(LS_LOG_INFO, "a thread moves collectives during compute");
    return LS_OK;
}

void ls_engine_stop(ls_world *w)
{
    ls_engine *e = w->engine;
    if (!e->thread) return;
    atomic_store_explicit(&e->stop, 1, memory_order_release);
    ls_world_wake(w, w->rank);
    ls_env_get()->thread_join(e->thread);
    e->thread = NULL;
}

void ls_engine_destroy(ls_world *w)
{
    for (ls_group *g = w->engine ? w->engine->gone : NULL, *next; g; g = next) {
        next = g->next_gone;
        free(g);
    }
    if (w->engine) free(w->engine->own_scratch);
    if (w->engine) free(w->engine->tuning.cpus);
    if (w->engine) ls_record_free(w->engine->record);
    free(w->engine);
    w->engine = NULL;
}

void ls_counters_add(ls_counters *to, const ls_counters *from)
{
    enum { OTHERS = 4, ALL = OTHERS + 2 * LS_COLLS };
    const _Atomic uint64_t *have[ALL] = { &from->exposed_ns, &from->busy_ns, &from->waited_ns, &from->slow_waits };
    _Atomic uint64_t *sum[ALL] = { &to->exposed_ns, &to->busy_ns, &to->waited_ns, &to->slow_waits };
    for (int c = 0; c < LS_COLLS; c++) {
        have[OTHERS + 2 * c] = &from->of[c].ops, have[OTHERS + 2 * c + 1] = &from->of[c].bytes;
        sum[OTHERS + 2 * c] = &to->of[c].ops, sum[OTHERS + 2 * c + 1] = &to->of[c].bytes;
    }
    for (int i = 0; i < ALL; i++)
        atomic_fetch_add_explicit(sum[i], atomic_load_explicit(have[i], memory_order_relaxed), memory_order_relaxed);
}

static ls_comm_stats stats_of(const ls_counters *c)
{
    ls_comm_stats s = {
        .exposed_ns = atomic_load_explicit(&c->exposed_ns, memory_order_relaxed),
        .busy_ns = atomic_load_explicit(&c->busy_ns, memory_order_relaxed),
        .waited_ns = atomic_load_explicit(&c->waited_ns, memory_order_relaxed),
        .slow_waits = atomic_load_explicit(&c->slow_waits, memory_order_relaxed),
        .slow_rank = atomic_load_explicit(&c->slow_rank, memory_order_relaxed),
    };
    for (int i = 0; i < LS_COLLS; i++) {
        s.ops += s.of[i].ops = atomic_load_explicit(&c->of[i].ops, memory_order_relaxed);
        s.bytes += s.of[i].bytes = atomic_load_explicit(&c->of[i].bytes, memory_order_relaxed);
    }
    return s;
}

void ls_comm_stats_read(const ls_world *w, ls_comm_stats *out)
{
    const ls_engine *e = w->engine;
    ls_counters all = { .slow_rank = atomic_load_explicit(&e->past.slow_rank, memory_order_relaxed) };
    ls_counters_add(&all, &e->past);
    for (int i = 0; i < LS_MAX_GROUPS; i++) {
        const ls_group *g = atomic_load_explicit(&e->group[i], memory_order_acquire);
        if (g) ls_counters_add(&all, &g->counts_so_far);
    }
    *out = stats_of(&all);
    out->busy_ns = atomic_load_explicit(&e->busy_ns, memory_order_relaxed); /* groups overlap: not the sum of theirs */
}

void ls_group_stats_read(const ls_group *g, ls_comm_stats *out) { *out = stats_of(&g->counts_so_far); }

void ls_comm_stats_since(const ls_comm_stats *before, ls_comm_stats *now)
{
    now->ops -= before->ops;
    now->bytes -= before->bytes;
    now->exposed_ns -= before->exposed_ns;
    now->busy_ns -= before->busy_ns;
    now->waited_ns -= before->waited_ns;
    now->slow_waits -= before->slow_waits;
    for (int c = 0; c < LS_COLLS; c++) {
        now->of[c].ops -= before->of[c].ops;
        now->of[c].bytes -= before->of[c].bytes;
    }
}
