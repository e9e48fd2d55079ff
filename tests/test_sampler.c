/* sampler: the golden index lists of torch.utils.data.DistributedSampler, and what holds for all of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "lockstep/data.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

typedef struct golden {
    size_t n;
    int size;
    bool shuffle, drop_last;
    uint64_t seed, epoch;
    size_t num_samples;
    int64_t want[8][8]; /* [rank][i] */
} golden;

static void matches_pytorch(void **state)
{
    (void)state;
    static const golden row[] = {
        { 20, 4, false, false, 0, 0, 5, { { 0, 4, 8, 12, 16 }, { 1, 5, 9, 13, 17 }, { 2, 6, 10, 14, 18 }, { 3, 7, 11, 15, 19 } } },
        { 10, 4, false, false, 0, 0, 3, { { 0, 4, 8 }, { 1, 5, 9 }, { 2, 6, 0 }, { 3, 7, 1 } } },
        { 10, 4, false, true, 0, 0, 2, { { 0, 4 }, { 1, 5 }, { 2, 6 }, { 3, 7 } } },
        { 3, 8, false, false, 0, 0, 1, { { 0 }, { 1 }, { 2 }, { 0 }, { 1 }, { 2 }, { 0 }, { 1 } } },
        { 3, 4, false, true, 0, 0, 0, { { 0 } } },
        { 11, 4, false, true, 0, 0, 2, { { 0, 4 }, { 1, 5 }, { 2, 6 }, { 3, 7 } } },
        { 20, 4, true, false, 0, 0, 5, { { 4, 7, 9, 16, 15 }, { 5, 14, 17, 18, 8 }, { 13, 3, 11, 10, 1 }, { 19, 6, 2, 12, 0 } } },
        { 20, 4, true, false, 0, 1, 5, { { 5, 19, 4, 16, 6 }, { 13, 18, 7, 10, 17 }, { 2, 1, 0, 15, 12 }, { 11, 9, 14, 3, 8 } } },
        { 10, 4, true, false, 0, 2, 3, { { 8, 6, 2 }, { 7, 9, 3 }, { 1, 0, 8 }, { 5, 4, 7 } } },
        { 10, 3, true, true, 42, 0, 3, { { 2, 8, 0 }, { 6, 4, 9 }, { 1, 5, 3 } } },
    };
    for (size_t k = 0; k < COUNT(row); k++)
        for (int rank = 0; rank < row[k].size; rank++) {
            const golden *g = &row[k];
            ls_sampler *s;
            assert_int_equal(ls_sampler_create(g->n, g->size, rank, g->shuffle, g->seed, g->drop_last, &s), LS_OK);
            assert_int_equal(ls_sampler_set_epoch(s, g->epoch), LS_OK);
            assert_int_equal(s->num_samples, g->num_samples);
            assert_memory_equal(s->index, g->want[rank], g->num_samples * sizeof *s->index);
            ls_sampler_destroy(s);
        }

    /* R234: 1000 samples over 4 ranks are 250 each. R235 is the row of 20 samples above. */
    static const int64_t first[] = { 44, 947, 561, 756, 256, 15, 272, 385 };
    ls_sampler *s;
    assert_int_equal(ls_sampler_create(1000, 4, 0, true, 0, false, &s), LS_OK);
    assert_int_equal(s->num_samples, 250);
    assert_memory_equal(s->index, first, sizeof first);
    ls_sampler_destroy(s);
}

/* How often each of n samples is seen by all ranks in one epoch. */
static void count_uses(size_t n, int size, bool shuffle, bool drop_last, int *uses, size_t *each)
{
    for (size_t i = 0; i < n; i++) uses[i] = 0;
    for (int rank = 0; rank < size; rank++) {
        ls_sampler *s;
        assert_int_equal(ls_sampler_create(n, size, rank, shuffle, 9, drop_last, &s), LS_OK);
        *each = s->num_samples;
        for (size_t i = 0; i < s->num_samples; i++) uses[s->index[i]]++;
        ls_sampler_destroy(s);
    }
}

static void shows_every_sample_at_least_once_or_drops_fewer_than_ranks(void **state)
{
    (void)state;
    int uses[40];
    size_t each;
    for (size_t n = 1; n < 40; n++)
        for (int size = 1; size <= 9; size++)
            for (int shuffle = 0; shuffle < 2; shuffle++) {
                size_t w = (size_t)size, dropped = 0, total = 0;
                count_uses(n, size, shuffle, false, uses, &each);
                assert_int_equal(each, (n + w - 1) / w);
                int most = (int)((each * w + n - 1) / n); /* times round the list */
                for (size_t i = 0; i < n; i++) {
                    assert_true(uses[i] >= 1 && uses[i] <= most);
                    total += (size_t)uses[i];
                }
                assert_int_equal(total, each * w);
                count_uses(n, size, shuffle, true, uses, &each);
                assert_int_equal(each, n / w);
                for (size_t i = 0; i < n; i++) {
                    assert_true(uses[i] <= 1);
                    dropped += uses[i] == 0;
                }
                assert_true(dropped < w);
            }
}

