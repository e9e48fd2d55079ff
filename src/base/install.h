/* install.h -- files that are installed beside the program: recipes, pages of the handbook. */
#ifndef LS_BASE_INSTALL_H
#define LS_BASE_INSTALL_H
#include "base/text.h"

/* The path of such a file or folder ("recipes/gpt2-tiny.yaml"): in share/lockstep of the program's prefix, else in the
 * folder above the program's, which is the source tree of a program in build/. False: it is in neither. */
bool ls_install_find(const char *name, ls_text *path);
/* Names in the folder `dir` ("recipes") that end with `suffix`, without it, each after a blank, sorted. Nothing when
 * there is no such folder. */
void ls_install_list(const char *dir, const char *suffix, ls_text *out);

#endif
