/* The cost of a step: its parts sum to the whole, and more of a resource never makes a prediction longer.
 * Collectives: tests/test_plan_coll.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "plan/predict.h"
#include "plan/row_run.h"

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
    static const int price[] = { LS_K_MICRO, LS_K_STEP, LS_K_TP_LATENCY, LS_K_LAUNCH, LS_K_UPDATE, LS_K_ELEMENTWISE,
                                 LS_K_SKEW };
    for (int i = 0; i < 144; i++)
        for (int j = 0; j < 13; j++) {
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

/* A layer takes as long as its launches where those are slower; tp adds two sums forward, and two backward, each of two
 * collectives where it divides the sequence. */
static void collectives_of_tensor_parallelism_are_launched(void **state)
{
    (void)state;
    ls_device_sheet ideal;
    double k[LS_K_COUNT];
    ls_step_cost c;
    ls_run r = free_of_charge(&ideal, k);
    k[LS_K_LAUNCH] = 1000;
    k[LS_K_CALL] = 50;
    r.sequence_parallel = false;
    ls_step_cost_of(&r, k, &c); /* 4 micro-batches; backward has half as many kernels again */
    assert_true(near(c.total, 4 * 2.5 * 1000e-6 * (double)r.m.layers));
    r.n = r.t = 2;
    ls_step_cost_of(&r, k, &c);
    assert_true(near(c.total, 4 * (2.5 * 1000e-6 + 4 * 50e-6) * (double)r.m.layers));
    r.kept = LS_KEEP_INPUTS; /* a recomputed forward launches its collectives once more */
    ls_step_cost_of(&r, k, &c);
    assert_true(near(c.total, 4 * (3.5 * 1000e-6 + 6 * 50e-6) * (double)r.m.layers));
    r.sequence_parallel = true;
    ls_step_cost_of(&r, k, &c);
    assert_true(near(c.total, 4 * (3.5 * 1000e-6 + 12 * 50e-6) * (double)r.m.layers));
    r.sequence_parallel = false;
    k[LS_K_TP_LATENCY] = 1e6; /* a second: the device is the slower one, and launches hide */
    r.kept = LS_KEEP_ALL;
    ls_step_cost_of(&r, k, &c);
    assert_true(near(c.total, 4 * 4 * 1. * (double)r.m.layers));
}

/* Only the products with the vocabulary take longer where it is not padded to a multiple of 8. */
static void unaligned_vocabularies_are_slow(void **state)
{
    (void)state;
    ls_device_sheet ideal;
    double k[LS_K_COUNT];
    ls_step_cost even, odd;
    ls_run r = free_of_charge(&ideal, k);
    k[LS_K_GEMM] = 1;
    k[LS_K_BACKWARD] = 1;
    k[LS_K_UNALIGNED] = 3;
    ls_step_cost_of(&r, k, &even);
    r.unaligned = true;
    ls_step_cost_of(&r, k, &odd);
    const double flops = 3 * 2. * (double)(r.m.seq * r.batch) * (double)(r.m.hidden * r.m.vocab);
    assert_true(fabs(odd.total - even.total - 2 * flops / r.device->peak16) < 1e-9 * odd.total);
}

