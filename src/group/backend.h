/* backend.h -- the seam through which whole collectives leave for another library.
 *
 * Most groups carry out their collectives themselves, by schedules. Where comm.backend names another library (mpi),
 * it gets them whole: a plugin, one shared library per implementation, loaded when it is asked for, defines the table
 * below under the name LS_BACKEND_SYMBOL. The core links none of them. Calls come from one thread at a time.
 */
#ifndef LS_GROUP_BACKEND_H
#define LS_GROUP_BACKEND_H
#include <stdbool.h>
#include <stdint.h>
#include "base/context.h"
#include "lockstep/group.h"
#include "lockstep/shard.h"

#define LS_BACKEND_ABI 2u /* counted up when anything below changes */
#define LS_BACKEND_SYMBOL "ls_backend_plugin"

/* All three are the plugin's own. */
typedef struct ls_backend_lib ls_backend_lib;         /* one per world */
typedef struct ls_backend_group ls_backend_group;
typedef struct ls_backend_request ls_backend_request; /* a collective or message in flight */

/* A collective or message as ls_coll_args describes it, with the shares worked out. */
typedef struct ls_backend_call {
    ls_coll coll;
    ls_dtype dtype;
    ls_redop op;
    int root, peer;
    int tag;                    /* of a message: 0 to 511, for both ends to compare */
    const void *in;             /* NULL: in place */
    void *out;
    size_t count;
    bool rank_order;            /* add in ascending rank order, 16-bit types in f32 with one rounding */
    const ls_range *share;      /* [size] parts of the vector (all_to_all: of what is sent); read by start only */
    const ls_range *recv_share; /* [size] all_to_all: parts of what comes; else NULL */
} ls_backend_call;

/* `why` has LS_ERROR_BYTES for the sentence of a failure. */
typedef struct ls_backend_ops {
    uint32_t abi, nbytes;  /* LS_BACKEND_ABI and sizeof(ls_backend_ops) where the plugin was built, */
    const char *version;   /* and LOCKSTEP_VERSION */
    const char *made_for;  /* "Open MPI" */

    /* The library that would be used, with its version; may be called before open. */
    void (*describe)(char *buf, size_t n);

    /* Every rank calls it, and blocks until all have. `threaded`: the calling thread of the other functions changes. */
    ls_status (*open)(int rank, int size, bool threaded, ls_backend_lib **out, ls_backend_group **world, char *why);
    /* In step with the others; after a failure without waiting for them. */
    void (*close)(ls_backend_lib *lib, ls_backend_group *world, bool failed);

    /* Every rank of the parent calls it; color < 0: *out is NULL. Ranks keep their order. */
    ls_status (*split)(ls_backend_group *parent, int color, ls_backend_group **out, char *why);
    void (*destroy)(ls_backend_group *g); /* every member calls it */

    /* Starts, in the same order on every member. Failures before anything moves: LS_UNSUPPORTED, LS_NO_MEMORY. */
    ls_status (*start)(ls_backend_group *g, const ls_backend_call *c, ls_backend_request **out, char *why);
    /* LS_AGAIN while in flight; else the request is gone. */
    ls_status (*test)(ls_backend_request *r, char *why);
} ls_backend_ops;

/* --- the core's side (backend.c) ------------------------------------------------------------------------------ */

struct ls_engine;

/* For a command with backend mpi, before it checks anything that depends on the number of ranks: LS_UNSUPPORTED unless
 * the environment says that mpirun started this process. `ranks`: how many the message says to start; below 2: 2. */
ls_status ls_backend_launched(int ranks);
/* Loads and opens what opts.backend names; *out stays NULL for sched. LS_UNSUPPORTED says what to install or how to
 * start the ranks. Every rank calls it. */
ls_status ls_backend_open(struct ls_engine *e);
/* In a dry world, where nothing is loaded: opts.backend names another library. */
bool ls_backend_is_planned(const ls_world *w);
void ls_backend_close(struct ls_engine *e); /* where there is one */
ls_backend_group *ls_backend_world(const struct ls_engine *e); /* borrowed; NULL: no backend */

/* The plugins there can be, for people. False after the last. */
typedef struct ls_backend_info {
    const char *name;     /* "mpi-openmpi" */
    bool found;           /* and loads, and is made for this program */
    char text[720];       /* what library and where; or why it is off */
} ls_backend_info;
bool ls_backend_list(int i, ls_backend_info *out);

/* One turn of a work that goes there: starts it, then asks for it. */
ls_status ls_backend_turn(ls_work *k);
/* A group's part of ls_group_split, after all have agreed to it, and of ls_group_destroy. */
ls_status ls_backend_split(ls_group *parent, int color, ls_backend_group **out);
void ls_backend_destroy(struct ls_engine *e, ls_backend_group *g);

#endif
