/* cost_file.c -- the cost model's numbers as a file: JSON, reading, where the calibration is saved. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/env.h"
#include "base/file.h"
#include "base/limits.h"
#include "base/log.h"
#include "coll/cost.h"

void ls_cost_print_json(const ls_cost *c, const char *host, ls_text *out)
{
    ls_text_add(out, "{\n  \"lockstep_calibration\": 1,\n  \"host\": ");
    ls_json_string(out, host);
    for (int l = 0; l < LS_LEVELS; l++) {
        ls_text_add(out, ",\n  \"%s\": {\"alpha_ns\": ", ls_level_name((ls_level)l));
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
        ls_text_add(out, "%s\n    \"%s\": ", i == 0 ? ",\n  \"in_memory\": {" : ",", ls_switch_name(i));
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
        const json_t *link = json_object_get(root, ls_level_name((ls_level)l));
        char where[32];
        snprintf(where, sizeof where, "%s.", ls_level_name((ls_level)l));
        if (link && !json_is_object(link))
            return ls_fail(LS_BAD_FILE, "%s: %s: expected an object with alpha_ns, gap_ns and beta_ns_per_byte", name,
                           ls_level_name((ls_level)l));
        LS_TRY(number(name, link, where, "alpha_ns", LS_COST_MAX_NS, &out->link[l].alpha_ns));
        LS_TRY(number(name, link, where, "gap_ns", LS_COST_MAX_NS, &out->link[l].gap_ns));
        LS_TRY(number(name, link, where, "beta_ns_per_byte", LS_COST_MAX_NS, &out->link[l].beta_ns));
    }
    LS_TRY(number(name, root, "", "gamma_ns_per_byte", LS_COST_MAX_NS, &out->gamma_ns));
    const json_t *points = json_object_get(root, "in_memory");
    if (points && !json_is_object(points)) return ls_fail(LS_BAD_FILE, "%s: in_memory: expected an object of sizes", name);
    for (int i = 0; i < LS_SWITCH_POINTS; i++)
        LS_TRY(number(name, points, "in_memory.", ls_switch_name(i), LS_COST_NEVER, ls_switch_point(&out->in_memory, i)));
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
