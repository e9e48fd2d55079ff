/* tune.c -- bucket caps: the cost of all_reduce and the times of gradients, measured; steps, predicted and measured. */
#include "train/tune.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/env.h"
#include "base/median.h"
#include "coll/cost.h"
#include "net/world.h"
#include "parallel/strategy.h"
#include "train/trainer.h"

#define WARMUP 2      /* steps: the first has one bucket, in the second the buckets are rebuilt */
#define LEAST_STEPS 3 /* in which gradients are timed, however few steps are measured for a cap */
#define SIZES 12      /* of all_reduce */
#define LEAST ((size_t)1 << 10)
#define LONG  ((size_t)64 << 10)
#define MOST  ((size_t)64 << 20)
#define TRIALS 9
#define SHORT_OPS 20  /* in a trial of vectors below LONG */

ls_status ls_tune_check(const ls_train_config *c, int world_size)
{
    if (world_size < 2)
        return ls_fail(LS_USAGE, "tune buckets on %d rank: expected at least 2, because one rank reduces nothing: give -n 2", world_size);
    const struct { const char *axis; int64_t size; } apart[] = { { "pp", c->parallel.pp }, { "ep", c->parallel.ep } };
    for (int i = 0; i < 2; i++)
        if (apart[i].size > 1)
            return ls_fail(LS_UNSUPPORTED, "tune buckets measures one group of ranks, which have buckets of all gradients, and parallel.%s "
                           "is %lld: leave it out", apart[i].axis, (long long)apart[i].size);
    if (world_size == c->parallel.tp)
        return ls_fail(LS_USAGE, "tune buckets on %d ranks with parallel.tp %d: expected a multiple of it, because ranks that divide a layer "
                       "reduce other gradients: give -n %d", world_size, world_size, 2 * world_size);
    if (c->zero.stage != 0)
        return ls_fail(LS_UNSUPPORTED, "zero.stage is %lld: tune buckets measures all_reduce, which stage 0 calls: set it to 0",
                       (long long)c->zero.stage);
    if (strcmp(c->ddp.hook, "none") != 0)
        return ls_fail(LS_UNSUPPORTED, "ddp.hook is %s: tune buckets measures all_reduce without a hook: set it to none", c->ddp.hook);
    if (c->ddp.find_unused && !c->ddp.static_graph)
        return ls_fail(LS_UNSUPPORTED, "ddp.find_unused is true: tune buckets predicts buckets in the order in which gradients become "
                       "ready, which find_unused does not have: set it to false");
    if (!c->ddp.overlap)
        return ls_fail(LS_BAD_CONFIG, "ddp.overlap is false: no bucket is reduced during backward, whatever its cap: set it to true");
    return LS_OK;
}

/* --- the cost of all_reduce -------------------------------------------------------------------------- */

/* Sorts v[n]; of an even number the upper one of the two in the middle. */
static double median(double *v, int64_t n)
{
    ls_sort_values(v, (size_t)n);
    return v[n / 2];
}

/* Every rank gets the times of the slowest rank, element by element. */
static ls_status slowest(ls_group *g, double *v, size_t n) { return ls_all_reduce(g, v, v, n, LS_F64, LS_MAX); }

static ls_status time_all_reduce(ls_group *g, float *buf, size_t nbytes, double *ns)
{
    const ls_env *env = ls_env_get();
    const int ops = nbytes < LONG ? SHORT_OPS : 1;
    double trial[TRIALS];
    for (int t = -1; t < TRIALS; t++) { /* the first is not counted */
        LS_TRY(ls_barrier(g));
        const uint64_t t0 = env->mono_ns();
        for (int i = 0; i < ops; i++) LS_TRY(ls_all_reduce(g, buf, buf, nbytes / sizeof *buf, LS_F32, LS_AVG));
        if (t >= 0) trial[t] = (double)(env->mono_ns() - t0 + 1) / ops;
    }
    *ns = median(trial, TRIALS);
    return LS_OK;
}

