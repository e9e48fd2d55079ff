/* cmd_ckpt.c -- lockstep ckpt: list, check, compare, merge and reshard checkpoints. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/env.h"
#include "base/text.h"
#include "ckpt/checkpoint.h"
#include "ckpt/steps.h"
#include "cli/ckpt_folder.h"
#include "cli/cli.h"
#include "lockstep/ckpt.h"

#define SUFFIX ".safetensors"
#define PATH_BYTES 4096
#define NAMES_BYTES ((size_t)1 << 20) /* of one folder's entries */
#define MAX_FOLDERS 8                 /* inside one another */

typedef struct options {
    bool json, help;
    const char *out;
    int64_t ranks;
} options;

static const ls_opt table[] = {
    { .name = "json", .type = LS_OPT_BOOL, .offset = offsetof(options, json), .def = "false",
      .help = "print JSON: one object; ls, show, verify and digest: one per checkpoint and line" },
    { .name = "out", .type = LS_OPT_STRING, .offset = offsetof(options, out), .def = "", .help = "merge: the new folder" },
    { .name = "ranks", .type = LS_OPT_INT, .offset = offsetof(options, ranks), .def = "0", .range = "0..65536",
      .help = "reshard: write the files of so many ranks" },
    { .name = "help", .type = LS_OPT_BOOL, .offset = offsetof(options, help), .def = "false", .help = "this text",
      .short_name = 'h' },
};

/* What is done to each file. */
typedef ls_status (*action)(const char *path, const options *o);

static bool is_digest(const char *key)
{
    return strncmp(key, "lockstep.xxh3.", 14) == 0 || strcmp(key, "lockstep.header") == 0;
}

static void list_text(const ls_ckpt *c, const char *path)
{
    uint64_t nbytes = 0;
    int width = 4;
    for (int i = 0; i < ls_ckpt_count(c); i++) {
        const ls_ckpt_tensor *t = ls_ckpt_at(c, i);
        int n = (int)strlen(t->name);
        width = n > width && n <= 60 ? n : width;
        nbytes += t->end - t->begin;
    }
    ls_cli_ckpt_put(path);
    printf(": %d tensors, %" PRIu64 " bytes, %s\n", ls_ckpt_count(c), nbytes,
           ls_ckpt_has_digests(c) ? "a digest for each" : "no digests");
    for (int i = 0; i < ls_ckpt_nmeta(c); i++) {
        const char *key = ls_ckpt_meta_key(c, i);
        if (is_digest(key)) continue;
        printf("  # ");
        ls_cli_ckpt_put(key);
        printf(": ");
        ls_cli_ckpt_put(ls_ckpt_meta(c, key));
        putchar('\n');
    }
    for (int i = 0; i < ls_ckpt_count(c); i++) {
        const ls_ckpt_tensor *t = ls_ckpt_at(c, i);
        printf("  ");
        ls_cli_ckpt_put(t->name);
        printf("%*s %-7s %12" PRIu64 " bytes  ", width - (int)strlen(t->name) > 0 ? width - (int)strlen(t->name) : 0, "",
               t->dtype_name, t->end - t->begin);
        if (t->has_checksum) printf("%016" PRIx64 "  ", t->checksum);
        putchar('[');
        for (int d = 0; d < t->ndim; d++) printf("%s%" PRId64, d ? ", " : "", t->dim[d]);
        puts("]");
    }
}

static ls_status list_json(const ls_ckpt *c, const char *path)
{
    ls_text out = { 0 };
    ls_text_add(&out, "{\"path\":");
    ls_json_string(&out, path);
    ls_text_add(&out, ",\"digests\":%s,\"metadata\":{", ls_ckpt_has_digests(c) ? "true" : "false");
    bool first = true;
    for (int i = 0; i < ls_ckpt_nmeta(c); i++) {
        const char *key = ls_ckpt_meta_key(c, i);
        if (is_digest(key)) continue;
        ls_text_add(&out, "%s", first ? "" : ",");
        ls_json_string(&out, key);
        ls_text_add(&out, ":");
        ls_json_string(&out, ls_ckpt_meta(c, key));
        first = false;
    }
    ls_text_add(&out, "},\"tensors\":[");
    for (int i = 0; i < ls_ckpt_count(c); i++) {
        const ls_ckpt_tensor *t = ls_ckpt_at(c, i);
        ls_text_add(&out, "%s{\"name\":", i ? "," : "");
        ls_json_string(&out, t->name);
        ls_text_add(&out, ",\"dtype\":\"%s\",\"shape\":[", t->dtype_name);
        for (int d = 0; d < t->ndim; d++) ls_text_add(&out, "%s%" PRId64, d ? "," : "", t->dim[d]);
        ls_text_add(&out, "],\"bytes\":%" PRIu64, t->end - t->begin);
        if (t->has_checksum) ls_text_add(&out, ",\"xxh3\":\"%016" PRIx64 "\"", t->checksum);
        ls_text_add(&out, "}");
    }
    ls_text_add(&out, "]}\n");
    return ls_cli_print(&out);
}

