/* progress.h -- what a reader of the labs has done: one text file in the folder of tasks, one line per item.
 *
 *     # lockstep labs, progress 1
 *     01.claims seen 2027-01-03
 *     01.ex1 green 2027-01-03 tries=3 hints=1
 *
 * It is replaced whole or not at all. Lines that are not of this form stay as they are.
 */
#ifndef LS_LAB_PROGRESS_H
#define LS_LAB_PROGRESS_H
#include <stdbool.h>

#include "lockstep/status.h"

#define LS_LAB_PROGRESS "progress" /* name of the file */

typedef struct ls_lab_item {
    char state[16];   /* "seen", "red", "green"; "": nothing yet */
    int tries, hints;
    bool told;        /* the solution was shown: " solution" at the end of the line */
} ls_lab_item;

/* The line of an item ("01.ex1") in the file `path`. No file, or no such line: all zeros. LS_IO, LS_BAD_FILE: it cannot
 * be read, or is of a newer version. */
ls_status ls_lab_progress_read(const char *path, const char *item, ls_lab_item *out);
/* Its line becomes this, with the date of `wall_ns` (ls_env.wall_ns). LS_IO, LS_BAD_FILE: the file stays as it was. */
ls_status ls_lab_progress_write(const char *path, const char *item, const ls_lab_item *now, long long wall_ns);

#endif
