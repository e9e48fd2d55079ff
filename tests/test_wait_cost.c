/* What waiting costs ranks that share cores: in a simulated step, by closed forms; and what is measured of it. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/context.h"
#include "base/env.h"
#include "base/team.h"
#include "group/local_ranks.h"
#include "lockstep/opts.h"
#include "plan/call_gaps.h"
#include "plan/predicted.h"
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

static const uint32_t *kept_core; /* of step_on, */
static double idle_s;             /* and after how long without work one is idle */
static double wake_s;             /* and how much later a rank goes on that sleeps */

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
    const ls_step_sim_opts o = { .t = &links, .cores = cores, .core = kept_core, .idle_s = idle_s, .wake_s = wake_s,
                                 .waits = waits, .colls = colls };
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
    ls_measured_coll one = { .call = { .span = { .axes = 1u << LS_AXIS_DP }, .coll = LS_ALL_REDUCE, .bytes = 64 },
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
    near(step_on(2, beside, 4, &costs, &shared), 2 * (.011 + 2e-3 + 4e-5));
    /* of two that go on beside, the second was not timed: its wait alone costs what a wait costs */
    ls_step_item both[] = { work(.01, 0), call(LS_ITEM_BEGIN, LS_ALL_REDUCE), call(LS_ITEM_BEGIN, LS_ALL_GATHER),
                            { .kind = LS_ITEM_WAIT, .count = 1 }, { .kind = LS_ITEM_WAIT, .count = 2 } };
    near(step_on(2, both, 5, &costs, &shared), 2 * (.01 + 2e-3 + 1e-3));
    assert_ptr_equal(ls_colls_find(&apart, &one.call), &one);
    assert_null(ls_colls_find(NULL, &one.call));
    ls_step_call other[7];
    for (int i = 0; i < 7; i++) other[i] = one.call;
    other[0].bytes = 128;
    other[1].coll = LS_ALL_GATHER;
    other[2].span.axes = 1u << LS_AXIS_TP;
    other[3].vector.spans = 1;
    other[4].vector.rows = 8;
    other[5].vector.counts = true;
    other[6].vector.apart = true;
    for (int i = 0; i < 7; i++) assert_null(ls_colls_find(&apart, &other[i]));
}

/* Pieces of attention are between messages of a ring, on average; all other work is between all other calls, messages
 * from other stages among them, and not those to others, and after the last one. */
static void between_messages_of_a_ring_are_pieces_of_attention(void **state)
{
    (void)state;
    ls_step_item item[] = { work(.5, 4000), call(LS_ITEM_COLL, LS_SENDRECV), call(LS_ITEM_BEGIN, LS_SENDRECV),
                            work(.3, 2000), call(LS_ITEM_COLL, LS_ALL_REDUCE), work(.1, 1000),
                            { .kind = LS_ITEM_RECV, .edge = 1 }, { .kind = LS_ITEM_SEND, .edge = 1 } };
    ls_step_op op[] = { { .name = "cp_attention 2x8x2x16", .bytes = 1500, .busy_s = .2 },
                        { .name = "linear 8x8", .busy_s = .5 },
                        { .name = "cp_attention 2x8x2x16 again", .bytes = 500, .busy_s = .1 } };
    ls_step_lists l = { .ranks = 8, .stages = 2, .size = { [LS_AXIS_CP] = 4 },
                        .of = { { .item = item, .n = 8, .op = op, .nops = 3 },
                                { .item = item, .n = 8, .op = op, .nops = 3 } } };
    const ls_call_gaps g = ls_call_gaps_of(&l);
    near(g.ring.seconds, 2 * .3 / 4);
    near(g.ring.nbytes, 4 * 2 * 2000. / 4); /* four pieces read it all again */
    near(g.others.seconds, 2 * .6 / 5);
    near(g.others.nbytes, 2 * 5000. / 5);
    near(g.all.seconds, 2 * .9 / 9);
    near(g.all.nbytes, 2 * 7000. / 9);
    item[1].coll = item[2].coll = LS_ALL_GATHER; /* then attention is work as any other */
    const ls_call_gaps none = ls_call_gaps_of(&l);
    near(none.ring.seconds, 0);
    near(none.ring.nbytes, 0);
    near(none.others.seconds, 2 * .9 / 9);
    near(none.others.nbytes, 2 * 7000. / 9);
}

