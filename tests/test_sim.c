/* Timing schedules: equal to the closed forms of the literature, and choosing by them. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "coll/choose.h"

/* Numbers that are exact in binary, so that sums come out to the bit. */
static const ls_cost cost = {
    .link = { [LS_LEVEL_MEMORY] = { 256.0, 64.0, 0.125 }, [LS_LEVEL_LOOPBACK] = { 8192.0, 1024.0, 0.5 },
              [LS_LEVEL_NETWORK] = { 65536.0, 2048.0, 8.0 } },
    .gamma_ns = 0.25,
    .poke_ns = 4096.0,
};
static const ls_machine wire = { &cost, false, NULL }, memory = { &cost, true, NULL };

static double timed(const ls_machine *m, const char *algo, ls_coll coll, int size, int segments, int lanes,
                    const int *node, size_t nbytes)
{
    ls_sched s[16];
    const ls_sched *all[16] = { NULL };
    double ns = -1.0;
    for (int r = 0; r < size; r++) {
        ls_shape shape = { .coll = coll, .rank = r, .size = size, .segments = segments, .nlanes = lanes, .node = node };
        if (ls_sched_emit(ls_algo_find(algo), &shape, &s[r]) != LS_OK) fail_msg("%s", ls_last_error());
        all[r] = &s[r];
    }
    if (ls_sched_time(m, all, size, nbytes, &ns) != LS_OK) fail_msg("%s", ls_last_error());
    for (int r = 0; r < size; r++) ls_sched_free(&s[r]);
    return ns;
}

static void check(const char *what, int n, double got, double want)
{
    if (fabs(got - want) > 1e-9 * want) fail_msg("%s over %d ranks: %.3f ns, expected %.3f", what, n, got, want);
}

/* --- closed forms -------------------------------------------------------------------------------- */

static void rings_take_what_the_formula_says(void **state)
{
    (void)state;
    const double a = 8192.0, b = 0.5, g = 0.25, am = 256.0, bm = 0.125;
    for (int n = 2; n <= 16; n++) {
        double share = 720720.0, k = n - 1;
        size_t S = 720720u * (size_t)n;
        check("ring all_reduce", n, timed(&wire, "ring", LS_ALL_REDUCE, n, 1, 1, NULL, S),
              2 * k * (a + b * share) + k * g * share);
        check("ring reduce_scatter", n, timed(&wire, "ring", LS_REDUCE_SCATTER, n, 1, 1, NULL, S),
              k * (a + b * share + g * share));
        check("ring all_gather", n, timed(&wire, "ring", LS_ALL_GATHER, n, 1, 1, NULL, S), k * (a + b * share));
        check("ring-gloo", n, timed(&wire, "ring-gloo", LS_ALL_REDUCE, n, 1, 1, NULL, S),
              2 * k * (a + b * share) + k * g * share);
        /* in memory a sum needs no copy first */
        check("ring in memory", n, timed(&memory, "ring", LS_ALL_REDUCE, n, 1, 1, NULL, S),
              k * (am + g * share) + k * (am + bm * share));
    }
}

static void direct_takes_two_rounds(void **state)
{
    (void)state;
    for (int n = 2; n <= 16; n++) {
        double share = 720720.0, k = n - 1;
        size_t S = 720720u * (size_t)n;
        check("direct", n, timed(&wire, "direct", LS_ALL_REDUCE, n, 1, 1, NULL, S),
              2 * (8192.0 + (k - 1) * 1024.0 + k * 0.5 * share) + 0.25 * share * (n + 1) / 3);
        double first = 256.0 + (k - 1) * 64.0; /* the sum waits for everyone's last message */
        double second = fmax(256.0, k * 64.0); /* copies begin when the first is there and all own ones are offered */
        check("direct in memory", n, timed(&memory, "direct", LS_ALL_REDUCE, n, 1, 1, NULL, S),
              first + second + 0.25 * share * (n + 1) / 3 + k * 0.125 * share);
    }
}

