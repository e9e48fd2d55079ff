/* Closed forms of the planner: operations, parameters, memory, schedules and collectives have the numbers that papers
 * and vendors print. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <string.h>
#include <cmocka.h>

#include "lockstep/plan.h"
#include "parallel/pipe_replay.h"

#define WITHIN(got, want, part)                                                                     \
    do {                                                                                            \
        const double got_ = (got), want_ = (want);                                                  \
        if (!(fabs(got_ - want_) <= (part) * fabs(want_)))                                          \
            fail_msg("%s: %.9g, expected %.9g within %g", #got, got_, want_, (double)(part));       \
    } while (0)

static ls_llm preset(const char *name)
{
    ls_llm m;
    if (ls_llm_preset(name, &m) != LS_OK) fail_msg("%s: %s", name, ls_last_error());
    assert_int_equal(ls_llm_check(&m), LS_OK);
    return m;
}

/* GFLOP per trained token as the vendors' tables imply them (NeMo 24.07 without, Megatron-Bridge with a causal mask).
 * */
static void counts_operations_as_published(void **state)
{
    (void)state;
    static const struct { const char *model; int64_t seq, mtp; double full, causal; } row[] = {
        { "llama3-8b", 8192, 0, 57.9, 51.5 },       { "llama3-70b", 8192, 0, 481.4, 449.2 },
        { "llama3-405b", 8192, 0, 2625, 2524 },     { "gpt3-175b", 2048, 0, 1076.4, 1061.9 },
        { "llama2-7b", 4096, 0, 46.1, 42.9 },       { "llama2-70b", 4096, 0, 444.5, 428.4 },
        { "nemotron-340b", 4096, 0, 2104.8, 2061.3 }, { "qwen3-235b", 4096, 0, 167.3, 148.3 },
        { "qwen3-30b", 4096, 0, 27.9, 23.1 },       { "deepseek-v3", 4096, 0, 281.2, 250.4 },
        { "deepseek-v3", 4096, 1, 291.8, 260.6 },
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        ls_llm m = preset(row[i].model);
        m.seq = row[i].seq;
        m.mtp = row[i].mtp;
        WITHIN(1e-9 * ls_llm_flops(&m, LS_FLOPS_FULL), row[i].full, .003);
        WITHIN(1e-9 * ls_llm_flops(&m, LS_FLOPS_CAUSAL), row[i].causal, .003);
    }
    /* DeepSeek-V3's report: 15360 sequences in 19.926 s on 2048 devices are 432 and 385 TFLOP/s per device. */
    ls_llm m = preset("deepseek-v3");
    const double rate = 1e-12 * 15360 * 4096 / 19.926 / 2048;
    WITHIN(rate * ls_llm_flops(&m, LS_FLOPS_FULL), 433.5 * 281.2 / 281.2, .003);
    WITHIN(rate * ls_llm_flops(&m, LS_FLOPS_CAUSAL), 386.1, .003);
}

/* 96 B s L h^2 (1 + s / 6h + V / 16 L h) of Narayanan et al. 2021, 72 of the model. */
static void agrees_with_the_closed_form_of_gpt(void **state)
{
    (void)state;
    const ls_llm m = preset("gpt3-175b");
    const double s = 2048, L = 96, h = 12288, V = 51200;
    WITHIN(ls_llm_flops(&m, LS_FLOPS_RECOMPUTED), 96 * L * h * h * (1 + s / (6 * h) + V / (16 * L * h)), 1e-12);
    WITHIN(ls_llm_flops(&m, LS_FLOPS_FULL), 72 * L * h * h * (1 + s / (6 * h) + V / (12 * h * L)), 1e-12);
    /* Selective recomputation: s / 3h. Korthikanti et al. 2022 print 2.7 % for GPT-3, and 1.6 % for MT-NLG. */
    const ls_llm mt = preset("mt-nlg-530b");
    WITHIN(ls_llm_flops(&m, LS_FLOPS_SELECTIVE), 72 * L * h * h * (1 + s / (3 * h) + V / (12 * h * L)), 1e-12);
    const double more = ls_llm_flops(&m, LS_FLOPS_SELECTIVE) / ls_llm_flops(&m, LS_FLOPS_FULL) - 1;
    const double of_mt = ls_llm_flops(&mt, LS_FLOPS_SELECTIVE) / ls_llm_flops(&mt, LS_FLOPS_FULL) - 1;
    assert_true(fabs(100 * more - 2.7) <= .05 && fabs(100 * of_mt - 1.6) <= .05);
    ls_llm w = preset("mistral-7b");
    w.seq = 4096; /* a window as long as the sequence is none */
    const double windowed = ls_llm_flops(&w, LS_FLOPS_CAUSAL);
    w.window = 0;
    WITHIN(windowed, ls_llm_flops(&w, LS_FLOPS_CAUSAL), 1e-12);
}

