/* placement_print.c -- a placement for people and for programs. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "lockstep/dtype.h"
#include "plan/placement.h"
#include "sim/quantity.h"

#define GRID_NODES   16 /* that are printed */
#define GRID_DEVICES 16
#define AXES_TEXT    32

static const char *seconds(double s, char *buf, size_t n)
{
    char digits[40];
    const double v = s >= 1 ? s : s >= 1e-3 ? s * 1e3 : s * 1e6;
    snprintf(digits, sizeof digits, "%.4g", v);
    snprintf(buf, n, "%s %s", digits, s >= 1 ? "s" : s >= 1e-3 ? "ms" : "us");
    return buf;
}

static const char *bytes(double v, char *buf, size_t n) { return v > 0 ? ls_bytes_text(v, buf, n) : "-"; }

static const char *ranks_of(const ls_placement_report *r, const ls_step_row *row, char *buf, size_t n)
{
    return row->ends ? "pp ends" : ls_step_axes_text(r->x->size, row->axes, buf, n);
}

/* "tp 3" of every axis with several ranks, the slowest of the order first. */
static void cell(const ls_step_traffic *x, const ls_placement *p, int64_t device, char *buf, size_t n)
{
    int64_t stride[LS_AXES];
    size_t at = 0;
    *buf = 0;
    ls_placement_strides(x, p, stride);
    for (int i = p->n - 1; i >= 0 && at < n; i--) {
        const int a = p->order[i];
        at += (size_t)snprintf(buf + at, n - at, "%s%s%lld", at ? "." : "", ls_axis_name((ls_axis)a),
                               (long long)(device / stride[a] % x->size[a]));
    }
}

/* A row for each unit of the lowest level, a column for each of its devices. */
static void grid(const ls_placement_report *r, const ls_placement *p, ls_text *out)
{
    const int64_t each = r->t->level[0].count, ranks = r->x->ranks, nodes = (ranks + each - 1) / each;
    char buf[80];
    ls_text_add(out, "\n%s x device:\n", r->t->level[0].name);
    for (int64_t n = 0; n < nodes && n < GRID_NODES; n++) {
        ls_text_add(out, "  %4lld", (long long)n);
        for (int64_t d = 0; d < each && d < GRID_DEVICES && n * each + d < ranks; d++) {
            cell(r->x, p, n * each + d, buf, sizeof buf);
            ls_text_add(out, "  %s", buf);
        }
        ls_text_add(out, "%s\n", each > GRID_DEVICES ? " ..." : "");
    }
    if (nodes > GRID_NODES) ls_text_add(out, "  ... %lld more\n", (long long)(nodes - GRID_NODES));
}

/* What each axis divides among its ranks, and what that costs here. */
static void axes_table(const ls_placement_report *r, const ls_placement *p, ls_text *out)
{
    static const char *const divides[LS_AXES] = {
        [LS_AXIS_PP] = "model state: layers", [LS_AXIS_DP] = "inputs: samples", [LS_AXIS_EP] = "inputs, and state: experts",
        [LS_AXIS_CP] = "inputs: tokens of a sequence", [LS_AXIS_TP] = "model state: every layer",
    };
    ls_text_add(out, "\n%-5s %5s  %-29s %10s %11s %-20s %11s\n", "axis", "ranks", "divides", "calls", "vectors", "slowest link", "time");
    for (int a = 0; a < LS_AXES; a++) {
        double calls = 0, sum = 0, s = 0;
        char b[2][40];
        if (r->x->size[a] == 1) continue;
        const int level = ls_placement_reach(r->t, r->x, p, (ls_axis)a);
        for (int i = 0; i < r->x->n; i++) {
            if (!(r->x->row[i].axes >> a & 1u)) continue;
            calls += r->x->row[i].calls;
            sum += r->x->row[i].bytes;
            s += p->row[i].serial_s;
        }
        ls_text_add(out, "%-5s %5d  %-29s %10.6g %11s %-20s %11s\n", ls_axis_name((ls_axis)a), r->x->size[a], divides[a], calls,
                    bytes(sum, b[0], sizeof b[0]), r->t->level[level].link, seconds(s, b[1], sizeof b[1]));
    }
    ls_text_add(out, "Groups along several axes count for each of them.\n");
}

