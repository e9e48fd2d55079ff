/* schedule_zb_h.c -- 1F1B whose backwards of the weights fill the bubble (ZB-H1 and ZB-H2: Qi et al. 2023).
 *
 * No other rank waits for gradients of weights, so they are computed where a rank would idle. In ZB-H1 rank r is r of
 * them late and has that many left when the last backward of the input has passed it. Bubble (p - 1) (F + I - W), a
 * third of 1F1B's where forward F, backward of the input I and of the weights W take the same time. min(m, p)
 * micro-batches are alive on every rank: as many as 1F1B has on rank 0.
 *
 * ZB-H2 begins with twice as many forwards, which fill the wait for the first backward, and rank r is 2 r backwards of
 * weights late. Between a rank's first and last action is no bubble where F = I = W; min(m, 2 p - 1) micro-batches are
 * alive on every rank.
 */
#include "parallel/pipe_list.h"

/* `times` is 1 or 2: how many forwards and backwards of weights a rank has per rank after it and before it. */
static void emit(const ls_pipe_shape *s, int rank, int times, ls_pipe_list *out)
{
    const int m = s->micro_batches, first = times * (s->ranks - 1 - rank), late = times * rank;
    const int warm_up = m < first ? m : first;
    for (int i = 0; i < warm_up; i++) ls_pipe_put(out, LS_PIPE_FORWARD, 0, i);
    for (int i = 0; i < m; i++) {
        if (warm_up + i < m) ls_pipe_put(out, LS_PIPE_FORWARD, 0, warm_up + i);
        ls_pipe_put(out, LS_PIPE_BACKWARD_INPUT, 0, i);
        if (i >= late) ls_pipe_put(out, LS_PIPE_BACKWARD_WEIGHT, 0, i - late);
    }
    for (int i = m > late ? m - late : 0; i < m; i++) ls_pipe_put(out, LS_PIPE_BACKWARD_WEIGHT, 0, i);
}

static void emit_h1(const ls_pipe_shape *s, int rank, ls_pipe_list *out) { emit(s, rank, 1, out); }
static void emit_h2(const ls_pipe_shape *s, int rank, ls_pipe_list *out) { emit(s, rank, 2, out); }

const ls_pipe_schedule ls_pipe_zb_h1 = {
    .name = "zb-h1",
    .summary = "1F1B; backwards of the weights, apart, fill the bubble",
    .source = "Qi et al. 2023",
    .least_chunks = 1,
    .most_chunks = 1,
    .placement = LS_PIPE_LOOP,
    .splits = true,
    .emit = emit_h1,
};

const ls_pipe_schedule ls_pipe_zb_h2 = {
    .name = "zb-h2",
    .summary = "twice as many forwards first; no bubble where F = I = W",
    .source = "Qi et al. 2023",
    .least_chunks = 1,
    .most_chunks = 1,
    .placement = LS_PIPE_LOOP,
    .splits = true,
    .emit = emit_h2,
};