/* Projections 4 h w (a + k), scores 4 a w s, gated products 6 h f; experts 6 h fe (K + shared) and a router 2 h E; a
 * causal mask leaves (s + 1) / 2 of s keys. */
static void counts_a_layer_as_the_papers_do(void **state)
{
    (void)state;
    const ls_llm m = preset("llama3-8b"), x = preset("mixtral-8x7b"), g = preset("gpt3-175b");
    const ls_llm v = preset("deepseek-v3");
    const double h = 4096, w = 128, a = 32, k = 8;
    WITHIN(ls_llm_layer_flops(&m, true, LS_FLOPS_FULL), 4 * h * w * (a + k) + 4 * a * w * (double)m.seq + 6 * h * 14336,
           1e-12);
    WITHIN(ls_llm_layer_flops(&m, true, LS_FLOPS_CAUSAL),
           4 * h * w * (a + k) + 2 * a * w * (double)(m.seq + 1) + 6 * h * 14336, 1e-12);
    WITHIN(ls_llm_layer_flops(&x, false, LS_FLOPS_FULL),
           4 * h * w * (a + k) + 4 * a * w * (double)x.seq + 6 * h * 14336 * 2 + 2 * h * 8, 1e-12);
    /* Of GPT, s / 6h becomes s / 12h (of s + 1 keys). */
    const double H = 12288, L = 96;
    WITHIN(ls_llm_flops(&g, LS_FLOPS_CAUSAL), 72 * L * H * H * (1 + 2049 / (12 * H) + 51200 / (12 * H * L)), 1e-12);
    /* A window of 1000 of 4096 keys: the first 1000 tokens see 1 to 1000, the others 1000. */
    ls_llm n = m;
    n.seq = 4096, n.window = 1000;
    WITHIN(ls_llm_layer_flops(&n, true, LS_FLOPS_CAUSAL),
           4 * h * w * (a + k) + 4 * a * w * (1000.0 * 1001 / 2 + 3096 * 1000.0) / 4096 + 6 * h * 14336, 1e-12);
    /* Latent attention: ranks 1536 and 512, sizes 128, 64 and 128, 128 heads of 7168. */
    const double latent = 2 * 7168.0 * 1536 + 2 * 1536.0 * 128 * 192 + 2 * 7168.0 * 576 + 2 * 512.0 * 128 * 256 +
                          2 * 128 * 128 * 7168.0;
    WITHIN(ls_llm_layer_flops(&v, true, LS_FLOPS_FULL),
           latent + 2 * (double)v.seq * 128 * 320 + 6 * 7168.0 * 18432, 1e-12);
    WITHIN(ls_llm_layer_flops(&v, false, LS_FLOPS_FULL),
           latent + 2 * (double)v.seq * 128 * 320 + 6 * 7168.0 * 2048 * 9 + 2 * 7168.0 * 256, 1e-12);
}

static void counts_parameters_exactly(void **state)
{
    (void)state;
    static const struct { const char *model; int64_t params; } row[] = {
        { "gpt2-124m", 124439808 },   { "llama2-7b", 6738415616 },   { "llama3-8b", 8030261248 },
        { "llama3-70b", 70553706496 }, { "mixtral-8x7b", 46702792704 }, { "llama3-405b", 405853388800 },
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        const ls_llm m = preset(row[i].model);
        assert_int_equal(ls_llm_params(&m), row[i].params);
    }
    /* L (2 h w (a + k) + 3 h f + 2 h) + 2 V h + h */
    const ls_llm l = preset("llama3-405b");
    WITHIN((double)ls_llm_params(&l), 126 * (2.0 * 16384 * 128 * (128 + 8) + 3.0 * 16384 * 53248 + 2 * 16384) +
           2.0 * 128256 * 16384 + 16384, 0);
    const ls_llm v3 = preset("deepseek-v3"), mixtral = preset("mixtral-8x7b");
    WITHIN((double)ls_llm_params(&v3), 671e9, .001);
    WITHIN((double)ls_llm_active_params(&v3), 37e9, .02);
    WITHIN((double)ls_llm_active_params(&mixtral), 12.9e9, .005);
    /* 12 L h^2 (1 + 13 / 12h + (V + s) / 12hL). */
    const ls_llm g = preset("gpt3-175b");
    const double h = 12288, L = 96;
    WITHIN((double)ls_llm_params(&g), 12 * L * h * h * (1 + 13 / (12 * h) + (51200 + 2048) / (12 * h * L)) + 2 * h,
           1e-12);
}

