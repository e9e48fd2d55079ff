/* What waiting costs ranks that share cores: in a simulated step, by closed forms; and what is measured of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "lockstep/opts.h"
#include "plan/step_sim.h"

#define assert_done(expr)                                                          \
    do {                                                                           \
        if ((expr) != LS_OK) fail_msg("%s: %s", #expr, ls_last_error());           \
    } while (0)

#define KIB 1024.0

static const ls_topo links = { .name = "links", .nlevels = 1,
                               .level = { { .name = "node", .link = "link", .count = 4, .bytes_per_s = 1e15,
                                            .latency_s = 1e-12, .ports = 1, .oversubscription = 1 } } };

static const ls_wait_cost costs = { .coll_s = 1e-3, .message_s = 5e-4,
                                .refill_s = { 1e-5, 3e-5, 4e-5, 4e-5, 4e-5, 4e-5, 4e-5 } };

/* Four ranks: on two cores, what all compute takes twice as long; 0: each has its own. */
static double step_on(double cores, ls_step_item *item, int n, const ls_wait_cost *waits,
                      const ls_measured_colls *colls)
{
    ls_step_lists l = {
        .ranks = 4, .stages = 1, .chunks = 1, .micro_batches = 1, .schedule = "1f1b",
        .size = { [LS_AXIS_PP] = 1, [LS_AXIS_DP] = 4, [LS_AXIS_EP] = 1, [LS_AXIS_CP] = 1, [LS_AXIS_TP] = 1 },
        .order = { LS_AXIS_PP, LS_AXIS_DP, LS_AXIS_EP, LS_AXIS_CP, LS_AXIS_TP },
    };
    l.of[0].item = item;
    l.of[0].n = n;
    const ls_step_sim_opts o = { .t = &links, .cores = cores, .waits = waits, .colls = colls };
    ls_step_result *r = calloc(1, sizeof *r);
    assert_non_null(r);
    assert_done(ls_step_simulate(&l, &o, r));
    const ls_step_parts *p = &r->stage[0];
    const double step = r->step_s, sum = p->compute + p->collectives + p->others + p->beside + p->stages + p->idle;
    assert_true(sum > step * (1 - 1e-9) && sum < step * (1 + 1e-9));
    double alone = 0;
    for (int i = 0; i < n; i++) alone += item[i].seconds;
    assert_true(p->core_s > alone * (1 - 1e-9) && p->core_s < alone * (1 + 1e-9));
    free(r);
    return step;
}

static double step_of(ls_step_item *item, int n, const ls_wait_cost *waits)
{
    return step_on(2, item, n, waits, NULL);
}

static ls_step_item work(double seconds, double bytes)
{
    return (ls_step_item){ .kind = LS_ITEM_WORK, .seconds = seconds, .bytes = bytes };
}

static ls_step_item call(ls_item_kind kind, ls_coll coll)
{
    return (ls_step_item){ .kind = kind, .coll = coll, .bytes = 64, .span = { .axes = 1u << LS_AXIS_DP } };
}

static void near(double found, double expected)
{
    if (found < expected - 1e-8 || found > expected + 1e-8) fail_msg("%.9f s: expected %.9f", found, expected);
}

static void a_wait_costs_a_change_of_ranks_and_what_is_read_again(void **state)
{
    (void)state;
    ls_step_item item[] = { work(.01, 64 * KIB), call(LS_ITEM_COLL, LS_ALL_REDUCE), work(.01, 96 * KIB),
                            call(LS_ITEM_COLL, LS_ALL_GATHER), call(LS_ITEM_COLL, LS_ALL_REDUCE) };
    near(step_of(item, 5, NULL), 2 * .02);
    /* 64 KiB are read again in 10 us, 96 KiB in 20; nothing is between the last two */
    near(step_of(item, 5, &costs), 2 * (.02 + 3e-3 + 1e-5 + 2e-5));
}

