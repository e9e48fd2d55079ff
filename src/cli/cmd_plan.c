/* cmd_plan.c -- lockstep plan: what a model costs, and predictions of published measurements. */
#include <stdlib.h>

#include "base/file.h"
#include "cli/cli.h"
#include "lockstep/plan.h"
#include "plan/score.h"

typedef struct options {
    const char *score;
    bool list, json, help;
    int64_t seq;
} options;

static const ls_opt table[] = {
    { .name = "score", .type = LS_OPT_STRING, .offset = offsetof(options, score),
      .help = "predict each row of this CSV file of measurements, and compare" },
    { .name = "seq", .type = LS_OPT_INT, .offset = offsetof(options, seq), .def = "0", .range = "0..268435456",
      .help = "sequence length; 0: the model's" },
    { .name = "list", .type = LS_OPT_BOOL, .offset = offsetof(options, list), .def = "false", .help =
        "list the models" },
    { .name = "json", .type = LS_OPT_BOOL, .offset = offsetof(options, json), .def = "false", .help = "print JSON" },
    { .name = "help", .type = LS_OPT_BOOL, .offset = offsetof(options, help), .def = "false", .help = "this text",
      .short_name = 'h' },
};

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

static ls_status show(const options *o, const char *name, ls_text *out)
{
    ls_llm m;
    LS_TRY(ls_llm_preset(name, &m));
    if (o->seq) m.seq = o->seq;
    LS_TRY(ls_llm_check(&m));
    const double full = ls_llm_flops(&m, LS_FLOPS_FULL), causal = ls_llm_flops(&m, LS_FLOPS_CAUSAL),
                 again = ls_llm_flops(&m, LS_FLOPS_RECOMPUTED);
    const long long params = ls_llm_params(&m), active = ls_llm_active_params(&m);
    if (o->json) {
        ls_text_add(out, "{\"model\": \"%s\", \"seq\": %lld, \"params\": %lld, \"active_params\": %lld, ", m.name,
                    (long long)m.seq, params, active);
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
    const bool scored = o->score && *o->score;
    if (scored && (n || o->list || o->json || ls_opts_is_set(opts, "seq")))
        return ls_fail(LS_USAGE, "--score takes a file alone: leave the other options out");
    if (o->list && (n || ls_opts_is_set(opts, "seq"))) return ls_fail(LS_USAGE, "--list takes --json alone");
    if (scored) return score(o->score, out);
    if (o->list) return list(o->json, out);
    if (n != 1) return ls_fail(LS_USAGE, "%d models; expected one, or --score FILE; --list names the models", n);
    return show(o, ls_opts_positional(opts, 0), out);
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
    .summary = "what training a model costs, and predictions of published measurements",
    .usage = "lockstep plan [MODEL] [options]",
    .example = "lockstep plan llama3-70b --seq 8192\n"
               "  lockstep plan --score measurements.csv",
    LS_CMD_OPTS(table),
    .run = run,
};
