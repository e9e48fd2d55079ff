/* roofline_print.c -- a roofline as text and as JSON. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "plan/roofline.h"
#include "sim/quantity.h"

#define SHOWN 12 /* operations in the text */

static const char *const phase_name[LS_STEP_PHASES] = { "forward", "backward", "update" };

static double op_s(const ls_step_op *op) { return op->compute_s + op->memory_s; }

static ls_bound op_bound(const ls_step_op *op)
{
    return op->compute_s > op->memory_s ? LS_BOUND_COMPUTE : LS_BOUND_MEMORY;
}

static int by_time(const void *a, const void *b)
{
    const ls_step_op *x = *(const ls_step_op *const *)a, *y = *(const ls_step_op *const *)b;
    const double s = op_s(x), t = op_s(y);
    return s != t ? (s < t) - (s > t) : (x > y) - (x < y);
}

/* Of the stage, the longest first; to be freed. NULL: no memory. */
static const ls_step_op **sorted(const ls_step_list *of)
{
    const ls_step_op **op = malloc(((size_t)of->nops + 1) * sizeof *op);
    for (int i = 0; op && i < of->nops; i++) op[i] = &of->op[i];
    if (op) qsort(op, (size_t)of->nops, sizeof *op, by_time);
    return op;
}

/* --- text ---------------------------------------------------------------------------------------------------- */

static const char *time_text(double s, char *buf, size_t n) { return ls_quantity_text(LS_Q_TIME, s, buf, n); }

/* "12.3" FLOPs per byte; "-" without any bytes. */
static const char *intensity_text(double flops, double bytes, char *buf, size_t n)
{
    if (bytes > 0) snprintf(buf, n, "%.3g", flops / bytes);
    else snprintf(buf, n, "-");
    return buf;
}

static void print_peaks(const ls_roofline *r, const char *peaks, ls_text *out)
{
    char a[64], b[64];
    ls_text_add(out, "%s, %d rank%s; rank of pipeline stage %d of %d\n", r->t->name, r->l->ranks,
                r->l->ranks == 1 ? "" : "s", r->stage, r->l->stages);
    ls_text_add(out, "peaks of a rank: %s, memory %s; ridge at %.3g FLOP per byte\n",
                ls_quantity_text(LS_Q_FLOPS, r->rates.flops_per_s, a, sizeof a),
                ls_quantity_text(LS_Q_BANDWIDTH, r->rates.memory_bytes_per_s, b, sizeof b),
                ls_roofline_ridge(&r->rates));
    ls_text_add(out, "from: %s\n", peaks);
}

/* How much of its bound an operation reaches in the run: "34 %". */
static const char *attained_text(const ls_step_op *op, double measured_s, char *buf, size_t n)
{
    if (measured_s > 0) snprintf(buf, n, "%.3g %%", 100 * op_s(op) / measured_s);
    else snprintf(buf, n, "-");
    return buf;
}

static void print_ops(const ls_roofline *r, const ls_roofline_measured *m, ls_text *out)
{
    const ls_step_list *of = &r->l->of[r->stage];
    const ls_step_op **op = sorted(of);
    char a[32], b[32], c[32], t[32];
    const bool traced = m->op_s != NULL;
    double rest = 0, ops = 0;
    for (int i = 0; i < of->nops; i++) ops += op_s(&of->op[i]);
    ls_text_add(out, "\n%-30s %-9s %7s %10s %11s %10s %11s %7s  bound\n", "operation", "phase", "calls", "GFLOP",
                "memory", "FLOP/byte", "at least", "of ops");
    for (int i = 0; op && i < of->nops; i++) {
        if (i >= SHOWN) rest += op_s(op[i]);
        else ls_text_add(out, "%-30s %-9s %7.0f %10.4g %11s %10s %11s %5.1f %%  %s%s%s\n", op[i]->name,
                         phase_name[op[i]->phase], op[i]->calls, 1e-9 * op[i]->flops,
                         ls_bytes_text(op[i]->bytes, a, sizeof a),
                         intensity_text(op[i]->flops, op[i]->bytes, b, sizeof b), time_text(op_s(op[i]), c, sizeof c),
                         ops > 0 ? 100 * op_s(op[i]) / ops : 0, ls_bound_name(op_bound(op[i])),
                         traced ? ", attained " : "",
                         traced ? attained_text(op[i], m->op_s[op[i] - of->op], t, sizeof t) : "");
    }
    if (of->nops > SHOWN)
        ls_text_add(out, "and %d more: %s, %.1f %% (--json has all)\n", of->nops - SHOWN, time_text(rest, t, sizeof t),
                    ops > 0 ? 100 * rest / ops : 0);
    free(op);
}