/* As DDP calls it: averages of floats, in registered memory, in place. */
static ls_status measure_all_reduce(ls_world *w, ls_group *g, ls_tune *out)
{
    size_t most = out->nbytes < LONG ? LONG : out->nbytes < MOST ? out->nbytes : MOST;
    double size[SIZES], ns[SIZES];
    void *buf;
    int n = 0;
    LS_TRY(ls_alloc(w, most, LS_MEM_COMM, &buf));
    memset(buf, 0, most);
    for (size_t nbytes = LEAST; nbytes < most && n < SIZES - 1; nbytes *= 4) size[n++] = (double)nbytes;
    size[n++] = (double)(most / sizeof(float) * sizeof(float));
    for (int i = 0; i < n; i++) LS_TRY(time_all_reduce(g, buf, (size_t)size[i], &ns[i]));
    LS_TRY(slowest(ls_world_group(w), ns, (size_t)n));
    ls_cost_fit(size, ns, n, &out->alpha_ns, &out->beta_ns, &out->worst);
    return LS_OK;
}

/* --- steps ------------------------------------------------------------------------------------------ */

/* When backward began, and when each gradient was ready: of the newest backward. */
typedef struct recorder {
    const ls_params *ps;
    bool running;
    uint64_t begin;
    uint64_t *ready; /* [ps->n]; 0: it was not */
} recorder;

static ls_status on_unit(void *arg, const ls_unit *unit, ls_unit_when when)
{
    recorder *r = arg;
    (void)unit;
    if (when != LS_UNIT_ENTER_BACKWARD || r->running) return LS_OK;
    r->running = true;
    r->begin = ls_env_get()->mono_ns();
    memset(r->ready, 0, (size_t)r->ps->n * sizeof *r->ready);
    return LS_OK;
}

static ls_status on_ready(void *arg, ls_tensor *t)
{
    recorder *r = arg;
    for (int i = 0; i < r->ps->n; i++)
        if (&r->ps->item[i].t == t) r->ready[i] = ls_env_get()->mono_ns();
    return LS_OK;
}

/* DDP's listener may have reduced the buckets before: backward ended with its last gradient. */
static ls_status on_done(void *arg)
{
    recorder *r = arg;
    r->running = false;
    return LS_OK;
}

static ls_status one_step(ls_trainer *t, ls_step_stats *s)
{
    LS_TRY(ls_train_step(t, s));
    if (t->stop_signal) return ls_fail(LS_INTERRUPTED, "stopped on request before all caps were measured; nothing was saved");
    return LS_OK;
}

/* How long this rank has waited for gradients: in the group that averages them, and in its second one. */
static uint64_t exposed_so_far(const ls_trainer *t)
{
    ls_comm_stats first, second = { 0 };
    ls_group_stats_read(t->par.mesh.replicas, &first);
    if (t->par.ddp->second) ls_group_stats_read(t->par.ddp->second, &second);
    return first.exposed_ns + second.exposed_ns;
}

/* Medians over `steps` steps. */
static ls_status run_steps(ls_trainer *t, int64_t steps, ls_tune_row *row)
{
    double *step = malloc((size_t)steps * 2 * sizeof *step), *exposed = step + steps;
    ls_status st = step ? LS_OK : ls_fail(LS_NO_MEMORY, "the times of %lld steps", (long long)steps);
    for (int64_t i = -WARMUP; st >= 0 && i < steps; i++) {
        ls_step_stats s;
        const uint64_t before = exposed_so_far(t);
        st = one_step(t, &s);
        if (st < 0 || i < 0) continue;
        step[i] = (double)s.step_ns;
        exposed[i] = (double)(exposed_so_far(t) - before);
    }
    if (st >= 0) {
        double both[2] = { median(step, steps), median(exposed, steps) };
        st = slowest(ls_world_group(t->w), both, 2);
        row->step_ns = both[0];
        row->exposed_ns = both[1];
    }
    free(step);
    return st;
}

