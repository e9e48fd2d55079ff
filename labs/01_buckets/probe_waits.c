/* probe_waits.c -- gradients that arrive in another order than buckets leave, a layer that sleeps in backward, and one
 * that a rank leaves out. */
#include <math.h>
#include <stdlib.h>
#include <time.h>

#include "probe.h"

enum { SLEEPS = 5, ROWS = 8 };

/* --- order --------------------------------------------------------------------------------------------------- */

typedef enum forward {
    DEEP_FIRST, LAST_LAYER_FIRST, LAST_LAYER_ONLY, /* of the two branches */
} forward;

/* Two branches on one input: layers 0 and 2, and layer 4. Backward visits first what forward has visited last. */
static ls_status branches(net *n, uint64_t step, forward f, float weight)
{
    const int64_t xdim[2] = { ROWS, NET_IN }, rows = ROWS;
    float x[ROWS * NET_IN];
    int64_t label[ROWS];
    ls_param *p = n->model->params.item; /* 0.weight 0.bias 2.weight 2.bias 4.weight 4.bias */
    ls_tensor *deep = NULL, *flat = NULL;
    ls_philox_normal(7, step, 0, ROWS * NET_IN, 1.0f, x);
    for (int i = 0; i < ROWS; i++) label[i] = i % NET_OUT;
    ls_params_zero_grad(&n->model->params);
    ls_tape_reset(n->tape);
    if (n->ddp) LS_TRY(ls_ddp_begin_forward(n->ddp, n->tape, true));
    ls_tensor *in = ls_tape_input(n->tape, LS_F32, 2, xdim, x), *want = ls_tape_input(n->tape, LS_I64, 1, &rows, label);
    for (int k = 0; k < 2; k++) {
        const bool last_layer = (k == 0) == (f == LAST_LAYER_FIRST);
        if (!last_layer && f == LAST_LAYER_ONLY) continue;
        ls_tensor *y = last_layer ? in : ls_relu(n->tape, ls_linear(n->tape, in, &p[0].t, &p[1].t));
        y = last_layer ? ls_linear(n->tape, y, &p[4].t, &p[5].t) : ls_linear(n->tape, y, &p[2].t, &p[3].t);
        *(last_layer ? &flat : &deep) = ls_softmax_cross_entropy(n->tape, y, want, NULL, NULL);
    }
    return ls_backward_from(n->tape, deep ? ls_add(n->tape, deep, flat) : flat, &weight);
}

/* Buckets are those of a model whose last layer comes first. In step 3 its gradients come last. */
ls_status order(ls_world *w, void *arg)
{
    job *j = arg;
    const bool usual = strcmp(j->more, "usual") == 0;
    watcher *x = calloc(1, sizeof *x);
    net n = { 0 };
    uint64_t ns;
    if (!x) return ls_fail(LS_NO_MEMORY, "a hook");
    ls_status st = net_open(&n, w, &caps, "sgd", SEED);
    if (st == LS_OK) st = watch(x, &n);
    for (uint64_t step = 0; st == LS_OK && step < 3; step++) {
        x->clock = 0;
        *x->arrived = *x->events = 0;
        st = branches(&n, step, step == 2 && !usual ? LAST_LAYER_FIRST : DEEP_FIRST, 1.0f);
        if (st == LS_OK) st = ls_optim_step(n.optim);
    }
    if (st == LS_OK && ls_world_rank(w) == 0) {
        for (int b = 0; b < 2; b++) {
            j->at[b] = ready_at(x, &n, b, &ns);
            j->at[2 + b] = x->launch[b];
        }
        memcpy(j->text[0], x->arrived, NAMES);
        memcpy(j->events, x->events, NAMES);
    }
    net_close(&n);
    free(x);
    return st;
}

/* --- asleep -------------------------------------------------------------------------------------------------- */

static void nap(int ms)
{
    struct timespec left = { .tv_nsec = ms * 1000000L };
    while (nanosleep(&left, &left) != 0) { }
}

typedef struct sleeper {
    const ls_tensor *weight; /* the last gradient of bucket 0 */
    int ms;
    float *seen;             /* its gradient after the sleep, before any call of the library; NULL: not looked at */
} sleeper;

static ls_status sleep_in_backward(void *arg, ls_tensor *t)
{
    sleeper *s = arg;
    if (t != s->weight) return LS_OK;
    nap(s->ms);
    if (s->seen) memcpy(s->seen, t->grad->data, (size_t)ls_tensor_count(t) * sizeof *s->seen);
    return LS_OK;
}

