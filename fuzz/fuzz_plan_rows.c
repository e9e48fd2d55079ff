/* fuzz_plan_rows.c -- measurements on arbitrary bytes: an error, or rows that are predicted or refused one by one. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "plan/score.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    ls_rows rows;
    ls_text out = { 0 };
    char *text = malloc(n + 1);
    if (!text) return 0;
    memcpy(text, p, n);
    text[n] = 0;
    const ls_status st = ls_rows_read("fuzz", text, &rows);
    if (st != LS_OK && st != LS_BAD_FILE && st != LS_NO_MEMORY) abort();
    if (st == LS_OK && rows.n < 64 && ls_score(&rows, &out) != LS_OK) abort();
    if (st == LS_OK) ls_rows_free(&rows);
    ls_text_free(&out);
    free(text);
    return 0;
}
