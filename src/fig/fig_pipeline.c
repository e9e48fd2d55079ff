/* fig_pipeline.c -- a pipeline schedule: which rank computes what when, and what it idles. */
#include <stdlib.h>

#include "fig/fig.h"
#include "fig/pipeline_picture.h"

enum { SCHEDULE, RANKS, MICRO, CHUNKS, FORWARD, INPUT, WEIGHT, TRANSFER };
#define MOST_RANKS  16
#define MOST_CHUNKS 8
#define COLUMNS     78

static const ls_fig_control controls[] = {
    [SCHEDULE] = { "schedule", "schedule", "1f1b", ls_pipe_choices, 0, 0, false },
    [RANKS] = { "ranks", "ranks", "4", NULL, 1, MOST_RANKS, true },
    [MICRO] = { "micro", "micro-batches", "8", NULL, 1, 64, true },
    [CHUNKS] = { "chunks", "chunks per rank (0: the schedule's least)", "0", NULL, 0, MOST_CHUNKS, true },
    [FORWARD] = { "forward_ms", "forward of a rank's layers (ms)", "1", NULL, 0.01, 1000, false },
    [INPUT] = { "input_ms", "backward of the input (ms)", "1", NULL, 0.01, 1000, false },
    [WEIGHT] = { "weight_ms", "backward of the weights (ms)", "1", NULL, 0.01, 1000, false },
    [TRANSFER] = { "transfer_ms", "a message (ms)", "0", NULL, 0, 1000, false },
    { 0 },
};

static const ls_fig_preset presets[] = {
    { "gpipe", "schedule=gpipe", "All forwards, then all backwards: every rank stores every micro-batch." },
    { "1f1b", "schedule=1f1b", "One forward, one backward: the bubble of GPipe, and less memory." },
    { "fewer", "schedule=1f1b micro=2", "Fewer micro-batches than ranks: there is no steady phase." },
    { "interleaved", "schedule=interleaved chunks=2", "Two chunks per rank: half the bubble, twice the messages." },
    { "zb-v", "schedule=zb-v", "There and back: where all three take the same time, only the start is idle." },
    { 0 },
};

typedef struct run {
    ls_pipe_program program;
    ls_pipe_replay replay;
} run;

static ls_status compute(const ls_fig_value *v, run *r)
{
    const ls_pipe_schedule *s = ls_pipe_schedules[v[SCHEDULE].word];
    ls_pipe_shape shape = { (int)v[RANKS].number, (int)v[CHUNKS].number, (int)v[MICRO].number };
    double time[3][MOST_RANKS * MOST_CHUNKS];
    if (ls_pipe_shape_check(s, &shape) < 0) return ls_fail(LS_USAGE, "chunks=%d: %s", (int)v[CHUNKS].number, ls_last_error());
    LS_TRY(ls_pipe_program_create(s, &shape, &r->program));
    LS_TRY(ls_pipe_program_make(&r->program, shape.micro_batches));
    for (int i = 0; i < shape.ranks * shape.chunks; i++) {
        time[0][i] = v[FORWARD].number / shape.chunks;
        time[1][i] = v[INPUT].number / shape.chunks;
        time[2][i] = v[WEIGHT].number / shape.chunks;
    }
    const ls_pipe_times t = { time[0], time[1], time[2], v[TRANSFER].number };
    return ls_pipe_replay_create(&r->program, &t, &r->replay);
}

static void tabulate(const run *r, ls_fig_page *p)
{
    static const char *const names[] = { "rank", "warm-up ms", "steady ms", "cool-down ms", "idle ms", "alive" };
    ls_fig_columns(p, names, 6);
    for (int rank = 0; rank < r->replay.ranks; rank++) {
        ls_pipe_phases f;
        ls_pipe_phases_of(&r->program, &r->replay, rank, &f);
        const double row[] = { rank, f.warm_up, f.steady, f.cool_down, f.idle, r->program.slots[rank] };
        for (int i = 0; i < 6; i++) ls_fig_number(p, row[i]);
    }
}

static void show(const run *r, ls_fig_page *p)
{
    const ls_pipe_program *g = &r->program;
    const double bubble = ls_pipe_bubble(&r->replay);
    int alive = 0;
    for (int rank = 0; rank < g->shape.ranks; rank++) alive = g->slots[rank] > alive ? g->slots[rank] : alive;
    p->width = 700;
    ls_pipe_draw_svg(g, &r->replay, "pipeline", p->width, &p->shapes, &p->height);
    ls_pipe_draw_text(g, &r->replay, COLUMNS, &p->drawing);
    ls_text legend = { 0 };
    ls_pipe_legend(g, &legend);
    ls_text_wrap(&p->drawing, ls_text_str(&legend), 0, COLUMNS);
    p->failed = p->failed || legend.failed;
    ls_text_free(&legend);
    tabulate(r, p);
    ls_text_add(&p->sentence,
                "%s with %d ranks and %d micro-batches: ranks idle %.1f %% of a step of %.6g ms, and store at most %.4g micro-batches of "
                "their layers.",
                g->schedule->name, g->shape.ranks, g->shape.micro_batches, 100.0 * bubble, r->replay.step,
                (double)alive / g->shape.chunks);
    ls_fig_fact(p, "chunks", g->shape.chunks);
    ls_fig_fact(p, "step_ms", r->replay.step);
    ls_fig_fact(p, "span_ms", r->replay.span);
    ls_fig_fact(p, "bubble", bubble);
    ls_fig_fact(p, "alive", alive);
    ls_fig_fact(p, "buffers", g->buffers);
}

static ls_status make(const ls_fig_value *v, ls_fig_page *p)
{
    run r = { 0 };
    const ls_status st = compute(v, &r);
    if (st == LS_OK) show(&r, p);
    ls_pipe_replay_free(&r.replay);
    ls_pipe_program_free(&r.program);
    return st;
}

const ls_figure ls_figure_pipeline = {
    .name = "pipeline",
    .title = "A pipeline schedule",
    .caption = "The lists of all ranks as ls_pipe_program_make proves them, with the times of ls_pipe_replay_create.",
    .control = controls,
    .preset = presets,
    .make = make,
};
