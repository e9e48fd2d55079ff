/* Collectives that another library carries out: what is said when it cannot be had; and, as a rank that mpirun
 * started (tests/test_mpi.sh: test_backend ranks inline|thread|ordered), the same results as Lockstep's own. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/context.h"
#include "coll/reduce.h"
#include "group/backend.h"
#include "lockstep/group.h"

#define MOST_RANKS 64

/* --- as a rank: everything twice, once with each backend --------------------------------------------------- */

#define MOST 70001   /* elements of a vector */

/* Results of the first pass, to be compared with those of the second. */
typedef struct notebook {
    char *p;
    size_t n, cap, at;
    bool second, exact;  /* exact: averages too, and 16-bit types */
} notebook;

typedef struct pass {
    ls_world *w;
    ls_group *g;
    notebook *book;
    char *in, *out;      /* [MOST * 8] */
    long cases;
} pass;

static double value(ls_dtype d, const char *p, size_t i)
{
    uint16_t h;
    switch (d) {
    case LS_F32: return (double)((const float *)(const void *)p)[i];
    case LS_F64: return ((const double *)(const void *)p)[i];
    case LS_BF16: memcpy(&h, p + 2 * i, 2); return (double)ls_bf16_to_f32(h);
    case LS_F16: memcpy(&h, p + 2 * i, 2); return (double)ls_f16_to_f32(h);
    case LS_I32: return (double)((const int32_t *)(const void *)p)[i];
    case LS_I64: return (double)((const int64_t *)(const void *)p)[i];
    case LS_U8: return (double)((const uint8_t *)p)[i];
    default: return NAN;
    }
}

static void put(ls_dtype d, char *p, size_t i, int v)
{
    uint16_t h;
    switch (d) {
    case LS_F32: ((float *)(void *)p)[i] = (float)v; break;
    case LS_F64: ((double *)(void *)p)[i] = v; break;
    case LS_BF16: h = ls_f32_to_bf16((float)v); memcpy(p + 2 * i, &h, 2); break;
    case LS_F16: h = ls_f32_to_f16((float)v); memcpy(p + 2 * i, &h, 2); break;
    case LS_I32: ((int32_t *)(void *)p)[i] = v; break;
    case LS_I64: ((int64_t *)(void *)p)[i] = v; break;
    case LS_U8: ((uint8_t *)p)[i] = (uint8_t)v; break;
    default: break;
    }
}

/* Small whole numbers: sums, products and extremes of a few of them are exact in every type. */
static void fill(ls_dtype d, ls_redop op, char *p, size_t n, int rank)
{
    for (size_t i = 0; i < n; i++)
        put(d, p, i, op == LS_PROD ? 1 + (int)((i + (size_t)rank) % 2) : 1 + (int)((i + 7 * (size_t)rank) % 5));
}

/* An average of values up to 5 is rounded once a contribution scaled and once a sum. */
static double allowed(ls_dtype d, ls_redop op, int size)
{
    static const double eps[LS_DTYPES] = { [LS_F32] = 0x1p-23, [LS_F64] = 0x1p-52, [LS_BF16] = 0x1p-7,
                                           [LS_F16] = 0x1p-10 };
    return op == LS_AVG ? 5 * (size + 2) * eps[d] : 0;
}

static ls_status note(pass *x, const char *what, ls_dtype d, ls_redop op, const char *p, size_t n)
{
    notebook *b = x->book;
    size_t nbytes = n * ls_dtype_size(d), room = (nbytes + 7) / 8 * 8; /* every note is aligned for its type */
    x->cases++;
    if (!b->second) {
        if (b->n + room > b->cap) {
            b->cap = 2 * (b->n + room);
            b->p = realloc(b->p, b->cap);
            if (!b->p) return ls_fail(LS_NO_MEMORY, "the results");
        }
        if (nbytes > 0) memcpy(b->p + b->n, p, nbytes);
        b->n += room;
        return LS_OK;
    }
    const char *own = b->p + b->at;
    b->at += room;
    for (size_t i = 0; i < n; i++) {
        double got = value(d, p, i), want = value(d, own, i);
        if (!(fabs(got - want) <= (b->exact ? 0 : allowed(d, op, ls_group_size(x->g)))))
            return ls_fail(LS_INTERNAL, "rank %d: %s of %s, %s: element %zu of %zu is %g, Lockstep's own is %g",
                           ls_world_rank(x->w), what, ls_dtype_name(d), ls_redop_name(op), i, n, got, want);
    }
    return LS_OK;
}

