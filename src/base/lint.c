/* lint.c -- notes for `lockstep run --lint`. */
#include "base/lint.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/env.h"
#include "base/text.h"

static const char *file(void)
{
    const char *path = ls_env_get()->getenv(LS_LINT_VARIABLE);
    return path && *path ? path : NULL;
}

bool ls_lint_on(void) { return file() != NULL; }

/* Each line is one write to a file that is opened for appending, so lines of ranks never mix. */
void ls_lint_note(const char *call, const char *more)
{
    const ls_env *env = ls_env_get();
    const char *path = file(), *rank = env->getenv("RANK");
    if (!path) return;
    ls_text t = { 0 };
    ls_text_add(&t, "{\"rank\": %ld, \"call\": \"%s\"%s}\n", rank ? strtol(rank, NULL, 10) : 0, call, more);
    const int fd = t.failed ? -1 : env->append(path);
    if (fd >= 0) {
        (void)env->write(fd, t.p, t.n);
        env->close_fd(fd);
    }
    ls_text_free(&t);
}

void ls_lint_notef(const char *call, const char *fmt, ...)
{
    char more[4096];
    va_list args;
    if (!ls_lint_on()) return;
    va_start(args, fmt);
    (void)vsnprintf(more, sizeof more, fmt, args);
    va_end(args);
    ls_lint_note(call, more);
}
