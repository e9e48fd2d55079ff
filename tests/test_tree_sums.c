/* LS_SUM_TREE by the calls of group.h: the same bits in memory and over connections, of registered and private vectors,
 * whole, by shares and by spans; against sums that are written down here. */
#include <stdlib.h>
#include <string.h>

#include "harness.h"

#define MOST 70001 /* elements: past packets, slots and pieces of a pipe */
static const size_t counts[] = { 1, 7, 64, 300, 5000, MOST };
#define NCOUNTS (sizeof counts / sizeof *counts)

/* Of any size, so that the order of sums shows. */
static float value(int rank, size_t i)
{
    uint32_t h = (uint32_t)i * 2654435761u + (uint32_t)rank * 40503u + 17u;
    h ^= h >> 15;
    h *= 2246822519u;
    h ^= h >> 13;
    return (float)((double)(int32_t)h * 0x1p-31 * (double)(1u << (h % 13u)));
}

static float tree(size_t i, int first, int n)
{
    int most = 1;
    if (n == 1) return value(first, i);
    while (2 * most < n) most *= 2;
    return tree(i, first, most) + tree(i, first + most, n - most);
}

static float ascending(size_t i, int n)
{
    float sum = value(0, i);
    for (int r = 1; r < n; r++) sum += value(r, i);
    return sum;
}

static ls_status compare(const char *what, const float *found, size_t first, size_t n, size_t count, int size)
{
    for (size_t i = 0; i < n; i++) {
        const float want = tree(first + i, 0, size);
        if (memcmp(&found[i], &want, sizeof want) != 0)
            return ls_fail(LS_INTERNAL, "%s of %zu over %d ranks: element %zu is %a, expected %a", what, count, size, first + i,
                           (double)found[i], (double)want);
    }
    return LS_OK;
}

static void fill(float *x, size_t n, int rank)
{
    for (size_t i = 0; i < n; i++) x[i] = value(rank, i);
}

/* Rows of 5 elements, as gradients of matrices are sharded; behind them elements that belong to no span. */
static ls_status spans(ls_group *g, float *in, float *out)
{
    const int size = ls_group_size(g), rank = ls_group_rank(g);
    const ls_matrix_span span[2] = { { .first = 3, .rows = 41, .row = 5 }, { .first = 300, .rows = 2, .row = 1 } };
    ls_work *k;
    fill(in, 400, rank);
    const ls_coll_args call = { .coll = LS_REDUCE_SCATTER, .in = in, .out = out, .count = 400, .dtype = LS_F32,
                                .op = LS_SUM_TREE, .span = span, .nspans = 2 };
    LS_TRY(ls_coll_start(g, &call, &k));
    LS_TRY(ls_work_wait(k));
    for (int s = 0; s < 2; s++) {
        const ls_range mine = ls_shard_of(span[s].rows, rank, size);
        const size_t n = mine.count * span[s].row;
        LS_TRY(compare("spans", out, span[s].first + mine.first * span[s].row, n, 400, size));
        out += n;
    }
    return LS_OK;
}

static ls_status sums(ls_group *g, float *in, float *out)
{
    const int size = ls_group_size(g), rank = ls_group_rank(g);
    size_t differ = 0;
    for (size_t c = 0; c < NCOUNTS; c++) {
        const size_t n = counts[c];
        const ls_range mine = ls_shard_of(n, rank, size);
        fill(in, n, rank);
        LS_TRY(ls_all_reduce(g, in, out, n, LS_F32, LS_SUM_TREE));
        LS_TRY(compare("all_reduce", out, 0, n, n, size));
        for (size_t i = 0; i < n; i++) differ += out[i] < ascending(i, size) || out[i] > ascending(i, size);
        LS_TRY(ls_reduce_scatter(g, in, out, n, LS_F32, LS_SUM_TREE));
        LS_TRY(compare("reduce_scatter", out, mine.first, mine.count, n, size));
        LS_TRY(ls_all_reduce(g, NULL, in, n, LS_F32, LS_SUM_TREE));
        LS_TRY(compare("all_reduce in place", in, 0, n, n, size));
    }
    LS_EXPECT(size < 4 || differ > 0, "sums of %d ranks in ascending order are the same: the values show nothing", size);
    return LS_OK;
}

