/* lab_line.c -- what a reader of a lab types. */
#include <stdio.h>
#include <string.h>

#include "base/env.h"
#include "cli/lab.h"

/* A byte of stdin; 0: it has ended. */
static ls_status next(const ls_stop *stop, char *out)
{
    const ls_env *env = ls_env_get();
    ls_pollfd p = { .fd = 0, .events = LS_POLL_IN };
    while (!p.revents) { /* a person takes the time that a person takes */
        if (ls_stop_seen(stop)) return ls_fail(LS_INTERRUPTED, "stopped by signal %d", ls_stop_seen(stop));
        env->wait(NULL, 0, &p, 1, env->mono_ns() + 100000000u);
    }
    if (env->read(0, out, 1) != 1) *out = 0;
    return LS_OK;
}

ls_status ls_cli_lab_line(const ls_stop *stop, char *line, size_t n)
{
    const bool echoes = ls_env_get()->isatty(0); /* a terminal has shown the newline */
    size_t used = 0;
    char c = 'x';
    while (c && c != '\n') {
        LS_TRY(next(stop, &c));
        if (c && used + 1 < n) line[used++] = c; /* the rest of a line that is too long is left out */
    }
    line[used] = 0;
    if (!echoes || !c) printf("\n");
    return LS_OK;
}

ls_status ls_cli_lab_letter(const ls_stop *stop, size_t n, int left, int *chosen, bool *over)
{
    char line[64];
    for (;;) {
        LS_TRY(ls_cli_lab_line(stop, line, sizeof line));
        const char *p = line + strspn(line, " \t");
        const size_t bytes = strcspn(p, " \t\r\n");
        const char letter = (char)(*p >= 'A' && *p <= 'Z' ? *p - 'A' + 'a' : *p);
        *over = !*line;
        *chosen = bytes == 1 && letter >= 'a' && letter < (char)('a' + (int)n) ? letter - 'a' : -1;
        if (bytes == 0 || *chosen >= 0) return LS_OK;
        printf("%*sexpected a letter from a to %c,\n%*sor Enter to skip\n%*s> ", left, "", (char)('a' + (int)n - 1), left, "",
               left > 2 ? left - 2 : 0, "");
        fflush(stdout);
    }
}
