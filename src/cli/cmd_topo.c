/* cmd_topo.c -- lockstep topo: clusters, and which axis of a mesh goes on which of their links. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "cli/cli.h"
#include "cli/planned.h"
#include "cli/topo_here.h"
#include "cli/topo_links.h"
#include "fig/topo_svg.h"
#include "lockstep/group.h"
#include "lockstep/transport.h"
#include "net/world.h"
#include "plan/placement.h"
#include "sim/topo_print.h"

/* The configuration comes first: rows of `lockstep train` have their offsets in it. */
typedef struct options {
    ls_train_config c;
    const char *topology, *order, *svg, *transport;
    int64_t ranks, units;
    size_t bytes;
    bool json, help;
} options;

static const ls_opt table[] = {
    { .name = "topology", .type = LS_OPT_STRING, .offset = offsetof(options, topology),
      .help = "place: the cluster, a preset, a file or local", .short_name = 't' },
    { .name = "ranks", .type = LS_OPT_INT, .offset = offsetof(options, ranks), .def = "0", .range = "0..65536",
      .help = "place: how many, one on each device (0: a rank on every device); links: how many to start (0: 2)",
      .short_name = 'n', .alias = "nproc-per-node" },
    { .name = "order", .type = LS_OPT_STRING, .offset = offsetof(options, order),
      .help = "place: judge this order of the axes, the slowest first, as in tp-dp-pp (default: the runtime's)" },
    { .name = "units", .type = LS_OPT_INT, .offset = offsetof(options, units), .def = "0", .range = "0..1048576",
      .help = "units that the highest level joins, nodes for most (0: what the file says)" },
    { .name = "transport", .type = LS_OPT_STRING, .offset = offsetof(options, transport), .range = ls_transport_choices,
      .help = "links: how messages travel, or fault:<one of them>[,<fault>...] (default: as in a job)" },
    { .name = "bytes", .type = LS_OPT_BYTES, .offset = offsetof(options, bytes), .def = "1M", .range = "64..256MiB",
      .help = "links, transports: of a message whose rate is measured" },
    { .name = "svg", .type = LS_OPT_STRING, .offset = offsetof(options, svg), .help = "show: write a picture to this file, too" },
    { .name = "json", .type = LS_OPT_BOOL, .offset = offsetof(options, json), .def = "false", .help = "print one JSON object" },
    { .name = "help", .type = LS_OPT_BOOL, .offset = offsetof(options, help), .def = "false", .help = "this text",
      .short_name = 'h' },
};
enum { OWN = sizeof table / sizeof *table };

/* --- show ----------------------------------------------------------------------------------------- */

static ls_status show(const options *o, const char *name, ls_text *out)
{
    ls_topo t;
    LS_TRY(ls_cli_cluster(name, o->units, &t));
    if (o->json) ls_topo_json(&t, out);
    else ls_topo_print(&t, out);
    if (!o->svg || !*o->svg) return ls_text_status(out);
    ls_text picture = { 0 };
    ls_topo_svg(&t, &picture);
    ls_status st = ls_text_status(&picture);
    if (st == LS_OK) st = ls_file_write(o->svg, picture.p, picture.n);
    ls_text_free(&picture);
    return st == LS_OK ? ls_text_status(out) : st;
}

static ls_status refuse(const ls_opts *opts, const char *name, const char *where)
{
    return ls_opts_is_set(opts, name) ? ls_fail(LS_USAGE, "--%s belongs to `lockstep topo %s`: leave it out", name, where) : LS_OK;
}

