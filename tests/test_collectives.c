/* Every collective by every algorithm, with real bytes through the calls of group.h: over shm and tcp, among processes
 * and threads, 1 to 9 ranks and 16, all types and operators, vectors of no elements and of many, equal shares and
 * counts per rank. Every byte of every buffer is looked at, also of those that belong to nobody. One world runs a
 * table of cases. The whole product is in long_collectives.sh. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "group/group.h"
#include "harness.h"
#include "harness_values.h"

#define MANY 20011  /* elements: many pieces of a pipe, an odd number */
#define MOST 300007 /* of float: over a MiB, where schedules have two lanes */
#define GUARD 16    /* elements on either side that nobody may touch */
#define BYTES ((MOST * sizeof(float) + 2 * GUARD * sizeof(double) + 63) / 64 * 64)
_Static_assert(BYTES >= (2 * MANY + 2 * GUARD) * sizeof(double), "uneven blocks of the widest type fit");

typedef enum place { REGISTERED, PRIVATE, EVEN_RANKS_REGISTERED, ODD_RANKS_REGISTERED, PLACES } place;
static const char *const place_name[] = { "registered", "private", "registered on even ranks",
                                          "registered on odd ranks" };

typedef struct row {
    ls_coll coll;
    const ls_algo *algo; /* NULL: by size */
    ls_dtype dtype;
    ls_redop op;
    size_t count;
    int root;
    place place;
    bool in_place, uneven;
} row;

typedef struct rank_state {
    ls_world *w;
    ls_group *g;
    int rank, size;
    char *registered[2], *private[2], *before[2]; /* in and out; what stood there before the call */
    unsigned turn;
} rank_state;

static bool has_shares(ls_coll c)
{
    return c == LS_ALL_GATHER || c == LS_REDUCE_SCATTER || c == LS_GATHER || c == LS_SCATTER || c == LS_ALL_TO_ALL;
}
static bool has_root(ls_coll c) { return c == LS_BROADCAST || c == LS_REDUCE || c == LS_GATHER || c == LS_SCATTER; }
static bool reduces(ls_coll c) { return c == LS_ALL_REDUCE || c == LS_REDUCE_SCATTER || c == LS_REDUCE; }
static bool is_integer(ls_dtype t) { return t == LS_I32 || t == LS_I64 || t == LS_U8; }

/* --- values ----------------------------------------------------------------------------------------------- */

/* What a rank brings. Sums over 16 ranks stay below 256 and products below 32, so every type holds them exactly. Of an
 * average one rank brings all, so that nothing is rounded but what must be. */
static double value(const row *x, int n, int rank, size_t i)
{
    int e = (int)(i % 7);
    if (!reduces(x->coll)) return (double)((31 * rank + (int)(i % 997)) % 251);
    if (x->op == LS_PROD) return (rank + e) % 4 == 0 ? 2.0 : 1.0;
    if (x->op == LS_AVG) return (int)(i % (size_t)n) == rank ? 1.0 + e : 0.0;
    return rank + 1.0 + e;
}

static double combined(const row *x, int n, size_t i)
{
    double v = value(x, n, 0, i);
    for (int r = 1; r < n; r++) {
        double y = value(x, n, r, i);
        if (x->op == LS_PROD) v *= y;
        else if (x->op == LS_MAX) v = v > y ? v : y;
        else if (x->op == LS_MIN) v = v < y ? v : y;
        else v += y;
    }
    if (x->op != LS_AVG) return v;
    if (x->dtype == LS_F64) return v * (1.0 / n);
    double mean[1];
    ls_test_put(x->dtype, mean, 0, (double)((float)v * (float)(1.0 / n)));
    return ls_test_get(x->dtype, mean, 0);
}

static ls_range share(const rank_state *b, const row *x, int r)
{
    return ls_test_share(x->count, r, b->size, x->uneven);
}

/* Element i of the vector that a rank ends with. */
static double expected(const rank_state *b, const row *x, size_t i)
{
    switch (x->coll) {
    case LS_BROADCAST:
    case LS_SCATTER: return value(x, b->size, x->root, i);
    case LS_ALL_GATHER:
    case LS_GATHER:
        for (int r = 0; r < b->size; r++)
            if (i - share(b, x, r).first < share(b, x, r).count) return value(x, b->size, r, i);
        return NAN;
    case LS_ALL_TO_ALL:
        for (int from = 0; from < b->size; from++) {
            size_t n = ls_test_block(x->count, from, b->rank, b->size, x->uneven);
            if (i >= n) {
                i -= n;
                continue;
            }
            for (int to = 0; to < b->rank; to++) i += ls_test_block(x->count, from, to, b->size, x->uneven);
            return value(x, b->size, from, i);
        }
        return NAN;
    default: return combined(x, b->size, i);
    }
}

