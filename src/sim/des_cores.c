/* des_cores.c -- processor sharing in one clock: since all works get equally much, the one that has least to do when it
 * begins, counted from what all have got by then, ends first, whatever comes later.
 */
#include "sim/des_cores.h"

#include <math.h>
#include <stdlib.h>

ls_status ls_des_cores_create(double cores, uint32_t n, ls_des_cores *out)
{
    *out = (ls_des_cores){ .cores = cores };
    if (!(cores > 0)) return LS_OK;
    out->job = malloc((size_t)n * sizeof *out->job);
    return out->job ? LS_OK : ls_fail(LS_NO_MEMORY, "the cores of %u processes", n);
}

void ls_des_cores_free(ls_des_cores *c) { free(c->job); }

/* Of a core, for each work. */
static double rate(const ls_des_cores *c) { return c->n > c->cores ? c->cores / c->n : 1; }

static void advance(ls_des_cores *c, double t)
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

void ls_des_cores_begin(ls_des_cores *c, double t, uint32_t p, double work)
{
    advance(c, t);
    uint32_t i = c->n++;
    c->job[i] = (ls_des_job){ c->served + work, p };
    for (; i > 0 && before(&c->job[i], &c->job[(i - 1) / 2]); i = (i - 1) / 2) swap(&c->job[i], &c->job[(i - 1) / 2]);
}

double ls_des_cores_next(const ls_des_cores *c)
{
    if (c->n == 0) return (double)INFINITY;
    const double left = c->job[0].ends - c->served;
    return c->now + (left > 0 ? left / rate(c) : 0);
}

uint32_t ls_des_cores_end(ls_des_cores *c, double *t)
{
    const ls_des_job had = c->job[0];
    *t = ls_des_cores_next(c);
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
