/* ls_measure: layers that sleep take the time that they sleep, a long step is the only one that is timed, steps that
 * others disturb do not count, and slow clocks do not lengthen operations. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/context.h"
#include "base/env.h"
#include "lockstep/opts.h"
#include "train/config.h"
#include "train/measure.h"

/* Two layers of 10 ms forward and 20 ms backward, two micro-batches per step: 120 ms. */
static void measure(double long_s, ls_measured *out)
{
    static const char *const flag[][2] = {
        { "model.name", "timed" },    { "model.dims", "[8, 8, 4]" }, { "model.forward_ms", "10" },
        { "model.backward_ms", "20" }, { "data.name", "synthetic" },  { "train.steps", "4" },
        { "train.global_batch", "4" }, { "train.micro_batch", "2" },  { "train.eval_every", "0" },
    };
    ls_train_config c;
    ls_opts *o;
    assert_int_equal(ls_opts_create(ls_train_opts, ls_train_nopts, &c, &o), LS_OK);
    for (size_t i = 0; i < sizeof flag / sizeof *flag; i++)
        if (ls_opts_set(o, flag[i][0], flag[i][1], "flag") < 0) fail_msg("%s", ls_last_error());
    assert_int_equal(ls_train_config_resolve(o, &c), LS_OK);
    assert_int_equal(ls_train_config_check(&c, 1), LS_OK);
    if (ls_measure(&c, 1, 1, long_s, out) < 0) fail_msg("%s", ls_last_error());
    ls_opts_destroy(o);
}

static double asleep_s(const ls_measured *m)
{
    double sum = 0;
    for (int i = 0; i < m->n; i++) sum += m->row[i].takes.asleep_s;
    return sum;
}

static void layers_take_as_long_as_they_sleep(void **state)
{
    (void)state;
    ls_measured m;
    measure(LS_MEASURE_LONG_S, &m);
    assert_true(m.steps >= 5 && m.steps <= 25);
    assert_int_equal(m.micro_batches, 2);
    assert_true(asleep_s(&m) >= .118 && asleep_s(&m) < .2); /* a kernel may sleep a little less than asked */
    ls_measured_free(&m);
}

/* The first step takes longer than all may: no other one follows, and its times are there. Where two steps do not take
 * as long, the second one is the last. */
static void a_long_step_is_the_only_one(void **state)
{
    (void)state;
    static const double limit[] = { .05, .15 };
    for (size_t i = 0; i < sizeof limit / sizeof *limit; i++) {
        ls_measured m;
        measure(limit[i], &m);
        assert_int_equal(m.steps, 1);
        assert_true(asleep_s(&m) >= .118);
        assert_true(m.elements == 8 * 8 + 8 + 8 * 4 + 4);
        ls_measured_free(&m);
    }
}

/* --- clocks that disturb what they time ---------------------------------------------------------------------- */

#define BURN_NS 30000u /* that a look takes, unless the one before was just then */
#define JUST_NS 3000u

static const ls_env *real_env;
static _Thread_local uint64_t looked_ns;

static void burn(void)
{
    uint64_t now = real_env->mono_ns();
    const uint64_t until = now - looked_ns > JUST_NS ? now + BURN_NS : now;
    while (now < until) now = real_env->mono_ns();
    looked_ns = now;
}

static uint64_t slow_thread_cpu_ns(void)
{
    burn();
    return real_env->thread_cpu_ns();
}

static double step_of_many_operations(void)
{
    static const char *const flag[][2] = {
        { "model.name", "mlp" },
        { "model.dims", "[96, 96, 96, 96, 96, 96, 96, 96, 96, 96, 96, 96, 96, 96, 96, 96, 96, 96, 96, 96, 96, 96, 4]" },
        { "data.name", "synthetic" },  { "train.steps", "200" },       { "train.global_batch", "64" },
        { "train.micro_batch", "64" }, { "train.eval_every", "0" },
    };
    ls_train_config c;
    ls_opts *o;
    ls_measured m;
    assert_int_equal(ls_opts_create(ls_train_opts, ls_train_nopts, &c, &o), LS_OK);
    for (size_t i = 0; i < sizeof flag / sizeof *flag; i++)
        if (ls_opts_set(o, flag[i][0], flag[i][1], "flag") < 0) fail_msg("%s", ls_last_error());
    assert_int_equal(ls_train_config_resolve(o, &c), LS_OK);
    /* one of 64 ranks here: with one thread */
    if (ls_measure(&c, 1, 64, LS_MEASURE_LONG_S, &m) < 0) fail_msg("%s", ls_last_error());
    assert_int_equal(m.threads, 1);
    double sum = m.rest_s + m.update_s + m.data_s;
    for (int i = 0; i < m.n; i++) sum += m.row[i].takes.busy_s;
    ls_measured_free(&m);
    ls_opts_destroy(o);
    return sum;
}

