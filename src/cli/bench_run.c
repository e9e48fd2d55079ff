/* bench_run.c -- lockstep bench on every rank: fill, warm up, measure, check.
 *
 * Sizes and counts mean what they mean in nccl-tests: "size" is the larger of what a rank puts in and
 * what it gets out; where ranks have shares, "count" is one rank's share of it.
 */
#include <stdlib.h>
#include <string.h>

#include "base/env.h"
#include "cli/bench.h"
#include "group/debug.h"
#include "lockstep/lockstep.h"

#define QUICK_NS 20000000u   /* a measurement shorter than this is repeated with more iterations, */
#define MAX_ITERS 10000      /* up to so many */
#define ALIGN 64
#define MAX_TRIALS 99
#define LS_NO_REORDER() __asm__ volatile("" ::: "memory") /* stores before it are done before a clock is read */

/* One row of the table for one placement. */
typedef struct job {
    ls_coll coll;
    ls_dtype dtype;
    ls_redop op;
    size_t count, share, nbytes; /* elements of the vector; of a rank's part, or the mean of them; size column */
    bool in_place;
    const size_t *each;          /* shares of unequal ranks, as in ls_bench_case; NULL: equal */
    size_t in_count, out_count;  /* elements that this rank puts in, and those of its result */
} job;

typedef struct bench {
    const ls_bench_opts *o;
    const ls_env *env;
    ls_world *w;             /* borrowed */
    ls_group *g;             /* the ranks that measure together: all, or a part (NCCL_TESTS_SPLIT) */
    int rank, size;          /* in g */
    size_t stride;           /* bytes between the buffers of operations in flight together */
    char *send, *recv;       /* [agg] of stride bytes; the arena's, or owned when private */
    char *own_send, *own_recv;
    double *single;          /* owned, with --csv and --touch: [MAX_ITERS] times of this trial's operations */
    double *each, *all;      /* owned, with -I: [iters] times of the slowest rank, [size][iters] of all; twice,
                                for the two placements */
    size_t *uneven;          /* owned, [size][size], with --counts uneven: what it makes of the row's shares, */
    size_t *recv_counts;     /* owned, [size] */
    double *v;               /* owned, [world size]: a number of each rank */
    uint64_t *traffic;       /* owned, with --count and --fit: [2][2][size], of both placements, measured and said */
    double wrong;            /* elements on this rank */
    uint32_t round;
    volatile uint64_t sink;  /* where touched data go, so that they are really read */
} bench;

/* --- shape -------------------------------------------------------------------------------- */

bool ls_bench_has_shares(ls_coll c)
{
    return c == LS_ALL_GATHER || c == LS_REDUCE_SCATTER || c == LS_GATHER || c == LS_SCATTER || c == LS_ALL_TO_ALL;
}
static bool reduces(ls_coll c) { return c == LS_ALL_REDUCE || c == LS_REDUCE_SCATTER || c == LS_REDUCE; }
static bool rooted(ls_coll c) { return c == LS_BROADCAST || c == LS_REDUCE || c == LS_GATHER || c == LS_SCATTER; }
static bool is_root(const bench *b) { return b->rank == (int)b->o->root; }

static ls_bench_case case_of(const bench *b, const job *j, uint32_t round)
{
    return (ls_bench_case){ .coll = j->coll, .dtype = j->dtype, .op = j->op, .size = b->size, .root = (int)b->o->root,
                            .narrow = strcmp(b->o->wire, "bf16") == 0,
                            .count = j->count, .each = j->each, .round = round };
}

/* Rank r has r parts of n(n-1)/2, so rank 0 has none; the last has what does not divide. In all_to_all the
 * same from every rank, turned by its own, so that every rank gets as much as it gives. */
static void uneven_shares(bench *b, size_t count)
{
    size_t n = (size_t)b->size, parts = n > 1 ? n * (n - 1) / 2 : 1, given = 0;
    for (size_t r = 0; r + 1 < n; r++) given += b->uneven[r] = count / parts * r;
    b->uneven[n - 1] = count - given;
    if (b->o->coll != LS_ALL_TO_ALL) return;
    for (size_t from = n; from-- > 0;)
        for (size_t to = 0; from > 0 && to < n; to++) b->uneven[from * n + to] = b->uneven[(from + to) % n];
    for (size_t from = 0; from < n; from++) b->recv_counts[from] = b->uneven[from * n + (size_t)b->rank];
}