/* Rajbhandari et al. 2020, Figure 1: 7.5 billion parameters over 64 ranks (the handbook's four formulas, R229): all
 * replicated, then optimizer, gradients and parameters divided. */
static void has_the_states_of_zero(void **state)
{
    (void)state;
    static const double gb[] = { 120, 31.4, 16.6, 1.9 };
    for (int stage = 0; stage < 4; stage++)
        assert_true(fabs(7.5 * ls_state_bytes(stage, 2, 12, 64) - gb[stage]) <= .05);
    WITHIN(ls_state_bytes(1, 4, 12, 8), 6 + 12.0 / 8, 0);
    WITHIN(ls_state_bytes(0, 4, 12, 1), 18, 0);
    WITHIN(ls_state_bytes(0, 2, 12, 1), 16, 0);
    WITHIN(ls_state_bytes(1, 2, 12, 64), 2 + 2 + 12.0 / 64, 0);
    WITHIN(ls_state_bytes(2, 2, 12, 64), 2 + (2 + 12) / 64.0, 1e-15);
    WITHIN(ls_state_bytes(3, 2, 12, 64), (2 + 2 + 12) / 64.0, 1e-15);
    WITHIN(ls_state_bytes(1, 4, 8, 64), 2 + 4 + 8.0 / 64, 0); /* moments in bf16 */
}

/* Korthikanti et al. 2022, Figure 1 and section 4: 22B, micro-batch 4, 8 ranks along tp: 59.25 GiB without either. */
static void has_the_activations_of_korthikanti(void **state)
{
    (void)state;
    const ls_llm m = { .layers = 48, .hidden = 6144, .heads = 64, .seq = 2048, .vocab = 51200 };
    const double gib = 1 << 30, one = 2048.0 * 4 * 6144;
    WITHIN(48 * ls_activation_bytes(&m, 4, 8, false, LS_KEEP_ALL) / gib, 59.25, .001);
    WITHIN(ls_activation_bytes(&m, 4, 8, true, LS_KEEP_SELECTIVE), 34 * one / 8, 0);
    WITHIN(ls_activation_bytes(&m, 4, 1, false, LS_KEEP_ALL), one * (34 + 5.0 * 64 * 2048 / 6144), 1e-15);
    WITHIN(ls_activation_bytes(&m, 4, 8, true, LS_KEEP_INPUTS), 2 * one / 8, 0);
    const double scores = 5.0 * 64 * 2048 / 6144;
    WITHIN(ls_activation_bytes(&m, 4, 8, false, LS_KEEP_ALL), one * (10 + 24 / 8.0 + scores / 8), 1e-15);
    WITHIN(ls_activation_bytes(&m, 4, 8, true, LS_KEEP_ALL), one / 8 * (34 + scores), 1e-15);
    WITHIN(ls_activation_bytes(&m, 4, 8, false, LS_KEEP_SELECTIVE), one * (10 + 24 / 8.0), 1e-15);
    WITHIN(ls_activation_bytes(&m, 4, 8, false, LS_KEEP_INPUTS), 2 * one, 0);
    /* Outputs of the first of 35 stages of 530B that are released after they were sent: 2 s b h each, 2.73 GB. */
    assert_true(fabs(ls_pipe_in_flight(LS_PIPE_1F1B, 35, 1, 280, 0) * 2 * 2048 * 20480 / gib - 2.73) <= .005);
    /* Gated: 6 f in place of 4 f, per token: norms 4 h, 2 w (a + 2 k), 2 a w, 4 a, 4 h. */
    const ls_llm l = preset("llama3-8b");
    WITHIN(ls_layer_bytes(&l, 1000, 1, true),
           1000 * (4 * 4096 + 2 * 128 * (32 + 16) + 2 * 4096 + 4 * 32 + 4 * 4096 + 6 * 14336.0), 1e-15);
    /* The general form, with two dropout masks of a byte per element and without log-sum-exp: 34 s b h. */
    WITHIN(ls_layer_bytes(&m, 4 * 2048, 1, true) + 2 * one - 4 * 64 * 4.0 * 2048, 34 * one, 1e-15);
}

