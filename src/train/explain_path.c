/* explain_path.c -- what a step of a plan waits for: the bubble of its pipeline, and collectives that no computation
 * hides.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "parallel/pipe_replay.h"
#include "train/explain_layout.h"
#include "train/parallelize.h"

typedef unsigned long long num; /* for printf */

/* --- the pipeline --------------------------------------------------------------------------------------------- */

/* Bubble, idle parts and alive micro-batches of the schedule with these times of stages. */
static ls_status replay(const ls_pipe_program *g, const ls_pipe_times *times, double *bubble, ls_explain_pipe *out)
{
    ls_pipe_replay r = { 0 };
    LS_TRY(ls_pipe_replay_create(g, times, &r));
    *bubble = ls_pipe_bubble(&r);
    for (int i = 0; i < out->ranks && r.step > 0; i++) {
        out->idle[i] = 1.0 - r.busy[i] / r.step;
        out->alive[i] = g->slots[i];
    }
    ls_pipe_replay_free(&r);
    return LS_OK;
}

static ls_status replay_both(const ls_plan *p, ls_explain_pipe *out)
{
    const ls_pipe_schedule *s;
    const ls_pipe_config c = ls_plan_pipe(p);
    const ls_pipe_shape shape = { out->ranks, ls_pipe_chunks(&c, out->ranks), p->micro_batches };
    const double *cost = out->cost;
    ls_pipe_program g = { 0 };
    LS_TRY(ls_pipe_schedule_find(p->schedule, &s));
    double *one = calloc((size_t)out->stages, sizeof *one);
    ls_status st = one ? ls_pipe_program_create(s, &shape, &g) : ls_fail(LS_NO_MEMORY, "%d pipeline stages", out->stages);
    for (int i = 0; st == LS_OK && i < out->stages; i++) one[i] = 1.0;
    if (st == LS_OK) st = ls_pipe_program_make(&g, shape.micro_batches);
    if (st == LS_OK) st = replay(&g, &(ls_pipe_times){ one, one, one, 0.0 }, &out->equal, out);
    const ls_pipe_times by_cost = { cost, cost + out->stages, cost + 2 * out->stages, 0.0 };
    if (st == LS_OK) st = replay(&g, &by_cost, &out->bubble, out);
    ls_pipe_program_free(&g);
    free(one);
    return st;
}

ls_status ls_explain_pipe_make(const ls_plan *p, const ls_model_config *mc, const ls_place *here, ls_explain_pipe *out)
{
    const int stages = ls_plan_stages(p);
    if (stages < 2 || out->ranks > 0) return LS_OK;
    *out = (ls_explain_pipe){ .schedule = p->schedule ? p->schedule : "1f1b", .ranks = p->size[LS_AXIS_PP], .stages = stages,
                              .micro_batches = p->micro_batches };
    out->cost = calloc(3 * (size_t)stages, sizeof *out->cost);
    out->idle = calloc((size_t)out->ranks, sizeof *out->idle);
    out->alive = calloc((size_t)out->ranks, sizeof *out->alive);
    out->stage_rank = calloc((size_t)stages, sizeof *out->stage_rank);
    if (!out->cost || !out->idle || !out->alive || !out->stage_rank) return ls_fail(LS_NO_MEMORY, "%d pipeline stages", stages);
    const ls_pipe_config c = ls_plan_pipe(p);
    for (int s = 0; s < stages; s++) out->stage_rank[s] = ls_pipe_rank_of(&c, out->ranks, s);
    LS_TRY(ls_plan_stage_costs(p, mc, here, out->cost, out->cost + stages, out->cost + 2 * stages));
    return replay_both(p, out);
}

void ls_explain_pipe_free(ls_explain_pipe *p)
{
    free(p->cost);
    free(p->idle);
    free(p->alive);
    free(p->stage_rank);
    *p = (ls_explain_pipe){ 0 };
}

/* Operations of a micro-batch in one stage. */
static double cost_of(const ls_explain_pipe *p, int stage)
{
    return p->cost[stage] + p->cost[p->stages + stage] + p->cost[2 * p->stages + stage];
}

static void add_pipe(const ls_explain_layout *l, int rank, ls_text *out)
{
    const ls_explain_pipe *p = &l->pipe;
    int stride[LS_AXES];
    if (p->ranks == 0) return;
    ls_mesh_strides(l->plan.size, l->plan.order, stride);
    const int first = rank - l->rank[rank].coord[LS_AXIS_PP] * stride[LS_AXIS_PP];
    ls_text_add(out, "\npipeline of rank %d: schedule %s, %d micro-batch%s per step\n  %-6s %-12s %10s %28s %8s %8s\n", rank, p->schedule,
                p->micro_batches, p->micro_batches == 1 ? "" : "es", "rank", "stages", "layers", "operations per micro-batch", "idle",
                "alive");
    for (int i = 0; i < p->ranks; i++) {
        char stages[64] = "";
        double layers = 0.0, cost = 0.0;
        size_t at = 0;
        for (int s = 0; s < p->stages; s++) {
            if (p->stage_rank[s] != i) continue;
            if (at < sizeof stages - 1)
                at += (size_t)snprintf(stages + at, sizeof stages - at, "%s%d", at ? ", " : "", s);
            layers += l->layers[s];
            cost += cost_of(p, s);
        }
        ls_text_add(out, "  %-6d %-12s %10g %28.3g %6.1f %% %8d\n", first + i * stride[LS_AXIS_PP], stages, layers, cost, 100 * p->idle[i],
                    p->alive[i]);
    }
    ls_text_add(out, "  bubble: by these operations ranks idle %.1f %% of a step; if all stages took equally long, %.1f %%\n"
                     "  alive: micro-batches whose activations a rank stores at a time%s\n",
                100 * p->bubble, 100 * p->equal, p->stages > p->ranks ? ", each for one of its stages" : "");
}