/* What rows of vTrain's single node state is corrected for them alone. */
static void what_one_node_measured(void **state)
{
    (void)state;
    static const char head[] = "id,layers,hidden,heads,seq,vocab,gpu,n_gpus,tp,pp,global_batch,micro_batch,recompute,"
                               "measured_metric,measured_value\n";
    static const struct { const char *family; int t; bool kept, unaligned; } cases[] = {
        { "vtrain-single", 1, true, true }, { "vtrain-single", 2, true, false },
        { "vtrain-multi", 1, false, false }, { "vtrain-multi", 2, false, false },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[512];
        ls_rows rows;
        ls_run run;
        snprintf(text, sizeof text, "%s%s-1,16,1024,16,1024,50257,A100,2,%d,1,8,1,full,step_time_ms,1\n", head,
                 cases[i].family, cases[i].t);
        assert_int_equal(ls_rows_read("made", text, &rows), LS_OK);
        assert_int_equal(ls_row_run(&rows.row[0], &run), LS_OK);
        assert_int_equal(run.kept, cases[i].kept ? LS_KEEP_ALL : LS_KEEP_INPUTS);
        assert_int_equal(run.unaligned, cases[i].unaligned);
        ls_rows_free(&rows);
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

static void late_sums_hide_nothing(void **state)
{
    (void)state;
    ls_device_sheet ideal;
    double k[LS_K_COUNT];
    ls_step_cost early, late;
    ls_run r = free_of_charge(&ideal, k);
    k[LS_K_NODE_RATE] = 50;
    k[LS_K_TP_RATE] = 100;
    k[LS_K_LAUNCH] = 1e12; /* a backward that hides as much as may be hidden */
    k[LS_K_HIDDEN] = .75;
    r.n = r.d = 32, r.batch = 64;
    ls_step_cost_of(&r, k, &early);
    r.late_sums = true;
    ls_step_cost_of(&r, k, &late);
    /* Gradients in 16 bits, of one of the matrices at the ends, in a ring over 32 ranks. */
    const double bytes = 2.0 * (double)(ls_llm_params(&r.m) - r.m.vocab * r.m.hidden);
    assert_true(near(late.data, 2 * 31 / 32.0 * bytes / 50e9));
    assert_true(near(early.data, late.data / 4));
}

static void a_stated_slowdown_is_of_all_parts(void **state)
{
    (void)state;
    for (int i = 0; i < 144; i++) {
        ls_run r = layout(i);
        ls_step_cost plain, slower;
        ls_step_cost_of(&r, ls_constants[4], &plain);
        r.slowdown = .03;
        ls_step_cost_of(&r, ls_constants[4], &slower);
        assert_true(near(slower.total, 1.03 * plain.total) && near(sum(&slower), slower.total));
    }
}

/* Seven layers in two stages: one has four of them. Its bound is 1F1B's for unequal stages. */
static void the_fullest_stage_sets_the_pace(void **state)
{
    (void)state;
    ls_device_sheet ideal;
    double k[LS_K_COUNT], least, most;
    ls_step_cost c;
    for (int layers = 4; layers <= 9; layers++) {
        ls_run r = free_of_charge(&ideal, k);
        r.m.layers = layers, r.n = r.p = 2, r.form = LS_PIPE_1F1B, r.batch = 16;
        k[LS_K_LAUNCH] = 1000, k[LS_K_HOP_RATE] = INFINITY;
        ls_step_cost_of(&r, k, &c);
        const double few = layers / 2, forward[] = { 1e-3 * (layers - few), 1e-3 * few };
        const double backward[] = { 1.5 * forward[0], 1.5 * forward[1] };
        ls_pipe_1f1b_bounds(forward, backward, 2, 8, &least, &most);
        if (!near(c.total, most) || !near(sum(&c), most))
            fail_msg("%d layers: %g s, expected %g s", layers, c.total, most);
    }
}

/* The last stage has one layer fewer, and logits that take three times as long. */
static void logits_may_make_the_last_stage_the_fullest(void **state)
{
    (void)state;
    ls_device_sheet ideal;
    double k[LS_K_COUNT], least, most;
    ls_step_cost c;
    ls_run r = free_of_charge(&ideal, k);
    ideal.bytes_per_s = 1e12;
    r.m.layers = 7, r.n = r.p = 2, r.form = LS_PIPE_1F1B, r.batch = 16;
    k[LS_K_LAUNCH] = 1e5, k[LS_K_HOP_RATE] = INFINITY, k[LS_K_LOSS] = 1;
    const double tokens = 2.0 * (double)r.m.seq, layer = 2.5 * .1;
    k[LS_K_LOSS] = 3 * layer * 1e12 / (4 * tokens * (double)r.m.vocab);
    ls_step_cost_of(&r, k, &c);
    const double stage[] = { 4 * layer, 6 * layer }, none[] = { 0, 0 };
    ls_pipe_1f1b_bounds(stage, none, 2, 8, &least, &most);
    if (fabs(c.total - most) > .01 * most) fail_msg("%g s, expected %g s", c.total, most); /* products, too */
}

static void launches_hide_the_device_or_the_device_hides_them(void **state)
{
    (void)state;
    ls_device_sheet ideal;
    double k[LS_K_COUNT];
    ls_step_cost c;
    ls_run r = free_of_charge(&ideal, k);
    r.flash = false, r.n = 8, r.batch = 64;
    k[LS_K_GAP] = 300;
    k[LS_K_JITTER] = .25;
    static const double launch[] = { 100, 299, 301, 900 };
    for (int t = 1; t <= 8; t *= 2)
        for (size_t i = 0; i < sizeof launch / sizeof *launch; i++) {
            r.t = t, r.d = 8 / t;
            k[LS_K_LAUNCH] = launch[i];
            ls_step_cost_of(&r, k, &c);
            /* A socket has four devices. */
            const double steps = 64.0 / (2 * (double)r.d), cpu = launch[i] * (t == 8 ? 1.25 : 1);
            const double want = steps * 2.5e-6 * (cpu > 300 ? cpu : 300) * (double)r.m.layers;
            if (!near(c.total, want)) fail_msg("tp %d, %g us: %g s, expected %g s", t, launch[i], c.total, want);
        }
}

/* Attention takes two and a half times as long backward, launches one and a half times. Where a processor is slower
 * than the device forward and faster backward, a forward that is recomputed waits in the queue of its backward. */
static void a_recomputed_forward_shares_a_queue(void **state)
{
    (void)state;
    ls_device_sheet ideal;
    double k[LS_K_COUNT];
    ls_step_cost c;
    ls_run r = free_of_charge(&ideal, k);
    const double times = 4 * (double)r.m.layers;
    k[LS_K_ATTENTION] = 1;
    ls_step_cost_of(&r, k, &c);
    const double one = c.total / (3.5 * times);
    r.kept = LS_KEEP_INPUTS;
    for (double part = .5; part < 4; part += .25) {
        k[LS_K_LAUNCH] = 1e6 * part * one;
        ls_step_cost_of(&r, k, &c);
        const double want = times * one * (fmax(1, part) + fmax(1 + 2.5, 2.5 * part));
        if (!near(c.total, want)) fail_msg("%g: %g s, expected %g s", part, c.total, want);
    }
}

/* Each of m micro-batches passes v chunks of a stage, forward and backward. */
static void chunks_that_wait_cost_time_each(void **state)
{
    (void)state;
    ls_device_sheet ideal;
    double k[LS_K_COUNT];
    ls_step_cost c;
    ls_run r = free_of_charge(&ideal, k);
    k[LS_K_MICRO] = 3, k[LS_K_HOP_RATE] = INFINITY;
    r.n = r.p = 4, r.form = LS_PIPE_INTERLEAVED, r.batch = 16;
    for (int wait = 0; wait < 2; wait++)
        for (int v = 1; v <= 8; v++) {
            r.v = v, r.waits_per_chunk = wait;
            ls_step_cost_of(&r, k, &c);
            double visits = 0;
            for (int micro = 0; micro < 8; micro++)
                for (int chunk = 0; chunk < (wait ? v : 1); chunk++) visits += 2;
            if (!near(c.overhead, 3e-3 * visits)) fail_msg("%d chunks: %g s, expected %g s", v, c.overhead, 3e-3 * visits);
        }
}

/* Forwards reach the last of p stages one after another; from then on it is busy without a pause, like all others. */
static void a_step_that_ends_at_once_waits_for_the_last_stage(void **state)
{
    (void)state;
    ls_device_sheet ideal;
    double k[LS_K_COUNT];
    static const ls_pipe_form forms[] = { LS_PIPE_ZB_H2, LS_PIPE_ZB_V, LS_PIPE_1F1B, LS_PIPE_INTERLEAVED };
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        ls_step_cost own, together;
        ls_run r = free_of_charge(&ideal, k);
        r.n = r.p = 4, r.batch = 32, r.form = forms[i];
        k[LS_K_LAUNCH] = 1000, k[LS_K_HOP_RATE] = INFINITY;
        ls_step_cost_of(&r, k, &own);
        r.one_end = true;
        ls_step_cost_of(&r, k, &together);
        const double forward = 1e-3 * (double)r.m.layers / 4;
        double begins = 0;
        for (int stage = 1; stage < r.p; stage++) begins += forward;
        const double want = own.total + (i < 2 ? begins : 0); /* others fill and drain, and end together anyway */
        if (!near(together.total, want)) fail_msg("schedule %zu: %g s, expected %g s", i, together.total, want);
        assert_true(near(sum(&together), together.total));
    }
}

static void software_of_a_row_waits(void **state)
{
    (void)state;
    static const char sync[] = "ZB-2p; optimizer step after an all-reduce over the pipeline";
    static const struct { const char *family, *schedule, *note; bool waits, one_end; } of[] = {
        { "zb", "interleaved-1f1b", "", true, false }, { "zb", "1f1b", "", false, false },
        { "zb-optsync", "zb-2p", sync, false, true }, { "zb-optsync", "zb-2p", "post-validation", false, false },
        { "korth", "interleaved-1f1b", "", true, false }, { "bridge", "interleaved-1f1b", "", false, false },
        { "megascale", "interleaved-1f1b", "Megatron-LM baseline", true, false },
        { "megascale", "interleaved-1f1b", "MegaScale system", false, false },
    };
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        ls_row row = { .id = "x-1", .source = "", .name = "GPT", .dtype = "bf16", .gpu = "A100", .recompute = "full",
                       .schedule = of[i].schedule, .metric = "step_time_s", .unit = "s", .note = of[i].note, .n = 8,
                       .t = 1, .p = 8, .v = 1, .micro = 1, .batch = 64 };
        ls_run run;
        strcpy(row.family, of[i].family);
        assert_int_equal(ls_llm_preset("llama3-8b", &row.m), LS_OK);
        assert_int_equal(ls_row_run(&row, &run), LS_OK);
        if (run.waits_per_chunk != of[i].waits || run.one_end != of[i].one_end) fail_msg("case %zu", i);
    }
}

