/* cmd_calibrate.c -- lockstep calibrate: measure what moving and adding cost here, and keep it. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/env.h"
#include "base/file.h"
#include "cli/cli.h"
#include "group/calibrate.h"
#include "lockstep/lockstep.h"
#include "report/rundir.h"

typedef struct options {
    const char *output;
    bool show, json, help;
} options;

static const ls_opt table[] = {
    { .name = "output", .type = LS_OPT_STRING, .offset = offsetof(options, output),
      .help = "the file to keep it in (default: where jobs look for it)" },
    { .name = "show", .type = LS_OPT_BOOL, .offset = offsetof(options, show), .def = "false",
      .help = "print the numbers that jobs use now; measure nothing" },
    { .name = "json", .type = LS_OPT_BOOL, .offset = offsetof(options, json), .def = "false", .help = "print one JSON object" },
    { .name = "help", .type = LS_OPT_BOOL, .offset = offsetof(options, help), .def = "false", .help = "this text",
      .short_name = 'h' },
};

static const char *size_text(double nbytes, char *out, size_t n)
{
    const int k = nbytes >= 1048576.0 ? 2 : nbytes >= 1024.0;
    if (nbytes >= LS_COST_NEVER) snprintf(out, n, "never");
    else snprintf(out, n, "%g %s", nbytes / (k == 2 ? 1048576.0 : k == 1 ? 1024.0 : 1.0), k == 2 ? "MiB" : k == 1 ? "KiB" : "B");
    return out;
}

/* What follows for mapped memory, and by which times of the first and the second way. */
static void print_switches(const ls_cost *c, const ls_calibration *m)
{
    static const char *const what[LS_SWITCH_POINTS] = {
        "reduce_scatter sums in place above", "all_gather and all_to_all copy in place above",
        "stores into results go past the caches from", "mailbox copies use the string instruction from",
        "private vectors are staged past the caches from",
        "private memory is read where it lies from",
    };
    ls_switch_points s = c->in_memory;
    char text[32];
    puts("in memory, between ranks with a core each");
    for (int i = 0; i < LS_SWITCH_POINTS; i++) {
        printf("  %-50s %s", what[i], size_text(*ls_switch_point(&s, i), text, sizeof text));
        for (int k = 0; m && k < m->nswitch[i]; k++)
            printf("%s %s: %.2f, %.2f us", k == 0 ? "; measured" : ",", size_text((double)m->switch_bytes[i][k], text, sizeof text),
                   m->switch_ns[i][k][0] / 1e3, m->switch_ns[i][k][1] / 1e3);
        puts(m && m->nswitch[i] == 0 ? "; not measured" : "");
    }
}

static void print_cost(const ls_cost *c, const ls_calibration *m)
{
    static const char *const what[LS_LEVELS] = { "two ranks of a node, in memory", "two ranks of a node, over tcp",
                                                 "two nodes" };
    printf("%-9s %10s %10s %12s %9s  %s\n", "level", "alpha us", "gap us", "beta ns/B", "GB/s", "");
    for (int l = 0; l < LS_LEVELS; l++) {
        const ls_link_cost *k = &c->link[l];
        printf("%-9s %10.2f %10.2f %12.4f %9.2f  %s", ls_level_name((ls_level)l), k->alpha_ns / 1e3, k->gap_ns / 1e3,
               k->beta_ns, k->beta_ns > 0.0 ? 1.0 / k->beta_ns : 0.0, what[l]);
        if (m && !m->measured[l]) printf("; not measured");
        else if (m) printf("; off by up to %.0f %%", 100.0 * m->residual[l]);
        puts("");
    }
    printf("adding    %.4f ns/B (%.2f GB/s)\n", c->gamma_ns, c->gamma_ns > 0.0 ? 1.0 / c->gamma_ns : 0.0);
    printf("progress  %.2f us\n", c->poke_ns / 1e3);
    print_switches(c, m);
}