/* Where ranks' samples stand in the step, row by row. */
static void deals_grains_to_ranks(void **state)
{
    (void)state;
    static const struct { ls_deal deal; int rank; size_t want[4]; } row[] = {
        { { 4, 1, 1 }, 0, { 0, 1, 2, 3 } },   { { 4, 1, 1 }, 1, { 4, 5, 6, 7 } },    { { 4, 1, 4 }, 1, { 1, 5, 9, 13 } },
        { { 4, 1, 4 }, 3, { 3, 7, 11, 15 } }, { { 4, 1, 2 }, 1, { 1, 3, 5, 7 } },    { { 4, 1, 2 }, 2, { 8, 10, 12, 14 } },
        { { 4, 2, 1 }, 1, { 4, 5, 6, 7 } },   { { 4, 2, 4 }, 1, { 2, 3, 10, 11 } },  { { 4, 2, 2 }, 3, { 10, 11, 14, 15 } },
        { { 4, 4, 4 }, 2, { 8, 9, 10, 11 } },
    };
    for (size_t k = 0; k < COUNT(row); k++)
        for (size_t i = 0; i < 4; i++) assert_int_equal(ls_deal_place(&row[k].deal, row[k].rank, i), row[k].want[i]);
}

/* A step has the same samples in the same places, however many ranks there are and however they take turns: PyTorch's
 * permutation, gone round again. */
static void a_dealt_step_does_not_depend_on_the_ranks(void **state)
{
    (void)state;
    enum { N = 45, STEP = 16 };
    int64_t want[3 * STEP];
    ls_sampler *s;
    assert_int_equal(ls_sampler_create_dealt(N, 1, 0, true, 3, false, &(ls_deal){ STEP, 1, 1 }, &s), LS_OK);
    assert_int_equal(s->num_samples, 3 * STEP);
    memcpy(want, s->index, sizeof want);
    ls_sampler_destroy(s);
    assert_int_equal(ls_sampler_create(N, 1, 0, true, 3, false, &s), LS_OK);
    for (size_t i = 0; i < 3 * STEP; i++) assert_int_equal(want[i], s->index[i % N]);
    ls_sampler_destroy(s);
    for (int ranks = 1; ranks <= 8; ranks *= 2)
        for (int inner = 1; inner <= ranks; inner *= 2)
            for (size_t grain = 1; grain <= STEP / (size_t)ranks; grain *= 2) {
                int64_t found[3 * STEP];
                memset(found, 0xff, sizeof found);
                for (int r = 0; r < ranks; r++) {
                    const ls_deal d = { STEP / (size_t)ranks, grain, inner };
                    assert_int_equal(ls_sampler_create_dealt(N, ranks, r, true, 3, false, &d, &s), LS_OK);
                    assert_int_equal(s->num_samples, 3 * d.batch);
                    for (size_t i = 0; i < s->num_samples; i++)
                        found[i / d.batch * STEP + ls_deal_place(&d, r, i % d.batch)] = s->index[i];
                    ls_sampler_destroy(s);
                }
                assert_memory_equal(found, want, sizeof want);
            }
    assert_int_equal(ls_sampler_create_dealt(N, 2, 1, true, 3, true, &(ls_deal){ 8, 1, 2 }, &s), LS_OK);
    assert_int_equal(s->num_samples, 16); /* the third step is not whole */
    ls_sampler_destroy(s);
    static const ls_deal bad[] = { { 8, 3, 1 }, { 8, 0, 1 }, { 8, 1, 3 }, { 8, 1, 0 } };
    for (size_t i = 0; i < COUNT(bad); i++)
        assert_int_equal(ls_sampler_create_dealt(N, 4, 0, true, 3, false, &bad[i], &s), LS_INVALID);
}

static void repeats_an_epoch_and_changes_with_the_next(void **state)
{
    (void)state;
    ls_sampler *s;
    int64_t zero[50];
    assert_int_equal(ls_sampler_create(100, 2, 1, true, 0, false, &s), LS_OK);
    memcpy(zero, s->index, sizeof zero);
    assert_int_equal(ls_sampler_set_epoch(s, 1), LS_OK);
    assert_true(memcmp(zero, s->index, sizeof zero) != 0);
    assert_int_equal(s->epoch, 1);
    assert_int_equal(ls_sampler_set_epoch(s, 0), LS_OK);
    assert_memory_equal(zero, s->index, sizeof zero);
    ls_sampler_destroy(s);
}

static void refuses_a_rank_outside_the_replicas(void **state)
{
    (void)state;
    static const struct { int size, rank; } bad[] = { { 4, 4 }, { 4, -1 }, { 0, 0 } };
    for (size_t i = 0; i < COUNT(bad); i++) {
        ls_sampler *s;
        assert_int_equal(ls_sampler_create(10, bad[i].size, bad[i].rank, false, 0, false, &s), LS_INVALID);
        assert_null(s);
    }
    ls_sampler *s;
    assert_int_equal(ls_sampler_create(10, 4, 4, false, 0, false, &s), LS_INVALID);
    assert_non_null(strstr(ls_last_error(), "Invalid rank 4, rank should be in the interval [0, 3]"));
}

static void serves_an_empty_set(void **state)
{
    (void)state;
    ls_sampler *s;
    assert_int_equal(ls_sampler_create(0, 3, 2, true, 0, false, &s), LS_OK);
    assert_int_equal(s->num_samples, 0);
    ls_sampler_destroy(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matches_pytorch),
        cmocka_unit_test(shows_every_sample_at_least_once_or_drops_fewer_than_ranks),
        cmocka_unit_test(deals_grains_to_ranks),
        cmocka_unit_test(a_dealt_step_does_not_depend_on_the_ranks),
        cmocka_unit_test(repeats_an_epoch_and_changes_with_the_next),
        cmocka_unit_test(refuses_a_rank_outside_the_replicas),
        cmocka_unit_test(serves_an_empty_set),
    };
    return cmocka_run_group_tests_name("sampler", tests, NULL, NULL);
}
