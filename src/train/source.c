/* source.c -- the data of a run: found, fetched, or made of a text on first use. */
#include "train/source.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/commit.h"
#include "base/env.h"
#include "base/hash.h"
#include "base/text.h"
#include "data/idx.h"
#include "data/prepare.h"
#include "meet/job_env.h"
#include "report/rundir.h"
#include "report/say.h"

#define CACHE ".cache/tokens"
#define VAL 0.05                             /* share of a text that is for validation, as in `lockstep data prepare` */
#define WAIT_NS 900000000000ull              /* for the rank that fetches a data set and makes the files */
#define LOOK_NS 20000000ull
#define LLMC_MAGIC16 20240520
#define LLMC_MAGIC32 20240801

static ls_file_type type_of(const char *path)
{
    ls_file_info info;
    return ls_env_get()->info(path, &info) < 0 ? LS_FILE_NONE : info.type;
}

/* "%s%s" into a path of the source; "" where such a file is not there and `must` is not set. */
static ls_status place(char out[LS_SOURCE_PATH], const char *front, size_t nfront, const char *name, bool must)
{
    const int n = snprintf(out, LS_SOURCE_PATH, "%.*s%s", (int)nfront, front, name);
    if (n < 0 || n >= LS_SOURCE_PATH)
        return ls_fail(LS_BAD_CONFIG, "data.path: %.40s...: a path of %d bytes, at most %d are taken", out, n, LS_SOURCE_PATH - 1);
    if (type_of(out) != LS_FILE_NONE) return LS_OK;
    if (must) return ls_fail(LS_IO, "%s: not there: data.path names token files, as `lockstep data prepare` makes them", out);
    *out = 0;
    return LS_OK;
}

#define LOOK_BYTES 4096

/* nanoGPT's files have nothing to know them by, and any text of even length would pass for one: in 16 bits each, what
 * people write is ids that GPT-2 has. */
static bool is_text(const unsigned char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (p[i] == 0x7f || (p[i] < 0x20 && p[i] != '\n' && p[i] != '\r' && p[i] != '\t')) return false;
    return n >= 16 && ls_utf8_check((const char *)p, n) + 4 > n; /* the last character may go on */
}

ls_status ls_source_format(const ls_train_config *c, const char *path, ls_token_format *out)
{
    const ls_env *env = ls_env_get();
    unsigned char begin[LOOK_BYTES];
    int32_t magic = 0;
    *out = strcmp(c->data.format, "nanogpt") == 0 ? LS_TOKENS_NANOGPT : LS_TOKENS_LLMC;
    if (strcmp(c->data.format, "auto") != 0) return LS_OK;
    const int fd = env->open_read(path);
    if (fd < 0) return ls_fail(LS_IO, "%s: cannot be opened: %s", path, strerror(-fd));
    const ssize_t k = env->pread(fd, begin, sizeof begin, 0);
    env->close_fd(fd);
    if (k >= (ssize_t)sizeof magic) memcpy(&magic, begin, sizeof magic);
    if (magic == LLMC_MAGIC16 || magic == LLMC_MAGIC32) return LS_OK;
    if (k > 0 && is_text(begin, (size_t)k))
        return ls_fail(LS_BAD_FILE, "%s: begins with text, and data.path names tokens: set data.name to it, or data.format to nanogpt "
                       "if these are uint16 tokens all the same", path);
    *out = LS_TOKENS_NANOGPT;
    return LS_OK;
}

/* --- files that are there -------------------------------------------------------------------- */

static ls_status in_folder(const char *dir, ls_source *s)
{
    char slash[LS_SOURCE_PATH];
    const int n = snprintf(slash, sizeof slash, "%s/", dir);
    if (n < 0 || (size_t)n >= sizeof slash) return ls_fail(LS_BAD_CONFIG, "data.path is longer than %d bytes", LS_SOURCE_PATH - 1);
    LS_TRY(place(s->train, slash, (size_t)n, "train.bin", true));
    LS_TRY(place(s->val, slash, (size_t)n, "val.bin", false));
    return place(s->tokenizer, slash, (size_t)n, "tokenizer.json", false);
}

