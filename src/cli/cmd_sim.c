/* cmd_sim.c -- lockstep sim: a training step of every rank of a cluster, in virtual time. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/place.h"
#include "cli/planned.h"
#include "plan/predicted.h"
#include "plan/sheet.h"
#include "plan/step_sim.h"
#include "sim/quantity.h"

#define MOST_FAULTS 64

/* The configuration comes first: rows of `lockstep train` have their offsets in it. */
typedef struct options {
    ls_train_config c;
    const char *topology, *slow, *fail, *timeline;
    int64_t ranks, units, seed, traced;
    double tflops, memory_rate, jitter;
    bool json, help;
} options;

static const ls_opt table[] = {
    { .name = "topology", .type = LS_OPT_STRING, .offset = offsetof(options, topology),
      .help = "the cluster, a preset (which grows to the ranks), a file or local; without it this machine, with operations "
              "timed on it and a device per rank", .short_name = 't' },
    { .name = "ranks", .type = LS_OPT_INT, .offset = offsetof(options, ranks), .def = "0", .range = "0..65536",
      .help = "how many, one on each device; 0: those of the configuration's degrees if it has parallel.dp, else a rank on "
              "every device", .short_name = 'n', .alias = "nproc-per-node" },
    { .name = "units", .type = LS_OPT_INT, .offset = offsetof(options, units), .def = "0", .range = "0..1048576",
      .help = "units that the highest level joins, nodes for most (0: what the file says)" },
    { .name = "tflops", .type = LS_OPT_DOUBLE, .offset = offsetof(options, tflops), .def = "0", .range = "0..1e6",
      .help = "TFLOP/s that products of a device reach; 0: half of its peak" },
    { .name = "memory-rate", .type = LS_OPT_DOUBLE, .offset = offsetof(options, memory_rate), .def = "0",
      .range = "0..1e6",
      .help = "GB/s of a device's memory; 0: its data sheet's, and where that is unknown memory limits nothing" },
    { .name = "jitter", .type = LS_OPT_DOUBLE, .offset = offsetof(options, jitter), .def = "0", .range = "0..1",
      .help = "each time varies by up to this part of it, evenly" },
    { .name = "jitter-seed", .type = LS_OPT_INT, .offset = offsetof(options, seed), .def = "0",
      .range = "0..9007199254740992",
      .help = "of --jitter: the same seed gives the same step" },
    { .name = "slow", .type = LS_OPT_STRING, .offset = offsetof(options, slow),
      .help = "stragglers: RANK:FACTOR,..., as in 3:1.5 for a rank whose operations take 1.5 times as long" },
    { .name = "fail", .type = LS_OPT_STRING, .offset = offsetof(options, fail),
      .help = "links that carry no messages between pipeline stages for a while: LEVEL:UNIT@FROM-UNTIL,... in ms, as "
              "in cluster:0@2-5 for the adapters of node 0; collectives do not notice" },
    { .name = "timeline", .type = LS_OPT_STRING, .offset = offsetof(options, timeline),
      .help = "write what ranks do to this file, as trace.steps does in a run (for Perfetto)" },
    { .name = "timeline-ranks", .type = LS_OPT_INT, .offset = offsetof(options, traced), .def = "16", .range = "1..64",
      .help = "how many ranks are in it, evenly over all" },
    { .name = "json", .type = LS_OPT_BOOL, .offset = offsetof(options, json), .def = "false",
      .help = "print one JSON object" },
    { .name = "help", .type = LS_OPT_BOOL, .offset = offsetof(options, help), .def = "false", .help = "this text",
      .short_name = 'h' },
};
enum { OWN = sizeof table / sizeof *table };

/* --- faults ---------------------------------------------------------------------------------------------- */

/* The next word of a list with commas; false: there is none. */
static bool next_word(const char **at, char *word, size_t n)
{
    const size_t len = *at ? strcspn(*at, ",") : 0;
    if (!*at || !**at) return false;
    snprintf(word, n, "%.*s", (int)(len < n - 1 ? len : n - 1), *at);
    *at += len + ((*at)[len] == ',');
    return true;
}

