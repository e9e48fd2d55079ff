/* schedule_dualpipe_v.c -- DualPipe cut in half (DualPipeV: DeepSeek-AI 2024 and 2025).
 *
 * Two chunks per rank in a V, as in ZB-V. In the steady part a forward of one chunk is next to a backward of the other:
 * DeepSeek-V3 computes the two at once, so that one computes while the other communicates. Here the forward comes
 * first, then the backward. Backwards are in halves only where a rank would idle: in the warm-up, and at the end.
 * On every rank 2 p + 1 micro-batches of half the layers are alive.
 *
 * It is defined for m >= 2 p.
 */
#include "parallel/pipe_list.h"

static int defined_for(const ls_pipe_shape *s)
{
    const int least = 2 * s->ranks;
    return s->micro_batches > least ? s->micro_batches : least;
}

/* What is next, per chunk. */
typedef struct state {
    ls_pipe_list *out;
    int forward[2], backward[2], weight[2];
} state;

static void forward(state *n, int chunk) { ls_pipe_put(n->out, LS_PIPE_FORWARD, chunk, n->forward[chunk]++); }
static void input(state *n, int chunk) { ls_pipe_put(n->out, LS_PIPE_BACKWARD_INPUT, chunk, n->backward[chunk]++); }
static void weight(state *n, int chunk) { ls_pipe_put(n->out, LS_PIPE_BACKWARD_WEIGHT, chunk, n->weight[chunk]++); }

static void backward(state *n, int chunk)
{
    n->weight[chunk]++;
    ls_pipe_put(n->out, LS_PIPE_BACKWARD, chunk, n->backward[chunk]++);
}

/* The weights that have waited longest: of the halves at the end, which alternate between the chunks until only those
 * of chunk 0 are left. */
static void oldest_weight(state *n, int *nth, int alternate, int first)
{
    weight(n, *nth < alternate ? (*nth + first) % 2 : 0);
    ++*nth;
}

static void emit(const ls_pipe_shape *s, int rank, ls_pipe_list *out)
{
    const int p = s->ranks, m = s->micro_batches, after = p - 1 - rank;
    state n = { .out = out };
    for (int i = 0; i < 2 * after; i++) forward(&n, 0);
    for (int i = 0; i <= rank; i++) {
        forward(&n, 0);
        forward(&n, 1);
    }
    for (int i = 0; i < after; i++) {
        input(&n, 1);
        weight(&n, 1);
        forward(&n, 1);
    }
    for (int i = 0; i < m - 2 * p + rank + 1; i++) { /* the steady part */
        forward(&n, 0);
        backward(&n, 1);
        forward(&n, 1);
        backward(&n, 0);
    }
    for (int i = 0; i < after; i++) {
        backward(&n, 1);
        forward(&n, 1);
        backward(&n, 0);
    }
    /* 2 (rank + 1) backwards, in turn: the second half of them without their weights */
    const int first = rank % 2 == 1 ? 1 : 0; /* the chunk of the first of these */
    for (int i = 0; i < rank + 1; i++)
        for (int chunk = 1; chunk >= 0; chunk--) {
            const bool whole = 2 * i + (1 - chunk) < rank + 1;
            if (whole) backward(&n, chunk);
            else input(&n, chunk);
        }
    int nth = 0;
    for (int i = 0; i < after; i++) {
        oldest_weight(&n, &nth, rank + 1, first);
        input(&n, 0);
    }
    for (int i = 0; i < rank + 1; i++) oldest_weight(&n, &nth, rank + 1, first);
}

const ls_pipe_schedule ls_pipe_dualpipe_v = {
    .name = "dualpipe-v",
    .summary = "two chunks in a V; a forward next to a backward of the other chunk",
    .source = "DeepSeek-AI 2024",
    .least_chunks = 2,
    .most_chunks = 2,
    .placement = LS_PIPE_V,
    .splits = true,
    .defined_for = defined_for,
    .emit = emit,
};