/* --- one case --------------------------------------------------------------------------------------------- */

static ls_status wrong(const rank_state *b, const row *x, const char *what, size_t i, double got, double want)
{
    return ls_fail(LS_INTERNAL, "rank %d: %s: %s of %zu %s, %s, %s%s%s, algorithm %s, root %d: element %zu is %g, expected %g",
                   b->rank, what, ls_coll_name(x->coll), x->count, ls_dtype_name(x->dtype), ls_redop_name(x->op),
                   place_name[x->place], x->in_place ? ", in place" : "", x->uneven ? ", uneven" : "",
                   x->algo ? x->algo->name : "by size", x->root, i, got, want);
}

static ls_status call(const rank_state *b, const row *x, const void *in, void *out)
{
    size_t counts[LS_TEST_RANKS], from[LS_TEST_RANKS];
    for (int r = 0; r < b->size; r++) {
        bool blocks = x->coll == LS_ALL_TO_ALL;
        counts[r] = blocks ? ls_test_block(x->count, b->rank, r, b->size, x->uneven) : share(b, x, r).count;
        from[r] = ls_test_block(x->count, r, b->rank, b->size, x->uneven);
    }
    ls_group *g = b->g;
    const bool v = x->uneven;
    switch (x->coll) {
    case LS_ALL_REDUCE: return ls_all_reduce(g, in, out, x->count, x->dtype, x->op);
    case LS_REDUCE_SCATTER:
        return v ? ls_reduce_scatter_v(g, in, out, counts, x->dtype, x->op)
                 : ls_reduce_scatter(g, in, out, x->count, x->dtype, x->op);
    case LS_ALL_GATHER:
        return v ? ls_all_gather_v(g, in, out, counts, x->dtype) : ls_all_gather(g, in, out, x->count, x->dtype);
    case LS_BROADCAST: return ls_broadcast(g, out, x->count, x->dtype, x->root);
    case LS_REDUCE: return ls_reduce(g, in, out, x->count, x->dtype, x->op, x->root);
    case LS_GATHER:
        return v ? ls_gather_v(g, in, out, counts, x->dtype, x->root)
                 : ls_gather(g, in, out, x->count, x->dtype, x->root);
    case LS_SCATTER:
        return v ? ls_scatter_v(g, in, out, counts, x->dtype, x->root)
                 : ls_scatter(g, in, out, x->count, x->dtype, x->root);
    case LS_ALL_TO_ALL:
        return v ? ls_all_to_all_v(g, in, counts, out, from, x->dtype) : ls_all_to_all(g, in, out, x->count, x->dtype);
    default: return ls_barrier(g);
    }
}

/* Where a rank's data stand before the call, and its results after it: elements [at, at + n) of a buffer are elements
 * [first, first + n) of the vector. */
typedef struct part { bool out; size_t at, first, n; } part;

static void parts(const rank_state *b, const row *x, part *given, part *result, part *undefined)
{
    const ls_range own = share(b, x, b->rank);
    const part whole = { true, 0, 0, x->count }, mine = { true, own.first, own.first, own.count },
               alone = { true, 0, own.first, own.count }, none = { true, 0, 0, 0 };
    const bool root = b->rank == x->root, apart = !x->in_place;
    *undefined = none;
    switch (x->coll) {
    case LS_ALL_REDUCE: *given = *result = whole; break;
    case LS_REDUCE_SCATTER:
        *given = whole;
        *result = apart ? alone : mine;
        if (!apart) *undefined = whole;
        break;
    case LS_ALL_GATHER: *given = apart ? alone : mine, *result = whole; break;
    case LS_BROADCAST: *given = root ? whole : none, *result = whole; break;
    case LS_REDUCE: *given = whole, *result = root ? whole : none; break;
    case LS_GATHER: *given = apart || !root ? alone : mine, *result = root ? whole : none; break;
    case LS_SCATTER: *given = root ? whole : none, *result = root && !apart ? mine : alone; break;
    case LS_ALL_TO_ALL:
        *given = *result = none;
        given->n = ls_test_blocks(x->count, b->rank, b->size, x->uneven, true);
        result->n = ls_test_blocks(x->count, b->rank, b->size, x->uneven, false);
        break;
    default: *given = *result = none; break;
    }
    /* in place the data stand in `out`; but a rank that only brings, or only takes, has just one buffer */
    given->out = x->coll == LS_BROADCAST || (x->in_place && !(x->coll == LS_GATHER && !root));
    result->out = !(x->coll == LS_SCATTER && root && x->in_place);
    if (x->coll == LS_SCATTER && root) given->out = false;
    if (x->coll == LS_GATHER && !root) given->out = false;
}