static job job_of(bench *b, size_t nbytes, ls_dtype dtype, ls_redop op)
{
    ls_coll coll = b->o->coll;
    size_t n = nbytes / ls_dtype_size(dtype), parts = ls_bench_has_shares(coll) ? (size_t)b->size : 1;
    if (coll == LS_BARRIER) n = 0;
    job j = { .coll = coll, .dtype = dtype, .op = op, .share = n / parts };
    j.count = j.share * parts;
    j.nbytes = j.count * ls_dtype_size(dtype);
    if (ls_bench_has_shares(coll) && strcmp(b->o->counts, "uneven") == 0) {
        uneven_shares(b, j.count);
        j.each = b->uneven;
    }
    ls_bench_case c = case_of(b, &j, 0);
    size_t own = ls_bench_share(&c, b->rank, b->rank);
    bool gives_share = coll == LS_ALL_GATHER || coll == LS_GATHER;
    bool gets_share = coll == LS_REDUCE_SCATTER || coll == LS_SCATTER;
    j.in_count = gives_share ? own : coll == LS_SCATTER && !is_root(b) ? 0 : j.count;
    j.out_count = gets_share ? own : (coll == LS_GATHER || coll == LS_REDUCE) && !is_root(b) ? 0 : j.count;
    return j;
}

static size_t stride_of(const ls_bench_opts *o)
{
    return (o->max_bytes + (size_t)o->unalign * sizeof(double) + 2 * ALIGN - 1) / ALIGN * ALIGN;
}

size_t ls_bench_arena_bytes(const ls_bench_opts *o)
{
    const size_t rest = (size_t)8 << 20; /* areas of the groups, staging */
    return o->private_memory ? rest : 2 * stride_of(o) * (size_t)o->agg + rest;
}

static char *buffer(const bench *b, char *base, const job *j, int slot)
{
    return base + (size_t)slot * b->stride + (size_t)b->o->unalign * ls_dtype_size(j->dtype);
}

/* Where the own share begins in a vector of everybody's; in bytes. */
static size_t own_at(const bench *b, const job *j)
{
    ls_bench_case c = case_of(b, j, 0);
    if (!ls_bench_has_shares(j->coll) || j->coll == LS_ALL_TO_ALL) return 0;
    return ls_bench_share_at(&c, 0, b->rank) * ls_dtype_size(j->dtype);
}

/* Where this rank's contribution is put, and where its result appears. */
static char *input(const bench *b, const job *j, int slot)
{
    if (!j->in_place) return buffer(b, b->send, j, slot);
    char *p = buffer(b, b->recv, j, slot);
    return j->coll == LS_ALL_GATHER || j->coll == LS_GATHER ? p + own_at(b, j) : p;
}

static char *output(const bench *b, const job *j, int slot)
{
    char *p = buffer(b, b->recv, j, slot);
    return j->in_place && (j->coll == LS_REDUCE_SCATTER || j->coll == LS_SCATTER) ? p + own_at(b, j) : p;
}

/* --- one operation ---------------------------------------------------------------------------- */

/* To the right, from the left. Both calls block: even ranks speak first. */
static ls_status send_and_receive(bench *b, const job *j, int slot)
{
    int right = (b->rank + 1) % b->size, left = (b->rank + b->size - 1) % b->size;
    const char *in = input(b, j, slot);
    char *out = buffer(b, b->recv, j, slot);
    if (b->rank % 2) LS_TRY(ls_recv(b->g, out, j->count, j->dtype, left));
    LS_TRY(ls_send(b->g, in, j->count, j->dtype, right));
    if (b->rank % 2 == 0) LS_TRY(ls_recv(b->g, out, j->count, j->dtype, left));
    return LS_OK;
}

/* There and back between two ranks, one after the other. */
static ls_status ping_pong(bench *b, const job *j)
{
    const char *in = input(b, j, 0);
    char *out = buffer(b, b->recv, j, 0);
    if (b->rank == 1) LS_TRY(ls_recv(b->g, out, j->count, j->dtype, 0));
    LS_TRY(ls_send(b->g, in, j->count, j->dtype, 1 - b->rank));
    return b->rank == 0 ? ls_recv(b->g, out, j->count, j->dtype, 1) : LS_OK;
}

/* Out of place the root's own copy is part of a broadcast; the library's moves only what others lack. */
static void copy_of_root(bench *b, const job *j, int slot)
{
    if (j->coll == LS_BROADCAST && !j->in_place && is_root(b) && j->nbytes > 0)
        memcpy(buffer(b, b->recv, j, slot), input(b, j, slot), j->nbytes);
}

