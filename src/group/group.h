/* group.h -- a group from the inside: its members, its works and what it knows of them.
 *
 * The files of this folder, each of which calls only those below it:
 *
 *   calibrate.c  switch_points.c   measuring                    debug.c   what tools see
 *   join.c  local_ranks.c  group.c worlds; ranks of one process; create, split, destroy
 *   calls.c  p2p.c                 every collective as a call; send and recv
 *   memory/quick.c                 short ones without a work
 *   work.c                         start, test, wait
 *   engine.c  select.c             who moves works along; which form carries one out
 *   memory/  run.c  message.c  backend.c   the forms: in memory, by a schedule, messages, another library
 *   choice.c  complete.c  args.c   which schedule; the end of a work; is a call possible, and the work made of it
 *   mismatch.c  hang.c             what to say when ranks call different collectives, or one does not come
 */
#ifndef LS_GROUP_GROUP_H
#define LS_GROUP_GROUP_H
#include <stdatomic.h>

#include "base/limits.h"
#include "coll/choose.h"
#include "group/area.h"
#include "group/work.h"
#include "lockstep/group.h"
#include "lockstep/shard.h"
#include "net/world.h"

#define LS_GROUP_LANES 2        /* channels of a group for schedules; one more is for send and recv */
#define LS_GROUP_CHANNELS (LS_GROUP_LANES + 1)
#define LS_MAX_GROUPS (LS_MAX_CHANNELS / LS_GROUP_CHANNELS)
_Static_assert(LS_PAGE_GROUPS >= LS_MAX_GROUPS && LS_PAGE_LANES == LS_GROUP_LANES, "all in flight is described");

/* Another rank of the group (or this one), as it is seen from here. */
typedef struct ls_member {
    ls_area *area;            /* NULL: not mapped */
    char *base;               /* of its arena as mapped here */
    size_t bytes;
    char *stage;              /* its slots, as its line showed them last */
    size_t stage_bytes;       /* of one of them */
    _Atomic uint32_t *parked; /* its word in the world page */
} ls_member;

/* Memory of the arena that is replaced by larger one as works need it; what was replaced stays there, as all memory of
 * an arena does. */
typedef struct ls_scratch {
    char *p;
    size_t n; /* bytes */
} ls_scratch;

/* What a group has of its rank's arena. One that is created later takes over what a destroyed one had. */
typedef struct ls_holding {
    ls_area *area;
    bool slots;                /* for private vectors: larger ones than the area's, or no memory was left for them */
    ls_scratch tmp, out, wire; /* of schedules, see run.c */
    ls_scratch packed;         /* for vectors of spans, see spans.h */
} ls_holding;

/* What a rank knows of its mail. */
typedef struct ls_mail {
    uint32_t seen;       /* every member is through with this rooted collective, or a later one */
    uint32_t told;       /* what our area says of ourselves */
    uint32_t head, tail; /* bytes of our ring written and free again, counted without wrapping */
    uint32_t sent, freed;
} ls_mail;

typedef struct ls_mail_mark { uint32_t rooted, end; } ls_mail_mark;

/* What moved so far, as ls_comm_stats has it. */
typedef struct ls_counters {
    struct { _Atomic uint64_t ops, bytes; } of[LS_COLLS]; /* side by side: a call touches one pair */
    _Atomic uint64_t exposed_ns, busy_ns, waited_ns, slow_waits;
    _Atomic int slow_rank;
} ls_counters;

/* What a short collective touches comes first: the fewest cache lines. */
struct ls_group {
    ls_world *w;             /* borrowed */
    struct ls_engine *e;     /* borrowed: the world's */
    ls_rank_slot *slot;      /* borrowed: ours in the world page */
    ls_member *member;       /* [size], as are the other arrays of members: behind this struct, in `room` bytes */
    int rank, size;
    _Atomic int32_t frozen;  /* not 0: its works do not move any more, their buffers are their callers' again;
                                < 0: the status of the work that failed while it was moved */
    ls_status failed;        /* < 0: unusable; `error` says why */
    bool mapped;             /* every member's arena is mapped here */
    bool attached;           /* and every member can read every other one's private memory */
    bool spins;              /* a wait may spin: every rank has a core */
    bool crowded;            /* for some member that is not so; all know it alike */
    bool asks;               /* asked[] is not empty */
    int patience;            /* turns a poll may take: some while the caller blocks, none at a poke */

    const ls_algo *forced;   /* tests and calibration: for all collectives that it serves, before asked[]; else NULL */
    struct ls_backend_group *backend; /* owned: this group in the library that gets its collectives; NULL: none does */
    /* Works complete in call order. `tail` is the caller's, `head` the engine's. The slot freed last is
     * used next: its cache lines are still near. */
    _Atomic uint32_t tail, head;
    int nspare;              /* of spare[] */
    uint32_t chain;          /* signature of all collectives so far */
    uint32_t seq, mseq, rooted; /* of the newest collective, as in ls_work; seq: of the next */
    uint32_t desc_first;     /* ls_desc_index of the first of its descriptions in `slot`, */
    uint64_t desc_word[2];   /* and what the first words of all of them have in common */
    const struct ls_form *ran; /* how the last collective was carried out */
    ls_mail mail;
    ls_counters counts_so_far; /* first those of all_reduce */

