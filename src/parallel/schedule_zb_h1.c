/* schedule_zb_h1.c -- 1F1B whose backwards of the weights fill the bubble (ZB-H1: Qi et al. 2023).
 *
 * No other rank waits for gradients of weights, so they are computed where a rank would idle: rank r is r of them late
 * and has that many left when the last backward of the input has passed it. Bubble (p - 1) (F + I - W), a third of
 * 1F1B's where forward F, backward of the input I and of the weights W take the same time. min(m, p) micro-batches are
 * alive on every rank: as many as 1F1B has on rank 0.
 */
#include "parallel/pipe_list.h"

static void emit(const ls_pipe_shape *s, int rank, ls_pipe_list *out)
{
    const int m = s->micro_batches, first = s->ranks - 1 - rank, warm_up = m < first ? m : first;
    for (int i = 0; i < warm_up; i++) ls_pipe_put(out, LS_PIPE_FORWARD, 0, i);
    for (int i = 0; i < m; i++) {
        if (warm_up + i < m) ls_pipe_put(out, LS_PIPE_FORWARD, 0, warm_up + i);
        ls_pipe_put(out, LS_PIPE_BACKWARD_INPUT, 0, i);
        if (i >= rank) ls_pipe_put(out, LS_PIPE_BACKWARD_WEIGHT, 0, i - rank);
    }
    for (int i = m > rank ? m - rank : 0; i < m; i++) ls_pipe_put(out, LS_PIPE_BACKWARD_WEIGHT, 0, i);
}

const ls_pipe_schedule ls_pipe_zb_h1 = {
    .name = "zb-h1",
    .summary = "1F1B; backwards of the weights, apart, fill the bubble",
    .source = "Qi et al. 2023",
    .least_chunks = 1,
    .most_chunks = 1,
    .placement = LS_PIPE_LOOP,
    .splits = true,
    .emit = emit,
};
