/* snapshot_folder.c -- a node's folder of snapshots: its name, who has it, and its end. */
#include "ckpt/snapshot_folder.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/env.h"
#include "base/file.h"
#include "base/hash.h"
#include "ckpt/bytes.h"
#include "ckpt/steps.h"

#define PLACE   "/dev/shm"
#define LOCK    "lock"
#define RUN     "run"
#define STALE_NS (24 * INT64_C(3600000000000))
#define POLL_NS 10000000u
#define TRIES   3                  /* a sweep may take the folder away under us */
#define RUN_MOST ((size_t)4096)    /* bytes of the file `run` */
#define NAMES   LS_STEPS_NAMES_BYTES

static const char *place(void)
{
    const char *dir = ls_env_get()->getenv("LOCKSTEP_SNAPSHOT_DIR");
    return dir && *dir ? dir : PLACE;
}

/* --- the run ------------------------------------------------------------------------------------- */

static void make_number(ls_snapshot_run *run)
{
    uint64_t r;
    ls_env_get()->random(&r, sizeof r);
    snprintf(run->number, sizeof run->number, "%016" PRIx64, r);
}

static ls_status read_number(const char *path, ls_snapshot_run *out)
{
    char *text;
    size_t n;
    uint64_t number;
    LS_TRY(ls_file_read(path, 64, &text, &n));
    const bool fits = n >= 16 && ls_ckpt_read_hex(text, &number) && (n == 16 || (n == 17 && text[16] == '\n'));
    if (fits) snprintf(out->number, sizeof out->number, "%.16s", text);
    free(text);
    return fits ? LS_OK : ls_fail(LS_BAD_FILE, "%s: expected 16 hex digits, found other bytes", path);
}

ls_status ls_snapshot_run_read(const char *dir, bool make, ls_snapshot_run *out)
{
    const ls_env *env = ls_env_get();
    char path[sizeof out->folder + 16];
    ls_file_info info;
    *out = (ls_snapshot_run){ 0 };
    const int err = env->real_path(dir, out->folder, sizeof out->folder);
    if (err < 0 && !make) return LS_OK; /* no run, no number */
    if (err < 0) return ls_fail(LS_IO, "the run folder %s: its path cannot be read: %s", dir, strerror(-err));
    snprintf(out->key, sizeof out->key, "%016" PRIx64, ls_hash64(out->folder, strlen(out->folder), 0));
    snprintf(path, sizeof path, "%s/" LS_SNAPSHOT_RUN, out->folder);
    if (env->info(path, &info) == 0 && info.type != LS_FILE_NONE) return read_number(path, out);
    if (!make) return LS_OK;
    make_number(out);
    char text[32];
    const int n = snprintf(text, sizeof text, "%s\n", out->number);
    return ls_file_write(path, text, (size_t)n);
}

/* --- names ------------------------------------------------------------------------------------------ */

static int prefix_of(const ls_snapshot_run *run, char *out, size_t n)
{
    return run ? snprintf(out, n, "lockstep-%u-%s-", ls_env_get()->uid(), run->key)
               : snprintf(out, n, "lockstep-%u-", ls_env_get()->uid());
}

ls_status ls_snapshot_folder_path(const ls_snapshot_run *run, int node, char out[LS_SNAPSHOT_PATH_BYTES])
{
    char prefix[64];
    prefix_of(run, prefix, sizeof prefix);
    const int n = snprintf(out, LS_SNAPSHOT_PATH_BYTES, "%s/%s%d", place(), prefix, node);
    if (n > 0 && n < LS_SNAPSHOT_PATH_BYTES - 64) return LS_OK; /* names of files follow */
    return ls_fail(LS_BAD_CONFIG, "LOCKSTEP_SNAPSHOT_DIR: a name of more than %d bytes", LS_SNAPSHOT_PATH_BYTES - 128);
}

