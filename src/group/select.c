/* select.c -- which algorithm carries out a collective.
 *
 * The choice depends only on what every rank knows alike (collective, size,
 * group, options), because all must choose the same.
 */
#include <string.h>

#include "group/impl.h"

#define WIRE_WHOLE_BYTES ((size_t)32 << 10) /* on a wire: below it one exchange of whole vectors beats two rounds */
#define WHOLE_SUM_BYTES \
    ((size_t)1 << 10) /* in memory: above it copying into slots costs more than a second flag wait */

/* Whether each chunk of an all_reduce is completed by one rank, which sends it to the others. */
static bool sums_once(const char *algo)
{
    return strcmp(algo, "ring") == 0 || strcmp(algo, "direct") == 0 || strcmp(algo, "hierarchical") == 0;
}

ls_status ls_select_init(ls_group *g)
{
    const char *asked = g->w->opts.algo;
    g->forced = asked ? ls_algo_find(asked) : NULL;
    if (asked && !g->forced)
        return ls_fail(LS_BAD_CONFIG, "no algorithm named '%s': `lockstep coll --list` names them", asked);
    if (asked && g->w->opts.wire_bf16 && (g->forced->colls & 1u << LS_ALL_REDUCE) && !sums_once(asked))
        return ls_fail(LS_BAD_CONFIG,
                       "comm.wire: bf16 goes with comm.algo ring, direct or hierarchical, where one rank completes each "
                       "sum, not with %s",
                       asked);
    return LS_OK;
}

bool ls_select_narrow(const ls_work *k)
{
    const ls_group *g = k->g;
    return LS_UNLIKELY(g->narrow != 0) && k->a.coll == LS_ALL_REDUCE && k->a.dtype == LS_F32 &&
           (k->a.op == LS_SUM || k->a.op == LS_AVG) && k->nbytes > WIRE_WHOLE_BYTES;
}

/* Every contribution rounded once and added in f32; with several ranks a host, once a host. */
static const ls_algo *narrow_schedule(const ls_group *g)
{
    return ls_algo_find(g->nnodes == g->size || !g->w->tops->near ? "direct" : "hierarchical");
}

/* comm.algo where it serves the collective. */
static const ls_algo *forced(const ls_group *g, ls_coll coll)
{
    return g->forced && (g->forced->colls & 1u << coll) ? g->forced : NULL;
}

static bool is_rooted(ls_coll coll)
{
    return coll == LS_BROADCAST || coll == LS_REDUCE || coll == LS_GATHER || coll == LS_SCATTER;
}

/* The most that any one rank writes for its peers: for those with a root. */
static size_t most_from_one(const ls_work *k)
{
    size_t elem = ls_dtype_size(k->a.dtype), most = 0;
    if (k->a.coll != LS_GATHER) return k->nbytes;
    if (!k->counts) return ls_work_share(k, 0).count * elem; /* no share is longer */
    for (int r = 0; r < k->g->size; r++)
        if (k->counts[r] > most) most = k->counts[r];
    return most * elem;
}

/* Whole vectors through the slots: always for barriers and forced oneshot, else below a size. */
static bool goes_whole(const ls_work *k, const ls_algo *f)
{
    if (k->a.coll == LS_BARRIER) return true;
    if (k->nbytes > LS_ONESHOT_BYTES || k->recv_counts) return false; /* those may differ from rank to rank */
    if (f) return strcmp(f->name, "oneshot") == 0;
    return k->a.coll == LS_ALL_GATHER || k->a.coll == LS_ALL_TO_ALL || k->nbytes <= WHOLE_SUM_BYTES;
}

ls_work_kind ls_select(const ls_work *k)
{
    const ls_group *g = k->g;
    ls_coll coll = k->a.coll;
    if (g->size == 1) return LS_WORK_LOCAL;
    if (g->backend) return LS_WORK_BACKEND;
    const ls_algo *f = g->forced ? forced(g, coll) : NULL;
    if (!g->mapped || (f && !f->mapped)) return LS_WORK_EXEC;
    if (is_rooted(coll)) {
        if (most_from_one(k) <= LS_MAIL_MOST) return LS_WORK_MAIL;
        return coll == LS_REDUCE ? LS_WORK_MAPPED : LS_WORK_ROOTED;
    }
    if (goes_whole(k, f)) return LS_WORK_ONESHOT;
    return !f || strcmp(f->name, "fold") == 0 ? LS_WORK_MAPPED : LS_WORK_EXEC;
}

const ls_algo *ls_select_schedule(const ls_work *k, const ls_shape *shape)
{
    const ls_group *g = k->g;
    const ls_algo *f = forced(g, k->a.coll);
    /* fold has no form for memory that is not mapped; direct gives the same bits */
    if (f && (!f->fits || f->fits(shape))) return strcmp(f->name, "fold") == 0 ? ls_algo_find("direct") : f;
    if (ls_select_narrow(k)) return narrow_schedule(g);
    switch (k->a.coll) {
    case LS_BROADCAST: return ls_algo_find("tree");
    case LS_BARRIER: return ls_algo_find("dissemination");
    case LS_REDUCE:
    case LS_GATHER:
    case LS_SCATTER: return ls_algo_find("linear");
    case LS_ALL_TO_ALL: return ls_algo_find("pairwise");
    default: return ls_algo_find(g->mapped ? "direct" : k->nbytes <= WIRE_WHOLE_BYTES ? "oneshot" : "ring");
    }
}

const char *ls_select_ran(const ls_group *g)
{
    switch (g->ran) {
    case LS_WORK_LOCAL: return "local";
    case LS_WORK_ONESHOT: return "oneshot";
    case LS_WORK_MAPPED: return "fold";
    case LS_WORK_MAIL: return "mail";
    case LS_WORK_ROOTED: return "rooted";
    case LS_WORK_BACKEND: return g->w->opts.backend;
    default: return g->ran_algo ? g->ran_algo->name : "none";
    }
}