static ls_status run_show(int argc, char **argv, ls_text *out)
{
    options o = { 0 };
    ls_opts *opts = NULL;
    int rest = 0;
    ls_status st = ls_opts_create(table, OWN, &o, &opts);
    if (st == LS_OK) st = ls_opts_parse(opts, argc, argv, false, &rest);
    static const char *const others[][2] = { { "topology", "place" }, { "ranks", "place" }, { "order", "place" },
                                             { "transport", "links" }, { "bytes", "links" } };
    for (int i = 0; st == LS_OK && i < 5; i++) st = refuse(opts, others[i][0], others[i][1]);
    if (st == LS_OK && ls_opts_npositional(opts) > 1)
        st = ls_fail(LS_USAGE, "unexpected '%s': expected one cluster", ls_opts_positional(opts, 1));
    if (st == LS_OK) st = show(&o, ls_opts_npositional(opts) ? ls_opts_positional(opts, 0) : "local", out);
    ls_opts_destroy(opts);
    return st;
}

/* --- place ---------------------------------------------------------------------------------------- */

static ls_status report(const options *o, const ls_topo *t, const ls_step_traffic *x, ls_placement *all, ls_text *out)
{
    int n, best, naive = 0;
    ls_placement judged = { 0 };
    LS_TRY(ls_placement_search(t, x, all, &n, &best));
    for (int i = 0; i < n; i++) { /* the opposite of the usual order: what varies most often is farthest */
        bool opposite = true;
        for (int k = 0; k < all[i].n; k++) opposite &= all[i].order[k] == all[0].order[all[0].n - 1 - k];
        if (opposite) naive = i;
    }
    const bool asked = o->order && *o->order;
    if (asked) LS_TRY(ls_placement_order(x, o->order, &judged));
    if (asked) LS_TRY(ls_placement_evaluate(t, x, &judged));
    const ls_placement_report r = { .t = t, .x = x, .all = all, .n = n, .best = &all[best], .naive = &all[naive],
                                    .judged = asked ? &judged : &all[0], .asked = asked };
    if (o->json) ls_placement_json(&r, out);
    else ls_placement_print(&r, out);
    return ls_text_status(out);
}

static ls_status place(const options *o, const ls_opts *opts, ls_text *out)
{
    ls_topo t;
    ls_step_traffic x;
    int ranks;
    LS_TRY(ls_cli_refuse_train_flags(opts, OWN));
    LS_TRY(refuse(opts, "svg", "show"));
    LS_TRY(refuse(opts, "transport", "links"));
    LS_TRY(refuse(opts, "bytes", "links"));
    LS_TRY(ls_cli_cluster(o->topology, o->units, &t));
    LS_TRY(ls_cli_cluster_ranks(&t, o->ranks, &ranks));
    LS_TRY(ls_step_traffic_of(&o->c, ranks, &x));
    ls_placement *all = calloc(LS_PLACEMENT_ORDERS, sizeof *all);
    const ls_status st = all ? report(o, &t, &x, all, out) : ls_fail(LS_NO_MEMORY, "%d orders", LS_PLACEMENT_ORDERS);
    free(all);
    return st;
}

static ls_status run_place(int argc, char **argv, ls_text *out)
{
    options o = { 0 };
    ls_opts *opts = NULL;
    ls_opt *rows = ls_cli_with_train_opts(table, OWN);
    if (!rows) return ls_fail(LS_NO_MEMORY, "a table of options");
    ls_status st = ls_opts_create(rows, OWN + ls_train_nopts, &o, &opts);
    if (st == LS_OK) st = ls_train_read(opts, &o.c, argc, argv);
    if (st == LS_OK) st = place(&o, opts, out);
    ls_opts_destroy(opts);
    free(rows);
    return st;
}

/* --- links and transports ---------------------------------------------------------------------------------- */

static ls_status measure_links(const options *o, ls_text *out)
{
    const ls_world_opts wo = { .transport = o->transport && *o->transport ? o->transport : NULL,
                               .arena_bytes = o->bytes + (1 << 20) };
    ls_links l = { 0 };
    ls_world *w;
    LS_TRY(ls_world_join(&wo, &w));
    ls_status st = LS_OK;
    if (ls_world_size(w) == 1) st = ls_fail(LS_USAGE, "one rank alone has no links: --ranks says how many to start");
    if (st == LS_OK) st = ls_links_measure(w, o->bytes, &l);
    if (st == LS_OK && ls_world_rank(w) == 0)
        (o->json ? ls_links_json : ls_links_print)(&l, ls_world_transport(w), out);
    if (st < 0) (void)ls_world_abort(w, st);
    st = ls_world_verdict(w, st);
    ls_world_leave(w);
    ls_links_free(&l);
    return st;
}

