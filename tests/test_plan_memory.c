/* The ledger of stages: parameters and layers of all stages are the model's, activations those of Korthikanti et al.,
 * the parts sum to the total, and ZeRO divides what it says. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <cmocka.h>

#include "lockstep/opts.h"
#include "plan/stage_memory.h"
#include "train/memory.h"

static void near(const char *what, double x, double y)
{
    if (fabs(x - y) > 1e-12 * fabs(y)) fail_msg("%s is %.17g, expected %.17g", what, x, y);
}
#define NEAR(a, b) near(#a, a, b)

static ls_run run_of(const char *model)
{
    ls_run r = { .t = 1, .p = 1, .v = 1, .c = 1, .e = 1, .d = 1, .micro = 1, .batch = 64, .flash = true };
    assert_int_equal(ls_llm_preset(model, &r.m), LS_OK);
    return r;
}

static ls_stage_memory stage(const ls_run *r, int i, ls_stage_shape *s)
{
    ls_layer_memory l;
    ls_stage_memory m;
    ls_layer_memory_of(r, &l);
    ls_stage_shape_of(r, i, s);
    ls_stage_memory_of(r, &l, s, &m);
    NEAR(m.weights + m.gradients + m.optimizer + m.activations + m.logits + m.gathered + m.workspace + m.reserved,
        m.total);
    return m;
}

/* Every schedule holds each layer once (DualPipe twice), and the ends where they belong. */
static void stages_have_the_model_once(void **state)
{
    static const struct { const char *model; int64_t p, v; ls_pipe_form form; int fewer, copies; } of[] = {
        { "llama3-70b", 1, 1, LS_PIPE_1F1B, 0, 1 },        { "llama3-70b", 8, 1, LS_PIPE_1F1B, 0, 1 },
        { "llama3-405b", 16, 1, LS_PIPE_1F1B, 2, 1 },      { "llama3-405b", 16, 4, LS_PIPE_INTERLEAVED, 2, 1 },
        { "llama3-70b", 4, 2, LS_PIPE_ZB_V, 0, 1 },        { "llama3-70b", 8, 1, LS_PIPE_DUALPIPE, 0, 2 },
        { "qwen3-235b", 8, 1, LS_PIPE_GPIPE, 2, 1 },       { "qwen3-30b", 4, 3, LS_PIPE_INTERLEAVED, 0, 1 },
    };
    (void)state;
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        ls_run r = run_of(of[i].model);
        r.p = of[i].p, r.v = of[i].v, r.form = of[i].form, r.embedding_layers = of[i].fewer;
        double params = 0;
        int64_t layers = 0, first = 0, last = 0;
        for (int k = 0; k < r.p; k++) {
            ls_stage_shape s;
            params += stage(&r, k, &s).weights / 2;
            layers += s.dense + s.sparse;
            first += s.first, last += s.last;
        }
        assert_int_equal(layers, of[i].copies * r.m.layers);
        assert_int_equal(first, of[i].copies);
        assert_int_equal(last, of[i].copies);
        NEAR(params, of[i].copies * (double)ls_llm_params(&r.m));
    }
}

/* DeepSeek-V3: three dense layers first, 58 with experts and one of multi-token prediction. */
static void dense_layers_come_first(void **state)
{
    ls_run r = run_of("deepseek-v3");
    (void)state;
    r.p = 16, r.embedding_layers = 2;
    static const int64_t dense[] = { 3, 0, 0, 0 }, sparse[] = { 0, 4, 4, 4 };
    r.m.mtp = 1;
    for (int i = 0; i < 4; i++) {
        ls_stage_shape s;
        stage(&r, i, &s);
        assert_int_equal(s.dense, dense[i]);
        assert_int_equal(s.sparse, sparse[i]);
    }
    ls_stage_shape s;
    stage(&r, 15, &s);
    assert_int_equal(s.sparse, 3);
    assert_true(s.last && !s.first);
}

/* The same in 8 stages of 4 chunks of 2 layers, of which the first and the last chunk have one: rank i has chunks i,
 * 8 + i ... */
static void chunks_are_those_of_their_rank(void **state)
{
    ls_run r = run_of("deepseek-v3");
    (void)state;
    r.p = 8, r.v = 4, r.form = LS_PIPE_INTERLEAVED, r.embedding_layers = 2, r.m.mtp = 1;
    static const int64_t dense[] = { 1, 2, 0, 0, 0, 0, 0, 0 }, sparse[] = { 6, 6, 8, 8, 8, 8, 8, 7 };
    for (int i = 0; i < 8; i++) {
        ls_stage_shape s;
        stage(&r, i, &s);
        assert_int_equal(s.dense, dense[i]);
        assert_int_equal(s.sparse, sparse[i]);
        assert_true(s.first == (i == 0) && s.last == (i == 7));
    }
}

