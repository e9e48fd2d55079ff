/* measure.c -- steps of one rank, or of the ranks of a layout in mirrors, operation by operation. */
#include "train/measure.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/context.h"
#include "base/env.h"
#include "base/log.h"
#include "base/median.h"
#include "base/team.h"
#include "group/local_ranks.h"
#include "train/alone.h"
#include "train/expert_loads.h"
#include "train/trainer.h"

#define WARM        3   /* steps before those that are timed, */
#define WARM_NS     700000000u /* and how long they last at most: within a second of wide vectors the clock of a core falls, */
#define WARM_PART   4          /* which a short run does not see: not longer than such a part of it */
#define LEAST_STEPS 5
#define MOST_STEPS  25
#define ENOUGH_NS   500000000u /* of steps that are timed, */
#define FEW_STEPS   3          /* and of so many long steps */
#define BARE_NS     250000000u /* of steps that no one listens to; there are none if FEW_STEPS take longer than that */
#define MOST_BARE   200
#define LONG_NS     1500000000u
#define MOST_MIRRORS 64        /* at the same time, */
#define MOST_ROWS 4096         /* and the operations of each, if they are processes */
#define LOADS_PART 10   /* of the time that measuring may take, for what experts have to do */
#define ASLEEP      0.2 /* an operation that computes for a smaller part of its time waits for a clock */

/* --- listening ------------------------------------------------------------------------------------------- */

typedef struct clock_pair { uint64_t wall_ns, cpu_ns; } clock_pair;

/* A row's times, step by step. */
typedef struct sample { double wall_s, cpu_s; } sample;

typedef struct listener {
    ls_measured *out;
    sample *of;       /* owned: [cap][MOST_STEPS] */
    int cap, step;    /* step: that is timed */
    uint64_t long_ns; /* of all steps: then no other one begins */
    int64_t run_steps; /* of the run that is to come; 0: whole epochs, which last */
    double crowd;     /* ranks per core */
    const ls_world *w; /* of a mirror: what it does for others is not counted */
    ls_group *beside;  /* of mirrors that are timed together; NULL: this one is alone */
    clock_pair last;  /* when the newest operation ended, or the pass began; without what was done for others */
    bool running;
    sample step_of[MOST_STEPS]; /* whole steps, */
    sample own[MOST_STEPS];     /* and what of them listening took: clocks are read around operations of microseconds */
    sample look;                /* of that, a look at both clocks */
    sample bare_of[MOST_BARE];  /* steps that no one listened to, after those of step_of: */
    int bares;                  /* so many */
    double data_s[MOST_STEPS], update_s[MOST_STEPS];
    ls_status st;
} listener;

/* Processor time is that of the rank's thread, or of the whole process where the rank has several threads: then no
 * other rank is timed at the same time. Without what a mirror did in place of other ranks. */
static clock_pair now(const listener *x)
{
    const ls_env *env = ls_env_get();
    const ls_mirrored others = x->w ? ls_world_mirrored(x->w) : (ls_mirrored){ 0 };
    const uint64_t cpu = x->out->threads > 1 ? env->cpu_ns() : env->thread_cpu_ns();
    return (clock_pair){ env->mono_ns() - others.wall_ns, cpu - others.cpu_ns };
}

/* Below 0 if less was done than a mirror's short calls are taken to last, which is their mean. */
static sample between(clock_pair from, clock_pair to)
{
    const int64_t wall_ns = (int64_t)(to.wall_ns - from.wall_ns), cpu_ns = (int64_t)(to.cpu_ns - from.cpu_ns);
    return (sample){ 1e-9 * (double)wall_ns, 1e-9 * (double)cpu_ns };
}

static void add(sample *to, sample more) { *to = (sample){ to->wall_s + more.wall_s, to->cpu_s + more.cpu_s }; }

static sample less(sample all, sample part)
{
    return (sample){ fmax(0, all.wall_s - part.wall_s), fmax(0, all.cpu_s - part.cpu_s) };
}

/* The least of some rounds: one may be interrupted. */
static sample time_look(const listener *x)
{
    enum { ROUNDS = 20, LOOKS = 50 };
    sample least = { (double)INFINITY, (double)INFINITY };
    for (int i = 0; i < ROUNDS; i++) {
        const clock_pair from = now(x);
        clock_pair to = from;
        for (int k = 0; k < LOOKS; k++) to = now(x);
        const sample took = between(from, to);
        least = (sample){ fmin(least.wall_s, took.wall_s / LOOKS), fmin(least.cpu_s, took.cpu_s / LOOKS) };
    }
    return least;
}