static ls_status list(const char *path, const options *o)
{
    ls_ckpt *c;
    if (ls_checkpoint_is_folder(path)) return ls_cli_ckpt_list_folder(path, o->json);
    LS_TRY(ls_ckpt_open(path, &c));
    ls_status st = LS_OK;
    if (o->json) st = list_json(c, path);
    else list_text(c, path);
    ls_ckpt_close(c);
    return st;
}

static ls_status verify(const char *path, const options *o)
{
    ls_ckpt *c;
    if (ls_checkpoint_is_folder(path)) return ls_cli_ckpt_verify_folder(path, o->json);
    LS_TRY(ls_ckpt_open(path, &c));
    ls_status st = ls_ckpt_verify(c);
    if (st == LS_OK) st = ls_cli_ckpt_good(path, ls_ckpt_count(c), 0, -1, ls_ckpt_has_digests(c), o->json);
    ls_ckpt_close(c);
    return st;
}

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), k = strlen(end);
    return n >= k && strcmp(s + n - k, end) == 0;
}

/* One walk over files and folders. */
typedef struct walk {
    action each;
    const options *o;
    int files;      /* seen */
    int exit_code;  /* of the first failure; 0 */
} walk;

static void failed(walk *w, ls_status st)
{
    int code = ls_cli_fail("ckpt", st);
    if (w->exit_code == 0) w->exit_code = code;
}

/* A file `best` stands for the checkpoint that it names. */
static ls_status act(action each, const char *path, const options *o)
{
    char named[PATH_BYTES];
    LS_TRY(ls_steps_resolve(path, named, sizeof named));
    return each(named, o);
}

static void visit_file(walk *w, const char *path)
{
    w->files++;
    ls_status st = act(w->each, path, w->o);
    if (st < 0) failed(w, st);
}

/* Every *.safetensors file below, in byte order, and every checkpoint of all ranks as a whole. Links are not followed,
 * hidden names (an unfinished save is one) not looked at. */
static void visit_folder(walk *w, const char *dir, int depth)
{
    if (ls_checkpoint_is_folder(dir)) {
        visit_file(w, dir);
        return;
    }
    char *names = malloc(NAMES_BYTES);
    int n = names ? ls_env_get()->list(dir, names, NAMES_BYTES) : 0;
    if (!names || n < 0) {
        failed(w, names ? ls_fail(LS_IO, "%s: cannot be listed: %s", dir, strerror(-n))
                        : ls_fail(LS_NO_MEMORY, "%s: no memory to list it", dir));
        free(names);
        return;
    }
    const char *name = names;
    for (int i = 0; i < n; i++, name += strlen(name) + 1) {
        ls_text path = { 0 };
        ls_file_info info = { 0 };
        ls_text_add(&path, "%s%s%s", dir, ends_with(dir, "/") ? "" : "/", name);
        if (name[0] != '.' && ls_text_status(&path) == LS_OK && ls_env_get()->info(path.p, &info) >= 0) {
            if (info.type == LS_FILE_DIR && depth < MAX_FOLDERS) visit_folder(w, path.p, depth + 1);
            else if (info.type == LS_FILE_REGULAR && ends_with(name, SUFFIX)) visit_file(w, path.p);
        }
        ls_text_free(&path);
    }
    free(names);
}

/* What a user names may be a link to a folder; what is found inside may not. */
static bool is_folder(const char *path)
{
    char small[1];
    ls_file_info info;
    if (ls_env_get()->info(path, &info) < 0 || info.type == LS_FILE_REGULAR) return false;
    return info.type == LS_FILE_DIR || (info.type == LS_FILE_OTHER && ls_env_get()->list(path, small, 0) != -ENOTDIR);
}

static int visit_all(const ls_opts *opts, action each, const options *o)
{
    walk w = { .each = each, .o = o };
    for (int i = 1; i < ls_opts_npositional(opts); i++) {
        const char *path = ls_opts_positional(opts, i);
        int before = w.files, code = w.exit_code;
        if (!is_folder(path)) {
            visit_file(&w, path);
            continue;
        }
        visit_folder(&w, path, 1);
        if (w.files == before && w.exit_code == code)
            failed(&w, ls_fail(LS_BAD_FILE, "%s: no *" SUFFIX " file in this folder or below", path));
    }
    return w.exit_code;
}

static ls_status show(const char *path, const options *o) { return ls_cli_ckpt_show(path, o->json); }

static ls_status digest(const char *path, const options *o) { return ls_cli_ckpt_digest(path, o->json); }

/* What a verb does, and with how many paths. */
typedef struct verb {
    const char *name;
    action each; /* of each path, or, with `walks`, of each checkpoint in or below it; NULL: of two */
    bool walks;
} verb;

static const verb verbs[] = {
    { "ls", list, true }, { "show", show, false }, { "verify", verify, true }, { "diff", NULL, false }, { "merge", NULL, false },
    { "reshard", NULL, false }, { "digest", digest, false },
};
#define NVERBS (sizeof verbs / sizeof *verbs)