/* MT-NLG and BLOOM were trained with DeepSpeed's pipelines; a device of 2020 is not one of another kind. */
static void software_and_device_choose_constants(void **state)
{
    (void)state;
    static const struct { const char *family, *gpu, *stack; } of[] = {
        { "bloom", "A100-80GB", "deepspeed-a100" }, { "mtnlg", "A100-80GB-SXM", "deepspeed-a100" },
        { "korth", "A100-80GB-SXM", "megatron-a100" }, { "mlm2020", "A100-SXM4", "megatron-a100" },
        { "mlm2020", "V100-32GB", "megatron-v100" }, { "llmc", "A100-80GB", "llmc-a100" },
        { "llmc", "H100-80GB", "megatron-h100" }, { "unknown", "A100-80GB", "megatron-a100" },
    };
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        ls_row row = { .gpu = of[i].gpu, .note = "" };
        strcpy(row.family, of[i].family);
        assert_string_equal(ls_stacks[ls_stack_of(&row)].name, of[i].stack);
    }
}

/* The release that a row's source states decides how layers with experts pass through memory. */
static void releases_fuse_kernels(void **state)
{
    (void)state;
    static const struct { const char *release; bool unfused; } of[] = {
        { "release 26.04.01 X", true }, { "release 26.06 X", false }, { "release 26.06.01 X", false },
        { "release 25.11 X", true }, { "paper", true },
    };
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        ls_row row = { .id = "x-1", .family = "x", .source = of[i].release, .dtype = "bf16", .gpu = "GB200",
                       .recompute = "", .schedule = "", .metric = "step_time_s", .unit = "s", .note = "", .n = 8,
                       .t = 1, .p = 1, .e = 8, .micro = 1, .batch = 8 };
        ls_run run;
        ls_step_cost c, fused;
        assert_int_equal(ls_llm_preset("qwen3-30b", &row.m), LS_OK);
        assert_int_equal(ls_row_run(&row, &run), LS_OK);
        if (run.unfused != of[i].unfused) fail_msg("'%s': unfused is %d", of[i].release, run.unfused);
        const int s = ls_stack_of_device(run.device, true);
        ls_step_cost_of(&run, ls_constants[s], &c);
        run.unfused = false;
        ls_step_cost_of(&run, ls_constants[s], &fused);
        assert_true(of[i].unfused ? c.total > fused.total : c.total == fused.total);
    }
}