static void join(const char *folder, const char *name, char *out, size_t n) { snprintf(out, n, "%s/%s", folder, name); }

/* --- one folder ---------------------------------------------------------------------------------------- */

/* Only this user can write in such a folder, so no other user can put a link there. */
static ls_status check_owner(const char *path)
{
    ls_file_info info;
    const int err = ls_env_get()->info(path, &info);
    if (err < 0) return ls_fail(LS_IO, "%s: %s", path, strerror(-err));
    const char *what = info.type != LS_FILE_DIR ? "is no folder" : !info.owned ? "belongs to another user"
                       : info.mode & 077        ? "is open to other users" : NULL;
    return what ? ls_fail(LS_UNSAFE_PATH, "%s: %s: no snapshot is put there; remove it", path, what) : LS_OK;
}

/* LS_AGAIN: another process has locked the folder. *gone: the folder was removed meanwhile. */
static ls_status take_lock(ls_snapshot_folder *f, bool *gone)
{
    const ls_env *env = ls_env_get();
    char path[LS_SNAPSHOT_PATH_BYTES + 16];
    ls_file_info info;
    join(f->path, LOCK, path, sizeof path);
    const int fd = env->append(path);
    *gone = fd == -ENOENT;
    if (fd < 0) return *gone ? LS_OK : ls_fail(LS_IO, "%s: cannot be opened: %s", path, strerror(-fd));
    const int err = env->lock(fd);
    *gone = err == 0 && (env->info(path, &info) < 0 || info.type != LS_FILE_REGULAR);
    if (err == 0 && !*gone) {
        f->lock = fd;
        return LS_OK;
    }
    env->close_fd(fd);
    if (err == -EAGAIN) return LS_AGAIN;
    return err < 0 ? ls_fail(LS_IO, "%s: cannot be locked: %s", path, strerror(-err)) : LS_OK;
}

static ls_status wait_for_lock(ls_snapshot_folder *f, bool *gone)
{
    const ls_env *env = ls_env_get();
    const uint64_t deadline = env->mono_ns() + LS_SNAPSHOT_LOCK_NS;
    for (;;) {
        const ls_status st = take_lock(f, gone);
        if (st != LS_AGAIN) return st;
        if (env->mono_ns() >= deadline)
            return ls_fail(LS_IO, "%s: another process has these snapshots: a second training in the same run folder?", f->path);
        env->wait(NULL, 0, NULL, 0, env->mono_ns() + POLL_NS);
    }
}

static bool is_of_run(const ls_snapshot_folder *f, const ls_snapshot_run *run)
{
    char path[LS_SNAPSHOT_PATH_BYTES + 16], *text;
    size_t n;
    join(f->path, RUN, path, sizeof path);
    if (ls_file_read(path, RUN_MOST, &text, &n) < 0) return false;
    const bool same = n > 16 && strncmp(text, run->number, 16) == 0 && text[16] == '\n';
    free(text);
    return same;
}

static ls_status begin_run(const ls_snapshot_folder *f, const ls_snapshot_run *run)
{
    char path[LS_SNAPSHOT_PATH_BYTES + 16], text[sizeof run->number + sizeof run->folder + 4];
    ls_snapshot_folder_clear(f, -1);
    join(f->path, RUN, path, sizeof path);
    const int n = snprintf(text, sizeof text, "%s\n%s\n", run->number, run->folder);
    return ls_file_write(path, text, (size_t)n);
}

ls_status ls_snapshot_folder_open(const char *path, const ls_snapshot_run *run, ls_snapshot_folder *out)
{
    bool gone = true;
    *out = (ls_snapshot_folder){ .lock = -1 };
    snprintf(out->path, sizeof out->path, "%s", path);
    for (int i = 0; gone && i < TRIES; i++) {
        const int err = ls_env_get()->mkdir_secret(path);
        if (err < 0 && err != -EEXIST)
            return ls_fail(LS_IO, "%s: no folder for snapshots can be made in memory: %s", path, strerror(-err));
        LS_TRY(check_owner(path));
        LS_TRY(wait_for_lock(out, &gone));
    }
    if (gone) return ls_fail(LS_IO, "%s: is removed as often as it is made", path);
    const ls_status st = is_of_run(out, run) ? LS_OK : begin_run(out, run);
    if (st < 0) ls_snapshot_folder_close(out);
    return st;
}

