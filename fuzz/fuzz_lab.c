/* fuzz_lab.c -- claims of a lab on arbitrary bytes: an error, or claims whose comparisons can be evaluated with any
 * values. The same bytes as one comparison, too. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "lab/claims.h"
#include "lab/expr.h"

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
    char *text = malloc(n + 1);
    if (!text) return 0;
    if (n) memcpy(text, p, n);
    text[n] = 0;
    evaluate(text, some, sizeof some / sizeof *some);
    free(text);
    return 0;
}