static const char *unit_name(const ls_op_event *e) { return e->unit ? e->unit->name : "root"; }

static bool is_row(const ls_measured_row *r, const ls_op_event *e)
{
    return r->phase == e->phase && strcmp(r->name, e->name) == 0 && strcmp(r->unit, unit_name(e)) == 0;
}

/* Rows are few, and looked for in the order of the step. */
static int row_of(listener *x, const ls_op_event *e)
{
    ls_measured *m = x->out;
    for (int i = 0; i < m->n; i++)
        if (is_row(&m->row[i], e)) return i;
    if (m->n == x->cap) {
        const int cap = x->cap ? 2 * x->cap : 256;
        ls_measured_row *row = realloc(m->row, (size_t)cap * sizeof *row);
        if (row) m->row = row;
        sample *of = realloc(x->of, (size_t)cap * MOST_STEPS * sizeof *of);
        if (of) x->of = of;
        if (!row || !of) {
            x->st = ls_fail(LS_NO_MEMORY, "the times of %d operations", cap);
            return -1;
        }
        x->cap = cap;
    }
    ls_measured_row *r = &m->row[m->n];
    *r = (ls_measured_row){ .phase = e->phase };
    snprintf(r->unit, sizeof r->unit, "%s", unit_name(e));
    snprintf(r->name, sizeof r->name, "%s", e->name);
    memset(x->of + (size_t)m->n * MOST_STEPS, 0, MOST_STEPS * sizeof *x->of);
    return m->n++;
}

static void on_op(void *arg, const ls_op_event *e)
{
    listener *x = arg;
    if (!x->running || x->st < 0) return;
    const clock_pair ended = now(x);
    const int i = row_of(x, e);
    if (i < 0) return;
    ls_measured_row *r = &x->out->row[i];
    add(&x->of[(size_t)i * MOST_STEPS + (size_t)x->step], less(between(x->last, ended), x->look));
    if (x->step == 0) {
        r->calls++;
        r->flops += e->flops;
        r->bytes += e->bytes;
    }
    x->last = now(x);
    add(&x->own[x->step], x->look);
    add(&x->own[x->step], between(ended, x->last));
}

/* The first operation of a pass begins with the pass; each later one with the end of the one before. */
static ls_status on_unit(void *arg, const ls_unit *unit, ls_unit_when when)
{
    listener *x = arg;
    (void)unit;
    if (!x->running && (when == LS_UNIT_ENTER || when == LS_UNIT_ENTER_BACKWARD)) {
        x->running = true;
        x->last = now(x);
    }
    return LS_OK;
}

static ls_status on_done(void *arg)
{
    ((listener *)arg)->running = false;
    return LS_OK;
}

/* --- steps ----------------------------------------------------------------------------------------------- */

static ls_status time_step(ls_trainer *t, listener *x)
{
    ls_step_stats s;
    x->own[x->step] = (sample){ 0, 0 };
    const clock_pair begin = now(x);
    LS_TRY(ls_train_step(t, &s));
    x->step_of[x->step] = less(between(begin, now(x)), x->own[x->step]);
    x->data_s[x->step] = 1e-9 * (double)s.data_ns;
    x->update_s[x->step] = 1e-9 * (double)s.optim_ns;
    return x->st;
}

/* The same without listening. */
static ls_status time_bare_step(ls_trainer *t, listener *x)
{
    ls_step_stats s;
    const clock_pair begin = now(x);
    LS_TRY(ls_train_step(t, &s));
    x->bare_of[x->bares++] = between(begin, now(x));
    return LS_OK;
}

/* Since `begin`, and within the part of the run that they are, by the clock of the newest step. */
static bool is_warm(const listener *x, uint64_t begin)
{
    const double part = x->run_steps > 0 ? 1e9 * x->step_of[0].wall_s * (double)x->run_steps / WARM_PART : WARM_NS;
    return (double)(ls_env_get()->mono_ns() - begin) >= fmin(WARM_NS, part);
}

static bool is_long(const listener *x, uint64_t begin)
{
    return x->step > 0 && ls_env_get()->mono_ns() - begin >= x->long_ns;
}

static bool is_enough(const listener *x, uint64_t begin, uint64_t timed_from)
{
    const uint64_t t = ls_env_get()->mono_ns();
    return (x->step >= LEAST_STEPS && t - timed_from >= ENOUGH_NS) || is_long(x, begin) ||
           (x->step >= FEW_STEPS && t - timed_from >= LONG_NS);
}

