/* Ranks that call different collectives: nine kinds of it, over shm and tcp, among threads and processes. Every rank
 * learns it within a fraction of a second, in a sentence that names both sides; nobody hangs, nobody gets wrong data.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/env.h"
#include "net/world.h"
#include "harness_clock.h"

#define MS 1000000ull
#define RANKS 3
#define ODD 1 /* the rank that does something else */
#define HUNG_NS (200 * MS)

typedef enum kind {
    OTHER_COLLECTIVE,
    OTHER_COUNT,
    OTHER_DTYPE,
    OTHER_OP,
    OTHER_ROOT,
    SWAPPED,
    MISSING,
    EXTRA,
    OTHER_GROUP,
    KINDS
} kind;
static const char *const kind_name[] = { "another collective", "another count", "another dtype", "another reduction", "another root",
                                         "two in the other order", "one missing", "one more", "another group" };

typedef struct call {
    ls_coll coll;
    size_t count;
    ls_dtype dtype;
    ls_redop op;
    int root;
    bool registered;
} call;

/* What each rank found: in memory that processes share. */
typedef struct finding {
    ls_status status;
    uint64_t began_ns, ended_ns;
    char text[LS_ERROR_BYTES];
} finding;

typedef struct plan {
    kind kind;
    call usual, odd;
    bool by_thread; /* progress */
    finding *rank;
} plan;

/* --- one rank ----------------------------------------------------------------------------------------------- */

typedef struct memory {
    float *registered, *private;
} memory;

/* What an element of the result is on this rank; < 0: nothing is said of it. */
static float wanted(const call *c, int n, int rank, size_t i)
{
    const float all = (float)(n * (n + 1) / 2);
    ls_range s;
    for (int r = 0; r < n; r++) {
        if (ls_shard_range(c->count, r, n, &s) != LS_OK || i - s.first >= s.count) continue;
        if (c->coll == LS_ALL_GATHER || c->coll == LS_ALL_TO_ALL) return 1.0f + (float)r;
        if (c->coll == LS_GATHER) return rank == c->root ? 1.0f + (float)r : -1.0f;
        if (c->coll == LS_REDUCE_SCATTER) return r == rank ? all : -1.0f;
    }
    (void)ls_shard_range(c->count, rank, n, &s);
    switch (c->coll) {
    case LS_BROADCAST: return 1.0f + (float)c->root;
    case LS_REDUCE: return rank == c->root ? all : -1.0f;
    case LS_SCATTER: return rank == c->root || i < s.count ? 1.0f + (float)c->root : -1.0f;
    default: return all;
    }
}

/* A value per rank, so that data from the wrong call shows. */
static ls_status make(ls_group *g, const memory *m, const call *c)
{
    float *x = c->registered ? m->registered : m->private;
    int n = ls_group_size(g), rank = ls_group_rank(g);
    bool floats = c->dtype == LS_F32;
    for (size_t i = 0; floats && i < c->count; i++) x[i] = 1.0f + (float)rank;
    ls_coll_args a = { .coll = c->coll, .out = x, .count = c->count, .dtype = c->dtype, .op = c->op, .root = c->root };
    ls_range own;
    LS_TRY(ls_shard_range(c->count, rank, n, &own));
    if (c->coll == LS_GATHER && rank != c->root) a.in = x + own.first, a.out = NULL;
    if (c->coll == LS_SCATTER && rank == c->root) a.in = x, a.out = NULL;
    ls_work *work;
    LS_TRY(ls_coll_start(g, &a, &work));
    LS_TRY(ls_work_wait(work));
    if (!floats || c->op != LS_SUM) return LS_OK;
    for (size_t i = 0; i < c->count; i++) { /* whoever is told that all is well has right data */
        float want = wanted(c, n, rank, i);
        LS_EXPECT(want < 0 || x[i] == want, "wrong data: element %zu of %s is %g", i, ls_coll_name(c->coll), (double)x[i]);
    }
    return LS_OK;
}

static ls_status differ(ls_world *w, ls_group *second, const memory *m, const plan *p)
{
    ls_group *g = ls_world_group(w);
    bool odd = ls_world_rank(w) == ODD;
    if (p->kind == OTHER_GROUP) return make(odd ? second : g, m, &p->usual);
    LS_TRY(make(g, m, odd ? &p->odd : &p->usual));
    if (p->kind == SWAPPED) LS_TRY(make(g, m, odd ? &p->usual : &p->odd));
    return LS_OK;
}

