/* progress.h -- what a reader of the labs has done: one text file in the folder of tasks, one line per item.
 *
 *     # lockstep labs, progress 1
 *     01.claims seen 2027-01-03
 *     01.5 holds 2027-01-03 | 415,872 = 415,872
 *     01.ex1 green 2027-01-03 tries=3 hints=1
 *     01.q2 missed 2027-01-03 tries=1
 *
 * It is replaced whole or not at all, and by one process at a time: others wait for PROGRESS.lock, an empty file beside
 * it. Lines that are not of this form stay as they are.
 */
#ifndef LS_LAB_PROGRESS_H
#define LS_LAB_PROGRESS_H
#include <stdbool.h>
#include <stddef.h>

#include "base/text.h"
#include "lockstep/status.h"

#define LS_LAB_PROGRESS "progress" /* name of the file */

typedef struct ls_lab_item {
    char state[16];    /* "seen", "red", "green" ..; "": nothing yet */
    char date[12];     /* "2027-01-03", in UTC: when it became this */
    int tries, hints;
    bool told;         /* the solution was shown: " solution" at the end of the line */
    char values[400];  /* a claim's comparison with its numbers; "": none */
} ls_lab_item;

/* The text of such a file, "" where there is none; free *out. LS_IO, LS_BAD_FILE: it cannot be read, or is of a newer
 * version. */
ls_status ls_lab_progress_text(const char *path, char **out);

/* How an item changes: from what its line says, or all zeros, to what it shall say. The date becomes today's. */
typedef struct ls_lab_change {
    const char *item; /* "01.ex1": borrowed */
    void (*make)(ls_lab_item *item, const void *arg);
    const void *arg;
} ls_lab_change;

/* The line of an item ("01.ex1") in the file `path`. No file, or no such line: all zeros. As ls_lab_progress_text. */
ls_status ls_lab_progress_read(const char *path, const char *item, ls_lab_item *out);
/* Makes n changes at once, with the date of `wall_ns` (ls_env.wall_ns). LS_IO (also if another process holds the lock
 * for 10 s), LS_BAD_FILE: the file stays as it was. */
ls_status ls_lab_progress_change(const char *path, const ls_lab_change *c, size_t n, long long wall_ns);
/* Adds the lines of another such file, whose first line may be missing. Of an item that both have, the line of the
 * later day counts, on the same day the better one, with the larger numbers of tries and hints. *items: how many
 * lines there were. LS_USAGE: a line is none; its number is said, and the file stays as it was. */
ls_status ls_lab_progress_import(const char *path, const char *from, int *items);

/* --- texts of such files --- */

/* As ls_lab_progress_read. */
void ls_lab_progress_find(const char *text, const char *item, ls_lab_item *out);
/* `text` with the line of an item replaced, or added: a file of progress. */
void ls_lab_progress_edit(const char *text, const char *item, const ls_lab_item *now, ls_text *out);
/* `text` with the lines of `from` added, as ls_lab_progress_import does; `name` stands in messages. */
ls_status ls_lab_progress_merge(const char *text, const char *name, const char *from, ls_text *out, int *items);

#endif
