/* Groups that are cut out of others, over shm and tcp, among threads and processes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "group/group.h"
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
        LS_TRY(sum_of_members(g, turn % 3 ? 3 : 20000));
        ls_group_destroy(g);
    }
    size_t in_use = ls_world_ledger(w)->now[LS_MEM_COMM];
    for (int turn = 0; turn < 20; turn++) {
        ls_group *g;
        LS_TRY(ls_group_split(ls_world_group(w), (me + turn % 2) / 2, &g));
        LS_TRY(sum_of_members(g, turn % 3 ? 3 : 20000));
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

/* The memory of a destroyed group serves again for one that is not larger. */
static ls_status resize_rank(ls_world *w, void *arg)
{
    (void)arg;
    static const struct { int size, memory; } row[] = { { 1, 0 }, { 4, 1 }, { 2, 1 }, { 1, 1 }, { 4, 1 } };
    const int me = ls_world_rank(w);
    const ls_group *at[2] = { NULL, NULL }; /* where the first group is, and the second */
    for (int i = 0; i < 5; i++) {
        ls_group *g;
        LS_TRY(ls_group_split(ls_world_group(w), me / row[i].size, &g));
        LS_TRY(sum_of_members(g, 10));
        if (i < 2) at[i] = g;
        LS_EXPECT(at[0] != at[1], "4 ranks got the memory of 1 rank");
        LS_EXPECT(g == at[row[i].memory], "group %d, of %d ranks, did not get the memory destroyed last", i, row[i].size);
        ls_group_destroy(g);
    }
    return LS_OK;
}

static void a_larger_group_does_not_get_the_memory_of_a_smaller_one(void **state)
{
    (void)state;
    over_both_wires(LS_TEST_THREADS, 4, resize_rank);
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

/* --- names and counters ------------------------------------------------------------------------------------ */

static ls_status has_text(ls_group *g, const char *want)
{
    LS_EXPECT(strcmp(ls_group_text(g), want) == 0, "'%s', expected '%s'", ls_group_text(g), want);
    return LS_OK;
}

static ls_status named_groups(ls_world *w, void *arg)
{
    static const char *const bad[] = { "", "sixteen-letters-", "a b", "a\n", "\x7f" };
    (void)arg;
    const int me = ls_world_rank(w);
    ls_group *world = ls_world_group(w), *row, *odd, *one, *nobody = NULL;
    ls_comm_stats before, after, all_before, all, own;
    char want[64];
    LS_TRY(has_text(world, "world"));
    LS_TRY(ls_group_split_named(world, me / 3, "tp", &row));
    LS_TRY(has_text(row, me / 3 ? "tp 3-5" : "tp 0-2"));
    LS_TRY(ls_group_split(world, me % 2, &odd));
    LS_TRY(has_text(odd, me % 2 ? "ranks 1, 3, 5" : "ranks 0, 2, 4"));
    LS_TRY(ls_group_split_named(world, me, "fifteen-letters", &one));
    snprintf(want, sizeof want, "fifteen-letters %d", me);
    LS_TRY(has_text(one, want));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        LS_EXPECT(ls_group_split_named(world, 0, bad[i], &nobody) == LS_INVALID && !nobody, "'%s' is a name", bad[i]);
        LS_EXPECT(strstr(ls_last_error(), "1 to 15 printable characters"), "%s", ls_last_error());
    }
    ls_group_stats_read(row, &before);
    ls_comm_stats_read(w, &all_before);
    LS_TRY(sum_of_members(row, 100));
    LS_TRY(sum_of_members(row, 100));
    LS_TRY(sum_of_members(odd, 100));
    ls_group_stats_read(row, &after);
    LS_EXPECT(after.ops == before.ops + 2 && after.bytes > before.bytes, "%d collectives counted",
              (int)(after.ops - before.ops));
    ls_group_stats_read(odd, &own);
    LS_EXPECT(own.ops == 1, "%d collectives counted", (int)own.ops);
    ls_comm_stats_read(w, &all);
    LS_EXPECT(all.ops == all_before.ops + 3, "%d collectives counted together", (int)(all.ops - all_before.ops));
    ls_group_destroy(one);
    ls_group_destroy(odd);
    ls_group_destroy(row);
    ls_comm_stats_read(w, &after);
    LS_EXPECT(after.ops >= all.ops && after.bytes >= all.bytes, "what a destroyed group has moved is forgotten");
    return LS_OK;
}

static void groups_have_names_and_counters(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        const ls_world_opts o = { .transport = wires[i] };
        ls_rank_report r = ls_test_ranks(LS_TEST_THREADS, 6, &o, named_groups, NULL);
        if (r.failed) fail_msg("over %s: %s", wires[i], r.text);
    }
}

