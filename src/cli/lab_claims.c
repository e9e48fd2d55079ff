/* lab_claims.c -- the claims of a lab: asked about, tested, printed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/env.h"
#include "base/opts_text.h"
#include "cli/lab.h"

#define MOST_ASKED 5 /* predictions of one lab */
#define LEFT 15      /* the column at which words begin */

/* Whether --claim names this one. */
static bool wanted(const ls_lab *lab, const char *list, const ls_lab_claim *c)
{
    char id[64];
    if (!*list) return true;
    for (const char *p = list; *p; p += strcspn(p, ","), p += *p == ',') {
        const ls_lab_claim *named;
        snprintf(id, sizeof id, "%.*s", (int)strcspn(p, ","), p);
        if (ls_lab_find(lab, id, &named) == LS_OK && named == c) return true;
    }
    return false;
}

/* Every id of --claim is one of the lab's. */
static ls_status check_list(const ls_lab *lab, const char *list)
{
    const ls_lab_claim *unused;
    char id[64];
    for (const char *p = list; *p; p += strcspn(p, ","), p += *p == ',') {
        snprintf(id, sizeof id, "%.*s", (int)strcspn(p, ","), p);
        LS_TRY(ls_lab_find(lab, id, &unused));
    }
    return LS_OK;
}

static ls_lab_place place_of(const ls_lab_entry *e, const ls_stop *stop)
{
    return (ls_lab_place){ .folder = ls_text_str(&e->folder), .stop = stop,
                           .programs = e->programs.n ? ls_text_str(&e->programs) : NULL };
}

/* --- printing ------------------------------------------------------------------------------------------ */

/* Columns of lines: of a terminal, else wide enough to be searched line by line. */
static size_t width(void) { return (size_t)ls_help_width(); }

/* A line with a name and words, below that of the claim. */
static void add_named(ls_text *t, const char *name, const char *words)
{
    ls_text_add(t, "      %-*s", LEFT - 6, name);
    ls_text_wrap(t, words, LEFT, width());
}

static void print_title(const ls_lab *lab)
{
    ls_text t = { 0 };
    ls_text title = { 0 };
    ls_text_add(&title, "%s (%zu min)", lab->title, lab->minutes);
    ls_text_add(&t, "Lab %s  ", lab->number);
    ls_text_wrap(&t, ls_text_str(&title), 8, width());
    fputs(ls_text_str(&t), stdout);
    fflush(stdout);
    ls_text_free(&title);
    ls_text_free(&t);
}

static const char *mark_of(const ls_lab_claim *c, bool holds)
{
    return !holds ? " RED" : c->kind == LS_LAB_SHOWN ? " see" : "  ok";
}

static void print_claim(const ls_lab_place *place, const ls_lab_claim *c, const ls_lab_outcome *o, bool rows)
{
    ls_text t = { 0 }, words = { 0 };
    ls_text_add(&t, "%s  %-*s", mark_of(c, o->holds), LEFT - 6, c->id);
    ls_text_wrap(&t, c->says, LEFT, width());
    ls_text_add(&words, "%s", o->why.n ? ls_text_str(&o->why) : ls_text_str(&o->shown));
    if (!o->why.n && c->unit) ls_text_add(&words, " %s", c->unit);
    if (c->kind == LS_LAB_SHOWN || c->kind == LS_LAB_TIMED) {
        char host[128] = "";
        (void)ls_env_get()->hostname(host, sizeof host);
        if (!o->why.n) ls_text_add(&words, " (measured on %s)", host);
    }
    if (!o->why.n && c->tolerance > 0.0 && strstr(c->expect, "==")) ls_text_add(&words, " (within %g)", c->tolerance);
    for (size_t i = 0; rows && i < c->rows.n; i++) ls_text_add(&words, "%s%s", i ? ", " : " [", c->rows.v[i].value);
    if (rows && c->rows.n) ls_text_add(&words, "]");
    add_named(&t, "", ls_text_str(&words));
    if (!o->why.n && c->expect) add_named(&t, "compare", c->expect); /* the numbers have names there */
    add_named(&t, "why", c->why);
    for (size_t i = 0; i < c->run.n && !o->holds; i++) {
        words.n = 0;
        ls_lab_repeat(place, c->run.v[i].value, &words);
        ls_text_add(&t, "      %-*s%s\n", LEFT - 6, i ? "" : "repeat", ls_text_str(&words));
    }
    fputs(ls_text_str(&t), stdout);
    fflush(stdout);
    ls_text_free(&words);
    ls_text_free(&t);
}