/* DeepSeek-V3: ranks 1536 and 512, a rotary part of 64; up-projections to 128 heads of 192, 192 and 128 are most of
 * what attention keeps, and all of that can be projected again. */
static void keeps_latents_alone_if_they_are_projected_again(void **state)
{
    (void)state;
    const ls_llm v = preset("deepseek-v3"), l = preset("llama3-8b");
    const double compressed = 2 * (1536 + 512 + 64), up = 2 * 128 * (192 + 192 + 128), output = 2 * 128 * 128 + 4 * 128;
    WITHIN(ls_latent_bytes(&v, 1000, 8, true), 1000 / 8.0 * (compressed + output), 1e-15);
    WITHIN(ls_latent_bytes(&v, 1000, 8, false), 1000 / 8.0 * (compressed + up + output), 1e-15);
    WITHIN(ls_latent_bytes(&l, 1000, 8, true), 0, 0);
    /* Norms 8 h, and 6 f of a gated dense layer, or 8 experts and a shared one with a router of 256 outputs. */
    WITHIN(ls_layer_bytes(&v, 1000, 8, true),
           1000 / 8.0 * (8 * 7168 + 6 * 18432) + ls_latent_bytes(&v, 1000, 8, false), 1e-15);
    WITHIN(ls_layer_bytes(&v, 1000, 8, false),
           1000 / 8.0 * (8 * 7168 + 9 * (4 * 7168 + 6 * 2048) + 4 * 256) + ls_latent_bytes(&v, 1000, 8, false), 1e-15);
}

static void knows_micro_batches_in_flight(void **state)
{
    (void)state;
    WITHIN(ls_pipe_in_flight(LS_PIPE_GPIPE, 8, 1, 64, 3), 64, 0);
    WITHIN(ls_pipe_in_flight(LS_PIPE_1F1B, 8, 1, 64, 3), 5, 0);
    WITHIN(ls_pipe_in_flight(LS_PIPE_1F1B, 8, 1, 2, 0), 2, 0);
    WITHIN(ls_pipe_in_flight(LS_PIPE_INTERLEAVED, 8, 4, 64, 0), 8 * (1 + 7.0 / 32), 1e-15);
    for (int i = 0; i < 8; i++)
        WITHIN(ls_pipe_in_flight(LS_PIPE_INTERLEAVED, 8, 4, 64, i), (2 * (8 - i - 1) + 3 * 8 + 1) / 4.0, 1e-15);
    WITHIN(ls_pipe_in_flight(LS_PIPE_ZB_H1, 8, 1, 64, 3), 8, 0);
    WITHIN(ls_pipe_in_flight(LS_PIPE_ZB_V, 8, 1, 64, 3), 8, 0);
    WITHIN(ls_pipe_in_flight(LS_PIPE_ZB_H2, 8, 1, 64, 0), 15, 0);
    WITHIN(ls_pipe_in_flight(LS_PIPE_DUALPIPE, 8, 1, 64, 0), 9, 0);
}

