/* des_links.c -- layers of links from a topology, and messages that take them in turn. */
#include "sim/des_links.h"

#include <math.h>
#include <stdlib.h>

void ls_des_links_free(ls_des_links *l)
{
    for (int i = 0; i < l->nlayers; i++) {
        free(l->layer[i].slow);
        free(l->layer[i].free);
    }
    free(l->flow);
    free(l->capacity);
    free(l->users);
    free(l->fixed);
    *l = (ls_des_links){ 0 };
}

/* --- layers --------------------------------------------------------------------------------------- */

static ls_status add_layer(ls_des_links *l, int level, uint32_t each, uint32_t unit_each, double bytes_per_s)
{
    ls_des_layer *a = &l->layer[l->nlayers++];
    *a = (ls_des_layer){ .level = level, .each = each, .unit_each = unit_each, .ports = (l->places + each - 1) / each,
                         .s_per_byte = 1.0 / bytes_per_s };
    if (l->net.sharing == LS_DES_FREE) return LS_OK;
    a->free = calloc(2 * (size_t)a->ports, sizeof *a->free);
    return a->free ? LS_OK : ls_fail(LS_NO_MEMORY, "%u ports", a->ports);
}

/* Units whose ports are slower than those of the others. */
static ls_status slow_ports(const ls_topo *t, ls_des_layer *a, double (*rate)(const ls_topo *, int, int64_t))
{
    bool any = false;
    for (int i = 0; i < t->nslow; i++) any = any || t->slow[i].level == a->level;
    if (!any) return LS_OK;
    a->slow = malloc(a->ports * sizeof *a->slow);
    if (!a->slow) return ls_fail(LS_NO_MEMORY, "%u ports", a->ports);
    for (uint32_t i = 0; i < a->ports; i++)
        a->slow[i] = 1.0 / rate(t, a->level, (int64_t)i * a->each / a->unit_each);
    return LS_OK;
}

static ls_status from_topology(ls_des_links *l)
{
    const ls_topo *t = l->net.topo;
    LS_TRY(ls_topo_check(t));
    LS_TRY(ls_topo_check_ranks(t, l->places));
    l->nlevels = t->nlevels;
    for (int i = 0; i < t->nlevels; i++) {
        const uint32_t unit = (uint32_t)ls_topo_unit_devices(t, i), each = t->level[i].rails ? 1 : unit;
        l->latency_s[i] = t->level[i].latency_s;
        l->devices[i] = unit * (uint32_t)t->level[i].count;
        LS_TRY(add_layer(l, i, each, unit, ls_topo_port(t, i, INT64_MAX)));
        LS_TRY(slow_ports(t, &l->layer[l->nlayers - 1], ls_topo_port));
        if (!t->level[i].rails || t->level[i].oversubscription <= 1) continue;
        LS_TRY(add_layer(l, i, unit, unit, ls_topo_uplink(t, i, INT64_MAX)));
        LS_TRY(slow_ports(t, &l->layer[l->nlayers - 1], ls_topo_uplink));
    }
    return LS_OK;
}

static ls_status check_failures(const ls_des_links *l)
{
    if (l->net.nfailures > 0 && l->net.sharing != LS_DES_FIFO)
        return ls_fail(LS_INVALID, "links that fail: expected messages that take links in turn (LS_DES_FIFO)");
    for (int i = 0; i < l->net.nfailures; i++) {
        const ls_des_failure *f = &l->net.failure[i];
        int64_t units = 0;
        for (int k = 0; k < l->nlayers; k++)
            if (l->layer[k].level == f->level) units = (l->places + l->layer[k].unit_each - 1) / l->layer[k].unit_each;
        if (f->unit < 0 || f->unit >= units)
            return ls_fail(LS_BAD_CONFIG,
                           "a failure of unit %lld of level %d: expected a level of the cluster, and a unit from 0 to "
                           "%lld",
                           (long long)f->unit, f->level, (long long)units - 1);
        if (!(f->from_s >= 0) || !(f->until_s >= f->from_s))
            return ls_fail(LS_BAD_CONFIG, "a failure from %g s until %g s: expected 0 <= from <= until", f->from_s,
                           f->until_s);
    }
    return LS_OK;
}