static ls_coll_args args_of(bench *b, const job *j, int slot)
{
    const void *in = input(b, j, slot);
    ls_coll_args a = { .coll = j->coll, .in = j->in_place ? NULL : in, .out = buffer(b, b->recv, j, slot),
                       .count = j->count, .dtype = j->dtype, .op = j->op };
    if (rooted(j->coll)) a.root = (int)b->o->root;
    if (j->coll == LS_BROADCAST) a.in = NULL;
    if (j->coll == LS_GATHER && j->in_place && !is_root(b)) a.in = in; /* in place is the root's matter */
    if (j->coll == LS_SCATTER && j->in_place) {
        a.in = is_root(b) ? in : NULL;
        a.out = is_root(b) ? NULL : output(b, j, slot);
    }
    if (j->each) a.counts = j->coll == LS_ALL_TO_ALL ? j->each + (size_t)b->rank * (size_t)b->size : j->each;
    if (j->each && j->coll == LS_ALL_TO_ALL) a.recv_counts = b->recv_counts;
    return a;
}

static ls_status operation(bench *b, const job *j, const ls_coll_args *args)
{
    if (j->coll == LS_SENDRECV) return b->o->ping_pong ? ping_pong(b, j) : send_and_receive(b, j, 0);
    copy_of_root(b, j, 0);
    const ls_coll_args a = *args;
    const size_t *n = a.counts;
    switch (j->coll) { /* the calls that users make */
    case LS_ALL_REDUCE: return ls_all_reduce(b->g, a.in, a.out, a.count, a.dtype, a.op);
    case LS_REDUCE_SCATTER:
        if (n) return ls_reduce_scatter_v(b->g, a.in, a.out, n, a.dtype, a.op);
        return ls_reduce_scatter(b->g, a.in, a.out, a.count, a.dtype, a.op);
    case LS_ALL_GATHER:
        if (n) return ls_all_gather_v(b->g, a.in, a.out, n, a.dtype);
        return ls_all_gather(b->g, a.in, a.out, a.count, a.dtype);
    case LS_BROADCAST: return ls_broadcast(b->g, a.out, a.count, a.dtype, a.root);
    case LS_REDUCE: return ls_reduce(b->g, a.in, a.out, a.count, a.dtype, a.op, a.root);
    case LS_GATHER:
        if (n) return ls_gather_v(b->g, a.in, a.out, n, a.dtype, a.root);
        return ls_gather(b->g, a.in, a.out, a.count, a.dtype, a.root);
    case LS_SCATTER:
        if (n) return ls_scatter_v(b->g, a.in, a.out, n, a.dtype, a.root);
        return ls_scatter(b->g, a.in, a.out, a.count, a.dtype, a.root);
    case LS_ALL_TO_ALL:
        if (n) return ls_all_to_all_v(b->g, a.in, n, a.out, a.recv_counts, a.dtype);
        return ls_all_to_all(b->g, a.in, a.out, a.count, a.dtype);
    default: return ls_barrier(b->g);
    }
}

/* agg operations in flight together, each on buffers of its own; first: args_of(b, j, 0), of which nothing is timed. */
static ls_status operations(bench *b, const job *j, const ls_coll_args *first)
{
    int agg = (int)b->o->agg;
    if (agg == 1) return operation(b, j, first);
    ls_work *work[64];
    ls_status st = LS_OK;
    int n = 0;
    for (int slot = 0; slot < agg && st == LS_OK; slot++) {
        if (j->coll == LS_SENDRECV) {
            st = send_and_receive(b, j, slot);
            continue;
        }
        copy_of_root(b, j, slot);
        ls_coll_args a = args_of(b, j, slot);
        if ((st = ls_coll_start(b->g, &a, &work[n])) == LS_OK) n++;
    }
    for (int i = 0; i < n; i++) {
        ls_status done = ls_work_wait(work[i]);
        if (st == LS_OK) st = done;
    }
    return st;
}

/* Everybody's contribution to all operations. */
static void fill(bench *b, const job *j, uint32_t round)
{
    ls_bench_case c = case_of(b, j, round);
    bool share = j->coll == LS_ALL_GATHER || j->coll == LS_GATHER;
    size_t first = share ? ls_bench_share_at(&c, 0, b->rank) : 0;
    for (int slot = 0; slot < (int)b->o->agg; slot++)
        if (j->in_count > 0) ls_bench_fill(&c, b->rank, first, j->in_count, input(b, j, slot));
}

/* --- time ------------------------------------------------------------------------------------------- */

/* Owners write their data anew, so that no peer finds them in its cache. Ordinary stores, as a program's
 * own results come by; numbers near 1 in every floating-point dtype. */
