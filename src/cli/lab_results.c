/* lab_results.c -- lockstep lab results: what a reader has done, as text or JSON; lines from elsewhere. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/opts_text.h"
#include "cli/lab.h"
#include "lab/quiz.h"

#define LEFT 15      /* the column at which words begin */
#define NEEDED 80    /* per cent of a quiz */

/* What was done of one lab. */
typedef struct done {
    int claims, hold, red;          /* hold or are shown; of those that were tested */
    int exercises, green;
    int questions, right, missed;   /* of a quiz, those that are marked */
    int percent;                    /* of the questions; 100 without a quiz */
    bool complete;
    char seen[12];                  /* the day on which all claims held; "" */
} done;

static void count_quiz(const char *text, const ls_lab_quiz *q, done *d)
{
    ls_lab_item item;
    for (size_t i = 0; i < q->n; i++) {
        if (q->question[i].ask == LS_LAB_SAY) continue;
        ls_lab_progress_find(text, q->question[i].id, &item);
        d->questions++;
        d->right += strcmp(item.state, "right") == 0;
        d->missed += strcmp(item.state, "missed") == 0;
    }
    d->percent = d->questions ? 100 * d->right / d->questions : 100;
}

static ls_status count(const char *text, const ls_lab_entry *e, const ls_lab *lab, done *d)
{
    ls_lab_item item;
    ls_lab_quiz quiz;
    char name[64];
    *d = (done){ .exercises = ls_lab_exercises(e) };
    for (int i = 0; i <= d->exercises; i++) {
        ls_cli_lab_item(e, i, name, sizeof name);
        ls_lab_progress_find(text, name, &item);
        if (i == 0 && strcmp(item.state, "seen") == 0) memcpy(d->seen, item.date, sizeof d->seen);
        d->green += i > 0 && strcmp(item.state, "green") == 0;
    }
    for (size_t i = 0; i < lab->n; i++) {
        ls_lab_progress_find(text, lab->claims[i].id, &item);
        d->claims++;
        d->hold += strcmp(item.state, "holds") == 0 || strcmp(item.state, "shown") == 0;
        d->red += strcmp(item.state, "red") == 0;
    }
    const ls_status st = ls_lab_quiz_load(ls_text_str(&e->folder), lab, &quiz);
    if (st == LS_OK) count_quiz(text, &quiz, d);
    ls_lab_quiz_free(&quiz);
    d->complete = *d->seen && d->green == d->exercises && d->percent >= NEEDED;
    return st;
}

/* --- as text -------------------------------------------------------------------------------------------------- */

static void add(ls_text *t, const char *name, const ls_text *words)
{
    ls_text_add(t, "    %-*s", LEFT - 4, name);
    ls_text_wrap(t, ls_text_str(words), LEFT, (size_t)ls_help_width());
}

static void add_exercise(ls_text *t, const char *text, const ls_lab_entry *e, int n)
{
    ls_lab_item item;
    ls_text words = { 0 };
    char name[64], what[32];
    ls_cli_lab_item(e, n, name, sizeof name);
    ls_lab_progress_find(text, name, &item);
    ls_text_add(&words, "%s", *item.state ? item.state : "not begun");
    if (item.tries) ls_text_add(&words, ", %d tr%s", item.tries, item.tries == 1 ? "y" : "ies");
    if (item.hints) ls_text_add(&words, ", %d hint%s", item.hints, item.hints == 1 ? "" : "s");
    if (item.told) ls_text_add(&words, ", solution shown");
    if (*item.date) ls_text_add(&words, ", %s", item.date);
    snprintf(what, sizeof what, "exercise %d", n);
    add(t, what, &words);
    ls_text_free(&words);
}

