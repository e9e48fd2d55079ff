/* optim: the same parameters as torch.optim after the same gradients, whatever their place in memory. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "lockstep/optim.h"
#include "lockstep/rng.h"
#include "optim/optim.h"

#include "golden/optim.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

/* Two parameters by hand, over the caller's memory. */
typedef struct pair { ls_param item[2]; ls_params params; } pair;

static void bind(pair *m, float *p0, float *g0, int64_t n0, float *p1, float *g1, int64_t n1)
{
    *m = (pair){ .item = { { .name = "a", .t = { .dtype = LS_F32, .ndim = 1, .dim = { n0 }, .data = p0, .grad_ready = true } },
                           { .name = "b", .t = { .dtype = LS_F32, .ndim = 1, .dim = { n1 }, .data = p1, .grad_ready = true } } } };
    m->item[0].grad = m->item[0].t;
    m->item[0].grad.data = g0;
    m->item[1].grad = m->item[1].t;
    m->item[1].grad.data = g1;
    m->params = (ls_params){ .item = m->item, .n = 2, .cap = 2 };
}

static ls_arena *arena_of(size_t nbytes)
{
    ls_arena *a;
    assert_int_equal(ls_arena_create(nbytes + 4096, false, NULL, &a), LS_OK);
    return a;
}

/* To the bit: every operation is an IEEE one (also the root, the quotient and the fused sum), in PyTorch's order. */
static void matches_pytorch_for_twenty_steps(void **state)
{
    (void)state;
    for (size_t c = 0; c < COUNT(golden); c++) {
        float p[GOLDEN_FIRST + GOLDEN_SECOND], g[GOLDEN_FIRST + GOLDEN_SECOND];
        ls_mt19937 random;
        pair m;
        ls_optim *o;
        ls_arena *a = arena_of(1 << 16);
        ls_mt19937_seed(&random, 7);
        ls_mt19937_uniform(&random, -1.0f, 1.0f, COUNT(p), p);
        bind(&m, p, g, GOLDEN_FIRST, p + GOLDEN_FIRST, g + GOLDEN_FIRST, GOLDEN_SECOND);
        assert_int_equal(ls_optim_create(&golden[c].config, &m.params, a, &o), LS_OK);
        int shown = 0;
        for (int step = 1; step <= GOLDEN_STEPS; step++) {
            ls_mt19937_uniform(&random, -1.0f, 1.0f, COUNT(g), g);
            m.item[1].t.grad_ready = step % 3 != 0;
            assert_int_equal(ls_optim_step(o), LS_OK);
            if (step != golden_shown[shown]) continue;
            for (size_t i = 0; i < COUNT(p); i++) {
                float want = golden[c].want[shown][i];
                if (p[i] != want)
                    fail_msg("%s (case %zu) step %d element %zu: %a, want %a", golden[c].config.name, c, step, i,
                             (double)p[i], (double)want);
            }
            shown++;
        }
        assert_int_equal(shown, GOLDEN_SHOWN);
        assert_int_equal(ls_optim_steps(o), GOLDEN_STEPS);
        ls_optim_destroy(o);
        ls_arena_destroy(a);
    }
}

static void gives_the_same_bits_at_every_alignment(void **state)
{
    (void)state;
    enum { N = 133, STEPS = 3 };
    static float room[2][N + 32], want[N];
    for (size_t c = 0; c < COUNT(golden); c++)
        for (size_t shift = 0; shift < 17; shift++) {
            float *p = room[0] + shift, *g = room[1] + (shift * 5) % 17;
            ls_mt19937 random;
            pair m;
            ls_optim *o;
            ls_arena *a = arena_of(1 << 16);
            ls_mt19937_seed(&random, 3);
            ls_mt19937_uniform(&random, -1.0f, 1.0f, N, p);
            /* cut in two at a place that moves: a shard of a parameter updates as the whole does */
            int64_t first = (int64_t)(shift * 7 % N) + 1;
            bind(&m, p, g, first, p + first, g + first, N - first);
            assert_int_equal(ls_optim_create(&golden[c].config, &m.params, a, &o), LS_OK);
            for (int step = 0; step < STEPS; step++) {
                ls_mt19937_uniform(&random, -1.0f, 1.0f, N, g);
                assert_int_equal(ls_optim_step(o), LS_OK);
            }
            if (shift == 0) memcpy(want, p, sizeof want);
            assert_memory_equal(p, want, sizeof want);
            ls_optim_destroy(o);
            ls_arena_destroy(a);
        }
}

