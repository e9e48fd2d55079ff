/* cmd_explain.c -- lockstep explain: what a setting costs, by formula and as a run would count it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "cli/cli.h"
#include "train/explain_zero.h"

/* The configuration comes first: rows of `lockstep train` have their offsets in it. */
typedef struct options {
    ls_train_config c;
    ls_opt_ints ranks, stages;
    bool json, help;
} options;

static const ls_opt table[] = {
    { .name = "ranks", .type = LS_OPT_INTS, .offset = offsetof(options, ranks), .def = "4", .range = "1..256",
      .help = "numbers of ranks, on one node: a table for each", .short_name = 'n', .alias = "nproc-per-node" },
    { .name = "stages", .type = LS_OPT_INTS, .offset = offsetof(options, stages), .def = "0,1,2,3", .range = "0..3",
      .help = "the stages to show; whatever zero.stage is" },
    { .name = "json", .type = LS_OPT_BOOL, .offset = offsetof(options, json), .def = "false",
      .help = "print JSON, with every rank" },
    { .name = "help", .type = LS_OPT_BOOL, .offset = offsetof(options, help), .def = "false", .help = "this text",
      .short_name = 'h' },
};
enum { OWN = sizeof table / sizeof *table };

/* Our rows, which win, and all of `lockstep train`; for the caller to free. */
static ls_opt *both(void)
{
    ls_opt *all = calloc(OWN + ls_train_nopts, sizeof *all);
    if (!all) return NULL;
    memcpy(all, table, sizeof table);
    memcpy(all + OWN, ls_train_opts, ls_train_nopts * sizeof *all);
    return all;
}

/* Keys of the configuration have a dot. Other options of `lockstep train` are not read here. */
static ls_status check_flags(const ls_opts *opts)
{
    for (size_t i = 0; i < ls_train_nopts; i++) {
        const char *name = ls_train_opts[i].name;
        const bool ours = strchr(name, '.') || ls_opts_find(opts, name) < OWN;
        if (!ours && ls_opts_is_set(opts, name))
            return ls_fail(LS_USAGE, "--%s belongs to `lockstep train`: leave it out", name);
    }
    return LS_OK;
}

/* A key is read if some column reads it: one of stage 0, or of stage 3 with what each rank gathers. */
static ls_status check_keys(const ls_opts *opts, const ls_train_config *c)
{
    ls_train_config plain = *c, gathered = *c;
    plain.zero.stage = 0;
    plain.parallel.dp_strategy = "auto";
    gathered.zero.stage = 3;
    gathered.zero.copy = "rank";
    const ls_train_config *const any[] = { &plain, &gathered };
    return ls_train_check_given_any(opts, any, 2);
}

static ls_status explain_one(const options *o, const ls_model_config *mc, int size, bool first, ls_text *out)
{
    bool stages[LS_ZERO_STAGES] = { false };
    int wanted = 0;
    ls_zero_costs z;
    for (int i = 0; i < o->stages.n; i++) stages[o->stages.v[i]] = true;
    for (int k = 0; k < LS_ZERO_STAGES; k++) wanted += stages[k];
    const ls_status st = ls_zero_costs_make(&o->c, mc, size, stages, wanted < LS_ZERO_STAGES, &z);
    if (st == LS_OK && !first) ls_text_add(out, o->json ? ",\n" : "\n");
    if (st == LS_OK && o->json) ls_zero_costs_json(&z, out);
    if (st == LS_OK && !o->json && first) ls_zero_costs_words(&o->c, &z, out);
    if (st == LS_OK && !o->json) ls_zero_costs_table(&z, out);
    ls_zero_costs_free(&z);
    return st;
}

static ls_status explain_zero(const options *o, ls_text *out)
{
    ls_source source = { 0 };
    ls_model_config mc;
    if (o->ranks.n == 0 || o->stages.n == 0)
        return ls_fail(LS_USAGE, "--%s is empty: expected numbers, as %s", o->ranks.n == 0 ? "ranks" : "stages",
                       o->ranks.n == 0 ? "1,2,4" : "0,1,2,3");
    for (int i = 0; i < o->ranks.n; i++) LS_TRY(ls_zero_costs_check(&o->c, (int)o->ranks.v[i]));
    ls_status st = ls_train_model(&o->c, &source, &mc);
    if (o->json) ls_text_add(out, "[");
    for (int i = 0; st == LS_OK && i < o->ranks.n; i++) st = explain_one(o, &mc, (int)o->ranks.v[i], i == 0, out);
    if (o->json) ls_text_add(out, "]\n");
    ls_source_free(&source);
    return st == LS_OK ? ls_text_status(out) : st;
}

/* The word after the command says what is explained. */
static ls_status subject(int argc, char **argv)
{
    if (argc >= 2 && strcmp(argv[1], "zero") == 0) return LS_OK;
    if (argc >= 2 && argv[1][0] != '-')
        return ls_fail(LS_USAGE, "'%s' is not explained: expected zero, as in `lockstep explain zero gpt2-tiny`",
                       argv[1]);
    return ls_fail(LS_USAGE, "expected zero and a recipe, as in `lockstep explain zero gpt2-tiny`");
}

static bool asks_for_help(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) return true;
    return false;
}

static int run(int argc, char **argv)
{
    if (asks_for_help(argc, argv)) return ls_cli_help(&ls_cmd_explain);
    options o = { 0 };
    ls_text out = { 0 };
    ls_opts *opts = NULL;
    ls_opt *rows = both();
    ls_status st = rows ? subject(argc, argv) : ls_fail(LS_NO_MEMORY, "a table of options");
    if (st == LS_OK) st = ls_opts_create(rows, OWN + ls_train_nopts, &o, &opts);
    if (st == LS_OK) st = ls_train_read(opts, &o.c, argc - 1, argv + 1);
    if (st == LS_OK) st = check_flags(opts);
    if (st == LS_OK) st = check_keys(opts, &o.c);
    if (st == LS_OK) st = explain_zero(&o, &out);
    if (st == LS_OK) fputs(ls_text_str(&out), stdout);
    const int code = st < 0 ? ls_cli_fail("explain", st) : 0;
    ls_text_free(&out);
    ls_opts_destroy(opts);
    free(rows);
    return code;
}

const ls_cmd ls_cmd_explain = {
    .name = "explain",
    .summary = "print what each stage of ZeRO costs: memory and traffic, by formula and as planned",
    .usage = "lockstep explain zero CONFIG.yaml|RECIPE [--section.key value]...",
    .example = "lockstep explain zero gpt2-tiny -n 1,2,4 --train.dtype bf16",
    LS_CMD_OPTS(table),
    .run = run,
};
