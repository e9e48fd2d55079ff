/* opts_help.c -- the option table as text: --help, --print-config, and YAML to run again. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/env.h"
#include "base/opts_impl.h"

#define WIDTH     110 /* of a pipe or a file */
#define LEAST     40
#define NARROW    72  /* below it, an option's text stands under its name */

/* Bytes of a name up to its last dot; 0: no section. */
static size_t section_bytes(const char *name)
{
    const char *dot = strrchr(name, '.');
    return dot ? (size_t)(dot - name) : 0;
}

static bool same_section(const char *a, const char *b)
{
    size_t n = section_bytes(a);
    return n == section_bytes(b) && strncmp(a, b, n) == 0;
}

bool ls_opt_opens_section(const ls_opt *table, size_t i)
{
    for (size_t k = 0; k < i; k++)
        if (same_section(table[k].name, table[i].name)) return false;
    return true;
}

bool ls_opt_in_section(const ls_opt *row, const char *section)
{
    const size_t n = section_bytes(row->name);
    return n == strlen(section) && strncmp(row->name, section, n) == 0;
}

/* --- help ------------------------------------------------------------------------ */

const char *ls_opt_placeholder(ls_opt_type t)
{
    switch (t) {
    case LS_OPT_BOOL: return "";
    case LS_OPT_INT: return " N";
    case LS_OPT_DOUBLE: return " X";
    case LS_OPT_BYTES: return " SIZE";
    case LS_OPT_TIME: return " TIME";
    case LS_OPT_EVERY: return " N|TIME";
    case LS_OPT_CHOICE: return " WORD";
    case LS_OPT_INTS: return " N,N";
    case LS_OPT_DOUBLES: return " X,X";
    default: return " TEXT";
    }
}

int ls_help_width(void)
{
    const ls_env *env = ls_env_get();
    const char *columns = env->getenv("COLUMNS");
    int width = columns ? atoi(columns) : 0;
    if (width <= 0) width = env->isatty(1) ? env->columns(1) : WIDTH;
    return width < LEAST ? LEAST : width > WIDTH ? WIDTH : width;
}

void ls_opt_say(const ls_opt *row, ls_opt_readers *readers, ls_text *out)
{
    char names[256];
    const char *who = readers ? readers(row->name, names, sizeof names) : "";
    ls_text_add(out, "%s%s%s", who, *who ? ": " : "", row->help ? row->help : "");
}

void ls_opt_describe(const ls_opt *row, bool config, ls_opt_readers *readers, ls_text *out)
{
    ls_opt_say(row, readers, out);
    const char *def = row->def ? row->def : row->type == LS_OPT_BOOL ? "false" : "";
    const char *range = row->range ? row->range : "";
    if (row->type == LS_OPT_BOOL) range = "true|false";
    if (row->type == LS_OPT_BOOL && !config && strcmp(def, "false") == 0) def = range = ""; /* a plain switch */
    if (*def || *range) {
        ls_text_add(out, " (");
        if (*def) ls_text_add(out, "default %s", def);
        if (*range) ls_text_add(out, "%s%s", *def ? "; " : "", range);
        ls_text_add(out, ")");
    }
    if (row->alias) ls_text_add(out, " [also --");
    for (const char *p = row->alias; p && *p; p++) {
        if (*p == '|') ls_text_add(out, ", --");
        else ls_text_addn(out, p, 1);
    }
    if (row->alias) ls_text_add(out, "]");
}

static void add_row(ls_text *t, const ls_opt *row, bool config, const ls_help *h)
{
    const int column = h->width < NARROW ? 10 : 34;
    char left[160], shown[8] = "    ";
    if (row->short_name) snprintf(shown, sizeof shown, "-%c, ", row->short_name);
    int n = snprintf(left, sizeof left, "  %s--%s%s", shown, row->name, ls_opt_placeholder(row->type));
    if (n < column - 1) ls_text_add(t, "%-*s", column, left);
    else ls_text_add(t, "%s\n%*s", left, column, "");
    ls_text words = { 0 };
    ls_opt_describe(row, config, h->readers, &words);
    ls_text_wrap(t, ls_text_str(&words), (size_t)column, (size_t)h->width);
    t->failed = t->failed || words.failed;
    ls_text_free(&words);
}

