/* open.h -- opening a world and closing it. It is above transports, which know net/world.h only. */
#ifndef LS_NET_OPEN_H
#define LS_NET_OPEN_H
#include "meet/job_env.h"
#include "net/world.h"

#define LS_WORLD_ARENA_BYTES ((size_t)448 << 10) /* of a rank's first segment, by default */

/* What ranks that one process starts (group/local_ranks.h), threads or copies of it, share instead of descriptors. */
typedef struct ls_thread_host {
    int size;
    bool processes;                   /* none sees how the arena of another grows: they do not */
    ls_world_page *page;
    ls_arena **arena;                 /* [size] */
    const char *store_name;
    uint8_t secret[LS_SECRET_BYTES];
} ls_thread_host;

/* open.c: a world but for its group: page, store, arenas, transport. */
ls_status ls_world_open(const ls_world_opts *opts, ls_world **out);
ls_status ls_world_open_thread(ls_thread_host *h, int rank, const ls_world_opts *opts, ls_world **out);
void ls_world_close(ls_world *w);
/* Options, with defaults for those that nobody gave. */
void ls_world_fill_defaults(ls_world *w, const ls_world_opts *opts);

/* What a rank that cannot join tells the others, so that they need not wait for it. Returns s, or the
 * cause when the job was given up already. */
ls_status ls_world_join_failed(ls_world *w, ls_status s);

/* dry.c: a world whose other ranks are not there; node[r] (NULL: all on one): the host of rank r. `dry`: what is
 * allocated in it has addresses, and no memory. */
ls_status ls_world_open_alone(int rank, int size, const int *node, const ls_world_opts *opts, bool dry, ls_world **out);
const char *ls_world_alone_name(bool dry); /* "a dry world" or "a mirror": in messages */

/* rendezvous.c: a process meets the other ranks of its job: afterwards page, stores and arenas are there. */
ls_status ls_world_rendezvous(ls_world *w, const ls_job_env *j);
/* Until every rank has said hello to the store. LS_JOIN_TIMEOUT names those that have not. */
ls_status ls_world_wait_for_all(ls_world *w, uint64_t deadline_ns);

#endif