/* Whether one of the mirrors that are timed together says so. They ask after each step, so they begin the next one
 * together, as the ranks of a run do: those on one core then run the same operation one after the other, and find its
 * code in the core's caches. The first that is warm, or has enough, decides for all. */
static ls_status anyone(const listener *x, bool mine, bool *any)
{
    int32_t one = mine;
    *any = mine;
    if (!x->beside) return LS_OK;
    LS_TRY(ls_all_reduce(x->beside, &one, &one, 1, LS_I32, LS_MAX));
    *any = one != 0;
    return LS_OK;
}

/* What was timed so far is forgotten. */
static void start_over(listener *x)
{
    x->out->n = x->out->steps = 0;
}

/* Steps to warm up are timed, too: one after which there is no time for another has to do. */
static ls_status take_steps(ls_trainer *t, listener *x)
{
    const uint64_t begin = ls_env_get()->mono_ns();
    uint64_t timed_from = begin;
    bool done = false;
    for (int warm = WARM; !done;) {
        if (warm > 0) start_over(x);
        x->step = warm > 0 ? 0 : x->out->steps;
        x->running = false;
        LS_TRY(time_step(t, x));
        x->out->steps = ++x->step;
        bool warmed;
        LS_TRY(anyone(x, x->step == MOST_STEPS || is_enough(x, begin, timed_from), &done));
        if (warm == 0) continue;
        LS_TRY(anyone(x, warm > 1 || is_warm(x, begin), &warmed));
        timed_from = ls_env_get()->mono_ns();
        if (warmed) warm--;
        if (warm == 0 && !done) start_over(x);
    }
    return LS_OK;
}

/* One after another, as in a run. Listening to a long step takes a part of it that is too small to matter. */
static ls_status take_bare_steps(ls_trainer *t, listener *x)
{
    const uint64_t begin = ls_env_get()->mono_ns();
    bool enough;
    LS_TRY(anyone(x, 1e9 * x->step_of[x->step - 1].wall_s * FEW_STEPS > BARE_NS, &enough));
    while (!enough) {
        LS_TRY(time_bare_step(t, x));
        const bool late = ls_env_get()->mono_ns() - begin >= BARE_NS;
        LS_TRY(anyone(x, x->bares == MOST_BARE || (x->bares >= FEW_STEPS && late), &enough));
    }
    return LS_OK;
}

static ls_status time_steps(ls_trainer *t, listener *x)
{
    static const ls_tape_events events = { .unit = on_unit, .op = on_op, .done = on_done };
    for (int i = 0; i < t->par.ntapes; i++) LS_TRY(ls_tape_listen(t->par.tape[i], &events, x));
    LS_TRY(take_steps(t, x));
    for (int i = 0; i < t->par.ntapes; i++) ls_tape_unlisten(t->par.tape[i], x);
    LS_TRY(take_bare_steps(t, x));
    for (int i = 0; i < t->par.model->params.n; i++)
        x->out->elements += (double)t->par.model->params.item[i].own.count;
    return LS_OK;
}

typedef struct job {
    const ls_train_config *c;
    listener *x;
    int threads;
} job;

static ls_status measure_rank(ls_world *w, void *arg)
{
    const job *j = arg;
    ls_trainer *t;
    (void)ls_team_resize(j->threads);
    j->x->look = time_look(j->x);
    LS_TRY(ls_trainer_create_in(j->c, w, NULL, &t));
    const ls_status st = time_steps(t, j->x);
    ls_trainer_destroy(t);
    return st;
}

/* --- over the steps --------------------------------------------------------------------------------------------- */

static double median(const double *v, int n)
{
    double sorted[MOST_BARE];
    memcpy(sorted, v, (size_t)n * sizeof *v);
    return ls_median(sorted, (size_t)n);
}

/* Several threads of a rank wait for each other by computing, so the clock times them: its median, since other
 * processes lengthen it. Of processor time it is the trimmed mean; steps that no one listens to, where there are any,
 * say how long all operations take together (undo_listening). */
