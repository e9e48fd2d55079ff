/* text.c -- a growable string, and the streaming JSON writer. */
#include "base/text.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool reserve(ls_text *t, size_t more)
{
    if (t->failed) return false;
    if (t->n + more + 1 <= t->cap) return true;
    size_t cap = t->cap ? t->cap : 256;
    while (cap < t->n + more + 1) cap *= 2;
    char *p = realloc(t->p, cap);
    if (!p) {
        t->failed = true;
        return false;
    }
    t->p = p;
    t->cap = cap;
    return true;
}

void ls_text_addn(ls_text *t, const char *p, size_t n)
{
    if (!reserve(t, n)) return;
    memcpy(t->p + t->n, p, n);
    t->n += n;
    t->p[t->n] = 0;
}

void ls_text_add(ls_text *t, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n < 0 || !reserve(t, (size_t)n)) return;
    va_start(ap, fmt);
    vsnprintf(t->p + t->n, (size_t)n + 1, fmt, ap);
    va_end(ap);
    t->n += (size_t)n;
}

const char *ls_text_str(const ls_text *t) { return t->p ? t->p : ""; }

ls_status ls_text_status(const ls_text *t)
{
    return t->failed ? ls_fail(LS_NO_MEMORY, "text of more than %zu bytes", t->n) : LS_OK;
}

void ls_text_free(ls_text *t)
{
    free(t->p);
    *t = (ls_text){ 0 };
}

/* Length of the valid UTF-8 sequence at p, or 0. */
static size_t utf8(const unsigned char *p)
{
    if (p[0] < 0x80) return 1;
    size_t n = p[0] >= 0xf0 && p[0] < 0xf5 ? 4 : p[0] >= 0xe0 ? 3 : p[0] >= 0xc2 ? 2 : 0;
    if (n == 0 || p[0] >= 0xf5) return 0;
    for (size_t i = 1; i < n; i++)
        if ((p[i] & 0xc0) != 0x80) return 0;
    if (p[0] == 0xe0 && p[1] < 0xa0) return 0;  /* overlong */
    if (p[0] == 0xed && p[1] >= 0xa0) return 0; /* surrogates */
    if (p[0] == 0xf0 && p[1] < 0x90) return 0;
    if (p[0] == 0xf4 && p[1] >= 0x90) return 0;
    return n;
}

void ls_json_string(ls_text *t, const char *s)
{
    ls_text_addn(t, "\"", 1);
    for (const unsigned char *p = (const unsigned char *)s; *p;) {
        size_t n = utf8(p);
        if (n == 0) {
            ls_text_add(t, "\\ufffd");
            p++;
        } else if (*p == '"' || *p == '\\') {
            ls_text_add(t, "\\%c", *p++);
        } else if (*p < 0x20 || *p == 0x7f || *p == '<' || *p == '>') {
            ls_text_add(t, "\\u%04x", *p++);
        } else {
            ls_text_addn(t, (const char *)p, n);
            p += n;
        }
    }
    ls_text_addn(t, "\"", 1);
}

void ls_json_number(ls_text *t, double v)
{
    if (isfinite(v)) ls_text_add(t, "%.17g", v);
    else ls_text_add(t, "null");
}

void ls_text_printable(char *p)
{
    for (; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f) *p = '?';
}