/* 126 layers in 16 stages of 8 blocks: 128 blocks, of which two are the embedding and the logits. */
static void blocks_count_the_ends(void **state)
{
    (void)state;
    static const struct { int64_t p, v; double ends; } of[] = {
        { 16, 8, 2 }, { 8, 4, 2 }, { 7, 1, 0 }, { 4, 1, 2 }, { 5, 1, 0 },
    };
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        ls_row row = { .id = "x-1", .family = "x", .source = "", .dtype = "bf16", .gpu = "GB200", .recompute = "",
                       .schedule = "", .metric = "step_time_s", .unit = "s", .note = "", .n = 4 * of[i].p, .t = 4,
                       .p = of[i].p, .v = of[i].v, .micro = 1, .batch = 64 };
        ls_run run;
        assert_int_equal(ls_llm_preset("llama3-405b", &row.m), LS_OK);
        assert_int_equal(ls_row_run(&row, &run), LS_OK);
        if (run.embedding_layers != of[i].ends) fail_msg("pp %d: %g", (int)of[i].p, run.embedding_layers);
    }
}

/* torchtitan's selective recomputation per operation: between nothing and all of a layer's forward, without attention
 * and with half of the products. */
static void some_operations_are_recomputed(void **state)
{
    (void)state;
    ls_row row = { .id = "x-1", .family = "torchtitan", .source = "", .dtype = "bf16", .gpu = "H100-80GB-SXM",
                   .recompute = "selective-op", .schedule = "", .metric = "step_time_s", .unit = "s", .note = "",
                   .n = 8, .t = 1, .p = 1, .micro = 2, .batch = 32, .zero = 3 };
    ls_run run;
    ls_step_cost some, none, all;
    ls_layer_cost l;
    assert_int_equal(ls_llm_preset("llama3-8b", &row.m), LS_OK);
    assert_int_equal(ls_row_run(&row, &run), LS_OK);
    const double *k = ls_constants[ls_stack_of(&row)];
    ls_layer_cost_of(&run, k, &l);
    ls_step_cost_of(&run, k, &some);
    const double want = 2 * 32 * (l.fwd - l.attention - l.products / 2); /* micro-batches, layers */
    if (fabs(some.recompute - want) > 1e-9 * want) fail_msg("%.12g s, expected %.12g", some.recompute, want);
    run.per_op = false;
    ls_step_cost_of(&run, k, &none);
    run.kept = LS_KEEP_INPUTS;
    ls_step_cost_of(&run, k, &all);
    assert_true(none.recompute == 0 && some.recompute < all.recompute && some.recompute > 0);
}

