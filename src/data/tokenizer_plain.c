/* tokenizer_plain.c -- tokenizers that need no file: a token per byte, or per character. */
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "data/tokenizer.h"

#define CODE_POINTS 0x110000u

/* --- a token per byte ---------------------------------------------------------------- */

static ls_status fill_bytes(ls_tokenizer *t)
{
    for (uint32_t b = 0; b < 256; b++) {
        char byte = (char)b;
        LS_TRY(ls_vocab_add(&t->vocab, b, &byte, 1));
    }
    LS_TRY(ls_tokenizer_add_special(t, LS_END_OF_TEXT, strlen(LS_END_OF_TEXT), 256, true));
    return ls_tokenizer_finish(t);
}

ls_status ls_tokenizer_open_bytes(ls_tokenizer **out)
{
    ls_tokenizer *t;
    *out = NULL;
    LS_TRY(ls_tokenizer_new(&t));
    ls_status st = fill_bytes(t);
    if (st == LS_OK) *out = t;
    else ls_tokenizer_close(t);
    return st;
}

/* --- a token per character ----------------------------------------------------------- */

static size_t put_utf8(uint32_t c, char p[4])
{
    if (c < 0x80) {
        p[0] = (char)c;
        return 1;
    }
    size_t n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = n - 1; i > 0; i--, c >>= 6) p[i] = (char)(0x80 | (c & 0x3f));
    p[0] = (char)(0xf00u >> n | c);
    return n;
}

static ls_status fill_chars(ls_tokenizer *t, const char *text, size_t n, uint8_t *seen)
{
    for (size_t at = 0; at < n;) {
        bool valid;
        size_t k = ls_utf8_next(text + at, n - at, &valid);
        if (!valid) return ls_fail(LS_INVALID, "byte %zu of the text: 0x%02x is not UTF-8", at, (unsigned)(uint8_t)text[at]);
        if (text[at] == 0) return ls_fail(LS_INVALID, "byte %zu of the text: NUL cannot be a token", at); /* nor a key */
        seen[ls_utf8_code(text + at, k)] = 1;
        at += k;
    }
    t->chars = true;
    uint32_t id = 0;
    for (uint32_t c = 0; c < CODE_POINTS; c++) {
        char p[4];
        if (seen[c]) LS_TRY(ls_vocab_add(&t->vocab, id++, p, put_utf8(c, p)));
    }
    LS_TRY(ls_tokenizer_add_special(t, LS_END_OF_TEXT, strlen(LS_END_OF_TEXT), id, true));
    return ls_tokenizer_finish(t);
}

ls_status ls_tokenizer_open_chars(const char *text, size_t n, ls_tokenizer **out)
{
    ls_tokenizer *t;
    *out = NULL;
    LS_TRY(ls_tokenizer_new(&t));
    uint8_t *seen = calloc(CODE_POINTS, 1);
    ls_status st = seen ? fill_chars(t, text, n, seen) : ls_fail(LS_NO_MEMORY, "the characters of a text");
    free(seen);
    if (st == LS_OK) *out = t;
    else ls_tokenizer_close(t);
    return st;
}

ls_status ls_tokenizer_open_ascii(ls_tokenizer **out)
{
    char text[97] = "\t\n";
    for (int c = ' '; c <= '~'; c++) text[2 + c - ' '] = (char)c;
    return ls_tokenizer_open_chars(text, 97, out);
}
