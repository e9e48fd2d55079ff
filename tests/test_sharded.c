/* ls_check_sharded: whether all ranks have the same samples in their first batch. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "lockstep/lockstep.h"

#define RANKS 3

/* What each rank has, and what all of them find. */
typedef struct batches {
    size_t n[RANKS];
    int64_t id[RANKS][4];
    bool want;
} batches;

static ls_status check(ls_world *w, void *arg)
{
    const batches *b = arg;
    const int rank = ls_world_rank(w);
    bool same = !b->want;
    LS_TRY(ls_check_sharded(ls_world_group(w), b->id[rank], b->n[rank], &same));
    return same == b->want ? LS_OK : ls_fail(LS_INTERNAL, "same is %d on rank %d", same, rank);
}

static void finds_ranks_with_the_same_ids(void **state)
{
    (void)state;
    batches row[] = {
        { { 3, 3, 3 }, { { 5, 0, 7 }, { 5, 0, 7 }, { 5, 0, 7 } }, true },
        { { 3, 3, 3 }, { { 5, 0, 7 }, { 5, 0, 7 }, { 5, 0, 8 } }, false }, /* one id of one rank */
        { { 3, 3, 3 }, { { 5, 0, 7 }, { 4, 0, 7 }, { 5, 0, 7 } }, false },
        { { 3, 3, 3 }, { { 5, 0, 7 }, { 7, 0, 5 }, { 0, 5, 7 } }, false }, /* another order */
        { { 2, 3, 2 }, { { 5, 0, 7 }, { 5, 0, 7 }, { 5, 0, 7 } }, false }, /* another number */
        { { 1, 1, 1 }, { { -1 }, { -1 }, { -1 } }, true },
        { { 0, 0, 0 }, { { 0 } }, false }, /* no samples are no shared ones */
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        if (ls_world_threads(RANKS, NULL, check, &row[i]) < 0) fail_msg("row %zu: %s", i, ls_last_error());
}

static void a_single_rank_shares_with_nobody(void **state)
{
    (void)state;
    batches b = { .n = { 2 }, .id = { { 1, 2 } }, .want = false };
    assert_int_equal(ls_world_threads(1, NULL, check, &b), LS_OK);
}

typedef struct loading { bool sampler, want; size_t skip; } loading;

static ls_status load(ls_world *w, void *arg)
{
    const loading *x = arg;
    ls_dataset d;
    ls_sampler *s = NULL;
    ls_loader *l = NULL;
    bool same = !x->want;
    LS_TRY(ls_dataset_synthetic(0, 30, 2, 2, &d));
    ls_status st = x->sampler ? ls_sampler_create(30, RANKS, ls_world_rank(w), true, 0, false, &s) : LS_OK;
    if (st == LS_OK) st = ls_loader_create(&d, s, 4, false, &l);
    /* rank 1 is so many batches ahead of the others */
    for (size_t i = 0; st == LS_OK && i <= (ls_world_rank(w) == 1 ? x->skip : 0); i++) st = ls_loader_next(l);
    if (st == LS_OK) st = ls_loader_check_sharded(l, ls_world_group(w), &same);
    ls_loader_destroy(l);
    ls_sampler_destroy(s);
    ls_dataset_free(&d);
    if (st < 0) return st;
    return same == x->want ? LS_OK : ls_fail(LS_INTERNAL, "same is %d on rank %d", same, ls_world_rank(w));
}

static void asks_a_loader_for_the_batch_at_hand(void **state)
{
    (void)state;
    loading row[] = { { false, true, 0 }, { true, false, 0 }, { false, false, 1 } };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        if (ls_world_threads(RANKS, NULL, load, &row[i]) < 0) fail_msg("row %zu: %s", i, ls_last_error());
}

/* Of no batch there are no ids. */
static ls_status without_a_batch(ls_world *w, void *arg)
{
    ls_dataset d = { 0 };
    ls_loader *l = NULL;
    bool same;
    (void)arg;
    LS_TRY(ls_dataset_synthetic(0, 30, 2, 2, &d));
    ls_status st = ls_loader_create(&d, NULL, 4, false, &l);
    const ls_status before = st == LS_OK ? ls_loader_check_sharded(l, ls_world_group(w), &same) : st;
    if (st == LS_OK) st = ls_loader_next(l);
    if (st == LS_OK) ls_loader_rewind(l);
    const ls_status after = st == LS_OK ? ls_loader_check_sharded(l, ls_world_group(w), &same) : st;
    ls_loader_destroy(l);
    ls_dataset_free(&d);
    if (st < 0) return st;
    return before == LS_INVALID && after == LS_INVALID ? LS_OK : ls_fail(LS_INTERNAL, "%d before the first batch, %d after a rewind", before, after);
}

static void asks_for_a_batch_first(void **state)
{
    (void)state;
    if (ls_world_threads(RANKS, NULL, without_a_batch, NULL) < 0) fail_msg("%s", ls_last_error());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_ranks_with_the_same_ids),
        cmocka_unit_test(a_single_rank_shares_with_nobody),
        cmocka_unit_test(asks_a_loader_for_the_batch_at_hand),
        cmocka_unit_test(asks_for_a_batch_first),
    };
    return cmocka_run_group_tests_name("sharded", tests, NULL, NULL);
}
