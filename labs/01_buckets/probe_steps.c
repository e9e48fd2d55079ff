/* probe_steps.c -- steps of several micro-batches, with and without no_sync, and steps in which one rank is late. */
#include <math.h>
#include <stdlib.h>
#include <time.h>

#include "probe.h"

enum { MICRO_BATCHES = 4, MICRO_ROWS = 2, LATE_MS = 200, LATE_STEPS = 3 };

/* --- accumulate ---------------------------------------------------------------------------------------------- */

static uint64_t bytes_of(const ls_world *w)
{
    ls_comm_stats s;
    ls_comm_stats_read(w, &s);
    return s.of[LS_ALL_REDUCE].bytes;
}

/* The largest difference of a gradient from that of `b`, relative to the largest gradient. */
static double far_from(const net *a, const net *b)
{
    double most = 0, size = 0;
    for (int i = 0; i < a->model->params.n; i++) {
        const ls_tensor *x = a->model->params.item[i].t.grad, *y = b->model->params.item[i].t.grad;
        const float *p = x->data, *q = y->data;
        for (int64_t k = 0; k < ls_tensor_count(x); k++) {
            most = fmax(most, fabs((double)p[k] - (double)q[k]));
            size = fmax(size, fabs((double)q[k]));
        }
    }
    return most / size;
}

/* A step of four micro-batches beside the same samples at once. `forgotten`: each backward synchronises. */
ls_status accumulate(ls_world *w, void *arg)
{
    job *j = arg;
    const int rank = ls_world_rank(w), rows = MICRO_BATCHES * MICRO_ROWS;
    const bool forgotten = strcmp(j->more, "forgotten") == 0;
    net whole = { 0 }, n = { 0 };
    ls_status st = net_open(&whole, w, &caps, "sgd", SEED);
    if (st == LS_OK) st = net_open(&n, w, &caps, "sgd", SEED);
    if (st == LS_OK) st = net_backward(&whole, 0, rows * rank, rows, 1.0f);
    const uint64_t before = bytes_of(w);
    for (int m = 0; st == LS_OK && m < MICRO_BATCHES; m++)
        st = net_micro_batch(&n, 0, rows * rank + m * MICRO_ROWS, MICRO_ROWS, 1.0f / MICRO_BATCHES, m == 0,
                             forgotten || m == MICRO_BATCHES - 1);
    if (st == LS_OK && rank == 0) {
        j->hash[0] = bytes_of(w) - before;
        j->result = far_from(&n, &whole);
    }
    net_close(&n);
    net_close(&whole);
    return st;
}

/* --- slow ---------------------------------------------------------------------------------------------------- */

/* One rank (3, or the one that is named) begins each backward 200 ms after the others. */
ls_status slow(ls_world *w, void *arg)
{
    job *j = arg;
    const int rank = ls_world_rank(w), late = *j->more ? atoi(j->more) : RANKS - 1;
    const struct timespec pause = { .tv_nsec = LATE_MS * 1000000L };
    ls_comm_stats before, now;
    net n = { 0 };
    ls_status st = net_open(&n, w, &caps, "sgd", SEED);
    if (st == LS_OK) st = net_backward(&n, 0, 8 * rank, 8, 1.0f); /* buckets are rebuilt after it */
    if (st == LS_OK) st = ls_optim_step(n.optim);
    ls_comm_stats_read(w, &before);
    for (uint64_t step = 1; st == LS_OK && step <= LATE_STEPS; step++) {
        if (rank == late) (void)nanosleep(&pause, NULL);
        st = net_backward(&n, step, 8 * rank, 8, 1.0f);
        if (st == LS_OK) st = ls_optim_step(n.optim);
    }
    ls_comm_stats_read(w, &now);
    ls_comm_stats_since(&before, &now);
    j->hash[rank] = now.waited_ns / 1000000;
    j->named[rank] = now.slow_rank;
    net_close(&n);
    return st;
}