static ls_status run_row(rank_state *b, const row *x)
{
    const size_t elem = ls_dtype_size(x->dtype), pad = GUARD * elem;
    bool registered = x->place == REGISTERED || (x->place == EVEN_RANKS_REGISTERED && b->rank % 2 == 0) ||
                      (x->place == ODD_RANKS_REGISTERED && b->rank % 2 == 1);
    char *const *const buf = registered ? b->registered : b->private;
    size_t most = x->coll == LS_ALL_TO_ALL && x->uneven ? 2 * x->count : x->count, nbytes = most * elem + 2 * pad;
    part given, result, undefined;
    parts(b, x, &given, &result, &undefined);

    for (int i = 0; i < 2; i++) memset(buf[i], 0x5a, nbytes);
    for (size_t i = 0; i < given.n; i++)
        ls_test_put(x->dtype, buf[given.out] + pad, given.at + i, value(x, b->size, b->rank, given.first + i));
    for (int i = 0; i < 2; i++) memcpy(b->before[i], buf[i], nbytes);

    /* NULL wherever a buffer is not needed, and both spellings of "in place" */
    const bool root = b->rank == x->root, half = b->turn++ % 2;
    const void *in = buf[0] + pad;
    void *out = buf[1] + pad;
    if (given.out) in = half && x->coll != LS_GATHER ? out : NULL;
    if (x->coll == LS_SCATTER && !root) in = NULL;
    if (x->coll == LS_SCATTER && root && x->in_place) out = NULL;
    if ((x->coll == LS_REDUCE || x->coll == LS_GATHER) && !root && half && !given.out) out = NULL;
    b->g->forced = x->algo; /* as comm.algo does for a whole world */
    LS_TRY(call(b, x, in, out));

    const char *p = buf[result.out] + pad;
    for (size_t i = 0; i < result.n; i++) {
        double got = ls_test_get(x->dtype, p, result.at + i), want = expected(b, x, result.first + i);
        if (got != want) return wrong(b, x, "result", result.first + i, got, want);
    }
    /* all else is as it was */
    if (result.n > 0) memcpy(b->before[result.out] + pad + result.at * elem, p + result.at * elem, result.n * elem);
    if (undefined.n > 0) memcpy(b->before[1] + pad, buf[1] + pad, undefined.n * elem);
    for (int i = 0; i < 2; i++)
        for (size_t k = 0; k < nbytes && memcmp(b->before[i], buf[i], nbytes) != 0; k++)
            if (b->before[i][k] != buf[i][k])
                return wrong(b, x, i ? "outside of the result" : "the input", (k - pad) / elem, buf[i][k], b->before[i][k]);
    return LS_OK;
}

/* --- the table -------------------------------------------------------------------------------------------- */

typedef enum depth { QUICK, THOROUGH, COMPLETE } depth;

typedef struct plan {
    depth depth;
    uint64_t *digest; /* [algorithms][collectives][2], shared by all worlds: 0 until the first has run */
} plan;

static bool goes_together(ls_coll coll, ls_dtype dtype, ls_redop op)
{
    if (!reduces(coll)) return op == LS_SUM;
    return op != LS_AVG || !is_integer(dtype);
}

/* The table takes placements and ways to pass the buffers in turn. */
static ls_status run_one(rank_state *b, row x, unsigned *turn)
{
    if (x.coll == LS_ALL_TO_ALL) x.count -= x.count % (size_t)b->size;
    *turn += 3; /* shares no factor with the ways */
    x.place = (place)(*turn / 2 % PLACES);
    x.in_place = *turn % 2;
    return run_row(b, &x);
}

/* Sizes, with types and operators in turn; thorough: then all types and operators at one size; complete: their
 * product. */
