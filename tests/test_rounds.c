/* A schedule round by round: as many rounds and messages as the books count, and sets that grow as they say. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "coll/rounds.h"

#define MOST 16

typedef struct all {
    ls_sched s[MOST];
    const ls_sched *p[MOST];
    ls_rounds r;
} all;

static void make(const char *algo, ls_coll coll, int n, int root, all *a)
{
    for (int r = 0; r < n; r++) {
        const ls_shape shape = { .coll = coll, .rank = r, .size = n, .root = root, .segments = 1, .nlanes = 1 };
        assert_int_equal(ls_sched_emit(ls_algo_find(algo), &shape, &a->s[r]), LS_OK);
        a->p[r] = &a->s[r];
    }
    assert_int_equal(ls_rounds_create(a->p, n, &a->r), LS_OK);
}

static void drop(all *a)
{
    for (int r = 0; r < a->r.size; r++) ls_sched_free(&a->s[r]);
    ls_rounds_free(&a->r);
}

static void a_ring_adds_one_rank_per_round(void **state)
{
    (void)state;
    for (int n = 2; n <= 9; n++) {
        all a = { 0 };
        make("ring", LS_ALL_REDUCE, n, 0, &a);
        assert_int_equal(a.r.n, 2 * (n - 1));
        assert_int_equal(a.r.nmessages, 2 * (n - 1) * n);
        for (int k = 0; k <= a.r.n; k++)
            for (int r = 0; r < n; r++) {
                int most = 0, complete = 0;
                for (uint32_t c = 0; c < a.r.nchunks; c++) {
                    const int have = ls_rounds_ranks(&a.r, k, r, c);
                    most = have > most ? have : most;
                    complete += have == n;
                }
                assert_int_equal(most, k < n ? k + 1 : n); /* reduce_scatter: the partial sum that goes round */
                assert_int_equal(complete, k < n - 1 ? 0 : k - (n - 1) + 1);
            }
        for (int i = 0; i < a.r.nmessages; i++) {
            assert_int_equal(a.r.message[i].round, i / n + 1);
            assert_int_equal(a.r.message[i].to, (a.r.message[i].from + 1) % n);
            assert_int_equal(a.r.message[i].adds, i / n + 1 < n);
        }
        drop(&a);
    }
}

static void a_tree_doubles_who_has_it(void **state)
{
    (void)state;
    for (int root = 0; root < 8; root += 3) {
        all a = { 0 };
        make("tree", LS_BROADCAST, 8, root, &a);
        assert_int_equal(a.r.n, 3);
        assert_int_equal(a.r.nmessages, 7);
        for (int k = 0; k <= 3; k++) {
            int have = 0;
            for (int r = 0; r < 8; r++) have += ls_rounds_ranks(&a.r, k, r, 0) == 1;
            assert_int_equal(have, 1 << k);
        }
        assert_int_equal(ls_rounds_count(&a.r, 3, 5, 0, root), 1);
        drop(&a);
    }
}

static void one_port_sends_a_message_per_round(void **state)
{
    (void)state;
    all a = { 0 };
    make("linear", LS_SCATTER, 5, 0, &a); /* the root sends all the others theirs, one after another */
    assert_int_equal(a.r.n, 4);
    for (int i = 0; i < 4; i++) assert_int_equal(a.r.message[i].round, i + 1);
    drop(&a);
    make("linear", LS_GATHER, 5, 0, &a); /* and receives one after another */
    assert_int_equal(a.r.n, 4);
    for (int i = 0; i < 4; i++) assert_int_equal(a.r.message[i].round, i + 1);
    drop(&a);
    make("direct", LS_REDUCE_SCATTER, 4, 0, &a); /* a SUM takes all messages at once: they count when they are sent */
    assert_int_equal(a.r.nmessages, 12);
    for (int i = 0; i < 12; i++) assert_int_equal(a.r.message[i].round, i / 4 + 1);
    for (int r = 0; r < 4; r++) assert_int_equal(ls_rounds_ranks(&a.r, a.r.n, r, (uint32_t)r), 4);
    drop(&a);
}

static void every_algorithm_ends_with_the_result(void **state)
{
    (void)state;
    for (int i = 0; ls_algos[i]; i++)
        for (int n = 1; n <= MOST; n += n < 5 ? 1 : 11) {
            const ls_shape shape = { .coll = LS_ALL_REDUCE, .size = n, .segments = 1, .nlanes = 1 };
            if (!(ls_algos[i]->colls & 1u << LS_ALL_REDUCE)) continue;
            if (ls_algos[i]->fits && !ls_algos[i]->fits(&shape)) continue;
            all a = { 0 };
            make(ls_algos[i]->name, LS_ALL_REDUCE, n, 0, &a);
            for (int r = 0; r < n; r++)
                for (uint32_t c = 0; c < a.r.nchunks; c++) assert_int_equal(ls_rounds_ranks(&a.r, a.r.n, r, c), n);
            drop(&a);
        }
}

static void a_deadlock_is_named(void **state)
{
    (void)state;
    all a = { 0 };
    make("ring", LS_ALL_REDUCE, 3, 0, &a);
    ls_rounds_free(&a.r);
    a.s[1].lane[0].n = 0; /* rank 1 does nothing */
    assert_int_equal(ls_rounds_create(a.p, 3, &a.r), LS_INTERNAL);
    assert_non_null(strstr(ls_last_error(), "deadlock"));
    drop(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_ring_adds_one_rank_per_round),
        cmocka_unit_test(a_tree_doubles_who_has_it),
        cmocka_unit_test(one_port_sends_a_message_per_round),
        cmocka_unit_test(every_algorithm_ends_with_the_result),
        cmocka_unit_test(a_deadlock_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
