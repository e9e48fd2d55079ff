/* plan_report.c -- a plan in words and tables. */
#include <stdio.h>
#include <string.h>

#include "plan/plan_report.h"
#include "plan/predict.h"
#include "plan/problem.h"
#include "plan/stage_memory.h"
#include "sim/quantity.h"

static const char *seconds(double v, char *buf, size_t n) { return ls_quantity_text(LS_Q_TIME, v, buf, n); }

static void table(const ls_plan_report *r, ls_text *out)
{
    ls_text_add(out, "\n   #        step    MFU    memory   tp  pp  cp  ep    dp  micro  schedule     chunks  ZeRO  "
        "recompute  in a node\n");
    for (int i = 0; i < r->found->n; i++) {
        const ls_layout_cost *c = &r->found->best[i];
        const ls_layout *l = &c->layout;
        char s[32], node[80];
        ls_text_add(out, "%4d  %10s %5.1f%% %6.1f GB %4lld %3lld %3lld %3lld %5lld %6lld  %-12s %6lld %5d  %-9s  %s\n",
            i + 1,
                    seconds(c->cost.total, s, sizeof s), 100 * ls_layout_mfu(r->q, c->cost.total, LS_FLOPS_FULL),
                    1e-9 * c->bytes, (long long)l->t, (long long)l->p, (long long)l->c, (long long)l->e,
                        (long long)l->d,
                    (long long)l->micro, l->p > 1 ? ls_pipe_form_name(l->form) : "-", (long long)l->v, l->zero,
                    ls_kept_name(l->kept), ls_layout_node_text(l, node, sizeof node));
    }
}

static void decomposition(const ls_layout_cost *best, ls_text *out)
{
    char s[32];
    ls_text_add(out, "\nwhere a step's time goes (the best plan)\n");
    for (const ls_step_part *p = ls_step_parts; p->name; p++) {
        const double v = ls_step_part_of(&best->cost, p);
        if (v > 0) ls_text_add(out, "  %-26s %11s %6.1f%%\n", p->name, seconds(v, s, sizeof s), 100 *
            v / best->cost.total);
    }
    ls_text_add(out, "  %-26s %11s\n", "sum: the step", seconds(best->cost.total, s, sizeof s));
}

static bool same_ledger(const ls_stage_memory *a, const ls_stage_memory *b) { return memcmp(a, b, sizeof *a) == 0; }

static void ledger(const ls_plan_report *r, ls_text *out)
{
    ls_problem b;
    ls_run run;
    ls_layer_memory layer;
    ls_stage_memory first = { 0 };
    int from = 0;
    if (ls_problem_of(r->q, &b) != LS_OK) return;
    ls_layout_run(&b, &r->found->best[0].layout, &run);
    ls_layer_memory_of(&run, &layer);
    ls_text_add(out, "\nmemory of a rank by stage, GB (limit %.4g)\n", 1e-9 * b.memory);
    ls_text_add(out, "    stages  layers  weights  gradients  optimizer  activations  in flight  logits  gathered  "
        "other   total\n");
    for (int i = 0; i <= run.p; i++) {
        ls_stage_memory m = { 0 };
        if (i < run.p) {
            ls_stage_shape s;
            ls_stage_shape_of(&run, i, &s);
            ls_stage_memory_of(&run, &layer, &s, &m);
        }
        if (i > 0 && (i == run.p || !same_ledger(&m, &first))) {
            char stages[32];
            snprintf(stages, sizeof stages, i - 1 > from ? "%d-%d" : "%d", from, i - 1);
            ls_text_add(out, "  %8s %7g %8.2f %10.2f %10.2f %12.2f %10g %7.2f %9.2f %6.2f %7.2f\n", stages,
                        first.dense + first.sparse, 1e-9 * first.weights, 1e-9 * first.gradients, 1e-9 *
                            first.optimizer,
                        1e-9 * first.activations, first.in_flight, 1e-9 * first.logits, 1e-9 * first.gathered,
                        1e-9 * (first.workspace + first.reserved), 1e-9 * first.total);
        }
        if (i == 0 || !same_ledger(&m, &first)) first = m, from = i;
    }
}

/* Of what is longer the part that is so by most. */
static const ls_step_part *longest(const ls_step_cost *a, const ls_step_cost *b, double *more)
{
    const ls_step_part *most = NULL;
    for (const ls_step_part *p = ls_step_parts; p->name; p++) {
        const double d = ls_step_part_of(a, p) - ls_step_part_of(b, p);
        if (!most || d > *more) most = p, *more = d;
    }
    return most;
}

