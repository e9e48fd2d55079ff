/* impl.h -- a group from the inside.
 *
 *   calls.c    every collective as a call    work.c      start, test, wait
 *   group.c    create, split, destroy        run.c       by reading a schedule
 *   mapped.c   collectives in peers' memory  select.c    which algorithm
 *   quick.c    short sums without a work     args.c      is a call possible
 *   mail.c     short rooted ones, run ahead  fold.c      registered vectors in place
 *   staged.c   private vectors in pieces     attached.c  or read where they lie
 *   engine.c   who moves works along         blame.c     what to say when one does not move
 *   join.c     worlds                        p2p.c       send and recv
 *   backend.c  collectives for another library, whole
 */
#ifndef LS_GROUP_IMPL_H
#define LS_GROUP_IMPL_H
#include <stdatomic.h>

#include "base/limits.h"
#include "coll/choose.h"
#include "coll/exec.h"
#include "lockstep/group.h"
#include "lockstep/shard.h"
#include "net/world.h"

#define LS_WORKS 64             /* collectives of one group in flight */
#define LS_GROUP_LANES 2        /* channels of a group for schedules; one more is for send and recv */
#define LS_GROUP_CHANNELS (LS_GROUP_LANES + 1)
#define LS_MAX_GROUPS (LS_MAX_CHANNELS / LS_GROUP_CHANNELS)
#define LS_ONESHOT_BYTES 16384  /* vectors up to this travel whole through the area */
_Static_assert(LS_PAGE_GROUPS >= LS_MAX_GROUPS && LS_PAGE_HISTORY >= LS_WORKS && LS_PAGE_LANES == LS_GROUP_LANES,
               "all in flight is described");
#define LS_P2P_WORKS (LS_WORKS + LS_P2P_BATCH) /* messages in flight: 64 and a batch */
#define LS_TIMED_BYTES 4096 /* smaller works are counted, not timed, */
#define LS_TIMED_BLOCKING_BYTES \
    ((size_t)1 << 20) /* and so are blocking ones that two looks at the clock would slow down */
#define LS_MOST_ELEMENTS (SIZE_MAX / 16) /* so that no size in bytes overflows */
#define LS_LINE_BYTES 40
#define LS_MAIL_LINES 32        /* rooted collectives that a rank may be ahead of its peers; a power of two, */
_Static_assert(LS_MAIL_LINES < LS_PAGE_HISTORY, "all of which are still described");
#define LS_MAIL_BYTES 32768u    /* and their bytes: a power of two */
#define LS_MAIL_MOST 8192u      /* of one of them */
#define LS_STAGE_SLOTS 4        /* pieces of a private vector on their way */
#define LS_STAGE_BYTES ((uint32_t)16 << 10) /* of one, in every area; larger ones where the arena has room */
#define LS_SHORT_SUM_BYTES ((size_t)1 << 10)  /* vectors up to this are summed whole where every rank has a core, */
#define LS_SHORT_READ_BYTES ((size_t)4 << 10) /* if a rank reads no more than this of its peers */
#define LS_WHOLE_BYTES ((size_t)512 << 10)  /* private vectors of up to so many are not cut */
#define LS_NOT_REGISTERED UINT64_MAX

/* What a rank shows its peers of one collective: one cache line. */
typedef struct ls_line {
    _Alignas(64) _Atomic uint32_t seq; /* written last (release): number of the collective */
    _Atomic uint32_t done;             /* the same number, once this rank is through with everybody's vectors */
    uint32_t sig;
    uint32_t stage;                    /* bytes of one of its stage's slots */
    uint64_t offset;                   /* of its vector in its arena, or LS_NOT_REGISTERED; mail: in its mail_bytes */
    union {
        struct {
            uint64_t to;               /* where its sum belongs, as offset; only all_reduce sets it */
            uint64_t at;               /* its vector's address in its process; LS_NOT_REGISTERED: none to read */
        };
        char bytes[LS_LINE_BYTES];     /* a vector that fits travels in the flag's own line */
    };
} ls_line;

/* A piece of a short vector with its own number: who waits for it needs no other line, and the pieces of a vector
 * come all at once (as in NCCL's LL128 protocol). */
