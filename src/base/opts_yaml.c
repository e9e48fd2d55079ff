/* opts_yaml.c -- option values from a YAML file.
 *
 * libyaml turns the text into events; this file follows them with a stack of
 * its own and hands every leaf to the option table as one dotted name and one
 * text. There is no tree: what the table does not know is refused where it
 * stands. Only the part of YAML that reads the same to everyone is accepted.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "base/file.h"
#include "base/limits.h"
#include "base/opts_impl.h"

typedef struct section { char *path; size_t line; } section;

typedef struct walk {
    ls_opts *o;
    const char *file;
    char path[LS_YAML_MAX_NAME + 1];       /* dotted name of the key whose value is next */
    size_t prefix[LS_YAML_MAX_DEPTH];      /* bytes of path that name each open mapping */
    int depth;
    bool have_key;                         /* a key was read; its value is next */
    yaml_mark_t key_at;
    size_t list;                           /* row whose list is open, or o->n */
    ls_text items;                         /* owned: that list's elements so far */
    yaml_mark_t list_at;
    size_t nkeys, ndocuments;
    size_t *line;                          /* owned: [o->n] where a row was given, 0: not yet */
    section *seen;                         /* owned: mappings met so far */
    size_t nseen, cap;
} walk;

static ls_status refuse(const walk *w, ls_status s, yaml_mark_t at, const char *text)
{
    return ls_fail(s, "%s:%zu:%zu: %s", w->file, at.line + 1, at.column + 1, text);
}

/* What libyaml could not make sense of, and where. */
static ls_status not_yaml(const walk *w, const yaml_parser_t *p, const char *text, size_t n)
{
    const char *problem = p->problem ? p->problem : "unknown problem";
    if (p->error == YAML_MEMORY_ERROR) return ls_fail(LS_NO_MEMORY, "%s: while reading YAML", w->file);
    yaml_mark_t at = p->problem_mark;
    if (p->error == YAML_READER_ERROR) { /* bytes that are no text: there is only an offset */
        at = (yaml_mark_t){ 0 };
        for (size_t i = 0; i < n && i < p->problem_offset; i++) {
            at.column++;
            if (text[i] == '\n') {
                at.line++;
                at.column = 0;
            }
        }
    }
    if (p->context)
        return ls_fail(LS_BAD_FILE, "%s:%zu:%zu: not YAML: %s, %s that starts on line %zu", w->file, at.line + 1,
                       at.column + 1, problem, p->context, p->context_mark.line + 1);
    return ls_fail(LS_BAD_FILE, "%s:%zu:%zu: not YAML: %s", w->file, at.line + 1, at.column + 1, problem);
}

/* Whether some row lies below the section at w->path. */
static bool is_section(const walk *w)
{
    size_t n = strlen(w->path);
    for (size_t i = 0; i < w->o->n; i++) {
        const char *name = w->o->table[i].name;
        size_t k = 0;
        while (k < n && name[k] && (name[k] == w->path[k] || (strchr("-_", name[k]) && strchr("-_", w->path[k])))) k++;
        if (k == n && name[k] == '.') return true;
    }
    return false;
}

static ls_status unknown(const walk *w)
{
    char where[400];
    snprintf(where, sizeof where, "%.200s:%zu:%zu: ", w->file, w->key_at.line + 1, w->key_at.column + 1);
    ls_opt_source from = { .rank = LS_OPT_BY_FILE, .where = where };
    return ls_opts_unknown(w->o, w->path, &from);
}

static ls_status given_twice(const walk *w, size_t first_line)
{
    return ls_fail(LS_BAD_FILE, "%s:%zu:%zu: '%s' is given twice, first on line %zu", w->file, w->key_at.line + 1,
                   w->key_at.column + 1, w->path, first_line);
}

/* The row at w->path, once; a section or an unknown name is refused. */
static ls_status claim_row(walk *w, size_t *row)
{
    size_t i = ls_opts_find(w->o, w->path);
    if (i == w->o->n) {
        if (!is_section(w)) return unknown(w);
        return ls_fail(LS_BAD_CONFIG, "%s:%zu:%zu: '%s' is a section: expected keys below it, found a value", w->file,
                       w->key_at.line + 1, w->key_at.column + 1, w->path);
    }
    if (!ls_opts_is_config(w->o, i))
        return ls_fail(LS_BAD_CONFIG, "%s:%zu:%zu: '%s' belongs on the command line: --%s", w->file, w->key_at.line + 1,
                       w->key_at.column + 1, w->path, w->o->table[i].name);
    if (w->line[i]) return given_twice(w, w->line[i]);
    w->line[i] = w->key_at.line + 1;
    *row = i;
    return LS_OK;
}

