/* prepare.c -- documents to token files. */
#include "data/prepare.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/env.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/text.h"
#include "data/tokenizer.h"
#include "data/tokens.h"

enum { TRAIN, VAL };

/* What a tokenizer found wrong with a text is the file's fault; its byte counts from the file's beginning. */
static ls_status in_document(ls_status st, const char *name, bool lossy)
{
    return st != LS_INVALID ? st : ls_fail(LS_BAD_FILE, "%s: %s%s", name, ls_last_error(),
                                           lossy || !strstr(ls_last_error(), "UTF-8") ? "" : "; `lockstep data prepare --lossy` puts U+FFFD there");
}

/* A tokenizer's offsets are of the part that it was given. So the whole is looked at first. */
static ls_status check(const char *name, const char *text, size_t n)
{
    size_t bad = ls_utf8_check(text, n);
    if (bad == n) return LS_OK;
    ls_fail(LS_INVALID, "byte %zu: 0x%02x is not UTF-8", bad, (unsigned)(uint8_t)text[bad]);
    return in_document(LS_INVALID, name, false);
}

/* Where the validation's share of a single document begins. */
static size_t cut(const char *text, size_t n, double val)
{
    size_t at = (size_t)((double)n * (1.0 - val));
    for (size_t i = at; i > 0; i--)
        if (text[i - 1] == '\n') return i;
    while (at > 0 && ((uint8_t)text[at] & 0xc0) == 0x80) at--; /* not inside a character */
    return at;
}

typedef struct job {
    const ls_prepare *p;
    ls_corpus *c;
    ls_tokenizer *t;
    ls_prepared *out;
    ls_token_writer writer[2];
    ls_ids ids; /* of one document */
    ls_text source; /* of source.txt */
    uint32_t end_of_text;
    size_t done;
    bool parts; /* a long text may be encoded in parts */
} job;

#define PART ((size_t)4 << 20) /* bytes between two reports of progress */

static bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

/* In parts, so that progress shows and ids do not pile up: between two ASCII words with a blank between them, where
 * GPT-2's pattern ends a word whatever is before and behind. Other patterns get the whole. */
static size_t next_part(const job *j, const char *text, size_t n, size_t at)
{
    if (!j->parts) return n;
    for (size_t i = at + PART; i + 1 < n; i++)
        if (text[i] == ' ' && is_letter(text[i - 1]) && is_letter(text[i + 1])) return i;
    return n;
}

static ls_status encode(job *j, int split, const char *name, const char *text, size_t n)
{
    ls_token_writer *w = &j->writer[split];
    LS_TRY(ls_token_writer_add(w, &j->end_of_text, 1));
    for (size_t at = 0, end; at < n; at = end) {
        end = next_part(j, text, n, at);
        j->ids.n = 0;
        ls_status st = ls_tokenizer_encode(j->t, text + at, end - at, j->p->lossy ? LS_ENCODE_LOSSY : 0, &j->ids);
        LS_TRY(in_document(st, name, j->p->lossy));
        LS_TRY(ls_token_writer_add(w, j->ids.p, j->ids.n));
        j->done += end - at;
        if (j->p->progress) j->p->progress(j->p->arg, j->done, j->c->bytes);
    }
    j->out->documents[split]++;
    j->out->bytes[split] += n;
    return LS_OK;
}

static ls_status encode_all(job *j)
{
    size_t n = j->c->n, nval = (size_t)ceil(j->p->val * (double)n);
    for (size_t i = 0; i < n; i++) {
        const char *text, *name = j->c->doc[i].name;
        size_t bytes;
        LS_TRY(ls_corpus_text(j->c, i, &text, &bytes));
        if (!j->p->lossy) LS_TRY(check(name, text, bytes));
        size_t at = n > 1 ? (i < n - nval ? bytes : 0) : nval ? cut(text, bytes, j->p->val) : bytes;
        if (at > 0 || bytes == 0) LS_TRY(encode(j, TRAIN, name, text, at));
        if (at < bytes) LS_TRY(encode(j, VAL, name, text + at, bytes - at));
        ls_corpus_release(j->c, i);
    }
    if (j->out->bytes[TRAIN] + j->out->bytes[VAL] > 0) return LS_OK;
    return ls_fail(LS_BAD_FILE, "%s%s: no text in it", n ? j->c->doc[0].name : "", n > 1 ? " and the others" : "");
}

