/* The search for the best layout: the pruned search finds what evaluating every layout finds, bit by bit; its counts
 * add up; bounds are bounds; threads change nothing; one layout evaluated alone costs the same. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "base/team.h"
#include "plan/predict.h"
#include "plan/problem.h"
#include "plan/stage_memory.h"

static ls_topo preset(const char *name, int64_t units)
{
    char path[600];
    ls_topo t;
    snprintf(path, sizeof path, LOCKSTEP_SOURCE "/recipes/clusters/%s.yaml", name);
    assert_int_equal(ls_topo_load(path, &t), LS_OK);
    if (units) assert_int_equal(ls_topo_resize(&t, units), LS_OK);
    return t;
}

static uint64_t next(uint64_t *x)
{
    *x ^= *x << 13;
    *x ^= *x >> 7;
    *x ^= *x << 17;
    return *x;
}

static int64_t pick(uint64_t *x, const int64_t *of, size_t n) { return of[next(x) % n]; }
#define PICK(x, ...) pick(x, (const int64_t[]){ __VA_ARGS__ }, sizeof(int64_t[]){ __VA_ARGS__ } / sizeof(int64_t))

/* Small problems of every kind: dense and experts, latent attention, windows, memory that is short, all schedules. */
static ls_layout_query random_query(uint64_t *x, ls_topo *t)
{
    static const char *const clusters[] = { "h100-8", "a100-8", "b200-nvl72", "ethernet-2" };
    static const char *const models[] = { "llama2-7b", "gpt2-1.5b", "qwen3-30b", "deepseek-v3", "mixtral-8x7b",
        "mistral-7b" };
    ls_layout_query q = { .topo = t, .top = (int)PICK(x, 1, 3, 10), .bits = (int)PICK(x, 16, 8) };
    assert_int_equal(ls_llm_preset(models[next(x) % 6], &q.model), LS_OK);
    const size_t cluster = next(x) % 4;
    *t = preset(clusters[cluster], 0);
    if (cluster == 1 || cluster == 3) q.bits = 16; /* A100 have no products of 8 bits */
    q.model.layers = PICK(x, 2, 4, 6, 8, 12, 14);
    q.model.dense_layers = q.model.dense_layers ? PICK(x, 0, 1, 2) : 0;
    q.model.mtp = q.model.experts ? PICK(x, 0, 0, 1) : 0;
    q.model.seq = PICK(x, 1024, 2048, 4096);
    q.world = cluster == 3 ? PICK(x, 1, 2, 4, 8) : PICK(x, 1, 2, 4, 8, 16, 24, 32);
    if (cluster == 2) q.world = PICK(x, 1, 4, 6, 12, 72);
    q.batch = PICK(x, 1, 8, 12, 16, 32, 64);
    q.memory = (double)PICK(x, 0, 5, 12, 30) * 1e9;
    q.objective = next(x) % 3 == 0 ? LS_LEAST_MEMORY : LS_LEAST_TIME;
    q.schedules = next(x) % 2 ? 127 : 0;
    return q;
}

static void same_plans(const ls_layouts *a, const ls_layouts *b, int i)
{
    if (a->n != b->n) fail_msg("problem %d: %d plans, expected %d", i, a->n, b->n);
    for (int k = 0; k < a->n; k++)
        if (memcmp(&a->best[k], &b->best[k], sizeof a->best[k]) != 0)
            fail_msg("problem %d: plan %d is %.17g s, %.17g B; expected %.17g s, %.17g B", i, k, a->best[k].cost.total,
                     a->best[k].bytes, b->best[k].cost.total, b->best[k].bytes);
}

