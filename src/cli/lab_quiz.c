/* lab_quiz.c -- the quiz of a lab: asked, graded by claims that are tested here and now. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/opts_text.h"
#include "cli/lab.h"
#include "lab/quiz.h"

#define LEFT 10      /* the column at which words begin */
#define WITHIN 0.01  /* of a number */

typedef struct session {
    const ls_lab_entry *entry;
    const ls_stop *stop;
    ls_text json; /* what was answered, as elements of a list */
    ls_lab lab;
    ls_lab_quiz quiz;
    ls_lab_runner *runner;
    int asked, right;
} session;

static void print_words(const char *first, const char *words)
{
    ls_text t = { 0 };
    ls_text_add(&t, "%-*s", LEFT, first);
    ls_text_wrap(&t, words, LEFT, (size_t)ls_help_width());
    fputs(ls_text_str(&t), stdout);
    ls_text_free(&t);
}

static void print_question(const ls_lab_question *q)
{
    print_words(q->id, q->text);
    for (size_t i = 0; q->ask != LS_LAB_SAY && i < q->options.n; i++) {
        const char letter[] = { ' ', ' ', '[', (char)('a' + (int)i), ']', 0 };
        print_words(letter, q->options.v[i].value);
    }
    if (q->ask == LS_LAB_NUMBER) print_words("", q->unit);
    if (q->ask == LS_LAB_ORDER) print_words("", "type all letters, the first event first");
    printf("%*s> ", LEFT - 2, "");
    fflush(stdout);
}

/* The claim's words and the numbers of this machine. */
static ls_status show(session *s, const char *verdict, const ls_lab_claim *c, ls_lab_outcome *o)
{
    ls_text words = { 0 };
    LS_TRY(ls_lab_test(s->runner, &s->lab, c, false, o));
    ls_text_add(&words, "%s %s %s", c->id, c->says, o->why.n ? ls_text_str(&o->why) : ls_text_str(&o->shown));
    print_words(verdict, ls_text_str(&words));
    ls_text_free(&words);
    return LS_OK;
}

static ls_status choice(session *s, const ls_lab_question *q, int given, bool *right)
{
    const ls_lab_claim *c;
    ls_lab_outcome o = { .holds = false };
    *right = given + 1 == (int)q->right;
    LS_TRY(ls_lab_find(&s->lab, q->claims.v[given].value, &c));
    const ls_status st = show(s, *right ? "right" : "wrong", c, &o);
    ls_lab_outcome_free(&o);
    return st;
}

static ls_status number(session *s, const ls_lab_question *q, const char *line, bool *right)
{
    ls_lab_outcome o = { .holds = false };
    const double given = strtod(line, NULL);
    LS_TRY(show(s, "shown by", q->claim, &o));
    const double value = o.number[q->value];
    *right = isfinite(value) && fabs(given - value) <= WITHIN * fabs(value);
    char text[96];
    snprintf(text, sizeof text, "%.9g %s", value, q->unit);
    print_words(*right ? "right" : "wrong", text);
    ls_lab_outcome_free(&o);
    return LS_OK;
}

/* The letters of an order, without blanks and commas; how many. */
static size_t letters_of(const char *line, char given[LS_LAB_MAX_PAIRS + 1])
{
    size_t n = 0;
    for (const char *p = line; *p && n < LS_LAB_MAX_PAIRS; p++)
        if (*p != ' ' && *p != ',') given[n++] = *p;
    given[n] = 0;
    return n;
}

/* Whether the line names every option of an order once. */
static bool is_order(const ls_lab_question *q, const char *line)
{
    char given[LS_LAB_MAX_PAIRS + 1];
    const size_t n = letters_of(line, given);
    bool all = n == q->options.n;
    for (size_t i = 0; i < q->options.n; i++) all = all && strchr(given, 'a' + (int)i);
    return all;
}

/* An answer that can be marked; asked for again until it is one. An empty line skips. */
static ls_status typed(session *s, const ls_lab_question *q, char *line, size_t n)
{
    for (;;) {
        char *end;
        LS_TRY(ls_cli_lab_line(s->stop, line, n));
        if (*line != '\n') line[strcspn(line, "\n")] = 0;
        if (*line == '\n' || !*line || q->ask == LS_LAB_SAY) return LS_OK;
        const double v = strtod(line, &end);
        if (q->ask == LS_LAB_NUMBER && end != line && isfinite(v)) return LS_OK;
        if (q->ask == LS_LAB_ORDER && is_order(q, line)) return LS_OK;
        print_words("", q->ask == LS_LAB_NUMBER ? "expected a number, or Enter to skip" : "expected each letter once, or Enter to skip");
        printf("%*s> ", LEFT - 2, "");
        fflush(stdout);
    }
}

static ls_status order(session *s, const ls_lab_question *q, const char *line, bool *right)
{
    size_t in_order[LS_LAB_MAX_PAIRS];
    char letters[LS_LAB_MAX_PAIRS + 1] = "", given[LS_LAB_MAX_PAIRS + 1];
    ls_lab_outcome o = { .holds = false };
    letters_of(line, given);
    ls_status st = show(s, "shown by", q->claim, &o);
    if (st == LS_OK) st = ls_lab_quiz_order(q, o.number, in_order);
    for (size_t i = 0; st == LS_OK && i < q->options.n; i++) letters[i] = (char)('a' + (int)in_order[i]);
    *right = strcmp(given, letters) == 0;
    if (st == LS_OK) print_words(*right ? "right" : "wrong", letters);
    ls_lab_outcome_free(&o);
    return st;
}

