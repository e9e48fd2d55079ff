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

static bool is_regular(const char *path)
{
    ls_file_info info;
    return ls_env_get()->info(path, &info) == 0 && info.type == LS_FILE_REGULAR;
}

ls_status ls_rundir_checkpoint(const char *path, ls_text *out)
{
    const ls_env *env = ls_env_get();
    ls_text steps = { 0 };
    char *names = NULL;
    ls_file_info info;
    *out = (ls_text){ 0 };
    ls_text_add(out, "%s", path);
    LS_TRY(ls_text_status(out));
    if (env->info(path, &info) == 0 && (info.type == LS_FILE_REGULAR || info.type == LS_FILE_NONE)) return LS_OK;
    ls_text_add(out, "/model.safetensors");
    LS_TRY(ls_text_status(out));
    if (is_regular(out->p)) return LS_OK;

    /* names are sorted, and the step has eight digits or more: the longest, and of those the last, is the newest */
    const size_t room = (size_t)1 << 18;
    char best[64] = "";
    names = malloc(room);
    ls_text_add(&steps, "%s/checkpoints", path);
    ls_status st = ls_text_status(&steps);
    if (st == LS_OK && !names) st = ls_fail(LS_NO_MEMORY, "the names in %s", steps.p);
    int count = st == LS_OK ? env->list(steps.p, names, room) : 0;
    for (const char *name = names; count-- > 0; name += strlen(name) + 1)
        if (strncmp(name, "step-", 5) == 0 && strlen(name) < sizeof best && strlen(name) >= strlen(best))
            snprintf(best, sizeof best, "%s", name);
    out->n = 0;
    ls_text_add(out, "%s/%s/model.safetensors", ls_text_str(&steps), best);
    if (st == LS_OK) st = ls_text_status(out);
    if (st == LS_OK && (!*best || !is_regular(out->p)))
        st = ls_fail(LS_BAD_FILE, "%s: neither model.safetensors nor checkpoints/step-*/model.safetensors is in this folder",
                     path);
    free(names);
    ls_text_free(&steps);
    return st;
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