static ls_status all(ls_world *w, void *arg)
{
    ls_group *g = ls_world_group(w);
    void *in, *out;
    (void)arg;
    LS_TRY(ls_alloc(w, MOST * sizeof(float), LS_MEM_DATA, &in));
    LS_TRY(ls_alloc(w, MOST * sizeof(float), LS_MEM_DATA, &out));
    LS_TRY(sums(g, in, out));
    LS_TRY(spans(g, in, out));
    float *a = malloc(MOST * sizeof *a), *b = malloc(MOST * sizeof *b);
    const ls_status st = a && b ? sums(g, a, b) : ls_fail(LS_NO_MEMORY, "two vectors");
    free(a);
    free(b);
    return st;
}

static void run(ls_test_mode mode, int n, const char *transport)
{
    const ls_world_opts o = { .transport = transport, .arena_bytes = 8u << 20 };
    const ls_rank_report r = ls_test_ranks(mode, n, &o, all, NULL);
    if (r.failed) fail_msg("%d ranks over %s: %s", n, transport, r.text);
}

static void in_memory(void **state)
{
    (void)state;
    static const int n[] = { 1, 2, 3, 4, 6, 8 };
    for (int i = 0; i < 6; i++) run(LS_TEST_THREADS, n[i], "shm");
    run(LS_TEST_PROCESSES, 4, "shm");
}

static void over_connections(void **state)
{
    (void)state;
    static const int n[] = { 2, 3, 4, 8 };
    for (int i = 0; i < 4; i++) run(i % 2 ? LS_TEST_PROCESSES : LS_TEST_THREADS, n[i], "tcp");
}

static ls_status refuses(ls_world *w, void *arg)
{
    ls_group *g = ls_world_group(w);
    float x[4] = { 0 };
    (void)arg;
    const ls_status st = ls_reduce(g, NULL, x, 4, LS_F32, LS_SUM_TREE, 0);
    LS_EXPECT(st == LS_INVALID && strstr(ls_last_error(), "all_reduce and reduce_scatter"), "reduce: %s", ls_last_error());
    return LS_OK;
}

static void is_for_two_collectives(void **state)
{
    (void)state;
    const ls_rank_report r = ls_test_ranks(LS_TEST_THREADS, 2, NULL, refuses, NULL);
    if (r.failed) fail_msg("%s", r.text);
}

/* An algorithm that adds on the way is refused, and one that was used before for another sum is not taken. */
static ls_status by_ring(ls_world *w, void *arg)
{
    ls_group *g = ls_world_group(w);
    float x[64];
    (void)arg;
    fill(x, 64, ls_world_rank(w));
    LS_TRY(ls_all_reduce(g, NULL, x, 64, LS_F32, LS_SUM));
    return ls_all_reduce(g, NULL, x, 64, LS_F32, LS_SUM_TREE);
}

static void a_ring_is_refused(void **state)
{
    (void)state;
    static const char *const transport[] = { "shm", "tcp" };
    for (int i = 0; i < 2; i++) {
        const ls_world_opts o = { .transport = transport[i], .algo = "ring" };
        const ls_rank_report r = ls_test_ranks(LS_TEST_THREADS, 4, &o, by_ring, NULL);
        if (r.status != LS_UNSUPPORTED || !strstr(r.text, "ring adds in an order of its own"))
            fail_msg("%s: %d: %s", transport[i], (int)r.status, r.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(in_memory),
        cmocka_unit_test(over_connections),
        cmocka_unit_test(is_for_two_collectives),
        cmocka_unit_test(a_ring_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
