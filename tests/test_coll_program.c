/* Collectives in the event engine, every message: closed forms of the literature over many ranks, sizes and networks,
 * and the reader of schedules that times them one by one (coll/sim.h). */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "../bench/coll_forms.h"
#include "base/team.h"
#include "coll/program.h"
#include "coll/sim.h"
#include "lockstep/plan.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

static uint64_t messages;

static double simulated(const char *algo, ls_coll coll, int n, int segments, int lanes, size_t nbytes, double gamma,
                        const ls_des_net *net)
{
    const ls_shape any = { .coll = coll, .size = n, .segments = segments, .nlanes = lanes };
    ls_coll_program p;
    ls_des_model m;
    ls_des_result r = { 0 };
    if (ls_coll_program_create(ls_algo_find(algo), &any, nbytes, gamma, &p) != LS_OK) fail_msg("%s", ls_last_error());
    ls_coll_program_model(&p, &m);
    m.net = *net;
    if (ls_des_run(&m, &r) != LS_OK) fail_msg("%s over %d ranks: %s", algo, n, ls_last_error());
    assert_true(r.messages == p.messages);
    messages = r.messages;
    ls_coll_program_free(&p);
    return r.end_s;
}

static void is_near(const char *what, int n, size_t S, double got, double want)
{
    if (!(fabs(got - want) <= 1e-9 * want))
        fail_msg("%s over %d ranks, %zu bytes: %.17g s, expected %.17g", what, n, S, got, want);
}

static const struct { double alpha, beta; } network[] = { { 1e-6, 1e9 }, { 5e-6, 5e10 }, { 0, 1e8 }, { 1e-3, 1e12 } };

static bool is_power(int n) { return (n & (n - 1)) == 0; }

static void take_what_the_closed_forms_say(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(coll_forms); i++)
        for (int n = 2; n <= 256; n = n < 20 ? n + 1 : n < 64 ? n + 13 : 2 * n - n % 64)
            for (size_t k = 0; k < 4 * COUNT(network); k++) {
                const double alpha = network[k / 4].alpha, beta = network[k / 4].beta;
                const size_t S = (size_t)n * (k % 4 == 0 ? 1 : k % 4 == 1 ? 1000 : k % 4 == 2 ? 12345 : 1 << 24);
                const coll_form *row = &coll_forms[i];
                const ls_algo *a = ls_algo_find(row->algo);
                const ls_shape any = { .coll = row->coll, .size = n, .segments = 1, .nlanes = 1 };
                if ((row->powers && !is_power(n)) || (a->fits && !a->fits(&any))) continue;
                const double want = ls_coll_seconds(row->form, row->coll, n, (double)S, alpha, beta);
                ls_des_net net = { .latency_s = alpha, .bytes_per_s = beta };
                for (int how = LS_DES_FREE; how <= LS_DES_FIFO; how++) {
                    net.sharing = (ls_des_sharing)how;
                    is_near(row->algo, n, S, simulated(row->algo, row->coll, n, 1, 1, S, 0, &net), want);
                }
            }
}

/* The best of all numbers of chunks. The formula's ports take a message when the one before has arrived. */
static void chains_take_what_the_closed_form_says(void **state)
{
    (void)state;
    const size_t S = 720720;
    for (int n = 2; n <= 40; n += n < 8 ? 1 : 8)
        for (double alpha = 4e-5; alpha < 1e-3; alpha *= 3) {
            const ls_des_net net = { .latency_s = alpha, .bytes_per_s = 1e9, .gap = 1, .sharing = LS_DES_FIFO };
            double least = (double)INFINITY;
            for (int C = 1; C <= 36; C++) {
                const double got = simulated("chain", LS_BROADCAST, n, C, 1, S, 0, &net);
                if (S % (size_t)C == 0) is_near("a chain", n, S, got, (n - 2 + C) * (alpha + (double)S / C / 1e9));
                least = fmin(least, got);
            }
            const double form = ls_coll_seconds(LS_COLL_CHAIN, LS_BROADCAST, n, (double)S, alpha, 1e9);
            if (fabs(least - form) > 1e-4 * form)
                fail_msg("the best chain over %d ranks: %.9g s, expected %.9g", n, least, form);
        }
}