static ls_status path_of(const ls_prepare *p, const char *name, ls_text *out)
{
    out->n = 0;
    ls_text_add(out, "%s/%s", p->out, name);
    return ls_text_status(out);
}

/* --- what is there already ------------------------------------------------------------- */

#define SOURCE_MAX 4096 /* bytes of source.txt */

uint64_t ls_prepare_tokenizer_digest(const ls_tokenizer *t)
{
    const int64_t end = ls_tokenizer_end_of_text(t);
    uint64_t hash = ls_hash64(&end, sizeof end, ls_tokenizer_vocab_size(t));
    for (uint32_t i = 0; i < ls_tokenizer_vocab_size(t); i++) {
        size_t n = 0;
        const char *token = ls_tokenizer_token(t, i, &n);
        if (token) hash = ls_hash64(token, n, hash + i);
    }
    return hash;
}

/* source.txt: what the files beside it are made of. */
static ls_status describe(const ls_prepare *p, ls_corpus *c, const ls_tokenizer *t, ls_text *out)
{
    uint64_t hash = c->n;
    for (size_t i = 0; i < c->n; i++) {
        const char *text;
        size_t n;
        LS_TRY(ls_corpus_text(c, i, &text, &n));
        hash = ls_hash64(text, n, hash);
        ls_corpus_release(c, i);
    }
    ls_text_add(out, "text %016" PRIx64 "\ntokenizer %016" PRIx64 "\nformat %s\nval %.17g\nlossy %d\n", hash,
                ls_prepare_tokenizer_digest(t), p->format == LS_TOKENS_LLMC ? "llmc" : "nanogpt", p->val, (int)p->lossy);
    return ls_text_status(out);
}

static ls_status look(const ls_prepare *p, const ls_text *source, bool *there, bool *same)
{
    static const char *const names[] = { "train.bin", "val.bin", "tokenizer.json", "source.txt" };
    ls_text path = { 0 };
    ls_file_info info = { 0 };
    char *found = NULL;
    size_t n = 0;
    ls_status st = LS_OK;
    *there = *same = false;
    for (int i = 0; i < 4 && st == LS_OK; i++) {
        st = path_of(p, names[i], &path);
        if (st == LS_OK && (ls_env_get()->info(path.p, &info) < 0 || info.type == LS_FILE_NONE)) continue;
        *there = true;
    }
    if (st == LS_OK && *there && ls_file_read(path.p, SOURCE_MAX, &found, &n) == LS_OK) /* the last of them */
        *same = n == source->n && memcmp(found, source->p, n) == 0;
    free(found);
    ls_text_free(&path);
    return st;
}

ls_status ls_prepare_look(const ls_prepare *p, ls_corpus *c, const ls_tokenizer *t, bool *there, bool *same)
{
    ls_text source = { 0 };
    ls_status st = describe(p, c, t, &source);
    if (st == LS_OK) st = look(p, &source, there, same);
    ls_text_free(&source);
    return st;
}

/* Refuses other files; what replaces some has no description until it is whole. */
static ls_status make_room(const ls_prepare *p, const ls_text *source)
{
    const ls_env *env = ls_env_get();
    bool there, same;
    ls_text path = { 0 };
    LS_TRY(look(p, source, &there, &same));
    if (!there) return LS_OK;
    if (!same && !p->force)
        return ls_fail(LS_INVALID, "%s: has token files that are not of these texts, this tokenizer and these options: name another "
                       "folder, or give --force to replace them", p->out);
    ls_status st = path_of(p, "source.txt", &path);
    if (st == LS_OK) env->unlink(path.p);
    if (st == LS_OK) st = path_of(p, "val.bin", &path);
    if (st == LS_OK && p->val <= 0.0) env->unlink(path.p); /* of the others */
    ls_text_free(&path);
    return st;
}