/* Qi et al. 2023: bubble rates to four digits, from the times of their Table 9 (milliseconds). */
static void has_the_bubble_rates_of_zero_bubble(void **state)
{
    (void)state;
    static const struct { double F, D, W, x; int p, v; int64_t m; double rate[4]; } row[] = {
        { 18.522, 18.086, 9.337, .601, 8, 3, 24, { .2431, .1055, .1585, .1083 } },
        { 18.546, 18.097, 9.321, .762, 8, 3, 64, { .1240, .0443, .0674, .0444 } },
        { 29.718, 29.444, 19.927, .527, 8, 4, 24, { .2347, .0808, .1323, .0698 } },
        { 29.935, 29.621, 19.388, .535, 8, 4, 64, { .1091, .0320, .0554, .0294 } },
        { 11.347, 11.248, 8.132, .377, 16, 3, 48, { .2552, .1104, .1397, .0672 } },
        { 11.325, 11.308, 8.109, .378, 16, 3, 128, { .1251, .0445, .0576, .0266 } },
        { 10.419, 10.207, 7.715, .408, 32, 2, 96, { .2646, .1493, .1421, .0641 } },
        { 10.402, 10.248, 7.698, .460, 32, 2, 256, { .1352, .0624, .0594, .0257 } },
    };
    static const ls_pipe_form form[] = { LS_PIPE_1F1B, LS_PIPE_INTERLEAVED, LS_PIPE_ZB_H1, LS_PIPE_ZB_H2 };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        for (int f = 0; f < 4; f++) {
            const ls_pipe_costs c = { row[i].F, row[i].D, row[i].W, row[i].x, row[i].p, row[i].v, row[i].m };
            const double got = ls_pipe_bubble_rate(form[f], &c);
            if (fabs(got - row[i].rate[f]) > .5001e-4)
                fail_msg("row %zu, schedule %d: %.6f, published %.4f", i, f, got, row[i].rate[f]);
        }
    /* Each row of the table of schedules, at F = 3, D = 2.5, W = 2 and hops of 0.25 s: 8 ranks, 2 chunks, 24
     * micro-batches. T = 7.5. */
    const ls_pipe_costs c = { 3, 2.5, 2, .25, 8, 2, 24 };
    WITHIN(ls_pipe_seconds(LS_PIPE_GPIPE, &c), 31 * 7.5 + 14 * .25, 1e-15);
    WITHIN(ls_pipe_seconds(LS_PIPE_1F1B, &c), 31 * 7.5 + 2 * .25 * (7 * 32 / 8.0 - 1), 1e-15);
    WITHIN(ls_pipe_seconds(LS_PIPE_INTERLEAVED, &c), 24 * 7.5 + 7 * 7.5 / 2 + (3 * 8 - 2) * .25, 1e-15);
    WITHIN(ls_pipe_seconds(LS_PIPE_ZB_H1, &c), 24 * 7.5 + 7 * 3.5 + 28 * .25, 1e-15);
    WITHIN(ls_pipe_seconds(LS_PIPE_ZB_H2, &c), 24 * 7.5 + 7 * 1.5 + 14 * .25, 1e-15);
    WITHIN(ls_pipe_seconds(LS_PIPE_DUALPIPE, &c), 24 * 7.5 + 3 * (7.5 + 4.5 - 6), 1e-15); /* FB + B - 3 W */
    const ls_pipe_costs equal = { 2, 2, 2, 0, 8, 2, 24 };
    WITHIN(ls_pipe_bubble_rate(LS_PIPE_ZB_V, &equal), 0, 0);
    const ls_pipe_costs one = { 1, 1, 1, 5, 1, 1, 7 };
    WITHIN(ls_pipe_seconds(LS_PIPE_1F1B, &one), 21, 0);
}

static uint64_t next(uint64_t *x) /* xorshift */
{
    *x ^= *x << 13, *x ^= *x >> 7, *x ^= *x << 17;
    return *x;
}

static double replayed(int p, int m, const double *F, const double *D, const double *W)
{
    const ls_pipe_schedule *s;
    ls_pipe_program g = { 0 };
    ls_pipe_replay r = { 0 };
    const ls_pipe_shape shape = { p, 1, m };
    const ls_pipe_times t = { F, D, W, 0 };
    assert_int_equal(ls_pipe_schedule_find("1f1b", &s), LS_OK);
    assert_int_equal(ls_pipe_program_create(s, &shape, &g), LS_OK);
    assert_int_equal(ls_pipe_program_make(&g, m), LS_OK);
    assert_int_equal(ls_pipe_replay_create(&g, &t, &r), LS_OK);
    const double step = r.step;
    ls_pipe_replay_free(&r);
    ls_pipe_program_free(&g);
    return step;
}

/* Random stages, of which one takes up to three times as long as another, 2 to 8 of them, p to 4 p micro-batches: the
 * runtime's lists, replayed, are between the bounds. How loose the upper one is at most depends on the draws: about a
 * fifth. */
