/* cmd_coll.c -- lockstep coll: print and prove a collective's schedule. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "cli/cli.h"
#include "coll/print.h"
#include "lockstep/shard.h"

typedef struct options {
    const char *coll, *algo, *file;
    int64_t size, rank, root, segments, lanes, hosts;
    bool uneven, json, dot, list, help;
} options;

static const ls_opt table[] = {
    { .name = "coll", .type = LS_OPT_STRING, .offset = offsetof(options, coll), .def = "all_reduce",
      .help = "the collective" },
    { .name = "algo", .type = LS_OPT_STRING, .offset = offsetof(options, algo),
      .help = "the algorithm; --list names them (default: the first that serves the collective)" },
    { .name = "ranks", .type = LS_OPT_INT, .offset = offsetof(options, size), .def = "4", .range = "1..256",
      .help = "number of ranks", .short_name = 'n', .alias = "size|n" },
    { .name = "rank", .type = LS_OPT_INT, .offset = offsetof(options, rank), .def = "-1", .range = "-1..255",
      .help = "whose steps to print (-1: rank 0's; with --json all ranks')" },
    { .name = "root", .type = LS_OPT_INT, .offset = offsetof(options, root), .def = "0", .range = "0..255",
      .help = "root of broadcast, reduce, gather and scatter" },
    { .name = "segments", .type = LS_OPT_INT, .offset = offsetof(options, segments), .def = "1", .range = "1..1024",
      .help = "pieces that each share is cut into" },
    { .name = "lanes", .type = LS_OPT_INT, .offset = offsetof(options, lanes), .def = "1", .range = "1..8",
      .help = "lists of steps that run side by side" },
    { .name = "hosts", .type = LS_OPT_INT, .offset = offsetof(options, hosts), .def = "1", .range = "1..256",
      .help = "nodes that the ranks are on, in order, as evenly as possible" },
    { .name = "uneven", .type = LS_OPT_BOOL, .offset = offsetof(options, uneven), .def = "false",
      .help = "an all_to_all with counts per rank: blocks of any length" },
    { .name = "json", .type = LS_OPT_BOOL, .offset = offsetof(options, json), .def = "false",
      .help = "print JSON: an array of schedules; with --list or --file one object" },
    { .name = "dot", .type = LS_OPT_BOOL, .offset = offsetof(options, dot), .def = "false",
      .help = "print a Graphviz graph" },
    { .name = "list", .type = LS_OPT_BOOL, .offset = offsetof(options, list), .def = "false",
      .help = "list the algorithms, what they serve and where they come from" },
    { .name = "file", .type = LS_OPT_STRING, .offset = offsetof(options, file),
      .help = "prove the schedules in this file instead, as --json prints them for all ranks" },
    { .name = "help", .type = LS_OPT_BOOL, .offset = offsetof(options, help), .def = "false", .help = "this text",
      .short_name = 'h' },
};

static const char *promise(ls_coll c)
{
    switch (c) {
    case LS_ALL_REDUCE: return "every chunk ends with every rank's part exactly once, added in one order everywhere";
    case LS_REDUCE_SCATTER: return "every share ends on its rank with every rank's part exactly once";
    case LS_REDUCE: return "every chunk ends on the root with every rank's part exactly once";
    case LS_ALL_GATHER: return "every rank ends with every rank's part";
    case LS_GATHER: return "the root ends with every rank's part";
    case LS_SCATTER: return "every rank ends with its part of the root's vector";
    case LS_SENDRECV: return "every rank ends with the vector of the rank before it";
    case LS_ALL_TO_ALL: return "every rank ends with what each rank has for it";
    case LS_BROADCAST: return "every rank ends with the root's vector";
    case LS_BARRIER: return "no rank leaves before all have arrived";
    default: return "the result is right";
    }
}

static ls_status proved(const ls_shape *s, bool json)
{
    ls_text out = { 0 };
    if (json)
        ls_text_add(&out, "{\"proved\": true, \"coll\": \"%s\", \"ranks\": %d, \"promise\": \"%s\"}\n", ls_coll_name(s->coll), s->size,
                    promise(s->coll));
    else
        ls_text_add(&out, "proved for %d ranks, pushed and pulled: no deadlock, no overwriting; %s\n", s->size, promise(s->coll));
    return ls_cli_print(&out);
}

/* The names of an algorithm's collectives, each within `quote`s. */
static void add_colls(const ls_algo *algo, const char *quote, ls_text *out)
{
    const char *comma = "";
    for (int c = 0; c < LS_COLLS; c++) {
        if (!(algo->colls & 1u << c)) continue;
        ls_text_add(out, "%s%s%s%s", comma, quote, ls_coll_name((ls_coll)c), quote);
        comma = ", ";
    }
}

