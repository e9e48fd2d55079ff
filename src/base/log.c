/* log.c -- lines on stderr. */
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/context.h"

/* One write a line, so that lines of several ranks do not mix. */
static void put(const char *line, size_t n)
{
    const ls_env *env = ls_env_get();
    while (n > 0) {
        ssize_t k = env->write(2, line, n);
        if (k <= 0) return; /* nobody reads stderr: nothing left to tell */
        line += k;
        n -= (size_t)k;
    }
}

/* Replaces control characters, so that a message cannot drive a terminal. */
static size_t inert(char *s)
{
    size_t n = strlen(s);
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)s[i] < 0x20 || s[i] == 0x7f) s[i] = '?';
    return n;
}

/* What a line begins with: it takes the place of a live one. */
static int begin(char *line)
{
    ls_context *c = ls_context_get();
    const int n = c->live ? (int)sizeof LS_ERASE_LINE - 1 : 0;
    memcpy(line, LS_ERASE_LINE, (size_t)n);
    c->live = false;
    return n;
}

void ls_log(ls_log_level level, const char *fmt, ...)
{
    const ls_context *c = ls_context_get();
    if ((int)level > c->log_level) return;

    char whole[1032], *line = whole + begin(whole);
    const size_t room = 1024;
    int at = c->rank >= 0 ? snprintf(line, room, "[rank %d] ", c->rank) : 0;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line + at, room - (size_t)at - 1, fmt, ap);
    va_end(ap);
    size_t n = inert(line);
    line[n] = '\n';
    put(whole, (size_t)(line - whole) + n + 1);
}

void ls_log_error(ls_status s, int rank, const char *message)
{
    const ls_env *env = ls_env_get();
    char whole[1032], host[64] = "?", who[24] = "", *line = whole + begin(whole);
    if (env->hostname(host, sizeof host) < 0) snprintf(host, sizeof host, "?");
    if (rank >= 0) snprintf(who, sizeof who, " rank=%d", rank);
    snprintf(line, 1023, "lockstep: error[%s]%s host=%s pid=%d: %s", ls_status_word(s), who, host,
             env->pid(), message);
    size_t n = inert(line);
    line[n] = '\n';
    put(whole, (size_t)(line - whole) + n + 1);
}

void ls_bug(const char *file, int line, const char *what)
{
    char text[256];
    snprintf(text, sizeof text, "%s:%d: '%s' does not hold; this is a bug in Lockstep, please report it", file, line,
             what);
    ls_log_error(LS_INTERNAL, ls_context_get()->rank, text);
    abort();
}