/* abc_train.bin has abc_val.bin beside it. */
static ls_status beside_file(const char *path, ls_source *s)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path, *train = strstr(name, "train");
    char val[LS_SOURCE_PATH];
    LS_TRY(place(s->train, path, strlen(path), "", true));
    LS_TRY(place(s->tokenizer, path, (size_t)(name - path), "tokenizer.json", false));
    if (!train) return LS_OK;
    snprintf(val, sizeof val, "val%s", train + strlen("train"));
    return place(s->val, path, (size_t)(train - path), val, false);
}

/* --- data sets that have a name ---------------------------------------------------------------- */

static void say_line(const char *line) { ls_say("%s", line); }

static ls_status wait_for_set(const ls_set *set, char path[LS_SET_PATH])
{
    const ls_env *env = ls_env_get();
    const uint64_t end = env->mono_ns() + WAIT_NS;
    while (!ls_set_find(set, path)) { /* it comes at once, with its name */
        if (env->mono_ns() > end)
            return ls_fail(LS_IO, "the data set %s did not arrive within %d s: the first rank of this node fetches it", set->name,
                           (int)(WAIT_NS / 1000000000u));
        env->wait(NULL, 0, NULL, 0, env->mono_ns() + LOOK_NS);
    }
    return LS_OK;
}

ls_status ls_source_images(const ls_train_config *c, char path[LS_SET_PATH])
{
    const ls_set *set = ls_set_named("fashion-mnist");
    ls_job_env job;
    if (strlen(c->data.path) >= LS_SET_PATH) return ls_fail(LS_BAD_CONFIG, "data.path is longer than %d bytes", LS_SET_PATH - 1);
    snprintf(path, LS_SET_PATH, "%s", c->data.path);
    if (*path) return LS_OK;
    LS_TRY(ls_job_env_read(&job));
    return job.local_rank > 0 ? wait_for_set(set, path) : ls_set_get(set, say_line, path);
}

static ls_status check_images(const ls_train_config *c)
{
    static const char *const names[] = { "train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte",
                                         "t10k-labels-idx1-ubyte" };
    char dir[LS_SET_PATH], path[LS_IDX_PATH];
    LS_TRY(ls_source_images(c, dir));
    for (int i = 0; i < 4; i++) {
        const ls_status st = ls_idx_find(dir, names[i], path);
        if (st < 0) return ls_while(st, "opening the images of data.path (without data.path Lockstep fetches Fashion-MNIST)");
    }
    return LS_OK;
}

static const char *tokenizer_of(const ls_train_config *c) { return *c->data.tokenizer ? c->data.tokenizer : "gpt2"; }

/* What has to be fetched before tokens are made of c->data.name, by the rank that makes them. */
static ls_status fetch_for(const ls_train_config *c)
{
    char path[LS_SET_PATH];
    const ls_set *text = ls_set_named(c->data.name), *tokenizer = ls_set_of_tokenizer(tokenizer_of(c));
    if (text) LS_TRY(ls_set_get(text, say_line, path));
    return tokenizer ? ls_set_get(tokenizer, say_line, path) : LS_OK;
}

/* --- files to be made ---------------------------------------------------------------------------- */

static bool is_named(const char *what) { return strcmp(what, "sotu") == 0 || strcmp(what, "moby-dick") == 0; }

/* A name for the text and the tokenizer: of the user's own files it has a hash of what is in them. */
static ls_status cache_name(const ls_train_config *c, char *out, size_t n)
{
    const char *slash = strrchr(c->data.name, '/'), *text = slash ? slash + 1 : c->data.name;
    const char *with = tokenizer_of(c);
    const bool plain = strcmp(with, "gpt2") == 0 || strcmp(with, "byte") == 0 || strcmp(with, "char") == 0;
    uint64_t hash = plain ? 0 : ls_hash64(with, strlen(with), 0);
    if (!is_named(c->data.name)) LS_TRY(ls_corpus_hash(c->data.name, &hash));
    int k = snprintf(out, n, CACHE "/%.60s-%s", *text ? text : "text", plain ? with : "own");
    if (hash && k > 0 && (size_t)k < n) snprintf(out + k, n - (size_t)k, "-%016" PRIx64, hash);
    return LS_OK;
}

