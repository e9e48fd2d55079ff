/* The cost of a step: its parts sum to the whole, and more of a resource never makes a prediction longer; collectives
 * take longer for more bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <string.h>
#include <cmocka.h>

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
        cmocka_unit_test(collectives_take_longer_for_more_bytes),
    };
    return cmocka_run_group_tests_name("plan_cost", tests, NULL, NULL);
}