/* Two stages, which share a core, or have one each; the first computes and sends, the second receives and computes. */
static double pipeline(const ls_wait_cost *waits, const ls_measured_colls *colls, const uint32_t *core, double cores)
{
    ls_step_item first[] = { work(.01, 0), { .kind = LS_ITEM_SEND, .edge = 1, .forward = true, .bytes = 4096 } };
    ls_step_item second[] = { { .kind = LS_ITEM_RECV, .edge = 1, .forward = true }, work(.02, 0) };
    ls_step_lists l = {
        .ranks = 2, .stages = 2, .chunks = 1, .micro_batches = 1, .schedule = "1f1b",
        .size = { [LS_AXIS_PP] = 2, [LS_AXIS_DP] = 1, [LS_AXIS_EP] = 1, [LS_AXIS_CP] = 1, [LS_AXIS_TP] = 1 },
        .order = { LS_AXIS_PP, LS_AXIS_DP, LS_AXIS_EP, LS_AXIS_CP, LS_AXIS_TP },
        .of = { { .item = first, .n = 2 }, { .item = second, .n = 2 } },
    };
    const ls_step_sim_opts o = { .t = &links, .cores = cores, .core = core, .waits = waits, .colls = colls };
    ls_step_result *r = calloc(1, sizeof *r);
    assert_non_null(r);
    assert_done(ls_step_simulate(&l, &o, r));
    const double step = r->step_s;
    free(r);
    return step;
}

/* A message to the next stage and one from the one before take 4 ms if all ranks send: half of it, on two of four
 * cores, is the sender's. */
static void a_timed_message_is_half_the_senders(void **state)
{
    (void)state;
    ls_measured_coll one = { .call = { .span = LS_BETWEEN_STAGES, .coll = LS_SENDRECV, .bytes = 4096 },
                             .seconds = 4e-3 };
    ls_measured_coll other = one;
    other.call.bytes = 4097;
    const ls_measured_colls timed = { .of = &one, .n = 1, .part = .5 }, not = { .of = &other, .n = 1, .part = .5 };
    near(pipeline(&costs, &timed, NULL, 1), .03 + 1e-3 + 1e-3);
    near(pipeline(&costs, &not, NULL, 1), .03 + 5e-4);
    near(pipeline(NULL, &timed, NULL, 2), .03);
}

/* The second of two stages on one core polls while the first computes; with cores of their own it takes nothing. */
static void a_stage_that_waits_polls(void **state)
{
    (void)state;
    static const uint32_t same[] = { 0, 0 }, apart[] = { 0, 1 };
    ls_measured_coll none = { .call = { .bytes = 1 } };
    const ls_measured_colls not = { .of = &none, .n = 1, .part = .5 };
    const ls_measured_colls timed = { .of = &none, .n = 1, .part = .5, .poll = .1 };
    near(pipeline(NULL, &timed, same, 2), .011 + .02);
    near(pipeline(NULL, &not, same, 2), .01 + .02);
    near(pipeline(NULL, NULL, same, 2), .01 + .02);
    near(pipeline(NULL, &timed, apart, 2), .01 + .02);
    /* not who waits for what goes on beside, and no part of a core is that stream's until it begins */
    static const uint32_t even[] = { 0, 1, 1, 0 };
    ls_measured_coll sum = { .call = { .span = { .axes = 1u << LS_AXIS_DP }, .coll = LS_ALL_REDUCE, .bytes = 64 },
                             .seconds = 4e-3 };
    const ls_measured_colls summed = { .of = &sum, .n = 1, .part = .5, .poll = .1 };
    ls_step_item beside[] = { work(.01, 0), call(LS_ITEM_BEGIN, LS_ALL_REDUCE), { .kind = LS_ITEM_WAIT, .count = 1 } };
    const ls_wait_cost free_waits = { 0 };
    kept_core = even;
    near(step_on(2, beside, 3, &free_waits, &summed), 2 * (.01 + 2e-3));
    kept_core = NULL;
}

