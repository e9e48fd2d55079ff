/* config: the keys of `lockstep train`, and which of their values go together and are served. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/context.h"
#include "base/env.h"
#include "base/opts_text.h"
#include "parallel/strategy.h"
#include "train/config.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

static ls_opts *fresh(ls_train_config *c)
{
    ls_opts *o;
    ls_status st = ls_opts_create(ls_train_opts, ls_train_nopts, c, &o);
    if (st != LS_OK) fail_msg("%s", ls_last_error());
    return o;
}

static void set(ls_opts *o, const char *name, const char *value)
{
    if (ls_opts_set(o, name, value, "flag") != LS_OK) fail_msg("%s", ls_last_error());
}

static void assert_says(const char *want)
{
    if (!strstr(ls_last_error(), want)) fail_msg("expected \"%s\" in \"%s\"", want, ls_last_error());
}

/* The keys that checks from outside use; none may go away. */
static const char *const keys[] = {
    "model.name",
    "model.dims",
    "model.forward_ms",
    "model.backward_ms",
    "model.n_layer",
    "model.n_head",
    "model.n_kv_head",
    "model.d_model",
    "model.d_ff",
    "model.vocab_size",
    "model.seq_len",
    "model.init",
    "model.load",
    "model.preset",
    "model.tied",
    "model.norm_eps",
    "model.rope_theta",
    "model.embd_dropout",
    "model.attn_dropout",
    "model.resid_dropout",
    "data.name",
    "data.path",
    "data.format",
    "data.tokenizer",
    "data.drop_last",
    "data.workers",
    "data.ignore_token",
    "train.steps",
    "train.epochs",
    "train.global_batch",
    "train.micro_batch",
    "train.seed",
    "train.dtype",
    "train.recompute",
    "train.pack_weights",
    "train.numerics",
    "train.grain",
    "train.seq_len",
    "train.eval_every",
    "train.eval_batches",
    "train.sample_every",
    "train.sample_tokens",
    "train.sample_prompt",
    "optim.name",
    "optim.lr",
    "optim.momentum",
    "optim.betas",
    "optim.eps",
    "optim.weight_decay",
    "optim.clip",
    "optim.schedule",
    "optim.warmup",
    "optim.min_lr",
    "optim.min_lr_ratio",
    "optim.decay",
    "optim.decay_steps",
    "optim.loss_scale",
    "optim.scale_init",
    "optim.scale_growth",
    "optim.scale_backoff",
    "optim.scale_interval",
    "parallel.dp",
    "parallel.dp_strategy",
    "parallel.tp",
    "parallel.sp",
    "parallel.tp_pieces",
    "parallel.pp",
    "parallel.cp",
    "parallel.context",
    "parallel.cp_ulysses",
    "parallel.cp_split",
    "parallel.ep",
    "parallel.order",
    "parallel.placement",
    "ddp.bucket_cap",
    "ddp.first_bucket",
    "ddp.find_unused",
    "ddp.static_graph",
    "ddp.hook",
    "ddp.bucket_view",
    "zero.stage",
    "zero.reduce",
    "zero.copy",
    "zero.units",
    "zero.prefetch",
    "zero.reshard",
    "zero.hsdp",
    "pipeline.schedule",
    "pipeline.chunks",
    "checkpoint.dir",
    "checkpoint.every",
    "checkpoint.keep",
    "checkpoint.best",
    "checkpoint.timeout",
    "checkpoint.async",
    "checkpoint.snapshot",
    "checkpoint.resume",
    "checkpoint.consolidate",
    "log.every",
    "log.format",
    "log.tensorboard",
    "log.straggler",
    "trace.steps",
    "comm.backend",
    "comm.transport",
    "comm.algo",
    "comm.progress",
    "comm.timeout",
    "comm.wire",
    "comm.check",
    "run.dir",
    "run.name",
    "memory.check",
    "memory.limit",
    "dry-run",
    "nproc-per-node",
    "print-config",
    "inject",
    "eval-only",
};

static void knows_every_key_and_explains_it(void **state)
{
    (void)state;
    ls_train_config c;
    ls_opts *o = fresh(&c);
    char *help = ls_opts_help(o, "u", "s", NULL);
    assert_non_null(help);
    for (size_t i = 0; i < COUNT(keys); i++) {
        char flag[64];
        size_t row = ls_opts_find(o, keys[i]);
        if (row == ls_train_nopts) fail_msg("no key %s", keys[i]);
        snprintf(flag, sizeof flag, "--%s", keys[i]);
        if (!strstr(help, flag)) fail_msg("--help lacks %s", flag);
    }
    for (size_t i = 0; i < ls_train_nopts; i++) {
        const ls_opt *row = &ls_train_opts[i];
        assert_true(row->help && *row->help);
        bool numeric = row->type != LS_OPT_STRING && row->type != LS_OPT_BOOL;
        if (numeric && (!row->def || !row->range)) fail_msg("%s has no default or no range", row->name);
        for (size_t k = 0; k < i; k++) assert_string_not_equal(row->name, ls_train_opts[k].name);
    }
    free(help);
    ls_opts_destroy(o);
}

