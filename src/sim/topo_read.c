/* topo_read.c -- a topology from YAML.
 *
 * Links are named and described first; levels name the link that joins their units, and what they join (`of`), so they
 * may stand in any order. They have to be one chain that begins with `device`.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/env.h"
#include "base/file.h"
#include "base/install.h"
#include "base/limits.h"
#include "base/yaml_tree.h"
#include "lockstep/opts.h"
#include "lockstep/topo.h"
#include "sim/quantity.h"

#define FOLDER "recipes/clusters/"
#define SUFFIX ".yaml"
#define DEVICE "device"

typedef struct link_row {
    const char *name;
    const yaml_node_t *at;
    double bytes_per_s, latency_s;
    bool summed;
} link_row;

typedef struct level_row {
    const yaml_node_t *at, *of_at, *link_at; /* where it, and these keys, stand */
    const char *name, *of, *link;
    size_t count, ports; /* ports 0: not stated */
    double oversubscription;
    bool rails;
} level_row;

typedef struct reader {
    ls_yaml_tree *tree;
    link_row link[LS_TOPO_MOST_LEVELS];
    level_row level[LS_TOPO_MOST_LEVELS];
    int nlinks, nlevels;
    const yaml_node_t *slow, *levels_at; /* of the file; NULL: not there */
} reader;

static ls_status refuse(const reader *r, const yaml_node_t *at, const char *key, const char *text)
{
    return ls_yaml_refuse(r->tree, at, key, text);
}

/* --- values ---------------------------------------------------------------------------------------------------- */

static ls_status name_of(const reader *r, const yaml_node_t *node, const char *key, const char **out)
{
    LS_TRY(ls_yaml_scalar(r->tree, node, key, out));
    return strlen(*out) < LS_TOPO_NAME_BYTES ? LS_OK : refuse(r, node, key, "is too long: expected at most 47 bytes");
}

static ls_status quantity(const reader *r, const yaml_node_t *node, const char *key, ls_quantity q, double *out)
{
    const char *text;
    char why[200];
    LS_TRY(ls_yaml_scalar(r->tree, node, key, &text));
    return ls_quantity_read(q, text, out, why, sizeof why) ? LS_OK : refuse(r, node, key, why);
}

/* One of two words; *out: it is the second. */
static ls_status word(const reader *r, const yaml_node_t *node, const char *key, const char *first,
                      const char *second, bool *out)
{
    const char *text;
    char why[160];
    LS_TRY(ls_yaml_scalar(r->tree, node, key, &text));
    *out = strcmp(text, second) == 0;
    if (*out || strcmp(text, first) == 0) return LS_OK;
    snprintf(why, sizeof why, "'%.40s': expected %s or %s", text, first, second);
    return refuse(r, node, key, why);
}

static ls_status factor(const reader *r, const yaml_node_t *node, const char *key, double *out)
{
    const char *text;
    char *end = NULL;
    LS_TRY(ls_yaml_scalar(r->tree, node, key, &text));
    *out = *text >= '0' && *text <= '9' ? strtod(text, &end) : 0;
    if (*out >= 1 && *out <= 1e6 && end && !*end) return LS_OK;
    return refuse(r, node, key, "expected a number of 1 and more, as in 2 for 2:1");
}

/* --- the parts of the file ------------------------------------------------------------------------ */

/* Reads value after value of a mapping: `row` takes the one of key number `known`. */
typedef ls_status take(reader *r, void *row, int known, const char *key, const yaml_node_t *value);
static ls_status mapping(reader *r, const yaml_node_t *node, const char *what, const char *const *keys, int n,
                         unsigned needed, take *f, void *row)
{
    bool seen[16] = { false };
    if (node->type != YAML_MAPPING_NODE) return refuse(r, node, what, "expected keys with values");
    for (const yaml_node_pair_t *p = node->data.mapping.pairs.start; p < node->data.mapping.pairs.top; p++) {
        int known;
        LS_TRY(ls_yaml_key(r->tree, ls_yaml_node(r->tree, p->key), keys, n, seen, &known));
        LS_TRY(f(r, row, known, keys[known], ls_yaml_node(r->tree, p->value)));
    }
    for (int i = 0; i < n; i++)
        if (needed >> i & 1u && !seen[i])
            return refuse(r, node, keys[i], "is missing here: expected it with a value, as in recipes/clusters/ethernet-2.yaml");
    return LS_OK;
}