/* Collective x link. */
static void matrix(const ls_placement_report *r, const ls_placement *p, ls_text *out)
{
    char axes[AXES_TEXT], b[3][40];
    ls_text_add(out, "\n%-10s %-15s %10s %11s", "ranks", "collective", "calls", "vectors");
    for (int l = 0; l < r->t->nlevels; l++) ls_text_add(out, " %16s", r->t->level[l].link);
    ls_text_add(out, " %11s %11s\n", "latency", "time");
    for (int i = 0; i < r->x->n; i++) {
        const ls_step_row *row = &r->x->row[i];
        ls_text_add(out, "%-10s %-15s %10.6g %11s", ranks_of(r, row, axes, sizeof axes),
                    row->coll == LS_SENDRECV ? "messages" : ls_coll_name(row->coll), row->calls, bytes(row->bytes, b[0], sizeof b[0]));
        for (int l = 0; l < r->t->nlevels; l++) ls_text_add(out, " %16s", bytes(p->row[i].bytes[l], b[0], sizeof b[0]));
        ls_text_add(out, " %11s %11s\n", seconds(p->row[i].latency_s, b[0], sizeof b[0]), seconds(p->row[i].serial_s, b[1], sizeof b[1]));
    }
    ls_text_add(out, "%-49s", "together, the busiest unit");
    for (int l = 0; l < r->t->nlevels; l++) ls_text_add(out, " %16s", bytes(p->bytes[l], b[0], sizeof b[0]));
    ls_text_add(out, "\n%-49s", "its time");
    for (int l = 0; l < r->t->nlevels; l++) ls_text_add(out, " %16s", p->bytes[l] > 0 ? seconds(p->seconds[l], b[0], sizeof b[0]) : "-");
    ls_text_add(out, "\n%-49s", "all units");
    for (int l = 0; l < r->t->nlevels; l++) ls_text_add(out, " %16s", bytes(p->total[l], b[0], sizeof b[0]));
    ls_text_add(out, "\n");
}

static void warn(const ls_placement_report *r, const ls_placement *p, ls_text *out)
{
    ls_placement_warning all[LS_PLACEMENT_WARNINGS];
    const int n = ls_placement_warnings(r->x, p, r->all, r->n, all);
    for (int i = 0; i < n; i++) {
        const ls_placed_axes *often = &all[i].often, *seldom = &all[i].seldom;
        char a[AXES_TEXT], b[AXES_TEXT], t[4][40], order[40];
        ls_text_add(out, "warning: %s calls %.6g collectives of %s per step and crosses %s (%s per pair); ",
                    ls_step_axes_text(r->x->size, often->axes, a, sizeof a), often->calls,
                    bytes(often->bytes, t[0], sizeof t[0]), r->t->level[often->level].link,
                    ls_quantity_text(LS_Q_BANDWIDTH, often->rate, t[1], sizeof t[1]));
        ls_text_add(out, "%s, with %.6g of %s, stays on %s (%s). ",
                    ls_step_axes_text(r->x->size, seldom->axes, b, sizeof b), seldom->calls,
                    bytes(seldom->bytes, t[2], sizeof t[2]), r->t->level[seldom->level].link,
                    ls_quantity_text(LS_Q_BANDWIDTH, seldom->rate, t[3], sizeof t[3]));
        ls_text_add(out, "With %s a step is %.3g times as fast\n", ls_placement_order_text(all[i].better, order, sizeof order),
                    p->serial_s / all[i].better->serial_s);
    }
}

static int count_warnings(const ls_placement_report *r, const ls_placement *p)
{
    return ls_placement_warnings(r->x, p, r->all, r->n, NULL);
}

/* In percent; 0: unknown. */
static double efficiency(const ls_placement *p, double s)
{
    return s > 0 && p->compute_s > 0 ? 100 * p->compute_s / s : 0;
}

