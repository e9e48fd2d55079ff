/* Optimizers of a program's own, and parameter groups: Lion of examples/own_optimizer.c compared with its formula,
 * groups with an optimizer each, and what is said of classes and groups that do not fit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#define main example_main
#include "../examples/own_optimizer.c"
#undef main

#define COUNT(a) (sizeof(a) / sizeof *(a))
enum { FIRST = 70001, SECOND = 5, N = FIRST + SECOND }; /* enough for threads; vectors and a matrix */

typedef struct fixture {
    ls_params ps;
    ls_arena *a;
    float *value, *gradient; /* of w [FIRST], then of b [SECOND] */
} fixture;

static void open_fixture(fixture *f)
{
    *f = (fixture){ 0 };
    assert_int_equal(ls_params_add(&f->ps, "w", 1, (int64_t[]){ FIRST }), LS_OK);
    assert_int_equal(ls_params_add(&f->ps, "b", 1, (int64_t[]){ SECOND }), LS_OK);
    assert_int_equal(ls_arena_create((size_t)N * 40, false, NULL, &f->a), LS_OK);
    assert_int_equal(ls_params_bind(&f->ps, f->a, f->a), LS_OK);
    for (int i = 0; i < 2; i++)
        ls_philox_uniform(7, (uint64_t)i, 0, (size_t)ls_tensor_count(&f->ps.item[i].t), -1, 1, f->ps.item[i].t.data);
}

static void close_fixture(fixture *f)
{
    ls_params_free(&f->ps);
    ls_arena_destroy(f->a);
}

static void write_gradients(fixture *f, uint64_t step)
{
    for (int i = 0; i < 2; i++) {
        ls_philox_uniform(8, step * 2 + (uint64_t)i, 0, (size_t)ls_tensor_count(&f->ps.item[i].t), -1, 1,
                          f->ps.item[i].grad.data);
        f->ps.item[i].t.grad_ready = true;
    }
}

/* --- Lion ------------------------------------------------------------------------------------------- */

static void lion_has_the_values_of_its_formula(void **state)
{
    (void)state;
    enum { STEPS_HERE = 6 };
    const double lr = 0.125, decay = 0.25, beta1 = 0.75, beta2 = 0.5, scale = 0.5;
    static double p[N], m[N];
    fixture f;
    ls_optim *o;
    ls_optim_config c = lion.defaults;
    c.cls = &lion;
    c.lr = lr;
    c.weight_decay = decay;
    c.beta1 = beta1;
    c.beta2 = beta2;
    open_fixture(&f);
    const size_t before = ls_arena_mark(f.a);
    assert_int_equal(ls_optim_create(&c, &f.ps, f.a, &o), LS_OK);
    assert_int_equal(ls_arena_mark(f.a) - before, (FIRST * 4 + 63) / 64 * 64 + 64);
    for (int i = 0; i < N; i++) {
        p[i] = (double)((const float *)f.ps.item[i >= FIRST].t.data)[i % FIRST];
        m[i] = 0;
    }
    for (uint64_t step = 0; step < STEPS_HERE; step++) {
        write_gradients(&f, step);
        for (int i = 0; i < N; i++) {
            const double g = scale * (double)((const float *)f.ps.item[i >= FIRST].grad.data)[i % FIRST];
            const double mix = beta1 * m[i] + (1 - beta1) * g;
            p[i] = p[i] - lr * ((double)((mix > 0) - (mix < 0)) + decay * p[i]);
            m[i] = beta2 * m[i] + (1 - beta2) * g;
        }
        assert_int_equal(ls_optim_step_scaled(o, scale), LS_OK);
    }
    const float *state_of[] = { ls_optim_state(o, "w", "exp_avg"), ls_optim_state(o, "b", "exp_avg") };
    assert_true(state_of[0] && state_of[1]);
    for (int i = 0; i < N; i++) { /* six steps: each rounds a value near 1 a few times */
        const double got = (double)((const float *)f.ps.item[i >= FIRST].t.data)[i % FIRST];
        const double avg = (double)state_of[i >= FIRST][i % FIRST];
        if (got < p[i] - 2e-6 || got > p[i] + 2e-6) fail_msg("p[%d] = %.9g, expected %.9g", i, got, p[i]);
        if (avg < m[i] - 1e-6 || avg > m[i] + 1e-6) fail_msg("m[%d] = %.9g, expected %.9g", i, avg, m[i]);
    }
    assert_int_equal(ls_optim_steps_of(o, "w"), STEPS_HERE);
    ls_optim_destroy(o);
    close_fixture(&f);
}

