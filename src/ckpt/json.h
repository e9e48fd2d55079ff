/* json.h -- walking over a JSON object without building it.
 *
 * A checkpoint's header can be 16 MiB of hostile text. jansson would turn that
 * into some hundred MiB of objects, so the outer levels are only walked over
 * and each small part is handed to jansson, which checks every byte of it.
 * Strings, numbers and nesting are therefore judged by jansson; the commas and
 * colons between pairs by this file. No recursion.
 */
#ifndef LS_CKPT_JSON_H
#define LS_CKPT_JSON_H
#include <stddef.h>

typedef struct ls_json_span {
    const char *p; /* borrowed from the text */
    size_t n;      /* bytes */
} ls_json_span;

/* Where a walk is. Set text, n and at (of the object's '{'); the rest to zero. */
typedef struct ls_json_walk {
    const char *text; /* borrowed */
    size_t n, at;     /* bytes; the next byte to look at */
    size_t pairs;     /* seen so far */
    const char *rule; /* what is broken at byte `at`, after -1 */
} ls_json_walk;

/* The next pair: 1 with the key (a string, with its quotes) and the value as they stand in the
 * text; 0 at the end, `at` being just after the '}'; -1 when a rule is broken. */
int ls_json_next(ls_json_walk *w, ls_json_span *key, ls_json_span *value);

/* The string that `s` (with quotes) stands for: malloc'd, NUL-terminated, strict UTF-8. NULL with
 * *rule set when it breaks a rule or is longer than limit bytes; NULL with *rule == NULL when out
 * of memory. */
char *ls_json_decode(ls_json_span s, size_t limit, const char **rule);

#endif
