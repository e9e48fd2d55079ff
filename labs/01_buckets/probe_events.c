/* probe_events.c -- the order of a step's events, by a communication hook and a listener of the tape. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "probe.h"

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void add_name(char *list, const char *name)
{
    const size_t n = strlen(list);
    snprintf(list + n, NAMES - n, "%s%s", n ? " " : "", name);
}

/* Its number. */
static int count_event(watcher *x, const char *name, const char *what)
{
    const size_t n = strlen(x->events);
    snprintf(x->events + n, sizeof x->events - n, "%s%d %s %s", n ? ", " : "", ++x->clock, name, what);
    return x->clock;
}

static int count_bucket(watcher *x, int index, const char *what)
{
    char name[24];
    snprintf(name, sizeof name, "bucket %d", index);
    return count_event(x, name, what);
}

static ls_status start(ls_comm_hook *h, ls_group *g, const ls_grad_bucket *b, ls_work **work)
{
    watcher *x = (watcher *)h;
    const ls_coll_args a = { .coll = LS_ALL_REDUCE, .dtype = LS_F32, .out = b->data, .count = b->count, .op = LS_AVG,
                             .label = "probe" };
    if (b->index < BUCKETS) {
        x->launched_ns[b->index] = now_ns();
        x->launch[b->index] = count_bucket(x, b->index, "launched");
    }
    return ls_coll_start(g, &a, work);
}

static ls_status finish(ls_comm_hook *h, ls_group *g, const ls_grad_bucket *b, const float **out, size_t *count)
{
    watcher *x = (watcher *)h;
    (void)g, (void)out, (void)count; /* the averages are in b->data */
    if (b->index < BUCKETS) x->reduced[b->index] = count_bucket(x, b->index, "reduced");
    return LS_OK;
}

static ls_status grad_ready(void *arg, ls_tensor *t)
{
    watcher *x = arg;
    for (int i = 0; i < x->ps->n; i++)
        if (&x->ps->item[i].t == t) {
            x->ready[i] = x->last = count_event(x, x->ps->item[i].name, "ready");
            add_name(x->arrived, x->ps->item[i].name);
            x->ready_ns[i] = now_ns();
        }
    return LS_OK;
}

static void list_buckets(const net *n, char *out)
{
    for (int i = 0; i < ls_ddp_buckets(n->ddp); i++) {
        const ls_ddp_bucket_info b = ls_ddp_bucket(n->ddp, i);
        for (int k = 0; k < b.nparams; k++) add_name(out, n->model->params.item[b.param[k]].name);
    }
}

ls_status watch(watcher *x, net *n)
{
    static const ls_tape_events listen = { .grad_ready = grad_ready };
    x->hook = (ls_comm_hook){ .name = "probe", .start = start, .finish = finish };
    x->ps = &n->model->params;
    LS_TRY(ls_ddp_set_hook(n->ddp, &x->hook));
    return ls_tape_listen(n->tape, &listen, x);
}

int ready_at(const watcher *x, const net *n, int bucket, uint64_t *ns)
{
    const ls_ddp_bucket_info b = ls_ddp_bucket(n->ddp, bucket);
    int last = b.param[0];
    for (int k = 1; k < b.nparams; k++)
        if (x->ready[b.param[k]] > x->ready[last]) last = b.param[k];
    *ns = x->ready_ns[last];
    return x->ready[last];
}

ls_status events(ls_world *w, void *arg)
{
    job *j = arg;
    const uint64_t steps = j->first ? 1 : 3;
    ls_ddp_config c = caps;
    const int rank = ls_world_rank(w);
    watcher *x = calloc(1, sizeof *x);
    net n = { 0 };
    if (!x) return ls_fail(LS_NO_MEMORY, "a hook");
    c.no_overlap = j->late;
    ls_status st = net_open(&n, w, &c, "sgd", SEED);
    if (st == LS_OK) st = watch(x, &n);
    for (uint64_t step = 0; st == LS_OK && step < steps; step++) {
        x->clock = 0;
        *x->arrived = *x->events = 0;
        st = net_backward(&n, step, 8 * rank, 8, 1.0f);
        if (st == LS_OK && rank == 0 && step == 0) memcpy(j->text[0], x->arrived, NAMES);
        if (st == LS_OK && rank == 0 && step == (j->rebuilt ? 2 : 0)) list_buckets(&n, j->text[1]);
        if (st == LS_OK) st = ls_optim_step(n.optim);
    }
    if (st == LS_OK && rank == 0) {
        uint64_t ready_ns;
        j->at[0] = ready_at(x, &n, j->from, &ready_ns);
        j->at[1] = x->launch[j->other];
        j->at[2] = x->reduced[j->other];
        j->at[3] = x->last;
        j->at[4] = count_event(x, "optimizer's", "step");
        memcpy(j->events, x->events, NAMES);
        j->result = 1e-3 * ((double)x->launched_ns[j->other] - (double)ready_ns);
        list_buckets(&n, j->text[2]);
        for (int i = 0; i < x->ps->n; i++) add_name(j->text[3], x->ps->item[i].name);
    }
    net_close(&n);
    free(x);
    return st;
}
