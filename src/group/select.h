/* select.h -- which form carries out a work. */
#ifndef LS_GROUP_SELECT_H
#define LS_GROUP_SELECT_H
#include "group/form.h"

const ls_form *ls_select(const ls_work *k);
/* All forms in memory that can carry out a work, in the order in which they are asked; then those that one becomes
 * where a vector is private: *registered comes before them. 0 where no memory is mapped. */
#define LS_SELECT_MOST 6
int ls_select_able(const ls_work *k, const ls_form *out[LS_SELECT_MOST], int *registered);
/* What carried out the last collective of the group: an algorithm of the registry, or a form. */
const char *ls_select_ran(const ls_group *g);

#endif