void ls_snapshot_folder_clear(const ls_snapshot_folder *f, int64_t but)
{
    char path[LS_SNAPSHOT_PATH_BYTES + 300], kept[32], *names = malloc(NAMES);
    snprintf(kept, sizeof kept, "step-%08" PRId64, but);
    int count = names ? ls_env_get()->list(f->path, names, NAMES) : 0;
    for (const char *name = names; count-- > 0; name += strlen(name) + 1) {
        if (strcmp(name, LOCK) == 0 || strcmp(name, RUN) == 0 || (but >= 0 && strcmp(name, kept) == 0)) continue;
        join(f->path, name, path, sizeof path);
        if (ls_env_get()->unlink(path) < 0) ls_remove_folder(path);
    }
    free(names);
}

void ls_snapshot_folder_close(ls_snapshot_folder *f)
{
    if (f->lock >= 0) ls_env_get()->close_fd(f->lock);
    f->lock = -1;
}

void ls_snapshot_folder_remove(ls_snapshot_folder *f)
{
    if (f->lock < 0) return;
    ls_snapshot_folder_clear(f, -1);
    ls_remove_folder(f->path);
    ls_snapshot_folder_close(f);
}

/* --- others -------------------------------------------------------------------------------------------- */

/* Locks each folder with the prefix that no process has locked, and calls `take`, which says whether it keeps it.
 * Returns how many were kept. */
static int each_free(const char *prefix, bool (*take)(void *arg, ls_snapshot_folder *f), void *arg)
{
    int taken = 0;
    const size_t n = strlen(prefix);
    char *names = malloc(NAMES);
    int count = names ? ls_env_get()->list(place(), names, NAMES) : 0;
    for (const char *name = names; count-- > 0; name += strlen(name) + 1) {
        ls_snapshot_folder f = { .lock = -1 };
        bool gone = false;
        if (strncmp(name, prefix, n) != 0) continue;
        if ((size_t)snprintf(f.path, sizeof f.path, "%s/%s", place(), name) >= sizeof f.path - 64) continue;
        if (check_owner(f.path) < 0 || take_lock(&f, &gone) != LS_OK || gone) continue;
        if (take(arg, &f)) taken++;
        else ls_snapshot_folder_close(&f);
    }
    free(names);
    return taken;
}

typedef struct adoption {
    const ls_snapshot_run *run;
    ls_snapshot_folder *out;
    int n, most;
} adoption;

static bool adopt(void *arg, ls_snapshot_folder *f)
{
    adoption *a = arg;
    if (a->n == a->most || !is_of_run(f, a->run)) return false;
    a->out[a->n++] = *f;
    return true;
}

int ls_snapshot_folder_adopt(const ls_snapshot_run *run, ls_snapshot_folder *out, int most)
{
    char prefix[64];
    adoption a = { run, out, 0, most };
    prefix_of(run, prefix, sizeof prefix);
    return each_free(prefix, adopt, &a);
}

static bool remove_stale(void *arg, ls_snapshot_folder *f)
{
    ls_file_info info;
    (void)arg;
    const bool stale = ls_env_get()->info(f->path, &info) == 0 && ls_env_get()->wall_ns() - info.changed_ns > STALE_NS;
    if (stale) ls_snapshot_folder_remove(f);
    return stale;
}

int ls_snapshot_sweep(void)
{
    char prefix[64];
    prefix_of(NULL, prefix, sizeof prefix);
    return each_free(prefix, remove_stale, NULL);
}
