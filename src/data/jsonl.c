/* jsonl.c -- JSON Lines: a document per line, in the field "text", as language models' data sets are published. */
#include "data/jsonl.h"

#include <jansson.h>
#include <stdint.h>
#include <string.h>

#include "base/text.h"

#define FIELD "text"
#define KEYS  5 /* of an object, in a message */

static const char *type_name(const json_t *v)
{
    static const char *const names[] = { "an object", "an array", "a string", "a number", "a number", "a boolean", "a boolean", "null" };
    return names[json_typeof(v)];
}

static ls_status no_text(const char *name, size_t line, json_t *object, const json_t *value)
{
    ls_text keys = { 0 };
    const char *key;
    json_t *v;
    int n = 0;
    if (value)
        return ls_fail(LS_BAD_FILE, "%s: line %zu: its field \"" FIELD "\" is %s; expected a string", name, line, type_name(value));
    json_object_foreach(object, key, v)
    {
        if (n < KEYS) ls_text_add(&keys, "%s%.40s", n ? ", " : "", key);
        n++;
    }
    if (keys.p) ls_text_printable(keys.p);
    ls_fail(LS_BAD_FILE, "%s: line %zu: it has no field \"" FIELD "\", which holds a document; its fields: %s%s", name, line,
            n ? ls_text_str(&keys) : "none", n > KEYS ? ", ..." : "");
    ls_text_free(&keys);
    return LS_BAD_FILE;
}

static ls_status read_line(const char *name, size_t line, const char *p, size_t n, ls_jsonl_fn fn, void *arg)
{
    const size_t bad = ls_utf8_check(p, n);
    json_error_t error;
    if (bad < n) return ls_fail(LS_BAD_FILE, "%s: line %zu: byte %zu: 0x%02x is not UTF-8", name, line, bad, (unsigned)(uint8_t)p[bad]);
    json_t *root = json_loadb(p, n, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, &error);
    if (!root) {
        ls_text_printable(error.text);
        return ls_fail(LS_BAD_FILE, "%s: line %zu: byte %d: not JSON: %s", name, line, error.position, error.text);
    }
    const json_t *text = json_object_get(root, FIELD);
    ls_status st;
    if (!json_is_object(root)) st = ls_fail(LS_BAD_FILE, "%s: line %zu: %s; expected an object with a field \"" FIELD "\"", name, line, type_name(root));
    else if (!json_is_string(text)) st = no_text(name, line, root, text);
    else st = fn(arg, line, json_string_value(text), json_string_length(text));
    json_decref(root);
    return st;
}

ls_status ls_jsonl_read(const char *name, const char *p, size_t n, ls_jsonl_fn fn, void *arg)
{
    size_t line = 0, at = n >= 3 && memcmp(p, "\xef\xbb\xbf", 3) == 0 ? 3 : 0; /* a byte order mark */
    for (size_t end; at < n; at = end + 1) {
        const char *stop = memchr(p + at, '\n', n - at);
        end = stop ? (size_t)(stop - p) : n;
        size_t len = end - at;
        line++;
        while (len > 0 && strchr(" \t\r", p[at + len - 1]) && p[at + len - 1]) len--;
        if (len > 0) LS_TRY(read_line(name, line, p + at, len, fn, arg));
    }
    return LS_OK;
}