static ls_status read_slow(const char *text, ls_step_straggler *out, int *n)
{
    char word[64];
    for (const char *at = text; next_word(&at, word, sizeof word); ++*n) {
        int used = 0;
        if (*n == MOST_FAULTS) return ls_fail(LS_USAGE, "--slow: more than %d ranks", MOST_FAULTS);
        if (sscanf(word, "%d:%lf%n", &out[*n].rank, &out[*n].pace, &used) != 2 || word[used])
            return ls_fail(LS_USAGE, "--slow %s: '%s' is not RANK:FACTOR, as in 3:1.5", text, word);
        for (int i = 0; i < *n; i++)
            if (out[i].rank == out[*n].rank)
                return ls_fail(LS_USAGE, "--slow %s: rank %d is there twice: expected one factor per rank", text,
                               out[i].rank);
    }
    return LS_OK;
}

static ls_status read_fail(const char *text, const ls_topo *t, ls_des_failure *out, int *n)
{
    char word[128], name[LS_TOPO_NAME_BYTES];
    for (const char *at = text; next_word(&at, word, sizeof word); ++*n) {
        ls_des_failure *f = &out[*n];
        long long unit;
        double from, until;
        int used = 0;
        if (*n == MOST_FAULTS) return ls_fail(LS_USAGE, "--fail: more than %d failures", MOST_FAULTS);
        if (sscanf(word, "%47[^:]:%lld@%lf-%lf%n", name, &unit, &from, &until, &used) != 4 || word[used])
            return ls_fail(LS_USAGE, "--fail %s: '%s' is not LEVEL:UNIT@FROM-UNTIL in ms, as in cluster:0@2-5", text,
                           word);
        *f = (ls_des_failure){ .level = -1, .unit = unit, .from_s = 1e-3 * from, .until_s = 1e-3 * until };
        for (int l = 0; l < t->nlevels; l++)
            if (strcmp(t->level[l].name, name) == 0) f->level = l;
        if (f->level < 0)
            return ls_fail(LS_USAGE, "--fail %s: %s has no level '%s'; its highest is %s", text, t->name, name,
                           t->level[t->nlevels - 1].name);
    }
    return LS_OK;
}

/* Whether a message between two neighbouring stages uses the links of the unit that fails. */
static bool is_used(const ls_topo *t, const ls_step_lists *l, const ls_des_failure *f)
{
    const int64_t each = ls_topo_unit_devices(t, f->level);
    int stride = 1; /* ranks from a stage to the next one */
    for (int i = LS_AXES - 1; i >= 0 && ls_mesh_axis(l->order, i) != LS_AXIS_PP; i--)
        stride *= l->size[ls_mesh_axis(l->order, i)];
    const int round = stride * l->stages;
    for (int r = 0; r < l->ranks; r++) {
        const bool last = r / stride % l->stages == l->stages - 1; /* whose chunks go on at the first stage */
        const int64_t to = last ? r + stride - round : r + stride;
        const int meet = ls_topo_meet(t, r, to);
        if ((last && l->chunks == 1) || (f->level == 0 ? meet != 0 : meet < f->level)) continue;
        if (r / each == f->unit || to / each == f->unit) return true;
    }
    return false;
}

static ls_status check_fail(const ls_topo *t, const ls_step_lists *l, const ls_des_failure *f, int n)
{
    if (n > 0 && l->stages == 1)
        return ls_fail(LS_UNSUPPORTED, "--fail: only messages between pipeline stages meet a link that fails, and there "
                       "is one stage: add --parallel.pp, or leave --fail out");
    for (int i = 0; i < n; i++)
        if (f[i].unit >= 0 && f[i].unit < ls_topo_devices(t) / ls_topo_unit_devices(t, f[i].level) &&
            !is_used(t, l, &f[i]))
            return ls_fail(LS_USAGE, "--fail %s:%lld: no message between stages uses these links, so nothing would "
                           "change: expected a unit whose ranks and their neighbouring stages meet at level %s",
                           t->level[f[i].level].name, (long long)f[i].unit, t->level[f[i].level].name);
    return LS_OK;
}