static void doubling_takes_a_logarithm_of_rounds(void **state)
{
    (void)state;
    const double a = 8192.0, b = 0.5, g = 0.25, S = 1 << 20;
    for (int n = 2, log = 1; n <= 16; n *= 2, log++) {
        size_t nbytes = (size_t)S;
        check("recursive doubling", n, timed(&wire, "recursive_doubling", LS_ALL_REDUCE, n, 1, 1, NULL, nbytes),
              log * (a + b * S + g * S));
        check("halving-doubling", n, timed(&wire, "halving_doubling", LS_ALL_REDUCE, n, 1, 1, NULL, nbytes),
              2 * log * a + 2 * (n - 1.0) / n * b * S + (n - 1.0) / n * g * S);
        check("binomial broadcast", n, timed(&wire, "tree", LS_BROADCAST, n, 1, 1, NULL, nbytes), log * (a + b * S));
        check("dissemination", n, timed(&wire, "dissemination", LS_BARRIER, n, 1, 1, NULL, 0), log * a);
    }
}

static void a_chain_is_a_pipeline(void **state)
{
    (void)state;
    for (int n = 2; n <= 16; n++)
        for (int k = 1; k <= 64; k *= 4) {
            double piece = (double)(1 << 22) / k;
            check("chain", n, timed(&wire, "chain", LS_BROADCAST, n, k, 1, NULL, 1 << 22),
                  (n - 1) * (8192.0 + 0.5 * piece) + (k - 1) * (1024.0 + 0.5 * piece));
        }
}

static void everything_through_one_rank_grows_with_their_number(void **state)
{
    (void)state;
    for (int n = 2; n <= 16; n++) { /* R61: in and out of the master 2 (n-1) S, where a ring's rank has 2 (n-1)/n S */
        double S = 1 << 20;
        check("master", n, timed(&wire, "master", LS_ALL_REDUCE, n, 1, 1, NULL, 1 << 20),
              2 * (8192.0 + (n - 2) * 1024.0 + (n - 1) * 0.5 * S) + 0.25 * S * (n + 1) / 3);
    }
}

static void ranks_of_a_host_share_its_wire(void **state)
{
    (void)state;
    static const int in_order[4] = { 0, 0, 1, 1 }, dealt_out[4] = { 0, 1, 0, 1 };
    const double a = 65536.0, o = 2048.0, b = 8.0, g = 0.25, am = 256.0, bm = 0.125;
    const double q = 1 << 20; /* a quarter of the vector */
    size_t S = (size_t)4 << 20;
    /* dealt out, two messages leave each host in each of 6 rounds; in order, one; and the wire is never idle */
    check("ring, dealt out", 4, timed(&memory, "ring", LS_ALL_REDUCE, 4, 1, 1, dealt_out, S), 12 * (o + b * q) + a - o);
    check("ring, in order", 4, timed(&memory, "ring", LS_ALL_REDUCE, 4, 1, 1, in_order, S), 6 * (o + b * q) + a - o);
    double two_levels = am + g * 2 * q + 4 * (o + b * q) + a - o + am + bm * 2 * q;
    check("two levels", 4, timed(&memory, "hierarchical", LS_ALL_REDUCE, 4, 1, 1, in_order, S), two_levels);
    check("two levels, dealt out", 4, timed(&memory, "hierarchical", LS_ALL_REDUCE, 4, 1, 1, dealt_out, S), two_levels);
}

static void crowded_hosts_hand_out_their_cores(void **state)
{
    (void)state;
    static const int two = 2, four = 4;
    const ls_machine crowded = { &cost, true, &two }, enough = { &cost, true, &four };
    /* two ranks offer their first message while the other two wait for a core */
    check("barrier", 4, timed(&crowded, "dissemination", LS_BARRIER, 4, 1, 1, NULL, 0), 64.0 + 2 * (256.0 + 4096.0));
    check("barrier", 4, timed(&enough, "dissemination", LS_BARRIER, 4, 1, 1, NULL, 0), 2 * 256.0);
    /* 4 ranks offer and copy 3 shares each, two at a time; no core is idle */
    double share = 1 << 20, t = timed(&crowded, "direct", LS_ALL_GATHER, 4, 1, 1, NULL, (size_t)4 << 20);
    check("all_gather", 4, t, 4 * 3 * (64.0 + share * 0.125) / 2);
}

/* Schedules written by hand, of one lane. */
enum { CHUNK = 1 << 20 };
static const ls_slice mine = { LS_BUF_OUT, 0, 1 };

