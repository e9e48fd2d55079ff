/* The cost of collectives: they take longer for more bytes, NCCL chooses its protocols as measurements show, and
 * gradients, experts and products send their bytes over the links of their groups. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <string.h>
#include <cmocka.h>

#include "plan/coll_cost.h"
#include "plan/predict.h"
#include "plan/row_run.h"

static bool near(double a, double b) { return fabs(a - b) <= 1e-9 * fabs(b); }

static void ranks_read_and_write_their_own_part(void **state)
{
    (void)state;
    double k[LS_C_COUNT] = { 0 };
    k[LS_C_BUS] = 100, k[LS_C_LOCAL] = 200, k[LS_C_LL] = k[LS_C_LL128] = INFINITY;
    k[LS_C_LL_PART] = k[LS_C_LL128_PART] = 1;
    ls_coll_run r = { .class = LS_COLL_H100, .n = 2, .bytes = 1e9, .factor = ls_coll_bus_factor(LS_ALL_REDUCE, 2),
                      .rings = 1 };
    assert_true(near(ls_coll_cost(&r, k), 1e9 / 100e9 + .5e9 / 200e9));
    r.n = 4, r.factor = ls_coll_bus_factor(LS_ALL_REDUCE, 4);
    assert_true(near(ls_coll_cost(&r, k), 1.5e9 / 100e9 + .25e9 / 200e9));
    r.factor = ls_coll_bus_factor(LS_ALL_GATHER, 4);
    assert_true(near(ls_coll_cost(&r, k), .75e9 / 100e9));
}

/* The protocol that NCCL most likely takes; elsewhere than on rings of NVLink the fastest, which is not asked for. */
static int protocol_of(const ls_coll_run *r)
{
    double part[3];
    if (r->class > LS_COLL_A100) return 0;
    ls_coll_choice(r, part);
    return part[0] > part[1] ? (part[0] > part[2] ? 0 : 2) : part[1] > part[2] ? 1 : 2;
}

/* More bytes may take less time only where NCCL changes to a faster protocol. */
static void collectives_take_longer_for_more_bytes(void **state)
{
    (void)state;
    for (int class = 0; class < LS_COLL_CLASSES; class++) {
        double last = 0;
        int before = 0, drops = 0;
        for (double bytes = 1; bytes < 1e11; bytes *= 1.7) {
            const ls_coll_run r = { .class = class, .n = 8, .bytes = bytes, .factor = 1.75, .rings = 1 };
            const double t = ls_coll_cost(&r, ls_coll_constants[class]);
            const int now = protocol_of(&r);
            assert_true(isfinite(t) && (t >= last * (1 - 1e-12) || now > before));
            drops += t < last * (1 - 1e-12);
            last = t, before = now;
        }
        assert_true(drops <= 2); /* LL to LL128, and LL128 to Simple */
    }
}

/* On which side of the change from LL128 to Simple a message is, measurements show: up to there twice the bytes take
 * nearly twice as long, then hardly longer. On V100 4 MB took 142 us and 8 MB 178 on 4 devices; 8 MB and 16 MB took
 * 271 and 366 on 7, 238 and 274 on 8. On 2 the rate of the single ring is the same from 1 MB on. On 8 A100, 1 MB took
 * 102 us and 2 MB 101: the change from LL to LL128. */
