/* What a call is refused for, before any byte moves: each with the sentence that names it; the group is as good as
 * ever afterwards. And what looks alike but is allowed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/context.h"
#include "harness.h"

#define RANKS 3
#define N 12 /* floats of a vector */

typedef struct refusal {
    ls_coll_args a;
    const char *says;
} refusal;

static ls_status refused(ls_group *g, const refusal *row, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        ls_work *work = (ls_work *)(void *)g;
        ls_status st = ls_coll_start(g, &row[i].a, &work);
        LS_EXPECT(st == LS_INVALID && !work, "row %zu (%s) gives %d", i, row[i].says, (int)st);
        LS_EXPECT(strstr(ls_last_error(), row[i].says), "row %zu: '%s' does not say '%s'", i, ls_last_error(),
                  row[i].says);
    }
    return ls_barrier(g); /* nothing of this has numbered a collective */
}

/* --- numbers ------------------------------------------------------------------------------------------------ */

static ls_status wrong_numbers(ls_world *w, void *arg)
{
    (void)arg;
    float x[N] = { 0 }, y[N];
    static const size_t counts[RANKS] = { 1, 2, 3 }, huge[RANKS] = { 1, SIZE_MAX / 16, 1 };
    const refusal row[] = {
        { { .coll = LS_COLLS, .out = x, .count = N }, "collective number 10 does not exist" },
        { { .coll = (ls_coll)-1, .out = x, .count = N }, "does not exist" },
        { { .coll = LS_ALL_REDUCE, .out = x, .count = N, .dtype = LS_DTYPES },
          "all_reduce: dtype number 7 does not exist" },
        { { .coll = LS_BARRIER, .dtype = (ls_dtype)-1 }, "barrier: dtype number -1 does not exist" },
        { { .coll = LS_REDUCE, .out = x, .count = N, .op = (ls_redop)(LS_SUM_TREE + 1) },
          "reduce: reduction number 6 does not exist" },
        { { .coll = LS_ALL_REDUCE, .out = x, .count = N, .dtype = LS_I32, .op = LS_AVG },
          "the average of int32 is not defined: use a sum" },
        { { .coll = LS_REDUCE_SCATTER, .out = x, .count = N, .dtype = LS_I64, .op = LS_AVG },
          "the average of int64 is not defined" },
        { { .coll = LS_REDUCE, .out = x, .count = N, .dtype = LS_U8, .op = LS_AVG },
          "the average of uint8 is not defined" },
        { { .coll = LS_BROADCAST, .out = x, .count = N, .root = RANKS },
          "broadcast: root 3 of a group of 3: expected 0 to 2" },
        { { .coll = LS_REDUCE, .out = x, .count = N, .root = -1 }, "reduce: root -1 of a group of 3" },
        { { .coll = LS_GATHER, .in = x, .out = y, .count = N, .root = 99 }, "gather: root 99 of a group of 3" },
        { { .coll = LS_SCATTER, .in = x, .out = y, .count = N, .root = 3 }, "scatter: root 3 of a group of 3" },
        { { .coll = LS_ALL_REDUCE, .out = x, .count = SIZE_MAX / 2 },
          "all_reduce: 9223372036854775807 elements of float are more than memory can hold" },
        { { .coll = LS_ALL_TO_ALL, .in = x, .out = y, .count = N - 1 },
          "all_to_all: 11 elements for 3 ranks: expected a multiple of 3, or counts per rank" },
        { { .coll = LS_ALL_REDUCE, .out = x, .counts = counts }, "all_reduce has no counts per rank" },
        { { .coll = LS_BROADCAST, .out = x, .counts = counts }, "broadcast has no counts per rank" },
        { { .coll = LS_ALL_TO_ALL, .in = x, .out = y, .counts = counts },
          "all_to_all: counts of what is sent, but none of what is received" },
        { { .coll = LS_ALL_TO_ALL, .in = x, .out = y, .count = 3, .recv_counts = counts },
          "counts of what is received, but none of what is sent" },
        { { .coll = LS_ALL_GATHER, .in = x, .out = y, .counts = counts, .recv_counts = counts },
          "only all_to_all has these" },
        { { .coll = LS_ALL_GATHER, .in = x, .out = y, .counts = huge },
          "all_gather: counts[1] = 1152921504606846975: together more than memory" },
        { { .coll = LS_ALL_TO_ALL, .in = x, .out = y, .counts = counts, .recv_counts = huge },
          "all_to_all: recv_counts[1] = " },
    };
    LS_TRY(refused(ls_world_group(w), row, sizeof row / sizeof *row));
    ls_group *g = ls_world_group(w);
    LS_EXPECT(ls_all_gather_v(g, x, y, NULL, LS_F32) == LS_INVALID, "no counts");
    LS_EXPECT(strstr(ls_last_error(), "all_gather: no counts per rank"), "%s", ls_last_error());
    LS_EXPECT(ls_reduce_scatter_v(g, x, y, NULL, LS_F32, LS_SUM) == LS_INVALID &&
                  ls_gather_v(g, x, y, NULL, LS_F32, 0) == LS_INVALID &&
                  ls_scatter_v(g, x, y, NULL, LS_F32, 0) == LS_INVALID &&
                  ls_all_to_all_v(g, x, NULL, y, counts, LS_F32) == LS_INVALID,
              "no counts");
    LS_EXPECT(ls_all_to_all_v(g, x, counts, y, NULL, LS_F32) == LS_INVALID, "no counts of what is received");
    return ls_barrier(g);
}