static void empty(ls_sched *s, const ls_sched **all, int size, const int *node)
{
    for (int r = 0; r < size; r++) {
        s[r] = (ls_sched){ .shape = { LS_ALL_GATHER, r, size, 0, 1, 1, node, false },
                           .nchunks = { 0, (uint32_t)size, 0 } };
        all[r] = &s[r];
    }
}

static double time_by_hand(ls_sched *s, const ls_sched **all, int size, const ls_machine *m)
{
    double ns = -1.0;
    if (ls_sched_time(m, all, size, (size_t)size * CHUNK, &ns) != LS_OK) fail_msg("%s", ls_last_error());
    for (int r = 0; r < size; r++) ls_sched_free(&s[r]);
    return ns;
}

/* Ranks 0 and 1 want the only core of their host at the same moment: rank 0 copies, then rank 1, while rank 0's message
 * is on its way. */
static void of_ranks_that_are_ready_at_once_the_first_goes_first(void **state)
{
    (void)state;
    static const int node[] = { 0, 0, 1 }, one[] = { 1, 1 };
    const ls_machine crowded = { &cost, true, one };
    ls_sched s[3];
    const ls_sched *all[3];
    empty(s, all, 3, node);
    for (int r = 0; r < 2; r++) assert_int_equal(ls_sched_copy(&s[r], 0, mine, (ls_slice){ LS_BUF_OUT, 1, 1 }), LS_OK);
    assert_int_equal(ls_sched_send(&s[0], 0, 2, mine), LS_OK);
    assert_int_equal(ls_sched_recv(&s[2], 0, 0, mine), LS_OK);
    check("copy, then message", 3, time_by_hand(s, all, 3, &crowded), 0.125 * CHUNK + 65536.0 + 8.0 * CHUNK);
}

/* Rank 0's message holds the way out of its host, where rank 1's to rank 4 waits. Rank 3 has its own to rank 4 ready
 * later, but can send it earlier. */
static void a_message_that_waits_for_one_way_does_not_hold_another(void **state)
{
    (void)state;
    static const int node[] = { 0, 0, 1, 2, 3 };
    const double way = 2048.0 + 8.0 * CHUNK;
    ls_sched s[5];
    const ls_sched *all[5];
    empty(s, all, 5, node);
    assert_int_equal(ls_sched_send(&s[0], 0, 2, mine), LS_OK);
    assert_int_equal(ls_sched_send(&s[1], 0, 4, mine), LS_OK);
    assert_int_equal(ls_sched_copy(&s[3], 0, mine, (ls_slice){ LS_BUF_OUT, 1, 1 }), LS_OK);
    assert_int_equal(ls_sched_send(&s[3], 0, 4, mine), LS_OK);
    assert_int_equal(ls_sched_recv(&s[2], 0, 0, mine), LS_OK);
    assert_int_equal(ls_sched_recv(&s[4], 0, 3, mine), LS_OK);
    assert_int_equal(ls_sched_recv(&s[4], 0, 1, mine), LS_OK);
    check("two to one host", 5, time_by_hand(s, all, 5, &memory), 0.125 * CHUNK + way + 65536.0 + 8.0 * CHUNK);
}

static void refuses_a_schedule_that_never_ends(void **state)
{
    (void)state;
    ls_sched s[2] = { { .shape = { LS_ALL_GATHER, 0, 2, 0, 1, 1, NULL, false }, .nchunks = { 0, 2, 0 } },
                      { .shape = { LS_ALL_GATHER, 1, 2, 0, 1, 1, NULL, false }, .nchunks = { 0, 2, 0 } } };
    const ls_sched *all[2] = { &s[0], &s[1] };
    double ns;
    assert_int_equal(ls_sched_recv(&s[0], 0, 1, (ls_slice){ LS_BUF_OUT, 1, 1 }), LS_OK);
    assert_int_equal(ls_sched_time(&wire, all, 2, 100, &ns), LS_INTERNAL);
    assert_non_null(strstr(ls_last_error(), "rank 0, lane 0, waits at step 0 for ever"));
    ls_sched_free(&s[0]);
}

/* --- choosing -------------------------------------------------------------------------------------- */

