/* method.h -- how a peer's collectives are measured: the way `lockstep bench --touch 1 --csv -a 3` measures ours.
 *
 * Before each operation every rank rewrites what it puts in, and afterwards it reads its result, both untimed: data
 * then start in their owner's cache, as after a backward pass. A trial is as many operations as take TRIAL_S; its
 * time is the mean of them on the slowest rank. A row shows the quickest trial, the median of the trials, and the
 * median of single operations (of each trial, on the slowest rank; the median of the trials again), which other
 * programs on the machine disturb least. The results of every row are checked once.
 *
 * A program fills in `peer` and calls peer_rows(). Options of all of them:
 *   -n RANKS  -c COLLECTIVE  -b BYTES  -e BYTES  -f FACTOR  -p in|out  -t TRIAL_S  -r TRIALS  -L LABEL
 *   -w bf16: all_reduce by sending bfloat16: vectors are rounded before and widened after it, which is timed
 * Sizes mean what they mean in nccl-tests: where ranks have shares, all of them together.
 */
#ifndef METHOD_H
#define METHOD_H
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define MAX_TRIALS 64
#define MAX_OPERATIONS 10000

enum collective { ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, BROADCAST, ALL_TO_ALL, SENDRECV, BARRIER, COLLECTIVES };
static const char *const collective_name[COLLECTIVES] = { "all_reduce", "reduce_scatter", "all_gather", "broadcast",
                                                          "all_to_all", "sendrecv",       "barrier" };

typedef struct peer_opts {
    int ranks, collective, trials, in_place;
    bool bf16;
    size_t least, most, factor;
    double trial_s;
    const char *label, *memory; /* memory: "private", "registered", or what its owner calls it */
} peer_opts;

/* What a peer gives. `run` carries out the collective on n floats: of the whole vector, or of all shares together. */
typedef struct peer {
    peer_opts o;
    int rank;
    float *in, *out;                              /* the same in place */
    void (*prepare)(struct peer *p, size_t n);    /* may be NULL */
    void (*run)(struct peer *p, size_t n);
    double (*most)(struct peer *p, double mine);  /* the greatest over all ranks; also a barrier */
} peer;

static inline double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static inline size_t bytes_of(const char *text)
{
    char *unit;
    double v = strtod(text, &unit);
    return (size_t)(v * (*unit == 'K' ? 1024.0 : *unit == 'M' ? 1048576.0 : *unit == 'G' ? 1073741824.0 : 1.0));
}

static inline peer_opts peer_options(int argc, char **argv, const char *label)
{
    peer_opts o;
    memset(&o, 0, sizeof o);
    o.ranks = 2, o.trials = 3, o.least = 8, o.most = 8, o.factor = 16, o.trial_s = 0.04;
    o.label = label, o.memory = "private";
    for (int i = 1; i + 1 < argc; i++) {
        const char *v = argv[i + 1];
        if (argv[i][0] != '-' || argv[i][2]) continue;
        switch (argv[i][1]) {
        case 'n': o.ranks = atoi(v); break;
        case 'b': o.least = bytes_of(v); break;
        case 'e': o.most = bytes_of(v); break;
        case 'f': o.factor = (size_t)atoi(v); break;
        case 'p': o.in_place = strcmp(v, "in") == 0; break;
        case 't': o.trial_s = atof(v); break;
        case 'r': o.trials = atoi(v); break;
        case 'L': o.label = v; break;
        case 'w': o.bf16 = strcmp(v, "bf16") == 0; break;
        case 'c':
            for (o.collective = 0; o.collective < COLLECTIVES; o.collective++)
                if (strcmp(v, collective_name[o.collective]) == 0) break;
            if (o.collective == COLLECTIVES) {
                fprintf(stderr, "%s: no collective named %s\n", label, v);
                exit(64);
            }
            break;
        default: continue;
        }
        i++;
    }
    if (o.factor < 2) o.factor = 2;
    if (o.trials > MAX_TRIALS) o.trials = MAX_TRIALS;
    return o;
}

static inline size_t peer_buffer_bytes(const peer_opts *o) { return (o->most + 4096) & ~(size_t)4095; }

static inline int has_shares(int c) { return c == REDUCE_SCATTER || c == ALL_GATHER || c == ALL_TO_ALL; }

/* Floats that a rank puts in, where they are, and floats of its result. */
static inline size_t peer_share(const peer *p, size_t n) { return n / (size_t)p->o.ranks; }
static inline size_t peer_in(const peer *p, size_t n) { return p->o.collective == ALL_GATHER ? peer_share(p, n) : n; }
static inline size_t peer_out(const peer *p, size_t n)
{
    return p->o.collective == REDUCE_SCATTER ? peer_share(p, n) : n;
}
static inline float *peer_own(const peer *p, size_t n)
{
    return p->in + (p->o.collective == ALL_GATHER && p->o.in_place ? (size_t)p->rank * peer_share(p, n) : 0);
}
static inline float *peer_result(const peer *p, size_t n)
{
    return p->out + (p->o.collective == REDUCE_SCATTER && p->o.in_place ? (size_t)p->rank * peer_share(p, n) : 0);
}

/* Small integers: every sum is exact. */
static inline float value(size_t i, int rank) { return (float)(i % 7) + (float)(rank + 1); }

static inline void rewrite(const peer *p, size_t n)
{
    float *v = peer_own(p, n);
    size_t m = peer_in(p, n);
    for (size_t i = 0; i < m; i++) v[i] = value(i, p->rank);
    __asm__ volatile("" ::: "memory");
}

