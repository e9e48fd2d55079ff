/* status.c -- codes, words and the thread's sentence. */
#include "lockstep/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/context.h"

typedef struct status_row {
    int value;
    const char *word, *text;
    int exit_code;
} status_row;

static const status_row rows[] = {
#define X(name, value, word, exit, text) { (value), (word), (text), (exit) },
    LS_STATUS_MAP(X)
#undef X
};

static const status_row *find(ls_status s)
{
    const size_t n = sizeof rows / sizeof *rows;
    for (size_t i = 0; i < n; i++)
        if (rows[i].value == (int)s) return &rows[i];
    return find(LS_INTERNAL);
}

const char *ls_status_text(ls_status s) { return find(s)->text; }
const char *ls_status_word(ls_status s) { return find(s)->word; }
int ls_status_exit_code(ls_status s) { return find(s)->exit_code; }
const char *ls_last_error(void) { return ls_context_get()->error; }

ls_status ls_fail(ls_status s, const char *fmt, ...)
{
    char text[LS_ERROR_BYTES]; /* arguments may point into the old sentence */
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    memcpy(ls_context_get()->error, text, sizeof text);
    return s;
}

ls_status ls_while(ls_status s, const char *fmt, ...)
{
    char doing[LS_ERROR_BYTES], old[LS_ERROR_BYTES];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(doing, sizeof doing, fmt, ap);
    va_end(ap);
    memcpy(old, ls_context_get()->error, sizeof old);
    char *to = ls_context_get()->error;
    int n = snprintf(to, LS_ERROR_BYTES, "while %s: ", doing);
    if (n > 0 && n < LS_ERROR_BYTES)
        snprintf(to + n, (size_t)(LS_ERROR_BYTES - n), "%.*s", LS_ERROR_BYTES - n - 1, old);
    return s;
}
