/* harness_layout_verdict.c -- what a run in some layout came to, beside what it should have come to. */
#include "harness_layout.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

typedef struct says { /* the reason, as far as it is written */
    char *at;
    size_t left;
} says;

/* Writes the reason; it is false, so that it can be returned. */
__attribute__((format(printf, 2, 3))) static bool no(const says *why, const char *text, ...)
{
    va_list args;
    va_start(args, text);
    vsnprintf(why->at, why->left, text, args);
    va_end(args);
    return false;
}

typedef unsigned long long num; /* for printf */

/* --- memory ---------------------------------------------------------------------------------------------- */

static bool as_planned(const ls_layout_outcome *o, const says *why)
{
    for (int r = 0; r < o->ranks; r++)
        for (ls_mem_kind k = 0; k < LS_MEM_KINDS; k++) {
            const size_t planned = o->rank[r].planned[k], peak = o->rank[r].peak[k];
            if (peak != planned)
                return no(why, "rank %d: memory of kind %s: expected %zu bytes, as planned for this rank, found %zu", r,
                          ls_mem_kind_name(k), planned, peak);
        }
    return true;
}

/* --- collectives ------------------------------------------------------------------------------------------ */

/* Whether the group is the one that a closed form calls so. */
static bool is_called(const ls_layout_group *g, const char *name)
{
    const size_t n = strlen(name);
    return strncmp(g->text, name, n) == 0 && (g->text[n] == 0 || g->text[n] == ' ');
}

/* Calls of one kind in one group: from the rows of a closed form. */
typedef struct bounds {
    int count, most;
    uint64_t bytes, most_bytes;
} bounds;

static bounds bounds_of(const ls_layout_calls *row, int n, const ls_layout_group *g, ls_coll coll)
{
    bounds b = { 0 };
    for (int i = 0; i < n; i++) {
        if (row[i].coll != coll || !is_called(g, row[i].group)) continue;
        b.count += row[i].count;
        b.most += row[i].most > row[i].count ? row[i].most : row[i].count;
        b.bytes += row[i].bytes;
        b.most_bytes += row[i].most_bytes > row[i].bytes ? row[i].most_bytes : row[i].bytes;
    }
    return b;
}

/* "2" or "2 to 5" */
static void range(uint64_t least, uint64_t most, char buf[48])
{
    if (most > least) snprintf(buf, 48, "%llu to %llu", (num)least, (num)most);
    else snprintf(buf, 48, "%llu", (num)least);
}

static bool as_stated(const ls_layout_calls *row, int n, int rank, const ls_layout_group *g, const says *why)
{
    char count[48], bytes[48];
    for (ls_coll c = 0; c < LS_COLLS; c++) {
        const bounds b = bounds_of(row, n, g, c);
        const int found = g->dry[c].count;
        const uint64_t had = g->dry[c].bytes;
        if (found >= b.count && found <= b.most && had >= b.bytes && had <= b.most_bytes) continue;
        range((uint64_t)b.count, (uint64_t)b.most, count);
        range(b.bytes, b.most_bytes, bytes);
        return no(why, "rank %d: group %s: %s per step: expected %s with %s bytes together, by the closed form, "
                  "found %d with %llu, in a dry world", rank, g->text, ls_coll_name(c), count, bytes, found, (num)had);
    }
    return true;
}

/* A closed form may say nothing of groups that are not there. */
static bool has_groups(const ls_layout_calls *row, int n, int rank, const ls_layout_rank *o, const says *why)
{
    for (int i = 0; i < n; i++) {
        int k = 0;
        while (k < o->ngroups && !is_called(&o->group[k], row[i].group)) k++;
        if (k == o->ngroups)
            return no(why, "rank %d: group %s: expected %d %s per step, by the closed form, found no such group in its "
                      "mesh", rank, row[i].group, row[i].count, ls_coll_name(row[i].coll));
    }
    return true;
}

/* What the rank has counted, kind by kind, is what the dry world has recorded. */
static bool as_recorded(int rank, const ls_layout_rank *o, const says *why)
{
    uint64_t ops = 0, moved = 0;
    for (int k = 0; k < o->ngroups; k++)
        for (ls_coll c = 0; c < LS_COLLS; c++) {
            const ls_layout_group *g = &o->group[k];
            const num found = g->real[c].ops, bytes = g->real[c].moved;
            if (found != (num)g->dry[c].count)
                return no(why, "rank %d: group %s: %s per step: expected %d, as in a dry world, found %llu", rank, g->text,
                          ls_coll_name(c), g->dry[c].count, found);
            const bool varies = c == LS_ALL_TO_ALL; /* rows to experts: a dry world has the most */
            if (varies ? bytes > g->dry[c].moved : bytes != g->dry[c].moved)
                return no(why, "rank %d: group %s: %s: expected %llu bytes moved per step, as in a dry world, found %llu",
                          rank, g->text, ls_coll_name(c), (num)g->dry[c].moved, bytes);
            ops += found;
            moved += bytes;
        }
    if (o->ops == ops && o->moved == moved) return true;
    return no(why, "rank %d: groups outside its mesh: expected 0 collectives per step, found %lld, of %lld bytes",
              rank, (long long)(o->ops - ops), (long long)(o->moved - moved));
}

