/* Placement of axes on a cluster: bytes per link against the schedules of collectives and against every pair of ranks,
 * what a dry step sends against formulas, and which order wins (R116, R128, R148, R150, R155, R158, R160, R164). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/opts_text.h"
#include "lockstep/sched.h"
#include "plan/placement.h"
#include "plan/step_price.h"

#define GB 1e9
#define CLOSE(a, b, e) do { const double a_ = (a), b_ = (b); if (!(fabs(a_ - b_) <= (e) * fabs(b_))) fail_msg("%.17g, expected %.17g", a_, b_); } while (0)
#define NEAR(a, b) CLOSE(a, b, 1e-12)

static ls_topo cluster(const char *name)
{
    char path[600];
    ls_topo t;
    snprintf(path, sizeof path, LOCKSTEP_SOURCE "/recipes/clusters/%s.yaml", name);
    if (ls_topo_load(path, &t) != LS_OK) fail_msg("%s", ls_last_error());
    return t;
}

/* Nodes of 2, racks of 3, a site of 2; nothing is a power of two on purpose. */
static ls_topo three_levels(void)
{
    ls_topo t = { .name = "three", .nlevels = 3 };
    t.level[0] = (ls_topo_level){ "node", 2, "bus", 100 * GB, true, 1e-6, 1, false, 1 };
    t.level[1] = (ls_topo_level){ "rack", 3, "leaf", 10 * GB, false, 2e-6, 2, true, 1 };
    t.level[2] = (ls_topo_level){ "site", 2, "spine", 10 * GB, false, 3e-6, 6, false, 3 };
    assert_int_equal(ls_topo_check(&t), LS_OK);
    return t;
}

static ls_step_traffic one_row(int dp, int tp, int pp, unsigned axes, ls_coll coll, ls_neighbours how, double bytes)
{
    ls_step_traffic x = { .size = { pp, dp, 1, 1, tp }, .ranks = dp * tp * pp, .n = 1 };
    x.row[0] = (ls_step_row){ .axes = axes, .coll = coll, .how = how, .calls = 1, .bytes = bytes };
    for (int s = 0; s < pp; s++) x.row[0].of_stage[s] = bytes;
    return x;
}

static ls_placement placed(const ls_topo *t, const ls_step_traffic *x, const char *order)
{
    ls_placement p;
    if (ls_placement_order(x, order, &p) != LS_OK || ls_placement_evaluate(t, x, &p) != LS_OK) fail_msg("%s: %s", order, ls_last_error());
    return p;
}

/* --- against schedules ------------------------------------------------------------------------------------------- */

/* Bytes of a vector of S that a schedule's messages carry across nodes. */
static double crossing(const char *algo, ls_coll coll, int size, const int *node, double S)
{
    double sum = 0;
    for (int rank = 0; rank < size; rank++) {
        const ls_shape shape = { .coll = coll, .rank = rank, .size = size, .segments = 1, .nlanes = 1, .node = node };
        ls_sched s;
        if (ls_sched_emit(ls_algo_find(algo), &shape, &s) != LS_OK) fail_msg("%s: %s", algo, ls_last_error());
        for (int l = 0; l < LS_MAX_LANES; l++)
            for (uint32_t i = 0; i < s.lane[l].n; i++) {
                const ls_step *step = &s.lane[l].step[i];
                if (step->kind == LS_STEP_SEND && node[step->peer] != node[rank])
                    sum += S * step->src.n / s.nchunks[step->src.buf];
            }
        ls_sched_free(&s);
    }
    return sum;
}

/* R157's numbers: of 8 ranks on 2 nodes a ring sends 3.5 S across in node order and 14 S when it alternates; the
 * hierarchical schedule 2 S, which is what a placement counts. */
static void a_placement_counts_what_the_hierarchical_schedule_sends(void **state)
{
    (void)state;
    const ls_topo t = cluster("ethernet-2"); /* 2 nodes of 4 */
    static const int in_order[8] = { 0, 0, 0, 0, 1, 1, 1, 1 }, alternating[8] = { 0, 1, 0, 1, 0, 1, 0, 1 };
    const double S = 8 << 20;
    NEAR(crossing("ring", LS_ALL_REDUCE, 8, in_order, S), 3.5 * S);
    NEAR(crossing("ring", LS_ALL_REDUCE, 8, alternating, S), 14 * S);
    static const ls_coll colls[] = { LS_ALL_REDUCE };
    for (size_t i = 0; i < sizeof colls / sizeof *colls; i++) {
        const ls_step_traffic x = one_row(8, 1, 1, 1u << LS_AXIS_DP, colls[i], LS_TO_NEXT, S);
        const ls_placement p = placed(&t, &x, "dp");
        NEAR(p.total[1], crossing("hierarchical", colls[i], 8, in_order, S));
        NEAR(p.total[1], 2 * S);
        NEAR(p.bytes[1], S);           /* one node's port */
        NEAR(p.bytes[0], 2 * 0.75 * S); /* a device's, within its node */
        NEAR(p.seconds[1], S / 1.25e9);
    }
}

