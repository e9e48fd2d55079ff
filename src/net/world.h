/* world.h -- a world from the inside: what transports and groups may touch. net/open.h has what makes one. */
#ifndef LS_NET_WORLD_H
#define LS_NET_WORLD_H
#include "base/compiler.h"
#include "base/rank_set.h"
#include "base/wait.h"
#include "lockstep/transport.h"
#include "lockstep/world.h"
#include "meet/address.h"
#include "meet/job_env.h"
#include "meet/page.h"
#include "meet/store.h"

/* The segments of a peer's arena behind the first, which are mapped when they are needed. */
typedef struct ls_peer_segments {
    _Atomic uint64_t mapped; /* which of them are, a bit each (release) */
    ls_segment segment[LS_ARENA_SEGMENTS];
} ls_peer_segments;
_Static_assert(LS_ARENA_SEGMENTS <= 64, "a bit each");

struct ls_world {
    int rank, size, local_rank, local_size;
    int nnodes;                       /* hosts of the job, numbered by their lowest rank */
    int *node;                        /* owned, [size]: which of them each rank is on; the same on every rank */
    int cpus;                         /* that the ranks of this host have together */
    uint64_t *unbound;                /* owned: the CPUs that this rank's thread had before ls_world_opts.bind; NULL */
    uint32_t generation;
    ls_world_opts opts;               /* defaults filled in */
    ls_job_source source;             /* who said which rank we are, */
    const char *source_text;          /* and that for people; static */
    bool threads;                     /* ranks are threads of this process */
    bool alone;                       /* no other rank is there (dry.c), */
    bool dry;                         /* and what is allocated has addresses, and no memory */
    bool bounce_past_cache;           /* private messages are copied into shared memory past the caches; set by the
                                         group floor, by the calibration */
    bool by_hand;                     /* no launcher: rank 0 serves the store */

    ls_world_page *page;              /* this host's, mapped; owned unless threads. A slot for every rank of the world:
                                         those of ranks on other hosts show what was heard of them last */
    ls_store_client *store;           /* owned: where all ranks meet; NULL in a world of one */
    ls_store_client *host_store;      /* where those of this host do: owned, or `store` itself */
    uint8_t job[LS_DOOR_JOB_BYTES];   /* the job's name, and the key that links between its ranks derive theirs from */
    uint8_t link_key[LS_NOISE_KEY_BYTES];
    char address[LS_ADDRESS_BYTES];   /* ours, for the other ranks: "127.0.0.1" within one host */
    char listen[LS_ADDRESS_BYTES];    /* and the one to listen on */
    struct ls_store_server *server;   /* owned: without a launcher the first rank of each host serves a store */
    int host_first;                   /* that rank, of this host */

    ls_ledger ledger;
    ls_tracer *tracer;                /* owned */
    ls_arena *arena;                  /* this rank's shared arena; owned unless threads */
    ls_arena *elsewhere;              /* owned: in a world of one rank alone, what others would lend; NULL: none yet */
    char **peer_base;                 /* owned, [size]: the first segment of the arena of each rank of this host, as
                                         mapped here; else NULL */
    size_t *peer_bytes;               /* owned, [size] */
    _Atomic(ls_peer_segments *) *peer_more; /* owned, [size]: the others; NULL: none was needed yet */
    ls_arena *const *thread_arena;    /* borrowed: of ranks that are threads, whose arenas are mapped; else NULL */
    _Atomic uint32_t store_busy;      /* 1 while a thread of this rank talks to a store after the join */

    uint64_t proof[2];                /* for peers to read (attach.h) */
    ls_rank_set *reads;               /* owned, [size]: of each rank of this host, whose private memory it can read; the
                                         same on all of them. NULL: nobody can */

    ls_waiter waiter;
    const ls_transport_ops *tops;     /* that opts.transport names, and */
    const ls_transport_ops *inner;    /* the one that it names behind a colon, as in fault:shm; NULL: none */
    ls_transport *tp;

    ls_group *group;                  /* set and owned by the group floor */
    struct ls_engine *engine;         /* likewise: works in flight, progress */
    bool failed;                      /* leave without waiting; the rank's own thread sets it */
    bool lint;                        /* notes all_reduces for `lockstep run --lint` */
};

