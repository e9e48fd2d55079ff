/* opts.c -- the option table: defaults, values, the command line. */
#include "lockstep/opts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/opts_impl.h"

static char dash(char c) { return c == '_' ? '-' : c; }

/* Whether the first n bytes at a are the name b, '-' and '_' being equal. */
static bool same_name(const char *a, size_t n, const char *b)
{
    size_t i = 0;
    for (; i < n && b[i]; i++)
        if (dash(a[i]) != dash(b[i])) return false;
    return i == n && b[i] == 0;
}

static bool has_name(const ls_opt *row, const char *name)
{
    if (same_name(name, strlen(name), row->name)) return true;
    for (const char *p = row->alias; p;) {
        size_t n = strcspn(p, "|");
        if (same_name(p, n, name)) return true;
        p = p[n] ? p + n + 1 : NULL;
    }
    return false;
}

size_t ls_opts_find(const ls_opts *o, const char *name)
{
    for (size_t i = 0; i < o->n; i++)
        if (has_name(&o->table[i], name)) return i;
    return o->n;
}

bool ls_opts_is_config(const ls_opts *o, size_t i) { return !o->dotted || strchr(o->table[i].name, '.'); }

/* The name in the table that someone who wrote `name` may have meant, or NULL. A name without its
 * section ("steps") is one slip. */
static const char *nearest_row(const ls_opts *o, const char *name, bool config_only)
{
    const char *best = NULL;
    unsigned least = ls_edit_slip(name) + 1;
    for (size_t i = 0; i < o->n; i++) {
        if (config_only && !ls_opts_is_config(o, i)) continue;
        const char *full = o->table[i].name, *last = strrchr(full, '.');
        unsigned d = ls_edit_distance(name, full);
        if (last && !strchr(name, '.') && same_name(name, strlen(name), last + 1)) d = 1;
        if (d < least) {
            least = d;
            best = full;
        }
    }
    return best;
}

static ls_status failure_of(const ls_opt_source *from)
{
    return from->rank == LS_OPT_BY_FLAG ? LS_USAGE : LS_BAD_CONFIG;
}

ls_status ls_opts_unknown(const ls_opts *o, const char *name, const ls_opt_source *from)
{
    bool flag = from->rank == LS_OPT_BY_FLAG;
    const char *near = nearest_row(o, name, !flag), *dashes = flag ? "--" : "", *what = flag ? "option" : "key";
    if (near)
        return ls_fail(failure_of(from), "%sunknown %s '%s%.80s'; did you mean '%s%s'?", flag ? "" : from->where, what,
                       dashes, name, dashes, near);
    return ls_fail(failure_of(from), "%sunknown %s '%s%.80s'; %s", flag ? "" : from->where, what, dashes, name,
                   flag ? "--help lists them" : "--print-config shows all keys");
}

/* Copies a checked value into the target. `text` becomes the slot's and backs a string. */
static void store(ls_opts *o, size_t i, const ls_opt_value *v, char *text)
{
    void *field = (char *)o->target + o->table[i].offset;
    switch (o->table[i].type) {
    case LS_OPT_BOOL: *(bool *)field = v->b; break;
    case LS_OPT_INT:
    case LS_OPT_EVERY: *(int64_t *)field = v->i; break;
    case LS_OPT_DOUBLE: *(double *)field = v->d; break;
    case LS_OPT_BYTES: *(size_t *)field = v->bytes; break;
    case LS_OPT_TIME: *(uint64_t *)field = v->ns; break;
    case LS_OPT_STRING:
    case LS_OPT_CHOICE: *(const char **)field = text; break;
    case LS_OPT_INTS: *(ls_opt_ints *)field = v->ints; break;
    case LS_OPT_DOUBLES: *(ls_opt_doubles *)field = v->doubles; break;
    }
    free(o->slot[i].text);
    o->slot[i].text = text;
}