/* --- against every pair --------------------------------------------------------------------------- */

/* What device a sends device b, put on the ports that the path uses. */
static void put(const ls_topo *t, int64_t a, int64_t b, double bytes, double load[][64])
{
    const int meet = ls_topo_meet(t, a, b);
    for (int l = meet > 0; l <= meet; l++) load[l][a / ls_topo_unit_devices(t, l)] += bytes;
}

static void pairs_of_an_axis(const ls_topo *t, const ls_step_traffic *x, const ls_placement *p, double load[][64])
{
    const ls_step_row *r = &x->row[0];
    int64_t stride[LS_AXES];
    ls_placement_strides(x, p, stride);
    for (int a = 0; a < LS_AXES; a++) {
        if (!(r->axes >> a & 1u)) continue;
        for (int64_t d = 0; d < x->ranks; d++) {
            const int n = x->size[a], c = (int)(d / stride[a] % n);
            for (int k = 0; k < n; k++) {
                const int64_t peer = d + (k - c) * stride[a];
                if (r->coll == LS_ALL_TO_ALL && k != c) put(t, d, peer, r->bytes / n, load);
                const bool next = k == (c + 1) % n, before = k == (c + n - 1) % n, near = abs(k - c) == 1;
                if (r->coll != LS_SENDRECV || k == c) continue;
                if (r->how == LS_TO_NEXT && next) put(t, d, peer, r->bytes, load);
                if (r->how == LS_TO_BOTH && near) put(t, d, peer, c == 0 || c == n - 1 ? r->bytes : r->bytes / 2, load);
                if (r->how == LS_TO_BOTH_ROUND && next) put(t, d, peer, r->bytes / 2, load);
                if (r->how == LS_TO_BOTH_ROUND && before) put(t, d, peer, r->bytes / 2, load);
            }
        }
    }
}

static void all_to_all_and_messages_are_the_sum_over_pairs(void **state)
{
    (void)state;
    ls_topo t = three_levels();
    t.slow[t.nslow++] = (ls_topo_slow){ 1, 4, 2 * GB };
    static const char *const orders[] = { "pp-dp-tp", "pp-tp-dp", "dp-pp-tp", "dp-tp-pp", "tp-pp-dp", "tp-dp-pp" };
    static const struct { ls_coll coll; ls_neighbours how; } kinds[] = {
        { LS_ALL_TO_ALL, LS_TO_NEXT }, { LS_SENDRECV, LS_TO_NEXT }, { LS_SENDRECV, LS_TO_BOTH }, { LS_SENDRECV, LS_TO_BOTH_ROUND },
    };
    for (int axis = 0; axis < LS_AXES; axis++)
        for (size_t o = 0; o < 6; o++)
            for (size_t k = 0; k < 4; k++) {
                if (axis == LS_AXIS_EP || axis == LS_AXIS_CP) continue; /* one rank each */
                const ls_step_traffic x = one_row(2, 3, 2, 1u << axis, kinds[k].coll, kinds[k].how, 6e9);
                const ls_placement p = placed(&t, &x, orders[o]);
                double load[3][64] = { { 0 } };
                pairs_of_an_axis(&t, &x, &p, load);
                for (int l = 0; l < 3; l++) {
                    double most = 0, slowest = 0, sum = 0;
                    for (int u = 0; u < 12; u++) {
                        sum += load[l][u];
                        most = fmax(most, load[l][u]);
                        if (u < ls_topo_units(&t, l)) slowest = fmax(slowest, load[l][u] / ls_topo_uplink(&t, l, u));
                    }
                    NEAR(p.bytes[l], most);
                    NEAR(p.total[l], sum);
                    /* more where one adapter has more than its share */
                    assert_true(p.seconds[l] >= slowest * (1 - 1e-12));
                }
            }
}

