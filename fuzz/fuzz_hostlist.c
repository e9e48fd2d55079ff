/* fuzz_hostlist.c -- Slurm's host and task lists on arbitrary text: refused, or within the bounds. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "meet/hostlist.h"

#define HOSTS 64

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    static char names[HOSTS][LS_HOST_MAX_NAME + 1];
    int count = -1, tasks[HOSTS];
    char *text = malloc(n + 1);
    if (!text) return 0;
    memcpy(text, p, n);
    text[n] = 0;
    ls_status st = ls_hostlist_expand(text, names, HOSTS, &count);
    if ((st != LS_OK && st != LS_INVALID) || count < 0 || count > HOSTS) abort();
    for (int i = 0; i < count; i++)
        if (!*names[i] || strpbrk(names[i], "[](),")) abort();
    st = ls_tasklist_expand(text, tasks, HOSTS, &count);
    if ((st != LS_OK && st != LS_INVALID) || count < 0 || count > HOSTS) abort();
    free(text);
    return 0;
}