static inline void read_back(const peer *p, size_t n)
{
    const float *v = peer_result(p, n);
    size_t m = peer_out(p, n);
    float sum = 0;
    for (size_t i = 0; i < m; i += 16) sum += v[i];
    __asm__ volatile("" ::"x"(sum) : "memory");
}

static inline float expected(const peer *p, size_t n, size_t i)
{
    int ranks = p->o.ranks;
    size_t share = n / (size_t)ranks;
    switch (p->o.collective) {
    case REDUCE_SCATTER: i += (size_t)p->rank * share; /* fall through */
    case ALL_REDUCE: return (float)ranks * (float)(i % 7) + (float)(ranks * (ranks + 1) / 2);
    case ALL_GATHER: return value(i % share, (int)(i / share));
    case ALL_TO_ALL: return value((size_t)p->rank * share + i % share, (int)(i / share));
    case SENDRECV: return value(i, 1 - p->rank);
    default: return value(i, 0);
    }
}

static inline size_t wrong(const peer *p, size_t n)
{
    size_t bad = 0, m = peer_out(p, n);
    const float *v = peer_result(p, n);
    for (size_t i = 0; i < m; i++) bad += v[i] != expected(p, n, i);
    return p->o.collective == BARRIER ? 0 : bad;
}

/* n floats rounded to bfloat16 (to nearest, ties to even), and back. */
static inline void to_bf16(uint16_t *out, const float *in, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t u;
        memcpy(&u, in + i, sizeof u);
        out[i] = (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
    }
}
static inline void from_bf16(float *out, const uint16_t *in, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const uint32_t u = (uint32_t)in[i] << 16;
        memcpy(out + i, &u, sizeof u);
    }
}
static inline void add_bf16(uint16_t *to, const uint16_t *a, const uint16_t *b, size_t n)
{
    enum { PART = 1024 };
    float x[PART], y[PART];
    for (size_t at = 0; at < n; at += PART) {
        const size_t m = n - at < PART ? n - at : PART;
        from_bf16(x, a + at, m);
        from_bf16(y, b + at, m);
        for (size_t i = 0; i < m; i++) x[i] += y[i];
        to_bf16(to + at, x, m);
    }
}

static inline int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static inline double median(double *v, int n)
{
    qsort(v, (size_t)n, sizeof *v, ascending);
    return v[n / 2];
}

/* Seconds of an operation: their mean, and *single their median; of the slowest rank. */
static inline double trial(peer *p, size_t n, int operations, double *single)
{
    static double each[MAX_OPERATIONS];
    double sum = 0, ways = p->o.collective == SENDRECV ? 2 : 1;
    p->most(p, 0);
    for (int i = 0; i < operations; i++) {
        rewrite(p, n);
        double t = seconds();
        p->run(p, n);
        sum += each[i] = seconds() - t;
        read_back(p, n);
    }
    sum = p->most(p, sum / operations / ways);
    *single = p->most(p, median(each, operations) / ways);
    return sum;
}

static inline void peer_header(const peer *p)
{
    if (p->rank == 0)
        printf("program,collective,place,memory,ranks,bytes,iterations,min_us,median_us,single_us,algbw_GBps,busbw_GBps,wrong\n");
}

static inline void peer_rows(peer *p)
{
    const peer_opts *o = &p->o;
    double t[MAX_TRIALS], single[MAX_TRIALS];
    for (size_t bytes = o->least; bytes <= o->most; bytes *= o->factor) {
        size_t n = bytes / sizeof(float);
        if (has_shares(o->collective)) n = n / (size_t)o->ranks * (size_t)o->ranks;
        if (p->prepare) p->prepare(p, n);
        (void)trial(p, n, 1, single);
        int operations = 2; /* enough to tell how long one takes, then as many as fill a trial */
        while (trial(p, n, operations, single) * operations < o->trial_s / 8 && operations < 1000) operations *= 8;
        operations = single[0] * MAX_OPERATIONS > o->trial_s ? (int)(o->trial_s / single[0]) : MAX_OPERATIONS;
        if (operations < 2) operations = 2;
        for (int k = 0; k < o->trials; k++) t[k] = trial(p, n, operations, &single[k]);
        memset(p->out, 0, n * sizeof(float));
        p->most(p, 0); /* in place: nobody reads what is being erased */
        rewrite(p, n);
        p->run(p, n);
        double bad = p->most(p, (double)wrong(p, n)), us = median(t, o->trials) * 1e6;
        double algbw = us > 0 ? (double)(n * sizeof(float)) / us * 1e-3 : 0, r = o->ranks;
        double factor = o->collective == ALL_REDUCE ? 2 * (r - 1) / r : has_shares(o->collective) ? (r - 1) / r : 1;
        if (p->rank == 0)
            printf("%s,%s,%s,%s,%d,%zu,%d,%.4f,%.4f,%.4f,%.5g,%.5g,%.0f\n", o->label, collective_name[o->collective],
                   o->in_place ? "in" : "out", o->memory, o->ranks, n * sizeof(float), operations, t[0] * 1e6, us,
                   median(single, o->trials) * 1e6, algbw, algbw * factor, bad);
        fflush(stdout);
        if (o->collective == BARRIER) return;
    }
}

/* Anonymous and prefaulted; shared with processes that are forked later, or not. */
static inline void *pages(size_t bytes, int shared)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, (shared ? MAP_SHARED : MAP_PRIVATE) | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) {
        perror("mmap");
        exit(71);
    }
    if (!shared) memset(p, 0, bytes);
    return p;
}

#endif
