/* coll_measure.c -- a world of threads that calls what a step calls. */
#include "plan/coll_measure.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/env.h"
#include "base/median.h"
#include "coll/cost.h"
#include "lockstep/group.h"
#include "net/world.h"
#include "plan/step_price.h"
#include "train/trainer.h"

enum { NO_CALL, CALL };
#define BATCHES    7
#define MOST_BYTES ((size_t)16 << 20)  /* of a vector: a longer one takes in proportion */
#define ALL_BYTES  ((size_t)128 << 20) /* of all ranks' vectors */
#define OTHERS     ((size_t)4 << 20)   /* that a core reads between two calls: more than its own caches have */
#define SHORT      ((size_t)32 << 10)  /* calls of so many bytes follow one another within microseconds */
#define LINE       64
#define MOMENT_NS  20000000u /* longer than a slice of time, in which a core that is shared does nothing else */
#define MOMENTS    100
#define MASK_WORDS 128 /* 8,192 CPUs */
#define MOST_RANKS 64  /* threads of one process */

typedef struct job {
    const ls_step_lists *l;
    ls_measured_colls *out;
    double cores;
    uint64_t until_ns;
    size_t most; /* bytes of a vector */
    int timed;   /* collectives: written by rank 0 */
} job;

/* Of one rank. */
typedef struct caller {
    job *j;
    ls_world *w;
    ls_group *g;      /* of the collective at hand; NULL: the rank is in none of its groups */
    float *in, *out;  /* the world's: `most` bytes each */
    char *others;     /* owned: [OTHERS] */
    size_t at;        /* in `others` */
    uint64_t sum;     /* of what was read */
} caller;

/* --- which ones ------------------------------------------------------------------------------------------------- */

const ls_measured_coll *ls_colls_find(const ls_measured_colls *m, const ls_step_span *span, ls_coll coll, double bytes)
{
    for (int i = 0; m && i < m->n; i++) {
        const ls_measured_coll *x = &m->of[i];
        if (ls_step_same_span(&x->span, span) && x->coll == coll && x->bytes == bytes) return x;
    }
    return NULL;
}

static ls_status add(ls_measured_colls *m, const ls_step_item *i)
{
    if (ls_colls_find(m, &i->span, i->coll, i->bytes)) return LS_OK;
    ls_measured_coll *of = realloc(m->of, (size_t)(m->n + 1) * sizeof *of);
    if (!of) return ls_fail(LS_NO_MEMORY, "%d collectives", m->n + 1);
    m->of = of;
    of[m->n++] = (ls_measured_coll){ .span = i->span, .coll = i->coll, .bytes = i->bytes };
    return LS_OK;
}

static ls_status collect(const ls_step_lists *l, ls_measured_colls *m)
{
    for (int s = 0; s < l->stages; s++)
        for (int k = 0; k < l->of[s].n; k++) {
            const ls_step_item *i = &l->of[s].item[k];
            if (i->kind == LS_ITEM_COLL || i->kind == LS_ITEM_BEGIN) LS_TRY(add(m, i));
        }
    return LS_OK;
}

static ls_mesh_groups groups_of(const ls_step_lists *l, const ls_step_span *span)
{
    ls_mesh_groups g = { .ranks = l->ranks, .span = *span };
    memcpy(g.size, l->size, sizeof g.size);
    memcpy(g.order, l->order, sizeof g.order);
    return g;
}

/* --- one call ------------------------------------------------------------------------------------------------ */

static size_t measured_bytes(const job *j, const ls_measured_coll *x)
{
    return x->bytes < (double)j->most ? (size_t)x->bytes : j->most;
}