static ls_status one_way(rank_state *b, row x, depth deep)
{
    const bool complete = deep == COMPLETE;
    const size_t n = (size_t)b->size, counts[] = { 0, 1, n - 1, n + 1, 37 * n + 1, MANY };
    const size_t ncounts = sizeof counts / sizeof *counts;
    unsigned turn = (unsigned)x.root;
    if (x.coll == LS_BARRIER) return run_row(b, &x);
    for (size_t c = 0; c < ncounts; c++)
        for (int k = 0; k < LS_DTYPES * LS_REDOPS; k++) {
            x.count = counts[c];
            x.dtype = (ls_dtype)(k % LS_DTYPES);
            x.op = (ls_redop)(k / LS_DTYPES);
            if (!goes_together(x.coll, x.dtype, x.op)) continue;
            bool in_turn = k == (int)((turn + c) % 7), all_types = c == ncounts - 2 && deep == THOROUGH;
            if (complete || in_turn || (all_types && !x.uneven)) LS_TRY(run_one(b, x, &turn));
        }
    if (x.uneven || (b->size != 2 && b->size != 4 && !complete)) return LS_OK;
    x.count = MOST;
    x.dtype = LS_F32;
    x.op = LS_SUM;
    return run_one(b, x, &turn);
}

static bool fits(const rank_state *b, const ls_algo *a, ls_coll coll)
{
    ls_shape s = { .coll = coll, .size = b->size, .segments = 1, .nlanes = 1, .node = b->g->node };
    return a->colls & 1u << coll && (!a->fits || a->fits(&s));
}

static ls_status whole_table(rank_state *b, depth deep)
{
    for (int coll = 0; coll < LS_COLLS; coll++)
        for (size_t a = 0; a == 0 || ls_algos[a - 1]; a++) {
            const ls_algo *algo = a == 0 ? NULL : ls_algos[a - 1];
            if (coll == LS_SENDRECV || (algo && !fits(b, algo, (ls_coll)coll))) continue;
            for (int root = 0; root < (has_root((ls_coll)coll) ? b->size : 1); root++) {
                bool some = deep == COMPLETE ? root == 0 || root == b->size / 2 || root == b->size - 1
                                              : root == (int)(a + (size_t)coll) % b->size;
                if (has_root((ls_coll)coll) && b->size > 4 && !some) continue;
                row x = { .coll = (ls_coll)coll, .algo = algo, .root = root };
                LS_TRY(one_way(b, x, deep));
                x.uneven = has_shares(x.coll);
                if (x.uneven) LS_TRY(one_way(b, x, deep));
            }
        }
    return LS_OK;
}

/* --- the same bits ---------------------------------------------------------------------------------------- */

static uint64_t digest(const void *p, size_t n)
{
    const unsigned char *c = p;
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < n; i++) h = (h ^ c[i]) * 0x100000001b3u;
    return h | 1;
}

/* A sum of numbers of all sizes: its bits tell the order in which they were added. */
static ls_status sum_noise(rank_state *b, ls_coll coll, ls_dtype dtype, uint64_t *out)
{
    const size_t count = 1009, elem = ls_dtype_size(dtype);
    char *p = b->registered[1];
    for (size_t i = 0; i < count; i++) {
        uint64_t h = ((uint64_t)b->rank << 32 | i) * 0x9e3779b97f4a7c15u;
        h = (h ^ h >> 29) * 0xbf58476d1ce4e5b9u;
        ls_test_put(dtype, p, i, ldexp((double)(int32_t)(h >> 32), -30 + (int)(h & 7)));
    }
    ls_coll_args a = { .coll = coll, .out = p, .count = count, .dtype = dtype, .op = LS_SUM };
    ls_work *k;
    LS_TRY(ls_coll_start(b->g, &a, &k));
    LS_TRY(ls_work_wait(k));
    ls_range mine = { 0, coll == LS_REDUCE && b->rank != 0 ? 0 : count };
    if (coll == LS_REDUCE_SCATTER) mine = ls_test_share(count, b->rank, b->size, false);
    *out = digest(p + mine.first * elem, mine.count * elem);
    return LS_OK;
}

