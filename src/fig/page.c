/* page.c -- building a figure's parts, and writing them. */
#include "fig/page.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_WHOLE 1e15 /* whole numbers below it are written with all their digits */

void ls_fig_columns(ls_fig_page *p, const char *const *name, int n)
{
    p->ncolumns = n < LS_FIG_MAX_COLUMNS ? n : LS_FIG_MAX_COLUMNS;
    for (int i = 0; i < p->ncolumns; i++) p->column[i] = name[i];
}

static ls_fig_cell *next(ls_fig_page *p)
{
    if (p->failed) return NULL;
    if (p->ncells == p->room) {
        const int room = p->room ? 2 * p->room : 64;
        ls_fig_cell *more = realloc(p->cell, (size_t)room * sizeof *more);
        if (!more) {
            p->failed = true;
            return NULL;
        }
        p->cell = more;
        p->room = room;
    }
    ls_fig_cell *c = &p->cell[p->ncells++];
    *c = (ls_fig_cell){ 0 };
    return c;
}

void ls_fig_number(ls_fig_page *p, double v)
{
    ls_fig_cell *c = next(p);
    if (c) c->number = v;
}

void ls_fig_words(ls_fig_page *p, const char *fmt, ...)
{
    ls_fig_cell *c = next(p);
    if (!c) return;
    va_list ap;
    c->is_text = true;
    va_start(ap, fmt);
    vsnprintf(c->text, sizeof c->text, fmt, ap);
    va_end(ap);
}

void ls_fig_fact(ls_fig_page *p, const char *name, double v)
{
    if (p->nfacts == LS_FIG_MAX_FACTS) return;
    p->fact[p->nfacts].name = name;
    p->fact[p->nfacts++].value = v;
}

void ls_fig_page_free(ls_fig_page *p)
{
    ls_text_free(&p->sentence);
    ls_text_free(&p->drawing);
    ls_text_free(&p->shapes);
    free(p->cell);
    *p = (ls_fig_page){ 0 };
}

static void digits(double v, char out[LS_FIG_CELL])
{
    const bool whole = fabs(v) < MOST_WHOLE && floor(v) >= v;
    snprintf(out, LS_FIG_CELL, whole ? "%.0f" : "%.9g", v + 0.0);
}

void ls_fig_digits(ls_text *out, double v)
{
    char text[LS_FIG_CELL];
    digits(v, text);
    ls_text_add(out, "%s", isfinite(v) ? text : "null");
}

static void cell_text(const ls_fig_cell *c, char out[LS_FIG_CELL])
{
    if (c->is_text) memcpy(out, c->text, LS_FIG_CELL);
    else digits(c->number, out);
}

/* Columns of numbers stand to the right, others to the left. */
void ls_fig_table_text(const ls_fig_page *p, ls_text *out)
{
    int width[LS_FIG_MAX_COLUMNS] = { 0 };
    char text[LS_FIG_CELL];
    const int n = p->ncolumns, nrows = n ? p->ncells / n : 0;
    for (int i = 0; i < n; i++) width[i] = (int)strlen(p->column[i]);
    for (int i = 0; i < nrows * n; i++) {
        cell_text(&p->cell[i], text);
        if ((int)strlen(text) > width[i % n]) width[i % n] = (int)strlen(text);
    }
    for (int row = -1; row < nrows; row++)
        for (int i = 0; i < n; i++) {
            const bool left = nrows > 0 && p->cell[i].is_text, last = i + 1 == n;
            if (row < 0) memcpy(text, p->column[i], strlen(p->column[i]) + 1);
            else cell_text(&p->cell[row * n + i], text);
            const int pad = width[i] - (int)strlen(text);
            ls_text_add(out, "%*s%s%*s%s", left ? 0 : pad, "", text, left && !last ? pad : 0, "", last ? "\n" : "  ");
        }
}

void ls_fig_table_json(const ls_fig_page *p, ls_text *out)
{
    const int n = p->ncolumns, nrows = n ? p->ncells / n : 0;
    ls_text_add(out, "{\"columns\": [");
    for (int i = 0; i < n; i++) {
        ls_text_add(out, "%s", i ? ", " : "");
        ls_json_string(out, p->column[i]);
    }
    ls_text_add(out, "], \"rows\": [");
    for (int i = 0; i < nrows * n; i++) {
        const ls_fig_cell *c = &p->cell[i];
        ls_text_add(out, "%s%s", i == 0 ? "" : i % n ? ", " : ",\n", i % n ? "" : "[");
        if (c->is_text) ls_json_string(out, c->text);
        else ls_fig_digits(out, c->number);
        if (i % n == n - 1) ls_text_add(out, "]");
    }
    ls_text_add(out, "]}");
}

void ls_fig_facts_json(const ls_fig_page *p, ls_text *out)
{
    ls_text_add(out, "{");
    for (int i = 0; i < p->nfacts; i++) {
        ls_text_add(out, "%s\"%s\": ", i ? ", " : "", p->fact[i].name);
        ls_fig_digits(out, p->fact[i].value);
    }
    ls_text_add(out, "}");
}

double ls_fig_log2(double v)
{
    int e;
    double m = frexp(v, &e); /* exact: 0.5 <= m < 1 */
    if (m < 0.70710678118654752) m *= 2.0, e--;
    const double t = (m - 1.0) / (m + 1.0), t2 = t * t; /* log m = 2 (t + t^3/3 + t^5/5 + ...), |t| < 0.172 */
    double sum = 0.0;
    for (int k = 23; k >= 1; k -= 2) sum = sum * t2 + 1.0 / k;
    return e + 2.8853900817779268 * t * sum; /* 2 / log 2 */
}
