/* fig.c -- requests: words read, checked and answered. */
#include "fig/fig.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "fig/svg.h"
#include "lockstep/opts.h"

typedef enum format { TEXT, SVG, JSON, PAGE, FORMATS } format;
static const char *const format_name[FORMATS] = { "--text", "--svg", "--json", "--page" };

const ls_figure *const ls_figures[] = {
    &ls_figure_schedule, &ls_figure_winner, &ls_figure_buckets, &ls_figure_sampler, &ls_figure_ledger,
    &ls_figure_pipeline, NULL,
};

#define MOST_WORD 64

typedef struct request {
    const ls_figure *fig; /* NULL: list */
    format format;
    ls_fig_value value[LS_FIG_MAX_CONTROLS];
    bool set[LS_FIG_MAX_CONTROLS];
    char shown[LS_FIG_MAX_CONTROLS][MOST_WORD]; /* values as they were given */
} request;

static int ncontrols(const ls_figure *f)
{
    int n = 0;
    while (f->control[n].name) n++;
    return n;
}

/* The next word of *p into `word`; false: there is none. LS_USAGE: it is too long. */
static ls_status next_word(const char **p, char word[MOST_WORD], bool *there)
{
    const char *s = *p + strspn(*p, " \t\r\n");
    const size_t n = strcspn(s, " \t\r\n");
    *there = n > 0;
    if (n >= MOST_WORD) return ls_fail(LS_USAGE, "a word of %zu bytes in a figure's request: expected at most %d", n, MOST_WORD - 1);
    memcpy(word, s, n);
    word[n] = 0;
    ls_text_printable(word);
    *p = s + n;
    return LS_OK;
}

static ls_status unknown(const char *what, const char *word, const char *const *names, size_t n)
{
    const char *near = ls_nearest(word, names, n);
    if (near) return ls_fail(LS_USAGE, "no %s named '%s'; did you mean '%s'?", what, word, near);
    ls_text all = { 0 };
    for (size_t i = 0; i < n; i++) ls_text_add(&all, "%s%s", i ? ", " : "", names[i]);
    const ls_status st = ls_fail(LS_USAGE, "no %s named '%s': expected one of %s", what, word, ls_text_str(&all));
    ls_text_free(&all);
    return st;
}

static ls_status find(const char *word, const ls_figure **out)
{
    const char *names[16];
    size_t n = 0;
    for (; ls_figures[n]; n++) {
        names[n] = ls_figures[n]->name;
        *out = ls_figures[n];
        if (strcmp(word, names[n]) == 0) return LS_OK;
    }
    *out = NULL;
    if (strcmp(word, "list") == 0) return LS_OK;
    names[n++] = "list";
    return unknown("figure", word, names, n);
}

/* --- values ------------------------------------------------------------------------------------------------------ */

static ls_status read_number(const ls_fig_control *c, const char *text, double *out)
{
    char *end = NULL;
    const bool digits = *text && text[strspn(text, "0123456789.eE+-")] == 0;
    const double v = digits ? strtod(text, &end) : 0.0;
    if (!digits || *end || !isfinite(v) || v < c->least || v > c->most || (c->whole && floor(v) < v))
        return ls_fail(LS_USAGE, "%s=%s: expected a %s from %.10g to %.10g", c->name, text, c->whole ? "whole number" : "number",
                       c->least, c->most);
    *out = v + 0.0;
    return LS_OK;
}

static ls_status read_word(const ls_fig_control *c, const char *text, int *out)
{
    const size_t n = strlen(text);
    int k = 0;
    for (const char *w = c->words;; k++) {
        const size_t len = strcspn(w, "|");
        if (len == n && memcmp(w, text, n) == 0) break;
        if (!w[len]) return ls_fail(LS_USAGE, "%s=%s: expected one of %s", c->name, text, c->words);
        w += len + 1;
    }
    *out = k;
    return LS_OK;
}

static ls_status set_value(request *r, int i, const char *text)
{
    const ls_fig_control *c = &r->fig->control[i];
    snprintf(r->shown[i], sizeof r->shown[i], "%s", text);
    if (c->words) return read_word(c, text, &r->value[i].word);
    return read_number(c, text, &r->value[i].number);
}

