/* coll_measure.c -- a world of ranks that calls what a step calls. */
#include "plan/coll_measure.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/env.h"
#include "base/median.h"
#include "coll/cost.h"
#include "group/local_ranks.h"
#include "lockstep/group.h"
#include "plan/call_gaps.h"
#include "plan/step_price.h"
#include "train/trainer.h"

enum { NO_CALL, CALL };
#define LEAST_PASSES 8
#define MOST_PASSES  48
#define ENOUGH_NS    1000000000u /* of at least LEAST_PASSES */
#define MOST_BYTES ((size_t)16 << 20)  /* of a vector: a longer one takes in proportion */
#define ALL_BYTES  ((size_t)128 << 20) /* of all ranks' vectors */
#define OTHERS     ((size_t)4 << 20)   /* that a core reads between two calls: more than its own caches have */
#define SHORT      ((size_t)32 << 10)  /* calls of so many bytes follow one another within microseconds */
#define NEAR       ((size_t)16 << 10) /* that a rank computes with: read again and again */
#define COUNTED    4 /* how often operations count a line as an operand that is near; with it calls of 16 ranks on two cores
                      * take as long here as in runs (docs/planner.md) */
#define LINE       64
#define MOST_GAP   1e-4 /* seconds between two calls */
#define MOST_RANKS 64  /* of one process */

/* What rank 0 says; ranks share it. */
typedef struct told {
    double poll;
    int timed; /* collectives, */
    double seconds[]; /* and of each */
} told;

/* Between two calls, on average. */
typedef struct gap {
    double s;      /* that a rank computes here: as long as in the step, but at most MOST_GAP, */
    size_t nbytes; /* and touches */
} gap;

typedef struct job {
    const ls_step_lists *l;
    const ls_measured_colls *of;
    double cores;
    uint64_t until_ns, enough_ns;
    size_t most; /* bytes of a vector */
    double mean_gap_s; /* that a rank of the run computes between any two calls or messages */
    gap in_ring, between_others; /* between messages of a ring, and between other calls */
    told *told;
} job;

/* Of one rank. */
typedef struct caller {
    job *j;
    ls_world *w;
    ls_group *g;      /* of the collective at hand; NULL: the rank is in none of its groups */
    float *in, *out;  /* the world's: `most` bytes each */
    char *others;     /* owned, as all below: [OTHERS] */
    ls_group **group; /* of each collective; the world's */
    double *took;     /* [collectives][MOST_PASSES] */
    int *timed;       /* of each collective */
    ls_matrix_span *span; /* of the call at hand, */
    size_t *counts;   /* [ranks], and parts of it */
    size_t at;        /* in `others` */
    uint64_t sum;     /* of what was read */
    double look_s;    /* of a look at the clock */
    double poll;      /* ls_measured_colls.poll */
    int passes, ring_passes; /* of each gap */
} caller;

/* --- which ones ------------------------------------------------------------------------------------------------- */

const ls_measured_coll *ls_colls_find(const ls_measured_colls *m, const ls_step_call *call)
{
    for (int i = 0; m && i < m->n; i++)
        if (ls_step_same_call(&m->of[i].call, call)) return &m->of[i];
    return NULL;
}

static ls_status add(ls_measured_colls *m, ls_step_call call)
{
    if (ls_colls_find(m, &call)) return LS_OK;
    ls_measured_coll *of = realloc(m->of, (size_t)(m->n + 1) * sizeof *of);
    if (!of) return ls_fail(LS_NO_MEMORY, "%d collectives", m->n + 1);
    m->of = of;
    of[m->n++] = (ls_measured_coll){ .call = call };
    return LS_OK;
}

