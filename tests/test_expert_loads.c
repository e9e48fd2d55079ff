/* ls_expert_loads_find, against a run of one rank that counts what it routes; and mirrors, whose experts have these
 * loads. */
#include "harness.h"
#include "harness_text.h"

#include <math.h>
#include <string.h>

#include "base/team.h"
#include "model/moe.h"
#include "plan/step_list.h"
#include "train/alone.h"
#include "train/expert_loads.h"
#include "train/measure.h"
#include "train/trainer.h"

enum { LAYERS = 3, E = 4, K = 2, T = 16, ROWS = 2, STEPS = 8 };

static ls_train_config c;
static ls_opts *o;

static void set(const char *key, const char *value)
{
    if (ls_opts_set(o, key, value, "flag") < 0) fail_msg("%s", ls_last_error());
}

/* The first layer has no experts. */
static void configure(const char *const *more)
{
    static const char *const usual[] = {
        "model.name", "moe", "model.n_layer", "3", "model.d_model", "32", "model.n_head", "4", "model.seq_len", "16",
        "model.n_experts", "4", "model.top_k", "2", "model.d_expert", "32", "model.first_dense", "1", "train.steps", "20",
        "train.global_batch", "8", "train.micro_batch", "2", "optim.lr", "0.03", "data.tokenizer", "char",
        "train.eval_every", "0", NULL,
    };
    memset(&c, 0, sizeof c);
    assert_int_equal(ls_opts_create(ls_train_opts, ls_train_nopts, &c, &o), LS_OK);
    set("data.name", text), set("data.path", tokens);
    for (const char *const *word = usual; *word; word += 2) set(word[0], word[1]);
    for (const char *const *word = more; *word; word += 2) set(word[0], word[1]);
    if (ls_train_config_resolve(o, &c) < 0) fail_msg("%s", ls_last_error());
}

static void find(int ranks, double long_s, ls_expert_loads *out)
{
    ls_plan p;
    if (ls_train_plan(&c, ranks, &p) < 0 || ls_expert_loads_find(&c, &p, 1, long_s, out) < 0) fail_msg("%s", ls_last_error());
}

static float counted[LAYERS][E];

/* The same micro-batches in an ordinary run, which learns. */
static ls_status count_rank(ls_world *w, void *arg)
{
    ls_trainer *t;
    ls_step_stats s;
    (void)arg;
    (void)ls_team_resize(1);
    LS_TRY(ls_trainer_create_in(&c, w, NULL, &t));
    ls_status st = LS_OK;
    for (int i = 0; i < STEPS && st == LS_OK; i++) st = ls_train_step(t, &s);
    for (int l = 0; l < LAYERS; l++) {
        const double *chosen = ls_moe_layer_words(t->par.model, ls_moe_counts(t->par.model), l);
        for (int e = 0; e < E; e++) counted[l][e] = (float)(chosen[e] / (2 * ROWS * T)); /* two micro-batches */
    }
    ls_trainer_destroy(t);
    return st;
}

static void loads_are_those_of_a_run_that_learns(void **state)
{
    (void)state;
    ls_expert_loads l;
    /* sequences are whole all the same, and the rate is that of two ranks */
    configure((const char *const[]){ "parallel.cp", "2", "optim.scale_lr", "linear", "optim.lr", "0.015", NULL });
    find(4, 60, &l);
    assert_int_equal(l.steps, STEPS);
    ls_opts_destroy(o);

    configure((const char *const[]){ "train.global_batch", "4", NULL });
    if (ls_alone_run(&c, 1, count_rank, NULL) < 0) fail_msg("%s", ls_last_error());
    float most = 0;
    for (int i = 0; i < LAYERS; i++)
        for (int e = 0; e < E; e++) {
            if (fabsf(l.part[i * E + e] - counted[i][e]) > 1e-6f)
                fail_msg("layer %d, expert %d: %g, in the run %g", i, e, (double)l.part[i * E + e], (double)counted[i][e]);
            most = fmaxf(most, counted[i][e]);
        }
    for (int e = 0; e < E; e++) assert_true(l.part[e] <= 0); /* the dense layer */
    assert_true(most > .8f); /* it has learned to prefer some: untrained ones have half of the tokens each */
    assert_true(fabs(l.busiest - (double)most) < 1e-6);
    ls_expert_loads_free(&l);
    assert_null(l.part);
    ls_opts_destroy(o);
}