static void understands_the_names_of_other_trainers(void **state)
{
    (void)state;
    static const struct { const char *alias, *name; } row[] = {
        { "parallelism.tensor_parallel_degree", "parallel.tp" },
        { "tensor-model-parallel-size", "parallel.tp" },
        { "pipeline_model_parallel_size", "parallel.pp" },
        { "context-parallel-size", "parallel.cp" },
        { "expert-model-parallel-size", "parallel.ep" },
        { "parallelism.data_parallel_degree", "parallel.dp" },
        { "optim.grad_clip", "optim.clip" },
        { "optim.warmup-steps", "optim.warmup" },
        { "training.seq_len", "train.seq_len" },
        { "validation.freq", "train.eval_every" },
        { "train.eval_interval", "train.eval_every" },
        { "train.eval_iters", "train.eval_batches" },
    };
    for (size_t i = 0; i < COUNT(row); i++) {
        ls_train_config c;
        ls_opts *o = fresh(&c);
        set(o, row[i].alias, "2");
        assert_true(ls_opts_is_set(o, row[i].name));
        ls_opts_destroy(o);
    }
}

static void accepts_its_defaults_for_any_world_that_shares_the_batch(void **state)
{
    (void)state;
    for (int size = 1; size <= 64; size *= 2) {
        ls_train_config c;
        ls_opts *o = fresh(&c);
        if (ls_train_config_check(&c, size) != LS_OK) fail_msg("%d ranks: %s", size, ls_last_error());
        ls_opts_destroy(o);
    }
}

static void refuses_what_this_version_does_not_serve(void **state)
{
    (void)state;
    static const struct { const char *name, *value, *says; } row[] = {
        { "train.dtype", "bf16", "train.dtype bf16: an mlp trains in f32; gpt2" },
        { "comm.backend", "nccl", "comm.backend nccl is not implemented: sched, mpi, auto and gloo are" },
    };
    for (size_t i = 0; i < COUNT(row); i++) {
        ls_train_config c;
        ls_opts *o = fresh(&c);
        set(o, row[i].name, row[i].value);
        if (ls_train_config_check(&c, 1) != LS_UNSUPPORTED) fail_msg("%s %s passed", row[i].name, row[i].value);
        assert_says(row[i].says);
        ls_opts_destroy(o);
    }
}

static void refuses_values_that_do_not_fit_together(void **state)
{
    (void)state;
    static const struct { const char *name, *value; int size; const char *says; } row[] = {
        { "parallel.dp", "4", 2, "parallel.dp is 4 but the job has 2 ranks" },
        { "train.global_batch", "100", 3, "which 3 ranks cannot share equally: the nearest that fit are 99 and 102" },
        { "train.global_batch", "2", 3, "the nearest that fits is 3" },
        { "train.micro_batch", "8", 3, "which 3 ranks cannot share equally: the nearest that fit are 120 and 144" },
        { "train.micro_batch", "48", 2, "train.micro_batch is 48, which does not divide the 64 samples of a rank: the nearest that do are "
                                        "32 and 64" },
        { "train.micro_batch", "200", 2, "which does not divide the 64 samples of a rank: the nearest that does is 64" },
        { "model.init", "file", 1, "model.init file needs model.load" },
        { "eval-only", "true", 1, "--eval-only needs model.load" },
        { "model.dims", "784", 1, "model.dims has 1 numbers: expected inputs, widths or channels, classes" },
        { "optim.betas", "[0.9]", 1, "optim.betas has 1 numbers: expected two, as [0.9, 0.999]" },
        { "trace.steps", "5:3", 1, "trace.steps is '5:3': expected FIRST:LAST" },
        { "trace.steps", "0:3", 1, "expected FIRST:LAST" },
        { "trace.steps", "3-5", 1, "expected FIRST:LAST" },
        { "comm.transport", "pigeon", 2, "no transport named 'pigeon': expected one of shm, tcp, mixed and self, or fault:<one of them>" },
    };
    for (size_t i = 0; i < COUNT(row); i++) {
        ls_train_config c;
        ls_opts *o = fresh(&c);
        set(o, row[i].name, row[i].value);
        if (ls_train_config_check(&c, row[i].size) != LS_BAD_CONFIG) fail_msg("%s %s passed", row[i].name, row[i].value);
        assert_says(row[i].says);
        ls_opts_destroy(o);
    }
}