/* Llama-2 7B: h = 4096, s = 4096, V = 32000; 2 bytes of an activation. */
static void tensor_and_context_parallelism_divide_a_layer(void **state)
{
    ls_run r = run_of("llama2-7b");
    ls_layer_memory l;
    (void)state;
    r.t = 4;
    ls_layer_memory_of(&r, &l);
    NEAR(l.ends, 32000.0 * 4096 / 4);
    NEAR(l.input, 2 * 4096.0 * 4096);
    r.c = 2;
    ls_layer_memory_of(&r, &l);
    NEAR(l.ends, 32000.0 * 4096 / 4);
    NEAR(l.input, 2 * 4096.0 * 4096 / 2);
    NEAR(l.logits, 6 * 4096.0 / 2 * 32000 / 4);
}

static void the_fullest_stage_has_most(void **state)
{
    ls_run r = run_of("llama3-70b");
    (void)state;
    for (int form = LS_PIPE_GPIPE; form <= LS_PIPE_1F1B; form++) {
        double most = 0;
        int want = -1, which = -1;
        r.p = 8, r.form = (ls_pipe_form)form;
        for (int i = 0; i < r.p; i++) {
            ls_stage_shape s;
            const double total = stage(&r, i, &s).total;
            if (total > most) most = total, want = i;
        }
        NEAR(ls_fullest_stage(&r, &which), most);
        assert_int_equal(which, want);
    }
}

static void zero_divides_states(void **state)
{
    ls_run r = run_of("llama2-7b");
    ls_stage_shape s;
    (void)state;
    const double P = (double)ls_llm_params(&r.m), d = 64;
    r.d = 64, r.batch = 64;
    for (r.zero = 0; r.zero <= 3; r.zero++) {
        const ls_stage_memory m = stage(&r, 0, &s);
        NEAR(m.weights + m.gradients + m.optimizer, P * ls_state_bytes(r.zero, 4, 12, (int64_t)d));
        assert_true((m.gathered > 0) == (r.zero == 3));
    }
}

/* Experts are divided among ep, their optimizer among the ranks that have the same ones. */
static void experts_have_their_own_replicas(void **state)
{
    ls_run r = run_of("mixtral-8x7b");
    ls_stage_shape s;
    (void)state;
    const double experts = 32.0 * 8 * (double)ls_llm_expert_params(&r.m), shared = (double)ls_llm_params(&r.m) -
        experts;
    r.d = 16, r.e = 8, r.zero = 1;
    const ls_stage_memory m = stage(&r, 0, &s);
    NEAR(m.weights, 2 * (shared + experts / 8));
    NEAR(m.optimizer, 12 * (shared / 16 + experts / 8 / 2));
}

/* Korthikanti et al. 2022, table 2: s b h (34 + 5 a s / h) without parallelism, 34 s b h / t with selective
 * recomputation and sequence parallelism; 1F1B's first stage has p of them in flight. */
static void activations_are_those_of_the_paper(void **state)
{
    ls_run r = run_of("gpt3-175b");
    ls_stage_shape s;
    (void)state;
    r.flash = false;
    const double sbh = 2048.0 * 12288, L = 96;
    NEAR(stage(&r, 0, &s).activations, L * sbh * (34 + 5.0 * 96 * 2048 / 12288));
    r.t = 8, r.sequence_parallel = true, r.p = 8, r.form = LS_PIPE_1F1B, r.kept = LS_KEEP_SELECTIVE;
    const double scores = sbh / 8 * 5.0 * 96 * 2048 / 12288;
    NEAR(stage(&r, 0, &s).activations, 8 * L / 8 * 34 * sbh / 8 + scores);
    NEAR(stage(&r, 5, &s).activations, 3 * L / 8 * 34 * sbh / 8 + scores);
    r.kept = LS_KEEP_INPUTS;
    NEAR(stage(&r, 0, &s).activations, 8 * L / 8 * 2 * sbh / 8 + 34 * sbh / 8 + scores);
}

