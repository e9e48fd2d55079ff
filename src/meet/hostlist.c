/* hostlist.c -- Slurm's node[01-03,7] and 2(x3),1, expanded. */
#include "meet/hostlist.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define MAX_DIGITS 9 /* of a number: its value fits an int */
#define MAX_TASKS 65536

typedef struct list {
    const char *text; /* whole, for messages */
    char (*out)[LS_HOST_MAX_NAME + 1];
    int max, n;
} list;

static ls_status bad(const char *text, const char *why)
{
    return ls_fail(LS_INVALID, "the host name list '%.80s%s' %s: expected names like node[01-03,7],login", text,
                   strlen(text) > 80 ? "..." : "", why);
}

/* Digits at *p; their number is *ndigits. False when there are none, or too many. */
static bool read_number(const char **p, const char *end, int *value, int *ndigits)
{
    int v = 0, n = 0;
    for (; *p < end && **p >= '0' && **p <= '9'; (*p)++) {
        if (++n > MAX_DIGITS) return false;
        v = v * 10 + (**p - '0');
    }
    *value = v;
    *ndigits = n;
    return n > 0;
}

static bool is_name_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ||
           c == '.' || c == ':';
}

/* Appends to a name; false when it gets too long. */
static bool append(char *name, const char *p, size_t n)
{
    size_t have = strlen(name);
    if (n > LS_HOST_MAX_NAME - have) return false;
    memcpy(name + have, p, n);
    name[have + n] = 0;
    return true;
}

static ls_status finish(list *l, const char *name)
{
    if (!*name) return bad(l->text, "has an empty name");
    if (l->n >= l->max)
        return ls_fail(LS_INVALID, "the host name list '%.80s%s' has more than %d host names", l->text,
                       strlen(l->text) > 80 ? "..." : "", l->max);
    strcpy(l->out[l->n++], name);
    return LS_OK;
}

/* One item of the list from p to end; `name` is what stands before p, already expanded. Recursion is as deep
 * as there are brackets in the item. */
static ls_status expand(list *l, const char *p, const char *end, const char *name, int depth)
{
    char mine[LS_HOST_MAX_NAME + 1], next[LS_HOST_MAX_NAME + 1];
    const char *open = p;
    memcpy(mine, name, sizeof mine);
    while (open < end && *open != '[') {
        if (!is_name_char(*open)) return bad(l->text, "has a character that no host name has");
        open++;
    }
    if (!append(mine, p, (size_t)(open - p))) return bad(l->text, "has a name that is too long");
    if (open == end) return finish(l, mine);
    if (depth == LS_HOST_MAX_BRACKETS) return bad(l->text, "has too many brackets in a name");
    const char *close = memchr(open, ']', (size_t)(end - open));
    if (!close) return bad(l->text, "has a bracket that is not closed");
    for (p = open + 1;; p++) {
        int first, last, width, last_width;
        if (!read_number(&p, close, &first, &width)) return bad(l->text, "has no number where one is due");
        last = first;
        if (p < close && *p == '-') {
            p++;
            if (!read_number(&p, close, &last, &last_width)) return bad(l->text, "has a range without an end");
            if (last < first) return bad(l->text, "has a range that runs backwards");
        }
        for (int i = first; i <= last; i++) {
            char number[16];
            int k = snprintf(number, sizeof number, "%0*d", width, i);
            memcpy(next, mine, sizeof next);
            if (!append(next, number, (size_t)k)) return bad(l->text, "has a name that is too long");
            LS_TRY(expand(l, close + 1, end, next, depth + 1)); /* ends at max hosts, however long the range */
        }
        if (p == close) return LS_OK;
        if (*p != ',') return bad(l->text, "has something else than numbers in its brackets");
    }
}

ls_status ls_hostlist_expand(const char *text, char (*out)[LS_HOST_MAX_NAME + 1], int max, int *n)
{
    list l = { .text = text, .out = out, .max = max };
    *n = 0;
    if (strlen(text) > LS_HOST_MAX_LIST)
        return ls_fail(LS_INVALID, "a host name list of %zu bytes: at most %d", strlen(text), LS_HOST_MAX_LIST);
    for (const char *p = text;; p++) {
        const char *end = p; /* of this item: a comma inside brackets is the range's */
        for (bool inside = false; *end && (inside || *end != ','); end++) {
            if (*end == '[') inside = true;
            if (*end == ']') inside = false;
        }
        LS_TRY(expand(&l, p, end, (char[LS_HOST_MAX_NAME + 1]){ 0 }, 0));
        p = end;
        if (!*p) break;
    }
    *n = l.n;
    return LS_OK;
}

ls_status ls_tasklist_expand(const char *text, int *out, int max, int *n)
{
    size_t len = strlen(text);
    const char *end = text + len;
    *n = 0;
    if (len > LS_HOST_MAX_LIST)
        return ls_fail(LS_INVALID, "a list of tasks of %zu bytes: at most %d", len, LS_HOST_MAX_LIST);
    for (const char *p = text;; p++) {
        int tasks, times = 1, digits;
        bool ok = read_number(&p, end, &tasks, &digits) && tasks >= 1 && tasks <= MAX_TASKS;
        if (ok && end - p >= 2 && p[0] == '(' && p[1] == 'x') {
            p += 2;
            ok = read_number(&p, end, &times, &digits) && times >= 1 && *p == ')';
            p++;
        }
        if (!ok || (*p && *p != ','))
            return ls_fail(LS_INVALID, "the list of tasks '%.80s' cannot be read: expected counts like 2(x3),1", text);
        if (times > max - *n) return ls_fail(LS_INVALID, "the list of tasks '%.80s' has more than %d nodes", text, max);
        while (times-- > 0) out[(*n)++] = tasks;
        if (!*p) return LS_OK;
    }
}