static bool right_collectives(const ls_layout *l, const ls_layout_outcome *o, const says *why)
{
    ls_layout_calls row[LS_LAYOUT_CALLS];
    for (int r = 0; r < o->ranks; r++) {
        const ls_layout_rank *rank = &o->rank[r];
        const int n = l->calls ? l->calls(l, &o->params, r, row) : 0;
        if (l->calls && !has_groups(row, n, r, rank, why)) return false;
        for (int k = 0; l->calls && k < rank->ngroups; k++)
            if (!as_stated(row, n, r, &rank->group[k], why)) return false;
        if (o->steps >= LS_LAYOUT_STEADY && !as_recorded(r, rank, why)) return false;
    }
    return true;
}

/* --- values ----------------------------------------------------------------------------------------------------- */

static bool near(double a, double b, double tolerance) { return fabs(a - b) <= tolerance * fabs(b); }

static bool same_ranks(const ls_layout_outcome *o, const says *why)
{
    const ls_layout_rank *first = &o->rank[0];
    for (int r = 0; r < o->ranks; r++) {
        const ls_layout_rank *rank = &o->rank[r];
        for (int i = 0; i < o->steps; i++)
            if (memcmp(&rank->loss[i], &first->loss[i], sizeof first->loss[i]) ||
                memcmp(&rank->norm[i], &first->norm[i], sizeof first->norm[i]))
                return no(why, "step %d: rank %d has loss %.17g and norm %.17g, rank 0 %.17g and %.17g", i + 1, r,
                          rank->loss[i], rank->norm[i], first->loss[i], first->norm[i]);
        if (strcmp(rank->digest, first->digest) != 0)
            return no(why, "rank %d ends with the model %s, rank 0 with %s", r, rank->digest, first->digest);
    }
    return true;
}

static bool near_values(const ls_param *got, const ls_param *want, double tolerance, const says *why)
{
    const float *a = got->t.data, *b = want->t.data;
    double most = 0, difference = 0;
    int64_t at = 0;
    for (int64_t i = 0; i < ls_tensor_count(&want->t); i++) {
        const double d = fabs((double)a[i] - (double)b[i]);
        if (fabs((double)b[i]) > most) most = fabs((double)b[i]);
        if (d > difference || isnan(d)) difference = d, at = i;
        if (isnan(d)) break;
    }
    if (difference <= tolerance * most) return true;
    return no(why, "%s: element %lld is %.9g, of one rank %.9g: %.2g of the largest, %.3g, where %.2g are allowed",
              want->name, (long long)at, (double)a[at], (double)b[at], difference / most, most, tolerance);
}

static bool near_outcome(const ls_layout_outcome *got, const ls_layout_outcome *want, double tolerance, const says *why)
{
    const ls_layout_rank *a = &got->rank[0], *b = &want->rank[0];
    for (int i = 0; i < want->steps; i++) {
        const bool loss = near(a->loss[i], b->loss[i], tolerance);
        if (!loss || !near(a->norm[i], b->norm[i], tolerance))
            return no(why, "step %d: %s: expected loss %.9g and norm %.9g, as of one rank, found %.9g and %.9g", i + 1,
                      loss ? "norm" : "loss", b->loss[i], b->norm[i], a->loss[i], a->norm[i]);
    }
    for (int i = 0; i < want->params.n; i++) {
        const ls_param *p = ls_params_find(&got->params, want->params.item[i].name);
        if (!p || !ls_tensor_same_shape(&p->t, &want->params.item[i].t))
            return no(why, "%s is missing, or has another shape", want->params.item[i].name);
        if (!near_values(p, &want->params.item[i], tolerance, why)) return false;
    }
    return got->params.n == want->params.n ||
           no(why, "%d parameters, of one rank %d", got->params.n, want->params.n);
}

/* What says most about a cause comes first: a gradient summed over the wrong group changes values, too. */
bool ls_layout_verdict(const ls_layout *l, double tolerance, const ls_layout_outcome *got,
                       const ls_layout_outcome *alone, char *why, size_t n)
{
    size_t at = ls_layout_name(l, why, n);
    at += (size_t)snprintf(why + at, n - at, ": ");
    if (at > n - 1) at = n - 1;
    const says in_layout = { why + at, n - at };
    if (!as_planned(got, &in_layout) || !right_collectives(l, got, &in_layout) || !same_ranks(got, &in_layout) ||
        !near_outcome(got, alone, tolerance, &in_layout))
        return false;
    at += (size_t)snprintf(why + at, n - at, "one rank alone: ");
    if (at > n - 1) at = n - 1;
    return as_planned(alone, &(says){ why + at, n - at });
}