static void a_pruned_search_finds_what_all_layouts_have(void **state)
{
    static ls_layouts all, pruned;
    uint64_t x = 20;
    int searched = 0, with_bound = 0;
    (void)state;
    for (int i = 0; i < 400; i++) {
        ls_topo t;
        ls_layout_query q = random_query(&x, &t);
        q.exhaustive = true;
        const ls_status st = ls_layout_search(&q, &all);
        q.exhaustive = false;
        assert_int_equal(ls_layout_search(&q, &pruned), st);
        if (st != LS_OK) continue;
        same_plans(&pruned, &all, i);
        assert_int_equal(all.legal, all.evaluated + all.too_large);
        assert_int_equal(all.bounded, 0);
        assert_int_equal(pruned.legal, all.legal);
        assert_int_equal(pruned.legal, pruned.evaluated + pruned.too_large + pruned.bounded);
        int64_t degrees = all.legal_degrees;
        for (int k = 0; k < LS_REFUSE_COUNT; k++) degrees += all.refused[k];
        assert_int_equal(all.degrees, degrees);
        searched++;
        with_bound += pruned.bounded > 0;
    }
    if (searched < 200 || with_bound < 50) fail_msg("%d problems, %d of them pruned: the test is too easy", searched,
        with_bound);
}

/* Counts and finds again what a search reports, from the rules alone: loops over every field of a layout. */
static void an_independent_enumeration_agrees(void **state)
{
    static ls_layouts found;
    uint64_t x = 77;
    (void)state;
    for (int i = 0; i < 6; i++) {
        ls_topo t;
        ls_layout_query q = random_query(&x, &t);
        ls_problem b;
        q.world = q.world > 16 ? 8 : q.world, q.batch = q.batch > 16 ? 16 : q.batch, q.top = 1, q.objective =
            LS_LEAST_TIME;
        q.memory = 30e9;
        if (ls_layout_search(&q, &found) != LS_OK) continue;
        assert_int_equal(ls_problem_of(&q, &b), LS_OK);
        int64_t legal = 0, fits = 0;
        double best = (double)INFINITY;
        const int64_t W = q.world, G = b.node;
        ls_layout l;
#define EACH(field, most) for (l.field = 1; l.field <= (most); l.field++)
        EACH(t, W) EACH(p, W / l.t) EACH(c, W / (l.t * l.p)) {
            l.d = W / (l.t * l.p * l.c);
            if (l.t * l.p * l.c * l.d != W) continue;
            EACH(e, l.d) EACH(micro, q.batch) EACH(t_in, G) EACH(p_in, G / l.t_in) EACH(c_in, G / (l.t_in * l.p_in))
                EACH(e_in, G / (l.t_in * l.p_in * l.c_in)) {
                l.d_in = G / (l.t_in * l.p_in * l.c_in * l.e_in);
                if (G != l.t_in * l.p_in * l.c_in * l.e_in * l.d_in || l.d % l.e != 0 || q.batch % (l.micro * l.d) !=
                    0) continue;
                for (int form = 0; form <= LS_PIPE_DUALPIPE; form++)
                    EACH(v, q.model.layers + 2)
                        for (l.fewer = 0; l.fewer <= 2; l.fewer += 2)
                            for (int kept = 0; kept <= LS_KEEP_INPUTS; kept++)
                                for (l.zero = 0; l.zero <= 3; l.zero++) {
                                    ls_layout_cost cost;
                                    if (b.flash && kept == LS_KEEP_SELECTIVE) continue;
                                    l.form = (ls_pipe_form)form, l.kept = (ls_recompute_kind)kept;
                                    if (ls_layout_evaluate(&q, &l, &cost, NULL) != LS_OK) continue;
                                    legal++;
                                    if (cost.bytes > q.memory) continue;
                                    fits++;
                                    if (cost.cost.total < best) best = cost.cost.total;
                                }
            }
        }
        assert_int_equal(found.legal, legal);
        if ((found.n > 0) != (fits > 0)) fail_msg("problem %d: %lld layouts fit", i, (long long)fits);
        if (fits && found.best[0].cost.total != best) fail_msg("problem %d: %.17g, expected %.17g", i,
            found.best[0].cost.total, best);
    }
}