/* With a ring per tensor parallel rank, each uses the adapter of its device. With one ring alone, its members share all
 * adapters of a node. */
static void rails_carry_what_their_device_sends(void **state)
{
    (void)state;
    const ls_topo t = cluster("h100-8");
    const double S = 32e9;
    ls_step_traffic x = one_row(4, 8, 1, 1u << LS_AXIS_DP, LS_ALL_REDUCE, LS_TO_NEXT, S); /* 8 groups of 4 */
    ls_placement p = placed(&t, &x, "dp-tp");
    NEAR(p.bytes[1], 8 * 2 * 0.75 * S);
    NEAR(p.seconds[1], 2 * 0.75 * S / (50 * GB));
    x = one_row(32, 1, 1, 1u << LS_AXIS_DP, LS_ALL_REDUCE, LS_TO_NEXT, S); /* one group of 32 */
    p = placed(&t, &x, "dp");
    NEAR(p.bytes[1], 2 * 0.75 * S);
    NEAR(p.seconds[1], 2 * 0.75 * S / (400 * GB));
}

/* --- what a step sends ---------------------------------------------------------------------------- */

static const char llama[] = "model: {name: llama, n_layer: 4, n_head: 8, n_kv_head: 8, d_model: 512, d_ff: 1408, vocab_size: 1024, seq_len: 256}\n"
                            "train: {global_batch: 32, micro_batch: 4, dtype: bf16, steps: 1}\noptim: {name: adamw}\n";
static const char seven_b[] = "model: {name: llama, n_layer: 32, n_head: 32, n_kv_head: 32, d_model: 4096, d_ff: 11008, vocab_size: 32000, seq_len: 2048}\n"
                              "train: {global_batch: 256, micro_batch: 4, dtype: bf16, steps: 1}\noptim: {name: adamw}\n";
static const char moe[] =
    "model: {name: moe, n_layer: 4, n_head: 8, n_kv_head: 8, d_model: 512, d_expert: 704, n_experts: 8, top_k: 2, vocab_size: 1024, seq_len: 256}\n"
                          "train: {global_batch: 32, micro_batch: 4, steps: 1}\noptim: {name: adamw}\n";

static ls_step_traffic traffic(const char *yaml, int ranks, const char *const *keys)
{
    ls_train_config c;
    ls_opts *o;
    ls_step_traffic x = { 0 };
    memset(&c, 0, sizeof c);
    ls_status st = ls_opts_create(ls_train_opts, ls_train_nopts, &c, &o);
    if (st == LS_OK) st = ls_opts_read_yaml(o, "t.yaml", yaml, strlen(yaml));
    for (; st == LS_OK && *keys; keys += 2) st = ls_opts_set(o, keys[0], keys[1], "flag");
    if (st == LS_OK) st = ls_train_config_resolve(o, &c);
    if (st == LS_OK) st = ls_step_traffic_of(&c, ranks, &x);
    if (st != LS_OK) fail_msg("%s", ls_last_error());
    ls_opts_destroy(o);
    return x;
}
#define KEYS(...) (const char *const[]){ __VA_ARGS__, NULL }

static const ls_step_row *row(const ls_step_traffic *x, unsigned axes, ls_coll coll)
{
    for (int i = 0; i < x->n; i++)
        if (x->row[i].axes == axes && x->row[i].coll == coll) return &x->row[i];
    fail_msg("no %s", ls_coll_name(coll));
    return NULL;
}

/* Per layer 4 all_reduces of a rank's activations over tp, and one each at the embedding and the head; per step one of
 * the gradients over dp. 1 % is for the loss's statistics and for what is not divided: norms. */
static void tensor_and_data_parallel_bytes_are_the_textbooks(void **state)
{
    (void)state;
    const ls_step_traffic x = traffic(llama, 8, KEYS("parallel.tp", "2"));
    const double tokens = 32.0 / 4 * 256;
    assert_int_equal(x.size[LS_AXIS_DP], 4);
    CLOSE(row(&x, 1u << LS_AXIS_TP, LS_ALL_REDUCE)->bytes, (4 * 4 + 2) * tokens * 512 * 2, 0.01);
    const double params = 4 * (4.0 * 512 * 512 + 3.0 * 512 * 1408) + 1024.0 * 512;
    CLOSE(row(&x, 1u << LS_AXIS_DP, LS_ALL_REDUCE)->bytes, params / 2 * 4, 0.01);
    CLOSE(x.flops, (6 * params + 12 * 4.0 * 512 * 256) * 32 * 256, 0.01);
}

