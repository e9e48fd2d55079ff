/* ls_measure: layers that sleep take the time that they sleep, and a long step is the only one that is timed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers_take_as_long_as_they_sleep),
        cmocka_unit_test(a_long_step_is_the_only_one),
    };
    return cmocka_run_group_tests_name("measure", tests, NULL, NULL);
}