static void rules_refuse_by_name(void **state)
{
    ls_topo t = preset("h100-8", 8);
    ls_layout_query q = { .topo = &t, .world = 64, .batch = 96, .top = 1 };
    (void)state;
    assert_int_equal(ls_llm_preset("llama3-8b", &q.model), LS_OK);
    static const struct { ls_refusal why; int64_t t, p, c, e, d, v, micro; int zero; ls_pipe_form form; } of[] = {
        { LS_REFUSE_WORLD, 8, 1, 1, 1, 4, 1, 1, 0, LS_PIPE_1F1B },
        { LS_REFUSE_HEADS, 64, 1, 1, 1, 1, 1, 1, 0, LS_PIPE_1F1B },
        { LS_REFUSE_KV_HEADS, 16, 1, 1, 1, 4, 1, 1, 0, LS_PIPE_1F1B }, /* 8 key heads */
        { LS_REFUSE_EXPERTS, 8, 1, 1, 2, 8, 1, 1, 0, LS_PIPE_1F1B },
        { LS_REFUSE_LAYERS, 1, 64, 1, 1, 1, 1, 1, 0, LS_PIPE_1F1B },
        { LS_REFUSE_BATCH, 1, 1, 1, 1, 64, 1, 1, 0, LS_PIPE_1F1B },
        { LS_REFUSE_MICRO, 8, 1, 1, 1, 8, 1, 5, 0, LS_PIPE_1F1B },
        { LS_REFUSE_MICRO, 1, 16, 2, 1, 2, 2, 1, 0, LS_PIPE_ZB_V },
        { LS_REFUSE_ZERO, 8, 8, 1, 1, 1, 1, 1, 1, LS_PIPE_1F1B },
        { LS_REFUSE_ZERO, 8, 1, 1, 1, 8, 1, 1, 2, LS_PIPE_1F1B },
        { LS_REFUSE_NONE, 8, 1, 1, 1, 8, 1, 1, 1, LS_PIPE_1F1B },
    };
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        ls_layout l = { .t = of[i].t, .p = of[i].p, .c = of[i].c, .e = of[i].e, .d = of[i].d, .v = of[i].v,
            .micro = of[i].micro, .zero = of[i].zero, .form = of[i].form, .t_in = 1, .p_in = 1, .c_in = 1, .e_in = 1,
            .d_in = 1 };
        ls_layout_cost cost;
        ls_refusal why;
        if (l.t >= 8) l.t_in = 8; /* a node has 8 ranks */
        else l.p_in = l.p >= 8 ? 8 : 1, l.d_in = l.p >= 8 ? 1 : 8;
        q.schedules = 1u << of[i].form;
        q.batch = of[i].why == LS_REFUSE_MICRO && of[i].form == LS_PIPE_ZB_V ? 48 : 96;
        ls_layout_evaluate(&q, &l, &cost, &why);
        if (why != of[i].why) fail_msg("layout %zu: '%s', expected '%s'", i, ls_refusal_text(why),
            ls_refusal_text(of[i].why));
    }
}

static void threads_change_nothing(void **state)
{
    static ls_layouts one, two;
    ls_topo t = preset("h100-8", 16);
    ls_layout_query q = { .topo = &t, .world = 128, .batch = 512, .top = 20 };
    (void)state;
    assert_int_equal(ls_llm_preset("llama3-70b", &q.model), LS_OK);
    const int before = ls_team_resize(1);
    assert_int_equal(ls_layout_search(&q, &one), LS_OK);
    ls_team_resize(2);
    assert_int_equal(ls_layout_search(&q, &two), LS_OK);
    ls_team_resize(before);
    assert_memory_equal(&one, &two, sizeof one);
    assert_true(one.n == 20 && one.bounded > 0);
}

static double sum(const ls_step_cost *c)
{
    return c->compute + c->recompute + c->tensor + c->exchange + c->bubble + c->hops + c->data + c->update +
        c->overhead;
}