static bool has_tokens(const char *dir)
{
    char path[LS_SOURCE_PATH + 16];
    snprintf(path, sizeof path, "%s/train.bin", dir);
    return type_of(path) != LS_FILE_NONE;
}

/* A folder takes its name, and can replace an empty one only. */
static ls_status check_empty(const char *dir)
{
    char name[512];
    if (type_of(dir) != LS_FILE_DIR || ls_env_get()->list(dir, name, sizeof name) == 0 || has_tokens(dir)) return LS_OK;
    return ls_fail(LS_BAD_CONFIG, "data.path %s: has other files and no train.bin: name a new folder, or an empty one", dir);
}

/* Into a folder beside it, which then gets its name: no reader finds half of it. */
static ls_status make(const ls_train_config *c, ls_corpus *corpus, const char *dir, bool *made)
{
    ls_commit_folder *folder = NULL;
    ls_prepared done = { 0 };
    ls_tokenizer *t = NULL;
    const char *with = tokenizer_of(c);

    LS_TRY(check_empty(dir));
    LS_TRY(ls_commit_folder_create(dir, &folder));
    const ls_prepare p = { .out = ls_commit_folder_path(folder), .format = LS_TOKENS_LLMC, .val = VAL };
    ls_status st = strcmp(with, "char") == 0 ? ls_prepare_chars(&p, corpus, &t) : ls_tokenizer_open(with, &t);
    if (st == LS_OK) st = ls_prepare_tokens(&p, corpus, t, &done);
    ls_tokenizer_close(t);
    if (st == LS_OK) {
        st = ls_commit_folder_finish(folder, false);
        *made = st == LS_OK;
        if (st == LS_IO && has_tokens(dir)) st = LS_OK; /* another job was faster: its files are as good */
    }
    ls_commit_folder_destroy(folder);
    if (*made && !c->json) /* else stdout has one object */
        ls_say("tokens of %s: %s: %zu for training, %zu for validation, vocabulary %u", c->data.name, dir, done.tokens[0],
               done.tokens[1], done.vocab);
    return st;
}

/* Both a text and a folder with tokens are given: these must be of that. */
static ls_status check_made(const ls_train_config *c, ls_corpus *corpus, const char *dir)
{
    const ls_prepare p = { .out = dir, .format = LS_TOKENS_LLMC, .val = VAL };
    const char *with = tokenizer_of(c);
    ls_tokenizer *t = NULL;
    bool there, same = false;
    ls_status st = fetch_for(c);
    if (st == LS_OK) st = ls_corpus_add(corpus, c->data.name, NULL);
    if (st == LS_OK) st = strcmp(with, "char") == 0 ? ls_prepare_chars(&p, corpus, &t) : ls_tokenizer_open(with, &t);
    if (st == LS_OK) st = ls_prepare_look(&p, corpus, t, &there, &same);
    ls_tokenizer_close(t);
    if (st < 0 || same) return st;
    return ls_fail(LS_BAD_CONFIG, "data.path %s has tokens that were not made of data.name %s with data.tokenizer %s: set data.name to "
                   "tokens to train on them, or give data.path a new folder", dir, c->data.name, with);
}

static ls_status wait_for(const char *dir)
{
    const ls_env *env = ls_env_get();
    const uint64_t end = env->mono_ns() + WAIT_NS;
    while (!has_tokens(dir)) { /* they come all at once, with the folder's name */
        if (env->mono_ns() > end)
            return ls_fail(LS_IO, "%s: the first rank of this node, which writes its tokens, did not finish within %d s", dir,
                           (int)(WAIT_NS / 1000000000u));
        env->wait(NULL, 0, NULL, 0, env->mono_ns() + LOOK_NS);
    }
    return LS_OK;
}

