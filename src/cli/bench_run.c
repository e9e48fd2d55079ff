/* bench_run.c -- lockstep bench on every rank: fill, warm up, measure, check.
 *
 * Sizes and counts mean what they mean in nccl-tests: "size" is the larger of what a rank puts in and
 * what it gets out; for all_gather and reduce_scatter "count" is one rank's share of it.
 */
#include <stdlib.h>
#include <string.h>

#include "base/env.h"
#include "cli/bench.h"
#include "lockstep/lockstep.h"

#define QUICK_NS 20000000u   /* a measurement shorter than this is repeated with more iterations, */
#define MAX_ITERS 10000      /* up to so many */
#define ALIGN 64

/* One row of the table for one placement. */
typedef struct job {
    ls_coll coll;
    ls_dtype dtype;
    ls_redop op;
    size_t count, share, nbytes; /* elements of the vector; of a rank's part; size column */
    bool in_place;
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
    double *each, *all;      /* owned, with -I: [iters] times of the slowest rank, [size][iters] of all; twice,
                                for the two placements */
    double wrong;            /* elements on this rank */
    uint32_t round;
    volatile uint64_t sink;  /* where touched data go, so that they are really read */
} bench;

/* --- shape -------------------------------------------------------------------------------- */

static bool has_shares(ls_coll c) { return c == LS_ALL_GATHER || c == LS_REDUCE_SCATTER; }
static bool reduces(ls_coll c) { return c == LS_ALL_REDUCE || c == LS_REDUCE_SCATTER; }