static void leaves_a_parameter_without_gradient_alone(void **state)
{
    (void)state;
    for (size_t c = 0; c < COUNT(golden); c++) {
        float p[4] = { 1, 2, 3, 4 }, g[4] = { 1, 1, 1, 1 };
        pair m;
        ls_optim *o;
        ls_arena *a = arena_of(4096);
        bind(&m, p, g, 2, p + 2, g + 2, 2);
        m.item[1].t.grad_ready = false;
        assert_int_equal(ls_optim_create(&golden[c].config, &m.params, a, &o), LS_OK);
        assert_int_equal(ls_optim_step(o), LS_OK);
        assert_true(p[0] < 1.0f && p[1] < 2.0f);
        assert_true(p[2] == 3.0f && p[3] == 4.0f);
        ls_optim_destroy(o);
        ls_arena_destroy(a);
    }
}

static void follows_a_new_learning_rate(void **state)
{
    (void)state;
    float p[2] = { 1, 1 }, g[2] = { 1, 1 };
    pair m;
    ls_optim *o;
    ls_optim_config c;
    assert_int_equal(ls_optim_defaults("sgd", &c), LS_OK);
    bind(&m, p, g, 1, p + 1, g + 1, 1);
    assert_int_equal(ls_optim_create(&c, &m.params, NULL, &o), LS_OK); /* no state: no arena */
    ls_optim_set_lr(o, 0.25);
    assert_int_equal(ls_optim_step(o), LS_OK);
    assert_true(p[0] == 0.75f && p[1] == 0.75f);
    ls_optim_destroy(o);
    ls_optim_destroy(NULL);
}

static void says_how_much_state_it_takes(void **state)
{
    (void)state;
    static const struct { const char *name; double momentum; size_t want; } row[] = {
        { "sgd", 0.0, 0 }, { "sgd", 0.9, 128 + 64 }, { "adam", 0.0, 2 * (128 + 64) }, { "adamw", 0.0, 2 * (128 + 64) },
    };
    float p[20], g[20];
    pair m;
    bind(&m, p, g, 17, p + 17, g + 17, 3); /* 68 and 12 bytes, in lines of 64 */
    for (size_t i = 0; i < COUNT(row); i++) {
        ls_optim_config c;
        ls_optim *o;
        ls_ledger ledger = { 0 };
        ls_arena *a;
        assert_int_equal(ls_optim_defaults(row[i].name, &c), LS_OK);
        c.momentum = row[i].momentum;
        assert_int_equal(ls_optim_state_bytes(&c, &m.params), row[i].want);
        assert_int_equal(ls_arena_create(4096, false, &ledger, &a), LS_OK);
        assert_int_equal(ls_optim_create(&c, &m.params, a, &o), LS_OK);
        assert_int_equal(ledger.now[LS_MEM_OPTIM], row[i].want);
        ls_optim_destroy(o);
        ls_arena_destroy(a);
    }
}