static ls_status never(void *arg)
{
    (void)arg;
    return LS_AGAIN;
}

/* Computes until the job is aborted. */
static ls_status compute_on(ls_world *w)
{
    ls_waiter waiter = { .abort_word = w->waiter.abort_word };
    ls_status st = ls_wait(&waiter, never, NULL, ls_env_get()->mono_ns() + 10000 * MS);
    return st == LS_ABORTED ? ls_world_aborted(w) : ls_fail(LS_INTERNAL, "nothing happened for ten seconds");
}

static ls_status one_rank(ls_world *w, void *arg)
{
    const plan *p = arg;
    int me = ls_world_rank(w);
    finding *f = &p->rank[me];
    ls_group *second;
    void *registered;
    size_t most = p->usual.count > p->odd.count ? p->usual.count : p->odd.count;
    float *private = malloc((most + 1) * sizeof(double));
    LS_EXPECT(private, "no memory for a test");
    LS_TRY(ls_alloc(w, (most + 1) * sizeof(double), LS_MEM_DATA, &registered));
    memory m = { registered, private };
    LS_TRY(ls_group_split(ls_world_group(w), 0, &second));
    for (int i = 0; i < 3; i++) LS_TRY(make(ls_world_group(w), &m, &p->usual)); /* all is well so far */

    f->began_ns = ls_env_get()->mono_ns();
    bool idle = (p->kind == MISSING && me == ODD) || (p->kind == EXTRA && me != ODD);
    ls_status st = ls_barrier(ls_world_group(w)); /* the others may be through with it, and at odds, before us */
    if (st == LS_OK) st = idle ? compute_on(w) : differ(w, second, &m, p);
    if (st == LS_OK) st = ls_barrier(ls_world_group(w)); /* a root may have sent all before the others came */
    f->ended_ns = ls_env_get()->mono_ns();
    f->status = st;
    snprintf(f->text, sizeof f->text, "%s", ls_last_error());
    ls_group_destroy(second);
    free(private);
    return LS_OK; /* the finding is the result */
}

static bool reduces(const call *c)
{
    return c->coll == LS_ALL_REDUCE || c->coll == LS_REDUCE_SCATTER || c->coll == LS_REDUCE;
}

static bool rooted(const call *c)
{
    return c->coll == LS_BROADCAST || c->coll == LS_REDUCE || c->coll == LS_GATHER || c->coll == LS_SCATTER;
}

/* --- the matrix ------------------------------------------------------------------------------------------------ */

static void names(const char *text, const call *c, const char *where)
{
    char what[64];
    snprintf(what, sizeof what, "called %s #", ls_coll_name(c->coll));
    if (!strstr(text, what)) fail_msg("%s: '%s' does not say '%s'", where, text, what);
    snprintf(what, sizeof what, ": %zu %s", c->count, ls_dtype_name(c->dtype));
    if (c->coll != LS_BARRIER && !strstr(text, what)) fail_msg("%s: '%s' does not say '%s'", where, text, what);
}

/* "rank A called ..., but rank B called ...": one of them is the odd one, the other is not. */
static void names_both(const char *text, const char *where)
{
    int a, b;
    const char *second = strstr(text, "but rank ");
    if (sscanf(text, "rank %d called", &a) != 1 || !second || sscanf(second, "but rank %d called", &b) != 1 || (a == ODD) == (b == ODD))
        fail_msg("%s: '%s' does not name rank %d and another", where, text, ODD);
}