/* --- what is shown ----------------------------------------------------------------------------------------- */

typedef struct shown {
    const ls_topo *t;
    const ls_step_lists *l;
    const ls_step_rates *rates;
    const ls_here *here; /* NULL: a cluster */
    const ls_step_result *r;
} shown;

static const char *time_text(double s, char *buf, size_t n) { return ls_quantity_text(LS_Q_TIME, s, buf, n); }

static const char *mesh_text(const ls_step_lists *l, char *buf, size_t n)
{
    size_t at = 0;
    snprintf(buf, n, "one rank");
    for (int a = 0; a < LS_AXES && at < n; a++)
        if (l->size[a] > 1)
            at += (size_t)snprintf(buf + at, n - at, "%s%s %d", at ? ", " : "", ls_axis_name((ls_axis)a), l->size[a]);
    return buf;
}

static bool is_usual(const ls_step_lists *l)
{
    for (int i = 0; i < LS_AXES; i++)
        if ((int)ls_mesh_axis(l->order, i) != i) return false;
    return true;
}

/* Of the axes that have several ranks. */
static const char *order_text(const ls_step_lists *l, char *buf, size_t n)
{
    size_t at = 0;
    *buf = 0;
    for (int i = 0; i < LS_AXES && at < n; i++) {
        const ls_axis a = ls_mesh_axis(l->order, i);
        if (l->size[a] > 1) at += (size_t)snprintf(buf + at, n - at, "%s%s", at ? "-" : "", ls_axis_name(a));
    }
    return buf;
}

static double mfu(const shown *s)
{
    const double peak = s->t->device.flops_per_s * s->l->ranks * s->r->step_s;
    return peak > 0 ? s->l->flops / peak : 0;
}

static void print_parts(const char *what, const ls_step_parts *p, double step, ls_text *out)
{
    const double part[] = { p->compute, p->collectives, p->others, p->beside, p->stages, p->idle };
    ls_text_add(out, "%-8s", what);
    for (size_t i = 0; i < sizeof part / sizeof *part; i++)
        ls_text_add(out, " %9.3f ms %4.1f %%", 1e3 * part[i], step > 0 ? 100 * part[i] / step : 0);
    ls_text_add(out, "\n");
}