static void starts_from_zero_state_in_a_used_arena(void **state)
{
    (void)state;
    float p[2][2] = { { 1, 1 }, { 1, 1 } }, g[2] = { 0.5f, -0.5f };
    ls_arena *a = arena_of(4096);
    for (int round = 0; round < 2; round++) {
        pair m;
        ls_optim *o;
        ls_optim_config c;
        size_t mark = ls_arena_mark(a);
        assert_int_equal(ls_optim_defaults("adam", &c), LS_OK);
        bind(&m, p[round], g, 1, p[round] + 1, g + 1, 1);
        assert_int_equal(ls_optim_create(&c, &m.params, a, &o), LS_OK);
        for (int step = 0; step < 3; step++) assert_int_equal(ls_optim_step(o), LS_OK);
        ls_optim_destroy(o);
        ls_arena_reset(a, mark);
    }
    assert_memory_equal(p[0], p[1], sizeof p[0]);
    ls_arena_destroy(a);
}

static void has_pytorchs_defaults(void **state)
{
    (void)state;
    ls_optim_config c;
    assert_int_equal(ls_optim_defaults("sgd", &c), LS_OK);
    assert_true(c.lr == 1e-3 && c.momentum == 0.0 && c.weight_decay == 0.0);
    assert_int_equal(ls_optim_defaults("adam", &c), LS_OK);
    assert_true(c.lr == 1e-3 && c.beta1 == 0.9 && c.beta2 == 0.999 && c.eps == 1e-8 && c.weight_decay == 0.0);
    assert_int_equal(ls_optim_defaults("adamw", &c), LS_OK);
    assert_true(c.weight_decay == 0.01);
    assert_int_equal(ls_optim_defaults("lion", &c), LS_BAD_CONFIG);
    assert_non_null(strstr(ls_last_error(), "no optimizer is named 'lion': expected sgd, adam or adamw"));
}

static void refuses_settings_out_of_range(void **state)
{
    (void)state;
    static const struct { ls_optim_config c; const char *says; } row[] = {
        { { "sgd", -1, 0, 0, 0, 0, 0 }, "sgd: lr is -1, expected >= 0" },
        { { "sgd", NAN, 0, 0, 0, 0, 0 }, "sgd: lr is " },
        { { "sgd", 1, -0.5, 0, 0, 0, 0 }, "sgd: momentum is -0.5, expected >= 0" },
        { { "sgd", 1, 0, 0, 0, 0, -1 }, "sgd: weight_decay is -1" },
        { { "adam", 1, 0, 1.0, 0.9, 1e-8, 0 }, "adam: beta1 is 1, expected in [0, 1)" },
        { { "adam", 1, 0, 0.9, -0.1, 1e-8, 0 }, "adam: beta2 is -0.1, expected in [0, 1)" },
        { { "adamw", 1, 0, 0.9, 0.9, -1, 0 }, "adamw: eps is -1" },
    };
    float p[2], g[2];
    pair m;
    bind(&m, p, g, 1, p + 1, g + 1, 1);
    for (size_t i = 0; i < COUNT(row); i++) {
        ls_optim *o;
        assert_int_equal(ls_optim_create(&row[i].c, &m.params, NULL, &o), LS_BAD_CONFIG);
        assert_null(o);
        if (!strstr(ls_last_error(), row[i].says)) fail_msg("expected \"%s\" in \"%s\"", row[i].says, ls_last_error());
    }
    ls_optim *o;
    ls_optim_config c;
    ls_optim_defaults("adam", &c);
    m.item[1].t.dtype = LS_F16;
    assert_int_equal(ls_optim_create(&c, &m.params, NULL, &o), LS_UNSUPPORTED);
    assert_non_null(strstr(ls_last_error(), "parameter b is half, expected float"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matches_pytorch_for_twenty_steps),
        cmocka_unit_test(gives_the_same_bits_at_every_alignment),
        cmocka_unit_test(leaves_a_parameter_without_gradient_alone),
        cmocka_unit_test(follows_a_new_learning_rate),
        cmocka_unit_test(says_how_much_state_it_takes),
        cmocka_unit_test(starts_from_zero_state_in_a_used_arena),
        cmocka_unit_test(has_pytorchs_defaults),
        cmocka_unit_test(refuses_settings_out_of_range),
    };
    return cmocka_run_group_tests_name("optim", tests, NULL, NULL);
}