#define LS_PACKET_BYTES 56
#define LS_PACKETS ((LS_SHORT_SUM_BYTES + LS_PACKET_BYTES - 1) / LS_PACKET_BYTES)
typedef struct ls_packet {
    _Alignas(64) char bytes[LS_PACKET_BYTES];
    uint32_t sig;
    _Atomic uint32_t seq; /* written last (release) */
} ls_packet;

/* A rank's part of a group in its arena.
 *
 * Where everyone waits for everyone (kinds ONESHOT and MAPPED), lines and slots alternate: whoever starts
 * number m has finished m-1, so every peer has started m-1 and is done reading m-2, whose line and slot are
 * written now.
 *
 * Where not everyone does (kinds MAIL and ROOTED), ranks may be far apart. Those collectives have numbers of
 * their own and a ring of lines, mail[m % LS_MAIL_LINES]; a line may be written again when every member is
 * `through` with the collective it was written for. */
typedef struct ls_area {
    ls_line line[2];
    _Alignas(64) _Atomic uint32_t left; /* peers that have destroyed the group and will not look here again */
    _Alignas(64) _Atomic uint32_t through; /* this rank has finished rooted collectives up to this one, or some more */
    _Alignas(64) char slot[2][LS_ONESHOT_BYTES];
    ls_packet packet[2][LS_PACKETS];     /* alternate like lines and slots */
    uint64_t block[2][LS_MAX_RANKS + 1]; /* long all_to_all: first element of each rank's block, and the end */
    ls_line mail[LS_MAIL_LINES];
    _Alignas(64) char mail_bytes[LS_MAIL_BYTES];
    _Alignas(64) _Atomic uint32_t staged[3]; /* pieces put, taken, finished by this rank */
    uint64_t stage_offset;                   /* of larger slots than these in the arena, which stay with the area, */
    uint32_t stage_bytes;                    /* and how large one is; 0: there are none */
    uint64_t whole_offset;                   /* of two slots of LS_WHOLE_BYTES; 0: there are none */
    _Alignas(64) char stage[LS_STAGE_SLOTS][LS_STAGE_BYTES];
} ls_area;

typedef enum ls_work_kind {
    LS_WORK_LOCAL,
    LS_WORK_ONESHOT, /* short, everyone waits for everyone */
    LS_WORK_MAPPED,  /* long, likewise */
    LS_WORK_MAIL,    /* short, from or to a root: who writes does not wait */
    LS_WORK_ROOTED,  /* long, from or to a root */
    LS_WORK_ATTACHED, /* what MAPPED becomes where memory is private and its peers read it */
    LS_WORK_STAGED,  /* what MAPPED and ROOTED become where memory is private */
    LS_WORK_EXEC,
    LS_WORK_P2P,
    LS_WORK_BACKEND  /* whole, by another library */
} ls_work_kind;
static inline bool ls_in_memory(ls_work_kind kind) { return kind >= LS_WORK_ONESHOT && kind <= LS_WORK_STAGED; }

struct ls_work {
    ls_group *g;             /* borrowed */
    ls_work_kind kind;
    int phase, peer;         /* progress of a mapped collective */
    uint32_t sig;
    uint32_t mseq, rooted;   /* numbers of the group's collectives in memory up to this one: those in which everyone
                                waits for everyone, and the rooted ones */
    bool live;               /* between start and wait */
    char *staged;            /* the vector is private: where a copy of it stands; NULL: it is not, or goes in pieces */
    bool past_cache;         /* all that is touched is more than a cache holds */
    _Atomic uint32_t done;   /* release: status and results are visible */
    ls_status status;        /* valid once done */
    size_t nbytes;           /* of the whole vector */
    size_t pos;
    ls_range share;          /* this rank's part of the vector, elements */
    size_t piece;            /* staged: elements of a part in a slot, of which there are `parts`, */
    uint32_t npieces, stage; /* in so many pieces, numbered from `stage` on */
    int parts;
    const char *copied;      /* the own vector, where the result overwrites it; the group's */
    uint64_t t0_ns, t1_ns;   /* started, complete; t0 0: too small to be timed */
    uint64_t ticket, says;   /* p2p; says: the message's signature */
    bool discards;           /* p2p: receives a message that no call will ask for, and discards it */
    struct ls_backend_request *request; /* of a work that a backend carries out, from phase 1 on */
    ls_coll_args a;          /* its counts are not ours: use ls_work_share */
    const size_t *counts, *recv_counts; /* NULL: equal shares; else [size], in the group's keeping */
    ls_coll_desc desc;
};