static void a_plan_is_what_its_layout_costs(void **state)
{
    static ls_layouts found;
    uint64_t x = 3;
    int plans = 0;
    (void)state;
    for (int i = 0; i < 60; i++) {
        ls_topo t;
        ls_layout_query q = random_query(&x, &t);
        if (ls_layout_search(&q, &found) != LS_OK) continue;
        for (int k = 0; k < found.n; k++, plans++) {
            const ls_layout_cost *p = &found.best[k];
            ls_layout_cost alone;
            ls_problem b;
            ls_run r;
            assert_int_equal(ls_layout_evaluate(&q, &p->layout, &alone, NULL), LS_OK);
            assert_true(alone.cost.total == p->cost.total && alone.bytes == p->bytes);
            if (fabs(sum(&p->cost) - p->cost.total) > 1e-12 * p->cost.total)
                fail_msg("parts of plan %d sum to %.17g of %.17g", k, sum(&p->cost), p->cost.total);
            assert_int_equal(ls_problem_of(&q, &b), LS_OK);
            assert_true(p->bytes <= b.memory);
            ls_layout_run(&b, &p->layout, &r);
            ls_layer_cost l;
            ls_layer_cost_of(&r, b.k, &l);
            assert_true(ls_step_cost_bound(&r, b.k, &l) <= p->cost.total);
        }
    }
    assert_true(plans > 100);
}

/* On the cluster of the constants, in the runtime's order, a plan costs what --score predicts of such a row. */
static void a_plan_costs_what_a_row_does(void **state)
{
    ls_topo t = preset("h100-8", 8);
    ls_layout_query q = { .topo = &t, .world = 64, .batch = 256, .top = 1 };
    (void)state;
    assert_int_equal(ls_llm_preset("llama3-8b", &q.model), LS_OK);
    static const ls_layout some[] = {
        { 1, 1, 1, 1, 64, 1, 1, 1, LS_KEEP_ALL, LS_PIPE_1F1B, 0, 1, 1, 1, 1, 8 },
        { 4, 2, 1, 1, 8, 1, 2, 0, LS_KEEP_INPUTS, LS_PIPE_1F1B, 0, 4, 1, 1, 1, 2 },
        { 8, 4, 1, 1, 2, 2, 1, 1, LS_KEEP_ALL, LS_PIPE_INTERLEAVED, 0, 8, 1, 1, 1, 1 },
        { 2, 1, 4, 1, 8, 1, 1, 3, LS_KEEP_ALL, LS_PIPE_1F1B, 0, 2, 1, 4, 1, 1 },
    };
    for (size_t i = 0; i < sizeof some / sizeof *some; i++) {
        ls_layout_cost c;
        ls_step_cost row;
        ls_problem b;
        ls_run r;
        if (ls_layout_evaluate(&q, &some[i], &c, NULL) != LS_OK) fail_msg("layout %zu: %s", i, ls_last_error());
        assert_int_equal(ls_problem_of(&q, &b), LS_OK);
        ls_layout_run(&b, &some[i], &r);
        r.placed = false, r.device = ls_device_sheet_find("H100 SXM");
        ls_step_cost_of(&r, ls_constants[b.stack], &row);
        if (fabs(row.total - c.cost.total) > 1e-12 * row.total)
            fail_msg("layout %zu: %.17g, a row has %.17g", i, c.cost.total, row.total);
    }
}