/* --- making them -------------------------------------------------------------------------- */

static ls_status open_writers(job *j)
{
    static const char *const names[] = { "train.bin", "val.bin" };
    ls_status st = LS_OK;
    for (int i = 0; st == LS_OK && i < (j->p->val > 0.0 ? 2 : 1); i++) {
        ls_text path = { 0 };
        st = path_of(j->p, names[i], &path);
        if (st == LS_OK) st = ls_token_writer_open(&j->writer[i], path.p, j->p->format, j->out->vocab);
        ls_text_free(&path);
    }
    return st;
}

static ls_status finish(job *j)
{
    ls_text path = { 0 };
    LS_TRY(ls_token_writer_finish(&j->writer[TRAIN]));
    if (j->p->val > 0.0) LS_TRY(ls_token_writer_finish(&j->writer[VAL]));
    ls_status st = path_of(j->p, "tokenizer.json", &path);
    if (st == LS_OK) st = ls_tokenizer_save(j->t, path.p);
    if (st == LS_OK) st = path_of(j->p, "source.txt", &path);
    if (st == LS_OK) st = ls_file_write(path.p, j->source.p, j->source.n);
    ls_text_free(&path);
    return st;
}

ls_status ls_prepare_tokens(const ls_prepare *p, ls_corpus *c, ls_tokenizer *t, ls_prepared *out)
{
    const ls_env *env = ls_env_get();
    *out = (ls_prepared){ .vocab = ls_tokenizer_vocab_size(t) };
    int64_t end = ls_tokenizer_end_of_text(t);
    if (end < 0) return ls_fail(LS_UNSUPPORTED, "this tokenizer has no token for the end of a text");
    job j = { .p = p, .c = c, .t = t, .out = out, .end_of_text = (uint32_t)end,
              .parts = t->split ? strcmp(ls_split_pattern(t->split), ls_split_gpt2) == 0 : t->bpe.nmerges == 0 };
    const int made = env->mkdir(p->out);
    if (made < 0 && made != -EEXIST) return ls_fail(LS_IO, "%s: cannot be made: %s", p->out, strerror(-made));
    ls_status st = describe(p, c, t, &j.source);
    if (st == LS_OK) st = make_room(p, &j.source);
    if (st == LS_OK) st = open_writers(&j);
    if (st == LS_OK) st = encode_all(&j);
    if (st == LS_OK) st = finish(&j);
    for (int i = 0; i < 2; i++) {
        out->tokens[i] = j.writer[i].tokens;
        ls_token_writer_close(&j.writer[i]);
    }
    if (st < 0 && made == 0) env->rmdir(p->out); /* if nothing is in it */
    ls_text_free(&j.source);
    ls_ids_free(&j.ids);
    return st;
}

ls_status ls_prepare_chars(const ls_prepare *p, ls_corpus *c, ls_tokenizer **out)
{
    ls_text all = { 0 };
    ls_status st = LS_OK;
    *out = NULL;
    for (size_t i = 0; st == LS_OK && i < c->n; i++) {
        const char *text;
        size_t n;
        st = ls_corpus_text(c, i, &text, &n);
        if (st == LS_OK && !p->lossy) st = check(c->doc[i].name, text, n);
        if (st == LS_OK) ls_text_addn(&all, text, n);
        if (st == LS_OK) st = ls_text_status(&all);
        ls_corpus_release(c, i);
    }
    if (st == LS_OK) st = ls_tokenizer_open_chars(ls_text_str(&all), all.n, out);
    ls_text_free(&all);
    return st;
}