/* Calls f for each entry of a list. */
typedef ls_status entry(reader *r, const yaml_node_t *node, ls_topo *out);
static ls_status list(reader *r, const yaml_node_t *node, const char *what, int most, entry *f, ls_topo *out)
{
    if (node->type != YAML_SEQUENCE_NODE) return refuse(r, node, what, "expected a list");
    if (node->data.sequence.items.top - node->data.sequence.items.start > most)
        return refuse(r, node, what, "has too many entries");
    for (const yaml_node_item_t *i = node->data.sequence.items.start; i < node->data.sequence.items.top; i++)
        LS_TRY(f(r, ls_yaml_node(r->tree, *i), out));
    return LS_OK;
}

static ls_status take_device(reader *r, void *row, int known, const char *key, const yaml_node_t *value)
{
    ls_topo *t = row;
    const char *name = "";
    if (known == 1) return quantity(r, value, key, LS_Q_FLOPS, &t->device.flops_per_s);
    if (known == 2) return quantity(r, value, key, LS_Q_MEMORY, &t->device.memory_bytes);
    LS_TRY(name_of(r, value, key, &name));
    snprintf(t->device.name, sizeof t->device.name, "%s", name);
    return LS_OK;
}

static ls_status take_link(reader *r, void *row, int known, const char *key, const yaml_node_t *value)
{
    link_row *l = row;
    switch (known) {
    case 0: return name_of(r, value, key, &l->name);
    case 1: return quantity(r, value, key, LS_Q_BANDWIDTH, &l->bytes_per_s);
    case 2: return word(r, value, key, "one", "both", &l->summed);
    default: return quantity(r, value, key, LS_Q_TIME, &l->latency_s);
    }
}

static ls_status add_link(reader *r, const yaml_node_t *node, ls_topo *out)
{
    static const char *const keys[] = { "name", "bandwidth", "direction", "latency" };
    link_row *l = &r->link[r->nlinks];
    (void)out;
    *l = (link_row){ .at = node };
    LS_TRY(mapping(r, node, "links", keys, 4, 15, take_link, l));
    for (int i = 0; i < r->nlinks; i++)
        if (strcmp(r->link[i].name, l->name) == 0) return refuse(r, node, l->name, "this link is described twice");
    if (l->summed) l->bytes_per_s /= 2;
    r->nlinks++;
    return LS_OK;
}

static ls_status take_level(reader *r, void *row, int known, const char *key, const yaml_node_t *value)
{
    level_row *l = row;
    switch (known) {
    case 0: return name_of(r, value, key, &l->name);
    case 1: l->of_at = value; return name_of(r, value, key, &l->of);
    case 2: return ls_yaml_whole(r->tree, value, key, LS_TOPO_MOST_DEVICES, &l->count);
    case 3: l->link_at = value; return name_of(r, value, key, &l->link);
    case 4: return ls_yaml_whole(r->tree, value, key, LS_TOPO_MOST_DEVICES, &l->ports);
    case 5: return word(r, value, key, "false", "true", &l->rails);
    default: return factor(r, value, key, &l->oversubscription);
    }
}

static ls_status add_level(reader *r, const yaml_node_t *node, ls_topo *out)
{
    static const char *const keys[] = { "name", "of", "count", "link", "ports", "rails", "oversubscription" };
    level_row *l = &r->level[r->nlevels];
    (void)out;
    *l = (level_row){ .at = node, .oversubscription = 1 };
    LS_TRY(mapping(r, node, "levels", keys, 7, 15, take_level, l));
    if (strcmp(l->name, DEVICE) == 0) return refuse(r, node, "name", "'device' is what the lowest level joins: choose another name");
    for (int i = 0; i < r->nlevels; i++)
        if (strcmp(r->level[i].name, l->name) == 0) return refuse(r, node, l->name, "this level is described twice");
    r->nlevels++;
    return LS_OK;
}

/* --- levels in their order ------------------------------------------------------------------------ */

static ls_status no_such(const reader *r, const yaml_node_t *at, const char *key, const char *what, const char *name,
                         const char *const *known, size_t n)
{
    char why[300];
    const char *near = ls_nearest(name, known, n);
    int at_byte = snprintf(why, sizeof why, "there is no %s '%s'", what, name);
    if (near) snprintf(why + at_byte, sizeof why - (size_t)at_byte, "; did you mean '%s'?", near);
    else snprintf(why + at_byte, sizeof why - (size_t)at_byte, ": expected a name that this file describes");
    return refuse(r, at, key, why);
}

static const link_row *find_link(const reader *r, const char *name)
{
    for (int i = 0; i < r->nlinks; i++)
        if (strcmp(r->link[i].name, name) == 0) return &r->link[i];
    return NULL;
}

static int level_of(const reader *r, const char *name)
{
    for (int i = 0; i < r->nlevels; i++)
        if (strcmp(r->level[i].name, name) == 0) return i;
    return -1;
}

