/* tree.h -- a YAML file of a lab as a tree, and taking values from it. Every failure of the text is LS_USAGE and names
 * file and line.
 */
#ifndef LS_LAB_TREE_H
#define LS_LAB_TREE_H
#include <stdbool.h>
#include <stddef.h>
#include <yaml.h>

#include "lab/claims.h"

typedef struct ls_lab_document {
    const char *file; /* borrowed: stands in messages */
    yaml_document_t yaml;
} ls_lab_tree;

/* One document, and nothing after it. Texts of it live as long as the tree. Free *out with ls_lab_tree_free, after a
 * failure as well. */
ls_status ls_lab_tree_read(const char *name, const char *text, size_t n, ls_lab_tree **out);
void ls_lab_tree_free(ls_lab_tree *tree); /* NULL is fine */

yaml_node_t *ls_lab_root(const ls_lab_tree *r); /* NULL: the file is empty */
yaml_node_t *ls_lab_node(const ls_lab_tree *r, int index);
size_t ls_lab_line(const yaml_node_t *node); /* from 1 */

/* "FILE:LINE: KEY: text". */
ls_status ls_lab_refuse(const ls_lab_tree *r, const yaml_node_t *node, const char *key, const char *text);

/* A text in one line; a number from 1 to `most`; a list of texts (values of pairs without names); names with texts. */
ls_status ls_lab_text(const ls_lab_tree *r, const yaml_node_t *node, const char *key, const char **out);
ls_status ls_lab_whole(const ls_lab_tree *r, const yaml_node_t *node, const char *key, size_t most, size_t *out);
ls_status ls_lab_list(const ls_lab_tree *r, const yaml_node_t *node, const char *key, ls_lab_pairs *out);
ls_status ls_lab_named(const ls_lab_tree *r, const yaml_node_t *node, const char *key, ls_lab_pairs *out);

/* Which of the n known keys `node` is, not met before; *known is set to it, and seen[*known] to true. */
ls_status ls_lab_key(const ls_lab_tree *r, const yaml_node_t *node, const char *const *keys, int n, bool *seen,
                     int *known);

/* The pair of this name of nbytes; NULL: there is none. */
const ls_lab_pair *ls_lab_pair_of(const ls_lab_pairs *in, const char *name, size_t nbytes);

#endif