/* --- buffers ---------------------------------------------------------------------------------------------------- */

static ls_status wrong_buffers(ls_world *w, void *arg)
{
    (void)arg;
    ls_group *g = ls_world_group(w);
    float x[4 * N] = { 0 };
    static const size_t counts[RANKS] = { 5, 4, 3 };
    const int me = ls_world_rank(w), other = (me + 1) % RANKS;
    const char *const apart = "expected buffers apart, or exactly in place";
    const refusal row[] = {
        { { .coll = LS_ALL_REDUCE, .count = N }, "all_reduce: no buffer for 12 elements of float" },
        { { .coll = LS_ALL_REDUCE, .in = x, .count = N }, "all_reduce: no buffer for 12 elements" },
        { { .coll = LS_REDUCE_SCATTER, .in = x, .count = N }, "reduce_scatter: no buffer for 4 elements" },
        { { .coll = LS_ALL_GATHER, .in = x, .count = N }, "all_gather: no buffer for 12 elements" },
        { { .coll = LS_BROADCAST, .count = N, .root = me },
          "broadcast: no buffer for 12 elements of float on the root" },
        { { .coll = LS_BROADCAST, .count = N, .root = other }, "broadcast: no buffer for 12 elements of float" },
        { { .coll = LS_REDUCE, .in = x, .count = N, .root = me },
          "reduce: no buffer for 12 elements of float on the root" },
        { { .coll = LS_REDUCE, .count = N, .root = other }, "reduce: no buffer for 12 elements" },
        { { .coll = LS_GATHER, .in = x, .count = N, .root = me },
          "gather: no buffer for 12 elements of float on the root" },
        { { .coll = LS_GATHER, .count = N, .root = other }, "gather: no buffer for 4 elements" },
        { { .coll = LS_SCATTER, .count = N, .root = me }, "scatter: no buffer for 12 elements of float on the root" },
        { { .coll = LS_SCATTER, .in = x, .count = N, .root = other }, "scatter: no buffer for 4 elements" },
        { { .coll = LS_ALL_TO_ALL, .in = x, .count = N }, "all_to_all: no buffer for 12 elements" },
        { { .coll = LS_GATHER, .in = x, .counts = counts, .root = me },
          "gather: no buffer for 12 elements of float on the root" },
        { { .coll = LS_ALL_REDUCE, .in = x, .out = x + 1, .count = N },
          "all_reduce: in (48 bytes) and out (48 bytes) overlap, out beginning 4 bytes after in" },
        { { .coll = LS_ALL_REDUCE, .in = x + 1, .out = x, .count = N }, apart },
        { { .coll = LS_ALL_REDUCE, .in = x, .out = x + N - 1, .count = N }, apart },
        { { .coll = LS_REDUCE_SCATTER, .in = x, .out = x + 4 * (size_t)other + 1, .count = N }, apart },
        { { .coll = LS_REDUCE_SCATTER, .in = x, .out = x + 4 * (size_t)(me ? me - 1 : 1), .count = N }, apart },
        { { .coll = LS_ALL_GATHER, .in = x + 4 * (size_t)me + 1, .out = x, .count = N },
          "all_gather: in (16 bytes) and out (48 bytes) overlap" },
        { { .coll = LS_BROADCAST, .in = x + 1, .out = x, .count = N, .root = me }, apart },
        { { .coll = LS_REDUCE, .in = x + 1, .out = x, .count = N, .root = me }, apart },
        { { .coll = LS_GATHER, .in = x + 4 * (size_t)me + 1, .out = x, .count = N, .root = me }, apart },
        { { .coll = LS_SCATTER, .in = x, .out = x + 4 * (size_t)me + 1, .count = N, .root = me }, apart },
        { { .coll = LS_ALL_TO_ALL, .in = x, .out = x + 3, .count = N }, apart },
        { { .coll = LS_ALL_TO_ALL, .in = x, .out = x + 1, .counts = counts, .recv_counts = counts }, apart },
    };
    size_t n = sizeof row / sizeof *row;
    for (size_t i = 0; i < n; i++) { /* a share at 0 is rank 0's: exactly in place there */
        bool exact = row[i].a.coll == LS_REDUCE_SCATTER && row[i].a.out == x;
        LS_TRY(refused(g, &row[i], !exact));
    }
    return LS_OK;
}