static ls_range share_of(const ls_group *g, size_t n)
{
    ls_range s;
    (void)ls_shard_range(n, ls_group_rank(g), ls_group_size(g), &s);
    return s;
}

static ls_status reductions(pass *x, ls_dtype d, ls_redop op, size_t n)
{
    ls_group *g = x->g;
    int rank = ls_group_rank(g), last = ls_group_size(g) - 1;
    size_t elem = ls_dtype_size(d);
    ls_range own = share_of(g, n);
    fill(d, op, x->in, n, rank);
    LS_TRY(ls_all_reduce(g, x->in, x->out, n, d, op));
    LS_TRY(note(x, "all_reduce", d, op, x->out, n));
    fill(d, op, x->out, n, rank);
    LS_TRY(ls_all_reduce(g, NULL, x->out, n, d, op));
    LS_TRY(note(x, "all_reduce in place", d, op, x->out, n));
    LS_TRY(ls_reduce_scatter(g, x->in, x->out, n, d, op));
    LS_TRY(note(x, "reduce_scatter", d, op, x->out, own.count));
    fill(d, op, x->out, n, rank);
    LS_TRY(ls_reduce_scatter(g, NULL, x->out, n, d, op));
    LS_TRY(note(x, "reduce_scatter in place", d, op, x->out + own.first * elem, own.count));
    LS_TRY(ls_reduce(g, x->in, rank == last ? x->out : NULL, n, d, op, last));
    if (rank == last) LS_TRY(note(x, "reduce", d, op, x->out, n));
    fill(d, op, x->out, n, rank);
    LS_TRY(ls_reduce(g, rank == 0 ? NULL : x->in, x->out, n, d, op, 0));
    return rank == 0 ? note(x, "reduce in place", d, op, x->out, n) : LS_OK;
}

static ls_status moves(pass *x, ls_dtype d, size_t n)
{
    ls_group *g = x->g;
    int rank = ls_group_rank(g), size = ls_group_size(g), last = size - 1;
    size_t elem = ls_dtype_size(d), each = n - n % (size_t)size;
    ls_range own = share_of(g, n);
    fill(d, LS_SUM, x->in, n, rank);
    LS_TRY(ls_all_gather(g, x->in, x->out, n, d));
    LS_TRY(note(x, "all_gather", d, LS_SUM, x->out, n));
    fill(d, LS_SUM, x->out, n, rank);
    LS_TRY(ls_all_gather(g, NULL, x->out, n, d));
    LS_TRY(note(x, "all_gather in place", d, LS_SUM, x->out, n));
    fill(d, LS_SUM, x->out, n, rank);
    LS_TRY(ls_broadcast(g, x->out, n, d, last));
    LS_TRY(note(x, "broadcast", d, LS_SUM, x->out, n));
    LS_TRY(ls_gather(g, x->in, rank == last ? x->out : NULL, n, d, last));
    if (rank == last) LS_TRY(note(x, "gather", d, LS_SUM, x->out, n));
    fill(d, LS_SUM, x->out, n, rank);
    LS_TRY(ls_gather(g, rank == 0 ? NULL : x->in, rank == 0 ? x->out : NULL, n, d, 0));
    if (rank == 0) LS_TRY(note(x, "gather in place", d, LS_SUM, x->out, n));
    LS_TRY(ls_scatter(g, rank == last ? x->in : NULL, x->out, n, d, last));
    LS_TRY(note(x, "scatter", d, LS_SUM, x->out, own.count));
    LS_TRY(ls_scatter(g, rank == 0 ? x->in : NULL, rank == 0 ? NULL : x->out, n, d, 0));
    LS_TRY(note(x, "scatter in place", d, LS_SUM, rank == 0 ? x->in + own.first * elem : x->out, own.count));
    LS_TRY(ls_all_to_all(g, x->in, x->out, each, d));
    LS_TRY(note(x, "all_to_all", d, LS_SUM, x->out, each));
    fill(d, LS_SUM, x->out, n, rank);
    LS_TRY(ls_all_to_all(g, NULL, x->out, each, d));
    return note(x, "all_to_all in place", d, LS_SUM, x->out, each);
}

