/* cmd_plan.c -- lockstep plan: what a model costs, its best layout on a cluster, and predictions of measurements. */
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "cli/cli.h"
#include "cli/plan_answer.h"
#include "lockstep/plan.h"
#include "plan/llm_config.h"
#include "plan/plan_check.h"
#include "plan/score.h"

typedef struct options {
    const char *score, *check, *topology, *memory, *objective, *dtype, *schedules, *write, *rank_by;
    bool list, json, help, exhaustive, sensitivity;
    int64_t seq, world, units, batch, top, threads, tp, pp, cp, ep, micro, zero;
    double want_mfu, want_s;
    ls_llm sizes;
} options;

#define SIZE(flag, field, most, words) { .name = flag, .type = LS_OPT_INT, .offset = offsetof(options, sizes.field), \
                                         .def = "0", .range = "0.." most, .help = "model: " words }
#define FIXED(flag, field, words) { .name = flag, .type = LS_OPT_INT, .offset = offsetof(options, field), .def = "0", \
                                    .range = "0..1048576", .help = words " (0: search)" }
static const ls_opt table[] = {
    { .name = "topology", .type = LS_OPT_STRING, .offset = offsetof(options, topology), .short_name = 't',
      .help = "plan on this cluster: a preset, which grows to the world, or a file" },
    { .name = "world", .type = LS_OPT_INT, .offset = offsetof(options, world), .def = "0", .range = "0..1048576",
      .help = "ranks, one per device (0: all devices); with --want-mfu and others, at most" },
    { .name = "units", .type = LS_OPT_INT, .offset = offsetof(options, units), .def = "0", .range = "0..1048576",
      .help = "units that the highest level joins (0: what the file says)" },
    { .name = "batch", .type = LS_OPT_INT, .offset = offsetof(options, batch), .def = "0", .range = "0..268435456",
      .help = "sequences per step (0: 1024 tokens per rank, and 4 Mi tokens at least)" },
    { .name = "seq", .type = LS_OPT_INT, .offset = offsetof(options, seq), .def = "0", .range = "0..268435456",
      .help = "sequence length; 0: the model's" },
    { .name = "memory", .type = LS_OPT_STRING, .offset = offsetof(options, memory),
      .help = "of a device, with its unit, as in 64 GB (default: the topology's)" },
    { .name = "objective", .type = LS_OPT_CHOICE, .offset = offsetof(options, objective), .def = "time",
      .range = "time|memory|cost", .help = "the shortest step, the least memory, or the least device-seconds per "
          "step" },
    { .name = "top", .type = LS_OPT_INT, .offset = offsetof(options, top), .def = "5", .range = "1..64",
      .help = "how many plans, each with other degrees" },
    { .name = "dtype", .type = LS_OPT_CHOICE, .offset = offsetof(options, dtype), .def = "bf16", .range =
        "bf16|fp8|fp4",
      .help = "of products" },
    { .name = "schedules", .type = LS_OPT_STRING, .offset = offsetof(options, schedules),
      .help = "of gpipe,1f1b,interleaved,zb-h1,zb-h2,zb-v,dualpipe (default: the first five)" },
    FIXED("tp", tp, "only plans with this degree"), FIXED("pp", pp, "likewise"), FIXED("cp", cp, "likewise"),
    FIXED("ep", ep, "likewise"), FIXED("micro-batch", micro, "only plans with this micro-batch, in sequences"),
    { .name = "zero", .type = LS_OPT_INT, .offset = offsetof(options, zero), .def = "-1", .range = "-1..3",
      .help = "only plans with this ZeRO stage (-1: search)" },
    { .name = "want-mfu", .type = LS_OPT_DOUBLE, .offset = offsetof(options, want_mfu), .def = "0", .range = "0..1",
      .help = "the smallest cluster with this MFU or more, as in 0.4" },
    { .name = "want-step", .type = LS_OPT_DOUBLE, .offset = offsetof(options, want_s), .def = "0", .range = "0..",
      .help = "the smallest cluster with a step of so many seconds or less" },
    { .name = "sensitivity", .type = LS_OPT_BOOL, .offset = offsetof(options, sensitivity), .def = "false",
      .help = "what 10 % more of each resource gives" },
    { .name = "rank-by", .type = LS_OPT_CHOICE, .offset = offsetof(options, rank_by), .def = "time",
      .range = "time|flops", .help = "flops: beside the best plan the one that is best if only FLOPs take time, and "
          "what it really takes" },
    { .name = "write", .type = LS_OPT_STRING, .offset = offsetof(options, write),
      .help = "write the best plan to this file, a recipe of `lockstep train`; schedules are the runtime's" },
    { .name = "exhaustive", .type = LS_OPT_BOOL, .offset = offsetof(options, exhaustive), .def = "false",
      .help = "evaluate each legal layout: no bounds (the plans are the same)" },
    { .name = "threads", .type = LS_OPT_INT, .offset = offsetof(options, threads), .def = "0", .range = "0..1024",
      .help = "of the search (0: OMP_NUM_THREADS, else the usable cores); they change no result" },
    SIZE("layers", layers, "100000", "layers; with --hidden, --heads and --vocab in place of MODEL, or to change it"),
    SIZE("hidden", hidden, "16777216", "hidden size"), SIZE("heads", heads, "65536", "heads"),
    SIZE("kv-heads", kv_heads, "65536", "key heads"), SIZE("head-dim", head_dim, "65536", "head size"),
    SIZE("ffn", ffn, "67108864", "feed-forward width"), SIZE("vocab", vocab, "268435456", "vocabulary size"),
    SIZE("experts", experts, "1048576", "experts"), SIZE("topk", topk, "1048576", "experts per token"),
    SIZE("expert-ffn", expert_ffn, "67108864", "width of an expert"),
    { .name = "gated", .type = LS_OPT_BOOL, .offset = offsetof(options, sizes.gated), .def = "false",
      .help = "model: three matrices (SwiGLU) in place of two" },
    { .name = "score", .type = LS_OPT_STRING, .offset = offsetof(options, score),
      .help = "predict each row of this CSV file of measurements, and compare" },
    { .name = "check", .type = LS_OPT_STRING, .offset = offsetof(options, check),
      .help = "compare what `lockstep train --predict` expected of the run in this folder with what it measured" },
    { .name = "list", .type = LS_OPT_BOOL, .offset = offsetof(options, list), .def = "false", .help =
        "list the models" },
    { .name = "json", .type = LS_OPT_BOOL, .offset = offsetof(options, json), .def = "false", .help = "print JSON" },
    { .name = "help", .type = LS_OPT_BOOL, .offset = offsetof(options, help), .def = "false", .help = "this text",
      .short_name = 'h' },
};

