/* recipe.h -- recipes by name. */
#ifndef LS_TRAIN_RECIPE_H
#define LS_TRAIN_RECIPE_H
#include "base/text.h"

/* The file that `name` stands for: itself where it is there, else the recipe of that name that was installed
 * (base/install.h), with or without the prefix "recipes/" and the suffix ".yaml". LS_IO: neither, with the recipes' names. */
ls_status ls_recipe_find(const char *name, ls_text *path);

#endif
