/* tokenizer.c -- text to token ids and back, for every kind of tokenizer. tokenizer_open.c opens one by its name.
 *
 * Encoding: special tokens are cut out first if they are asked for; what lies
 * between is cut into words (split.c) and each word becomes tokens (bpe.c), or
 * each character is one.
 */
#include "data/tokenizer.h"

#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "base/text.h"

/* --- making one -------------------------------------------------------------------- */

ls_status ls_tokenizer_new(ls_tokenizer **out)
{
    *out = calloc(1, sizeof **out);
    return *out ? LS_OK : ls_fail(LS_NO_MEMORY, "a tokenizer");
}

void ls_tokenizer_close(ls_tokenizer *t)
{
    if (!t) return;
    ls_vocab_free(&t->vocab);
    ls_bpe_free(&t->bpe);
    ls_split_destroy(t->split);
    free(t->special);
    free(t);
}

ls_status ls_tokenizer_add_special(ls_tokenizer *t, const char *text, size_t n, uint32_t id, bool special)
{
    if (ls_vocab_find(&t->vocab, text, n) != id || n == 0) LS_TRY(ls_vocab_add(&t->vocab, id, text, n));
    ls_special *more = realloc(t->special, (t->nspecial + 1) * sizeof *more);
    if (!more) return ls_fail(LS_NO_MEMORY, "%u special tokens", t->nspecial + 1);
    t->special = more;
    t->special[t->nspecial++] = (ls_special){ id, special };
    t->starts[(uint8_t)text[0]] = 1;
    return LS_OK;
}

ls_status ls_tokenizer_add_merge(ls_tokenizer *t, const char *left, size_t nleft, const char *right, size_t nright)
{
    char both[2 * LS_TOKENIZER_MAX_TOKEN];
    uint32_t l = ls_vocab_find(&t->vocab, left, nleft), r = ls_vocab_find(&t->vocab, right, nright);
    if (l == LS_NO_TOKEN || r == LS_NO_TOKEN)
        return ls_fail(LS_INVALID, "its %s half is not in the vocabulary", l == LS_NO_TOKEN ? "left" : "right");
    memcpy(both, left, nleft);
    memcpy(both + nleft, right, nright);
    uint32_t made = ls_vocab_find(&t->vocab, both, nleft + nright);
    if (made == LS_NO_TOKEN) return ls_fail(LS_INVALID, "what it makes is not in the vocabulary");
    return ls_bpe_add(&t->bpe, l, r, made);
}

ls_status ls_tokenizer_finish(ls_tokenizer *t)
{
    if (t->chars) return LS_OK;
    for (int b = 0; b < 256; b++) {
        char byte = (char)b;
        t->bpe.of_byte[b] = ls_vocab_find(&t->vocab, &byte, 1);
        if (t->bpe.of_byte[b] == LS_NO_TOKEN)
            return ls_fail(LS_INVALID, "the byte 0x%02x is not in the vocabulary; all 256 must be", (unsigned)b);
    }
    return ls_bpe_finish(&t->bpe);
}

/* --- facts --------------------------------------------------------------------------- */

uint32_t ls_tokenizer_vocab_size(const ls_tokenizer *t) { return t->vocab.n; }

int64_t ls_tokenizer_special(const ls_tokenizer *t, const char *text)
{
    uint32_t id = ls_vocab_find(&t->vocab, text, strlen(text));
    for (uint32_t i = 0; i < t->nspecial; i++)
        if (t->special[i].id == id) return id;
    return -1;
}

int64_t ls_tokenizer_end_of_text(const ls_tokenizer *t)
{
    static const char *const names[] = { LS_END_OF_TEXT, "<|end_of_text|>", "</s>" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        int64_t id = ls_tokenizer_special(t, names[i]);
        if (id >= 0) return id;
    }
    return -1;
}

const char *ls_tokenizer_token(const ls_tokenizer *t, uint32_t id, size_t *n)
{
    *n = id < t->vocab.n ? t->vocab.len[id] : 0;
    return *n > 0 ? t->vocab.bytes + t->vocab.at[id] : NULL;
}

/* --- encoding ---------------------------------------------------------------------------- */

static ls_status encode_chars(const ls_tokenizer *t, const char *text, size_t first, size_t n, ls_ids *out)
{
    LS_TRY(ls_ids_reserve(out, n - first));
    for (size_t at = first; at < n;) {
        bool valid;
        size_t k = ls_utf8_next(text + at, n - at, &valid);
        uint32_t id = ls_vocab_find(&t->vocab, text + at, k);
        if (id == LS_NO_TOKEN)
            return ls_fail(LS_INVALID, "byte %zu of the text: the character U+%04X is not one of the tokenizer's", at,
                           ls_utf8_code(text + at, k));
        out->p[out->n++] = id;
        at += k;
    }
    return LS_OK;
}