static void print_control(const ls_lab_outcome *o, bool red)
{
    ls_text t = { 0 }, words = { 0 };
    ls_text_add(&words, "%s%s%s", o->why.n ? ls_text_str(&o->why) : ls_text_str(&o->shown), red ? "" : ": ",
                red ? ", so the comparison can fail" : o->why.n ? "the run has no result, so nothing was compared"
                                                                : "the comparison should fail in this run, and does not");
    ls_text_add(&t, "%s  %-*s", red ? "  ok" : " RED", LEFT - 6, "control");
    ls_text_wrap(&t, ls_text_str(&words), LEFT, width());
    fputs(ls_text_str(&t), stdout);
    fflush(stdout);
    ls_text_free(&words);
    ls_text_free(&t);
}

static void add_json(const ls_lab_claim *c, const ls_lab_outcome *o, ls_text *x)
{
    static const char *const kinds[] = { "exact", "numeric", "virtual", "timed", "shown" };
    ls_text_add(x, "{\"id\": ");
    ls_json_string(x, c->id);
    ls_text_add(x, ", \"says\": ");
    ls_json_string(x, c->says);
    ls_text_add(x, ", \"kind\": \"%s\", \"holds\": %s, \"values\": ", kinds[c->kind], o->holds ? "true" : "false");
    ls_json_string(x, ls_text_str(&o->shown));
    ls_text_add(x, ", \"expect\": ");
    if (c->expect) ls_json_string(x, c->expect);
    else ls_text_add(x, "null");
    ls_text_add(x, ", \"unit\": ");
    if (c->unit) ls_json_string(x, c->unit);
    else ls_text_add(x, "null");
    ls_text_add(x, ", \"error\": ");
    if (o->why.n) ls_json_string(x, ls_text_str(&o->why));
    else ls_text_add(x, "null");
    ls_text_add(x, ", \"rows\": [");
    for (size_t i = 0; i < c->rows.n; i++) {
        ls_text_add(x, "%s", i ? ", " : "");
        ls_json_string(x, c->rows.v[i].value);
    }
    ls_text_add(x, "]");
}

static void add_json_control(const ls_lab_outcome *o, bool red, ls_text *x)
{
    ls_text_add(x, ", \"control\": {\"fails\": %s, \"values\": ", red ? "true" : "false");
    ls_json_string(x, ls_text_str(&o->shown));
    ls_text_add(x, "}");
}

/* --- predictions ----------------------------------------------------------------------------------------- */

/* Asks on a terminal. An empty line, or the end of the input, skips: *chosen is -1 then, otherwise an option. */
static ls_status ask(const ls_lab_claim *c, const ls_stop *stop, int *chosen)
{
    bool over;
    ls_text t = { 0 }, words = { 0 };
    ls_text_add(&words, "%s", c->ask);
    for (size_t i = 0; i < c->options.n; i++) ls_text_add(&words, "  [%c] %s", (char)('a' + (int)i), c->options.v[i].value);
    ls_text_add(&t, "predict        ");
    ls_text_wrap(&t, ls_text_str(&words), LEFT, width());
    printf("%s%*s> ", ls_text_str(&t), LEFT - 2, "");
    fflush(stdout);
    ls_text_free(&words);
    ls_text_free(&t);
    return ls_cli_lab_letter(stop, c->options.n, LEFT, chosen, &over);
}

/* Marks a prediction, above the claim that shows which option it is. */
static void mark(const ls_lab_claim *c, int chosen, bool holds, ls_lab_sums *sums)
{
    ls_text t = { 0 }, words = { 0 };
    const bool right = chosen + 1 == (int)c->right;
    if (!holds) ls_text_add(&words, "no answer counts: claim %s does not hold on this machine", c->id);
    else if (right) ls_text_add(&words, "as claim %s shows:", c->id);
    else ls_text_add(&words, "it is [%c] %s, as claim %s shows:", (char)('a' + (int)c->right - 1), c->options.v[c->right - 1].value, c->id);
    ls_text_add(&t, "%-*s", LEFT, !holds ? "not marked" : right ? "right" : "wrong");
    ls_text_wrap(&t, ls_text_str(&words), LEFT, width());
    fputs(ls_text_str(&t), stdout);
    sums->asked += holds;
    sums->right += holds && right;
    ls_text_free(&words);
    ls_text_free(&t);
}

/* --- a lab --------------------------------------------------------------------------------------------------- */

static ls_status test_control(ls_lab_runner *r, const ls_lab *lab, const ls_lab_claim *c, const ls_lab_way *way,
                              ls_lab_sums *sums, ls_text *json)
{
    ls_lab_outcome o;
    if (!way->control || c->control.n == 0) return LS_OK;
    const ls_status st = ls_lab_test(r, lab, c, true, &o);
    const bool red = !o.holds && !o.why.n; /* a run that breaks shows nothing */
    if (st == LS_OK && json) add_json_control(&o, red, json);
    if (st == LS_OK && !json) print_control(&o, red);
    sums->controls++;
    sums->red += red;
    ls_lab_outcome_free(&o);
    return st;
}