/* Every word that --help shows is a strategy's name; it brings its stage along, unless another one is given. */
static void a_strategy_is_chosen_by_name(void **state)
{
    (void)state;
    static const struct { const char *name, *stage, *wire; ls_status st; int has; const char *says; } row[] = {
        { "auto", NULL, NULL, LS_OK, 0, NULL },
        { "auto", "1", NULL, LS_OK, 1, NULL },
        { "ddp", NULL, NULL, LS_OK, 0, NULL },
        { "ddp", "0", NULL, LS_OK, 0, NULL },
        { "fsdp", NULL, NULL, LS_OK, 1, NULL },
        { "fsdp", "1", NULL, LS_OK, 1, NULL },
        { "ddp", NULL, "bf16", LS_OK, 0, NULL },
        { "fsdp", NULL, "bf16", LS_OK, 1, NULL },
        { "fsdp", "3", "bf16", LS_OK, 3, NULL },
        { "ddp", "1", NULL, LS_BAD_CONFIG, 1, "parallel.dp_strategy is ddp, but zero.stage is 1: set zero.stage to 0, or "
                                              "parallel.dp_strategy to fsdp or auto" },
        { "fsdp", "0", NULL, LS_BAD_CONFIG, 0, "parallel.dp_strategy is fsdp, but zero.stage is 0: set zero.stage to 1, or "
                                               "parallel.dp_strategy to ddp or auto" },
    };
    for (size_t i = 0; i < COUNT(row); i++) {
        ls_train_config c;
        ls_plan p;
        ls_opts *o = fresh(&c);
        set(o, "parallel.dp_strategy", row[i].name);
        if (row[i].stage) set(o, "zero.stage", row[i].stage);
        if (row[i].wire) set(o, "comm.wire", row[i].wire);
        assert_int_equal(ls_train_config_resolve(o, &c), LS_OK);
        const ls_status st = ls_train_config_check(&c, 2);
        if (st != row[i].st) fail_msg("row %zu: %s", i, st < 0 ? ls_last_error() : "passed");
        if (st < 0) assert_says(row[i].says);
        assert_int_equal(ls_train_plan(&c, 2, &p), LS_OK);
        assert_int_equal(p.ddp.zero_stage, row[i].has);
        if (strcmp(row[i].name, "auto") == 0) assert_null(p.dp);
        else assert_string_equal(p.dp, row[i].name);
        ls_opts_destroy(o);
    }
    ls_train_config c;
    ls_opts *o = fresh(&c);
    assert_int_equal(ls_opts_set(o, "parallel.dp_strategy", "horovod", "flag"), LS_USAGE);
    assert_says(ls_dp_choices);
    set(o, "parallel.dp_strategy", "fsdp");
    assert_int_equal(ls_train_config_resolve(o, &c), LS_OK);
    assert_string_equal(ls_opts_origin(o, "zero.stage"), "parallel.dp_strategy fsdp");
    ls_opts_destroy(o);
    char names[64];
    snprintf(names, sizeof names, "%s", ls_dp_choices);
    assert_string_equal(strtok(names, "|"), "auto");
    for (const char *name; (name = strtok(NULL, "|"));) {
        const ls_dp_strategy *s;
        if (ls_dp_strategy_find(name, NULL, &s) < 0) fail_msg("%s", ls_last_error());
        assert_string_equal(s->name, name);
    }
    for (int stage = 0; stage <= ls_ddp_most_stage(); stage++) {
        const ls_dp_strategy *s;
        assert_int_equal(ls_dp_strategy_of(stage, &s), LS_OK);
        if (!strstr(ls_dp_choices, s->name)) fail_msg("%s is not offered", s->name);
    }
}

static void reads_steps_and_betas(void **state)
{
    (void)state;
    static const struct { const char *text; uint32_t first, last; } row[] = {
        { "", 0, 0 }, { "10", 10, 10 }, { "10:13", 10, 13 }, { "1:4294967295", 1, UINT32_MAX },
    };
    for (size_t i = 0; i < COUNT(row); i++) {
        uint32_t first, last;
        ls_train_config c = { .trace.steps = row[i].text };
        assert_int_equal(ls_train_trace_steps(&c, &first, &last), LS_OK);
        assert_int_equal(first, row[i].first);
        assert_int_equal(last, row[i].last);
    }
    double b1, b2;
    ls_train_config c;
    ls_opts *o = fresh(&c);
    static const char yaml[] = "optim: {betas: [0.8, 0.95]}";
    assert_int_equal(ls_opts_read_yaml(o, "run.yaml", yaml, sizeof yaml - 1), LS_OK);
    assert_int_equal(ls_train_betas(&c, &b1, &b2), LS_OK);
    assert_true(b1 == 0.8 && b2 == 0.95);
    ls_opts_destroy(o);
}

static void gives_adamw_its_weight_decay(void **state)
{
    (void)state;
    static const struct { const char *name, *given; double want; } row[] = {
        { "adamw", NULL, 0.01 }, { "adamw", "0", 0.0 }, { "adam", NULL, 0.0 }, { "sgd", "0.5", 0.5 },
    };
    for (size_t i = 0; i < COUNT(row); i++) {
        ls_train_config c;
        ls_opts *o = fresh(&c);
        set(o, "optim.name", row[i].name);
        if (row[i].given) set(o, "optim.weight_decay", row[i].given);
        assert_int_equal(ls_train_config_resolve(o, &c), LS_OK);
        assert_true(c.optim.weight_decay == row[i].want);
        ls_opts_destroy(o);
    }
}

