/* opts_help.c -- the option table as text: --help, --print-config, and YAML to run again. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/opts_impl.h"

#define LEFT_COLUMN 34
#define WIDTH       110

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

/* Whether row i is the first of its section. */
static bool opens_section(const ls_opts *o, size_t i)
{
    for (size_t k = 0; k < i; k++)
        if (same_section(o->table[k].name, o->table[i].name)) return false;
    return true;
}

/* --- help ------------------------------------------------------------------------ */

static const char *placeholder(ls_opt_type t)
{
    switch (t) {
    case LS_OPT_BOOL: return "";
    case LS_OPT_INT: return " N";
    case LS_OPT_DOUBLE: return " X";
    case LS_OPT_BYTES: return " SIZE";
    case LS_OPT_TIME: return " TIME";
    case LS_OPT_CHOICE: return " WORD";
    case LS_OPT_INTS: return " N,N";
    case LS_OPT_DOUBLES: return " X,X";
    default: return " TEXT";
    }
}

/* Adds words to a line that begins at LEFT_COLUMN, breaking it before WIDTH. */
static void add_wrapped(ls_text *t, const char *words)
{
    size_t column = LEFT_COLUMN;
    while (*words) {
        size_t n = strcspn(words, " ");
        if (column > LEFT_COLUMN && column + 1 + n > WIDTH) {
            ls_text_add(t, "\n%*s", LEFT_COLUMN, "");
            column = LEFT_COLUMN;
        } else if (column > LEFT_COLUMN) {
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

static void add_row(ls_text *t, const ls_opt *row, bool config)
{
    char left[160], shown[8] = "    ";
    if (row->short_name) snprintf(shown, sizeof shown, "-%c, ", row->short_name);
    int n = snprintf(left, sizeof left, "  %s--%s%s", shown, row->name, placeholder(row->type));
    if (n < LEFT_COLUMN - 1) ls_text_add(t, "%-*s", LEFT_COLUMN, left);
    else ls_text_add(t, "%s\n%*s", left, LEFT_COLUMN, "");

    ls_text words = { 0 };
    ls_text_add(&words, "%s", row->help ? row->help : "");
    const char *def = row->def ? row->def : row->type == LS_OPT_BOOL ? "false" : "";
    const char *range = row->range ? row->range : "";
    if (row->type == LS_OPT_BOOL) range = "true|false";
    if (row->type == LS_OPT_BOOL && !config && strcmp(def, "false") == 0) def = range = ""; /* a plain switch */
    if (*def || *range) {
        ls_text_add(&words, " (");
        if (*def) ls_text_add(&words, "default %s", def);
        if (*range) ls_text_add(&words, "%s%s", *def ? "; " : "", range);
        ls_text_add(&words, ")");
    }
    if (row->alias) ls_text_add(&words, " [also --");
    for (const char *p = row->alias; p && *p; p++) {
        if (*p == '|') ls_text_add(&words, ", --");
        else ls_text_addn(&words, p, 1);
    }
    if (row->alias) ls_text_add(&words, "]");
    add_wrapped(t, ls_text_str(&words));
    t->failed = t->failed || words.failed;
    ls_text_free(&words);
}

static char *finish(ls_text *t)
{
    if (t->failed) ls_text_free(t);
    return t->p;
}

char *ls_opts_help(const ls_opts *o, const char *usage, const char *summary, const char *example)
{
    ls_text t = { 0 };
    ls_text_add(&t, "usage: %s\n\n%s\n", usage, summary);
    for (size_t i = 0; i < o->n; i++) {
        if (!opens_section(o, i)) continue;
        const char *name = o->table[i].name;
        size_t n = section_bytes(name);
        if (n) ls_text_add(&t, "\n%.*s:\n", (int)n, name);
        else ls_text_add(&t, "\noptions:\n");
        for (size_t k = i; k < o->n; k++)
            if (same_section(o->table[k].name, name)) add_row(&t, &o->table[k], ls_opts_is_config(o, k));
    }
    if (example) ls_text_add(&t, "\nexample:\n  %s\n", example);
    return finish(&t);
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
        if (!ls_opts_is_config(o, i) || !opens_section(o, i)) continue;
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