static void rewrite(bench *b, const job *j)
{
    const uint64_t one = 0x3f803f803f803f80u;
    for (int slot = 0; slot < (int)b->o->agg; slot++) {
        char *p = input(b, j, slot);
        size_t n = j->in_count * ls_dtype_size(j->dtype), i = 0;
        for (; i + 8 <= n; i += 8) memcpy(p + i, &(uint64_t){ one + (i >> 3 & 7u) }, 8);
        for (; i < n; i++) p[i] = 1;
    }
    LS_NO_REORDER();
}

/* Every cache line of the results. */
static void read_back(bench *b, const job *j)
{
    uint64_t sum = 0;
    for (int slot = 0; slot < (int)b->o->agg; slot++) {
        const char *p = output(b, j, slot);
        for (size_t n = j->out_count * ls_dtype_size(j->dtype), i = 0; i < n; i += ALIGN) sum += (unsigned char)p[i];
    }
    b->sink = sum;
}

/* `iters` times; *ns is their sum on this rank. With each != NULL iterations are timed one by one, in us. */
static ls_status repeat(bench *b, const job *j, int iters, double *each, double *ns)
{
    const ls_bench_opts *o = b->o;
    const ls_coll_args first = args_of(b, j, 0);
    LS_TRY(ls_barrier(b->g));
    uint64_t t0 = b->env->mono_ns();
    if (!o->touch && !each) {
        for (int i = 0; i < iters; i++) {
            LS_TRY(operations(b, j, &first));
            if (o->blocking) LS_TRY(ls_barrier(b->g));
        }
        *ns = (double)(b->env->mono_ns() - t0);
        return LS_OK;
    }
    *ns = 0;
    for (int i = 0; i < iters; i++) {
        if (o->touch) rewrite(b, j);
        t0 = b->env->mono_ns();
        LS_TRY(operations(b, j, &first));
        if (o->blocking) LS_TRY(ls_barrier(b->g));
        double t = (double)(b->env->mono_ns() - t0);
        if (o->touch) read_back(b, j);
        if (each) each[i] = t * 1e-3 / (double)o->agg;
        *ns += t;
    }
    return LS_OK;
}

/* v[size]: everybody's value of `mine`. */
static ls_status gather(ls_group *g, double mine, double *v)
{
    return ls_all_gather(g, &mine, v, (size_t)ls_group_size(g), LS_F64);
}

/* One number for all ranks, as nccl-tests' -a says. */
static double combine(const double *v, int n, int64_t how)
{
    double sum = 0, least = v[0], most = v[0];
    for (int i = 0; i < n; i++) {
        sum += v[i];
        least = v[i] < least ? v[i] : least;
        most = v[i] > most ? v[i] : most;
    }
    return how == 0 ? v[0] : how == 1 ? sum / n : how == 2 ? least : most;
}

static ls_status gather_iters(bench *b, int iters, double *each, double *all, ls_bench_iters *out)
{
    size_t n = (size_t)iters;
    LS_TRY(ls_all_gather(b->g, each, all, n * (size_t)b->size, LS_F64));
    for (size_t i = 0; i < n; i++) {
        each[i] = all[i];
        for (size_t r = 1; r < (size_t)b->size; r++)
            if (all[r * n + i] > each[i]) each[i] = all[r * n + i];
    }
    int skip = b->o->skip < iters ? (int)b->o->skip : iters - 1;
    *out = (ls_bench_iters){ .n = iters, .skip = skip, .ranks = b->size, .each = each, .rank = all };
    return LS_OK;
}

/* How many operations make a trial; decided from everybody's time of the first ones, so that everybody
 * decides alike. A first guess by the mean of few would be wrong where one of them is held up. */
static ls_status decide_iters(bench *b, const job *j, int *iters)
{
    const ls_bench_opts *o = b->o;
    const double aim = o->trial_time ? (double)o->trial_time : (double)QUICK_NS;
    double *v = b->v, ns, once;
    int n = *iters = (int)o->iters;
    if (!o->more_iters && !o->trial_time) return LS_OK;
    for (n = o->trial_time ? 2 : n;; n *= 8) {
        LS_TRY(repeat(b, j, n, b->single, &ns));
        once = b->single ? ls_bench_median(b->single, n) * 1e3 * (double)o->agg : ns / n;
        LS_TRY(gather(b->g, ns, v));
        ns = combine(v, b->size, 3);
        LS_TRY(gather(b->g, once, v));
        once = combine(v, b->size, 3);
        if (ns > aim / 8 || n >= MAX_ITERS / 8) break;
    }
    int want = once * MAX_ITERS > aim ? (int)(aim / once) : MAX_ITERS, least = o->trial_time ? 2 : *iters;
    *iters = want > least ? want : least;
    return LS_OK;
}