/* Rank 3 reaches bucket 0 20 ms after the others, so that rank 0 cannot find it finished when it joins. Rank 0 sleeps
 * for 100 ms after it has launched bucket 0, and looks at the bucket. */
ls_status asleep(ls_world *w, void *arg)
{
    job *j = arg;
    const int rank = ls_world_rank(w);
    const ls_tape_events listen = { .grad_ready = sleep_in_backward };
    sleeper s = { .ms = rank == 0 ? 100 : 20 };
    net n = { 0 };
    ls_status st = net_open(&n, w, &caps, "sgd", SEED);
    const size_t nbytes = MOST * sizeof(float);
    if (st == LS_OK && rank == 0 && !(s.seen = calloc(1, nbytes))) st = ls_fail(LS_NO_MEMORY, "a gradient");
    if (st == LS_OK) s.weight = &n.model->params.item[4].t;
    if (st == LS_OK && rank == 3) st = ls_tape_listen(n.tape, &listen, &s); /* before DDP: its bucket is late */
    for (uint64_t step = 0; st == LS_OK && step < 2 + SLEEPS; step++) {
        if (step == 2 && rank == 0) st = ls_tape_listen(n.tape, &listen, &s); /* after DDP: the bucket is launched */
        if (st == LS_OK) st = net_backward(&n, step, ROWS * rank, ROWS, 1.0f);
        if (st == LS_OK && rank == 0 && step >= 2)
            j->at[0] += memcmp(s.seen, s.weight->grad->data, (size_t)ls_tensor_count(s.weight) * sizeof(float)) == 0;
        if (st == LS_OK) st = ls_optim_step(n.optim);
    }
    j->at[1] = SLEEPS;
    net_close(&n);
    free(s.seen);
    return st;
}

/* --- skips --------------------------------------------------------------------------------------------------- */

/* The sum over ranks of this rank's gradients, by hand. */
static ls_status sum_of(ls_world *w, const net *n, float *sum)
{
    const ls_params *ps = &n->model->params;
    size_t at = 0;
    for (int i = 0; i < ps->n; i++) {
        const size_t count = (size_t)ls_tensor_count(&ps->item[i].t);
        memcpy(sum + at, ps->item[i].t.grad->data, count * sizeof *sum);
        at += count;
    }
    return ls_all_reduce(ls_world_group(w), NULL, sum, at, LS_F32, LS_SUM);
}

/* The loss of rank 3 leaves out layers 0 and 2. `found` sets find_unused, and so does `weighted`, in which the loss of
 * each rank counts 4/3; `nobody`: no rank leaves anything out.
 * `result` is how far the gradient of layer 0 is from the mean by hand over all ranks, `second` from that over the
 * three ranks that have used it. */
ls_status skips(ls_world *w, void *arg)
{
    job *j = arg;
    const forward f = ls_world_rank(w) == RANKS - 1 && strcmp(j->more, "nobody") != 0 ? LAST_LAYER_ONLY : DEEP_FIRST;
    ls_ddp_config c = caps;
    const bool weighted = strcmp(j->more, "weighted") == 0;
    const float weight = weighted ? (float)RANKS / (RANKS - 1) : 1.0f;
    c.find_unused = weighted || strcmp(j->more, "found") == 0;
    net ddp = { 0 }, alone = { 0 };
    float *sum = calloc(MOST, sizeof *sum);
    ls_status st = sum ? net_open(&alone, w, NULL, "sgd", SEED) : ls_fail(LS_NO_MEMORY, "gradients");
    if (st == LS_OK) st = net_open(&ddp, w, &c, "sgd", SEED);
    if (st == LS_OK) st = branches(&alone, 0, f, 1.0f);
    if (st == LS_OK) st = sum_of(w, &alone, sum);
    if (st == LS_OK) st = branches(&ddp, 0, f, weight);
    if (st == LS_OK) st = ls_optim_step(ddp.optim);
    if (st == LS_OK && ls_world_rank(w) == 0) {
        const ls_tensor *first = &ddp.model->params.item[0].t;
        const float *got = first->grad->data;
        double size = 0;
        for (int64_t i = 0; i < ls_tensor_count(first); i++) {
            const double mean = (double)sum[i] / RANKS;
            size = fmax(size, fabs(mean));
            j->result = fmax(j->result, fabs((double)got[i] - mean));
            j->second = fmax(j->second, fabs((double)got[i] - (double)sum[i] / (RANKS - 1)));
        }
        j->result /= size;
        j->second /= size;
    }
    net_close(&ddp);
    net_close(&alone);
    free(sum);
    return st;
}
