/* say.c -- lines on stdout, the live line on stderr. */
#include "report/say.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/context.h"
#include "base/log.h"

#define DRAW_NS 100000000u
#define LINE_BYTES 1024 /* a longer line is given memory of its own */

/* Said once: from here on lines go to /dev/null. The number stays taken: no other file may get it, and the lines. */
static LS_COLD void closed(void)
{
    ls_log(LS_LOG_WARN, "stdout was closed by its reader; training goes on without it");
    (void)ls_env_get()->discard(1);
}

static void put(int fd, const char *p, size_t n)
{
    const ls_env *env = ls_env_get();
    while (n > 0) {
        ssize_t k = env->write(fd, p, n);
        if (k == -EPIPE && fd == 1) closed();
        else if (k < 0 && fd == 1) ls_context_get()->stdout_lost = true;
        if (k <= 0) return; /* no reader is left */
        p += k;
        n -= (size_t)k;
    }
}

bool ls_say_on_terminal(void)
{
    const ls_env *env = ls_env_get();
    const char *launcher = env->getenv("LOCKSTEP_TTY_STDOUT");
    return launcher ? strcmp(launcher, "1") == 0 : env->isatty(1);
}

/* Columns of the terminal that stderr reaches, directly or through the launcher; 0: it reaches none. */
static int bar_columns(void)
{
    const ls_env *env = ls_env_get();
    const char *launcher = env->getenv("LOCKSTEP_TTY_COLUMNS");
    return launcher ? atoi(launcher) : env->isatty(2) ? env->columns(2) : 0;
}

int ls_say_columns(void) { return ls_say_on_terminal() ? bar_columns() : 0; }

void ls_say(const char *fmt, ...)
{
    char some[LINE_BYTES], *line = some;
    /* Only where a bar may stand: mpirun gives ranks a terminal for stdout, and hands on what they write to a pipe. */
    const char *front = ls_say_on_terminal() && bar_columns() > 0 ? LS_ERASE_LINE : "";
    const size_t at = strlen(front);
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    const int n = vsnprintf(some + at, sizeof some - at, fmt, ap);
    size_t len = n < 0 ? at : at + (size_t)n;
    if (len + 1 >= sizeof some) {
        line = malloc(len + 2);
        if (line) {
            vsnprintf(line + at, len + 2 - at, fmt, again);
        } else { /* as much as fits */
            line = some;
            len = sizeof some - 1;
        }
    }
    va_end(again);
    va_end(ap);
    memcpy(line, front, at);
    line[len] = '\n';
    put(1, line, len + 1); /* one write, so that nothing comes in between */
    if (line != some) free(line);
}

const char *ls_eta_text(double seconds, char *buf, size_t n)
{
    long s = seconds > 0 ? (long)(seconds + 0.5) : 0;
    if (s >= 3600) snprintf(buf, n, "%ld:%02ld:%02ld", s / 3600, s / 60 % 60, s % 60);
    else snprintf(buf, n, "%ld:%02ld", s / 60, s % 60);
    return buf;
}

void ls_bar_init(ls_bar *b)
{
    const ls_env *env = ls_env_get();
    const int columns = bar_columns();
    *b = (ls_bar){ .terminal = columns > 0, .columns = columns, .start_ns = env->mono_ns() };
    if (b->columns < 40) b->columns = 40;
    if (b->columns > 200) b->columns = 200;
}

void ls_bar_draw(ls_bar *b, int64_t step, int64_t steps, int64_t epoch, double loss, double per_s,
                 const char *unit)
{
    uint64_t now = ls_env_get()->mono_ns();
    if (!b->terminal || steps <= 0 || (now - b->drawn_ns < DRAW_NS && step < steps)) return;
    b->drawn_ns = now;
    b->shown = true;

    char facts[160], eta[32], line[512], bar[64];
    double elapsed = (double)(now - b->start_ns) * 1e-9;
    snprintf(facts, sizeof facts, " %3d%% | epoch %lld | step %lld/%lld | loss %.4f | %.0f %s/s | ETA %s",
             (int)(100 * step / steps), (long long)epoch, (long long)step, (long long)steps, loss, per_s, unit,
             ls_eta_text(elapsed / (double)step * (double)(steps - step), eta, sizeof eta));
    int width = b->columns - (int)strlen(facts) - 3;
    if (width > 40) width = 40;
    if (width < 0) width = 0;
    int full = (int)(step * width / steps);
    memset(bar, '#', (size_t)full);
    memset(bar + full, '-', (size_t)(width - full));
    bar[width] = 0;
    int n = snprintf(line, sizeof line, "\r[%s]%.*s\x1b[K", bar, b->columns - width - 3, facts);
    put(2, line, (size_t)n);
    ls_context_get()->live = true;
}

void ls_bar_clear(ls_bar *b)
{
    if (!b->shown) return;
    put(2, LS_ERASE_LINE, sizeof LS_ERASE_LINE - 1);
    b->shown = ls_context_get()->live = false;
}
