/* world.h -- the ranks of a job, as one rank sees them.
 *
 * A world joins processes (started by `lockstep run`, by torchrun's
 * environment, or without a launcher) or threads of one process. Afterwards every rank
 * holds a handle with its rank, the world's size, an arena that local peers
 * have mapped, and the group of all ranks.
 */
#ifndef LS_WORLD_H
#define LS_WORLD_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "lockstep/mem.h"
#include "lockstep/status.h"
#include "lockstep/trace.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How many ranks a world may have, and how many of them one host: those have mapped each other's memory, and each looks
 * at all others in every collective. */
#define LS_WORLD_MOST_RANKS 65536
#define LS_HOST_MOST_RANKS 256

typedef struct ls_world ls_world;
typedef struct ls_group ls_group;

typedef enum ls_progress_mode {
    LS_PROGRESS_INLINE, /* the computing thread progresses collectives between operations */
    LS_PROGRESS_THREAD  /* one more thread per rank does */
} ls_progress_mode;

/* How bytes between two nodes are protected. Both ends always authenticate first. */
typedef enum ls_security {
    LS_SECURITY_DEFAULT, /* ENCRYPT between nodes, AUTH on the loopback */
    LS_SECURITY_AUTH,    /* as they are: checksums find accidents, not attackers */
    LS_SECURITY_ENCRYPT  /* encrypted and authenticated: no one on the way can read or change them */
} ls_security;

/* How to join. Zero-initialise, then set what matters; 0 and NULL mean the default. */
typedef struct ls_world_opts {
    const char *backend;        /* the engine of collectives: "sched" (default: Lockstep), or "mpi": the MPI
                                   library, whole, for ranks that mpirun started (docs/mpi.md) */
    bool rank_order;            /* backend mpi: sums in ascending rank order, bit-identical to "sched" on one node, by an
                                   exchange and a gathering in place of the library's own call */
    const char *transport;      /* "shm" (default on one node), "tcp", "mixed" (default on several: shm within a
                                   node, tcp between them), "self"; "fault:<inner>" for tests */
    const char *algo;           /* NULL: chosen by size; else a name of `lockstep coll --list` */
    const size_t *arena_of;     /* ls_world_threads: [size] arena_bytes of each rank, borrowed during the call;
                                   NULL: all alike */
    size_t arena_bytes;         /* of this rank's shared arena to begin with, default 448 KiB: it grows when more is
                                   allocated. Who knows how much it will be gets it in one piece */
    uint64_t join_timeout_ns;   /* default 60 s */
    uint64_t coll_timeout_ns;   /* default 30 s */
    ls_progress_mode progress;
    const int *node;            /* [world size], read while joining: as if rank r were on node node[r] (any numbers,
                                   the same on every rank): algorithms are picked for that, and "mixed" keeps
                                   shm within such a node. NULL: where the ranks are */
    bool no_crc;                /* tcp: skip the frame checksums (comm.check: none) */
    ls_security security;       /* of tcp (comm.security) */
    const char *listen;         /* address of this node to listen on for other nodes; default: the one they reach it by,
                                   and the loopback alone for a job on one node. Any but the loopback needs a secret:
                                   LS_AUTH_FAILED says how to make one */
    bool wire_bf16;             /* tcp, mixed: sums and averages of f32 by all_reduce and reduce_scatter, above 32 KiB,
                                   travel between nodes as bf16 (comm.wire: bf16): docs/collectives.md has the rule
                                   of rounding. The same on every rank. With another transport: LS_BAD_CONFIG */
    int rank, size;             /* with size > 0 the program says which rank this process is, as with PyTorch's
                                   init_process_group(rank=, world_size=): no launcher is needed. LS_CONFIG_MISMATCH
                                   names both where the environment says something else */
    const char *master_addr;    /* with size: where the ranks meet. NULL: MASTER_ADDR, else localhost */
    int master_port;            /* with size: 0: MASTER_PORT */
    bool bind;                  /* without a launcher: each rank of a node runs on its own equal part of the cores, as
                                   under `lockstep run`, until it leaves. No effect with more ranks than cores, or where
                                   the ranks may already use different cores */
} ls_world_opts;

