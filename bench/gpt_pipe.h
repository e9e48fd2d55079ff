/* gpt_pipe.h -- what bench_gpt measures of a pipeline: how long each stage's actions take, the bubble, and beside it
 * the bubble of the schedule replayed with these times.
 */
#ifndef BENCH_GPT_PIPE_H
#define BENCH_GPT_PIPE_H
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lockstep/lockstep.h"
#include "parallel/pipe_replay.h"

enum { PIPE_WHATS = LS_PIPE_BACKWARD_WEIGHT + 1, PIPE_STAGES = 256 };

typedef struct pipe_times {
    double ms[PIPE_WHATS][PIPE_STAGES]; /* of this rank's actions, together */
    double count[PIPE_WHATS][PIPE_STAGES];
    double span_ms;                     /* of the slowest rank: from the barrier before a step to its last action */
    int64_t steps;
} pipe_times;

static void pipe_note(pipe_times *t, const ls_pipe_action *a, double ms)
{
    if (a->stage >= PIPE_STAGES) return;
    t->ms[a->what][a->stage] += ms;
    t->count[a->what][a->stage]++;
}

/* The schedule with the mean times of all stages. */
static ls_status pipe_replay(const pipe_times *t, const ls_pipe_config *c, int ranks, ls_pipe_replay *out)
{
    const ls_pipe_schedule *s;
    ls_pipe_program g = { 0 };
    const ls_pipe_shape shape = { .ranks = ranks,
                                  .chunks = ls_pipe_chunks(c, ranks),
                                  .micro_batches = c->micro_batches };
    double mean[PIPE_WHATS][PIPE_STAGES];
    for (int w = 0; w < PIPE_WHATS; w++)
        for (int i = 0; i < PIPE_STAGES; i++) mean[w][i] = t->count[w][i] > 0 ? t->ms[w][i] / t->count[w][i] : 0.0;
    /* A backward in one piece has all of its time in the first half. Where a stage has both, halves are apart. */
    for (int i = 0; i < PIPE_STAGES; i++)
        if (t->count[LS_PIPE_BACKWARD_INPUT][i] == 0) mean[LS_PIPE_BACKWARD_INPUT][i] = mean[LS_PIPE_BACKWARD][i];
    const ls_pipe_times times = { .forward = mean[LS_PIPE_FORWARD], .input = mean[LS_PIPE_BACKWARD_INPUT],
                                  .weight = mean[LS_PIPE_BACKWARD_WEIGHT] };
    LS_TRY(ls_pipe_schedule_find(c->schedule, &s));
    LS_TRY(ls_pipe_program_create(s, &shape, &g));
    ls_status st = ls_pipe_program_make(&g, c->micro_batches);
    if (st == LS_OK) st = ls_pipe_replay_create(&g, &times, out);
    ls_pipe_program_free(&g);
    return st;
}

/* stage,NUMBER,forward,backward,backward of the input,backward of the weights: means, ms; pipe,step,replayed step:
 * ms; bubble,measured,replayed: of ranks x step. */
static ls_status pipe_print(pipe_times *t, ls_world *w, const ls_pipe_config *c, int ranks, bool first)
{
    ls_pipe_replay r = { 0 };
    double busy = 0;
    LS_TRY(ls_all_reduce(ls_world_group(w), NULL, t->ms, PIPE_WHATS * PIPE_STAGES, LS_F64, LS_SUM));
    LS_TRY(ls_all_reduce(ls_world_group(w), NULL, t->count, PIPE_WHATS * PIPE_STAGES, LS_F64, LS_SUM));
    if (!first || t->steps == 0) return LS_OK;
    LS_TRY(pipe_replay(t, c, ranks, &r));
    for (int i = 0; i < ranks * ls_pipe_chunks(c, ranks) && i < PIPE_STAGES; i++) {
        printf("stage,%d", i);
        for (int what = 0; what < PIPE_WHATS; what++) {
            busy += t->ms[what][i];
            printf(",%.3f", t->count[what][i] > 0 ? t->ms[what][i] / t->count[what][i] : 0.0);
        }
        printf("\n");
    }
    const double step = t->span_ms / (double)t->steps;
    printf("pipe,,%.3f,%.3f,\n", step, r.step);
    printf("bubble,,%.6f,%.6f,\n", 1 - busy / (double)t->steps / (ranks * step), ls_pipe_bubble(&r));
    ls_pipe_replay_free(&r);
    return LS_OK;
}

#endif
