/* waits.c -- in which group another rank waits. */
#include "group/waits.h"

static bool has_member(const ls_group *g, int rank)
{
    for (int r = 0; r < g->size; r++)
        if (g->world_rank[r] == rank) return true;
    return false;
}

const ls_group *ls_group_waited(const ls_engine *e, int rank, uint64_t waits_for, ls_coll_desc *where)
{
    for (int i = 0; waits_for && i < LS_MAX_GROUPS; i++) {
        const ls_group *g = atomic_load_explicit(&e->group[i], memory_order_relaxed);
        if (!g || g->id != ls_waited_group(waits_for) || !has_member(g, rank)) continue;
        *where = (ls_coll_desc){ .group = g->id, .seq = ls_waited_seq(waits_for), .block = (uint8_t)i };
        return g;
    }
    return NULL;
}
