/* quantity.c -- a number with its unit. */
#include "sim/quantity.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct unit { const char *name; double worth; bool shown; } unit;

#define MOST_UNITS 9
static const struct {
    const char *what, *example;
    unit unit[MOST_UNITS]; /* the smallest first of those that are shown */
} kinds[] = {
    [LS_Q_BANDWIDTH] = { "a bandwidth", "50 GB/s",
                         { { "B/s", 1, true }, { "kB/s", 1e3, true }, { "MB/s", 1e6, true }, { "GB/s", 1e9, true },
                           { "TB/s", 1e12, true }, { "Mbit/s", 1e6 / 8, false }, { "Gbit/s", 1e9 / 8, false } } },
    [LS_Q_TIME] = { "a time", "2 us",
                    { { "ns", 1e-9, true }, { "us", 1e-6, true }, { "ms", 1e-3, true }, { "s", 1, true } } },
    [LS_Q_FLOPS] = { "a rate of operations", "312 TFLOP/s",
                     { { "FLOP/s", 1, true }, { "GFLOP/s", 1e9, true }, { "TFLOP/s", 1e12, true }, { "PFLOP/s", 1e15, true } } },
    [LS_Q_MEMORY] = { "an amount of memory", "80 GB",
                      { { "B", 1, true }, { "MB", 1e6, true }, { "GB", 1e9, true }, { "TB", 1e12, true },
                        { "MiB", 1 << 20, false }, { "GiB", 1 << 30, false } } },
};

static bool refuse(ls_quantity q, const char *text, char *why, size_t n)
{
    size_t at = (size_t)snprintf(why, n, "'%.40s' is not %s: expected a number%s and one of", text, kinds[q].what,
                                 q == LS_Q_TIME ? "" : " above 0");
    for (const unit *u = kinds[q].unit; u->name && at < n; u++)
        at += (size_t)snprintf(why + at, n - at, "%s %s", u == kinds[q].unit ? "" : ",", u->name);
    if (at < n) snprintf(why + at, n - at, ", as in %s", kinds[q].example);
    return false;
}

bool ls_quantity_read(ls_quantity q, const char *text, double *out, char *why, size_t n)
{
    char *end;
    if (!((*text >= '0' && *text <= '9') || *text == '.')) return refuse(q, text, why, n); /* no sign, inf or nan */
    const double v = strtod(text, &end);
    const char *name = end + strspn(end, " ");
    for (const unit *u = kinds[q].unit; u->name; u++) {
        if (strcmp(u->name, name) != 0) continue;
        *out = v * u->worth;
        if ((*out > 0.0 || (q == LS_Q_TIME && *out == 0.0)) && *out < 1e30 && (*out > 1e-30 || *out == 0.0))
            return true;
    }
    return refuse(q, text, why, n);
}

const char *ls_quantity_text(ls_quantity q, double v, char *buf, size_t n)
{
    const unit *best = kinds[q].unit;
    for (const unit *u = kinds[q].unit; u->name; u++)
        if (u->shown && v >= u->worth * (1 - 1e-12)) best = u;
    snprintf(buf, n, "%.9g %s", floor(v / best->worth * 1000.0 + 0.5) / 1000.0, best->name);
    return buf;
}