static void one_line(const char *what, const ls_placement_report *r, const ls_placement *p, ls_text *out)
{
    char order[40], a[40], b[40];
    ls_text_add(out, "%-10s %-16s at least %11s", what, ls_placement_order_text(p, order, sizeof order), seconds(p->bound_s, a, sizeof a));
    if (p->compute_s > 0) ls_text_add(out, " (MFU at most %.3g %%)", efficiency(p, p->bound_s));
    ls_text_add(out, ", one after another %11s", seconds(p->serial_s, b, sizeof b));
    if (p->compute_s > 0) ls_text_add(out, " (MFU %.3g %%)", efficiency(p, p->serial_s));
    if (p != r->best) ls_text_add(out, ", %.3g times the best", p->serial_s / r->best->serial_s);
    ls_text_add(out, "\n");
}

void ls_placement_print(const ls_placement_report *r, ls_text *out)
{
    const ls_placement *worst = r->all;
    char buf[64], order[40];
    ls_text_add(out, "%d ranks on %s:", r->x->ranks, r->t->name);
    for (int a = 0; a < LS_AXES; a++)
        if (r->x->size[a] > 1) ls_text_add(out, " %s %d", ls_axis_name((ls_axis)a), r->x->size[a]);
    ls_text_add(out, "; a step of %.9g %s, %.4g FLOP, %s of products at the peak of %s\n", r->x->tokens,
                r->x->of, r->x->flops,
                r->judged->compute_s > 0 ? seconds(r->judged->compute_s, buf, sizeof buf) : "unknown time", r->t->device.name);
    ls_text_add(out, "\n%s, the slowest first: %s\n", r->asked ? "the order that was asked for" : "the order of the runtime (parallel.order)",
                ls_placement_order_text(r->judged, order, sizeof order));
    grid(r, r->judged, out);
    axes_table(r, r->judged, out);
    matrix(r, r->judged, out);
    ls_text_add(out, "\n");
    warn(r, r->judged, out);
    one_line(r->asked ? "asked for" : "runtime", r, r->judged, out);
    if (r->n > 1) one_line("best", r, r->best, out);
    if (r->n > 1) one_line("naive", r, r->naive, out);
    for (int i = 0; i < r->n; i++)
        if (r->all[i].serial_s > worst->serial_s) worst = &r->all[i];
    ls_text_add(out, "certificate: all %d orders were evaluated; the best takes %s one after another, ", r->n,
                seconds(r->best->serial_s, buf, sizeof buf));
    ls_text_add(out, "the worst (%s) %.4g times as long\n", ls_placement_order_text(worst, order, sizeof order),
                worst->serial_s / r->best->serial_s);
}

/* --- JSON ----------------------------------------------------------------------------------------- */

static void numbers(ls_text *out, const char *key, const double *v, int n)
{
    ls_text_add(out, ", \"%s\": [", key);
    for (int i = 0; i < n; i++) {
        if (i) ls_text_add(out, ", ");
        ls_json_number(out, v[i]);
    }
    ls_text_add(out, "]");
}

static void order_json(const ls_placement *p, ls_text *out)
{
    char order[40];
    ls_text_add(out, "{\"order\": \"%s\"", ls_placement_order_text(p, order, sizeof order));
    ls_json_also(out, "bound_s", p->bound_s);
    ls_json_also(out, "serial_s", p->serial_s);
    ls_json_also(out, "mfu_at_most", efficiency(p, p->bound_s) / 100);
    ls_json_also(out, "mfu_serial", efficiency(p, p->serial_s) / 100);
}

