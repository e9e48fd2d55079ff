/* explain_side.c -- the arguments of `lockstep explain`, and the configuration, run and model that they name. */
#include "cli/explain_side.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/env.h"
#include "cli/place.h"
#include "cli/planned.h"

#define FEWEST 3 /* steady steps of a run that failed: fewer say nothing */
#define AT(field) offsetof(ls_explain_options, field)

const ls_opt ls_explain_opts[] = {
    { .name = "ranks", .type = LS_OPT_INTS, .offset = AT(ranks), .def = "4", .range = "1..256",
      .help = "numbers of ranks: for zero a table for each; else one number, and none of a run. Without it as many "
              "as the degrees multiply to", .short_name = 'n', .alias = "nproc-per-node" },
    { .name = "nodes", .type = LS_OPT_INT, .offset = AT(nodes), .def = "1", .range = "1..256",
      .help = "of a configuration: nodes, each with the same number of consecutive ranks" },
    { .name = "rank", .type = LS_OPT_INT, .offset = AT(rank), .def = "0", .range = "0..65535",
      .help = "whose groups and collectives are shown" },
    { .name = "compare", .type = LS_OPT_STRING, .offset = AT(compare), .def = "",
      .help = "another configuration or run, to be shown beside the first one: what differs comes first" },
    { .name = "stages", .type = LS_OPT_INTS, .offset = AT(stages), .def = "0,1,2,3", .range = "0..3",
      .help = "explain zero: the stages to show; whatever zero.stage is" },
    { .name = "topology", .type = LS_OPT_STRING, .offset = AT(topology), .def = "local",
      .help = "explain roofline: the cluster whose peaks and links bound a step, a preset, a file or local",
      .short_name = 't' },
    { .name = "tflops", .type = LS_OPT_DOUBLE, .offset = AT(tflops), .def = "0", .range = "0..1e6",
      .help = "explain roofline: peak of a rank's products in TFLOP/s; 0: measured, or the device's" },
    { .name = "memory-rate", .type = LS_OPT_DOUBLE, .offset = AT(memory_rate), .def = "0", .range = "0..1e6",
      .help = "explain roofline: GB/s of a rank's memory; 0: measured, or the device's data sheet" },
    { .name = "json", .type = LS_OPT_BOOL, .offset = AT(json), .def = "false", .help = "print JSON, with every "
                                                                                       "rank" },
    { .name = "help", .type = LS_OPT_BOOL, .offset = AT(help), .def = "false", .help = "this text", .short_name = 'h' },
};
const size_t ls_explain_nopts = sizeof ls_explain_opts / sizeof *ls_explain_opts;

/* --- the subject  ------------------------------------------------------------------------------------------- */

/* The folder of a run: it has config.yaml, which goes into `path`. */
static bool is_run(const char *name, char *path, size_t n)
{
    ls_file_info info = { 0 };
    if (ls_env_get()->info(name, &info) < 0 || info.type != LS_FILE_DIR) return false;
    snprintf(path, n, "%s/config.yaml", name);
    return true;
}

static bool is_flag(const char *word) { return word[0] == '-' && !strchr(word, '.'); }

/* Takes the words in front off argv: the topic, which argv[0] then stands for, and in place of a run its configuration.
 */
static ls_status find_subject(int *argc, char ***argv, const char *instead, ls_explain_subject *out)
{
    char **v = *argv;
    *out = (ls_explain_subject){ .zero = *argc >= 2 && strcmp(v[1], "zero") == 0,
                                 .roofline = *argc >= 2 && strcmp(v[1], "roofline") == 0,
                                 .topic = *argc >= 2 ? ls_topic_find(v[1]) : NULL };
    if (out->zero || out->topic || out->roofline) {
        (*argc)--;
        v = ++*argv;
    } else if (*argc < 2 || is_flag(v[1])) {
        return ls_fail(LS_USAGE, "expected zero and a recipe, a recipe, or a run's folder, as in `lockstep explain "
                        "zero gpt2-tiny`, `lockstep explain gpt2-tiny` or `lockstep explain runs/gpt2-tiny`; or a "
                        "topic, as in `lockstep explain tp`");
    }
    if (out->roofline && (*argc < 2 || v[1][0] == '-'))
        return ls_fail(LS_USAGE, "explain roofline: expected a configuration or a run's folder, as in `lockstep explain "
                       "roofline gpt2-tiny`");
    if (*argc < 2 || v[1][0] == '-') return LS_OK; /* a topic alone */
    if (instead) v[1] = (char *)(uintptr_t)instead; /* read only */
    out->name = v[1];
    if (!out->zero && is_run(v[1], out->config, sizeof out->config)) {
        ls_file_info info = { 0 };
        if (ls_env_get()->info(out->config, &info) < 0 || info.type == LS_FILE_NONE)
            return ls_fail(LS_BAD_FILE, "%s: a folder without config.yaml, so it is not a run's: expected the folder that "
                           "`lockstep train` printed, such as runs/gpt2-tiny", v[1]);
        out->folder = v[1];
        v[1] = out->config;
    }
    return LS_OK;
}

