/* topo.c -- questions about a cluster. */
#include "lockstep/topo.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* --- counting ------------------------------------------------------------------------------------------------ */

int64_t ls_topo_units(const ls_topo *t, int level)
{
    int64_t n = 1;
    for (int l = level; l < t->nlevels; l++) n *= t->level[l].count;
    return n;
}

int64_t ls_topo_devices(const ls_topo *t) { return ls_topo_units(t, 0); }

int64_t ls_topo_unit_devices(const ls_topo *t, int level)
{
    int64_t n = 1;
    for (int l = 0; l < level; l++) n *= t->level[l].count;
    return n;
}

int ls_topo_meet(const ls_topo *t, int64_t a, int64_t b)
{
    int level = -1;
    for (; a != b; level++) {
        a /= t->level[level + 1].count;
        b /= t->level[level + 1].count;
    }
    return level;
}

/* --- bandwidths ------------------------------------------------------------------------------------------------- */

static double port_rate(const ls_topo *t, int level, int64_t unit)
{
    for (int i = 0; i < t->nslow; i++)
        if (t->slow[i].level == level && t->slow[i].unit == unit) return t->slow[i].bytes_per_s;
    return t->level[level].bytes_per_s;
}

double ls_topo_uplink(const ls_topo *t, int level, int64_t unit)
{
    const ls_topo_level *l = &t->level[level];
    return port_rate(t, level, unit) * l->ports / l->oversubscription;
}

double ls_topo_port(const ls_topo *t, int level, int64_t unit)
{
    const ls_topo_level *l = &t->level[level];
    const double all = ls_topo_uplink(t, level, unit);
    if (!l->rails) return all;
    const double each = (double)l->ports / (double)ls_topo_unit_devices(t, level);
    return fmin(all, port_rate(t, level, unit) * fmax(1.0, each));
}

void ls_topo_pair(const ls_topo *t, int64_t a, int64_t b, double *bytes_per_s, double *latency_s)
{
    const int meet = ls_topo_meet(t, a, b);
    *bytes_per_s = (double)INFINITY;
    *latency_s = meet < 0 ? 0.0 : t->level[meet].latency_s;
    for (int l = meet > 0; l <= meet; l++) {
        const int64_t devices = ls_topo_unit_devices(t, l);
        *bytes_per_s = fmin(*bytes_per_s, ls_topo_port(t, l, a / devices));
        *bytes_per_s = fmin(*bytes_per_s, ls_topo_port(t, l, b / devices));
    }
}

/* The half that can send least has the slowest units of those that are slow, and then others. */
double ls_topo_bisection(const ls_topo *t, int level, int64_t unit)
{
    const int count = t->level[level].count;
    const double usual = t->level[level].bytes_per_s * t->level[level].ports / t->level[level].oversubscription;
    double rate[LS_TOPO_MOST_SLOW], sum = 0;
    int n = 0, left = count / 2;
    for (int i = 0; i < t->nslow; i++) {
        if (t->slow[i].level != level || t->slow[i].unit / count != unit) continue;
        int at = n++;
        const double r = ls_topo_uplink(t, level, t->slow[i].unit);
        for (; at > 0 && rate[at - 1] > r; at--) rate[at] = rate[at - 1];
        rate[at] = r;
    }
    for (int i = 0; i < n && left > 0; i++, left--) sum += rate[i];
    return sum + left * usual;
}

/* --- what fits -------------------------------------------------------------------------------------------------- */

/* "4 node x 8 device" */
static void sizes_text(const ls_topo *t, char *buf, size_t n)
{
    size_t at = 0;
    *buf = 0;
    for (int l = t->nlevels - 1; l >= 0 && at < n; l--)
        at += (size_t)snprintf(buf + at, n - at, "%s%d %s", at ? " x " : "", t->level[l].count,
                               l > 0 ? t->level[l - 1].name : "device");
}

ls_status ls_topo_check_ranks(const ls_topo *t, int64_t ranks)
{
    char sizes[LS_TOPO_MOST_LEVELS * (LS_TOPO_NAME_BYTES + 16)];
    sizes_text(t, sizes, sizeof sizes);
    if (ranks >= 1 && ranks <= ls_topo_devices(t)) return LS_OK;
    return ls_fail(LS_BAD_CONFIG, "%lld ranks do not fit on %s: it has %lld devices (%s)", (long long)ranks, t->name,
                   (long long)ls_topo_devices(t), sizes);
}

ls_status ls_topo_resize(ls_topo *t, int64_t count)
{
    ls_topo_level *top = &t->level[t->nlevels - 1];
    const int64_t each = ls_topo_unit_devices(t, t->nlevels - 1);
    if (count < 1 || count > LS_TOPO_MOST_DEVICES / each)
        return ls_fail(LS_BAD_CONFIG, "%lld units in the %s of %s: expected 1 to %lld", (long long)count, top->name, t->name,
                       (long long)(LS_TOPO_MOST_DEVICES / each));
    top->count = (int)count;
    for (int i = t->nslow - 1; i >= 0; i--) /* exceptions that are outside now */
        if (t->slow[i].unit >= ls_topo_units(t, t->slow[i].level)) t->slow[i] = t->slow[--t->nslow];
    return LS_OK;
}

static bool positive(double v) { return v > 0.0 && v < (double)INFINITY; }

ls_status ls_topo_check(const ls_topo *t)
{
    int64_t devices = 1;
    if (t->nlevels < 1 || t->nlevels > LS_TOPO_MOST_LEVELS)
        return ls_fail(LS_INVALID, "%s: %d levels: expected 1 to %d", t->name, t->nlevels, LS_TOPO_MOST_LEVELS);
    for (int i = 0; i < t->nlevels; i++) {
        const ls_topo_level *l = &t->level[i];
        if (l->count < 1 || l->count > LS_TOPO_MOST_DEVICES / devices)
            return ls_fail(LS_INVALID, "%s: level %s: a count of %d: expected 1 to %lld", t->name, l->name, l->count,
                           (long long)(LS_TOPO_MOST_DEVICES / devices));
        devices *= l->count;
        if (!positive(l->bytes_per_s) || l->latency_s < 0 || !(l->oversubscription >= 1) || l->ports < 1)
            return ls_fail(LS_INVALID, "%s: level %s: %g bytes/s, %g s, %d ports, oversubscription %g: expected above 0, 0 and more, 1 and more, 1 and more",
                           t->name, l->name, l->bytes_per_s, l->latency_s, l->ports, l->oversubscription);
    }
    if (t->nslow < 0 || t->nslow > LS_TOPO_MOST_SLOW)
        return ls_fail(LS_INVALID, "%s: %d slow units: expected at most %d", t->name, t->nslow, LS_TOPO_MOST_SLOW);
    for (int i = 0; i < t->nslow; i++) {
        const ls_topo_slow *s = &t->slow[i];
        if (s->level < 0 || s->level >= t->nlevels || s->unit < 0 || s->unit >= ls_topo_units(t, s->level) ||
            !positive(s->bytes_per_s) ||
            s->bytes_per_s > t->level[s->level].bytes_per_s)
            return ls_fail(LS_INVALID, "%s: unit %lld of level %d at %g bytes/s: expected a unit that is there, slower than the others",
                           t->name, (long long)s->unit, s->level, s->bytes_per_s);
    }
    return LS_OK;
}