static void add_text(ls_text *t, const char *text, const ls_lab_entry *e, const ls_lab *lab, const done *d)
{
    ls_text words = { 0 };
    ls_text_add(t, "%-4s", lab->number);
    ls_text_wrap(t, lab->title, 4, (size_t)ls_help_width());
    ls_text_add(&words, "%d of %d hold or are shown, %d red", d->hold, d->claims, d->red);
    if (*d->seen) ls_text_add(&words, "; all seen %s", d->seen);
    add(t, "claims", &words);
    for (int i = 1; i <= d->exercises; i++) add_exercise(t, text, e, i);
    words.n = 0;
    ls_text_add(&words, "%d of %d right (%d %%), %d missed", d->right, d->questions, d->percent, d->missed);
    if (d->questions) add(t, "quiz", &words);
    words.n = 0;
    ls_text_add(&words, "%s", d->complete ? "yes" : "no: claims seen, exercises green and 80 % of the quiz make it so");
    add(t, "complete", &words);
    ls_text_free(&words);
}

/* --- as JSON -------------------------------------------------------------------------------------------------- */

static void add_date(ls_text *t, const char *date)
{
    if (*date) ls_json_string(t, date);
    else ls_text_add(t, "null");
}

static void add_json(ls_text *t, const char *text, const ls_lab_entry *e, const ls_lab *lab, const done *d)
{
    ls_text_add(t, "{\"lab\": ");
    ls_json_string(t, lab->number);
    ls_text_add(t, ", \"title\": ");
    ls_json_string(t, lab->title);
    ls_text_add(t, ", \"claims\": {\"n\": %d, \"hold\": %d, \"red\": %d, \"all_seen\": ", d->claims, d->hold, d->red);
    add_date(t, d->seen);
    ls_text_add(t, "}, \"exercises\": [");
    for (int i = 1; i <= d->exercises; i++) {
        ls_lab_item item;
        char name[64];
        ls_cli_lab_item(e, i, name, sizeof name);
        ls_lab_progress_find(text, name, &item);
        ls_text_add(t, "%s{\"id\": \"%s\", \"state\": ", i > 1 ? ", " : "", name);
        add_date(t, item.state);
        ls_text_add(t, ", \"date\": ");
        add_date(t, item.date);
        ls_text_add(t, ", \"tries\": %d, \"hints\": %d, \"solution_shown\": %s}", item.tries, item.hints, item.told ? "true" : "false");
    }
    ls_text_add(t, "], \"quiz\": {\"n\": %d, \"right\": %d, \"missed\": %d, \"percent\": %d}, \"complete\": %s}", d->questions,
                d->right, d->missed, d->percent, d->complete ? "true" : "false");
}

/* --- the commands --------------------------------------------------------------------------------------------- */

ls_status ls_cli_lab_results(const ls_lab_shelf *s, bool json)
{
    ls_text path = { 0 }, t = { 0 };
    char *text = NULL;
    int complete = 0;
    ls_status st = ls_cli_lab_progress_path(&path);
    if (st == LS_OK) st = ls_lab_progress_text(path.p, &text);
    if (json) ls_text_add(&t, "{\"lockstep_lab_results\": 1, \"labs\": [");
    for (int i = 0; st == LS_OK && i < s->n; i++) {
        ls_lab lab;
        done d;
        st = ls_lab_load(ls_text_str(&s->entry[i].claims), &lab);
        if (st == LS_OK) st = count(text, &s->entry[i], &lab, &d);
        if (st == LS_OK && json && i > 0) ls_text_add(&t, ", ");
        if (st == LS_OK) (json ? add_json : add_text)(&t, text, &s->entry[i], &lab, &d);
        complete += st == LS_OK && d.complete;
        ls_lab_free(&lab);
    }
    if (json) ls_text_add(&t, "], \"complete\": %d}\n", complete);
    else ls_text_add(&t, "%d of %d labs are complete.\n", complete, s->n);
    if (st == LS_OK) st = ls_text_status(&t);
    if (st == LS_OK) fputs(ls_text_str(&t), stdout);
    free(text);
    ls_text_free(&t);
    ls_text_free(&path);
    return st;
}

ls_status ls_cli_lab_import(const char *from)
{
    ls_text path = { 0 };
    int items;
    ls_status st = ls_cli_lab_progress_path(&path);
    if (st == LS_OK) st = ls_lab_progress_import(path.p, from, &items);
    if (st == LS_OK) printf("%s: now has what %d line%s of %s say%s\n", path.p, items, items == 1 ? "" : "s", from, items == 1 ? "s" : "");
    ls_text_free(&path);
    return st;
}