/* Each kind of call, by itself, is counted as that kind and no other. */
static ls_status one_of(ls_group *g, ls_coll kind, float *x, float *y)
{
    const int next = (ls_group_rank(g) + 1) % ls_group_size(g), before = (ls_group_rank(g) + 5) % ls_group_size(g);
    const ls_p2p pair[] = { { .send = x, .count = 12, .dtype = LS_F32, .peer = next },
                            { .recv = y, .count = 12, .dtype = LS_F32, .peer = before } };
    switch (kind) {
    case LS_ALL_REDUCE: return ls_all_reduce(g, x, y, 12, LS_F32, LS_SUM);
    case LS_REDUCE_SCATTER: return ls_reduce_scatter(g, x, y, 12, LS_F32, LS_SUM);
    case LS_ALL_GATHER: return ls_all_gather(g, x, y, 12, LS_F32);
    case LS_BROADCAST: return ls_broadcast(g, x, 12, LS_F32, 1);
    case LS_REDUCE: return ls_reduce(g, x, y, 12, LS_F32, LS_SUM, 1);
    case LS_GATHER: return ls_gather(g, x, y, 12, LS_F32, 1);
    case LS_SCATTER: return ls_scatter(g, x, y, 12, LS_F32, 1);
    case LS_ALL_TO_ALL: return ls_all_to_all(g, x, y, 12, LS_F32);
    case LS_BARRIER: return ls_barrier(g);
    default: return ls_p2p_batch(g, pair, 2);
    }
}

static ls_status each_kind(ls_world *w, void *arg)
{
    (void)arg;
    ls_group *g = ls_world_group(w);
    float x[12] = { 1 }, y[12];
    uint64_t ops = 0, bytes = 0;
    ls_comm_stats first, before, now;
    ls_group_stats_read(g, &first);
    for (ls_coll kind = 0; kind < LS_COLLS; kind++) {
        ls_group_stats_read(g, &before);
        LS_TRY(one_of(g, kind, x, y));
        ls_group_stats_read(g, &now);
        ls_comm_stats_since(&before, &now);
        for (ls_coll c = 0; c < LS_COLLS; c++) {
            const uint64_t calls = c != kind ? 0 : kind == LS_SENDRECV ? 2 : 1;
            LS_EXPECT(now.of[c].ops == calls && (calls || now.of[c].bytes == 0), "%s: %llu of %s, %llu bytes",
                      ls_coll_name(kind), (unsigned long long)now.of[c].ops, ls_coll_name(c),
                      (unsigned long long)now.of[c].bytes);
        }
        LS_EXPECT(now.ops == now.of[kind].ops && now.bytes == now.of[kind].bytes, "%s: the sums", ls_coll_name(kind));
        if (kind == LS_ALL_REDUCE || kind == LS_ALL_GATHER)
            LS_EXPECT(now.bytes > 0, "%s moved nothing", ls_coll_name(kind));
        ops += now.ops;
        bytes += now.bytes;
    }
    ls_group_stats_read(g, &now);
    ls_comm_stats_since(&first, &now);
    LS_EXPECT(now.ops == ops && now.bytes == bytes, "%llu and %llu bytes together", (unsigned long long)now.ops,
              (unsigned long long)now.bytes);
    return LS_OK;
}

static void each_kind_is_counted_by_itself(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        const ls_world_opts o = { .transport = wires[i] };
        ls_rank_report r = ls_test_ranks(LS_TEST_THREADS, 6, &o, each_kind, NULL);
        if (r.failed) fail_msg("over %s: %s", wires[i], r.text);
    }
}

/* Two ranks call different collectives in a group: both sides are described in its name. */
static ls_status differ(ls_world *w, void *arg)
{
    (void)arg;
    ls_group *g;
    float x[4] = { 0 };
    LS_TRY(ls_group_split_named(ls_world_group(w), 0, "tp", &g));
    return ls_all_reduce(g, NULL, x, ls_world_rank(w) ? 3 : 4, LS_F32, LS_SUM);
}

static void errors_say_which_group(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        const ls_world_opts o = { .transport = wires[i] };
        ls_rank_report r = ls_test_ranks(LS_TEST_THREADS, 2, &o, differ, NULL);
        assert_int_equal(r.status, LS_COLL_MISMATCH);
        if (!strstr(r.text, "all_reduce #0 of tp 0, 1: 4 float sum") ||
            !strstr(r.text, "all_reduce #0 of tp 0, 1: 3 float sum"))
            fail_msg("over %s: %s", wires[i], r.text);
    }
}

/* Rank 0 gives up for a reason of its own and destroys a group, in which rank 1 then calls what nobody else does. */
static ls_status gives_up(ls_world *w, void *arg)
{
    char *said = arg; /* [LS_ERROR_BYTES], what rank 0 knows in the end */
    ls_group *g;
    float x[4] = { 0 };
    LS_TRY(ls_group_split_named(ls_world_group(w), 0, "tp", &g));
    if (ls_world_rank(w) == 1) return ls_all_reduce(g, NULL, x, 4, LS_F32, LS_SUM);
    (void)ls_fail(LS_NO_MEMORY, "why rank 0 gives up");
    ls_group_destroy(g);
    snprintf(said, LS_ERROR_BYTES, "%s", ls_last_error());
    return LS_NO_MEMORY;
}