/* An optimizer of tomorrow: it has its own ideas of the keys that it reads, and of one that only sgd does. */
static void gives_an_optimizer_its_own_defaults(void **state)
{
    (void)state;
    const ls_optim_class cls = {
        .name = "other", .keys = (const char *const[]){ "optim.betas", NULL },
        .defaults = { .lr = 1e-4, .beta1 = 0.9, .beta2 = 0.99, .weight_decay = 0.25, .momentum = 0.5 },
    };
    ls_train_config c;
    ls_opts *o = fresh(&c);
    assert_int_equal(ls_train_optim_defaults(o, &c, &cls), LS_OK);
    assert_true(c.optim.lr == 1e-4 && c.optim.weight_decay == 0.25 && c.optim.betas.n == 2);
    assert_true(c.optim.betas.v[0] == 0.9 && c.optim.betas.v[1] == 0.99);
    assert_true(c.optim.momentum == 0.0 && c.optim.eps == 1e-8); /* keys of others */
    assert_int_equal(ls_train_check_given(o, &c), LS_OK);        /* nobody gave them */
    ls_opts_destroy(o);

    o = fresh(&c);
    set(o, "optim.lr", "0.001");
    set(o, "optim.betas", "0.9,0.999");
    assert_int_equal(ls_train_optim_defaults(o, &c, &cls), LS_OK);
    assert_true(c.optim.lr == 1e-3 && c.optim.betas.v[1] == 0.999 && c.optim.weight_decay == 0.25);
    ls_opts_destroy(o);
}

static void makes_a_learning_rate_schedule_of_its_keys(void **state)
{
    (void)state;
    static const struct { const char *schedule, *warmup, *key, *value; ls_lr want; } row[] = {
        { "constant", "0", "optim.min_lr", "0", { LS_LR_CONSTANT, 0.5, 0.0, 0, 100, 20 } },
        { "linear", "7", "optim.min_lr", "0.125", { LS_LR_LINEAR, 0.5, 0.25, 7, 100, 20 } },
        { "cosine", "200", "optim.min_lr_ratio", "0.1", { LS_LR_COSINE, 0.5, 0.1, 200, 100, 20 } },
        { "wsd", "5", "optim.decay_steps", "30", { LS_LR_WSD, 0.5, 0.0, 5, 100, 30 } },
    };
    for (size_t i = 0; i < COUNT(row); i++) {
        ls_train_config c;
        ls_lr got;
        ls_opts *o = fresh(&c);
        set(o, "optim.lr", "0.5");
        set(o, "optim.lr_schedule", row[i].schedule);
        set(o, "optim.warmup", row[i].warmup);
        set(o, row[i].key, row[i].value);
        assert_int_equal(ls_train_config_check(&c, 1), LS_OK);
        assert_int_equal(ls_train_lr(&c, 1, 100, &got), LS_OK);
        assert_int_equal(got.kind, row[i].want.kind);
        assert_true(got.peak == row[i].want.peak && got.min_ratio == row[i].want.min_ratio);
        assert_true(got.warmup == row[i].want.warmup && got.steps == 100 && got.decay == row[i].want.decay);
        ls_opts_destroy(o);
    }
    ls_train_config c;
    ls_opts *o = fresh(&c);
    ls_lr scaled;
    set(o, "optim.lr", "0.25");
    set(o, "optim.min_lr", "0.5");
    set(o, "optim.scale_lr", "linear");
    assert_int_equal(ls_train_lr(&c, 4, 100, &scaled), LS_OK);
    assert_true(scaled.peak == 1.0 && scaled.min_ratio == 0.5); /* optim.min_lr stays 0.5 */
    assert_int_equal(ls_train_config_check(&c, 1), LS_BAD_CONFIG);
    assert_says("optim.min_lr is 0.5, more than optim.lr, which is 0.25");
    set(o, "optim.scale_lr", "sqrt");
    assert_int_equal(ls_train_lr(&c, 4, 100, &scaled), LS_OK);
    assert_true(scaled.peak == 0.5 && scaled.min_ratio == 1.0);
    assert_int_equal(ls_train_config_check(&c, 2), LS_BAD_CONFIG);
    assert_says("more than optim.lr, which is 0.353553 after optim.scale_lr sqrt");
    ls_opts_destroy(o);
    o = fresh(&c);
    set(o, "optim.min_lr", "0.1");
    assert_int_equal(ls_train_config_check(&c, 1), LS_BAD_CONFIG);
    assert_says("optim.min_lr is 0.1, more than optim.lr, which is 0.001");
    set(o, "optim.min_lr", "1e-4");
    set(o, "optim.min_lr_ratio", "0.2");
    assert_int_equal(ls_train_config_check(&c, 1), LS_BAD_CONFIG);
    assert_says("optim.min_lr is 0.0001 and optim.min_lr_ratio is 0.2: expected only one of them: set the other to 0");
    ls_opts_destroy(o);
}