static void sums_take_their_time(void **state)
{
    (void)state;
    const ls_des_net net = { .latency_s = 1e-6, .bytes_per_s = 1e9 };
    for (int n = 2; n <= 32; n++) {
        const size_t S = (size_t)n * 4096;
        const double share = 4096, k = n - 1;
        is_near("ring", n, S, simulated("ring", LS_ALL_REDUCE, n, 1, 1, S, 2e-10, &net),
                2 * k * (1e-6 + share * 1e-9) + k * share * 2e-10);
    }
}

/* All senders at once: the root's way in takes them one by one. */
static void who_gets_all_waits_for_all(void **state)
{
    (void)state;
    for (int n = 2; n <= 64; n *= 2) {
        const size_t S = (size_t)n * 1000;
        ls_des_net net = { .latency_s = 1e-6, .bytes_per_s = 1e9, .sharing = LS_DES_FIFO };
        is_near("linear gather", n, S, simulated("linear", LS_GATHER, n, 1, 1, S, 0, &net), 1e-6 + (n - 1) * 1e-6);
        net.sharing = LS_DES_FAIR;
        is_near("linear gather", n, S, simulated("linear", LS_GATHER, n, 1, 1, S, 0, &net), 1e-6 + (n - 1) * 1e-6);
        net.sharing = LS_DES_FREE;
        is_near("linear gather", n, S, simulated("linear", LS_GATHER, n, 1, 1, S, 0, &net), 1e-6 + 1e-6);
    }
}

/* Without a gap, and without two messages that want the same way, the other reader of schedules says the same. */
static void agrees_with_the_other_simulator(void **state)
{
    (void)state;
    const ls_cost cost = { .link = { [LS_LEVEL_NETWORK] = { 1000.0, 0, 1.0 } }, .gamma_ns = 0.25 };
    const ls_machine machine = { &cost, false, NULL };
    const ls_des_net net = { .latency_s = 1e-6, .bytes_per_s = 1e9, .sharing = LS_DES_FIFO };
    static const char *const algo[] = { "ring", "halving_doubling", "recursive_doubling", "tree", "chain" };
    int node[17], compared = 0;
    for (int i = 0; i < 17; i++) node[i] = i;
    for (size_t a = 0; a < COUNT(algo); a++)
        for (int c = 0; c < LS_COLLS; c++)
            for (int n = 2; n <= 17; n++) {
                const ls_shape any = { .coll = (ls_coll)c, .size = n, .segments = 1, .nlanes = 1, .node = node };
                const ls_algo *of = ls_algo_find(algo[a]);
                ls_sched s[17];
                const ls_sched *all[17] = { NULL };
                double ns;
                if (!(of->colls >> c & 1u) || (of->fits && !of->fits(&any)) || (a > 0 && !is_power(n))) continue;
                for (int r = 0; r < n; r++) {
                    ls_shape mine = any;
                    mine.rank = r;
                    assert_int_equal(ls_sched_emit(of, &mine, &s[r]), LS_OK);
                    all[r] = &s[r];
                }
                assert_int_equal(ls_sched_time(&machine, all, n, 720720, &ns), LS_OK);
                is_near(algo[a], n, 720720, simulated(algo[a], (ls_coll)c, n, 1, 1, 720720, 0.25e-9, &net), ns * 1e-9);
                for (int r = 0; r < n; r++) ls_sched_free(&s[r]);
                compared++;
            }
    assert_true(compared > 60);
}

static void nothing_depends_on_threads(void **state)
{
    (void)state;
    const ls_des_net net = { .latency_s = 1e-6, .bytes_per_s = 1e9, .sharing = LS_DES_FIFO };
    const int before = ls_team_resize(1);
    const double one = simulated("halving_doubling", LS_ALL_REDUCE, 5000, 1, 1, 1234567, 1e-10, &net);
    const uint64_t count = messages;
    for (int t = 2; t <= 4; t++) {
        ls_team_resize(t);
        assert_true(simulated("halving_doubling", LS_ALL_REDUCE, 5000, 1, 1, 1234567, 1e-10, &net) == one);
        assert_true(messages == count);
    }
    ls_team_resize(before);
}