    ls_mail_mark mark[LS_MAIL_LINES]; /* where the bytes of the mail that we sent end */
    const ls_algo *ran_algo; /* of the last collective that a schedule carried out: which one, */
    int ran_segments;        /* its shares cut into so many segments */
    uint8_t queue[LS_WORKS], spare[LS_WORKS];
    uint32_t id, generation;
    ls_flow *flow;           /* borrowed: of this group in the world page, */
    _Atomic uint32_t *messages; /* and how many were sent to each rank of the world */
    ls_rank_set narrow;      /* owned: members with whom f32 sums travel as bf16; of size 0: none */
    uint64_t busy_until_ns;  /* end of the timed works recorded so far: overlapping ones count once */
    _Atomic uint32_t stage_bytes; /* of one slot of our stage; 0: nothing private was seen yet */
    uint32_t stage;          /* pieces of private vectors so far */
    uint16_t trace_name, trace_peers; /* its text, and its other members, in the tracer's strings */
    char text[LS_GROUP_TEXT_BYTES]; /* for people: "tp 0-3" */
    bool hinted;             /* it was said what is faster than private memory */
    size_t room;

    int channel;             /* the first of LS_GROUP_CHANNELS */
    int *world_rank;
    int *node;               /* which host each member is on, for ls_shape: numbered by first appearance */
    int nnodes;
    _Atomic(struct ls_messages *) p2p; /* owned: its messages in flight; NULL until there are some */
    uint64_t p2p_sign;       /* what the signatures of all its messages have in common */
    uint32_t (*p2p_seq)[2];  /* sent to, received from a member */
    uint64_t shown;          /* ls_run_stamp of what `flow` says of the newest schedule */
    bool destroyed;          /* its memory is kept, see next_gone */
    ls_group *next_gone;
    char error[LS_ERROR_BYTES];

    char *copy;                   /* owned: scratch of ncopy bytes */
    size_t ncopy;
    ls_holding has;
    size_t *counts;               /* owned: [LS_WORKS][2][size], NULL until a v-variant is called */
    struct ls_sched_cache *cache; /* owned */
    struct ls_choices *choices;   /* owned: what was chosen so far; NULL before the first schedule */
    const ls_algo *asked[LS_COLLS]; /* comm.algo or LOCKSTEP_ALGO; NULL: by size */
    int *cores;                   /* [nnodes] of a host, in proportion to its ranks that are members */
    struct ls_work work[LS_WORKS];
};

/* The part of the whole vector (all_to_all: of what is sent) that is rank r's. */
static inline ls_range ls_work_share(const ls_work *k, int r)
{
    ls_range s = { 0, 0 };
    if (LS_LIKELY(!k->counts)) return ls_shard_of(k->a.count, r, k->g->size);
    for (int q = 0; q < r; q++) s.first += k->counts[q];
    s.count = k->counts[r];
    return s;
}

/* The oldest works that are not complete, by position in the queue. */
static inline ls_work *ls_queued(ls_group *g, uint32_t i) { return &g->work[g->queue[i % LS_WORKS]]; }

/* A thread that is another rank. */
static inline bool ls_elsewhere(const ls_group *g)
{
    if (LS_LIKELY(!g->w->threads)) return false;
    int rank = ls_context_get()->rank;
    return rank >= 0 && rank != g->w->rank;
}

/* A rank that fails takes its buffers back, while others may still read them: whatever they read since the job was
 * aborted may be anything. To be asked behind the last read, before a work counts as done. */
static inline ls_status ls_unless_aborted(ls_world *w)
{
    LS_FENCE_ACQUIRE(); /* what we read first was written after the abort: we see that too */
    if (LS_LIKELY(atomic_load_explicit(&w->page->abort_by, memory_order_acquire) == 0)) return LS_OK;
    return ls_world_aborted(w);
}

/* Wakes members that sleep. A race costs one of them at most its 1 ms nap. */
static inline void ls_wake_members(ls_group *g)
{
    for (int r = 0; r < g->size; r++)
        if (LS_UNLIKELY(atomic_load_explicit(g->member[r].parked, memory_order_relaxed)))
            ls_world_wake(g->w, g->world_rank[r]);
}

/* Sees to it that *s holds `want` bytes. LS_NO_MEMORY. */
static inline ls_status ls_scratch_grow(ls_group *g, ls_scratch *s, size_t want)
{
    void *p;
    if (LS_LIKELY(want <= s->n)) return LS_OK;
    LS_TRY(ls_arena_alloc(g->w->arena, want, LS_MEM_COMM, &p));
    *s = (ls_scratch){ p, want };
    return LS_OK;
}

/* group.c */
ls_status ls_group_create_world(ls_world *w);
void ls_group_free(ls_group *g);

#endif