ls_status ls_opts_assign(ls_opts *o, size_t i, const char *value, const ls_opt_source *from)
{
    const ls_opt *row = &o->table[i];
    char why[400];
    ls_opt_value v = { 0 };
    bool null = from->null && row->type == LS_OPT_STRING && !row->def;

    if (from->null && !null) {
        char expected[200];
        ls_opt_expected(row, expected, sizeof expected);
        return ls_fail(failure_of(from), "%s%s: expected %s, found nothing", from->where, row->name, expected);
    }
    if (!null && !ls_opt_read(row, value, &v, why, sizeof why))
        return ls_fail(failure_of(from), "%s%s: %s", from->where, row->name, why);
    if (from->rank < o->slot[i].rank) return LS_OK; /* right, but outranked */

    char *text = null ? NULL : strdup(value), *origin = strdup(from->origin);
    if ((!null && !text) || !origin) {
        free(text);
        free(origin);
        return ls_fail(LS_NO_MEMORY, "value of %s", row->name);
    }
    store(o, i, &v, text);
    free(o->slot[i].origin);
    o->slot[i].origin = origin;
    o->slot[i].rank = from->rank;
    return LS_OK;
}

static ls_status set_default(ls_opts *o, size_t i)
{
    static const ls_opt_value zero;
    const ls_opt *row = &o->table[i];
    if (!row->def) {
        store(o, i, &zero, NULL);
        return LS_OK;
    }
    ls_opt_source from = { .rank = LS_OPT_BY_DEFAULT, .origin = "default", .where = "default of " };
    ls_status st = ls_opts_assign(o, i, row->def, &from);
    return st == LS_BAD_CONFIG ? ls_while(LS_INTERNAL, "reading an option table") : st;
}

ls_status ls_opts_create(const ls_opt *table, size_t n, void *target, ls_opts **out)
{
    *out = NULL;
    ls_opts *o = calloc(1, sizeof *o);
    if (!o || !(o->slot = calloc(n ? n : 1, sizeof *o->slot))) {
        free(o);
        return ls_fail(LS_NO_MEMORY, "%zu options", n);
    }
    o->table = table;
    o->n = n;
    o->target = target;
    for (size_t i = 0; i < n; i++) o->dotted = o->dotted || strchr(table[i].name, '.');
    for (size_t i = 0; i < n; i++) {
        ls_status st = set_default(o, i);
        if (st < 0) {
            ls_opts_destroy(o);
            return st;
        }
    }
    *out = o;
    return LS_OK;
}

void ls_opts_destroy(ls_opts *o)
{
    if (!o) return;
    for (size_t i = 0; i < o->n; i++) {
        free(o->slot[i].text);
        free(o->slot[i].origin);
    }
    free(o->slot);
    free(o->positional);
    free(o);
}

ls_status ls_opts_set(ls_opts *o, const char *name, const char *value, const char *origin)
{
    char where[256];
    ls_opt_source from = { .rank = LS_OPT_BY_FILE, .origin = origin, .where = where };
    if (strcmp(origin, "default") == 0) from.rank = LS_OPT_BY_DEFAULT;
    if (strcmp(origin, "environment") == 0) from.rank = LS_OPT_BY_ENVIRONMENT;
    if (strcmp(origin, "flag") == 0) from.rank = LS_OPT_BY_FLAG;
    if (from.rank == LS_OPT_BY_FLAG) snprintf(where, sizeof where, "--");
    else snprintf(where, sizeof where, "%s: ", origin);

    size_t i = ls_opts_find(o, name);
    return i == o->n ? ls_opts_unknown(o, name, &from) : ls_opts_assign(o, i, value, &from);
}

/* --- the command line ------------------------------------------------------------ */

static ls_status set_flag(ls_opts *o, size_t i, const char *value)
{
    ls_opt_source from = { .rank = LS_OPT_BY_FLAG, .origin = "flag", .where = "--" };
    return ls_opts_assign(o, i, value, &from);
}

/* The row whose option stands at arg, and its value if that stands in the same word. */
static ls_status match(const ls_opts *o, const char *arg, size_t *row, const char **value)
{
    *value = NULL;
    if (arg[1] != '-') {
        for (*row = 0; *row < o->n; ++*row)
            if (o->table[*row].short_name == arg[1]) {
                if (arg[2]) *value = arg + 2 + (arg[2] == '=');
                return LS_OK;
            }
        return ls_fail(LS_USAGE, "unknown option '-%c'; --help lists them", arg[1]);
    }
    char name[256];
    size_t n = strcspn(arg + 2, "=");
    if (n >= sizeof name) return ls_fail(LS_USAGE, "option '%.60s...' is too long", arg);
    memcpy(name, arg + 2, n);
    name[n] = 0;
    if (arg[2 + n] == '=') *value = arg + 2 + n + 1;
    *row = ls_opts_find(o, name);
    ls_opt_source from = { .rank = LS_OPT_BY_FLAG, .origin = "flag", .where = "--" };
    return *row == o->n ? ls_opts_unknown(o, name, &from) : LS_OK;
}