/* Per layer 4 all_to_alls of top_k rows per token. */
static void expert_parallel_bytes_are_the_textbooks(void **state)
{
    (void)state;
    const ls_step_traffic x = traffic(moe, 4, KEYS("parallel.ep", "4"));
    CLOSE(row(&x, 1u << LS_AXIS_EP, LS_ALL_TO_ALL)->bytes, 4 * 4 * 2 * (32.0 / 4 * 256) * 512 * 4, 0.01);
}

/* Ring attention sends a rank's keys and values on cp - 1 times forward and backward; their gradients go round once
 * more, cp times: 3 cp - 2 messages per layer and micro-batch. */
static void context_parallel_bytes_are_the_textbooks(void **state)
{
    (void)state;
    for (int cp = 2; cp <= 4; cp += 2) {
        const ls_step_traffic x = traffic(llama, 4, KEYS("parallel.cp", cp == 2 ? "2" : "4"));
        const ls_step_row *r = row(&x, 1u << LS_AXIS_CP, LS_SENDRECV);
        const double samples = 32.0 / (4.0 / cp), keys_and_values = 256.0 / cp * 2 * 512 * 2; /* of a sample, in bf16 */
        NEAR(r->calls, 4 * (3 * cp - 2) * samples / 4);
        NEAR(r->bytes, 4 * (3 * cp - 2) * samples * keys_and_values);
    }
}

/* Between stages: the activations of every token, and their gradients. What layers call is divided among stages. */
static void stages_send_activations_and_their_gradients(void **state)
{
    (void)state;
    const double samples = 32.0 / 2, edge = samples * 256 * 512 * 2; /* in bf16 */
    const ls_step_traffic flat = traffic(llama, 4, KEYS("parallel.tp", "2"));
    for (int pp = 2; pp <= 4; pp *= 2) {
        const ls_step_traffic x = traffic(llama, 4 * pp, KEYS("parallel.tp", "2", "parallel.pp", pp == 2 ? "2" : "4"));
        const ls_step_row *r = row(&x, 1u << LS_AXIS_PP, LS_SENDRECV);
        const ls_step_row *layers = row(&x, 1u << LS_AXIS_TP, LS_ALL_REDUCE), *all = row(&flat, 1u << LS_AXIS_TP,
                                                                                         LS_ALL_REDUCE);
        double sum = 0;
        assert_int_equal(r->how, LS_TO_BOTH);
        for (int s = 0; s < pp; s++) {
            NEAR(r->of_stage[s], s == 0 || s == pp - 1 ? edge : 2 * edge);
            sum += layers->of_stage[s];
        }
        NEAR(sum, all->bytes);
        assert_true(layers->bytes < all->bytes);
        const ls_step_row *ends = NULL; /* a tied embedding: its gradients are added */
        for (int i = 0; i < x.n; i++)
            if (x.row[i].axes == 1u << LS_AXIS_PP && x.row[i].coll == LS_ALL_REDUCE) ends = &x.row[i];
        assert_non_null(ends);
        assert_int_equal(ends->ends, pp > 2);
        NEAR(ends->bytes, 1024.0 / 2 * 512 * 4);
        NEAR(ends->of_stage[0], ends->of_stage[pp - 1]);
        const ls_topo t = cluster("ethernet-2");
        if (pp > 2) continue;
        const ls_placement p = placed(&t, &x, "pp-dp-tp"); /* a stage per node */
        NEAR(p.row[r - x.row].bytes[1], 4 * edge);
    }
    const ls_step_traffic loop = traffic(llama, 4, KEYS("parallel.pp", "2", "pipeline.schedule", "interleaved"));
    assert_int_equal(row(&loop, 1u << LS_AXIS_PP, LS_SENDRECV)->how, LS_TO_BOTH_ROUND);
}

/* --- which order wins ----------------------------------------------------------------------------- */

static ls_placement searched[LS_PLACEMENT_ORDERS];

