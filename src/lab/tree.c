/* tree.c -- lists and names with texts in the YAML files of labs. */
#include "lab/tree.h"

#include <string.h>

#include "lab/expr.h"

static ls_status add(const ls_yaml_tree *r, const yaml_node_t *node, const char *key, const char *name,
                     const char *value, ls_lab_pairs *out)
{
    if (out->n == LS_LAB_MAX_PAIRS) return ls_yaml_refuse(r, node, key, "too many entries");
    out->v[out->n++] = (ls_lab_pair){ name, value, ls_yaml_line(node) };
    return LS_OK;
}

ls_status ls_lab_list(const ls_yaml_tree *r, const yaml_node_t *node, const char *key, ls_lab_pairs *out)
{
    if (node->type != YAML_SEQUENCE_NODE) return ls_yaml_refuse(r, node, key, "expected a list of texts");
    for (const yaml_node_item_t *i = node->data.sequence.items.start; i < node->data.sequence.items.top; i++) {
        const yaml_node_t *item = ls_yaml_node(r, *i);
        const char *text;
        LS_TRY(ls_yaml_scalar(r, item, key, &text));
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

ls_status ls_lab_named(const ls_yaml_tree *r, const yaml_node_t *node, const char *key, ls_lab_pairs *out)
{
    if (node->type != YAML_MAPPING_NODE) return ls_yaml_refuse(r, node, key, "expected names with texts, as {a: text}");
    for (const yaml_node_pair_t *p = node->data.mapping.pairs.start; p < node->data.mapping.pairs.top; p++) {
        const yaml_node_t *left = ls_yaml_node(r, p->key);
        const yaml_node_t *right = ls_yaml_node(r, p->value);
        const char *name, *value;
        LS_TRY(ls_yaml_scalar(r, left, key, &name));
        for (size_t i = 0; name[i]; i++)
            if (!ls_lab_is_name(name[i], i == 0))
                return ls_yaml_refuse(r, left, key, "a name has letters, digits and _, and begins with no digit");
        if (ls_lab_pair_of(out, name, strlen(name))) return ls_yaml_refuse(r, left, key, "this name is given twice");
        LS_TRY(ls_yaml_scalar(r, right, key, &value));
        LS_TRY(add(r, left, key, name, value, out));
    }
    return LS_OK;
}