ls_status ls_opts_parse(ls_opts *o, int argc, char **argv, bool stop_at_positional, int *rest)
{
    *rest = argc;
    o->npositional = 0;
    free(o->positional);
    o->positional = calloc((size_t)(argc > 0 ? argc : 1), sizeof *o->positional);
    if (!o->positional) return ls_fail(LS_NO_MEMORY, "%d arguments", argc);

    for (int a = 1; a < argc; a++) {
        char *arg = argv[a];
        if (strcmp(arg, "--") == 0) {
            *rest = a + 1;
            return LS_OK;
        }
        if (arg[0] != '-' || arg[1] == 0) { /* "-" alone means standard input by custom */
            if (stop_at_positional) {
                *rest = a;
                return LS_OK;
            }
            o->positional[o->npositional++] = arg;
            continue;
        }
        size_t i = 0;
        const char *value;
        bool word;
        LS_TRY(match(o, arg, &i, &value));
        if (!value && o->table[i].type == LS_OPT_BOOL) {
            value = "true";
            if (a + 1 < argc && ls_opt_bool_word(argv[a + 1], &word)) value = argv[++a];
        }
        if (!value && a + 1 < argc) value = argv[++a];
        if (!value) {
            char expected[200];
            ls_opt_expected(&o->table[i], expected, sizeof expected);
            return ls_fail(LS_USAGE, "--%s: needs a value: %s", o->table[i].name, expected);
        }
        LS_TRY(set_flag(o, i, value));
    }
    return LS_OK;
}

int ls_opts_npositional(const ls_opts *o) { return o->npositional; }

const char *ls_opts_positional(const ls_opts *o, int i)
{
    return i >= 0 && i < o->npositional ? o->positional[i] : NULL;
}

bool ls_opts_is_set(const ls_opts *o, const char *name)
{
    size_t i = ls_opts_find(o, name);
    return i < o->n && o->slot[i].rank != LS_OPT_BY_DEFAULT;
}

bool ls_opts_is_default(const ls_opts *o, const char *name)
{
    const size_t i = ls_opts_find(o, name);
    if (i == o->n) return false;
    const ls_opt *row = &o->table[i];
    const void *field = (const char *)o->target + row->offset;
    ls_opt_value def = { 0 };
    char why[400];
    if (row->def && !ls_opt_read(row, row->def, &def, why, sizeof why)) return false;
    switch (row->type) {
    case LS_OPT_BOOL: return *(const bool *)field == def.b;
    case LS_OPT_INT:
    case LS_OPT_EVERY: return *(const int64_t *)field == def.i;
    case LS_OPT_DOUBLE: return *(const double *)field == def.d; /* both were read from text */
    case LS_OPT_BYTES: return *(const size_t *)field == def.bytes;
    case LS_OPT_TIME: return *(const uint64_t *)field == def.ns;
    case LS_OPT_STRING:
    case LS_OPT_CHOICE: {
        const char *text = *(const char *const *)field;
        return text && row->def ? strcmp(text, row->def) == 0 : text == row->def;
    }
    case LS_OPT_INTS: {
        const ls_opt_ints *list = field;
        return list->n == def.ints.n && memcmp(list->v, def.ints.v, (size_t)list->n * sizeof *list->v) == 0;
    }
    case LS_OPT_DOUBLES: {
        const ls_opt_doubles *list = field;
        bool same = list->n == def.doubles.n;
        for (int k = 0; same && k < list->n; k++) same = list->v[k] == def.doubles.v[k];
        return same;
    }
    }
    return false;
}

const char *ls_opts_origin(const ls_opts *o, const char *name)
{
    size_t i = ls_opts_find(o, name);
    return i < o->n && o->slot[i].origin ? o->slot[i].origin : "default";
}