static const ls_placement *search(const ls_topo *t, const ls_step_traffic *x, int expected)
{
    int n, best;
    if (ls_placement_search(t, x, searched, &n, &best) != LS_OK) fail_msg("%s", ls_last_error());
    assert_int_equal(n, expected);
    for (int i = 0; i < n; i++) {
        assert_true(searched[best].serial_s <= searched[i].serial_s);
        assert_true(searched[i].bound_s <= searched[i].serial_s && searched[i].bound_s >= searched[i].compute_s);
        for (int k = 0; k < i; k++)
            assert_memory_not_equal(searched[i].order, searched[k].order, sizeof searched[i].order);
    }
    return &searched[best];
}

/* Of the orders that were searched last. */
static int warnings(const ls_step_traffic *x, const ls_placement *p, int n)
{
    static ls_placement_warning all[LS_PLACEMENT_WARNINGS];
    const int found = ls_placement_warnings(x, p, searched, n, all);
    assert_int_equal(found, ls_placement_warnings(x, p, searched, n, NULL));
    for (int i = 0; i < found; i++) assert_true(all[i].better->serial_s < p->serial_s);
    return found;
}

/* R158 on 2 nodes of 4: who talks most, tensor parallel and Ulysses ranks, share a node; data parallel ranks do not. */
static void frequent_talkers_share_a_node(void **state)
{
    (void)state;
    const ls_topo t = cluster("ethernet-2");
    char text[40];
    const ls_step_traffic x = traffic(seven_b, 8, KEYS("parallel.tp", "2", "parallel.cp", "2", "parallel.context", "ulysses"));
    const ls_placement *best = search(&t, &x, 6);
    assert_int_equal(best->order[2], LS_AXIS_DP);
    /* R155, R164: the warning names tensor parallel ranks that are apart, and nothing else */
    for (int i = 0; i < 6; i++)
        if ((warnings(&x, &searched[i], 6) > 0) != (searched[i].order[2] == LS_AXIS_TP))
            fail_msg("%s: %d warnings", ls_placement_order_text(&searched[i], text, sizeof text), warnings(&x, &searched[i], 6));
}

/* R128 and R116: pipeline stages cross the slow link, and not the ranks that divide layers. */
static void stages_cross_the_slow_link(void **state)
{
    (void)state;
    const ls_topo t = cluster("ethernet-2");
    char text[40];
    const ls_step_traffic x = traffic(seven_b, 8, KEYS("parallel.tp", "4", "parallel.pp", "2"));
    const ls_placement *best = search(&t, &x, 2);
    assert_string_equal(ls_placement_order_text(best, text, sizeof text), "pp-tp");
    const ls_placement inside = placed(&t, &x, "pp-tp"), across = placed(&t, &x, "tp-pp");
    assert_true(across.serial_s > 5 * inside.serial_s);
    assert_true(across.bound_s > 5 * inside.bound_s);
    assert_int_equal(warnings(&x, &inside, 2), 0);
    assert_true(warnings(&x, &across, 2) > 0);
}

/* R150: even if all else overlaps, tensor parallelism across Ethernet leaves single digits. */
static void tensor_parallelism_across_ethernet_leaves_single_digits(void **state)
{
    (void)state;
    const ls_topo t = cluster("ethernet-2");
    const ls_step_traffic bad = traffic(seven_b, 8, KEYS("parallel.tp", "8")), good = traffic(seven_b, 8, KEYS("parallel.tp", "4"));
    const ls_placement b = placed(&t, &bad, "tp"), g = placed(&t, &good, "dp-tp");
    assert_true(b.compute_s / b.bound_s < 0.10);
    assert_true(g.compute_s / g.bound_s > 0.30);
    assert_true(g.compute_s / g.serial_s > 0.10);
    print_message("MFU at most %.3g %% (tp 8), %.3g %% (tp 4, dp 2)\n", 100 * b.compute_s / b.bound_s, 100 * g.compute_s / g.bound_s);
}

static void all_orders_of_four_axes_are_evaluated(void **state)
{
    (void)state;
    ls_topo t = cluster("h100-8");
    assert_int_equal(ls_topo_resize(&t, 16), LS_OK);
    const ls_step_traffic x = traffic(seven_b, 128, KEYS("parallel.tp", "8", "parallel.cp", "2", "parallel.pp", "4"));
    const ls_placement *best = search(&t, &x, 24);
    assert_int_equal(warnings(&x, best, 24), 0);
    assert_true(best->serial_s <= placed(&t, &x, "pp-dp-ep-cp-tp").serial_s);
    assert_true(placed(&t, &x, "tp-cp-dp-pp").serial_s > 2 * best->serial_s);
}

