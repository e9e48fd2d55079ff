/* select.c -- which algorithm carries out a collective.
 *
 * The choice depends only on what every rank knows alike (collective, size,
 * group, options), because all must choose the same.
 */
#include <string.h>

#include "group/impl.h"

#define WIRE_WHOLE_BYTES ((size_t)32 << 10) /* on a wire: below it one exchange of whole vectors beats two rounds */
#define WHOLE_SUM_BYTES ((size_t)1 << 10)   /* in memory: above it copying into slots costs more than a second flag wait */

static const char *default_schedule(const ls_group *g, ls_coll coll, bool small)
{
    switch (coll) {
    case LS_BROADCAST: return "tree";
    case LS_BARRIER: return "dissemination";
    default: break;
    }
    if (g->mapped) return "direct";
    return small ? "oneshot" : "ring";
}

ls_status ls_select_init(ls_group *g)
{
    const char *asked = g->w->opts.algo;
    g->forced = asked ? ls_algo_find(asked) : NULL;
    if (asked && !g->forced) return ls_fail(LS_BAD_CONFIG, "no algorithm named '%s': `lockstep coll --list` names them", asked);
    for (int c = 0; c < LS_COLLS; c++)
        for (int small = 0; small < 2; small++) g->schedule[c][small] = ls_algo_find(default_schedule(g, (ls_coll)c, small));
    return LS_OK;
}

/* Whole vectors through the slots: always for barriers and forced oneshot, else below a size. */
static bool goes_whole(const ls_group *g, ls_coll coll, size_t nbytes, const ls_algo *forced)
{
    if (coll == LS_BARRIER) return true;
    if (nbytes > LS_ONESHOT_BYTES) return false;
    if (forced) return strcmp(forced->name, "oneshot") == 0;
    return coll == LS_ALL_GATHER || coll == LS_BROADCAST || nbytes <= WHOLE_SUM_BYTES || g->size == 1;
}

void ls_select(ls_work *k)
{
    ls_group *g = k->g;
    ls_coll coll = k->a.coll;
    size_t nbytes = k->a.count * ls_dtype_size(k->a.dtype);
    const ls_algo *forced = g->forced && (g->forced->colls & 1u << coll) ? g->forced : NULL;
    k->algo = forced && !forced->mapped ? forced : g->schedule[coll][nbytes <= WIRE_WHOLE_BYTES];
    if (coll == LS_SENDRECV) {
        k->kind = LS_WORK_P2P;
    } else if (g->size == 1) {
        k->kind = LS_WORK_LOCAL;
        if (k->a.in && k->a.in != k->a.out && nbytes > 0) memcpy(k->a.out, k->a.in, nbytes);
    } else if (g->mapped && (!forced || forced->mapped) && goes_whole(g, coll, nbytes, forced)) {
        k->kind = LS_WORK_ONESHOT;
    } else if (g->mapped && coll != LS_BROADCAST && (!forced || strcmp(forced->name, "fold") == 0)) {
        k->kind = LS_WORK_MAPPED;
    } else {
        k->kind = LS_WORK_EXEC;
        if (forced) k->algo = forced;
    }
}