static ls_status collect(const ls_step_lists *l, ls_measured_colls *m)
{
    for (int s = 0; s < l->stages; s++)
        for (int k = 0; k < l->of[s].n; k++) {
            const ls_step_item *i = &l->of[s].item[k];
            const ls_step_call message = { .span = LS_BETWEEN_STAGES, .coll = LS_SENDRECV, .bytes = i->bytes };
            if (i->kind == LS_ITEM_COLL || i->kind == LS_ITEM_BEGIN) LS_TRY(add(m, ls_step_call_of(i)));
            if (i->kind == LS_ITEM_SEND && m->part < 1) LS_TRY(add(m, message));
        }
    return LS_OK;
}

static gap gap_of(const job *j, double seconds, double nbytes)
{
    return (gap){ .s = fmin(seconds, MOST_GAP),
                  .nbytes = (size_t)fmin(nbytes, (double)OTHERS / fmax(1, j->l->ranks / j->cores)) };
}

/* Operations count all their operands, and most of these are results of the operations before, or are read several
 * times. */
static void find_gaps(job *j)
{
    const ls_call_gaps g = ls_call_gaps_of(j->l);
    const double others = j->of->part < 1 ? g.others.nbytes / COUNTED : g.others.nbytes;
    j->mean_gap_s = g.all.seconds;
    j->between_others = gap_of(j, g.others.seconds, fmax(others, NEAR));
    j->in_ring = gap_of(j, g.ring.seconds, g.ring.nbytes);
}

static ls_mesh_groups groups_of(const ls_step_lists *l, const ls_step_span *span)
{
    ls_mesh_groups g = { .ranks = l->ranks, .span = *span };
    memcpy(g.size, l->size, sizeof g.size);
    memcpy(g.order, l->order, sizeof g.order);
    return g;
}

/* --- one call ------------------------------------------------------------------------------------------------ */

/* Vectors have room for two messages of a ring. */
static size_t measured_bytes(const job *j, const ls_step_call *x)
{
    const size_t most = ls_step_is_of_ring(x) ? j->most / 2 : j->most;
    return x->bytes < (double)most ? (size_t)x->bytes : most;
}

/* As many matrices as the step's vector has, alike, one after the other. */
static void lay_spans(caller *k, const ls_step_call *x, size_t values, ls_coll_args *to)
{
    const size_t n = (size_t)fmin(x->vector.spans, (double)values), most = values / n;
    const size_t rows = (size_t)fmin(fmax(1, x->vector.rows), (double)most), row = most / rows;
    for (size_t i = 0; i < n; i++) k->span[i] = (ls_matrix_span){ .first = i * rows * row, .rows = rows, .row = row };
    to->span = k->span;
    to->nspans = (int)n;
    to->count = n * rows * row;
}

static size_t values_of(const job *j, const ls_step_call *x)
{
    return (measured_bytes(j, x) + sizeof(float) - 1) / sizeof(float);
}

/* To the next rank, and one from the rank before. */
static void exchange(const caller *k, const ls_step_call *x, void *in, void *out, ls_p2p op[2])
{
    const int n = ls_group_size(k->g), me = ls_group_rank(k->g);
    const size_t values = values_of(k->j, x);
    op[0] = (ls_p2p){ .send = in, .count = values, .dtype = LS_F32, .peer = (me + 1) % n };
    op[1] = (ls_p2p){ .recv = out, .count = values, .dtype = LS_F32, .peer = (me + n - 1) % n };
}

/* Ranks have parts of the same length. */
static ls_status call(caller *k, const ls_step_call *x)
{
    const int n = ls_group_size(k->g);
    const size_t values = values_of(k->j, x);
    const size_t each = values > (size_t)n ? values / (size_t)n : 1;
    if (x->coll == LS_SENDRECV) {
        ls_p2p op[2];
        exchange(k, x, k->in, k->out, op);
        return n > 1 ? ls_p2p_batch(k->g, op, 2) : LS_OK;
    }
    ls_work *work;
    ls_coll_args a = { .coll = x->coll, .dtype = LS_F32, .in = x->vector.apart ? k->in : NULL, .out = k->out,
                       .count = each * (size_t)n, .op = LS_SUM };
    for (int r = 0; r < n; r++) k->counts[r] = each;
    if (x->vector.counts) a.counts = k->counts;
    if (x->vector.counts && x->coll == LS_ALL_TO_ALL) a.recv_counts = k->counts;
    if (x->vector.spans > 0 && values > 0) lay_spans(k, x, values, &a);
    LS_TRY(ls_coll_start(k->g, &a, &work));
    return ls_work_wait(work);
}

