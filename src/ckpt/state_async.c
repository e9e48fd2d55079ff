/* state_async.c -- a save from a copy, by a thread of each rank, while the program goes on (saving.h has its parts). */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/workers.h"
#include "ckpt/saving.h"
#include "lockstep/group.h"
#include "lockstep/mem.h"

/* Where a save is. All ranks are in the same phase, since all of them advance at the same call. */
typedef enum phase { IDLE, WRITING, COMMITTING } phase;

struct ls_state_async {
    ls_arena *arena;    /* owned, as all here: `copy` is in it */
    ls_workers *writer; /* one thread; NULL in a dry world */
    void *copy;
    size_t nbytes;
    phase phase;
    bool begun;         /* this rank's thread has the phase's job */
    char folder[LS_SAVE_PATH_BYTES];
    ls_saving saving;   /* the thread's while it has a job */
    ls_status (*beside)(void *arg, const char *folder);
    void *arg;          /* borrowed */
};

size_t ls_state_copy_bytes(const ls_state *s) { return ls_shards_copy_bytes(s); }

/* The thread's work: of the phase that began it. */
static ls_status work(void *arg, uint64_t job)
{
    ls_state_async *a = arg;
    (void)job;
    if (a->phase == WRITING) return ls_save_write(&a->saving);
    if (a->beside) LS_TRY(a->beside(a->arg, a->saving.b.path));
    return ls_save_commit(&a->saving);
}

ls_status ls_state_reserve(ls_state *s)
{
    ls_world *w = ls_group_world(s->g);
    const bool dry = ls_world_is_dry(w);
    if (s->async) return ls_fail(LS_INVALID, "ls_state_reserve: the state has memory for a copy already");
    ls_state_async *a = calloc(1, sizeof *a);
    if (!a) return ls_fail(LS_NO_MEMORY, "a copy for checkpoints");
    s->async = a;
    a->nbytes = ls_state_copy_bytes(s);
    ls_status st = dry ? ls_arena_create_dry(ls_world_ledger(w), &a->arena)
                       : ls_arena_create(a->nbytes + 64, false, ls_world_ledger(w), &a->arena);
    if (st == LS_OK && a->nbytes > 0) st = ls_arena_alloc(a->arena, a->nbytes, LS_MEM_CKPT, &a->copy);
    if (st == LS_OK && !dry) st = ls_workers_create(1, 1, work, a, &a->writer);
    if (st == LS_OK) return LS_OK;
    ls_state_async_destroy(s);
    return ls_while(st, "reserving a copy of %zu bytes for checkpoints", ls_state_copy_bytes(s));
}

/* A job that runs is waited for: it reads the copy. */
void ls_state_async_destroy(ls_state *s)
{
    ls_state_async *a = s->async;
    if (!a) return;
    ls_workers_destroy(a->writer);
    if (a->phase != IDLE) (void)ls_save_end(&a->saving, LS_OK, a->folder);
    ls_arena_destroy(a->arena);
    free(a);
    s->async = NULL;
}

bool ls_state_saving(const ls_state *s) { return s->async && s->async->phase != IDLE; }

ls_status ls_state_check_idle(const ls_state *s, const char *call)
{
    if (!ls_state_saving(s)) return LS_OK;
    return ls_fail(LS_INVALID, "%s: the save of step %" PRId64 " as %s is not over: ls_state_save_wait first", call,
                   s->async->saving.step, s->async->folder);
}

static void begin_job(ls_state_async *a, phase p, bool mine)
{
    a->phase = p;
    a->begun = mine;
    if (mine) ls_workers_post(a->writer);
}

static ls_status begin(ls_state *s, ls_state_async *a, const char *folder, int64_t step)
{
    LS_TRY(ls_save_begin(&a->saving, s, folder, step, &s->culprit));
    ls_status st = ls_save_list(&a->saving, s);
    if (st == LS_OK) st = ls_shards_copy(&a->saving.mine, a->copy, a->nbytes);
    return ls_state_agree(s->g, st, &s->culprit);
}

ls_status ls_state_save_begin_with(ls_state *s, const char *folder, int64_t step,
                                   ls_status (*beside)(void *arg, const char *folder), void *arg)
{
    LS_TRY(ls_state_check_idle(s, "ls_state_save_begin"));
    if (!s->async) LS_TRY(ls_state_agree(s->g, ls_state_reserve(s), &s->culprit));
    ls_state_async *a = s->async;
    if (strlen(folder) >= sizeof a->folder)
        return ls_fail(LS_INVALID, "%s: a name of more than %zu bytes", folder, sizeof a->folder - 1);
    snprintf(a->folder, sizeof a->folder, "%s", folder);
    a->beside = beside;
    a->arg = arg;
    const ls_status st = begin(s, a, folder, step);
    if (st < 0) return ls_save_end(&a->saving, st, a->folder);
    begin_job(a, WRITING, true);
    return LS_OK;
}

ls_status ls_state_save_begin(ls_state *s, const char *folder, int64_t step)
{
    return ls_state_save_begin_with(s, folder, step, NULL, NULL);
}

bool ls_state_save_busy(const ls_state *s)
{
    return ls_state_saving(s) && s->async->begun && !ls_workers_ready(s->async->writer);
}

/* What this rank's thread has found in the phase that is over. */
static ls_status outcome(ls_state_async *a) { return a->begun ? ls_workers_take(a->writer) : LS_OK; }

static ls_status advance(ls_state *s, ls_state_async *a)
{
    const phase over = a->phase;
    LS_TRY(ls_state_agree(s->g, outcome(a), &s->culprit));
    if (over == COMMITTING) return LS_OK;
    LS_TRY(ls_save_gather(&a->saving, s->g));
    begin_job(a, COMMITTING, ls_group_rank(s->g) == 0);
    return LS_AGAIN;
}

ls_status ls_state_save_advance(ls_state *s, bool busy)
{
    ls_state_async *a = s->async;
    if (!ls_state_saving(s)) return LS_OK;
    if (busy) return LS_AGAIN;
    const ls_status st = advance(s, a);
    if (st == LS_AGAIN) return st;
    a->phase = IDLE;
    return ls_save_end(&a->saving, st, a->folder);
}

ls_status ls_state_save_poll(ls_state *s)
{
    int64_t busy = ls_state_save_busy(s);
    if (!ls_state_saving(s)) return LS_OK;
    LS_TRY(ls_all_reduce(s->g, NULL, &busy, 1, LS_I64, LS_MAX));
    return ls_state_save_advance(s, busy != 0);
}

ls_status ls_state_save_wait(ls_state *s)
{
    ls_status st;
    while ((st = ls_state_save_advance(s, false)) == LS_AGAIN) {}
    return st;
}
