/* complete.c -- the end of a work, whoever moved it. */
#include <string.h>

#include "group/engine.h"

void ls_work_complete(ls_work *k, ls_status st)
{
    ls_group *g = k->g;
    if (LS_LIKELY(st == LS_OK)) st = ls_unless_aborted(g->w);
    if (LS_UNLIKELY(st < 0)) memcpy(g->error, ls_last_error(), sizeof g->error);
    k->status = st;
    if (k->desc.coll != LS_SENDRECV) g->ran = k->form;
    if (k->t0_ns) {
        k->t1_ns = ls_env_get()->mono_ns();
        ls_world *w = g->w;
        atomic_store_explicit(&w->page->rank[w->rank].beat_ns, k->t1_ns, memory_order_relaxed);
    }
    if (LS_UNLIKELY(st < 0)) atomic_store_explicit(&g->frozen, st, memory_order_release); /* the rest stays */
    atomic_store_explicit(&k->done, 1, memory_order_release); /* results and status are visible */
}
