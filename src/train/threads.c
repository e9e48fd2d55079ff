/* threads.c -- a run whose ranks are threads of one process.
 *
 * Each has a world, a model and a tape of its own, as a process would; they share the configuration, which nobody
 * changes before all have read it, and the signals that ask for a stop.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/context.h"
#include "base/env.h"
#include "group/local_ranks.h"
#include "train/trainer.h"

typedef struct job {
    const ls_train_config *c;
    ls_opts *opts; /* rank 0's, once all have read `c` */
    ls_stop *stop;
    ls_train_result *result;
    ls_status stopped; /* rank 0's, where all have agreed to stop */
    char why[LS_ERROR_BYTES];
} job;

static ls_status thread_rank(ls_world *w, void *arg)
{
    job *j = arg;
    ls_train_result mine;
    /* two threads that wait for each other by spinning are not moved apart for long, if they began on one core */
    ls_local_place(ls_world_rank(w), ls_world_size(w), ls_env_get()->cpus());
    const ls_status st = ls_train_in(j->c, j->opts, w, j->stop, &mine);
    const bool stopped = st == LS_INTERRUPTED || st == LS_PREEMPTED, first = ls_world_rank(w) == 0;
    if (first) *j->result = mine;
    if (first && stopped) {
        j->stopped = st;
        snprintf(j->why, sizeof j->why, "%s", ls_last_error());
    }
    return stopped ? LS_OK : st; /* a stop is no failure that would abort the others */
}

ls_status ls_train_threads_check(const ls_train_config *c)
{
    static const char *const whole[] = { "kill", "stop", "hang" };
    if (strcmp(c->comm.backend, "sched") != 0)
        return ls_fail(LS_UNSUPPORTED, "--ranks-as threads: comm.backend is %s, whose ranks are processes; set it to sched",
                       c->comm.backend);
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++)
        if (strncmp(c->inject, whole[i], strlen(whole[i])) == 0)
            return ls_fail(LS_UNSUPPORTED, "--ranks-as threads: --inject %s would take all ranks with it, which are one process; use "
                           "nan, mismatch, slow, slow-input, diverge, overflow or diverge-experts, or ranks that are processes", whole[i]);
    if (c->max_restarts)
        return ls_fail(LS_UNSUPPORTED, "--max-restarts: ranks that are threads end together with this process: leave it out, or leave out "
                                       "--ranks-as threads");
    if (*c->events || *c->log_dir)
        return ls_fail(LS_UNSUPPORTED, "--ranks-as threads: --%s is the launcher's, which starts processes: leave it out",
                       *c->events ? "events" : "log-dir");
    return LS_OK;
}

/* The memory of the ranks' arenas. */
static ls_status plan_world(const ls_train_config *c, int nranks, size_t *arena, ls_world_opts *out)
{
    ls_source source = { 0 };
    ls_model_config mc;
    ls_memory_plan p;
    ls_memory_stages fitted;
    ls_memory_ranks all = { .size = nranks, .here = nranks };
    ls_status st = ls_train_model(c, &source, &mc);
    if (st == LS_OK) st = ls_memory_stages_fit(c, &mc, nranks, &fitted);
    if (st == LS_OK) st = ls_memory_plan_largest(&fitted.c, &mc, nranks, &all.rank, &p);
    if (st == LS_OK) st = ls_memory_check(&fitted.c, &mc, &all, &p);
    if (st == LS_OK) st = ls_memory_plan_arenas(&fitted.c, &mc, nranks, arena);
    if (st == LS_OK) *out = ls_train_world_opts(c, &p);
    out->arena_of = arena;
    ls_source_free(&source);
    return st;
}

ls_status ls_train_threads(const ls_train_config *c, ls_opts *opts, int nranks, ls_train_result *out)
{
    static const int sigs[] = { SIGINT, SIGTERM };
    job j = { .c = c, .opts = opts, .result = out };
    ls_world_opts wo = { 0 };
    *out = (ls_train_result){ 0 };
    LS_TRY(ls_train_threads_check(c));
    size_t *arena = calloc((size_t)nranks, sizeof *arena);
    if (!arena) return ls_fail(LS_NO_MEMORY, "the plans of %d ranks", nranks);
    ls_status st = plan_world(c, nranks, arena, &wo);
    if (st == LS_OK && !c->eval_only) st = ls_stop_watch(sigs, 2, &j.stop); /* threads inherit what is blocked: first */
    if (st == LS_OK) st = ls_world_threads(nranks, &wo, thread_rank, &j);
    free(arena);
    if (st == LS_OK && j.stopped < 0) st = ls_fail(j.stopped, "%s", j.why);
    ls_stop_end(j.stop);
    return st;
}