/* Activations of the last of two stages, as the ledger of a dry run has them: a GPT of 16 tokens per sequence. */
static double ledger(const char *schedule, const char *tp, const char *vocab, const char *batch)
{
    const char *const flag[][2] = {
        { "model.name", "gpt2" },  { "model.n_layer", "4" },       { "model.n_head", "2" },
        { "model.d_model", "32" }, { "model.seq_len", "16" },      { "model.vocab_size", vocab },
        { "data.path", "none" },   { "train.global_batch", batch }, { "train.micro_batch", "2" },
        { "parallel.pp", "2" },    { "parallel.tp", tp },           { "pipeline.schedule", schedule },
        { "train.steps", "4" },    { "optim.name", "adamw" },       { "pipeline.split", "4,0" }, /* the head alone */
    };
    const int ranks = tp[0] == '2' ? 4 : 2;
    ls_train_config c;
    ls_opts *o;
    ls_memory_plan p;
    assert_int_equal(ls_opts_create(ls_train_opts, ls_train_nopts, &c, &o), LS_OK);
    for (size_t i = 0; i < sizeof flag / sizeof *flag; i++)
        if (ls_opts_set(o, flag[i][0], flag[i][1], "flag") < 0) fail_msg("%s", ls_last_error());
    assert_int_equal(ls_train_config_resolve(o, &c), LS_OK);
    if (ls_train_config_check(&c, ranks) < 0) fail_msg("%s", ls_last_error());
    ls_model_config mc = { .name = c.model.name, .seed = 1 };
    assert_int_equal(ls_train_lm(&c, c.model.vocab_size, &mc.lm), LS_OK);
    if (ls_memory_plan_make(&c, &mc, ranks - 1, ranks, &p) < 0) fail_msg("%s", ls_last_error());
    ls_opts_destroy(o);
    return (double)p.bytes[LS_MEM_ACT];
}

static double planned(ls_pipe_form form, int64_t t, int64_t vocab, int64_t batch)
{
    ls_stage_shape s;
    ls_run r = run_of("gpt2-124m");
    r.m.layers = 4, r.m.heads = 2, r.m.hidden = 32, r.m.seq = 16, r.m.vocab = vocab;
    r.p = 2, r.form = form, r.t = t, r.micro = 2, r.batch = batch;
    return stage(&r, 1, &s).logits;
}

/* What two micro-batches more take with a longer vocabulary, less what they take with a shorter one, are their logits
 * alone: the ledger of the runtime has as many bytes as the formula, whose other activations are those of papers. */
static void gpipe_keeps_the_logits_of_all_micro_batches(void **state)
{
    static const struct { const char *name, *tp; ls_pipe_form form; double bytes; } of[] = {
        { "gpipe", "1", LS_PIPE_GPIPE, 2.0 * 4 * 32 * 2048 },
        { "gpipe", "2", LS_PIPE_GPIPE, 2.0 * 4 * 32 * 1024 }, /* ranks share the vocabulary */
        { "1f1b", "1", LS_PIPE_1F1B, 0 },   /* a backward follows each forward */
    };
    (void)state;
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        const double real = ledger(of[i].name, of[i].tp, "4096", "8") - ledger(of[i].name, of[i].tp, "4096", "4") -
                            ledger(of[i].name, of[i].tp, "2048", "8") + ledger(of[i].name, of[i].tp, "2048", "4");
        const int64_t t = of[i].tp[0] - '0';
        const double plan = planned(of[i].form, t, 4096, 8) - planned(of[i].form, t, 4096, 4) -
                            planned(of[i].form, t, 2048, 8) + planned(of[i].form, t, 2048, 4);
        if (fabs(real - of[i].bytes) > .5 || fabs(plan - of[i].bytes) > .5)
            fail_msg("%s, tp %s: the ledger has %.0f bytes more, the plan %.0f, expected %.0f", of[i].name, of[i].tp,
                     real, plan, of[i].bytes);
    }
    /* 128 MiB of logits are made in backward: what is left per micro-batch is a block of 4096 tokens, and some words
     * per row, which no formula has. */
    const double real = ledger("gpipe", "1", "1048576", "8") - ledger("gpipe", "1", "1048576", "4") -
                        ledger("gpipe", "1", "4096", "8") + ledger("gpipe", "1", "4096", "4");
    const double plan = planned(LS_PIPE_GPIPE, 1, 1 << 20, 8) - planned(LS_PIPE_GPIPE, 1, 1 << 20, 4) -
                        planned(LS_PIPE_GPIPE, 1, 4096, 8) + planned(LS_PIPE_GPIPE, 1, 4096, 4);
    if (fabs(plan) > .5 || fabs(real) > 4 * 32 * 16)
        fail_msg("128 MiB: the ledger has %.0f bytes more, the plan %.0f", real, plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stages_have_the_model_once),
        cmocka_unit_test(dense_layers_come_first),
        cmocka_unit_test(chunks_are_those_of_their_rank),
        cmocka_unit_test(tensor_and_context_parallelism_divide_a_layer),
        cmocka_unit_test(the_fullest_stage_has_most),
        cmocka_unit_test(zero_divides_states),
        cmocka_unit_test(experts_have_their_own_replicas),
        cmocka_unit_test(activations_are_those_of_the_paper),
        cmocka_unit_test(gpipe_keeps_the_logits_of_all_micro_batches),
    };
    return cmocka_run_group_tests_name("plan_memory", tests, NULL, NULL);
}