static void lion_writes_copies_and_checks_its_settings(void **state)
{
    (void)state;
    static uint16_t copy[FIRST];
    fixture f;
    ls_optim *o;
    ls_optim_config c = lion.defaults;
    c.cls = &lion;
    open_fixture(&f);
    f.ps.item[0].bf16 = copy;
    assert_int_equal(ls_optim_create(&c, &f.ps, f.a, &o), LS_OK);
    write_gradients(&f, 0);
    assert_int_equal(ls_optim_step(o), LS_OK);
    for (int i = 0; i < FIRST; i++)
        assert_int_equal(copy[i], ls_f32_to_bf16(((const float *)f.ps.item[0].t.data)[i]));
    ls_optim_destroy(o);
    c.beta2 = 1;
    assert_int_equal(ls_optim_create(&c, &f.ps, f.a, &o), LS_BAD_CONFIG);
    assert_non_null(strstr(ls_last_error(), "lion: betas are 0.9 and 1"));
    close_fixture(&f);
}

/* --- classes that do not fit ------------------------------------------------------------------------- */

static void takes_a_second(const ls_optim_config *c, const ls_update *u)
{
    (void)c;
    (void)ls_update_state(u, 1);
}

static void takes_it_late(const ls_optim_config *c, const ls_update *u) /* as most would write it */
{
    (void)c;
    if (u->n == 0) return;
    for (int64_t i = 0; i < u->n; i++) ls_update_state(u, 1)[i] = ls_update_state(u, 0)[i] + u->g[i];
}

static void takes_it_directly(const ls_optim_config *c, const ls_update *u)
{
    (void)c;
    for (int64_t i = 0; i < u->n; i++) u->state[3][i] = u->g[i];
}

static void takes_none(const ls_optim_config *c, const ls_update *u)
{
    (void)c;
    (void)ls_update_state(u, -1);
}

static void writes_two_states_into_one(const ls_optim_config *c, const ls_update *u)
{
    (void)c;
    float *m = ls_update_state(u, 0);
    for (int64_t i = 0; i < 2 * u->n; i++) m[i] = 1.0f;
}

static void writes_eight_at_once(const ls_optim_config *c, const ls_update *u)
{
    (void)c;
    for (int64_t i = 0; i < (u->n + 7) / 8 * 8; i++) u->p[i] = 1.0f;
}

static int two_of_one(const ls_optim_config *c)
{
    (void)c;
    return 2;
}

static void names_what_is_wrong_with_a_class(void **state)
{
    (void)state;
    static const struct { ls_optim_class c; const char *says; } row[] = {
        { { .name = "greedy", .nstates = 1, .state_name = { "a" }, .update = takes_a_second },
          "greedy: the update of parameter w asks for state 1, counted from 0, and the class declares 1" },
        { { .name = "late", .nstates = 1, .state_name = { "a" }, .update = takes_it_late },
          "late: the update of parameter w asks for state 1, counted from 0, and the class declares 1" },
        { { .name = "direct", .nstates = 1, .state_name = { "a" }, .update = takes_it_directly },
          "direct: the update of parameter w asks for state 3, counted from 0, and the class declares 1" },
        { { .name = "none", .update = takes_none },
          "none: the update of parameter w asks for a state below 0 or above 30, and the class declares 0" },
        { { .name = "packed", .nstates = 1, .state_name = { "a" }, .update = writes_two_states_into_one },
          "packed: the update of parameter w writes past the end of state 0: it has one float per element" },
        { { .name = "wide", .update = writes_eight_at_once },
          "wide: the update of parameter w writes past the end of its values" },
        { { .name = "many", .nstates = 5, .update = lion_update }, "many: 5 states, expected 0 to 4" },
        { { .name = "nameless", .nstates = 2, .state_name = { "a" }, .update = lion_update },
          "nameless: it declares 2 states and names fewer" },
        { { .name = "named", .nstates = 1, .state_name = { "a", "b" }, .update = lion_update },
          "named: it declares 1 states and names more" },
        { { .name = "uses", .nstates = 1, .state_name = { "a" }, .uses = two_of_one, .update = lion_update },
          "uses: these settings use 2 states, and it declares 1" },
        { { .name = "idle" }, "optimizer idle: its class has no update" },
        { { .update = lion_update }, "optimizer without a name" },
    };
    fixture f;
    open_fixture(&f);
    for (size_t i = 0; i < COUNT(row); i++) {
        ls_optim *o;
        const ls_optim_config c = { .cls = &row[i].c };
        assert_int_equal(ls_optim_create(&c, &f.ps, f.a, &o), LS_BAD_CONFIG);
        assert_null(o);
        if (!strstr(ls_last_error(), row[i].says)) fail_msg("'%s' does not say '%s'", ls_last_error(), row[i].says);
    }
    close_fixture(&f);
}

