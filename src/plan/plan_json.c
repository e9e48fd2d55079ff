/* plan_json.c -- a plan as one JSON object. */
#include "plan/plan_report.h"
#include "plan/problem.h"
#include "plan/stage_memory.h"

static void layout(const ls_layout *l, ls_text *t)
{
    ls_text_add(t, "\"tp\": %lld, \"pp\": %lld, \"cp\": %lld, \"ep\": %lld, \"dp\": %lld, \"chunks\": %lld, "
        "\"micro_batch\": %lld, ",
                (long long)l->t, (long long)l->p, (long long)l->c, (long long)l->e, (long long)l->d, (long long)l->v,
                (long long)l->micro);
    ls_text_add(t, "\"schedule\": \"%s\", \"ends_fewer_layers\": %d, \"zero\": %d, \"recompute\": \"%s\", ",
                l->p > 1 ? ls_pipe_form_name(l->form) : "none", l->fewer / 2, l->zero, ls_kept_name(l->kept));
    ls_text_add(t, "\"in_node\": {\"tp\": %lld, \"pp\": %lld, \"cp\": %lld, \"ep\": %lld, \"dp\": %lld}",
        (long long)l->t_in,
                (long long)l->p_in, (long long)l->c_in, (long long)l->e_in, (long long)l->d_in);
}

static void plan(const ls_layout_query *q, const ls_layout_cost *c, ls_text *t)
{
    ls_text_add(t, "{");
    layout(&c->layout, t);
    ls_text_add(t, ", \"world\": %lld, ", (long long)q->world);
    ls_json_field(t, "step_s", c->cost.total);
    ls_text_add(t, ", \"parts_s\": {");
    for (const ls_step_part *p = ls_step_parts; p->name; p++) {
        ls_text_add(t, "%s", p == ls_step_parts ? "" : ", ");
        ls_json_field(t, p->key, ls_step_part_of(&c->cost, p));
    }
    ls_text_add(t, "}, ");
    ls_json_field(t, "mfu_full_attention", ls_layout_mfu(q, c->cost.total, LS_FLOPS_FULL));
    ls_text_add(t, ", ");
    ls_json_field(t, "mfu_causal_attention", ls_layout_mfu(q, c->cost.total, LS_FLOPS_CAUSAL));
    ls_text_add(t, ", ");
    ls_json_field(t, "memory_bytes", c->bytes);
    ls_text_add(t, "}");
}

static void ledger(const ls_plan_report *r, ls_text *t)
{
    ls_problem b;
    ls_run run;
    ls_layer_memory layer;
    ls_text_add(t, ", \"stages\": [");
    if (ls_problem_of(r->q, &b) == LS_OK) {
        ls_layout_run(&b, &r->found->best[0].layout, &run);
        ls_layer_memory_of(&run, &layer);
        for (int i = 0; i < run.p; i++) {
            ls_stage_shape s;
            ls_stage_memory m;
            ls_stage_shape_of(&run, i, &s);
            ls_stage_memory_of(&run, &layer, &s, &m);
            const struct { const char *key; double v; } all[] = {
                { "weights", m.weights }, { "gradients", m.gradients }, { "optimizer", m.optimizer },
                { "activations", m.activations }, { "logits", m.logits }, { "gathered", m.gathered },
                { "workspace", m.workspace }, { "reserved", m.reserved }, { "total", m.total }, { "layers", m.dense +
                    m.sparse },
                { "in_flight", m.in_flight },
            };
            ls_text_add(t, "%s{", i ? ", " : "");
            for (size_t k = 0; k < sizeof all / sizeof *all; k++) {
                ls_text_add(t, "%s", k ? ", " : "");
                ls_json_field(t, all[k].key, all[k].v);
            }
            ls_text_add(t, "}");
        }
    }
    ls_text_add(t, "]");
}

static void neighbours(const ls_plan_report *r, ls_text *t)
{
    ls_text_add(t, ", \"neighbours\": [");
    for (int i = 0; i < r->nneighbours; i++) {
        const ls_neighbour *o = &r->neighbour[i];
        ls_text_add(t, "%s{\"change\": \"%s\", \"refused\": ", i ? ", " : "", o->change);
        if (o->refused != LS_REFUSE_NONE) ls_text_add(t, "\"%s\"}", ls_refusal_text(o->refused));
        else {
            ls_text_add(t, "null, \"fits\": %s, \"plan\": ", o->too_large ? "false" : "true");
            plan(r->q, &o->cost, t);
            ls_text_add(t, "}");
        }
    }
    ls_text_add(t, "]");
}

