/* The cost of a step: its parts sum to the whole, and more of a resource never makes a prediction longer; collectives
 * take longer for more bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <string.h>
#include <cmocka.h>

#include "plan/coll_cost.h"
#include "plan/predict.h"

static double sum(const ls_step_cost *c)
{
    return c->compute + c->recompute + c->tensor + c->exchange + c->bubble + c->hops + c->data + c->update +
        c->overhead;
}

static ls_run layout(int i)
{
    static const int64_t t[] = { 1, 2, 4, 8 }, p[] = { 1, 2, 4 }, micro[] = { 1, 2, 4 };
    static const ls_pipe_form form[] = { LS_PIPE_1F1B, LS_PIPE_GPIPE, LS_PIPE_ZB_H1, LS_PIPE_INTERLEAVED };
    const ls_device_sheet *device = ls_device_sheet_find(i % 2 ? "H100-80GB-SXM" : "A100-80GB-SXM");
    ls_run r = { .device = device, .per_node = 8, .n = 64, .c = 1,
        .e = 1, .v = 2,
                 .batch = 256, .bits = i % 2 ? 8 : 16, .grad_bytes = 2 };
    assert_int_equal(ls_llm_preset(i % 5 == 4 ? "qwen3-30b" : "llama2-7b", &r.m), LS_OK);
    r.t = t[i % 4], r.p = p[i / 4 % 3], r.micro = micro[i / 12 % 3], r.form = form[i / 36 % 4];
    r.d = r.n / (r.t * r.p);
    r.e = r.m.experts && r.d >= 4 ? 4 : 1;
    r.zero = i % 4, r.flash = i % 3 != 0;
    r.kept = (ls_recompute_kind)(i % 3);
    r.sequence_parallel = i % 7 == 0;
    return r;
}

static void parts_sum_to_the_step(void **state)
{
    (void)state;
    for (int i = 0; i < 144; i++)
        for (int s = 0; s < LS_STACKS; s++) {
            const ls_run r = layout(i);
            ls_step_cost c;
            ls_step_cost_of(&r, ls_constants[s], &c);
            assert_true(isfinite(c.total) && c.total > 0);
            const double part[] = { c.compute, c.recompute, c.tensor, c.exchange, c.bubble, c.hops, c.data, c.update,
                c.overhead };
            for (size_t k = 0; k < sizeof part / sizeof *part; k++)
                if (part[k] < -1e-12 * c.total) fail_msg("layout %d, stack %s: part %zu is %g of %g", i,
                                                         ls_stacks[s].name, k, part[k], c.total);
            if (fabs(sum(&c) - c.total) > 1e-12 * c.total) fail_msg("layout %d, stack %s: %.17g of %.17g", i,
                                                                    ls_stacks[s].name, sum(&c), c.total);
        }
}

static void more_of_a_resource_is_never_slower(void **state)
{
    (void)state;
    static const int rate[] = { LS_K_TP_RATE, LS_K_NODE_RATE, LS_K_HOP_RATE, LS_K_EXCHANGE, LS_K_GEMM, LS_K_ATTENTION };
    static const int price[] = { LS_K_MICRO, LS_K_STEP, LS_K_TP_LATENCY, LS_K_LAUNCH, LS_K_UPDATE, LS_K_ELEMENTWISE };
    for (int i = 0; i < 144; i++)
        for (int j = 0; j < 12; j++) {
            const ls_run r = layout(i);
            double k[LS_K_COUNT];
            ls_step_cost before, after;
            for (int l = 0; l < LS_K_COUNT; l++) k[l] = ls_constants[0][l];
            ls_step_cost_of(&r, k, &before);
            k[j < 6 ? rate[j] : price[j - 6]] *= j < 6 ? 1.5 : .5;
            ls_step_cost_of(&r, k, &after);
            if (after.total > before.total * (1 + 1e-12)) fail_msg("layout %d, constant %d: %g after %g", i, j,
                                                                   after.total, before.total);
        }
}

/* ZB-H2 fills its bubble with weight gradients; where these take longer than all else, it has none and no time back. */
static void a_bubble_is_never_negative(void **state)
{
    (void)state;
    for (int i = 0; i < 144; i++) {
        ls_run r = layout(i);
        double k[LS_K_COUNT];
        ls_step_cost c;
        memcpy(k, ls_constants[0], sizeof k);
        k[LS_K_BACKWARD] = 3;
        r.form = LS_PIPE_ZB_H2;
        ls_step_cost_of(&r, k, &c);
        if (c.bubble < 0) fail_msg("layout %d: a bubble of %g s", i, c.bubble);
    }
}

static void a_step_without_parallelism_is_its_products(void **state)
{
    (void)state;
    double k[LS_K_COUNT] = { 0 };
    ls_run r = layout(0);
    ls_step_cost c;
    r.n = r.t = r.p = r.d = 1, r.batch = 4, r.micro = 2, r.zero = 0, r.kept = LS_KEEP_ALL, r.flash = true;
    /* A device of infinite memory bandwidth whose products reach the peak, and attention that costs nothing. */
    ls_device_sheet ideal = *r.device;
    ideal.bytes_per_s = INFINITY;
    r.device = &ideal;
    k[LS_K_GEMM] = k[LS_K_BACKWARD] = k[LS_K_LOW] = 1;
    k[LS_K_ATTENTION] = INFINITY;
    ls_step_cost_of(&r, k, &c);
    const ls_llm *m = &r.m;
    const double scores = 4.0 * (double)m->hidden * (double)m->seq * (double)m->layers;
    const double flops = 4.0 * (double)m->seq * (ls_llm_flops(m, LS_FLOPS_FULL) - 3 * scores);
    if (fabs(c.total - flops / ideal.peak16) > 1e-9 * c.total) fail_msg("%.12g s, expected %.12g s", c.total,
                                                                        flops / ideal.peak16);
}

