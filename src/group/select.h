/* select.h -- which form carries out a work. */
#ifndef LS_GROUP_SELECT_H
#define LS_GROUP_SELECT_H
#include "group/form.h"

const ls_form *ls_select(const ls_work *k);
/* What carried out the last collective of the group: an algorithm of the registry, or a form. */
const char *ls_select_ran(const ls_group *g);

#endif
