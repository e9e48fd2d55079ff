/* cmd_figure.c -- lockstep figure: a figure of the handbook, with values of one's own. */
#include <stdio.h>

#include "cli/cli.h"
#include "fig/fig.h"

typedef struct options {
    bool text, svg, json, help;
} options;

static const ls_opt table[] = {
    { .name = "text", .type = LS_OPT_BOOL, .offset = offsetof(options, text), .def = "false",
      .help = "print the figure for a terminal, with its table (this is the default)" },
    { .name = "svg", .type = LS_OPT_BOOL, .offset = offsetof(options, svg), .def = "false", .help = "print the picture as SVG" },
    { .name = "json", .type = LS_OPT_BOOL, .offset = offsetof(options, json), .def = "false",
      .help = "print JSON: controls, presets, the point in words, facts and the table" },
    { .name = "help", .type = LS_OPT_BOOL, .offset = offsetof(options, help), .def = "false", .help = "this text", .short_name = 'h' },
};

static ls_status answer(const ls_opts *opts, const options *o)
{
    ls_text request = { 0 }, out = { 0 };
    if (ls_opts_npositional(opts) == 0) ls_text_add(&request, "list");
    for (int i = 0; i < ls_opts_npositional(opts); i++) ls_text_add(&request, "%s ", ls_opts_positional(opts, i));
    if (o->text) ls_text_add(&request, " --text");
    if (o->svg) ls_text_add(&request, " --svg");
    if (o->json) ls_text_add(&request, " --json");
    ls_status st = ls_text_status(&request);
    if (st == LS_OK) st = ls_fig_answer(ls_text_str(&request), &out);
    if (st == LS_OK) fwrite(out.p, 1, out.n, stdout);
    ls_text_free(&request);
    ls_text_free(&out);
    return st;
}

static int run(int argc, char **argv)
{
    options o = { 0 };
    ls_opts *opts = NULL;
    int rest = 0, code = 0;
    ls_status st = ls_opts_create(table, sizeof table / sizeof *table, &o, &opts);
    if (st == LS_OK) st = ls_opts_parse(opts, argc, argv, false, &rest);
    if (st == LS_OK && o.help) code = ls_cli_help(&ls_cmd_figure);
    else if (st == LS_OK) st = answer(opts, &o);
    if (st < 0) code = ls_cli_fail("figure", st);
    ls_opts_destroy(opts);
    return code;
}

const ls_cmd ls_cmd_figure = {
    .name = "figure",
    .summary = "draw a figure of the handbook, computed by the code that the runtime runs",
    .usage = "lockstep figure [NAME [preset=NAME] [CONTROL=VALUE]...] [options]    (without NAME: list figures, controls, presets)",
    .example = "lockstep figure schedule algo=tree coll=broadcast ranks=8 step=2",
    LS_CMD_OPTS(table),
    .run = run,
};
