/* text.h -- a growable string, and JSON written into it. */
#ifndef LS_BASE_TEXT_H
#define LS_BASE_TEXT_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/compiler.h"
#include "lockstep/status.h"

typedef struct ls_text {
    char *p;     /* owned, NUL-terminated once anything was added; NULL before */
    size_t n;    /* bytes without the NUL */
    size_t cap;
    bool failed; /* memory ran out: later additions are no-ops */
} ls_text;

void ls_text_add(ls_text *t, const char *fmt, ...) LS_PRINTF(2, 3);
/* Room for `more` bytes, touched: adding them takes no memory and no page fault. */
void ls_text_reserve(ls_text *t, size_t more);
void ls_text_addn(ls_text *t, const char *p, size_t n);
const char *ls_text_str(const ls_text *t); /* never NULL */
ls_status ls_text_status(const ls_text *t); /* LS_NO_MEMORY once failed */
void ls_text_free(ls_text *t);

/* Adds words, with a newline after them, to a line that begins at column `left`: it is broken before `width`, and later
 * lines begin at `left`, too. */
void ls_text_wrap(ls_text *t, const char *words, size_t left, size_t width);

/* Makes bytes from outside harmless to a terminal: control characters become '?'. */
void ls_text_printable(char *p);

/* A number with `digits` decimals and commas, as Python's {:,.Nf}: "1,234,567.89". Returns buf. */
const char *ls_number_text(double v, int digits, char *buf, size_t n);
/* Bytes in the unit that fits: "512 B", "26.08 MiB", "1.20 GiB". Returns buf. */
const char *ls_bytes_text(double nbytes, char *buf, size_t n);

/* UTF-8 by RFC 3629 (nothing overlong, no surrogates): how many of the n > 0 bytes at p are one
 * character; where *valid is false, how many belong together as one error: the longest beginning of
 * a character, else one byte. U+FFFD for each gives what Unicode recommends and Python's "replace" does. */
size_t ls_utf8_next(const char *p, size_t n, bool *valid);
/* The code point of a valid character of n bytes. */
uint32_t ls_utf8_code(const char *p, size_t n);
/* The first of n bytes that is not of valid UTF-8; n when there is none. */
size_t ls_utf8_check(const char *p, size_t n);

/* A JSON string with its quotes; control characters, <, > and invalid UTF-8 escaped. */
void ls_json_string(ls_text *t, const char *s);
/* The same of nbytes bytes, which may be NUL. */
void ls_json_bytes(ls_text *t, const char *s, size_t nbytes);
/* %.17g; a value that is not finite becomes null. */
void ls_json_number(ls_text *t, double v);
/* "key": and the number; the key is not escaped. */
void ls_json_field(ls_text *t, const char *key, double v);
/* The same after a comma: of an object that has fields already. */
void ls_json_also(ls_text *t, const char *key, double v);

#endif
