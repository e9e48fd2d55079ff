/* topo_print.c -- a topology as text and as JSON. */
#include "sim/topo_print.h"

#include <math.h>
#include <stdio.h>

#include "sim/quantity.h"

#define DRAWN 8 /* units of a level in the tree */

static const char *rate(double v, char *buf, size_t n) { return ls_quantity_text(LS_Q_BANDWIDTH, v, buf, n); }

static const char *joined(const ls_topo *t, int level) { return level > 0 ? t->level[level - 1].name : "device"; }

static void first_line(const ls_topo *t, ls_text *out)
{
    char buf[64];
    ls_text_add(out, "%s: %lld devices", t->name, (long long)ls_topo_devices(t));
    for (int l = t->nlevels - 1; l >= 0; l--)
        ls_text_add(out, "%s%d %s", l == t->nlevels - 1 ? ", " : " x ", t->level[l].count, joined(t, l));
    ls_text_add(out, " (%s", t->device.name);
    if (t->device.flops_per_s > 0) ls_text_add(out, ", peak %s", ls_quantity_text(LS_Q_FLOPS, t->device.flops_per_s, buf, sizeof buf));
    if (t->device.memory_bytes > 0) ls_text_add(out, ", %s", ls_quantity_text(LS_Q_MEMORY, t->device.memory_bytes, buf, sizeof buf));
    ls_text_add(out, ")\n");
    if (*t->source) {
        ls_text_add(out, "source: ");
        ls_text_wrap(out, t->source, 8, 110);
    }
}

static void levels(const ls_topo *t, ls_text *out)
{
    bool summed = false;
    ls_text_add(out, "\n%-10s %-14s %-16s %11s %11s %6s %12s %10s %12s\n", "level", "joins", "link", "port, one", "port, both", "ports",
                "of a unit", "latency", "bisection");
    for (int l = 0; l < t->nlevels; l++) {
        const ls_topo_level *v = &t->level[l];
        char b[6][40];
        snprintf(b[0], sizeof b[0], "%d %.24s", v->count, joined(t, l));
        const double usual = v->bytes_per_s * v->ports / v->oversubscription;
        ls_text_add(out, "%-10s %-14s %-16s %11s %10s%s %6d %12s %10s %12s", v->name, b[0], v->link, rate(v->bytes_per_s, b[1], sizeof b[1]),
                    rate(2 * v->bytes_per_s, b[2], sizeof b[2]), v->summed ? "*" : " ", v->ports, rate(usual, b[3], sizeof b[3]),
                    ls_quantity_text(LS_Q_TIME, v->latency_s, b[4], sizeof b[4]),
                    rate(ls_topo_bisection(t, l, 0), b[5], sizeof b[5]));
        if (v->rails) ls_text_add(out, "  rails");
        if (v->oversubscription > 1) ls_text_add(out, "  oversubscribed %g:1", v->oversubscription);
        ls_text_add(out, "\n");
        summed |= v->summed;
    }
    ls_text_add(out, "Rates are of one direction, ports of a unit that a level joins, and the bisection that of one unit of the level.\n");
    if (summed) ls_text_add(out, "* stated by its source: the sum of both directions\n");
    for (int i = 0; i < t->nslow; i++) {
        char b[40];
        const ls_topo_slow *s = &t->slow[i];
        ls_text_add(out, "slow: ports of %s %lld have %s each\n", joined(t, s->level), (long long)s->unit, rate(s->bytes_per_s, b, sizeof b));
    }
}

/* A unit of level l - 1, and what it joins; `left` stands before it. */
static void branch(const ls_topo *t, int l, int64_t unit, const char *left, bool last, ls_text *out)
{
    char b[40], below[64];
    const int count = l > 0 ? t->level[l - 1].count : 0;
    ls_text_add(out, "%s%s %s %lld", left, last ? "`--" : "|--", joined(t, l), (long long)unit);
    if (l == 1) {
        ls_text_add(out, ": devices %lld-%lld", (long long)unit * count, (long long)(unit + 1) * count - 1);
    }
    ls_text_add(out, ", %s by %d x %s\n", rate(ls_topo_uplink(t, l, unit), b, sizeof b), t->level[l].ports, t->level[l].link);
    snprintf(below, sizeof below, "%.50s%s   ", left, last ? " " : "|");
    for (int i = 0; l > 1 && i < count && i < DRAWN; i++)
        branch(t, l - 1, unit * count + i, below, i == count - 1, out);
    if (l > 1 && count > DRAWN) ls_text_add(out, "%s... %d more\n", below, count - DRAWN);
}