static ls_status add_in_order(const reader *r, const level_row *from, ls_topo *out)
{
    const char *names[LS_TOPO_MOST_LEVELS];
    for (int i = 0; i < r->nlinks; i++) names[i] = r->link[i].name;
    const link_row *link = find_link(r, from->link);
    if (!link) return no_such(r, from->link_at, "link", "link", from->link, names, (size_t)r->nlinks);
    const int64_t devices = out->nlevels ? ls_topo_devices(out) : 1;
    if ((int64_t)from->count > LS_TOPO_MOST_DEVICES / devices)
        return refuse(r, from->at, from->name, "too many devices: expected at most 1048576 in the cluster");
    ls_topo_level *l = &out->level[out->nlevels], *below = out->nlevels ? l - 1 : NULL;
    *l = (ls_topo_level){ .count = (int)from->count, .bytes_per_s = link->bytes_per_s, .summed = link->summed,
                          .latency_s = link->latency_s, .ports = (int)from->ports, .rails = from->rails,
                          .oversubscription = from->oversubscription };
    snprintf(l->name, sizeof l->name, "%s", from->name);
    snprintf(l->link, sizeof l->link, "%s", from->link);
    const int64_t ports = out->nlevels < 2 ? (from->rails ? devices : 1) : (int64_t)below->ports * below->count;
    if (from->ports == 0 && ports > LS_TOPO_MOST_DEVICES) return refuse(r, from->at, from->name, "too many ports: state fewer");
    if (from->ports == 0) l->ports = (int)ports;
    out->nlevels++;
    return LS_OK;
}

/* From `device` upwards. A level that is left over is part of a circle, or joins units that no level has. */
static ls_status order_levels(const reader *r, ls_topo *out)
{
    bool used[LS_TOPO_MOST_LEVELS] = { false };
    const char *names[LS_TOPO_MOST_LEVELS + 1] = { DEVICE }, *below = DEVICE;
    char why[200];
    for (int i = 0; i < r->nlevels; i++) names[i + 1] = r->level[i].name;
    for (int i = 0; i < r->nlevels; i++) {
        if (strcmp(r->level[i].of, DEVICE) != 0 && level_of(r, r->level[i].of) < 0)
            return no_such(r, r->level[i].of_at, "of", "level", r->level[i].of, names, (size_t)r->nlevels + 1);
        for (int k = 0; k < i; k++)
            if (strcmp(r->level[i].of, r->level[k].of) == 0)
                return refuse(r, r->level[i].of_at, "of", "another level joins the same units");
    }
    for (bool found = true; found;) {
        found = false;
        for (int i = 0; i < r->nlevels && !found; i++) {
            found = !used[i] && strcmp(r->level[i].of, below) == 0;
            if (!found) continue;
            LS_TRY(add_in_order(r, &r->level[i], out));
            below = r->level[i].name;
            used[i] = true;
        }
    }
    for (int i = 0; i < r->nlevels; i++) {
        if (used[i]) continue;
        snprintf(why, sizeof why, "a circle: '%s' contains itself, by way of '%s'; the lowest level is of device", r->level[i].name,
                 r->level[i].of);
        return refuse(r, r->level[i].of_at, "of", why);
    }
    return LS_OK;
}

/* --- slow units ----------------------------------------------------------------------------------- */

typedef struct slow_row {
    const char *level;
    const yaml_node_t *level_at, *unit_at;
    const char *unit;
    double bytes_per_s;
    bool summed;
} slow_row;

static ls_status take_slow(reader *r, void *row, int known, const char *key, const yaml_node_t *value)
{
    slow_row *s = row;
    switch (known) {
    case 0: s->level_at = value; return ls_yaml_scalar(r->tree, value, key, &s->level);
    case 1: s->unit_at = value; return ls_yaml_scalar(r->tree, value, key, &s->unit);
    case 2: return quantity(r, value, key, LS_Q_BANDWIDTH, &s->bytes_per_s);
    default: return word(r, value, key, "one", "both", &s->summed);
    }
}