static void print(const shown *s, ls_text *out)
{
    const ls_step_result *r = s->r;
    char a[64], b[64], c[64], d[160];
    ls_text_add(out, "%s: %d ranks (%s), one on each device\n", s->t->name, s->l->ranks, mesh_text(s->l, d, sizeof d));
    if (!is_usual(s->l)) ls_text_add(out, "order of the axes, the slowest first: %s\n", order_text(s->l, d, sizeof d));
    if (s->l->stages > 1)
        ls_text_add(out, "pipeline: %s, %d stages, micro-batches per step: %d\n", s->l->schedule,
                    s->l->stages * s->l->chunks, s->l->micro_batches);
    if (s->here) ls_here_text(s->here, out);
    else ls_text_add(out, "a device computes %.4g TFLOP/s", 1e-12 * s->rates->flops_per_s);
    if (s->rates->memory_bytes_per_s > 0)
        ls_text_add(out, ", and its memory moves %.4g GB/s", 1e-9 * s->rates->memory_bytes_per_s);
    ls_text_add(out, "\n\nstep %s: %s %s/s", time_text(r->step_s, a, sizeof a),
                ls_number_text(s->l->tokens / r->step_s, 0, b, sizeof b), s->l->what);
    if (mfu(s) > 0) ls_text_add(out, ", MFU %.1f %%", 100 * mfu(s));
    ls_text_add(out, "\nbubble %.1f %%; communication exposed %s per rank, and %s beside computation\n",
                100 * r->bubble,
                time_text(r->exposed_s, a, sizeof a), time_text(r->beside_s, b, sizeof b));
    ls_text_add(out, "\n%-8s %19s %19s %19s %19s %19s %19s\n", "stage", "computes", "collectives", "waits for others",
                "for those beside", "for stages", "done");
    for (int k = 0; k < s->l->stages; k++) {
        snprintf(c, sizeof c, "%d", k);
        print_parts(c, &r->stage[k], r->step_s, out);
    }
    if (r->ncalled > 0)
        ls_text_add(out, "\n%-14s %-10s %12s %7s %12s %s\n", "collective", "axes", "bytes", "calls", "takes",
                    "algorithm");
    for (int i = 0; i < r->ncalled; i++) {
        const ls_step_called *x = &r->called[i];
        c[0] = '\0';
        if (x->call.vector.spans > 0) snprintf(c, sizeof c, ", rows of %d matrices", x->call.vector.spans);
        ls_text_add(out, "%-14s %-10s %12s %7d %12s %s%s\n", ls_coll_name(x->call.coll),
                    ls_step_span_text(s->l->size, &x->call.span, d, sizeof d),
                    ls_bytes_text(x->call.bytes, a, sizeof a), x->calls, time_text(x->price.seconds, b, sizeof b),
                    x->price.algo, c);
    }
    ls_text_add(out, "\n%s events simulated\n", ls_number_text((double)r->events, 0, a, sizeof a));
}

static void json(const shown *s, ls_text *out)
{
    const ls_step_result *r = s->r;
    char axes[64];
    ls_text_add(out, "{\"topology\": ");
    ls_json_string(out, s->t->name);
    ls_text_add(out, ", \"ranks\": %d, \"mesh\": {", s->l->ranks);
    for (int a = 0; a < LS_AXES; a++)
        ls_text_add(out, "%s\"%s\": %d", a ? ", " : "", ls_axis_name((ls_axis)a), s->l->size[a]);
    ls_text_add(out, "}, \"order\": \"%s\"", order_text(s->l, axes, sizeof axes));
    ls_text_add(out, ", \"schedule\": \"%s\", \"chunks\": %d, \"micro_batches\": %d,\n \"of\": \"%s\", ",
                s->l->schedule, s->l->chunks, s->l->micro_batches, s->l->what);
    ls_json_field(out, "step_s", r->step_s);
    ls_text_add(out, ", ");
    ls_json_field(out, "per_s", s->l->tokens / r->step_s);
    ls_text_add(out, ", ");
    ls_json_field(out, "mfu", mfu(s) > 0 ? mfu(s) : (double)NAN);
    ls_text_add(out, ", ");
    ls_json_field(out, "bubble", r->bubble);
    ls_text_add(out, ", ");
    ls_json_field(out, "exposed_s", r->exposed_s);
    ls_text_add(out, ", ");
    ls_json_field(out, "beside_s", r->beside_s);
    ls_text_add(out, ", \"events\": %llu,\n \"stages\": [", (unsigned long long)r->events);
    for (int k = 0; k < s->l->stages; k++) {
        const ls_step_parts *p = &r->stage[k];
        const struct { const char *name; double v; } part[] = { { "compute_s", p->compute },
                                                                { "collectives_s", p->collectives },
                                                                    { "others_s", p->others },
                                                                { "beside_s", p->beside }, { "stages_s", p->stages },
                                                                    { "idle_s", p->idle } };
        for (size_t i = 0; i < sizeof part / sizeof *part; i++) {
            ls_text_add(out, "%s", i ? ", " : k ? ",\n  {" : "\n  {");
            ls_json_field(out, part[i].name, part[i].v);
        }
        ls_text_add(out, "}");
    }
    ls_text_add(out, "],\n \"collectives\": [");
    for (int i = 0; i < r->ncalled; i++) {
        const ls_step_called *x = &r->called[i];
        ls_text_add(out, "%s{\"coll\": \"%s\", \"axes\": \"%s\", \"calls\": %d, ", i ? ",\n  " : "\n  ",
                    ls_coll_name(x->call.coll), ls_step_span_text(s->l->size, &x->call.span, axes, sizeof axes),
                    x->calls);
        ls_json_field(out, "bytes", x->call.bytes);
        ls_text_add(out, ", \"spans\": %d, \"counts\": %s, \"apart\": %s", x->call.vector.spans,
                    x->call.vector.counts ? "true" : "false", x->call.vector.apart ? "true" : "false");
        ls_text_add(out, ", ");
        ls_json_field(out, "seconds", x->price.seconds);
        ls_text_add(out, ", \"algo\": \"%s\", \"link\": ", x->price.algo);
        ls_json_string(out, s->t->level[x->price.level].link);
        ls_text_add(out, "}");
    }
    ls_text_add(out, "]}\n");
}

