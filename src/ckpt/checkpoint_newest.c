/* checkpoint_newest.c -- the newest checkpoint of which every byte is as it was saved. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/env.h"
#include "base/log.h"
#include "ckpt/checkpoint.h"
#include "ckpt/state.h"
#include "ckpt/steps.h"

typedef struct candidate {
    int64_t failed;  /* a status of rank 0 */
    char path[1024]; /* "": there is none left */
    char message[512];
} candidate;

/* The newest step folder before the one of *name. */
static void choose(const char *dir, const char *names, int count, const char **name, candidate *c)
{
    *name = count > 0 ? ls_steps_newest(names, count, *name) : NULL;
    if (*name && snprintf(c->path, sizeof c->path, "%s/%s", dir, *name) >= (int)sizeof c->path)
        c->failed = ls_fail(LS_BAD_CONFIG, "%s: its name is too long", dir);
    if (c->failed < 0) snprintf(c->message, sizeof c->message, "%s", ls_last_error());
}

/* Whether a step's folder is one, and of this step: neither a link to another place nor renamed from another step. */
static ls_status check_step(const char *path, const ls_checkpoint *c)
{
    const char *name = strrchr(path, '/') + 1;
    ls_file_info info;
    if (ls_env_get()->info(path, &info) < 0 || info.type != LS_FILE_DIR)
        return ls_fail(LS_UNSAFE_PATH, "%s: is a link in place of a folder: what it leads to may be of another run; name that folder itself "
                       "(checkpoint.resume) to go on from it", path);
    if (!ls_checkpoint_has_manifest(c) || ls_steps_number(name) == ls_checkpoint_step(c)) return LS_OK;
    return ls_fail(LS_CKPT_CORRUPT, "%s: holds step %" PRId64 ": the folder was renamed", path, ls_checkpoint_step(c));
}

static ls_status open_all(ls_group *g, const char *path, bool is_step, ls_checkpoint **out)
{
    ls_status st = ls_checkpoint_open(path, out);
    if (st == LS_OK && is_step) st = check_step(path, *out);
    if (st == LS_OK) st = ls_checkpoint_verify(*out, ls_group_rank(g), ls_group_size(g));
    st = ls_state_agree(g, st, NULL);
    if (st == LS_OK) return st;
    ls_checkpoint_close(*out);
    *out = NULL;
    return st;
}

ls_status ls_checkpoint_open_all(ls_group *g, const char *path, ls_checkpoint **out)
{
    return open_all(g, path, false, out);
}

/* Damage, which an older checkpoint may not have. */
static bool is_damaged(ls_status st)
{
    return st == LS_CKPT_CORRUPT || st == LS_BAD_FILE || st == LS_UNSAFE_PATH || st == LS_UNSUPPORTED;
}

static ls_status newest(ls_group *g, const char *dir, const char *names, int count, ls_checkpoint **out)
{
    const char *name = NULL;
    int damaged = 0;
    for (;;) {
        candidate c = { 0 };
        if (ls_group_rank(g) == 0) choose(dir, names, count, &name, &c);
        LS_TRY(ls_broadcast(g, &c, sizeof c, LS_U8, 0));
        if (c.failed < 0) return ls_fail((ls_status)c.failed, "%s", c.message);
        if (!*c.path) break;
        const ls_status st = open_all(g, c.path, true, out);
        if (st == LS_OK || !is_damaged(st)) return st;
        damaged++;
        if (ls_group_rank(g) == 0) ls_log(LS_LOG_WARN, "%s is damaged and is skipped: %s", c.path, ls_last_error());
    }
    if (damaged == 0) return LS_OK;
    return ls_fail(LS_CKPT_CORRUPT, "%s: none of its %d checkpoint%s is whole; the log says what is wrong with each",
                   dir, damaged,
                   damaged == 1 ? "" : "s");
}

ls_status ls_checkpoint_newest(ls_group *g, const char *dir, ls_checkpoint **out)
{
    char *names = malloc(LS_STEPS_NAMES_BYTES);
    *out = NULL;
    const bool reads = ls_group_rank(g) == 0 && names;
    const int count = reads ? ls_env_get()->list(dir, names, LS_STEPS_NAMES_BYTES) : 0;
    ls_status st = names ? LS_OK : ls_fail(LS_NO_MEMORY, "the names in %s", dir);
    if (count < 0 && count != -ENOENT) st = ls_fail(LS_IO, "%s: cannot be listed: %s", dir, strerror(-count));
    st = ls_state_agree(g, st, NULL);
    if (st == LS_OK) st = newest(g, dir, names, count, out);
    free(names);
    return st;
}

ls_status ls_state_save_in(ls_state *s, const char *dir, int64_t step)
{
    char folder[1024];
    const int n = snprintf(folder, sizeof folder, "%s/step-%08" PRId64, dir, step);
    if (step < 0 || step > 99999999 || n < 0 || (size_t)n >= sizeof folder)
        return ls_fail(LS_INVALID, "ls_state_save_in: step %" PRId64 " in %.200s: expected 0 to 99999999, and a name of less than "
                       "%zu bytes", step, dir, sizeof folder);
    return ls_state_save(s, folder, step);
}