static void ranks_have_what_their_experts_get(void **state)
{
    (void)state;
    float part[] = { .5f, .25f, .125f, .125f, 0, 0, 0, 0, 1, 0, 0, 1 };
    ls_expert_loads of = { .part = part, .layers = 3, .experts = 4 };
    static const double two[] = { 1.5, .5, 1, 1, 1, 1 }, four[] = { 2, 1, .5, .5, 1, 1, 1, 1, 2, 0, 0, 2 },
                        room[] = { 4. / 3, 2. / 3, 1, 1, 1, 1 }; /* for a quarter: .25 and .25, .125 and .125 */
    double out[12];
    ls_expert_loads_of_ranks(&of, 2, out);
    for (int i = 0; i < 6; i++) assert_true(fabs(out[i] - two[i]) < 1e-12);
    ls_expert_loads_of_ranks(&of, 4, out);
    for (int i = 0; i < 12; i++) assert_true(fabs(out[i] - four[i]) < 1e-12);
    of.most = .25;
    ls_expert_loads_of_ranks(&of, 2, out);
    for (int i = 0; i < 6; i++) assert_true(fabs(out[i] - room[i]) < 1e-12);
}

/* Where ranks that divide experts share cores: products of rows that a router sends, in layers that have experts. */
static void lists_know_how_uneven_experts_are(void **state)
{
    (void)state;
    static const struct { const char *axis, *more[3]; int ranks, here, cores; bool uneven; } row[] = {
        { "parallel.ep", { "moe.capacity_factor", "0" }, 2, 2, 1, true },
        { "parallel.ep", { "moe.capacity_factor", "0.9" }, 2, 2, 1, true },
        { "parallel.ep", { "model.shared_expert", "32" }, 2, 2, 1, true },
        { "parallel.ep", { "parallel.pp", "2" }, 4, 4, 1, true },
        { "parallel.ep", { "parallel.pp", "2" }, 4, 2, 1, false }, /* not all of them are timed */
        { "parallel.ep", { NULL }, 2, 2, 4, false },
        { "parallel.tp", { NULL }, 2, 2, 1, false },
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        const bool shared = i == 2;
        ls_expert_loads l;
        ls_measured m[2];
        ls_step_lists lists;
        configure((const char *const[]){ row[i].axis, "2", row[i].more[0], row[i].more[1], NULL });
        find(row[i].ranks, 60, &l);
        assert_true(fabs(l.most - (i == 1 ? .5 : 0)) < 1e-12); /* 7.2 of 16 tokens: there is room for 8 */
        if (ls_measure_stages(&c, row[i].ranks, row[i].here, row[i].cores, LS_MEASURE_LONG_S, m) < 0)
            fail_msg("%s", ls_last_error());
        const ls_step_rates rates = { .flops_per_s = 1, .measured = m, .by_stage = true };
        if (ls_step_lists_create(&c, row[i].ranks, row[i].ranks, &rates, &lists) < 0) fail_msg("%s", ls_last_error());
        assert_true((m->uneven != NULL) == row[i].uneven && (lists.uneven != NULL) == row[i].uneven);
        double want[LAYERS * 2] = { 0 }, routed[LAYERS] = { 0 };
        double products[LAYERS] = { 0 }, between[LAYERS] = { 0 }; /* of three matrices, and what is between */
        ls_expert_loads_of_ranks(&l, 2, want);
        for (int k = 0; row[i].uneven && k < LAYERS * 2; k++) assert_true(fabs(lists.uneven[k] - want[k]) < 1e-12);
        for (int s = 0; s < lists.stages; s++) {
            for (int k = 0; k < lists.of[s].n; k++) {
                const ls_step_item *x = &lists.of[s].item[k];
                assert_true(x->routed <= 0 || (x->kind == LS_ITEM_WORK && x->routed < x->seconds));
                routed[x->layer] += x->routed;
            }
            for (int k = 0; k < m[s].n; k++) {
                const ls_measured_row *of = &m[s].row[k];
                const int layer = of->unit[2] - '0';
                const double busy = row[i].uneven && layer > 0 ? of->takes.busy_s / 2 : 0; /* rows are of both ranks */
                if (strncmp(of->name, "experts ", 8) == 0) products[layer] += busy;
                if (strncmp(of->name, "swiglu ", 7) == 0 && !shared) between[layer] += busy;
            }
        }
        for (int k = 0; k < LAYERS; k++) /* a dry step has a swiglu of other sizes */
            if (routed[k] < .999 * products[k] || routed[k] > 1.001 * (products[k] + 2 * between[k]))
                fail_msg("row %zu, layer %d: %g s, expected %g and up to twice %g", i, k, routed[k], products[k],
                         between[k]);
        ls_step_lists_free(&lists);
        assert_null(lists.uneven);
        for (int s = 0; s < (i == 3 || i == 4 ? 2 : 1); s++) ls_measured_free(&m[s]);
        ls_expert_loads_free(&l);
        ls_opts_destroy(o);
    }
}