/* Of what routed tokens pass through memory, a clamped gate with biases has 40 bytes per value in place of 6. */
static void clamped_gates_do_not_fuse(void **state)
{
    (void)state;
    ls_row row = { .id = "x-1", .family = "bridge", .source = "release 26.06", .name = "GPT OSS 120B", .dtype = "bf16",
                   .gpu = "GB200", .recompute = "", .schedule = "", .metric = "step_time_s", .unit = "s", .note = "",
                   .n = 8, .t = 1, .p = 1, .e = 8, .micro = 2, .batch = 16 };
    ls_run run;
    ls_layer_work clamped, fused;
    assert_int_equal(ls_llm_preset("qwen3-30b", &row.m), LS_OK);
    assert_int_equal(ls_row_run(&row, &run), LS_OK);
    assert_true(run.clamped);
    const double *k = ls_constants[ls_stack_of(&row)];
    ls_layer_work_of(&run, k, &clamped);
    run.clamped = false;
    ls_layer_work_of(&run, k, &fused);
    const double values = 2 * (double)(run.m.seq * run.m.topk * run.m.expert_ffn);
    const double want = k[LS_K_ELEMENTWISE] * values * (40 * k[LS_K_EAGER] - 6) / run.device->bytes_per_s;
    const double got = clamped.sparse.traffic - fused.sparse.traffic;
    if (fabs(got - want) > 1e-9 * want) fail_msg("%.12g s, expected %.12g", got, want);
    assert_true(clamped.dense.traffic == fused.dense.traffic && clamped.sparse.products == fused.sparse.products);
    row.name = "Qwen3 30B";
    assert_int_equal(ls_row_run(&row, &run), LS_OK);
    assert_true(!run.clamped);
}

/* Inputs of products in 8 bits are read in 16 bits and written twice, 4 bytes per value; torch.compile fuses it. */
static void fewer_bits_are_written(void **state)
{
    (void)state;
    ls_run r = { .device = ls_device_sheet_find("H100"), .per_node = 8, .n = 1, .t = 1, .p = 1, .v = 1, .c = 1, .d = 1,
                 .micro = 1, .batch = 1, .flash = true };
    assert_int_equal(ls_llm_preset("llama3-8b", &r.m), LS_OK);
    const ls_llm *m = &r.m;
    const double *k = ls_constants[0], inputs = (double)(3 * m->hidden + m->ffn); /* of qkv, projection, both of mlp */
    static const struct { double bits, bytes; } of[] = { { 16, 0 }, { 8, 4 }, { 4, 3 } };
    double plain = 0;
    for (int i = 0; i < 3; i++) {
        ls_layer_work w;
        r.bits = of[i].bits, r.compiled = false;
        ls_layer_work_of(&r, k, &w);
        if (i == 0) plain = w.dense.traffic;
        const double want = k[LS_K_ELEMENTWISE] * (double)m->seq * of[i].bytes * inputs / r.device->bytes_per_s;
        if (fabs(w.dense.traffic - plain - want) > 1e-9 * plain) fail_msg("%g bits: %g s more, expected %g", r.bits,
                                                                        w.dense.traffic - plain, want);
        r.compiled = true;
        ls_layer_work_of(&r, k, &w);
        assert_true(w.dense.traffic == plain);
    }
}

/* --- words of a row ------------------------------------------------------------------------------------ */

static void finds_a_word_among_others(void **state)
{
    (void)state;
    static const struct { const char *words, *word; bool found; } row[] = {
        { "ptdp mtnlg bloom", "ptdp", true }, { "ptdp mtnlg bloom", "mtnlg", true }, { "ptdp mtnlg bloom", "bloom", true },
        { "ptdp mtnlg bloom", "tnlg", false }, { "zb-1p zb", "zb", true }, { "zb-1p", "zb", false }, { "", "zb", false },
        { "ptdp mtnlg", "", false }, { "", "", false }, /* a row without a family is of none */
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        if (ls_among(row[i].words, row[i].word) != row[i].found) fail_msg("'%s' in '%s'", row[i].word, row[i].words);
}

static ls_row deepseek_row(void)
{
    ls_row row = { .id = "x-1", .family = "deepseek", .source = "", .name = "DeepSeek-V3", .dtype = "fp8", .gpu = "H800",
                   .recompute = "", .schedule = "dualpipe", .metric = "step_time_s", .unit = "s", .note = "", .n = 2048,
                   .t = 1, .p = 16, .e = 64, .micro = 1, .batch = 15360 };
    assert_int_equal(ls_llm_preset("deepseek-v3", &row.m), LS_OK);
    return row;
}

/* DeepSeek prints 19.926 s, 432 and 385 TFLOP/s (Table 4 of arXiv 2505.09343) for a model whose form its row does not
 * state: latent attention, and three dense layers. */
static void sizes_say_the_form_of_a_model(void **state)
{
    (void)state;
    static const struct { const char *name, *count, *note; double tflops; int64_t mtp; } of[] = {
        { "DeepSeek-V3", "non-causal count", "", 432, 0 }, { "DeepSeek-V3", "causal count", "", 385, 0 },
        { "a mixture", "causal count", "MTP 1 unless noted; variant: w/o MTP; ", 385, 0 },
        { "a mixture", "causal count", "MTP 1 unless noted; ", 401, 1 }, /* 260.6 of 250.4 GFLOP per token */
    };
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        char text[1024];
        ls_rows rows;
        ls_run run;
        double value;
        snprintf(text, sizeof text, "id,model,layers,hidden,heads,kv_heads,ffn,vocab,seq,dtype,gpu,gpus_per_node,"
                 "n_gpus,tp,pp,ep,dp,zero_stage,global_batch,schedule,measured_metric,measured_value,unit,note\n"
                 "deepseek-1,%s,61,7168,128,128,18432,129280,4096,fp8,H800,8,2048,1,16,64,128,1,15360,"
                 "dualpipe,tflops_per_gpu,%g,TFLOP/s,experts=256 topk=8 shared=1 moe_ffn=2048; %s%s\n", of[i].name,
                 of[i].tflops, of[i].note, of[i].count);
        assert_int_equal(ls_rows_read("rows.csv", text, &rows), LS_OK);
        const ls_row *r = &rows.row[0];
        assert_true(r->m.dense_layers == 3 && r->m.kv_rank == 512 && r->m.q_rank == 1536 && r->m.mtp == of[i].mtp);
        assert_int_equal(ls_row_run(r, &run), LS_OK);
        assert_int_equal(ls_row_from_seconds(r, &run, 19.926, &value), LS_OK);
        if (fabs(value / of[i].tflops - 1) > .005) fail_msg("case %zu: %g TFLOP/s", i, value);
        ls_rows_free(&rows);
    }
}