static ls_measured_time takes_of(const sample *s, int n, int threads, double crowd)
{
    double wall[MOST_STEPS] = { 0 }, cpu[MOST_STEPS] = { 0 };
    for (int i = 0; i < n; i++) wall[i] = s[i].wall_s, cpu[i] = s[i].cpu_s;
    const double w = median(wall, n), busy = ls_trimmed_mean(cpu, (size_t)n);
    double asleep = wall[0] - cpu[0]; /* in each step: what other processes take varies */
    for (int i = 1; i < n; i++) asleep = fmin(asleep, wall[i] - cpu[i]);
    /* where ranks share a core it is others', too: such a rank still has its part of the core */
    if (busy < ASLEEP / crowd * (busy + asleep)) return (ls_measured_time){ busy, asleep };
    return (ls_measured_time){ threads > 1 ? w : busy, 0 };
}

/* The median: other work makes some steps longer, processor time, too, where two CPUs share a core. */
static double typical(const sample *of, int n, bool clock)
{
    double v[MOST_BARE] = { 0 };
    for (int i = 0; i < n; i++) v[i] = clock ? of[i].wall_s : of[i].cpu_s;
    return median(v, n);
}

/* Operations are slower while they are listened to, beyond what looks at the clocks take: a system call leaves a core's
 * predictions and caches as it likes. A step that no one listened to says what all of them take together, be it more
 * or less: of both it is the one that a run has. */
static void undo_listening(listener *x)
{
    ls_measured *m = x->out;
    const bool clock = m->threads > 1;
    if (x->bares < FEW_STEPS) return;
    double own = m->update_s + m->data_s, ops = m->rest_s;
    for (int i = 0; i < m->n; i++) {
        ops += m->row[i].takes.busy_s;
        if (clock) own += m->row[i].takes.asleep_s;
    }
    const double bare = typical(x->bare_of, x->bares, clock);
    const double part = ops > 0 && bare > own ? (bare - own) / ops : 1;
    for (int i = 0; i < m->n; i++) m->row[i].takes.busy_s *= part;
    m->rest_s *= part;
}

static void sum_up(listener *x)
{
    ls_measured *m = x->out;
    double rest[MOST_STEPS];
    for (int i = 0; i < m->n; i++)
        m->row[i].takes = takes_of(x->of + (size_t)i * MOST_STEPS, m->steps, m->threads, x->crowd);
    for (int s = 0; s < m->steps; s++) {
        const bool clock = m->threads > 1;
        rest[s] = clock ? x->step_of[s].wall_s : x->step_of[s].cpu_s;
        for (int i = 0; i < m->n; i++) {
            const sample *of = &x->of[(size_t)i * MOST_STEPS + (size_t)s];
            rest[s] -= clock ? of->wall_s : of->cpu_s;
        }
    }
    /* Data and the update are timed by the clock, which other processes may lengthen: at most what there is. */
    const double all = fmax(0, median(rest, m->steps));
    m->update_s = fmin(median(x->update_s, m->steps), all);
    m->data_s = fmin(median(x->data_s, m->steps), all - m->update_s);
    m->rest_s = all - m->update_s - m->data_s;
    undo_listening(x);
}

ls_status ls_measure(const ls_train_config *c, int ranks, int here, double long_s, ls_measured *out)
{
    const uint64_t begin = ls_env_get()->mono_ns();
    ls_train_config one;
    ls_plan p;
    *out = (ls_measured){ .threads = ls_team_planned(here) };
    LS_TRY(ls_train_plan(c, ranks, &p));
    ls_alone_config(c, &p, &one);
    out->micro_batches = (int)(one.train.global_batch / one.train.micro_batch);
    out->learning_rate = one.optim.lr;
    listener *x = calloc(1, sizeof *x);
    if (!x) return ls_fail(LS_NO_MEMORY, "a measurement");
    x->out = out;
    x->long_ns = (uint64_t)(1e9 * long_s);
    x->run_steps = c->train.steps;
    x->crowd = 1;
    const int level = ls_context_get()->log_level;
    ls_context_get()->log_level = LS_LOG_WARN; /* what a run says of itself is said once */
    job j = { &one, x, out->threads };
    ls_status st = ls_alone_run(&one, 1, measure_rank, &j);
    ls_context_get()->log_level = level;
    if (st == LS_OK) sum_up(x);
    else st = ls_while(st, "timing the model on one rank");
    free(x->of);
    free(x);
    out->seconds = 1e-9 * (double)(ls_env_get()->mono_ns() - begin);
    return st;
}

/* --- mirrors -------------------------------------------------------------------------------------------------- */

/* What a mirror in a process of its own has measured. */
typedef struct told {
    ls_measured m; /* without `row` */
    ls_measured_row row[MOST_ROWS];
} told;

