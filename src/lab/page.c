/* page.c -- the page of a lab for a terminal: block after block. */
#include "lab/page.h"

#include <stdlib.h>
#include <string.h>

#include "lab/progress.h"

#define COLUMNS 12    /* of a table */
#define IDS     256   /* claims that a page names */
#define INDENT  4     /* of the numbers of a claim */

typedef struct page {
    ls_text *out;
    const char *progress;
    size_t width;
    ls_text block;      /* words of a paragraph or list item */
    size_t left;        /* where its second line begins */
    char id[IDS][16];   /* claims that were named */
    size_t ids;
} page;

/* --- words -------------------------------------------------------------------------------------------------- */

/* Words without the marks of links and bold; a link to the web keeps its address. */
static void add_plain(ls_text *t, const char *p, size_t n)
{
    for (const char *end = p + n; p < end; p++) {
        const char *close = *p == '[' ? memchr(p, ']', (size_t)(end - p)) : NULL;
        const bool link = close && close + 1 < end && close[1] == '(';
        const char *last = link ? memchr(close, ')', (size_t)(end - close)) : NULL;
        if (last) {
            ls_text_addn(t, p + 1, (size_t)(close - p - 1));
            if (strncmp(close + 2, "http", 4) == 0) ls_text_add(t, " (%.*s)", (int)(last - close - 2), close + 2);
            p = last;
        } else if (p + 1 < end && p[0] == '*' && p[1] == '*') {
            p++;
        } else {
            ls_text_addn(t, p, 1);
        }
    }
}

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

/* "01.5" or "01.12b" at p, and not a part of a longer number; its bytes, or 0. */
static size_t id_at(const char *from, const char *p)
{
    size_t n = 3;
    if (!is_digit(p[0]) || !is_digit(p[1]) || p[2] != '.' || !is_digit(p[3])) return 0;
    if (p > from && (is_digit(p[-1]) || p[-1] == '.' || p[-1] == '/' || p[-1] == '-')) return 0;
    while (is_digit(p[n])) n++;
    if (p[n] >= 'a' && p[n] <= 'z') n++;
    return n < 16 && !(p[n] >= 'a' && p[n] <= 'z') && !(p[n] == '.' && is_digit(p[n + 1])) ? n : 0;
}

static bool is_new(page *g, const char *id)
{
    for (size_t i = 0; i < g->ids; i++)
        if (strcmp(g->id[i], id) == 0) return false;
    if (g->ids < IDS) memcpy(g->id[g->ids++], id, strlen(id) + 1);
    return true;
}

/* The numbers of claims that a block names. */
static void add_numbers(page *g, const char *words)
{
    for (const char *p = words; *p; p++) {
        const size_t n = id_at(words, p);
        char id[16] = "";
        ls_lab_item item = { .tries = 0 };
        if (n == 0) continue;
        memcpy(id, p, n);
        id[n] = 0;
        p += n - 1;
        if (is_new(g, id)) ls_lab_progress_find(g->progress, id, &item);
        if (!*item.values) continue;
        ls_text t = { 0 };
        ls_text_add(&t, "%s here: %s (%s, %s)", id, item.values, item.state, item.date);
        ls_text_add(g->out, "%*s> ", INDENT, "");
        ls_text_wrap(g->out, ls_text_str(&t), INDENT + 2, g->width);
        g->out->failed = g->out->failed || t.failed;
        ls_text_free(&t);
    }
}

static void end_block(page *g)
{
    if (g->block.n == 0) return;
    ls_text_wrap(g->out, ls_text_str(&g->block), g->left, g->width);
    add_numbers(g, ls_text_str(&g->block));
    g->out->failed = g->out->failed || g->block.failed;
    ls_text_free(&g->block);
    g->left = 0;
}

/* --- tables ------------------------------------------------------------------------------------------------- */

/* The cells of a row, without blanks around them; their number. */
static size_t split(const char *line, size_t n, ls_text cell[COLUMNS])
{
    const char *end = line + n, *p = line + 1;
    size_t k = 0;
    while (p < end && k < COLUMNS) {
        const char *bar = memchr(p, '|', (size_t)(end - p)), *to = bar ? bar : end;
        if (!bar && p + strspn(p, " \r") >= end) break; /* nothing is after the last bar */
        while (p < to && *p == ' ') p++;
        const char *last = to;
        while (last > p && (last[-1] == ' ' || last[-1] == '\r')) last--;
        ls_text_addn(&cell[k], "", 0);
        add_plain(&cell[k++], p, (size_t)(last - p));
        p = to + 1;
    }
    return k;
}