/* DualPipe with DeepSeek's kernels: 20 of 132 processors exchange tokens while the others compute, so that a pair of
 * forward and backward takes the longer of both. */
static void pairs_hide_exchanges(void **state)
{
    (void)state;
    ls_row row = deepseek_row();
    ls_run run;
    assert_int_equal(ls_row_run(&row, &run), LS_OK);
    assert_true(run.paired);
    double k[LS_K_COUNT];
    memcpy(k, ls_constants[ls_stack_of(&row)], sizeof k);
    for (int i = 0; i < 2; i++) {
        ls_layer_cost pair, one;
        k[LS_K_EXCHANGE] = i ? .5 : 500; /* GB/s: slower than what the others compute, and faster */
        k[LS_K_NODE_RATE] = 1e6;
        run.paired = true;
        ls_layer_cost_of(&run, k, &pair);
        run.paired = false;
        ls_layer_cost_of(&run, k, &one);
        const double computed = (one.fwd + one.bwd) * 132 / 112, exchanged = 2 * one.exchange;
        const double want = computed > exchanged ? computed : exchanged, got = pair.fwd + pair.bwd + 2 * pair.exchange;
        assert_true(i == (exchanged > computed));
        if (fabs(got - want) > 1e-12 * want) fail_msg("%.15g s, expected %.15g", got, want);
    }
    row.schedule = "interleaved-1f1b";
    assert_int_equal(ls_row_run(&row, &run), LS_OK);
    assert_true(!run.paired);
}

/* A backward that recomputes latent attention's up-projections does their FLOP once more. */
static void latent_vectors_are_projected_again(void **state)
{
    (void)state;
    ls_row row = deepseek_row();
    ls_run run;
    ls_device_sheet ideal;
    double k[LS_K_COUNT];
    ls_layer_cost kept, again, whole;
    assert_int_equal(ls_row_run(&row, &run), LS_OK);
    assert_true(run.latent_again && run.blocks);
    free_of_charge(&ideal, k);
    k[LS_K_GEMM] = k[LS_K_BACKWARD] = 1, k[LS_K_EXCHANGE] = INFINITY;
    run.device = &ideal, run.bits = 16, run.paired = false;
    const ls_llm *m = &run.m;
    double per_token = 0; /* a multiplication and an addition per weight of the two matrices */
    per_token += 2.0 * (double)(m->heads * (m->nope_dim + m->rope_dim) * m->q_rank);
    per_token += 2.0 * (double)(m->heads * (m->nope_dim + m->v_dim) * m->kv_rank);
    ls_layer_cost_of(&run, k, &again);
    run.latent_again = false;
    ls_layer_cost_of(&run, k, &kept);
    const double want = per_token * (double)m->seq / (ideal.peak16 * ideal.sustained);
    if (!near(again.bwd - kept.bwd, want)) fail_msg("%g s, expected %g", again.bwd - kept.bwd, want);
    assert_true(again.fwd == kept.fwd);
    run.latent_again = true, run.kept = LS_KEEP_INPUTS; /* a whole forward that is recomputed has them already */
    ls_layer_cost_of(&run, k, &whole);
    assert_true(whole.bwd == kept.bwd);
    strcpy(row.family, "bridge");
    assert_int_equal(ls_row_run(&row, &run), LS_OK);
    assert_true(!run.latent_again && !run.blocks && !run.paired);
}