static ls_status same_bits(rank_state *b, const plan *p)
{
    static const ls_coll colls[] = { LS_ALL_REDUCE, LS_REDUCE_SCATTER, LS_REDUCE };
    for (size_t a = 0; ls_algos[a]; a++)
        for (int c = 0; c < 3; c++)
            for (int half = 0; half < 2; half++) {
                uint64_t first, again, all[LS_TEST_RANKS], together;
                const ls_dtype dtype = half ? LS_BF16 : LS_F32;
                if (!fits(b, ls_algos[a], colls[c])) continue;
                b->g->forced = ls_algos[a];
                LS_TRY(sum_noise(b, colls[c], dtype, &first));
                LS_TRY(sum_noise(b, colls[c], dtype, &again));
                const char *what = ls_coll_name(colls[c]), *by = ls_algos[a]->name, *type = ls_dtype_name(dtype);
                LS_EXPECT(first == again, "%s of %s by %s: other bits at the second time", what, type, by);
                all[b->rank] = first;
                b->g->forced = NULL;
                LS_TRY(ls_all_gather(b->g, NULL, all, (size_t)b->size, LS_I64));
                for (int r = 0; colls[c] == LS_ALL_REDUCE && r < b->size; r++)
                    LS_EXPECT(all[r] == first, "%s of %s by %s: ranks %d and %d have other bits", what, type, by, b->rank, r);
                if (b->rank != 0) continue;
                together = digest(all, (size_t)b->size * sizeof *all);
                uint64_t *kept = &p->digest[(a * LS_COLLS + (size_t)colls[c]) * 2 + (size_t)half];
                if (*kept == 0) *kept = together;
                LS_EXPECT(*kept == together, "%s of %s by %s: other bits than in another world", what, type, by);
            }
    return LS_OK;
}

/* --- worlds ----------------------------------------------------------------------------------------------- */

static ls_status table_rank(ls_world *w, void *arg)
{
    const plan *p = arg;
    rank_state b = { .w = w, .g = ls_world_group(w), .rank = ls_world_rank(w), .size = ls_world_size(w) };
    char *memory = malloc(4 * BYTES);
    ls_status st = memory ? LS_OK : ls_fail(LS_NO_MEMORY, "no memory for a test");
    for (int i = 0; i < 2 && st == LS_OK; i++) {
        void *r = NULL;
        st = ls_alloc(w, BYTES, LS_MEM_DATA, &r);
        b.registered[i] = r;
        b.private[i] = memory + (size_t)i * BYTES;
        b.before[i] = memory + (size_t)(i + 2) * BYTES;
    }
    if (st == LS_OK) st = whole_table(&b, p->depth);
    if (st == LS_OK) st = same_bits(&b, p);
    free(memory);
    return st;
}

static const struct {
    ls_test_mode mode;
    const char *transport;
    ls_progress_mode progress;
    const char *name;
} world[] = {
    { LS_TEST_PROCESSES, "shm", LS_PROGRESS_INLINE, "processes over shm" },
    { LS_TEST_THREADS, "shm", LS_PROGRESS_INLINE, "threads over shm" },
    { LS_TEST_PROCESSES, "tcp", LS_PROGRESS_INLINE, "processes over tcp" },
    { LS_TEST_THREADS, "tcp", LS_PROGRESS_INLINE, "threads over tcp" },
    { LS_TEST_THREADS, "shm", LS_PROGRESS_THREAD, "threads over shm, progress by threads of their own" },
    { LS_TEST_THREADS, "tcp", LS_PROGRESS_THREAD, "threads over tcp, progress by threads of their own" },
};
#define WORLDS (int)(sizeof world / sizeof *world)

/* LOCKSTEP_TEST_COMPLETE=N: the whole product for N ranks, in every sort of world. Otherwise 3 ranks are in every sort
 * of world, 8 in those without progress threads, and the others in one, in turn. */
static void gives_right_results(int n)
{
    const char *complete = getenv("LOCKSTEP_TEST_COMPLETE");
    if (complete && atoi(complete) != n) skip();
    size_t nalgos = 0;
    while (ls_algos[nalgos]) nalgos++;
#ifdef __SANITIZE_THREAD__
    const bool thorough = false; /* ten times slower, and what it looks for is in every case */
#else
    const bool thorough = n == 3 || n == 8;
#endif
    const int worlds = n == 8 ? 4 : WORLDS;
    plan p = { .depth = complete ? COMPLETE : thorough ? THOROUGH : QUICK };
    const size_t bytes = nalgos * LS_COLLS * 2 * sizeof *p.digest;
    p.digest = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(p.digest != MAP_FAILED);
    for (int i = 0; i < worlds; i++) {
        if (p.depth == QUICK && i != (n < 9 ? n % worlds : n / 16)) continue; /* many ranks: over shm */
        ls_world_opts o = { .transport = world[i].transport, .progress = world[i].progress, .arena_bytes = 12u << 20,
                            .coll_timeout_ns = 60000000000ull };
        ls_rank_report r = ls_test_ranks(world[i].mode, n, &o, table_rank, &p);
        if (r.failed) fail_msg("%d %s: %s", n, world[i].name, r.text);
    }
    munmap(p.digest, bytes);
}