static void print_phase(const char *name, const ls_roofline_phase *p, ls_text *out)
{
    char a[32], b[32], c[32], s[LS_BOUNDS][32];
    for (int i = 0; i < LS_BOUNDS; i++) time_text(p->part_s[i], s[i], sizeof s[i]);
    ls_text_add(out, "%-9s %10.4g %11s %11s %10s %12s %12s %14s  %s\n", name, 1e-9 * p->flops,
                ls_bytes_text(p->bytes, a, sizeof a), ls_bytes_text(p->sent, b, sizeof b),
                intensity_text(p->flops, p->bytes, c, sizeof c), s[0], s[1], s[2], ls_bound_name(p->bound));
}

static void print_phases(const ls_roofline *r, ls_text *out)
{
    ls_text_add(out, "\n%-9s %10s %11s %11s %10s %12s %12s %14s  bound\n", "phase", "GFLOP", "memory", "sent",
                "FLOP/byte", "compute", "memory", "communication");
    for (int k = 0; k < LS_STEP_PHASES; k++) print_phase(phase_name[k], &r->phase[k], out);
    print_phase("step", &r->all, out);
}

static void print_verdict(const ls_roofline *r, ls_text *out)
{
    char a[32], b[32];
    ls_text_add(out, "\nstep, if everything reached its peak and caches held nothing: %s\n",
                time_text(r->step_s, a, sizeof a));
    static const char *const what[LS_BOUNDS] = { "operations that products bound", "operations that memory bounds",
                                                 "communication that is waited for" };
    for (int i = 0; i < LS_BOUNDS; i++)
        ls_text_add(out, "  %-34s %12s %5.1f %%   twice as fast: step %s\n", what[i],
                    time_text(r->part_s[i], a, sizeof a), r->step_s > 0 ? 100 * r->part_s[i] / r->step_s : 0,
                    time_text(r->doubled_s[i], b, sizeof b));
    if (r->l->stages > 1)
        ls_text_add(out, "  %-34s %12s %5.1f %%\n", "waits for other stages (bubble)",
                    time_text(r->bubble_s, a, sizeof a), 100 * r->bubble_s / r->step_s);
    if (r->hidden_s > 0)
        ls_text_add(out, "  communication hidden behind computation: %s\n", time_text(r->hidden_s, a, sizeof a));
    ls_text_add(out, "limited by %s\n", ls_bound_name(r->bound));
}

static void print_measured(const ls_roofline *r, const ls_roofline_measured *m, ls_text *out)
{
    char a[32], b[32], c[32];
    const double flops = r->all.flops / m->step_s, bytes = r->all.bytes / m->step_s;
    ls_text_add(out, "\nmeasured: step %s, %.2f times that; communication exposed %s, hidden %s\n",
                time_text(m->step_s, a, sizeof a), m->step_s / r->step_s, time_text(m->exposed_s, b, sizeof b),
                time_text(m->hidden_s, c, sizeof c));
    ls_text_add(out, "attained: %s (%.1f %% of the peak)", ls_quantity_text(LS_Q_FLOPS, flops, a, sizeof a),
                100 * flops / r->rates.flops_per_s);
    ls_text_add(out, ", memory %s (%.1f %%)", ls_quantity_text(LS_Q_BANDWIDTH, bytes, a, sizeof a),
                100 * bytes / r->rates.memory_bytes_per_s);
    if (m->exposed_s + m->hidden_s > 0)
        ls_text_add(out, ", communication %s while under way",
                    ls_quantity_text(LS_Q_BANDWIDTH, m->moved / (m->exposed_s + m->hidden_s), a, sizeof a));
    ls_text_add(out, "\n");
}

void ls_roofline_print(const ls_roofline *r, const char *peaks, const ls_roofline_measured *m, ls_text *out)
{
    print_peaks(r, peaks, out);
    print_ops(r, m, out);
    print_phases(r, out);
    print_verdict(r, out);
    if (m->step_s > 0) print_measured(r, m, out);
}

/* --- JSON ---------------------------------------------------------------------------------------------------- */