/* Counts per rank, some of them zero. */
static ls_status uneven(pass *x, ls_dtype d, ls_redop op)
{
    ls_group *g = x->g;
    int rank = ls_group_rank(g), size = ls_group_size(g), last = size - 1;
    size_t counts[MOST_RANKS], to[MOST_RANKS], from[MOST_RANKS], n = 0, got = 0;
    for (int r = 0; r < size; r++) {
        counts[r] = r % 3 == 1 ? 0 : 5 * (size_t)r + 1;
        to[r] = (size_t)(rank + 2 * r) % 4;
        from[r] = (size_t)(r + 2 * rank) % 4;
        n += counts[r];
        got += from[r];
    }
    fill(d, op, x->in, n, rank);
    LS_TRY(ls_reduce_scatter_v(g, x->in, x->out, counts, d, op));
    LS_TRY(note(x, "reduce_scatter_v", d, op, x->out, counts[rank]));
    LS_TRY(ls_all_gather_v(g, x->in, x->out, counts, d));
    LS_TRY(note(x, "all_gather_v", d, LS_SUM, x->out, n));
    LS_TRY(ls_gather_v(g, x->in, rank == last ? x->out : NULL, counts, d, last));
    if (rank == last) LS_TRY(note(x, "gather_v", d, LS_SUM, x->out, n));
    LS_TRY(ls_scatter_v(g, rank == last ? x->in : NULL, x->out, counts, d, last));
    LS_TRY(note(x, "scatter_v", d, LS_SUM, x->out, counts[rank]));
    LS_TRY(ls_all_to_all_v(g, x->in, to, x->out, from, d));
    return note(x, "all_to_all_v", d, LS_SUM, x->out, got);
}

/* Messages around a ring, both ways at once, in a batch, and one that is awaited long before it comes. */
static ls_status messages(pass *x, ls_dtype d, size_t n)
{
    ls_group *g = x->g;
    int rank = ls_group_rank(g), size = ls_group_size(g), next = (rank + 1) % size, before = (rank + size - 1) % size;
    size_t elem = ls_dtype_size(d), half = n / 2;
    if (size == 1) return LS_OK;
    fill(d, LS_SUM, x->in, n, rank);
    ls_p2p ring[] = { { .send = x->in, .count = half, .dtype = d, .peer = next },
                      { .recv = x->out, .count = half, .dtype = d, .peer = before },
                      { .send = x->in + half * elem, .count = n - half, .dtype = d, .peer = before },
                      { .recv = x->out + half * elem, .count = n - half, .dtype = d, .peer = next } };
    LS_TRY(ls_p2p_batch(g, ring, 4));
    LS_TRY(note(x, "a batch of messages", d, LS_SUM, x->out, n));

    /* rank 0 waits for a message that comes after a collective */
    const ls_p2p last = { .recv = x->out, .count = n, .dtype = d, .peer = size - 1 };
    ls_work *early = NULL;
    if (rank == 0) LS_TRY(ls_p2p_start(g, &last, NULL, &early));
    LS_TRY(ls_barrier(g));
    if (rank == size - 1) LS_TRY(ls_send(g, x->in, n, d, 0));
    LS_TRY(ls_work_wait(early));
    return rank == 0 ? note(x, "a message awaited early", d, LS_SUM, x->out, n) : LS_OK;
}