static void list_line(const ls_algo *algo, ls_text *out)
{
    ls_text colls = { 0 };
    add_colls(algo, "", &colls);
    ls_text_add(out, "%-18s %-55s %s\n", algo->name, ls_text_str(&colls), algo->source);
    ls_text_free(&colls);
}

static ls_status list(bool json)
{
    ls_text out = { 0 };
    if (json) ls_text_add(&out, "{\"algorithms\": [");
    for (size_t i = 0; ls_algos[i]; i++) {
        if (!json) {
            list_line(ls_algos[i], &out);
            continue;
        }
        ls_text_add(&out, "%s\n {\"name\": \"%s\", \"colls\": [", i ? "," : "", ls_algos[i]->name);
        add_colls(ls_algos[i], "\"", &out);
        ls_text_add(&out, "], \"source\": ");
        ls_json_string(&out, ls_algos[i]->source);
        ls_text_add(&out, "}");
    }
    if (json) ls_text_add(&out, "]}\n");
    return ls_cli_print(&out);
}

static ls_status find_algo(const options *o, ls_shape *shape, const ls_algo **out)
{
    const char *names[32];
    size_t n = 0;
    *out = NULL;
    shape->coll = ls_coll_find(o->coll);
    if (shape->coll == LS_COLLS) {
        for (int c = 0; c < LS_COLLS; c++) names[n++] = ls_coll_name((ls_coll)c);
        const char *near = ls_nearest(o->coll, names, n);
        return ls_fail(LS_USAGE, "no collective named '%s'%s%s%s", o->coll, near ? "; did you mean '" : "",
                       near ? near : "", near ? "'?" : "; --list names them");
    }
    if (o->algo && o->algo[0]) {
        *out = ls_algo_find(o->algo);
        if (*out) return LS_OK;
        for (; ls_algos[n] && n < 32; n++) names[n] = ls_algos[n]->name;
        const char *near = ls_nearest(o->algo, names, n);
        return ls_fail(LS_USAGE, "no algorithm named '%s'%s%s%s", o->algo, near ? "; did you mean '" : "",
                       near ? near : "", near ? "'?" : "; --list names them");
    }
    for (; ls_algos[n] && !*out; n++)
        if (ls_algos[n]->colls & 1u << shape->coll) *out = ls_algos[n];
    return *out ? LS_OK : ls_fail(LS_USAGE, "no algorithm for %s yet; --list names them", o->coll);
}

/* One rank's schedule, or (JSON without --rank) an array of all. */
static ls_status print(const options *o, const ls_algo *algo, ls_shape shape)
{
    bool all = o->json && o->rank < 0;
    ls_print_format format = o->json ? LS_PRINT_JSON : o->dot ? LS_PRINT_DOT : LS_PRINT_TEXT;
    ls_text text = { 0 };
    ls_status st = LS_OK;
    shape.rank = all || o->rank < 0 ? 0 : (int)o->rank;
    if (all) ls_text_add(&text, "[");
    do {
        ls_sched s;
        st = ls_sched_emit(algo, &shape, &s);
        if (st == LS_OK && all && shape.rank > 0) ls_text_add(&text, ",\n");
        if (st == LS_OK) st = ls_sched_print(&s, format, &text);
        ls_sched_free(&s);
    } while (st == LS_OK && all && ++shape.rank < shape.size);
    if (all) ls_text_add(&text, "]");
    if (o->json) ls_text_add(&text, "\n");
    if (st == LS_OK) return ls_cli_print(&text);
    ls_text_free(&text);
    return st;
}

