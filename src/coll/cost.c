/* cost.c -- the cost model's numbers: names, preset, file. */
#include "coll/cost.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/env.h"
#include "base/file.h"
#include "base/limits.h"
#include "base/log.h"

static const char *const level_name[LS_LEVELS] = { "memory", "loopback", "network" };

const char *ls_level_name(ls_level l) { return (unsigned)l < LS_LEVELS ? level_name[l] : "?"; }

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

void ls_cost_print_json(const ls_cost *c, const char *host, ls_text *out)
{
    ls_text_add(out, "{\n  \"lockstep_calibration\": 1,\n  \"host\": ");
    ls_json_string(out, host);
    for (int l = 0; l < LS_LEVELS; l++) {
        ls_text_add(out, ",\n  \"%s\": {\"alpha_ns\": ", level_name[l]);
        ls_json_number(out, c->link[l].alpha_ns);
        ls_text_add(out, ", \"gap_ns\": ");
        ls_json_number(out, c->link[l].gap_ns);
        ls_text_add(out, ", \"beta_ns_per_byte\": ");
        ls_json_number(out, c->link[l].beta_ns);
        ls_text_add(out, "}");
    }
    ls_text_add(out, ",\n  \"gamma_ns_per_byte\": ");
    ls_json_number(out, c->gamma_ns);
    ls_text_add(out, ",\n  \"poke_ns\": ");
    ls_json_number(out, c->poke_ns);
    ls_switch_points s = c->in_memory;
    for (int i = 0; i < LS_SWITCH_POINTS; i++) {
        ls_text_add(out, "%s\n    \"%s\": ", i == 0 ? ",\n  \"in_memory\": {" : ",", switches[i].name);
        ls_json_number(out, *ls_switch_point(&s, i));
    }
    ls_text_add(out, "\n  }\n}\n");
}

/* object[key], if there, into *out. */
static ls_status number(const char *name, const json_t *object, const char *where, const char *key, double most,
                        double *out)
{
    const json_t *v = json_object_get(object, key);
    if (!v) return LS_OK;
    double x = json_number_value(v);
    if (!json_is_number(v) || !(x >= 0.0) || x > most)
        return ls_fail(LS_BAD_FILE, "%s: %s%s: expected a number from 0 to %g", name, where, key, most);
    *out = x + 0.0; /* there is one zero: -0.0 would not be written back as it was read */
    return LS_OK;
}

static ls_status read_all(const char *name, const json_t *root, ls_cost *out)
{
    const json_t *version = json_object_get(root, "lockstep_calibration");
    if (!json_is_integer(version) || json_integer_value(version) != 1)
        return ls_fail(LS_BAD_FILE, "%s: \"lockstep_calibration\": expected 1", name);
    for (int l = 0; l < LS_LEVELS; l++) {
        const json_t *link = json_object_get(root, level_name[l]);
        char where[32];
        snprintf(where, sizeof where, "%s.", level_name[l]);
        if (link && !json_is_object(link))
            return ls_fail(LS_BAD_FILE, "%s: %s: expected an object with alpha_ns, gap_ns and beta_ns_per_byte", name,
                           level_name[l]);
        LS_TRY(number(name, link, where, "alpha_ns", LS_COST_MAX_NS, &out->link[l].alpha_ns));
        LS_TRY(number(name, link, where, "gap_ns", LS_COST_MAX_NS, &out->link[l].gap_ns));
        LS_TRY(number(name, link, where, "beta_ns_per_byte", LS_COST_MAX_NS, &out->link[l].beta_ns));
    }
    LS_TRY(number(name, root, "", "gamma_ns_per_byte", LS_COST_MAX_NS, &out->gamma_ns));
    const json_t *points = json_object_get(root, "in_memory");
    if (points && !json_is_object(points)) return ls_fail(LS_BAD_FILE, "%s: in_memory: expected an object of sizes", name);
    for (int i = 0; i < LS_SWITCH_POINTS; i++)
        LS_TRY(number(name, points, "in_memory.", switches[i].name, LS_COST_NEVER, ls_switch_point(&out->in_memory, i)));
    return number(name, root, "", "poke_ns", LS_COST_MAX_NS, &out->poke_ns);
}

ls_status ls_cost_read_json(const char *name, const char *text, size_t n, ls_cost *out)
{
    json_error_t e;
    *out = ls_cost_preset;
    if (n > LS_COST_MAX_BYTES)
        return ls_fail(LS_BAD_FILE, "%s: %zu bytes, expected at most %d", name, n, LS_COST_MAX_BYTES);
    json_t *root = json_loadb(text, n, JSON_REJECT_DUPLICATES, &e);
    if (!root) return ls_fail(LS_BAD_FILE, "%s: line %d: %s", name, e.line, e.text);
    ls_status st = json_is_object(root) ? read_all(name, root, out) : ls_fail(LS_BAD_FILE, "%s: expected an object", name);
    json_decref(root);
    return st;
}

bool ls_cost_path(char *path, size_t n) { return ls_file_cached("LOCKSTEP_CALIBRATION", "calibration.json", path, n); }

ls_status ls_cost_load(ls_cost *out, char *from, size_t n)
{
    char path[4096], *text = NULL;
    size_t len = 0;
    ls_file_info info = { .type = LS_FILE_NONE };
    const ls_env *env = ls_env_get();
    const char *asked = env->getenv("LOCKSTEP_CALIBRATION");
    bool named = asked && *asked, there = ls_cost_path(path, sizeof path);
    *out = ls_cost_preset;
    snprintf(from, n, "the preset");
    if (!there || (!named && (env->info(path, &info) < 0 || info.type == LS_FILE_NONE))) return LS_OK;
    ls_status st = ls_file_read(path, LS_COST_MAX_BYTES, &text, &len);
    if (st == LS_OK) st = ls_cost_read_json(path, text, len, out);
    free(text);
    if (st == LS_OK) snprintf(from, n, "%s", path);
    if (st == LS_OK || named) return st;
    ls_log(LS_LOG_WARN, "%s; costs are estimated: run `lockstep calibrate` to measure them", ls_last_error());
    *out = ls_cost_preset;
    return LS_OK;
}
