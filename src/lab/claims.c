/* claims.c -- claims.yaml: this file takes from the tree what it knows and refuses the rest. */
#include "lab/claims.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/text.h"
#include "lab/expr.h"
#include "lab/tree.h"

#define WITHIN_VIRTUAL 1e-9 /* sums of doubles in another order, and no measurement */

typedef ls_yaml_tree reader;

/* --- one claim --------------------------------------------------------------------------------- */

static ls_status kind(const reader *r, const yaml_node_t *node, ls_lab_claim *c)
{
    const char *text;
    char *end;
    LS_TRY(ls_yaml_scalar(r, node, "kind", &text));
    if (strcmp(text, "exact") == 0) return LS_OK;
    c->kind = LS_LAB_VIRTUAL;
    c->tolerance = WITHIN_VIRTUAL;
    if (strcmp(text, "virtual") == 0) return LS_OK;
    c->tolerance = 0.0;
    c->kind = LS_LAB_TIMED;
    if (strcmp(text, "timed") == 0) return LS_OK;
    c->kind = LS_LAB_SHOWN;
    if (strcmp(text, "shown") == 0) return LS_OK;
    c->kind = LS_LAB_NUMERIC;
    if (strncmp(text, "numeric ", 8) != 0 || text[8] < '0' || text[8] > '9')
        return ls_yaml_refuse(r, node, "kind", "expected exact, numeric TOLERANCE (as in numeric 1e-6), virtual, timed or shown");
    c->tolerance = strtod(text + 8, &end);
    if (*end || !(c->tolerance > 0.0 && c->tolerance < 1.0))
        return ls_yaml_refuse(r, node, "kind", "expected a tolerance between 0 and 1");
    return LS_OK;
}

static ls_status ask(const reader *r, const yaml_node_t *node, ls_lab_claim *c)
{
    if (node->type != YAML_MAPPING_NODE) return ls_yaml_refuse(r, node, "ask", "expected {text: .., options: [..], right: N}");
    for (const yaml_node_pair_t *p = node->data.mapping.pairs.start; p < node->data.mapping.pairs.top; p++) {
        const yaml_node_t *left = ls_yaml_node(r, p->key);
        const yaml_node_t *right = ls_yaml_node(r, p->value);
        const char *name;
        LS_TRY(ls_yaml_scalar(r, left, "ask", &name));
        if (strcmp(name, "text") == 0 && !c->ask) LS_TRY(ls_yaml_scalar(r, right, "text", &c->ask));
        else if (strcmp(name, "options") == 0 && c->options.n == 0) LS_TRY(ls_lab_list(r, right, "options", &c->options));
        else if (strcmp(name, "right") == 0 && c->right == 0)
            LS_TRY(ls_yaml_whole(r, right, "right", LS_LAB_MAX_PAIRS, &c->right));
        else return ls_yaml_refuse(r, left, "ask", "expected text, options and right, each once");
    }
    if (!c->ask || c->options.n < 2 || c->right == 0 || c->right > c->options.n)
        return ls_yaml_refuse(r, node, "ask", "expected a text, two options or more, and the number of the right one");
    return LS_OK;
}

enum { ID, SAYS, ROWS, RUN, TAKE, EXPECT, KIND, UNIT, WHY, ASK, CONTROL, KEYS };
static const char *const claim_keys[KEYS] = { "id",     "says", "rows", "run", "take",
                                              "expect", "kind", "unit", "why",  "ask", "control" };

static ls_status claim_value(const reader *r, int key, const yaml_node_t *node, ls_lab_claim *c)
{
    const char *name = claim_keys[key];
    switch (key) {
    case ID: return ls_yaml_scalar(r, node, name, &c->id);
    case SAYS: return ls_yaml_scalar(r, node, name, &c->says);
    case ROWS: return ls_lab_list(r, node, name, &c->rows);
    case RUN: return ls_lab_named(r, node, name, &c->run);
    case TAKE: return ls_lab_named(r, node, name, &c->take);
    case EXPECT: c->expect_line = ls_yaml_line(node); return ls_yaml_scalar(r, node, name, &c->expect);
    case KIND: return kind(r, node, c);
    case UNIT: return ls_yaml_scalar(r, node, name, &c->unit);
    case WHY: return ls_yaml_scalar(r, node, name, &c->why);
    case ASK: return ask(r, node, c);
    default: return ls_lab_named(r, node, name, &c->control);
    }
}

