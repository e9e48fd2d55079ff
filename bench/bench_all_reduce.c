/* bench_all_reduce.c -- how far all_reduce is from what a hand can write.
 *
 * The yardstick is one pass in place: a flag wait, each rank averages its half of both
 * vectors and stores it into both, a flag wait. Below it stands memcpy of the vector,
 * which nothing that moves it can beat. All three are measured in turns in the same
 * run, because the machine's speed drifts; medians over the turns.
 *
 *   build/bench/bench_all_reduce [max_bytes]      (starts 2 ranks by itself)
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/env.h"
#include "lockstep/lockstep.h"
#include "net/world.h"

#define TURNS 41
#define BATCH_NS 400000u /* of one turn of one contestant */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *v) { return qsort(v, TURNS, sizeof *v, by_value), v[TURNS / 2]; }

/* --- the yardstick ------------------------------------------------------------------- */

typedef struct flags {
    _Alignas(64) _Atomic uint32_t here;
    _Alignas(64) _Atomic uint32_t done;
} flags;

typedef struct yardstick {
    flags *mine, *peer;
    float *x, *y; /* own and peer's vector */
    int rank;
    uint32_t turn;
} yardstick;

LS_KERNEL static void average(float *a, float *b, size_t n)
{
#pragma GCC ivdep
    for (size_t i = 0; i < n; i++) {
        float v = a[i] * 0.5f + b[i] * 0.5f;
        a[i] = v;
        b[i] = v;
    }
}

static void meet(_Atomic uint32_t *mine, _Atomic uint32_t *peer, uint32_t turn)
{
    atomic_store_explicit(mine, turn, memory_order_release);
    while ((int32_t)(atomic_load_explicit(peer, memory_order_acquire) - turn) < 0) ls_cpu_relax();
}

static void hand_written(yardstick *h, size_t n)
{
    size_t half = (n / 2 + 15) / 16 * 16, first = h->rank ? half : 0, count = h->rank ? n - half : half;
    meet(&h->mine->here, &h->peer->here, ++h->turn);
    if (h->rank == 0) average(h->x + first, h->y + first, count);
    else average(h->y + first, h->x + first, count);
    meet(&h->mine->done, &h->peer->done, h->turn);
}

/* --- turns ------------------------------------------------------------------------------ */

static ls_status one_size(ls_world *w, yardstick *h, float *copy, size_t nbytes)
{
    const ls_env *env = ls_env_get();
    ls_group *g = ls_world_group(w);
    size_t n = nbytes / sizeof(float), batch = 1 + BATCH_NS / (300 + nbytes / 8);
    double hand[TURNS], ours[TURNS], copied[TURNS], ratio[TURNS];
    for (size_t i = 0; i < n; i++) h->x[i] = (float)(h->rank + 1);
    LS_TRY(ls_barrier(g));
    LS_TRY(ls_all_reduce(g, NULL, h->x, n, LS_F32, LS_AVG)); /* right before fast */
    for (size_t i = 0; i < n; i++)
        if (h->x[i] != 1.5f) return ls_fail(LS_INTERNAL, "x[%zu] is %g, expected 1.5", i, (double)h->x[i]);
    for (int t = 0; t < TURNS; t++) {
        LS_TRY(ls_barrier(g));
        hand_written(h, n); /* what the contestant before left in the caches is not its fault */
        uint64_t t0 = env->mono_ns();
        for (size_t k = 0; k < batch; k++) hand_written(h, n);
        uint64_t t1 = env->mono_ns();
        LS_TRY(ls_barrier(g));
        LS_TRY(ls_all_reduce(g, NULL, h->x, n, LS_F32, LS_AVG));
        uint64_t t2 = env->mono_ns();
        for (size_t k = 0; k < batch; k++) LS_TRY(ls_all_reduce(g, NULL, h->x, n, LS_F32, LS_AVG));
        uint64_t t3 = env->mono_ns();
        for (size_t k = 0; k < batch; k++) {
            memcpy(copy, h->x, nbytes);
            __asm__ volatile("" ::: "memory");
        }
        uint64_t t4 = env->mono_ns();
        hand[t] = (double)(t1 - t0) / (double)batch;
        ours[t] = (double)(t3 - t2) / (double)batch;
        copied[t] = (double)(t4 - t3) / (double)batch;
        ratio[t] = ours[t] / hand[t];
    }
    double a = median(hand), b = median(ours), c = median(copied), r = median(ratio);
    if (h->rank == 0)
        printf("%12zu %14.3f %14.3f %14.3f %10.3f %+12.3f\n", nbytes, a * 1e-3, b * 1e-3, c * 1e-3, r, (b - a) * 1e-3);
    return LS_OK;
}

static ls_status run(ls_world *w, size_t max)
{
    void *x, *f, *copy;
    LS_TRY(ls_alloc(w, sizeof(flags), LS_MEM_COMM, &f));
    LS_TRY(ls_alloc(w, max, LS_MEM_DATA, &x));
    LS_TRY(ls_alloc(w, max, LS_MEM_DATA, &copy));
    int peer = 1 - ls_world_rank(w);
    uint64_t mine[2] = { (uint64_t)((char *)f - w->peer_base[w->rank]), (uint64_t)((char *)x - w->peer_base[w->rank]) },
             all[4];
    LS_TRY(ls_world_exchange(w, "yardstick", mine, sizeof mine, all));
    yardstick h = { .mine = f, .x = x, .rank = ls_world_rank(w),
                    .peer = (flags *)(void *)(w->peer_base[peer] + all[2 * peer]),
                    .y = (float *)(void *)(w->peer_base[peer] + all[2 * peer + 1]) };
    if (h.rank == 0) {
        printf("# all_reduce, 2 ranks, f32 average in place, registered memory; medians of %d turns\n", TURNS);
        printf("%12s %14s %14s %14s %10s %12s\n", "bytes", "by hand us", "lockstep us", "memcpy us", "ratio",
               "difference");
    }
    for (size_t n = 64; n <= max; n *= 4) LS_TRY(one_size(w, &h, copy, n));
    return LS_OK;
}

int main(int argc, char **argv)
{
    size_t max = argc > 1 ? strtoull(argv[1], NULL, 0) : (size_t)16 << 20;
    if (!getenv("RANK")) {
        ls_launch_opts o = { .argv = (const char *const *)argv, .nproc = 2 };
        ls_launch_result result;
        return ls_launch(&o, &result) == LS_OK ? result.exit_code : 1;
    }
    ls_world_opts o = { .algo = getenv("ALGO"), .arena_bytes = 2 * max + ((size_t)4 << 20) };
    ls_world *w;
    ls_status st = ls_world_join(&o, &w);
    if (st == LS_OK) st = run(w, max);
    if (st < 0) {
        fprintf(stderr, "%s\n", ls_last_error());
        if (w) (void)ls_world_abort(w, st);
    }
    ls_world_leave(w);
    return ls_status_exit_code(st);
}