/* Joins the job that the environment describes: RANK, WORLD_SIZE, LOCAL_RANK,
 * LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT; else what Open MPI's mpirun sets, else
 * PMI's variables (MPICH, Intel MPI), else Slurm's; nothing set: what opts->rank and
 * opts->size say, else a world of one.
 * Where OMP_NUM_THREADS is unset (`lockstep run` sets it), a rank computes with no more
 * threads than usable cores / local ranks.
 * Blocks until every rank has joined. LS_JOIN_TIMEOUT names the missing ranks,
 * LS_PORT_BUSY the port and its holder, LS_INVALID a variable that is wrong. */
ls_status ls_world_join(const ls_world_opts *opts, ls_world **out);

/* True when a launcher has started this process as a rank; then *rank and *size are what the environment says, as
 * far as it can be read (joining names what is wrong). False: rank 0 of size 1. */
bool ls_world_launched(int *rank, int *size);

/* Leaves in step with the others and frees everything. NULL is fine. On an
 * error path it does not wait. ls_last_error() says what it said before. */
void ls_world_leave(ls_world *w);

/* Runs `fn` on `size` ranks that are threads of this process, joins them, and
 * returns the first failure (ls_last_error() carries that rank's message). */
typedef ls_status (*ls_rank_fn)(ls_world *w, void *arg);
ls_status ls_world_threads(int size, const ls_world_opts *opts, ls_rank_fn fn, void *arg);
/* Runs `fn` as the rank that this process is: joins the job (ls_world_join), ends it if fn fails (ls_world_abort), and
 * leaves. Returns what joining or fn returned; ls_last_error() has its message. */
ls_status ls_world_run(const ls_world_opts *opts, ls_rank_fn fn, void *arg);

int ls_world_rank(const ls_world *w);
int ls_world_size(const ls_world *w);
int ls_world_local_rank(const ls_world *w);
int ls_world_local_size(const ls_world *w);
/* 1; each time that its launcher starts a failed job again one more. */
uint32_t ls_world_generation(const ls_world *w);
/* Who said so: "Open MPI's environment (OMPI_COMM_WORLD_RANK)". Static text. */
const char *ls_world_source(const ls_world *w);
ls_group *ls_world_group(ls_world *w);   /* borrowed: all ranks; NULL for no world */
ls_tracer *ls_world_tracer(ls_world *w); /* borrowed */
ls_ledger *ls_world_ledger(ls_world *w); /* borrowed: this rank's memory by kind */
/* Bytes in use of this rank's shared arena. In a dry world (group.h), after the calls that a real rank would make: what
 * to ask for in arena_bytes. Of what all ranks of a group share (ls_group_alloc_shared) its rank 0 has all and the
 * others none. */
size_t ls_world_arena_used(const ls_world *w);
const char *ls_world_transport(const ls_world *w); /* "shm": what was asked for or chosen; lives as long as w */

/* Says where the rank is ("step 12"), for the failure report. */
void ls_world_at(ls_world *w, uint32_t step, uint16_t micro_batch);

/* Ends the job: the first caller's status and message become the cause
 * on every rank; every wait in every rank returns LS_ABORTED within about a
 * millisecond. Returns s. */
ls_status ls_world_abort(ls_world *w, ls_status s);

/* Registered memory: from the arena that local peers have mapped, 64-byte
 * aligned. Lives as long as the world. */
ls_status ls_alloc(ls_world *w, size_t nbytes, ls_mem_kind kind, void **out);
/* Counts [p, p + nbytes) of memory from ls_alloc in the ledger's row of a unit; fails as ls_arena_assign. */
ls_status ls_assign(ls_world *w, const void *p, size_t nbytes, int unit);

/* This rank's ring keeps its newest `events` (64 bytes each, in the world page, not in the ledger) from now on,
 * LS_BLACKBOX_MOST at most, and begins empty; up to LS_BLACKBOX_EVENTS nothing changes. LS_NO_MEMORY: there is no
 * shared memory for it, and the ring stays as it was. */
ls_status ls_world_trace_capacity(ls_world *w, uint64_t events);
/* Merges the traces of all local ranks into the Chrome trace at `path`; for
 * one rank to call while the others do not train (between two barriers). */
ls_status ls_world_trace_export(ls_world *w, uint32_t first_step, uint32_t last_step, const char *path);

#ifdef __cplusplus
}
#endif
#endif
