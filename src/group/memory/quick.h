/* quick.h -- short blocking collectives in memory without a work. */
#ifndef LS_GROUP_MEMORY_QUICK_H
#define LS_GROUP_MEMORY_QUICK_H
#include "group/args.h"
#include "group/engine.h"

/* A sum of ls_sum_is_short bytes; a barrier; a broadcast of up to LS_MAIL_MOST bytes. */
ls_status ls_quick_all_reduce(ls_group *g, const void *in, void *out, size_t count, ls_dtype dtype, ls_redop op);
ls_status ls_quick_barrier(ls_group *g);
ls_status ls_quick_broadcast(ls_group *g, void *buf, size_t count, ls_dtype dtype, int root);

/* Whether the collective that `a` spells goes there, except for its size. */
static inline bool ls_quick_fits(const ls_group *g, const ls_coll_args *a)
{
    return g && g->mapped && g->spins && !g->asks && !g->forced && !g->backend && g->size > 1 &&
           g->nspare > 0 && !ls_engine_threaded(g->e) &&
           atomic_load_explicit(&g->head, memory_order_relaxed) ==
               atomic_load_explicit(&g->tail, memory_order_relaxed) &&
           ls_args_plain(g, a);
}

#endif