static void bounds_unequal_stages(void **state)
{
    (void)state;
    uint64_t x = 20;
    double loosest = 0;
    for (int draw = 0; draw < 3000; draw++) {
        double F[8], B[8], D[8], W[8], least, most;
        const int p = 2 + (int)(next(&x) % 7), m = p + (int)(next(&x) % (3 * (uint64_t)p + 1));
        for (int i = 0; i < p; i++) {
            F[i] = .5 + (double)(next(&x) % 1000) / 1000;
            D[i] = W[i] = F[i];
            B[i] = D[i] + W[i];
        }
        ls_pipe_1f1b_bounds(F, B, p, m, &least, &most);
        const double step = replayed(p, m, F, D, W);
        if (step < least * (1 - 1e-12) || step > most * (1 + 1e-12))
            fail_msg("draw %d, %d stages, %d micro-batches: %.9g is not within %.9g and %.9g", draw, p, m, step, least,
                     most);
        loosest = fmax(loosest, most / step - 1);
    }
    if (loosest < .18 || loosest >= .22)
        fail_msg("the upper bound is up to %.1f %% loose, expected 18 to 22", 100 * loosest);
    /* Equal stages: both are exact. */
    const double F[] = { 1, 1, 1, 1 }, B[] = { 2, 2, 2, 2 };
    double least, most;
    ls_pipe_1f1b_bounds(F, B, 4, 8, &least, &most);
    WITHIN(least, 33, 0);
    WITHIN(most, 33, 0);
}

/* DeepSeek-V3's report: 1F 1.13, bubble 2.06, 1B 1.99, 1W 0.48, 1F1B 13.95 and optimizer 0.29 s are 19.90 of 19.926 s;
 * 16 stages, 15360 sequences over 128 replicas. */
static void splits_a_step_as_deepseek_does(void **state)
{
    (void)state;
    const double F = 1.13 / 23, W = .48 / 15, D = (1.99 - 8 * W) / 23, pair = 13.95 / 97, optimizer = .29;
    const ls_pipe_costs c = { F, D, W, 0, 16, 1, 15360 / 128 };
    ls_pipe_split s;
    ls_pipe_split_of(&c, pair, &s);
    WITHIN(s.forward, 1.13, 1e-12);
    WITHIN(s.weight, .48, 1e-12);
    WITHIN(s.backward, 1.99, 1e-12);
    WITHIN(s.pairs, 13.95, 1e-12);
    const double computed = s.forward + s.backward + s.weight + s.pairs + optimizer;
    assert_true(fabs(computed + 2.06 - 19.90) <= .005);
    /* With the ideal bubble, half of the measured one, the step is 4 to 8 % short of what it took, as ideal schedules
     * are. */
    const double ideal = (computed + s.bubble) / 19.926;
    assert_true(ideal > .92 && ideal < .96);
    /* Where a pair takes as long as its halves, the parts are the schedule's time. */
    ls_pipe_split_of(&c, F + D + W, &s);
    WITHIN(s.forward + s.bubble + s.backward + s.weight + s.pairs, ls_pipe_seconds(LS_PIPE_DUALPIPE, &c), 1e-12);
    /* The same actions as the runtime's list of the first of 8 ranks, on which DualPipe is cut in half. */
    const ls_pipe_schedule *half;
    ls_pipe_program g = { 0 };
    const ls_pipe_shape shape = { 8, 2, 60 };
    int n[4] = { 0 }, pairs = 0;
    assert_int_equal(ls_pipe_schedule_find("dualpipe-v", &half), LS_OK);
    assert_int_equal(ls_pipe_program_create(half, &shape, &g), LS_OK);
    assert_int_equal(ls_pipe_program_make(&g, shape.micro_batches), LS_OK);
    const ls_pipe_list *l = &g.list[0];
    for (int i = 0; i < l->n; i++) {
        n[l->action[i].what]++;
        const bool after = i > 0 && l->action[i - 1].what == LS_PIPE_FORWARD;
        pairs += l->action[i].what == LS_PIPE_BACKWARD && after;
    }
    const ls_pipe_costs one = { 1, 1, 1, 0, 16, 1, 120 };
    ls_pipe_split_of(&one, 1, &s);
    WITHIN(s.pairs, pairs, 0);
    WITHIN(s.forward, n[LS_PIPE_FORWARD] - pairs, 0);
    WITHIN(s.weight, n[LS_PIPE_BACKWARD_WEIGHT], 0);
    WITHIN(s.backward, 2 * (n[LS_PIPE_BACKWARD] - pairs) + n[LS_PIPE_BACKWARD_INPUT], 0);
    ls_pipe_program_free(&g);
}

