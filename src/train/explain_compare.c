/* explain_compare.c -- two plans, or runs, side by side. */
#include "train/explain_compare.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/memory_units.h"

#define ROWS  64
#define WORDS 96

typedef struct row {
    char what[48], value[2][WORDS];
} row;

typedef struct rows {
    row row[ROWS];
    int n;
} rows;

/* --- what is compared  -------------------------------------------------------------------------------------- */

static void LS_PRINTF(4, 5) add(rows *t, const char *what, int side, const char *fmt, ...)
{
    va_list args;
    int i = 0;
    while (i < t->n && strcmp(t->row[i].what, what) != 0) i++;
    if (i == ROWS) return;
    if (i == t->n) {
        t->row[t->n++] = (row){ .value = { "-", "-" } };
        snprintf(t->row[i].what, sizeof t->row[i].what, "%s", what);
    }
    va_start(args, fmt);
    vsnprintf(t->row[i].value[side], WORDS, fmt, args);
    va_end(args);
}

static void add_axes(rows *t, int side, const ls_explain_layout *l)
{
    char axes[WORDS], what[48];
    uint64_t calls[LS_AXES + 1] = { 0 }, moved[LS_AXES + 1] = { 0 };
    const ls_explain_rank *r = &l->rank[0];
    add(t, "ranks", side, "%d", l->size);
    add(t, "axes", side, "%s", ls_explain_axes(l, axes, sizeof axes));
    add(t, "samples of a micro-batch", side, "%lld", (long long)l->micro);
    add(t, "micro-batches per rank and step", side, "%d", l->plan.micro_batches);
    for (int i = 0; i < r->ncalls; i++) {
        const int a = ls_explain_axis(&r->calls[i]);
        calls[a] += r->calls[i].calls;
        moved[a] += r->calls[i].moved;
    }
    for (int a = 0; a <= LS_AXES; a++) {
        if (calls[a] == 0) continue;
        const char *name = a == LS_AXES ? "the step itself" : ls_axis_name((ls_axis)a);
        snprintf(what, sizeof what, "calls per step: %s", name);
        add(t, what, side, "%llu", (unsigned long long)calls[a]);
        snprintf(what, sizeof what, "bytes moved per step: %s", name);
        add(t, what, side, "%llu%s", (unsigned long long)moved[a], a == LS_AXIS_EP ? " at most" : "");
    }
}

static void add_pipe(rows *t, int side, const ls_explain_pipe *p)
{
    if (p->ranks == 0) return;
    add(t, "bubble", side, "%.1f %%", 100 * p->bubble);
    add(t, "micro-batches alive, first stage", side, "%d", p->alive[0]);
}

static void add_memory(rows *t, int side, const ls_explain_layout *l)
{
    char what[48];
    for (int k = 0; k < LS_MEM_KINDS; k++) {
        if (l->rank[0].plan.bytes[k] == 0) continue;
        snprintf(what, sizeof what, "bytes of %s", ls_memory_kind_name(k));
        add(t, what, side, "%zu", l->rank[0].plan.bytes[k]);
    }
    add(t, "bytes of memory", side, "%zu", l->rank[0].plan.total);
}

static void add_run(rows *t, int side, const ls_run_counters *k)
{
    if (!k) return;
    add(t, "bytes counted per step", side, "%llu", (unsigned long long)k->bytes);
    add(t, "ms per step", side, "%.3g", 1e3 * k->seconds);
    add(t, "ms per step that rank 0 waits", side, "%.3g", 1e3 * k->exposed_s);
}

/* Keys that say where a run is, and not what it does. */
static bool names_it(const char *key) { return strncmp(key, "run.", 4) == 0 || strncmp(key, "log.", 4) == 0; }

static ls_status add_keys(rows *t, const ls_explain_side *a, const ls_explain_side *b)
{
    for (size_t i = 0; i < ls_train_nopts; i++) {
        const char *key = ls_train_opts[i].name;
        if (!strchr(key, '.') || names_it(key)) continue;
        char *x = ls_opts_value(a->opts, key), *y = ls_opts_value(b->opts, key);
        const ls_status st = x && y ? LS_OK : ls_fail(LS_NO_MEMORY, "the value of %s", key);
        if (st == LS_OK && strcmp(x, y) != 0) {
            add(t, key, 0, "%s", x);
            add(t, key, 1, "%s", y);
        }
        free(x);
        free(y);
        LS_TRY(st);
    }
    return LS_OK;
}

/* --- as text, as JSON  -------------------------------------------------------------------------------------- */

static bool differs(const row *r) { return strcmp(r->value[0], r->value[1]) != 0; }

static void add_rows(const rows *t, bool different, ls_text *out)
{
    for (int i = 0; i < t->n; i++)
        if (differs(&t->row[i]) == different)
            ls_text_add(out, "  %-34s %-36s %s\n", t->row[i].what, t->row[i].value[0], t->row[i].value[1]);
}

static void add_text(const rows *t, const ls_explain_side *a, const ls_explain_side *b, ls_text *out)
{
    int n = 0;
    for (int i = 0; i < t->n; i++) n += differs(&t->row[i]);
    ls_text_add(out, "%-36s %-36s %s\n", n ? "different (rank 0)" : "nothing differs", a->name, b->name);
    add_rows(t, true, out);
    ls_text_add(out, "the same\n");
    add_rows(t, false, out);
}

static void add_list(const rows *t, bool different, ls_text *out)
{
    const char *comma = "";
    for (int i = 0; i < t->n; i++) {
        if (differs(&t->row[i]) != different) continue;
        ls_text_add(out, "%s\n  {\"what\": ", comma);
        ls_json_string(out, t->row[i].what);
        ls_text_add(out, ", \"a\": ");
        ls_json_string(out, t->row[i].value[0]);
        ls_text_add(out, ", \"b\": ");
        ls_json_string(out, t->row[i].value[1]);
        ls_text_add(out, "}");
        comma = ",";
    }
}

static void add_json(const rows *t, const ls_explain_side *a, const ls_explain_side *b, ls_text *out)
{
    ls_text_add(out, "{\"a\": ");
    ls_json_string(out, a->name);
    ls_text_add(out, ", \"b\": ");
    ls_json_string(out, b->name);
    ls_text_add(out, ", \"different\": [");
    add_list(t, true, out);
    ls_text_add(out, "], \"same\": [");
    add_list(t, false, out);
    ls_text_add(out, "]}\n");
}

ls_status ls_explain_compare(const ls_explain_side *a, const ls_explain_side *b, bool json, ls_text *out)
{
    rows *t = calloc(1, sizeof *t);
    ls_status st = t ? LS_OK : ls_fail(LS_NO_MEMORY, "a table of two plans");
    for (int side = 0; st == LS_OK && side < 2; side++) {
        const ls_explain_side *s = side ? b : a;
        add_axes(t, side, s->l);
        add_pipe(t, side, &s->l->pipe);
        add_memory(t, side, s->l);
        add_run(t, side, s->k);
    }
    if (st == LS_OK) st = add_keys(t, a, b);
    if (st == LS_OK && json) add_json(t, a, b, out);
    if (st == LS_OK && !json) add_text(t, a, b, out);
    free(t);
    return st;
}