/* One of two that may be on their way: what came in is sent on in the next round. */
static ls_status begin_hop(const caller *k, const ls_step_call *x, int round, int which, ls_work **work)
{
    ls_p2p op[2];
    const size_t at = (size_t)which * values_of(k->j, x);
    exchange(k, x, (round % 2 ? k->out : k->in) + at, (round % 2 ? k->in : k->out) + at, op);
    LS_TRY(ls_p2p_start(k->g, &op[0], "hop", &work[0]));
    return ls_p2p_start(k->g, &op[1], "hop", &work[1]);
}

static void read_lines(caller *k, size_t nbytes)
{
    for (size_t i = 0; i < nbytes; i += LINE, k->at = (k->at + LINE) % OTHERS)
        k->sum += (unsigned char)k->others[k->at];
}

/* What its caches hold, again and again. */
static void read_near(caller *k, int passes)
{
    for (int p = 0; p < passes; p++)
        for (size_t i = 0; i < NEAR; i += LINE) k->sum += (unsigned char)k->others[i];
}

/* What a rank does between two calls: it reads what else it has, computes for as long as it does on average between two
 * such calls of the step (meanwhile others, who share its core, wait or have their turn), and at last writes its
 * vector. In a ring it sends on what came in. */
static void compute(caller *k, const ls_step_call *x)
{
    const size_t n = measured_bytes(k->j, x);
    float *vector = x->coll == LS_SENDRECV || x->vector.apart ? k->in : k->out;
    const bool ring = ls_step_is_of_ring(x);
    read_lines(k, ring ? k->j->in_ring.nbytes : k->j->between_others.nbytes);
    read_near(k, ring ? k->ring_passes : k->passes);
    if (ring) return;
    for (size_t i = 0; i < n / sizeof(float); i += LINE / sizeof(float)) vector[i] = 1;
}

/* Of a ring those of whole layers. */
static int calls_of(const ls_step_call *x, size_t nbytes, int members)
{
    const int n = nbytes <= SHORT ? 24 : nbytes <= (size_t)512 << 10 ? 6 : 2, each = LS_RING_MESSAGES(members);
    return ls_step_is_of_ring(x) ? (n + each - 1) / each * each : n;
}

/* From the moment at which the first rank begins to that at which the last one has ended: with the reads of clocks. */
typedef struct batch {
    double wall_s, busy_s; /* by the clock; what all ranks computed */
    int calls, looks;      /* of each rank: at its processor's clock, around what it computed */
} batch;

static void time_computing(caller *k, const ls_step_call *x, int times, batch *of)
{
    const ls_env *env = ls_env_get();
    const uint64_t cpu = env->thread_cpu_ns();
    for (int i = 0; i < times; i++) compute(k, x);
    of->busy_s += 1e-9 * (double)(env->thread_cpu_ns() - cpu);
    of->looks++;
}

int ls_ring_at_once(int ranks, int done)
{
    const int at = done % LS_RING_MESSAGES(ranks), pairs = 2 * (ranks - 2);
    if (at == LS_RING_MESSAGES(ranks) - 1) return 0;
    return at >= ranks && at < ranks + pairs ? 2 : 1;
}

/* Also after a failure. */
static ls_status wait_all(ls_work *const *work, int n)
{
    ls_status first = LS_OK;
    for (int i = 0; i < n; i++) {
        const ls_status st = ls_work_wait(work[i]);
        if (first == LS_OK) first = st;
    }
    return first;
}

