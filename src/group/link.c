/* link.c -- what a message between members of a group costs. */
#include "group/link.h"

#include "group/backend.h"
#include "group/engine.h"
#include "net/transports.h"

/* Of links that a fault transport slows down, the lowest rate; 0: there is none. */
static uint64_t lowest_rate(const ls_group *g)
{
    uint64_t lowest = 0;
    for (int i = 0; i < g->size; i++)
        for (int j = i + 1; j < g->size; j++) {
            const uint64_t rate = ls_fault_rate(g->w->opts.transport, g->world_rank[i], g->world_rank[j]);
            if (rate > 0 && (lowest == 0 || rate < lowest)) lowest = rate;
        }
    return lowest;
}

bool ls_group_link(const ls_group *g, ls_link_cost *out)
{
    if (!g || g->size < 2 || g->mapped || g->backend || ls_backend_is_planned(g->w)) return false;
    const uint64_t rate = lowest_rate(g);
    if (g->nnodes < 2 && rate == 0) return false;
    *out = g->e->tuning.cost.link[g->nnodes > 1 ? LS_LEVEL_NETWORK : LS_LEVEL_LOOPBACK];
    const double byte_ns = rate > 0 ? 1e9 / (double)rate : 0;
    if (byte_ns > out->beta_ns) out->beta_ns = byte_ns;
    return true;
}