/* What stands where it belongs, in each spelling; nothing where nothing is needed. */
static ls_status in_place_after_all(ls_world *w, void *arg)
{
    (void)arg;
    ls_group *g = ls_world_group(w);
    const int me = ls_world_rank(w);
    const size_t own = 4 * (size_t)me;
    float x[N], y[N];
    for (int spelling = 0; spelling < 2; spelling++) {
        for (size_t i = 0; i < N; i++) x[i] = (float)(me + 1);
        LS_TRY(ls_reduce_scatter(g, spelling ? x : NULL, spelling ? x + own : x, N, LS_F32, LS_SUM));
        for (size_t i = 0; i < 4; i++) LS_EXPECT(x[own + i] == 6.0f, "reduce_scatter: %g", (double)x[own + i]);
        LS_TRY(ls_all_gather(g, spelling ? x + own : NULL, x, N, LS_F32));
        for (size_t i = 0; i < N; i++) LS_EXPECT(x[i] == 6.0f, "all_gather: %g", (double)x[i]);
        for (size_t i = 0; i < 4; i++) x[own + i] = (float)(10 * me + (int)i);
        LS_TRY(ls_gather(g, me == 1 && !spelling ? NULL : x + own, me == 1 ? x : NULL, N, LS_F32, 1));
        for (size_t i = 0; me == 1 && i < N; i++)
            LS_EXPECT(x[i] == (float)(10 * (i / 4) + i % 4), "gather: %g", (double)x[i]);
        LS_TRY(ls_scatter(g, me == 1 ? x : NULL, me == 1 ? (spelling ? x + own : NULL) : y, N, LS_F32, 1));
        for (size_t i = 0; me != 1 && i < 4; i++)
            LS_EXPECT(y[i] == (float)(10 * me + (int)i), "scatter: %g", (double)y[i]);
        for (size_t i = 0; me == 1 && i < N; i++)
            LS_EXPECT(x[i] == (float)(10 * (i / 4) + i % 4), "scatter changes %g", (double)x[i]);
    }
    LS_TRY(ls_reduce(g, x, me == 2 ? y : NULL, N, LS_F32, LS_SUM, 2));
    LS_TRY(ls_all_reduce(g, NULL, NULL, 0, LS_F32, LS_SUM));
    LS_TRY(ls_all_gather(g, NULL, NULL, 0, LS_F32));
    LS_TRY(ls_all_to_all(g, NULL, NULL, 0, LS_F32));
    LS_TRY(ls_all_reduce(g, x, x + N, 0, LS_F32, LS_SUM));
    static const size_t none[RANKS] = { 0, 0, 0 };
    LS_TRY(ls_all_gather_v(g, NULL, NULL, none, LS_F32));
    return ls_all_to_all_v(g, NULL, none, NULL, none, LS_F32);
}

/* --- groups --------------------------------------------------------------------------------------------------------
 */