static void nccl_stays_with_a_protocol(void **state)
{
    (void)state;
    enum { MB = 1 << 20, LL = 0, LL128 = 1, SIMPLE = 2 };
    static const struct { int class, n; double rings, bytes; int chosen; } all[] = {
        { LS_COLL_V100, 2, 1.0 / 6, MB, SIMPLE }, { LS_COLL_V100, 4, 4.0 / 6, 4 * MB, LL128 },
        { LS_COLL_V100, 4, 4.0 / 6, 8 * MB, SIMPLE },
        { LS_COLL_V100, 7, 4.0 / 6, 8 * MB, LL128 }, { LS_COLL_V100, 7, 4.0 / 6, 16 * MB, SIMPLE },
        { LS_COLL_V100, 8, 1, 8 * MB, LL128 }, { LS_COLL_V100, 8, 1, 16 * MB, SIMPLE },
        { LS_COLL_A100, 8, 1, MB, LL }, { LS_COLL_A100, 8, 1, 2 * MB, LL128 }, { LS_COLL_A100, 8, 1, 1e9, SIMPLE },
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        ls_coll_run r = { .class = all[i].class, .n = all[i].n, .bytes = all[i].bytes, .rings = all[i].rings,
                          .factor = ls_coll_bus_factor(LS_ALL_REDUCE, all[i].n) };
        double part[3];
        ls_coll_choice(&r, part);
        assert_true(part[all[i].chosen] > .5);
        assert_true(near(part[0] + part[1] + part[2], 1));
        double k[LS_C_COUNT] = { 0 }; /* 10, 100 and 1000 us, and bytes take no time */
        k[LS_C_BUS] = k[LS_C_LOCAL] = INFINITY, k[LS_C_LL_PART] = k[LS_C_LL128_PART] = 1;
        k[LS_C_LL] = 10, k[LS_C_LL128] = 100, k[LS_C_SIMPLE] = 1000;
        assert_true(near(log10(1e6 * ls_coll_cost(&r, k)), part[LL] + 2 * part[LL128] + 3 * part[SIMPLE]));
        r.no_ll128 = true;
        ls_coll_choice(&r, part);
        assert_true(part[LL128] == 0 && near(part[LL] + part[SIMPLE], 1));
    }
    for (int n = 2; n <= 8; n++) { /* messages of 5 of a DGX-1's V100 leave NVLink */
        const ls_row row = { .metric = "allreduce_time_us", .note = "message 1000 bytes", .gpu = "V100", .n = n };
        ls_coll_run r;
        assert_int_equal(ls_row_coll(&row, &r), LS_OK);
        assert_int_equal(r.no_ll128, n == 5);
    }
}

static void links_of_a_node(void **state)
{
    (void)state;
    static const struct { const char *gpu; int devices, n; ls_coll coll; bool nvls; int class; double rings; } all[] = {
        { "V100", 8, 2, LS_ALL_REDUCE, true, LS_COLL_V100, 1.0 / 6 },
        { "V100", 8, 8, LS_ALL_REDUCE, true, LS_COLL_V100, 1 },
        { "V100", 0, 4, LS_ALL_REDUCE, true, LS_COLL_V100, 4.0 / 6 },
        { "V100", 16, 2, LS_ALL_REDUCE, true, LS_COLL_V100, 1 },
        { "V100", 4, 2, LS_ALL_REDUCE, true, LS_COLL_V100, 1 },
        { "A100", 8, 4, LS_ALL_REDUCE, true, LS_COLL_A100, 1 },
        { "H100", 8, 8, LS_ALL_REDUCE, true, LS_COLL_H100, 1 },
        { "H100", 8, 5, LS_ALL_REDUCE, true, LS_COLL_H100, .86 },
        { "H100", 8, 2, LS_ALL_REDUCE, true, LS_COLL_H100, .75 },
        { "H800", 8, 4, LS_ALL_REDUCE, true, LS_COLL_H100, .79 },
        { "H100", 8, 8, LS_ALL_REDUCE, false, LS_COLL_H100_RING, 1 },
        { "H200", 8, 5, LS_ALL_GATHER, true, LS_COLL_H100_RING, 1 },
        { "B200", 8, 8, LS_ALL_REDUCE, true, LS_COLL_B200, 1 },
        { "GB200", 72, 6, LS_ALL_REDUCE, true, LS_COLL_B200, .93 },
        { "GB300", 72, 4, LS_ALL_REDUCE, true, LS_COLL_B200, .81 },
        { "B300", 8, 8, LS_REDUCE_SCATTER, true, LS_COLL_B200, .81 },
    };
    ls_coll_run r;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        assert_true(ls_coll_in_node(all[i].gpu, all[i].devices, all[i].coll, all[i].n, all[i].nvls, &r));
        if (r.class != all[i].class || !near(r.rings, all[i].rings) ||
            !near(r.factor, ls_coll_bus_factor(all[i].coll, all[i].n)))
            fail_msg("%zu: class %d, rings %g", i, r.class, r.rings);
        assert_true(near(r.n, all[i].n) && !r.no_ll128);
    }
    assert_true(ls_coll_in_node("V100", 8, LS_ALL_REDUCE, 5, true, &r) && r.no_ll128);
    assert_true(ls_coll_in_node("V100", 16, LS_ALL_REDUCE, 5, true, &r) && !r.no_ll128);
    assert_false(ls_coll_in_node("MI300", 8, LS_ALL_REDUCE, 8, true, &r));
}