static ls_status add_slow(reader *r, const yaml_node_t *node, ls_topo *out)
{
    static const char *const keys[] = { "level", "unit", "bandwidth", "direction" };
    const char *names[LS_TOPO_MOST_LEVELS];
    slow_row s = { 0 };
    char why[200], *end = NULL;
    LS_TRY(mapping(r, node, "slow", keys, 4, 15, take_slow, &s));
    ls_topo_slow *to = &out->slow[out->nslow];
    *to = (ls_topo_slow){ .level = -1, .bytes_per_s = s.summed ? s.bytes_per_s / 2 : s.bytes_per_s };
    for (int l = 0; l < out->nlevels; l++) {
        names[l] = out->level[l].name;
        if (strcmp(names[l], s.level) == 0) to->level = l;
    }
    if (to->level < 0) return no_such(r, s.level_at, "level", "level", s.level, names, (size_t)out->nlevels);
    const int64_t units = ls_topo_units(out, to->level);
    to->unit = *s.unit >= '0' && *s.unit <= '9' ? strtoll(s.unit, &end, 10) : -1;
    if (to->unit < 0 || to->unit >= units || (end && *end)) {
        snprintf(why, sizeof why, "'%.40s': %s joins %lld units: expected 0 to %lld", s.unit, s.level, (long long)units, (long long)units - 1);
        return refuse(r, s.unit_at, "unit", why);
    }
    for (int i = 0; i < out->nslow; i++)
        if (out->slow[i].level == to->level && out->slow[i].unit == to->unit) return refuse(r, s.unit_at, "unit", "is listed twice");
    if (to->bytes_per_s > out->level[to->level].bytes_per_s)
        return refuse(r, node, "bandwidth", "is not slow: expected at most that of the level's link");
    out->nslow++;
    return LS_OK;
}

/* --- the file ------------------------------------------------------------------------------------- */

static ls_status take_top(reader *r, void *row, int known, const char *key, const yaml_node_t *value)
{
    static const char *const keys[] = { "name", "peak", "memory" };
    ls_topo *t = row;
    const char *text;
    switch (known) {
    case 0:
        LS_TRY(name_of(r, value, key, &text));
        snprintf(t->name, sizeof t->name, "%s", text);
        return LS_OK;
    case 1:
        LS_TRY(ls_yaml_scalar(r->tree, value, key, &text));
        if (strlen(text) >= sizeof t->source) return refuse(r, value, key, "is too long: expected at most 255 bytes");
        snprintf(t->source, sizeof t->source, "%s", text);
        return LS_OK;
    case 2: return mapping(r, value, key, keys, 3, 1, take_device, t);
    case 3: return list(r, value, key, LS_TOPO_MOST_LEVELS, add_link, t);
    case 4: r->levels_at = value; return list(r, value, key, LS_TOPO_MOST_LEVELS, add_level, t);
    default: r->slow = value; return LS_OK; /* after the levels */
    }
}

static ls_status read_tree(reader *r, ls_topo *out)
{
    static const char *const keys[] = { "name", "source", "device", "links", "levels", "slow" };
    const yaml_node_t *root = ls_yaml_root(r->tree);
    if (!root) return ls_fail(LS_BAD_FILE, "%s:1: is empty: expected name, device, links and levels", r->tree->file);
    LS_TRY(mapping(r, root, "", keys, 6, 1u << 0 | 1u << 2 | 1u << 3 | 1u << 4, take_top, out));
    if (r->nlevels == 0) return refuse(r, r->levels_at, "levels", "is empty: expected at least one");
    LS_TRY(order_levels(r, out));
    return r->slow ? list(r, r->slow, "slow", LS_TOPO_MOST_SLOW, add_slow, out) : LS_OK;
}

ls_status ls_topo_read(const char *name, const char *text, size_t n, ls_topo *out)
{
    reader r = { 0 };
    memset(out, 0, sizeof *out);
    ls_status st = ls_yaml_tree_read(name, text, n, LS_BAD_FILE, &r.tree);
    if (st == LS_OK) st = read_tree(&r, out);
    ls_yaml_tree_free(r.tree);
    return st;
}

/* --- by name -------------------------------------------------------------------------------------- */

static ls_status find(const char *name, ls_text *path)
{
    ls_file_info info = { 0 };
    ls_text file = { 0 }, names = { 0 };
    ls_text_add(&file, FOLDER "%s" SUFFIX, name);
    (void)ls_env_get()->info(name, &info);
    ls_status st = ls_text_status(&file);
    if (st == LS_OK && info.type == LS_FILE_NONE && !strchr(name, '/') && ls_install_find(file.p, path)) {
        st = ls_text_status(path);
    } else if (st == LS_OK && info.type != LS_FILE_NONE) {
        ls_text_add(path, "%s", name);
        st = ls_text_status(path);
    } else if (st == LS_OK) {
        ls_install_list(FOLDER, SUFFIX, &names);
        st = ls_fail(LS_IO, "%s: No such file, and no cluster of that name; clusters:%s", name, names.n ? names.p : " none is installed");
    }
    ls_text_free(&names);
    ls_text_free(&file);
    return st;
}

ls_status ls_topo_load(const char *name, ls_topo *out)
{
    ls_text path = { 0 };
    char *text = NULL;
    size_t n = 0;
    memset(out, 0, sizeof *out);
    ls_status st = find(name, &path);
    if (st == LS_OK) st = ls_file_read(path.p, LS_YAML_MAX_BYTES, &text, &n);
    if (st == LS_OK) st = ls_topo_read(path.p, text, n, out);
    free(text);
    ls_text_free(&path);
    return st;
}
