/* schedule_zb_v.c -- two chunks per rank in a V, backwards in halves (ZB-V: Qi et al. 2023).
 *
 * The model goes down the ranks and comes back, so rank 0 has its first and its last stage, and the first micro-batch
 * goes backward where it ended. There is no bubble where F = I = W, except the p - 1 forwards that the last rank waits
 * for at first; and as much memory as 1F1B on rank 0, on every rank: 2 p micro-batches of half the layers.
 *
 * It is defined for m >= 2 p - 1, which fills the pipeline.
 */
#include "parallel/pipe_list.h"

static int defined_for(const ls_pipe_shape *s)
{
    const int least = 2 * s->ranks - 1;
    return s->micro_batches > least ? s->micro_batches : least;
}

/* What is next, per chunk. */
typedef struct state {
    ls_pipe_list *out;
    int forward[2], input[2], weight[2];
} state;

static void forward(state *n, int chunk) { ls_pipe_put(n->out, LS_PIPE_FORWARD, chunk, n->forward[chunk]++); }
static void input(state *n, int chunk) { ls_pipe_put(n->out, LS_PIPE_BACKWARD_INPUT, chunk, n->input[chunk]++); }
static void weight(state *n, int chunk) { ls_pipe_put(n->out, LS_PIPE_BACKWARD_WEIGHT, chunk, n->weight[chunk]++); }

static void backward(state *n, int chunk)
{
    input(n, chunk);
    weight(n, chunk);
}

static void emit(const ls_pipe_shape *s, int rank, ls_pipe_list *out)
{
    const int m = s->micro_batches, after = s->ranks - rank; /* ranks from this one to the turn */
    state n = { .out = out };
    for (int i = 0; i < 2 * after - 1; i++) forward(&n, 0); /* until the first one is back */
    for (int i = 0; i < rank; i++) {                        /* until it is at the end */
        forward(&n, 1);
        forward(&n, 0);
    }
    for (int i = 0; i < after; i++) {
        forward(&n, 1);
        backward(&n, 1);
    }
    while (n.forward[1] < n.forward[0] || n.forward[0] < m) {
        if (n.forward[0] < m) forward(&n, 0);
        backward(&n, 0);
        forward(&n, 1);
        backward(&n, 1);
    }
    for (int i = 0; i < rank; i++) { /* other ranks wait for these; the weights are left for the end */
        input(&n, 0);
        input(&n, 1);
    }
    for (int i = 0; i < after; i++) backward(&n, 0);
    while (n.weight[1] < m) weight(&n, 1);
    while (n.weight[0] < m) weight(&n, 0);
}

const ls_pipe_schedule ls_pipe_zb_v = {
    .name = "zb-v",
    .summary = "two chunks in a V; no bubble where F = I = W",
    .source = "Qi et al. 2023",
    .least_chunks = 2,
    .most_chunks = 2,
    .placement = LS_PIPE_V,
    .splits = true,
    .defined_for = defined_for,
    .emit = emit,
};
