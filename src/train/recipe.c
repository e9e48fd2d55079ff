/* recipe.c -- recipes by name. */
#include <string.h>

#include "base/env.h"
#include "base/install.h"
#include "train/recipe.h"

#define FOLDER "recipes/"
#define SUFFIX ".yaml"

ls_status ls_recipe_find(const char *name, ls_text *path)
{
    ls_file_info info = { 0 };
    const char *bare = strncmp(name, FOLDER, strlen(FOLDER)) == 0 ? name + strlen(FOLDER) : name;
    const size_t n = strlen(bare), k = strlen(SUFFIX);
    const bool whole = n > k && strcmp(bare + n - k, SUFFIX) == 0;
    (void)ls_env_get()->info(name, &info);
    const bool file_there = info.type == LS_FILE_REGULAR || info.type == LS_FILE_OTHER;
    const bool a_path = !*bare || strchr(bare, '/');
    ls_text file = { 0 }, names = { 0 };
    ls_text_add(&file, FOLDER "%s%s", bare, whole ? "" : SUFFIX);
    ls_status st = ls_text_status(&file);
    if (st == LS_OK && !file_there && !a_path && ls_install_find(file.p, path)) {
        st = ls_text_status(path);
    } else if (st == LS_OK && (file_there || a_path || info.type == LS_FILE_DIR)) {
        ls_text_add(path, "%s", name); /* who reads it says what is wrong with it */
        st = ls_text_status(path);
    } else if (st == LS_OK) {
        ls_install_list("recipes", SUFFIX, &names);
        st = ls_fail(LS_IO, "%s: No such file, and no recipe of that name; recipes:%s", name, names.n ? names.p : " none is installed");
    }
    ls_text_free(&names);
    ls_text_free(&file);
    return st;
}