static void certificate(const ls_layouts *f, ls_text *t)
{
    ls_text_add(t, ", \"certificate\": {\"factorisations\": %lld, \"legal_factorisations\": %lld, \"refused\": {",
                (long long)f->degrees, (long long)f->legal_degrees);
    bool any = false;
    for (int i = 1; i < LS_REFUSE_COUNT; i++) {
        if (!f->refused[i]) continue;
        ls_text_add(t, "%s\"%s\": %lld", any ? ", " : "", ls_refusal_text((ls_refusal)i), (long long)f->refused[i]);
        any = true;
    }
    ls_text_add(t, "}, \"layouts\": %lld, \"evaluated\": %lld, \"do_not_fit\": %lld, \"bounded\": %lld}",
        (long long)f->legal,
                (long long)f->evaluated, (long long)f->too_large, (long long)f->bounded);
}

void ls_plan_json(const ls_plan_report *r, ls_text *t)
{
    const ls_layout_query *q = r->q;
    ls_text_add(t, "{\"model\": ");
    ls_json_string(t, q->model.name);
    ls_text_add(t, ", \"params\": %lld, \"topology\": ", (long long)ls_llm_params(&q->model));
    ls_json_string(t, q->topo->name);
    ls_text_add(t, ", \"world\": %lld, \"batch\": %lld, \"seq\": %lld", (long long)q->world, (long long)q->batch,
                (long long)q->model.seq);
    if (r->worlds) {
        const int asked = ls_world_asked(r);
        ls_text_add(t, ", \"worlds\": [");
        for (int i = 0; i < r->nworlds; i++) {
            ls_layout_query w = *q;
            w.world = r->worlds[i].world;
            ls_text_add(t, "%s{\"world\": %lld, \"plan\": ", i ? ", " : "", (long long)w.world);
            if (r->worlds[i].fits) plan(&w, &r->worlds[i].best, t);
            else ls_text_add(t, "null");
            ls_text_add(t, "}");
        }
        ls_text_add(t, "], \"answer\": ");
        if (asked >= 0) ls_text_add(t, "%lld}\n", (long long)r->worlds[asked].world);
        else ls_text_add(t, "null}\n");
        return;
    }
    double low, high;
    const ls_layout_cost *best = &r->found->best[0];
    const double null = ls_layout_null_mfu(q);
    ls_layout_interval(q, &low, &high);
    ls_text_add(t, ", ");
    ls_json_field(t, "step_low90_s", low * best->cost.total);
    ls_text_add(t, ", ");
    ls_json_field(t, "step_high90_s", high * best->cost.total);
    ls_text_add(t, ", ");
    ls_json_field(t, "null_step_s", null > 0 ? best->cost.total * ls_layout_mfu(q, best->cost.total, LS_FLOPS_FULL) / null : 0);
    ls_text_add(t, ", \"plans\": [");
    for (int i = 0; i < r->found->n; i++) {
        ls_text_add(t, "%s", i ? ", " : "");
        plan(q, &r->found->best[i], t);
    }
    ls_text_add(t, "]");
    ledger(r, t);
    if (r->neighbour) neighbours(r, t);
    if (r->sensitivity) {
        ls_text_add(t, ", \"ten_percent_more\": [");
        for (int i = 0; i < LS_SENSITIVITIES; i++) {
            const ls_sensitivity *s = &r->sensitivity[i];
            ls_text_add(t, "%s{\"resource\": \"%s\", ", i ? ", " : "", s->resource);
            ls_json_field(t, "same_plan_s", s->same);
            ls_text_add(t, ", ");
            ls_json_field(t, "best_plan_s", s->again);
            ls_text_add(t, "}");
        }
        ls_text_add(t, "]");
    }
    if (r->by_flops) {
        ls_text_add(t, ", \"by_flops\": {");
        ls_json_field(t, "ranked_s", r->by_flops->ranked);
        ls_text_add(t, ", \"plan\": ");
        plan(q, &r->by_flops->real, t);
        ls_text_add(t, "}");
    }
    certificate(r->found, t);
    ls_text_add(t, "}\n");
}
