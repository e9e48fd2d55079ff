/* pipeline_report.c -- a pipeline schedule as text, JSON and SVG. */
#include "cli/pipeline.h"

#include <stdio.h>

#include "fig/pipeline_picture.h"
#include "fig/svg.h"

double ls_pipeline_alive(const ls_pipe_program *g)
{
    int most = 0;
    for (int r = 0; r < g->shape.ranks; r++) most = g->slots[r] > most ? g->slots[r] : most;
    return (double)most / g->shape.chunks;
}

static double longest_busy(const ls_pipe_replay *r)
{
    double most = 0.0;
    for (int i = 0; i < r->ranks; i++) most = r->busy[i] > most ? r->busy[i] : most;
    return most;
}

/* --- text ---------------------------------------------------------------------------------------- */

/* Adds them, broken into lines, and empties them. */
static void add_words(ls_text *words, size_t columns, ls_text *out)
{
    ls_text_wrap(out, ls_text_str(words), 0, columns);
    ls_text_free(words);
}

static void add_title(const ls_pipeline *p, size_t columns, ls_text *out)
{
    const ls_pipe_shape *s = &p->program.shape;
    ls_text words = { 0 };
    ls_text_add(&words, "%s: %d rank%s, ", p->name, s->ranks, s->ranks == 1 ? "" : "s");
    if (s->chunks > 1)
        ls_text_add(&words, "%d chunks each%s, ", s->chunks, p->program.placement == LS_PIPE_V ? " in a V" : "");
    ls_text_add(&words, "%d micro-batch%s", s->micro_batches, s->micro_batches == 1 ? "" : "es");
    add_words(&words, columns, out);
}

static void add_step(const ls_pipeline *p, size_t columns, ls_text *out)
{
    const ls_pipe_replay *r = &p->replay;
    ls_text words = { 0 };
    ls_text_add(&words, "step %.6g ms, bubble %.1f %%: ranks idle %.6g of %d x %.6g ms", r->step,
                100.0 * ls_pipe_bubble(r), ls_pipe_bubble(r) * r->ranks * r->step, r->ranks, r->step);
    if (r->span < r->step * (1.0 - 1e-9))
        ls_text_add(&words,
                    "; if ranks do not wait for each other between steps, one begins every %.6g ms, and the rank that computes longest idles "
                    "%.1f %%",
                    r->span, 100.0 * (1.0 - longest_busy(r) / r->span));
    add_words(&words, columns, out);
}

static void add_ranks(const ls_pipeline *p, ls_text *out)
{
    const ls_pipe_program *g = &p->program;
    ls_text_add(out, "\n%4s %7s %6s %9s %4s %5s\n", "rank", "warm-up", "steady", "cool-down", "idle", "alive");
    for (int r = 0; r < g->shape.ranks; r++) {
        ls_pipe_phases f;
        ls_pipe_phases_of(g, &p->replay, r, &f);
        ls_text_add(out, "%4d %7.4g %6.4g %9.4g %4.4g %5d\n", r, f.warm_up, f.steady, f.cool_down, f.idle, g->slots[r]);
    }
}

void ls_pipeline_text(const ls_pipeline *p, int columns, ls_text *out)
{
    const ls_pipe_program *g = &p->program;
    const size_t wide = (size_t)columns;
    ls_text words = { 0 };
    add_title(p, wide, out);
    const double each = ls_pipe_draw_text(g, &p->replay, columns, out);
    ls_pipe_legend(g, &words);
    ls_text_add(&words, "; a column is %.3g ms", each);
    add_words(&words, wide, out);
    ls_text_add(out, "\n");
    add_step(p, wide, out);
    add_ranks(p, out);
    ls_text_add(&words, "ms computed and idle; alive: micro-batches whose activations a rank stores at a time");
    if (g->shape.chunks > 1) ls_text_add(&words, ", of a chunk each: at most %.4g of all its layers", ls_pipeline_alive(g));
    add_words(&words, wide, out);
    ls_text_add(&words,
                "proved: every micro-batch goes once forward and backward in each stage, in order; no deadlock with %d message%s stored "
                "per edge",
                g->buffers, g->buffers == 1 ? "" : "s");
    ls_text_add(out, "\n");
    add_words(&words, wide, out);
}

/* --- JSON ---------------------------------------------------------------------------------------- */

static void add_member(ls_text *out, const char *name, double v)
{
    ls_text_add(out, ", \"%s\": ", name);
    ls_json_number(out, v);
}

/* The rows of the CSV in one line. */
static void add_lists(const ls_pipe_program *g, ls_text *out)
{
    for (int r = 0; r < g->shape.ranks; r++)
        for (int i = 0; i < g->list[r].n; i++) {
            const ls_pipe_action *a = &g->list[r].action[i];
            ls_text_add(out, "%s%d%c%d", i ? "," : r ? " | " : "", a->stage, ls_pipe_letter(a->what), a->micro_batch);
        }
}