/* --- what has to fit together ------------------------------------------------------------------ */

static ls_status refuse_line(const reader *r, size_t line, const ls_lab_claim *c, const char *what, const char *text)
{
    return ls_fail(LS_USAGE, "%s:%zu: claim %s: '%s': %s", r->file, line, c->id, what, text);
}

static ls_status check_commands(const reader *r, const ls_lab_claim *c, const ls_lab_pairs *runs)
{
    static const char *const first[] = { "lockstep", "probe", "starter" };
    for (size_t i = 0; i < runs->n; i++) {
        const char *command = runs->v[i].value;
        const size_t nbytes = strcspn(command, " ");
        bool known = false;
        for (size_t k = 0; k < sizeof first / sizeof *first; k++)
            known = known || (strlen(first[k]) == nbytes && strncmp(first[k], command, nbytes) == 0);
        if (!known) return refuse_line(r, runs->v[i].line, c, runs->v[i].name,
                               "a command begins with lockstep, probe or starter");
        if (strpbrk(command, "\"'`$|&;<>\\*?"))
            return refuse_line(r, runs->v[i].line, c, runs->v[i].name,
                               "there is no shell: words are separated by blanks, without quotes");
    }
    return LS_OK;
}

static ls_status check_expect(const reader *r, const ls_lab_claim *c)
{
    ls_lab_value values[LS_LAB_MAX_PAIRS];
    ls_text where = { 0 };
    if (!c->expect) return LS_OK;
    for (size_t i = 0; i < c->take.n; i++) values[i] = (ls_lab_value){ .name = c->take.v[i].name };
    ls_text_add(&where, "%s:%zu: claim %s: expect", r->file, c->expect_line, c->id);
    ls_status st = ls_text_status(&where);
    if (st == LS_OK) st = ls_lab_expr_check(ls_text_str(&where), c->expect, values, c->take.n);
    ls_text_free(&where);
    return st;
}

static ls_status check_claim(const reader *r, const ls_lab_claim *c)
{
    LS_TRY(check_commands(r, c, &c->run));
    LS_TRY(check_commands(r, c, &c->control));
    for (size_t i = 0; i < c->take.n; i++) {
        const char *path = c->take.v[i].value, *slash = strchr(path, '/');
        if (!slash || !slash[1] || !ls_lab_pair_of(&c->run, path, (size_t)(slash - path)))
            return refuse_line(r, c->take.v[i].line, c, path,
                               "expected RUN/KEY, with the name of one of the claim's runs");
        if (strcmp(slash + 1, "stderr") == 0 || strcmp(slash + 1, "stderr/") == 0)
            return refuse_line(r, c->take.v[i].line, c, path, "expected RUN/stderr/TEXT, which counts lines of messages");
    }
    for (size_t i = 0; i < c->control.n; i++)
        if (!ls_lab_pair_of(&c->run, c->control.v[i].name, strlen(c->control.v[i].name)))
            return refuse_line(r, c->control.v[i].line, c, c->control.v[i].name,
                               "the claim has no run of this name to replace");
    if (c->kind != LS_LAB_SHOWN && !c->expect) return refuse_line(r, c->line, c, "expect", "is missing");
    if (c->kind != LS_LAB_SHOWN && c->control.n == 0)
        return refuse_line(r, c->line, c, "control", "is missing: a run in which the comparison must fail");
    return check_expect(r, c);
}

static ls_status claim(const reader *r, const yaml_node_t *node, ls_lab *out)
{
    static const int needed[] = { ID, SAYS, RUN, TAKE, KIND, WHY };
    ls_lab_claim *c = &out->claims[out->n];
    bool seen[KEYS] = { false };
    if (node->type != YAML_MAPPING_NODE) return ls_yaml_refuse(r, node, "claims", "expected a claim, which begins with - id:");
    c->line = ls_yaml_line(node);
    for (const yaml_node_pair_t *p = node->data.mapping.pairs.start; p < node->data.mapping.pairs.top; p++) {
        int key;
        LS_TRY(ls_yaml_key(r, ls_yaml_node(r, p->key), claim_keys, KEYS, seen, &key));
        LS_TRY(claim_value(r, key, ls_yaml_node(r, p->value), c));
    }
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
        if (!seen[needed[i]]) return ls_yaml_refuse(r, node, claim_keys[needed[i]], "is missing from this claim");
    for (size_t i = 0; i < out->n; i++)
        if (strcmp(out->claims[i].id, c->id) == 0)
            return ls_yaml_refuse(r, node, c->id, "there is already a claim of this id");
    out->n++;
    return check_claim(r, c);
}