static void neighbours(const ls_plan_report *r, ls_text *out)
{
    const ls_layout_cost *best = &r->found->best[0];
    ls_text_add(out, "\nwhy not (each with the rest as good as it can be)\n");
    for (int i = 0; i < r->nneighbours; i++) {
        const ls_neighbour *o = &r->neighbour[i];
        char s[32], t[32];
        ls_text_add(out, "  %-20s ", o->change);
        if (o->refused != LS_REFUSE_NONE) {
            ls_text_add(out, "not legal: %s\n", ls_refusal_text(o->refused));
        } else if (o->too_large) {
            ls_text_add(out, "does not fit: at least %.1f GB per rank\n", 1e-9 * o->cost.bytes);
        } else {
            double more = 0;
            const ls_step_part *p = longest(&o->cost.cost, &best->cost, &more);
            const double d = o->cost.cost.total - best->cost.total;
            ls_text_add(out, "%s, %+.1f%%", seconds(o->cost.cost.total, s, sizeof s), 100 * d / best->cost.total);
            if (more > 0) ls_text_add(out, "; %s +%s", p->name, seconds(more, t, sizeof t));
            if (o->cost.bytes < best->bytes) ls_text_add(out, "; %.1f GB less memory", 1e-9 * (best->bytes -
                o->cost.bytes));
            ls_text_add(out, "\n");
        }
    }
}

static void sensitivity(const ls_plan_report *r, ls_text *out)
{
    const double now = r->found->best[0].cost.total;
    ls_text_add(out, "\n10 %% more of a resource gives\n");
    for (int i = 0; i < LS_SENSITIVITIES; i++) {
        const ls_sensitivity *s = &r->sensitivity[i];
        ls_text_add(out, "  %-24s %6.2f%% faster", s->resource, 100 * (now / s->same - 1));
        if (s->other && s->again < s->same) ls_text_add(out, "; %.2f%% with another plan", 100 * (now / s->again - 1));
        ls_text_add(out, "\n");
    }
}

static void by_flops(const ls_plan_report *r, ls_text *out)
{
    const ls_layout_cost *best = &r->found->best[0], *c = &r->by_flops->real;
    char s[32], t[32], plan[200];
    double more = 0;
    ls_text_add(out, "\nranked by FLOPs alone (links, adapters, memory and launches at no cost)\n");
    ls_text_add(out, "  plan: %s\n", ls_layout_text(&c->layout, plan, sizeof plan));
    ls_text_add(out, "  step: %s as it is ranked, %s with everything counted: %.3g times the best plan's",
                seconds(r->by_flops->ranked, s, sizeof s), seconds(c->cost.total, t, sizeof t),
                c->cost.total / best->cost.total);
    const ls_step_part *p = longest(&c->cost, &best->cost, &more);
    if (more > 0) ls_text_add(out, "; %s +%s", p->name, seconds(more, s, sizeof s));
    ls_text_add(out, "\n");
}

static void certificate(const ls_plan_report *r, ls_text *out)
{
    const ls_layouts *f = r->found;
    char a[32], b[32], c[32], d[32];
    ls_text_add(out, "\ncertificate: %s factorisations of the world, %s of them legal; refused:",
                ls_number_text((double)f->degrees, 0, a, sizeof a), ls_number_text((double)f->legal_degrees, 0, b,
                    sizeof b));
    bool any = false;
    for (int i = 1; i < LS_REFUSE_COUNT; i++)
        if (f->refused[i]) {
            ls_text_add(out, "%s %s %lld", any ? ";" : "", ls_refusal_text((ls_refusal)i), (long long)f->refused[i]);
            any = true;
        }
    ls_text_add(out, "%s\n", any ? "" : " none");
    ls_text_add(out, "%s legal layouts: %s evaluated, %s do not fit, %s left out since a lower bound shows that they "
        "change nothing here\n",
                ls_number_text((double)f->legal, 0, a, sizeof a), ls_number_text((double)f->evaluated, 0, b, sizeof b),
                ls_number_text((double)f->too_large, 0, c, sizeof c), ls_number_text((double)f->bounded, 0, d,
                    sizeof d));
}