static void has_the_closed_forms_of_collectives(void **state)
{
    (void)state;
    const double S = 1e6, a = 1e-6, B = 1e9;
    WITHIN(ls_coll_seconds(LS_COLL_RING, LS_ALL_REDUCE, 4, S, a, B), 6 * (a + S / (4 * B)), 1e-15);
    WITHIN(ls_coll_seconds(LS_COLL_RING, LS_ALL_GATHER, 4, S, a, B), 3 * (a + S / (4 * B)), 1e-15);
    WITHIN(ls_coll_seconds(LS_COLL_HALVING, LS_ALL_REDUCE, 8, S, a, B), 6 * a + 1.75 * S / B, 1e-15);
    WITHIN(ls_coll_seconds(LS_COLL_DOUBLING, LS_ALL_REDUCE, 8, S, a, B), 3 * (a + S / B), 1e-15);
    WITHIN(ls_coll_seconds(LS_COLL_BRUCK, LS_ALL_TO_ALL, 6, S, a, B), 3 * (a + S / (2 * B)), 1e-15);
    WITHIN(ls_coll_seconds(LS_COLL_PAIRWISE, LS_ALL_TO_ALL, 4, S, a, B), 3 * (a + S / (4 * B)), 1e-15);
    WITHIN(ls_coll_seconds(LS_COLL_SWITCH, LS_ALL_REDUCE, 8, S, a, B), a + S / B, 1e-15);
    assert_true(isnan(ls_coll_seconds(LS_COLL_PAIRWISE, LS_ALL_REDUCE, 4, S, a, B)));
    /* The tree's best number of chunks is no worse than its neighbours' and near the square root. */
    const double k = 2 * log2(16), best = ls_coll_seconds(LS_COLL_TREE, LS_ALL_REDUCE, 16, S, a, B);
    for (int C = 1; C < 2000; C++) assert_true(best <= (k + C - 1) * (a + S / (C * B)) * (1 + 1e-12));
    /* At C = sqrt(S (2 log2 n - 1) / (alpha beta)), as far as C is whole; of large vectors S / beta remains. */
    const double C = sqrt(S * (k - 1) / (a * B));
    WITHIN(best, (k + C - 1) * (a + S / (C * B)), 1e-4);
    WITHIN(ls_coll_seconds(LS_COLL_TREE, LS_ALL_REDUCE, 16, 1e15, a, B), 1e15 / B, 1e-4);
    WITHIN(ls_coll_seconds(LS_COLL_RING, LS_REDUCE_SCATTER, 4, S, a, B), 3 * (a + S / (4 * B)), 1e-15);
    WITHIN(ls_coll_seconds(LS_COLL_HALVING, LS_REDUCE_SCATTER, 8, S, a, B), 3 * a + .875 * S / B, 1e-15);
    WITHIN(ls_coll_seconds(LS_COLL_HALVING, LS_ALL_GATHER, 8, S, a, B), 3 * a + .875 * S / B, 1e-15);
    WITHIN(ls_coll_seconds(LS_COLL_BRUCK, LS_ALL_GATHER, 6, S, a, B), 3 * a + 5 / 6.0 * S / B, 1e-15);
    double chain = (double)INFINITY;
    for (int n = 1; n < 2000; n++) chain = fmin(chain, (8 - 2 + n) * (a + S / (n * B)));
    WITHIN(ls_coll_seconds(LS_COLL_CHAIN, LS_BROADCAST, 8, S, a, B), chain, 1e-12);
    /* R228: a ring's rank sends 2 (n - 1) / n of the vector, so without latency its bus bandwidth is the link's. */
    for (int n = 2; n <= 8; n++) {
        WITHIN(ls_coll_bus_factor(LS_ALL_REDUCE, n), 2.0 * (n - 1) / n, 1e-15);
        WITHIN(ls_coll_seconds(LS_COLL_RING, LS_ALL_REDUCE, n, S, 0, B), 2.0 * (n - 1) / n * S / B, 1e-15);
    }
    WITHIN(ls_coll_bus_factor(LS_REDUCE_SCATTER, 8), .875, 0);
    WITHIN(ls_coll_bus_factor(LS_ALL_GATHER, 8), .875, 0);
    WITHIN(ls_coll_bus_factor(LS_ALL_TO_ALL, 8), .875, 0);
    WITHIN(ls_coll_bus_factor(LS_BROADCAST, 8), 1, 0);
    WITHIN(ls_coll_two_level_seconds(8, 4, S, 3e9, 1e9), 1.75 * S / 3e9 + 1.5 * S / 8e9, 1e-15);
    /* One expert is on one node; as many experts as there are, on every node. */
    WITHIN(ls_expected_nodes(8, 256, 1), 1, 1e-12);
    WITHIN(ls_expected_nodes(8, 256, 256), 8, 1e-12);
    /* N (1 - C(E - E / N, K) / C(E, K)) */
    double none = 1;
    for (int i = 0; i < 8; i++) none *= (224.0 - i) / (256 - i);
    WITHIN(ls_expected_nodes(8, 256, 8), 8 * (1 - none), 1e-12);
}

