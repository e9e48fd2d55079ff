/* wait_cost.c -- three measurements: ranks that do nothing but wait for each other; a block that is read after others
 * were, and again: the difference is what the second time found near by; and a message that comes when its receiver
 * sleeps, and one that comes before. */
#include "plan/wait_cost.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/env.h"
#include "base/median.h"
#include "base/wait.h"
#include "group/local_ranks.h"
#include "lockstep/group.h"

/* --- caches ------------------------------------------------------------------------------------------------- */

#define SMALLEST ((size_t)64 << 10)
#define OTHERS   ((size_t)8 << 20) /* read in between: more than a core's own caches hold, less than all cores' */
#define ROUNDS   9

static size_t size_of(int i) { return SMALLEST << i; }

/* A word of each of n / 64 lines, which are a power of two, in an order that nothing fetches ahead. */
static uint64_t read_all(const char *p, size_t n)
{
    uint64_t sum = 0;
    const size_t lines = n / 64;
    for (size_t i = 0, at = 0; i < lines; i++, at = (at + 40503) & (lines - 1))
        sum += *(const uint64_t *)(const void *)(p + 64 * at);
    return sum;
}

static double time_read(const char *p, size_t n, uint64_t *sum)
{
    const uint64_t from = ls_env_get()->mono_ns();
    *sum += read_all(p, n);
    return 1e-9 * (double)(ls_env_get()->mono_ns() - from);
}

static ls_status measure_refill(ls_wait_cost *out)
{
    char *block = aligned_alloc(64, size_of(LS_WAIT_SIZES - 1)), *others = aligned_alloc(64, OTHERS);
    uint64_t sum = 0;
    if (!block || !others) {
        free(block);
        free(others);
        return ls_fail(LS_NO_MEMORY, "%zu bytes to measure caches with", size_of(LS_WAIT_SIZES - 1) + OTHERS);
    }
    memset(block, 1, size_of(LS_WAIT_SIZES - 1));
    memset(others, 1, OTHERS);
    for (int i = 0; i < LS_WAIT_SIZES; i++) {
        double lost[ROUNDS];
        for (int k = 0; k < ROUNDS; k++) {
            sum += read_all(others, OTHERS);
            const double far = time_read(block, size_of(i), &sum);
            lost[k] = fmax(0, far - time_read(block, size_of(i), &sum));
        }
        out->refill_s[i] = ls_median(lost, ROUNDS);
        if (i > 0) out->refill_s[i] = fmax(out->refill_s[i], out->refill_s[i - 1]);
    }
    block[0] = (char)sum; /* so that it is read */
    free(block);
    free(others);
    return LS_OK;
}

/* --- waiting ------------------------------------------------------------------------------------------------ */

/* Between two calls a rank computes for some ten microseconds: then not all are there at the same time. */
enum { CALLS = 64, BATCHES = 11, VALUES = 512, BLOCK = 32 << 10, PASSES = 16 };
enum { NO_CALL, COLL, MESSAGE, WAYS };

typedef struct oversubscribed {
    double cores;
    double s[WAYS][BATCHES]; /* rank 0's: of a call */
} oversubscribed;

static ls_status exchange(ls_group *g, float *to, float *from)
{
    const int n = ls_group_size(g), me = ls_group_rank(g);
    const ls_p2p op[] = { { .send = to, .count = VALUES, .dtype = LS_F32, .peer = (me + 1) % n },
                          { .recv = from, .count = VALUES, .dtype = LS_F32, .peer = (me + n - 1) % n } };
    return ls_p2p_batch(g, op, 2);
}

static ls_status time_calls(ls_group *g, int way, const char *block, double *s)
{
    float a[VALUES] = { 0 }, b[VALUES];
    uint64_t sum = 0;
    LS_TRY(ls_barrier(g));
    const uint64_t from = ls_env_get()->mono_ns();
    for (int i = 0; i < CALLS; i++) {
        for (int k = 0; k < PASSES; k++) sum += read_all(block, BLOCK);
        if (way == COLL) LS_TRY(ls_all_reduce(g, a, a, VALUES, LS_F32, LS_SUM));
        if (way == MESSAGE) LS_TRY(exchange(g, a, b));
    }
    a[0] = (float)sum; /* so that it is read */
    LS_TRY(ls_barrier(g));
    *s = 1e-9 * (double)(ls_env_get()->mono_ns() - from) / CALLS;
    return LS_OK;
}

static ls_status time_rank(ls_world *w, void *arg)
{
    oversubscribed *c = arg, other;
    oversubscribed *mine = ls_world_rank(w) == 0 ? c : &other;
    char *block = calloc(BLOCK, 1);
    ls_status st = block ? LS_OK : ls_fail(LS_NO_MEMORY, "%d bytes to compute with", BLOCK);
    ls_local_place(ls_world_rank(w), ls_world_size(w), c->cores);
    for (int i = 0; i < BATCHES; i++)
        for (int way = 0; way < WAYS && st == LS_OK; way++)
            st = time_calls(ls_world_group(w), way, block, &mine->s[way][i]);
    free(block);
    return st;
}