static void what_failed_is_still_known_after_destroy(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        const ls_world_opts o = { .transport = wires[i] };
        char said[LS_ERROR_BYTES] = "";
        ls_rank_report r = ls_test_ranks(LS_TEST_THREADS, 2, &o, gives_up, said);
        assert_string_equal(said, "why rank 0 gives up");
        assert_int_equal(r.status, LS_COLL_MISMATCH); /* so destroying did fail */
    }
}

/* Ranks start collectives of two groups in different orders: within one group that is an error, and here neither waits
 * for the other. */
static ls_status moves_beside(ls_world *w, void *arg)
{
    const bool wire = *(const bool *)arg;
    const int me = ls_world_rank(w);
    ls_group *world = ls_world_group(w), *second;
    float x[3] = { 1, 2, 3 }, y[3] = { 10, 20, 30 };
    const ls_coll_args a = { .coll = LS_ALL_REDUCE, .dtype = LS_F32, .op = LS_SUM, .count = 3, .out = x };
    ls_work *first = NULL;
    LS_TRY(ls_group_second(world, "again", &second));
    LS_EXPECT((second != NULL) == wire, "over %s there is %s second group", wire ? "connections" : "memory", second ? "a" : "no");
    if (!second) return LS_OK;
    LS_TRY(has_text(second, "again 0-2"));
    LS_EXPECT(ls_group_size(second) == 3 && ls_group_rank(second) == me, "rank %d of %d", ls_group_rank(second),
              ls_group_size(second));
    if (me == 0) LS_TRY(ls_coll_start(world, &a, &first));
    LS_TRY(ls_all_reduce(second, NULL, y, 3, LS_F32, LS_SUM)); /* ranks 1 and 2 come to the other one after it */
    if (me != 0) LS_TRY(ls_coll_start(world, &a, &first));
    LS_TRY(ls_work_wait(first));
    for (int i = 0; i < 3; i++)
        LS_EXPECT(x[i] == 3.0f * (float)(i + 1) && y[i] == 30.0f * (float)(i + 1), "%g and %g", (double)x[i], (double)y[i]);
    ls_group_destroy(second);
    return LS_OK;
}

/* The time in which both groups have a work in flight counts once. Rank 0 waits for rank 1 in both. */
static ls_status busy_at_the_same_time(ls_world *w, void *arg)
{
    (void)arg;
    enum { COUNT = 2000, NAP_NS = 30000000 };
    ls_group *second;
    ls_comm_stats before, after;
    float x[COUNT] = { 0 }, y[COUNT] = { 0 };
    const ls_env *env = ls_env_get();
    ls_work *work[2];
    LS_TRY(ls_group_second(ls_world_group(w), "again", &second));
    ls_coll_args a = { .coll = LS_ALL_REDUCE, .dtype = LS_F32, .op = LS_SUM, .count = COUNT, .out = x };
    ls_comm_stats_read(w, &before);
    const uint64_t began = env->mono_ns();
    while (ls_world_rank(w) == 1 && env->mono_ns() < began + NAP_NS) env->wait(NULL, 0, NULL, 0, began + NAP_NS);
    LS_TRY(ls_coll_start(ls_world_group(w), &a, &work[0]));
    a.out = y;
    LS_TRY(ls_coll_start(second, &a, &work[1]));
    for (int i = 0; i < 2; i++) LS_TRY(ls_work_wait(work[i]));
    const uint64_t took = env->mono_ns() - began;
    ls_comm_stats_read(w, &after);
    ls_comm_stats_since(&before, &after);
    LS_EXPECT((after.busy_ns > NAP_NS / 2 || ls_world_rank(w) == 1) && after.busy_ns <= took, "busy for %llu ns, of %llu",
              (unsigned long long)after.busy_ns, (unsigned long long)took);
    ls_group_destroy(second);
    return LS_OK;
}

static void groups_that_are_busy_together_count_once(void **state)
{
    (void)state;
    const ls_world_opts o = { .transport = "tcp" };
    ls_rank_report r = ls_test_ranks(LS_TEST_THREADS, 2, &o, busy_at_the_same_time, NULL);
    if (r.failed) fail_msg("%s", r.text);
}

static void a_second_group_moves_beside_the_first(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        const ls_world_opts o = { .transport = wires[i] };
        bool wire = strcmp(wires[i], "tcp") == 0;
        ls_rank_report r = ls_test_ranks(LS_TEST_THREADS, 3, &o, moves_beside, &wire);
        if (r.failed) fail_msg("over %s: %s", wires[i], r.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(groups_have_names_and_counters),
        cmocka_unit_test(each_kind_is_counted_by_itself),
        cmocka_unit_test(errors_say_which_group),
        cmocka_unit_test(what_failed_is_still_known_after_destroy),
        cmocka_unit_test(a_second_group_moves_beside_the_first),
        cmocka_unit_test(groups_that_are_busy_together_count_once),
        cmocka_unit_test(knows_which_host_each_rank_is_on),
        cmocka_unit_test(splits_by_color_in_the_order_of_the_parent),
        cmocka_unit_test(groups_come_and_go),
        cmocka_unit_test(a_larger_group_does_not_get_the_memory_of_a_smaller_one),
        cmocka_unit_test(refuses_one_group_too_many),
    };
    return cmocka_run_group_tests_name("group", tests, NULL, NULL);
}
