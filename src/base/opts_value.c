/* opts_value.c -- option values from text, their ranges, and back to text. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/opts_impl.h"

typedef struct unit { const char *name; uint64_t factor; } unit;

/* Powers of 1024. "MB" is missing on purpose: half the field means 10^6 by it. */
static const unit size_units[] = {
    { "", 1 },
    { "B", 1 },
    { "K", 1u << 10 },
    { "KiB", 1u << 10 },
    { "M", 1u << 20 },
    { "MiB", 1u << 20 },
    { "G", 1u << 30 },
    { "GiB", 1u << 30 },
    { "T", (uint64_t)1 << 40 },
    { "TiB", (uint64_t)1 << 40 },
};
static const unit time_units[] = {
    { "", 1000000000u },  { "ns", 1 }, { "us", 1000u }, { "ms", 1000000u }, { "s", 1000000000u },
    { "m", 60000000000u },{ "min", 60000000000u }, { "h", 3600000000000u },
};

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

static bool same_ignoring_case(const char *a, const char *b)
{
    for (; *a && *b; a++, b++) {
        char x = *a >= 'A' && *a <= 'Z' ? (char)(*a + 32) : *a, y = *b >= 'A' && *b <= 'Z' ? (char)(*b + 32) : *b;
        if (x != y) return false;
    }
    return *a == *b;
}

/* A decimal number at the start of text; no hexadecimal, infinity or NaN, which strtod would take. */
static bool read_decimal(const char *text, double *v, const char **end)
{
    const char *p = text + (*text == '-' || *text == '+');
    if (!is_digit(*p) && !(*p == '.' && is_digit(p[1]))) return false;
    if (*p == '0' && (p[1] == 'x' || p[1] == 'X')) return false;
    char *stop;
    *v = strtod(text, &stop);
    *end = stop;
    return isfinite(*v);
}

static bool read_double(const char *text, double *v)
{
    const char *end;
    return read_decimal(text, v, &end) && *end == 0;
}

/* Digits exactly; 1e3 and 2.0 too, while a double holds them exactly. */
static bool read_int(const char *text, int64_t *v)
{
    const char *p = text + (*text == '-' || *text == '+');
    if (*p && p[strspn(p, "0123456789")] == 0) {
        errno = 0;
        *v = strtoll(text, NULL, 10);
        return errno == 0;
    }
    double d;
    if (!read_double(text, &d) || d != floor(d) || fabs(d) > 9007199254740992.0) return false;
    *v = (int64_t)d;
    return true;
}

/* A number and a unit, as a whole number of the smallest unit. Sizes must come out whole ("1.5KiB" does);
 * times are rounded to the nanosecond. */
static bool read_with_unit(const char *text, const unit *units, size_t nunits, bool round, uint64_t *v)
{
    double d;
    const char *end;
    if (!read_decimal(text, &d, &end) || d < 0.0) return false;
    const char *name = end + (*end == ' ' && end[1] != 0);
    uint64_t factor = 0;
    for (size_t i = 0; i < nunits; i++)
        if (same_ignoring_case(name, units[i].name)) factor = units[i].factor;
    if (factor == 0) return false;

    if (text + strspn(text, "0123456789") == end) { /* exact however large */
        errno = 0;
        unsigned long long whole = strtoull(text, NULL, 10);
        if (errno || whole > (uint64_t)INT64_MAX / factor) return false;
        *v = whole * factor;
        return true;
    }
    double exact = d * (double)factor;
    if (round) exact = floor(exact + 0.5);
    if (exact != floor(exact) || exact > 9e18) return false;
    *v = (uint64_t)exact;
    return true;
}

static bool read_bytes(const char *text, size_t *v)
{
    uint64_t u;
    if (!read_with_unit(text, size_units, sizeof size_units / sizeof *size_units, false, &u)) return false;
    if (u > SIZE_MAX) return false;
    *v = (size_t)u;
    return true;
}

static bool read_time(const char *text, uint64_t *v)
{
    return read_with_unit(text, time_units, sizeof time_units / sizeof *time_units, true, v);
}

/* A time that is not over at once; its unit tells it from a number of steps. */
static bool read_interval(const char *text, int64_t *v)
{
    uint64_t ns;
    const size_t n = strlen(text);
    if (n == 0 || (text[n - 1] >= '0' && text[n - 1] <= '9') || !read_time(text, &ns) || ns == 0) return false;
    *v = -(int64_t)ns; /* below INT64_MAX (read_with_unit) */
    return true;
}