static job job_of(const bench *b, size_t nbytes, ls_dtype dtype, ls_redop op)
{
    size_t n = nbytes / ls_dtype_size(dtype), parts = has_shares(b->o->coll) ? (size_t)b->size : 1;
    if (b->o->coll == LS_BARRIER) n = 0;
    job j = { .coll = b->o->coll, .dtype = dtype, .op = op, .share = n / parts };
    j.count = j.share * parts;
    j.nbytes = j.count * ls_dtype_size(dtype);
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

/* Where this rank's contribution is put, and where its result appears. */
static char *input(const bench *b, const job *j, int slot)
{
    if (!j->in_place) return buffer(b, b->send, j, slot);
    char *p = buffer(b, b->recv, j, slot);
    return j->coll == LS_ALL_GATHER ? p + (size_t)b->rank * j->share * ls_dtype_size(j->dtype) : p;
}

static char *output(const bench *b, const job *j, int slot)
{
    char *p = buffer(b, b->recv, j, slot);
    return j->in_place && j->coll == LS_REDUCE_SCATTER ? p + (size_t)b->rank * j->share * ls_dtype_size(j->dtype) : p;
}

static size_t input_count(const job *j) { return j->coll == LS_ALL_GATHER ? j->share : j->count; }
static size_t output_count(const job *j) { return j->coll == LS_REDUCE_SCATTER ? j->share : j->count; }

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

/* Out of place the root's own copy is part of a broadcast; the library's moves only what others lack. */
static void copy_of_root(bench *b, const job *j, int slot)
{
    if (j->coll == LS_BROADCAST && !j->in_place && b->rank == (int)b->o->root && j->nbytes > 0)
        memcpy(buffer(b, b->recv, j, slot), input(b, j, slot), j->nbytes);
}

static ls_status operation(bench *b, const job *j)
{
    const void *in = j->in_place ? NULL : input(b, j, 0);
    void *out = buffer(b, b->recv, j, 0);
    switch (j->coll) {
    case LS_ALL_REDUCE: return ls_all_reduce(b->g, in, out, j->count, j->dtype, j->op);
    case LS_REDUCE_SCATTER: return ls_reduce_scatter(b->g, in, out, j->count, j->dtype, j->op);
    case LS_ALL_GATHER: return ls_all_gather(b->g, in, out, j->count, j->dtype);
    case LS_BROADCAST:
        copy_of_root(b, j, 0);
        return ls_broadcast(b->g, out, j->count, j->dtype, (int)b->o->root);
    case LS_SENDRECV: return send_and_receive(b, j, 0);
    default: return ls_barrier(b->g);
    }
}

/* agg operations in flight together, each on buffers of its own. */
static ls_status operations(bench *b, const job *j)
{
    int agg = (int)b->o->agg;
    if (agg == 1) return operation(b, j);
    ls_work *work[64];
    ls_status st = LS_OK;
    int n = 0;
    for (int slot = 0; slot < agg && st == LS_OK; slot++) {
        if (j->coll == LS_SENDRECV) {
            st = send_and_receive(b, j, slot);
            continue;
        }
        copy_of_root(b, j, slot);
        ls_coll_args a = { .coll = j->coll, .in = j->in_place || j->coll == LS_BROADCAST ? NULL : input(b, j, slot),
                           .out = buffer(b, b->recv, j, slot), .count = j->count, .dtype = j->dtype, .op = j->op,
                           .root = j->coll == LS_BROADCAST ? (int)b->o->root : 0 };
        if ((st = ls_coll_start(b->g, &a, &work[n])) == LS_OK) n++;
    }
    for (int i = 0; i < n; i++) {
        ls_status done = ls_work_wait(work[i]);
        if (st == LS_OK) st = done;
    }
    return st;
}

static ls_bench_case case_of(const bench *b, const job *j, uint32_t round)
{
    return (ls_bench_case){ .coll = j->coll, .dtype = j->dtype, .op = j->op, .size = b->size, .root = (int)b->o->root,
                            .count = j->count, .round = round };
}

/* Everybody's contribution to all operations. */
static void fill(bench *b, const job *j, uint32_t round)
{
    ls_bench_case c = case_of(b, j, round);
    size_t first = j->coll == LS_ALL_GATHER ? (size_t)b->rank * j->share : 0;
    for (int slot = 0; slot < (int)b->o->agg; slot++)
        if (j->count > 0) ls_bench_fill(&c, b->rank, first, input_count(j), input(b, j, slot));
}

/* --- time ------------------------------------------------------------------------------------------- */

/* Owners write their data anew, so that no peer finds them in its cache. */
static void rewrite(bench *b, const job *j)
{
    for (int slot = 0; slot < (int)b->o->agg; slot++)
        if (j->coll != LS_BARRIER) memset(input(b, j, slot), 0, input_count(j) * ls_dtype_size(j->dtype));
}

static void read_back(bench *b, const job *j)
{
    for (int slot = 0; slot < (int)b->o->agg; slot++) {
        const char *p = output(b, j, slot);
        size_t n = output_count(j) * ls_dtype_size(j->dtype);
        uint64_t sum = 0, word;
        for (size_t i = 0; i + sizeof word <= n; i += sizeof word) {
            memcpy(&word, p + i, sizeof word);
            sum += word;
        }
        b->sink = sum;
    }
}

/* `iters` times; *ns is their sum on this rank. With each != NULL iterations are timed one by one. */
static ls_status repeat(bench *b, const job *j, int iters, double *each, double *ns)
{
    const ls_bench_opts *o = b->o;
    LS_TRY(ls_barrier(b->g));
    uint64_t t0 = b->env->mono_ns();
    if (!o->touch && !each) {
        for (int i = 0; i < iters; i++) {
            LS_TRY(operations(b, j));
            if (o->blocking) LS_TRY(ls_barrier(b->g));
        }
        *ns = (double)(b->env->mono_ns() - t0);
        return LS_OK;
    }
    *ns = 0;
    for (int i = 0; i < iters; i++) {
        if (o->touch) {
            rewrite(b, j);
            LS_TRY(ls_barrier(b->g)); /* nobody's time includes another's writing */
        }
        t0 = b->env->mono_ns();
        LS_TRY(operations(b, j));
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

static ls_status measure(bench *b, const job *j, int *iters, ls_bench_result *out)
{
    const ls_bench_opts *o = b->o;
    double v[LS_MAX_RANKS], ns;
    size_t n = (size_t)o->iters;
    double *each = b->each ? b->each + (j->in_place ? n : 0) : NULL;
    for (int i = 0; i < (int)o->warmup; i++) LS_TRY(operations(b, j));
    *iters = (int)o->iters;
    LS_TRY(repeat(b, j, *iters, each, &ns));
    if (o->more_iters) { /* decided from everybody's time, so that everybody decides alike */
        LS_TRY(gather(b->g, ns, v));
        double t = combine(v, b->size, 3) / *iters;
        int want = t * MAX_ITERS > QUICK_NS ? (int)(QUICK_NS / t) : MAX_ITERS;
        if (want > *iters) LS_TRY(repeat(b, j, *iters = want, NULL, &ns));
    }
    LS_TRY(gather(b->g, ns, v));
    double us = combine(v, b->size, o->average) * 1e-3 / ((double)*iters * (double)o->agg);
    *out = (ls_bench_result){ .us = us, .algbw = us > 0 ? (double)j->nbytes / us * 1e-3 : 0 };
    out->busbw = out->algbw * ls_bench_bus_factor(j->coll, b->size);
    return each ? gather_iters(b, *iters, each, b->all + (j->in_place ? n * (size_t)b->size : 0), &out->iters) : LS_OK;
}

/* --- right or wrong ----------------------------------------------------------------------------------- */

static ls_status check(bench *b, const job *j, double *nwrong)
{
    double v[LS_MAX_RANKS];
    *nwrong = -1;
    bool told = j->coll != LS_SENDRECV || !j->in_place; /* a buffer cannot be sent and filled at once */
    if (b->o->check == 0 || !told) return LS_OK;
    *nwrong = 0;
    for (int64_t turn = 0; turn < b->o->check && *nwrong == 0; turn++) {
        ls_bench_case c = case_of(b, j, b->round++);
        size_t first = j->coll == LS_REDUCE_SCATTER ? (size_t)b->rank * j->share : 0;
        double wrong = 0;
        fill(b, j, c.round);
        LS_TRY(operations(b, j));
        for (int slot = 0; slot < (int)b->o->agg; slot++)
            if (j->count > 0) wrong += (double)ls_bench_wrong(&c, b->rank, first, output_count(j), output(b, j, slot));
        b->wrong += wrong;
        LS_TRY(gather(b->g, wrong, v));
        *nwrong = combine(v, b->size, 1) * b->size;
    }
    return LS_OK;
}

static ls_status placement(bench *b, job j, bool in_place, int *iters, ls_bench_result *out)
{
    j.in_place = in_place;
    fill(b, &j, b->round++);
    LS_TRY(measure(b, &j, iters, out));
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
        ls_bench_row row = { .bytes = j.nbytes, .count = j.share, .dtype = ls_dtype_name(dtype), .root = -1,
                             .op = reduces(j.coll) ? ls_redop_name(op) : "none" };
        if (j.coll == LS_BROADCAST) row.root = (int)o->root;
        LS_TRY(placement(b, j, false, &row.iterations, &row.out_of_place));
        LS_TRY(placement(b, j, true, &row.iterations, &row.in_place));
        if (report) ls_bench_report_row(report, &row);

        size_t next = o->step_factor > 1 ? nbytes * (size_t)o->step_factor : nbytes + o->step_bytes;
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
    if (o->per_iter) {
        size_t n = 2 * (size_t)o->iters;
        b->each = calloc(n, sizeof *b->each);
        b->all = calloc(n * (size_t)b->size, sizeof *b->all);
        if (!b->each || !b->all) return ls_fail(LS_NO_MEMORY, "times of %zu iterations", n);
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
    ls_bench_device device[LS_MAX_RANKS];
    double v[LS_MAX_RANKS];
    int color;
    ls_status st = split(&b, &color);
    if (st == LS_OK) st = buffers(&b);
    if (st == LS_OK && prints) st = ls_bench_report_open(&report, o, stdout);
    if (st == LS_OK) st = introduce(&b, color, device);
    report.ranks_from = ls_world_source(w);
    if (st == LS_OK && prints) ls_bench_report_header(&report, device, ls_world_size(w));
    if (st == LS_OK) st = all_rows(&b, prints ? &report : NULL);
    if (st == LS_OK) st = gather(ls_world_group(w), b.wrong, v);
    if (st == LS_OK && prints) st = ls_bench_report_close(&report);
    if (st == LS_OK && prints) {
        double wrong = combine(v, ls_world_size(w), 1) * ls_world_size(w);
        if (wrong > 0) st = ls_fail(LS_INTERNAL, "%.0f elements of results were wrong: do not trust this transport or algorithm", wrong);
    }
    ls_bench_report_free(&report);
    if (b.g != ls_world_group(w) && st == LS_OK) ls_group_destroy(b.g);
    free(b.all);
    free(b.each);
    free(b.own_recv);
    free(b.own_send);
    return st;
}
