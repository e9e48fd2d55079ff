/* des_fair.c -- messages that share links: max-min fair rates, by filling all links evenly until each flow meets a
 * full one (Bertsekas and Gallager, Data Networks, 1992). */
#include <math.h>
#include <stdlib.h>

#include "sim/des_links.h"

/* The ports of a flow, as indices into `capacity`; returns how many. */
static int ports_of(const ls_des_links *l, const ls_des_flow *f, uint32_t port[2 * LS_DES_LAYERS])
{
    const int meet = ls_des_links_meet(l, f->from, f->to);
    uint32_t first = 0;
    int n = 0;
    for (int i = 0; i < l->nlayers; i++) {
        const ls_des_layer *a = &l->layer[i];
        if (ls_des_layer_taken(a, meet)) {
            port[n++] = first + f->from / a->each;
            port[n++] = first + a->ports + f->to / a->each;
        }
        first += 2 * a->ports;
    }
    return n;
}

/* What all links carry, and how many flows use them. */
static void fill(ls_des_links *l)
{
    uint32_t first = 0;
    for (int i = 0; i < l->nlayers; first += 2 * l->layer[i++].ports)
        for (uint32_t p = 0; p < 2 * l->layer[i].ports; p++) {
            const ls_des_layer *a = &l->layer[i];
            l->capacity[first + p] = 1.0 / (a->slow ? a->slow[p % a->ports] : a->s_per_byte);
            l->users[first + p] = 0;
        }
    for (uint32_t i = 0; i < l->nflows; i++) {
        uint32_t port[2 * LS_DES_LAYERS];
        for (int k = ports_of(l, &l->flow[i], port); k-- > 0;) l->users[port[k]]++;
        l->fixed[i] = false;
    }
}

/* The least that a link has for each of its flows that have no rate yet. */
static double least_part(const ls_des_links *l)
{
    double least = (double)INFINITY;
    uint32_t n = 0;
    for (int i = 0; i < l->nlayers; i++) n += 2 * l->layer[i].ports;
    for (uint32_t p = 0; p < n; p++)
        if (l->users[p] > 0 && l->capacity[p] / l->users[p] < least) least = l->capacity[p] / l->users[p];
    return least;
}

static void fix(ls_des_links *l, uint32_t i, double rate)
{
    uint32_t port[2 * LS_DES_LAYERS];
    l->fixed[i] = true;
    l->flow[i].rate = rate;
    for (int k = ports_of(l, &l->flow[i], port); k-- > 0;) {
        l->capacity[port[k]] = fmax(0, l->capacity[port[k]] - rate);
        l->users[port[k]]--;
    }
}

static bool meets_full(const ls_des_links *l, uint32_t i, double part)
{
    uint32_t port[2 * LS_DES_LAYERS];
    for (int k = ports_of(l, &l->flow[i], port); k-- > 0;)
        if (l->capacity[port[k]] / l->users[port[k]] <= part * (1 + 1e-12)) return true;
    return false;
}

static void share(ls_des_links *l)
{
    fill(l);
    for (uint32_t left = l->nflows; left > 0;) {
        const double part = least_part(l);
        for (uint32_t i = 0; i < l->nflows; i++) /* all of them first: fixing one changes what others see */
            l->flow[i].ends = !l->fixed[i] && meets_full(l, i, part) ? -1 : 0;
        for (uint32_t i = 0; i < l->nflows; i++)
            if (l->flow[i].ends < 0) {
                fix(l, i, part);
                left--;
            }
    }
    for (uint32_t i = 0; i < l->nflows; i++) l->flow[i].ends = l->now + l->flow[i].left / l->flow[i].rate;
    l->changed = false;
}

/* What has left until t. */
static void advance(ls_des_links *l, double t)
{
    for (uint32_t i = 0; t > l->now && i < l->nflows; i++)
        l->flow[i].left = fmax(0, l->flow[i].left - l->flow[i].rate * (t - l->now));
    l->now = t > l->now ? t : l->now;
}

ls_status ls_des_fair_begin(ls_des_links *l, const ls_des_flow *flow, double t, double bytes)
{
    if (l->changed && t > l->now) share(l);
    advance(l, t);
    if (l->nflows == l->cap) {
        const uint32_t cap = l->cap ? 2 * l->cap : 64;
        ls_des_flow *more = realloc(l->flow, cap * sizeof *more);
        if (more) l->flow = more;
        bool *fixed = realloc(l->fixed, cap * sizeof *fixed);
        if (fixed) l->fixed = fixed;
        if (!more || !fixed) return ls_fail(LS_NO_MEMORY, "%u messages at a time", cap);
        l->cap = cap;
    }
    l->flow[l->nflows] = *flow;
    l->flow[l->nflows].left = bytes;
    l->flow[l->nflows++].order = l->order++;
    l->changed = true;
    return LS_OK;
}

static uint32_t first_to_end(const ls_des_links *l)
{
    uint32_t first = 0;
    for (uint32_t i = 1; i < l->nflows; i++) {
        const ls_des_flow *a = &l->flow[i], *b = &l->flow[first];
        if (a->ends < b->ends || (a->ends == b->ends && a->order < b->order)) first = i;
    }
    return first;
}

double ls_des_fair_next(ls_des_links *l)
{
    if (l->nflows == 0) return (double)INFINITY;
    if (l->changed) share(l);
    return l->flow[first_to_end(l)].ends;
}

ls_des_flow ls_des_fair_end(ls_des_links *l)
{
    const uint32_t i = first_to_end(l);
    const ls_des_flow f = l->flow[i];
    advance(l, f.ends);
    l->flow[i] = l->flow[--l->nflows];
    l->changed = true;
    return f;
}
