/* workers.c -- one ring of jobs, two counters that threads sleep on. */
#include "base/workers.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/context.h"

#define NAP_NS 1000000000u /* a sleeper is woken; this only bounds each sleep */

/* What one job left: the consumer reads it when `done` is the job's number + 1. */
typedef struct result {
    _Atomic uint64_t done;
    ls_status status;
    char error[LS_ERROR_BYTES];
} result;

struct ls_workers {
    const ls_env *env;
    ls_workers_fn fn;
    void *arg;
    int nthreads, slots;
    int rank, log_level;     /* of the consumer's context */
    uint64_t next;           /* to be taken; the consumer's alone */
    _Atomic uint64_t posted; /* jobs below it may begin; the consumer writes it */
    _Atomic uint64_t begun;  /* jobs below it have begun, or were dropped */
    _Atomic uint64_t wanted; /* jobs below it are not wanted any more; the consumer writes it */
    _Atomic uint32_t quit;
    _Atomic uint32_t work;   /* counts posts: threads sleep on it */
    _Atomic uint32_t news;   /* counts jobs that ended: the consumer sleeps on it */
    result *result;          /* owned: [slots] */
    void **thread;           /* owned: [nthreads] */
};

static void ring(const ls_env *env, _Atomic uint32_t *bell)
{
    /* release: what was written before is visible to who sees the new count */
    atomic_fetch_add_explicit(bell, 1, memory_order_release);
    env->wake((const uint32_t *)(const void *)bell);
}

static void sleep_on(const ls_env *env, _Atomic uint32_t *bell, uint32_t heard)
{
    env->wait((const uint32_t *)(const void *)bell, heard, NULL, 0, env->mono_ns() + NAP_NS);
}

static bool begin(ls_workers *w, uint64_t *job)
{
    *job = atomic_load_explicit(&w->begun, memory_order_acquire);
    /* acquire: the consumer prepared the job before it posted it */
    while (*job < atomic_load_explicit(&w->posted, memory_order_acquire))
        if (atomic_compare_exchange_weak_explicit(&w->begun, job, *job + 1, memory_order_acq_rel, memory_order_acquire))
            return true;
    return false;
}

static void run_job(ls_workers *w, uint64_t job, ls_context *c)
{
    result *r = &w->result[job % (uint64_t)w->slots];
    *c->error = 0;
    r->status = w->fn(w->arg, job);
    if (r->status < 0) memcpy(r->error, c->error, sizeof r->error);
    atomic_store_explicit(&r->done, job + 1, memory_order_release);
    ring(w->env, &w->news);
}

static void work(void *arg)
{
    ls_workers *w = arg;
    ls_context c = { .env = w->env, .rank = w->rank, .log_level = w->log_level };
    ls_context_swap(&c);
    for (;;) {
        const uint32_t heard = atomic_load_explicit(&w->work, memory_order_acquire);
        uint64_t job;
        if (atomic_load_explicit(&w->quit, memory_order_acquire)) break;
        if (begin(w, &job)) run_job(w, job, &c);
        else sleep_on(w->env, &w->work, heard);
    }
    ls_context_swap(NULL);
}

ls_status ls_workers_create(int threads, int slots, ls_workers_fn fn, void *arg, ls_workers **out)
{
    const ls_context *mine = ls_context_get();
    *out = NULL;
    ls_workers *w = calloc(1, sizeof *w);
    if (w) {
        *w = (ls_workers){ .env = mine->env, .fn = fn, .arg = arg, .slots = slots, .rank = mine->rank,
                           .log_level = mine->log_level };
        w->result = calloc((size_t)slots, sizeof *w->result);
        w->thread = calloc((size_t)threads, sizeof *w->thread);
    }
    if (!w || !w->result || !w->thread) {
        ls_workers_destroy(w);
        return ls_fail(LS_NO_MEMORY, "%d worker threads", threads);
    }
    for (; w->nthreads < threads; w->nthreads++) {
        const int err = w->env->thread_start(work, w, &w->thread[w->nthreads]);
        if (err >= 0) continue;
        const int started = w->nthreads;
        ls_workers_destroy(w);
        return ls_fail(err == -ENOMEM ? LS_NO_MEMORY : LS_SYSTEM, "worker thread %d of %d cannot be started: %s", started + 1, threads, strerror(-err));
    }
    *out = w;
    return LS_OK;
}

void ls_workers_post(ls_workers *w)
{
    atomic_fetch_add_explicit(&w->posted, 1, memory_order_release);
    ring(w->env, &w->work);
}

uint64_t ls_workers_next(const ls_workers *w) { return w->next; }

int ls_workers_posted(const ls_workers *w)
{
    return (int)(atomic_load_explicit(&w->posted, memory_order_relaxed) - w->next);
}

static bool is_done(const ls_workers *w, uint64_t job)
{
    /* acquire: what the job wrote is visible */
    return atomic_load_explicit(&w->result[job % (uint64_t)w->slots].done, memory_order_acquire) == job + 1;
}

bool ls_workers_ready(const ls_workers *w) { return is_done(w, w->next); }

static void wait_for(ls_workers *w, uint64_t job)
{
    for (;;) {
        const uint32_t heard = atomic_load_explicit(&w->news, memory_order_acquire);
        if (is_done(w, job)) return;
        sleep_on(w->env, &w->news, heard);
    }
}

ls_status ls_workers_take(ls_workers *w)
{
    const result *r = &w->result[w->next % (uint64_t)w->slots];
    wait_for(w, w->next++);
    return r->status < 0 ? ls_fail(r->status, "%s", r->error) : r->status;
}

void ls_workers_drop(ls_workers *w)
{
    const uint64_t end = atomic_load_explicit(&w->posted, memory_order_relaxed);
    atomic_store_explicit(&w->wanted, end, memory_order_relaxed);
    const uint64_t begun = atomic_exchange_explicit(&w->begun, end, memory_order_acq_rel);
    for (; w->next < begun; w->next++) wait_for(w, w->next);
    w->next = end;
}

bool ls_workers_unwanted(const ls_workers *w, uint64_t job)
{
    return job < atomic_load_explicit(&w->wanted, memory_order_relaxed);
}

void ls_workers_destroy(ls_workers *w)
{
    if (!w) return;
    if (w->nthreads > 0) {
        ls_workers_drop(w);
        atomic_store_explicit(&w->quit, 1, memory_order_release);
        ring(w->env, &w->work);
        for (int i = 0; i < w->nthreads; i++) w->env->thread_join(w->thread[i]);
    }
    free(w->thread);
    free(w->result);
    free(w);
}