/* Exit status 1: they differ. */
static int diff(const ls_opts *opts, const options *o)
{
    bool same;
    char a[PATH_BYTES], b[PATH_BYTES];
    if (ls_opts_npositional(opts) != 3)
        return ls_cli_fail("ckpt", ls_fail(LS_USAGE, "diff: expected two checkpoints, each a folder or a file"));
    ls_status st = ls_steps_resolve(ls_opts_positional(opts, 1), a, sizeof a);
    if (st == LS_OK) st = ls_steps_resolve(ls_opts_positional(opts, 2), b, sizeof b);
    if (st == LS_OK) st = ls_cli_ckpt_diff(a, b, o->json, &same);
    return st < 0 ? ls_cli_fail("ckpt", st) : !same;
}

static ls_status merge_one(const char *path, const options *o) { return ls_cli_ckpt_merge(path, o->out, o->json); }

static int merge(const ls_opts *opts, const options *o)
{
    if (ls_opts_npositional(opts) != 2 || !*o->out)
        return ls_cli_fail("ckpt", ls_fail(LS_USAGE, "merge: expected a checkpoint's folder, and --out FOLDER"));
    const ls_status st = act(merge_one, ls_opts_positional(opts, 1), o);
    return st < 0 ? ls_cli_fail("ckpt", st) : 0;
}

static int reshard(const ls_opts *opts, const options *o)
{
    if (ls_opts_npositional(opts) != 3 || o->ranks < 1)
        return ls_cli_fail("ckpt", ls_fail(LS_USAGE, "reshard: expected a checkpoint's folder, a new folder, and --ranks N"));
    const char *from = ls_opts_positional(opts, 1), *to = ls_opts_positional(opts, 2);
    const ls_status st = ls_cli_ckpt_reshard(from, to, (int)o->ranks, o->json);
    return st < 0 ? ls_cli_fail("ckpt", st) : 0;
}

static int carry_out(const verb *v, const ls_opts *opts, const options *o)
{
    int code = 0;
    if (*o->out && strcmp(v->name, "merge") != 0)
        return ls_cli_fail("ckpt", ls_fail(LS_USAGE, "--out belongs to merge, and this is %s", v->name));
    if (o->ranks && strcmp(v->name, "reshard") != 0)
        return ls_cli_fail("ckpt", ls_fail(LS_USAGE, "--ranks belongs to reshard, and this is %s", v->name));
    if (strcmp(v->name, "reshard") == 0) return reshard(opts, o);
    if (strcmp(v->name, "diff") == 0) return diff(opts, o);
    if (strcmp(v->name, "merge") == 0) return merge(opts, o);
    if (v->walks) return visit_all(opts, v->each, o);
    for (int i = 1; i < ls_opts_npositional(opts); i++) {
        const ls_status st = act(v->each, ls_opts_positional(opts, i), o);
        if (st < 0 && code == 0) code = ls_cli_fail("ckpt", st);
    }
    return code;
}

static ls_status unknown(const char *word)
{
    const char *names[NVERBS];
    for (size_t i = 0; i < NVERBS; i++) names[i] = verbs[i].name;
    const char *near = ls_nearest(word, names, NVERBS);
    return ls_fail(LS_USAGE, "nothing named '%s'%s%s%s", word, near ? "; did you mean '" : "", near ? near : "",
                   near ? "'?" : "; there are ls, show, verify, diff, merge, reshard and digest");
}

static int run(int argc, char **argv)
{
    options o = { 0 };
    ls_opts *opts = NULL;
    int rest = 0, code = 0;
    ls_status st = ls_opts_create(table, sizeof table / sizeof *table, &o, &opts);
    if (st == LS_OK) st = ls_opts_parse(opts, argc, argv, false, &rest);
    if (st == LS_OK && o.help) {
        code = ls_cli_help(&ls_cmd_ckpt);
    } else if (st == LS_OK && ls_opts_npositional(opts) < 2) {
        st = ls_fail(LS_USAGE, "expected ls, show, verify, diff, merge, reshard or digest, then files or folders; --help shows an example");
    } else if (st == LS_OK) {
        const char *word = ls_opts_positional(opts, 0);
        size_t v = 0;
        while (v < NVERBS && strcmp(word, verbs[v].name) != 0) v++;
        if (v < NVERBS) code = carry_out(&verbs[v], opts, &o);
        else st = unknown(word);
    }
    if (st < 0) code = ls_cli_fail("ckpt", st);
    ls_opts_destroy(opts);
    return code;
}

const ls_cmd ls_cmd_ckpt = {
    .name = "ckpt",
    .summary = "list, check, compare and merge checkpoints",
    .usage = "lockstep ckpt ls|show|verify|diff|merge|reshard|digest FILE|FOLDER... [--json] [--out FOLDER] [--ranks N]",
    .example = "lockstep ckpt verify runs/fashion-mnist\n"
               "  lockstep ckpt diff runs/one runs/another --json",
    LS_CMD_OPTS(table),
    .run = run,
};