/* Programs of many ranks are shared or woven; where ranks have unequal ones, they are neither. */
static void many_ranks_take_what_the_closed_forms_say(void **state)
{
    (void)state;
    const double a = 1e-6, b = 1e9;
    ls_des_net net = { .latency_s = a, .bytes_per_s = b };
    const int most = getenv("LOCKSTEP_TEST_LONG") ? 1 << 17 : 1 << 14; /* bench_plan has a million */
    for (int how = LS_DES_FREE; how <= LS_DES_FIFO; how++) {
        net.sharing = (ls_des_sharing)how;
        for (int n = most / 2; n <= most; n *= 2) {
            const size_t S = (size_t)n * 10;
            is_near("halving and doubling", n, S, simulated("halving_doubling", LS_ALL_REDUCE, n, 1, 1, S, 0, &net),
                    ls_coll_seconds(LS_COLL_HALVING, LS_ALL_REDUCE, n, (double)S, a, b));
        }
        is_near("tree", most, 1000, simulated("tree", LS_BROADCAST, most, 1, 1, 1000, 0, &net),
                log2(most) * (a + 1000 / b));
    }
    is_near("linear", most, 1 << 20, simulated("linear", LS_GATHER, most, 1, 1, 1 << 20, 0, &net),
            a + (most - 1) * ((1 << 20) / most) / b); /* LS_DES_FIFO: the way into the root takes one after another */
}

/* The schedule of each rank as operations that name ranks by number: no program is shared or woven. */
static void simulate_by_number(const char *algo, int n, size_t S, double gamma, const ls_des_net *net, double *ends)
{
    const ls_algo *a = ls_algo_find(algo);
    double cost[4096] = { 0 };
    uint32_t ncosts = 1;
    ls_des_op **program = calloc((size_t)n, sizeof *program);
    assert_non_null(program);
    for (int r = 0; r < n; r++) {
        const ls_shape mine = { .coll = LS_ALL_REDUCE, .rank = r, .size = n, .segments = 1, .nlanes = 1 };
        ls_sched s = { .shape = mine }; /* not sealed, which would take a minute */
        assert_int_equal(a->emit(&s, &mine), LS_OK);
        program[r] = malloc((s.lane[0].n + 1) * sizeof **program);
        assert_non_null(program[r]);
        ls_des_op *at = program[r];
        for (uint32_t i = 0; i < s.lane[0].n; i++) {
            const ls_step *x = &s.lane[0].step[i];
            const bool sends = x->kind == LS_STEP_SEND, works = x->kind == LS_STEP_REDUCE;
            if (x->kind == LS_STEP_COPY) continue; /* takes no time */
            const ls_slice of = sends ? x->src : x->dst;
            /* Shares are as even as can be, the first S % n one longer. */
            const size_t from = of.first, to = from + of.n, more = S % (size_t)n;
            const size_t length = of.n * (S / (size_t)n) + (to < more ? to : more) - (from < more ? from : more);
            const double c = sends ? (double)length : x->kind == LS_STEP_RECV ? 0 : gamma * (double)length;
            uint32_t k = 0;
            while (k < ncosts && cost[k] != c) k++;
            if (k == ncosts) cost[ncosts++] = c;
            assert_true(ncosts < COUNT(cost));
            const ls_des_kind kind = sends ? LS_DES_SEND : works ? LS_DES_WORK : LS_DES_RECV;
            *at++ = ls_des_op_of(kind, works ? 0 : (uint32_t)x->peer, 0, k);
        }
        *at = ls_des_op_of(LS_DES_END, 0, 0, 0);
        ls_sched_free(&s);
    }
    const ls_des_model m = { .n = (uint32_t)n, .program = (const ls_des_op *const *)program, .cost = cost,
                             .ncosts = ncosts, .net = *net };
    ls_des_result r = { .ends_s = ends };
    if (ls_des_run(&m, &r) != LS_OK) fail_msg("%s", ls_last_error());
    for (int i = 0; i < n; i++) free(program[i]);
    free(program);
}

/* Where shares are even, all ranks of a power of two have one program; unequal ones give a few more. Programs of other
 * numbers of ranks are woven. Each rank ends at the same time, to the bit. */