static void rows_json(const ls_placement_report *r, const ls_placement *p, ls_text *out)
{
    char axes[AXES_TEXT];
    ls_text_add(out, ", \"rows\": [");
    for (int i = 0; i < r->x->n; i++) {
        const ls_step_row *row = &r->x->row[i];
        ls_text_add(out, "%s\n {\"ranks\": \"%s\", \"collective\": \"%s\"", i ? "," : "", ranks_of(r, row, axes, sizeof axes),
                    row->coll == LS_SENDRECV ? "messages" : ls_coll_name(row->coll));
        ls_json_also(out, "calls", row->calls);
        ls_json_also(out, "bytes", row->bytes);
        numbers(out, "bytes_per_stage", row->of_stage, r->x->size[LS_AXIS_PP]);
        ls_text_add(out, ", \"link\": ");
        ls_json_string(out, r->t->level[p->row[i].level].link);
        numbers(out, "bytes_per_level", p->row[i].bytes, r->t->nlevels);
        numbers(out, "seconds_per_level", p->row[i].seconds, r->t->nlevels);
        ls_json_also(out, "latency_s", p->row[i].latency_s);
        ls_json_also(out, "serial_s", p->row[i].serial_s);
        ls_text_add(out, "}");
    }
    ls_text_add(out, "]");
}

static void axes_and_grid_json(const ls_placement_report *r, const ls_placement *p, ls_text *out)
{
    char buf[80];
    ls_text_add(out, ",\n \"axes\": [");
    for (int a = 0, n = 0; a < LS_AXES; a++) {
        if (r->x->size[a] == 1) continue;
        ls_text_add(out, "%s{\"axis\": \"%s\", \"ranks\": %d, \"link\": ", n++ ? ", " : "", ls_axis_name((ls_axis)a), r->x->size[a]);
        ls_json_string(out, r->t->level[ls_placement_reach(r->t, r->x, p, (ls_axis)a)].link);
        ls_text_add(out, "}");
    }
    ls_text_add(out, "],\n \"grid\": [");
    for (int64_t d = 0; d < r->x->ranks && d < GRID_NODES * GRID_DEVICES; d++) {
        const bool first = d % r->t->level[0].count == 0;
        cell(r->x, p, d, buf, sizeof buf);
        ls_text_add(out, "%s\"%s\"", d == 0 ? "[" : first ? "], [" : ", ", buf);
    }
    ls_text_add(out, "]]");
}

void ls_placement_json(const ls_placement_report *r, ls_text *out)
{
    ls_text_add(out, "{\"topology\": ");
    ls_json_string(out, r->t->name);
    ls_text_add(out, ", \"ranks\": %d, \"mesh\": {", r->x->ranks);
    for (int a = 0; a < LS_AXES; a++) ls_text_add(out, "%s\"%s\": %d", a ? ", " : "", ls_axis_name((ls_axis)a), r->x->size[a]);
    ls_text_add(out, "}");
    ls_json_also(out, "flops", r->x->flops);
    ls_json_also(out, "compute_s", r->judged->compute_s);
    ls_text_add(out, ", \"levels\": [");
    for (int l = 0; l < r->t->nlevels; l++) {
        if (l) ls_text_add(out, ", ");
        ls_json_string(out, r->t->level[l].link);
    }
    ls_text_add(out, "],\n \"judged\": ");
    order_json(r->judged, out);
    ls_text_add(out, ", \"warnings\": %d", count_warnings(r, r->judged));
    numbers(out, "bytes_per_level", r->judged->bytes, r->t->nlevels);
    numbers(out, "seconds_per_level", r->judged->seconds, r->t->nlevels);
    numbers(out, "total_bytes_per_level", r->judged->total, r->t->nlevels);
    rows_json(r, r->judged, out);
    axes_and_grid_json(r, r->judged, out);
    ls_text_add(out, "},\n \"best\": ");
    order_json(r->best, out);
    ls_text_add(out, ", \"warnings\": %d},\n \"naive\": ", count_warnings(r, r->best));
    order_json(r->naive, out);
    ls_text_add(out, ", \"warnings\": %d},\n \"evaluated\": %d, \"orders\": [", count_warnings(r, r->naive), r->n);
    for (int i = 0; i < r->n; i++) {
        ls_text_add(out, "%s\n ", i ? "," : "");
        order_json(&r->all[i], out);
        ls_text_add(out, "}");
    }
    ls_text_add(out, "]}\n");
}