static char *finish(ls_text *t)
{
    if (t->failed) ls_text_free(t);
    return t->p;
}

bool ls_opt_dotted(const ls_opt *table, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strchr(table[i].name, '.')) return true;
    return false;
}

/* The rows of one section, under its name. */
static void add_section(ls_text *t, const ls_opt *table, size_t n, const char *any, bool dotted, const ls_help *h)
{
    const size_t bytes = section_bytes(any);
    if (bytes) ls_text_add(t, "\n%.*s:\n", (int)bytes, any);
    else ls_text_add(t, "\noptions:\n");
    for (size_t k = 0; k < n; k++)
        if (same_section(table[k].name, any)) add_row(t, &table[k], !dotted || bytes > 0, h);
}

char *ls_opts_help_of(const ls_opt *table, size_t n, const ls_help *h)
{
    const bool dotted = ls_opt_dotted(table, n);
    ls_text t = { 0 };
    ls_text_add(&t, "usage: %s\n\n%s\n", h->usage, h->summary);
    for (const ls_help_index *x = h->index; x && x->section; x++) {
        if (x == h->index) {
            ls_text_add(&t, "\n");
            ls_text_wrap(&t, "sections: each key is a flag and a line of the YAML file; --help SECTION explains one, --help all "
                            "all of them:", 0, (size_t)h->width);
        }
        ls_text_add(&t, "  %-11s ", x->section);
        ls_text_wrap(&t, x->summary, 14, (size_t)h->width);
    }
    for (size_t i = 0; i < n; i++)
        if (ls_opt_opens_section(table, i) && (!h->section || ls_opt_in_section(&table[i], h->section)))
            add_section(&t, table, n, table[i].name, dotted, h);
    if (h->example) ls_text_add(&t, "\nexample:\n  %s\n", h->example);
    return finish(&t);
}

char *ls_opts_help(const ls_opts *o, const char *usage, const char *summary, const char *example)
{
    const ls_help h = { .usage = usage, .summary = summary, .example = example, .width = ls_help_width() };
    return ls_opts_help_of(o->table, o->n, &h);
}

/* --- configuration --------------------------------------------------------------- */

static void add_value(ls_text *t, const ls_opts *o, size_t i, bool origins)
{
    const ls_opt *row = &o->table[i];
    size_t at = t->n, n = section_bytes(row->name);
    ls_text_add(t, "%s%s: ", n ? "  " : "", row->name + (n ? n + 1 : 0));
    ls_opt_format(row, (const char *)o->target + row->offset, t);
    if (origins) {
        int pad = 32 - (int)(t->n - at);
        ls_text_add(t, "%*s# ", pad > 2 ? pad : 2, "");
        for (const char *p = ls_opts_origin(o, row->name); *p; p++) /* a file's name must not end the comment */
            ls_text_add(t, "%c", (unsigned char)*p < 0x20 || *p == 0x7f ? '?' : *p);
    }
    ls_text_addn(t, "\n", 1);
}

static char *config(const ls_opts *o, bool origins)
{
    ls_text t = { 0 };
    for (size_t i = 0; i < o->n; i++) {
        if (!ls_opts_is_config(o, i) || !ls_opt_opens_section(o->table, i)) continue;
        const char *name = o->table[i].name;
        size_t n = section_bytes(name);
        if (n) ls_text_add(&t, "%.*s:\n", (int)n, name);
        for (size_t k = i; k < o->n; k++)
            if (same_section(o->table[k].name, name)) add_value(&t, o, k, origins);
    }
    return finish(&t);
}

char *ls_opts_value(const ls_opts *o, const char *name)
{
    const size_t i = ls_opts_find(o, name);
    ls_text t = { 0 };
    if (i == o->n) return NULL;
    ls_text_addn(&t, "", 0); /* an empty value is a text, too */
    ls_opt_format(&o->table[i], (const char *)o->target + o->table[i].offset, &t);
    return finish(&t);
}

char *ls_opts_print_config(const ls_opts *o) { return config(o, true); }
char *ls_opts_yaml(const ls_opts *o) { return config(o, false); }