static void saves_a_configuration_that_runs_again(void **state)
{
    (void)state;
    ls_train_config c, again;
    ls_opts *o = fresh(&c), *second = fresh(&again);
    set(o, "model.dims", "64,32,10");
    set(o, "optim.betas", "0.5,0.75");
    set(o, "comm.timeout", "5s");
    set(o, "nproc-per-node", "4");
    char *text = ls_opts_yaml(o);
    if (ls_opts_read_yaml(second, "config.yaml", text, strlen(text)) != LS_OK) fail_msg("%s", ls_last_error());
    char *back = ls_opts_yaml(second);
    assert_string_equal(text, back);
    assert_null(strstr(text, "nproc"));
    free(text);
    free(back);
    ls_opts_destroy(o);
    ls_opts_destroy(second);
}

static int seven_cpus(void) { return 7; }

static void counts_the_ranks_to_start(void **state)
{
    (void)state;
    static const struct { const char *text; int ranks; } row[] = {
        { "0", 0 }, { "3", 3 }, { "256", 256 }, { "auto", 7 }, { "257", -1 }, { "-1", -1 }, { "2x", -1 }, { "", -1 }, { "all", -1 },
    };
    ls_env env = *ls_env_get();
    env.cpus = seven_cpus;
    ls_context machine = { .env = &env, .rank = -1 };
    for (size_t i = 0; i < COUNT(row); i++) {
        ls_train_config c;
        ls_opts *o = fresh(&c);
        set(o, "nproc-per-node", row[i].text);
        ls_context *before = ls_context_swap(&machine);
        const int ranks = ls_train_nproc(&c);
        ls_context_swap(before);
        if (ranks != row[i].ranks) fail_msg("%s is %d ranks", row[i].text, ranks);
        const ls_status st = ls_train_config_resolve(o, &c);
        assert_int_equal(st, ranks < 0 ? LS_USAGE : LS_OK);
        if (st < 0) assert_says("expected 0 to 256, or auto");
        ls_opts_destroy(o);
    }
}

/* "(not implemented)": every value except the default; "(not implemented: a, b)": these. */
/* Without --nproc-per-node the degrees say how many ranks there are. */
static void counts_the_ranks_of_all_degrees(void **state)
{
    (void)state;
    static const struct { const char *key[3]; int ranks; } row[] = {
        { { NULL }, 1 }, { { "parallel.dp" }, 2 }, { { "parallel.dp", "parallel.tp" }, 4 },
        { { "parallel.pp", "parallel.cp" }, 4 }, { { "parallel.ep", "parallel.dp", "parallel.pp" }, 8 },
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        ls_train_config c;
        ls_opts *o = fresh(&c);
        set(o, "nproc-per-node", "0");
        for (int k = 0; k < 3 && row[i].key[k]; k++) set(o, row[i].key[k], "2");
        assert_int_equal(ls_train_ranks(&c), row[i].ranks);
        ls_opts_destroy(o);
    }
}

/* A copy of the weights is worth its price from four micro-batches per step on, where products are in bf16. */
static void packs_weights_where_that_pays(void **state)
{
    (void)state;
    static const struct { const char *key[8]; int ranks; bool packs; } row[] = {
        { { "train.dtype", "bf16", "train.micro_batch", "2" }, 1, true }, /* 4 micro-batches */
        { { "train.dtype", "bf16", "train.micro_batch", "4" }, 1, false },
        { { "train.dtype", "bf16", "train.micro_batch", "2" }, 2, false },
        { { "train.dtype", "bf16" }, 1, false },
        { { "train.dtype", "f32", "train.micro_batch", "2" }, 1, false },
        { { "train.dtype", "bf16", "train.micro_batch", "2", "zero.stage", "3" }, 1, false },
        { { "train.dtype", "bf16", "train.micro_batch", "2", "train.numerics", "invariant" }, 1, false },
        { { "train.pack_weights", "always" }, 2, true },
        { { "train.dtype", "bf16", "train.micro_batch", "1", "train.pack_weights", "never" }, 1, false },
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        ls_train_config c;
        ls_opts *o = fresh(&c);
        set(o, "model.name", "gpt2");
        set(o, "train.global_batch", "8");
        for (int k = 0; k < 8 && row[i].key[k]; k += 2) set(o, row[i].key[k], row[i].key[k + 1]);
        if (ls_train_packs(&c, row[i].ranks) != row[i].packs) fail_msg("row %zu", i);
        ls_opts_destroy(o);
    }
}

static bool is_marked(const ls_opt *row, const char *value)
{
    const char *mark = strstr(row->help, "(not implemented"), *colon = mark ? mark + strlen("(not implemented") : "";
    if (*colon == ')') return strcmp(value, row->def) != 0;
    for (const char *p = colon; *p == ':' || *p == ',';) {
        p += 2;
        const size_t n = strcspn(p, ",)");
        if (strlen(value) == n && strncmp(p, value, n) == 0) return true;
        p += n;
    }
    return false;
}

