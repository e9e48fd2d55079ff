/* cmd_explain.c -- lockstep explain: what a configuration shards and moves, by formula and as a run counts it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/env.h"
#include "base/limits.h"
#include "cli/cli.h"
#include "train/explain_run.h"

/* The configuration comes first: rows of `lockstep train` have their offsets in it. */
typedef struct options {
    ls_train_config c;
    ls_opt_ints ranks, stages;
    int64_t nodes, rank;
    bool json, help;
} options;

static const ls_opt table[] = {
    { .name = "ranks", .type = LS_OPT_INTS, .offset = offsetof(options, ranks), .def = "4", .range = "1..256",
      .help = "numbers of ranks, on one node: a table for each; without zero one number, and none of a run", .short_name = 'n', .alias = "nproc-per-node" },
    { .name = "stages", .type = LS_OPT_INTS, .offset = offsetof(options, stages), .def = "0,1,2,3", .range = "0..3",
      .help = "explain zero: the stages to show; whatever zero.stage is" },
    { .name = "nodes", .type = LS_OPT_INT, .offset = offsetof(options, nodes), .def = "1", .range = "1..256",
      .help = "of a configuration: nodes, each with the same number of consecutive ranks" },
    { .name = "rank", .type = LS_OPT_INT, .offset = offsetof(options, rank), .def = "0", .range = "0..65535",
      .help = "whose groups and collectives are shown" },
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
    if (o->json) ls_text_add(out, "{\"worlds\": [");
    for (int i = 0; st == LS_OK && i < o->ranks.n; i++) st = explain_one(o, &mc, (int)o->ranks.v[i], i == 0, out);
    if (o->json) ls_text_add(out, "]}\n");
    ls_source_free(&source);
    return st == LS_OK ? ls_text_status(out) : st;
}

/* --- a configuration, or a run ------------------------------------------------------------------------- */

/* The folder of a run: it has config.yaml, which goes into `path`. */
static bool is_run(const char *name, char *path, size_t n)
{
    ls_file_info info = { 0 };
    if (ls_env_get()->info(name, &info) < 0 || info.type != LS_FILE_DIR) return false;
    snprintf(path, n, "%s/config.yaml", name);
    return true;
}

/* A run is explained as it was. */
static ls_status check_run_flags(const ls_opts *opts)
{
    for (size_t i = 0; i < ls_train_nopts; i++) {
        const char *name = ls_train_opts[i].name;
        if (strchr(name, '.') && ls_opts_is_set(opts, name) && strcmp(ls_opts_origin(opts, name), "flag") == 0)
            return ls_fail(LS_USAGE, "--%s: a run is explained as it was: leave it out, or explain the run's config.yaml", name);
    }
    return LS_OK;
}

/* Where the ranks of a run were. */
static ls_status read_run(const char *folder, bool given, ls_run_counters *k, int **node)
{
    int n;
    LS_TRY(ls_run_counters_read(folder, k));
    if (k->world_size == 0 && !given)
        return ls_fail(LS_BAD_FILE, "%s/metrics.jsonl does not say how many ranks the run had: say so by --ranks", folder);
    if (k->world_size > 0 && given)
        return ls_fail(LS_USAGE, "--ranks: %s says that the run had %d: leave it out", folder, k->world_size);
    LS_TRY(ls_run_nodes_read(folder, node, &n));
    if (*node && k->world_size > 0 && n != k->world_size)
        return ls_fail(LS_BAD_FILE, "%s/comm.json is of %d ranks, and metrics.jsonl of %d", folder, n, k->world_size);
    return LS_OK;
}

/* Ranks of a configuration: --ranks, else what its degrees multiply to, else the default of --ranks. */
static int ranks_of(const options *o, bool given)
{
    const int degrees = ls_train_ranks(&o->c);
    return given || degrees == 1 ? (int)o->ranks.v[0] : degrees;
}