/* Each measurement beside what the line through them says. */
static void print_fit(const ls_calibration *m)
{
    for (int l = 0; l < LS_LEVELS; l++) {
        const ls_link_cost *k = &m->cost.link[l];
        if (!m->measured[l]) continue;
        printf("\n%-9s %10s %12s %12s %9s\n", ls_level_name((ls_level)l), "bytes", "measured us", "fitted us", "residual");
        for (int i = 0; i < LS_CALIBRATE_SIZES; i++) {
            double fit = k->alpha_ns + k->beta_ns * (double)m->nbytes[i], ns = m->ns[l][i];
            printf("%-9s %10zu %12.2f %12.2f %8.1f%%\n", "", m->nbytes[i], ns / 1e3, fit / 1e3, 100.0 * (fit - ns) / ns);
        }
    }
}

static void json_link(const ls_cost *c, const ls_calibration *m, int l, ls_text *out)
{
    const ls_link_cost *k = &c->link[l];
    ls_text_add(out, "{\"level\": \"%s\"", ls_level_name((ls_level)l));
    ls_json_also(out, "alpha_us", k->alpha_ns / 1e3);
    ls_json_also(out, "gap_us", k->gap_ns / 1e3);
    ls_json_also(out, "beta_ns_per_byte", k->beta_ns);
    ls_json_also(out, "gb_per_s", k->beta_ns > 0.0 ? 1.0 / k->beta_ns : (double)NAN);
    if (m && m->measured[l]) {
        ls_json_also(out, "worst", m->residual[l]);
        ls_text_add(out, ",\n   \"fit\": [");
        for (int i = 0; i < LS_CALIBRATE_SIZES; i++) {
            ls_text_add(out, "%s{\"bytes\": %zu", i ? ", " : "", m->nbytes[i]);
            ls_json_also(out, "measured_us", m->ns[l][i] / 1e3);
            ls_json_also(out, "fitted_us", (k->alpha_ns + k->beta_ns * (double)m->nbytes[i]) / 1e3);
            ls_text_add(out, "}");
        }
        ls_text_add(out, "]");
    }
    ls_text_add(out, "}");
}

static void json_switches(const ls_cost *c, const ls_calibration *m, ls_text *out)
{
    ls_switch_points s = c->in_memory;
    ls_text_add(out, ",\n \"in_memory\": [");
    for (int i = 0; i < LS_SWITCH_POINTS; i++) {
        const double at = *ls_switch_point(&s, i);
        ls_text_add(out, "%s\n  {\"name\": \"%s\"", i ? "," : "", ls_switch_name(i));
        ls_json_also(out, "bytes", at >= LS_COST_NEVER ? (double)NAN : at);
        if (m) ls_text_add(out, ", \"measured\": [");
        for (int k = 0; m && k < m->nswitch[i]; k++) {
            ls_text_add(out, "%s{\"bytes\": %zu", k ? ", " : "", m->switch_bytes[i][k]);
            ls_json_also(out, "first_us", m->switch_ns[i][k][0] / 1e3);
            ls_json_also(out, "second_us", m->switch_ns[i][k][1] / 1e3);
            ls_text_add(out, "}");
        }
        ls_text_add(out, "%s}", m ? "]" : "");
    }
    ls_text_add(out, "]");
}

/* The same numbers as one object; `measured` and what belongs to it only after a measurement. */
static ls_status print_json(const ls_cost *c, const ls_calibration *m, const char *from)
{
    ls_text out = { 0 };
    ls_text_add(&out, "{\"from\": ");
    ls_json_string(&out, from);
    ls_text_add(&out, ", \"measured\": %s,\n \"links\": [", m ? "true" : "false");
    for (int l = 0; l < LS_LEVELS; l++) {
        ls_text_add(&out, "%s\n  ", l ? "," : "");
        json_link(c, m, l, &out);
    }
    ls_text_add(&out, "]");
    ls_json_also(&out, "add_ns_per_byte", c->gamma_ns);
    ls_json_also(&out, "add_gb_per_s", c->gamma_ns > 0.0 ? 1.0 / c->gamma_ns : (double)NAN);
    ls_json_also(&out, "progress_us", c->poke_ns / 1e3);
    json_switches(c, m, &out);
    ls_text_add(&out, "}\n");
    return ls_cli_print(&out);
}

