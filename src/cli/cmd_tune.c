/* cmd_tune.c -- lockstep tune buckets: which ddp.bucket_cap is the fastest for a recipe, on these ranks. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "cli/cli.h"
#include "lockstep/launch.h"
#include "train/memory.h"
#include "train/trainer.h"
#include "train/tune.h"

#define NO_RECIPE "which run? expected a YAML file or the name of a recipe, as `lockstep tune buckets gpt2-tiny -n 2`"

typedef struct options {
    ls_train_config c; /* first: the offsets of ls_train_opts are those in it */
    int64_t steps;
} options;

/* For --help: what is this command's own, and -n. Every key of `lockstep train` is read, too (all_opts). */
static const ls_opt table[] = {
    { .name = "nproc-per-node", .type = LS_OPT_STRING, .offset = offsetof(options, c.nproc_per_node), .short_name = 'n',
      .help = "ranks to start on this machine, 2 or more, or auto: one per usable core" },
    { .name = "steps", .type = LS_OPT_INT, .offset = offsetof(options, steps), .def = "5", .range = "0..1000",
      .help = "steps to measure for each cap, after 2 that are not counted; 0: none, steps are predicted only" },
    { .name = "json", .type = LS_OPT_BOOL, .offset = offsetof(options, c.json), .def = "false", .help = "print one JSON object" },
    { .name = "help", .type = LS_OPT_BOOL, .offset = offsetof(options, c.help), .def = "false", .help = "this text",
      .short_name = 'h' },
};
#define STEPS_ROW 1

/* As a recipe has it, and without loss. */
static const char *size_text(size_t nbytes, char *out, size_t n)
{
    const size_t kib = (size_t)1 << 10, mib = (size_t)1 << 20;
    if (nbytes % mib == 0) snprintf(out, n, "%zuMiB", nbytes / mib);
    else if (nbytes % kib == 0) snprintf(out, n, "%zuKiB", nbytes / kib);
    else snprintf(out, n, "%zu", nbytes);
    return out;
}

/* The last row's cap has room for all gradients. */
static const char *cap_text(const ls_tune *t, int row, char *out, size_t n)
{
    return row == t->nrows - 1 ? "unbounded" : size_text(t->row[row].predicted.bucket_cap, out, n);
}

static void print(const ls_train_config *c, const ls_tune *t)
{
    char text[32];
    const ls_overlap_step *best = &t->row[t->best].predicted;
    int fastest = 0;
    printf("all_reduce: alpha %.2f us, beta %.4f ns/B, off by up to %.0f %% (%d ranks over %s)\n", t->alpha_ns / 1e3, t->beta_ns,
           100 * t->worst, t->ranks, t->transport);
    printf("backward: %.3f ms for %d gradients of %zu bytes, %.4f ns/B; rest of a step: %.3f ms\n", t->backward_ns / 1e6,
           t->ngradients, t->nbytes, t->backward_ns / (double)t->nbytes, t->rest_ns / 1e6);
    printf("\n%12s %8s %14s %12s %14s %12s\n", "cap", "buckets", "predicted ms", "exposed ms", "measured ms", "exposed ms");
    for (int i = 0; i < t->nrows; i++) {
        const ls_tune_row *r = &t->row[i];
        const bool now = r->predicted.bucket_cap == c->ddp.bucket_cap;
        if (r->step_ns < t->row[fastest].step_ns) fastest = i;
        printf("%12s %8d %14.3f %12.3f", cap_text(t, i, text, sizeof text), r->predicted.nbuckets, r->predicted.step_ns / 1e6, r->predicted.exposed_ns / 1e6);
        if (r->step_ns > 0) printf(" %14.3f %12.3f", r->step_ns / 1e6, r->exposed_ns / 1e6);
        else printf(" %14s %12s", "-", "-");
        printf("%s%s\n", now ? "  as configured" : "", i == t->best ? "  recommended" : "");
    }
    printf("\nrecommended: ddp.bucket_cap: %s\n", size_text(best->bucket_cap, text, sizeof text));
    if (best->first_bucket != c->ddp.first_bucket)
        printf("recommended: ddp.first_bucket: %s\n", size_text(best->first_bucket, text, sizeof text));
    if (t->row[fastest].step_ns > 0 && fastest != t->best)
        printf("the shortest measured step is that of %s, %.3f ms; with the recommended cap it is %.3f ms\n",
               cap_text(t, fastest, text, sizeof text), t->row[fastest].step_ns / 1e6,
               t->row[t->best].step_ns / 1e6);
}

