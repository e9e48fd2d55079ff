/* cmd_import.c -- lockstep import: a Hugging Face folder becomes a checkpoint. */
#include <stdio.h>

#include "base/commit.h"
#include "base/env.h"
#include "base/file.h"
#include "base/text.h"
#include "cli/cli.h"
#include "lockstep/hf.h"

typedef struct options {
    const char *out;
    bool force, help;
} options;

static const ls_opt table[] = {
    { .name = "out", .type = LS_OPT_STRING, .offset = offsetof(options, out), .def = "",
      .help = "checkpoint to write, a .safetensors file" },
    { .name = "force", .type = LS_OPT_BOOL, .offset = offsetof(options, force), .def = "false",
      .help = "replace a file that is there and differs" },
    { .name = "help", .type = LS_OPT_BOOL, .offset = offsetof(options, help), .def = "false", .help = "this text",
      .short_name = 'h' },
};

/* Over a file that is there only what is the same to the byte. */
static ls_status import(const char *from, const options *o)
{
    const ls_env *env = ls_env_get();
    ls_file_info info = { 0 };
    ls_commit_folder *c;
    ls_text aside = { 0 };
    bool same = false;
    if (o->force || env->info(o->out, &info) < 0 || info.type == LS_FILE_NONE) return ls_hf_import(from, o->out);
    LS_TRY(ls_commit_folder_create(o->out, &c)); /* for the comparison alone: it never takes the name */
    ls_text_add(&aside, "%s/file", ls_commit_folder_path(c));
    ls_status st = ls_text_status(&aside);
    if (st == LS_OK) st = ls_hf_import(from, aside.p);
    if (st == LS_OK) st = ls_file_same(aside.p, o->out, &same);
    ls_commit_folder_destroy(c);
    ls_text_free(&aside);
    if (st < 0 || same) return st;
    return ls_fail(LS_INVALID, "%s: is there already, and is not what %s becomes: name another file, or give --force to replace it",
                   o->out, from);
}

static int run(int argc, char **argv)
{
    options o = { 0 };
    ls_opts *opts = NULL;
    int rest = 0, code = 0;
    ls_status st = ls_opts_create(table, sizeof table / sizeof *table, &o, &opts);
    if (st == LS_OK) st = ls_opts_parse(opts, argc, argv, false, &rest);
    if (st == LS_OK && o.help) {
        code = ls_cli_help(&ls_cmd_import);
    } else if (st == LS_OK && (ls_opts_npositional(opts) != 1 || !*o.out)) {
        st = ls_fail(LS_USAGE, "expected a folder of Hugging Face's files, and --out CHECKPOINT; --help shows an example");
    } else if (st == LS_OK) {
        st = import(ls_opts_positional(opts, 0), &o);
        if (st == LS_OK) printf("%s: written from %s\n", o.out, ls_opts_positional(opts, 0));
    }
    if (st < 0) code = ls_cli_fail("import", st);
    ls_opts_destroy(opts);
    return code;
}

const ls_cmd ls_cmd_import = {
    .name = "import",
    .summary = "read a model from Hugging Face files",
    .usage = "lockstep import DIR --out CHECKPOINT [--force]",
    .example = "lockstep import gpt2/ --out gpt2.safetensors",
    LS_CMD_OPTS(table),
    .run = run,
};
