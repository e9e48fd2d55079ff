/* split.c -- cutting text into words.
 *
 * The pattern is the definition and PCRE2 follows it. English text is ASCII but
 * for a few characters, and starting a match costs more than most words are long:
 * for GPT-2's pattern a table of character classes decides where nothing but
 * ASCII is looked at, and hands everything else to PCRE2.
 */
#include "data/split.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/limits.h"

#define SPACE "\\x09-\\x0d\\x20\\x85\\xa0\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"
const char *const ls_split_gpt2 =
    "'(?:[sdmt]|ll|ve|re)| ?\\p{L}+| ?\\p{N}+| ?[^" SPACE "\\p{L}\\p{N}]+|[" SPACE "]+(?![^" SPACE "])|[" SPACE "]+";
const char *const ls_split_gpt2_classic =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

#define MATCH_STEPS 10000000u         /* of one match; a sane pattern takes some for each byte */
#define JIT_STACK   ((size_t)1 << 20) /* bytes at most */

enum { OTHER, LETTER, DIGIT, BLANK, HIGH };

struct ls_split {
    char *pattern; /* owned */
    pcre2_code *code;
    pcre2_match_data *found;
    pcre2_match_context *context;
    pcre2_jit_stack *stack;
    bool compiled;           /* to machine code */
    bool quick;
    uint8_t class[256];
};

static void classify(uint8_t class[256])
{
    for (int c = 0; c < 256; c++) {
        int letter = c | 0x20;
        if (c >= 0x80) class[c] = HIGH;
        else if (letter >= 'a' && letter <= 'z') class[c] = LETTER;
        else if (c >= '0' && c <= '9') class[c] = DIGIT;
        else class[c] = (c >= 9 && c <= 13) || c == ' ' ? BLANK : OTHER;
    }
}

void ls_split_destroy(ls_split *s)
{
    if (!s) return;
    pcre2_jit_stack_free(s->stack);
    pcre2_match_context_free(s->context);
    pcre2_match_data_free(s->found);
    pcre2_code_free(s->code);
    free(s->pattern);
    free(s);
}

ls_status ls_split_create(const char *pattern, bool quick, ls_split **out)
{
    int error;
    size_t at, n = strlen(pattern);
    ls_status st = LS_OK;
    *out = NULL;
    if (n > LS_TOKENIZER_MAX_PATTERN)
        return ls_fail(LS_INVALID, "a pattern of %zu bytes; at most %u are accepted", n, LS_TOKENIZER_MAX_PATTERN);
    if (strstr(pattern, "\\K")) return ls_fail(LS_UNSUPPORTED, "the pattern that splits text: \\K is not built in");
    ls_split *s = calloc(1, sizeof *s);
    if (!s || !(s->pattern = strdup(pattern))) {
        st = ls_fail(LS_NO_MEMORY, "a pattern");
        goto done;
    }
    bool gpt2 = strcmp(pattern, ls_split_gpt2) == 0 || strcmp(pattern, ls_split_gpt2_classic) == 0;
    s->quick = quick && gpt2;
    classify(s->class);
    s->code = pcre2_compile((PCRE2_SPTR)(gpt2 ? ls_split_gpt2 : pattern), PCRE2_ZERO_TERMINATED,
                            PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &at, NULL);
    if (!s->code) {
        char why[120];
        pcre2_get_error_message(error, (PCRE2_UCHAR *)why, sizeof why);
        st = ls_fail(LS_UNSUPPORTED, "byte %zu of the pattern that splits text: %s", at, why);
        goto done;
    }
    s->found = pcre2_match_data_create_from_pattern(s->code, NULL);
    s->context = pcre2_match_context_create(NULL);
    s->stack = pcre2_jit_stack_create((size_t)32 << 10, JIT_STACK, NULL);
    if (!s->found || !s->context || !s->stack) {
        st = ls_fail(LS_NO_MEMORY, "a pattern");
        goto done;
    }
    pcre2_set_match_limit(s->context, MATCH_STEPS);
    s->compiled = pcre2_jit_compile(s->code, PCRE2_JIT_COMPLETE) == 0; /* refused: a system without executable memory */
    if (s->compiled) pcre2_jit_stack_assign(s->context, NULL, s->stack);
    *out = s;
    s = NULL;
done:
    ls_split_destroy(s);
    return st;
}

const char *ls_split_pattern(const ls_split *s) { return s->pattern; }

/* The end of GPT-2's word at `at` where ASCII decides it; else `at`. */
static size_t ascii_word(const ls_split *s, const uint8_t *p, size_t n, size_t at)
{
    const uint8_t *class = s->class;
    size_t i = at;
    if (p[i] == '\'' && i + 1 < n) {
        uint8_t a = p[i + 1], b = i + 2 < n ? p[i + 2] : 0;
        if (a == 's' || a == 'd' || a == 'm' || a == 't') return i + 2;
        if ((a == 'l' && b == 'l') || (a == 'v' && b == 'e') || (a == 'r' && b == 'e')) return i + 3;
    }
    if (p[i] == ' ' && i + 1 < n && class[p[i + 1]] != BLANK) i++;
    uint8_t run = class[p[i]];
    if (run == HIGH) return at;
    do i++;
    while (i < n && class[p[i]] == run);
    if (i < n && class[p[i]] == HIGH) return at;
    /* Of blanks before something else the last one stays: a word begins with it, or it is a word. */
    return run == BLANK && i < n && i - at > 1 ? i - 1 : i;
}

static ls_status search(ls_split *s, const char *text, size_t n, size_t from, bool *matched)
{
    int r = s->compiled
                ? pcre2_jit_match(s->code, (PCRE2_SPTR)text, n, from, 0, s->found, s->context)
                : pcre2_match(s->code, (PCRE2_SPTR)text, n, from, PCRE2_NO_UTF_CHECK, s->found, s->context);
    *matched = r >= 0;
    if (r >= 0 || r == PCRE2_ERROR_NOMATCH) return LS_OK;
    char why[120];
    pcre2_get_error_message(r, (PCRE2_UCHAR *)why, sizeof why);
    return ls_fail(r == PCRE2_ERROR_NOMEMORY ? LS_NO_MEMORY : LS_INVALID,
                   "byte %zu of the text: the pattern that splits text fails there: %s", from, why);
}

ls_status ls_split_next(ls_split *s, const char *text, size_t n, size_t at, size_t *end)
{
    if (s->quick) {
        size_t e = ascii_word(s, (const uint8_t *)text, n, at);
        if (e > at) {
            *end = e;
            return LS_OK;
        }
    }
    *end = n;
    for (size_t from = at; from < n;) {
        bool matched;
        LS_TRY(search(s, text, n, from, &matched));
        if (!matched) return LS_OK;
        const size_t *found = pcre2_get_ovector_pointer(s->found);
        if (found[1] > found[0]) {
            *end = found[0] > at ? found[0] : found[1];
            return LS_OK;
        }
        from = found[1] > from ? found[1] : from + 1; /* an empty match: go on with the next character */
        while (from < n && ((uint8_t)text[from] & 0xc0) == 0x80) from++;
    }
    return LS_OK;
}