/* Two sums of a layer's forward, each an all_reduce, or a reduce_scatter and an all_gather. Inside a node they take as
 * long as NCCL alone, over a fitted speed; over nodes, a ring of what the adapters have, and no more than a ring inside
 * a node. Each call takes a constant on top of it, and another one per doubling of the ranks. */
static void collectives_of_tp_take_the_time_of_nccl(void **state)
{
    (void)state;
    static const char *const gpus[] = { "V100", "A100", "H100", "B200" };
    double coll[LS_COLL_CLASSES][LS_C_COUNT], k[LS_K_COUNT];
    memcpy(coll, ls_coll_constants, sizeof coll);
    for (int c = 0; c < LS_COLL_CLASSES; c++) coll[c][LS_C_BUS] *= 3, coll[c][LS_C_SIMPLE] *= 5;
    for (int i = 0; i < LS_K_COUNT; i++) k[i] = ls_constants[0][i];
    k[LS_K_TP_RATE] = .75, k[LS_K_TP_LATENCY] = 30, k[LS_K_SKEW] = 7;
    k[LS_K_NODE_RATE] = 90, k[LS_K_NET_LATENCY] = 11;
    for (int i = 0; i < 96; i++) {
        const int log = 1 + i / 4 % 4, micro = i / 16 % 3 + 1;
        const bool own = i % 3 == 0, divided = i >= 48;
        ls_run r = { .device = ls_device_sheet_find(gpus[i % 4]), .per_node = 8, .p = 1, .v = 1, .c = 1, .d = 1,
                     .e = 1, .micro = micro, .batch = micro, .bits = 16, .flash = true, .sequence_parallel = divided };
        ls_layer_cost l;
        ls_coll_run c;
        r.n = r.t = 1 << log;
        if (own) r.coll = (const double (*)[LS_C_COUNT])coll;
        assert_int_equal(ls_llm_preset("llama2-7b", &r.m), LS_OK);
        ls_layer_cost_of(&r, k, &l);
        const double bytes = 2. * (double)(r.m.seq * micro * r.m.hidden), besides = 30e-6 + log * 7e-6;
        static const ls_coll parts[] = { LS_REDUCE_SCATTER, LS_ALL_GATHER };
        const int calls = divided ? 2 : 1;
        double one = 0;
        for (int j = 0; j < calls; j++) {
            assert_true(ls_coll_in_node(gpus[i % 4], 8, divided ? parts[j] : LS_ALL_REDUCE, r.t, true, &c));
            c.bytes = bytes;
            one += ls_coll_cost(&c, own ? coll[c.class] : ls_coll_constants[c.class]) / .75;
        }
        if (r.t == 16) one = 2 * (15 * 11e-6 + 15. / 16 * bytes / 90e9);
        const double want = 2 * (one + calls * besides);
        if (!near(l.tensor, want)) fail_msg("%d: %g s, expected %g", i, l.tensor, want);
    }
}

