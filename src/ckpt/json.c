/* json.c -- walking over a JSON object; jansson decodes the parts. */
#include "ckpt/json.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"

static int broken(ls_json_walk *w, const char *rule)
{
    w->rule = rule;
    return -1;
}

static void skip_blanks(ls_json_walk *w)
{
    while (w->at < w->n && memchr(" \t\r\n", w->text[w->at], 4)) w->at++;
}

/* Whether the next byte is c; if so, goes behind it. */
static bool take(ls_json_walk *w, char c)
{
    if (w->at >= w->n || w->text[w->at] != c) return false;
    w->at++;
    return true;
}

/* From the opening quote to behind the closing one. */
static int skip_string(ls_json_walk *w)
{
    size_t start = w->at++;
    while (w->at < w->n) {
        if (take(w, '"')) return 0;
        w->at += w->text[w->at] == '\\' ? 2 : 1;
    }
    w->at = start;
    return broken(w, "a string that does not end");
}

static int skip_value(ls_json_walk *w)
{
    size_t start = w->at;
    int depth = 1; /* the object around it */
    do {
        if (w->at >= w->n) {
            w->at = start;
            return broken(w, "a value that does not end");
        }
        char c = w->text[w->at];
        if (c == '"') {
            if (skip_string(w) < 0) return -1;
            continue;
        }
        if (c == '{' || c == '[') {
            if (++depth > LS_JSON_MAX_DEPTH) return broken(w, "nesting too deep");
        } else if (c == '}' || c == ']') {
            if (--depth < 1) return broken(w, "expected a value");
        } else if (depth == 1) { /* a number or a word */
            while (w->at < w->n && !memchr(",]} \t\r\n", w->text[w->at], 7)) w->at++;
            return w->at > start ? 0 : broken(w, "expected a value");
        }
        w->at++;
    } while (depth > 1);
    return 0;
}

int ls_json_next(ls_json_walk *w, ls_json_span *key, ls_json_span *value)
{
    if (w->pairs == 0 && !take(w, '{')) return broken(w, "expected '{'");
    skip_blanks(w);
    if (take(w, '}')) return 0;
    if (w->pairs > 0) {
        if (!take(w, ',')) return broken(w, "expected ',' or '}'");
        skip_blanks(w);
    }

    size_t start = w->at;
    if (start >= w->n || w->text[start] != '"') return broken(w, "expected a name in quotes");
    if (skip_string(w) < 0) return -1;
    *key = (ls_json_span){ w->text + start, w->at - start };

    skip_blanks(w);
    if (!take(w, ':')) return broken(w, "expected ':'");
    skip_blanks(w);
    start = w->at;
    if (skip_value(w) < 0) return -1;
    *value = (ls_json_span){ w->text + start, w->at - start };
    w->pairs++;
    return 1;
}

char *ls_json_decode(ls_json_span s, size_t limit, const char **rule)
{
    char *copy = NULL;
    json_t *j = NULL;
    json_error_t e;

    *rule = NULL;
    if (s.n < 2 || s.p[0] != '"') {
        *rule = "expected a string";
    } else if (s.n - 2 > 6 * limit) { /* an escape has at most six bytes for one */
        *rule = "a string that is too long";
    } else if (!(j = json_loadb(s.p, s.n, JSON_DECODE_ANY, &e))) {
        if (json_error_code(&e) != json_error_out_of_memory) *rule = "a string that is not JSON in UTF-8";
    } else if (json_string_length(j) > limit) {
        *rule = "a string that is too long";
    } else if ((copy = malloc(json_string_length(j) + 1))) {
        memcpy(copy, json_string_value(j), json_string_length(j) + 1);
    }
    json_decref(j);
    return copy;
}