/* Computes while messages of a ring are on their way. */
static ls_status time_ring(caller *k, const ls_step_call *x, int way, batch *of)
{
    const int ranks = k->g ? ls_group_size(k->g) : 2, n = ls_ring_at_once(ranks, of->calls), all = n > 0 ? n : 1;
    ls_work *work[4] = { NULL };
    ls_status st = LS_OK;
    for (int m = 0; m < n && way == CALL && st == LS_OK; m++) st = begin_hop(k, x, of->looks, m, &work[2 * m]);
    time_computing(k, x, all, of);
    if (n == 0 && way == CALL && st == LS_OK) st = begin_hop(k, x, of->looks, 0, work);
    const ls_status waited = wait_all(work, 4);
    of->calls += all;
    return st == LS_OK ? waited : st;
}

static ls_status time_next(caller *k, const ls_step_call *x, int way, batch *of)
{
    if (ls_step_is_of_ring(x)) return time_ring(k, x, k->g ? way : NO_CALL, of);
    time_computing(k, x, 1, of);
    of->calls++;
    return way == CALL && k->g ? call(k, x) : LS_OK;
}

static ls_status time_batch(caller *k, const ls_step_call *x, int way, batch *out)
{
    const ls_env *env = ls_env_get();
    ls_group *all = ls_world_group(k->w);
    const int calls = calls_of(x, measured_bytes(k->j, x), k->g ? ls_group_size(k->g) : 1);
    batch first = { 0 }, of = { 0 };
    LS_TRY(time_next(k, x, way, &first)); /* the first call finds nothing in caches */
    LS_TRY(ls_barrier(all));
    int64_t from = (int64_t)env->mono_ns();
    while (of.calls < calls) LS_TRY(time_next(k, x, way, &of));
    int64_t to = (int64_t)env->mono_ns();
    LS_TRY(ls_all_reduce(all, &from, &from, 1, LS_I64, LS_MIN));
    LS_TRY(ls_all_reduce(all, &to, &to, 1, LS_I64, LS_MAX));
    LS_TRY(ls_all_reduce(all, &of.busy_s, &of.busy_s, 1, LS_F64, LS_SUM));
    of.wall_s = 1e-9 * (double)(to - from);
    *out = of;
    return LS_OK;
}

/* What is left of a batch when computing is taken off. Where ranks share cores it is what they computed then: others
 * use their caches meanwhile, as in mirrors. Else it is a batch without calls: what disturbs the machine for longer is
 * in both. */
static ls_status time_call(caller *k, const ls_step_call *x, double *s)
{
    batch with, without;
    LS_TRY(time_batch(k, x, CALL, &with));
    if (k->j->of->part < 1) {
        const double busy = with.busy_s + with.looks * k->look_s * k->j->l->ranks;
        *s = (with.wall_s - busy / k->j->cores) / with.calls;
        return LS_OK;
    }
    LS_TRY(time_batch(k, x, NO_CALL, &without));
    *s = (with.wall_s - without.wall_s) / with.calls;
    return LS_OK;
}

/* How often a rank reads what is near in the time between two calls that the other reads leave. */
static int passes_in(caller *k, const gap *g)
{
    enum { PASSES = 50, ROUNDS = 5 };
    const ls_env *env = ls_env_get();
    double far[ROUNDS], near[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        const uint64_t from = env->thread_cpu_ns();
        read_lines(k, g->nbytes);
        const uint64_t read = env->thread_cpu_ns();
        read_near(k, PASSES);
        far[i] = 1e-9 * (double)(read - from) - k->look_s;
        near[i] = 1e-9 * (double)(env->thread_cpu_ns() - read) / PASSES;
    }
    const double left = g->s - fmax(0, ls_median(far, ROUNDS)), one = ls_median(near, ROUNDS);
    return k->j->of->part < 1 && left > 0 && one > 0 ? (int)(left / one) : 0;
}