/* Options of a plan on a cluster. */
static const char *const plans[] = { "world", "units", "batch", "memory", "objective", "top", "dtype", "schedules",
    "tp", "pp",
    "cp", "ep", "micro-batch", "zero", "want-mfu", "want-step", "sensitivity", "rank-by", "exhaustive",
    "threads", "write" };
enum { PLANS = sizeof plans / sizeof *plans };

static ls_status score(const char *path, ls_text *out)
{
    char *text = NULL;
    size_t n = 0;
    ls_rows rows = { 0 };
    ls_status st = ls_file_read(path, (size_t)1 << 28, &text, &n);
    if (st == LS_OK) st = ls_rows_read(path, text, &rows);
    if (st == LS_OK) st = ls_score(&rows, out);
    ls_rows_free(&rows);
    free(text);
    return st;
}

/* A size that the model does not have would change nothing. */
static ls_status check_sizes(const options *o, const ls_llm *m)
{
    const bool all = m->experts > 0 && m->dense_layers == 0;
    const struct { int64_t given; bool has; const char *flag, *of, *instead; } size[] = {
        { o->sizes.topk, m->experts > 0, "topk", "no experts", "add --experts, or leave it out" },
        { o->sizes.expert_ffn, m->experts > 0, "expert-ffn", "no experts", "add --experts, or leave it out" },
        { o->sizes.ffn, !all, "ffn", "experts in every layer", "--expert-ffn is their width" },
        { o->sizes.kv_heads, m->kv_rank == 0, "kv-heads", "latent attention, which all heads share", "leave it out" },
        { o->sizes.head_dim, m->kv_rank == 0, "head-dim", "latent attention, with sizes of its own", "leave it out" },
    };
    for (size_t i = 0; i < sizeof size / sizeof *size; i++)
        if (size[i].given && !size[i].has)
            return ls_fail(LS_USAGE, "--%s: %s has %s, so nothing would change: %s", size[i].flag, m->name, size[i].of,
                           size[i].instead);
    return LS_OK;
}