/* --- the file ---------------------------------------------------------------------------------- */

static ls_status claims(const reader *r, const yaml_node_t *node, ls_lab *out)
{
    if (node->type != YAML_SEQUENCE_NODE) return ls_yaml_refuse(r, node, "claims", "expected a list of claims");
    const yaml_node_item_t *first = node->data.sequence.items.start, *end = node->data.sequence.items.top;
    if (first == end) return ls_yaml_refuse(r, node, "claims", "there is none");
    if (end - first > LS_LAB_MAX_CLAIMS) return ls_yaml_refuse(r, node, "claims", "there are too many");
    out->claims = calloc((size_t)(end - first), sizeof *out->claims);
    if (!out->claims) return ls_fail(LS_NO_MEMORY, "%s: claims", r->file);
    for (const yaml_node_item_t *i = first; i < end; i++) LS_TRY(claim(r, ls_yaml_node(r, *i), out));
    return LS_OK;
}

static ls_status lab(const reader *r, ls_lab *out)
{
    enum { LAB, TITLE, MINUTES, CLAIMS, N };
    static const char *const keys[N] = { "lab", "title", "minutes", "claims" };
    bool seen[N] = { false };
    const yaml_node_t *root = ls_yaml_root(r);
    if (!root) return ls_fail(LS_USAGE, "%s:1: there are no claims", r->file);
    if (root->type != YAML_MAPPING_NODE) return ls_yaml_refuse(r, root, "", "expected the keys lab, title, minutes and claims");
    for (const yaml_node_pair_t *p = root->data.mapping.pairs.start; p < root->data.mapping.pairs.top; p++) {
        const yaml_node_t *value = ls_yaml_node(r, p->value);
        int key;
        LS_TRY(ls_yaml_key(r, ls_yaml_node(r, p->key), keys, N, seen, &key));
        if (key == LAB) LS_TRY(ls_yaml_scalar(r, value, "lab", &out->number));
        if (key == TITLE) LS_TRY(ls_yaml_scalar(r, value, "title", &out->title));
        if (key == MINUTES) LS_TRY(ls_yaml_whole(r, value, "minutes", 600, &out->minutes));
        if (key == CLAIMS) LS_TRY(claims(r, value, out));
    }
    for (int i = 0; i < N; i++)
        if (!seen[i]) return ls_yaml_refuse(r, root, keys[i], "is missing");
    return LS_OK;
}

ls_status ls_lab_read(const char *name, const char *text, size_t n, ls_lab *out)
{
    *out = (ls_lab){ .file = name };
    LS_TRY(ls_yaml_tree_read(name, text, n, LS_USAGE, &out->document));
    return lab(out->document, out);
}

ls_status ls_lab_load(const char *path, ls_lab *out)
{
    char *text;
    size_t n;
    *out = (ls_lab){ .file = path };
    LS_TRY(ls_file_read(path, LS_YAML_MAX_BYTES, &text, &n));
    const ls_status st = ls_lab_read(path, text, n, out);
    free(text);
    return st;
}

void ls_lab_free(ls_lab *lab_)
{
    ls_yaml_tree_free(lab_->document);
    free(lab_->claims);
    *lab_ = (ls_lab){ 0 };
}

ls_status ls_lab_find(const ls_lab *lab_, const char *id, const ls_lab_claim **out)
{
    ls_text ids = { 0 };
    for (size_t i = 0; i < lab_->n; i++) {
        const char *whole_id = lab_->claims[i].id, *dot = strchr(whole_id, '.');
        if (strcmp(whole_id, id) == 0 || (dot && strcmp(dot + 1, id) == 0)) {
            *out = &lab_->claims[i];
            ls_text_free(&ids);
            return LS_OK;
        }
        ls_text_add(&ids, "%s%s", i ? ", " : "", whole_id);
    }
    const ls_status st = ls_fail(LS_USAGE, "lab %s has no claim '%s': expected one of %s", lab_->number, id,
                                 ls_text_str(&ids));
    ls_text_free(&ids);
    return st;
}
