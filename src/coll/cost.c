/* cost.c -- the cost model's numbers: names, preset, fit. */
#include "coll/cost.h"

#include <math.h>
#include <string.h>

static const char *const level_name[LS_LEVELS] = { "memory", "loopback", "network" };

const char *ls_level_name(ls_level l) { return (unsigned)l < LS_LEVELS ? level_name[l] : "?"; }

ls_level ls_level_within(const char *transport)
{
    const bool memory = !*transport || strncmp(transport, "shm", 3) == 0 || strncmp(transport, "mixed", 5) == 0;
    return memory ? LS_LEVEL_MEMORY : LS_LEVEL_LOOPBACK;
}

const ls_cost ls_cost_preset = {
    .link = { [LS_LEVEL_MEMORY] = { 500.0, 100.0, 0.05 }, [LS_LEVEL_LOOPBACK] = { 8000.0, 2000.0, 0.5 },
              [LS_LEVEL_NETWORK] = { 30000.0, 2500.0, 0.8 } },
    .gamma_ns = 0.15,
    .poke_ns = 1500.0,
    .in_memory = { .sum_in_place = 1024.0, .copy_in_place = 4096.0, .past_cache = 24.0 * 1048576.0, /* of a Zen 5 */
                   .mail_string = LS_COST_NEVER, .stage_past_cache = 0.0,
                   .attach = 512.0 * 1024.0 },
};

static const struct { const char *name; size_t offset; } switches[LS_SWITCH_POINTS] = {
    { "sum_in_place_bytes", offsetof(ls_switch_points, sum_in_place) },
    { "copy_in_place_bytes", offsetof(ls_switch_points, copy_in_place) },
    { "past_cache_bytes", offsetof(ls_switch_points, past_cache) },
    { "mail_string_bytes", offsetof(ls_switch_points, mail_string) },
    { "stage_past_cache_bytes", offsetof(ls_switch_points, stage_past_cache) },
    { "attach_bytes", offsetof(ls_switch_points, attach) },
};

const char *ls_switch_name(int i) { return switches[i].name; }
double *ls_switch_point(ls_switch_points *s, int i) { return (double *)(void *)((char *)s + switches[i].offset); }

void ls_cost_fit(const double *x, const double *y, int n, double *alpha, double *beta, double *worst)
{
    double w = 0.0, wx = 0.0, wxx = 0.0, wy = 0.0, wxy = 0.0; /* weights 1 / y^2 */
    for (int i = 0; i < n; i++) {
        double k = 1.0 / (y[i] * y[i]);
        w += k, wx += k * x[i], wxx += k * x[i] * x[i], wy += k * y[i], wxy += k * x[i] * y[i];
    }
    double det = w * wxx - wx * wx;
    *alpha = (wy * wxx - wx * wxy) / det;
    *beta = (w * wxy - wx * wy) / det;
    if (!(*alpha >= 0.0)) *alpha = 0.0, *beta = wxy / wxx;
    if (!(*beta >= 0.0)) *beta = 0.0, *alpha = wy / w;
    *worst = 0.0;
    for (int i = 0; i < n; i++) {
        double e = fabs(*alpha + *beta * x[i] - y[i]) / y[i];
        if (e > *worst) *worst = e;
    }
}
