/* schedule_gpipe.c -- all micro-batches forward, then all backward (Huang et al. 2019).
 *
 * Rank r idles for r forwards at the beginning and r backwards at the end, and p - 1 - r of each in the middle: bubble
 * (p - 1) / (m + p - 1) of the step, where stages take the same time. Every rank has all m micro-batches alive.
 */
#include "parallel/pipe_list.h"

static void emit(const ls_pipe_shape *s, int rank, ls_pipe_list *out)
{
    (void)rank;
    for (int i = 0; i < s->micro_batches; i++) ls_pipe_put(out, LS_PIPE_FORWARD, 0, i);
    for (int i = 0; i < s->micro_batches; i++) ls_pipe_put(out, LS_PIPE_BACKWARD, 0, i);
}

const ls_pipe_schedule ls_pipe_gpipe = {
    .name = "gpipe",
    .summary = "all forwards, then all backwards",
    .source = "Huang et al. 2019",
    .least_chunks = 1,
    .most_chunks = 1,
    .placement = LS_PIPE_LOOP,
    .emit = emit,
};