static ls_status test(ls_lab_runner *r, const ls_lab_place *place, const ls_lab *lab, const ls_lab_claim *c,
                      const ls_lab_way *way, int *questions, ls_lab_sums *sums, ls_lab_seen *seen, ls_text *json)
{
    ls_lab_outcome o;
    int chosen = -1;
    if (way->ask && c->ask && *questions < MOST_ASKED) {
        ++*questions;
        LS_TRY(ask(c, way->stop, &chosen));
    }
    ls_status st = ls_lab_test(r, lab, c, false, &o);
    if (st == LS_OK && chosen >= 0) mark(c, chosen, o.holds, sums);
    if (st == LS_OK && json) add_json(c, &o, json);
    if (st == LS_OK && !json) print_claim(place, c, &o, way->rows);
    const bool asserted = c->kind != LS_LAB_SHOWN || !o.holds; /* what cannot even be shown is red */
    sums->claims += asserted;
    sums->hold += asserted && o.holds;
    sums->shown += !asserted;
    *seen = (ls_lab_seen){ .id = c->id, .holds = o.holds, .asserted = c->kind != LS_LAB_SHOWN };
    ls_text_add(&seen->values, "%s", o.why.n ? ls_text_str(&o.why) : ls_text_str(&o.shown));
    ls_lab_outcome_free(&o);
    if (st == LS_OK) st = test_control(r, lab, c, way, sums, json);
    if (st == LS_OK && json) ls_text_add(json, "}");
    return st;
}

ls_status ls_cli_lab_claims(const ls_lab_entry *e, const ls_lab_way *way, ls_lab_sums *sums, ls_text *json_out)
{
    const ls_lab_place place = place_of(e, way->stop);
    ls_lab_runner *r = NULL;
    ls_lab lab;
    bool any = false;
    int questions = 0;
    size_t tested = 0;
    ls_lab_seen seen[LS_LAB_MAX_CLAIMS] = { { 0 } };
    ls_text *json = way->json ? json_out : NULL;
    ls_status st = ls_lab_load(ls_text_str(&e->claims), &lab);
    if (st == LS_OK) st = check_list(&lab, way->claims);
    if (st == LS_OK) st = ls_lab_runner_open(&place, &r);
    if (st == LS_OK && !json) print_title(&lab);
    if (st == LS_OK && json) {
        ls_text_add(json, "{\"lab\": ");
        ls_json_string(json, lab.number);
        ls_text_add(json, ", \"title\": ");
        ls_json_string(json, lab.title);
        ls_text_add(json, ", \"claims\": [");
    }
    for (size_t i = 0; st == LS_OK && i < lab.n; i++) {
        if (!wanted(&lab, way->claims, &lab.claims[i])) continue;
        if (json && any) ls_text_add(json, ", ");
        any = true;
        st = test(r, &place, &lab, &lab.claims[i], way, &questions, sums, &seen[tested], json);
        tested += st == LS_OK;
    }
    if (st == LS_OK && json) ls_text_add(json, "]}");
    bool hold = tested == lab.n;
    for (size_t i = 0; i < tested; i++) hold = hold && seen[i].holds;
    if (st == LS_OK && tested) ls_cli_lab_seen(e, seen, tested, hold);
    for (size_t i = 0; i < LS_LAB_MAX_CLAIMS; i++) ls_text_free(&seen[i].values);
    ls_lab_runner_close(r);
    ls_lab_free(&lab);
    return st;
}

ls_status ls_cli_lab_commands(const ls_lab_entry *e, const ls_lab_way *way)
{
    const ls_lab_place place = place_of(e, NULL);
    ls_lab lab;
    ls_text t = { 0 };
    ls_status st = ls_lab_load(ls_text_str(&e->claims), &lab);
    if (st == LS_OK) st = check_list(&lab, way->claims);
    for (size_t i = 0; st == LS_OK && i < lab.n; i++) {
        const ls_lab_claim *c = &lab.claims[i];
        if (!wanted(&lab, way->claims, c)) continue;
        for (int control = 0; control < 1 + way->control; control++) {
            const ls_lab_pairs *p = control ? &c->control : &c->run;
            for (size_t k = 0; k < p->n; k++) {
                ls_text_add(&t, "%s %s%s: ", c->id, control ? "control " : "", p->v[k].name);
                ls_lab_repeat(&place, p->v[k].value, &t);
                ls_text_add(&t, "\n");
            }
        }
    }
    if (st == LS_OK) st = ls_text_status(&t);
    if (st == LS_OK) fputs(ls_text_str(&t), stdout);
    ls_text_free(&t);
    ls_lab_free(&lab);
    return st;
}