/* Sizes of the command line replace those of a preset or a file. */
static ls_status model(const options *o, const char *name, ls_llm *m)
{
    const struct { int64_t given; size_t at; } size[] = {
#define ROW(f) { o->sizes.f, offsetof(ls_llm, f) }
        ROW(layers), ROW(hidden), ROW(heads), ROW(kv_heads), ROW(head_dim), ROW(ffn), ROW(vocab), ROW(experts),
            ROW(topk),
        ROW(expert_ffn),
#undef ROW
        { o->seq, offsetof(ls_llm, seq) },
    };
    const size_t len = name ? strlen(name) : 0;
    if (!name) *m = (ls_llm){ .name = "sizes of the command line", .seq = 4096 };
    else if (strchr(name, '/') || (len > 5 && strcmp(name + len - 5, ".json") == 0)) LS_TRY(ls_llm_config_read(name,
        m));
    else LS_TRY(ls_llm_preset(name, m));
    for (size_t i = 0; i < sizeof size / sizeof *size; i++)
        if (size[i].given) memcpy((char *)m + size[i].at, &size[i].given, sizeof(int64_t));
    m->gated |= o->sizes.gated;
    LS_TRY(check_sizes(o, m));
    const char *missing = m->hidden == 0 ? "hidden" : m->heads == 0 ? "heads" : m->vocab == 0 ? "vocab" : NULL;
    if (!name && missing)
        return ls_fail(LS_USAGE, "--%s is missing: a model by its sizes needs --layers, --hidden, --heads and --vocab",
                       missing);
    return ls_llm_check(m);
}

static ls_status show(const options *o, const char *name, ls_text *out)
{
    ls_llm m;
    LS_TRY(model(o, name, &m));
    const double full = ls_llm_flops(&m, LS_FLOPS_FULL), causal = ls_llm_flops(&m, LS_FLOPS_CAUSAL),
                 again = ls_llm_flops(&m, LS_FLOPS_RECOMPUTED);
    const long long params = ls_llm_params(&m), active = ls_llm_active_params(&m);
    if (o->json) {
        ls_text_add(out, "{\"model\": ");
        ls_json_string(out, m.name);
        ls_text_add(out, ", \"seq\": %lld, \"params\": %lld, \"active_params\": %lld, ", (long long)m.seq, params,
            active);
        ls_text_add(out, "\"flops_full\": %.17g, \"flops_causal\": %.17g, \"flops_recomputed\": %.17g}\n", full, causal,
                    again);
        return ls_text_status(out);
    }
    char a[64], b[64];
    ls_text_add(out, "%s: %s parameters, %s of them per token; sequence length %lld\n", m.name,
                ls_number_text((double)params, 0, a, sizeof a), ls_number_text((double)active, 0, b, sizeof b),
                    (long long)m.seq);
    ls_text_add(out, "per token, forward and backward:\n");
    ls_text_add(out, "  %9.2f GFLOP  attention counted as if not causal (Megatron-LM, NeMo)\n", 1e-9 * full);
    ls_text_add(out, "  %9.2f GFLOP  with a causal mask (Megatron-Bridge)\n", 1e-9 * causal);
    ls_text_add(out, "  %9.2f GFLOP  not causal, all layers forward twice (full recomputation)\n", 1e-9 * again);
    ls_text_add(out, "states with Adam: %s; with ZeRO stage 1, 2, 3 over 64 ranks, per rank: ",
                ls_bytes_text((double)params * ls_state_bytes(0, 2, 12, 1), a, sizeof a));
    for (int z = 1; z <= 3; z++)
        ls_text_add(out, "%s%s", ls_bytes_text((double)params * ls_state_bytes(z, 2, 12, 64), a, sizeof a), z < 3 ?
                    ", " : "\n");
    return ls_text_status(out);
}

static ls_status list(bool json, ls_text *out)
{
    for (int i = 0; ls_llm_preset_name(i); i++) {
        if (json) ls_text_add(out, "%s\"%s\"", i ? ", " : "[", ls_llm_preset_name(i));
        else ls_text_add(out, "%s\n", ls_llm_preset_name(i));
    }
    if (json) ls_text_add(out, "]\n");
    return ls_text_status(out);
}