bool ls_opt_bool_word(const char *text, bool *out)
{
    static const char *const yes[] = { "true", "yes", "on", "1" }, *const no[] = { "false", "no", "off", "0" };
    for (size_t i = 0; i < 4; i++) {
        if (same_ignoring_case(text, yes[i])) return *out = true, true;
        if (same_ignoring_case(text, no[i])) return *out = false, true;
    }
    return false;
}

/* --- ranges ------------------------------------------------------------------ */

/* A bound of a range, or a value, on one scale for comparing: the number, bytes or nanoseconds. */
static bool read_scalar(ls_opt_type type, const char *text, double *v)
{
    int64_t i;
    size_t bytes;
    uint64_t ns;
    switch (type) {
    case LS_OPT_INT:
    case LS_OPT_EVERY:
    case LS_OPT_INTS: if (!read_int(text, &i)) return false; *v = (double)i; return true;
    case LS_OPT_BYTES: if (!read_bytes(text, &bytes)) return false; *v = (double)bytes; return true;
    case LS_OPT_TIME: if (!read_time(text, &ns)) return false; *v = (double)ns; return true;
    default: return read_double(text, v);
    }
}

static bool in_range(const ls_opt *row, double v)
{
    const char *r = row->range;
    double bound;
    if (!r) return true;
    if (*r == '>') return read_scalar(row->type, r + 1, &bound) && v > bound;

    const char *dots = strstr(r, "..");
    char low[32];
    if (!dots || (size_t)(dots - r) >= sizeof low) return false;
    memcpy(low, r, (size_t)(dots - r));
    low[dots - r] = 0;
    const char *high = dots + 2;
    bool open = *high == '<';
    high += open;
    if (*low && !(read_scalar(row->type, low, &bound) && v >= bound)) return false;
    return *high == 0 || (read_scalar(row->type, high, &bound) && (open ? v < bound : v <= bound));
}

static bool is_choice(const char *range, const char *text)
{
    size_t n = strlen(text);
    if (strchr(text, '|')) return false;
    for (const char *p = range; p; p = strchr(p, '|') ? strchr(p, '|') + 1 : NULL)
        if (n > 0 && strncmp(p, text, n) == 0 && (p[n] == '|' || p[n] == 0)) return true;
    return false;
}

/* The choice nearest to a mistyped one into buf; false when none is near. */
static bool nearest_choice(const char *range, const char *text, char *buf, size_t nbuf)
{
    unsigned least = ls_edit_slip(text) + 1;
    for (const char *p = range; p;) {
        char word[64];
        size_t n = strcspn(p, "|");
        if (n < sizeof word) {
            memcpy(word, p, n);
            word[n] = 0;
            unsigned d = ls_edit_distance(text, word);
            if (d < least) {
                least = d;
                snprintf(buf, nbuf, "%s", word);
            }
        }
        p = p[n] ? p + n + 1 : NULL;
    }
    return least <= ls_edit_slip(text);
}

/* --- text to value ------------------------------------------------------------- */

void ls_opt_expected(const ls_opt *row, char *buf, size_t n)
{
    static const char *const what[] = {
        [LS_OPT_BOOL] = "true or false",
        [LS_OPT_INT] = "an integer",
        [LS_OPT_DOUBLE] = "a number",
        [LS_OPT_BYTES] = "a size such as 64KiB or 25MiB",
        [LS_OPT_TIME] = "a time such as 30s or 500ms",
        [LS_OPT_EVERY] = "a time such as 10m, or an integer",
        [LS_OPT_STRING] = "a text",
        [LS_OPT_CHOICE] = "one of",
        [LS_OPT_INTS] = "a list of integers such as [784, 256, 10]",
        [LS_OPT_DOUBLES] = "a list of numbers such as [0.9, 0.95]",
    };
    const char *join = row->type == LS_OPT_CHOICE ? " " : row->range && *row->range == '>' ? " " : " in ";
    snprintf(buf, n, "%s%s%s", what[row->type], row->range ? join : "", row->range ? row->range : "");
}

