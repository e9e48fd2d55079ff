/* steps.c -- which step folder is the newest. */
#include "ckpt/steps.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

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

int64_t ls_steps_number(const char *name) { return strtoll(name + 5, NULL, 10); }
