/* file.c -- a whole file into memory, and out of it. */
#include "base/file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/commit.h"
#include "base/env.h"

#define NAMES_BYTES ((size_t)1 << 18) /* of a folder's entries */
#define REMOVE_PASSES 64 /* over a folder that others write in */

ls_status ls_file_read(const char *path, size_t limit, char **data, size_t *n)
{
    const ls_env *env = ls_env_get();
    ls_status st = LS_OK;
    char *p = NULL;
    *data = NULL;
    *n = 0;

    int fd = env->open_read(path);
    if (fd < 0) return ls_fail(LS_IO, "%s: cannot be opened: %s", path, strerror(-fd));

    int64_t size = env->fd_size(fd);
    if (size < 0) {
        st = ls_fail(LS_IO, "%s: its size cannot be read: %s", path, strerror((int)-size));
        goto done;
    }
    if ((uint64_t)size > limit) {
        st = ls_fail(LS_BAD_FILE, "%s: %lld bytes, at most %zu are accepted", path, (long long)size, limit);
        goto done;
    }
    p = malloc((size_t)size + 1);
    if (!p) {
        st = ls_fail(LS_NO_MEMORY, "%s: %lld bytes do not fit in memory", path, (long long)size);
        goto done;
    }
    size_t have = 0;
    while (have < (size_t)size) {
        ssize_t k = env->pread(fd, p + have, (size_t)size - have, have);
        if (k == -EINTR) continue;
        if (k < 0) {
            st = ls_fail(LS_IO, "%s: byte %zu cannot be read: %s", path, have, strerror((int)-k));
            goto done;
        }
        if (k == 0) {
            st = ls_fail(LS_IO, "%s: ended at byte %zu of %lld while it was read", path, have, (long long)size);
            goto done;
        }
        have += (size_t)k;
    }
    p[have] = 0;

    *data = p;
    *n = have;
    p = NULL;
done:
    env->close_fd(fd);
    free(p);
    return st;
}

ls_status ls_file_write(const char *path, const void *p, size_t n)
{
    ls_commit *c;
    LS_TRY(ls_commit_create(path, &c));
    ls_status st = ls_commit_write(c, p, n);
    if (st == LS_OK) st = ls_commit_finish(c);
    ls_commit_destroy(c);
    return st;
}

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

static void remove_within(const char *path, int depth);

static void empty(const char *path, char *names, int depth)
{
    const ls_env *env = ls_env_get();
    int count = env->list(path, names, NAMES_BYTES);
    for (const char *name = names; count-- > 0; name += strlen(name) + 1) {
        const size_t n = strlen(path) + strlen(name) + 2;
        char *file = malloc(n);
        if (!file) continue;
        snprintf(file, n, "%s/%s", path, name);
        if (env->unlink(file) == -EISDIR && depth > 0) remove_within(file, depth - 1);
        free(file);
    }
}

/* Other ranks may still create files here, which fails once the folder is gone: a folder that is not empty any more is
 * emptied again. */
static void remove_within(const char *path, int depth)
{
    char *names = malloc(NAMES_BYTES);
    int err = -ENOTEMPTY;
    for (int i = 0; i < REMOVE_PASSES && (err == -ENOTEMPTY || err == -EEXIST); i++) {
        if (names) empty(path, names, depth);
        err = ls_env_get()->rmdir(path);
    }
    free(names);
}

void ls_remove_folder(const char *path) { remove_within(path, 1); }
void ls_remove_tree(const char *path) { remove_within(path, 16); }

bool ls_file_cached(const char *variable, const char *name, char *path, size_t n)
{
    const ls_env *env = ls_env_get();
    const char *asked = variable ? env->getenv(variable) : NULL, *cache = env->getenv("XDG_CACHE_HOME"), *home = env->getenv("HOME");
    int len = -1;
    if (asked && *asked) len = strcmp(asked, "none") == 0 ? -1 : snprintf(path, n, "%s", asked);
    else if (cache && *cache == '/') len = snprintf(path, n, "%s/lockstep/%s", cache, name);
    else if (home && *home == '/') len = snprintf(path, n, "%s/.cache/lockstep/%s", home, name);
    return len >= 0 && (size_t)len < n;
}

#define COMPARE 65536 /* bytes at a time */

static ls_status compare(int a, int b, uint64_t n, char *p, bool *same)
{
    const ls_env *env = ls_env_get();
    *same = true;
    for (uint64_t at = 0; *same && at < n; at += COMPARE) {
        const size_t k = n - at < COMPARE ? (size_t)(n - at) : COMPARE;
        if (env->pread(a, p, k, at) != (ssize_t)k || env->pread(b, p + COMPARE, k, at) != (ssize_t)k)
            return ls_fail(LS_IO, "comparing two files: one could not be read");
        *same = memcmp(p, p + COMPARE, k) == 0;
    }
    return LS_OK;
}

ls_status ls_file_same(const char *a, const char *b, bool *same)
{
    const ls_env *env = ls_env_get();
    ls_file_info ia = { 0 }, ib = { 0 };
    ls_status st = LS_OK;
    *same = false;
    if (env->info(a, &ia) < 0 || env->info(b, &ib) < 0) return LS_OK;
    if (ia.type != LS_FILE_REGULAR || ib.type != LS_FILE_REGULAR || ia.size != ib.size) return LS_OK;
    char *p = malloc((size_t)2 * COMPARE);
    const int fa = env->open_read(a), fb = env->open_read(b);
    if (!p) st = ls_fail(LS_NO_MEMORY, "comparing two files");
    else if (fa < 0 || fb < 0) st = ls_fail(LS_IO, "%s: cannot be opened", fa < 0 ? a : b);
    else st = compare(fa, fb, ia.size, p, same);
    if (fa >= 0) env->close_fd(fa);
    if (fb >= 0) env->close_fd(fb);
    free(p);
    return st;
}
