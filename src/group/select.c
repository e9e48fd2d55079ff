/* select.c -- which algorithm carries out a collective.
 *
 * The choice depends only on what every rank knows alike (collective, size,
 * group, and the terms that they agreed on when they joined), because all must
 * choose the same. Where the work is done in mapped memory, thresholds decide;
 * where it is a schedule, all that serve are timed by the cost model, once for
 * each power of two of the size.
 */
#include <stdlib.h>
#include <string.h>

#include "group/impl.h"

#define WIRE_WHOLE_BYTES ((size_t)32 << 10) /* on a wire: below it latency is all, and bf16 would not pay */
/* In memory, above it copying into slots costs more than a second flag wait, where that means that all ranks of a core
 * take their turns. (Where each has a core, lockstep calibrate says when; of whole sums ls_sum_is_short.) */
#define CROWDED_SUM_BYTES ((size_t)512) /* for each rank: a wait costs as many turns */
#define CROWDED_SHARE_BYTES ((size_t)8 << 10) /* of a sum of which a rank makes its share only */

/* Whether each chunk of an all_reduce is completed by one rank, which sends it to the others. */
static bool sums_once(const char *algo)
{
    return strcmp(algo, "ring") == 0 || strcmp(algo, "direct") == 0 || strcmp(algo, "hierarchical") == 0;
}

ls_status ls_select_init(ls_group *g)
{
    LS_TRY(ls_algo_parse(g->e->terms.algo, g->asked));
    for (int c = 0; c < LS_COLLS; c++) g->asks = g->asks || g->asked[c];
    const ls_algo *sums = g->asked[LS_ALL_REDUCE];
    if (sums && g->w->opts.wire_bf16 && !sums_once(sums->name))
        return ls_fail(LS_BAD_CONFIG,
                       "comm.wire: bf16 goes with comm.algo ring, direct or hierarchical, where one rank completes each "
                       "sum, not with %s",
                       sums->name);
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
    return ls_algo_find(g->nnodes == g->size || !g->w->tops->is_mapped ? "direct" : "hierarchical");
}

/* What is asked for, where it serves the collective. */
static const ls_algo *forced(const ls_group *g, ls_coll coll)
{
    return g->forced && (g->forced->colls & 1u << coll) ? g->forced : g->asked[coll];
}

static bool is_rooted(ls_coll coll)
{
    return coll == LS_BROADCAST || coll == LS_REDUCE || coll == LS_GATHER || coll == LS_SCATTER;
}

/* The most that any one rank writes for its peers. */
static size_t most_from_one(const ls_work *k)
{
    size_t elem = ls_dtype_size(k->a.dtype), most = 0;
    if (k->a.coll != LS_GATHER && k->a.coll != LS_ALL_GATHER) return k->nbytes;
    if (!k->counts) return ls_work_share(k, 0).count * elem; /* no share is longer */
    for (int r = 0; r < k->g->size; r++)
        if (k->counts[r] > most) most = k->counts[r];
    return most * elem;
}

/* Whole vectors through the slots: always for barriers and forced oneshot, else below a size. */
static bool goes_whole(const ls_work *k, const ls_algo *f)
{
    bool crowded = k->g->crowded;
    if (k->a.coll == LS_BARRIER) return true;
    size_t nbytes = crowded && !f ? most_from_one(k) : k->nbytes;
    if (nbytes > LS_ONESHOT_BYTES || k->recv_counts) return false; /* those may differ from rank to rank */
    if (f) return strcmp(f->name, "oneshot") == 0;
    if (k->a.coll == LS_ALL_REDUCE)
        return crowded ? nbytes <= CROWDED_SUM_BYTES * (size_t)k->g->size : ls_sum_is_short(k->g, nbytes);
    const ls_switch_points *s = &k->g->e->terms.cost.in_memory;
    if (k->a.coll == LS_REDUCE_SCATTER)
        return crowded ? nbytes <= CROWDED_SHARE_BYTES : (double)nbytes <= s->sum_in_place;
    return crowded || (double)nbytes <= s->copy_in_place;
}

