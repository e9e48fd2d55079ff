/* What a calibration says of mapped memory: points follow from times, other points run other ways, and the bits are the
 * same. A short broadcast whose root is ahead needs no work; one whose root is late gets one. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/env.h"
#include "group/calibrate.h"
#include "group/engine.h"
#include "group/select.h"
#include "harness.h"

#define RANKS 2
#define MOST ((size_t)320 << 10) /* bytes of a vector: two pieces of a stage */

static void points_are_where_the_other_way_begins_to_win(void **state)
{
    (void)state;
    static const size_t nbytes[] = { 512, 1024, 2048, 4096 };
    struct { double ns[4][2], in_place, others; } row[] = {
        { { { 1, 2 }, { 2, 3 }, { 4, 3 }, { 8, 4 } }, 1024, 2048 },
        { { { 1, 2 }, { 2, 3 }, { 4, 5 }, { 8, 9 } }, LS_COST_NEVER, LS_COST_NEVER },
        { { { 2, 1 }, { 3, 2 }, { 5, 4 }, { 9, 8 } }, 0, 512 },
        { { { 1, 2 }, { 2, 1 }, { 4, 4.1 }, { 8, 4 } }, 512, 1024 }, /* one size that was disturbed */
        { { { 1, 1 }, { 2, 2 }, { 4, 3.99 }, { 8, 8 } }, LS_COST_NEVER, LS_COST_NEVER }, /* as fast: stay */
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        for (int point = 0; point < LS_SWITCH_POINTS; point++) {
            double want = point < 2 ? row[i].in_place : row[i].others;
            double got = ls_switch_conclude(point, nbytes, row[i].ns, 4);
            if (got != want) fail_msg("times %zu, %s: %g, expected %g", i, ls_switch_name(point), got, want);
        }
}

static void put(float *v, size_t n, int rank)
{
    for (size_t i = 0; i < n; i++)
        v[i] = (float)(int32_t)((uint32_t)i * 2654435761u + (uint32_t)rank * 40503u) / 1048576.0f;
}

/* One collective on vectors of n floats; its result in `out`. */
static ls_status one(ls_group *g, ls_coll coll, float *in, float *out, size_t n)
{
    put(in, n, g->rank);
    memset(out, 0x5a, n * sizeof *out);
    switch (coll) {
    case LS_REDUCE_SCATTER: return ls_reduce_scatter(g, in, out, n, LS_F32, LS_SUM);
    case LS_ALL_GATHER: return ls_all_gather(g, in, out, n, LS_F32);
    case LS_ALL_TO_ALL: return ls_all_to_all(g, in, out, n, LS_F32);
    default: put(out, n, g->rank); return ls_broadcast(g, out, n, LS_F32, 1);
    }
}

/* Each point at its two ends, in registered and in private memory. */
static ls_status both_ways(ls_world *w, void *arg)
{
    (void)arg;
    static const ls_coll colls[] = { LS_REDUCE_SCATTER, LS_ALL_GATHER, LS_ALL_TO_ALL, LS_BROADCAST };
    static const size_t sizes[] = { 2, 12, 256, 512, 1030, 2048, 2500, 4096, MOST / sizeof(float) };
    ls_group *g = ls_world_group(w);
    ls_switch_points *s = &g->e->tuning.cost.in_memory;
    void *shared;
    LS_TRY(ls_alloc(w, 2 * MOST, LS_MEM_COMM, &shared));
    float *own = malloc(2 * MOST), *want = malloc(MOST);
    ls_status st = LS_OK;
    for (size_t c = 0; c < 4; c++)
        for (size_t z = 0; z < sizeof sizes / sizeof *sizes && st == LS_OK; z++)
            for (int turn = 0; turn < 1 + 2 * 2 * LS_SWITCH_POINTS && st == LS_OK; turn++) {
                const size_t n = sizes[z], got = colls[c] == LS_REDUCE_SCATTER ? n / 2 : n;
                float *in = turn % 2 ? shared : own, *out = in + MOST / sizeof(float);
                *s = ls_cost_preset.in_memory;
                if (turn > 0) *ls_switch_point(s, (turn - 1) / 4) = (turn - 1) / 2 % 2 ? LS_COST_NEVER : 0.0;
                if ((st = one(g, colls[c], in, out, n)) < 0) break;
                if (turn == 0) memcpy(want, out, got * sizeof *want);
                if (memcmp(want, out, got * sizeof *want) != 0)
                    st = ls_fail(LS_INTERNAL, "%s of %zu floats: other bits with %s at an end", ls_coll_name(colls[c]), n,
                                 ls_switch_name((turn - 1) / 4));
            }
    const size_t n = 1024; /* between the ends, what runs is known */
    for (int way = 0; way < 2 && st == LS_OK && !g->crowded; way++)
        for (size_t c = 0; c < 3 && st == LS_OK; c++) {
            float *in = shared;
            s->sum_in_place = s->copy_in_place = way == 0 ? n * sizeof(float) : n * sizeof(float) - 1;
            st = one(g, colls[c], in, in + MOST / sizeof(float), n);
            if (st == LS_OK && strcmp(ls_select_ran(g), way == 0 ? "oneshot" : "fold") != 0)
                st = ls_fail(LS_INTERNAL, "%s ran as %s on the %s side of its point", ls_coll_name(colls[c]),
                             ls_select_ran(g), way == 0 ? "lower" : "upper");
        }
    free(own);
    free(want);
    return st;
}

static void other_points_run_other_ways_with_the_same_bits(void **state)
{
    (void)state;
    ls_rank_report r = ls_test_ranks(LS_TEST_PROCESSES, RANKS, NULL, both_ways, NULL);
    if (r.failed) fail_msg("%s", r.text);
}

static int works_used(const ls_group *g)
{
    int used = 0;
    for (int i = 0; i < LS_WORKS; i++) used += g->work[i].g != NULL;
    return used;
}

/* A root never waits for a leaf that is at most a ring behind; a leaf whose root is late waits with a work. */
static ls_status ahead_and_late(ls_world *w, void *arg)
{
    (void)arg;
    const ls_env *env = ls_env_get();
    ls_group *g = ls_world_group(w);
    static const size_t sizes[] = { 0, 2, 10, 11, 32, 512, 2048 }; /* floats: in the line, behind it, the longest */
    float v[2048], want[2048];
    ls_comm_stats before, after;
    for (size_t z = 0; z < sizeof sizes / sizeof *sizes; z++)
        for (int root = 0; root < RANKS; root++) {
            const size_t n = sizes[z];
            put(want, n, root);
            LS_TRY(ls_barrier(g));
            if (g->rank != root) env->wait(NULL, 0, NULL, 0, env->mono_ns() + 2000000u); /* it is ahead of us */
            for (int i = 0; i < LS_WORKS; i++) g->work[i].g = NULL;
            ls_comm_stats_read(w, &before);
            for (int i = 0; i < 3; i++) {
                put(v, n, g->rank);
                LS_TRY(ls_broadcast(g, v, n, LS_F32, root));
                LS_EXPECT(n == 0 || memcmp(v, want, n * sizeof *v) == 0, "%zu floats from %d: other bits", n, root);
                LS_EXPECT(strcmp(ls_select_ran(g), "mail") == 0, "a broadcast ran as %s", ls_select_ran(g));
            }
            ls_comm_stats_read(w, &after);
            const size_t came = g->rank == root ? 0 : 3 * n * sizeof *v;
            LS_EXPECT(!g->spins || g->rank != root || works_used(g) == 0, "a root of %zu floats filled a work", n);
            LS_EXPECT(after.ops - before.ops == 3 && after.bytes - before.bytes == came,
                      "counted %llu operations and %llu bytes", (unsigned long long)(after.ops - before.ops),
                      (unsigned long long)(after.bytes - before.bytes));
        }
    for (int i = 0; i < 200; i++) { /* a ring of the longest is full after four: the root waits */
        put(v, 2048, 0);
        LS_TRY(ls_broadcast(g, v, 2048, LS_F32, 0));
        LS_EXPECT(g->rooted - g->mail.told < 4, "rank %d has not said for %u broadcasts how far it is", g->rank,
                  g->rooted - g->mail.told);
    }
    int32_t waited = 0; /* a leaf that was itself later than the root needs no work: once more */
    for (int turn = 0; turn < 1000 && g->spins && !waited; turn++) {
        LS_TRY(ls_barrier(g));
        for (int i = 0; i < LS_WORKS; i++) g->work[i].g = NULL;
        if (g->rank == 0) env->wait(NULL, 0, NULL, 0, env->mono_ns() + 5000000u);
        LS_TRY(ls_broadcast(g, v, 2, LS_F32, 0));
        LS_EXPECT(works_used(g) <= g->rank, "rank %d used %d works", g->rank, works_used(g));
        waited = works_used(g);
        LS_TRY(ls_all_reduce(g, NULL, &waited, 1, LS_I32, LS_SUM));
    }
    LS_EXPECT(waited || !g->spins, "no leaf waited with a work for a root that was late 1000 times");
    LS_EXPECT(g->nspare == LS_WORKS, "%d works are not free", LS_WORKS - g->nspare);
    return LS_OK;
}

static void a_broadcast_needs_a_work_only_where_the_root_is_late(void **state)
{
    (void)state;
    ls_rank_report r = ls_test_ranks(LS_TEST_PROCESSES, RANKS, NULL, ahead_and_late, NULL);
    if (r.failed) fail_msg("%s", r.text);
}

static ls_status differs(ls_world *w, void *arg)
{
    const int what = *(const int *)arg;
    ls_group *g = ls_world_group(w);
    float v[64] = { 0 };
    for (int i = 0; i < 50; i++) LS_TRY(ls_broadcast(g, v, 20, LS_F32, 0));
    const bool other = g->rank == 1;
    ls_status st = ls_broadcast(g, v, 20 + (size_t)(what == 0 && other), what == 1 && other ? LS_I32 : LS_F32, 0);
    LS_EXPECT(g->rank == 0 || st < 0, "a leaf takes a broadcast that it did not call for");
    if (st == LS_OK) st = ls_barrier(g); /* a root hears of it at the next meeting */
    LS_EXPECT(st == LS_COLL_MISMATCH, "rank %d gets %d: %s", g->rank, (int)st, ls_last_error());
    LS_EXPECT(strstr(ls_last_error(), "broadcast #50"), "rank %d is told: %s", g->rank, ls_last_error());
    return LS_OK;
}

static void a_broadcast_of_something_else_is_named(void **state)
{
    (void)state;
    for (int what = 0; what < 2; what++) {
        ls_world_opts o = { .coll_timeout_ns = 5000000000u };
        ls_rank_report r = ls_test_ranks(LS_TEST_PROCESSES, RANKS, &o, differs, &what);
        if (r.failed) fail_msg("difference %d: %s", what, r.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(points_are_where_the_other_way_begins_to_win),
        cmocka_unit_test(other_points_run_other_ways_with_the_same_bits),
        cmocka_unit_test(a_broadcast_needs_a_work_only_where_the_root_is_late),
        cmocka_unit_test(a_broadcast_of_something_else_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
