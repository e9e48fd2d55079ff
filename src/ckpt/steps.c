/* steps.c -- which step folder is the newest. */
#include "ckpt/steps.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/env.h"
#include "base/file.h"

#define BEST_MOST ((size_t)64) /* bytes of the file `best` */

/* "step-" and digits. */
static bool is_step(const char *name)
{
    const size_t n = strlen(name);
    return n > 5 && strncmp(name, "step-", 5) == 0 && strspn(name + 5, "0123456789") == n - 5;
}

/* Names are sorted, and a step has eight digits or more: the longest, and of those the last, is the newest. */
const char *ls_steps_newest(const char *names, int count, const char *than)
{
    const char *best = NULL;
    for (const char *name = names; count-- > 0; name += strlen(name) + 1) {
        const size_t n = strlen(name);
        if (!is_step(name) || (best && n < strlen(best))) continue;
        if (than && (n > strlen(than) || (n == strlen(than) && strcmp(name, than) >= 0))) continue;
        best = name;
    }
    return best;
}

ls_status ls_steps_resolve(const char *path, char *out, size_t n)
{
    const char *slash = strrchr(path, '/');
    ls_file_info info;
    char *text;
    size_t length;
    const int k = snprintf(out, n, "%s", path);
    if (k < 0 || (size_t)k >= n) return ls_fail(LS_BAD_FILE, "%.100s...: a name of more than %zu bytes", path, n - 1);
    if (strcmp(slash ? slash + 1 : path, LS_STEPS_BEST) != 0) return LS_OK;
    if (ls_env_get()->info(path, &info) < 0 || info.type != LS_FILE_REGULAR) return LS_OK;
    LS_TRY(ls_file_read(path, BEST_MOST, &text, &length));
    if (length > 0 && text[length - 1] == '\n') text[--length] = 0;
    ls_status st = LS_OK;
    if (!is_step(text) || strlen(text) != length)
        st = ls_fail(LS_BAD_FILE, "%s: expected the name of a folder step-XXXXXXXX beside it, found %zu other bytes", path, length);
    else if ((size_t)snprintf(out, n, "%.*s%s", slash ? (int)(slash + 1 - path) : 0, path, text) >= n)
        st = ls_fail(LS_BAD_FILE, "%s: a name of more than %zu bytes", path, n - 1);
    free(text);
    return st;
}

int64_t ls_steps_number(const char *name) { return strtoll(name + 5, NULL, 10); }