static ls_status wrong_groups(ls_world *w, void *arg)
{
    ls_group **of_rank = arg, *half, *again;
    const int me = ls_world_rank(w);
    float x[4] = { 0 };
    ls_work *work, *late = NULL;
    ls_coll_args a = { .coll = LS_ALL_REDUCE, .out = x, .count = 4 };
    LS_TRY(ls_group_split(ls_world_group(w), me == 2 ? -1 : 0, &half));
    if (me == 2) {
        LS_EXPECT(!half && ls_barrier(half) == LS_INVALID, "a barrier of no group");
        LS_EXPECT(strstr(ls_last_error(), "a rank whose color was below 0 at ls_group_split is in none"), "%s",
                  ls_last_error());
        LS_EXPECT(ls_send(half, x, 4, LS_F32, 0) == LS_INVALID && ls_p2p_batch(half, NULL, 0) == LS_INVALID,
                  "messages in no group");
        LS_EXPECT(ls_all_reduce_coalesced(half, NULL, NULL, 0, LS_F32, LS_SUM) == LS_INVALID, "tensors of no group");
        LS_EXPECT(ls_group_split(half, 0, &again) == LS_INVALID && !again, "a split of no group");
    } else {
        LS_TRY(ls_coll_start(half, &a, &late));
        LS_TRY(ls_work_wait(late));
        ls_group_destroy(half);
        ls_group_destroy(half); /* once more does nothing */
        const ls_status st[] = { ls_all_reduce(half, NULL, x, 4, LS_F32, LS_SUM),
                                 ls_barrier(half),
                                 ls_send(half, x, 4, LS_F32, 1 - me),
                                 ls_recv(half, x, 4, LS_F32, 1 - me),
                                 ls_p2p_batch(half, &(ls_p2p){ .send = x, .count = 1, .peer = 1 - me }, 1),
                                 ls_all_reduce_coalesced(half, NULL, NULL, 0, LS_F32, LS_SUM),
                                 ls_coll_start(half, &a, &work),
                                 ls_group_split(half, 0, &again) };
        for (size_t i = 0; i < sizeof st / sizeof *st; i++)
            LS_EXPECT(st[i] == LS_INVALID, "call %zu gives %d", i, (int)st[i]);
        LS_EXPECT(strstr(ls_last_error(), "cannot be used any more: it was destroyed"), "%s", ls_last_error());
        LS_EXPECT(ls_work_wait(late) == LS_INVALID && strstr(ls_last_error(), "its handle is over"), "%s",
                  ls_last_error());
    }
    LS_TRY(ls_barrier(ls_world_group(w)));
    for (int turn = 0; turn < 60; turn++) { /* their memory serves again */
        LS_TRY(ls_group_split(ls_world_group(w), turn % 2 ? me % 2 : 0, &again));
        LS_TRY(ls_barrier(again));
        ls_group_destroy(again);
    }
    if (!of_rank) return LS_OK;
    of_rank[me] = ls_world_group(w); /* ranks that are threads could take each other's handles */
    LS_TRY(ls_barrier(ls_world_group(w)));
    ls_group *other = of_rank[(me + 1) % RANKS];
    LS_EXPECT(ls_all_reduce(other, NULL, x, 4, LS_F32, LS_SUM) == LS_INVALID, "another rank's group");
    LS_EXPECT(strstr(ls_last_error(), "each rank has handles of its own"), "%s", ls_last_error());
    LS_EXPECT(ls_send(other, x, 4, LS_F32, me) == LS_INVALID, "a message in another rank's group");
    LS_EXPECT(strstr(ls_last_error(), "each rank has handles of its own"), "%s", ls_last_error());
    return ls_barrier(ls_world_group(w));
}

/* --- everywhere -----------------------------------------------------------------------------------------------------
 */

static void everywhere(ls_rank_fn fn)
{
    static const char *const wires[] = { "shm", "tcp" };
    ls_group *of_rank[RANKS];
    for (int wire = 0; wire < 2; wire++)
        for (int thread = 0; thread < 2; thread++) {
            ls_world_opts o = { .transport = wires[wire],
                                .progress = thread ? LS_PROGRESS_THREAD : LS_PROGRESS_INLINE };
            ls_rank_report r = ls_test_ranks(LS_TEST_THREADS, RANKS, &o, fn, of_rank);
            if (r.failed) fail_msg("over %s%s: %s", wires[wire], thread ? ", progress thread" : "", r.text);
        }
    ls_rank_report r = ls_test_ranks(LS_TEST_PROCESSES, RANKS, NULL, fn, NULL);
    if (r.failed) fail_msg("processes: %s", r.text);
}

static void refuses_numbers_that_make_no_sense(void **state)
{
    (void)state;
    everywhere(wrong_numbers);
}

static void refuses_missing_and_overlapping_buffers(void **state)
{
    (void)state;
    everywhere(wrong_buffers);
}

static void knows_in_place_in_every_spelling(void **state)
{
    (void)state;
    everywhere(in_place_after_all);
}

static void refuses_groups_that_are_none_gone_or_anothers(void **state)
{
    (void)state;
    everywhere(wrong_groups);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refuses_numbers_that_make_no_sense),
        cmocka_unit_test(refuses_missing_and_overlapping_buffers),
        cmocka_unit_test(knows_in_place_in_every_spelling),
        cmocka_unit_test(refuses_groups_that_are_none_gone_or_anothers),
    };
    return cmocka_run_group_tests_name("args", tests, NULL, NULL);
}
