/* generate.c -- from a model's files to text: opening them, and tokens as characters. */
#include "lockstep/generate.h"

#include <stdlib.h>
#include <string.h>

#include "base/env.h"
#include "base/text.h"
#include "report/rundir.h"

/* --- characters ------------------------------------------------------------------- */

/* Bytes on their way out. A character may be split between tokens: its first bytes wait for the others. */
typedef struct stream {
    const ls_tokenizer *t;
    ls_write_fn write;
    void *arg;
    ls_text in;  /* between calls: the beginning of a character */
    ls_text out; /* whole characters */
} stream;

/* Bytes of the character that begins with `first`; 0: none does. */
static size_t length_of(unsigned char first)
{
    return first < 0x80 ? 1 : first < 0xc2 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : first < 0xf5 ? 4 : 0;
}

/* n bytes more; `end`: no more will come. */
static ls_status put(stream *s, const char *p, size_t n, bool end)
{
    size_t at = 0, step;
    ls_text_addn(&s->in, p, n);
    LS_TRY(ls_text_status(&s->in));
    s->out.n = 0;
    for (; at < s->in.n; at += step) {
        bool valid;
        const char *c = s->in.p + at;
        const size_t left = s->in.n - at;
        step = ls_utf8_next(c, left, &valid);
        if (!valid && !end && step == left && step < length_of((unsigned char)*c)) break; /* the rest is to come */
        if (valid) ls_text_addn(&s->out, c, step);
        else ls_text_addn(&s->out, "\xef\xbf\xbd", 3);
    }
    s->in.n -= at;
    memmove(s->in.p, s->in.p + at, s->in.n);
    LS_TRY(ls_text_status(&s->out));
    return s->out.n > 0 ? s->write(s->arg, s->out.p, s->out.n) : LS_OK;
}

static ls_status put_token(void *arg, uint32_t id)
{
    stream *s = arg;
    size_t n = 0;
    const char *p = ls_tokenizer_token(s->t, id, &n);
    return p ? put(s, p, n, false) : put(s, "\xff", 1, false); /* a hole in the vocabulary */
}

/* --- text ------------------------------------------------------------------------------ */

ls_status ls_generate_text(ls_decoder *d, ls_tokenizer *t, const char *prompt, size_t n, const ls_generate_opts *o,
                           ls_write_fn write, void *arg, ls_generated *out)
{
    ls_ids ids = { 0 };
    stream s = { .t = t, .write = write, .arg = arg };
    ls_generate_opts with = *o;
    const int64_t known = ls_tokenizer_vocab_size(t), begin = ls_tokenizer_end_of_text(t);
    if (with.sample.vocab == 0 || with.sample.vocab > known) with.sample.vocab = known;
    ls_status st = ls_tokenizer_encode(t, prompt, n, LS_ENCODE_SPECIAL, &ids);
    if (st < 0) st = ls_while(st, "reading the prompt");
    if (st == LS_OK && n == 0 && begin < 0)
        st = ls_fail(LS_INVALID, "an empty prompt, and the tokenizer has no end of text to begin with: give a prompt");
    const uint32_t first = (uint32_t)begin;
    if (st == LS_OK) st = ls_generate(d, n ? ids.p : &first, n ? ids.n : 1, &with, put_token, &s, out);
    if (st == LS_OK) st = put(&s, "", 0, true);
    ls_text_free(&s.in);
    ls_text_free(&s.out);
    ls_ids_free(&ids);
    return st;
}

/* --- files ------------------------------------------------------------------------------ */

static bool has(const char *dir, const char *name)
{
    ls_text path = { 0 };
    ls_file_info info = { 0 };
    ls_text_add(&path, "%s/%s", dir, name);
    const bool there = ls_text_status(&path) == LS_OK && ls_env_get()->info(path.p, &info) == 0 &&
                       info.type != LS_FILE_NONE;
    ls_text_free(&path);
    return there;
}

/* A folder with a model in it stays; another is a run's. */
static ls_status find_weights(const char *path, char **out)
{
    ls_text found = { 0 };
    ls_status st = LS_OK;
    if (has(path, "config.json") || has(path, "model.safetensors")) {
        ls_text_add(&found, "%s", path);
        st = ls_text_status(&found);
    } else {
        st = ls_rundir_checkpoint(path, &found);
    }
    if (st < 0) ls_text_free(&found);
    *out = found.p; /* the caller owns it now */
    return st;
}

static ls_status open_tokenizer(const char *weights, const char *what, ls_tokenizer **out)
{
    ls_file_info info = { 0 };
    ls_text dir = { 0 };
    if (what) return ls_tokenizer_open(what, out);
    const char *slash = strrchr(weights, '/');
    const bool folder = ls_env_get()->info(weights, &info) == 0 && info.type == LS_FILE_DIR;
    if (folder) ls_text_add(&dir, "%s", weights);
    else if (slash) ls_text_add(&dir, "%.*s", (int)(slash > weights ? slash - weights : 1), weights);
    else ls_text_add(&dir, ".");
    ls_status st = ls_text_status(&dir);
    if (st == LS_OK && (has(dir.p, "tokenizer.json") || has(dir.p, "vocab.json") || has(dir.p, "vocab.bpe"))) {
        ls_text_add(&dir, "/"); /* a folder called gpt2 is a folder */
        st = ls_text_status(&dir);
        if (st == LS_OK) st = ls_tokenizer_open(dir.p, out);
    } else if (st == LS_OK) {
        st = ls_fail(LS_BAD_FILE, "%s: has no tokenizer.json: say which tokenizer it is (--tokenizer gpt2, byte, char, a "
                     "tokenizer.json or its folder)", dir.p);
    }
    ls_text_free(&dir);
    return st;
}

ls_status ls_generator_open(const char *path, const char *tokenizer, ls_generator *out)
{
    *out = (ls_generator){ 0 };
    ls_status st = find_weights(path, &out->path);
    if (st == LS_OK) st = ls_hf_open(out->path, &out->config, &out->model, &out->arena);
    if (st == LS_OK) st = open_tokenizer(out->path, tokenizer, &out->tokenizer);
    if (st == LS_OK) st = ls_decoder_create(out->model, NULL, &out->decoder);
    if (st < 0) ls_generator_close(out);
    return st;
}

void ls_generator_close(ls_generator *g)
{
    ls_decoder_destroy(g->decoder);
    ls_model_destroy(g->model);
    ls_arena_destroy(g->arena);
    ls_tokenizer_close(g->tokenizer);
    free(g->path);
    *g = (ls_generator){ 0 };
}