static ls_status claim_section(walk *w)
{
    size_t i = ls_opts_find(w->o, w->path);
    if (i < w->o->n)
        return ls_fail(LS_BAD_CONFIG, "%s:%zu:%zu: '%s' takes a value, not a section of keys", w->file,
                       w->key_at.line + 1, w->key_at.column + 1, w->path);
    if (!is_section(w)) return unknown(w);
    for (size_t k = 0; k < w->nseen; k++)
        if (strcmp(w->seen[k].path, w->path) == 0) return given_twice(w, w->seen[k].line);
    if (w->nseen == w->cap) {
        size_t cap = w->cap ? 2 * w->cap : 16;
        section *seen = realloc(w->seen, cap * sizeof *seen);
        if (!seen) return ls_fail(LS_NO_MEMORY, "%s: %zu sections", w->file, cap);
        w->seen = seen;
        w->cap = cap;
    }
    char *copy = strdup(w->path);
    if (!copy) return ls_fail(LS_NO_MEMORY, "%s: sections", w->file);
    w->seen[w->nseen++] = (section){ copy, w->key_at.line + 1 };
    return LS_OK;
}

static ls_status assign(const walk *w, size_t row, const char *value, bool null, yaml_mark_t at)
{
    char where[400], origin[300];
    snprintf(where, sizeof where, "%.200s:%zu:%zu: ", w->file, at.line + 1, at.column + 1);
    snprintf(origin, sizeof origin, "%.200s:%zu", w->file, w->key_at.line + 1);
    ls_opt_source from = { .rank = LS_OPT_BY_FILE, .origin = origin, .where = where, .null = null };
    return ls_opts_assign(w->o, row, value, &from);
}

static ls_status take_key(walk *w, const yaml_event_t *e)
{
    const char *key = (const char *)e->data.scalar.value;
    size_t at = w->prefix[w->depth - 1], n = e->data.scalar.length;
    w->key_at = e->start_mark;
    if (++w->nkeys > LS_YAML_MAX_KEYS) {
        char text[64];
        snprintf(text, sizeof text, "more than %d keys", LS_YAML_MAX_KEYS);
        return refuse(w, LS_BAD_FILE, e->start_mark, text);
    }
    if (n == 0) return refuse(w, LS_BAD_CONFIG, e->start_mark, "expected the name of a key, found nothing");
    if (at + (at > 0) + n > LS_YAML_MAX_NAME) return refuse(w, LS_BAD_FILE, e->start_mark, "a key's name is too long");
    if (at > 0) w->path[at++] = '.';
    memcpy(w->path + at, key, n + 1);
    w->have_key = true;
    return LS_OK;
}

static bool is_null(const yaml_event_t *e)
{
    static const char *const words[] = { "", "~", "null", "Null", "NULL" };
    if (e->data.scalar.style != YAML_PLAIN_SCALAR_STYLE) return false;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp((const char *)e->data.scalar.value, words[i]) == 0) return true;
    return false;
}

static ls_status on_scalar(walk *w, const yaml_event_t *e)
{
    const char *value = (const char *)e->data.scalar.value;
    if (e->data.scalar.anchor) return refuse(w, LS_BAD_FILE, e->start_mark, "anchors (&name) are not accepted");
    if (e->data.scalar.tag) return refuse(w, LS_BAD_FILE, e->start_mark, "tags (!name) are not accepted");
    if (w->depth == 0) {
        if (is_null(e)) return LS_OK; /* a file of comments only */
        return refuse(w, LS_BAD_FILE, e->start_mark,
                      "expected sections and keys such as 'train: {steps: 100}', found a text");
    }
    if (strlen(value) != e->data.scalar.length)
        return refuse(w, LS_BAD_FILE, e->start_mark, "a zero byte inside a text");
    if (w->list < w->o->n) {
        if (strchr(value, ',') || is_null(e))
            return refuse(w, LS_BAD_CONFIG, e->start_mark, "a list holds single numbers");
        ls_text_add(&w->items, "%s%s", w->items.n ? "," : "", value);
        return ls_text_status(&w->items);
    }
    if (!w->have_key) return take_key(w, e);

    size_t row;
    w->have_key = false;
    if (is_null(e) && ls_opts_find(w->o, w->path) == w->o->n && is_section(w)) return claim_section(w); /* empty */
    LS_TRY(claim_row(w, &row));
    return assign(w, row, value, is_null(e), e->start_mark);
}

static ls_status on_mapping(walk *w, const yaml_event_t *e)
{
    if (e->data.mapping_start.anchor) return refuse(w, LS_BAD_FILE, e->start_mark, "anchors (&name) are not accepted");
    if (e->data.mapping_start.tag) return refuse(w, LS_BAD_FILE, e->start_mark, "tags (!name) are not accepted");
    if (w->depth == LS_YAML_MAX_DEPTH) {
        char text[64];
        snprintf(text, sizeof text, "more than %d sections inside one another", LS_YAML_MAX_DEPTH);
        return refuse(w, LS_BAD_FILE, e->start_mark, text);
    }
    if (w->list < w->o->n) return refuse(w, LS_BAD_CONFIG, e->start_mark, "a list holds single numbers");
    if (w->depth > 0) {
        if (!w->have_key) return refuse(w, LS_BAD_FILE, e->start_mark, "expected the name of a key, found a mapping");
        LS_TRY(claim_section(w));
    }
    w->prefix[w->depth++] = strlen(w->path);
    w->have_key = false;
    return LS_OK;
}