static ls_status show(bool json)
{
    ls_cost c;
    char from[4096];
    LS_TRY(ls_cost_load(&c, from, sizeof from));
    if (json) return print_json(&c, NULL, from);
    print_cost(&c, NULL);
    printf("from %s\n", from);
    return LS_OK;
}

static ls_status keep(const ls_calibration *m, const char *path)
{
    char host[256] = "", folder[512];
    ls_text text = { 0 };
    const char *slash = strrchr(path, '/');
    size_t n = slash ? (size_t)(slash - path) : 0;
    if (n >= sizeof folder) return ls_fail(LS_IO, "%s: too long a name", path);
    memcpy(folder, path, n);
    folder[n] = 0;
    if (n > 0) LS_TRY(ls_mkdirs(folder));
    if (ls_env_get()->hostname(host, sizeof host) < 0) host[0] = 0;
    ls_cost_print_json(&m->cost, host, &text);
    ls_status st = ls_text_status(&text);
    if (st == LS_OK) st = ls_file_write(path, ls_text_str(&text), text.n);
    ls_text_free(&text);
    return st;
}

/* Rank 0 measures its host before the others meet it; with a launcher over several hosts the wire follows. */
static ls_status measure(const options *o)
{
    ls_calibration m = { .cost = ls_cost_preset };
    char path[4096], from[4096];
    int rank = 0, size = 1;
    ls_status st = LS_OK;
    bool launched = ls_world_launched(&rank, &size);
    if (o->output && *o->output) snprintf(path, sizeof path, "%s", o->output);
    else if (!ls_cost_path(path, sizeof path))
        return ls_fail(LS_USAGE, "nowhere to keep it: --output, LOCKSTEP_CALIBRATION or HOME says where");
    ls_cost kept;
    if (rank == 0 && ls_cost_load(&kept, from, sizeof from) == LS_OK) m.cost = kept; /* a broken one is replaced */
    if (rank == 0) LS_TRY(ls_calibrate_host(&m));
    if (launched && size > 1) {
        ls_world_opts wo = { .transport = "mixed" };
        ls_world *w;
        LS_TRY(ls_world_join(&wo, &w));
        st = ls_calibrate_network(w, &m);
        if (st < 0) (void)ls_world_abort(w, st);
        ls_world_leave(w);
    }
    if (st < 0 || rank != 0) return st;
    LS_TRY(keep(&m, path));
    if (o->json) return print_json(&m.cost, &m, path);
    print_cost(&m.cost, &m);
    print_fit(&m);
    printf("\nkept in %s\n", path);
    return LS_OK;
}

static int run(int argc, char **argv)
{
    options o = { 0 };
    ls_opts *opts = NULL;
    int rest = 0, code = 0;
    ls_status st = ls_opts_create(table, sizeof table / sizeof *table, &o, &opts);
    if (st == LS_OK) st = ls_opts_parse(opts, argc, argv, false, &rest);
    if (st == LS_OK && o.help) code = ls_cli_help(&ls_cmd_calibrate);
    else if (st == LS_OK && ls_opts_npositional(opts) > 0)
        st = ls_fail(LS_USAGE, "unexpected '%s'; --help shows what it takes", ls_opts_positional(opts, 0));
    else if (st == LS_OK) st = o.show ? show(o.json) : measure(&o);
    if (st < 0) code = ls_cli_fail("calibrate", st);
    ls_opts_destroy(opts);
    return code;
}

const ls_cmd ls_cmd_calibrate = {
    .name = "calibrate",
    .summary = "measure what messages and sums cost here; algorithms are chosen by it",
    .usage = "lockstep calibrate [options]",
    .example = "lockstep calibrate\n"
               "  lockstep calibrate --show --json",
    LS_CMD_OPTS(table),
    .run = run,
};