/* Another rank of the group (or this one), as it is seen from here. */
typedef struct ls_member {
    ls_area *area;            /* NULL: not mapped */
    char *base;               /* of its arena as mapped here */
    size_t bytes;
    char *stage;              /* its slots, as its line showed them last */
    size_t stage_bytes;       /* of one of them */
    _Atomic uint32_t *parked; /* its word in the world page */
} ls_member;

/* What a rank knows of its mail. */
typedef struct ls_mail {
    uint32_t seen;       /* every member is through with this rooted collective, or a later one */
    uint32_t told;       /* what our area says of ourselves */
    uint32_t head, tail; /* bytes of our ring written and free again, counted without wrapping */
    uint32_t sent, freed;
    struct { uint32_t rooted, end; } mark[LS_MAIL_LINES]; /* where the bytes of what we sent end */
} ls_mail;

/* The first lines are what a small collective touches: they are kept together. */
struct ls_group {
    ls_world *w;             /* borrowed */
    struct ls_engine *e;     /* borrowed: the world's */
    ls_rank_slot *slot;      /* borrowed: ours in the world page */
    ls_flow *flow;           /* borrowed: of this group there */
    uint32_t id, generation;
    int rank, size;
    _Atomic int32_t frozen;  /* not 0: its works do not move any more, their buffers are their callers' again;
                                < 0: the status of the work that failed while it was moved */
    ls_status failed;        /* < 0: unusable; `error` says why */
    bool mapped;             /* every member's arena is mapped here */
    bool attached;           /* and every member can read every other one's private memory */
    uint64_t narrow;         /* members with whom f32 sums travel as bf16, a bit for each */
    bool spins;              /* a wait may spin: every rank has a core */
    bool crowded;            /* for some member that is not so; all know it alike */
    int patience;            /* turns a poll may take: some while the caller blocks, none at a poke */
    uint32_t seq, mseq, rooted; /* of the newest collective, as in ls_work; seq: of the next */
    uint32_t chain;          /* signature of all collectives so far */
    const ls_algo *forced;   /* tests and calibration: for all collectives that it serves, before asked[]; else NULL */
    bool asks;               /* asked[] is not empty */
    struct ls_backend_group *backend; /* owned: this group in the library that gets its collectives; NULL: none does */
    ls_work_kind ran;        /* how the last collective was carried out, */
    const ls_algo *ran_algo; /* and for LS_WORK_EXEC by which schedule, its shares cut into so many segments */
    int ran_segments;
    /* Works complete in call order. `tail` is the caller's, `head` the engine's. The slot freed last is
     * used next: its cache lines are still near. */
    _Atomic uint32_t tail, head;
    uint8_t queue[LS_WORKS], spare[LS_WORKS];
    int nspare;
    uint64_t busy_until_ns;  /* end of the timed works recorded so far: overlapping ones count once */
    ls_mail mail;
    _Atomic uint32_t stage_bytes; /* of one slot of our stage; 0: nothing private was seen yet */
    uint32_t stage;          /* pieces of private vectors so far */
    bool hinted;             /* it was said what is faster than private memory */
    ls_member member[LS_MAX_RANKS];

    int channel;             /* the first of LS_GROUP_CHANNELS */
    int world_rank[LS_MAX_RANKS];
    int node[LS_MAX_RANKS];  /* which host each member is on, for ls_shape: numbered by first appearance */
    int nnodes;
    _Atomic(struct ls_p2p_state *) p2p; /* owned: its messages in flight; NULL until there are some */
    uint64_t p2p_sign;       /* what the signatures of all its messages have in common */
    uint32_t p2p_seq[LS_MAX_RANKS][2]; /* sent to, received from a member */
    uint64_t shown;          /* ls_run_stamp of what `flow` says of the newest schedule */
    bool destroyed;          /* its memory is kept, see next_gone */
    ls_group *next_gone;
    char error[LS_ERROR_BYTES];