static ls_status measure(bench *b, const job *j, int *iters, ls_bench_result *out)
{
    const ls_bench_opts *o = b->o;
    double *v = b->v, us[MAX_TRIALS], single[MAX_TRIALS] = { 0 }, ns;
    const double ways = o->ping_pong ? 2 : 1;
    size_t n = (size_t)o->iters;
    double *each = b->each ? b->each + (j->in_place ? n : 0) : NULL;
    const ls_coll_args first = args_of(b, j, 0);
    for (int i = 0; i < (int)o->warmup; i++) LS_TRY(operations(b, j, &first));
    LS_TRY(decide_iters(b, j, iters));
    for (int64_t k = 0; k < o->trials; k++) {
        LS_TRY(repeat(b, j, *iters, b->single ? b->single : each, &ns));
        LS_TRY(gather(b->g, ns, v));
        us[k] = combine(v, b->size, o->average) * 1e-3 / ((double)*iters * (double)o->agg) / ways;
        if (!b->single) continue;
        LS_TRY(gather(b->g, ls_bench_median(b->single, *iters), v));
        single[k] = combine(v, b->size, 3) / ways;
    }
    double median = ls_bench_median(us, (int)o->trials);
    *out = (ls_bench_result){ .us = median, .least_us = us[0], .single_us = ls_bench_median(single, (int)o->trials),
                              .algbw = median > 0 ? (double)j->nbytes / median * 1e-3 : 0 };
    out->busbw = out->algbw * ls_bench_bus_factor(j->coll, b->size);
    return each ? gather_iters(b, *iters, each, b->all + (j->in_place ? n * (size_t)b->size : 0), &out->iters) : LS_OK;
}

/* --- right or wrong ----------------------------------------------------------------------------------- */

static ls_status check(bench *b, const job *j, double *nwrong)
{
    double *v = b->v;
    *nwrong = -1;
    bool told = j->coll != LS_SENDRECV || !j->in_place; /* a buffer cannot be sent and filled at once */
    if (b->o->check == 0 || !told) return LS_OK;
    *nwrong = 0;
    for (int64_t turn = 0; turn < b->o->check && *nwrong == 0; turn++) {
        ls_bench_case c = case_of(b, j, b->round++);
        bool share = j->coll == LS_REDUCE_SCATTER || j->coll == LS_SCATTER;
        size_t first = share ? ls_bench_share_at(&c, 0, b->rank) : 0;
        double wrong = 0;
        fill(b, j, c.round);
        const ls_coll_args args = args_of(b, j, 0);
        LS_TRY(operations(b, j, &args));
        for (int slot = 0; slot < (int)b->o->agg; slot++)
            if (j->out_count > 0) wrong += (double)ls_bench_wrong(&c, b->rank, first, j->out_count, output(b, j, slot));
        b->wrong += wrong;
        LS_TRY(gather(b->g, wrong, v));
        *nwrong = combine(v, b->size, 1) * b->size;
    }
    return LS_OK;
}

/* --- bytes ------------------------------------------------------------------------------------------------ */

/* One more operation, with the library's counter read before and after it. A payload byte is counted by one of its
 * two ranks: on a wire by its sender, in mapped memory by whoever reads or writes another's. */
static ls_status count_bytes(bench *b, const job *j, ls_bench_count *out)
{
    ls_comm_stats before, after;
    double *v = b->v;
    LS_TRY(ls_barrier(b->g));
    ls_comm_stats_read(b->w, &before);
    const ls_coll_args args = args_of(b, j, 0);
    LS_TRY(operation(b, j, &args));
    ls_comm_stats_read(b->w, &after);
    uint64_t *traffic = b->traffic + (j->in_place ? 2 * b->size : 0);
    *out = (ls_bench_count){ .algo = j->coll == LS_SENDRECV ? "sendrecv" : ls_debug_look(b->g).ran, .ranks = b->size,
                             .measured = traffic, .formula = traffic + b->size };
    ls_traffic t;
    const ls_status st = ls_debug_traffic(b->g, &args, &t);
    if (st < 0 && st != LS_UNSUPPORTED) return st;
    out->known = st == LS_OK; /* alike on every rank */
    LS_TRY(gather(b->g, (double)(after.bytes - before.bytes), v));
    for (int r = 0; r < b->size; r++) out->measured[r] = (uint64_t)v[r];
    LS_TRY(gather(b->g, (double)t.counted, v));
    for (int r = 0; r < b->size; r++) out->formula[r] = (uint64_t)v[r];
    LS_TRY(gather(b->g, (double)(t.read > t.written ? t.read : t.written), v));
    for (int r = 0; r < b->size; r++) {
        uint64_t more = out->formula[r] > (uint64_t)v[r] ? out->formula[r] : (uint64_t)v[r];
        out->most = more > out->most ? more : out->most;
    }
    LS_TRY(gather(b->g, t.rounds, v));
    out->rounds = (int)combine(v, b->size, 3);
    return LS_OK;
}