/* A word that names no recipe may have been meant as a topic. */
static ls_status or_topic(ls_status st, const ls_explain_asked *a)
{
    char message[1024], names[96];
    ls_file_info info = { 0 };
    if (st != LS_IO || a->s.zero || a->s.topic || a->s.roofline) return st;
    if (ls_env_get()->info(a->s.name, &info) < 0 || info.type != LS_FILE_NONE) return st;
    snprintf(message, sizeof message, "%s", ls_last_error());
    return ls_fail(st, "%s; topics: zero, %s, roofline", message, ls_topic_names(names, sizeof names));
}

/* A topic's own plan, where flags do not say otherwise. */
static ls_status read_topic(ls_explain_asked *a, int argc, char **argv)
{
    int rest;
    LS_TRY(ls_opts_set(a->opts, "data.path", "none", "default")); /* which is not read: needs_no_data */
    for (const char *const *p = a->s.topic->plan; *p; p += 2) LS_TRY(ls_opts_set(a->opts, p[0], p[1], "default"));
    LS_TRY(ls_opts_parse(a->opts, argc, argv, false, &rest));
    if (ls_opts_npositional(a->opts) > 0)
        return ls_fail(LS_USAGE, "explain %s: '%s' belongs right after the topic", a->s.topic->name,
                       ls_opts_positional(a->opts, 0));
    return ls_train_config_resolve(a->opts, &a->o.c);
}

static ls_status read(ls_explain_asked *a, int argc, char **argv, const char *instead)
{
    if (!(a->rows = ls_cli_with_train_opts(ls_explain_opts, ls_explain_nopts))) return ls_fail(LS_NO_MEMORY,
        "a table of options");
    LS_TRY(find_subject(&argc, &argv, instead, &a->s));
    LS_TRY(ls_opts_create(a->rows, ls_explain_nopts + ls_train_nopts, &a->o, &a->opts));
    if (a->s.topic && !a->s.name) LS_TRY(read_topic(a, argc, argv));
    else LS_TRY(or_topic(ls_train_read(a->opts, &a->o.c, argc, argv), a));
    if (a->s.roofline && a->o.c.model.vocab_size > 0 && !*a->o.c.data.path)
        a->o.c.data.path = "not read"; /* needs_no_data */
    a->o.c.json = a->o.json; /* of two options with this name ours is the one that was read */
    return LS_OK;
}

/* --- what may be given  ------------------------------------------------------------------------------------- */

/* A run is explained as it was. */
static ls_status check_run_flags(const ls_opts *opts)
{
    for (size_t i = 0; i < ls_train_nopts; i++) {
        const char *name = ls_train_opts[i].name;
        if (strchr(name, '.') && ls_opts_is_set(opts, name) && strcmp(ls_opts_origin(opts, name), "flag") == 0)
            return ls_fail(LS_USAGE, "--%s: a run is explained as it was: leave it out, or explain the run's "
                                     "config.yaml", name);
    }
    return LS_OK;
}

/* A key is read if some column reads it: one of stage 0, or of stage 3 with what each rank gathers. */
static ls_status check_zero_keys(const ls_opts *opts, const ls_train_config *c)
{
    ls_train_config plain = *c, gathered = *c;
    plain.zero.stage = 0;
    plain.parallel.dp_strategy = "auto";
    gathered.zero.stage = 3;
    gathered.zero.copy = "rank";
    const ls_train_config *const any[] = { &plain, &gathered };
    return ls_train_check_given_any(opts, any, 2);
}

/* Flags that belong to some subjects. */
static ls_status check_subject(const ls_explain_asked *a)
{
    enum { ZERO = 1, TOPIC = 2, ROOFLINE = 4, OTHER = 8 };
    static const struct { const char *flag, *of; unsigned fits; } some[] = {
        { "stages", "`lockstep explain zero`", ZERO },
        { "rank", "a configuration or a run", OTHER },
        { "nodes", "a configuration", OTHER },
        { "compare", "a configuration or a run", OTHER },
        { "topology", "`lockstep explain roofline`", ROOFLINE },
        { "tflops", "`lockstep explain roofline`", ROOFLINE },
        { "memory-rate", "`lockstep explain roofline`", ROOFLINE },
    };
    const unsigned is = a->s.zero ? ZERO : a->s.topic ? TOPIC : a->s.roofline ? ROOFLINE : OTHER;
    for (size_t i = 0; i < sizeof some / sizeof *some; i++) {
        if (!(some[i].fits & is) && ls_opts_is_set(a->opts, some[i].flag)) return ls_fail(LS_USAGE, "--%s belongs to %s: leave "
                                                                                     "it out", some[i].flag,
                                                                                     some[i].of);
    }
    if (a->s.folder && ls_opts_is_set(a->opts, "nodes"))
        return ls_fail(LS_USAGE, "--nodes: a run is explained on the nodes that it had: leave it out");
    if (a->s.topic && (a->o.json || a->s.folder))
        return ls_fail(LS_USAGE, a->o.json ? "explain %s: --json belongs to `lockstep explain zero`, a "
                                             "configuration or a run: leave it out"
                                           : "explain %s: expected a configuration, and not a run's folder",
                                           a->s.topic->name);
    return LS_OK;
}