/* Large messages on 8 devices: bus bandwidths that NVIDIA's maintainers call expected. */
static void picks_as_nccl(void **state)
{
    (void)state;
    const ls_nccl a100 = { LS_NCCL_AMPERE, 8, 1, 24, 12 * 20, 0, false };
    const ls_nccl h100 = { LS_NCCL_HOPPER, 8, 1, 24, 18 * 20.6, 0, false };
    ls_nccl a;
    ls_nccl_algo algo;
    ls_nccl_proto proto;
    const double S = 16e9;
    WITHIN(1e-9 * S * 1.75 / ls_nccl_pick(&a100, S, &algo, &proto), 235, .03);
    assert_true(algo == LS_NCCL_RING && proto == LS_NCCL_SIMPLE);
    WITHIN(1e-9 * S * 1.75 / ls_nccl_pick(&h100, S, NULL, NULL), 365, .03);
    ls_nccl_pick(&a100, 64, &algo, &proto);
    assert_int_equal(proto, LS_NCCL_LL);
    a = h100;
    a.ranks = 64, a.nodes = 8, a.inter_gb_per_s = 8 * 48;
    ls_nccl_pick(&a, 8, &algo, &proto);
    assert_int_equal(algo, LS_NCCL_TREE);
    ls_nccl_pick(&a, S, &algo, &proto);
    assert_int_equal(algo, LS_NCCL_RING);
    /* ring latency = base + (steps - inter) intra + inter net */
    WITHIN(1e6 * ls_nccl_seconds(&a, LS_NCCL_RING, LS_NCCL_LL, 0), 6.6 + (126 - 14) * .6 + 14 * 2.7, 1e-12);
    WITHIN(1e6 * ls_nccl_seconds(&a, LS_NCCL_TREE, LS_NCCL_LL, 0), 6.8 + 2 * (7 * .6 + 3 * 5), 1e-12);
    a.ranks = 1;
    WITHIN(ls_nccl_pick(&a, S, NULL, NULL), 0, 0);
}

static void refuses_what_is_no_model(void **state)
{
    (void)state;
    ls_llm m;
    assert_int_equal(ls_llm_preset("llama3-8", &m), LS_BAD_CONFIG);
    assert_non_null(strstr(ls_last_error(), "llama3-8b"));
    m = preset("llama3-8b");
    m.kv_heads = 5;
    assert_int_equal(ls_llm_check(&m), LS_BAD_CONFIG);
    assert_non_null(strstr(ls_last_error(), "5 key heads"));
    m = preset("qwen3-30b");
    m.topk = 200;
    assert_int_equal(ls_llm_check(&m), LS_BAD_CONFIG);
    assert_non_null(strstr(ls_last_error(), "topk is 200"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_operations_as_published),
        cmocka_unit_test(agrees_with_the_closed_form_of_gpt),
        cmocka_unit_test(counts_a_layer_as_the_papers_do),
        cmocka_unit_test(counts_parameters_exactly),
        cmocka_unit_test(has_the_states_of_zero),
        cmocka_unit_test(has_the_activations_of_korthikanti),
        cmocka_unit_test(keeps_latents_alone_if_they_are_projected_again),
        cmocka_unit_test(knows_micro_batches_in_flight),
        cmocka_unit_test(has_the_bubble_rates_of_zero_bubble),
        cmocka_unit_test(bounds_unequal_stages),
        cmocka_unit_test(splits_a_step_as_deepseek_does),
        cmocka_unit_test(has_the_closed_forms_of_collectives),
        cmocka_unit_test(picks_as_nccl),
        cmocka_unit_test(refuses_what_is_no_model),
    };
    return cmocka_run_group_tests_name("plan_forms", tests, NULL, NULL);
}