static double time_look(void)
{
    enum { TIMES = 200, ROUNDS = 5 };
    const ls_env *env = ls_env_get();
    double look[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        const uint64_t from = env->thread_cpu_ns();
        for (int n = 0; n < TIMES; n++) (void)env->thread_cpu_ns();
        look[i] = 1e-9 * (double)(env->thread_cpu_ns() - from) / TIMES;
    }
    return ls_median(look, ROUNDS);
}

static void calibrate(caller *k)
{
    k->look_s = time_look();
    k->passes = passes_in(k, &k->j->between_others);
    k->ring_passes = passes_in(k, &k->j->in_ring);
}

/* --- all of them ------------------------------------------------------------------------------------------------ */

/* The groups of each collective; those of the same axes are the same. */
static ls_status split_all(caller *k)
{
    const ls_measured_colls *m = k->j->of;
    for (int i = 0; i < m->n; i++) {
        int first, place, had = 0;
        while (had < i && !ls_step_same_span(&m->of[had].call.span, &m->of[i].call.span)) had++;
        if (had < i) {
            k->group[i] = k->group[had];
            continue;
        }
        const ls_mesh_groups g = groups_of(k->j->l, &m->of[i].call.span);
        const bool in = ls_mesh_groups_of(&g, ls_world_rank(k->w), &first, &place);
        LS_TRY(ls_group_split(ls_world_group(k->w), in ? first : -1, &k->group[i]));
    }
    return LS_OK;
}

/* *more: false if there is no time for another batch, or there are enough. */
static ls_status is_time(const caller *k, int pass, int32_t *more)
{
    const job *j = k->j;
    const uint64_t now = ls_env_get()->mono_ns(); /* rank 0's clock decides for all */
    *more = now < j->until_ns && (pass < LEAST_PASSES || now < j->enough_ns);
    return ls_broadcast(ls_world_group(k->w), more, 1, LS_I32, 0);
}

/* All collectives once, and once again: what disturbs the machine for a while is in a part of the passes. */
static ls_status time_all(caller *k)
{
    const ls_measured_colls *m = k->j->of;
    for (int pass = 0; pass < MOST_PASSES; pass++) {
        for (int i = 0; i < m->n; i++) {
            int32_t more;
            LS_TRY(is_time(k, pass, &more));
            if (!more) return LS_OK;
            k->g = k->group[i];
            LS_TRY(time_call(k, &m->of[i].call, &k->took[i * MOST_PASSES + pass]));
            k->timed[i] = pass + 1;
        }
    }
    return LS_OK;
}

/* --- ranks of other stages ------------------------------------------------------------------------------------ */

static int count_calls(const ls_step_list *l, const ls_step_call *x)
{
    int calls = 0;
    for (int k = 0; k < l->n; k++) {
        if (l->item[k].kind != LS_ITEM_COLL && l->item[k].kind != LS_ITEM_BEGIN) continue;
        const ls_step_call one = ls_step_call_of(&l->item[k]);
        calls += ls_step_same_call(&one, x);
    }
    return calls;
}

/* What ranks of the first stage call most often among themselves; -1: nothing. */
static int most_called(const job *j)
{
    int most = -1, calls = 0;
    for (int i = 0; i < j->of->n; i++) {
        const ls_step_call *x = &j->of->of[i].call;
        const int n = x->span.axes & LS_ALONG(LS_AXIS_PP) ? 0 : count_calls(&j->l->of[0], x);
        if (n > calls) most = i, calls = n;
    }
    return most;
}

/* How long a batch of ranks of the first stage takes while the others wait for its end. They poll; or sleep for half as
 * long again as it took the last time (*s). */
