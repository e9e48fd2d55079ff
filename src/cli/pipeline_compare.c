/* pipeline_compare.c -- all pipeline schedules side by side: time, bubble, memory, and the bubble at equal memory.
 *
 * Memory is counted in micro-batches of all layers of a rank. GPipe and 1F1B have the same bubble with the same number
 * of micro-batches; what 1F1B has less of is memory. So the last column gives each schedule the memory of 1F1B: the
 * most micro-batches, up to those asked for, that fit, and the bubble that is left.
 */
#include <stdio.h>
#include <stdlib.h>

#include "cli/pipeline.h"

typedef struct line {
    const ls_pipe_schedule *s;
    int chunks, fitting; /* micro-batches at equal memory; 0: none fits */
    double step, span, bubble, alive, fitting_bubble;
    int messages; /* of all ranks, per step */
} line;

static ls_status make(const ls_pipe_schedule *s, const ls_pipeline_options *o, int micro_batches, ls_pipe_program *g,
                      ls_pipe_replay *r)
{
    const ls_pipe_shape shape = { (int)o->ranks, 0, micro_batches };
    *r = (ls_pipe_replay){ 0 };
    LS_TRY(ls_pipe_program_create(s, &shape, g));
    const int stages = g->shape.ranks * g->shape.chunks;
    double *time = malloc(3 * (size_t)stages * sizeof *time);
    ls_status st = time ? ls_pipe_program_make(g, micro_batches) : ls_fail(LS_NO_MEMORY, "the times of %d stages", stages);
    for (int i = 0; st == LS_OK && i < stages; i++) {
        time[i] = o->forward.v[0] / g->shape.chunks;
        time[stages + i] = o->input.v[0] / g->shape.chunks;
        time[2 * stages + i] = o->weight.v[0] / g->shape.chunks;
    }
    const ls_pipe_times t = { time, time ? time + stages : NULL, time ? time + 2 * stages : NULL, o->transfer };
    if (st == LS_OK) st = ls_pipe_replay_create(g, &t, r);
    free(time);
    if (st < 0) ls_pipe_program_free(g);
    return st;
}

static ls_status measure(const ls_pipeline_options *o, line *l)
{
    ls_pipe_program g;
    ls_pipe_replay r;
    LS_TRY(make(l->s, o, (int)o->micro, &g, &r));
    const int stages = g.shape.ranks * g.shape.chunks;
    l->chunks = g.shape.chunks;
    l->step = r.step;
    l->span = r.span;
    l->bubble = ls_pipe_bubble(&r);
    l->alive = ls_pipeline_alive(&g);
    for (int s = 1; s < stages; s++)
        if (ls_pipe_place_rank(g.placement, g.shape.ranks, s) != ls_pipe_place_rank(g.placement, g.shape.ranks, s - 1))
            l->messages += 2 * g.shape.micro_batches;
    ls_pipe_replay_free(&r);
    ls_pipe_program_free(&g);
    return LS_OK;
}

/* The most micro-batches that need no more memory than `alive`. */
static ls_status fit(const ls_pipeline_options *o, double alive, line *l)
{
    for (int m = (int)o->micro; m >= 1 && l->fitting == 0; m--) {
        ls_pipe_program g;
        ls_pipe_replay r;
        LS_TRY(make(l->s, o, m, &g, &r));
        if (ls_pipeline_alive(&g) <= alive) l->fitting = m;
        if (l->fitting > 0) l->fitting_bubble = ls_pipe_bubble(&r);
        ls_pipe_replay_free(&r);
        ls_pipe_program_free(&g);
    }
    return LS_OK;
}

static void add_line(const line *l, ls_text *out)
{
    ls_text_add(out, "%-12s %6d %9.6g %6.1f %% %6.4g %8d   ", l->s->name, l->chunks, l->step, 100.0 * l->bubble, l->alive, l->messages);
    if (l->fitting > 0) ls_text_add(out, "%5d: %.1f %%\n", l->fitting, 100.0 * l->fitting_bubble);
    else ls_text_add(out, "    -\n");
}

static void add_json(const line *l, ls_text *out)
{
    ls_text_add(out, "\n {\"name\": \"%s\", \"chunks\": %d, \"messages\": %d, \"step_ms\": ", l->s->name, l->chunks, l->messages);
    ls_json_number(out, l->step);
    ls_text_add(out, ", \"span_ms\": ");
    ls_json_number(out, l->span);
    ls_text_add(out, ", \"bubble\": ");
    ls_json_number(out, l->bubble);
    ls_text_add(out, ", \"alive_layers\": ");
    ls_json_number(out, l->alive);
    ls_text_add(out, ", \"equal_memory\": {\"micro_batches\": %d, \"bubble\": ", l->fitting);
    if (l->fitting > 0) ls_json_number(out, l->fitting_bubble);
    else ls_text_add(out, "null");
    ls_text_add(out, "}}");
}

#define MOST_SCHEDULES 16

ls_status ls_pipeline_compare(const ls_pipeline_options *o, ls_text *out)
{
    line all[MOST_SCHEDULES] = { 0 };
    double alive = 0.0; /* of 1F1B */
    int n = 0;
    for (; ls_pipe_schedules[n] && n < MOST_SCHEDULES; n++) {
        all[n].s = ls_pipe_schedules[n];
        LS_TRY(measure(o, &all[n]));
    }
    const ls_pipe_schedule *f1b1;
    LS_TRY(ls_pipe_schedule_find("1f1b", &f1b1));
    for (int i = 0; i < n; i++)
        if (all[i].s == f1b1) alive = all[i].alive;
    for (int i = 0; i < n; i++) LS_TRY(fit(o, alive, &all[i]));
    if (o->json) ls_text_add(out, "{\"ranks\": %d, \"micro_batches\": %d, \"schedules\": [", (int)o->ranks, (int)o->micro);
    else
        ls_text_add(out, "%d ranks, %d micro-batches\n%-12s %6s %9s %8s %6s %8s   %s\n", (int)o->ranks, (int)o->micro, "schedule", "chunks",
                    "step ms", "bubble", "alive", "messages", "with 1f1b's memory");
    for (int i = 0; i < n; i++) {
        if (o->json && i > 0) ls_text_add(out, ",");
        (o->json ? add_json : add_line)(&all[i], out);
    }
    if (o->json) ls_text_add(out, "]}\n");
    else
        ls_text_add(out, "alive: micro-batches of a rank's layers whose activations are stored at a time\n"
                         "messages: activations and gradients sent from rank to rank, per step\n"
                         "with 1f1b's memory: the most micro-batches that fit, and their bubble\n");
    return LS_OK;
}