/* This program again, once per rank, unless a launcher has started it. */
static ls_status links(const options *o, int argc, char **argv, ls_text *out, int *code)
{
    const ls_launch_opts lo = { .nproc = o->ranks ? (int)o->ranks : 2 };
    ls_launch_result result;
    int rank, size;
    const bool launched = ls_world_launched(&rank, &size);
    if (o->transport && *o->transport) LS_TRY(ls_transport_check(o->transport));
    if (launched || lo.nproc == 1) return measure_links(o, out);
    if (lo.nproc > 256) return ls_fail(LS_USAGE, "--ranks %d: at most 256 on one machine", lo.nproc);
    LS_TRY(ls_cli_launch(&lo, argc, argv, &result));
    *code = result.exit_code;
    return LS_OK;
}

static ls_status transports(const options *o, ls_text *out)
{
    ls_carried c[LS_CARRIERS];
    LS_TRY(ls_carriers_measure(o->bytes, c));
    (o->json ? ls_carriers_json : ls_carriers_print)(c, out);
    return ls_text_status(out);
}

static ls_status run_measured(int argc, char **argv, ls_text *out, int *code)
{
    options o = { 0 };
    ls_opts *opts = NULL;
    int rest = 0;
    const bool of_links = strcmp(argv[1], "links") == 0;
    static const char *const others[][2] = { { "topology", "place" }, { "order", "place" }, { "svg", "show" }, { "units", "show" },
                                             { "ranks", "links" }, { "transport", "links" } };
    ls_status st = ls_opts_create(table, OWN, &o, &opts);
    if (st == LS_OK) st = ls_opts_parse(opts, argc - 1, argv + 1, false, &rest);
    for (int i = 0; st == LS_OK && i < (of_links ? 4 : 6); i++) st = refuse(opts, others[i][0], others[i][1]);
    if (st == LS_OK && ls_opts_npositional(opts) > 0)
        st = ls_fail(LS_USAGE, "unexpected '%s': `lockstep topo %s` takes options alone", ls_opts_positional(opts, 0), argv[1]);
    if (st == LS_OK) st = of_links ? links(&o, argc, argv, out, code) : transports(&o, out);
    ls_opts_destroy(opts);
    return st;
}

static int run(int argc, char **argv)
{
    ls_text out = { 0 };
    bool help = false;
    int code = 0;
    const char *what = argc > 1 ? argv[1] : "";
    for (int i = 1; i < argc; i++) help |= strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0;
    if (help) return ls_cli_help(&ls_cmd_topo);
    const bool placed = strcmp(what, "place") == 0, shown = strcmp(what, "show") == 0;
    const bool measured = strcmp(what, "links") == 0 || strcmp(what, "transports") == 0;
    ls_status st = placed     ? run_place(argc - 1, argv + 1, &out)
                   : measured ? run_measured(argc, argv, &out, &code)
                              : run_show(argc - shown, argv + shown, &out);
    if (st == LS_OK) st = ls_cli_print(&out);
    ls_text_free(&out);
    if (st == LS_ABORTED) return ls_status_exit_code(st); /* the rank that failed first says why */
    return st < 0 ? ls_cli_fail("topo", st) : code;
}

const ls_cmd ls_cmd_topo = {
    .name = "topo",
    .summary = "describe a cluster, and which axis of a mesh goes on which of its links",
    .usage = "lockstep topo show|place|links|transports [CLUSTER.yaml|PRESET|local|CONFIG.yaml] [options]",
    .example = "lockstep topo show h100-8\n"
               "  lockstep topo links -n 4 --transport tcp\n"
               "  lockstep topo place gpt2-124m --topology ethernet-2 --parallel.tp 4",
    LS_CMD_OPTS(table),
    .run = run,
};
