/* context.h -- what belongs to the running thread (or fiber): its env, its
 * error sentence, and the rank it speaks for.
 *
 * The only thread-local of the library is the pointer to this struct, so that
 * a simulator can run many ranks on one thread by swapping it. */
#ifndef LS_BASE_CONTEXT_H
#define LS_BASE_CONTEXT_H
#include "base/env.h"

#define LS_ERROR_BYTES 496

typedef struct ls_context {
    const ls_env *env;
    int rank;                    /* -1 outside a world; prefixes log lines */
    int log_level;               /* base/log.h */
    bool live;                   /* a live line (a progress bar) stands on stderr: a line of the log erases it */
    bool stdout_lost;            /* something that was written to stdout got lost, other than by a reader who left */
    char error[LS_ERROR_BYTES];
} ls_context;

/* Never NULL: a thread starts with a context of its own. */
ls_context *ls_context_get(void);
/* Installs c (borrowed; NULL: back to the thread's own) and returns the previous one. */
ls_context *ls_context_swap(ls_context *c);

#endif