/* Of the three that powers of two know formulas for, the fastest by the formula is the fastest here. */
static void the_predicted_order_is_that_of_the_formulas(void **state)
{
    (void)state;
    const double a = 8192.0, b = 0.5, g = 0.25;
    int won[3] = { 0, 0, 0 };
    static const char *const names[3] = { "recursive_doubling", "halving_doubling", "oneshot" };
    for (int n = 2, log = 1; n <= 16; n *= 2, log++)
        for (double S = 16; S < 1 << 26; S *= 4) {
            double k = (n - 1.0) / n;
            const double formula[3] = { log * (a + b * S + g * S), 2 * log * a + 2 * k * b * S + k * g * S,
                                        a + (n - 1) * b * S + 0.125 * S + g * S * (n + 1) / 3 };
            double got[3];
            for (int i = 0; i < 3; i++) got[i] = timed(&wire, names[i], LS_ALL_REDUCE, n, 1, 1, NULL, (size_t)S);
            int want = 0, best = 0;
            for (int i = 1; i < 3; i++) {
                if (formula[i] < formula[want]) want = i;
                if (got[i] < got[best]) best = i;
            }
            if (best != want)
                fail_msg("%d ranks, %g bytes: %s in %g ns, expected %s", n, S, names[best], got[best], names[want]);
            won[best]++;
        }
    assert_true(won[0] > 0 && won[1] > 0 && won[2] > 0); /* each is worth having */
}

static const ls_choice *choice_by(const ls_choice *p, int n, const char *name)
{
    for (int i = 0; i < n; i++)
        if (strcmp(p[i].algo->name, name) == 0) return &p[i];
    return NULL;
}

static void sorts_every_candidate_by_time(void **state)
{
    (void)state;
    ls_choice p[LS_MAX_CHOICES], again[LS_MAX_CHOICES];
    int n, m;
    for (int coll = 0; coll < LS_COLLS; coll++)
        for (int size = 2; size <= 9; size++)
            for (size_t nbytes = 0; nbytes < (size_t)64 << 20; nbytes = 40 * nbytes + 8) {
                ls_question q = { .coll = (ls_coll)coll, .size = size, .nlanes = 2 };
                if (coll == LS_SENDRECV) continue;
                if (ls_choose(&wire, &q, nbytes, p, &n) != LS_OK) fail_msg("%s", ls_last_error());
                assert_int_equal(ls_choose(&wire, &q, nbytes, again, &m), LS_OK);
                assert_int_equal(n, m);
                assert_true(n >= 1 && n < LS_MAX_CHOICES);
                for (int i = 0; i < n; i++) {
                    assert_true(p[i].ns > 0.0 && (i == 0 || p[i].ns >= p[i - 1].ns));
                    assert_true(p[i].algo == again[i].algo && p[i].segments == again[i].segments);
                    assert_true(p[i].nlanes <= 2 && !p[i].algo->by_name);
                    assert_true(p[i].algo->colls & 1u << coll);
                }
            }
}

/* Sizes asked for together, the largest in the middle, get the answers that each gets alone. */
static void sizes_do_not_know_of_each_other(void **state)
{
    (void)state;
    static ls_choice together[LS_CHOOSE_SIZES][LS_MAX_CHOICES], alone[LS_MAX_CHOICES];
    size_t nbytes[LS_CHOOSE_SIZES];
    int n[LS_CHOOSE_SIZES], m;
    for (int i = 0; i < LS_CHOOSE_SIZES; i++) nbytes[i] = i == 8 ? (size_t)64 << 20 : (size_t)1 << 3 * (i % 8);
    for (int coll = 0; coll < LS_COLLS; coll++)
        for (int size = 2; size <= 8; size += 3) {
            const ls_question q = { .coll = (ls_coll)coll, .size = size, .nlanes = 2 };
            if (coll == LS_SENDRECV) continue;
            assert_int_equal(ls_choose_sizes(&wire, &q, nbytes, LS_CHOOSE_SIZES, together, n), LS_OK);
            for (int i = 0; i < LS_CHOOSE_SIZES; i++) {
                assert_int_equal(ls_choose(&wire, &q, nbytes[i], alone, &m), LS_OK);
                assert_int_equal(n[i], m);
                for (int k = 0; k < m; k++) {
                    assert_ptr_equal(together[i][k].algo, alone[k].algo);
                    assert_int_equal(together[i][k].segments, alone[k].segments);
                    assert_true(together[i][k].ns == alone[k].ns);
                }
            }
        }
    const ls_question none = { .coll = LS_ALL_REDUCE, .size = 5, .nlanes = 2, .only = ls_algo_find("tree") };
    assert_int_equal(ls_choose_sizes(&wire, &none, nbytes, 2, together, n), LS_UNSUPPORTED);
}