/* Over nodes, a fitted rate counts up to what the adapters have, and that of tp up to that of a ring inside a node. */
static void rates_over_nodes_have_limits(void **state)
{
    (void)state;
    static const struct { double node, speed, want; } all[] = { { 90, 1, 90e9 }, { 900, 10, 400e9 }, { 90, .5, 75e9 } };
    double k[LS_K_COUNT];
    for (int i = 0; i < LS_K_COUNT; i++) k[i] = ls_constants[0][i];
    k[LS_K_TP_LATENCY] = k[LS_K_SKEW] = k[LS_K_NET_LATENCY] = 0;
    ls_run r = { .device = ls_device_sheet_find("H100"), .per_node = 8, .n = 16, .t = 16,
                 .p = 1, .v = 1, .c = 1, .d = 1,
                 .e = 1, .micro = 1, .batch = 1, .bits = 16, .flash = true };
    assert_int_equal(ls_llm_preset("llama2-7b", &r.m), LS_OK);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        ls_layer_cost l;
        k[LS_K_NODE_RATE] = all[i].node, k[LS_K_TP_RATE] = all[i].speed;
        ls_layer_cost_of(&r, k, &l);
        assert_true(near(l.tensor, 4 * 15. / 16 * 2. * (double)(r.m.seq * r.m.hidden) / all[i].want));
    }
    /* Keys and values that go round a ring of cp over nodes wait for the adapters, too; nothing of them hides here. */
    static const struct { double node, want; } rings[] = { { 90, 90e9 }, { 900, 400e9 } };
    r.t = 1, r.c = 16, k[LS_K_TP_RATE] = 1e6, k[LS_K_HIDDEN] = 0;
    for (size_t i = 0; i < sizeof rings / sizeof *rings; i++) {
        ls_layer_cost l;
        k[LS_K_NODE_RATE] = rings[i].node;
        r.placed = true;
        r.at = (ls_spans){ .context_out = true, .context_rings = 1, .context_net = 1 };
        ls_layer_cost_of(&r, k, &l);
        assert_true(near(l.tensor, 4 * 15. * (double)(r.m.seq / 16 * r.m.hidden) / rings[i].want));
    }
}

/* Eight ranks of a node of 16 V100 have its switch: they are no DGX-1, whose links are a cube's. */
static void a_part_of_a_node_has_its_links(void **state)
{
    (void)state;
    double k[LS_K_COUNT];
    ls_layer_cost l[3];
    for (int i = 0; i < LS_K_COUNT; i++) k[i] = ls_constants[0][i];
    for (int i = 0; i < 3; i++) {
        ls_run r = { .device = ls_device_sheet_find("V100"), .per_node = 8, .node_devices = i == 0 ? 0 : 8 * i, .n = 2,
                     .t = 2, .p = 1, .v = 1, .c = 1, .d = 1, .e = 1, .micro = 1, .batch = 1, .bits = 16 };
        assert_int_equal(ls_llm_preset("llama2-7b", &r.m), LS_OK);
        ls_layer_cost_of(&r, k, &l[i]);
    }
    assert_true(near(l[0].tensor, l[1].tensor) && l[2].tensor < l[1].tensor / 3);
}

/* Gradients of experts are reduced among ranks that have the same ones: none where ep is all of dp. Where a node is a
 * rack of 72, 72 adapters leave it in place of 8. */
static void gradients_take_their_links(void **state)
{
    (void)state;
    double k[LS_K_COUNT];
    for (int i = 0; i < LS_K_COUNT; i++) k[i] = ls_constants[0][i];
    k[LS_K_NET_LATENCY] = k[LS_K_HIDDEN] = 0, k[LS_K_NODE_RATE] = 100, k[LS_K_TP_RATE] = 1e6;
    ls_run r = { .device = ls_device_sheet_find("B200"), .per_node = 8, .n = 64, .t = 1, .p = 1, .v = 1, .c = 1,
                 .d = 64, .micro = 1, .batch = 64, .bits = 16, .grad_bytes = 2, .zero = 1, .flash = true };
    assert_int_equal(ls_llm_preset("qwen3-30b", &r.m), LS_OK);
    const double experts = (double)r.m.layers * (double)r.m.experts * (double)ls_llm_expert_params(&r.m);
    const double ends = (double)r.m.vocab * (double)r.m.hidden; /* of two, one is on the fullest stage */
    const double rest = (double)ls_llm_params(&r.m) - experts - ends, rate = 1e9 * k[LS_K_NODE_RATE];
    static const int64_t e[] = { 1, 8, 32, 64 };
    for (int i = 0; i < 4; i++) {
        ls_step_cost c;
        r.e = e[i];
        ls_step_cost_of(&r, k, &c);
        const double replicas = 64.0 / (double)e[i];
        const double bytes = 63.0 / 64 * rest + (replicas - 1) / replicas * experts / (double)e[i];
        const double want = 2 * 2 * bytes / rate;
        if (fabs(c.data - want) > 1e-9 * want) fail_msg("ep %d: %.12g s, expected %.12g", (int)e[i], c.data, want);
    }
    ls_step_cost eight, rack;
    k[LS_K_TP_RATE] = .5, k[LS_K_TP_LATENCY] = 80; /* inside a node: 150 GB/s times that, an eighth per hop */
    r.n = r.d = r.batch = 8, r.e = 1;
    ls_step_cost_of(&r, k, &eight);
    assert_true(near(eight.data, 2 * 2 * 7 / 8. * (rest + experts) / 75e9 + 2 * 2 * 7 * 10e-6));
    k[LS_K_TP_RATE] = 1e6;
    r.n = r.d = r.batch = 576, r.e = 8;
    ls_step_cost_of(&r, k, &eight);
    r.per_node = 72;
    r.at = (ls_spans){ 0 };
    ls_step_cost_of(&r, k, &rack);
    /* Eight rings share the adapters of a node, one per rank of tp; here there is one. */
    if (fabs(rack.data * 9 - eight.data) > 1e-9 * eight.data) fail_msg("%g s, expected %g", rack.data, eight.data / 9);
}