    char *copy;                   /* owned: scratch of ncopy bytes */
    size_t ncopy;
    size_t *counts;               /* owned: [LS_WORKS][2][size], NULL until a v-variant is called */
    struct ls_sched_cache *cache; /* owned */
    struct ls_plans *plans;       /* owned: what was chosen so far; NULL before the first schedule */
    const ls_algo *asked[LS_COLLS]; /* comm.algo or LOCKSTEP_ALGO; NULL: by size */
    int cores[LS_MAX_RANKS];      /* [nnodes] of a host, in proportion to its ranks that are members */
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

/* What decides about algorithms, the same on every rank: rank 0's costs and wishes. */
typedef struct ls_terms {
    ls_cost cost;
    char cost_from[256];              /* for people */
    char algo[LS_ALGO_MAX_TEXT + 1];  /* LOCKSTEP_ALGO, else comm.algo */
    int cpus[LS_MAX_RANKS];       /* of each rank's host */
} ls_terms;

/* Moves the works of all groups of a world. */
typedef struct ls_engine {
    ls_world *w;
    _Atomic(ls_group *) group[LS_MAX_GROUPS]; /* by channel block; NULL: free */
    uint32_t next_id;
    ls_area *spare[LS_MAX_GROUPS];            /* areas of destroyed groups */
    ls_group *gone;                           /* owned: destroyed groups, for calls on them and for new ones */
    int nspare;
    _Atomic uint64_t ops, bytes, exposed_ns, busy_ns, slow_waits;
    _Atomic int slow_rank;
    ls_terms terms;
    struct ls_backend *backend;               /* owned; NULL: collectives are carried out here */

    /* for the calling thread to pack tensors into */
    char *scratch, *own_scratch; /* own: owned, where the arena had no room for it */
    size_t nscratch;

    /* LS_PROGRESS_THREAD */
    void *thread;
    _Atomic uint32_t stop, main_parked, turns;
    ls_context context;
} ls_engine;

/* engine.c */
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

/* A work is over: its status is that of the last failure on this thread, if it is one. */
void ls_engine_complete(ls_work *k, ls_status st);

/* args.c: LS_INVALID with a sentence unless the call is possible; and, where `in` is not `out`, the one spelling of
 * "in place" for a share that stands where it belongs: in NULL (a scatter's root: out NULL). */
ls_status ls_args_check(const ls_group *g, const ls_coll_args *a);
void ls_args_in_place(const ls_group *g, ls_coll_args *a);
LS_COLD ls_status ls_no_group(void);

static inline bool ls_has_average(ls_dtype d) { return d == LS_F32 || d == LS_F64 || d == LS_BF16 || d == LS_F16; }

/* A thread that is another rank. */
static inline bool ls_elsewhere(const ls_group *g)
{
    if (LS_LIKELY(!g->w->threads)) return false;
    int rank = ls_context_get()->rank;
    return rank >= 0 && rank != g->w->rank;
}

/* The everyday cases of ls_args_check, told apart by a few comparisons; false: look closer. */
static inline bool ls_args_plain(const ls_group *g, const ls_coll_args *a)
{
    const char *in = a->in, *out = a->out;
    if (g->failed < 0 || (unsigned)a->dtype >= LS_DTYPES || (unsigned)a->op >= LS_REDOPS || a->counts ||
        a->recv_counts || (unsigned)a->root >= (unsigned)g->size || a->count > LS_MOST_ELEMENTS || ls_elsewhere(g))
        return false;
    if (a->coll == LS_BARRIER) return true;
    if (a->coll != LS_ALL_REDUCE && a->coll != LS_REDUCE_SCATTER && a->coll != LS_ALL_GATHER && a->coll != LS_BROADCAST)
        return false;
    size_t nbytes = a->count * 8; /* of the widest type */
    return out && (a->op != LS_AVG || ls_has_average(a->dtype)) &&
           (!in || in == out || in + nbytes <= out || out + nbytes <= in);
}

/* What a call of ours is. `count` is what all ranks must agree on. Field by field: what is written so and read as a
 * whole a moment later has to wait for the fields to reach the cache. */
static inline void ls_coll_describe(const ls_group *g, uint32_t seq, const ls_coll_args *a, size_t count,
                                    ls_coll_desc *d)
{
    d->generation = g->generation;
    d->group = g->id;
    d->seq = seq;
    d->coll = (uint8_t)a->coll;
    d->dtype = (uint8_t)a->dtype;
    d->op = (uint8_t)a->op;
    d->block = (uint8_t)(g->channel / LS_GROUP_CHANNELS);
    d->count = count;
    d->root = a->root;
    d->label = 0;
}

/* 32 bits that two ranks share only if they mean the same collective. */
static inline uint32_t ls_coll_signature(const ls_coll_desc *d)
{
    uint64_t h = ((uint64_t)d->generation << 32 | d->group) * 0x9e3779b97f4a7c15ull;
    h ^= ((uint64_t)d->seq << 32 | (uint32_t)d->coll << 24 | (uint32_t)d->dtype << 16 | (uint32_t)d->op << 8) +
         ((uint64_t)(uint32_t)(d->root + 1) * 0xc2b2ae3d27d4eb4full);
    h = (h ^ h >> 29) * 0xbf58476d1ce4e5b9ull;
    h ^= d->count * 0x94d049bb133111ebull;
    h = (h ^ h >> 32) * 0xd6e8feb86659fd93ull;
    return (uint32_t)(h >> 32);
}

/* The same for this call and all before it: whoever runs ahead of a difference takes it along. `more`: of its counts.
 * bench/verdict measures what LS_NO_VERDICT leaves out, here and below. */
static inline uint32_t ls_coll_sign(ls_group *g, const ls_coll_desc *d, uint32_t more)
{
#ifndef LS_NO_VERDICT
    return g->chain = (g->chain ^ ls_coll_signature(d) ^ more) * 0x9e3779b1u;
#else
    (void)d, (void)more;
    return g->chain;
#endif
}

/* For people: what this rank does. Behind what its peers wait for. */
static inline void ls_coll_entered(ls_group *g, const ls_coll_desc *d)
{
#ifndef LS_NO_VERDICT
    ls_page_enter(g->slot, d);
#else
    (void)d;
#endif
    _Atomic uint64_t *ops = &g->e->ops; /* one writer: the caller */
    atomic_store_explicit(ops, atomic_load_explicit(ops, memory_order_relaxed) + 1, memory_order_relaxed);
}

/* work.c: starts, waits, frees; what never entered the queue costs the least. */
ls_status ls_coll_run(ls_group *g, const ls_coll_args *a);
/* Goes on with a collective that quick.c has begun, the newest of the group; `shown`: what peers wait for is there. */
LS_COLD ls_status ls_coll_late(ls_group *g, const ls_coll_args *a, uint32_t sig, ls_work_kind kind, bool shown);

/* quick.c: a short blocking sum, broadcast or barrier without a work. */
ls_status ls_quick_all_reduce(ls_group *g, const void *in, void *out, size_t count, ls_dtype dtype, ls_redop op);
ls_status ls_quick_barrier(ls_group *g);
ls_status ls_quick_broadcast(ls_group *g, void *buf, size_t count, ls_dtype dtype, int root);
/* Whether a sum of so many bytes is a oneshot, alike on every rank. More than fits a line goes in packets. */
static inline bool ls_sum_is_short(const ls_group *g, size_t nbytes)
{
    return !g->crowded && nbytes <= LS_SHORT_SUM_BYTES && nbytes * ((size_t)g->size - 1) <= LS_SHORT_READ_BYTES;
}
/* Whether the collective that `a` spells goes there, except for its size. */
static inline bool ls_quick_fits(const ls_group *g, const ls_coll_args *a)
{
    return g && g->mapped && g->spins && !g->asks && !g->forced && !g->backend && g->size > 1 &&
           g->nspare > 0 && !ls_engine_threaded(g->e) &&
           atomic_load_explicit(&g->head, memory_order_relaxed) ==
               atomic_load_explicit(&g->tail, memory_order_relaxed) &&
           ls_args_plain(g, a);
}
/* A group is of no more use after st, and neither is the job. Returns the better cause, if there is one. */
ls_status ls_group_fail(ls_group *g, ls_status st);

/* group.c */
ls_status ls_group_create_world(ls_world *w);
void ls_group_free(ls_group *g);

/* select.c: how a work is carried out; and, for LS_WORK_EXEC, by which schedule. */
ls_work_kind ls_select(const ls_work *k);
/* What carried out the last collective of the group: an algorithm of the registry, or a form in mapped memory. */
const char *ls_select_ran(const ls_group *g);
ls_status ls_select_plan(const ls_work *k, ls_plan *out);
/* All that could be chosen for it, fastest first; out[LS_MAX_PLANS]. */
ls_status ls_select_plans(const ls_work *k, ls_plan *out, int *n);
/* Fills `asked` of a new group. LS_BAD_CONFIG: comm.algo or LOCKSTEP_ALGO names no algorithm, or
 * one that does not go with comm.wire. */
ls_status ls_select_init(ls_group *g);
/* Whether a work's values travel as bf16 where its group has members of other hosts. */
bool ls_select_narrow(const ls_work *k);

/* mapped.c: numbers a work in memory; shows the peers our vector, the first thing it does (its phase stays 0
 * while that is not possible yet); then one turn of it. */
void ls_mapped_number(ls_work *k);
/* staged.c: for the calling thread, before a long work is numbered: memory for what is private. */
void ls_staged_prepare(ls_work *k);
void ls_mapped_publish(ls_work *k);
ls_status ls_mapped_turn(ls_work *k);

/* run.c: one turn of a work that runs a schedule. */
ls_status ls_schedule_turn(ls_work *k);
void ls_sched_cache_free(struct ls_sched_cache *c);

/* p2p.c: messages have works and queues of their own. One turn of all of them: LS_OK when something moved. */
ls_status ls_p2p_start(ls_group *g, const ls_coll_args *a, ls_work **out);
uint64_t ls_p2p_sign(const ls_group *g); /* for a new group's p2p_sign */
/* Discards, with a warning, messages of this group that no call on this rank has received; every member calls it.
 * So a channel is empty when another group gets it. */
ls_status ls_p2p_drain(ls_group *g);
ls_status ls_p2p_turn(ls_group *g, struct ls_p2p_state *s);
bool ls_p2p_idle(struct ls_p2p_state *s);
void ls_p2p_recycle(ls_work *k);
void ls_p2p_free(struct ls_p2p_state *s); /* NULL is fine */

/* blame.c. ls_blame_mismatch(g, k, peer): LS_COLL_MISMATCH with both descriptions, also
 * as the job's cause. ls_blame_check, for the caller's thread while it waits: the same if a member has
 * entered something else under the number of a work in flight, waits for us in another group, or has left;
 * LS_RANK_DIED for the rank that serves the store; else LS_OK. ls_blame_timeout: LS_RANK_HUNG, which names the rank
 * that does not come, the pair and direction in which a message was lost, or says that neither can be known. */
ls_status ls_blame_mismatch(ls_group *g, const ls_work *k, int peer);
ls_status ls_blame_check(ls_group *g);
/* The same for an all_to_all to which a member sends `sends` elements, where we expect others. */
ls_status ls_blame_block(const ls_work *k, int member, size_t sends, size_t expects);
/* The same as ls_blame_mismatch for a message. */
ls_status ls_blame_message(ls_group *g, const ls_coll_desc *mine, const ls_coll_desc *theirs);
/* LS_COLL_MISMATCH if a member is known to have called something else as k's number: for works whose messages do
 * not say what they belong to. */
ls_status ls_blame_compare(ls_group *g, const ls_work *k);
/* The rank of the world that k waits for, as far as can be seen: for statistics. */
int ls_blame_whom(const ls_group *g, const ls_work *k);
ls_status ls_blame_timeout(ls_group *g, const ls_work *k, uint64_t waited_ns);
/* At the deadline: until when every rank that is waited for is excused by long work (net/task.h), or by what has just
 * ended; 0: one is not. */
uint64_t ls_blame_excused(const ls_group *g);

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

static inline void ls_count_bytes(ls_group *g, size_t n)
{
    _Atomic uint64_t *bytes = &g->e->bytes; /* one writer: whoever moves works */
    atomic_store_explicit(bytes, atomic_load_explicit(bytes, memory_order_relaxed) + n, memory_order_relaxed);
}

#endif