/* Four ranks on two cores that they keep: two of them take twice as long, three three times. */
static void ranks_stay_on_cores(void **state)
{
    (void)state;
    static const uint32_t even[] = { 0, 1, 1, 0 }, uneven[] = { 0, 0, 1, 0 };
    ls_step_item item[] = { work(.01, 0), call(LS_ITEM_COLL, LS_ALL_REDUCE) };
    kept_core = even;
    near(step_on(2, item, 2, NULL, NULL), .02);
    kept_core = uneven;
    near(step_on(2, item, 2, NULL, NULL), .03);
    kept_core = NULL;
    near(step_on(2, item, 2, NULL, NULL), .02);
}

/* Each with a core of its own, and a link of 16 ms for what was not measured: all wait for what went on beside. It has
 * no thread that sleeps until the call. */
static void ranks_that_sleep_wake_late(void **state)
{
    (void)state;
    ls_measured_coll one = { .call = { .span = { .axes = 1u << LS_AXIS_DP }, .coll = LS_ALL_REDUCE, .bytes = 64 },
                             .seconds = 4e-3 };
    const ls_measured_colls apart = { .of = &one, .n = 1, .part = 1 };
    ls_step_item item[] = { work(.01, 0), call(LS_ITEM_BEGIN, LS_ALL_REDUCE), { .kind = LS_ITEM_WAIT, .count = 1 },
                            work(.01, 0) };
    idle_s = 1e-3, wake_s = 5e-3;
    near(step_on(0, item, 4, NULL, &apart), .02 + 4e-3 + 5e-3);
    idle_s = 5e-3;
    near(step_on(0, item, 4, NULL, &apart), .02 + 4e-3);
    idle_s = wake_s = 0;
}

/* Rank 1 receives. If its naps take 20 ms longer, so does a message that comes late; one that comes soon meets none. */
static void (*nap)(const uint32_t *, uint32_t, ls_pollfd *, int, uint64_t);
static void long_nap(const uint32_t *word, uint32_t value, ls_pollfd *fds, int n, uint64_t until_ns)
{
    nap(word, value, fds, n, until_ns);
    const uint64_t until = ls_env_get()->mono_ns() + (ls_context_get()->rank == 1 ? 20000000 : 0);
    while (ls_env_get()->mono_ns() < until) continue;
}

static void waking_is_measured(void **state)
{
    (void)state;
    const ls_wait_ranks r = { .ranks = 8, .cores = 2, .threads = true };
    const ls_wait_ranks processes = { .ranks = 2, .cores = 2 }, one = { .ranks = 2, .cores = 1 };
    double s = -1;
    assert_done(ls_wait_wake_measure(&one, &s));
    assert_true(s == 0);
    assert_done(ls_wait_wake_measure(&processes, &s));
    assert_true(s >= 0 && s < 2e-2);
    ls_env env = *ls_env_get();
    nap = env.wait;
    env.wait = long_nap;
    double usual, late;
    assert_done(ls_wait_wake_measure(&r, &usual));
    const ls_context before = *ls_context_get();
    ls_context_get()->env = &env;
    assert_done(ls_wait_wake_measure(&r, &late));
    *ls_context_get() = before;
    if (!(usual >= 0 && usual < 1e-2 && late > usual + 1e-2 && late < 5e-2)) fail_msg("%g s, with longer naps %g s", usual, late);
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
    for (int how = 0; how < 4; how++) {
        const ls_wait_ranks r = { .ranks = 8, .cores = 1, .threads = how & 1, .together = how & 2 };
        memset(&t, 0xff, sizeof t);
        assert_done(ls_wait_cost_measure(&r, &t));
        assert_true(t.coll_s > 1e-7 && t.coll_s < 1e-2 && t.message_s >= 0 && t.message_s < 1e-2);
        for (int i = 1; i < LS_WAIT_SIZES; i++) assert_true(t.refill_s[i] >= t.refill_s[i - 1] && t.refill_s[i] < 1e-2);
        assert_true((t.refill_s[LS_WAIT_SIZES - 1] > 0) == !r.together);
    }
}