void ls_bench_algos(const ls_bench_opts *o, char *out, size_t n)
{
    const ls_shape shape = { .coll = o->coll, .size = (int)o->ranks, .segments = 1, .nlanes = 1,
                             .uneven = o->coll == LS_ALL_TO_ALL && strcmp(o->counts, "uneven") == 0 };
    size_t at = 0;
    *out = 0;
    for (int i = 0; ls_algos[i]; i++) {
        const ls_algo *a = ls_algos[i];
        const bool fold = strcmp(a->name, "fold") == 0;
        if (!(a->colls & 1u << o->coll) || (a->fits && !a->fits(&shape)) || (fold && o->private_memory)) continue;
        if (at >= n) break;
        at += (size_t)snprintf(out + at, n - at, "%s%s", at ? ", " : "", a->name);
    }
}

/* One operation, to see what carries it out: nothing is measured under a name that is not its own. */
static ls_status look_who_runs(bench *b, const job *j, ls_bench_result *out)
{
    const ls_bench_opts *o = b->o;
    const ls_algo *by[LS_COLLS];
    char names[256];
    const ls_coll_args args = args_of(b, j, 0);
    LS_TRY(operation(b, j, &args));
    const ls_debug_group d = ls_debug_look(b->g);
    out->algo = j->coll == LS_SENDRECV ? "messages" : j->count == 0 && j->coll != LS_BARRIER ? NULL : d.ran;
    out->segments = out->algo ? d.segments : 0;
    if (!o->algo || !*o->algo || !out->algo || d.alone) return LS_OK;
    LS_TRY(ls_algo_parse(o->algo, by));
    if (by[j->coll] && strcmp(by[j->coll]->name, out->algo) == 0) return LS_OK;
    ls_bench_algos(o, names, sizeof names);
    return ls_fail(LS_USAGE, "--algo %s cannot carry out %s of %zu bytes over %d ranks here, %s would: expected one of %s", o->algo,
                   ls_coll_name(j->coll), j->nbytes, b->size, out->algo, names);
}

static ls_status placement(bench *b, job j, bool in_place, int *iters, ls_bench_result *out)
{
    ls_bench_result who = { 0 };
    j.in_place = in_place;
    fill(b, &j, b->round++);
    LS_TRY(look_who_runs(b, &j, &who));
    LS_TRY(measure(b, &j, iters, out));
    out->algo = who.algo;
    out->segments = who.segments;
    if (b->o->count || b->o->fit) LS_TRY(count_bytes(b, &j, &out->count));
    return check(b, &j, &out->nwrong);
}

/* --- all rows ---------------------------------------------------------------------------------------------- */

bool ls_bench_dtypes(const char *name, int *first, int *last)
{
    *first = 0;
    *last = LS_DTYPES - 1;
    if (strcmp(name, "all") == 0) return true;
    for (int d = 0; d < LS_DTYPES; d++)
        if (strcmp(name, ls_dtype_name((ls_dtype)d)) == 0) return *first = *last = d, true;
    return false;
}

bool ls_bench_ops(const char *name, int *first, int *last)
{
    *first = 0;
    *last = LS_REDOPS - 1;
    if (strcmp(name, "all") == 0) return true;
    for (int op = 0; op < LS_REDOPS; op++)
        if (strcmp(name, ls_redop_name((ls_redop)op)) == 0) return *first = *last = op, true;
    return false;
}

static bool is_integer(ls_dtype t) { return t == LS_I32 || t == LS_I64 || t == LS_U8; }

