/* bench_p2p.c -- half of a ping-pong between two ranks, by size, from registered and from private memory.
 *
 * The loop is the usual one of MPI benchmarks: rank 0 sends and receives, rank 1 receives and sends; the time is
 * half of a round, the later rank's, the median of the trials. With touch each rank writes its source before a
 * round and reads its destination after it, untimed. The limit of a large message is one memcpy.
 *
 *   build/bench/bench_p2p [max_bytes [touch [trials]]]      (starts 2 ranks by itself)
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/env.h"
#include "lockstep/lockstep.h"

#define TRIAL_NS 40000000u
#define MAX_TRIALS 63
#define MAX_ROUNDS 20000

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

typedef struct bench {
    ls_group *g;
    int rank;
    bool touch;
    int trials;
    float *in, *out;
} bench;

static void write_source(float *p, size_t n, float v)
{
    for (size_t i = 0; i < n; i++) p[i] = v + (float)(i % 7);
    __asm__ volatile("" ::: "memory");
}

static void read_result(const float *p, size_t n)
{
    float sum = 0;
    for (size_t i = 0; i < n; i += 16) sum += p[i];
    __asm__ volatile("" ::"x"(sum) : "memory");
}

static ls_status ping_pong(const bench *b, size_t n)
{
    int peer = 1 - b->rank;
    if (b->rank == 0) {
        LS_TRY(ls_send(b->g, b->in, n, LS_F32, peer));
        return ls_recv(b->g, b->out, n, LS_F32, peer);
    }
    LS_TRY(ls_recv(b->g, b->out, n, LS_F32, peer));
    return ls_send(b->g, b->in, n, LS_F32, peer);
}

/* The later rank's value. */
static ls_status latest(const bench *b, double *v) { return ls_all_reduce(b->g, NULL, v, 1, LS_F64, LS_MAX); }

static ls_status trial(const bench *b, size_t n, int rounds, double *us)
{
    const ls_env *env = ls_env_get();
    double ns = 0;
    LS_TRY(ls_barrier(b->g));
    uint64_t t0 = env->mono_ns();
    for (int i = 0; i < rounds; i++) {
        if (b->touch) {
            write_source(b->in, n, (float)b->rank);
            t0 = env->mono_ns();
        }
        LS_TRY(ping_pong(b, n));
        if (!b->touch) continue;
        ns += (double)(env->mono_ns() - t0);
        read_result(b->out, n);
    }
    if (!b->touch) ns = (double)(env->mono_ns() - t0);
    *us = ns * 1e-3 / 2 / rounds;
    return latest(b, us);
}

static ls_status one_size(const bench *b, size_t nbytes, double *median, double *least)
{
    size_t n = nbytes / sizeof(float);
    double us[MAX_TRIALS], first;
    write_source(b->in, n, (float)b->rank);
    LS_TRY(ping_pong(b, n)); /* right before fast */
    for (size_t i = 0; i < n; i++)
        if (b->out[i] != (float)(1 - b->rank) + (float)(i % 7)) return ls_fail(LS_INTERNAL, "wrong data at %zu", i);
    LS_TRY(trial(b, n, 3, &first));
    int rounds = (int)(TRIAL_NS / (first * 2e3 + 1)) + 2;
    if (rounds > MAX_ROUNDS) rounds = MAX_ROUNDS;
    for (int t = 0; t < b->trials; t++) LS_TRY(trial(b, n, rounds, &us[t]));
    qsort(us, (size_t)b->trials, sizeof *us, by_value);
    *median = us[b->trials / 2];
    *least = us[0];
    return LS_OK;
}

static ls_status run(ls_world *w, size_t max, bool touch, int trials)
{
    bench b = { .g = ls_world_group(w), .rank = ls_world_rank(w), .touch = touch, .trials = trials };
    void *in, *out;
    LS_TRY(ls_alloc(w, max, LS_MEM_DATA, &in));
    LS_TRY(ls_alloc(w, max, LS_MEM_DATA, &out));
    float *pin = malloc(max), *pout = malloc(max);
    if (!pin || !pout) return ls_fail(LS_NO_MEMORY, "two buffers of %zu bytes", max);
    memset(pout, 0, max);
    if (b.rank == 0) {
        printf("# half a ping-pong, us; medians and least of %d trials%s\n", trials, touch ? ", data rewritten" : "");
        printf("%12s %14s %10s %10s %14s %10s %10s\n", "bytes", "registered us", "least", "GB/s", "private us", "least",
               "GB/s");
    }
    ls_status st = LS_OK;
    for (size_t n = 8; n <= max && st == LS_OK; n *= 4) {
        double r, p, least_r, least_p;
        b.in = in, b.out = out;
        st = one_size(&b, n, &r, &least_r);
        b.in = pin, b.out = pout;
        if (st == LS_OK) st = one_size(&b, n, &p, &least_p);
        if (st == LS_OK && b.rank == 0)
            printf("%12zu %14.3f %10.3f %10.2f %14.3f %10.3f %10.2f\n", n, r, least_r, (double)n * 1e-3 / r, p, least_p,
                   (double)n * 1e-3 / p);
    }
    free(pin);
    free(pout);
    return st;
}

int main(int argc, char **argv)
{
    size_t max = argc > 1 ? strtoull(argv[1], NULL, 0) : (size_t)32 << 20;
    bool touch = argc > 2 && atoi(argv[2]);
    int trials = argc > 3 ? atoi(argv[3]) : 5;
    if (trials < 1 || trials > MAX_TRIALS) trials = MAX_TRIALS;
    if (!getenv("RANK")) {
        ls_launch_opts o = { .argv = (const char *const *)argv, .nproc = 2 };
        ls_launch_result result;
        return ls_launch(&o, &result) == LS_OK ? result.exit_code : 1;
    }
    ls_world_opts o = { .arena_bytes = 2 * max + ((size_t)4 << 20), .transport = getenv("TRANSPORT") };
    ls_world *w;
    ls_status st = ls_world_join(&o, &w);
    if (st == LS_OK) st = run(w, max, touch, trials);
    if (st < 0) {
        fprintf(stderr, "%s\n", ls_last_error());
        if (w) (void)ls_world_abort(w, st);
    }
    ls_world_leave(w);
    return ls_status_exit_code(st);
}