/* Forward one message at a time. Backward the first keys and values alone; then those and the gradients of the round
 * before; then gradients, while the last round is computed; and those of the last round. */
static void messages_of_a_ring_travel_as_in_the_step(void **state)
{
    (void)state;
    static const int two[] = { 1, 1, 1, 0 }, four[] = { 1, 1, 1, 1, 2, 2, 1, 0 };
    const struct { int ranks, n; const int *want; } row[] = { { 2, 4, two }, { 4, 8, four } };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        int done = 0;
        for (int k = 0; k < 3 * row[i].n; k++) { /* layer after layer */
            const int n = ls_ring_at_once(row[i].ranks, done);
            assert_int_equal(n, row[i].want[k % row[i].n]);
            done += n > 0 ? n : 1;
        }
        assert_int_equal(done, 3 * (3 * row[i].ranks - 2));
    }
}

/* Passes of a ring of eight on one core, whose ranks found a good order after half of them, in microseconds. */
static void a_ring_takes_what_it_takes_in_a_good_order(void **state)
{
    (void)state;
    enum { PASSES = 8 };
    static const double passes[PASSES] = { 20, 18, 17, 15, 13, 13, 12, 12 };
    const ls_step_call ring = { .coll = LS_SENDRECV, .span = { .axes = 1u << LS_AXIS_CP } },
                       stages = { .coll = LS_SENDRECV, .span = LS_BETWEEN_STAGES },
                       sum = { .coll = LS_ALL_REDUCE, .span = { .axes = 1u << LS_AXIS_CP } };
    const struct { const ls_step_call *call; double part, want; } row[] = {
        { &ring, 0.125, 13 }, { &stages, 0.125, 15 }, { &sum, 0.125, 15 }, { &ring, 1, 14 }, { &sum, 1, 14 },
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        double took[PASSES];
        memcpy(took, passes, sizeof took);
        assert_true(ls_call_in_run(row[i].call, row[i].part, took, PASSES) == row[i].want);
    }
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
        { .kind = LS_ITEM_COLL, .coll = LS_SENDRECV, .bytes = 4096, .span = { .axes = DP } }, /* of a ring */
        { .kind = LS_ITEM_COLL, .coll = LS_SENDRECV, .bytes = 4099, .span = { .axes = DP } },
        { .kind = LS_ITEM_COLL, .coll = LS_SENDRECV, .bytes = 40 << 20, .span = { .axes = DP } },
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
    assert_int_equal(m.n, 11);
    assert_true(m.part == .5 && m.seconds > 0);
    for (int i = 0; i < m.n; i++) assert_true(m.of[i].seconds >= 0);
    const ls_step_call much = ls_step_call_of(&item[10]), little = ls_step_call_of(&item[1]);
    assert_true(ls_colls_find(&m, &much)->seconds > ls_colls_find(&m, &little)->seconds); /* 40,000 times as much */
    const ls_step_call ring = ls_step_call_of(&item[8]); /* two ranks of a core copy 40 MiB twice: not within 2 ms */
    assert_true(ls_colls_find(&m, &ring)->seconds > 2e-3);
    ls_colls_free(&m);
    /* how the vector lies is said to the call, which refuses what it cannot have */
    const struct { ls_coll coll; ls_step_vector vector; ls_status st; } row[] = {
        { LS_ALL_GATHER, { .spans = 2, .rows = 64 }, LS_OK }, { LS_REDUCE_SCATTER, { .spans = 3, .rows = 5 }, LS_OK },
        { LS_REDUCE_SCATTER, { .spans = 1, .rows = 8, .apart = true }, LS_OK },
        { LS_ALL_GATHER, { .spans = 5000, .rows = 1e9 }, LS_OK }, /* not more than the vector has */
        { LS_ALL_TO_ALL, { .counts = true, .apart = true }, LS_OK }, { LS_ALL_GATHER, { .counts = true }, LS_OK },
        { LS_ALL_REDUCE, { .spans = 1, .rows = 8 }, LS_INVALID }, { LS_ALL_REDUCE, { .counts = true }, LS_INVALID },
        { LS_ALL_GATHER, { .spans = 1, .rows = 8, .apart = true }, LS_INVALID },
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        ls_step_item one[] = { work(1e-5, 1e4), { .kind = LS_ITEM_COLL, .coll = row[i].coll, .bytes = 8192,
                                                  .span = { .axes = DP }, .vector = row[i].vector } };
        for (int s = 0; s < 2; s++) l.of[s] = (ls_step_list){ .item = one, .n = 2 };
        assert_int_equal(ls_colls_measure(&c, &l, 2, 60, &m), row[i].st);
        assert_true(row[i].st < 0 || m.n == 1);
        ls_colls_free(&m);
    }
    ls_step_item sent[] = { work(1e-4, 1e5), { .kind = LS_ITEM_SEND, .edge = 1, .forward = true, .bytes = 8192 } };
    for (int s = 0; s < 2; s++) l.of[s] = (ls_step_list){ .item = sent, .n = 2 };
    assert_done(ls_colls_measure(&c, &l, 2, 60, &m));
    assert_int_equal(m.n, 1);
    const ls_step_call message = { .span = LS_BETWEEN_STAGES, .coll = LS_SENDRECV, .bytes = 8192 };
    assert_non_null(ls_colls_find(&m, &message));
    ls_colls_free(&m);
    assert_done(ls_colls_measure(&c, &l, 4, 60, &m)); /* a core each: links have them */
    assert_int_equal(m.n, 0);
    ls_colls_free(&m);
    for (int s = 0; s < 2; s++) l.of[s] = (ls_step_list){ .item = item, .n = sizeof item / sizeof *item };
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
    l.ranks = 65; /* more ranks than it starts */
    assert_done(ls_colls_measure(&c, &l, 2, 60, &m));
    assert_int_equal(m.n, 0);
    ls_colls_free(&m);
    ls_opts_destroy(o);
}

