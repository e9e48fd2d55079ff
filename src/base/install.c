/* install.c -- files that are installed beside the program. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/env.h"
#include "base/install.h"

#define NAMES_BYTES 65536 /* of one folder's entries */

static const char *const folders[] = { "/" LOCKSTEP_DATADIR "/lockstep/", "/" }; /* appended to the folder above the program's */

bool ls_install_find(const char *name, ls_text *path)
{
    const ls_env *env = ls_env_get();
    char self[4096];
    if (env->self_path(self, sizeof self) < 0) return false;
    for (int up = 0; up < 2; up++) { /* to the program's folder, and to the one above */
        char *slash = strrchr(self, '/');
        if (!slash) return false;
        *slash = 0;
    }
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        ls_file_info info = { 0 };
        ls_text t = { 0 };
        ls_text_add(&t, "%s%s%s", self, folders[i], name);
        if (!t.failed && env->info(t.p, &info) == 0 && (info.type == LS_FILE_REGULAR || info.type == LS_FILE_DIR)) {
            ls_text_free(path);
            *path = t;
            return true;
        }
        ls_text_free(&t);
    }
    return false;
}

void ls_install_list(const char *dir, const char *suffix, ls_text *out)
{
    ls_text path = { 0 };
    char *names = malloc(NAMES_BYTES);
    const int n = names && ls_install_find(dir, &path) ? ls_env_get()->list(path.p, names, NAMES_BYTES) : 0;
    const char *name = names;
    for (int i = 0; i < n; i++, name += strlen(name) + 1) {
        const size_t bytes = strlen(name), k = strlen(suffix);
        if (bytes > k && strcmp(name + bytes - k, suffix) == 0) ls_text_add(out, " %.*s", (int)(bytes - k), name);
    }
    free(names);
    ls_text_free(&path);
}