static ls_status time_beside(caller *k, const ls_step_call *x, bool first, bool asleep, double *s)
{
    const ls_env *env = ls_env_get();
    ls_group *all = ls_world_group(k->w);
    int64_t from = INT64_MAX, to = 0;
    batch of = { 0 };
    LS_TRY(ls_barrier(all));
    if (first) {
        const int calls = calls_of(x, measured_bytes(k->j, x), k->g ? ls_group_size(k->g) : 1);
        from = (int64_t)env->mono_ns();
        while (of.calls < calls) LS_TRY(time_next(k, x, CALL, &of));
        to = (int64_t)env->mono_ns();
    } else if (asleep) {
        env->wait(NULL, 0, NULL, 0, env->mono_ns() + (uint64_t)(1.5e9 * *s));
    }
    LS_TRY(ls_all_reduce(all, &from, &from, 1, LS_I64, LS_MIN));
    LS_TRY(ls_all_reduce(all, &to, &to, 1, LS_I64, LS_MAX));
    *s = 1e-9 * (double)(to - from);
    return LS_OK;
}

/* Per rank that computes there are stages - 1 that wait. Calls of the run come less often than these if its ranks
 * compute for longer in between. */
static ls_status time_polls(caller *k)
{
    enum { ROUNDS = 9 };
    const job *j = k->j;
    const int i = most_called(j), others = j->l->stages - 1;
    double longer[ROUNDS], s = 0;
    int stage, of, rounds = 0;
    if (others < 1 || !(j->of->part < 1) || i < 0 || k->timed[i] == 0) return LS_OK;
    ls_mesh_place(j->l->size, j->l->order, ls_world_rank(k->w), LS_ALONG(LS_AXIS_PP), &stage, &of);
    k->g = k->group[i];
    LS_TRY(time_beside(k, &j->of->of[i].call, stage == 0, false, &s)); /* nothing is in the caches */
    for (int32_t more = 1; rounds < ROUNDS; rounds++) {
        LS_TRY(is_time(k, 0, &more));
        if (!more) break;
        LS_TRY(time_beside(k, &j->of->of[i].call, stage == 0, false, &s));
        longer[rounds] = s;
        LS_TRY(time_beside(k, &j->of->of[i].call, stage == 0, true, &s));
        longer[rounds] = s > 0 ? longer[rounds] / s - 1 : 0;
    }
    const gap *here = ls_step_is_of_ring(&j->of->of[i].call) ? &j->in_ring : &j->between_others;
    const double part = j->mean_gap_s > 0 ? here->s / j->mean_gap_s : 1;
    k->poll = fmax(0, ls_median(longer, (size_t)rounds)) / others * part;
    return LS_OK;
}

double ls_call_in_run(const ls_step_call *x, double part, double *took, size_t n)
{
    if (!(part < 1)) return ls_median(took, n);
    return ls_step_is_of_ring(x) ? ls_lower_quartile(took, n) : ls_undisturbed_mean(took, n);
}

static void tell(const caller *k)
{
    const ls_measured_colls *m = k->j->of;
    told *to = k->j->told;
    to->poll = k->poll;
    for (to->timed = 0; to->timed < m->n && k->timed[to->timed] > 0; to->timed++) {
        const ls_step_call *x = &m->of[to->timed].call;
        const double more = x->bytes / (double)measured_bytes(k->j, x);
        const double s = ls_call_in_run(x, m->part, &k->took[to->timed * MOST_PASSES], (size_t)k->timed[to->timed]);
        to->seconds[to->timed] = fmax(0, s) * fmax(1, more);
    }
}

static int most_spans(const ls_measured_colls *m)
{
    int most = 0;
    for (int i = 0; i < m->n; i++)
        if (m->of[i].call.vector.spans > most) most = m->of[i].call.vector.spans;
    return most;
}

static ls_status make_room(caller *k)
{
    const size_t n = (size_t)k->j->of->n;
    k->others = calloc(OTHERS, 1);
    k->group = calloc(n, sizeof(ls_group *));
    k->took = calloc(n * MOST_PASSES, sizeof(double));
    k->timed = calloc(n, sizeof(int));
    k->span = calloc((size_t)most_spans(k->j->of) + 1, sizeof *k->span);
    k->counts = calloc((size_t)k->j->l->ranks, sizeof *k->counts);
    return k->others && k->group && k->took && k->timed && k->span && k->counts ? LS_OK :
        ls_fail(LS_NO_MEMORY, "%zu bytes to read between %zu collectives", OTHERS, n);
}