static void runs(ls_test_mode mode, const char *transport, const plan *p)
{
    char where[256];
    snprintf(where, sizeof where, "%s instead of %s of %zu (%s) over %s", kind_name[p->kind], ls_coll_name(p->usual.coll), p->usual.count,
             p->usual.registered ? "registered" : "private", transport);
    bool hung = p->kind == MISSING || p->kind == EXTRA;
    ls_world_opts o = { .transport = transport, .arena_bytes = 3u << 20, .coll_timeout_ns = hung ? HUNG_NS : 20000 * MS,
                        .progress = p->by_thread ? LS_PROGRESS_THREAD : LS_PROGRESS_INLINE };
    memset(p->rank, 0, RANKS * sizeof *p->rank);
    plan copy = *p;
    ls_rank_report r = ls_test_ranks_in_step(mode, RANKS, &o, one_rank, &copy);
    if (mode == LS_TEST_PROCESSES && r.failed) fail_msg("%s: %s", where, r.text);
    uint64_t first = p->rank[0].began_ns;
    for (int i = 1; i < RANKS; i++)
        if (p->rank[i].began_ns < first) first = p->rank[i].began_ns;
    for (int i = 0; i < RANKS; i++) {
        const finding *f = &p->rank[i];
        bool idle = (p->kind == MISSING && i == ODD) || (p->kind == EXTRA && i != ODD);
        uint64_t ns = f->ended_ns - first;
        if (hung) {
            if (f->status != LS_RANK_HUNG && f->status != LS_ABORTED) fail_msg("%s: rank %d gets %d (%s)", where, i, f->status, f->text);
            if (!strstr(f->text, "waited ")) fail_msg("%s: rank %d reads '%s'", where, i, f->text);
            if (p->kind == MISSING && !strstr(f->text, "for rank 1 (pid ")) fail_msg("%s: rank %d reads '%s'", where, i, f->text);
            if (p->kind == EXTRA && strncmp(f->text, "rank 1 waited", 13) != 0) fail_msg("%s: rank %d reads '%s'", where, i, f->text);
            if (!idle && ns < HUNG_NS) fail_msg("%s: rank %d gives up after %.3f s", where, i, 1e-9 * (double)ns);
        } else {
            if (f->status != LS_COLL_MISMATCH) fail_msg("%s: rank %d gets %d (%s)", where, i, f->status, f->text);
            names_both(f->text, where);
            names(f->text, &p->usual, where);
            if (p->kind != OTHER_GROUP) names(f->text, &p->odd, where);
            /* who is no root may be through with the other group's, and at the next of this one */
            else if (!strstr(f->text, "of world") ||
                     (!strstr(f->text, "of ranks ") &&
                      !(rooted(&p->usual) && strstr(f->text, "called barrier #5 of world"))))
                fail_msg("%s: '%s'", where, f->text);
        }
    }
}

/* What the odd rank calls instead; false where there is no such thing. */
static bool twist(kind what, const call *usual, call *odd)
{
    *odd = *usual;
    switch (what) {
    case OTHER_COLLECTIVE:
        odd->coll = usual->coll == LS_ALL_REDUCE ? LS_ALL_GATHER : LS_ALL_REDUCE;
        odd->count = usual->count ? usual->count : 100;
        odd->dtype = LS_F32;
        return true;
    case OTHER_COUNT: odd->count += RANKS; return usual->coll != LS_BARRIER;
    case OTHER_DTYPE: odd->dtype = LS_I32; return usual->coll != LS_BARRIER;
    case OTHER_OP: odd->op = LS_MAX; return reduces(usual);
    case OTHER_ROOT: odd->root = usual->root == 2 ? 0 : 2; return rooted(usual);
    case SWAPPED:
        odd->coll = usual->coll == LS_BROADCAST ? LS_ALL_REDUCE : LS_BROADCAST;
        odd->count = 40;
        odd->dtype = LS_F32;
        return true;
    default: return true;
    }
}

static const call calls[] = {
    { LS_ALL_REDUCE, 8, LS_F32, LS_SUM, 0, false },        { LS_ALL_REDUCE, 30000, LS_F32, LS_SUM, 0, true },
    { LS_ALL_REDUCE, 30000, LS_F32, LS_SUM, 0, false },    { LS_REDUCE_SCATTER, 30000, LS_F32, LS_SUM, 0, true },
    { LS_ALL_GATHER, 700, LS_F32, LS_SUM, 0, false },      { LS_ALL_GATHER, 30000, LS_F32, LS_SUM, 0, true },
    { LS_BROADCAST, 5, LS_F32, LS_SUM, 0, false },         { LS_BROADCAST, 30000, LS_F32, LS_SUM, 0, true },
    { LS_BARRIER, 0, LS_U8, LS_SUM, 0, false },
    { LS_REDUCE, 7, LS_F32, LS_SUM, 0, false },            { LS_REDUCE, 30000, LS_F32, LS_SUM, 1, true },
    { LS_REDUCE, 30000, LS_F32, LS_SUM, 2, false },        { LS_GATHER, 8, LS_F32, LS_SUM, 2, false },
    { LS_GATHER, 30000, LS_F32, LS_SUM, 0, true },         { LS_SCATTER, 8, LS_F32, LS_SUM, 1, false },
    { LS_SCATTER, 30000, LS_F32, LS_SUM, 0, true },        { LS_ALL_TO_ALL, 9, LS_F32, LS_SUM, 0, false },
    { LS_ALL_TO_ALL, 30000, LS_F32, LS_SUM, 0, true },     { LS_ALL_TO_ALL, 3000, LS_F32, LS_SUM, 0, false },
};