/* Set alone, beside a model and an optimizer that may read it; the message is ls_last_error's. */
static ls_status takes(const char *key, const char *value)
{
    static const char *const with[][6] = {
        { "model.name", "moe", "data.path", "t", "moe.capacity_factor", "1" },
        { "optim.name", "sgd" }, { "model.name", "gpt2", "data.path", "t", "optim.schedule", "wsd" },
        { "model.name", "llama", "data.path", "t" }, { "zero.stage", "1" }, { "comm.backend", "mpi" },
        { "model.name", "gpt2", "data.path", "t", "parallel.tp", "2" }, { "model.name", "gpt2", "data.path", "t", "parallel.cp", "4" },
        { "model.name", "gpt2", "data.path", "t", "parallel.pp", "2" },
        { "ddp.hook", "powersgd" }, { "zero.stage", "3" }, { "zero.stage", "3", "zero.copy", "rank" },
    };
    ls_status st = LS_BAD_CONFIG;
    for (size_t i = 0; i < COUNT(with) && st < 0; i++) {
        ls_train_config c;
        ls_opts *o = fresh(&c);
        st = LS_OK;
        for (size_t k = 0; k < 6 && with[i][k] && st == LS_OK; k += 2)
            if (strcmp(with[i][k], key) != 0) st = ls_opts_set(o, with[i][k], with[i][k + 1], "flag");
        if (st == LS_OK) st = ls_opts_set(o, key, value, "flag");
        if (st == LS_OK) st = ls_train_check_given(o, &c);
        if (st == LS_OK && strcmp(value, "file") == 0) st = ls_opts_set(o, "model.load", "x", "flag");
        if (st == LS_OK) st = ls_train_config_check(&c, ls_train_ranks(&c));
        ls_opts_destroy(o);
    }
    return st;
}

static void help_marks_what_is_refused_and_nothing_else(void **state)
{
    (void)state;
    int marked = 0;
    for (size_t i = 0; i < ls_train_nopts; i++) {
        const ls_opt *row = &ls_train_opts[i];
        char value[32];
        const bool words = row->type == LS_OPT_CHOICE, flag = row->type == LS_OPT_BOOL, some = strstr(row->help, "(not implemented");
        marked += some;
        if (!words && !flag && !some) continue; /* numbers: test_key_ranges.c */
        const char *p = words ? row->range : flag ? "false|true" : strcmp(row->name, "zero.stage") == 0 ? "0|1|2|3" : "0|1|2|auto";
        for (; *p; p += strcspn(p, "|") + (p[strcspn(p, "|")] == '|')) {
            snprintf(value, sizeof value, "%.*s", (int)strcspn(p, "|"), p);
            if (strcmp(row->name, "help") == 0 || strcmp(row->name, "eval-only") == 0 || strcmp(value, row->def) == 0) continue;
            const ls_status st = takes(row->name, value);
            if (is_marked(row, value) && st == LS_OK) fail_msg("%s %s passed, and --help says that it is not implemented", row->name, value);
            if (is_marked(row, value) && !strstr(ls_last_error(), row->name)) fail_msg("%s is not named: %s", row->name, ls_last_error());
            if (!is_marked(row, value) && st != LS_OK) fail_msg("%s %s: %s", row->name, value, ls_last_error());
        }
        if (strstr(row->help, "(not implemented)") && words && !strchr(row->range, '|') && takes(row->name, "other") == LS_OK)
            fail_msg("%s takes anything", row->name);
    }
    assert_true(marked >= 2);
}

