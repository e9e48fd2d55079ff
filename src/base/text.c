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

void ls_text_reserve(ls_text *t, size_t more)
{
    if (reserve(t, more)) memset(t->p + t->n, 0, t->cap - t->n);
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

const char *ls_number_text(double v, int digits, char *buf, size_t n)
{
    char plain[64];
    if (!isfinite(v) || fabs(v) >= 1e30) {
        snprintf(buf, n, "%g", v);
        return buf;
    }
    snprintf(plain, sizeof plain, "%.*f", digits, v);
    size_t whole = strcspn(plain, "."), at = 0;
    for (size_t i = 0; plain[i] && at + 2 < n; i++) {
        buf[at++] = plain[i];
        size_t left = i < whole ? whole - i - 1 : 0; /* digits of the whole part that follow */
        if (left > 0 && left % 3 == 0 && plain[i] != '-') buf[at++] = ',';
    }
    buf[at] = 0;
    return buf;
}

const char *ls_bytes_text(double nbytes, char *buf, size_t n)
{
    static const char *const unit[] = { "B", "KiB", "MiB", "GiB", "TiB" };
    size_t k = 0;
    for (; k + 1 < sizeof unit / sizeof *unit && nbytes >= 1024.0; k++) nbytes /= 1024.0;
    snprintf(buf, n, "%.*f %s", k ? 2 : 0, nbytes, unit[k]);
    return buf;
}

size_t ls_utf8_next(const char *p, size_t n, bool *valid)
{
    unsigned char lead = (unsigned char)p[0], low = 0x80, high = 0xbf; /* bounds of the next byte */
    size_t want = lead < 0x80 ? 1 : lead < 0xc2 ? 0 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : lead < 0xf5 ? 4 : 0;
    *valid = false;
    if (want == 0) return 1;
    if (lead == 0xe0) low = 0xa0; /* overlong below */
    if (lead == 0xed) high = 0x9f; /* surrogates above */
    if (lead == 0xf0) low = 0x90;
    if (lead == 0xf4) high = 0x8f;
    for (size_t i = 1; i < want; i++) {
        if (i == n || (unsigned char)p[i] < low || (unsigned char)p[i] > high) return i;
        low = 0x80;
        high = 0xbf;
    }
    *valid = true;
    return want;
}

uint32_t ls_utf8_code(const char *p, size_t n)
{
    uint32_t c = n == 1 ? (uint8_t)p[0] : (uint8_t)p[0] & (0xffu >> (n + 1));
    for (size_t i = 1; i < n; i++) c = c << 6 | ((uint8_t)p[i] & 0x3fu);
    return c;
}

size_t ls_utf8_check(const char *p, size_t n)
{
    size_t at = 0;
    bool valid = true;
    while (at < n) {
        uint64_t eight;
        if (n - at >= sizeof eight) {
            memcpy(&eight, p + at, sizeof eight);
            if (!(eight & 0x8080808080808080u)) {
                at += sizeof eight;
                continue;
            }
        }
        size_t k = ls_utf8_next(p + at, n - at, &valid);
        if (!valid) return at;
        at += k;
    }
    return n;
}

void ls_text_wrap(ls_text *t, const char *words, size_t left, size_t width)
{
    size_t column = left;
    while (*words) {
        size_t n = strcspn(words, " ");
        if (column > left && column + 1 + n > width) {
            ls_text_add(t, "\n%*s", (int)left, "");
            column = left;
        } else if (column > left) {
            ls_text_addn(t, " ", 1);
            column++;
        }
        ls_text_addn(t, words, n);
        column += n;
        words += n;
        words += strspn(words, " ");
    }
    ls_text_addn(t, "\n", 1);
}

void ls_json_string(ls_text *t, const char *s) { ls_json_bytes(t, s, strlen(s)); }

void ls_json_bytes(ls_text *t, const char *s, size_t nbytes)
{
    ls_text_addn(t, "\"", 1);
    for (const unsigned char *p = (const unsigned char *)s, *end = p + nbytes; p < end;) {
        bool valid;
        size_t n = ls_utf8_next((const char *)p, (size_t)(end - p), &valid);
        if (!valid) {
            ls_text_add(t, "\\ufffd");
            p += n;
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

void ls_json_field(ls_text *t, const char *key, double v)
{
    ls_text_add(t, "\"%s\": ", key);
    ls_json_number(t, v);
}

void ls_json_also(ls_text *t, const char *key, double v)
{
    ls_text_add(t, ", ");
    ls_json_field(t, key, v);
}

void ls_text_printable(char *p)
{
    for (; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f) *p = '?';
}