/* Of an all_reduce of tp, an all_gather is half; in 8 bits it moves half as many bytes. */
static void gathers_move_the_bits_of_products(void **state)
{
    (void)state;
    ls_run r = { .device = ls_device_sheet_find("H100"), .per_node = 8, .n = 8, .t = 8, .p = 1, .v = 1, .c = 1, .d = 1,
                 .e = 1, .micro = 1, .batch = 1, .flash = true, .bits = 8 };
    double k[LS_K_COUNT];
    ls_layer_cost all, narrow;
    assert_int_equal(ls_llm_preset("llama3-8b", &r.m), LS_OK);
    memcpy(k, ls_constants[0], sizeof k);
    k[LS_K_TP_LATENCY] = k[LS_K_SKEW] = 0;
    double coll[LS_COLL_CLASSES][LS_C_COUNT] = { { 0 } }; /* no latency */
    for (int c = 0; c < LS_COLL_CLASSES; c++) coll[c][LS_C_BUS] = 100, coll[c][LS_C_LOCAL] = 100;
    r.coll = (const double (*)[LS_C_COUNT])coll;
    ls_layer_cost_of(&r, k, &all);
    r.gathers_narrow = true;
    ls_layer_cost_of(&r, k, &narrow);
    assert_true(all.tensor > 0 && fabs(narrow.tensor - .75 * all.tensor) < 1e-12 * all.tensor);
    ls_row row = { .id = "x-1", .family = "torchtitan", .source = "", .name = "Llama", .gpu = "H100", .recompute = "",
                   .schedule = "", .metric = "step_time_s", .unit = "s", .note = "", .n = 8, .t = 8, .p = 1, .batch = 8,
                   .m = r.m };
    static const struct { const char *dtype; bool narrow, rows, blocks; } of[] = {
        { "fp8", true, false, false },          { "fp8 (tensorwise)", true, false, false },
        { "fp8 (rowwise)", false, true, false }, { "bf16", false, false, false },
        { "mxfp8", true, false, true },
    };
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        row.dtype = of[i].dtype;
        assert_int_equal(ls_row_run(&row, &r), LS_OK);
        if (r.gathers_narrow != of[i].narrow || r.row_scaled != of[i].rows || r.blocks != of[i].blocks)
            fail_msg("%s: %d %d %d", row.dtype, r.gathers_narrow, r.row_scaled, r.blocks);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_read_and_write_their_own_part),
        cmocka_unit_test(collectives_take_longer_for_more_bytes),
        cmocka_unit_test(nccl_stays_with_a_protocol),
        cmocka_unit_test(links_of_a_node),
        cmocka_unit_test(collectives_of_tp_take_the_time_of_nccl),
        cmocka_unit_test(rates_over_nodes_have_limits),
        cmocka_unit_test(a_part_of_a_node_has_its_links),
        cmocka_unit_test(gradients_take_their_links),
        cmocka_unit_test(gathers_move_the_bits_of_products),
    };
    return cmocka_run_group_tests_name("plan_coll", tests, NULL, NULL);
}