static void names_the_largest_parameter_where_state_does_not_fit(void **state)
{
    (void)state;
    fixture f;
    ls_optim *o;
    ls_optim_config c;
    void *p;
    open_fixture(&f);
    assert_int_equal(ls_optim_defaults("adam", &c), LS_OK);
    assert_int_equal(ls_arena_alloc(f.a, ls_arena_room(f.a, NULL) - 4096, LS_MEM_COMM, &p), LS_OK);
    assert_int_equal(ls_optim_create(&c, &f.ps, f.a, &o), LS_NO_MEMORY);
    assert_null(o);
    assert_non_null(strstr(ls_last_error(), "while adam: allocating 2 floats of state per element of 2 parameters, of which w is "
                                            "the largest: "));
    close_fixture(&f);
}

/* --- groups ---------------------------------------------------------------------------------------------- */

static const char *const of_w[] = { "w", NULL }, *const of_b[] = { "b", NULL }, *const of_both[] = { "b", "w", NULL },
                         *const of_c[] = { "b", "c", NULL }, *const twice[] = { "b", "b", NULL };

/* As many optimizers as there are groups, each over the parameters of one, give the same bits. */
static void groups_have_their_own_rates(void **state)
{
    (void)state;
    static const char *const names[] = { "sgd", "adam", "adamw", "lion" };
    static const double lr[2] = { 0.03, 0.002 }, decay[2] = { 0.3, 0.02 };
    for (size_t k = 0; k < COUNT(names); k++) {
        fixture one, each;
        ls_optim *o, *alone[2];
        ls_params single[2];
        ls_optim_config c = lion.defaults;
        open_fixture(&one);
        open_fixture(&each);
        if (k < 3) assert_int_equal(ls_optim_defaults(names[k], &c), LS_OK);
        else c.cls = &lion;
        c.lr = lr[0];
        c.weight_decay = decay[0];
        c.momentum = 0.9;
        one.ps.item[1].no_decay = true; /* a group says for itself */
        const ls_optim_group group = { of_b, lr[1], decay[1] };
        assert_int_equal(ls_optim_create_groups(&c, &one.ps, &group, 1, one.a, &o), LS_OK);
        for (int i = 0; i < 2; i++) {
            ls_optim_config own = c;
            own.lr = lr[i];
            own.weight_decay = decay[i];
            single[i] = (ls_params){ .item = &each.ps.item[i], .n = 1, .cap = 1 };
            assert_int_equal(ls_optim_create(&own, &single[i], each.a, &alone[i]), LS_OK);
        }
        for (uint64_t step = 0; step < 4; step++) {
            write_gradients(&one, step);
            write_gradients(&each, step);
            if (step == 2) { /* a schedule of each */
                ls_optim_set_lr(o, 0.01);
                ls_optim_set_lr(alone[0], 0.01);
                assert_int_equal(ls_optim_set_group_lr(o, 0, 0.005), LS_OK);
                ls_optim_set_lr(alone[1], 0.005);
            }
            assert_int_equal(ls_optim_step(o), LS_OK);
            for (int i = 0; i < 2; i++) assert_int_equal(ls_optim_step(alone[i]), LS_OK);
        }
        for (int i = 0; i < 2; i++)
            assert_memory_equal(one.ps.item[i].t.data, each.ps.item[i].t.data, ls_tensor_nbytes(&one.ps.item[i].t));
        assert_int_equal(ls_optim_set_group_lr(o, 1, 0.1), LS_INVALID);
        assert_non_null(strstr(ls_last_error(), "the rate of group 1: there are 1"));
        assert_int_equal(ls_optim_set_group_lr(o, 0, -1), LS_INVALID);
        ls_optim_destroy(o);
        for (int i = 0; i < 2; i++) ls_optim_destroy(alone[i]);
        close_fixture(&one);
        close_fixture(&each);
    }
}

