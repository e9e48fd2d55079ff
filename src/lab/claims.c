/* claims.c -- claims.yaml: libyaml builds the tree, this file takes from it what it knows and refuses the rest. */
#include "lab/claims.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "base/file.h"
#include "base/text.h"
#include "lab/expr.h"

struct ls_lab_document {
    yaml_document_t yaml;
};

typedef struct reader {
    const char *file;
    yaml_document_t *yaml;
    ls_lab *lab;
} reader;

static size_t line_of(const yaml_node_t *node)
{
    return node->start_mark.line + 1;
}

static ls_status refuse(const reader *r, const yaml_node_t *node, const char *key, const char *text)
{
    return ls_fail(LS_USAGE, "%s:%zu: %s%s%s", r->file, line_of(node), key, *key ? ": " : "", text);
}

/* --- kinds of nodes ---------------------------------------------------------------------------- */

static ls_status scalar(const reader *r, const yaml_node_t *node, const char *key, const char **out)
{
    if (node->type != YAML_SCALAR_NODE) return refuse(r, node, key, "expected a text");
    const char *text = (const char *)node->data.scalar.value;
    for (size_t i = 0; i < node->data.scalar.length; i++)
        if ((unsigned char)text[i] < ' ' || text[i] == 127)
            return refuse(r, node, key, "a control character or line break in a text");
    if (node->data.scalar.length == 0) return refuse(r, node, key, "expected a text, found nothing");
    *out = text;
    return LS_OK;
}

static ls_status whole(const reader *r, const yaml_node_t *node, const char *key, size_t most, size_t *out)
{
    const char *text;
    LS_TRY(scalar(r, node, key, &text));
    *out = 0;
    for (const char *p = text; *p; p++) {
        if (*p < '0' || *p > '9' || *out > most) return refuse(r, node, key, "expected a small whole number");
        *out = 10 * *out + (size_t)(*p - '0');
    }
    if (*out < 1 || *out > most) return refuse(r, node, key, "expected a small whole number, from 1");
    return LS_OK;
}

static ls_status add(const reader *r, const yaml_node_t *node, const char *key, const char *name, const char *value,
                     ls_lab_pairs *out)
{
    if (out->n == LS_LAB_MAX_PAIRS) return refuse(r, node, key, "too many entries");
    out->v[out->n++] = (ls_lab_pair){ name, value, line_of(node) };
    return LS_OK;
}

static ls_status list(const reader *r, const yaml_node_t *node, const char *key, ls_lab_pairs *out)
{
    if (node->type != YAML_SEQUENCE_NODE) return refuse(r, node, key, "expected a list of texts");
    for (const yaml_node_item_t *i = node->data.sequence.items.start; i < node->data.sequence.items.top; i++) {
        const yaml_node_t *item = yaml_document_get_node(r->yaml, *i);
        const char *text;
        LS_TRY(scalar(r, item, key, &text));
        LS_TRY(add(r, item, key, NULL, text, out));
    }
    return LS_OK;
}

static const ls_lab_pair *find(const ls_lab_pairs *pairs, const char *name, size_t nbytes)
{
    for (size_t i = 0; i < pairs->n; i++)
        if (strlen(pairs->v[i].name) == nbytes && strncmp(pairs->v[i].name, name, nbytes) == 0) return &pairs->v[i];
    return NULL;
}

static ls_status pairs(const reader *r, const yaml_node_t *node, const char *key, ls_lab_pairs *out)
{
    if (node->type != YAML_MAPPING_NODE) return refuse(r, node, key, "expected names with texts, as {a: text}");
    for (const yaml_node_pair_t *p = node->data.mapping.pairs.start; p < node->data.mapping.pairs.top; p++) {
        const yaml_node_t *left = yaml_document_get_node(r->yaml, p->key);
        const yaml_node_t *right = yaml_document_get_node(r->yaml, p->value);
        const char *name, *value;
        LS_TRY(scalar(r, left, key, &name));
        for (size_t i = 0; name[i]; i++)
            if (!ls_lab_is_name(name[i], i == 0))
                return refuse(r, left, key, "a name has letters, digits and _, and begins with no digit");
        if (find(out, name, strlen(name))) return refuse(r, left, key, "this name is given twice");
        LS_TRY(scalar(r, right, key, &value));
        LS_TRY(add(r, left, key, name, value, out));
    }
    return LS_OK;
}

/* --- one claim --------------------------------------------------------------------------------- */

