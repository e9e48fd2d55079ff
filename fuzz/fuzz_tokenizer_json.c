/* fuzz_tokenizer_json.c -- tokenizer.json on arbitrary bytes: an error, or a tokenizer that gives back what it encodes.
 *
 * An input that begins with '+' is put inside a whole vocabulary of bytes, so that what is behind the model is reached:
 * "+PRE_TOKENIZER|ADDED_TOKENS|MORE VOCAB|MERGES|TEXT". */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "data/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

/* The next part up to a '|'. */
static void take(ls_text *out, const char **p, const char *end)
{
    const char *stop = *p < end ? memchr(*p, '|', (size_t)(end - *p)) : NULL;
    size_t n = (size_t)((stop ? stop : end) - *p);
    ls_text_addn(out, *p, n);
    *p += stop ? n + 1 : n;
}

static void wrap(ls_text *out, const char **p, const char *end)
{
    ls_text_add(out, "{\"pre_tokenizer\":");
    take(out, p, end);
    ls_text_add(out, ",\"added_tokens\":[");
    take(out, p, end);
    ls_text_add(out, "],\"model\":{\"type\":\"BPE\",\"vocab\":{");
    for (unsigned b = 0; b < 256; b++) {
        unsigned c = ls_byte_to_char((uint8_t)b);
        char token[3] = { (char)c, 0, 0 };
        if (c >= 0x80) {
            token[0] = (char)(0xc0 | c >> 6);
            token[1] = (char)(0x80 | (c & 0x3f));
        }
        ls_text_add(out, "%s", b ? "," : "");
        ls_json_string(out, token);
        ls_text_add(out, ":%u", b);
    }
    take(out, p, end);
    ls_text_add(out, "},\"merges\":[");
    take(out, p, end);
    ls_text_add(out, "]}}");
}

static void encode(ls_tokenizer *t, const char *text, size_t n, unsigned flags)
{
    ls_ids ids = { 0 };
    char *back;
    size_t bytes;
    ls_status st = ls_tokenizer_encode(t, text, n, flags, &ids);
    if (st != LS_OK && st != LS_INVALID) abort();
    if (st == LS_OK) {
        if (ls_tokenizer_decode(t, ids.p, ids.n, &back, &bytes) != LS_OK) abort();
        if (!(flags & LS_ENCODE_LOSSY) && (bytes != n || memcmp(back, text, n) != 0)) abort();
        free(back);
    }
    ls_ids_free(&ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    ls_tokenizer *t;
    ls_text json = { 0 };
    const char *at = (const char *)p, *end = at + n;
    if (n > 0 && *at == '+') {
        at++;
        wrap(&json, &at, end);
    } else {
        ls_text_addn(&json, at, n);
    }
    ls_status st = ls_tokenizer_parse_json("fuzz", json.p, json.n, &t);
    if (st != LS_OK && (t || (st != LS_BAD_FILE && st != LS_UNSUPPORTED))) abort();
    if (st == LS_OK) {
        for (unsigned flags = 0; flags < 4; flags++) encode(t, at, (size_t)(end - at), flags);
        ls_tokenizer_close(t);
    }
    ls_text_free(&json);
    return 0;
}