/* "key=value". `given`: by the request itself, which may say it once. */
static ls_status assign(request *r, const char *word, bool given)
{
    const char *names[LS_FIG_MAX_CONTROLS + 1], *equals = strchr(word, '=');
    char key[MOST_WORD];
    const int n = ncontrols(r->fig);
    if (!equals) return ls_fail(LS_USAGE, "'%s': expected key=value, --text, --svg or --json", word);
    snprintf(key, sizeof key, "%.*s", (int)(equals - word), word);
    for (int i = 0; i < n; i++) {
        names[i] = r->fig->control[i].name;
        if (strcmp(key, names[i]) != 0) continue;
        if (given && r->set[i]) return ls_fail(LS_USAGE, "%s is there twice", key);
        if (!given && r->set[i]) return LS_OK; /* the request wins over its preset */
        r->set[i] = given;
        return set_value(r, i, equals + 1);
    }
    names[n] = "preset";
    return unknown("control", key, names, (size_t)n + 1);
}

static ls_status apply_preset(request *r, const char *name)
{
    const char *names[16];
    size_t n = 0;
    const ls_fig_preset *p = r->fig->preset;
    for (; p->name && strcmp(p->name, name) != 0; p++) names[n++] = p->name;
    if (!p->name) return unknown("preset", name, names, n);
    char word[MOST_WORD];
    bool there = true;
    for (const char *s = p->set; there;) {
        LS_TRY(next_word(&s, word, &there));
        if (there) LS_TRY(assign(r, word, false));
    }
    return LS_OK;
}

/* --- requests ---------------------------------------------------------------------------------------------------- */

static ls_status read_rest(request *r, const char *p)
{
    char word[MOST_WORD], preset[MOST_WORD] = "";
    bool there = true, formatted = false;
    while (there) {
        LS_TRY(next_word(&p, word, &there));
        if (!there) break;
        int f = 0;
        while (f < FORMATS && strcmp(word, format_name[f]) != 0) f++;
        if (f < FORMATS) {
            if (formatted) return ls_fail(LS_USAGE, "%s: there is a form already: expected one of --text, --svg and --json", word);
            formatted = true;
            r->format = (format)f;
        } else if (!r->fig) {
            return ls_fail(LS_USAGE, "list %s: expected --text or --json", word);
        } else if (strncmp(word, "preset=", 7) == 0) {
            if (*preset) return ls_fail(LS_USAGE, "preset is there twice");
            if (!word[7]) return ls_fail(LS_USAGE, "preset=: expected a name");
            snprintf(preset, sizeof preset, "%s", word + 7);
        } else {
            LS_TRY(assign(r, word, true));
        }
    }
    if (!r->fig && r->format != TEXT && r->format != JSON)
        return ls_fail(LS_USAGE, "list %s: expected --text or --json", format_name[r->format]);
    return *preset ? apply_preset(r, preset) : LS_OK;
}

static ls_status read_request(const char *text, request *out)
{
    char word[MOST_WORD];
    bool there;
    const size_t n = strlen(text);
    *out = (request){ 0 };
    if (n > LS_FIG_MAX_REQUEST)
        return ls_fail(LS_USAGE, "a figure's request of %zu bytes: expected at most %d", n, LS_FIG_MAX_REQUEST);
    LS_TRY(next_word(&text, word, &there));
    if (!there) return ls_fail(LS_USAGE, "an empty request: expected a figure's name, or list");
    LS_TRY(find(word, &out->fig));
    for (int i = 0; out->fig && i < ncontrols(out->fig); i++) LS_TRY(set_value(out, i, out->fig->control[i].def));
    return read_rest(out, text);
}

/* --- answers ----------------------------------------------------------------------------------------------------- */

static void list_text(ls_text *out)
{
    for (int f = 0; ls_figures[f]; f++) {
        const ls_figure *a = ls_figures[f];
        ls_text_add(out, "%s%s: %s\n    %s\n", f ? "\n" : "", a->name, a->title, a->caption);
        for (const ls_fig_control *c = a->control; c->name; c++) {
            ls_text_add(out, "  %-10s %-6s  %s", c->name, c->def, c->label);
            if (c->words) ls_text_add(out, ": %s\n", c->words);
            else ls_text_add(out, ": %.10g to %.10g\n", c->least, c->most);
        }
        for (const ls_fig_preset *p = a->preset; p->name; p++) ls_text_add(out, "  preset=%-16s %s\n", p->name, p->point);
    }
}

static void member(ls_text *out, const char *name, const char *value, bool more)
{
    ls_text_add(out, "\"%s\": ", name);
    ls_json_string(out, value);
    ls_text_add(out, more ? ", " : "");
}

static void control_json(const ls_fig_control *c, const char *value, ls_text *out)
{
    ls_text_add(out, "{");
    member(out, "name", c->name, true);
    member(out, "label", c->label, true);
    member(out, "value", value, true);
    if (c->words) member(out, "words", c->words, false);
    else {
        ls_text_add(out, "\"least\": ");
        ls_fig_digits(out, c->least);
        ls_text_add(out, ", \"most\": ");
        ls_fig_digits(out, c->most);
        ls_text_add(out, ", \"whole\": %s", c->whole ? "true" : "false");
    }
    ls_text_add(out, "}");
}