static ls_status on_list(walk *w, const yaml_event_t *e)
{
    if (e->data.sequence_start.anchor) return refuse(w, LS_BAD_FILE, e->start_mark, "anchors (&name) are not accepted");
    if (e->data.sequence_start.tag) return refuse(w, LS_BAD_FILE, e->start_mark, "tags (!name) are not accepted");
    if (w->depth == 0)
        return refuse(w, LS_BAD_FILE, e->start_mark,
                      "expected sections and keys such as 'train: {steps: 100}', found a list");
    if (w->list < w->o->n) return refuse(w, LS_BAD_CONFIG, e->start_mark, "a list holds single numbers");
    if (!w->have_key) return refuse(w, LS_BAD_FILE, e->start_mark, "expected the name of a key, found a list");

    size_t row;
    w->have_key = false;
    LS_TRY(claim_row(w, &row));
    if (w->o->table[row].type != LS_OPT_INTS && w->o->table[row].type != LS_OPT_DOUBLES) {
        char expected[200], text[300];
        ls_opt_expected(&w->o->table[row], expected, sizeof expected);
        snprintf(text, sizeof text, "%s: expected %s, found a list", w->o->table[row].name, expected);
        return refuse(w, LS_BAD_CONFIG, e->start_mark, text);
    }
    w->list = row;
    w->list_at = e->start_mark;
    w->items.n = 0;
    if (w->items.p) w->items.p[0] = 0;
    return LS_OK;
}

static ls_status on_event(walk *w, const yaml_event_t *e)
{
    switch (e->type) {
    case YAML_DOCUMENT_START_EVENT:
        if (w->ndocuments++) return refuse(w, LS_BAD_FILE, e->start_mark, "more than one document");
        if (e->data.document_start.tag_directives.start != e->data.document_start.tag_directives.end)
            return refuse(w, LS_BAD_FILE, e->start_mark, "tags (!name) are not accepted");
        return LS_OK;
    case YAML_ALIAS_EVENT: return refuse(w, LS_BAD_FILE, e->start_mark, "aliases (*name) are not accepted");
    case YAML_SCALAR_EVENT: return on_scalar(w, e);
    case YAML_MAPPING_START_EVENT: return on_mapping(w, e);
    case YAML_SEQUENCE_START_EVENT: return on_list(w, e);
    case YAML_MAPPING_END_EVENT:
        w->path[w->prefix[--w->depth]] = 0;
        return LS_OK;
    case YAML_SEQUENCE_END_EVENT: {
        size_t row = w->list;
        w->list = w->o->n;
        return assign(w, row, ls_text_str(&w->items), false, w->list_at);
    }
    default: return LS_OK;
    }
}

ls_status ls_opts_read_yaml(ls_opts *o, const char *name, const char *text, size_t n)
{
    walk w = { .o = o, .file = name, .list = o->n };
    yaml_parser_t parser;
    ls_status st = LS_OK;

    if (n > LS_YAML_MAX_BYTES)
        return ls_fail(LS_BAD_FILE, "%s: %zu bytes, at most %u are accepted", name, n, LS_YAML_MAX_BYTES);
    w.line = calloc(o->n ? o->n : 1, sizeof *w.line);
    if (!w.line) return ls_fail(LS_NO_MEMORY, "%s: %zu options", name, o->n);
    if (!yaml_parser_initialize(&parser)) {
        free(w.line);
        return ls_fail(LS_NO_MEMORY, "%s: while reading YAML", name);
    }
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, n);

    for (bool end = false; !end && st >= 0;) {
        yaml_event_t e;
        if (!yaml_parser_parse(&parser, &e)) {
            st = not_yaml(&w, &parser, text, n);
            break;
        }
        end = e.type == YAML_STREAM_END_EVENT;
        st = on_event(&w, &e);
        yaml_event_delete(&e);
    }

    yaml_parser_delete(&parser);
    ls_text_free(&w.items);
    for (size_t i = 0; i < w.nseen; i++) free(w.seen[i].path);
    free(w.seen);
    free(w.line);
    return st;
}

ls_status ls_opts_load_yaml(ls_opts *o, const char *path)
{
    char *text;
    size_t n;
    LS_TRY(ls_file_read(path, LS_YAML_MAX_BYTES, &text, &n));
    ls_status st = ls_opts_read_yaml(o, path, text, n);
    free(text);
    return st;
}