static ls_status make(ls_des_links *l)
{
    if (!(l->net.gap >= 0 && l->net.gap <= 1)) return ls_fail(LS_INVALID, "a gap of %g: expected 0 to 1", l->net.gap);
    if (l->net.topo) LS_TRY(from_topology(l));
    else {
        if (!(l->net.latency_s >= 0) || !isfinite(l->net.latency_s) || !(l->net.bytes_per_s > 0))
            return ls_fail(LS_INVALID, "a network of %g s and %g bytes/s: expected 0 or more, and above 0",
                           l->net.latency_s, l->net.bytes_per_s);
        l->nlevels = 1;
        l->latency_s[0] = l->net.latency_s;
        l->devices[0] = l->places;
        LS_TRY(add_layer(l, 0, 1, 1, l->net.bytes_per_s));
    }
    LS_TRY(check_failures(l));
    if (l->net.sharing != LS_DES_FAIR) return LS_OK;
    size_t ports = 0;
    for (int i = 0; i < l->nlayers; i++) ports += 2 * (size_t)l->layer[i].ports;
    l->capacity = calloc(ports, sizeof *l->capacity);
    l->users = calloc(ports, sizeof *l->users);
    return l->capacity && l->users ? LS_OK : ls_fail(LS_NO_MEMORY, "%zu ports", ports);
}

ls_status ls_des_links_create(const ls_des_net *net, uint32_t places, ls_des_links *out)
{
    *out = (ls_des_links){ .net = *net, .places = places };
    const ls_status st = make(out);
    if (st < 0) ls_des_links_free(out);
    return st;
}

/* --- ways ------------------------------------------------------------------------------------------- */

int ls_des_links_meet(const ls_des_links *l, uint32_t a, uint32_t b)
{
    int m = 0;
    while (m < l->nlevels - 1 && a / l->devices[m] != b / l->devices[m]) m++;
    return m;
}

bool ls_des_layer_taken(const ls_des_layer *a, int meet)
{
    return meet == 0 ? a->level == 0 : a->level > 0 && a->level <= meet;
}

static double pace_of(const ls_des_layer *a, uint32_t port) { return a->slow ? a->slow[port] : a->s_per_byte; }

double ls_des_links_pace(const ls_des_links *l, uint32_t a, uint32_t b, int meet)
{
    double most = 0;
    for (int i = 0; i < l->nlayers; i++) {
        const ls_des_layer *at = &l->layer[i];
        if (!ls_des_layer_taken(at, meet)) continue;
        const double out = pace_of(at, a / at->each), in = pace_of(at, b / at->each);
        most = out > most ? out : most;
        most = in > most ? in : most;
    }
    return most;
}

double ls_des_links_free_send(const ls_des_links *l, uint32_t a, uint32_t b, double t, double bytes, double factor,
                              double *port)
{
    const int meet = ls_des_links_meet(l, a, b);
    const double start = t > *port ? t : *port;
    const double takes = bytes * ls_des_links_pace(l, a, b, meet) * factor;
    *port = start + takes + l->net.gap * l->latency_s[meet] * factor;
    return start + takes + l->latency_s[meet] * factor;
}

/* --- in turn ---------------------------------------------------------------------------------------- */

/* When a message that would hold the port from `start` until `ends` can hold it, as far as failures go. */
static double after_failures(const ls_des_links *l, const ls_des_layer *a, uint32_t port, double start, double takes)
{
    for (int i = 0; i < l->net.nfailures; i++) {
        const ls_des_failure *f = &l->net.failure[i];
        if (f->level != a->level || (uint64_t)port * a->each / a->unit_each != (uint64_t)f->unit) continue;
        if (start < f->until_s && start + takes > f->from_s) {
            start = f->until_s;
            i = -1; /* another failure may begin meanwhile */
        }
    }
    return start;
}

double ls_des_links_send(ls_des_links *l, uint32_t a, uint32_t b, double t, double bytes, double factor)
{
    const int meet = ls_des_links_meet(l, a, b);
    const double gap = l->net.gap * l->latency_s[meet];
    double start = t, most = 0;
    for (int i = 0; i < l->nlayers; i++) {
        const ls_des_layer *at = &l->layer[i];
        if (!ls_des_layer_taken(at, meet)) continue;
        const double out = at->free[a / at->each], in = at->free[at->ports + b / at->each];
        start = out > start ? out : start;
        start = in > start ? in : start;
    }
    for (double before = -1; l->net.nfailures > 0 && start != before;) {
        before = start;
        for (int i = 0; i < l->nlayers && isfinite(start); i++) {
            const ls_des_layer *at = &l->layer[i];
            if (!ls_des_layer_taken(at, meet)) continue;
            const double takes = bytes * factor * ls_des_links_pace(l, a, b, meet);
            start = after_failures(l, at, a / at->each, start, takes);
            start = after_failures(l, at, b / at->each, start, takes);
        }
    }
    if (!isfinite(start)) return start;
    for (int i = 0; i < l->nlayers; i++) {
        const ls_des_layer *at = &l->layer[i];
        if (!ls_des_layer_taken(at, meet)) continue;
        const double out = pace_of(at, a / at->each), in = pace_of(at, b / at->each);
        at->free[a / at->each] = start + (bytes * out + gap) * factor;
        at->free[at->ports + b / at->each] = start + (bytes * in + gap) * factor;
        most = out > most ? out : most;
        most = in > most ? in : most;
    }
    return start + bytes * most * factor + l->latency_s[meet] * factor;
}
