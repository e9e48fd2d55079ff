/* schedule_interleaved.c -- 1F1B with several chunks of the model per rank (Narayanan et al. 2021).
 *
 * Each rank has v chunks, p stages apart, so a micro-batch passes every rank v times and fills the pipeline in steps of
 * 1 / v: bubble (p - 1) / (v m + p - 1), for v times the messages and more micro-batches alive. Micro-batches go in
 * groups of g, about p: a group goes through the first chunk, then through the second, and so on; backward in the same
 * way from the last chunk. Rank r begins with the forwards of a group through all chunks except the last, and 2 (p - 1
 * - r) more.
 *
 * All groups have the same length, g = m / (m / p): the schedule is defined for m that this divides. Others lack the
 * last micro-batches of a longer step.
 */
#include "parallel/pipe_list.h"

static int groups_of(int m, int p) { return m / p > 1 ? m / p : 1; }

static int defined_for(const ls_pipe_shape *s)
{
    int m = s->micro_batches;
    while (m % groups_of(m, s->ranks) != 0) m++;
    return m;
}

/* The k-th forward of a rank, or its k-th backward. */
static void put(const ls_pipe_shape *s, int g, ls_pipe_what what, int k, ls_pipe_list *out)
{
    const int v = s->chunks, way = k / g % v;
    ls_pipe_put(out, what, what == LS_PIPE_FORWARD ? way : v - 1 - way, k / (g * v) * g + k % g);
}

static void emit(const ls_pipe_shape *s, int rank, ls_pipe_list *out)
{
    const int g = s->micro_batches / groups_of(s->micro_batches, s->ranks), all = s->chunks * s->micro_batches;
    const int first = (s->chunks - 1) * g + 2 * (s->ranks - 1 - rank), warm_up = all < first ? all : first;
    for (int k = 0; k < warm_up; k++) put(s, g, LS_PIPE_FORWARD, k, out);
    for (int k = 0; k < all - warm_up; k++) {
        put(s, g, LS_PIPE_FORWARD, warm_up + k, out);
        put(s, g, LS_PIPE_BACKWARD, k, out);
    }
    for (int k = all - warm_up; k < all; k++) put(s, g, LS_PIPE_BACKWARD, k, out);
}

const ls_pipe_schedule ls_pipe_interleaved = {
    .name = "interleaved",
    .summary = "1F1B with several chunks of the model per rank",
    .source = "Narayanan et al. 2021",
    .least_chunks = 2,
    .most_chunks = LS_PIPE_MOST_CHUNKS,
    .placement = LS_PIPE_LOOP,
    .defined_for = defined_for,
    .emit = emit,
};