/* Faster links shorten what bytes take, and not what a collective takes without any. */
static void faster_links_keep_their_latency(void **state)
{
    (void)state;
    static const char *const of[][2] = { { "h100-8", "H100" }, { "a100-8", "A100" }, { "b200-nvl72", "GB200" } };
    for (int t = 0; t < 3; t++) {
        ls_topo topo = preset(of[t][0], 8);
        ls_problem b[3];
        double us[3][2];
        for (int i = 0; i < 3; i++) {
            ls_layout_query q = { .topo = &topo, .world = 64, .batch = 128, .top = 1 };
            assert_int_equal(ls_llm_preset("llama2-7b", &q.model), LS_OK);
            if (i == 1) q.scale[LS_RES_LINKS] = 2;
            if (i == 2) q.scale[LS_RES_LATENCY] = .5;
            assert_int_equal(ls_problem_of(&q, &b[i]), LS_OK);
            for (int large = 0; large < 2; large++) {
                ls_coll_run c;
                assert_true(ls_coll_in_node(of[t][1], 8, LS_ALL_REDUCE, 8, true, &c));
                c.bytes = large ? 1e15 : 0;
                us[i][large] = 1e6 * ls_coll_cost(&c, b[i].coll[c.class]) / b[i].k[LS_K_TP_RATE];
            }
            const ls_layout l = { 8, 1, 1, 1, 8, 1, 1, 0, LS_KEEP_ALL, LS_PIPE_1F1B, 0, 8, 1, 1, 1, 1 };
            ls_run r;
            ls_layout_run(&b[i], &l, &r);
            assert_ptr_equal(r.coll, b[i].coll);
            assert_int_equal(r.node_devices, t == 2 ? 72 : 8);
        }
        assert_true(us[0][0] > 1 && fabs(us[1][0] / us[0][0] - 1) < 1e-9 && fabs(us[2][0] / us[0][0] - .5) < 1e-9);
        assert_true(fabs(us[1][1] / us[0][1] - .5) < 1e-3 && fabs(us[2][1] / us[0][1] - 1) < 1e-3);
        assert_true(fabs(b[2].k[LS_K_SKEW] / b[0].k[LS_K_SKEW] - .5) < 1e-9);
        assert_true(fabs(b[2].k[LS_K_NET_LATENCY] / b[0].k[LS_K_NET_LATENCY] - .5) < 1e-9);
        assert_true(b[1].k[LS_K_TP_RATE] == 2 * b[0].k[LS_K_TP_RATE]);
        assert_true(b[1].device.adapters == b[0].device.adapters);
    }
    ls_topo topo = preset("h100-8", 8);
    ls_problem b;
    ls_layout_query q = { .topo = &topo, .world = 64, .batch = 128, .top = 1 };
    assert_int_equal(ls_llm_preset("llama2-7b", &q.model), LS_OK);
    q.scale[LS_RES_ADAPTERS] = 2;
    assert_int_equal(ls_problem_of(&q, &b), LS_OK);
    assert_true(fabs(b.device.adapters / 800e9 - 1) < 1e-9); /* which limits tp over nodes */
}

static void more_of_a_resource_is_no_slower(void **state)
{
    static ls_layouts before, after;
    ls_topo t = preset("h100-8", 8);
    (void)state;
    for (int i = 0; i < LS_RES_COUNT; i++) {
        ls_layout_query q = { .topo = &t, .world = 64, .batch = 128, .top = 1 };
        assert_int_equal(ls_llm_preset("qwen3-30b", &q.model), LS_OK);
        assert_int_equal(ls_layout_search(&q, &before), LS_OK);
        q.scale[i] = i == LS_RES_LATENCY || i == LS_RES_LAUNCH ? .5 : 2;
        assert_int_equal(ls_layout_search(&q, &after), LS_OK);
        if (after.best[0].cost.total > before.best[0].cost.total)
            fail_msg("resource %d: %g s after %g s", i, after.best[0].cost.total, before.best[0].cost.total);
    }
}

