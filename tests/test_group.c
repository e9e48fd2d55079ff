/* Groups that are cut out of others, over shm and tcp, among threads and processes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "group/impl.h"
#include "harness.h"

static const char *const wires[] = { "shm", "tcp" };

/* --- groups cut out of groups ---------------------------------------------------------------------------- */

/* Every member adds 1 + its world rank. */
static ls_status sum_of_members(ls_group *g, size_t count)
{
    float want = 0.0f, *x = malloc(count * sizeof *x);
    LS_EXPECT(x, "no memory for a test");
    for (int r = 0; r < ls_group_size(g); r++) want += 1.0f + (float)ls_group_world_rank(g, r);
    for (size_t i = 0; i < count; i++) x[i] = 1.0f + (float)ls_world_rank(ls_group_world(g));
    ls_status st = ls_all_reduce(g, NULL, x, count, LS_F32, LS_SUM);
    for (size_t i = 0; i < count && st == LS_OK; i++)
        if (x[i] != want) st = ls_fail(LS_INTERNAL, "element %zu is %g, expected %g", i, (double)x[i], (double)want);
    free(x);
    return st;
}

static ls_status is_group(ls_group *g, int size, const int *world_rank, int me)
{
    LS_EXPECT(ls_group_size(g) == size, "%d members, expected %d", ls_group_size(g), size);
    for (int r = 0; r < size; r++) {
        LS_EXPECT(ls_group_world_rank(g, r) == world_rank[r], "member %d is rank %d, expected %d", r,
                  ls_group_world_rank(g, r), world_rank[r]);
        LS_EXPECT(world_rank[r] != me || ls_group_rank(g) == r, "rank %d is member %d, expected %d", me,
                  ls_group_rank(g), r);
    }
    LS_EXPECT(ls_group_world_rank(g, -1) == -1 && ls_group_world_rank(g, size) == -1,
              "a member that does not exist has a rank");
    return LS_OK;
}

/* Six ranks: a grid of 2 x 3, the second row of it cut again, and one rank that stays outside. */
static ls_status split_rank(ls_world *w, void *arg)
{
    static const int across[2][3] = { { 0, 1, 2 }, { 3, 4, 5 } }, down[3][2] = { { 0, 3 }, { 1, 4 }, { 2, 5 } },
                     outer[2] = { 3, 5 };
    (void)arg;
    int me = ls_world_rank(w);
    ls_group *world = ls_world_group(w), *rows, *columns, *ends;
    LS_TRY(ls_group_split(world, me / 3 ? 1 << 30 : 7, &rows)); /* colors may be any numbers */
    LS_TRY(ls_group_split(world, me % 3, &columns));
    LS_TRY(is_group(rows, 3, across[me / 3], me));
    LS_TRY(is_group(columns, 2, down[me % 3], me));
    LS_TRY(ls_group_split(rows, me == 4 || me < 3 ? -1 : 0, &ends));
    LS_EXPECT((ends != NULL) == (me == 3 || me == 5), "rank %d is %s", me, ends ? "in" : "out");
    if (ends) LS_TRY(is_group(ends, 2, outer, me));
    for (size_t count = 1; count < 20000; count = 5 * count + 2) {
        LS_TRY(sum_of_members(columns, count));
        LS_TRY(sum_of_members(world, count));
        if (ends) LS_TRY(sum_of_members(ends, count));
        LS_TRY(sum_of_members(rows, count));
    }
    ls_group_destroy(ends);
    ls_group_destroy(columns);
    ls_group_destroy(rows);
    return LS_OK;
}

static void over_both_wires(ls_test_mode mode, int n, ls_rank_fn fn)
{
    for (int i = 0; i < 2; i++) {
        ls_world_opts o = { .transport = wires[i] };
        ls_rank_report r = ls_test_ranks(mode, n, &o, fn, NULL);
        if (r.failed) fail_msg("%d ranks over %s: %s", n, wires[i], r.text);
    }
}