static void (*yield_now)(void);

/* Each yield of ranks 2 and 3, the second stage, takes 0.2 ms. */
static void slow_yield(void)
{
    const uint64_t until = ls_env_get()->mono_ns() + (ls_context_get()->rank >= 2 ? 200000 : 0);
    while (ls_env_get()->mono_ns() < until) continue;
    yield_now();
}

/* Two stages of two ranks, all on one core. */
static void polls_of_other_stages_are_timed(void **state)
{
    (void)state;
    enum { DP = 1u << LS_AXIS_DP, PP = 1u << LS_AXIS_PP };
    const struct { double gap_s; unsigned axes; int stages; double least, most; } row[] = {
        { 1e-4, DP, 2, .3, 20 }, { 1e-2, DP, 2, 1e-6, .2 }, { 1e-4, PP, 2, 0, 0 }, { 1e-4, DP, 1, 0, 0 },
    };
    ls_train_config c;
    ls_opts *o;
    ls_measured_colls m;
    uint64_t had[128], one[128] = { 0 };
    ls_env env = *ls_env_get();
    const ls_context before = *ls_context_get();
    assert_true(env.cpu_mask(had, 128) > 0);
    for (int i = 127; i >= 0; i--) /* the first that it may use */
        if (had[i]) memset(one, 0, sizeof one), one[i] = had[i] & -had[i];
    assert_int_equal(env.bind_cpus(one, 128), 0);
    yield_now = env.yield;
    env.yield = slow_yield;
    assert_done(ls_opts_create(ls_train_opts, ls_train_nopts, &c, &o));
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        ls_step_item item[] = { work(row[i].gap_s, 1), { .kind = LS_ITEM_COLL, .coll = LS_ALL_REDUCE, .bytes = 64,
                                                         .span = { .axes = row[i].axes } } };
        ls_step_lists l = { .ranks = 4, .stages = row[i].stages,
                            .size = { [LS_AXIS_PP] = row[i].stages, [LS_AXIS_DP] = 4 / row[i].stages, [LS_AXIS_EP] = 1,
                                      [LS_AXIS_CP] = 1, [LS_AXIS_TP] = 1 },
                            .order = { LS_AXIS_PP, LS_AXIS_DP, LS_AXIS_EP, LS_AXIS_CP, LS_AXIS_TP } };
        for (int s = 0; s < row[i].stages; s++) l.of[s] = (ls_step_list){ .item = item, .n = 2 };
        ls_context_get()->env = &env;
        assert_done(ls_colls_measure(&c, &l, 1, 60, &m));
        *ls_context_get() = before;
        if (!(m.poll >= row[i].least && m.poll <= row[i].most)) fail_msg("row %zu: %g", i, m.poll);
        ls_colls_free(&m);
    }
    assert_int_equal(ls_env_get()->bind_cpus(had, 128), 0);
    ls_opts_destroy(o);
}