/* --- what does not fit together ---------------------------------------------------------------------------- */

/* Rank 1 means to receive one element less from rank 0 than that sends it, or more; or has other shares. */
static ls_status odd_rank(ls_world *w, void *arg)
{
    const int how = *(const int *)arg, me = ls_world_rank(w);
    size_t a[3] = { 40, 40, 40 }, b[3] = { 40, 40, 40 };
    float in[120] = { 0 }, out[160] = { 0 };
    ls_group *g = ls_world_group(w);
    if (me == 1 && how < 2) b[0] = how ? 41 : 39;
    if (me == 1 && how == 2) b[0] = 41, b[1] = 39;
    LS_TRY(how < 2 ? ls_all_to_all_v(g, in, a, out, b, LS_F32) : ls_all_gather_v(g, NULL, out, b, LS_F32));
    return ls_barrier(g);
}

static void counts_that_differ_are_named(void **state)
{
    (void)state;
    static const char *const says[] = { "where 39 are expected", "where 41 are expected", "" };
    for (int how = 0; how < 3; how++)
        for (int i = 0; i < 4; i++) {
            ls_world_opts o = { .transport = world[i].transport, .coll_timeout_ns = 5000000000ull, .algo = "ring" };
            ls_rank_report r = ls_test_ranks(world[i].mode, 3, &o, odd_rank, &how);
            int all = world[i].mode == LS_TEST_PROCESSES ? 3 : 1; /* of threads one report is kept */
            bool said = strstr(r.text, "other counts per rank") || (says[how][0] && strstr(r.text, says[how]));
            if (r.failed != all || r.status != LS_COLL_MISMATCH || !said)
                fail_msg("%s, case %d: %d failed, %d %s", world[i].name, how, r.failed, (int)r.status, r.text);
        }
}

/* --- comm.algo ------------------------------------------------------------------------------------------------ */

/* The root of a tree sends fewer messages than one that serves everybody itself. */
static ls_status algo_rank(ls_world *w, void *arg)
{
    float x[700] = { 0 };
    ls_comm_stats before, after;
    ls_comm_stats_read(w, &before);
    LS_TRY(ls_broadcast(ls_world_group(w), x, 700, LS_F32, 0));
    ls_comm_stats_read(w, &after);
    if (ls_world_rank(w) == 0) *(uint64_t *)arg = after.bytes - before.bytes;
    return LS_OK;
}

static void the_algorithm_that_is_asked_for_runs(void **state)
{
    (void)state;
    static const struct { const char *algo; uint64_t vectors; } by[] = { { "tree", 3 }, { "linear", 7 }, { "chain", 1 } };
    for (size_t i = 0; i < sizeof by / sizeof *by; i++) {
        uint64_t bytes = 0;
        ls_world_opts o = { .transport = "tcp", .algo = by[i].algo };
        ls_rank_report r = ls_test_ranks(LS_TEST_THREADS, 8, &o, algo_rank, &bytes);
        if (r.failed) fail_msg("%s", r.text);
        assert_int_equal(bytes, by[i].vectors * 2800);
    }
    ls_world_opts o = { .transport = "tcp", .algo = "rnig" };
    ls_rank_report r = ls_test_ranks(LS_TEST_THREADS, 2, &o, algo_rank, NULL);
    assert_int_equal(r.status, LS_BAD_CONFIG);
}

#define RANKS(n)                                                                                                       \
    static void with_##n##_ranks(void **state)                                                                         \
    {                                                                                                                  \
        (void)state;                                                                                                   \
        gives_right_results(n);                                                                                        \
    }
RANKS(1) RANKS(2) RANKS(3) RANKS(4) RANKS(5) RANKS(6) RANKS(7) RANKS(8) RANKS(9) RANKS(16)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(with_1_ranks), cmocka_unit_test(with_2_ranks), cmocka_unit_test(with_3_ranks),
        cmocka_unit_test(with_4_ranks), cmocka_unit_test(with_5_ranks), cmocka_unit_test(with_6_ranks),
        cmocka_unit_test(with_7_ranks), cmocka_unit_test(with_8_ranks), cmocka_unit_test(with_9_ranks),
        cmocka_unit_test(with_16_ranks), cmocka_unit_test(counts_that_differ_are_named),
        cmocka_unit_test(the_algorithm_that_is_asked_for_runs),
    };
    return cmocka_run_group_tests_name("collectives", tests, NULL, NULL);
}