static void shared_and_woven_programs_change_no_bit(void **state)
{
    (void)state;
    static const struct { const char *algo; int n; size_t each, more; double gamma; bool shared; } row[] = {
        { "halving_doubling", 1 << 16, 100, 0, 0, true },
        { "halving_doubling", 1 << 16, 100, 0, 1e-10, true },
        { "halving_doubling", 1 << 16, 0, 21845, 0, true }, /* two ranks of three have an empty share */
        { "halving_doubling", 1 << 16, 0, 21845, 1e-9, true },
        { "halving_doubling", 70000, 100, 3, 1e-10, false },
        { "recursive_doubling", 1 << 16, 100, 5, 1e-10, true }, /* always the whole vector */
        { "recursive_doubling", 66000, 100, 0, 1e-10, false },
    };
    for (size_t i = 0; i < COUNT(row); i++) {
        const int n = row[i].n;
        double *want = malloc(2 * (size_t)n * sizeof *want);
        assert_non_null(want);
        const ls_shape any = { .coll = LS_ALL_REDUCE, .size = n, .segments = 1, .nlanes = 1 };
        const size_t S = (size_t)n * row[i].each + row[i].more;
        const ls_des_net net = { .latency_s = 1e-6, .bytes_per_s = 1e9, .sharing = i % 2 ? LS_DES_FIFO : LS_DES_FREE };
        ls_coll_program p;
        ls_des_model m;
        ls_des_result r = { .ends_s = want + n };
        if (ls_coll_program_create(ls_algo_find(row[i].algo), &any, S, row[i].gamma, &p) != LS_OK)
            fail_msg("%s", ls_last_error());
        if (p.flips != row[i].shared) fail_msg("%s over %d ranks: shared %d", row[i].algo, n, p.flips);
        assert_int_equal(p.log2_stride, row[i].shared ? 0 : 6);
        ls_coll_program_model(&p, &m);
        m.net = net;
        if (ls_des_run(&m, &r) != LS_OK) fail_msg("%s: %s", row[i].algo, ls_last_error());
        simulate_by_number(row[i].algo, n, S, row[i].gamma, &net, want);
        for (int k = 0; k < n; k++)
            if (want[k] != want[n + k])
                fail_msg("%s: rank %d ends at %.17g s, expected %.17g", row[i].algo, k, want[n + k], want[k]);
        ls_coll_program_free(&p);
        free(want);
    }
}

static void every_message_is_there(void **state)
{
    (void)state;
    const ls_des_net net = { .latency_s = 1e-6, .bytes_per_s = 1e9 };
    simulated("halving_doubling", LS_ALL_REDUCE, 4096, 1, 1, 1 << 20, 0, &net);
    assert_int_equal(messages, 4096 * 2 * 12);
    simulated("ring", LS_ALL_REDUCE, 100, 4, 4, 1 << 20, 0, &net); /* in four lanes */
    assert_int_equal(messages, 100 * 4 * 2 * 99);
    simulated("direct", LS_ALL_REDUCE, 20, 1, 1, 1 << 20, 0, &net);
    assert_int_equal(messages, 20 * 2 * 19);
}

static void what_ranks_do_in_mapped_memory_is_refused(void **state)
{
    (void)state;
    const ls_shape any = { .coll = LS_ALL_REDUCE, .size = 4, .segments = 1, .nlanes = 1 };
    ls_coll_program p;
    assert_int_equal(ls_coll_program_create(ls_algo_find("fold"), &any, 4096, 0, &p), LS_UNSUPPORTED);
    assert_non_null(strstr(ls_last_error(), "algorithm 'fold' works on memory that all ranks map"));
    assert_int_equal(ls_coll_program_create(ls_algo_find("pairwise"), &any, 4096, 0, &p), LS_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(take_what_the_closed_forms_say),
        cmocka_unit_test(chains_take_what_the_closed_form_says),
        cmocka_unit_test(sums_take_their_time),
        cmocka_unit_test(who_gets_all_waits_for_all),
        cmocka_unit_test(agrees_with_the_other_simulator),
        cmocka_unit_test(nothing_depends_on_threads),
        cmocka_unit_test(many_ranks_take_what_the_closed_forms_say),
        cmocka_unit_test(shared_and_woven_programs_change_no_bit),
        cmocka_unit_test(every_message_is_there),
        cmocka_unit_test(what_ranks_do_in_mapped_memory_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