static ls_status of_text(const ls_train_config *c, ls_source *s)
{
    char dir[LS_SOURCE_PATH - 16];
    ls_corpus corpus = { 0 };
    ls_job_env job;
    ls_status st = LS_OK;
    LS_TRY(ls_job_env_read(&job));
    if (strlen(c->data.path) >= sizeof dir) return ls_fail(LS_BAD_CONFIG, "data.path is longer than %zu bytes", sizeof dir - 1);
    snprintf(dir, sizeof dir, "%s", c->data.path);
    if (!*dir) st = cache_name(c, dir, sizeof dir);
    if (st == LS_OK && has_tokens(dir)) {
        if (*c->data.path && job.local_rank <= 0) st = check_made(c, &corpus, dir);
    } else if (st == LS_OK) {
        if (job.local_rank > 0) st = wait_for(dir);
        else {
            st = fetch_for(c);
            if (st == LS_OK) st = ls_corpus_add(&corpus, c->data.name, NULL);
            if (st == LS_OK) st = make(c, &corpus, dir, &s->made);
        }
    }
    ls_corpus_free(&corpus);
    return st < 0 && st != LS_BAD_CONFIG ? ls_while(st, "making tokens of data.name %s", c->data.name) : st < 0 ? st : in_folder(dir, s);
}

/* One token for each character, as far as it is no mark: what `char` makes of any text. */
static bool by_characters(const ls_tokenizer *t)
{
    for (uint32_t i = 0; i < ls_tokenizer_vocab_size(t); i++) {
        size_t n = 0, heads = 0;
        const char *p = ls_tokenizer_token(t, i, &n);
        for (size_t k = 0; p && k < n; k++) heads += ((unsigned char)p[k] & 0xc0) != 0x80;
        if (p && (heads > 1 || ls_utf8_check(p, n) != n) && (int64_t)i != ls_tokenizer_end_of_text(t)) return false;
    }
    return true;
}

/* The tokenizer beside the tokens is theirs; data.tokenizer may only say the same. */
static ls_status check_tokenizer(const ls_train_config *c, const ls_source *s)
{
    const char *with = c->data.tokenizer;
    ls_tokenizer *t;
    if (!*with || (strcmp(with, "char") == 0 && by_characters(s->opened))) return LS_OK;
    LS_TRY(ls_tokenizer_open(with, &t));
    const bool same = ls_prepare_tokenizer_digest(t) == ls_prepare_tokenizer_digest(s->opened);
    const uint32_t n = ls_tokenizer_vocab_size(t);
    ls_tokenizer_close(t);
    if (same) return LS_OK;
    return ls_fail(LS_BAD_CONFIG, "data.tokenizer %s has %u tokens, but the tokens of data.path were made with %s, which has %u others: "
                   "leave data.tokenizer out, or make the tokens again", with, n, s->tokenizer, ls_tokenizer_vocab_size(s->opened));
}

/* --- the text of samples ------------------------------------------------------------------------------ */

/* Before the first step: a sample that fails would end the run in the middle. A recipe brings its
 * prompt, the user another text: where the tokenizer lacks a character of the prompt, samples begin without it. */
static ls_status check_prompt(const ls_train_config *c, ls_source *s)
{
    const char *prompt = c->train.sample_prompt;
    ls_ids ids = { 0 };
    ls_status st = ls_tokenizer_encode(s->opened, prompt, strlen(prompt), LS_ENCODE_SPECIAL, &ids);
    if (st == LS_INVALID) {
        snprintf(s->no_prompt, sizeof s->no_prompt, "%s", ls_last_error());
        s->prompt = "";
        st = LS_OK;
    }
    if (st == LS_OK && !*s->prompt && ls_tokenizer_end_of_text(s->opened) < 0)
        st = ls_fail(LS_BAD_CONFIG, "train.sample_prompt %s, and the tokenizer has no end-of-text token that samples could begin "
                     "after: give one that the text has", *prompt ? "has a character that the tokenizer lacks" : "is empty");
    else if (st == LS_OK && ids.n > (size_t)c->model.seq_len)
        st = ls_fail(LS_BAD_CONFIG, "train.sample_prompt has %zu tokens, the model's longest sequence is %lld: shorten it", ids.n,
                     (long long)c->model.seq_len);
    ls_ids_free(&ids);
    return st;
}

#define PROMPT "The people"
#define PROMPT_LOOK 256 /* tokens of the text in which to look for another */
#define PROMPT_ENOUGH 8 /* bytes of it */

