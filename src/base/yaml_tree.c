/* yaml_tree.c -- libyaml builds the tree; this reads values from it. */
#include "base/yaml_tree.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "lockstep/opts.h"

yaml_node_t *ls_yaml_node(const ls_yaml_tree *r, int index)
{
    return yaml_document_get_node((yaml_document_t *)(uintptr_t)&r->yaml, index); /* libyaml only reads it */
}

yaml_node_t *ls_yaml_root(const ls_yaml_tree *r)
{
    return yaml_document_get_root_node((yaml_document_t *)(uintptr_t)&r->yaml);
}

size_t ls_yaml_line(const yaml_node_t *node)
{
    return node->start_mark.line + 1;
}

ls_status ls_yaml_refuse(const ls_yaml_tree *r, const yaml_node_t *node, const char *key, const char *text)
{
    return ls_fail(r->wrong, "%s:%zu: %s%s%s", r->file, ls_yaml_line(node), key, *key ? ": " : "", text);
}

/* --- kinds of nodes ---------------------------------------------------------------------------- */

ls_status ls_yaml_scalar(const ls_yaml_tree *r, const yaml_node_t *node, const char *key, const char **out)
{
    if (node->type != YAML_SCALAR_NODE) return ls_yaml_refuse(r, node, key, "expected a text");
    const char *text = (const char *)node->data.scalar.value;
    for (size_t i = 0; i < node->data.scalar.length; i++)
        if ((unsigned char)text[i] < ' ' || text[i] == 127)
            return ls_yaml_refuse(r, node, key, "a control character or line break in a text");
    if (node->data.scalar.length == 0) return ls_yaml_refuse(r, node, key, "expected a text, found nothing");
    *out = text;
    return LS_OK;
}

ls_status ls_yaml_whole(const ls_yaml_tree *r, const yaml_node_t *node, const char *key, size_t most, size_t *out)
{
    const char *text;
    LS_TRY(ls_yaml_scalar(r, node, key, &text));
    *out = 0;
    bool good = *text;
    for (const char *p = text; good && *p; p++) {
        good = *p >= '0' && *p <= '9' && *out <= most;
        if (good) *out = 10 * *out + (size_t)(*p - '0');
    }
    if (good && *out >= 1 && *out <= most) return LS_OK;
    char why[120];
    snprintf(why, sizeof why, "expected a whole number from 1 to %zu, found '%.40s'", most, text);
    return ls_yaml_refuse(r, node, key, why);
}

ls_status ls_yaml_key(const ls_yaml_tree *r, const yaml_node_t *node, const char *const *keys, int n, bool *seen,
                           int *known)
{
    const char *text;
    LS_TRY(ls_yaml_scalar(r, node, "", &text));
    for (*known = 0; *known < n; ++*known) {
        if (strcmp(keys[*known], text) != 0) continue;
        if (seen[*known]) return ls_yaml_refuse(r, node, text, "is given twice");
        seen[*known] = true;
        return LS_OK;
    }
    const char *near = ls_nearest(text, keys, (size_t)n);
    return ls_fail(r->wrong, "%s:%zu: %s: is not a key that is known here%s%s%s", r->file, ls_yaml_line(node), text,
                   near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}

static ls_status not_yaml(const ls_yaml_tree *r, const yaml_parser_t *p)
{
    if (p->error == YAML_MEMORY_ERROR) return ls_fail(LS_NO_MEMORY, "%s: while reading YAML", r->file);
    return ls_fail(r->wrong, "%s:%zu: not YAML: %s", r->file,
                   p->problem_mark.line + 1, p->problem ? p->problem : "unknown problem");
}

/* One document, and nothing after it. */
static ls_status check_end(const ls_yaml_tree *r, yaml_parser_t *parser)
{
    yaml_document_t rest;
    if (!yaml_parser_load(parser, &rest)) return not_yaml(r, parser);
    const yaml_node_t *root = yaml_document_get_root_node(&rest);
    const size_t line = root ? ls_yaml_line(root) : 0;
    yaml_document_delete(&rest);
    return root ? ls_fail(r->wrong, "%s:%zu: more than one document", r->file, line) : LS_OK;
}

ls_status ls_yaml_tree_read(const char *name, const char *text, size_t n, ls_status wrong, ls_yaml_tree **out)
{
    yaml_parser_t parser;
    *out = NULL;
    if (n > LS_YAML_MAX_BYTES)
        return ls_fail(wrong, "%s: %zu bytes, at most %u are accepted", name, n, LS_YAML_MAX_BYTES);
    ls_yaml_tree *tree = calloc(1, sizeof *tree);
    if (!tree) return ls_fail(LS_NO_MEMORY, "%s", name);
    tree->file = name;
    tree->wrong = wrong;
    if (!yaml_parser_initialize(&parser)) {
        free(tree);
        return ls_fail(LS_NO_MEMORY, "%s: while reading YAML", name);
    }
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, n);
    ls_status st = LS_OK;
    if (!yaml_parser_load(&parser, &tree->yaml)) {
        st = not_yaml(tree, &parser);
        free(tree);
    } else {
        *out = tree;
        st = check_end(tree, &parser);
    }
    yaml_parser_delete(&parser);
    return st;
}

void ls_yaml_tree_free(ls_yaml_tree *tree)
{
    if (tree) yaml_document_delete(&tree->yaml);
    free(tree);
}