static void what_goes_on_beside_is_waited_for_once(void **state)
{
    (void)state;
    ls_step_item item[] = { work(.01, 0), call(LS_ITEM_BEGIN, LS_ALL_REDUCE), work(.01, 1e9),
                            { .kind = LS_ITEM_WAIT, .count = 1 } };
    near(step_of(item, 4, NULL), 2 * .02);
    near(step_of(item, 4, &costs), 2 * (.02 + 1e-3 + 4e-5));
}

/* All reduced values take 4 ms if all groups call at once. Another length, another collective, another group: not
 * measured. */
static void a_measured_collective_takes_what_it_took(void **state)
{
    (void)state;
    ls_measured_coll one = { .span = { .axes = 1u << LS_AXIS_DP }, .coll = LS_ALL_REDUCE, .bytes = 64,
                             .seconds = 4e-3 };
    const ls_measured_colls apart = { .of = &one, .n = 1, .part = 1 }, shared = { .of = &one, .n = 1, .part = .5 };
    ls_step_item item[] = { work(.01, 64 * KIB), call(LS_ITEM_COLL, LS_ALL_REDUCE), work(.01, 0),
                            call(LS_ITEM_COLL, LS_ALL_GATHER) };
    near(step_on(0, item, 4, NULL, &apart), .02 + 4e-3);
    /* two ranks to a core: 2 ms of it for each, and again what it has lost; the other one waits as before */
    near(step_on(2, item, 4, &costs, &shared), 2 * (.02 + 2e-3 + 1e-5 + 1e-3));
    ls_step_item beside[] = { work(.01, 0), call(LS_ITEM_BEGIN, LS_ALL_REDUCE), work(.001, 1e9),
                              { .kind = LS_ITEM_WAIT, .count = 1 } };
    near(step_on(0, beside, 4, NULL, &apart), .01 + 4e-3);
    near(step_on(2, beside, 4, &costs, &shared), 2 * (.011 + 2e-3 + 1e-3 + 4e-5));
    assert_ptr_equal(ls_colls_find(&apart, &one.span, LS_ALL_REDUCE, 64), &one);
    assert_null(ls_colls_find(&apart, &one.span, LS_ALL_REDUCE, 128));
    assert_null(ls_colls_find(&apart, &one.span, LS_ALL_GATHER, 64));
    assert_null(ls_colls_find(&apart, &(ls_step_span){ .axes = 1u << LS_AXIS_TP }, LS_ALL_REDUCE, 64));
    assert_null(ls_colls_find(NULL, &one.span, LS_ALL_REDUCE, 64));
}

static void caches_hold_so_much(void **state)
{
    (void)state;
    const struct { double bytes, s; } row[] = { { 0, 0 }, { 32 * KIB, 5e-6 }, { 64 * KIB, 1e-5 }, { 96 * KIB, 2e-5 },
                                                { 128 * KIB, 3e-5 }, { 4096 * KIB, 4e-5 }, { 1e12, 4e-5 } };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) near(ls_wait_cost_refill_s(&costs, row[i].bytes), row[i].s);
}

/* A change of ranks on a core takes between a tenth of a microsecond and some milliseconds, if others use the core;
 * more data never come back sooner. */
static void a_machine_is_measured(void **state)
{
    (void)state;
    ls_wait_cost t;
    assert_done(ls_wait_cost_measure(8, 1, &t));
    assert_true(t.coll_s > 1e-7 && t.coll_s < 1e-2 && t.message_s < 1e-2);
    for (int i = 1; i < LS_WAIT_SIZES; i++) assert_true(t.refill_s[i] >= t.refill_s[i - 1] && t.refill_s[i] < 1e-2);
}