/* Whether a launcher has bound this process, or would bind ranks. */
static int one_cpu(uint64_t *mask, int n)
{
    memset(mask, 0, (size_t)n * sizeof *mask);
    mask[0] = 1;
    return 1;
}

static void ranks_are_on_the_cores_of_a_launcher(void **state)
{
    (void)state;
    ls_env env = *ls_env_get();
    const ls_context before = *ls_context_get();
    env.cpu_mask = one_cpu;
    ls_here h = { .ranks = 6, .local = 6, .cores = 3, .for_ranks = 3, .shared = true };
    ls_step_sim_opts o = { 0 };
    ls_context_get()->env = &env;
    for (int again = 0; again < 2; again++) {
        assert_done(ls_here_place(&h, &o));
        assert_ptr_equal(o.core, h.core);
        for (int r = 0; r < 6; r++) assert_int_equal(o.core[r], r % 3);
    }
    h.local = 3; /* of two nodes */
    assert_done(ls_here_place(&h, &o));
    assert_null(o.core);
    h.local = 6, h.cores = h.for_ranks = 4; /* not equally many */
    assert_done(ls_here_place(&h, &o));
    assert_null(o.core);
    h.cores = 3, h.for_ranks = 1.5; /* of two threads each */
    assert_done(ls_here_place(&h, &o));
    assert_null(o.core);
    *ls_context_get() = before;
    ls_here_free(&h);
}

/* Ranks whose experts get more tokens compute for longer, in that layer; others wait for them. On a core that both
 * share it is the sum that counts. */
static void ranks_whose_experts_have_more_take_longer(void **state)
{
    (void)state;
    static const uint32_t same[] = { 0, 0 }, apart[] = { 0, 1 };
    double uneven[] = { .5, 1.5, 1.75, .25 };
    ls_step_item item[] = { work(.01, 0), call(LS_ITEM_COLL, LS_ALL_REDUCE), work(.02, 0), work(.04, 0),
                            call(LS_ITEM_COLL, LS_ALL_REDUCE) };
    item[0].routed = .008;
    item[2].routed = .02, item[2].layer = 1;
    ls_step_lists l = {
        .ranks = 2, .stages = 1, .chunks = 1, .micro_batches = 1, .schedule = "1f1b",
        .size = { [LS_AXIS_PP] = 1, [LS_AXIS_DP] = 1, [LS_AXIS_EP] = 2, [LS_AXIS_CP] = 1, [LS_AXIS_TP] = 1 },
        .order = { LS_AXIS_PP, LS_AXIS_DP, LS_AXIS_EP, LS_AXIS_CP, LS_AXIS_TP },
        .of = { { .item = item, .n = sizeof item / sizeof *item } },
    };
    for (int i = 0; i < 5; i++) item[i].span.axes = LS_ALONG(LS_AXIS_EP);
    const struct { const double *uneven; const uint32_t *core; double step; } row[] = {
        { NULL, apart, .07 }, { uneven, apart, .014 + .035 + .04 }, { NULL, same, .14 }, { uneven, same, .14 },
    };
    ls_step_result *r = calloc(1, sizeof *r);
    assert_non_null(r);
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        l.uneven = row[i].uneven ? uneven : NULL;
        const ls_step_sim_opts o = { .t = &links, .cores = 2, .core = row[i].core };
        assert_done(ls_step_simulate(&l, &o, r));
        if (fabs(r->step_s - row[i].step) > 1e-6) fail_msg("row %zu: %g s, expected %g", i, r->step_s, row[i].step);
        near(r->stage[0].core_s, .07); /* on average */
    }
    free(r);
}

