/* Who listens to a tape is told what it does: gradients, units, ops. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "harness.h"
#include "lockstep/unit.h"

static const ls_unit embed = { .name = "embed" }, block[2] = { { .name = "h.0" }, { .name = "h.1" } }, head = { .name = "head" };

/* Everything that is told, as a text: "+embed" enters, "-embed" leaves, "^" in backward. */
typedef struct diary {
    char text[1024];
    const char *fail_at;
    double flops[4], bytes[4]; /* by phase */
} diary;

static void add(diary *d, const char *text)
{
    const size_t used = strlen(d->text);
    snprintf(d->text + used, sizeof d->text - used, "%s%s", used ? " " : "", text);
}

static ls_status on_unit(void *arg, const struct ls_unit *unit, ls_unit_when when)
{
    static const char *const sign[] = { "+", "-", "^+", "^-" };
    char text[64];
    snprintf(text, sizeof text, "%s%s", sign[when], unit->name);
    add(arg, text);
    const diary *d = arg;
    return d->fail_at && strcmp(d->fail_at, text) == 0 ? ls_fail(LS_RANK_DIED, "no weights for %s", text) : LS_OK;
}

static ls_status on_ready(void *arg, ls_tensor *p)
{
    (void)p;
    add(arg, "ready");
    return LS_OK;
}

static ls_status on_done(void *arg)
{
    add(arg, "done");
    return LS_OK;
}

static void on_end(void *arg, ls_tape *t)
{
    (void)t;
    add(arg, "end");
}

static void on_op(void *arg, const ls_op_event *e)
{
    static const char *const sign[] = { "", "again ", "dw ", "dx " };
    char text[64];
    snprintf(text, sizeof text, "%s%.*s", sign[e->phase], (int)strcspn(e->name, " "), e->name);
    if (e->unit) snprintf(text + strlen(text), sizeof text - strlen(text), "@%s", e->unit->name);
    add(arg, text);
    diary *d = arg;
    d->flops[e->phase] += e->flops;
    d->bytes[e->phase] += e->bytes;
}

static ls_tape *tape(void)
{
    ls_tape *t;
    assert_int_equal(ls_tape_create(1 << 16, NULL, NULL, &t), LS_OK);
    return t;
}

/* --- a model of four units: two blocks of silu(silu(linear(x))) between two products ---------------------- */

#define N 2
#define C 3
static float w_value[4][C * C], w_slope[4][C * C];
static ls_tensor w[4], w_grad[4];
static float x_value[N * C] = { 1.0f, -2.0f, 3.0f, 0.5f, 4.0f, -1.0f };

static void build(void)
{
    for (int i = 0; i < 4; i++) {
        for (int k = 0; k < C * C; k++) w_value[i][k] = (float)((7 * i + 5 * k) % 11) * 0.125f - 0.5f;
        w_grad[i] = (ls_tensor){ .dtype = LS_F32, .ndim = 2, .dim = { C, C }, .data = w_slope[i] };
        w[i] = (ls_tensor){ .dtype = LS_F32, .ndim = 2, .dim = { C, C }, .data = w_value[i], .grad = &w_grad[i] };
    }
}

static ls_tensor *formula(ls_tape *t, ls_tensor *x, const void *arg)
{
    return ls_silu(t, ls_silu(t, ls_linear(t, x, &w[*(const int *)arg], NULL)));
}

/* The unit begins and ends in the block. */
static ls_tensor *with_unit(ls_tape *t, ls_tensor *x, const void *arg)
{
    ls_tape_unit_begin(t, &block[*(const int *)arg - 1]);
    x = formula(t, x, arg);
    ls_tape_unit_end(t);
    return x;
}

static ls_tensor *model(ls_tape *t, bool inside)
{
    ls_tensor *x = ls_tape_input(t, LS_F32, 2, (int64_t[]){ N, C }, x_value);
    ls_tape_unit_begin(t, &embed);
    x = ls_linear(t, x, &w[0], NULL);
    ls_tape_unit_end(t);
    for (int i = 1; i < 3; i++) {
        if (!inside) ls_tape_unit_begin(t, &block[i - 1]);
        x = ls_block(t, x, inside ? with_unit : formula, &i, sizeof i);
        if (!inside) ls_tape_unit_end(t);
    }
    ls_tape_unit_begin(t, &head);
    x = ls_linear(t, x, &w[3], NULL);
    ls_tape_unit_end(t);
    return x;
}

static const float dy[N * C] = { 1.0f, 1.0f, 1.0f, 1.0f, 1.0f, 1.0f };