static void say(const ls_lab_question *q)
{
    for (size_t i = 0; i < q->options.n; i++) {
        ls_text t = { 0 };
        ls_text_add(&t, "[ ] %s: %s", q->options.v[i].name, q->options.v[i].value);
        print_words(i == 0 ? "tick" : "", ls_text_str(&t));
        ls_text_free(&t);
    }
}

/* What was answered; given NULL: nothing. */
static void add_json(session *s, const ls_lab_question *q, const char *given, bool right)
{
    ls_text *x = &s->json;
    ls_text_add(x, "%s{\"id\": ", x->n ? ", " : "");
    ls_json_string(x, q->id);
    ls_text_add(x, ", \"text\": ");
    ls_json_string(x, q->text);
    ls_text_add(x, ", \"options\": [");
    for (size_t i = 0; q->ask == LS_LAB_CHOICE && i < q->options.n; i++) {
        ls_text_add(x, "%s{\"text\": ", i ? ", " : "");
        ls_json_string(x, q->options.v[i].value);
        ls_text_add(x, ", \"place\": %zu}", q->place[i]);
    }
    ls_text_add(x, "], \"given\": ");
    if (given) ls_json_string(x, given);
    else ls_text_add(x, "null");
    ls_text_add(x, ", \"right\": %s}", !given || q->ask == LS_LAB_SAY ? "null" : right ? "true" : "false");
}

/* One question; *over: the input has ended. */
static ls_status ask(session *s, const ls_lab_question *q, bool *over)
{
    char line[256] = "";
    bool right = false;
    int chosen = 0;
    ls_status st = LS_OK;
    print_question(q);
    if (q->ask == LS_LAB_CHOICE) {
        LS_TRY(ls_cli_lab_letter(s->stop, q->options.n, LEFT, &chosen, over));
    } else {
        LS_TRY(typed(s, q, line, sizeof line));
        *over = !*line;
        if (*line == '\n' || *over) chosen = -1;
    }
    if (chosen < 0) {
        add_json(s, q, NULL, false);
        return LS_OK;
    }
    if (q->ask == LS_LAB_CHOICE) snprintf(line, sizeof line, "%c", 'a' + chosen);
    if (q->ask == LS_LAB_SAY) {
        add_json(s, q, line, false);
        say(q);
        return LS_OK;
    }
    s->asked++;
    if (q->ask == LS_LAB_CHOICE) st = choice(s, q, chosen, &right);
    if (q->ask == LS_LAB_NUMBER) st = number(s, q, line, &right);
    if (q->ask == LS_LAB_ORDER) st = order(s, q, line, &right);
    s->right += right;
    add_json(s, q, line, right);
    if (st == LS_OK) ls_cli_lab_answered(q->id, right);
    return st;
}

/* Each once; those that were missed before this session come first. */
static ls_status ask_all(session *s)
{
    bool over = false, *missed = calloc(s->quiz.n, sizeof *missed);
    ls_status st = missed ? LS_OK : ls_fail(LS_NO_MEMORY, "%zu quiz questions", s->quiz.n);
    for (size_t i = 0; st == LS_OK && i < s->quiz.n; i++) missed[i] = ls_cli_lab_was_missed(s->quiz.question[i].id);
    for (int first = 1; first >= 0; first--)
        for (size_t i = 0; st == LS_OK && i < s->quiz.n && !over; i++)
            if (missed[i] == (first == 1)) st = ask(s, &s->quiz.question[i], &over);
    free(missed);
    return st;
}

static void print_json(const session *s, uint64_t seed)
{
    printf("{\"lockstep_lab_quiz\": 1, \"lab\": \"%s\", \"seed\": %llu, \"asked\": %d, \"right\": %d, \"answers\": [%s]}\n",
           s->lab.number, (unsigned long long)seed, s->asked, s->right, ls_text_str(&s->json));
}

ls_status ls_cli_lab_quiz(const ls_lab_entry *e, const ls_lab_quiz_way *way)
{
    const uint64_t seed = ls_cli_lab_seed(way->seed);
    session s = { .entry = e, .stop = way->stop };
    const ls_lab_place place = { .folder = ls_text_str(&e->folder), .stop = way->stop,
                                 .programs = e->programs.n ? ls_text_str(&e->programs) : NULL };
    ls_status st = ls_lab_load(ls_text_str(&e->claims), &s.lab);
    if (st == LS_OK) st = ls_lab_quiz_load(ls_text_str(&e->folder), &s.lab, &s.quiz);
    if (st == LS_OK && s.quiz.n == 0) st = ls_fail(LS_USAGE, "lab %s has no quiz", e->name);
    if (st == LS_OK) st = ls_lab_runner_open(&place, &s.runner);
    if (st == LS_OK) {
        printf("Lab %s, %zu quiz questions, options in the order of seed %llu. Enter skips one.\n", s.lab.number, s.quiz.n,
               (unsigned long long)seed);
        ls_lab_quiz_shuffle(&s.quiz, seed);
        st = ask_all(&s);
    }
    if (st == LS_OK) printf("%d of %d right", s.right, s.asked);
    if (st == LS_OK && s.asked > s.right) printf("; those that were not come first next time");
    if (st == LS_OK) printf(".\n");
    if (st == LS_OK) st = ls_text_status(&s.json);
    if (st == LS_OK && way->json) print_json(&s, seed);
    ls_text_free(&s.json);
    ls_lab_runner_close(s.runner);
    ls_lab_quiz_free(&s.quiz);
    ls_lab_free(&s.lab);
    return st;
}