static bool is_rule(const char *line, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!strchr("|-: \r", line[i])) return false;
    return true;
}

/* One row: padded to the columns' widths, or as "first: second; third"; of the first row, which names the columns, as
 * "Columns: first; second; third". */
static void add_row(page *g, ls_text *cell, size_t n, const size_t *wide, bool fits, bool names)
{
    ls_text t = { 0 };
    for (size_t k = 0; k < n; k++) {
        const char *s = ls_text_str(&cell[k]);
        if (fits) ls_text_add(&t, "%-*s%s", k + 1 < n ? (int)wide[k] : 0, s, k + 1 < n ? "  " : "");
        else if (*s) ls_text_add(&t, "%s%s", k == 0 ? "" : k == 1 && !names ? ": " : "; ", s);
    }
    if (fits) ls_text_add(g->out, "%s\n", ls_text_str(&t));
    else {
        ls_text_add(g->out, "%s", names ? "Columns: " : "- ");
        ls_text_wrap(g->out, ls_text_str(&t), names ? 9 : 2, g->width);
        add_numbers(g, ls_text_str(&t));
    }
    g->out->failed = g->out->failed || t.failed;
    ls_text_free(&t);
}

/* The rows from `md` on; returns what comes after them. */
static const char *table(page *g, const char *md)
{
    size_t wide[COLUMNS] = { 0 }, all = 0;
    const char *end = md;
    for (int pass = 0; pass < 2; pass++) {
        const bool fits = all <= g->width;
        for (end = md; *end == '|'; end += end[strcspn(end, "\n")] == '\n' ? strcspn(end, "\n") + 1 : strcspn(end, "\n")) {
            ls_text cell[COLUMNS] = { { 0 } };
            const size_t bytes = strcspn(end, "\n");
            const size_t n = is_rule(end, bytes) ? 0 : split(end, bytes, cell);
            for (size_t k = 0; pass == 0 && k < n; k++) wide[k] = cell[k].n > wide[k] ? cell[k].n : wide[k];
            if (pass == 1 && n > 0) add_row(g, cell, n, wide, fits, end == md);
            for (size_t k = 0; k < n; k++) ls_text_free(&cell[k]);
        }
        all = 0;
        for (size_t k = 0; k < COLUMNS; k++) all += wide[k] ? wide[k] + 2 : 0;
        if (pass == 1 && fits) {
            ls_text rows = { 0 };
            ls_text_addn(&rows, md, (size_t)(end - md));
            add_numbers(g, ls_text_str(&rows));
            ls_text_free(&rows);
        }
    }
    return end;
}

/* --- blocks ------------------------------------------------------------------------------------------------- */

/* "* ", "- " or "12. " after blanks: the bytes up to the words of a list item, or 0. */
static size_t item_at(const char *line)
{
    const size_t blanks = strspn(line, " ");
    const char *p = line + blanks;
    const size_t digits = strspn(p, "0123456789");
    if ((*p == '*' || *p == '-') && p[1] == ' ') return blanks + 2;
    return digits > 0 && digits < 3 && p[digits] == '.' && p[digits + 1] == ' ' ? blanks + digits + 2 : 0;
}

static void line_of(page *g, const char *line, size_t n)
{
    const size_t item = item_at(line);
    const bool heading = *line == '#';
    if (n == 0 || heading || (item > 0 && item <= n)) end_block(g);
    if (n == 0) {
        ls_text_add(g->out, "\n");
    } else if (g->block.n == 0 && strncmp(line, "    ", 4) == 0) {
        ls_text_addn(g->out, line, n); /* code */
        ls_text_add(g->out, "\n");
    } else {
        if (item > 0 && item <= n) ls_text_addn(g->out, line, item), g->left = item, line += item, n -= item;
        if (g->block.n > 0) ls_text_add(&g->block, " ");
        add_plain(&g->block, line, n);
        if (heading) end_block(g);
    }
}

ls_status ls_lab_page(const char *md, const char *progress, size_t width, ls_text *out)
{
    page g = { .out = out, .progress = progress, .width = width };
    bool code = false;
    for (const char *line = md; *line;) {
        const size_t n = strcspn(line, "\n");
        const bool fence = strncmp(line, "```", 3) == 0;
        if (!code && *line == '|') {
            end_block(&g);
            line = table(&g, line);
            continue;
        }
        if (fence) end_block(&g), code = !code;
        else if (code) ls_text_add(out, "    %.*s\n", (int)n, line);
        else line_of(&g, line, n > 0 && line[n - 1] == '\r' ? n - 1 : n);
        line += n;
        line += line[0] == '\n';
    }
    end_block(&g);
    return ls_text_status(out);
}