static void units_are_entered_and_left_in_both_directions_however_blocks_are_kept(void **state)
{
    (void)state;
    float want[4][C * C];
    for (int how = 0; how < 6; how++) {
        ls_tape *t = tape();
        diary d = { .text = "" };
        build();
        ls_tape_set_recompute(t, (ls_recompute)(how / 2));
        const ls_tape_events events = { .unit = on_unit, .grad_ready = on_ready, .done = on_done };
        assert_int_equal(ls_tape_listen(t, &events, &d), LS_OK);
        ls_tensor *y = model(t, how % 2);
        assert_string_equal(d.text, "+embed -embed +h.0 -h.0 +h.1 -h.1 +head -head");
        d.text[0] = 0;
        assert_int_equal(ls_backward_from(t, y, dy), LS_OK);
        assert_string_equal(d.text,
                            "^+head ready ^-head ^+h.1 ready ^-h.1 ^+h.0 ready ^-h.0 ^+embed ready ^-embed done");
        if (how == 0) memcpy(want, w_slope, sizeof want);
        assert_memory_equal(w_slope, want, sizeof want);
        d.text[0] = 0;
        ls_tape_reset(t); /* the next step is told the same, */
        assert_int_equal(ls_backward_from(t, model(t, how % 2), dy), LS_OK);
        assert_non_null(strstr(d.text, "-head ^+head ready"));
        d.text[0] = 0;
        ls_tape_reset(t);
        ls_tape_set_grad(t, false); /* and an evaluation its forward */
        (void)model(t, how % 2);
        assert_string_equal(d.text, "+embed -embed +h.0 -h.0 +h.1 -h.1 +head -head");
        ls_tape_destroy(t);
    }
}

static void a_unit_that_does_not_lead_to_the_loss_is_not_entered(void **state)
{
    (void)state;
    ls_tape *t = tape();
    diary d = { .text = "" };
    build();
    assert_int_equal(ls_tape_listen(t, &(ls_tape_events){ .unit = on_unit }, &d), LS_OK);
    ls_tensor *x = ls_tape_input(t, LS_F32, 2, (int64_t[]){ N, C }, x_value);
    ls_tape_unit_begin(t, &embed);
    ls_tensor *y = ls_linear(t, x, &w[0], NULL);
    ls_tape_unit_end(t);
    ls_tape_unit_begin(t, &head);
    (void)ls_linear(t, y, &w[3], NULL);
    ls_tape_unit_end(t);
    y = ls_silu(t, y); /* of no unit */
    d.text[0] = 0;
    assert_int_equal(ls_backward_from(t, y, dy), LS_OK);
    assert_string_equal(d.text, "^+embed ^-embed");
    ls_tape_destroy(t);
}

static void a_unit_s_failure_ends_the_pass_and_is_kept(void **state)
{
    (void)state;
    static const char *const at[] = { "+h.0", "-h.1", "^+head", "^-h.1", "^+embed", "^-embed" };
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        ls_tape *t = tape();
        diary d = { .fail_at = at[i] };
        build();
        assert_int_equal(ls_tape_listen(t, &(ls_tape_events){ .unit = on_unit, .done = on_done }, &d), LS_OK);
        ls_tensor *y = model(t, false);
        assert_int_equal(y == NULL, i < 2);
        assert_int_equal(ls_backward_from(t, y, dy), LS_RANK_DIED);
        assert_null(strstr(d.text, "done"));
        assert_int_equal(strlen(d.text) - strlen(at[i]), (size_t)(strstr(d.text, at[i]) - d.text)); /* the last */
        assert_int_equal(ls_tape_status(t), LS_RANK_DIED);
        ls_tape_destroy(t);
    }
    ls_tape *t = tape();
    ls_tape_unit_end(t); /* nothing to end */
    ls_tape_unit_begin(t, &embed);
    assert_int_equal(ls_tape_status(t), LS_OK);
    ls_tape_unit_begin(t, &head);
    assert_int_equal(ls_tape_status(t), LS_INVALID);
    assert_non_null(strstr(ls_last_error(), "a unit begins before ls_tape_unit_end"));
    ls_tape_destroy(t);
}

/* --- ops ---------------------------------------------------------------------------------------------------- */

static void an_op_is_told_with_its_flops_and_bytes_in_each_phase(void **state)
{
    (void)state;
    const double product = 2.0 * N * C * C, activation = 4.0 * N * C, weight = 4.0 * C * C;
    for (int dry = 0; dry < 2; dry++) {
        ls_tape *t;
        if (dry) assert_int_equal(ls_tape_create_dry(&t), LS_OK);
        else t = tape();
        diary d = { .text = "" };
        build();
        assert_int_equal(ls_tape_listen(t, &(ls_tape_events){ .op = on_op }, &d), LS_OK);
        ls_tensor *y = ls_linear(t, ls_tape_input(t, LS_F32, 2, (int64_t[]){ N, C }, x_value), &w[0], NULL);
        y = ls_linear(t, y, &w[1], NULL);
        y = ls_reshape(t, y, 1, (int64_t[]){ N * C });
        assert_int_equal(ls_backward_from(t, y, dy), LS_OK);
        assert_string_equal(d.text, "linear linear reshape dx reshape dw linear dx linear dw linear");
        assert_true(d.flops[LS_PHASE_FORWARD] == 2.0 * product && d.flops[LS_PHASE_BACKWARD_WEIGHT] == 2.0 * product);
        assert_true(d.flops[LS_PHASE_BACKWARD_INPUT] == product && d.flops[LS_PHASE_AGAIN] == 0.0);
        assert_true(d.bytes[LS_PHASE_FORWARD] == 2.0 * (2.0 * activation + weight));
        assert_true(d.bytes[LS_PHASE_BACKWARD_WEIGHT] == 2.0 * (2.0 * activation + 2.0 * weight));
        assert_true(d.bytes[LS_PHASE_BACKWARD_INPUT] == 3.0 * activation + weight);
        assert_true(ls_tape_flops(t) == 5.0 * product);
        ls_tape_destroy(t);
    }
}