/* Several in flight at once, waited for in another order. */
static ls_status in_flight(pass *x, size_t n)
{
    enum { N = 8 };
    ls_work *work[N];
    int rank = ls_group_rank(x->g);
    size_t part = n / N;
    fill(LS_F32, LS_SUM, x->out, n, rank);
    for (size_t i = 0; i < N; i++) {
        ls_coll_args a = { .coll = LS_ALL_REDUCE, .out = x->out + 4 * i * part, .count = part, .dtype = LS_F32,
                           .op = LS_SUM, .label = "part" };
        LS_TRY(ls_coll_start(x->g, &a, &work[i]));
        LS_TRY(ls_progress(x->w, 1000));
    }
    for (size_t i = N; i-- > 0;) LS_TRY(ls_work_wait(work[i]));
    return note(x, "8 all_reduces in flight", LS_F32, LS_SUM, x->out, N * part);
}

static ls_status in_group(pass *x)
{
    static const size_t counts[] = { 0, 1, 7, 1000 };
    for (int d = 0; d < LS_DTYPES; d++) {
        bool is_float = d == LS_F32 || d == LS_F64 || d == LS_BF16 || d == LS_F16;
        for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
            for (int op = 0; op < LS_REDOPS; op++)
                if (op != LS_AVG || is_float) LS_TRY(reductions(x, (ls_dtype)d, (ls_redop)op, counts[c]));
            LS_TRY(moves(x, (ls_dtype)d, counts[c]));
            LS_TRY(messages(x, (ls_dtype)d, counts[c]));
        }
        LS_TRY(uneven(x, (ls_dtype)d, is_float ? LS_AVG : LS_SUM));
    }
    LS_TRY(reductions(x, LS_F32, LS_AVG, MOST));
    LS_TRY(reductions(x, LS_BF16, LS_SUM, MOST));
    LS_TRY(moves(x, LS_I64, MOST));
    LS_TRY(messages(x, LS_F64, MOST));
    LS_TRY(in_flight(x, MOST));
    return ls_barrier(x->g);
}

/* The world, halves of it, and overlapping groups that take turns. */
static ls_status one_pass(const char *backend, ls_progress_mode progress, notebook *book, long *cases)
{
    ls_world_opts o = { .backend = backend, .progress = progress, .coll_timeout_ns = 60000000000u,
                        .rank_order = book->second && book->exact };
    ls_world *w;
    ls_group *half, *some;
    LS_TRY(ls_world_join(&o, &w));
    pass x = { .w = w, .g = ls_world_group(w), .book = book, .in = calloc(MOST, 8), .out = calloc(MOST, 8) };
    int rank = ls_world_rank(w);
    ls_status st = x.in && x.out ? LS_OK : ls_fail(LS_NO_MEMORY, "two vectors");
    if (st == LS_OK) st = in_group(&x);
    if (st == LS_OK) st = ls_group_split(x.g, rank % 2, &half);
    if (st == LS_OK) st = ls_group_split(x.g, rank == 0 ? -1 : 7, &some);
    if (st == LS_OK) {
        x.g = half;
        st = in_group(&x);
    }
    if (st == LS_OK && some) {
        x.g = some;
        st = uneven(&x, LS_F32, LS_SUM);
    }
    if (st == LS_OK) {
        ls_group_destroy(some);
        ls_group_destroy(half);
        x.g = ls_world_group(w);
        st = uneven(&x, LS_F64, LS_MAX);
    }
    if (st < 0) (void)ls_world_abort(w, st);
    ls_world_leave(w);
    *cases = x.cases;
    free(x.in);
    free(x.out);
    return st;
}