/* Groups of a mesh of 2 x 2, and the two ends of a pipeline. */
static void collectives_of_this_machine_are_timed(void **state)
{
    (void)state;
    enum { DP = 1u << LS_AXIS_DP, PP = 1u << LS_AXIS_PP };
    ls_step_item item[] = {
        { .kind = LS_ITEM_COLL, .coll = LS_ALL_REDUCE, .bytes = 1 << 20, .span = { .axes = DP } },
        { .kind = LS_ITEM_COLL, .coll = LS_ALL_REDUCE, .bytes = 1024, .span = { .axes = DP } },
        { .kind = LS_ITEM_COLL, .coll = LS_ALL_REDUCE, .bytes = 1024, .span = { .axes = DP } },
        { .kind = LS_ITEM_BEGIN, .coll = LS_REDUCE_SCATTER, .bytes = 1 << 16, .span = { .axes = DP | PP } },
        { .kind = LS_ITEM_COLL, .coll = LS_ALL_GATHER, .bytes = 100, .span = { .axes = DP | PP } },
        { .kind = LS_ITEM_COLL, .coll = LS_ALL_TO_ALL, .bytes = 4096, .span = { .axes = DP } },
        { .kind = LS_ITEM_COLL, .coll = LS_SENDRECV, .bytes = 4096, .span = { .axes = DP } },
        { .kind = LS_ITEM_COLL, .coll = LS_ALL_REDUCE, .bytes = 64, .span = { .axes = PP, .ends = true } },
        { .kind = LS_ITEM_COLL, .coll = LS_ALL_REDUCE, .bytes = 40 << 20, .span = { .axes = DP } }, /* not all of it */
        { .kind = LS_ITEM_COLL, .coll = LS_ALL_REDUCE, .bytes = 16 << 20, .span = { .axes = DP } },
        work(1, 1),
    };
    ls_step_lists l = { .ranks = 4, .stages = 2,
                        .size = { [LS_AXIS_PP] = 2, [LS_AXIS_DP] = 2, [LS_AXIS_EP] = 1, [LS_AXIS_CP] = 1,
                                  [LS_AXIS_TP] = 1 },
                        .order = { LS_AXIS_PP, LS_AXIS_DP, LS_AXIS_EP, LS_AXIS_CP, LS_AXIS_TP } };
    for (int s = 0; s < 2; s++) l.of[s] = (ls_step_list){ .item = item, .n = sizeof item / sizeof *item };
    ls_train_config c;
    ls_opts *o;
    ls_measured_colls m;
    assert_done(ls_opts_create(ls_train_opts, ls_train_nopts, &c, &o));
    assert_done(ls_colls_measure(&c, &l, 2, 60, &m));
    assert_int_equal(m.n, 9);
    assert_true(m.part == .5 && m.seconds > 0);
    for (int i = 0; i < m.n; i++) assert_true(m.of[i].seconds >= 0);
    assert_true(ls_colls_find(&m, &item[8].span, LS_ALL_REDUCE, 40 << 20)->seconds >
                ls_colls_find(&m, &item[1].span, LS_ALL_REDUCE, 1024)->seconds); /* 40,000 times as much */
    ls_colls_free(&m);
    assert_done(ls_colls_measure(&c, &l, 8, 0, &m)); /* no time at all */
    assert_true(m.n == 0 && m.part == 1);
    ls_colls_free(&m);
    assert_done(ls_opts_set(o, "comm.transport", "tcp", "flag"));
    assert_done(ls_colls_measure(&c, &l, 2, 60, &m));
    assert_int_equal(m.n, 0);
    ls_colls_free(&m);
    assert_done(ls_opts_set(o, "comm.transport", "shm", "flag"));
    assert_done(ls_opts_set(o, "comm.backend", "mpi", "flag"));
    assert_done(ls_colls_measure(&c, &l, 2, 60, &m));
    assert_int_equal(m.n, 0);
    ls_colls_free(&m);
    assert_done(ls_opts_set(o, "comm.backend", "sched", "flag"));
    l.ranks = 65; /* more threads than it starts */
    assert_done(ls_colls_measure(&c, &l, 2, 60, &m));
    assert_int_equal(m.n, 0);
    ls_colls_free(&m);
    ls_opts_destroy(o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_wait_costs_a_change_of_ranks_and_what_is_read_again),
        cmocka_unit_test(what_goes_on_beside_is_waited_for_once),
        cmocka_unit_test(a_measured_collective_takes_what_it_took),
        cmocka_unit_test(caches_hold_so_much),
        cmocka_unit_test(a_machine_is_measured),
        cmocka_unit_test(collectives_of_this_machine_are_timed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
