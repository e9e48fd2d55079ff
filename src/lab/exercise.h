/* exercise.h -- the exercises of a lab: files that a reader fills in, and checks of them.
 *
 * A lab's folder has ex1, ex2, .. with task.c, check.c, hints.md, solution.c. A reader's copy of task.c is
 * LAB/ex1.c in a folder of tasks. A check is compiled from that file and the installed check.c, linked with this
 * program's library, and run in a process of its own, with limits that are set before it begins: 10 s, 1 GiB of memory,
 * files of 1 MiB, 1 MiB of output. It is right if it ends with 0 and says so last.
 */
#ifndef LS_LAB_EXERCISE_H
#define LS_LAB_EXERCISE_H
#include "base/stop.h"
#include "lab/shelf.h"

#define LS_LAB_TASKS "lockstep-labs" /* the folder of tasks, unless another one is named */

/* How many exercises the lab has. */
int ls_lab_exercises(const ls_lab_entry *e);
/* A file of exercise n (from 1): "task.c" .. The caller frees *text. LS_USAGE: the lab has no such exercise.
 * LS_IO: it cannot be read. */
ls_status ls_lab_exercise_file(const ls_lab_entry *e, int n, const char *name, char **text, size_t *nbytes);

/* Copies the tasks of all labs into a folder, with a Makefile; files that are there already stay as they are. *copied:
 * how many files are new. LS_IO. */
ls_status ls_lab_start(const ls_lab_shelf *s, const char *folder, int *copied);
/* The folder of tasks as seen from the current folder: LS_LAB_TASKS, or the current folder if it is one. `out`
 * gets its path. LS_USAGE: there is none. */
ls_status ls_lab_tasks(ls_text *out);

/* Checks the file `path` as exercise n. *green: the answer is right. `said` gets what to tell the reader. LS_SYSTEM:
 * there is no C compiler. LS_IO: the file, or the library, is not there. LS_INTERRUPTED. */
ls_status ls_lab_check(const ls_lab_entry *e, int n, const char *path, uint64_t seed, const ls_stop *stop, bool *green,
                       ls_text *said);
/* Hint 1, 2 or 3 in the text of hints.md: *hint points into it. LS_USAGE: there is no such one. */
ls_status ls_lab_hint(const char *hints, int which, const char **hint, size_t *nbytes);

#endif
