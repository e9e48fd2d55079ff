/* schedule_1f1b.c -- one forward, one backward (PipeDream-flush: Narayanan et al. 2021).
 *
 * Rank r begins with p - 1 - r forwards, so that the first micro-batch can reach the last rank and come back, and then
 * alternates. The bubble is that of GPipe, (p - 1) / (m + p - 1); what is less is memory: min(m, p - r) micro-batches
 * are alive on rank r.
 */
#include "parallel/pipe_list.h"

static void emit(const ls_pipe_shape *s, int rank, ls_pipe_list *out)
{
    const int m = s->micro_batches, first = s->ranks - 1 - rank, warm_up = m < first ? m : first;
    for (int i = 0; i < warm_up; i++) ls_pipe_put(out, LS_PIPE_FORWARD, 0, i);
    for (int i = 0; i < m - warm_up; i++) {
        ls_pipe_put(out, LS_PIPE_FORWARD, 0, warm_up + i);
        ls_pipe_put(out, LS_PIPE_BACKWARD, 0, i);
    }
    for (int i = m - warm_up; i < m; i++) ls_pipe_put(out, LS_PIPE_BACKWARD, 0, i);
}

const ls_pipe_schedule ls_pipe_1f1b = {
    .name = "1f1b",
    .summary = "a few forwards, then one forward and one backward in turn",
    .source = "Narayanan et al. 2021",
    .least_chunks = 1,
    .most_chunks = 1,
    .placement = LS_PIPE_LOOP,
    .emit = emit,
};