static void set(ls_opts *o, const char *key, const char *value)
{
    if (ls_opts_set(o, key, value, "flag") < 0) fail_msg("%s: %s", key, ls_last_error());
}

static void small_mlp(ls_opts *o)
{
    set(o, "model.name", "mlp");
    set(o, "model.dims", "[64, 32, 10]");
    set(o, "data.name", "synthetic");
}

/* Ranks that share cores are timed together, so their operations have what a wait takes of caches; one rank in place of
 * 66 does not. Ranks stay on cores, where they are whole. */
static void a_prediction_takes_of_this_machine_what_its_operations_lack(void **state)
{
    (void)state;
    const struct { int ranks; const char *cpus; bool mirrored, shared, kept; } row[] = {
        { 4, "2", true, true, true }, { 66, "2", false, true, true }, { 2, "2", true, false, false },
        { 3, "2", true, true, false },
    };
    ls_env env = *ls_env_get();
    env.cpu_mask = one_cpu;
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        ls_train_config c;
        ls_opts *o;
        ls_here h;
        assert_int_equal(setenv("LOCKSTEP_CPUS", row[i].cpus, 1), 0);
        (void)ls_team_resize(1);
        assert_done(ls_opts_create(ls_train_opts, ls_train_nopts, &c, &o));
        small_mlp(o);
        set(o, "train.micro_batch", "2");
        set(o, "train.steps", "5");
        set(o, "train.global_batch", row[i].ranks == 66 ? "132" : row[i].ranks == 3 ? "6" : "8");
        if (i == 3) set(o, "comm.transport", "tcp");
        assert_done(ls_here_make(&c, row[i].ranks, row[i].ranks, &h));
        assert_true(h.mirrored == row[i].mirrored && h.shared == row[i].shared);
        if ((h.waits.refill_s[LS_WAIT_SIZES - 1] > 0) != (row[i].shared && !row[i].mirrored))
            fail_msg("%d ranks, %d threads each: %g s", row[i].ranks, h.measured->threads,
                     h.waits.refill_s[LS_WAIT_SIZES - 1]);
        ls_step_rates rates;
        ls_step_sim_opts s = { 0 };
        ls_step_lists l = { 0 };
        ls_here_options(&h, &s);
        near(s.idle_s, i == 3 ? 1e-3 : 200e-6); /* until a rank that waits sleeps */
        assert_true(h.wake_s >= 0 && h.wake_s < 1 && s.wake_s == h.wake_s);
        h.wake_s = 3;
        ls_here_options(&h, &s);
        near(s.wake_s, 3);
        ls_here_rates(&h, &rates);
        assert_done(ls_step_lists_create(&c, row[i].ranks, row[i].ranks, &rates, &l));
        ls_here_time_colls(&h, &c, &l);
        if ((h.colls.n > 0) != (row[i].ranks < 65 && i != 3)) /* those on sockets are not timed */
            fail_msg("row %zu: %d collectives timed in %g s", i, h.colls.n, h.colls.seconds);
        const ls_context before = *ls_context_get();
        ls_context_get()->env = &env;
        assert_done(ls_here_place(&h, &s));
        *ls_context_get() = before;
        assert_true((h.core != NULL) == row[i].kept && s.core == h.core);
        int on[2] = { 0 };
        for (int r = 0; h.core && r < row[i].ranks; r++) {
            assert_in_range(h.core[r], 0, 1);
            on[h.core[r]]++;
        }
        assert_int_equal(on[0], h.core ? row[i].ranks / 2 : 0);
        ls_step_lists_free(&l);
        ls_here_free(&h);
        ls_opts_destroy(o);
    }
}