/* What there is one of for each rank, all zero; for worlds that are made by hand, in tests. LS_NO_MEMORY. */
ls_status ls_world_make_room(ls_world *w);
void ls_world_free_room(ls_world *w);

/* peers.c: makes this rank's arena and maps those of its host; undoes the latter. */
ls_status ls_world_share_arenas(ls_world *w, uint64_t deadline_ns);
void ls_world_unmap_peers(ls_world *w);

/* CPUs of all ranks of this host together (cores.c). Ranks that `lockstep run` did not start also get their share of
 * threads to compute with. Every rank calls it. */
ls_status ls_world_cores(ls_world *w, int *cpus);
/* Cores of all ranks of this host, for plans: a rank that a launcher has bound sees only its own, and was told. */
int ls_world_cpus_here(void);
/* Undoes ls_world_opts.bind. */
void ls_world_unbind(ls_world *w);
/* The calling thread runs on `count` of the CPUs that it may use, from the first-th (from 0) on. 0 or -errno. */
int ls_cores_stay_on(int first, int count);

/* Whether every rank of this host has a core, and its thread for communication another one. */
static inline bool ls_world_has_cores(const ls_world *w)
{
    return w->cpus >= w->local_size * (w->opts.progress == LS_PROGRESS_THREAD ? 2 : 1);
}

/* Whether a rank is on this host: its arena is mapped here and its slot in the page is its own. */
static inline bool ls_world_is_local(const ls_world *w, int rank) { return w->node[rank] == w->node[w->rank]; }

/* Wakes a rank that may sleep. A race costs it at most its 1 ms nap. */
static inline void ls_world_wake(ls_world *w, int rank)
{
    _Atomic uint32_t *parked = &w->page->rank[rank].parked;
    if (LS_UNLIKELY(atomic_load_explicit(parked, memory_order_relaxed))) {
        atomic_store_explicit(parked, 0, memory_order_relaxed);
        ls_env_get()->wake((const uint32_t *)(const void *)parked);
    }
}

/* Fills this thread's error with the job's cause and returns LS_ABORTED (or the
 * cause's own status when this rank was the first). */
ls_status ls_world_aborted(ls_world *w);

/* What this rank should report, given s: where no launcher of ours speaks for a rank that died, one survivor does,
 * and gets LS_RANK_DIED with the sentence; else s. */
ls_status ls_world_verdict(ls_world *w, ls_status s);

/* Looks whether who serves this host's store (the launcher, or its first rank) is alive; if not, that is the job's
 * cause. Cheap, not free: for waits that stall. */
ls_status ls_world_check_server(ls_world *w);

/* The same in a segment behind the first, which is mapped if it was not yet. */
LS_COLD char *ls_world_peer_more(ls_world *w, int rank, uint64_t offset, size_t n);

/* The address of a peer's registered memory as mapped here, or NULL when [offset,
 * offset + n) is not inside its arena. Offsets come from shared memory: copy
 * them once, then ask. */
static inline char *ls_world_peer(ls_world *w, int rank, uint64_t offset, size_t n)
{
    size_t size = w->peer_bytes[rank];
    if (LS_LIKELY(n <= size && offset <= size - n)) return w->peer_base[rank] + offset;
    return offset >> LS_ARENA_PLACE_BITS ? ls_world_peer_more(w, rank, offset, n) : NULL;
}

/* Where registered memory of ours lies, for peers to ask ls_world_peer; LS_NOT_REGISTERED: it is not ours, or not in
 * one piece. */
#define LS_NOT_REGISTERED UINT64_MAX
static inline uint64_t ls_world_offset(const ls_world *w, const void *p, size_t n)
{
    const uintptr_t place = (uintptr_t)p - (uintptr_t)w->peer_base[w->rank];
    const size_t size = w->peer_bytes[w->rank];
    uint64_t offset;
    if (LS_LIKELY(n <= size && place <= size - n)) return place;
    return ls_arena_offset(w->arena, p, n, &offset) ? offset : LS_NOT_REGISTERED;
}

/* All ranks put `n` bytes under a key, all get everybody's: [size][n]. Blocking, once for each key,
 * through the store: for setting up, not for work. In a dry world everybody says what this rank does. */
ls_status ls_world_exchange(ls_world *w, const char *key, const void *mine, size_t n, void *all);

#endif