static void orders_are_read_and_refused(void **state)
{
    (void)state;
    char text[40];
    const ls_topo t = cluster("ethernet-2");
    const ls_step_traffic x = one_row(2, 4, 1, 1, LS_ALL_REDUCE, LS_TO_NEXT, 1);
    const ls_step_traffic many = one_row(9, 1, 1, 2, LS_ALL_REDUCE, LS_TO_NEXT, 1);
    static const struct { const char *order, *says; } rows[] = {
        { "tp", "dp, which has 2 ranks, is missing" }, { "tp-dq", "there is no axis 'dq'" }, { "tp-dp-tp", "tp is there twice" }, { "", "there is no axis ''" },
    };
    ls_placement p;
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(ls_placement_order(&x, rows[i].order, &p), LS_USAGE);
        if (!strstr(ls_last_error(), rows[i].says)) fail_msg("%s", ls_last_error());
    }
    assert_int_equal(ls_placement_order(&x, "tp-pp-dp", &p), LS_OK);
    assert_string_equal(ls_placement_order_text(&p, text, sizeof text), "tp-dp");
    ls_placement_usual(&x, &p);
    assert_string_equal(ls_placement_order_text(&p, text, sizeof text), "dp-tp");
    ls_placement_usual(&many, &p);
    assert_int_equal(ls_placement_evaluate(&t, &many, &p), LS_BAD_CONFIG);
    assert_non_null(strstr(ls_last_error(), "9 ranks do not fit"));
}

/* Two stages of 4 ranks, a node each; the ranks of the second add up three times as much. */
static void a_stage_has_its_own_bytes(void **state)
{
    (void)state;
    const ls_topo t = cluster("ethernet-2");
    const double S = 8 << 20;
    ls_step_traffic x = one_row(1, 4, 2, 1u << LS_AXIS_TP, LS_ALL_REDUCE, LS_TO_NEXT, S);
    x.row[0].of_stage[1] = 3 * S;
    const ls_placement p = placed(&t, &x, "pp-dp-tp");
    NEAR(p.bytes[0], 2 * .75 * 3 * S);
    NEAR(p.total[0], 4 * 2 * .75 * (S + 3 * S));
    NEAR(p.bytes[1], 0);
}

/* Four stages of 2 ranks: what the first and the last stage share, ranks 0 and 6, and 1 and 7. */
static void ends_are_the_first_and_the_last_stage(void **state)
{
    (void)state;
    ls_mesh_groups g = { .size = { 4, 1, 1, 1, 2 }, .ranks = 8, .span = { .axes = 1u << LS_AXIS_PP, .ends = true } };
    int named, first, place;
    assert_int_equal(ls_mesh_order_read("pp-dp-ep-cp-tp", g.order, &named), LS_OK);
    assert_int_equal(ls_mesh_groups_members(&g), 2);
    for (int tp = 0; tp < 2; tp++) {
        assert_int_equal(ls_mesh_groups_at(&g, tp, 0), tp);
        assert_int_equal(ls_mesh_groups_at(&g, tp, 1), 6 + tp);
        assert_true(ls_mesh_groups_of(&g, 6 + tp, &first, &place) && first == tp && place == 1);
        for (int stage = 1; stage < 3; stage++) assert_false(ls_mesh_groups_of(&g, 2 * stage + tp, &first, &place));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_placement_counts_what_the_hierarchical_schedule_sends),
        cmocka_unit_test(a_stage_has_its_own_bytes),
        cmocka_unit_test(ends_are_the_first_and_the_last_stage),
        cmocka_unit_test(all_to_all_and_messages_are_the_sum_over_pairs),
        cmocka_unit_test(rails_carry_what_their_device_sends),
        cmocka_unit_test(tensor_and_data_parallel_bytes_are_the_textbooks),
        cmocka_unit_test(expert_parallel_bytes_are_the_textbooks),
        cmocka_unit_test(context_parallel_bytes_are_the_textbooks),
        cmocka_unit_test(stages_send_activations_and_their_gradients),
        cmocka_unit_test(frequent_talkers_share_a_node),
        cmocka_unit_test(stages_cross_the_slow_link),
        cmocka_unit_test(tensor_parallelism_across_ethernet_leaves_single_digits),
        cmocka_unit_test(all_orders_of_four_axes_are_evaluated),
        cmocka_unit_test(orders_are_read_and_refused),
    };
    return cmocka_run_group_tests_name("placement", tests, NULL, NULL);
}