/* What is set beside the key, the key, a value that its default is not, what it belongs to. */
static const struct { const char *with[4], *key, *value, *says; } unread[] = {
    { { "model.name", "gpt2" }, "model.dims", "8,4",
      "model.dims belongs to model.name mlp, cnn and timed, and model.name is gpt2: leave it out (it is set by flag)" },
    { { "model.name", "llama" }, "model.activation", "gelu", "model.name mlp" },
    { { NULL }, "model.n_layer", "2", "model.n_layer belongs to model.name gpt2" },
    { { NULL }, "model.n_head", "2", "belongs to model.name gpt2" },
    { { NULL }, "model.d_model", "64", "belongs to model.name gpt2" },
    { { NULL }, "model.d_ff", "64", "belongs to model.name gpt2" },
    { { NULL }, "model.vocab_size", "64", "belongs to model.name gpt2" },
    { { NULL }, "model.seq_len", "64", "belongs to model.name gpt2" },
    { { NULL }, "model.norm_eps", "1e-6", "belongs to model.name gpt2" },
    { { NULL }, "model.tied", "false", "belongs to model.name gpt2" },
    { { "model.name", "gpt2" }, "model.n_kv_head", "2", "model.n_kv_head belongs to model.name llama" },
    { { "model.name", "gpt2" }, "model.rope_theta", "5e5", "model.name llama" },
    { { "model.name", "llama" }, "model.embd_dropout", "0.1", "model.embd_dropout belongs to model.name gpt2, and model.name is llama" },
    { { "model.name", "llama" }, "model.attn_dropout", "0.1", "model.name gpt2" },
    { { NULL }, "model.resid_dropout", "0.1", "model.name gpt2" },
    { { "data.name", "synthetic" }, "data.path", "x", "data.path belongs to data in files, and data.name is synthetic" },
    { { "data.name", "synthetic" }, "data.format", "idx", "and data.name is synthetic" },
    { { "model.name", "gpt2", "data.name", "sotu" }, "data.format", "nanogpt", "and data.name is sotu" },
    { { NULL }, "data.tokenizer", "byte", "belongs to model.name gpt2" },
    { { NULL }, "data.ignore_token", "3", "belongs to model.name gpt2" },
    { { "model.name", "gpt2" }, "data.drop_last", "true", "data.drop_last belongs to model.name mlp" },
    { { NULL }, "train.seq_len", "8", "belongs to model.name gpt2" },
    { { NULL }, "train.recompute", "full", "belongs to model.name gpt2" },
    { { NULL }, "train.pack_weights", "always", "belongs to model.name gpt2" },
    { { NULL }, "train.sample_every", "3", "belongs to model.name gpt2" },
    { { "model.name", "gpt2" }, "train.sample_tokens", "3", "train.sample_tokens belongs to train.sample_every above 0, and train.sample_every is 0" },
    { { "model.name", "gpt2" }, "train.sample_prompt", "x", "train.sample_every is 0" },
    { { NULL }, "optim.momentum", "0.9", "optim.momentum belongs to optim.name sgd, and optim.name is adam" },
    { { "optim.name", "sgd" }, "optim.betas", "0.9,0.95", "optim.betas belongs to optim.name adam and adamw, and optim.name is sgd" },
    { { "optim.name", "sgd" }, "optim.eps", "1e-6", "optim.name is sgd" },
    { { NULL }, "optim.min_lr", "1e-5", "optim.min_lr belongs to optim.schedule linear, cosine and wsd, and optim.schedule is constant" },
    { { NULL }, "optim.min_lr_ratio", "0.1", "optim.schedule is constant" },
    { { "optim.schedule", "cosine" }, "optim.decay_steps", "3", "optim.decay_steps belongs to optim.schedule wsd, and optim.schedule is cosine" },
    { { NULL }, "optim.scale_init", "1024", "optim.scale_init belongs to optim.loss_scale dynamic, and optim.loss_scale is none" },
    { { "optim.loss_scale", "128" }, "optim.scale_growth", "4", "optim.scale_growth belongs to optim.loss_scale dynamic, and optim.loss_scale is \"128\"" },
    { { NULL }, "optim.scale_backoff", "0.25", "optim.scale_backoff belongs to optim.loss_scale dynamic" },
    { { NULL }, "optim.scale_interval", "5", "optim.scale_interval belongs to optim.loss_scale dynamic" },
    { { "zero.stage", "1" }, "zero.reduce", "last", "zero.reduce belongs to zero.stage 2 and 3, and zero.stage is 1" },
    { { NULL }, "zero.units", "model", "zero.units belongs to versions to come: units are layers" },
    { { "zero.stage", "2" }, "zero.copy", "rank", "zero.copy belongs to zero.stage 3, and zero.stage is 2" },
    { { "zero.stage", "3" }, "zero.prefetch", "2", "zero.prefetch belongs to zero.stage 3 with zero.copy rank, and zero.copy is host" },
    { { NULL }, "zero.reshard", "never", "zero.reshard belongs to zero.stage 3 with zero.copy rank" },
    { { NULL }, "pipeline.schedule", "gpipe", "pipeline.schedule belongs to parallel.pp above 1, and parallel.pp is 1" },
    { { NULL }, "pipeline.chunks", "2", "pipeline.chunks belongs to parallel.pp above 1, and parallel.pp is 1" },
    { { NULL }, "pipeline.split", "1,1", "pipeline.split belongs to parallel.pp above 1, and parallel.pp is 1" },
    { { NULL }, "comm.order", "ranks", "comm.backend mpi, and comm.backend is sched" },
    { { "comm.transport", "shm" }, "comm.security", "encrypt", "comm.transport tcp and mixed, and comm.transport is shm" },
    { { "comm.transport", "shm" }, "comm.check", "none", "comm.transport is shm" },
    { { "comm.transport", "fault:shm" }, "comm.check", "none", "comm.transport is \"fault:shm\"" },
    { { "comm.transport", "self" }, "comm.wire", "bf16", "comm.wire belongs to comm.transport tcp and mixed, and comm.transport is self" },
    { { "eval-only", "true" }, "dump-buckets", "true", "training, and eval-only is true" },
    { { "eval-only", "true" }, "inject", "nan@0:1", "eval-only is true" },
    { { "eval-only", "true" }, "predict", "true", "training, and eval-only is true" },
};