/* What one rank's step was like: ready[n], then the whole backward, then the rest of the step. Where ranks divide
 * layers, their collectives are a part of forward and of backward. */
static void profile(const recorder *r, const ls_step_stats *s, uint64_t exposed_ns, double *out)
{
    uint64_t last = r->begin;
    for (int i = 0; i < r->ps->n; i++) last = r->ready[i] > last ? r->ready[i] : last;
    const double backward = (double)(last - r->begin);
    const double rest = (double)s->step_ns - backward - (double)exposed_ns;
    for (int i = 0; i < r->ps->n; i++) out[i] = r->ready[i] ? (double)(r->ready[i] - r->begin) : backward;
    out[r->ps->n] = backward;
    out[r->ps->n + 1] = rest > 0 ? rest : 0;
}

/* Without overlap, so that backward computes and does nothing else; of the step whose time is the median. out[n + 2] as
 * in profile, of the slowest rank. */
static ls_status time_gradients(ls_trainer *t, int64_t steps, double *out)
{
    const ls_params *ps = &t->par.model->params;
    const size_t n = (size_t)ps->n + 2;
    recorder r = { .ps = ps, .ready = calloc((size_t)ps->n, sizeof *r.ready) };
    double *all = malloc((size_t)steps * (n + 2) * sizeof *all), *time = all ? all + (size_t)steps * n : NULL;
    ls_status st = r.ready && all ? LS_OK : ls_fail(LS_NO_MEMORY, "the times of %d gradients in %lld steps", ps->n, (long long)steps);
    const ls_tape_events events = { .unit = on_unit, .grad_ready = on_ready, .done = on_done };
    for (int k = 0; st >= 0 && k < t->par.ntapes; k++) st = ls_tape_listen(t->par.tape[k], &events, &r);
    for (int64_t i = -WARMUP; st >= 0 && i < steps; i++) {
        ls_step_stats s;
        const uint64_t before = exposed_so_far(t);
        st = one_step(t, &s);
        if (st < 0 || i < 0) continue;
        profile(&r, &s, exposed_so_far(t) - before, all + (size_t)i * n);
        time[i] = time[steps + i] = (double)s.step_ns;
    }
    for (int k = 0; k < t->par.ntapes; k++) ls_tape_unlisten(t->par.tape[k], &r);
    if (st >= 0) {
        const double middle = median(time + steps, steps);
        int64_t i = 0;
        while (i + 1 < steps && (time[i] < middle || time[i] > middle)) i++;
        memcpy(out, all + (size_t)i * n, n * sizeof *out);
        st = slowest(ls_world_group(t->w), out, n);
    }
    free(all);
    free(r.ready);
    return st;
}

/* --- from times to rows ----------------------------------------------------------------------------- */

typedef struct gradient { double ready_ns; size_t nbytes; int index; } gradient;

/* Of two that were ready in the same nanosecond, the later parameter comes first, as in backward. */
static int by_ready(const void *a, const void *b)
{
    const gradient *x = a, *y = b;
    const int order = (x->ready_ns > y->ready_ns) - (x->ready_ns < y->ready_ns);
    return order ? order : y->index - x->index;
}