/* --- running ------------------------------------------------------------------------------------------------- */

static ls_status rates_of(const options *o, const ls_topo *t, ls_step_rates *out)
{
    out->flops_per_s = o->tflops > 0 ? 1e12 * o->tflops : t->device.flops_per_s / 2;
    out->memory_bytes_per_s = o->memory_rate > 0 ? 1e9 * o->memory_rate : ls_sheet_memory_rate(t->device.name);
    if (out->flops_per_s > 0) return LS_OK;
    return ls_fail(LS_USAGE, "%s does not state the peak of its devices: --tflops says how much of it products reach",
                   t->name);
}

/* here: this machine, whose operations are timed; NULL: a cluster. */
static ls_status simulate(const options *o, const ls_topo *t, ls_here *here, int ranks, ls_text *out)
{
    ls_step_straggler slow[MOST_FAULTS];
    ls_des_failure fail[MOST_FAULTS];
    const ls_algo *algo[LS_COLLS];
    const int local = !here && ls_cli_is_local(o->topology) && o->units < 2 ? ranks : 1; /* share memory */
    ls_step_lists l = { 0 };
    ls_step_rates rates = { 0 };
    ls_step_sim_opts s = { .t = t, .algo = algo, .straggler = slow, .failure = fail,
                           .jitter = o->jitter, .seed = (uint64_t)o->seed,
                           .trace = o->timeline && *o->timeline ? o->timeline : NULL, .traced = (int)o->traced };
    if (here) ls_here_rates(here, &rates);
    else LS_TRY(rates_of(o, t, &rates));
    if (here) ls_here_options(here, &s);
    LS_TRY(read_slow(o->slow, slow, &s.nstragglers));
    LS_TRY(read_fail(o->fail, t, fail, &s.nfailures));
    LS_TRY(ls_algo_parse(o->c.comm.algo ? o->c.comm.algo : "", algo));
    ls_step_result *r = calloc(1, sizeof *r);
    ls_status st = r ? LS_OK : ls_fail(LS_NO_MEMORY, "a simulation");
    if (st == LS_OK)
        st = here ? ls_here_lists(here, &o->c, &rates, &l) : ls_step_lists_create(&o->c, ranks, local, &rates, &l);
    if (st == LS_OK) st = check_fail(t, &l, fail, s.nfailures);
    if (st == LS_OK && here) ls_here_time_colls(here, &o->c, &l);
    if (st == LS_OK && here) st = ls_here_place(here, &s);
    if (st == LS_OK) st = ls_step_simulate(&l, &s, r);
    const shown all = { t, &l, &rates, here, r };
    if (st == LS_OK) (o->json ? json : print)(&all, out);
    ls_step_lists_free(&l);
    free(r);
    return st == LS_OK ? ls_text_status(out) : st;
}

/* parallel.placement auto: as the launcher chooses on as many nodes. */
static ls_status place(const options *o, ls_opts *opts, const ls_topo *t, int ranks)
{
    const int64_t each = t ? ls_topo_unit_devices(t, t->nlevels > 1 ? 1 : 0) : ranks; /* devices of a node */
    return ls_cli_place(opts, &o->c, ranks, (int)((ranks + each - 1) / each));
}