static ls_status call(const caller *k, const ls_measured_coll *x)
{
    const int n = ls_group_size(k->g), me = ls_group_rank(k->g);
    const size_t values = measured_bytes(k->j, x) / sizeof(float), count = values > (size_t)n ? values / (size_t)n *
        (size_t)n : (size_t)n;
    if (x->coll == LS_SENDRECV) {
        const ls_p2p op[] = { { .send = k->in, .count = count, .dtype = LS_F32, .peer = (me + 1) % n },
                              { .recv = k->out, .count = count, .dtype = LS_F32, .peer = (me + n - 1) % n } };
        return n > 1 ? ls_p2p_batch(k->g, op, 2) : LS_OK;
    }
    ls_work *work;
    const ls_coll_args a = { .coll = x->coll, .dtype = LS_F32, .in = x->coll == LS_ALL_TO_ALL ? k->in : NULL,
                             .out = k->out, .count = count, .op = LS_SUM };
    LS_TRY(ls_coll_start(k->g, &a, &work));
    return ls_work_wait(work);
}

/* What a rank does between two calls: it writes its vectors, and reads what else it has. */
static void compute(caller *k, const ls_measured_coll *x)
{
    const size_t n = measured_bytes(k->j, x);
    const double here = fmax(1, k->j->l->ranks / k->j->cores);
    const size_t reads = n <= SHORT ? SHORT : (size_t)((double)OTHERS / here);
    for (size_t i = 0; i < n / sizeof(float); i += LINE / sizeof(float)) k->in[i] = k->out[i] = 1;
    for (size_t i = 0; i < reads; i += LINE, k->at = (k->at + LINE) % OTHERS) k->sum += (unsigned char)k->others[k->at];
}

static int calls_of(size_t nbytes) { return nbytes <= SHORT ? 24 : nbytes <= (size_t)512 << 10 ? 6 : 2; }

/* Of rank 0: seconds of a round, of the whole world. */
static ls_status time_batch(caller *k, const ls_measured_coll *x, int way, double *s)
{
    const int calls = calls_of(measured_bytes(k->j, x));
    LS_TRY(ls_barrier(ls_world_group(k->w)));
    const uint64_t from = ls_env_get()->mono_ns();
    for (int i = 0; i < calls; i++) {
        compute(k, x);
        if (way == CALL && k->g) LS_TRY(call(k, x));
    }
    LS_TRY(ls_barrier(ls_world_group(k->w)));
    *s = 1e-9 * (double)(ls_env_get()->mono_ns() - from) / calls;
    return LS_OK;
}

/* Rank 0's clock decides for all. */
static ls_status is_time(const caller *k, int32_t *is)
{
    *is = ls_env_get()->mono_ns() < k->j->until_ns;
    return ls_broadcast(ls_world_group(k->w), is, 1, LS_I32, 0);
}

/* *in_time: false if there was no time for all batches, and nothing is known. */
static ls_status time_coll(caller *k, const ls_measured_coll *x, double *seconds, int32_t *in_time)
{
    double took[BATCHES], with, without;
    LS_TRY(time_batch(k, x, CALL, &with)); /* the first calls find nothing in caches */
    for (int i = 0; i < BATCHES; i++) { /* what disturbs the machine for longer is in both, and taken off */
        LS_TRY(is_time(k, in_time));
        if (!*in_time) return LS_OK;
        LS_TRY(time_batch(k, x, NO_CALL, &without));
        LS_TRY(time_batch(k, x, CALL, &with));
        took[i] = with - without;
    }
    const double more = x->bytes / (double)measured_bytes(k->j, x);
    *seconds = fmax(0, ls_median(took, BATCHES)) * fmax(1, more);
    return LS_OK;
}

/* --- all of them ------------------------------------------------------------------------------------------------ */

/* Whether this thread's core does nothing else for a moment. */
static bool is_alone(void)
{
    const ls_env *env = ls_env_get();
    const uint64_t from = env->mono_ns(), cpu = env->thread_cpu_ns();
    while (env->mono_ns() - from < MOMENT_NS) continue;
    return (double)(env->thread_cpu_ns() - cpu) > 0.9 * MOMENT_NS;
}

/* The other processes of the job were busy until now (ls_predict_beside). */
static ls_status await_cores(const job *j, ls_world *w)
{
    int32_t alone = j->cores < j->l->ranks;
    for (int i = 0; i < MOMENTS && !alone; i++) {
        const int32_t mine = is_alone();
        LS_TRY(ls_all_reduce(ls_world_group(w), &mine, &alone, 1, LS_I32, LS_MIN));
    }
    return LS_OK;
}

