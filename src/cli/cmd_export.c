/* cmd_export.c -- lockstep export: a checkpoint becomes a Hugging Face folder. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/commit.h"
#include "base/env.h"
#include "base/file.h"
#include "base/limits.h"
#include "base/text.h"
#include "cli/cli.h"
#include "lockstep/data.h"
#include "lockstep/hf.h"
#include "report/rundir.h"

typedef struct options {
    const char *out, *dtype;
    size_t max_shard_size;
    bool help;
} options;

static const ls_opt table[] = {
    { .name = "out", .type = LS_OPT_STRING, .offset = offsetof(options, out), .def = "",
      .help = "folder to make, or an empty one" },
    { .name = "dtype", .type = LS_OPT_CHOICE, .offset = offsetof(options, dtype), .def = "f32", .range = "f32|bf16|f16",
      .help = "type of the parameters in the files, rounded to nearest" },
    { .name = "max-shard-size", .type = LS_OPT_BYTES, .offset = offsetof(options, max_shard_size), .def = "5GiB",
      .range = "1..", .help = "most bytes of parameters in a file" },
    { .name = "help", .type = LS_OPT_BOOL, .offset = offsetof(options, help), .def = "false", .help = "this text",
      .short_name = 'h' },
};

/* The file `name` in the folder of the checkpoint, or in `dir`. */
static ls_status place(const char *checkpoint, const char *dir, const char *name, ls_text *out)
{
    const char *slash = strrchr(checkpoint, '/');
    if (dir) ls_text_add(out, "%s/%s", dir, name);
    else ls_text_add(out, "%.*s%s", slash ? (int)(slash + 1 - checkpoint) : 0, checkpoint, name);
    return ls_text_status(out);
}

/* One of the tokenizer's files, where it lies beside the checkpoint. */
static ls_status copy(const char *checkpoint, const char *dir, const char *name, bool *there)
{
    ls_text from = { 0 }, to = { 0 };
    ls_file_info info = { 0 };
    char *text = NULL;
    size_t n = 0;
    ls_status st = place(checkpoint, NULL, name, &from);
    if (st == LS_OK) st = place(checkpoint, dir, name, &to);
    *there = st == LS_OK && ls_env_get()->info(from.p, &info) == 0 && info.type == LS_FILE_REGULAR;
    if (*there) st = ls_file_read(from.p, LS_TOKENIZER_MAX_BYTES, &text, &n);
    if (*there && st == LS_OK) st = ls_file_write(to.p, text, n);
    free(text);
    ls_text_free(&from);
    ls_text_free(&to);
    return st;
}

/* For a checkpoint of a version that wrote none. A tokenizer that Lockstep cannot use keeps its own ways. */
static ls_status make_config(const char *dir)
{
    ls_hf_config c;
    ls_text path = { 0 };
    ls_tokenizer *t = NULL;
    char *text = NULL;
    ls_status st = place("", dir, "tokenizer.json", &path);
    if (st == LS_OK) st = ls_tokenizer_open(path.p, &t);
    if (st == LS_UNSUPPORTED) {
        ls_text_free(&path);
        return LS_OK;
    }
    path.n = 0;
    if (st == LS_OK) st = place("", dir, "tokenizer_config.json", &path);
    if (st == LS_OK) st = ls_hf_config_read(dir, &c);
    if (st == LS_OK) st = ls_tokenizer_config_text(t, c.bos, c.eos, c.lm.seq_len, &text);
    if (st == LS_OK) st = ls_file_write(path.p, text, strlen(text));
    free(text);
    ls_tokenizer_close(t);
    ls_text_free(&path);
    return st;
}

static ls_status copy_tokenizer(const char *checkpoint, const char *dir)
{
    bool there, configured;
    LS_TRY(copy(checkpoint, dir, "tokenizer.json", &there));
    if (!there) return LS_OK;
    LS_TRY(copy(checkpoint, dir, "tokenizer_config.json", &configured));
    return configured ? LS_OK : make_config(dir);
}

static ls_status write_files(const char *dir, const char *checkpoint, ls_dtype dtype, size_t max_shard)
{
    LS_TRY(ls_hf_export(checkpoint, dir, dtype, max_shard));
    return copy_tokenizer(checkpoint, dir);
}

/* A new folder appears when it is whole. One that waits empty, perhaps a mounted disk, is filled as it is; its
 * config.json comes after the weights. */
static ls_status write_into(const char *dir, const char *checkpoint, ls_dtype dtype, size_t max_shard)
{
    ls_file_info info = { 0 };
    ls_commit_folder *c;
    if (ls_env_get()->info(dir, &info) == 0 && info.type != LS_FILE_NONE)
        return write_files(dir, checkpoint, dtype, max_shard);
    LS_TRY(ls_commit_folder_create(dir, &c));
    ls_status st = write_files(ls_commit_folder_path(c), checkpoint, dtype, max_shard);
    if (st == LS_OK) st = ls_commit_folder_finish(c, false);
    ls_commit_folder_destroy(c);
    return st;
}

static ls_status export(const char *from, const options *o)
{
    ls_text path = { 0 };
    const ls_dtype dtype = strcmp(o->dtype, "bf16") == 0 ? LS_BF16 : strcmp(o->dtype, "f16") == 0 ? LS_F16 : LS_F32;
    ls_status st = ls_rundir_checkpoint(from, &path);
    if (st == LS_OK) st = write_into(o->out, path.p, dtype, o->max_shard_size);
    if (st == LS_OK) printf("%s: written from %s\n", o->out, path.p);
    ls_text_free(&path);
    return st;
}

static int run(int argc, char **argv)
{
    options o = { 0 };
    ls_opts *opts = NULL;
    int rest = 0, code = 0;
    ls_status st = ls_opts_create(table, sizeof table / sizeof *table, &o, &opts);
    if (st == LS_OK) st = ls_opts_parse(opts, argc, argv, false, &rest);
    if (st == LS_OK && o.help) code = ls_cli_help(&ls_cmd_export);
    else if (st == LS_OK && (ls_opts_npositional(opts) != 1 || !*o.out))
        st = ls_fail(LS_USAGE, "expected a run folder or a checkpoint, and --out DIR; --help shows an example");
    else if (st == LS_OK) st = export(ls_opts_positional(opts, 0), &o);
    if (st < 0) code = ls_cli_fail("export", st);
    ls_opts_destroy(opts);
    return code;
}

const ls_cmd ls_cmd_export = {
    .name = "export",
    .summary = "write a trained model as Hugging Face files",
    .usage = "lockstep export RUN_DIR|CHECKPOINT --out DIR [--dtype bf16] [--max-shard-size 50MiB]",
    .example = "lockstep export runs/gpt2-tiny --out gpt2-tiny-hf --dtype bf16",
    LS_CMD_OPTS(table),
    .run = run,
};