/* null where a number was not measured. */
static void add_ns(ls_text *out, const char *key, double ns)
{
    ls_text_add(out, ", \"%s\": ", key);
    ls_json_number(out, ns > 0 ? ns : (double)NAN);
}

static ls_status print_json(const ls_train_config *c, const ls_tune *t)
{
    const ls_overlap_step *best = &t->row[t->best].predicted;
    ls_text out = { 0 };
    ls_text_add(&out, "{\"ranks\": %d, \"transport\": ", t->ranks);
    ls_json_string(&out, t->transport);
    ls_text_add(&out, ", \"gradients\": %d, \"bytes\": %zu", t->ngradients, t->nbytes);
    const struct { const char *key; double value; } number[] = {
        { "alpha_ns", t->alpha_ns }, { "beta_ns_per_byte", t->beta_ns }, { "worst", t->worst },
        { "backward_ns", t->backward_ns }, { "rest_ns", t->rest_ns },
    };
    for (size_t i = 0; i < sizeof number / sizeof *number; i++) {
        ls_text_add(&out, ", \"%s\": ", number[i].key);
        ls_json_number(&out, number[i].value);
    }
    ls_text_add(&out, ",\n \"caps\": [");
    for (int i = 0; i < t->nrows; i++) {
        const ls_tune_row *r = &t->row[i];
        ls_text_add(&out, "%s\n  {\"bucket_cap\": %zu, \"unbounded\": %s, \"configured\": %s, \"buckets\": %d", i ? "," : "",
                    r->predicted.bucket_cap, i == t->nrows - 1 ? "true" : "false",
                    r->predicted.bucket_cap == c->ddp.bucket_cap ? "true" : "false", r->predicted.nbuckets);
        add_ns(&out, "predicted_ns", r->predicted.step_ns);
        ls_text_add(&out, ", \"predicted_exposed_ns\": ");
        ls_json_number(&out, r->predicted.exposed_ns);
        add_ns(&out, "measured_ns", r->step_ns);
        ls_text_add(&out, ", \"measured_exposed_ns\": ");
        ls_json_number(&out, r->step_ns > 0 ? r->exposed_ns : (double)NAN);
        ls_text_add(&out, "}");
    }
    ls_text_add(&out, "],\n \"recommended\": {\"bucket_cap\": %zu, \"first_bucket\": %zu}}\n", best->bucket_cap, best->first_bucket);
    return ls_cli_print(&out);
}

/* Flags of `lockstep train` that would do nothing here. */
static ls_status check_flags(const ls_opts *opts)
{
    static const char *const other[] = { "eval-only", "print-config", "dry-run", "explain", "dump-buckets", "inject",
                                         "events",    "log-dir",      "ranks-as", "max-restarts" };
    for (size_t i = 0; i < sizeof other / sizeof *other; i++)
        if (!ls_opts_is_default(opts, other[i]))
            return ls_fail(LS_USAGE, "--%s belongs to `lockstep train`: leave it out", other[i]);
    return LS_OK;
}

static ls_status check(const ls_train_config *c, int world_size)
{
    LS_TRY(ls_tune_check(c, world_size));
    LS_TRY(ls_train_config_check(c, world_size));
    LS_TRY(ls_trainer_check(c, world_size));
    return ls_memory_explain(c, world_size, NULL);
}