/* Of experts that get 1.2 times as many tokens, products take 1.2 times as long: no less, no more. */
static void natural_routing_loads_experts(void **state)
{
    (void)state;
    ls_row row = deepseek_row();
    ls_run run, even;
    ls_device_sheet ideal;
    double k[LS_K_COUNT];
    ls_layer_work loaded, balanced;
    strcpy(row.family, "moezoo");
    row.note = "long context; router forced to balance";
    assert_int_equal(ls_row_run(&row, &even), LS_OK);
    row.note = "long context; dropless, natural routing";
    assert_int_equal(ls_row_run(&row, &run), LS_OK);
    free_of_charge(&ideal, k);
    k[LS_K_GEMM] = 1;
    run.device = even.device = &ideal, run.bits = even.bits = 16;
    ls_layer_work_of(&run, k, &loaded);
    ls_layer_work_of(&even, k, &balanced);
    const ls_llm *m = &run.m; /* three matrices per expert, a multiplication and an addition per weight and token */
    const double experts = 6.0 * (double)(m->seq * run.micro * m->topk * m->hidden * m->expert_ffn);
    const double want = .2 * experts / (ideal.peak16 * ideal.sustained);
    if (!near(loaded.sparse.products - balanced.sparse.products, want))
        fail_msg("%g s, expected %g", loaded.sparse.products - balanced.sparse.products, want);
    assert_true(loaded.dense.products == balanced.dense.products);
    row = deepseek_row();
    assert_int_equal(ls_row_run(&row, &run), LS_OK);
    assert_true(run.m.load > 1);
    row.e = 1; /* each rank has all experts */
    assert_int_equal(ls_row_run(&row, &run), LS_OK);
    assert_true(run.m.load == 0);
}

/* Experts are not divided by tp: the ranks of a group of ep are neighbors, eight of them in a node of eight. */
static void groups_of_experts_are_neighbors(void **state)
{
    (void)state;
    ls_device_sheet ideal;
    double k[LS_K_COUNT];
    for (int t = 1; t <= 8; t *= 2)
        for (int e = 2; e <= 32; e *= 2) {
            ls_layer_cost l;
            ls_run r = free_of_charge(&ideal, k);
            assert_int_equal(ls_llm_preset("qwen3-30b", &r.m), LS_OK);
            k[LS_K_EXCHANGE] = INFINITY, k[LS_K_NODE_RATE] = 8;
            r.n = 64, r.t = t, r.d = 64 / t, r.e = e, r.batch = 128;
            ls_layer_cost_of(&r, k, &l);
            int far = 0; /* of the group of rank 0, ranks of other nodes */
            for (int rank = 0; rank < e; rank++) far += rank / 8 != 0;
            const double sent = 2.0 * (double)(r.m.seq * r.micro * r.m.topk * r.m.hidden) / t * (e - 1) / e * far / e;
            const double want = 2 * sent / 1e9; /* there and back; a device has 1 GB/s of the node's 8 */
            if (!near(l.exchange, want)) fail_msg("tp %d ep %d: %g s, expected %g", t, e, l.exchange, want);
            r.m.load = 1.5; /* the rank with the most tokens */
            ls_layer_cost_of(&r, k, &l);
            if (!near(l.exchange, 1.5 * want)) fail_msg("tp %d ep %d, load 1.5: %g s", t, e, l.exchange);
        }
}

/* torchtitan makes as many micro-batches as there are stages, where a row states none. */
static void micro_batches_are_as_many_as_stages(void **state)
{
    (void)state;
    static const struct { const char *family; int64_t p, batch, stated, micro; } of[] = {
        { "torchtitan", 8, 256, 0, 4 }, { "torchtitan", 8, 64, 0, 1 }, { "torchtitan", 8, 256, 2, 2 },
        { "torchtitan", 8, 16, 0, 1 },  { "torchtitan", 1, 256, 0, 1 }, { "bridge", 8, 256, 0, 1 },
    };
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        ls_row row = { .id = "x-1", .source = "", .name = "Llama", .dtype = "fp8", .gpu = "H100", .recompute = "full",
                       .schedule = "1f1b", .metric = "step_time_s", .unit = "s", .note = "", .n = 8 * of[i].p,
                       .t = 1, .p = of[i].p, .micro = of[i].stated, .batch = of[i].batch };
        ls_run run;
        strcpy(row.family, of[i].family);
        assert_int_equal(ls_llm_preset("llama3-8b", &row.m), LS_OK);
        assert_int_equal(ls_row_run(&row, &run), LS_OK);
        if (run.micro != of[i].micro) fail_msg("case %zu: micro-batches of %d sequences", i, (int)run.micro);
    }
}

/* Products in 8 bits gain the ratio of peaks to an exponent, of which 32 values per scale leave a part, and a scale per
 * row nothing. */