static void it_takes_as_few_steps_as_it_may(void **state)
{
    (void)state;
    static const struct { const char *more[3]; double long_s; int steps; } row[] = {
        { { NULL }, 0, 1 },
        { { "train.steps", "3", NULL }, 60, 3 },
        { { "moe.force_expert", "1", NULL }, 60, 0 },
        { { "model.name", "gpt2", NULL }, 60, 0 },
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        ls_expert_loads l;
        configure(row[i].more);
        find(1, row[i].long_s, &l);
        assert_int_equal(l.steps, row[i].steps);
        assert_true((l.part != NULL) == (row[i].steps > 0));
        ls_expert_loads_free(&l);
        ls_opts_destroy(o);
    }
}

/* Nothing is left of it, and mirrors do without. */
static void a_model_that_is_too_large_has_no_loads(void **state)
{
    (void)state;
    static const struct { const char *more[5]; int copies; ls_status st; const char *says; } row[] = {
        { { "memory.limit", "2MiB", NULL }, 1, LS_OK, "" },
        { { "memory.limit", "2MiB", "memory.check", "false", NULL }, 64, LS_NO_MEMORY, "64 ranks on this machine need" },
        { { "model.seq_len", "200000", NULL }, 1, LS_UNSUPPORTED, "a step of one rank takes 2" },
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        ls_expert_loads l;
        ls_plan p;
        configure(row[i].more);
        assert_int_equal(ls_train_plan(&c, 2, &p), LS_OK);
        const ls_status st = ls_expert_loads_find(&c, &p, row[i].copies, 60, &l);
        if (st != row[i].st || (st < 0 && !strstr(ls_last_error(), row[i].says)))
            fail_msg("row %zu: %s: %s", i, ls_status_word(st), ls_last_error());
        assert_true((l.part == NULL) == (st < 0));
        ls_expert_loads_free(&l);
        ls_opts_destroy(o);
    }
    ls_measured m;
    configure((const char *const[]){ "parallel.tp", "2", "memory.limit", "700KiB", "memory.check", "false", NULL });
    if (ls_measure_stages(&c, 2, 2, 4, LS_MEASURE_LONG_S, &m) < 0) fail_msg("%s", ls_last_error());
    assert_int_equal(m.routed_after, 0);
    assert_true(m.busiest <= 0 && m.steps > 0);
    ls_measured_free(&m);
    ls_opts_destroy(o);
}

/* Multiply-adds of experts, forward, of both layers per step: rows that found a place, times three matrices. */
static double expert_flops(const ls_measured *m)
{
    double sum = 0;
    for (int i = 0; i < m->n; i++)
        if (m->row[i].phase == LS_PHASE_FORWARD && strncmp(m->row[i].name, "experts ", 8) == 0) sum += m->row[i].flops;
    return sum;
}