static int tune(const options *o, int argc, char **argv)
{
    const ls_train_config *c = &o->c;
    ls_tune result;
    int rank, size;
    ls_status st = LS_OK;
    const bool is_rank = ls_world_launched(&rank, &size);
    if ((st = ls_train_check_launcher(c)) < 0) return ls_cli_fail_alike("tune", st, argc, argv);
    if (!is_rank) {
        const int nproc = ls_train_nproc(c);
        const ls_launch_opts lo = { .nproc = nproc, .timeout_ns = c->comm.timeout };
        ls_launch_result launched;
        if ((st = check(c, nproc ? nproc : 1)) >= 0) st = ls_cli_launch(&lo, argc, argv, &launched);
        return st < 0 ? ls_cli_fail("tune", st) : launched.exit_code;
    }
    st = ls_cli_check_started(c);
    if (st >= 0) st = ls_tune_check(c, size);
    if (st >= 0) st = ls_train_config_check(c, size);
    if (st < 0) return ls_cli_fail_alike("tune", st, argc, argv);
    st = ls_tune_buckets(c, o->steps, &result);
    if (st >= 0 && rank == 0 && c->json) st = print_json(c, &result);
    else if (st >= 0 && rank == 0) print(c, &result);
    if (st == LS_ABORTED) return ls_status_exit_code(st); /* the rank that failed first says why */
    return st < 0 ? ls_cli_fail("tune", st) : 0;
}

/* The keys and flags of `lockstep train`, and --steps; the caller frees them. NULL: out of memory. */
static ls_opt *all_opts(void)
{
    ls_opt *all = malloc((ls_train_nopts + 1) * sizeof *all);
    if (!all) return NULL;
    memcpy(all, ls_train_opts, ls_train_nopts * sizeof *all);
    all[ls_train_nopts] = table[STEPS_ROW];
    return all;
}

/* argv: "buckets", then the recipe and flags in any order; only --help may stand alone. */
static ls_status read_all(ls_opts *opts, const options *o, int argc, char **argv)
{
    const bool buckets = argc > 1 && strcmp(argv[1], "buckets") == 0;
    const bool help = argc == 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0);
    if (!buckets && !help) return ls_fail(LS_USAGE, "what shall be tuned? expected `lockstep tune buckets RECIPE`");
    if (buckets && argc == 2) return ls_fail(LS_USAGE, NO_RECIPE);
    LS_TRY(ls_train_read(opts, &o->c, argc - buckets, argv + buckets));
    if (o->c.help) return LS_OK;
    if (ls_opts_npositional(opts) == 0) return ls_fail(LS_USAGE, NO_RECIPE);
    LS_TRY(check_flags(opts));
    return ls_train_check_given(opts, &o->c);
}

static int run(int argc, char **argv)
{
    options o = { 0 };
    ls_opts *opts = NULL;
    ls_opt *all = all_opts();
    int code = 0;
    ls_status st = all ? ls_opts_create(all, ls_train_nopts + 1, &o, &opts) : ls_fail(LS_NO_MEMORY, "the table of options");
    if (st >= 0) st = read_all(opts, &o, argc, argv);
    if (st < 0) code = ls_cli_fail_alike("tune", st, argc, argv);
    else code = o.c.help ? ls_cli_help(&ls_cmd_tune) : tune(&o, argc, argv);
    ls_opts_destroy(opts);
    free(all);
    return code;
}

const ls_cmd ls_cmd_tune = {
    .name = "tune",
    .summary = "recommend a bucket cap for a recipe, from measured and predicted step times",
    .usage = "lockstep tune buckets CONFIG.yaml|RECIPE [options] [--section.key value]...",
    .example = "lockstep tune buckets recipes/fashion-mnist.yaml -n 2",
    LS_CMD_OPTS(table),
    .run = run,
};
