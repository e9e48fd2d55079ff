/* progress.c -- the file of what a reader of the labs has done. */
#include "lab/progress.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/env.h"
#include "base/file.h"
#include "base/limits.h"
#include "base/text.h"

#define HEAD "# lockstep labs, progress "
#define VERSION 1
#define MOST_BYTES 1000000 /* of the file */
#define MOST 1000000 /* tries, or hints */

static ls_status read_file(const char *path, char **text, size_t *n)
{
    ls_file_info info = { 0 };
    *text = NULL;
    *n = 0;
    const int r = ls_env_get()->info(path, &info);
    if (r == 0 && info.type == LS_FILE_NONE) return LS_OK;
    LS_TRY(ls_file_read(path, MOST_BYTES, text, n));
    if (strlen(*text) != *n) {
        free(*text);
        *text = NULL;
        return ls_fail(LS_BAD_FILE, "%s: has a zero byte: it is no file of progress", path);
    }
    if (strncmp(*text, HEAD, strlen(HEAD)) != 0) return LS_OK; /* lines of an editor stay */
    const int version = atoi(*text + strlen(HEAD));
    if (version <= VERSION) return LS_OK;
    free(*text);
    *text = NULL;
    return ls_fail(LS_BAD_FILE, "%s: is of version %d, and this program writes version %d: it is left as it is; use the newer "
                   "lockstep", path, version, VERSION);
}

/* Whether a line (up to its end) is that of the item. */
static bool is_of(const char *line, const char *item)
{
    const size_t n = strlen(item);
    return strncmp(line, item, n) == 0 && line[n] == ' ';
}

static int number_after(const char *line, const char *end, const char *key)
{
    const char *at = strstr(line, key);
    const long v = at && at < end ? strtol(at + strlen(key), NULL, 10) : 0;
    return v < 0 || v > MOST ? 0 : (int)v;
}

ls_status ls_lab_progress_read(const char *path, const char *item, ls_lab_item *out)
{
    char *text;
    size_t n;
    *out = (ls_lab_item){ .tries = 0 };
    LS_TRY(read_file(path, &text, &n));
    for (const char *line = text; line && *line; line += strcspn(line, "\n"), line += *line == '\n') {
        if (!is_of(line, item)) continue;
        const char *state = line + strlen(item) + 1, *end = line + strcspn(line, "\n");
        const size_t bytes = strcspn(state, " \n");
        snprintf(out->state, sizeof out->state, "%.*s", (int)(bytes < sizeof out->state ? bytes : 0), state);
        out->tries = number_after(line, end, " tries=");
        out->hints = number_after(line, end, " hints=");
        out->told = end - line >= 9 && strncmp(end - 9, " solution", 9) == 0;
    }
    free(text);
    return LS_OK;
}

/* "2027-01-03", in UTC (days to a civil date: Hinnant 2014). */
static void add_date(ls_text *t, long long wall_ns)
{
    const long long z = wall_ns / 86400000000000ll + 719468, era = z / 146097, doe = z - era * 146097;
    const long long yoe = (doe - doe / 1460 + doe / 36524 - doe / 146096) / 365;
    const long long doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    const long long mp = (5 * doy + 2) / 153, day = doy - (153 * mp + 2) / 5 + 1, month = mp < 10 ? mp + 3 : mp - 9;
    ls_text_add(t, "%04lld-%02lld-%02lld", yoe + era * 400 + (month <= 2), month, day);
}

static void add_line(ls_text *t, const char *item, const ls_lab_item *now, long long wall_ns)
{
    ls_text_add(t, "%s %s ", item, now->state);
    add_date(t, wall_ns);
    if (now->tries) ls_text_add(t, " tries=%d", now->tries);
    if (now->hints) ls_text_add(t, " hints=%d", now->hints);
    ls_text_add(t, now->told ? " solution\n" : "\n");
}

ls_status ls_lab_progress_write(const char *path, const char *item, const ls_lab_item *now, long long wall_ns)
{
    char *text;
    size_t n;
    bool there = false;
    ls_text t = { 0 };
    LS_TRY(read_file(path, &text, &n));
    if (!text || strncmp(text, HEAD, strlen(HEAD)) != 0) ls_text_add(&t, HEAD "%d\n", VERSION);
    for (const char *line = text; line && *line;) {
        const size_t bytes = strcspn(line, "\n");
        if (!is_of(line, item)) {
            ls_text_addn(&t, line, bytes);
            ls_text_add(&t, "\n");
        } else if (!there) {
            add_line(&t, item, now, wall_ns);
            there = true;
        }
        line += bytes;
        line += *line == '\n';
    }
    free(text);
    if (!there) add_line(&t, item, now, wall_ns);
    ls_status st = ls_text_status(&t);
    if (st == LS_OK) st = ls_file_write(path, t.p, t.n);
    ls_text_free(&t);
    return st;
}