static ls_status kind(const reader *r, const yaml_node_t *node, ls_lab_claim *c)
{
    const char *text;
    char *end;
    LS_TRY(scalar(r, node, "kind", &text));
    if (strcmp(text, "exact") == 0) return LS_OK;
    if (strcmp(text, "virtual") == 0)
        return refuse(r, node, "kind", "virtual is not implemented: expected exact, numeric TOLERANCE, timed or shown");
    c->kind = LS_LAB_TIMED;
    if (strcmp(text, "timed") == 0) return LS_OK;
    c->kind = LS_LAB_SHOWN;
    if (strcmp(text, "shown") == 0) return LS_OK;
    c->kind = LS_LAB_NUMERIC;
    if (strncmp(text, "numeric ", 8) != 0 || text[8] < '0' || text[8] > '9')
        return refuse(r, node, "kind", "expected exact, numeric TOLERANCE (as in numeric 1e-6), timed or shown");
    c->tolerance = strtod(text + 8, &end);
    if (*end || !(c->tolerance > 0.0 && c->tolerance < 1.0))
        return refuse(r, node, "kind", "expected a tolerance between 0 and 1");
    return LS_OK;
}

static ls_status ask(const reader *r, const yaml_node_t *node, ls_lab_claim *c)
{
    if (node->type != YAML_MAPPING_NODE) return refuse(r, node, "ask", "expected {text: .., options: [..], right: N}");
    for (const yaml_node_pair_t *p = node->data.mapping.pairs.start; p < node->data.mapping.pairs.top; p++) {
        const yaml_node_t *left = yaml_document_get_node(r->yaml, p->key);
        const yaml_node_t *right = yaml_document_get_node(r->yaml, p->value);
        const char *name;
        LS_TRY(scalar(r, left, "ask", &name));
        if (strcmp(name, "text") == 0 && !c->ask) LS_TRY(scalar(r, right, "text", &c->ask));
        else if (strcmp(name, "options") == 0 && c->options.n == 0) LS_TRY(list(r, right, "options", &c->options));
        else if (strcmp(name, "right") == 0 && c->right == 0)
            LS_TRY(whole(r, right, "right", LS_LAB_MAX_PAIRS, &c->right));
        else return refuse(r, left, "ask", "expected text, options and right, each once");
    }
    if (!c->ask || c->options.n < 2 || c->right == 0 || c->right > c->options.n)
        return refuse(r, node, "ask", "expected a text, two options or more, and the number of the right one");
    return LS_OK;
}

enum { ID, SAYS, ROWS, RUN, TAKE, EXPECT, KIND, WHY, ASK, CONTROL, KEYS };
static const char *const claim_keys[KEYS] = { "id",     "says", "rows", "run", "take",
                                              "expect", "kind", "why",  "ask", "control" };

static ls_status claim_value(const reader *r, int key, const yaml_node_t *node, ls_lab_claim *c)
{
    const char *name = claim_keys[key];
    switch (key) {
    case ID: return scalar(r, node, name, &c->id);
    case SAYS: return scalar(r, node, name, &c->says);
    case ROWS: return list(r, node, name, &c->rows);
    case RUN: return pairs(r, node, name, &c->run);
    case TAKE: return pairs(r, node, name, &c->take);
    case EXPECT: c->expect_line = line_of(node); return scalar(r, node, name, &c->expect);
    case KIND: return kind(r, node, c);
    case WHY: return scalar(r, node, name, &c->why);
    case ASK: return ask(r, node, c);
    default: return pairs(r, node, name, &c->control);
    }
}

/* Which of the n known keys `node` is, not met before; *known is set to it. */
static ls_status known_key(const reader *r, const yaml_node_t *node, const char *const *keys, int n, bool *seen,
                           int *known)
{
    const char *text;
    LS_TRY(scalar(r, node, "", &text));
    for (*known = 0; *known < n; ++*known) {
        if (strcmp(keys[*known], text) != 0) continue;
        if (seen[*known]) return refuse(r, node, text, "is given twice");
        seen[*known] = true;
        return LS_OK;
    }
    return refuse(r, node, text, "is not a key that is known here");
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
        if (!slash || !slash[1] || !find(&c->run, path, (size_t)(slash - path)))
            return refuse_line(r, c->take.v[i].line, c, path,
                               "expected RUN/KEY, with the name of one of the claim's runs");
    }
    for (size_t i = 0; i < c->control.n; i++)
        if (!find(&c->run, c->control.v[i].name, strlen(c->control.v[i].name)))
            return refuse_line(r, c->control.v[i].line, c, c->control.v[i].name,
                               "the claim has no run of this name to replace");
    if (c->kind != LS_LAB_SHOWN && !c->expect) return refuse_line(r, c->line, c, "expect", "is missing");
    if (c->kind != LS_LAB_SHOWN && c->control.n == 0)
        return refuse_line(r, c->line, c, "control", "is missing: a run in which the comparison must fail");
    return check_expect(r, c);
}