/* Bytes [first, n) of the text, without special tokens. */
static ls_status encode_plain(ls_tokenizer *t, const char *text, size_t first, size_t n, ls_ids *out)
{
    if (first == n) return LS_OK;
    if (t->chars) return encode_chars(t, text, first, n, out);
    if (!t->split) return ls_bpe_word(&t->bpe, text + first, n - first, out);
    for (size_t at = 0, end; at < n - first; at = end) { /* words do not look at what is in front of `first` */
        LS_TRY(ls_split_next(t->split, text + first, n - first, at, &end));
        LS_TRY(ls_bpe_word(&t->bpe, text + first + at, end - at, out));
    }
    return LS_OK;
}

/* The longest special token at p, or NULL. */
static const ls_special *special_at(const ls_tokenizer *t, const char *p, size_t n)
{
    const ls_special *best = NULL;
    for (uint32_t i = 0; i < t->nspecial; i++) {
        uint32_t id = t->special[i].id, len = t->vocab.len[id];
        if (len > n || memcmp(p, t->vocab.bytes + t->vocab.at[id], len) != 0) continue;
        if (!best || len > t->vocab.len[best->id]) best = &t->special[i];
    }
    return best;
}

static ls_status encode_special(ls_tokenizer *t, const char *text, size_t n, ls_ids *out)
{
    size_t done = 0;
    for (size_t at = 0; at < n;) {
        const ls_special *s = t->starts[(uint8_t)text[at]] ? special_at(t, text + at, n - at) : NULL;
        if (!s) {
            at++;
            continue;
        }
        LS_TRY(encode_plain(t, text, done, at, out));
        LS_TRY(ls_ids_reserve(out, 1));
        out->p[out->n++] = s->id;
        done = at += t->vocab.len[s->id];
    }
    return encode_plain(t, text, done, n, out);
}

/* The text with U+FFFD for everything that is not UTF-8; malloc'd. */
static ls_status repair(const char *text, size_t n, ls_text *out)
{
    for (size_t at = 0; at < n;) {
        size_t good = ls_utf8_check(text + at, n - at);
        bool valid;
        ls_text_addn(out, text + at, good);
        at += good;
        if (at == n) break;
        ls_text_addn(out, "\xef\xbf\xbd", 3);
        at += ls_utf8_next(text + at, n - at, &valid);
    }
    return ls_text_status(out);
}

ls_status ls_tokenizer_encode(ls_tokenizer *t, const char *text, size_t n, unsigned flags, ls_ids *out)
{
    size_t before = out->n;
    ls_text repaired = { 0 };
    ls_status st = LS_OK;
    bool any_bytes = !t->chars && !t->split && t->bpe.nmerges == 0;
    size_t bad = any_bytes ? n : ls_utf8_check(text, n);
    if (bad < n && !(flags & LS_ENCODE_LOSSY))
        return ls_fail(LS_INVALID, "byte %zu of the text: 0x%02x is not UTF-8", bad, (unsigned)(uint8_t)text[bad]);
    if (bad < n) {
        st = repair(text, n, &repaired);
        text = repaired.p;
        n = repaired.n;
    }
    if (st == LS_OK && flags & LS_ENCODE_SPECIAL) st = encode_special(t, text, n, out);
    else if (st == LS_OK) st = encode_plain(t, text, 0, n, out);
    ls_text_free(&repaired);
    if (st < 0) out->n = before;
    return st;
}

ls_status ls_tokenizer_decode(const ls_tokenizer *t, const uint32_t *id, size_t n, char **text, size_t *bytes)
{
    size_t total = 0, len;
    *text = NULL;
    *bytes = 0;
    for (size_t i = 0; i < n; i++) {
        if (!ls_tokenizer_token(t, id[i], &len))
            return ls_fail(LS_INVALID, "id %u at place %zu is no token; the vocabulary has %u", id[i], i, t->vocab.n);
        total += len;
    }
    char *p = malloc(total + 1);
    if (!p) return ls_fail(LS_NO_MEMORY, "a text of %zu bytes", total);
    *text = p;
    *bytes = total;
    for (size_t i = 0; i < n; i++) {
        const char *token = ls_tokenizer_token(t, id[i], &len);
        memcpy(p, token, len);
        p += len;
    }
    *p = 0;
    return LS_OK;
}