/* An expert takes at most so many tokens as all would have on average, so a load is seen by what is dropped. */
static void mirrors_that_do_not_learn_have_these_loads(void **state)
{
    (void)state;
    static const char *const more[] = { "parallel.tp", "2", "moe.capacity_factor", "1", NULL };
    ls_expert_loads l;
    ls_measured m;
    configure(more);
    find(2, 60, &l);
    if (ls_measure_stages(&c, 2, 2, 4, LS_MEASURE_LONG_S, &m) < 0) fail_msg("%s", ls_last_error());
    assert_int_equal(m.routed_after, STEPS);
    assert_true(fabs(m.busiest - l.busiest) < 1e-9);
    double rows = 0, even = 0;
    for (int i = E; i < LAYERS * E; i++) rows += fmin(T / 2, (double)l.part[i] * T), even += T / 2; /* of a sequence */
    const double per_row = 2 * 3 * 32 * 16 * ROWS * 4; /* half of an expert's width; four micro-batches */
    assert_true(rows < .9 * even);
    if (fabs(expert_flops(&m) - rows * per_row) > .06 * rows * per_row)
        fail_msg("%g operations in a mirror, expected %g", expert_flops(&m), rows * per_row);
    ls_measured_free(&m);
    ls_opts_destroy(o);

    ls_measured stage[2]; /* the second one has both layers with experts, and whole ones */
    configure((const char *const[]){ "parallel.pp", "2", "moe.capacity_factor", "1", NULL });
    if (ls_measure_stages(&c, 2, 2, 4, LS_MEASURE_LONG_S, stage) < 0) fail_msg("%s", ls_last_error());
    assert_true(expert_flops(&stage[0]) <= 0);
    if (fabs(expert_flops(&stage[1]) - 2 * rows * per_row) > .06 * 2 * rows * per_row)
        fail_msg("stage 1: %g operations in a mirror, expected %g", expert_flops(&stage[1]), 2 * rows * per_row);
    for (int s = 0; s < 2; s++) ls_measured_free(&stage[s]);
    ls_opts_destroy(o);

    /* Two experts for each of two ranks, which get rows of both: as many as the busier one, or on one core the mean */
    for (int cores = 4; cores >= 1; cores -= 3) {
        double most = 0, all = 0, sum[2];
        configure((const char *const[]){ "parallel.ep", "2", NULL });
        ls_expert_loads_free(&l);
        find(2, 60, &l);
        if (ls_measure_stages(&c, 2, 2, cores, LS_MEASURE_LONG_S, &m) < 0) fail_msg("%s", ls_last_error());
        for (int i = 1; i < LAYERS; i++) {
            for (int r = 0; r < 2; r++) sum[r] = (double)(l.part[i * E + 2 * r] + l.part[i * E + 2 * r + 1]);
            most += 2 * T * fmax(sum[0], sum[1]), all += 2 * T * K;
        }
        assert_true(most > 1.1 * all / 2);
        const double want = (cores > 1 ? most : all) * per_row; /* half of the micro-batches, and whole experts */
        if (fabs(expert_flops(&m) - want) > .06 * want)
            fail_msg("%d cores: %g operations in a mirror, expected %g", cores, expert_flops(&m), want);
        /* a call of a step takes what calls took, whatever the number of rows that a dry step has */
        const ls_measured_row *row = m.row;
        while (strncmp(row->name, "experts ", 8) != 0) row++;
        ls_op_event e = { .name = row->name, .phase = row->phase, .flops = 1, .bytes = 1 };
        ls_measured one = m;
        one.row = (ls_measured_row *)row, one.n = 1; /* of its unit alone */
        assert_true(fabs(ls_measured_op(&one, &e).busy_s / (row->takes.busy_s / (double)row->calls) - 1) < 1e-9);
        one.routed_after = 0;
        e.flops = row->flops;
        assert_true(fabs(ls_measured_op(&one, &e).busy_s / row->takes.busy_s - 1) < 1e-9);
        ls_measured_free(&m);
        ls_opts_destroy(o);
    }
    ls_expert_loads_free(&l);
    configure((const char *const[]){ NULL }); /* one rank learns by itself */
    if (ls_measure_stages(&c, 1, 1, 4, LS_MEASURE_LONG_S, &m) < 0) fail_msg("%s", ls_last_error());
    assert_int_equal(m.routed_after, 0);
    ls_measured_free(&m);
    ls_opts_destroy(o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loads_are_those_of_a_run_that_learns),
        cmocka_unit_test(ranks_have_what_their_experts_get),
        cmocka_unit_test(lists_know_how_uneven_experts_are),
        cmocka_unit_test(it_takes_as_few_steps_as_it_may),
        cmocka_unit_test(a_model_that_is_too_large_has_no_loads),
        cmocka_unit_test(mirrors_that_do_not_learn_have_these_loads),
    };
    return cmocka_run_group_tests_name("expert_loads", tests, make_text, remove_text);
}
