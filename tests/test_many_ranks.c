/* As many ranks as a host may have: 256 threads join a world, talk and leave; and what an idle one of them takes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "group/group.h"
#include "harness.h"
#include "net/world.h"

static ls_status sums_over(ls_group *g)
{
    const int rank = ls_group_rank(g), size = ls_group_size(g);
    static const size_t counts[] = { 1, 100, 5000 };
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        float *x = calloc(counts[i] + 1, sizeof *x);
        if (!x) return ls_fail(LS_NO_MEMORY, "%zu floats", counts[i]);
        for (size_t k = 0; k < counts[i]; k++) x[k] = (float)(rank + (int)(k % 7));
        x[counts[i]] = -1.0f;
        ls_status st = ls_all_reduce(g, NULL, x, counts[i], LS_F32, LS_SUM);
        for (size_t k = 0; k < counts[i] && st == LS_OK; k++) { /* exact in float */
            const float want = (float)(size * (size - 1) / 2 + size * (int)(k % 7));
            if (x[k] != want) st = ls_fail(LS_INTERNAL, "x[%zu] = %g, want %g", k, (double)x[k], (double)want);
        }
        if (st == LS_OK && x[counts[i]] != -1.0f) st = ls_fail(LS_INTERNAL, "wrote past the end");
        free(x);
        LS_TRY(st);
    }
    return LS_OK;
}

static ls_status one_of_many(ls_world *w, void *arg)
{
    (void)arg;
    ls_group *g = ls_world_group(w);
    const int rank = ls_world_rank(w), size = ls_world_size(w);
    LS_EXPECT(g->mapped, "the ranks of one host have not mapped each other's memory");
    LS_TRY(sums_over(g));
    LS_TRY(ls_barrier(g));
    int64_t got = -1, mine = rank; /* a message around the ring: a pipe is taken for it */
    const ls_p2p x[] = { { .send = &mine, .count = 1, .dtype = LS_I64, .peer = (rank + 1) % size },
                         { .recv = &got, .count = 1, .dtype = LS_I64, .peer = (rank + size - 1) % size } };
    LS_TRY(ls_p2p_batch(g, x, 2));
    LS_EXPECT(got == (rank + size - 1) % size, "rank %d was sent %d", rank, (int)got);
    ls_group *row;
    LS_TRY(ls_group_split(g, rank / 16, &row)); /* groups across the words of a rank set */
    LS_TRY(sums_over(row));
    ls_group_destroy(row);
    return ls_barrier(g);
}

static void as_many_ranks_as_a_host_may_have(void **state)
{
    (void)state;
    static const int sizes[] = { 65, 129, LS_HOST_MOST_RANKS };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const ls_world_opts o = { .arena_bytes = (size_t)1 << 20, .coll_timeout_ns = 120000000000u };
        ls_rank_report r = ls_test_ranks(LS_TEST_THREADS, sizes[i], &o, one_of_many, NULL);
        if (r.failed) fail_msg("%d ranks: %s", sizes[i], r.text);
    }
}

static void one_more_is_refused_with_the_reason(void **state)
{
    (void)state;
    assert_int_equal(ls_world_threads(LS_HOST_MOST_RANKS + 1, NULL, one_of_many, NULL), LS_INVALID);
    assert_non_null(strstr(ls_last_error(), "257 ranks: expected 1 to 256, since each looks at the memory of all"));
}

/* Bytes of shared memory of this process that are there: /proc/self/smaps counts a page once for each mapping, and the
 * ranks here share one mapping of each arena and of the page. */
static size_t resident_shared(void)
{
    FILE *f = fopen("/proc/self/smaps", "r");
    char line[512];
    size_t total = 0, kib;
    bool ours = false;
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        if (strstr(line, "memfd:")) ours = strstr(line, "memfd:lockstep") != NULL;
        else if (strchr(line, '-') && strchr(line, '-') < strchr(line, ' ')) ours = false;
        if (ours && sscanf(line, "Rss: %zu kB", &kib) == 1) total += kib << 10;
    }
    fclose(f);
    return total;
}

#define MANY 128

static ls_status idle_rank(ls_world *w, void *arg)
{
    LS_TRY(ls_barrier(ls_world_group(w)));
    if (ls_world_rank(w) == 0) *(size_t *)arg = resident_shared();
    const size_t comm = ls_world_ledger(w)->now[LS_MEM_COMM];
    const size_t arena = ls_arena_size(w->arena); /* as world.h says */
    LS_EXPECT(arena == (size_t)448 << 10, "an arena of %zu bytes to begin with, expected 448 KiB", arena);
    LS_EXPECT(comm <= ls_group_bytes(ls_world_size(w)) + (16u << 10), "an idle rank has allocated %zu bytes", comm);
    return ls_barrier(ls_world_group(w));
}

static void an_idle_rank_takes_less_than_a_mebibyte(void **state)
{
    (void)state;
    size_t bytes = 0;
    const ls_world_opts o = { .coll_timeout_ns = 120000000000u };
    assert_int_equal(ls_world_threads(MANY, &o, idle_rank, &bytes), LS_OK);
    assert_true(bytes > 0);
    if (bytes / MANY >= (size_t)1 << 20) fail_msg("%zu KiB per rank", bytes / MANY >> 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_many_ranks_as_a_host_may_have),
        cmocka_unit_test(one_more_is_refused_with_the_reason),
        cmocka_unit_test(an_idle_rank_takes_less_than_a_mebibyte),
    };
    return cmocka_run_group_tests_name("many_ranks", tests, NULL, NULL);
}