/* What all cores did in the meantime, divided among the ranks. The latency of the collective itself is in it, and
 * counts again in its price: a part of a microsecond. */
static ls_status measure_waits(const ls_wait_ranks *r, ls_wait_cost *out)
{
    const int most = r->ranks < LS_WAIT_RANKS ? r->ranks : LS_WAIT_RANKS;
    const bool even = most > r->cores && ls_local_is_bound(r->ranks, r->cores);
    const int n = even ? most - most % (int)r->cores : most;
    const ls_world_opts o = { .transport = "shm", .arena_bytes = (size_t)4 << 20 };
    void *shared;
    LS_TRY(ls_local_alloc(sizeof(oversubscribed), sizeof(oversubscribed), &shared));
    oversubscribed *c = shared;
    c->cores = r->cores;
    const ls_status st = ls_local_run(n, &o, time_rank, c, r->threads);
    if (st == LS_OK) {
        const double part = n > r->cores ? r->cores / n : 1, alone = ls_median(c->s[NO_CALL], BATCHES);
        out->coll_s = part * fmax(0, ls_median(c->s[COLL], BATCHES) - alone);
        out->message_s = part * fmax(0, ls_median(c->s[MESSAGE], BATCHES) - alone);
    }
    ls_local_free(shared, sizeof(oversubscribed));
    return st;
}

ls_status ls_wait_cost_measure(const ls_wait_ranks *r, ls_wait_cost *out)
{
    *out = (ls_wait_cost){ 0 };
    if (!r->together) LS_TRY(measure_refill(out));
    return measure_waits(r, out);
}

/* --- sleep -------------------------------------------------------------------------------------------------- */

enum { WAKES = 15 };
#define SHORT_NS (LS_WAIT_YIELD_NS / 10)
#define LONG_NS  (3 * (uint64_t)LS_WAIT_YIELD_NS) /* by then the receiver has seen that it waits for long */

typedef struct sleeper {
    int ranks; /* of the job */
    double cores;
    uint64_t sent_ns[2][WAKES], came_ns[2][WAKES];
} sleeper;

static void compute_for(uint64_t ns)
{
    const ls_env *env = ls_env_get();
    const uint64_t until = env->mono_ns() + ns;
    while (env->mono_ns() < until) continue;
}

static ls_status send_late(ls_world *w, void *arg)
{
    sleeper *s = arg;
    ls_group *g = ls_world_group(w);
    ls_local_place(ls_world_rank(w), 2, s->cores);
    LS_TRY(ls_local_await_cores(w, s->ranks, s->cores));
    for (int i = 0; i < WAKES; i++)
        for (int late = 0; late < 2; late++) {
            float x = 0;
            const bool sends = ls_world_rank(w) == 0;
            const ls_p2p op = { .send = sends ? &x : NULL, .recv = sends ? NULL : &x, .count = 1, .dtype = LS_F32,
                                .peer = sends };
            LS_TRY(ls_barrier(g));
            if (sends) compute_for(late ? LONG_NS : SHORT_NS);
            if (sends) s->sent_ns[late][i] = ls_env_get()->mono_ns();
            LS_TRY(ls_p2p_batch(g, &op, 1));
            if (!sends) s->came_ns[late][i] = ls_env_get()->mono_ns();
        }
    return LS_OK;
}

ls_status ls_wait_wake_measure(const ls_wait_ranks *r, double *out_s)
{
    const ls_world_opts o = { .transport = "shm" };
    void *shared;
    double took[2][WAKES];
    *out_s = 0;
    if (r->cores < 2) return LS_OK;
    LS_TRY(ls_local_alloc(sizeof(sleeper), sizeof(sleeper), &shared));
    sleeper *s = shared;
    s->ranks = r->ranks;
    s->cores = r->cores;
    const ls_status st = ls_local_run(2, &o, send_late, s, r->threads);
    for (int late = 0; st == LS_OK && late < 2; late++)
        for (int i = 0; i < WAKES; i++)
            took[late][i] = 1e-9 * ((double)s->came_ns[late][i] - (double)s->sent_ns[late][i]);
    if (st == LS_OK) *out_s = fmax(0, ls_median(took[1], WAKES) - ls_median(took[0], WAKES));
    ls_local_free(shared, sizeof(sleeper));
    return st;
}

double ls_wait_cost_refill_s(const ls_wait_cost *t, double bytes)
{
    double below = 0, s_below = 0;
    for (int i = 0; i < LS_WAIT_SIZES; i++) {
        const double size = (double)size_of(i);
        if (bytes <= size) return s_below + (t->refill_s[i] - s_below) * (bytes - below) / (size - below);
        below = size;
        s_below = t->refill_s[i];
    }
    return s_below;
}
