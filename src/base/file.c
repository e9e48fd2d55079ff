/* file.c -- a whole file into memory. */
#include "base/file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/env.h"

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
    const ls_env *env = ls_env_get();
    char temporary[512];
    uint64_t r;
    env->random(&r, sizeof r);
    snprintf(temporary, sizeof temporary, "%s.%016llx.tmp", path, (unsigned long long)r);
    int fd = env->create(temporary);
    if (fd < 0) return ls_fail(LS_IO, "creating %s: %s", path, strerror(-fd));
    const char *at = p;
    ssize_t k = 0;
    while (n > 0 && (k = env->write(fd, at, n)) > 0) {
        at += k;
        n -= (size_t)k;
    }
    int err = n == 0 ? env->fsync(fd) : k < 0 ? (int)k : -EIO;
    env->close_fd(fd);
    if (err >= 0) err = env->rename(temporary, path);
    if (err < 0) {
        env->unlink(temporary);
        return ls_fail(LS_IO, "writing %s: %s", path, strerror(-err));
    }
    return LS_OK;
}