static void refuses_keys_that_nothing_of_the_run_reads(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(unread); i++) {
        ls_train_config c;
        ls_opts *o = fresh(&c);
        for (int k = 0; k < 4 && unread[i].with[k]; k += 2) set(o, unread[i].with[k], unread[i].with[k + 1]);
        if (ls_train_check_given(o, &c) != LS_OK) fail_msg("%s: %s", unread[i].key, ls_last_error());
        const char *def = ls_train_opts[ls_opts_find(o, unread[i].key)].def;
        set(o, unread[i].key, unread[i].value);
        assert_false(ls_opts_is_default(o, unread[i].key));
        const ls_status st = ls_train_check_given(o, &c);
        if (st != LS_BAD_CONFIG && st != LS_UNSUPPORTED) fail_msg("%s %s passed", unread[i].key, unread[i].value);
        if (strncmp(ls_last_error(), unread[i].key, strlen(unread[i].key)) != 0) fail_msg("%s is not named: %s", unread[i].key, ls_last_error());
        assert_says(unread[i].says);
        set(o, unread[i].key, def); /* its default asks for nothing */
        if (ls_train_check_given(o, &c) != LS_OK) fail_msg("%s by default: %s", unread[i].key, ls_last_error());
        ls_opts_destroy(o);
    }
}

/* A key of a file is refused with its line; a flag that sets the default undoes it. */
static void says_where_an_unread_key_is_set(void **state)
{
    (void)state;
    static const char yaml[] = "optim:\n  min_lr_ratio: 0.1\n";
    ls_train_config c;
    ls_opts *o = fresh(&c);
    assert_int_equal(ls_opts_read_yaml(o, "run.yaml", yaml, sizeof yaml - 1), LS_OK);
    assert_int_equal(ls_train_check_given(o, &c), LS_BAD_CONFIG);
    assert_says("(it is set by run.yaml:2)");
    set(o, "optim.min_lr_ratio", "0");
    assert_int_equal(ls_train_check_given(o, &c), LS_OK);
    ls_opts_destroy(o);
}

static void accepts_the_recipes(void **state)
{
    (void)state;
    static const char *const names[] = { "fashion-mnist", "fashion-cnn", "exercise-mlp", "gpt2-tiny", "gpt2-124m",
                                         "llama-tiny",    "moe-tiny" };
    for (size_t i = 0; i < COUNT(names); i++) {
        ls_train_config c;
        ls_opts *o = fresh(&c);
        char path[512];
        snprintf(path, sizeof path, "%s/recipes/%s.yaml", LOCKSTEP_SOURCE, names[i]);
        if (ls_opts_load_yaml(o, path) != LS_OK) fail_msg("%s", ls_last_error());
        if (ls_train_config_resolve(o, &c) != LS_OK) fail_msg("%s: %s", names[i], ls_last_error());
        if (ls_train_config_check(&c, 2) != LS_OK) fail_msg("%s: %s", names[i], ls_last_error());
        if (ls_train_check_given(o, &c) != LS_OK) fail_msg("%s: %s", names[i], ls_last_error());
        ls_train_config again; /* its config.yaml, which has all keys */
        ls_opts *second = fresh(&again);
        char *text = ls_opts_yaml(o);
        if (ls_opts_read_yaml(second, "config.yaml", text, strlen(text)) != LS_OK) fail_msg("%s", ls_last_error());
        if (ls_train_config_resolve(second, &again) != LS_OK || ls_train_check_given(second, &again) != LS_OK)
            fail_msg("%s again: %s", names[i], ls_last_error());
        free(text);
        ls_opts_destroy(second);
        ls_opts_destroy(o);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(knows_every_key_and_explains_it),
        cmocka_unit_test(understands_the_names_of_other_trainers),
        cmocka_unit_test(accepts_its_defaults_for_any_world_that_shares_the_batch),
        cmocka_unit_test(refuses_what_this_version_does_not_serve),
        cmocka_unit_test(refuses_values_that_do_not_fit_together),
        cmocka_unit_test(a_strategy_is_chosen_by_name),
        cmocka_unit_test(reads_steps_and_betas),
        cmocka_unit_test(gives_adamw_its_weight_decay),
        cmocka_unit_test(gives_an_optimizer_its_own_defaults),
        cmocka_unit_test(makes_a_learning_rate_schedule_of_its_keys),
        cmocka_unit_test(saves_a_configuration_that_runs_again),
        cmocka_unit_test(refuses_keys_that_nothing_of_the_run_reads),
        cmocka_unit_test(says_where_an_unread_key_is_set),
        cmocka_unit_test(counts_the_ranks_to_start),
        cmocka_unit_test(counts_the_ranks_of_all_degrees),
        cmocka_unit_test(packs_weights_where_that_pays),
        cmocka_unit_test(help_marks_what_is_refused_and_nothing_else),
        cmocka_unit_test(accepts_the_recipes),
    };
    return cmocka_run_group_tests_name("config", tests, NULL, NULL);
}
