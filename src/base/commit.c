/* commit.c -- write to a temporary name, flush, rename, flush the folder. */
#include "base/commit.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/env.h"

#define BEHIND ((uint64_t)8 << 20) /* bytes that wait for the disk before they are told to go there */
#define WRITE_MAX ((size_t)1 << 30) /* Linux writes at most 2 GiB - 4 KiB at once */
#define LARGE ((uint64_t)8 << 20)   /* files of so many bytes go past the cache, */
#define BLOCK ((size_t)1 << 20)     /* in blocks that fit in a core's cache: longer ones were slower */
#define ALIGNED 4096                /* a page: no disk's sector is larger */

struct ls_commit {
    char *path, *temporary, *folder; /* one block, owned, after the struct */
    int fd;                          /* of the temporary file; -1 when closed */
    bool exists;                     /* the temporary name is there to be removed */
    uint64_t written, behind;        /* bytes; those that were told to go to the disk */
    char *block;                     /* owned: [BLOCK], what comes next; NULL: this file goes through the cache */
    size_t held;                     /* bytes in it */
};

size_t ls_commit_temporary_bytes(const char *path) { return strlen(path) + sizeof "..0123456789abcdef.tmp"; }

void ls_commit_temporary(const char *path, char *out)
{
    const ls_env *env = ls_env_get();
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    uint32_t r;
    env->random(&r, sizeof r);
    snprintf(out, ls_commit_temporary_bytes(path), "%.*s.%s.%08x%08x.tmp", (int)(name - path), path, name, r,
             (unsigned)env->pid());
}

void ls_commit_parent(const char *path, char *out)
{
    const char *slash = strrchr(path, '/');
    const size_t n = slash ? (size_t)(slash - path) : 0;
    if (n > 0) memcpy(out, path, n);
    else out[0] = slash ? '/' : '.';
    out[n > 0 ? n : 1] = 0;
}

ls_status ls_commit_create(const char *path, ls_commit **out)
{
    const ls_env *env = ls_env_get();
    const size_t n = strlen(path), temporary = ls_commit_temporary_bytes(path);
    *out = NULL;
    if (n == 0 || path[n - 1] == '/') return ls_fail(LS_IO, "%s: names a folder, not a file", path);

    ls_commit *c = malloc(sizeof *c + n + 1 + temporary + n + 2);
    if (!c) return ls_fail(LS_NO_MEMORY, "%s: its name does not fit in memory", path);
    *c = (ls_commit){ .fd = -1 };
    c->path = (char *)(c + 1);
    c->temporary = c->path + n + 1;
    c->folder = c->temporary + temporary;
    memcpy(c->path, path, n + 1);
    ls_commit_parent(path, c->folder);
    ls_commit_temporary(path, c->temporary);
    c->fd = env->create(c->temporary);
    if (c->fd < 0) {
        ls_status st = ls_fail(LS_IO, "%s: no file can be created in %s: %s", path, c->folder, strerror(-c->fd));
        free(c);
        return st;
    }
    c->exists = true;
    *out = c;
    return LS_OK;
}

static ls_status append(ls_commit *c, const void *p, size_t n)
{
    const char *at = p;
    while (n > 0) {
        ssize_t k = ls_env_get()->write(c->fd, at, n < WRITE_MAX ? n : WRITE_MAX);
        if (k == -EINTR) continue;
        if (k <= 0) return ls_fail(LS_IO, "%s: cannot be written: %s", c->path, strerror(k < 0 ? (int)-k : EIO));
        at += k;
        n -= (size_t)k;
        c->written += (uint64_t)k;
    }
    return LS_OK;
}

/* --- past the cache ------------------------------------------------------------------- */

void ls_commit_expect(ls_commit *c, uint64_t nbytes)
{
    if (nbytes < LARGE || c->written > 0 || c->block || ls_env_get()->uncached(c->fd, true) < 0) return;
    c->block = aligned_alloc(ALIGNED, BLOCK);
    if (!c->block) (void)ls_env_get()->uncached(c->fd, false);
}

/* What is held goes through the cache, as what follows: it is no whole block, or the disk did not take one. */
static ls_status use_cache(ls_commit *c, size_t done)
{
    if (!c->block) return LS_OK;
    const int err = ls_env_get()->uncached(c->fd, false);
    const ls_status st = err < 0 ? ls_fail(LS_IO, "%s: cannot be written through the cache: %s", c->path, strerror(-err))
                                 : append(c, c->block + done, c->held - done);
    free(c->block);
    c->block = NULL;
    return st;
}

/* A disk may want more than ALIGNED (-EINVAL), or take a part of a block: the rest goes through the cache. */
static ls_status write_block(ls_commit *c)
{
    ssize_t k;
    while ((k = ls_env_get()->write(c->fd, c->block, BLOCK)) == -EINTR) {}
    if (k < 0 && k != -EINVAL) return ls_fail(LS_IO, "%s: cannot be written: %s", c->path, strerror((int)-k));
    const size_t done = k < 0 ? 0 : (size_t)k;
    c->written += done;
    if (done < BLOCK) return use_cache(c, done);
    c->held = 0;
    return LS_OK;
}

ls_status ls_commit_write(ls_commit *c, const void *p, size_t n)
{
    const char *at = p;
    while (c->block && n > 0) {
        const size_t room = BLOCK - c->held, k = n < room ? n : room;
        memcpy(c->block + c->held, at, k);
        c->held += k;
        at += k;
        n -= k;
        if (c->held == BLOCK) LS_TRY(write_block(c));
    }
    LS_TRY(append(c, at, n));
    if (c->block || c->written - c->behind < BEHIND) return LS_OK;
    /* a failure shows at the flush */
    (void)ls_env_get()->write_behind(c->fd, c->behind, (size_t)(c->written - c->behind));
    c->behind = c->written;
    return LS_OK;
}

/* --- the end ---------------------------------------------------------------------------- */

ls_status ls_commit_rewrite(ls_commit *c, uint64_t offset, const void *p, size_t n)
{
    const char *at = p;
    LS_TRY(use_cache(c, 0));
    while (n > 0) {
        ssize_t k = ls_env_get()->pwrite(c->fd, at, n < WRITE_MAX ? n : WRITE_MAX, offset);
        if (k == -EINTR) continue;
        if (k <= 0) return ls_fail(LS_IO, "%s: cannot be written: %s", c->path, strerror(k < 0 ? (int)-k : EIO));
        at += k;
        offset += (uint64_t)k;
        n -= (size_t)k;
    }
    return LS_OK;
}

ls_status ls_commit_finish(ls_commit *c)
{
    const ls_env *env = ls_env_get();
    LS_TRY(use_cache(c, 0));
    int err = env->fsync(c->fd);
    /* After a failed flush the kernel may call the lost pages clean: never flush that file again. */
    if (err < 0) return ls_fail(LS_IO, "%s: cannot be flushed to the disk: %s", c->path, strerror(-err));
    env->close_fd(c->fd);
    c->fd = -1;

    err = env->rename(c->temporary, c->path);
    if (err < 0) return ls_fail(LS_IO, "%s: cannot take its name: %s", c->path, strerror(-err));
    c->exists = false;

    err = env->fsync_dir(c->folder);
    if (err < 0)
        return ls_fail(LS_IO, "%s: is written, but its folder cannot be flushed to the disk: %s", c->path,
                       strerror(-err));
    return LS_OK;
}

void ls_commit_destroy(ls_commit *c)
{
    if (!c) return;
    if (c->fd >= 0) ls_env_get()->close_fd(c->fd);
    if (c->exists) ls_env_get()->unlink(c->temporary);
    free(c->block);
    free(c);
}