static bool encodes(ls_tokenizer *t, const char *text, size_t n)
{
    ls_ids ids = { 0 };
    const bool can = n > 0 && ls_tokenizer_encode(t, text, n, 0, &ids) == LS_OK;
    ls_ids_free(&ids);
    return can;
}

/* What a shell takes between ' and ', and a terminal shows. */
static bool is_plain(const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)p[i] < 0x20 || p[i] == 0x7f || p[i] == '\'') return false;
    return n > 0;
}

void ls_source_prompt(const ls_source *s, const ls_tokens *text, char *out, size_t n)
{
    snprintf(out, n, "%s", PROMPT);
    if (encodes(s->opened, out, strlen(out))) return;
    size_t have = 0;
    for (size_t i = 0; i < text->n && i < PROMPT_LOOK; i++) { /* the first words of the text itself */
        const uint32_t id = text->u16 ? text->u16[i] : text->u32[i];
        size_t bytes = 0;
        const char *token = ls_tokenizer_token(s->opened, id, &bytes);
        const bool special = (int64_t)id == ls_tokenizer_end_of_text(s->opened);
        const bool fits = token && !special && is_plain(token, bytes) && have + bytes < n;
        if (fits && (have > 0 || *token != ' ')) {
            memcpy(out + have, token, bytes);
            have += bytes;
        } else if (have > 0) {
            break;
        }
        if (have >= PROMPT_ENOUGH && encodes(s->opened, out, have)) break;
    }
    while (have > 0 && (out[have - 1] == ' ' || !encodes(s->opened, out, have))) have--;
    out[have] = 0;
}

/* --- both -------------------------------------------------------------------------------------------- */

ls_status ls_source_find(const ls_train_config *c, ls_source *out)
{
    const bool tokens = strcmp(ls_train_data_name(c), "tokens") == 0;
    *out = (ls_source){ .prompt = c->train.sample_prompt };
    ls_status st;
    if (!tokens) st = of_text(c, out);
    else st = type_of(c->data.path) == LS_FILE_DIR ? in_folder(c->data.path, out) : beside_file(c->data.path, out);
    if (st == LS_OK && *out->tokenizer) st = ls_tokenizer_open(out->tokenizer, &out->opened);
    else if (st == LS_OK && *c->data.tokenizer) st = ls_tokenizer_open(c->data.tokenizer, &out->opened);
    if (st == LS_OK && tokens && *out->tokenizer) st = check_tokenizer(c, out);
    if (st == LS_OK && out->opened && c->train.sample_every > 0 && !c->eval_only) st = check_prompt(c, out);
    if (st < 0) ls_source_free(out);
    return st;
}

ls_status ls_source_vocab(const ls_train_config *c, const ls_source *s, int64_t *out)
{
    const ls_model_preset *preset = ls_model_preset_find(c->model.preset);
    *out = c->model.vocab_size;
    if (*out == 0 && s->opened) *out = ls_tokenizer_vocab_size(s->opened);
    else if (*out == 0 && preset) *out = preset->lm.vocab_size;
    if (*out > 0 && s->opened && ls_tokenizer_vocab_size(s->opened) > *out)
        return ls_fail(LS_BAD_CONFIG, "model.vocab_size is %lld, but the data's tokenizer has %u tokens: the model has no embedding for "
                       "the others. Give data.tokenizer the model's, or the model at least as many", (long long)*out,
                       ls_tokenizer_vocab_size(s->opened));
    if (*out > 0) return LS_OK;
    return ls_fail(LS_BAD_CONFIG, "model.vocab_size is missing: no tokenizer.json beside %s says it", s->train);
}

ls_status ls_source_prepare(const ls_train_config *c)
{
    ls_source s;
    int64_t vocab;
    ls_token_format format;
    if (!ls_train_is_lm(c)) return strcmp(ls_train_data_name(c), "synthetic") == 0 ? LS_OK : check_images(c);
    LS_TRY(ls_source_find(c, &s));
    ls_status st = ls_source_vocab(c, &s, &vocab);
    if (st == LS_OK) st = ls_source_format(c, s.train, &format);
    ls_source_free(&s);
    return st;
}

void ls_source_free(ls_source *s)
{
    ls_tokenizer_close(s->opened);
    *s = (ls_source){ 0 };
}