/* The ranks of a layout that are timed. */
typedef struct mirrors {
    const ls_train_config *c;
    int ranks, n, at_once;
    double cores;
    const ls_plan *plan;
    int rank[MOST_MIRRORS];
    listener *x;   /* owned: [n] */
    ls_measured *m; /* owned: [n] */
    const int *node; /* [ranks] */
    const float *loads; /* of experts (expert_loads.h); NULL: those of the mirror's routers */
    int first;     /* of those that are timed now */
    told *told;    /* [n], shared: mirrors are processes; NULL: threads */
} mirrors;

static ls_status tell(const ls_measured *m, told *to)
{
    const size_t nbytes = offsetof(told, row) + (size_t)m->n * sizeof *m->row;
    if (m->n > MOST_ROWS)
        return ls_fail(LS_UNSUPPORTED, "%d operations per step: at most %d are timed", m->n, MOST_ROWS);
    LS_TRY(ls_local_use(to, nbytes));
    to->m = *m;
    memcpy(to->row, m->row, (size_t)m->n * sizeof *m->row);
    return LS_OK;
}

static ls_status hear(const told *t, ls_measured *out)
{
    const size_t nbytes = (size_t)t->m.n * sizeof *t->row;
    *out = t->m;
    out->row = malloc(nbytes + 1);
    if (!out->row) return ls_fail(LS_NO_MEMORY, "the times of %d operations", t->m.n);
    memcpy(out->row, t->row, nbytes);
    return LS_OK;
}

/* Ranks that share cores use the cores of ranks that wait, so each gets the mean of those that divide the experts.
 * Ranks with a core each wait for the busiest of them. */
static ls_status give_loads(const mirrors *all, ls_trainer *t, const ls_world *w, float **owned)
{
    const ls_lm_config *lm = &t->par.model->lm;
    ls_plan p;
    int rank, ranks;
    t->par.model->lm.expert_loads = all->loads;
    if (!all->loads || all->at_once > 1) return LS_OK;
    LS_TRY(ls_train_plan(all->c, all->ranks, &p));
    ls_mesh_place(p.size, p.order, ls_world_rank(w), LS_ALONG(LS_AXIS_EP), &rank, &ranks);
    if (ranks == 1) return LS_OK;
    *owned = malloc((size_t)(lm->n_layer * lm->n_experts) * sizeof **owned);
    if (!*owned) return ls_fail(LS_NO_MEMORY, "the loads of %lld experts", (long long)lm->n_experts);
    ls_expert_loads_busiest(all->loads, lm->n_layer, lm->n_experts, ranks, rank, *owned);
    t->par.model->lm.expert_loads = *owned;
    t->par.model->lm.expert_loads_alike = true;
    return LS_OK;
}

/* Ranks of a ring that are all on one core have their turns in the order of the ring: in its turn, each finds what
 * those before it have sent, and waits for a third of its messages; for more of them where ranks of other stages have
 * turns in between. Others wait for all (counted in runs: docs/planner.md). */
double ls_ring_waits(const ls_plan *p, int rank, int here, double cores)
{
    int place, ring;
    ls_mesh_place(p->size, p->order, rank, LS_ALONG(LS_AXIS_CP), &place, &ring);
    const int next = ls_mesh_at(p->size, p->order, rank, LS_ALONG(LS_AXIS_CP), (place + 1) % ring);
    if (ring < 4 || ls_local_core(next % here, here, cores) != ls_local_core(rank % here, here, cores)) return 1;
    return p->size[LS_AXIS_PP] > 1 ? .75 : 1 / 3.;
}

static ls_status mirror_rank(ls_world *threads, void *arg)
{
    const mirrors *all = arg;
    const int i = all->first + ls_world_rank(threads);
    listener *x = &all->x[i];
    const ls_memory_plan none = { 0 };
    const ls_world_opts o = ls_train_world_opts(all->c, &none);
    const bool shared = x->crowd > 1;
    const bool bound = shared && ls_local_is_bound(all->n, all->cores);
    const double waits = bound ? ls_ring_waits(all->plan, all->rank[i], all->n, all->cores) : 0;
    const ls_mirror_opts how = { .yields = shared, .message_waits = waits };
    ls_trainer *t = NULL;
    ls_world *w;
    (void)ls_team_resize(all->m[i].threads);
    if (shared) ls_local_place(i, all->n, all->cores);
    LS_TRY(ls_world_mirror(all->rank[i], all->ranks, all->node, &o, &how, &w));
    x->w = w;
    x->beside = ls_world_size(threads) > 1 ? ls_world_group(threads) : NULL;
    x->look = time_look(x);
    ls_status st = ls_trainer_create_in(all->c, w, NULL, &t);
    float *loads = NULL;
    if (st == LS_OK) st = give_loads(all, t, w, &loads);
    if (st == LS_OK) st = ls_barrier(ls_world_group(threads)); /* then all of them compute */
    if (st == LS_OK) st = time_steps(t, x);
    ls_trainer_destroy(t);
    free(loads);
    x->w = NULL;
    x->beside = NULL;
    ls_world_leave(w);
    if (st == LS_OK) sum_up(x);
    if (st == LS_OK && all->told) st = tell(&all->m[i], &all->told[i]);
    return st;
}

