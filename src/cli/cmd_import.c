/* cmd_import.c -- lockstep import: a Hugging Face folder becomes a checkpoint. */
#include <stdio.h>

#include "cli/cli.h"
#include "lockstep/hf.h"

typedef struct options {
    const char *out;
    bool help;
} options;

static const ls_opt table[] = {
    { .name = "out", .type = LS_OPT_STRING, .offset = offsetof(options, out), .def = "",
      .help = "checkpoint to write, a .safetensors file" },
    { .name = "help", .type = LS_OPT_BOOL, .offset = offsetof(options, help), .def = "false", .help = "this text",
      .short_name = 'h' },
};

static int run(int argc, char **argv)
{
    options o = { 0 };
    ls_opts *opts = NULL;
    int rest = 0, code = 0;
    ls_status st = ls_opts_create(table, sizeof table / sizeof *table, &o, &opts);
    if (st == LS_OK) st = ls_opts_parse(opts, argc, argv, false, &rest);
    if (st == LS_OK && o.help) {
        code = ls_cli_help(&ls_cmd_import, opts);
    } else if (st == LS_OK && (ls_opts_npositional(opts) != 1 || !*o.out)) {
        st = ls_fail(LS_USAGE, "expected a folder of Hugging Face's files, and --out CHECKPOINT; --help shows an example");
    } else if (st == LS_OK) {
        st = ls_hf_import(ls_opts_positional(opts, 0), o.out);
        if (st == LS_OK) printf("%s: written from %s\n", o.out, ls_opts_positional(opts, 0));
    }
    if (st < 0) code = ls_cli_fail("import", st);
    ls_opts_destroy(opts);
    return code;
}

const ls_cmd ls_cmd_import = {
    .name = "import",
    .summary = "read a model from Hugging Face files",
    .usage = "lockstep import DIR --out CHECKPOINT",
    .example = "lockstep import gpt2/ --out gpt2.safetensors",
    .run = run,
};