static ls_status claim(const reader *r, const yaml_node_t *node)
{
    static const int needed[] = { ID, SAYS, RUN, TAKE, KIND, WHY };
    ls_lab_claim *c = &r->lab->claims[r->lab->n];
    bool seen[KEYS] = { false };
    if (node->type != YAML_MAPPING_NODE) return refuse(r, node, "claims", "expected a claim, which begins with - id:");
    c->line = line_of(node);
    for (const yaml_node_pair_t *p = node->data.mapping.pairs.start; p < node->data.mapping.pairs.top; p++) {
        int key;
        LS_TRY(known_key(r, yaml_document_get_node(r->yaml, p->key), claim_keys, KEYS, seen, &key));
        LS_TRY(claim_value(r, key, yaml_document_get_node(r->yaml, p->value), c));
    }
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
        if (!seen[needed[i]]) return refuse(r, node, claim_keys[needed[i]], "is missing from this claim");
    for (size_t i = 0; i < r->lab->n; i++)
        if (strcmp(r->lab->claims[i].id, c->id) == 0)
            return refuse(r, node, c->id, "there is already a claim of this id");
    r->lab->n++;
    return check_claim(r, c);
}

/* --- the file ---------------------------------------------------------------------------------- */

static ls_status claims(const reader *r, const yaml_node_t *node)
{
    if (node->type != YAML_SEQUENCE_NODE) return refuse(r, node, "claims", "expected a list of claims");
    const yaml_node_item_t *first = node->data.sequence.items.start, *end = node->data.sequence.items.top;
    if (first == end) return refuse(r, node, "claims", "there is none");
    if (end - first > LS_LAB_MAX_CLAIMS) return refuse(r, node, "claims", "there are too many");
    r->lab->claims = calloc((size_t)(end - first), sizeof *r->lab->claims);
    if (!r->lab->claims) return ls_fail(LS_NO_MEMORY, "%s: claims", r->file);
    for (const yaml_node_item_t *i = first; i < end; i++) LS_TRY(claim(r, yaml_document_get_node(r->yaml, *i)));
    return LS_OK;
}

static ls_status lab(const reader *r)
{
    enum { LAB, TITLE, MINUTES, CLAIMS, N };
    static const char *const keys[N] = { "lab", "title", "minutes", "claims" };
    bool seen[N] = { false };
    const yaml_node_t *root = yaml_document_get_root_node(r->yaml);
    if (!root) return ls_fail(LS_USAGE, "%s:1: there are no claims", r->file);
    if (root->type != YAML_MAPPING_NODE) return refuse(r, root, "", "expected the keys lab, title, minutes and claims");
    for (const yaml_node_pair_t *p = root->data.mapping.pairs.start; p < root->data.mapping.pairs.top; p++) {
        const yaml_node_t *value = yaml_document_get_node(r->yaml, p->value);
        int key;
        LS_TRY(known_key(r, yaml_document_get_node(r->yaml, p->key), keys, N, seen, &key));
        if (key == LAB) LS_TRY(scalar(r, value, "lab", &r->lab->number));
        if (key == TITLE) LS_TRY(scalar(r, value, "title", &r->lab->title));
        if (key == MINUTES) LS_TRY(whole(r, value, "minutes", 600, &r->lab->minutes));
        if (key == CLAIMS) LS_TRY(claims(r, value));
    }
    for (int i = 0; i < N; i++)
        if (!seen[i]) return refuse(r, root, keys[i], "is missing");
    return LS_OK;
}

static ls_status not_yaml(const char *name, const yaml_parser_t *p)
{
    if (p->error == YAML_MEMORY_ERROR) return ls_fail(LS_NO_MEMORY, "%s: while reading YAML", name);
    return ls_fail(LS_USAGE, "%s:%zu: not YAML: %s", name,
                   p->problem_mark.line + 1, p->problem ? p->problem : "unknown problem");
}

/* One document, and nothing after it. */
static ls_status check_end(const char *name, yaml_parser_t *parser)
{
    yaml_document_t rest;
    if (!yaml_parser_load(parser, &rest)) return not_yaml(name, parser);
    const yaml_node_t *root = yaml_document_get_root_node(&rest);
    const size_t line = root ? line_of(root) : 0;
    yaml_document_delete(&rest);
    return root ? ls_fail(LS_USAGE, "%s:%zu: more than one document", name, line) : LS_OK;
}

ls_status ls_lab_read(const char *name, const char *text, size_t n, ls_lab *out)
{
    yaml_parser_t parser;
    *out = (ls_lab){ .file = name };
    if (n > LS_YAML_MAX_BYTES)
        return ls_fail(LS_USAGE, "%s: %zu bytes, at most %u are accepted", name, n, LS_YAML_MAX_BYTES);
    ls_lab_document *document = calloc(1, sizeof *document);
    if (!document) return ls_fail(LS_NO_MEMORY, "%s: claims", name);
    if (!yaml_parser_initialize(&parser)) {
        free(document);
        return ls_fail(LS_NO_MEMORY, "%s: while reading YAML", name);
    }
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, n);
    ls_status st = LS_OK;
    if (!yaml_parser_load(&parser, &document->yaml)) {
        st = not_yaml(name, &parser);
        free(document);
    } else {
        out->document = document;
        st = lab(&(reader){ name, &document->yaml, out });
        if (st == LS_OK) st = check_end(name, &parser);
    }
    yaml_parser_delete(&parser);
    return st;
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
    if (lab_->document) yaml_document_delete(&lab_->document->yaml);
    free(lab_->document);
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