static double step_by_clock(uint64_t (*thread_cpu_ns)(void))
{
    static ls_env env;
    real_env = ls_context_get()->env;
    env = *real_env;
    env.thread_cpu_ns = thread_cpu_ns;
    ls_context_get()->env = &env;
    const double step = step_of_many_operations();
    ls_context_get()->env = real_env;
    return step;
}

/* The clock of the thread is read around each operation, and nowhere else. Whatever that costs the operations, a step
 * takes what it takes unlistened to. */
static void clocks_do_not_lengthen_what_they_time(void **state)
{
    (void)state;
    const double usual = step_of_many_operations(), slowed = step_by_clock(slow_thread_cpu_ns);
    if (slowed > 2 * usual) fail_msg("a step of %.3f ms takes %.3f ms by clocks that take long", 1e3 * usual, 1e3 * slowed);
}

static uint64_t long_ns; /* only a step that no one listens to has no look for so long */
static _Thread_local struct { uint64_t looked_ns, more_ns; int steps; } disturbed;
static atomic_int lengthened; /* steps, of all threads */

/* One of five such steps takes 21 times as long. */
static uint64_t disturbed_thread_cpu_ns(void)
{
    const uint64_t now = real_env->thread_cpu_ns(), took = now - disturbed.looked_ns;
    if (disturbed.looked_ns > 0 && took > long_ns && disturbed.steps++ % 5 == 0) {
        disturbed.more_ns += 20 * took;
        atomic_fetch_add(&lengthened, 1);
    }
    disturbed.looked_ns = now;
    return now + disturbed.more_ns;
}

static void steps_that_others_disturb_do_not_count(void **state)
{
    (void)state;
    const double usual = step_of_many_operations();
    long_ns = (uint64_t)(0.5e9 * usual);
    const double with_others = step_by_clock(disturbed_thread_cpu_ns);
    assert_true(atomic_load(&lengthened) > 0);
    if (with_others > 2 * usual) fail_msg("a step of %.3f ms takes %.3f ms", 1e3 * usual, 1e3 * with_others);
}

/* 16 or 8 ranks on two cores, rank r on core r modulo 2: with tp as the fastest axis, all ranks of a ring are on one
 * core. */
static void a_ring_on_one_core_waits_for_a_third(void **state)
{
    (void)state;
    const struct { int pp, dp, cp, tp, rank; double waits; } row[] = {
        { 1, 1, 8, 2, 0, 1 / 3. }, { 1, 1, 8, 2, 15, 1 / 3. }, { 1, 1, 4, 4, 5, 1 / 3. }, { 2, 1, 4, 2, 3, .75 },
        { 1, 2, 8, 1, 0, 1 }, /* neighbours are on both cores */
        { 1, 4, 2, 2, 0, 1 }, { 1, 8, 1, 2, 0, 1 }, { 2, 1, 8, 1, 1, 1 },
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        const ls_plan p = { .size = { [LS_AXIS_PP] = row[i].pp, [LS_AXIS_DP] = row[i].dp, [LS_AXIS_EP] = 1,
                                      [LS_AXIS_CP] = row[i].cp, [LS_AXIS_TP] = row[i].tp } };
        const int ranks = row[i].pp * row[i].dp * row[i].cp * row[i].tp;
        const double waits = ls_ring_waits(&p, row[i].rank, ranks, 2);
        if (waits != row[i].waits) fail_msg("row %zu: %g of the messages", i, waits);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers_take_as_long_as_they_sleep),
        cmocka_unit_test(a_long_step_is_the_only_one),
        cmocka_unit_test(steps_that_others_disturb_do_not_count),
        cmocka_unit_test(a_ring_on_one_core_waits_for_a_third),
        cmocka_unit_test(clocks_do_not_lengthen_what_they_time),
    };
    return cmocka_run_group_tests_name("measure", tests, NULL, NULL);
}