static void scales_cost_what_fewer_bits_gain(void **state)
{
    (void)state;
    ls_run r = { .device = ls_device_sheet_find("H100"), .per_node = 8, .n = 1, .t = 1, .p = 1, .v = 1, .c = 1, .d = 1,
                 .e = 1, .micro = 8, .batch = 8, .flash = true, .compiled = true };
    double k[LS_K_COUNT], products[4];
    assert_int_equal(ls_llm_preset("llama3-70b", &r.m), LS_OK);
    memcpy(k, ls_constants[0], sizeof k);
    k[LS_K_LOW] = .8, k[LS_K_BLOCKS] = .75;
    for (int i = 0; i < 4; i++) { /* 16 bits; 8 with a scale per tensor, per 32 values, per row */
        ls_layer_work w;
        r.bits = i ? 8 : 16, r.blocks = i == 2, r.row_scaled = i == 3;
        ls_layer_work_of(&r, k, &w);
        products[i] = w.dense.products;
    }
    const double twice = 1979.0 / 989;
    const double want[4] = { 1, pow(twice, .8), pow(twice, .6), 1 };
    for (int i = 0; i < 4; i++)
        if (fabs(products[0] / products[i] - want[i]) > 1e-9)
            fail_msg("case %d: %g times as fast, expected %g", i, products[0] / products[i], want[i]);
}

/* Causal work of the last of c contiguous parts: queries of a c-th of the sequence meet, on average, 1 - 1/(2c) of its
 * keys; balanced parts meet half. Counted here pair by pair. */
static void contiguous_parts_wait_for_the_last(void **state)
{
    (void)state;
    ls_row row = { .id = "x-1", .family = "torchtitan", .source = "", .name = "Llama", .dtype = "bf16", .gpu = "H100",
                   .recompute = "full", .schedule = "", .metric = "step_time_s", .unit = "s", .note = "", .n = 8, .t = 1,
                   .p = 1, .batch = 8 };
    assert_int_equal(ls_llm_preset("llama3-8b", &row.m), LS_OK);
    for (row.c = 1; row.c <= 8; row.c *= 2) {
        ls_run run;
        ls_layer_work last, equal;
        double pairs = 0, all = 0;
        const int64_t keys = 8192;
        for (int64_t query = 0; query < keys; query++) {
            all += (double)query + .5;
            if (query >= keys - keys / row.c) pairs += (double)query + .5;
        }
        assert_int_equal(ls_row_run(&row, &run), LS_OK);
        assert_true(run.unbalanced);
        ls_layer_work_of(&run, ls_constants[0], &last);
        run.unbalanced = false;
        ls_layer_work_of(&run, ls_constants[0], &equal);
        const double want = pairs / (all / (double)row.c), got = last.dense.attention / equal.dense.attention;
        if (fabs(got - want) > 1e-9) fail_msg("cp %d: %g times as long, expected %g", (int)row.c, got, want);
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
        cmocka_unit_test(collectives_of_tensor_parallelism_are_launched),
        cmocka_unit_test(unaligned_vocabularies_are_slow),
        cmocka_unit_test(what_one_node_measured),
        cmocka_unit_test(whole_sums_move_half_as_much_again),
        cmocka_unit_test(late_sums_hide_nothing),
        cmocka_unit_test(a_stated_slowdown_is_of_all_parts),
        cmocka_unit_test(the_fullest_stage_sets_the_pace),
        cmocka_unit_test(logits_may_make_the_last_stage_the_fullest),
        cmocka_unit_test(launches_hide_the_device_or_the_device_hides_them),
        cmocka_unit_test(a_recomputed_forward_shares_a_queue),
        cmocka_unit_test(chunks_that_wait_cost_time_each),
        cmocka_unit_test(a_step_that_ends_at_once_waits_for_the_last_stage),
        cmocka_unit_test(software_of_a_row_waits),
        cmocka_unit_test(software_and_device_choose_constants),
        cmocka_unit_test(releases_fuse_kernels),
        cmocka_unit_test(blocks_count_the_ends),
        cmocka_unit_test(some_operations_are_recomputed),
        cmocka_unit_test(clamped_gates_do_not_fuse),
        cmocka_unit_test(fewer_bits_are_written),
        cmocka_unit_test(finds_a_word_among_others),
        cmocka_unit_test(sizes_say_the_form_of_a_model),
        cmocka_unit_test(pairs_hide_exchanges),
        cmocka_unit_test(latent_vectors_are_projected_again),
        cmocka_unit_test(natural_routing_loads_experts),
        cmocka_unit_test(groups_of_experts_are_neighbors),
        cmocka_unit_test(micro_batches_are_as_many_as_stages),
        cmocka_unit_test(scales_cost_what_fewer_bits_gain),
        cmocka_unit_test(contiguous_parts_wait_for_the_last),
    };
    return cmocka_run_group_tests_name("plan_cost", tests, NULL, NULL);
}