/* What a page needs to show controls; `shown`: values of a request, NULL: the first ones. */
static void describe_json(const ls_figure *a, const char (*shown)[MOST_WORD], ls_text *out)
{
    member(out, "figure", a->name, true);
    member(out, "title", a->title, true);
    member(out, "caption", a->caption, true);
    ls_text_add(out, "\n\"controls\": [");
    for (int i = 0; i < ncontrols(a); i++) {
        ls_text_add(out, "%s", i ? ",\n" : "");
        control_json(&a->control[i], shown ? shown[i] : a->control[i].def, out);
    }
    ls_text_add(out, "],\n\"presets\": [");
    for (const ls_fig_preset *p = a->preset; p->name; p++) {
        ls_text_add(out, "%s{", p == a->preset ? "" : ",\n");
        member(out, "name", p->name, true);
        member(out, "set", p->set, true);
        member(out, "point", p->point, false);
        ls_text_add(out, "}");
    }
    ls_text_add(out, "]");
}

static void list(format f, ls_text *out)
{
    if (f == TEXT) {
        list_text(out);
        return;
    }
    ls_text_add(out, "{\"figures\": [");
    for (int i = 0; ls_figures[i]; i++) {
        ls_text_add(out, "%s{", i ? ",\n" : "");
        describe_json(ls_figures[i], NULL, out);
        ls_text_add(out, "}");
    }
    ls_text_add(out, "]}\n");
}

static void write_svg(const request *r, const ls_fig_page *p, ls_text *out)
{
    ls_svg_begin(out, r->fig->name, p->width, p->height, r->fig->title, ls_text_str(&p->sentence));
    ls_text_addn(out, ls_text_str(&p->shapes), p->shapes.n);
    ls_svg_end(out);
}

static void write_text(const request *r, const ls_fig_page *p, ls_text *out)
{
    ls_text_add(out, "%s\n\n%s\n\n", r->fig->title, ls_text_str(&p->sentence));
    ls_text_addn(out, ls_text_str(&p->drawing), p->drawing.n);
    ls_text_add(out, "\n");
    ls_fig_table_text(p, out);
}

/* A member whose value is another form. */
typedef void writer(const request *r, const ls_fig_page *p, ls_text *out);
static void form_json(const char *name, writer *write, const request *r, const ls_fig_page *p, ls_text *out)
{
    ls_text form = { 0 };
    write(r, p, &form);
    ls_text_add(out, ",\n");
    member(out, name, ls_text_str(&form), false);
    out->failed = out->failed || form.failed;
    ls_text_free(&form);
}

static void write_json(const request *r, const ls_fig_page *p, ls_text *out)
{
    ls_text_add(out, "{");
    describe_json(r->fig, r->shown, out);
    ls_text_add(out, ",\n");
    member(out, "sentence", ls_text_str(&p->sentence), true);
    ls_text_add(out, "\n\"facts\": ");
    ls_fig_facts_json(p, out);
    ls_text_add(out, ",\n\"table\": ");
    ls_fig_table_json(p, out);
    if (r->format == PAGE) {
        form_json("svg", write_svg, r, p, out);
        form_json("text", write_text, r, p, out);
    }
    ls_text_add(out, "}\n");
}

ls_status ls_fig_answer(const char *text, ls_text *out)
{
    request r;
    ls_fig_page page = { 0 };
    ls_status st = read_request(text, &r);
    if (st == LS_OK && !r.fig) list(r.format, out);
    if (st == LS_OK && r.fig) {
        st = r.fig->make(r.value, &page);
        const bool failed = page.failed || page.sentence.failed || page.drawing.failed || page.shapes.failed;
        if (st == LS_OK && failed) st = ls_fail(LS_NO_MEMORY, "figure %s", r.fig->name);
        writer *const write = r.format == SVG ? write_svg : r.format == TEXT ? write_text : write_json;
        if (st == LS_OK) write(&r, &page, out);
        ls_fig_page_free(&page);
    }
    return st == LS_OK ? ls_text_status(out) : st;
}

char *ls_fig_request(const char *text)
{
    ls_text out = { 0 };
    ls_text_add(&out, "ok\n");
    const ls_status st = ls_fig_answer(text, &out);
    if (st == LS_OK) return out.p;
    ls_text_free(&out);
    ls_text_add(&out, "error[%s]: %s\n", ls_status_word(st), ls_last_error());
    if (out.failed) ls_text_free(&out);
    return out.p;
}