static ls_status explain_whole(const options *o, const ls_opts *opts, const char *folder, ls_text *out)
{
    ls_run_counters k = { 0 };
    ls_source source = { 0 };
    ls_model_config mc;
    int *node = NULL;
    const bool given = ls_opts_is_set(opts, "ranks");
    if (o->ranks.n != 1) return ls_fail(LS_USAGE, "--ranks: expected one number, found %d", o->ranks.n);
    ls_status st = folder ? read_run(folder, given, &k, &node) : LS_OK;
    const int size = k.world_size > 0 ? k.world_size : ranks_of(o, given);
    const ls_explained e = { .c = &o->c, .mc = &mc, .folder = folder, .k = folder ? &k : NULL, .size = size,
                             .nodes = (int)o->nodes, .node = node, .rank = (int)o->rank };
    if (st == LS_OK) st = ls_train_config_check(&o->c, size); /* before data are looked for */
    if (st == LS_OK) st = ls_train_model(&o->c, &source, &mc);
    if (st == LS_OK) st = ls_explain_run(&e, o->json, out);
    ls_source_free(&source);
    free(node);
    return st == LS_OK ? ls_text_status(out) : st;
}

/* What the word after the command says. */
typedef struct subject {
    bool zero;
    const char *folder; /* of a run; NULL: a configuration */
    char config[600];   /* the run's */
} subject;

static ls_status find_subject(int argc, char **argv, subject *out)
{
    *out = (subject){ .zero = argc >= 2 && strcmp(argv[1], "zero") == 0 };
    if (argc < 2 || (argv[1][0] == '-' && !strchr(argv[1], '.')))
        return ls_fail(LS_USAGE, "expected zero and a recipe, a recipe, or a run's folder, as in `lockstep explain zero gpt2-tiny`, "
                       "`lockstep explain gpt2-tiny` or `lockstep explain runs/gpt2-tiny`");
    if (!out->zero && is_run(argv[1], out->config, sizeof out->config)) {
        out->folder = argv[1];
        argv[1] = out->config;
    }
    return LS_OK;
}

static ls_status explain_subject(const options *o, const ls_opts *opts, const subject *s, ls_text *out)
{
    LS_TRY(check_flags(opts));
    if (s->zero) LS_TRY(check_keys(opts, &o->c));
    if (s->zero) return explain_zero(o, out);
    if (ls_opts_is_set(opts, "stages")) return ls_fail(LS_USAGE, "--stages belongs to `lockstep explain zero`: leave it out");
    LS_TRY(s->folder ? check_run_flags(opts) : ls_train_check_given(opts, &o->c));
    return explain_whole(o, opts, s->folder, out);
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
    subject s = { 0 };
    ls_status st = rows ? find_subject(argc, argv, &s) : ls_fail(LS_NO_MEMORY, "a table of options");
    if (st == LS_OK) st = ls_opts_create(rows, OWN + ls_train_nopts, &o, &opts);
    if (st == LS_OK) st = ls_train_read(opts, &o.c, argc - s.zero, argv + s.zero);
    o.c.json = o.json; /* of two options with this name ours is the one that was read */
    if (st == LS_OK) st = explain_subject(&o, opts, &s, &out);
    if (st == LS_OK) fputs(ls_text_str(&out), stdout);
    const int code = st < 0 ? ls_cli_fail("explain", st) : 0;
    ls_text_free(&out);
    ls_opts_destroy(opts);
    free(rows);
    return code;
}

const ls_cmd ls_cmd_explain = {
    .name = "explain",
    .summary = "print what is replicated, sharded and on the critical path, of a run or of each stage of ZeRO",
    .usage = "lockstep explain [zero] CONFIG.yaml|RECIPE|RUN-FOLDER [--section.key value]...",
    .example = "lockstep explain zero gpt2-tiny -n 1,2,4 --train.dtype bf16\n"
               "  lockstep explain runs/gpt2-tiny --json",
    LS_CMD_OPTS(table),
    .run = run,
};