static void add_actions(const ls_pipeline *p, int rank, ls_text *out)
{
    const ls_pipe_list *l = &p->program.list[rank];
    for (int i = 0; i < l->n; i++) {
        const ls_pipe_action *a = &l->action[i];
        ls_text_add(out, "%s\n   {\"action\": \"%d%c%d\", \"stage\": %d, \"chunk\": %d, \"micro_batch\": %d, \"slot\": %d", i ? "," : "",
                    a->stage, ls_pipe_letter(a->what), a->micro_batch, a->stage, a->chunk, a->micro_batch, a->slot);
        add_member(out, "begins_ms", p->replay.action[rank][i].begins);
        add_member(out, "ends_ms", p->replay.action[rank][i].ends);
        ls_text_add(out, "}");
    }
}

void ls_pipeline_json(const ls_pipeline *p, ls_text *out)
{
    const ls_pipe_program *g = &p->program;
    ls_text_add(out, "{\"schedule\": ");
    ls_json_string(out, p->name);
    ls_text_add(out, ", \"proved\": true, \"ranks\": %d, \"chunks\": %d, \"placement\": \"%s\", \"micro_batches\": %d, \"buffers\": %d",
                g->shape.ranks, g->shape.chunks, g->placement == LS_PIPE_V ? "v" : "loop", g->shape.micro_batches, g->buffers);
    add_member(out, "step_ms", p->replay.step);
    add_member(out, "span_ms", p->replay.span);
    add_member(out, "bubble", ls_pipe_bubble(&p->replay));
    add_member(out, "alive_layers", ls_pipeline_alive(g));
    ls_text_add(out, ", \"lists\": \"");
    add_lists(g, out);
    ls_text_add(out, "\", \"rank\": [");
    for (int r = 0; r < g->shape.ranks; r++) {
        ls_pipe_phases f;
        ls_pipe_phases_of(g, &p->replay, r, &f);
        ls_text_add(out, "%s\n {\"rank\": %d, \"alive\": %d", r ? "," : "", r, g->slots[r]);
        add_member(out, "warm_up_ms", f.warm_up);
        add_member(out, "steady_ms", f.steady);
        add_member(out, "cool_down_ms", f.cool_down);
        add_member(out, "idle_ms", f.idle);
        ls_text_add(out, ",\n  \"actions\": [");
        add_actions(p, r, out);
        ls_text_add(out, "]}");
    }
    ls_text_add(out, "]}\n");
}

/* --- SVG ----------------------------------------------------------------------------------------- */

#define LEAST_WIDTH 700.0
#define MOST_WIDTH  2400.0

void ls_pipeline_svg(const ls_pipeline *p, ls_text *out)
{
    const ls_pipe_program *g = &p->program;
    ls_text shapes = { 0 }, sentence = { 0 };
    double width = 80.0 + 24.0 * 1.5 * g->shape.micro_batches * g->shape.chunks, height = 0.0;
    width = width < LEAST_WIDTH ? LEAST_WIDTH : width > MOST_WIDTH ? MOST_WIDTH : width;
    ls_pipe_draw_svg(g, &p->replay, "pipeline", width, &shapes, &height);
    ls_text_add(&sentence, "%s over %d ranks with %d micro-batches: a step of %.6g ms, bubble %.1f %%.", p->name, g->shape.ranks,
                g->shape.micro_batches, p->replay.step, 100.0 * ls_pipe_bubble(&p->replay));
    ls_svg_begin(out, "pipeline", width, height, "Pipeline schedule", ls_text_str(&sentence));
    ls_text_addn(out, ls_text_str(&shapes), shapes.n);
    ls_svg_end(out);
    out->failed = out->failed || shapes.failed || sentence.failed;
    ls_text_free(&shapes);
    ls_text_free(&sentence);
}

/* --- the list ------------------------------------------------------------------------------------ */

static void list_one(const ls_pipe_schedule *s, ls_text *out)
{
    char chunks[32];
    if (s->least_chunks == s->most_chunks) snprintf(chunks, sizeof chunks, "%d", s->least_chunks);
    else snprintf(chunks, sizeof chunks, "%d to %d", s->least_chunks, s->most_chunks);
    ls_text_add(out, "%-12s %-8s %s (%s)\n", s->name, chunks, s->summary, s->source);
}

void ls_pipeline_list(bool json, ls_text *out)
{
    ls_text_add(out, json ? "{\"schedules\": [" : "%-12s %-8s %s\n", "schedule", "chunks", "order");
    for (int i = 0; ls_pipe_schedules[i]; i++) {
        const ls_pipe_schedule *s = ls_pipe_schedules[i];
        if (!json) {
            list_one(s, out);
            continue;
        }
        ls_text_add(out, "%s\n {\"name\": \"%s\", \"least_chunks\": %d, \"most_chunks\": %d, \"placement\": \"%s\", \"splits\": %s, \"summary\": ",
                    i ? "," : "", s->name, s->least_chunks, s->most_chunks, s->placement == LS_PIPE_V ? "v" : "loop",
                    s->splits ? "true" : "false");
        ls_json_string(out, s->summary);
        ls_text_add(out, ", \"source\": ");
        ls_json_string(out, s->source);
        ls_text_add(out, "}");
    }
    if (json) ls_text_add(out, "]}\n");
}