static int as_rank(const char *mode)
{
    notebook book = { 0 };
    long own = 0, theirs = 0;
    int rank, size;
    ls_progress_mode progress = strcmp(mode, "thread") == 0 ? LS_PROGRESS_THREAD : LS_PROGRESS_INLINE;
    (void)ls_world_launched(&rank, &size);
    book.exact = strcmp(mode, "ordered") == 0;
    ls_status st = one_pass("sched", progress, &book, &own);
    book.second = true;
    if (st == LS_OK) st = one_pass("mpi", progress, &book, &theirs);
    if (st == LS_OK && (own != theirs || book.at != book.n || own < 100)) st = ls_fail(LS_INTERNAL, "%ld and %ld cases", own, theirs);
    if (st < 0 && st != LS_ABORTED) fprintf(stderr, "test_backend: %s: %s\n", ls_status_word(st), ls_last_error());
    if (st == LS_OK && rank == 0) printf("%ld results of %d ranks are Lockstep's own\n", own, size);
    free(book.p);
    return ls_status_exit_code(st);
}

/* Rank 1 does something else than the others, or ends: what do these say? */
static ls_status misbehave(ls_world *w, const char *how)
{
    ls_group *g = ls_world_group(w);
    bool odd = ls_world_rank(w) == 1;
    float x[64] = { 0 };
    LS_TRY(ls_all_reduce(g, NULL, x, 64, LS_F32, LS_SUM));
    if (strcmp(how, "die") == 0 && odd) abort();
    if (strcmp(how, "count") == 0) return ls_all_reduce(g, NULL, x, odd ? 32 : 64, LS_F32, LS_SUM);
    if (strcmp(how, "op") == 0) return ls_all_reduce(g, NULL, x, 64, LS_F32, odd ? LS_MAX : LS_SUM);
    if (strcmp(how, "coll") == 0 && odd) return ls_broadcast(g, x, 64, LS_F32, 0);
    if (strcmp(how, "message") == 0)
        return odd ? ls_send(g, x, 8, LS_F32, 0) : ls_world_rank(w) == 0 ? ls_recv(g, x, 8, LS_I32, 1) : LS_OK;
    return ls_all_reduce(g, NULL, x, 64, LS_F32, LS_SUM);
}

static int as_odd_rank(const char *how)
{
    ls_world_opts o = { .backend = "mpi", .coll_timeout_ns = 3000000000u };
    ls_world *w = NULL;
    ls_status st = ls_world_join(&o, &w);
    if (st == LS_OK) st = misbehave(w, how);
    if (st == LS_OK) st = ls_barrier(ls_world_group(w)); /* who did its part learns what became of the others' */
    if (st < 0) fprintf(stderr, "test_backend: %s: %s\n", ls_status_word(st), ls_last_error());
    if (st < 0 && w) (void)ls_world_abort(w, st);
    ls_world_leave(w);
    return ls_status_exit_code(st);
}

/* --- alone: what is said where there is no mpirun, or no plugin -------------------------------------------------- */

static const char *extra; /* a variable that the process seems to have */

static const char *fake_getenv(const char *name)
{
    size_t n = strlen(name);
    if (extra && strncmp(extra, name, n) == 0 && extra[n] == '=') return extra + n + 1;
    if (strcmp(name, "PMI_RANK") == 0) return extra ? "0" : NULL;
    if (strcmp(name, "PMI_SIZE") == 0) return extra ? "1" : NULL;
    return NULL;
}

static const char fake_table_abi[] = "interface";
static ls_backend_ops fake_table;

/* A plugin lies wherever it is looked for, or nowhere. */
static int fake_info(const char *path, ls_file_info *out)
{
    (void)path;
    *out = (ls_file_info){ .type = strstr(extra, "absent") ? LS_FILE_NONE : LS_FILE_REGULAR };
    return 0;
}

static void *fake_library(const char *path, bool shared, char *why, size_t n)
{
    (void)shared;
    if (strstr(extra, "absent") || strstr(extra, "none")) {
        snprintf(why, n, "libmpich.so.12: cannot open shared object file");
        return NULL;
    }
    assert_non_null(strstr(path, "liblockstep_mpi-mpich.so"));
    return fake_table.made_for ? (void *)(uintptr_t)fake_table_abi : NULL;
}

