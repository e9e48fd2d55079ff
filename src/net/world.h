/* world.h -- a world from the inside: what transports and groups may touch. */
#ifndef LS_NET_WORLD_H
#define LS_NET_WORLD_H
#include "base/compiler.h"
#include "base/wait.h"
#include "lockstep/transport.h"
#include "lockstep/world.h"
#include "net/address.h"
#include "net/job_env.h"
#include "net/page.h"
#include "net/store.h"

/* What the threads of one process share instead of descriptors. */
typedef struct ls_thread_host {
    int size;
    ls_world_page *page;
    ls_arena *arena[LS_MAX_RANKS];
    const char *store_name;
    uint8_t secret[LS_SECRET_BYTES];
} ls_thread_host;

struct ls_world {
    int rank, size, local_rank, local_size;
    int nnodes;                       /* hosts of the job, numbered by their lowest rank */
    int node[LS_MAX_RANKS];           /* [size] which of them each rank is on; the same on every rank */
    int cpus;                         /* that the ranks of this host have together */
    uint64_t *unbound;                /* owned: the CPUs that this rank's thread had before ls_world_opts.bind; NULL */
    uint32_t generation;
    ls_world_opts opts;               /* defaults filled in */
    ls_job_source source;             /* who said which rank we are, */
    const char *source_text;          /* and that for people; static */
    bool threads;                     /* ranks are threads of this process */
    bool bounce_past_cache;           /* private messages are copied into shared memory past the caches; set by the
                                         group floor, by the calibration */
    bool by_hand;                     /* no launcher: rank 0 serves the store */

    ls_world_page *page;              /* this host's, mapped; owned unless threads. A slot for every rank of the world:
                                         those of ranks on other hosts show what was heard of them last */
    size_t page_bytes;
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
    char *peer_base[LS_MAX_RANKS];    /* the arena of each rank of this host as mapped here; else NULL */
    size_t peer_bytes[LS_MAX_RANKS];

    uint64_t proof[2];                /* for peers to read (attach.h) */
    uint64_t reads[LS_MAX_RANKS];     /* whose private memory each rank can read, a bit each; the same on every rank */

    ls_waiter waiter;
    const ls_transport_ops *tops;
    ls_transport *tp;

    ls_group *group;                  /* set and owned by the group floor */
    struct ls_engine *engine;         /* likewise: works in flight, progress */
    bool failed;                      /* leave without waiting; the rank's own thread sets it */
};

/* Everything up to the transport: page, store, arenas. */
ls_status ls_world_open(const ls_world_opts *opts, ls_world **out);
ls_status ls_world_open_thread(ls_thread_host *h, int rank, const ls_world_opts *opts, ls_world **out);
void ls_world_close(ls_world *w);

/* CPUs of all ranks of this host together (cores.c). Ranks that `lockstep run` did not start also get their share of
 * threads to compute with. Every rank calls it. */
ls_status ls_world_cores(ls_world *w, int *cpus);
/* Undoes ls_world_opts.bind. */
void ls_world_unbind(ls_world *w);
/* The calling thread runs on `count` of the CPUs that it may use, from the first-th (from 0) on. 0 or -errno. */
int ls_cores_stay_on(int first, int count);

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

/* What a rank that cannot join tells the others, so that they need not wait for it. Returns s, or the
 * cause when the job was given up already. */
ls_status ls_world_join_failed(ls_world *w, ls_status s);

/* Looks whether who serves this host's store (the launcher, or its first rank) is alive; if not, that is the job's
 * cause. Cheap, not free: for waits that stall. */
ls_status ls_world_check_server(ls_world *w);

/* The address of a peer's registered memory as mapped here, or NULL when [offset,
 * offset + n) is not inside its arena. Offsets come from shared memory: copy
 * them once, then ask. */
static inline char *ls_world_peer(const ls_world *w, int rank, uint64_t offset, size_t n)
{
    size_t size = w->peer_bytes[rank];
    return n <= size && offset <= size - n ? w->peer_base[rank] + offset : NULL;
}

/* A store served by a thread of this process. node0: NULL, or this host's link to the store of node 0, which is taken
 * over, also on failure; text says where that is. */
ls_status ls_store_serve(const ls_store_config *c, ls_store_client *node0, const char *text,
                         struct ls_store_server **out);
void ls_store_serve_stop(struct ls_store_server *s); /* NULL is fine; waits up to 2 s for the ranks to leave */

/* All ranks put `n` bytes under key/<rank>, all get everybody's: [size][n]. Blocking,
 * through the store: for setting up, not for work. */
ls_status ls_world_exchange(ls_world *w, const char *key, const void *mine, size_t n, void *all);

#endif
