/* rundir.c -- making and keeping the run folder. */
#include "train/rundir.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/env.h"

#define SUFFIXES 10000

ls_status ls_mkdirs(const char *path)
{
    const ls_env *env = ls_env_get();
    char part[512];
    size_t n = strlen(path), most = sizeof part - 3;
    if (n == 0 || n > most) return ls_fail(LS_BAD_CONFIG, "folder name of %zu bytes: expected 1 to %zu", n, most);
    for (size_t i = 1; i <= n; i++) {
        if (path[i] != '/' && path[i] != 0) continue;
        memcpy(part, path, i);
        part[i] = 0;
        int err = env->mkdir(part);
        ls_file_info info;
        if (err == 0) continue;
        memcpy(part + i, "/.", 3); /* what a link leads to; a folder we may not write in will do for a parent */
        if (env->info(part, &info) == 0 && info.type == LS_FILE_DIR) continue;
        part[i] = 0;
        return ls_fail(LS_IO, "making the folder %s: %s", part, strerror(err == -EEXIST ? ENOTDIR : -err));
    }
    return LS_OK;
}

ls_status ls_rundir_create(const char *dir, const char *name, char *out, size_t n)
{
    const ls_env *env = ls_env_get();
    char base[400];
    int k = *dir ? snprintf(base, sizeof base, "%s", dir) : snprintf(base, sizeof base, "runs/%s", name);
    if (k <= 0 || (size_t)k + 32 > sizeof base || (size_t)k + 8 > n)
        return ls_fail(LS_BAD_CONFIG, "run.dir or run.name is too long: at most %zu bytes", n - 8);
    while (k > 1 && base[k - 1] == '/') base[--k] = 0;
    char *slash = strrchr(base, '/');
    if (slash && slash != base) {
        *slash = 0;
        ls_status st = ls_mkdirs(base);
        *slash = '/';
        if (st < 0) return ls_while(st, "making the run folder %s (--run.dir)", base);
    }
    for (int i = 1; i <= SUFFIXES; i++) {
        if (i == 1) snprintf(out, n, "%s", base);
        else snprintf(out, n, "%s-%d", base, i);
        int err = env->mkdir(out);
        if (err == -EEXIST) continue;
        if (err < 0)
            return ls_fail(LS_IO, "making the run folder %s: %s; choose another with --run.dir", out, strerror(-err));
        char sub[512];
        snprintf(sub, sizeof sub, "%s/checkpoints", out);
        return ls_mkdirs(sub);
    }
    return ls_fail(LS_IO, "%s and %d more with suffixes exist already: choose another --run.dir", base, SUFFIXES - 1);
}

/* A checkpoint folder is flat: files, then itself. */
void ls_remove_folder(const char *path)
{
    const ls_env *env = ls_env_get();
    char names[4096], file[6144];
    int count = env->list(path, names, sizeof names);
    for (char *name = names; count-- > 0; name += strlen(name) + 1) {
        snprintf(file, sizeof file, "%s/%s", path, name);
        env->unlink(file);
    }
    env->rmdir(path);
}