static void *fake_symbol(void *library, const char *name)
{
    if (!library) return NULL;
    return strcmp(name, LS_BACKEND_SYMBOL) == 0 && !strstr(extra, "foreign") ? &fake_table : NULL;
}

/* Joins a world of one with backend `name` and this process's variables. */
static ls_status join_as(const char *variable, const char *name, const char *algo)
{
    ls_env env = *ls_env_get();
    env.getenv = fake_getenv;
    env.info = fake_info;
    env.library = fake_library;
    env.symbol = fake_symbol;
    ls_context c = { .env = &env, .rank = -1 };
    ls_world_opts o = { .backend = name, .algo = algo };
    ls_world *w = NULL;
    extra = variable;
    ls_context *before = ls_context_swap(&c);
    ls_status st = ls_world_join(&o, &w);
    ls_world_leave(w);
    ls_context_swap(before);
    return st < 0 ? ls_fail(st, "%s", c.error) : st;
}

static void says_why_mpi_cannot_be_had(void **state)
{
    (void)state;
    const ls_backend_ops good = { .abi = LS_BACKEND_ABI, .nbytes = sizeof good, .version = LOCKSTEP_VERSION,
                                  .made_for = "MPICH" };
    ls_backend_ops newer = good, smaller = good, older = good, other = good;
    newer.abi = 99;
    newer.version = "0.0.1";
    smaller.nbytes = 8;
    older.version = "0.0.1";
    other.made_for = "Open MPI";
    const struct {
        const char *set, *backend, *algo;
        ls_backend_ops table;
        ls_status status;
        const char *says;
    } row[] = {
        { NULL, "mpi", NULL, good, LS_UNSUPPORTED, "put mpirun -n 2 before" },
        { NULL, "gloo", NULL, good, LS_BAD_CONFIG, "expected sched or mpi" },
        { "X=", "mpi", "ring", good, LS_BAD_CONFIG, "chooses its own" },
        { "X=absent", "mpi", NULL, good, LS_UNSUPPORTED, "liblockstep_mpi-mpich.so is not there (MPICH)" },
        { "X=none", "mpi", NULL, good, LS_UNSUPPORTED, "libmpich.so.12: cannot open" },
        { "X=foreign", "mpi", NULL, good, LS_UNSUPPORTED, "no plugin of Lockstep" },
        { "X=", "mpi", NULL, newer, LS_UNSUPPORTED, "interface 99 of 0.0.1" },
        { "X=", "mpi", NULL, smaller, LS_UNSUPPORTED, "build it again" },
        { "X=", "mpi", NULL, older, LS_UNSUPPORTED, "of 0.0.1" },
        { "X=", "mpi", NULL, other, LS_UNSUPPORTED, "not for MPICH" },
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        fake_table = row[i].table;
        ls_status st = join_as(row[i].set, row[i].backend, row[i].algo);
        if (st != row[i].status || !strstr(ls_last_error(), row[i].says))
            fail_msg("row %zu: status %d, '%s' lacks '%s'", i, (int)st, ls_last_error(), row[i].says);
    }
}

static ls_status nothing(ls_world *w, void *arg)
{
    (void)w;
    (void)arg;
    return LS_OK;
}

static void wants_a_process_for_each_rank(void **state)
{
    (void)state;
    ls_world_opts o = { .backend = "mpi" };
    assert_int_equal(ls_world_threads(2, &o, nothing, NULL), LS_UNSUPPORTED);
    assert_non_null(strstr(ls_last_error(), "ranks are threads"));
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "ranks") == 0) return as_rank(argv[2]);
    if (argc == 3 && strcmp(argv[1], "odd") == 0) return as_odd_rank(argv[2]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(says_why_mpi_cannot_be_had),
        cmocka_unit_test(wants_a_process_for_each_rank),
    };
    return cmocka_run_group_tests_name("backend", tests, NULL, NULL);
}
