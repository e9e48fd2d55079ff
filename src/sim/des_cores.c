/* des_cores.c -- processor sharing in one clock: since all works get equally much, the one that has least to do when it
 * begins, counted from what all have got by then, ends first, whatever comes later.
 */
#include "sim/des_cores.h"

#include <math.h>
#include <stdlib.h>

ls_status ls_des_cores_create(double cores, const uint32_t *of, uint32_t n, ls_des_cores *out)
{
    const uint32_t npools = of ? (uint32_t)cores : 1;
    *out = (ls_des_cores){ .of = of };
    if (!(cores > 0)) return LS_OK;
    out->pool = calloc(npools, sizeof *out->pool);
    out->jobs = malloc((size_t)n * sizeof *out->jobs);
    if (!out->pool || !out->jobs) return ls_fail(LS_NO_MEMORY, "the cores of %u processes", n);
    out->npools = npools;
    for (uint32_t i = 0; of && i < n; i++) out->pool[of[i]].n++;
    ls_des_job *next = out->jobs;
    for (uint32_t k = 0; k < npools; k++) { /* a place for each process that may be there */
        ls_des_pool *pool = &out->pool[k];
        pool->cores = of ? 1 : cores;
        pool->job = next;
        next += pool->n;
        pool->n = 0;
    }
    return LS_OK;
}

void ls_des_cores_free(ls_des_cores *c)
{
    free(c->pool);
    free(c->jobs);
}

/* Of a core, for each work. */
static double rate(const ls_des_pool *c) { return c->n > c->cores ? c->cores / c->n : 1; }

static void advance(ls_des_pool *c, double t)
{
    if (t > c->now) {
        c->served += c->n ? (t - c->now) * rate(c) : 0;
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

void ls_des_cores_begin(ls_des_cores *all, double t, uint32_t p, double work)
{
    ls_des_pool *c = &all->pool[all->of ? all->of[p] : 0];
    advance(c, t);
    uint32_t i = c->n++;
    c->job[i] = (ls_des_job){ c->served + work, p };
    for (; i > 0 && before(&c->job[i], &c->job[(i - 1) / 2]); i = (i - 1) / 2) swap(&c->job[i], &c->job[(i - 1) / 2]);
}

static double next_of(const ls_des_pool *c)
{
    if (c->n == 0) return (double)INFINITY;
    const double left = c->job[0].ends - c->served;
    return c->now + (left > 0 ? left / rate(c) : 0);
}

double ls_des_cores_next(const ls_des_cores *all)
{
    double next = (double)INFINITY;
    for (uint32_t k = 0; k < all->npools; k++) next = fmin(next, next_of(&all->pool[k]));
    return next;
}

/* Of works that end at the same time that of the lower process. */
static ls_des_pool *first_of(const ls_des_cores *all)
{
    ls_des_pool *first = &all->pool[0];
    for (uint32_t k = 1; k < all->npools; k++) {
        ls_des_pool *c = &all->pool[k];
        const double a = next_of(c), b = next_of(first);
        if (c->n && (a < b || (a == b && c->job[0].p < first->job[0].p))) first = c;
    }
    return first;
}

uint32_t ls_des_cores_end(ls_des_cores *all, double *t)
{
    ls_des_pool *c = first_of(all);
    const ls_des_job had = c->job[0];
    *t = next_of(c);
    c->now = *t;
    c->served = had.ends > c->served ? had.ends : c->served;
    c->job[0] = c->job[--c->n];
    for (uint32_t i = 0, k; (k = 2 * i + 1) < c->n; i = k) {
        if (k + 1 < c->n && before(&c->job[k + 1], &c->job[k])) k++;
        if (!before(&c->job[k], &c->job[i])) break;
        swap(&c->job[k], &c->job[i]);
    }
    return had.p;
}