/* So many ranks, as many of each stage as of the others. */
static void take_ranks(mirrors *all, const ls_plan *p)
{
    int n = 0, taken[MOST_MIRRORS] = { 0 };
    const int stages = p->size[LS_AXIS_PP];
    for (int r = 0; r < all->ranks && n < all->n; r++) {
        int stage, of;
        ls_mesh_place(p->size, p->order, r, LS_ALONG(LS_AXIS_PP), &stage, &of);
        if (taken[stage] == all->n / stages + (stage < all->n % stages)) continue;
        taken[stage]++;
        all->rank[n++] = r;
    }
    all->n = n;
}

/* Ranks that share cores are timed together, as they run: each takes its turn, and finds in the caches what the others
 * left. Else one of each stage, one after another. */
static ls_status choose(mirrors *all, const ls_plan *p, int here, bool crowded)
{
    const int stages = p->size[LS_AXIS_PP];
    all->n = !crowded ? stages : here < MOST_MIRRORS ? here : MOST_MIRRORS;
    all->at_once = crowded ? all->n : 1;
    if (all->n < stages || stages > MOST_MIRRORS || (crowded && here > MOST_MIRRORS))
        return ls_fail(LS_UNSUPPORTED, "%d ranks on this machine in %d stages: at most %d are timed together, at least one of "
                       "each stage", here, stages, MOST_MIRRORS);
    take_ranks(all, p);
    all->x = calloc((size_t)all->n, sizeof *all->x);
    all->m = calloc((size_t)all->n, sizeof *all->m);
    return all->x && all->m ? LS_OK : ls_fail(LS_NO_MEMORY, "the times of %d ranks", all->n);
}

/* A stage has the operations of all of its ranks that were timed: ls_measured_op takes the mean. */
static ls_status join_stage(ls_measured *to, const ls_measured *m, int had)
{
    ls_measured_row *row = realloc(to->row, (size_t)(to->n + m->n + 1) * sizeof *row);
    if (!row) return ls_fail(LS_NO_MEMORY, "the times of %d operations", to->n + m->n);
    to->row = row;
    memcpy(row + to->n, m->row, (size_t)m->n * sizeof *row);
    to->n += m->n;
    to->steps = m->steps;
    to->micro_batches = m->micro_batches;
    to->threads = m->threads;
    to->elements += m->elements;
    to->update_s += m->update_s;
    to->data_s += (m->data_s - to->data_s) / (had + 1);
    to->rest_s += (m->rest_s - to->rest_s) / (had + 1);
    return LS_OK;
}

static ls_status join_all(const mirrors *all, const ls_plan *p, ls_measured *out)
{
    int had[MOST_MIRRORS] = { 0 };
    for (int i = 0; i < all->n; i++) {
        int stage, stages;
        ls_mesh_place(p->size, p->order, all->rank[i], LS_ALONG(LS_AXIS_PP), &stage, &stages);
        LS_TRY(join_stage(&out[stage], &all->m[i], had[stage]++));
    }
    for (int k = 0; k < p->size[LS_AXIS_PP]; k++)
        if (!had[k]) return ls_fail(LS_UNSUPPORTED, "no rank of stage %d was timed", k);
    return LS_OK;
}

static ls_status run_threads(mirrors *all)
{
    const ls_world_opts o = { 0 };
    for (all->first = 0; all->first < all->n; all->first += all->at_once)
        LS_TRY(ls_world_threads(all->at_once, &o, mirror_rank, all));
    return LS_OK;
}

