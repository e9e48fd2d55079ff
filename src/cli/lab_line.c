/* lab_line.c -- what a reader of a lab types. */
#include <stdio.h>

#include "base/env.h"
#include "cli/lab.h"

/* A line from a terminal, which gives whole lines. LS_INTERRUPTED: stopped. */
ls_status ls_cli_lab_line(const ls_stop *stop, char *line, size_t n)
{
    const ls_env *env = ls_env_get();
    ls_pollfd p = { .fd = 0, .events = LS_POLL_IN };
    *line = 0;
    while (!p.revents) { /* a person takes the time that a person takes */
        if (ls_stop_seen(stop)) return ls_fail(LS_INTERRUPTED, "stopped by signal %d", ls_stop_seen(stop));
        env->wait(NULL, 0, &p, 1, env->mono_ns() + 100000000u);
    }
    if (!fgets(line, (int)n, stdin)) *line = 0;
    if (!*line) printf("\n");
    return LS_OK;
}