/* Without a cluster: here, as `lockstep train --predict` has it. */
static ls_status simulate_here(const options *o, ls_opts *opts, ls_text *out)
{
    static const char *const of_clusters[] = { "units", "tflops", "memory-rate" };
    ls_here h = { 0 };
    const int ranks = o->ranks > 0 ? (int)o->ranks : ls_train_ranks(&o->c);
    for (size_t i = 0; i < sizeof of_clusters / sizeof *of_clusters; i++)
        if (ls_opts_is_set(opts, of_clusters[i]))
            return ls_fail(LS_USAGE, "--%s is about a cluster: add --topology, which names a preset, a file or local", of_clusters[i]);
    LS_TRY(place(o, opts, NULL, ranks));
    ls_train_config c = o->c;
    c.json = o->json; /* of two options with this name ours is the one that was read */
    ls_status st = ls_train_config_check(&c, ranks);
    if (st == LS_OK) st = ls_here_make(&c, ranks, ranks, &h);
    if (st == LS_OK) st = simulate(o, &h.topo, &h, ranks, out);
    else st = ls_while(st, "timing the model on this machine (with --topology nothing is timed, and no data are read)");
    ls_here_free(&h);
    return st;
}

static ls_status answer(const options *o, ls_opts *opts, ls_text *out)
{
    ls_topo t;
    int ranks;
    const int64_t asked = o->ranks == 0 && o->c.parallel.dp > 0 ? ls_train_ranks(&o->c) : o->ranks;
    LS_TRY(ls_cli_refuse_train_flags(opts, OWN));
    if (ls_opts_is_set(opts, "jitter-seed") && !(o->jitter > 0))
        return ls_fail(LS_USAGE, "--jitter-seed draws nothing without --jitter: add it, as in --jitter 0.05");
    if (ls_opts_is_set(opts, "timeline-ranks") && !(o->timeline && *o->timeline))
        return ls_fail(LS_USAGE, "--timeline-ranks needs --timeline FILE");
    if (!o->topology || !*o->topology) return simulate_here(o, opts, out);
    LS_TRY(ls_cli_cluster_for(o->topology, o->units, asked, &t));
    LS_TRY(ls_cli_cluster_ranks(&t, asked, &ranks));
    LS_TRY(place(o, opts, &t, ranks));
    return simulate(o, &t, NULL, ranks, out);
}

static int run(int argc, char **argv)
{
    options o = { 0 };
    ls_opts *opts = NULL;
    ls_text out = { 0 };
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) return ls_cli_help(&ls_cmd_sim);
    ls_opt *rows = ls_cli_with_train_opts(table, OWN);
    ls_status st = rows ? ls_opts_create(rows, OWN + ls_train_nopts, &o, &opts)
                        : ls_fail(LS_NO_MEMORY, "a table of options");
    if (st == LS_OK) st = ls_train_read(opts, &o.c, argc, argv);
    if (st == LS_OK) st = answer(&o, opts, &out);
    if (st == LS_OK) st = ls_cli_print(&out);
    ls_text_free(&out);
    ls_opts_destroy(opts);
    free(rows);
    return st < 0 ? ls_cli_fail("sim", st) : 0;
}

const ls_cmd ls_cmd_sim = {
    .name = "sim",
    .summary = "simulate a training step of every rank of a cluster",
    .usage = "lockstep sim CONFIG.yaml [--topology CLUSTER.yaml|PRESET|local] [options]",
    .example = "lockstep sim gpt2-124m --topology h100-8 --parallel.tp 8\n"
               "  lockstep sim gpt2-tiny -n 2\n"
               "  lockstep sim gpt2-124m --topology ethernet-2 --slow 3:1.5 --timeline step.json",
    LS_CMD_OPTS(table),
    .run = run,
};
