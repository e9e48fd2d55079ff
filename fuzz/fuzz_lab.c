/* fuzz_lab.c -- claims of a lab on arbitrary bytes: an error, or claims whose comparisons can be evaluated with any
 * values. The same bytes as one comparison, and as the quiz of a lab, too. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "lab/claims.h"
#include "lab/expr.h"
#include "lab/quiz.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static void evaluate(const char *expr, const ls_lab_value *values, size_t n)
{
    ls_text shown = { 0 };
    bool holds;
    const ls_status checked = ls_lab_expr_check("fuzz:1", expr, values, n);
    const ls_status st = ls_lab_expr_eval("fuzz:1", expr, values, n, 1e-6, &holds, &shown);
    if ((st != LS_OK && st != LS_USAGE) || (checked != LS_OK && st == LS_OK)) abort();
    ls_text_free(&shown);
}

static void read_quiz(const char *text, size_t n)
{
    static const char claims[] = "{lab: 01, title: t, minutes: 1, claims: [{id: 01.1, says: s, run: {r: probe}, take: {a: r/a, b: r/b}, "
                                 "expect: a < b, kind: exact, why: w, control: {r: starter}}]}";
    static const double some[LS_LAB_MAX_PAIRS] = { 2.0, 1.0 };
    size_t order[LS_LAB_MAX_PAIRS];
    ls_lab lab;
    ls_lab_quiz quiz;
    if (ls_lab_read("claims", claims, sizeof claims - 1, &lab) != LS_OK) abort();
    const ls_status st = ls_lab_quiz_read("fuzz", text, n, &lab, &quiz);
    if (st != LS_OK && st != LS_USAGE) abort();
    for (size_t i = 0; st == LS_OK && i < quiz.n; i++)
        if (quiz.question[i].ask == LS_LAB_ORDER) (void)ls_lab_quiz_order(&quiz.question[i], some, order);
    ls_lab_quiz_free(&quiz);
    ls_lab_free(&lab);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    static const ls_lab_value some[] = {
        { "a", NULL, 3.0 }, { "b", NULL, -0.25 }, { "z", NULL, 0.0 }, { "d", "00ff", 0.0 },
    };
    ls_lab lab;
    const ls_status st = ls_lab_read("fuzz", (const char *)p, n, &lab);
    if (st != LS_OK && st != LS_USAGE) abort();
    for (size_t i = 0; st == LS_OK && i < lab.n; i++) {
        const ls_lab_claim *c = &lab.claims[i];
        ls_lab_value values[LS_LAB_MAX_PAIRS];
        for (size_t k = 0; k < c->take.n; k++)
            values[k] = (ls_lab_value){ .name = c->take.v[k].name, .number = (double)k };
        if (c->expect) evaluate(c->expect, values, c->take.n);
    }
    ls_lab_free(&lab);
    read_quiz((const char *)p, n);
    char *text = malloc(n + 1);
    if (!text) return 0;
    if (n) memcpy(text, p, n);
    text[n] = 0;
    evaluate(text, some, sizeof some / sizeof *some);
    free(text);
    return 0;
}