static ls_status rows_of(bench *b, ls_bench_report *report, ls_dtype dtype, ls_redop op)
{
    const ls_bench_opts *o = b->o;
    for (size_t nbytes = o->min_bytes;;) {
        job j = job_of(b, nbytes, dtype, op);
        ls_bench_row row = { .bytes = j.nbytes, .count = j.share, .dtype = ls_dtype_name(dtype), .ranks = b->size,
                             .op = reduces(j.coll) ? ls_redop_name(op) : "none", .root = -1 };
        if (rooted(j.coll)) row.root = (int)o->root;
        row.out_of_place.us = row.in_place.us = -1;
        if (strcmp(o->place, "in") != 0) LS_TRY(placement(b, j, false, &row.iterations, &row.out_of_place));
        if (strcmp(o->place, "out") != 0) LS_TRY(placement(b, j, true, &row.iterations, &row.in_place));
        if (report) ls_bench_report_row(report, &row);

        size_t next = o->step_factor > 1 ? nbytes * (size_t)o->step_factor : nbytes + o->step_bytes; /* below 2^61 */
        if (next == 0) next = ls_dtype_size(dtype);
        if (next > o->max_bytes || j.coll == LS_BARRIER) return LS_OK;
        nbytes = next;
    }
}

static ls_status all_rows(bench *b, ls_bench_report *report)
{
    int d0, d1, op0, op1;
    (void)ls_bench_dtypes(b->o->dtype, &d0, &d1); /* checked with the options */
    (void)ls_bench_ops(b->o->op, &op0, &op1);
    if (!reduces(b->o->coll)) op1 = op0;
    if (b->o->coll == LS_BARRIER) d1 = d0;
    for (int64_t cycle = 0; cycle < b->o->cycles; cycle++)
        for (int d = d0; d <= d1; d++)
            for (int op = op0; op <= op1; op++)
                if (op1 == op0 || op != LS_AVG || !is_integer((ls_dtype)d)) /* of "all", what there is */
                    LS_TRY(rows_of(b, report, (ls_dtype)d, (ls_redop)op));
    return LS_OK;
}

/* --- set-up ------------------------------------------------------------------------------------------------ */

/* "AND 1", "MOD 2", "DIV 4", "OR 3" or NCCL_TESTS_SPLIT_MASK=0x7: ranks with equal results measure together
 * and beside the others. -1: the text says nothing of the kind. */
static int color_of(int rank, const char *split)
{
    static const char *const names[] = { "AND", "&", "OR", "|", "MOD", "%", "DIV", "/" };
    size_t k = 0;
    while (k < 8 && strncmp(split, names[k], strlen(names[k])) != 0) k++;
    if (k == 8) return -1;
    char *end;
    const char *digits = split + strlen(names[k]);
    long n = strtol(digits, &end, 0);
    if (end == digits || *end || n < 0 || (k >= 4 && n == 0)) return -1;
    switch (k / 2) {
    case 0: return rank & (int)n;
    case 1: return rank | (int)n;
    case 2: return rank % (int)n;
    default: return rank / (int)n;
    }
}

static ls_status split(bench *b, int *color)
{
    char text[64];
    const char *how = b->env->getenv("NCCL_TESTS_SPLIT"), *mask = b->env->getenv("NCCL_TESTS_SPLIT_MASK");
    ls_group *all = ls_world_group(b->w);
    if (!how && mask) {
        snprintf(text, sizeof text, "AND %s", mask);
        how = text;
    }
    *color = 0;
    b->g = all;
    if (how && (*color = color_of(ls_world_rank(b->w), how)) < 0)
        return ls_fail(LS_USAGE, "NCCL_TESTS_SPLIT is '%s': expected AND, OR, MOD or DIV and a number, as in 'MOD 2'", how);
    if (how) LS_TRY(ls_group_split(all, *color, &b->g));
    b->rank = ls_group_rank(b->g);
    b->size = ls_group_size(b->g);
    if (b->o->root >= b->size)
        return ls_fail(LS_USAGE, "--root %lld of %d ranks: expected 0 to %d", (long long)b->o->root, b->size, b->size - 1);
    if (b->o->ping_pong && b->size != 2) return ls_fail(LS_USAGE, "--ping_pong is between 2 ranks, here are %d", b->size);
    if (b->o->coll == LS_SENDRECV && b->size < 2) return ls_fail(LS_USAGE, "sendrecv needs at least 2 ranks, here is %d", b->size);
    return LS_OK;
}

static ls_status private_buffer(size_t nbytes, char **own, char **out)
{
    *own = malloc(nbytes + ALIGN);
    if (!*own) return ls_fail(LS_NO_MEMORY, "a buffer of %zu bytes; a smaller -e needs less", nbytes);
    *out = *own + (ALIGN - (uintptr_t)*own % ALIGN) % ALIGN;
    return LS_OK;
}