/* --- ranks and model  --------------------------------------------------------------------------------------- */

/* Where the ranks of a run were. */
static ls_status read_run(ls_explain_asked *a, bool given)
{
    int n;
    LS_TRY(ls_run_failure_read(a->s.folder, &a->failure));
    const ls_status counted = ls_run_counters_read(a->s.folder, &a->k);
    const bool early = counted < 0 || a->k.steady < FEWEST; /* the first steps move other bytes */
    if (early && a->failure.any && a->failure.world_size > 0) {
        a->k = (ls_run_counters){ .world_size = a->failure.world_size };
        return given ? ls_fail(LS_USAGE, "--ranks: %s says that the run had %d: leave it out", a->s.folder, a->failure.world_size)
                     : LS_OK;
    }
    LS_TRY(counted);
    if (a->k.world_size == 0 && !given)
        return ls_fail(LS_BAD_FILE, "%s/metrics.jsonl does not say how many ranks the run had: say so by --ranks",
                       a->s.folder);
    if (a->k.world_size > 0 && given)
        return ls_fail(LS_USAGE, "--ranks: %s says that the run had %d: leave it out", a->s.folder, a->k.world_size);
    LS_TRY(ls_run_nodes_read(a->s.folder, &a->node, &n));
    if (a->node && a->k.world_size > 0 && n != a->k.world_size)
        return ls_fail(LS_BAD_FILE, "%s/comm.json is of %d ranks, and metrics.jsonl of %d", a->s.folder, n,
                       a->k.world_size);
    return LS_OK;
}

/* --ranks, else what the degrees multiply to, else a topic's number, or the default of --ranks. */
static int ranks_of(const ls_explain_asked *a, bool given)
{
    const int degrees = ls_train_ranks(&a->o.c), most = a->s.topic ? a->s.topic->ranks : (int)a->o.ranks.v[0];
    if (given) return (int)a->o.ranks.v[0];
    if (a->s.topic && a->o.c.parallel.dp == 0 && most % degrees == 0) return most;
    return degrees > 1 || a->o.c.parallel.dp ? degrees : most;
}

/* The sizes are given, and no data are: a plan needs none. */
static bool needs_no_data(const ls_explain_asked *a)
{
    const bool data = ls_opts_is_set(a->opts, "data.name") || ls_opts_is_set(a->opts, "data.path");
    return ls_train_is_lm(&a->o.c) && !data && a->o.c.model.vocab_size > 0;
}

static ls_status check_given(const ls_explain_asked *a)
{
    LS_TRY(ls_cli_refuse_train_flags(a->opts, ls_explain_nopts));
    LS_TRY(check_subject(a));
    if (a->s.zero) return check_zero_keys(a->opts, &a->o.c);
    return a->s.folder ? check_run_flags(a->opts) : ls_train_check_given(a->opts, &a->o.c);
}

ls_status ls_explain_ask(int argc, char **argv, const char *instead, ls_explain_asked *out)
{
    *out = (ls_explain_asked){ 0 };
    char **copy = calloc((size_t)argc + 1, sizeof *copy);
    if (!copy) return ls_fail(LS_NO_MEMORY, "%d arguments", argc);
    memcpy(copy, argv, (size_t)argc * sizeof *copy);
    ls_status st = read(out, argc, copy, instead);
    if (st == LS_OK) st = check_given(out);
    free(copy);
    return st;
}

ls_status ls_explain_look(ls_explain_asked *a)
{
    const bool given = ls_opts_is_set(a->opts, "ranks");
    if (a->s.topic && a->s.topic->adjust) a->adjusted = a->s.topic->adjust(&a->o.c);
    if (!a->s.zero) {
        if (a->o.ranks.n != 1) return ls_fail(LS_USAGE, "--ranks: expected one number, found %d", a->o.ranks.n);
        if (a->s.folder) LS_TRY(read_run(a, given));
        a->size = a->k.world_size > 0 ? a->k.world_size : ranks_of(a, given);
        LS_TRY(ls_train_config_check(&a->o.c, a->size)); /* before data are looked for */
        if (!a->s.folder) LS_TRY(ls_cli_place(a->opts, &a->o.c, a->size, (int)a->o.nodes));
    }
    if (!needs_no_data(a)) return ls_train_model(&a->o.c, &a->source, &a->mc);
    a->mc = (ls_model_config){ .name = a->o.c.model.name, .seed = (uint64_t)a->o.c.train.seed };
    return ls_train_lm(&a->o.c, a->o.c.model.vocab_size, &a->mc.lm);
}

void ls_explain_forget(ls_explain_asked *a)
{
    ls_source_free(&a->source);
    free(a->node);
    ls_opts_destroy(a->opts);
    free(a->rows);
    *a = (ls_explain_asked){ 0 };
}
