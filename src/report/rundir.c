/* rundir.c -- making and keeping the run folder. */
#include "report/rundir.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/context.h"
#include "base/log.h"
#include "ckpt/steps.h"
#include "ckpt/weights.h"
#include "lockstep/ckpt.h"

#define PATH_BYTES 4096
#define SUFFIXES 10000
#define METRICS_MOST ((size_t)1 << 32) /* bytes */

/* A folder that scripts have made before is as good as none. */
static ls_status check_empty(const char *dir)
{
    const ls_env *env = ls_env_get();
    ls_file_info info;
    char at[512], first[256] = "";
    snprintf(at, sizeof at, "%s/.", dir); /* what a link leads to */
    const bool is_folder = env->info(at, &info) == 0 && info.type == LS_FILE_DIR;
    const int count = is_folder ? env->list(dir, first, sizeof first) : 0; /* -ENOBUFS: more than one name */
    if (is_folder && count == 0) return LS_OK;
    if (is_folder && count < 0 && count != -ENOBUFS)
        return ls_fail(LS_IO, "reading the run folder %s (--run.dir): %s", dir, strerror(-count));
    ls_text_printable(first);
    return ls_fail(LS_BAD_CONFIG,
                   "run.dir %s exists already%s%s%s: a run is never overwritten. Give a --run.dir that does not exist or is "
                   "empty, or leave it out: runs/<run.name> gets a new suffix by itself. --checkpoint.resume auto goes on with a run in its folder",
                   dir, is_folder ? " and holds " : ", and is no folder", first, is_folder && count != 1 ? " and more" : "");
}

ls_status ls_rundir_check(const char *dir)
{
    ls_file_info info;
    const bool exists = *dir && ls_env_get()->info(dir, &info) == 0 && info.type != LS_FILE_NONE;
    return exists ? check_empty(dir) : LS_OK;
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
        if (err == -EEXIST && !*dir) continue;
        if (err == -EEXIST) {
            LS_TRY(check_empty(base));
            err = 0;
        }
        if (err < 0)
            return ls_fail(LS_IO, "making the run folder %s: %s; choose another with --run.dir", out, strerror(-err));
        char sub[512];
        snprintf(sub, sizeof sub, "%s/checkpoints", out);
        return ls_mkdirs(sub);
    }
    return ls_fail(LS_IO, "%s and %d more with suffixes exist already: choose another --run.name", base, SUFFIXES - 1);
}

ls_status ls_rundir_continue(const char *dir, char *out, size_t n)
{
    const int k = snprintf(out, n, "%s", dir);
    if (k <= 0 || (size_t)k + 16 > n) return ls_fail(LS_BAD_CONFIG, "run.dir or run.name is too long: at most %zu bytes", n - 16);
    char sub[512];
    snprintf(sub, sizeof sub, "%s/checkpoints", out);
    return ls_mkdirs(sub);
}

/* {"step": N, ...: the first key of a line. A line that was cut off when the process was killed has no end. */
static bool is_of(const char *line, const char *end, int64_t step)
{
    static const char key[] = "{\"step\":";
    const size_t n = sizeof key - 1;
    return (size_t)(end - line) > n && memcmp(line, key, n) == 0 && strtoll(line + n, NULL, 10) <= step;
}

ls_status ls_rundir_cut_metrics(const char *path, int64_t step)
{
    ls_file_info info;
    char *text, *to;
    size_t n;
    if (ls_env_get()->info(path, &info) < 0 || info.type == LS_FILE_NONE) return LS_OK;
    LS_TRY(ls_file_read(path, METRICS_MOST, &text, &n));
    to = text;
    for (const char *line = text, *end; (end = memchr(line, '\n', n - (size_t)(line - text))); line = end + 1) {
        if (!is_of(line, end, step)) continue;
        memmove(to, line, (size_t)(end + 1 - line));
        to += end + 1 - line;
    }
    const ls_status st = to == text + n ? LS_OK : ls_file_write(path, text, (size_t)(to - text));
    free(text);
    return st;
}

static bool is_regular(const char *path)
{
    ls_file_info info;
    return ls_env_get()->info(path, &info) == 0 && info.type == LS_FILE_REGULAR;
}

/* Whether a file is there whole, as far as its header and its size say; the digests are checked where it is read. */
static ls_status is_whole(const char *path)
{
    ls_weights w;
    ls_status st = ls_weights_open(path, &w);
    if (st == LS_OK && w.folder && !ls_checkpoint_has_manifest(w.folder))
        st = ls_fail(LS_BAD_FILE, "%s: has no manifest.json: it was not saved whole", path);
    ls_weights_close(&w);
    return st;
}

/* The newest whole one of `count` names in the folder `steps`; out stays empty if there is none. Older programs wrote
 * into the folder itself, so that a save that failed left one that is not whole. */
static ls_status newest_whole(const char *steps, const char *names, int count, ls_text *out)
{
    for (const char *name = NULL; (name = ls_steps_newest(names, count, name));) {
        out->n = 0;
        ls_text_add(out, "%s/%s", steps, name);
        LS_TRY(ls_text_status(out));
        if (!ls_weights_are_sharded(out->p)) ls_text_add(out, "/model.safetensors");
        LS_TRY(ls_text_status(out));
        const ls_status st = is_whole(out->p);
        if (st == LS_OK || st == LS_NO_MEMORY) return st;
        if (ls_context_get()->rank <= 0) /* one voice */
            ls_log(LS_LOG_WARN, "%s/%s is not whole and is skipped: %s", steps, name, ls_last_error());
    }
    out->n = 0;
    return LS_OK;
}

ls_status ls_rundir_checkpoint(const char *name, ls_text *out)
{
    const ls_env *env = ls_env_get();
    ls_file_info info;
    char path[PATH_BYTES];
    *out = (ls_text){ 0 };
    LS_TRY(ls_steps_resolve(name, path, sizeof path));
    ls_text_add(out, "%s", path);
    LS_TRY(ls_text_status(out));
    if (env->info(path, &info) == 0 && (info.type == LS_FILE_REGULAR || info.type == LS_FILE_NONE)) return LS_OK;
    if (ls_weights_are_sharded(path)) return LS_OK;
    ls_text_add(out, "/model.safetensors");
    LS_TRY(ls_text_status(out));
    if (is_regular(out->p)) return LS_OK;

    const size_t room = (size_t)1 << 18;
    char *names = malloc(room);
    ls_text steps = { 0 };
    ls_text_add(&steps, "%s/checkpoints", path);
    ls_status st = ls_text_status(&steps);
    if (st == LS_OK && !names) st = ls_fail(LS_NO_MEMORY, "the names in %s", steps.p);
    if (st == LS_OK) st = newest_whole(steps.p, names, env->list(steps.p, names, room), out);
    if (st == LS_OK && out->n == 0)
        st = ls_fail(LS_BAD_FILE,
                     "%s: neither model.safetensors nor a whole checkpoint checkpoints/step-* is in this folder",
                     path);
    free(names);
    ls_text_free(&steps);
    return st;
}
