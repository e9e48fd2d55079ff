/* tree.c -- YAML files of labs: libyaml builds the tree. */
#include "lab/tree.h"

#include <stdlib.h>
#include <string.h>

#include "lab/expr.h"

yaml_node_t *ls_lab_node(const ls_lab_tree *r, int index)
{
    return yaml_document_get_node((yaml_document_t *)(uintptr_t)&r->yaml, index); /* libyaml only reads it */
}

yaml_node_t *ls_lab_root(const ls_lab_tree *r)
{
    return yaml_document_get_root_node((yaml_document_t *)(uintptr_t)&r->yaml);
}

size_t ls_lab_line(const yaml_node_t *node)
{
    return node->start_mark.line + 1;
}

ls_status ls_lab_refuse(const ls_lab_tree *r, const yaml_node_t *node, const char *key, const char *text)
{
    return ls_fail(LS_USAGE, "%s:%zu: %s%s%s", r->file, ls_lab_line(node), key, *key ? ": " : "", text);
}

/* --- kinds of nodes ---------------------------------------------------------------------------- */

ls_status ls_lab_text(const ls_lab_tree *r, const yaml_node_t *node, const char *key, const char **out)
{
    if (node->type != YAML_SCALAR_NODE) return ls_lab_refuse(r, node, key, "expected a text");
    const char *text = (const char *)node->data.scalar.value;
    for (size_t i = 0; i < node->data.scalar.length; i++)
        if ((unsigned char)text[i] < ' ' || text[i] == 127)
            return ls_lab_refuse(r, node, key, "a control character or line break in a text");
    if (node->data.scalar.length == 0) return ls_lab_refuse(r, node, key, "expected a text, found nothing");
    *out = text;
    return LS_OK;
}

ls_status ls_lab_whole(const ls_lab_tree *r, const yaml_node_t *node, const char *key, size_t most, size_t *out)
{
    const char *text;
    LS_TRY(ls_lab_text(r, node, key, &text));
    *out = 0;
    for (const char *p = text; *p; p++) {
        if (*p < '0' || *p > '9' || *out > most) return ls_lab_refuse(r, node, key, "expected a small whole number");
        *out = 10 * *out + (size_t)(*p - '0');
    }
    if (*out < 1 || *out > most) return ls_lab_refuse(r, node, key, "expected a small whole number, from 1");
    return LS_OK;
}

static ls_status add(const ls_lab_tree *r, const yaml_node_t *node, const char *key, const char *name,
                     const char *value, ls_lab_pairs *out)
{
    if (out->n == LS_LAB_MAX_PAIRS) return ls_lab_refuse(r, node, key, "too many entries");
    out->v[out->n++] = (ls_lab_pair){ name, value, ls_lab_line(node) };
    return LS_OK;
}

ls_status ls_lab_list(const ls_lab_tree *r, const yaml_node_t *node, const char *key, ls_lab_pairs *out)
{
    if (node->type != YAML_SEQUENCE_NODE) return ls_lab_refuse(r, node, key, "expected a list of texts");
    for (const yaml_node_item_t *i = node->data.sequence.items.start; i < node->data.sequence.items.top; i++) {
        const yaml_node_t *item = ls_lab_node(r, *i);
        const char *text;
        LS_TRY(ls_lab_text(r, item, key, &text));
        LS_TRY(add(r, item, key, NULL, text, out));
    }
    return LS_OK;
}

const ls_lab_pair *ls_lab_pair_of(const ls_lab_pairs *in, const char *name, size_t nbytes)
{
    for (size_t i = 0; i < in->n; i++)
        if (strlen(in->v[i].name) == nbytes && strncmp(in->v[i].name, name, nbytes) == 0) return &in->v[i];
    return NULL;
}

ls_status ls_lab_named(const ls_lab_tree *r, const yaml_node_t *node, const char *key, ls_lab_pairs *out)
{
    if (node->type != YAML_MAPPING_NODE) return ls_lab_refuse(r, node, key, "expected names with texts, as {a: text}");
    for (const yaml_node_pair_t *p = node->data.mapping.pairs.start; p < node->data.mapping.pairs.top; p++) {
        const yaml_node_t *left = ls_lab_node(r, p->key);
        const yaml_node_t *right = ls_lab_node(r, p->value);
        const char *name, *value;
        LS_TRY(ls_lab_text(r, left, key, &name));
        for (size_t i = 0; name[i]; i++)
            if (!ls_lab_is_name(name[i], i == 0))
                return ls_lab_refuse(r, left, key, "a name has letters, digits and _, and begins with no digit");
        if (ls_lab_pair_of(out, name, strlen(name))) return ls_lab_refuse(r, left, key, "this name is given twice");
        LS_TRY(ls_lab_text(r, right, key, &value));
        LS_TRY(add(r, left, key, name, value, out));
    }
    return LS_OK;
}

ls_status ls_lab_key(const ls_lab_tree *r, const yaml_node_t *node, const char *const *keys, int n, bool *seen,
                           int *known)
{
    const char *text;
    LS_TRY(ls_lab_text(r, node, "", &text));
    for (*known = 0; *known < n; ++*known) {
        if (strcmp(keys[*known], text) != 0) continue;
        if (seen[*known]) return ls_lab_refuse(r, node, text, "is given twice");
        seen[*known] = true;
        return LS_OK;
    }
    return ls_lab_refuse(r, node, text, "is not a key that is known here");
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
    const size_t line = root ? ls_lab_line(root) : 0;
    yaml_document_delete(&rest);
    return root ? ls_fail(LS_USAGE, "%s:%zu: more than one document", name, line) : LS_OK;
}

ls_status ls_lab_tree_read(const char *name, const char *text, size_t n, ls_lab_tree **out)
{
    yaml_parser_t parser;
    *out = NULL;
    if (n > LS_YAML_MAX_BYTES)
        return ls_fail(LS_USAGE, "%s: %zu bytes, at most %u are accepted", name, n, LS_YAML_MAX_BYTES);
    ls_lab_tree *tree = calloc(1, sizeof *tree);
    if (!tree) return ls_fail(LS_NO_MEMORY, "%s", name);
    tree->file = name;
    if (!yaml_parser_initialize(&parser)) {
        free(tree);
        return ls_fail(LS_NO_MEMORY, "%s: while reading YAML", name);
    }
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, n);
    ls_status st = LS_OK;
    if (!yaml_parser_load(&parser, &tree->yaml)) {
        st = not_yaml(name, &parser);
        free(tree);
    } else {
        *out = tree;
        st = check_end(name, &parser);
    }
    yaml_parser_delete(&parser);
    return st;
}

void ls_lab_tree_free(ls_lab_tree *tree)
{
    if (tree) yaml_document_delete(&tree->yaml);
    free(tree);
}
