/* choice.c -- which schedule carries out a collective.
 *
 * The choice depends only on what every rank knows alike (collective, size, group, and the tuning that they agreed on
 * when they joined), because all must choose the same. All schedules that serve are timed by the cost model, once for
 * each power of two of the size.
 */
#include "group/choice.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "group/engine.h"

#define WIRE_WHOLE_BYTES ((size_t)32 << 10) /* on a wire: below it latency is all, and bf16 would not pay */

/* Collectives whose sums may travel as bf16: those that gradients are reduced by. */
static bool may_be_narrow(ls_coll c) { return c == LS_ALL_REDUCE || c == LS_REDUCE_SCATTER; }

static LS_COLD ls_status not_narrow(ls_coll coll, const ls_algo *asked)
{
    char names[256] = "";
    size_t at = 0;
    for (int i = 0; ls_algos[i] && at < sizeof names; i++)
        if (ls_algos[i]->one_owner && ls_algos[i]->colls & 1u << coll)
            at += (size_t)snprintf(names + at, sizeof names - at, "%s%s", at ? ", " : "", ls_algos[i]->name);
    return ls_fail(LS_BAD_CONFIG, "comm.wire: bf16 goes with an algorithm of %s where one rank completes each sum (%s), "
                   "not with %s", ls_coll_name(coll), names, asked->name);
}

ls_status ls_choice_init(ls_group *g)
{
    LS_TRY(ls_algo_parse(g->e->tuning.algo, g->asked));
    for (int c = 0; c < LS_COLLS; c++) g->asks = g->asks || g->asked[c];
    for (int c = 0; c < LS_COLLS && g->w->opts.wire_bf16; c++) {
        const ls_algo *sums = may_be_narrow((ls_coll)c) ? g->asked[c] : NULL;
        if (sums && !sums->one_owner) return not_narrow((ls_coll)c, sums);
    }
    return LS_OK;
}

bool ls_choice_narrow(const ls_work *k)
{
    const ls_group *g = k->g;
    return LS_UNLIKELY(g->narrow.size > 0) && may_be_narrow(k->a.coll) && k->a.dtype == LS_F32 &&
           (k->a.op == LS_SUM || k->a.op == LS_AVG) && k->nbytes > WIRE_WHOLE_BYTES;
}

/* Every contribution rounded once and added in f32; with several ranks a host, once a host. */
static const ls_algo *narrow_schedule(const ls_group *g)
{
    return ls_algo_find(g->nnodes == g->size || !g->w->tops->is_mapped ? "direct" : "hierarchical");
}

const ls_algo *ls_choice_asked(const ls_group *g, ls_coll coll)
{
    return g->forced && (g->forced->colls & 1u << coll) ? g->forced : g->asked[coll];
}

#define CLASSES 48 /* powers of two */

struct ls_choices {
    /* [1]: rounded once; [2]: LS_SUM_TREE */
    struct { const ls_algo *asked; ls_choice choice; } of[3][LS_COLLS][CLASSES];
};

static int class_of(size_t nbytes)
{
    int c = nbytes <= 1 ? 0 : 64 - __builtin_clzll((unsigned long long)nbytes - 1);
    return c < CLASSES ? c : CLASSES - 1;
}

/* fold has no form for memory that is not mapped; direct gives the same bits. NULL: what is fastest. */
static const ls_algo *wanted(const ls_work *k)
{
    const ls_algo *f = ls_choice_asked(k->g, k->a.coll);
    ls_shape shape = { .coll = k->a.coll, .size = k->g->size, .segments = 1, .nlanes = 1, .node = k->g->node,
                       .uneven = k->a.coll == LS_ALL_TO_ALL && k->counts };
    if (f && (!f->fits || f->fits(&shape))) return strcmp(f->name, "fold") == 0 ? ls_algo_find("direct") : f;
    return ls_choice_narrow(k) ? narrow_schedule(k->g) : NULL;
}

/* Sums in one pass over all vectors: of LS_SUM_TREE, whose order the pass has; in mapped memory, where its own forms
 * add so; and of 16-bit types, which are rounded once then, on one host. (Across hosts every pass over a wire counts
 * for more.) */
static bool in_one_pass(const ls_work *k)
{
    return k->a.op == LS_SUM_TREE || k->g->mapped || (ls_dtype_size(k->a.dtype) == 2 && k->g->nnodes == 1);
}

ls_status ls_choices_of(const ls_work *k, ls_choice *out, int *n)
{
    const ls_group *g = k->g;
    ls_machine m = { .cost = &g->e->tuning.cost, .memory = g->w->tops->is_mapped != NULL,
                     .cores = g->cores };
    ls_question q = { .coll = k->a.coll, .size = g->size, .node = g->node, .nlanes = LS_GROUP_LANES,
                      .only = wanted(k) };
    const bool tree = k->a.op == LS_SUM_TREE;
    q.ascending = tree || (!q.only && in_one_pass(k));
    const ls_status st = ls_choose(&m, &q, (size_t)1 << class_of(k->nbytes), out, n);
    if (st != LS_UNSUPPORTED || !tree || !q.only) return st;
    return ls_fail(st, "%s with LS_SUM_TREE over %d ranks: %s adds in an order of its own: use direct, or no algorithm by name",
                   ls_coll_name(k->a.coll), g->size, q.only->name);
}

ls_status ls_choice_of(const ls_work *k, ls_choice *out)
{
    ls_group *g = k->g;
    if (k->a.coll == LS_ALL_TO_ALL && k->counts) { /* ranks do not share nbytes: nothing may depend on it */
        const ls_algo *f = wanted(k);
        *out = (ls_choice){ .algo = f ? f : ls_algo_find("pairwise"), .segments = 1, .nlanes = 1 };
        return LS_OK;
    }
    if (!g->choices && !(g->choices = calloc(1, sizeof *g->choices))) return ls_fail(LS_NO_MEMORY, "choices of group %s", g->text);
    int c = class_of(k->nbytes), once = k->a.op == LS_SUM_TREE ? 2 : in_one_pass(k);
    const ls_algo *asked = wanted(k), **made_for = &g->choices->of[once][k->a.coll][c].asked;
    ls_choice *choice = &g->choices->of[once][k->a.coll][c].choice;
    if (!choice->algo || *made_for != asked) {
        ls_choice all[LS_MAX_CHOICES];
        int n;
        LS_TRY(ls_choices_of(k, all, &n));
        *choice = all[0];
        *made_for = asked;
    }
    *out = *choice;
    return LS_OK;
}
