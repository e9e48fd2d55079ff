/* engine.h -- what moves the works of all groups of a rank, and counts them. */
#ifndef LS_GROUP_ENGINE_H
#define LS_GROUP_ENGINE_H
#include <stdatomic.h>

#include "base/context.h"
#include "group/group.h"
#include "group/tuning.h"

/* Moves the works of all groups of a world. */
typedef struct ls_engine {
    ls_world *w;
    void *thread;                             /* LS_PROGRESS_THREAD; else NULL */
    struct ls_record *record;                 /* owned: of a dry world, what was called; else NULL */
    _Atomic(ls_group *) group[LS_MAX_GROUPS]; /* by channel block; NULL: free */
    uint32_t next_id;
    ls_holding spare[LS_MAX_GROUPS];          /* of destroyed groups */
    ls_group *gone;                           /* owned: destroyed groups, for calls on them and for new ones */
    int nspare;
    ls_counters past;                         /* of groups that were destroyed; slow_rank: of all */
    _Atomic uint64_t busy_ns;                 /* time with timed works of any group in flight, */
    uint64_t busy_until_ns;                   /* and the end of those recorded so far */
    ls_tuning tuning;
    struct ls_backend *backend;               /* owned; NULL: collectives are carried out here */

    /* for the calling thread to pack tensors into */
    char *scratch, *own_scratch; /* own: owned, where the arena had no room for it */
    size_t nscratch;

    /* LS_PROGRESS_THREAD */
    _Atomic uint32_t stop, main_parked, turns;
    ls_context context;
} ls_engine;

/* join.c: gives an open world its group of all ranks and its engine. On failure w is closed. */
ls_status ls_world_complete(ls_world *w, ls_world **out);
ls_status ls_engine_create(ls_world *w);
ls_status ls_engine_start(ls_world *w); /* the progress thread, where asked for */
void ls_engine_stop(ls_world *w);       /* and its end */
void ls_engine_destroy(ls_world *w);
/* One turn for one group, or for all: LS_OK when something moved, LS_AGAIN when nothing did. */
ls_status ls_engine_turn_group(ls_group *g);
ls_status ls_engine_turn(ls_engine *e);
/* Waits until a progress thread sees what was just changed: it looks at no group that is gone or frozen. */
void ls_engine_settle(ls_engine *e);
static inline bool ls_engine_threaded(const ls_engine *e) { return e->thread != NULL; }

/* to += from, but for slow_rank */
void ls_counters_add(ls_counters *to, const ls_counters *from);

/* complete.c: a work is over: its status is that of the last failure on this thread, if it is one. */
void ls_work_complete(ls_work *k, ls_status st);

static inline void ls_count_op(ls_group *g, ls_coll coll)
{
    _Atomic uint64_t *ops = &g->counts_so_far.of[coll].ops; /* one writer: the caller */
    atomic_store_explicit(ops, atomic_load_explicit(ops, memory_order_relaxed) + 1, memory_order_relaxed);
}

static inline void ls_count_bytes(ls_group *g, ls_coll coll, size_t n)
{
    _Atomic uint64_t *bytes = &g->counts_so_far.of[coll].bytes; /* one writer: whoever moves works */
    atomic_store_explicit(bytes, atomic_load_explicit(bytes, memory_order_relaxed) + n, memory_order_relaxed);
}

/* Of a work: so many payload bytes have come from another rank, or gone there. */
static inline void ls_count_moved(ls_work *k, size_t n)
{
    ls_count_bytes(k->g, k->a.coll, n);
    k->moved += n;
}

#endif
