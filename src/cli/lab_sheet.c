/* lab_sheet.c -- lockstep lab 1 page --sheet: what a lab asks, on paper: its question and map, predictions, exercises
 * and quiz, and no answer. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/opts_text.h"
#include "cli/lab.h"
#include "lab/page.h"
#include "lab/quiz.h"

#define MOST_BYTES 1000000
#define MOST_WIDTH 90 /* columns of paper */

/* The part of the page from `from` to before `to`, which are headings. */
static void add_part(ls_text *md, const char *page, const char *from, const char *to)
{
    const char *start = strstr(page, from), *end = start ? strstr(start, to) : NULL;
    if (end) ls_text_addn(md, start, (size_t)(end - start));
}

static void add_options(ls_text *md, const ls_lab_pairs *options)
{
    for (size_t i = 0; i < options->n; i++) ls_text_add(md, "* [%c] %s\n", (char)('a' + (int)i), options->v[i].value);
    ls_text_add(md, "\n");
}

static void add_predictions(ls_text *md, const ls_lab *lab)
{
    ls_text_add(md, "\n## Predictions\n\nMark one option of each. `lockstep lab %s` shows which it is.\n\n", lab->number);
    for (size_t i = 0; i < lab->n; i++) {
        const ls_lab_claim *c = &lab->claims[i];
        if (!c->ask) continue;
        ls_text_add(md, "%s\n\n", c->ask);
        add_options(md, &c->options);
    }
}

static void add_quiz(ls_text *md, const ls_lab_quiz *quiz, uint64_t seed)
{
    ls_text_add(md, "## Quiz\n\nOptions in the order of seed %llu.\n\n", (unsigned long long)seed);
    for (size_t i = 0; i < quiz->n; i++) {
        const ls_lab_question *q = &quiz->question[i];
        ls_text_add(md, "%zu. %s\n\n", i + 1, q->text);
        if (q->ask == LS_LAB_NUMBER) ls_text_add(md, "Answer: ________________ %s\n\n", q->unit);
        if (q->ask == LS_LAB_ORDER || q->ask == LS_LAB_CHOICE) add_options(md, &q->options);
        if (q->ask == LS_LAB_ORDER) ls_text_add(md, "In this order: ________________\n\n");
        for (size_t k = 0; q->ask == LS_LAB_SAY && k < q->options.n; k++)
            ls_text_add(md, "* %s: ________________________________________\n", q->options.v[k].name);
    }
}

ls_status ls_cli_lab_sheet(const ls_lab_entry *e, int64_t given)
{
    const uint64_t seed = ls_cli_lab_seed(given);
    const size_t width = (size_t)ls_help_width();
    ls_text file = { 0 }, md = { 0 }, out = { 0 };
    ls_lab lab;
    ls_lab_quiz quiz = { .n = 0 };
    char *page = NULL;
    size_t n;
    ls_text_add(&file, "%s/lab.md", ls_text_str(&e->folder));
    ls_status st = ls_lab_load(ls_text_str(&e->claims), &lab);
    if (st == LS_OK) st = ls_lab_quiz_load(ls_text_str(&e->folder), &lab, &quiz);
    if (st == LS_OK) st = ls_text_status(&file);
    if (st == LS_OK) st = ls_file_read(file.p, MOST_BYTES, &page, &n);
    if (st == LS_OK) {
        ls_lab_quiz_shuffle(&quiz, seed);
        ls_text_add(&md, "# Lab %s: %s\n\nName: ______________________________\n\n", lab.number, lab.title);
        add_part(&md, page, "**Question.**", "**Mental model.**"); /* which tells what is asked below */
        add_part(&md, page, "| concept", "## 1. ");
        add_predictions(&md, &lab);
        add_part(&md, page, "## Exercises", "## Intuition");
        add_quiz(&md, &quiz, seed);
        st = ls_text_status(&md);
    }
    if (st == LS_OK) st = ls_lab_page(md.p, "", width < MOST_WIDTH ? width : MOST_WIDTH, &out);
    if (st == LS_OK) fputs(ls_text_str(&out), stdout);
    free(page);
    ls_lab_quiz_free(&quiz);
    ls_lab_free(&lab);
    ls_text_free(&out);
    ls_text_free(&md);
    ls_text_free(&file);
    return st;
}