static void names_the_parameter_that_is_not_in_one_group(void **state)
{
    (void)state;
    static const struct { ls_optim_group group[2]; const char *says; } row[] = {
        { { { of_w, 1, 0 }, { of_c, 1, 0 } }, "adam: group 1 has a parameter 'c', which is not in the model" },
        { { { of_w, 1, 0 }, { of_both, 1, 0 } }, "adam: parameter 'w' is in group 0 and in a later one: expected once" },
        { { { of_w, 1, 0 }, { twice, 1, 0 } }, "adam: parameter 'b' is in group 1 and in it again" },
        { { { of_w, 1, 0 }, { of_b, -1, 0 } }, "adam: group 1: lr is -1, expected >= 0" },
        { { { of_w, 1, -2 }, { of_b, 1, 0 } }, "adam: group 0: weight_decay is -2, expected >= 0" },
    };
    fixture f;
    ls_optim_config c;
    open_fixture(&f);
    assert_int_equal(ls_optim_defaults("adam", &c), LS_OK);
    for (size_t i = 0; i < COUNT(row); i++) {
        ls_optim *o;
        assert_int_equal(ls_optim_create_groups(&c, &f.ps, row[i].group, 2, f.a, &o), LS_BAD_CONFIG);
        assert_null(o);
        if (!strstr(ls_last_error(), row[i].says)) fail_msg("'%s' does not say '%s'", ls_last_error(), row[i].says);
    }
    close_fixture(&f);
}

static void state_is_found_by_name(void **state)
{
    (void)state;
    fixture f;
    ls_optim *o;
    ls_optim_config c;
    open_fixture(&f);
    assert_int_equal(ls_optim_defaults("adamw", &c), LS_OK);
    c.beta1 = c.beta2 = 0.5;
    assert_int_equal(ls_optim_create(&c, &f.ps, f.a, &o), LS_OK);
    write_gradients(&f, 0);
    f.ps.item[1].t.grad_ready = false;
    assert_int_equal(ls_optim_step(o), LS_OK);
    const float *g = f.ps.item[0].grad.data, *m = ls_optim_state(o, "w", "exp_avg"), *v = ls_optim_state(o, "w", "exp_avg_sq");
    for (int i = 0; i < FIRST; i++) assert_true(m[i] == 0.5f * g[i] && v[i] == 0.5f * g[i] * g[i]); /* exact: a half */
    assert_true(ls_optim_state(o, "b", "exp_avg")[0] == 0.0f);
    assert_int_equal(ls_optim_steps_of(o, "w"), 1);
    assert_int_equal(ls_optim_steps_of(o, "b"), 0);
    assert_int_equal(ls_optim_steps_of(o, "c"), -1);
    assert_null(ls_optim_state(o, "w", "momentum_buffer"));
    assert_null(ls_optim_state(o, "c", "exp_avg"));
    ls_optim_destroy(o);
    assert_int_equal(ls_optim_defaults("sgd", &c), LS_OK);
    assert_int_equal(ls_optim_create(&c, &f.ps, f.a, &o), LS_OK);
    assert_null(ls_optim_state(o, "w", "momentum_buffer")); /* without momentum there is none */
    ls_optim_destroy(o);
    close_fixture(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lion_has_the_values_of_its_formula),
        cmocka_unit_test(lion_writes_copies_and_checks_its_settings),
        cmocka_unit_test(names_what_is_wrong_with_a_class),
        cmocka_unit_test(names_the_largest_parameter_where_state_does_not_fit),
        cmocka_unit_test(groups_have_their_own_rates),
        cmocka_unit_test(names_the_parameter_that_is_not_in_one_group),
        cmocka_unit_test(state_is_found_by_name),
    };
    return cmocka_run_group_tests_name("optim_class", tests, NULL, NULL);
}
