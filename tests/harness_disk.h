/* harness_disk.h -- a disk that fails: an environment (base/env.h) whose file calls fail, write little, or end the
 * process, at the call that is asked for. A letter per call says in which order they came.
 *
 *     c create   w write    f fsync    d fsync of a folder (P: of disk.parent)   r rename   x exchange
 *     m mkdir    u unlink   k rmdir    D the event ckpt_durable is written
 */
#ifndef LS_TESTS_HARNESS_DISK_H
#define LS_TESTS_HARNESS_DISK_H
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "base/context.h"
#include "base/env.h"

static struct {
    int calls, fail_at, error; /* the call fail_at, from 0, fails with `error`; -1: none */
    size_t most;               /* bytes that a write takes at once */
    bool dies;                 /* the process ends there in place of failing */
    bool no_exchange;          /* the file system cannot exchange names */
    const char *parent;        /* folder whose flush is P; NULL: none */
    char order[512];
} disk;

static void disk_reset(void)
{
    const char *parent = disk.parent;
    memset(&disk, 0, sizeof disk);
    disk.fail_at = -1;
    disk.most = SIZE_MAX;
    disk.parent = parent;
}

static bool disk_fails(char call)
{
    if (disk.calls < (int)sizeof disk.order - 1) disk.order[disk.calls] = call;
    if (disk.calls++ != disk.fail_at) return false;
    if (disk.dies) _exit(0); /* as a kill does: nothing is cleaned up */
    return true;
}

static int bad_create(const char *path) { return disk_fails('c') ? -disk.error : ls_env_real.create(path); }
static int bad_mkdir(const char *path) { return disk_fails('m') ? -disk.error : ls_env_real.mkdir(path); }
static int bad_fsync(int fd) { return disk_fails('f') ? -disk.error : ls_env_real.fsync(fd); }
static int bad_unlink(const char *path) { return disk_fails('u') ? -disk.error : ls_env_real.unlink(path); }
static int bad_rmdir(const char *path) { return disk_fails('k') ? -disk.error : ls_env_real.rmdir(path); }
static int bad_rename(const char *a, const char *b) { return disk_fails('r') ? -disk.error : ls_env_real.rename(a, b); }

static int bad_fsync_dir(const char *path)
{
    const bool parent = disk.parent && strcmp(path, disk.parent) == 0;
    return disk_fails(parent ? 'P' : 'd') ? -disk.error : ls_env_real.fsync_dir(path);
}

static int bad_exchange(const char *a, const char *b)
{
    if (disk.no_exchange) return -EINVAL;
    return disk_fails('x') ? -disk.error : ls_env_real.exchange(a, b);
}

static ssize_t bad_write(int fd, const void *p, size_t n)
{
    if (memmem(p, n, "ckpt_durable", 12)) (void)disk_fails('D'); /* the event's own failure is nobody's */
    else if (!memmem(p, n, "ckpt_begin", 10) && disk_fails('w')) return -disk.error;
    return ls_env_real.write(fd, p, n < disk.most ? n : disk.most);
}

/* The environment, with a disk that does not fail yet. */
static ls_env bad_env(void)
{
    ls_env env = ls_env_real;
    env.create = bad_create;
    env.mkdir = bad_mkdir;
    env.write = bad_write;
    env.fsync = bad_fsync;
    env.fsync_dir = bad_fsync_dir;
    env.rename = bad_rename;
    env.exchange = bad_exchange;
    env.unlink = bad_unlink;
    env.rmdir = bad_rmdir;
    disk_reset();
    return env;
}

#endif