ls_work_kind ls_select(const ls_work *k)
{
    const ls_group *g = k->g;
    ls_coll coll = k->a.coll;
    if (g->size == 1) return LS_WORK_LOCAL;
    if (g->backend) return LS_WORK_BACKEND;
    const ls_algo *f = g->forced || g->asks ? forced(g, coll) : NULL;
    if (!g->mapped || (f && !f->mapped)) return LS_WORK_EXEC;
    if (is_rooted(coll)) {
        if (most_from_one(k) <= LS_MAIL_MOST) return LS_WORK_MAIL;
        return coll == LS_REDUCE ? LS_WORK_MAPPED : LS_WORK_ROOTED;
    }
    if (goes_whole(k, f)) return LS_WORK_ONESHOT;
    return !f || strcmp(f->name, "fold") == 0 ? LS_WORK_MAPPED : LS_WORK_EXEC;
}

/* --- schedules ------------------------------------------------------------------------------ */

#define CLASSES 48 /* powers of two */

struct ls_plans {
    struct { const ls_algo *asked; ls_plan plan; } of[2][LS_COLLS][CLASSES]; /* [1]: rounded once */
};

static int class_of(size_t nbytes)
{
    int c = nbytes <= 1 ? 0 : 64 - __builtin_clzll((unsigned long long)nbytes - 1);
    return c < CLASSES ? c : CLASSES - 1;
}

/* fold has no form for memory that is not mapped; direct gives the same bits. NULL: what is fastest. */
static const ls_algo *wanted(const ls_work *k)
{
    const ls_algo *f = forced(k->g, k->a.coll);
    ls_shape shape = { .coll = k->a.coll, .size = k->g->size, .segments = 1, .nlanes = 1, .node = k->g->node,
                       .uneven = k->a.coll == LS_ALL_TO_ALL && k->counts };
    if (f && (!f->fits || f->fits(&shape))) return strcmp(f->name, "fold") == 0 ? ls_algo_find("direct") : f;
    return ls_select_narrow(k) ? narrow_schedule(k->g) : NULL;
}

/* Sums in one pass over all vectors: in mapped memory, where its own forms add so; and of 16-bit types, which are
 * rounded once then, on one host. (Across hosts every pass over a wire counts for more.) */
static bool in_one_pass(const ls_work *k)
{
    return k->g->mapped || (ls_dtype_size(k->a.dtype) == 2 && k->g->nnodes == 1);
}

ls_status ls_select_plans(const ls_work *k, ls_plan *out, int *n)
{
    const ls_group *g = k->g;
    const char *wire = g->w->tops->name;
    ls_machine m = { .cost = &g->e->terms.cost, .memory = strcmp(wire, "shm") == 0 || strcmp(wire, "mixed") == 0,
                     .cores = g->cores };
    ls_question q = { .coll = k->a.coll, .size = g->size, .node = g->node, .nlanes = LS_GROUP_LANES,
                      .only = wanted(k) };
    q.ascending = !q.only && in_one_pass(k);
    return ls_choose(&m, &q, (size_t)1 << class_of(k->nbytes), out, n);
}

ls_status ls_select_plan(const ls_work *k, ls_plan *out)
{
    ls_group *g = k->g;
    if (k->a.coll == LS_ALL_TO_ALL && k->counts) { /* ranks do not share nbytes: nothing may depend on it */
        const ls_algo *f = wanted(k);
        *out = (ls_plan){ .algo = f ? f : ls_algo_find("pairwise"), .segments = 1, .nlanes = 1 };
        return LS_OK;
    }
    if (!g->plans && !(g->plans = calloc(1, sizeof *g->plans))) return ls_fail(LS_NO_MEMORY, "plans of group %u", g->id);
    int c = class_of(k->nbytes), once = in_one_pass(k);
    const ls_algo *asked = wanted(k), **made_for = &g->plans->of[once][k->a.coll][c].asked;
    ls_plan *plan = &g->plans->of[once][k->a.coll][c].plan;
    if (!plan->algo || *made_for != asked) {
        ls_plan all[LS_MAX_PLANS];
        int n;
        LS_TRY(ls_select_plans(k, all, &n));
        *plan = all[0];
        *made_for = asked;
    }
    *out = *plan;
    return LS_OK;
}

const char *ls_select_ran(const ls_group *g)
{
    switch (g->ran) {
    case LS_WORK_LOCAL: return "local";
    case LS_WORK_ONESHOT: return "oneshot";
    case LS_WORK_MAPPED: return "fold";
    case LS_WORK_MAIL: return "mail";
    case LS_WORK_ROOTED: return "rooted";
    case LS_WORK_STAGED: return "staged";
    case LS_WORK_ATTACHED: return "attached";
    case LS_WORK_BACKEND: return g->w->opts.backend;
    default: return g->ran_algo ? g->ran_algo->name : "none";
    }
}
