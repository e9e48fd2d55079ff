/* progress.c -- the file of what a reader of the labs has done: read, and replaced by one process at a time. */
#include "lab/progress.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/env.h"
#include "base/file.h"

#define HEAD "# lockstep labs, progress "
#define VERSION 1
#define MOST_BYTES 1000000 /* of the file */
#define MOST_MERGED 100000 /* of one whose lines are added, each by a copy of the whole */
#define PATIENCE_NS 10000000000ull /* for another process to end its change, which takes some milliseconds */
#define LOOK_NS 5000000u

/* Its text, "" where there is no file; the caller frees *text. */
static ls_status read_file(const char *path, size_t most, char **text)
{
    ls_file_info info = { 0 };
    size_t n;
    *text = NULL;
    const int r = ls_env_get()->info(path, &info);
    if (r == 0 && info.type == LS_FILE_NONE) return (*text = strdup("")) ? LS_OK : ls_fail(LS_NO_MEMORY, "%s", path);
    LS_TRY(ls_file_read(path, most, text, &n));
    const int version = strncmp(*text, HEAD, strlen(HEAD)) == 0 ? atoi(*text + strlen(HEAD)) : 0; /* 0: of an editor */
    if (strlen(*text) == n && version <= VERSION) return LS_OK;
    const ls_status st = strlen(*text) != n
        ? ls_fail(LS_BAD_FILE, "%s: has a zero byte: it is no file of progress", path)
        : ls_fail(LS_BAD_FILE, "%s: is of version %d, and this program writes version %d: it is left as it is; use the newer "
                  "lockstep", path, version, VERSION);
    free(*text);
    *text = NULL;
    return st;
}

ls_status ls_lab_progress_text(const char *path, char **out) { return read_file(path, MOST_BYTES, out); }

ls_status ls_lab_progress_read(const char *path, const char *item, ls_lab_item *out)
{
    char *text;
    *out = (ls_lab_item){ .tries = 0 };
    LS_TRY(read_file(path, MOST_BYTES, &text));
    ls_lab_progress_find(text, item, out);
    free(text);
    return LS_OK;
}

/* Waits until no other process changes the file; closing *fd lets the next one. */
static ls_status lock(const char *path, int *fd)
{
    const ls_env *env = ls_env_get();
    const uint64_t until = env->mono_ns() + PATIENCE_NS;
    ls_text name = { 0 };
    ls_text_add(&name, "%s.lock", path);
    ls_status st = ls_text_status(&name);
    *fd = -1;
    int r = st == LS_OK ? *fd = env->append(name.p) : 0;
    if (r >= 0 && st == LS_OK)
        while ((r = env->lock(*fd)) == -EAGAIN && env->mono_ns() < until)
            env->wait(NULL, 0, NULL, 0, env->mono_ns() + LOOK_NS);
    if (r == -EAGAIN) st = ls_fail(LS_IO, "%s: another process has held it for 10 s", name.p);
    else if (r < 0) st = ls_fail(LS_IO, "%s: %s", name.p, strerror(-r));
    if (st < 0 && *fd >= 0) env->close_fd(*fd);
    ls_text_free(&name);
    return st;
}

/* "2027-01-03", in UTC (days to a civil date: Hinnant 2014). */
static void date_of(long long wall_ns, ls_text *t)
{
    const long long z = wall_ns / 86400000000000ll + 719468, era = z / 146097, doe = z - era * 146097;
    const long long yoe = (doe - doe / 1460 + doe / 36524 - doe / 146096) / 365;
    const long long doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    const long long mp = (5 * doy + 2) / 153, day = doy - (153 * mp + 2) / 5 + 1, month = mp < 10 ? mp + 3 : mp - 9;
    ls_text_add(t, "%04lld-%02lld-%02lld", yoe + era * 400 + (month <= 2), month, day);
}

static ls_status change(const char *path, const ls_lab_change *c, size_t n, const char *date)
{
    char *text;
    LS_TRY(read_file(path, MOST_BYTES, &text));
    for (size_t i = 0; i < n; i++) {
        ls_lab_item item;
        ls_text next = { 0 };
        ls_lab_progress_find(text, c[i].item, &item);
        c[i].make(&item, c[i].arg);
        strncpy(item.date, date, sizeof item.date - 1);
        ls_lab_progress_edit(text, c[i].item, &item, &next);
        free(text);
        text = NULL;
        const ls_status st = ls_text_status(&next);
        if (st < 0) {
            ls_text_free(&next);
            return st;
        }
        text = next.p;
    }
    const ls_status st = ls_file_write(path, text, strlen(text));
    free(text);
    return st;
}

ls_status ls_lab_progress_change(const char *path, const ls_lab_change *c, size_t n, long long wall_ns)
{
    ls_text date = { 0 };
    int fd;
    if (n == 0) return LS_OK;
    date_of(wall_ns, &date);
    ls_status st = ls_text_status(&date);
    if (st == LS_OK) st = lock(path, &fd);
    if (st == LS_OK) {
        st = change(path, c, n, date.p);
        ls_env_get()->close_fd(fd);
    }
    ls_text_free(&date);
    return st;
}

ls_status ls_lab_progress_import(const char *path, const char *from, int *items)
{
    char *more, *text = NULL;
    ls_text merged = { 0 };
    ls_file_info info = { 0 };
    int fd;
    *items = 0;
    if (ls_env_get()->info(from, &info) == 0 && info.type == LS_FILE_NONE) return ls_fail(LS_IO, "%s: No such file", from);
    LS_TRY(read_file(from, MOST_MERGED, &more));
    ls_status st = lock(path, &fd);
    if (st == LS_OK) {
        st = read_file(path, MOST_BYTES, &text);
        if (st == LS_OK) st = ls_lab_progress_merge(text, from, more, &merged, items);
        if (st == LS_OK && *items > 0) st = ls_file_write(path, merged.p, merged.n);
        ls_env_get()->close_fd(fd);
    }
    free(more);
    free(text);
    ls_text_free(&merged);
    return st;
}