static void tree(const ls_topo *t, ls_text *out)
{
    const int top = t->nlevels - 1, count = t->level[top].count;
    ls_text_add(out, "\n%s\n", t->level[top].name);
    for (int i = 0; i < count && i < DRAWN; i++) branch(t, top, i, "", i == count - 1, out);
    if (count > DRAWN) ls_text_add(out, "... %d more\n", count - DRAWN);
}

static void matrix(const ls_topo *t, ls_text *out)
{
    const int64_t all = ls_topo_devices(t);
    const int n = (int)(all < LS_TOPO_MATRIX ? all : LS_TOPO_MATRIX);
    ls_text_add(out, "\nGB/s from device to device, one direction, if nothing else is sent%s\n     ",
                n < all ? " (the first 16 devices)" : "");
    for (int b = 0; b < n; b++) ls_text_add(out, " %6d", b);
    for (int a = 0; a < n; a++) {
        ls_text_add(out, "\n%5d", a);
        for (int b = 0; b < n; b++) {
            double r, latency;
            ls_topo_pair(t, a, b, &r, &latency);
            if (a == b) ls_text_add(out, " %6s", "-");
            else ls_text_add(out, " %6.4g", r * 1e-9);
        }
    }
    ls_text_add(out, "\n");
}

void ls_topo_print(const ls_topo *t, ls_text *out)
{
    first_line(t, out);
    levels(t, out);
    tree(t, out);
    matrix(t, out);
}

void ls_topo_json(const ls_topo *t, ls_text *out)
{
    ls_text_add(out, "{\"name\": ");
    ls_json_string(out, t->name);
    ls_text_add(out, ", \"source\": ");
    ls_json_string(out, t->source);
    ls_text_add(out, ", \"devices\": %lld, \"device\": {\"name\": ", (long long)ls_topo_devices(t));
    ls_json_string(out, t->device.name);
    ls_json_also(out, "flops_per_s", t->device.flops_per_s);
    ls_json_also(out, "memory_bytes", t->device.memory_bytes);
    ls_text_add(out, "}, \"levels\": [");
    for (int l = 0; l < t->nlevels; l++) {
        const ls_topo_level *v = &t->level[l];
        double r = 0, latency;
        if (v->count > 1) ls_topo_pair(t, 0, ls_topo_unit_devices(t, l), &r, &latency); /* of the first two units */
        ls_text_add(out, "%s\n {\"name\": ", l ? "," : "");
        ls_json_string(out, v->name);
        ls_text_add(out, ", \"of\": ");
        ls_json_string(out, joined(t, l));
        ls_text_add(out, ", \"count\": %d, \"link\": ", v->count);
        ls_json_string(out, v->link);
        ls_json_also(out, "port_bytes_per_s", v->bytes_per_s);
        ls_json_also(out, "stated_bytes_per_s", v->summed ? 2 * v->bytes_per_s : v->bytes_per_s);
        ls_text_add(out, ", \"direction\": \"%s\", \"ports\": %d, \"rails\": %s", v->summed ? "both" : "one", v->ports, v->rails ? "true" : "false");
        ls_json_also(out, "oversubscription", v->oversubscription);
        ls_json_also(out, "unit_bytes_per_s", v->bytes_per_s * v->ports / v->oversubscription);
        ls_json_also(out, "latency_s", v->latency_s);
        if (v->count > 1) ls_json_also(out, "pair_bytes_per_s", r);
        ls_json_also(out, "bisection_bytes_per_s", ls_topo_bisection(t, l, 0));
        ls_text_add(out, "}");
    }
    ls_text_add(out, "],\n \"slow\": [");
    for (int i = 0; i < t->nslow; i++) {
        ls_text_add(out, "%s{\"level\": ", i ? ", " : "");
        ls_json_string(out, t->level[t->slow[i].level].name);
        ls_text_add(out, ", \"unit\": %lld", (long long)t->slow[i].unit);
        ls_json_also(out, "port_bytes_per_s", t->slow[i].bytes_per_s);
        ls_text_add(out, "}");
    }
    ls_text_add(out, "]}\n");
}