static ls_status run_processes(mirrors *all)
{
    const ls_world_opts o = { 0 };
    const size_t nbytes = (size_t)all->n * sizeof(told);
    void *shared;
    LS_TRY(ls_local_alloc(nbytes, 0, &shared));
    all->told = shared;
    ls_status st = ls_local_run(all->n, &o, mirror_rank, all, false);
    for (int i = 0; i < all->n && st == LS_OK; i++) st = hear(&all->told[i], &all->m[i]);
    all->told = NULL;
    ls_local_free(shared, nbytes);
    return st;
}

/* Mirrors that share cores are what the ranks of the run are. */
static ls_status run_mirrors(mirrors *all)
{
    const bool processes = all->at_once > 1 && !ls_train_as_threads(all->c);
    return processes ? run_processes(all) : run_threads(all);
}

static ls_status in_mirrors(const ls_train_config *c, const ls_plan *p, int ranks, int here, double cores, double crowd,
                            double long_s, int64_t run_steps, const float *loads, ls_measured *out)
{
    mirrors all = { .c = c, .ranks = ranks, .cores = cores, .plan = p, .loads = loads };
    int *node = malloc((size_t)ranks * sizeof *node);
    for (int r = 0; node && r < ranks; r++) node[r] = r / here;
    all.node = node;
    ls_status st = node ? choose(&all, p, here, crowd > 1) : ls_fail(LS_NO_MEMORY, "the nodes of %d ranks", ranks);
    for (int i = 0; st == LS_OK && i < all.n; i++) {
        all.m[i] = (ls_measured){ .threads = ls_team_planned(here), .micro_batches = p->micro_batches };
        all.x[i] = (listener){ .out = &all.m[i], .crowd = crowd, .run_steps = run_steps,
                               .long_ns = (uint64_t)(1e9 * long_s * all.at_once / all.n) };
    }
    if (st == LS_OK) st = run_mirrors(&all);
    if (st == LS_OK) st = join_all(&all, p, out);
    for (int i = 0; all.x && all.m && i < all.n; i++) {
        free(all.x[i].of);
        free(all.m[i].row);
    }
    free(all.x);
    free(all.m);
    free(node);
    return st;
}

/* Whether a mirror's gradients are those of some rank: of its own samples. Then it learns at the rate with which the
 * run begins, and what depends on values, as the work of each expert, becomes about the same. Where ranks divide a
 * model, gradients are wrong. */
static bool learns(const ls_train_config *c, const ls_plan *p)
{
    return p->size[LS_AXIS_PP] * p->size[LS_AXIS_EP] * p->size[LS_AXIS_CP] * p->size[LS_AXIS_TP] == 1 &&
           (p->size[LS_AXIS_DP] == 1 || (c->zero.stage == 0 && strcmp(c->ddp.hook, "none") == 0));
}

/* For mirrors that do not learn. A failure leaves no loads: tokens then go where an untrained router sends them. */
static void loads_of(const ls_train_config *c, const ls_plan *p, int copies, double long_s, ls_expert_loads *out)
{
    if (ls_expert_loads_find(c, p, copies, long_s, out) == LS_OK) return;
    ls_log(LS_LOG_INFO, "tokens go where an untrained router sends them: %s", ls_last_error());
    ls_expert_loads_free(out);
}

/* A mirror that shares cores gets the tokens of its own rank, and rows are the mean of all of them. */
static ls_status tell_uneven(const ls_expert_loads *loads, int ranks, ls_measured *out)
{
    if (!loads->part || ranks == 1) return LS_OK;
    out->uneven = malloc((size_t)loads->layers * (size_t)ranks * sizeof *out->uneven);
    if (!out->uneven) return ls_fail(LS_NO_MEMORY, "the loads of experts of %d ranks", ranks);
    out->layers = loads->layers;
    out->eps = ranks;
    ls_expert_loads_of_ranks(loads, ranks, out->uneven);
    return LS_OK;
}

