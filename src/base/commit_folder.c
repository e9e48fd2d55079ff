/* commit_folder.c -- a folder of files that comes and goes as a whole. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/commit.h"
#include "base/env.h"
#include "base/file.h"

#define DIGITS 16 /* of a temporary name: 8 random ones, and 8 of the process */
#define NAMES_BYTES ((size_t)1 << 18)

struct ls_commit_folder {
    char *path, *temporary, *parent; /* one block, owned, after the struct */
    bool exists;                     /* the temporary folder is there to be removed */
};

ls_status ls_commit_folder_create(const char *path, ls_commit_folder **out)
{
    size_t n = strlen(path);
    const size_t temporary = ls_commit_temporary_bytes(path);
    *out = NULL;
    ls_commit_folder *c = malloc(sizeof *c + 2 * (n + 2) + temporary);
    if (!c) return ls_fail(LS_NO_MEMORY, "%s: its name does not fit in memory", path);
    c->path = (char *)(c + 1);
    c->parent = c->path + n + 2;
    c->temporary = c->parent + n + 2;
    memcpy(c->path, path, n + 1);
    while (n > 1 && c->path[n - 1] == '/') c->path[--n] = 0;
    ls_commit_parent(c->path, c->parent);
    ls_commit_temporary(c->path, c->temporary);
    ls_status st = ls_mkdirs(c->parent);
    const int err = st == LS_OK ? ls_env_get()->mkdir(c->temporary) : 0;
    if (err < 0) st = ls_fail(LS_IO, "%s: no folder can be made in %s: %s", c->path, c->parent, strerror(-err));
    if (st < 0) {
        free(c);
        return st;
    }
    c->exists = true;
    *out = c;
    return LS_OK;
}

const char *ls_commit_folder_path(const ls_commit_folder *c) { return c->temporary; }

/* The folder that had the name goes. Where the two cannot change places there is a moment without either. */
static int take_place(const char *temporary, const char *path)
{
    const ls_env *env = ls_env_get();
    const size_t n = ls_commit_temporary_bytes(path);
    int err = env->exchange(temporary, path);
    if (err == 0) {
        ls_remove_folder(temporary);
        return 0;
    }
    if (err != -EINVAL && err != -ENOSYS) return err;
    char *aside = malloc(n);
    if (!aside) return -ENOMEM;
    ls_commit_temporary(path, aside);
    err = env->rename(path, aside);
    if (err == 0) {
        err = env->rename(temporary, path);
        if (err == 0) ls_remove_folder(aside);
        else (void)env->rename(aside, path);
    }
    free(aside);
    return err;
}

ls_status ls_commit_folder_finish(ls_commit_folder *c, bool replace)
{
    const ls_env *env = ls_env_get();
    int err = env->fsync_dir(c->temporary);
    if (err < 0) return ls_fail(LS_IO, "%s: cannot be flushed to the disk: %s", c->path, strerror(-err));
    err = env->rename(c->temporary, c->path);
    if (replace && (err == -ENOTEMPTY || err == -EEXIST)) err = take_place(c->temporary, c->path);
    if (err < 0) return ls_fail(LS_IO, "%s: cannot take its name: %s", c->path, strerror(-err));
    c->exists = false;
    err = env->fsync_dir(c->parent);
    if (err < 0)
        return ls_fail(LS_IO, "%s: is written, but its folder cannot be flushed to the disk: %s", c->path,
                       strerror(-err));
    return LS_OK;
}

void ls_commit_folder_destroy(ls_commit_folder *c)
{
    if (!c) return;
    if (c->exists) ls_remove_folder(c->temporary);
    free(c);
}

void ls_commit_folder_remove(const char *path)
{
    char *aside = malloc(ls_commit_temporary_bytes(path));
    if (aside) ls_commit_temporary(path, aside);
    ls_remove_folder(aside && ls_env_get()->rename(path, aside) == 0 ? aside : path);
    free(aside);
}

/* ".<name>.<8 digits><8 digits of pid>.tmp" */
static bool is_left_by(const char *name, int pid)
{
    char end[DIGITS / 2 + 8];
    const size_t n = strlen(name), tail = (size_t)snprintf(end, sizeof end, "%08x.tmp", (unsigned)pid);
    const size_t least = 2 + DIGITS / 2 + tail; /* with both dots */
    return n > least && name[0] == '.' && name[n - tail - DIGITS / 2 - 1] == '.' && strcmp(name + n - tail, end) == 0 &&
           strspn(name + n - tail - DIGITS / 2, "0123456789abcdef") >= DIGITS;
}

int ls_commit_sweep(const char *folder, int pid)
{
    const ls_env *env = ls_env_get();
    char *names = malloc(NAMES_BYTES);
    int count = names ? env->list(folder, names, NAMES_BYTES) : 0, swept = 0;
    for (const char *name = names; count-- > 0; name += strlen(name) + 1) {
        const size_t n = strlen(folder) + strlen(name) + 2;
        char *path = is_left_by(name, pid) ? malloc(n) : NULL;
        if (!path) continue;
        snprintf(path, n, "%s/%s", folder, name);
        if (env->unlink(path) < 0) ls_remove_folder(path);
        free(path);
        swept++;
    }
    free(names);
    return swept;
}
