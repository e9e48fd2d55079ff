/* yaml_tree.h -- a YAML file as a tree, and taking values from it: for files that have lists of things. A file of
 * options is read by opts_yaml.c. Every failure of the text names file and line.
 */
#ifndef LS_BASE_YAML_TREE_H
#define LS_BASE_YAML_TREE_H
#include <stdbool.h>
#include <stddef.h>
#include <yaml.h>

#include "lockstep/status.h"

typedef struct ls_yaml_tree {
    const char *file; /* borrowed: stands in messages */
    ls_status wrong;  /* what a failure of the text is */
    yaml_document_t yaml;
} ls_yaml_tree;

/* One document, and nothing after it. Texts of it live as long as the tree. Free *out with ls_yaml_tree_free, after a
 * failure as well. */
ls_status ls_yaml_tree_read(const char *name, const char *text, size_t n, ls_status wrong, ls_yaml_tree **out);
void ls_yaml_tree_free(ls_yaml_tree *tree); /* NULL is fine */

yaml_node_t *ls_yaml_root(const ls_yaml_tree *r); /* NULL: the file is empty */
yaml_node_t *ls_yaml_node(const ls_yaml_tree *r, int index);
size_t ls_yaml_line(const yaml_node_t *node); /* from 1 */

/* "FILE:LINE: KEY: text". */
ls_status ls_yaml_refuse(const ls_yaml_tree *r, const yaml_node_t *node, const char *key, const char *text);

/* A text in one line; a number from 1 to `most`. */
ls_status ls_yaml_scalar(const ls_yaml_tree *r, const yaml_node_t *node, const char *key, const char **out);
ls_status ls_yaml_whole(const ls_yaml_tree *r, const yaml_node_t *node, const char *key, size_t most, size_t *out);

/* Which of the n known keys `node` is, not met before; *known is set to it, and seen[*known] to true. */
ls_status ls_yaml_key(const ls_yaml_tree *r, const yaml_node_t *node, const char *const *keys, int n, bool *seen,
                      int *known);

#endif