static void long_broadcasts_go_in_segments(void **state)
{
    (void)state;
    ls_choice p[LS_MAX_CHOICES];
    int n;
    ls_question q = { .coll = LS_BROADCAST, .size = 8, .nlanes = 2 };
    assert_int_equal(ls_choose(&wire, &q, (size_t)64 << 20, p, &n), LS_OK);
    assert_true(p[0].segments >= 16);
    assert_int_equal(ls_choose(&wire, &q, 64, p, &n), LS_OK);
    assert_int_equal(p[0].segments, 1);
}

static void hosts_make_two_levels_worth_it(void **state)
{
    (void)state;
    static const int dealt_out[8] = { 0, 1, 0, 1, 0, 1, 0, 1 };
    ls_choice p[LS_MAX_CHOICES];
    int n;
    ls_question q = { .coll = LS_ALL_REDUCE, .size = 8, .node = dealt_out, .nlanes = 2 };
    for (size_t nbytes = 1 << 16; nbytes <= (size_t)64 << 20; nbytes *= 4) {
        assert_int_equal(ls_choose(&memory, &q, nbytes, p, &n), LS_OK);
        assert_string_equal(p[0].algo->name, "hierarchical");
        assert_true(choice_by(p, n, "ring")->ns > 2.5 * p[0].ns);
    }
}

static void does_as_it_is_told(void **state)
{
    (void)state;
    ls_choice p[LS_MAX_CHOICES];
    int n;
    ls_question q = { .coll = LS_ALL_REDUCE, .size = 5, .nlanes = 2, .only = ls_algo_find("master") };
    assert_int_equal(ls_choose(&wire, &q, 1000, p, &n), LS_OK);
    assert_true(n == 1 && p[0].algo == q.only);
    q.only = ls_algo_find("tree");
    assert_int_equal(ls_choose(&wire, &q, 1000, p, &n), LS_UNSUPPORTED);
    assert_non_null(strstr(ls_last_error(), "all_reduce: no algorithm over 5 ranks by the name of tree"));
    q.only = NULL;
    q.ascending = true; /* direct and oneshot have the bits of what peers' memory is summed with */
    assert_int_equal(ls_choose(&memory, &q, 1 << 20, p, &n), LS_OK);
    assert_true(choice_by(p, n, "direct") && choice_by(p, n, "oneshot") && !choice_by(p, n, "ring") && !choice_by(p, n, "fold"));
    assert_string_equal(p[0].algo->name, "direct");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rings_take_what_the_formula_says),
        cmocka_unit_test(direct_takes_two_rounds),
        cmocka_unit_test(doubling_takes_a_logarithm_of_rounds),
        cmocka_unit_test(a_chain_is_a_pipeline),
        cmocka_unit_test(everything_through_one_rank_grows_with_their_number),
        cmocka_unit_test(ranks_of_a_host_share_its_wire),
        cmocka_unit_test(crowded_hosts_hand_out_their_cores),
        cmocka_unit_test(of_ranks_that_are_ready_at_once_the_first_goes_first),
        cmocka_unit_test(a_message_that_waits_for_one_way_does_not_hold_another),
        cmocka_unit_test(refuses_a_schedule_that_never_ends),
        cmocka_unit_test(the_predicted_order_is_that_of_the_formulas),
        cmocka_unit_test(sorts_every_candidate_by_time),
        cmocka_unit_test(sizes_do_not_know_of_each_other),
        cmocka_unit_test(long_broadcasts_go_in_segments),
        cmocka_unit_test(hosts_make_two_levels_worth_it),
        cmocka_unit_test(does_as_it_is_told),
    };
    return cmocka_run_group_tests_name("sim", tests, NULL, NULL);
}