static ls_status predict_rows(const ls_train_config *c, const gradient *sorted, ls_tune *out)
{
    const size_t n = (size_t)out->ngradients;
    size_t cap[LS_OVERLAP_CAPS], *nbytes = malloc(n * sizeof *nbytes);
    double *ready = malloc(n * sizeof *ready);
    ls_overlap_step step[LS_OVERLAP_CAPS];
    ls_status st = nbytes && ready ? LS_OK : ls_fail(LS_NO_MEMORY, "the order of %zu gradients", n);
    for (size_t i = 0; st >= 0 && i < n; i++) {
        nbytes[i] = sorted[i].nbytes;
        ready[i] = sorted[i].ready_ns < out->backward_ns ? sorted[i].ready_ns : out->backward_ns;
    }
    const ls_overlap o = { .n = out->ngradients, .nbytes = nbytes, .ready_ns = ready, .backward_ns = out->backward_ns,
                           .rest_ns = out->rest_ns, .alpha_ns = out->alpha_ns, .beta_ns = out->beta_ns };
    out->nrows = ls_overlap_caps(out->nbytes, c->ddp.bucket_cap, cap);
    for (int i = 0; st >= 0 && i < out->nrows; i++) {
        const bool one = i == out->nrows - 1 || c->ddp.first_bucket > cap[i];
        st = ls_overlap_predict(&o, one ? cap[i] : c->ddp.first_bucket, cap[i], &step[i]);
        out->row[i].predicted = step[i];
    }
    if (st >= 0) out->best = ls_overlap_best(step, out->nrows);
    free(nbytes);
    free(ready);
    return st;
}

static ls_status predict(const ls_train_config *c, ls_trainer *t, int64_t steps, ls_tune *out)
{
    const ls_params *ps = &t->par.model->params;
    const size_t n = (size_t)ps->n;
    double *time = malloc((n + 2) * sizeof *time);
    gradient *sorted = malloc(n * sizeof *sorted);
    ls_status st = time && sorted ? LS_OK : ls_fail(LS_NO_MEMORY, "the times of %zu gradients", n);
    out->ranks = ls_group_size(t->par.mesh.replicas);
    snprintf(out->transport, sizeof out->transport, "%s", ls_world_transport(t->w));
    out->ngradients = ps->n;
    for (size_t i = 0; i < n; i++) out->nbytes += ls_tensor_nbytes(&ps->item[i].t);
    if (st >= 0) st = time_gradients(t, steps < LEAST_STEPS ? LEAST_STEPS : steps, time);
    if (st >= 0) st = measure_all_reduce(t->w, t->par.mesh.replicas, out);
    if (st >= 0) {
        for (size_t i = 0; i < n; i++) sorted[i] = (gradient){ time[i], ls_tensor_nbytes(&ps->item[i].t), (int)i };
        qsort(sorted, n, sizeof *sorted, by_ready);
        out->backward_ns = time[n];
        out->rest_ns = time[n + 1];
        st = predict_rows(c, sorted, out);
    }
    free(time);
    free(sorted);
    return st;
}

static ls_status measure(const ls_train_config *c, ls_trainer *t, int64_t steps, ls_tune *out)
{
    LS_TRY(ls_tune_check(c, ls_world_size(t->w)));
    LS_TRY(predict(c, t, steps, out));
    for (int i = 0; steps > 0 && i < out->nrows; i++) {
        const ls_overlap_step *s = &out->row[i].predicted;
        ls_buckets_limit(t->par.ddp, s->first_bucket, s->bucket_cap, true);
        LS_TRY(run_steps(t, steps, &out->row[i]));
        const int found = ls_ddp_buckets(t->par.ddp);
        if (found != s->nbuckets)
            return ls_fail(LS_INTERNAL, "a cap of %zu bytes made %d buckets, but %d were predicted", s->bucket_cap, found, s->nbuckets);
    }
    return LS_OK;
}

ls_status ls_tune_buckets(const ls_train_config *c, int64_t steps, ls_tune *out)
{
    ls_train_config now = *c;
    ls_trainer *t;
    *out = (ls_tune){ 0 };
    now.train.sample_every = 0;
    now.ddp.overlap = false; /* the first steps: one bucket, which is reduced after backward */
    now.ddp.bucket_cap = now.ddp.first_bucket = SIZE_MAX;
    LS_TRY(ls_trainer_create(&now, &t));
    ls_status st = measure(c, t, steps, out);
    if (st < 0) {
        if (st != LS_INTERRUPTED) (void)ls_world_abort(t->w, st); /* a stop on request is agreed */
        st = ls_world_verdict(t->w, st);
    }
    ls_trainer_destroy(t);
    return st;
}