/* --- collectives ----------------------------------------------------------------------------------------------- */

bool ls_explain_is_exposed(const ls_explain_layout *l, const ls_explain_rank *r, const ls_explain_calls *k)
{
    static const char *const beside[] = { "beside ", "ahead of ", "in backward", "in the last backward", "in layers beside ",
                                          "between two products, or ", "one rank" };
    const char *when = ls_explain_when(l, r, k);
    for (size_t i = 0; i < sizeof beside / sizeof *beside; i++)
        if (strncmp(when, beside[i], strlen(beside[i])) == 0) return false;
    return true;
}

/* Collectives of rank r for an axis (LS_AXES: for the step itself) that are exposed, or not; groups of one rank move
 * nothing and count in neither. */
typedef struct part {
    num calls, moved;
} part;

static part part_of(const ls_explain_layout *l, const ls_explain_rank *r, int axis, bool exposed)
{
    part sum = { 0, 0 };
    for (int i = 0; i < r->ncalls; i++) {
        const ls_explain_calls *k = &r->calls[i];
        if (r->group[k->group].size < 2 || ls_explain_axis(k) != axis) continue;
        if (ls_explain_is_exposed(l, r, k) != exposed) continue;
        sum.calls += k->calls;
        sum.moved += k->moved;
    }
    return sum;
}

static const char *axis_or_step(int axis) { return axis == LS_AXES ? "the step itself" : ls_axis_name((ls_axis)axis); }

static void add_collectives(const ls_explain_layout *l, int rank, bool exposed, ls_text *out)
{
    bool any = false;
    for (int i = 0; i <= LS_AXES; i++) {
        const int axis = i < LS_AXES ? LS_AXES - 1 - i : LS_AXES;
        const part p = part_of(l, &l->rank[rank], axis, exposed);
        if (p.calls == 0) continue;
        ls_text_add(out, "  %-18s %-16s %6llu call%s %14llu bytes%s\n", any ? "" : exposed ? "exposed" : "beside computing",
                    axis_or_step(axis), p.calls, p.calls == 1 ? " " : "s", p.moved, axis == LS_AXIS_EP ? " at most" : "");
        any = true;
    }
}

void ls_explain_path_text(const ls_explain_layout *l, int rank, ls_text *out)
{
    add_pipe(l, rank, out);
    ls_text_add(out, "\ncritical path of a step, rank %d\n  %-18s the operations of its %s", rank, "computing",
                l->pipe.ranks ? "stages" : "part of the model");
    if (l->pipe.ranks) ls_text_add(out, "; it idles %.1f %% of the step (its bubble)", 100 * l->pipe.idle[l->rank[rank].coord[LS_AXIS_PP]]);
    ls_text_add(out, "\n");
    add_collectives(l, rank, true, out);
    add_collectives(l, rank, false, out);
}

/* --- JSON ------------------------------------------------------------------------------------------------------ */

static void json_pipe(const ls_explain_pipe *p, ls_text *out)
{
    static const char *const name[] = { "forward", "backward_input", "backward_weight" };
    if (p->ranks == 0) {
        ls_text_add(out, "\"pipeline\": null");
        return;
    }
    ls_text_add(out, "\"pipeline\": {\"schedule\": \"%s\", \"micro_batches\": %d, \"bubble\": ", p->schedule, p->micro_batches);
    ls_json_number(out, p->bubble);
    ls_text_add(out, ", \"bubble_of_equal_stages\": ");
    ls_json_number(out, p->equal);
    ls_text_add(out, ", \"stages\": [");
    for (int s = 0; s < p->stages; s++) {
        ls_text_add(out, "%s\n  {\"place\": %d", s ? "," : "", p->stage_rank[s]);
        for (int k = 0; k < 3; k++) {
            ls_text_add(out, ", \"%s\": ", name[k]);
            ls_json_number(out, p->cost[k * p->stages + s]);
        }
        ls_text_add(out, "}");
    }
    ls_text_add(out, "], \"ranks\": [");
    for (int i = 0; i < p->ranks; i++) {
        ls_text_add(out, "%s{\"alive\": %d, \"idle\": ", i ? ", " : "", p->alive[i]);
        ls_json_number(out, p->idle[i]);
        ls_text_add(out, "}");
    }
    ls_text_add(out, "]}");
}

void ls_explain_path_json(const ls_explain_layout *l, ls_text *out)
{
    json_pipe(&l->pipe, out);
}
