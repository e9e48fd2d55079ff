/* select.c -- which algorithm carries out a collective.
 *
 * The choice depends only on what every rank knows alike (collective, size,
 * group, options), because all must choose the same.
 */
#include <string.h>

#include "group/impl.h"

#define WIRE_WHOLE_BYTES ((size_t)32 << 10) /* on a wire: below it one exchange of whole vectors beats two rounds */

static ls_status local(ls_work *k)
{
    size_t n = k->a.count * ls_dtype_size(k->a.dtype);
    k->kind = LS_WORK_LOCAL;
    if (k->a.in && k->a.in != k->a.out && n > 0) memcpy(k->a.out, k->a.in, n);
    return LS_OK;
}

static const char *default_schedule(const ls_group *g, ls_coll coll, size_t nbytes)
{
    switch (coll) {
    case LS_BROADCAST: return "tree";
    case LS_BARRIER: return "dissemination";
    default: break;
    }
    if (g->mapped) return "direct";
    return nbytes <= WIRE_WHOLE_BYTES ? "oneshot" : "ring";
}

ls_status ls_select(ls_work *k)
{
    ls_group *g = k->g;
    ls_coll coll = k->a.coll;
    size_t nbytes = k->a.count * ls_dtype_size(k->a.dtype);
    if (coll == LS_SENDRECV) {
        k->kind = LS_WORK_P2P;
        return LS_OK;
    }
    if (g->size == 1) return local(k);

    const char *asked = g->w->opts.algo;
    const ls_algo *algo = asked ? ls_algo_find(asked) : NULL;
    if (asked && !algo) return ls_fail(LS_BAD_CONFIG, "no algorithm named '%s': `lockstep coll --list` names them", asked);
    if (algo && !(algo->colls & 1u << coll)) algo = NULL; /* it does not serve this collective: choose */

    if (g->mapped && (!algo || algo->mapped)) {
        bool reduces = coll == LS_ALL_REDUCE || coll == LS_REDUCE_SCATTER || coll == LS_ALL_GATHER;
        bool whole = nbytes <= LS_ONESHOT_BYTES && (!algo || strcmp(algo->name, "oneshot") == 0);
        k->algo = ls_algo_find(default_schedule(g, coll, nbytes));
        if (coll == LS_BARRIER || whole) {
            k->kind = LS_WORK_ONESHOT;
            return LS_OK;
        }
        if (reduces && (!algo || strcmp(algo->name, "fold") == 0)) {
            k->kind = LS_WORK_MAPPED;
            return LS_OK;
        }
    }
    k->kind = LS_WORK_EXEC;
    k->algo = algo ? algo : ls_algo_find(default_schedule(g, coll, nbytes));
    return LS_OK;
}