static ls_status buffers(bench *b)
{
    const ls_bench_opts *o = b->o;
    size_t nbytes = (b->stride = stride_of(o)) * (size_t)o->agg;
    void *send, *recv;
    const size_t size = (size_t)b->size;
    if (strcmp(o->counts, "uneven") == 0) {
        b->uneven = calloc(size * size, sizeof *b->uneven);
        b->recv_counts = calloc(size, sizeof *b->recv_counts);
        if (!b->uneven || !b->recv_counts) return ls_fail(LS_NO_MEMORY, "the parts of %zu ranks", size);
    }
    if ((o->count || o->fit) && !(b->traffic = calloc(4 * size, sizeof *b->traffic)))
        return ls_fail(LS_NO_MEMORY, "the bytes of %zu ranks", size);
    if (o->per_iter) {
        size_t n = 2 * (size_t)o->iters;
        b->each = calloc(n, sizeof *b->each);
        b->all = calloc(n * (size_t)b->size, sizeof *b->all);
        if (!b->each || !b->all) return ls_fail(LS_NO_MEMORY, "times of %zu iterations", n);
    }
    if (o->csv && o->touch && !o->per_iter) {
        size_t n = o->iters > MAX_ITERS ? (size_t)o->iters : MAX_ITERS;
        if (!(b->single = calloc(n, sizeof *b->single))) return ls_fail(LS_NO_MEMORY, "times of %zu operations", n);
    }
    if (o->private_memory) {
        LS_TRY(private_buffer(nbytes, &b->own_send, &b->send));
        return private_buffer(nbytes, &b->own_recv, &b->recv);
    }
    LS_TRY(ls_alloc(b->w, nbytes, LS_MEM_COMM, &send));
    LS_TRY(ls_alloc(b->w, nbytes, LS_MEM_COMM, &recv));
    b->send = send;
    b->recv = recv;
    return LS_OK;
}

/* device[n]: what every rank says of itself. */
static ls_status introduce(bench *b, int color, ls_bench_device *device)
{
    ls_bench_device me = { .rank = ls_world_rank(b->w), .group = color, .pid = b->env->pid(),
                           .device = ls_world_local_rank(b->w) };
    if (b->env->hostname(me.host, sizeof me.host) < 0) snprintf(me.host, sizeof me.host, "?");
    return ls_all_gather(ls_world_group(b->w), &me, device, sizeof me * (size_t)ls_world_size(b->w), LS_U8);
}

ls_status ls_bench_run(ls_world *w, const ls_bench_opts *o)
{
    bench b = { .o = o, .env = ls_env_get(), .w = w };
    bool prints = ls_world_rank(w) == 0;
    ls_bench_report report = { 0 };
    const size_t size = (size_t)ls_world_size(w);
    ls_bench_device *device = calloc(size, sizeof *device);
    int color = 0;
    b.v = calloc(size, sizeof *b.v);
    ls_status st = device && b.v ? split(&b, &color) : ls_fail(LS_NO_MEMORY, "what %zu ranks say", size);
    if (st == LS_OK) st = buffers(&b);
    if (st == LS_OK && prints) st = ls_bench_report_open(&report, o, stdout);
    if (st == LS_OK) st = introduce(&b, color, device);
    report.ranks_from = ls_world_source(w);
    report.carried_by = ls_comm_text(w);
    if (st == LS_OK && prints) ls_bench_report_header(&report, device, ls_world_size(w));
    if (st == LS_OK) st = all_rows(&b, prints ? &report : NULL);
    if (st == LS_OK) st = gather(ls_world_group(w), b.wrong, b.v);
    if (st == LS_OK && prints) st = ls_bench_report_close(&report);
    if (st == LS_OK && prints) {
        double wrong = combine(b.v, ls_world_size(w), 1) * ls_world_size(w);
        if (wrong > 0) st = ls_fail(LS_INTERNAL, "%.0f elements of results were wrong: do not trust this transport or algorithm", wrong);
        else if (report.miscounted > 0)
            st = ls_fail(LS_INTERNAL, "%d of %d results moved other bytes than their formula says", report.miscounted, report.counted);
    }
    ls_bench_report_free(&report);
    if (b.g != ls_world_group(w) && st == LS_OK) ls_group_destroy(b.g);
    free(device);
    free(b.v);
    free(b.uneven);
    free(b.recv_counts);
    free(b.traffic);
    free(b.single);
    free(b.all);
    free(b.each);
    free(b.own_recv);
    free(b.own_send);
    return st;
}