static void question(const ls_plan_report *r, ls_text *out)
{
    const int asked = ls_world_asked(r);
    ls_text_add(out, "\n  ranks        step    MFU    memory  device-s per step  plan\n");
    for (int i = 0; i < r->nworlds; i++) {
        const ls_world_plan *w = &r->worlds[i];
        ls_layout_query q = *r->q;
        char s[32], plan[200];
        q.world = w->world;
        if (!w->fits) ls_text_add(out, "%7lld  no layout fits\n", (long long)w->world);
        else
            ls_text_add(out, "%7lld  %10s %5.1f%% %6.1f GB %18.1f  %s%s\n", (long long)w->world,
                        seconds(w->best.cost.total, s, sizeof s), 100 * ls_layout_mfu(&q, w->best.cost.total,
                            LS_FLOPS_FULL),
                        1e-9 * w->best.bytes, w->best.cost.total * (double)w->world,
                        ls_layout_text(&w->best.layout, plan, sizeof plan), i == asked ? "  <--" : "");
    }
    ls_text_add(out, "\n");
    if (r->cheapest) ls_text_add(out, "the least device-seconds per step");
    else ls_text_add(out, "the smallest cluster");
    if (r->want_mfu > 0) ls_text_add(out, " with an MFU of %.4g %% or more", 100 * r->want_mfu);
    if (r->want_s > 0) ls_text_add(out, " with a step of %.4g s or less", r->want_s);
    if (asked < 0) ls_text_add(out, ": none of these, up to %lld ranks; ask for less, or allow more ranks (--world)\n",
                               (long long)r->q->world);
    else ls_text_add(out, ": %lld ranks\n", (long long)r->worlds[asked].world);
    ls_text_add(out, "worlds of 1, 2, 3, 4, 6, 8, 12 ... nodes were searched, and parts of a node\n");
}

static void header(const ls_plan_report *r, ls_text *out)
{
    const ls_layout_query *q = r->q;
    char a[32], b[32];
    ls_text_add(out, "%s: %s parameters; %lld ranks on %s (%s), batch %lld x %lld tokens%s, %d-bit products\n",
        q->model.name,
                ls_number_text((double)ls_llm_params(&q->model), 0, a, sizeof a), (long long)q->world, q->topo->name,
                q->topo->device.name, (long long)q->batch, (long long)q->model.seq,
                r->batch_given ? "" : " (a default: --batch)", q->bits ? q->bits : 16);
    if (r->worlds || !r->found || r->found->n == 0) return;
    const ls_layout_cost *best = &r->found->best[0];
    const double t = best->cost.total, null = ls_layout_null_mfu(q);
    double low, high;
    ls_layout_interval(q, &low, &high);
    ls_text_add(out, "step: %s, 90 %% interval %.4g to %.4g s; %s tokens/s\n", seconds(t, a, sizeof a), t * low, t *
        high,
                ls_number_text((double)q->batch * (double)q->model.seq / t, 0, b, sizeof b));
    ls_text_add(out, "MFU: %.1f %% attention as if not causal (Megatron-LM, NeMo), %.1f %% causal (Megatron-Bridge)\n",
                100 * ls_layout_mfu(q, t, LS_FLOPS_FULL), 100 * ls_layout_mfu(q, t, LS_FLOPS_CAUSAL));
    if (null > 0)
        ls_text_add(out, "null model: %s (%.1f %%, the median MFU of published runs on such devices, whatever the "
            "plan)\n",
                    seconds(t * ls_layout_mfu(q, t, LS_FLOPS_FULL) / null, a, sizeof a), 100 * null);
}

void ls_plan_print(const ls_plan_report *r, ls_text *out)
{
    char plan[200], node[80];
    header(r, out);
    if (r->worlds) {
        question(r, out);
        return;
    }
    const ls_layout *l = &r->found->best[0].layout;
    ls_text_add(out, "plan: %s\n", ls_layout_text(l, plan, sizeof plan));
    ls_text_add(out, "      %lld micro-batches per step; a node has %s\n", (long long)(r->q->batch / (l->micro * l->d)),
                ls_layout_node_text(l, node, sizeof node));
    table(r, out);
    decomposition(&r->found->best[0], out);
    ledger(r, out);
    if (r->neighbour) neighbours(r, out);
    if (r->sensitivity) sensitivity(r, out);
    if (r->by_flops) by_flops(r, out);
    certificate(r, out);
}

double ls_layout_null_mfu(const ls_layout_query *q)
{
    ls_problem b;
    return ls_problem_of(q, &b) == LS_OK && (!q->bits || q->bits == 16) ? ls_null_mfu[b.stack] : 0;
}