static ls_status read_file(const char *path, ls_text *out)
{
    char buf[65536];
    size_t n;
    FILE *f = fopen(path, "rb");
    if (!f) return ls_fail(LS_IO, "%s: cannot be opened", path);
    while ((n = fread(buf, 1, sizeof buf, f)) > 0 && out->n <= LS_SCHED_MAX_JSON_BYTES) ls_text_addn(out, buf, n);
    ls_status st = ferror(f) ? ls_fail(LS_IO, "%s: cannot be read", path) : ls_text_status(out);
    fclose(f);
    return st;
}

static ls_status check_file(const char *path, bool json)
{
    ls_text text = { 0 };
    ls_sched *s = NULL;
    const ls_sched **p = NULL;
    int n = 0;
    ls_status st = read_file(path, &text);
    if (st == LS_OK) st = ls_sched_read_json(path, ls_text_str(&text), text.n, &s, &n);
    if (st < 0) goto done;
    p = calloc((size_t)n, sizeof *p);
    if (!p) {
        st = ls_fail(LS_NO_MEMORY, "%d schedules", n);
        goto done;
    }
    for (int r = 0; r < n; r++) p[r] = &s[r];
    st = ls_sched_verify_all(p, n);
    if (st == LS_OK) st = proved(&s[0].shape, json);
    else if (st == LS_INTERNAL || st == LS_INVALID)
        st = ls_fail(LS_BAD_FILE, "%s: not proved: %s", path, ls_last_error());
done:
    free(p);
    ls_sched_free_all(s, n);
    ls_text_free(&text);
    return st;
}

static ls_status print_and_prove(const options *o)
{
    const ls_algo *algo;
    int node[256];
    ls_shape shape = { .size = (int)o->size, .root = (int)o->root, .segments = (int)o->segments,
                       .nlanes = (int)o->lanes, .uneven = o->uneven, .node = node };
    for (int j = 0; j < o->hosts; j++) {
        ls_range on = { 0, 0 };
        ls_shard_range((size_t)o->size, j, (int)o->hosts, &on);
        for (size_t r = on.first; r < on.first + on.count; r++) node[r] = j;
    }
    LS_TRY(find_algo(o, &shape, &algo));
    if (!(algo->colls & 1u << shape.coll))
        return ls_fail(LS_USAGE, "algorithm '%s' does not do %s; --list shows which do", algo->name, o->coll);
    if (o->rank >= o->size || o->root >= o->size)
        return ls_fail(LS_USAGE, "--%s %lld of %lld ranks: expected 0 to %lld", o->rank >= o->size ? "rank" : "root",
                       (long long)(o->rank >= o->size ? o->rank : o->root), (long long)o->size, (long long)o->size - 1);
    bool people = !o->json && !o->dot;
    if (people) printf("%s by %s (%s)\n", o->coll, algo->name, algo->source);
    LS_TRY(print(o, algo, shape));
    LS_TRY(ls_sched_verify(algo, &shape));
    return people ? proved(&shape, false) : LS_OK;
}

static int run(int argc, char **argv)
{
    options o = { 0 };
    ls_opts *opts = NULL;
    int rest = 0, code = 0;
    ls_status st = ls_opts_create(table, sizeof table / sizeof *table, &o, &opts);
    if (st == LS_OK) st = ls_opts_parse(opts, argc, argv, false, &rest);
    if (st == LS_OK && o.help) code = ls_cli_help(&ls_cmd_coll);
    else if (st == LS_OK && ls_opts_npositional(opts) > 0)
        st = ls_fail(LS_USAGE, "unexpected '%s'; --help shows what it takes", ls_opts_positional(opts, 0));
    else if (st == LS_OK && o.list) st = list(o.json);
    else if (st == LS_OK && o.file && o.file[0]) st = check_file(o.file, o.json);
    else if (st == LS_OK) st = print_and_prove(&o);
    if (st < 0) code = ls_cli_fail("coll", st);
    ls_opts_destroy(opts);
    return code;
}

const ls_cmd ls_cmd_coll = {
    .name = "coll",
    .summary = "print and prove a collective's schedule",
    .usage = "lockstep coll [options]",
    .example = "lockstep coll --coll all_reduce --algo ring -n 4 --rank 1\n"
               "  lockstep coll --list --json",
    LS_CMD_OPTS(table),
    .run = run,
};