ls_status ls_measure_stages(const ls_train_config *c, int ranks, int here, double cores, double long_s,
                            ls_measured *out)
{
    const uint64_t begin = ls_env_get()->mono_ns();
    const int level = ls_context_get()->log_level;
    const int threads = ls_team_planned(here);
    const double crowd = threads > 1 ? 1 : here / cores; /* several threads are timed by the clock, so alone */
    ls_train_config mine;
    ls_plan p;
    ls_alone_only_steps(c, &mine);
    LS_TRY(ls_train_plan(&mine, ranks, &p));
    const bool learning = learns(c, &p);
    if (learning) LS_TRY(ls_alone_learn(c, &p, &mine));
    for (int k = 0; k < p.size[LS_AXIS_PP]; k++) out[k] = (ls_measured){ 0 };
    ls_expert_loads loads = { 0 };
    if (!learning) loads_of(c, &p, crowd > 1 ? 1 : here, long_s / LOADS_PART, &loads);
    ls_context_get()->log_level = LS_LOG_WARN; /* what a run says of itself is said once */
    const double left_s = fmax(0, long_s - 1e-9 * (double)(ls_env_get()->mono_ns() - begin));
    ls_status st = in_mirrors(&mine, &p, ranks, here, cores, crowd > 1 ? crowd : 1, left_s, c->train.steps,
                              loads.part, out);
    if (st == LS_OK && crowd > 1 && here == ranks) st = tell_uneven(&loads, p.size[LS_AXIS_EP], out);
    ls_context_get()->log_level = level;
    for (int k = 0; k < p.size[LS_AXIS_PP]; k++) {
        out[k].learning_rate = mine.optim.lr;
        out[k].busiest = loads.busiest;
        out[k].routed_after = loads.steps;
    }
    ls_expert_loads_free(&loads);
    out->seconds = 1e-9 * (double)(ls_env_get()->mono_ns() - begin);
    return st < 0 ? ls_while(st, "timing the ranks of the layout") : LS_OK;
}

void ls_measured_free(ls_measured *m)
{
    free(m->row);
    free(m->uneven);
    *m = (ls_measured){ 0 };
}

/* --- answers --------------------------------------------------------------------------------------------- */

/* The name of a kind ends at its sizes. That of ranks that divide a sequence, cp_attention, ends as one rank's. */
static bool same_kind(const char *row, const char *name)
{
    const size_t n = strcspn(row, " "), k = strcspn(name, " ");
    return k >= n && strncmp(name + (k - n), row, n) == 0 && (k == n || name[k - n - 1] == '_');
}

/* Memory bounds it, and not arithmetic. */
static bool moves(double flops, double bytes) { return flops < bytes; }

/* How alike an operation is; 0: not at all. */
static int likeness(const ls_measured_row *r, const ls_op_event *e)
{
    if (r->phase != e->phase) return 0;
    const bool same_unit = strcmp(r->unit, unit_name(e)) == 0;
    if (strcmp(r->name, e->name) == 0) return same_unit ? 5 : 4;
    if (same_kind(r->name, e->name)) return same_unit ? 3 : 2;
    return moves(r->flops, r->bytes) == moves(e->flops, e->bytes);
}

/* Which part of the rows' operations it is. */
static double part_of(const ls_op_event *e, double calls, double flops, double bytes, bool known)
{
    const bool by_bytes = !known && moves(e->flops, e->bytes);
    if (!by_bytes && flops > 0 && e->flops > 0) return e->flops / flops;
    if (bytes > 0 && e->bytes > 0) return e->bytes / bytes;
    return known ? 1 / calls : 0;
}

/* Of all rows that are as alike as the one that is most alike. What one rank does not have and computes nothing is a
 * collective, whose time is that of its messages. */
ls_measured_time ls_measured_op(const ls_measured *m, const ls_op_event *e)
{
    int most = 0;
    double calls = 0, flops = 0, bytes = 0;
    ls_measured_time sum = { 0, 0 };
    for (int i = 0; i < m->n; i++) {
        const ls_measured_row *r = &m->row[i];
        const int like = likeness(r, e);
        if (like < most || like == 0) continue;
        if (like > most) {
            most = like;
            calls = flops = bytes = 0;
            sum = (ls_measured_time){ 0, 0 };
        }
        calls += (double)r->calls;
        flops += r->flops;
        bytes += r->bytes;
        sum.busy_s += r->takes.busy_s;
        sum.asleep_s += r->takes.asleep_s;
    }
    const bool known = most > 1;
    if (most == 0 || (!known && !(e->flops > 0))) return (ls_measured_time){ 0, 0 };
    /* A mirror with given loads has these very calls, whose experts have other numbers of rows than a dry step. */
    const bool same_calls = m->routed_after > 0 && most > 3;
    const double part = same_calls ? 1 / calls : part_of(e, calls, flops, bytes, known);
    return (ls_measured_time){ sum.busy_s * part, known ? sum.asleep_s / calls : 0 };
}

double ls_measured_update(const ls_measured *m, double elements)
{
    return m->elements > 0 ? m->update_s * elements / m->elements : m->update_s;
}