/* The unit is entered before its ops are recomputed, since they read its weights: also if it begins in the block. */
static void what_is_recomputed_is_told_as_such_with_its_unit(void **state)
{
    (void)state;
    static const char *const want[] = {
        [LS_RECOMPUTE_SELECTIVE] = "^+head dw linear@head dx linear@head ^-head ^+h.1 again silu@h.1 dx silu@h.1 ",
        [LS_RECOMPUTE_FULL] = "^+head dw linear@head dx linear@head ^-head ^+h.1 again linear@h.1 again silu@h.1 again silu@h.1 dx silu@h.1 ",
    };
    for (int how = LS_RECOMPUTE_SELECTIVE; how <= LS_RECOMPUTE_FULL; how++)
        for (int i = 0; i < 4; i++) {
            const bool dry = i % 2, inside = i / 2;
            ls_tape *t;
            if (dry) assert_int_equal(ls_tape_create_dry(&t), LS_OK);
            else t = tape();
            diary d = { .text = "" };
            build();
            ls_tape_set_recompute(t, (ls_recompute)how);
            ls_tensor *y = model(t, inside);
            assert_int_equal(ls_tape_listen(t, &(ls_tape_events){ .unit = on_unit, .op = on_op }, &d), LS_OK);
            assert_int_equal(ls_backward_from(t, y, dy), LS_OK);
            if (strncmp(d.text, want[how], strlen(want[how])) != 0) fail_msg("%s", d.text);
            assert_true(d.flops[LS_PHASE_AGAIN] == ls_tape_flops_again(t));
            ls_tape_destroy(t);
        }
}

/* --- listeners --------------------------------------------------------------------------------------------------- */

static void every_listener_is_told_until_it_stops_listening(void **state)
{
    (void)state;
    ls_tape *t = tape();
    enum { MOST = LS_TAPE_LISTENERS };
    diary d[MOST + 1] = { { .text = "" } };
    char full[32];
    const ls_tape_events ready = { .grad_ready = on_ready }, done = { .done = on_done, .end = on_end };
    build();
    for (int i = 0; i < MOST; i++) assert_int_equal(ls_tape_listen(t, i % 2 ? &ready : &done, &d[i]), LS_OK);
    assert_int_equal(ls_tape_listen(t, &ready, &d[MOST]), LS_INVALID);
    snprintf(full, sizeof full, "%d listeners already", MOST);
    assert_non_null(strstr(ls_last_error(), full));
    assert_int_equal(ls_tape_listen(t, &ready, &d[2]), LS_OK); /* once more: in place of what it heard */
    ls_tape_unlisten(t, &d[3]);
    ls_tape_unlisten(t, &d[3]);
    for (int step = 0; step < 2; step++) {
        ls_tape_reset(t);
        assert_int_equal(ls_backward_from(t, formula(t, ls_tape_input(t, LS_F32, 2, (int64_t[]){ N, C }, x_value),
                                                     &(int){ 1 }), dy), LS_OK);
    }
    for (int i = 0; i <= MOST; i++)
        assert_string_equal(d[i].text, i == 3 || i == MOST ? "" : i % 2 || i == 2 ? "ready ready" : "done done");
    assert_int_equal(ls_tape_listen(t, &done, &d[MOST]), LS_OK); /* there is a place again */
    ls_tape_destroy(t);
    assert_string_equal(d[MOST].text, "end");
    assert_string_equal(d[1].text, "ready ready");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(units_are_entered_and_left_in_both_directions_however_blocks_are_kept),
        cmocka_unit_test(a_unit_that_does_not_lead_to_the_loss_is_not_entered),
        cmocka_unit_test(a_unit_s_failure_ends_the_pass_and_is_kept),
        cmocka_unit_test(an_op_is_told_with_its_flops_and_bytes_in_each_phase),
        cmocka_unit_test(what_is_recomputed_is_told_as_such_with_its_unit),
        cmocka_unit_test(every_listener_is_told_until_it_stops_listening),
    };
    return cmocka_run_group_tests_name("listen", tests, NULL, NULL);
}