/* Splits "[a, b]" or "a,b" and hands each element to the list's reader. */
static bool read_list(const ls_opt *row, const char *text, ls_opt_value *out)
{
    const char *p = text + strspn(text, " "), *end = text + strlen(text);
    while (end > p && end[-1] == ' ') end--;
    if (p < end && *p == '[') {
        if (end[-1] != ']' || end - p < 2) return false;
        p++;
        end--;
    }
    int n = 0;
    while (p < end && *p == ' ') p++;
    while (p < end) {
        char item[48];
        const char *comma = memchr(p, ',', (size_t)(end - p)), *stop = comma ? comma : end;
        while (p < stop && *p == ' ') p++;
        const char *last = stop;
        while (last > p && last[-1] == ' ') last--;
        size_t k = (size_t)(last - p);
        if (k == 0 || k >= sizeof item || n == LS_OPT_MAX_INTS) return false;
        memcpy(item, p, k);
        item[k] = 0;
        double d;
        if (row->type == LS_OPT_INTS) {
            if (!read_int(item, &out->ints.v[n])) return false;
            d = (double)out->ints.v[n];
        } else {
            if (!read_double(item, &out->doubles.v[n])) return false;
            d = out->doubles.v[n];
        }
        if (!in_range(row, d)) return false;
        n++;
        if (comma && comma + 1 == end) return false; /* nothing after the last comma */
        p = comma ? comma + 1 : end;
    }
    if (row->type == LS_OPT_INTS) out->ints.n = n;
    else out->doubles.n = n;
    return true;
}

bool ls_opt_read(const ls_opt *row, const char *text, ls_opt_value *out, char *why, size_t nwhy)
{
    bool ok = false;
    *out = (ls_opt_value){ 0 };
    switch (row->type) {
    case LS_OPT_BOOL: ok = ls_opt_bool_word(text, &out->b); break;
    case LS_OPT_INT: ok = read_int(text, &out->i) && in_range(row, (double)out->i); break;
    case LS_OPT_DOUBLE: ok = read_double(text, &out->d) && in_range(row, out->d); break;
    case LS_OPT_BYTES: ok = read_bytes(text, &out->bytes) && in_range(row, (double)out->bytes); break;
    case LS_OPT_TIME: ok = read_time(text, &out->ns) && in_range(row, (double)out->ns); break;
    case LS_OPT_EVERY:
        ok = read_int(text, &out->i) ? in_range(row, (double)out->i) : read_interval(text, &out->i);
        break;
    case LS_OPT_STRING: ok = true; break;
    case LS_OPT_CHOICE: ok = is_choice(row->range, text); break;
    case LS_OPT_INTS:
    case LS_OPT_DOUBLES: ok = read_list(row, text, out); break;
    }
    if (ok) return true;

    char expected[200], near[64], hint[120] = "";
    ls_opt_expected(row, expected, sizeof expected);
    size_t n = strlen(text);
    if (row->type == LS_OPT_CHOICE && nearest_choice(row->range, text, near, sizeof near))
        snprintf(hint, sizeof hint, "; did you mean '%s'?", near);
    if (row->type == LS_OPT_BYTES && n > 1 && is_digit(*text) && same_ignoring_case(text + n - 1, "B"))
        snprintf(hint, sizeof hint, "; KiB, MiB and GiB are powers of 1024, and a size is a whole number of bytes");
    snprintf(why, nwhy, "expected %s, found '%.60s%s'%s", expected, text, n > 60 ? "..." : "", hint);
    return false;
}

/* --- value to text ------------------------------------------------------------- */

/* The shortest digits that read back as v, with a point before an exponent: YAML 1.1 readers take
 * "1e-05" for a string. */
static void format_double(ls_text *out, double v)
{
    char buf[40];
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(buf, sizeof buf, "%.*g", digits, v);
        if (strtod(buf, NULL) == v) break;
    }
    char *e = strchr(buf, 'e');
    if (e && !strchr(buf, '.')) ls_text_add(out, "%.*s.0%s", (int)(e - buf), buf, e);
    else ls_text_add(out, "%s", buf);
}

/* In the largest unit that keeps it a whole number; units is ordered by rising factor. */
static void format_with_unit(ls_text *out, uint64_t v, const unit *units, size_t n)
{
    const unit *best = &units[0];
    for (size_t i = 0; i < n; i++)
        if (v % units[i].factor == 0 && v != 0) best = &units[i];
    ls_text_add(out, "%llu%s", (unsigned long long)(v / best->factor), best->name);
}