static finding *shared_findings(void)
{
    void *p = mmap(NULL, RANKS * sizeof(finding), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(p != MAP_FAILED);
    return p;
}

static void matrix(ls_test_mode mode, const char *transport, bool by_thread)
{
    plan p = { .by_thread = by_thread, .rank = shared_findings() };
    for (kind k = 0; k < KINDS; k++)
        for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
            p.kind = k;
            p.usual = calls[i];
            if (!twist(k, &p.usual, &p.odd)) continue;
            /* those that take their time: a few will do */
            size_t every = k == MISSING || k == EXTRA ? 8 : by_thread || mode == LS_TEST_PROCESSES ? 4 : 1;
            if ((i + (size_t)k) % every != 0 && !getenv("LOCKSTEP_TEST_LONG")) continue;
            runs(mode, transport, &p);
        }
    munmap(p.rank, RANKS * sizeof(finding));
}

static void threads_learn_it_over_shm(void **state)
{
    (void)state;
    matrix(LS_TEST_THREADS, "shm", false);
}

static void threads_learn_it_over_tcp(void **state)
{
    (void)state;
    matrix(LS_TEST_THREADS, "tcp", false);
}

static void threads_learn_it_with_a_progress_thread(void **state)
{
    (void)state;
    matrix(LS_TEST_THREADS, "shm", true);
    matrix(LS_TEST_THREADS, "tcp", true);
}

static void processes_learn_it_over_shm(void **state)
{
    (void)state;
    matrix(LS_TEST_PROCESSES, "shm", false);
}

static void processes_learn_it_over_tcp(void **state)
{
    (void)state;
    matrix(LS_TEST_PROCESSES, "tcp", false);
}

/* --- groups without a common rank ---------------------------------------------------------------------- */

/* Each half of the ranks is split into pairs, whose ids are the same in both halves. Those of the second half call more
 * collectives than those of the first, and one of them is late. */
static ls_status late_in_a_pair(ls_world *w, void *arg)
{
    (void)arg;
    const int rank = ls_world_rank(w);
    ls_group *world = ls_world_group(w), *half, *pair;
    float x = 1;
    LS_TRY(ls_group_split(world, rank / 4, &half));
    LS_TRY(ls_group_split(half, rank % 4 / 2, &pair));
    for (int i = 0; i < (rank < 4 ? 1 : 9); i++) {
        if (rank == 5 && i == 8) usleep(400000);
        LS_TRY(ls_all_reduce(pair, NULL, &x, 1, LS_F32, LS_SUM));
    }
    return ls_all_reduce(world, NULL, &x, 1, LS_F32, LS_SUM);
}

static void a_rank_that_waits_in_another_group_has_called_nothing_wrong(void **state)
{
    (void)state;
    static const char *const transport[] = { "shm", "tcp" };
    for (int i = 0; i < 2; i++) {
        const ls_world_opts o = { .transport = transport[i], .arena_bytes = 3u << 20, .coll_timeout_ns = 20000 * MS };
        const ls_rank_report r = ls_test_ranks_in_step(LS_TEST_THREADS, 8, &o, late_in_a_pair, NULL);
        if (r.failed) fail_msg("%s: %s", transport[i], r.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_that_waits_in_another_group_has_called_nothing_wrong),
        cmocka_unit_test(processes_learn_it_over_shm),
        cmocka_unit_test(processes_learn_it_over_tcp),
        cmocka_unit_test(threads_learn_it_over_shm),
        cmocka_unit_test(threads_learn_it_over_tcp),
        cmocka_unit_test(threads_learn_it_with_a_progress_thread),
    };
    return cmocka_run_group_tests_name("mismatch", tests, NULL, NULL);
}