static bool near(double a, double b) { return fabs(a - b) <= 1e-9 * fabs(b); }

/* A device without limits runs a step of layers whose only price is the one that a test sets. */
static ls_run free_of_charge(ls_device_sheet *ideal, double *k)
{
    ls_run r = layout(0);
    *ideal = *r.device;
    ideal->bytes_per_s = INFINITY;
    memset(k, 0, LS_K_COUNT * sizeof *k);
    k[LS_K_GEMM] = k[LS_K_ATTENTION] = k[LS_K_TP_RATE] = k[LS_K_NODE_RATE] = INFINITY;
    r.device = ideal;
    r.n = r.t = r.p = r.d = r.v = 1, r.batch = 8, r.micro = 2, r.zero = 0, r.kept = LS_KEEP_ALL, r.flash = true;
    return r;
}

static void kernels_of_unfused_attention_leave_gaps(void **state)
{
    (void)state;
    ls_device_sheet ideal;
    double k[LS_K_COUNT];
    ls_step_cost c;
    ls_run r = free_of_charge(&ideal, k);
    k[LS_K_GAP] = 100;
    ls_step_cost_of(&r, k, &c);
    assert_true(c.total == 0);
    r.flash = false;
    ls_step_cost_of(&r, k, &c); /* 4 micro-batches, forward and one and a half times that backward */
    assert_true(near(c.total, 4 * 2.5 * 100e-6 * (double)r.m.layers));
}

static void latency_of_tensor_parallelism_is_logarithmic(void **state)
{
    (void)state;
    ls_device_sheet ideal;
    double k[LS_K_COUNT];
    ls_step_cost c;
    ls_run r = free_of_charge(&ideal, k);
    k[LS_K_TP_LATENCY] = 10;
    for (int log = 1; log <= 3; log++) {
        r.n = r.t = 1 << log;
        ls_step_cost_of(&r, k, &c); /* two all_reduces forward and two backward */
        assert_true(near(c.tensor, 4 * 4 * 10e-6 * log * (double)r.m.layers));
    }
}

/* An all_reduce moves 2 (d - 1) / d of the gradients, the all_gather after it half of that. */
static void whole_sums_move_half_as_much_again(void **state)
{
    (void)state;
    ls_device_sheet ideal;
    double k[LS_K_COUNT];
    ls_step_cost halves, whole;
    ls_run r = free_of_charge(&ideal, k);
    k[LS_K_NODE_RATE] = 50;
    k[LS_K_TP_RATE] = 100;
    r.n = r.d = 32, r.batch = 64, r.zero = 1;
    ls_step_cost_of(&r, k, &halves);
    r.whole_sums = true;
    ls_step_cost_of(&r, k, &whole);
    assert_true(halves.data > 0 && near(whole.data, 1.5 * halves.data));
    r.zero = 0; /* nothing is gathered */
    ls_step_cost_of(&r, k, &whole);
    assert_true(near(whole.data, halves.data));
}

static void ranks_read_and_write_their_own_part(void **state)
{
    (void)state;
    double k[LS_C_COUNT] = { 0 };
    k[LS_C_BUS] = 100, k[LS_C_LOCAL] = 200, k[LS_C_LL] = k[LS_C_LL128] = INFINITY;
    k[LS_C_LL_PART] = k[LS_C_LL128_PART] = 1;
    ls_coll_run r = { .n = 2, .bytes = 1e9, .factor = ls_coll_bus_factor(LS_ALL_REDUCE, 2), .rings = 1 };
    assert_true(near(ls_coll_cost(&r, k), 1e9 / 100e9 + .5e9 / 200e9));
    r.n = 4, r.factor = ls_coll_bus_factor(LS_ALL_REDUCE, 4);
    assert_true(near(ls_coll_cost(&r, k), 1.5e9 / 100e9 + .25e9 / 200e9));
    r.factor = ls_coll_bus_factor(LS_ALL_GATHER, 4);
    assert_true(near(ls_coll_cost(&r, k), .75e9 / 100e9));
}

static void collectives_take_longer_for_more_bytes(void **state)
{
    (void)state;
    for (int class = 0; class < LS_COLL_CLASSES; class++) {
        double last = 0;
        for (double bytes = 1; bytes < 1e11; bytes *= 1.7) {
            const ls_coll_run r = { .class = class, .n = 8, .bytes = bytes, .factor = 1.75, .rings = 1 };
            const double t = ls_coll_cost(&r, ls_coll_constants[class]);
            assert_true(isfinite(t) && t >= last * (1 - 1e-12));
            last = t;
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_sum_to_the_step),
        cmocka_unit_test(more_of_a_resource_is_never_slower),
        cmocka_unit_test(a_bubble_is_never_negative),
        cmocka_unit_test(a_step_without_parallelism_is_its_products),
        cmocka_unit_test(kernels_of_unfused_attention_leave_gaps),
        cmocka_unit_test(latency_of_tensor_parallelism_is_logarithmic),
        cmocka_unit_test(whole_sums_move_half_as_much_again),
        cmocka_unit_test(ranks_read_and_write_their_own_part),
        cmocka_unit_test(collectives_take_longer_for_more_bytes),
    };
    return cmocka_run_group_tests_name("plan_cost", tests, NULL, NULL);
}
