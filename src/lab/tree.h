/* tree.h -- lists and names with texts in the YAML files of labs. Every failure of the text is LS_USAGE and names file
 * and line.
 */
#ifndef LS_LAB_TREE_H
#define LS_LAB_TREE_H
#include "base/yaml_tree.h"
#include "lab/claims.h"

/* A list of texts (values of pairs without names); names with texts. */
ls_status ls_lab_list(const ls_yaml_tree *r, const yaml_node_t *node, const char *key, ls_lab_pairs *out);
ls_status ls_lab_named(const ls_yaml_tree *r, const yaml_node_t *node, const char *key, ls_lab_pairs *out);

/* The pair of this name of nbytes; NULL: there is none. */
const ls_lab_pair *ls_lab_pair_of(const ls_lab_pairs *in, const char *name, size_t nbytes);

#endif