static void triple(ls_text *out, const char *key, const double s[LS_BOUNDS])
{
    ls_text_add(out, ", \"%s\": {", key);
    for (int b = 0; b < LS_BOUNDS; b++) {
        if (b > 0) ls_text_add(out, ", ");
        ls_json_field(out, ls_bound_name((ls_bound)b), s[b]);
    }
    ls_text_add(out, "}");
}

static void phase_json(const char *name, const ls_roofline_phase *p, ls_text *out)
{
    ls_text_add(out, "{\"phase\": \"%s\", \"bound\": \"%s\"", name, ls_bound_name(p->bound));
    ls_json_also(out, "flops", p->flops);
    ls_json_also(out, "bytes", p->bytes);
    ls_json_also(out, "sent", p->sent);
    ls_json_also(out, "intensity", ls_intensity(p->flops, p->bytes));
    triple(out, "least_s", p->least_s);
    triple(out, "part_s", p->part_s);
    ls_text_add(out, "}");
}

static void op_json(const ls_step_op *op, double measured_s, ls_text *out)
{
    ls_text_add(out, "{\"op\": ");
    ls_json_string(out, op->name);
    ls_text_add(out, ", \"phase\": \"%s\", \"bound\": \"%s\"", phase_name[op->phase], ls_bound_name(op_bound(op)));
    ls_json_also(out, "calls", op->calls);
    ls_json_also(out, "flops", op->flops);
    ls_json_also(out, "bytes", op->bytes);
    ls_json_also(out, "intensity", ls_intensity(op->flops, op->bytes));
    ls_json_also(out, "compute_s", op->compute_s);
    ls_json_also(out, "memory_s", op->memory_s);
    ls_json_also(out, "measured_s", measured_s > 0 ? measured_s : (double)NAN);
    ls_text_add(out, "}");
}

static void measured_json(const ls_roofline *r, const ls_roofline_measured *m, ls_text *out)
{
    ls_text_add(out, ",\n \"measured\": ");
    if (!(m->step_s > 0)) {
        ls_text_add(out, "null");
        return;
    }
    ls_text_add(out, "{");
    ls_json_field(out, "step_s", m->step_s);
    ls_json_also(out, "exposed_s", m->exposed_s);
    ls_json_also(out, "hidden_s", m->hidden_s);
    ls_json_also(out, "flops_per_s", r->all.flops / m->step_s);
    ls_json_also(out, "memory_bytes_per_s", r->all.bytes / m->step_s);
    ls_json_also(out, "sent_bytes_per_s", m->moved / (m->exposed_s + m->hidden_s));
    ls_text_add(out, "}");
}

void ls_roofline_json(const ls_roofline *r, const char *peaks, const ls_roofline_measured *m, ls_text *out)
{
    const ls_step_list *of = &r->l->of[r->stage];
    ls_text_add(out, "{\"topology\": ");
    ls_json_string(out, r->t->name);
    ls_text_add(out, ", \"ranks\": %d, \"stage\": %d, \"stages\": %d, \"peaks\": {\"from\": ", r->l->ranks, r->stage,
                r->l->stages);
    ls_json_string(out, peaks);
    ls_json_also(out, "flops_per_s", r->rates.flops_per_s);
    ls_json_also(out, "memory_bytes_per_s", r->rates.memory_bytes_per_s);
    ls_json_also(out, "ridge", ls_roofline_ridge(&r->rates));
    ls_text_add(out, "},\n \"bound\": \"%s\"", ls_bound_name(r->bound));
    ls_json_also(out, "step_s", r->step_s);
    triple(out, "part_s", r->part_s);
    ls_json_also(out, "bubble_s", r->bubble_s);
    ls_json_also(out, "hidden_s", r->hidden_s);
    triple(out, "step_if_twice_as_fast_s", r->doubled_s);
    ls_text_add(out, ",\n \"phases\": [\n  ");
    for (int k = 0; k < LS_STEP_PHASES; k++) {
        phase_json(phase_name[k], &r->phase[k], out);
        ls_text_add(out, ",\n  ");
    }
    phase_json("step", &r->all, out);
    ls_text_add(out, "],\n \"operations\": [");
    for (int i = 0; i < of->nops; i++) {
        ls_text_add(out, i ? ",\n  " : "\n  ");
        op_json(&of->op[i], m->op_s ? m->op_s[i] : 0, out);
    }
    ls_text_add(out, "]");
    measured_json(r, m, out);
    ls_text_add(out, "}\n");
}
