/* des_cores.c -- processor sharing in one clock: since all works get equally much, the one that has least to do when it
 * begins, counted from what all have got by then, ends first, whatever comes later.
 */
#include "sim/des_cores.h"

#include <math.h>
#include <stdlib.h>

ls_status ls_des_cores_create(double cores, const uint32_t *of, uint32_t n, double idle_s, double poll,
                              ls_des_cores *out)
{
    const uint32_t npools = of ? (uint32_t)cores : 1;
    *out = (ls_des_cores){ .of = of, .idle_s = idle_s, .poll = poll };
    if (!(cores > 0)) return LS_OK;
    out->pool = calloc(npools, sizeof *out->pool);
    out->jobs = malloc((size_t)n * sizeof *out->jobs);
    if (!out->pool || !out->jobs) return ls_fail(LS_NO_MEMORY, "the cores of %u processes", n);
    out->npools = npools;
    for (uint32_t i = 0; of && i < n; i++) out->pool[of[i]].n++;
    ls_des_job *at = out->jobs;
    for (uint32_t k = 0; k < npools; k++) {
        const uint32_t there = out->pool[k].n;
        out->pool[k] = (ls_des_pool){ .cores = of ? 1 : cores, .job = at };
        at += there;
    }
    return LS_OK;
}

void ls_des_cores_free(ls_des_cores *c)
{
    free(c->pool);
    free(c->jobs);
}

/* Of a core, for each work. */
static double rate(const ls_des_cores *all, const ls_des_pool *c)
{
    const double share = c->n + all->poll * c->waiting;
    return share > c->cores ? c->cores / share : 1;
}

static void advance(const ls_des_cores *all, ls_des_pool *c, double t)
{
    if (t > c->now) {
        c->served += c->n ? (t - c->now) * rate(all, c) : 0;
        c->now = t;
    }
}

static bool before(const ls_des_job *a, const ls_des_job *b)
{
    return a->ends < b->ends || (a->ends == b->ends && a->p < b->p);
}

static void swap(ls_des_job *a, ls_des_job *b)
{
    const ls_des_job had = *a;
    *a = *b;
    *b = had;
}

static void rise(ls_des_pool *c, uint32_t i)
{
    for (; i > 0 && before(&c->job[i], &c->job[(i - 1) / 2]); i = (i - 1) / 2) swap(&c->job[i], &c->job[(i - 1) / 2]);
}

static void sink(ls_des_pool *c, uint32_t i)
{
    for (uint32_t k; (k = 2 * i + 1) < c->n; i = k) {
        if (k + 1 < c->n && before(&c->job[k + 1], &c->job[k])) k++;
        if (!before(&c->job[k], &c->job[i])) break;
        swap(&c->job[k], &c->job[i]);
    }
}

static ls_des_pool *pool_of(const ls_des_cores *all, uint32_t p) { return &all->pool[all->of ? all->of[p] : 0]; }

void ls_des_cores_begin(ls_des_cores *all, double t, uint32_t p, double work)
{
    ls_des_pool *c = pool_of(all, p);
    if (c->n == 0 && t >= c->idle_since + all->idle_s) {
        c->idle_from = c->idle_since;
        c->idle_until = t;
    }
    advance(all, c, t);
    c->job[c->n++] = (ls_des_job){ c->served + work, p };
    rise(c, c->n - 1);
}

void ls_des_cores_polls(ls_des_cores *all, double t, uint32_t p, bool polls)
{
    ls_des_pool *c = pool_of(all, p);
    advance(all, c, t);
    if (polls) c->waiting++;
    else c->waiting--;
}

bool ls_des_cores_sleeps(const ls_des_cores *all, uint32_t p, double from, double until)
{
    if (!all->of || !(all->idle_s > 0)) return false;
    const ls_des_pool *c = pool_of(all, p);
    return (c->n == 0 && until >= fmax(from, c->idle_since) + all->idle_s) ||
           fmin(until, c->idle_until) >= fmax(from, c->idle_from) + all->idle_s;
}

static double next_of(const ls_des_cores *all, const ls_des_pool *c)
{
    if (c->n == 0) return (double)INFINITY;
    const double left = c->job[0].ends - c->served;
    return c->now + (left > 0 ? left / rate(all, c) : 0);
}

/* Of works that end at the same time that of the lower process. */
static ls_des_pool *first_of(const ls_des_cores *all)
{
    ls_des_pool *first = &all->pool[0];
    for (uint32_t k = 1; k < all->npools; k++) {
        ls_des_pool *c = &all->pool[k];
        const double a = next_of(all, c), b = next_of(all, first);
        if (c->n && (a < b || (a == b && c->job[0].p < first->job[0].p))) first = c;
    }
    return first;
}

/* --- what happens next ------------------------------------------------------------------------------------ */

double ls_des_cores_next(const ls_des_cores *all) { return next_of(all, first_of(all)); }

uint32_t ls_des_cores_end(ls_des_cores *all, double *t)
{
    ls_des_pool *c = first_of(all);
    *t = next_of(all, c);
    const ls_des_job had = c->job[0];
    c->now = *t;
    c->served = had.ends > c->served ? had.ends : c->served;
    c->job[0] = c->job[--c->n];
    sink(c, 0);
    if (c->n == 0) c->idle_since = *t;
    return had.p;
}