static ls_status answer(const options *o, const ls_opts *opts, ls_text *out)
{
    const int n = ls_opts_npositional(opts);
    const bool scored = o->score && *o->score, checked = o->check && *o->check, planned = o->topology && *o->topology;
    const char *name = n ? ls_opts_positional(opts, 0) : NULL;
    int set = 0;
    static const char *const words[] = { "topology", "memory", "schedules", "write", "score", "check" };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        const char *const value[] = { o->topology, o->memory, o->schedules, o->write, o->score, o->check };
        if (ls_opts_is_set(opts, words[i]) && (!value[i] || !*value[i]))
            return ls_fail(LS_USAGE, "--%s: expected a value, found an empty one", words[i]);
    }
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) set += ls_opts_is_set(opts, table[i].name);
    if (scored && (n || set > 1)) return ls_fail(LS_USAGE, "--score takes a file alone: leave the other options out");
    if (checked && (n || set > 1 + o->json))
        return ls_fail(LS_USAGE, "--check takes the folder of a run, and --json: leave the other options out");
    if (o->list && (n || set > 1 + o->json)) return ls_fail(LS_USAGE, "--list takes --json alone");
    if (scored) return score(o->score, out);
    if (checked) return ls_plan_check_run(o->check, o->json, out);
    if (o->list) return list(o->json, out);
    if (n > 1 || (n == 0 && !o->sizes.layers))
        return ls_fail(LS_USAGE, "%d models; expected one (a preset, or a config.json), its sizes (--layers ...), "
                        "--score FILE or --check RUN; --list names the presets", n);
    for (int i = 0; !planned && i < PLANS; i++)
        if (ls_opts_is_set(opts, plans[i]))
            return ls_fail(LS_USAGE, "--%s needs a cluster: add --topology, as in --topology h100-8", plans[i]);
    if (!planned) return show(o, name, out);
    if (ls_opts_is_set(opts, "top") && (o->want_mfu > 0 || o->want_s > 0 || strcmp(o->objective, "cost") == 0))
        return ls_fail(LS_USAGE, "--top is of plans for one cluster: expected it without --want-mfu, --want-step and "
                       "--objective cost, which show the best plan of each");
    ls_llm m;
    LS_TRY(model(o, name, &m));
    const ls_plan_request q = {
        .topology = o->topology, .memory = o->memory, .objective = o->objective, .dtype = o->dtype,
        .schedules = o->schedules, .write = o->write, .rank_by = o->rank_by,
        .world = o->world, .units = o->units, .batch = o->batch, .top =
            (int)o->top,
        .threads = (int)o->threads, .zero = (int)o->zero, .want_mfu = o->want_mfu, .want_s = o->want_s,
        .fixed = { .t = o->tp, .p = o->pp, .c = o->cp, .e = o->ep, .micro = o->micro }, .json = o->json,
        .exhaustive = o->exhaustive, .sensitivity = o->sensitivity,
    };
    return ls_plan_answer(&q, &m, out);
}

static int run(int argc, char **argv)
{
    options o = { 0 };
    ls_opts *opts = NULL;
    ls_text out = { 0 };
    int rest = 0, code = 0;
    ls_status st = ls_opts_create(table, sizeof table / sizeof *table, &o, &opts);
    if (st == LS_OK) st = ls_opts_parse(opts, argc, argv, false, &rest);
    if (st == LS_OK && o.help) code = ls_cli_help(&ls_cmd_plan);
    else if (st == LS_OK && (st = answer(&o, opts, &out)) == LS_OK) st = ls_cli_print(&out);
    ls_text_free(&out);
    if (st < 0) code = ls_cli_fail("plan", st);
    ls_opts_destroy(opts);
    return code;
}

const ls_cmd ls_cmd_plan = {
    .name = "plan",
    .summary = "what training a model costs, its best layout on a cluster, and predictions of measurements",
    .usage = "lockstep plan [MODEL] [options]",
    .example = "lockstep plan llama3-70b --topology h100-8 --world 512 --batch 1024\n"
               "  lockstep plan path/to/config.json --topology h100-8 --world 64 --want-mfu 0.4\n"
               "  lockstep plan llama3-70b --seq 8192\n"
               "  lockstep plan --score measurements.csv\n"
               "  lockstep plan --check runs/gpt2-tiny",
    LS_CMD_OPTS(table),
    .run = run,
};
