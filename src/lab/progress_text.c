/* progress_text.c -- lines of what a reader of the labs has done: found, replaced, merged. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lab/progress.h"

#define HEAD "# lockstep labs, progress "
#define MOST 1000000 /* tries, or hints */

/* Whether a line (up to its end) is that of the item. */
static bool is_of(const char *line, const char *item)
{
    const size_t n = strlen(item);
    return strncmp(line, item, n) == 0 && line[n] == ' ';
}

static int number_after(const char *line, const char *end, const char *key)
{
    const char *at = strstr(line, key);
    const long v = at && at < end ? strtol(at + strlen(key), NULL, 10) : 0;
    return v < 0 || v > MOST ? 0 : (int)v;
}

static bool is_date(const char *p)
{
    static const char form[] = "0000-00-00";
    for (size_t i = 0; form[i]; i++)
        if (form[i] == '-' ? p[i] != '-' : p[i] < '0' || p[i] > '9') return false;
    return true;
}

/* `state`: where the words after the name of the item begin. */
static void read_line(const char *state, ls_lab_item *out)
{
    const char *end = state + strcspn(state, "\n"), *bar = strstr(state, " | ");
    const size_t bytes = strcspn(state, " \n");
    *out = (ls_lab_item){ .tries = 0 };
    if (bar && bar < end) {
        snprintf(out->values, sizeof out->values, "%.*s", (int)(end - bar - 3), bar + 3);
        end = bar;
    }
    snprintf(out->state, sizeof out->state, "%.*s", (int)(bytes < sizeof out->state ? bytes : 0), state);
    if (state[bytes] == ' ' && is_date(state + bytes + 1)) snprintf(out->date, sizeof out->date, "%.10s", state + bytes + 1);
    out->tries = number_after(state, end, " tries=");
    out->hints = number_after(state, end, " hints=");
    out->told = end - state >= 9 && strncmp(end - 9, " solution", 9) == 0;
}

void ls_lab_progress_find(const char *text, const char *item, ls_lab_item *out)
{
    *out = (ls_lab_item){ .tries = 0 };
    for (const char *line = text; *line; line += strcspn(line, "\n"), line += *line == '\n')
        if (is_of(line, item)) read_line(line + strlen(item) + 1, out);
}

static void add_line(ls_text *t, const char *item, const ls_lab_item *now)
{
    ls_text_add(t, "%s %s %s", item, now->state, now->date);
    if (now->tries) ls_text_add(t, " tries=%d", now->tries);
    if (now->hints) ls_text_add(t, " hints=%d", now->hints);
    if (now->told) ls_text_add(t, " solution");
    if (*now->values) ls_text_add(t, " | %s", now->values);
    ls_text_add(t, "\n");
}

void ls_lab_progress_edit(const char *text, const char *item, const ls_lab_item *now, ls_text *out)
{
    bool there = false;
    if (strncmp(text, HEAD, strlen(HEAD)) != 0) ls_text_add(out, HEAD "1\n");
    for (const char *line = text; *line;) {
        const size_t bytes = strcspn(line, "\n");
        if (!is_of(line, item)) {
            ls_text_addn(out, line, bytes);
            ls_text_add(out, "\n");
        } else if (!there) {
            add_line(out, item, now);
            there = true;
        }
        line += bytes;
        line += line[0] == '\n';
    }
    if (!there) add_line(out, item, now);
}

/* --- merging ------------------------------------------------------------------------------------------------ */

/* How far a state is; 0: there is no such state. */
static int rank_of(const char *state)
{
    static const char *const states[] = { "begun", "red", "missed", "shown", "seen", "holds", "right", "green" };
    for (int i = 0; i < 8; i++)
        if (strcmp(states[i], state) == 0) return i < 3 ? 1 : 2;
    return 0;
}

static void merge_item(ls_lab_item *to, const ls_lab_item *from)
{
    const ls_lab_item had = *to;
    const int order = strcmp(from->date, had.date);
    if (!*had.state || order > 0 || (order == 0 && rank_of(from->state) > rank_of(had.state))) *to = *from;
    to->tries = from->tries > had.tries ? from->tries : had.tries;
    to->hints = from->hints > had.hints ? from->hints : had.hints;
    to->told = from->told || had.told;
}

/* "01.ex1 green 2027-01-03 tries=3": the name of its item in `name`. */
static bool is_line(const char *line, char *name, size_t bytes, ls_lab_item *out)
{
    const size_t n = strspn(line, "0123456789abcdefghijklmnopqrstuvwxyz._");
    if (n < 4 || n >= bytes || line[2] != '.' || line[n] != ' ') return false;
    snprintf(name, bytes, "%.*s", (int)n, line);
    read_line(line + n + 1, out);
    return rank_of(out->state) > 0 && *out->date;
}

ls_status ls_lab_progress_merge(const char *text, const char *name, const char *from, ls_text *out, int *items)
{
    int number = 0;
    ls_status st = LS_OK;
    ls_text now = { 0 };
    *items = 0;
    ls_text_add(&now, "%s", text);
    for (const char *line = from; st == LS_OK && *line; line += strcspn(line, "\n"), line += line[0] == '\n') {
        ls_lab_item item, had;
        ls_text next = { 0 };
        char id[64];
        number++;
        if (*line == '#' || *line == '\n' || *line == '\r') continue;
        if (!is_line(line, id, sizeof id, &item)) {
            st = ls_fail(LS_USAGE, "%s:%d: is no line of progress: expected one such as '01.ex1 green 2027-01-03 tries=3'", name, number);
            break;
        }
        ls_lab_progress_find(ls_text_str(&now), id, &had);
        merge_item(&had, &item);
        ls_lab_progress_edit(ls_text_str(&now), id, &had, &next);
        ls_text_free(&now);
        now = next;
        ++*items;
        st = ls_text_status(&now);
    }
    ls_text_addn(out, ls_text_str(&now), now.n);
    ls_text_free(&now);
    return st < 0 ? st : ls_text_status(out);
}