/* Llama 3 405B on 16,384 devices (Llama Team 2024): a plan, every layout accounted for. */
static void a_large_model_on_all_devices(void **state)
{
    static ls_layouts found;
    ls_topo t = preset("h100-8", 2048);
    ls_layout_query q = { .topo = &t, .world = 16384, .batch = 2048, .top = 5 };
    (void)state;
    assert_int_equal(ls_llm_preset("llama3-405b", &q.model), LS_OK);
    assert_int_equal(ls_layout_search(&q, &found), LS_OK);
    assert_int_equal(found.n, 5);
    assert_int_equal(found.legal, found.evaluated + found.too_large + found.bounded);
    assert_true(found.legal > 500000);
    const double mfu = ls_layout_mfu(&q, found.best[0].cost.total, LS_FLOPS_FULL);
    assert_true(mfu > .3 && mfu < .6);
}

/* What no layout fits: the search says so, and the least memory is the nearest. */
static void the_nearest_of_what_does_not_fit(void **state)
{
    static ls_layouts none, nearest;
    ls_topo t = preset("h100-8", 1);
    ls_layout_query q = { .topo = &t, .world = 8, .batch = 8, .top = 1 };
    (void)state;
    assert_int_equal(ls_llm_preset("llama3-405b", &q.model), LS_OK);
    assert_int_equal(ls_layout_search(&q, &none), LS_OK);
    assert_int_equal(none.n, 0);
    assert_int_equal(none.too_large, none.legal);
    q.objective = LS_LEAST_MEMORY, q.memory = (double)INFINITY;
    assert_int_equal(ls_layout_search(&q, &nearest), LS_OK);
    assert_true(nearest.n == 1 && nearest.best[0].bytes > 80e9);
    q.memory = nearest.best[0].bytes, q.objective = LS_LEAST_TIME;
    assert_int_equal(ls_layout_search(&q, &none), LS_OK);
    assert_int_equal(none.n, 1); /* exactly so much is enough, and a byte less is not */
    q.memory = nearest.best[0].bytes - 1;
    assert_int_equal(ls_layout_search(&q, &none), LS_OK);
    assert_int_equal(none.n, 0);
}

static void bad_questions_say_what_to_do(void **state)
{
    static ls_layouts found;
    ls_topo t = preset("h100-8", 0);
    ls_layout_query q = { .topo = &t, .world = 64, .batch = 64, .top = 1 };
    (void)state;
    assert_int_equal(ls_llm_preset("llama3-8b", &q.model), LS_OK);
    assert_int_equal(ls_layout_search(&q, &found), LS_BAD_CONFIG);
    assert_non_null(strstr(ls_last_error(), "world 64 does not fit topology h100-8, which has 32 devices"));
    q.world = 30;
    assert_int_equal(ls_layout_search(&q, &found), LS_BAD_CONFIG);
    assert_non_null(strstr(ls_last_error(), "the nearest worlds that do are 24 and 32"));
    q.world = 7, q.batch = 8; /* 32 layers, 32 heads, a batch of 8 and a sequence of 8192: nothing has a factor of 7 */
    assert_int_equal(ls_layout_search(&q, &found), LS_BAD_CONFIG);
    assert_non_null(strstr(ls_last_error(), "have no legal layout"));
    q.world = 8, q.batch = 0;
    assert_int_equal(ls_layout_search(&q, &found), LS_BAD_CONFIG);
    q.batch = 8;
    strcpy(t.device.name, "abacus");
    assert_int_equal(ls_layout_search(&q, &found), LS_BAD_CONFIG);
    assert_non_null(strstr(ls_last_error(), "no constants for device 'abacus'"));
}

/* 8190 tokens are 2 x 4095: two ranks divide them, and four do not, neither as tp, which divides a rank's rows along
 * the sequence, nor as tp 2 and cp 2. */