static void free_room(caller *k)
{
    free(k->others);
    free(k->group);
    free(k->took);
    free(k->timed);
    free(k->span);
    free(k->counts);
}

static ls_status time_rank(ls_world *w, void *arg)
{
    job *j = arg;
    void *in, *out;
    ls_local_place(ls_world_rank(w), j->l->ranks, j->cores);
    LS_TRY(ls_alloc(w, j->most, LS_MEM_COMM, &in));
    LS_TRY(ls_alloc(w, j->most, LS_MEM_COMM, &out));
    caller k = { .j = j, .w = w, .in = in, .out = out };
    memset(in, 0, j->most);
    memset(out, 0, j->most);
    ls_status st = make_room(&k);
    if (st == LS_OK) {
        calibrate(&k);
        st = ls_local_await_cores(w, j->l->ranks, j->cores);
    }
    if (st == LS_OK) st = split_all(&k);
    if (st == LS_OK) st = time_all(&k);
    if (st == LS_OK) st = time_polls(&k);
    if (st == LS_OK && ls_world_rank(w) == 0) tell(&k);
    if (k.others) k.others[0] = (char)k.sum; /* so that it is read */
    free_room(&k);
    return st;
}

static size_t longest(const ls_measured_colls *m, int ranks)
{
    const size_t each = ALL_BYTES / (size_t)ranks / LINE * LINE, most = each < MOST_BYTES ? each : MOST_BYTES;
    double n = 4096;
    for (int i = 0; i < m->n; i++) {
        const ls_step_call *x = &m->of[i].call;
        n = fmax(n, ls_step_is_of_ring(x) ? 2 * x->bytes + LINE : x->bytes);
    }
    return n < (double)most ? ((size_t)n + LINE - 1) / LINE * LINE : most;
}

ls_status ls_colls_measure(const ls_train_config *c, const ls_step_lists *l, double cores, double long_s,
                           ls_measured_colls *out)
{
    const ls_memory_plan none = { 0 };
    const uint64_t from = ls_env_get()->mono_ns();
    *out = (ls_measured_colls){ .part = l->ranks > cores ? cores / l->ranks : 1 };
    if (ls_level_within(c->comm.transport) != LS_LEVEL_MEMORY || strcmp(c->comm.backend, "sched") != 0) return LS_OK;
    if (l->ranks < 2 || l->ranks > MOST_RANKS) return LS_OK;
    LS_TRY(collect(l, out));
    if (out->n == 0) return LS_OK;
    void *shared;
    const size_t nbytes = sizeof(told) + (size_t)out->n * sizeof(double);
    LS_TRY(ls_local_alloc(nbytes, nbytes, &shared));
    job j = { .l = l, .of = out, .told = shared, .cores = cores, .until_ns = from + (uint64_t)(1e9 * long_s),
              .enough_ns = from + ENOUGH_NS,
              .most = longest(out, l->ranks) };
    find_gaps(&j);
    ls_world_opts o = ls_train_world_opts(c, &none);
    o.progress = LS_PROGRESS_INLINE;
    o.arena_bytes = 4 * j.most + ((size_t)4 << 20); /* an algorithm that was asked for may copy both vectors */
    const ls_status st = ls_local_run(l->ranks, &o, time_rank, &j, ls_train_as_threads(c));
    out->n = j.told->timed;
    out->poll = j.told->poll;
    for (int i = 0; i < out->n; i++) out->of[i].seconds = j.told->seconds[i];
    ls_local_free(shared, nbytes);
    out->seconds = 1e-9 * (double)(ls_env_get()->mono_ns() - from);
    return st == LS_OK ? LS_OK : ls_while(st, "timing the collectives of %d ranks", l->ranks);
}

void ls_colls_free(ls_measured_colls *m)
{
    free(m->of);
    *m = (ls_measured_colls){ 0 };
}