/* On cores of its own, where there are as many. A launcher has bound this process to those of rank 0, and the other
 * ranks have those that follow. If it fails, being unbound is only slower. */
static void stay_apart(const job *j, int rank)
{
    const ls_env *env = ls_env_get();
    const int cores = (int)j->cores, each = cores / j->l->ranks;
    uint64_t mask[MASK_WORDS];
    if (each < 1) return;
    const int n = env->cpu_mask(mask, MASK_WORDS);
    if (n > 0 && n < cores) {
        int first = 0;
        while (!(mask[first / 64] >> first % 64 & 1u)) first++;
        for (int cpu = first; cpu < first + cores && cpu < 64 * MASK_WORDS; cpu++) mask[cpu / 64] |= 1ull << cpu % 64;
        (void)env->bind_cpus(mask, MASK_WORDS);
    }
    (void)ls_cores_stay_on(rank * each, each);
}

static ls_status split(caller *k, const ls_measured_coll *x)
{
    const ls_mesh_groups m = groups_of(k->j->l, &x->span);
    int first, place;
    const bool in = ls_mesh_groups_of(&m, ls_world_rank(k->w), &first, &place);
    return ls_group_split(ls_world_group(k->w), in ? first : -1, &k->g);
}

static ls_status time_all(caller *k)
{
    const ls_measured_colls *m = k->j->out;
    const bool first = ls_world_rank(k->w) == 0;
    for (int i = 0; i < m->n; i++) {
        int32_t in_time;
        double seconds = 0;
        LS_TRY(is_time(k, &in_time));
        if (!in_time) return LS_OK;
        LS_TRY(split(k, &m->of[i]));
        const ls_status st = time_coll(k, &m->of[i], &seconds, &in_time);
        ls_group_destroy(k->g);
        LS_TRY(st);
        if (!in_time) return LS_OK;
        if (!first) continue;
        m->of[i].seconds = seconds;
        k->j->timed = i + 1;
    }
    return LS_OK;
}

static ls_status time_rank(ls_world *w, void *arg)
{
    job *j = arg;
    void *in, *out;
    stay_apart(j, ls_world_rank(w));
    LS_TRY(ls_alloc(w, j->most, LS_MEM_COMM, &in));
    LS_TRY(ls_alloc(w, j->most, LS_MEM_COMM, &out));
    caller k = { .j = j, .w = w, .in = in, .out = out, .others = calloc(OTHERS, 1) };
    if (!k.others) return ls_fail(LS_NO_MEMORY, "%zu bytes to read between collectives", OTHERS);
    memset(in, 0, j->most);
    memset(out, 0, j->most);
    ls_status st = await_cores(j, w);
    if (st == LS_OK) st = time_all(&k);
    k.others[0] = (char)k.sum; /* so that it is read */
    free(k.others);
    return st;
}

static size_t longest(const ls_measured_colls *m, int ranks)
{
    const size_t most = ALL_BYTES / (size_t)ranks < MOST_BYTES ? ALL_BYTES / (size_t)ranks : MOST_BYTES;
    double n = 4096;
    for (int i = 0; i < m->n; i++) n = fmax(n, m->of[i].bytes);
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
    job j = { .l = l, .out = out, .cores = cores, .until_ns = from + (uint64_t)(1e9 * long_s),
              .most = longest(out, l->ranks) };
    ls_world_opts o = ls_train_world_opts(c, &none);
    o.progress = LS_PROGRESS_INLINE;
    o.arena_bytes = 4 * j.most + ((size_t)4 << 20); /* an algorithm that was asked for may copy both vectors */
    const ls_status st = ls_world_threads(l->ranks, &o, time_rank, &j);
    out->n = j.timed;
    out->seconds = 1e-9 * (double)(ls_env_get()->mono_ns() - from);
    return st == LS_OK ? LS_OK : ls_while(st, "timing the collectives of %d ranks", l->ranks);
}

void ls_colls_free(ls_measured_colls *m)
{
    free(m->of);
    *m = (ls_measured_colls){ 0 };
}