/* Hosts as they are asked for, seen from a group of some of the ranks, and sums across them. */
static ls_status hosts_rank(ls_world *w, void *arg)
{
    static const int all[6] = { 0, 1, 0, 2, 1, 2 }, odd[3] = { 0, 1, 1 }; /* 9 3 9 4 3 4; and 3 4 4 */
    (void)arg;
    ls_group *world = ls_world_group(w), *half;
    LS_EXPECT(world->nnodes == 3, "%d hosts, expected 3", world->nnodes);
    for (int r = 0; r < 6; r++)
        LS_EXPECT(world->node[r] == all[r], "rank %d on host %d, expected %d", r, world->node[r], all[r]);
    LS_TRY(ls_group_split(world, ls_world_rank(w) % 2, &half));
    LS_EXPECT(half->nnodes == 2 || ls_world_rank(w) % 2 == 0, "%d hosts of 1, 3, 5, expected 2", half->nnodes);
    for (int r = 0; r < 3 && ls_world_rank(w) % 2 == 1; r++)
        LS_EXPECT(half->node[r] == odd[r], "member %d on host %d, expected %d", r, half->node[r], odd[r]);
    half->forced = world->forced = ls_algo_find("hierarchical");
    for (size_t count = 1; count < 400000; count = 7 * count + 3) {
        LS_TRY(sum_of_members(half, count));
        LS_TRY(sum_of_members(world, count));
    }
    ls_group_destroy(half);
    return LS_OK;
}

static void knows_which_host_each_rank_is_on(void **state)
{
    (void)state;
    static const int node[6] = { 9, 3, 9, 4, 3, 4 };
    for (int i = 0; i < 2; i++) {
        ls_world_opts o = { .transport = wires[i], .node = node };
        ls_rank_report r = ls_test_ranks(LS_TEST_THREADS, 6, &o, hosts_rank, NULL);
        if (r.failed) fail_msg("over %s: %s", wires[i], r.text);
    }
}

static void splits_by_color_in_the_order_of_the_parent(void **state)
{
    (void)state;
    over_both_wires(LS_TEST_THREADS, 6, split_rank);
    over_both_wires(LS_TEST_PROCESSES, 6, split_rank);
}

/* Pairs (0 1) (2 3), then (0) (1 2) (3), again and again: the areas of destroyed groups are used anew while
 * members of the old ones may still be on their way out. */
static ls_status recreate_rank(ls_world *w, void *arg)
{
    (void)arg;
    int me = ls_world_rank(w);
    for (int turn = 0; turn < 100; turn++) {
        ls_group *g;
        LS_TRY(ls_group_split(ls_world_group(w), (me + turn % 2) / 2, &g));
        LS_TRY(sum_of_members(g, turn % 3 ? 3 : 2000));
        ls_group_destroy(g);
    }
    size_t in_use = ls_world_ledger(w)->now[LS_MEM_COMM];
    for (int turn = 0; turn < 20; turn++) {
        ls_group *g;
        LS_TRY(ls_group_split(ls_world_group(w), (me + turn % 2) / 2, &g));
        LS_TRY(sum_of_members(g, 3));
        ls_group_destroy(g);
    }
    LS_EXPECT(ls_world_ledger(w)->now[LS_MEM_COMM] == in_use, "%zu bytes more after twenty groups",
              ls_world_ledger(w)->now[LS_MEM_COMM] - in_use);
    return LS_OK;
}

static void groups_come_and_go(void **state)
{
    (void)state;
    over_both_wires(LS_TEST_THREADS, 4, recreate_rank);
    over_both_wires(LS_TEST_PROCESSES, 4, recreate_rank);
}

static ls_status too_many_rank(ls_world *w, void *arg)
{
    (void)arg;
    ls_group *g[LS_MAX_GROUPS];
    int n = 0;
    ls_status st;
    while ((st = ls_group_split(ls_world_group(w), 0, &g[n])) == LS_OK) n++;
    LS_EXPECT(st == LS_INVALID && strstr(ls_last_error(), "more than 21 groups"), "%s", ls_last_error());
    LS_EXPECT(n == LS_MAX_GROUPS - 1, "%d groups beside the world", n);
    for (int i = 0; i < n; i++) LS_TRY(sum_of_members(g[i], 10));
    ls_group_destroy(g[5]);
    LS_TRY(ls_group_split(ls_world_group(w), 0, &g[5])); /* room again */
    LS_TRY(sum_of_members(g[5], 10));
    for (int i = 0; i < n; i++) ls_group_destroy(g[i]);
    return LS_OK;
}

static void refuses_one_group_too_many(void **state)
{
    (void)state;
    over_both_wires(LS_TEST_THREADS, 2, too_many_rank);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(knows_which_host_each_rank_is_on),
        cmocka_unit_test(splits_by_color_in_the_order_of_the_parent),
        cmocka_unit_test(groups_come_and_go),
        cmocka_unit_test(refuses_one_group_too_many),
    };
    return cmocka_run_group_tests_name("group", tests, NULL, NULL);
}