static void a_prediction_is_the_sum_of_its_parts(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 4; ranks += 3) {
        ls_train_config c;
        ls_opts *o;
        ls_predicted p;
        assert_int_equal(setenv("LOCKSTEP_CPUS", "2", 1), 0);
        (void)ls_team_resize(1);
        assert_done(ls_opts_create(ls_train_opts, ls_train_nopts, &c, &o));
        small_mlp(o);
        set(o, "train.micro_batch", "2");
        set(o, "train.steps", "5");
        set(o, "train.global_batch", "8");
        set(o, "parallel.pp", ranks == 4 ? "2" : "1");
        assert_done(ls_predict(&c, ranks, ranks, &p));
        const ls_predicted_time *t = &p.time;
        near(t->compute + t->optimizer + t->data + t->exposed + t->bubble, t->step);
        assert_true(t->compute > 0 && t->exposed >= 0 && t->bubble >= 0);
        ls_predicted_free(&p);
        ls_opts_destroy(o);
    }
}

/* Of nodes with two ranks each: a set of all eight ranks gathers weights between nodes; two sets of four would do so
 * along two of eight ranks, which is no part of an axis that can be simulated. */
static void ranks_of_a_prediction_share_their_node(void **state)
{
    (void)state;
    static const struct { const char *hsdp; int local, got; } row[] = { { "1", 8, 8 }, { "1", 2, 2 }, { "2", 8, 8 }, { "2", 4, 4 }, { "2", 2, 1 } };
    const ls_step_rates rates = { .flops_per_s = 1 };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        ls_train_config c;
        ls_opts *o;
        ls_step_lists l;
        const ls_here h = { .ranks = 8, .local = row[i].local };
        assert_done(ls_opts_create(ls_train_opts, ls_train_nopts, &c, &o));
        small_mlp(o);
        set(o, "train.global_batch", "8");
        set(o, "zero.stage", "3");
        set(o, "zero.hsdp", row[i].hsdp);
        assert_done(ls_here_lists(&h, &c, &rates, &l));
        if (l.local != row[i].got) fail_msg("row %zu: %d ranks of a node share it, expected %d", i, l.local, row[i].got);
        ls_step_lists_free(&l);
        ls_opts_destroy(o);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_wait_costs_a_change_of_ranks_and_what_is_read_again),
        cmocka_unit_test(what_goes_on_beside_is_waited_for_once),
        cmocka_unit_test(between_messages_of_a_ring_are_pieces_of_attention),
        cmocka_unit_test(a_measured_collective_takes_what_it_took),
        cmocka_unit_test(a_timed_message_is_half_the_senders),
        cmocka_unit_test(a_stage_that_waits_polls),
        cmocka_unit_test(ranks_stay_on_cores),
        cmocka_unit_test(ranks_that_sleep_wake_late),
        cmocka_unit_test(waking_is_measured),
        cmocka_unit_test(caches_hold_so_much),
        cmocka_unit_test(a_machine_is_measured),
        cmocka_unit_test(messages_of_a_ring_travel_as_in_the_step),
        cmocka_unit_test(a_ring_takes_what_it_takes_in_a_good_order),
        cmocka_unit_test(collectives_of_this_machine_are_timed),
        cmocka_unit_test(polls_of_other_stages_are_timed),
        cmocka_unit_test(ranks_are_on_the_cores_of_a_launcher),
        cmocka_unit_test(ranks_whose_experts_have_more_take_longer),
        cmocka_unit_test(a_prediction_is_the_sum_of_its_parts),
        cmocka_unit_test(ranks_of_a_prediction_share_their_node),
        cmocka_unit_test(a_prediction_takes_of_this_machine_what_its_operations_lack),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