/* The character of the UTF-8 sequence at p and its bytes; a byte that is not UTF-8 stands for itself. */
static size_t decode(const unsigned char *p, uint32_t *c)
{
    size_t n = *p < 0xc2 || *p > 0xf4 ? 1 : *p < 0xe0 ? 2 : *p < 0xf0 ? 3 : 4;
    *c = n == 1 ? *p : *p & (0xffu >> (n + 1));
    for (size_t i = 1; i < n; i++) {
        if ((p[i] & 0xc0) != 0x80) {
            *c = *p;
            return 1;
        }
        *c = *c << 6 | (p[i] & 0x3f);
    }
    return n;
}

/* Controls, line ends and what libyaml does not let into a file. */
static bool breaks_yaml(uint32_t c)
{
    return c < 0x20 || (c >= 0x7f && c <= 0xa0) || c == 0x2028 || c == 0x2029 || (c >= 0xd800 && c <= 0xdfff) ||
           c == 0xfeff || c == 0xfffe || c == 0xffff;
}

/* Plain where YAML cannot take it for anything but a text, else in double quotes. */
static void format_string(ls_text *out, const char *s)
{
    static const char safe[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-";
    static const char *const words[] = { "null", "true", "false", "yes", "no", "on", "off", "y", "n" };
    bool plain = (*s >= 'a' && *s <= 'z') || (*s >= 'A' && *s <= 'Z') || *s == '/';
    plain = plain && s[strspn(s, safe)] == 0;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) plain = plain && !same_ignoring_case(s, words[i]);
    if (plain) {
        ls_text_add(out, "%s", s);
        return;
    }
    ls_text_addn(out, "\"", 1);
    while (*s) {
        uint32_t c;
        size_t n = decode((const unsigned char *)s, &c);
        if (c == '"' || c == '\\') ls_text_add(out, "\\%c", (char)c);
        else if (breaks_yaml(c)) ls_text_add(out, "\\u%04x", (unsigned)c);
        else ls_text_addn(out, s, n);
        s += n;
    }
    ls_text_addn(out, "\"", 1);
}

void ls_opt_format(const ls_opt *row, const void *field, ls_text *out)
{
    static const unit sizes[] = { { "", 1 }, { "KiB", 1u << 10 }, { "MiB", 1u << 20 }, { "GiB", 1u << 30 } };
    static const unit times[] = { { "ns", 1 }, { "us", 1000u }, { "ms", 1000000u }, { "s", 1000000000u } };
    switch (row->type) {
    case LS_OPT_BOOL: ls_text_add(out, "%s", *(const bool *)field ? "true" : "false"); break;
    case LS_OPT_INT: ls_text_add(out, "%lld", (long long)*(const int64_t *)field); break;
    case LS_OPT_DOUBLE: format_double(out, *(const double *)field); break;
    case LS_OPT_BYTES: format_with_unit(out, *(const size_t *)field, sizes, 4); break;
    case LS_OPT_TIME: format_with_unit(out, *(const uint64_t *)field, times, 4); break;
    case LS_OPT_EVERY:
        if (*(const int64_t *)field < 0) format_with_unit(out, (uint64_t)-*(const int64_t *)field, times, 4);
        else ls_text_add(out, "%lld", (long long)*(const int64_t *)field);
        break;
    case LS_OPT_STRING:
    case LS_OPT_CHOICE: {
        const char *s = *(const char *const *)field;
        if (s) format_string(out, s);
        else ls_text_add(out, "null");
        break;
    }
    case LS_OPT_INTS: {
        const ls_opt_ints *a = field;
        for (int i = 0; i < a->n; i++) ls_text_add(out, "%s%lld", i ? ", " : "[", (long long)a->v[i]);
        ls_text_add(out, a->n ? "]" : "[]");
        break;
    }
    case LS_OPT_DOUBLES: {
        const ls_opt_doubles *a = field;
        for (int i = 0; i < a->n; i++) {
            ls_text_add(out, i ? ", " : "[");
            format_double(out, a->v[i]);
        }
        ls_text_add(out, a->n ? "]" : "[]");
        break;
    }
    }
}