static void tp_divides_what_a_rank_has_of_a_sequence(void **state)
{
    static ls_layouts found;
    ls_topo t = preset("h100-8", 0);
    ls_layout_query q = { .topo = &t, .world = 4, .batch = 4, .top = LS_LAYOUT_TOP };
    (void)state;
    assert_int_equal(ls_llm_preset("llama3-8b", &q.model), LS_OK);
    q.model.seq = 8190;
    assert_int_equal(ls_layout_search(&q, &found), LS_OK);
    assert_true(found.n > 1);
    for (int i = 0; i < found.n; i++) assert_true(found.best[i].layout.t * found.best[i].layout.c <= 2);
    assert_int_equal(found.refused[LS_REFUSE_ROWS], 1); /* tp 4; with cp 2 or 4 the sequence has too few pieces */
    q.model.seq = 8196; /* tp 2 and cp 2 */
    assert_int_equal(ls_layout_search(&q, &found), LS_OK);
    assert_int_equal(found.refused[LS_REFUSE_ROWS], 0);
    q.world = 8; /* tp 8, and tp 4 and cp 2; tp 2 and cp 4 have too few pieces */
    q.batch = 8;
    assert_int_equal(ls_layout_search(&q, &found), LS_OK);
    assert_int_equal(found.refused[LS_REFUSE_ROWS], 2);
}

/* A plan has the interval of all rows that its constants were fitted to: no family of a few rows widens it, and no
 * question changes it but the device and whether there are experts. */
static void intervals_are_of_a_device(void **state)
{
    (void)state;
    static const struct { const char *cluster, *model, *stack; } of[] = {
        { "h100-8", "llama3-405b", "megatron-h100" }, { "h100-8", "qwen3-30b", "megatron-h100-moe" },
        { "a100-8", "gpt3-175b", "megatron-a100" }, { "b200-nvl72", "llama3-70b", "megatron-b200" },
        { "b200-nvl72", "deepseek-v3", "megatron-b200-moe" },
    };
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        ls_topo t = preset(of[i].cluster, 0);
        ls_layout_query q = { .topo = &t, .world = 8, .batch = 8, .top = 1 };
        double low, high, few_low = 1, few_high = 1;
        int stack = 0, families = 0;
        assert_int_equal(ls_llm_preset(of[i].model, &q.model), LS_OK);
        ls_layout_interval(&q, &low, &high);
        while (strcmp(ls_stack_intervals[stack].family, of[i].stack) != 0) stack++;
        assert_true(low == ls_stack_intervals[stack].low && high == ls_stack_intervals[stack].high);
        assert_true(low > .4 && low < 1 && high > 1 && high < 2.5);
        for (const ls_interval *k = ls_intervals; k->family; k++)
            if (k->what == 's' && strstr(ls_stacks[stack].families, k->family))
                few_low = fmin(few_low, k->low), few_high = fmax(few_high, k->high), families++;
        if (families > 3 && !q.model.experts) assert_true(high / low < few_high / few_low);
    }
    ls_layout_query none = { .world = 8, .batch = 8, .top = 1 };
    ls_topo ethernet = preset("ethernet-2", 0);
    double low, high;
    none.topo = &ethernet; /* no model: nothing is known */
    ls_layout_interval(&none, &low, &high);
    assert_true(low == 0 && isinf(high));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pruned_search_finds_what_all_layouts_have),
        cmocka_unit_test(an_independent_enumeration_agrees),
        cmocka_unit_test(rules_refuse_by_name),
        cmocka_unit_test(threads_change_nothing),
        cmocka_unit_test(a_plan_is_what_its_layout_costs),
        cmocka_unit_test(a_plan_costs_what_a_row_does),
        cmocka_unit_test(faster_links_keep_their_latency),
        cmocka_unit_test(more_of_a_resource_is_no_slower),
        cmocka_unit_test(a_large_model_on_all_devices),
        cmocka_unit_test(the_nearest_of_what_does_not_fit),
        cmocka_unit_test(tp_divides_what_a_rank_has_of_a_sequence),
        cmocka_unit_test(bad_questions_say_what_to_do),
        cmocka_unit_test(intervals_are_of_a_device),
    };
    return cmocka_run_group_tests_name("plan_search", tests, NULL, NULL);
}
